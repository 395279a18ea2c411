"""What a program with SQLAlchemy 2 does with the queue: Core and Session, jobs in the transactions
of the ORM, a worker.

    pip install -r requirements.txt -r requirements-sqlalchemy.txt
    DATABASE_URL=postgresql://app@localhost/shop python sqlalchemy_example.py

The role needs jobs.grant_producer and jobs.grant_worker. Behind PgBouncer in transaction mode set
POOLED=1. The library in Python has a worker, and inserts with these sessions: docs/workers.md.
"""

import os
from datetime import datetime, timedelta, timezone

from sqlalchemy import ARRAY, BigInteger, DateTime, Interval, Text, bindparam, create_engine, func, make_url, null, select, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.pool import NullPool

POOLED = bool(os.environ.get("POOLED"))
engine = create_engine(
    make_url(os.environ["DATABASE_URL"]).set(drivername="postgresql+psycopg"),
    connect_args={"prepare_threshold": None if POOLED else 5},
    **({"poolclass": NullPool} if POOLED else {}),  # one pool is enough
)

# The types of the parameters. JSONB makes JSON null of None; null() is SQL NULL. Without a type a
# dict is not adapted.
TYPES = {
    "args": JSONB,
    "unique_opts": JSONB(none_as_null=True),
    "meta": JSONB(none_as_null=True),
    "retry": JSONB(none_as_null=True),
    "scheduled_at": DateTime(timezone=True),
    "expires_at": DateTime(timezone=True),
    "timeout": Interval,
    "tags": ARRAY(Text),
}


def insert_job(session, kind, args, **options):
    """jobs.insert with its parameters' names, in the transaction of a Session or Connection."""
    values = {"kind": kind, "args": args, **options}
    statement = text(f"select * from jobs.insert({', '.join(f'{name} => :{name}' for name in values)})")
    return session.execute(statement.bindparams(*(bindparam(n, v, TYPES.get(n)) for n, v in values.items()))).one()


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    customer: Mapped[str]
    shipped: Mapped[bool] = mapped_column(default=False)


# --- Insert, unique insert ------------------------------------------------------------------------

Base.metadata.create_all(engine)
report = {"month": "2030-01"}
with Session(engine) as session, session.begin():
    job = insert_job(session, "ship", {"order": 0}, queue="shipping")
    print(f"inserted: {job.state} in {job.queue}")
    first = insert_job(session, "report", report, unique_opts={"by_args": True})
    again = insert_job(session, "report", report, unique_opts={"by_args": True})
    print(f"duplicate: {again.unique_skipped_as_duplicate}, same job: {again.id == first.id}")
    try:
        with session.begin_nested():  # a savepoint: the transaction survives the error
            insert_job(session, "report", report, unique_opts={"by_args": True, "on_conflict": "reject"})
    except IntegrityError as error:  # error.orig is psycopg's
        print(f"rejected: {error.orig.sqlstate}, names the job: {str(first.id) in error.orig.diag.message_detail}")

# --- A row of ours and its job: both or neither ---------------------------------------------------


def place_order(customer, fails=False):
    with Session(engine) as session, session.begin():
        session.add(order := Order(customer=customer))
        session.flush()  # gives it its id
        insert_job(session, "ship", {"order": order.id}, queue="shipping")
        if fails:
            raise ValueError("the card was refused")


def orders():
    with Session(engine) as session:
        return session.scalar(select(func.count()).select_from(Order))


try:
    place_order("Ann", fails=True)
except ValueError:
    print(f"rolled back: {orders()} orders")
place_order("Bob")
print(f"committed: {orders()} orders")

# --- Every type, and many jobs --------------------------------------------------------------------

autocommit = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
job = insert_job(
    autocommit,
    "types",
    {"text": 'ü \' \\ "', "numbers": [1, 2.5, 9007199254740993], "none": None},
    unique_opts=None,
    queue=None,
    priority=-5,
    scheduled_at=datetime(2030, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=2))),
    max_attempts=3,
    tags=["a b", "c,d", 'say "hi"', ""],
    meta={"note": None},
    timeout=timedelta(seconds=90),
    retry="oban",
    expires_at=datetime(2031, 1, 1, tzinfo=timezone.utc),
    pending=False,
)
print(f"types: {job.state} at {job.scheduled_at.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S}")
insert_job(autocommit, "null_args", None)
try:
    insert_job(autocommit, "null_args", null())
except DataError as error:
    print(f"null args: {error.orig.sqlstate}")
for n in range(20):
    insert_job(autocommit, "counted", {"n": n})
generic = text("select coalesce(sum(generic_plans), 0) > 0 from pg_prepared_statements where statement like '%jobs.insert(%'")
print(f"repeated: 20 jobs, generic plan: {autocommit.scalar(generic)}")

# Core knows functions with rows, too; func has no names for arguments, so it suits those that have
# few.
line = {"kind": "line", "args": {"n": 1}, "unique_opts": {"by_args": True}}
answers = func.jobs.insert_many(bindparam(None, [line, line, line | {"args": None}], JSONB)).table_valued("id", "unique_skipped_as_duplicate")
rows = autocommit.execute(select(answers)).all()
print(f"insert_many: {len(rows)} rows, {sum(row.unique_skipped_as_duplicate for row in rows)} skipped")
answers = func.jobs.insert_batch("page", bindparam(None, [{"n": 1}, {"n": 2}], ARRAY(JSONB))).table_valued("id")
print(f"insert_batch: {len(autocommit.execute(select(answers)).all())} rows")

# --- A worker in its simplest form, until there is nothing left to do. It fetches and waits in
# autocommit.


def ship(job):
    # What the job changes and its end: both or neither.
    with Session(engine) as session, session.begin():
        if not (order := session.get(Order, job.args["order"])):
            raise LookupError(f"there is no order {job.args['order']}")
        order.shipped = True
        return session.scalar(select(func.jobs.complete(job.id, job.token, bindparam(None, {"ok": True}, JSONB))))


fetch = text("select * from jobs.fetch('shipping', max_jobs => 10, worker => 'example', lease => :lease)")
fail = text("select state from jobs.fail(:id, :token, :error, retry_in => :retry_in, details => :details)").bindparams(bindparam("details", type_=JSONB))
while True:
    jobs = autocommit.execute(fetch, {"lease": timedelta(minutes=1)}).all()
    for job in jobs:
        try:
            print(f"worker: order {job.args['order']} {ship(job)}")
        except LookupError as error:
            values = {"id": job.id, "token": job.token, "error": str(error), "retry_in": timedelta(hours=1)}
            state = autocommit.scalar(fail, values | {"details": {"type": "unknown_order"}})
            print(f"worker: order {job.args['order']} {state}")
    if not jobs:
        # A real worker waits longer, and repeats.
        autocommit.execute(text("call jobs.wait('shipping', timeout => '100 ms')"))
        break
try:
    autocommit.execute(text("select jobs.complete(:id, 12345)"), {"id": first.id})
except DBAPIError as error:
    print(f"not ours: {error.orig.sqlstate}")
