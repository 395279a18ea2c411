"""What a Django project does with the queue, in one file: jobs in transaction.atomic, and a
management command that works.

    pip install -r requirements.txt -r requirements-django.txt
    DATABASE_URL=postgresql://app@localhost/shop python django_example.py

The role needs jobs.grant_producer and jobs.grant_worker. Behind PgBouncer in transaction mode set
POOLED=1. The library in Python has a worker, and inserts with Django's connection: docs/workers.md.
"""

import json
import os
from datetime import datetime, timedelta, timezone

import django
from django.conf import settings
from django.core.management import BaseCommand, call_command
from django.db import DatabaseError, IntegrityError, connection, models, transaction
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.json import Jsonb

url = conninfo_to_dict(os.environ["DATABASE_URL"])
# Django sends the values within the text of the statement unless told otherwise, and prepares
# nothing: that suits PgBouncer. To leave it to the server, and prepare what has been executed five
# times:
ON_THE_SERVER = {"server_side_binding": True, "prepare_threshold": 5}
settings.configure(
    USE_TZ=True,
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            **{name.upper(): url.get(key) for name, key in {"name": "dbname", "user": "user", "host": "host", "port": "port"}.items()},
            "OPTIONS": {} if os.environ.get("POOLED") else ON_THE_SERVER,
            "DISABLE_SERVER_SIDE_CURSORS": bool(os.environ.get("POOLED")),
        }
    },
)
django.setup()


class Order(models.Model):
    customer = models.TextField()
    shipped = models.BooleanField(default=False)

    class Meta:
        app_label, db_table = "shop", "orders"


def rows(sql, values=()):
    """A statement's rows as dicts. Django's cursor leaves jsonb as text, see json.loads below."""
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row)) for row in cursor.fetchall()]


def insert_job(kind, args, **options):
    """jobs.insert with the names of its parameters, in the transaction that Django is in."""
    values = {"kind": kind, "args": args, **options}
    return rows(f"select * from jobs.insert({', '.join(f'{name} => %({name})s' for name in values)})", values)[0]


# --- Insert, unique insert ------------------------------------------------------------------------

with connection.schema_editor() as editor:  # a migration, in a project
    editor.create_model(Order)
job = insert_job("ship", Jsonb({"order": 0}), queue="shipping")
print(f"inserted: {job['state']} in {job['queue']}")
report = Jsonb({"month": "2030-01"})
first = insert_job("report", report, unique_opts=Jsonb({"by_args": True}))
again = insert_job("report", report, unique_opts=Jsonb({"by_args": True}))
print(f"duplicate: {again['unique_skipped_as_duplicate']}, same job: {again['id'] == first['id']}")
try:
    with transaction.atomic():  # within another atomic() it is a savepoint
        insert_job("report", report, unique_opts=Jsonb({"by_args": True, "on_conflict": "reject"}))
except IntegrityError as error:  # __cause__ is psycopg's
    print(f"rejected: {error.__cause__.sqlstate}, names the job: {str(first['id']) in error.__cause__.diag.message_detail}")

# --- A row of ours and its job: both or neither. No transaction.on_commit: that would lose the job
# if the process died then. -


def place_order(customer, fails=False):
    with transaction.atomic():
        order = Order.objects.create(customer=customer)
        insert_job("ship", Jsonb({"order": order.id}), queue="shipping")
        if fails:
            raise ValueError("the card was refused")


try:
    place_order("Ann", fails=True)
except ValueError:
    print(f"rolled back: {Order.objects.count()} orders")
place_order("Bob")
print(f"committed: {Order.objects.count()} orders")

# --- Every type, and many jobs. None is SQL NULL, which means the default; Jsonb(None) is JSON
# null, which is a value.

job = insert_job(
    "types",
    Jsonb({"text": 'ü \' \\ "', "numbers": [1, 2.5, 9007199254740993], "none": None}),
    unique_opts=None,
    queue=None,
    priority=-5,
    scheduled_at=datetime(2030, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=2))),
    max_attempts=3,
    tags=["a b", "c,d", 'say "hi"', ""],
    meta=Jsonb({"note": None}),
    timeout=timedelta(seconds=90),
    retry=Jsonb("oban"),
    expires_at=datetime(2031, 1, 1, tzinfo=timezone.utc),
    pending=False,
)
print(f"types: {job['state']} at {job['scheduled_at'].astimezone(timezone.utc):%Y-%m-%d %H:%M:%S}")
insert_job("null_args", Jsonb(None))
try:
    insert_job("null_args", None)
except DatabaseError as error:
    print(f"null args: {error.__cause__.sqlstate}")
for n in range(20):
    insert_job("counted", Jsonb({"n": n}))
generic = rows("select coalesce(sum(generic_plans), 0) > 0 as used from pg_prepared_statements where statement like '%%jobs.insert(%%'")
print(f"repeated: 20 jobs, generic plan: {generic[0]['used']}")
line = {"kind": "line", "args": {"n": 1}, "unique_opts": {"by_args": True}}
many = rows("select * from jobs.insert_many(%s)", [Jsonb([line, line, line | {"args": None}])])
print(f"insert_many: {len(many)} rows, {sum(row['unique_skipped_as_duplicate'] for row in many)} skipped")
batch = rows("select * from jobs.insert_batch('page', %s)", [[Jsonb({"n": 1}), Jsonb({"n": 2})]])
print(f"insert_batch: {len(batch)} rows")

# --- A worker: a management command, here in its simplest form. ATOMIC_REQUESTS does not concern
# it: it is in autocommit.


def ship(job, order):
    with transaction.atomic():  # what the job changes and its end: both or neither
        if not Order.objects.filter(id=order).update(shipped=True):
            raise LookupError(f"there is no order {order}")
        return rows("select jobs.complete(%s, %s, %s) as state", [job["id"], job["token"], Jsonb({"ok": True})])[0]["state"]


class Command(BaseCommand):  # management/commands/work.py
    requires_system_checks = []

    def handle(self, **options):
        while jobs := rows("select * from jobs.fetch('shipping', max_jobs => 10, worker => 'example', lease => %s)", [timedelta(minutes=1)]):
            for job in jobs:
                order = json.loads(job["args"])["order"]
                try:
                    self.stdout.write(f"worker: order {order} {ship(job, order)}")
                except LookupError as error:
                    values = [job["id"], job["token"], str(error), timedelta(hours=1), Jsonb({"type": "unknown_order"})]
                    failed = rows("select * from jobs.fail(%s, %s, %s, retry_in => %s, details => %s)", values)[0]
                    self.stdout.write(f"worker: order {order} {failed['state']}")
        with connection.cursor() as cursor:
            # A real worker waits longer, and repeats.
            cursor.execute("call jobs.wait('shipping', timeout => '100 ms')")


call_command(Command())
try:
    rows("select jobs.complete(%s, 12345)", [first["id"]])
except DatabaseError as error:
    print(f"not ours: {error.__cause__.sqlstate}")
