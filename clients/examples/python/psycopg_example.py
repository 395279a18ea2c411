"""What a program with psycopg 3 does with the queue: insert, unique insert, jobs in its own
transactions, batches, a worker, a result.

    pip install -r requirements.txt
    DATABASE_URL=postgresql://app@localhost/shop python psycopg_example.py

The role needs jobs.grant_application, because it reads a result; for the rest jobs.grant_producer
and jobs.grant_worker are enough. Behind PgBouncer in transaction mode set POOLED=1. All of this is
SQL by hand, which the library in Python does for you: docs/workers.md. docs/drivers.md says what to
know of the types.
"""

import os
from datetime import datetime, timedelta, timezone

import psycopg
from psycopg.rows import namedtuple_row
from psycopg.types.json import Jsonb

# psycopg prepares what it has executed five times. A pooler that gives each transaction another
# server must not see that.
PREPARE = None if os.environ.get("POOLED") else 5
conn = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True, row_factory=namedtuple_row, prepare_threshold=PREPARE)


def insert_job(kind, args, **options):
    """jobs.insert with the names of its parameters. What is left out, or None, has its default."""
    names = "".join(f", {name} => %({name})s" for name in options)
    return conn.execute(
        f"select * from jobs.insert(kind => %(kind)s, args => %(args)s{names})", {"kind": kind, "args": args, **options}
    ).fetchone()


# --- Insert. A dict needs Jsonb(); plain strings, numbers, dates and lists are adapted. -----------

conn.execute("create table orders (id bigint generated always as identity primary key, customer text, shipped boolean default false)")
job = insert_job("ship", Jsonb({"order": 0}), queue="shipping")
print(f"inserted: {job.state} in {job.queue}")

# --- Unique: a duplicate is skipped and answers with the job that exists, or is an error. ---------

report = Jsonb({"month": "2030-01"})
first = insert_job("report", report, unique_opts=Jsonb({"by_args": True}))
again = insert_job("report", report, unique_opts=Jsonb({"by_args": True}))
print(f"duplicate: {again.unique_skipped_as_duplicate}, same job: {again.id == first.id}")
try:
    insert_job("report", report, unique_opts=Jsonb({"by_args": True, "on_conflict": "reject"}))
except psycopg.errors.UniqueViolation as error:
    print(f"rejected: {error.sqlstate}, names the job: {str(first.id) in error.diag.message_detail}")

# --- A row of ours and its job: both or neither. --------------------------------------------------


def place_order(customer, fails=False):
    with conn.transaction():
        order = conn.execute("insert into orders (customer) values (%s) returning id", (customer,)).fetchone()
        job = insert_job("ship", Jsonb({"order": order.id}), queue="shipping")
        if fails:
            raise ValueError("the card was refused")
    return job.id


try:
    place_order("Ann", fails=True)
except ValueError:
    print("rolled back: %s orders" % conn.execute("select count(*) from orders").fetchone())
shipping = place_order("Bob")
print("committed: %s orders" % conn.execute("select count(*) from orders").fetchone())

# --- Every type. None is SQL NULL, which means the default; Jsonb(None) is JSON null, which is a
# value.

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
print(f"types: {job.state} at {job.scheduled_at.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S}")
insert_job("null_args", Jsonb(None))
try:
    insert_job("null_args", None)
except psycopg.errors.NullValueNotAllowed as error:
    print(f"null args: {error.sqlstate}")

# --- Often the same statement, and many jobs in one. ----------------------------------------------

for n in range(20):
    insert_job("counted", Jsonb({"n": n}))
generic = conn.execute("select coalesce(sum(generic_plans), 0) > 0 as used from pg_prepared_statements where statement like '%jobs.insert(%'")
print(f"repeated: 20 jobs, generic plan: {generic.fetchone().used}")
line = {"kind": "line", "args": {"n": 1}, "unique_opts": {"by_args": True}}
rows = conn.execute("select * from jobs.insert_many(%s)", (Jsonb([line, line, line | {"args": None}]),)).fetchall()
print(f"insert_many: {len(rows)} rows, {sum(row.unique_skipped_as_duplicate for row in rows)} skipped")
rows = conn.execute("select * from jobs.insert_batch('page', %s)", ([Jsonb({"n": 1}), Jsonb({"n": 2})],)).fetchall()
print(f"insert_batch: {len(rows)} rows")

# --- A worker in its simplest form, until there is nothing left to do. ----------------------------


def ship(job):
    with conn.transaction():  # what the job changes and the end of the job: both or neither
        if not conn.execute("update orders set shipped = true where id = %s", (job.args["order"],)).rowcount:
            raise LookupError(f"there is no order {job.args['order']}")
        return conn.execute("select jobs.complete(%s, %s, %s) as state", (job.id, job.token, Jsonb({"ok": True}))).fetchone().state


while True:
    jobs = conn.execute("select * from jobs.fetch('shipping', max_jobs => 10, worker => 'example', lease => %s)", (timedelta(minutes=1),)).fetchall()
    for job in jobs:
        try:
            print(f"worker: order {job.args['order']} {ship(job)}")
        except LookupError as error:
            failed = conn.execute(
                "select * from jobs.fail(%s, %s, %s, retry_in => %s, details => %s)",
                (job.id, job.token, str(error), timedelta(hours=1), Jsonb({"type": "unknown_order"})),
            ).fetchone()
            print(f"worker: order {job.args['order']} {failed.state}")
    if not jobs:
        # A real worker waits longer, and repeats.
        conn.execute("call jobs.wait('shipping', timeout => '100 ms')")
        break
try:
    conn.execute("select jobs.complete(%s, 12345)", (first.id,))
except psycopg.errors.ObjectNotInPrerequisiteState as error:
    print(f"not ours: {error.sqlstate}")

# --- Wait for what a job returns: once its insert is committed, and outside of a transaction. -----

conn.execute("call jobs.wait_for(%s, timeout => '10 seconds')", ([shipping],))
result = conn.execute("select state, output from jobs.results(%s)", ([shipping],)).fetchone()
print(f"result: {result.state}, ok: {result.output['ok']}")
