"""Every block of README.md runs, by itself, and does what is said of it."""

import ast
import asyncio
import re
import sys
import time
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool

import postgres_jobs
from postgres_jobs import Job, Worker, insert, testing

README = Path(__file__).parent.parent / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.M | re.S)


class Sent:
    """May be awaited, or not."""

    def __await__(self):
        yield
        return "message 1"


class Mailer:
    def __init__(self):
        self.sent = []

    def send(self, to, subject=None):
        self.sent.append((to, subject))
        return Sent()


@pytest.fixture
def names(url, queue, monkeypatch):
    """What the blocks take for given."""
    worker = Worker(url, queues=[queue])
    worker.kind("other")(lambda job: None)  # lest it has none when it is started
    sent = Worker(url, queues=[queue])
    sent.kind("email.send")(lambda job: None)

    def place_order(connection, customer):
        insert(connection, "email.send", {"to": customer}, queue=queue)

    monkeypatch.setitem(sys.modules, "shop", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "shop.jobs", SimpleNamespace(place_order=place_order, worker=sent))
    metrics = []
    yield {
        "__name__": "not __main__", "asyncio": asyncio, "contextmanager": contextmanager, "dataclass": dataclass, "time": time,
        "postgres_jobs": postgres_jobs, "Job": Job, "Worker": Worker, "insert": insert,
        "dsn": url, "urls": [url], "worker": worker,
        "mailer": Mailer(), "metrics": SimpleNamespace(record=lambda *values: metrics.append(values)), "recorded": metrics,
        "tenant": ContextVar("tenant", default="blue"), "customer": "ann@example.com", "order": time.time_ns(),
    }  # fmt: skip
    postgres_jobs.insert_middleware.clear()


@pytest.fixture
def connection(url):
    with psycopg.connect(url) as connection:
        yield connection
        connection.rollback()


async def run(block, names, url):
    # `..` stands for the rest of a program.
    code = re.sub(r"^\.\.$", "await asyncio.sleep(0)", block, flags=re.M)
    async with AsyncConnectionPool(url, open=False) as names["pool"]:
        running = eval(compile(code, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        if running is not None:
            await running


def work(names, connection, queue):
    """The worker of the block works a job."""
    worker = names["worker"]
    worker.queues = {queue: 1.0}
    if "email.send" not in worker.handlers:
        worker.kind("email.send")(lambda job: None)
    insert(connection, "email.send", {"to": "ann@example.com"}, queue=queue)
    (worked,) = testing.work_all(connection, worker)
    assert worked.state == "completed", worked.error
    return worked.output


def sends(names, connection, queue):
    assert work(names, connection, queue) == {"message_id": "message 1"}


def produces(names, connection, queue):
    assert connection.execute("select 1 from orders where id = %s", [names["order"]]).fetchall()
    assert testing.assert_inserted(connection, "email.send", {"to": "ann@example.com"}).queue == "mail"


def has_a_kind(names, connection, queue):
    changes = names["place_order"](connection, 7)
    assert [(one.object, one.outcome) for one in changes] == [("kind", "created"), ("periodic job", "created")]
    found = testing.assert_inserted(connection, "invoice.send", {"order": 7})
    assert (found.queue, names["worker"].handlers["invoice.send"].timeout) == ("mail", 30)


def is_a_test(names, connection, queue):
    names["test_an_order_is_confirmed"](connection)


def has_args(names, connection, queue):
    work(names, connection, queue)
    assert names["mailer"].sent == [("ann@example.com", "Your order")]


def has_ended(names, connection, queue):
    assert not names["worker"].ready.is_set()


def is_timed(names, connection, queue):
    work(names, connection, queue)
    assert [kind for kind, _ in names["recorded"]] == ["email.send"]


def has_a_tenant(names, connection, queue):
    insert(connection, "k", {"queue": queue}, queue=queue)
    assert connection.execute("select meta from jobs.jobs where queue = %s", [queue]).fetchall() == [({"tenant": "blue"},)]


def produces_in_a_cell(names, connection, queue):
    assert testing.assert_inserted(connection, "email.send", {"to": "ann@example.com"}).queue == "mail"
    work(names, connection, queue)


BY_FIRST_LINE = {
    "from postgres_jobs import Job, Worker": sends,
    "from postgres_jobs import Unique, insert": produces,
    "from postgres_jobs import Kind": has_a_kind,
    "from postgres_jobs import testing": is_a_test,
    "@dataclass": has_args,
    '@worker.batch("email.send", size=50, linger=0.1)': sends,
    "await worker.start()": has_ended,
    "from postgres_jobs import AsyncCells": produces_in_a_cell,
    "async def timed(job, handler):": is_timed,
    "@contextmanager": has_a_tenant,
    "import postgres_jobs": work,  # test_worker.py has the spans
}


def test_no_block_is_left_out():
    assert [block.splitlines()[0] for block in BLOCKS] == list(BY_FIRST_LINE)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.splitlines()[0])
def test_block(block, names, connection, url, queue):
    # The example application has another table of this name.
    url += ("&" if "?" in url else "?") + "options=-csearch_path%3Dreadme"
    connection.execute("set search_path = readme")
    connection.execute("create schema if not exists readme")
    connection.execute("create table if not exists orders (id bigint)")
    connection.commit()
    asyncio.run(run(block, names, url))
    BY_FIRST_LINE[block.splitlines()[0]](names, connection, queue)
