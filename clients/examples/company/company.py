"""The jobs of a company, to look at with `pgjobs console`: a shop that takes orders, captures
payments, sends mail, resizes pictures and calls its partners. Much of it fails, as it does in life.

    pip install "../../python[binary]"
    DATABASE_URL=postgresql://postgres@localhost/company python company.py [--once]

It runs until SIGTERM or SIGINT; with --once it ends when the first orders are done. It creates
the roles of roles.sql, so it has to be a superuser.
"""

import asyncio
import logging
import os
import random
import signal
import sys
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.types.json import Jsonb

from postgres_jobs import Cancel, Discard, Job, Snooze, Unique, Worker, insert_many

URL = os.environ.get("DATABASE_URL", "")
luck = random.Random(12)
logging.getLogger("postgres_jobs").setLevel(logging.ERROR)  # so many attempts fail

# --- What can go wrong ----------------------------------------------------------------------------


class Refused(Exception):
    """Another attempt cannot help."""


class Unavailable(Exception):
    """Another attempt can."""


class TooManyRequests(Exception):
    """It works in a minute."""


class Withdrawn(Exception):
    """The customer does not want it any more."""


@dataclass
class Kind:
    """What jobs of a kind are like: their queue, how long an attempt takes, how many there are in
    a minute, how often each error comes, and in how many steps they report progress."""

    queue: str
    seconds: float
    a_minute: float
    errors: dict[tuple[type[Exception], str], float]
    steps: int = 1


KINDS = {
    "order.confirm": Kind("orders", 0.02, 60, {(Withdrawn, "the customer has withdrawn order {order}"): 0.02}),
    "payment.capture": Kind("payments", 0.06, 59, {
        (Refused, "card of order {order} declined: insufficient_funds"): 0.03,
        (Unavailable, "no answer from gateway-eu.payments.example:443 within 10 s (order {order})"): 0.03,
    }),
    "email.send": Kind("mail", 0.01, 62, {(Unavailable, "452 4.2.2 <{to}>: mailbox is full"): 0.02}),
    "picture.resize": Kind("pictures", 0.03, 24, {(Refused, "not a JPEG file: starts with 0x3c 0x21 ({picture})"): 0.03}, 4),
    "search.index": Kind("search", 0.01, 30, {}),
    "partner.call": Kind("partners", 0.04, 66, {
        (Unavailable, "503 Service Unavailable: https://partner.example/hooks/{order}"): 0.15,
        (TooManyRequests, "429 Too Many Requests"): 0.05,
    }),
    "report.build": Kind("reports", 0.2, 0.2, {}, 10),
    "stock.sync": Kind("default", 0.05, 6, {(Unavailable, "warehouse-2: connection reset by peer"): 0.1}),
}  # fmt: skip

# --- Workers --------------------------------------------------------------------------------------

WORKERS = {  # that really work: queues with weights, and how many jobs at a time
    "shop-1": ({"orders": 3, "payments": 2, "default": 1}, 6),
    "shop-2": ({"orders": 3, "payments": 2, "default": 1}, 6),
    "mailer-1": ({"mail": 1}, 4),
    "studio-1": ({"pictures": 1, "reports": 1}, 4),
    "partners-1": ({"partners": 2, "search": 1}, 5),
    "archive-1": ({"archive": 1}, 2),  # nothing comes there: it is idle
}


def workers() -> list[Worker]:
    made = []
    for name, (queues, concurrency) in WORKERS.items():
        # As the role that a trusted program has. The handlers insert jobs, too.
        dsn = make_conninfo(URL, options="-c role=application")
        info = {"version": "2.14.0", "host": f"{name}.eu.internal"}
        worker = Worker(dsn, queues=queues, concurrency=concurrency, name=name, info=info, grace=1)
        worker.otherwise()(work)
        made.append(worker)
    return made


async def work(job: Job[dict]) -> dict:
    kind = KINDS[job.kind]
    for step in range(kind.steps):
        await asyncio.sleep(kind.seconds * luck.lognormvariate(0, 0.6))
        if kind.steps > 1:
            await job.progress({"done": step + 1, "of": kind.steps})
    try:
        try_ones_luck(job)
    except Refused as error:
        raise Discard(error)
    except TooManyRequests:
        raise Snooze(60)
    except Withdrawn as error:
        raise Cancel(str(error))
    if job.kind == "order.confirm":
        # The order is confirmed together with what follows from it, or not at all.
        async with await psycopg.AsyncConnection.connect(URL) as connection:
            await insert_many(connection, follow_ups(job.args))
            await job.complete(connection, {"confirmed": job.args["order"]})
    return {"ok": True, "took": round(kind.seconds, 3)}


def try_ones_luck(job: Job[dict]) -> None:
    for (error, text), chance in KINDS[job.kind].errors.items():
        if luck.random() < chance:
            raise error(text.format_map({"order": 0, "to": "", "picture": "", **job.args}))


# --- Jobs -----------------------------------------------------------------------------------------

CUSTOMERS = ["ada@example.com", "björn@example.se", "chiara@example.it", "deniz@example.com.tr", "eva@example.cz"]


def order(number: int) -> dict:
    items = [
        {"sku": f"BOWL-{luck.randrange(100):02}", "quantity": luck.randint(1, 4)} for _ in range(luck.randint(1, 3))
    ]
    args = {
        "order": number,
        "customer": luck.choice(CUSTOMERS),
        "account": 9007199254740993 + number,  # JavaScript has no such number
        "items": items,
        "total": {"amount": f"{luck.uniform(9, 400):.2f}", "currency": "EUR"},
    }
    tags = luck.choice([["web"], ["web"], ["app"], ["app", "vip"], ["phone"]])
    return {"kind": "order.confirm", "queue": "orders", "args": args, "tags": tags, "meta": {"tenant": "eu"}}


def follow_ups(args: dict) -> list[dict]:
    number, one_of_all = args["order"], Unique(by_args=True)
    jobs = [
        {"kind": "payment.capture", "args": {k: args[k] for k in ("order", "total")}, "unique_opts": one_of_all},
        {"kind": "email.send", "args": {"to": args["customer"], "template": "thanks", "order": number}},
        {"kind": "partner.call", "args": {"order": number, "partner": luck.choice(["courier", "books"])}},
        {"kind": "search.index", "args": {"sku": args["items"][0]["sku"]}, "unique_opts": Unique(by_args=True)},
    ]
    if luck.random() < 0.4:
        jobs.append({"kind": "picture.resize", "args": {"picture": f"orders/{number}.jpg", "width": 640}})
    return [job | {"tags": ["order"], "meta": {"tenant": "eu"}} for job in jobs]


def now_and_then() -> list[dict]:
    """Jobs that wait: for a time, for a person, for a queue that is paused."""
    now, number = datetime.now(timezone.utc), luck.randrange(10_000)
    letter = {"kind": "email.send", "queue": "mail", "priority": 5, "tags": ["newsletter"]}
    return [
        {"kind": "report.build", "args": {"month": f"2026-{luck.randint(1, 12):02}", "shop": number % 20}},
        {"kind": "fraud.review", "queue": "review", "args": {"order": number, "score": 0.91}, "pending": True},
        {"kind": "accounts.export", "queue": "exports", "args": {"year": 2026, "account": number % 9}},
        letter | {"args": {"to": luck.choice(CUSTOMERS), "n": number}, "scheduled_at": now + timedelta(hours=9)},
        {"kind": "cart.remind", "args": {"cart": number}, "queue": "review", "expires_at": now + timedelta(days=2)},
    ]


# --- The company ----------------------------------------------------------------------------------


class Company:
    def __init__(self, connection: psycopg.AsyncConnection) -> None:
        self.connection = connection
        self.number = 8000

    async def sql(self, sql: str, *values: object, role: str = "postgres") -> list[tuple]:
        async with self.connection.transaction():
            if role != "postgres":
                await self.connection.execute(f"set local role {role}")
            cursor = await self.connection.execute(sql, values)
            return await cursor.fetchall() if cursor.description else []

    async def set_up(self) -> None:
        await self.connection.execute((Path(__file__).parent / "roles.sql").read_text())
        for name, kind in KINDS.items():
            await self.sql(
                "select jobs.define_kind(%s, queue => %s, timeout => %s, max_attempts => 8)",
                name, kind.queue, timedelta(hours=3) if kind.steps > 1 else timedelta(seconds=30), role="admin",
            )  # fmt: skip
        for queue, limits in {
            "payments": "concurrency => 8",
            "pictures": "concurrency => 4",
            "reports": "concurrency => 2, retention_completed => '30 days'",
            "mail": "rate => 600, rate_period => '1 minute'",
            "partners": "max_waiting => 5000",
        }.items():
            await self.sql(f"select jobs.configure_queue(%s, {limits})", queue, role="admin")
        await self.sql(
            "select jobs.define_limit('partners', '{\"by_args\": [\"partner\"]}', '{partners}', concurrency => 3)", role="admin"
        )
        await self.ordered_exports()
        await self.sql("select jobs.pause_queue('exports', 'the accounts move to a new server')", role="operator")
        for name, cron, kind, args, zone in [
            ("stock", "every 10 seconds", "stock.sync", {"warehouse": 2}, "UTC"),
            ("reports of the night", "30 4 * * *", "report.build", {"month": "this"}, "Europe/Berlin"),
            ("search index", "15 */2 * * *", "search.index", {"sku": "all"}, "UTC"),
            ("newsletter", "0 9 * * 1", "email.send", {"template": "newsletter"}, "America/New_York"),
        ]:
            define = "select jobs.schedule(%s, %s, %s, %s, time_zone => %s)"
            await self.sql(define, name, cron, kind, Jsonb(args), zone, role="application")
        await self.sql("select jobs.pause_periodic('newsletter', 'nobody has written one')", role="operator")

    async def ordered_exports(self) -> None:
        """Those of an account in order, of which one is blocked."""
        await self.sql(
            "select jobs.order_queue('exports', '{\"by_args\": [\"account\"]}', strict => true, on_discard => 'block', "
            "fair => true, weights => '{\"7\": 3}')", role="admin",
        )  # fmt: skip
        await self.insert([{"kind": "accounts.export", "queue": "exports", "args": {"year": 2025, "account": 4}}])
        [job] = await self.sql("select id, token from jobs.fetch('exports', worker => 'annual-1')")
        await self.sql("select jobs.fail(%s, %s, 'account 4 has no address', retryable => false)", *job)

    async def insert(self, jobs: list[dict]) -> None:
        async with self.connection.transaction():
            await insert_many(self.connection, jobs)

    async def orders(self, count: int) -> None:
        await self.insert([order(number) for number in range(self.number, self.number + count)])
        self.number += count

    async def is_busy(self) -> bool:
        sql = "select exists (select from jobs.queues where queue = any(%s) and available + running > 0)"
        return (await self.sql(sql, list({kind.queue for kind in KINDS.values()})))[0][0]

    async def people(self) -> None:
        """What people do by hand."""
        for role, sql in [
            ("operator", "jobs.retry_many(kind => 'picture.resize', states => '{discarded}', max_jobs => 1)"),
            ("operator", "jobs.cancel_many(kind => 'cart.remind', max_jobs => 1, reason => 'the cart is empty')"),
            ("admin", "jobs.delete_many(kind => 'fraud.review', max_jobs => 1, reason => 'a test')"),
            ("application", "jobs.run_periodic('reports of the night', 'the manager asks for it')"),
            ("application", "jobs.override_limit('partners', '\"courier\"', 8, reason => 'the courier asks for more')"),
            ("operator", "jobs.pause_limit('partners', '\"books\"', 'books.example is down until noon')"),
        ]:
            await self.sql(f"select {sql}", role=role)

    async def other_workers(self) -> None:
        """One that runs long jobs, and workers that are quiet, to stop, and lost with a job."""
        beat = "select jobs.worker_beat(%s, %s, 4, '{\"version\": \"2.13.9\"}')"
        for name, queue in [("studio-2", "pictures"), ("studio-3", "pictures"), ("mailer-2", "mail")]:
            await self.sql(beat, name, [queue])
        await self.sql("select jobs.quiet_worker('studio-2', 'its disk is exchanged')", role="operator")
        await self.sql("select jobs.stop_worker('studio-3', 'too old')", role="operator")
        jobs = [{"kind": "report.build", "queue": "annual", "args": {"year": year}} for year in range(2022, 2027)]
        await self.insert(jobs)
        fetch = "select id, token from jobs.fetch('annual', %s, worker => %s, lease => '2 hours')"
        for n, job in enumerate(await self.sql(fetch, 3, "annual-1")):
            progress = Jsonb({"done": 340 * n + 71, "of": 1200, "table": "ledger"})
            await self.sql("select jobs.heartbeat(%s, %s, progress => %s)", *job, progress)
        await self.sql(fetch, 1, "mailer-2")  # and is never seen again


async def main() -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with await psycopg.AsyncConnection.connect(URL, autocommit=True, application_name="company") as connection:
        company = Company(connection)
        await company.set_up()
        at_work = workers()
        for worker in at_work:
            await worker.start()
        await company.orders(150)
        for _ in range(12):
            await company.insert(now_and_then())
        for _ in range(300):
            await asyncio.sleep(0.1)
            if not await company.is_busy():
                break
        await company.people()
        await company.other_workers()
        print("the company is at work" if "--once" not in sys.argv else "the company is there", flush=True)
        while "--once" not in sys.argv and not stop.is_set():
            await company.orders(luck.randint(0, 2))
            if luck.random() < 0.1:
                await company.insert(now_and_then())
            if luck.random() < 0.02:
                await company.people()
            try:
                await asyncio.wait_for(stop.wait(), luck.uniform(0.2, 2))
            except asyncio.TimeoutError:
                pass
        await asyncio.gather(*(worker.stop() for worker in at_work))


if __name__ == "__main__":
    asyncio.run(main())
