"""The helpers for tests."""

import asyncio
import contextlib
import sys
from datetime import datetime, timedelta, timezone

import psycopg
import pytest
from test_transactions import BLOCKING, IN_AUTOCOMMIT

from postgres_jobs import Discard, Job, Kind, Snooze, Worker, insert, insert_many, testing


def test_work_all_in_a_transaction(url, queue):
    worker = Worker(url, queues=[queue])

    @worker.kind("first")
    async def first(job: Job):
        await job.progress(1)
        await asyncio.sleep(0.01)
        return 1

    worker.kind("decorated")(lambda job: first(job))

    @worker.kind("second")
    def second(job: Job):
        job.complete(connection, "here")

    @worker.kind("later")
    def later(job: Job):
        if job.attempt == 1 and not job.meta.get("again"):
            raise Snooze(60)

    @worker.kind("bad")
    def bad(job: Job):
        raise Discard("no")

    with psycopg.connect(url) as connection:
        for kind in ("first", "decorated", "second", "bad", "later"):
            insert(connection, kind, {"kind": kind}, queue=queue)
        found = testing.assert_inserted(connection, "first", {"kind": "first"})
        assert (found.queue, found.state, found.args) == (queue, "available", {"kind": "first"})
        with pytest.raises(AssertionError, match='no job of kind "first"'):
            testing.assert_inserted(connection, "first", {"kind": "second"})
        worked = testing.work_all(connection, worker)
        assert [(one.kind, one.state, one.output, one.error) for one in worked] == [
            ("first", "completed", 1, None),
            ("decorated", "completed", 1, None),
            ("second", "completed", "here", None),
            ("bad", "discarded", None, "no"),
            ("later", "scheduled", None, None),
        ]
        assert testing.work_all(connection, worker) == []
        testing.advance(connection, 60)
        worker = Worker(url, queues=[queue])
        worker.kind("later")(lambda job: None)
        assert [one.state for one in testing.work_all(connection, worker)] == ["completed"]
        connection.rollback()


@pytest.mark.parametrize("library", BLOCKING)
def test_the_helpers_take_every_connection(library, url, queue):
    kind = f"kind of {queue}"
    worker = Worker(url, queues=[queue])

    @worker.kind(kind)
    async def handle(job):
        return job.args

    for connection, _, rollback in library(url):
        insert(connection, kind, {"a": 1}, queue=queue, scheduled_at=datetime.now(timezone.utc) + timedelta(hours=1))
        assert testing.work_all(connection, worker) == []
        testing.advance(connection, timedelta(hours=1))
        testing.assert_inserted(connection, kind, {"a": 1})
        assert [one.state for one in testing.work_all(connection, worker)] == ["completed"]
        rollback()


async def test_work_all_asynchronously(url, queue):
    async def twice(job, handler):
        return [await handler(job)] * 2

    worker = Worker(url, queues=[queue], middleware=[twice])

    @worker.kind("async")
    async def handle(job):
        await connection.execute("select 1 / 0")

    @worker.kind("blocking")
    def handle_blocking(job):
        return job.args

    async with await psycopg.AsyncConnection.connect(url) as connection:
        for kind in ("async", "blocking"):
            await insert(connection, kind, {"a": 1, "b": 2}, queue=queue, max_attempts=1)
        found = await testing.assert_inserted(connection, "async", {"a": 1})
        worked = await testing.work_all(connection, worker)
        assert [one.id for one in worked] == [found.id, found.id + 1]
        assert [one.state for one in worked] == ["discarded", "completed"]
        assert "zero" in worked[0].error and worked[1].output == [{"a": 1, "b": 2}] * 2
        await testing.advance(connection, 1)
        await connection.rollback()


async def test_work_all_says_that_an_event_loop_is_in_its_way(url, queue):
    worker = Worker(url, queues=[queue])
    worker.kind("blocking")(lambda job: 1)

    @worker.kind("async")
    async def handle(job): ...

    with psycopg.connect(url) as connection:
        insert(connection, "blocking", queue=queue)
        assert [one.output for one in testing.work_all(connection, worker)] == [1]
        insert(connection, "async", queue=queue)
        with pytest.raises(RuntimeError, match="work_all was called within an event loop: give it an async connection"):
            testing.work_all(connection, worker)
        connection.rollback()


def test_an_error_that_a_handler_swallows_fails_its_attempt(url, queue):
    """Its transaction could not be committed either."""
    worker = Worker(url, queues=[queue])

    @worker.kind("run")
    def run(job):
        with contextlib.suppress(psycopg.Error):
            connection.execute("select 1 / 0")

    with psycopg.connect(url) as connection:
        insert(connection, "run", queue=queue, max_attempts=1)
        (worked,) = testing.work_all(connection, worker)
        assert worked.state == "discarded" and "aborted" in worked.error
        connection.rollback()


@pytest.mark.parametrize("error", [SystemExit("ends"), asyncio.CancelledError("ends")])
def test_a_handler_that_raises_what_ends_programs_fails_its_attempt(url, queue, error):
    worker = Worker(url, queues=[queue])

    def blocking(job):
        raise error

    async def later(job):
        raise error

    worker.kind("blocking")(blocking)
    worker.kind("later")(later)
    jobs = [{"kind": kind, "queue": queue, "max_attempts": 1} for kind in worker.handlers]

    async def work_all():
        async with await psycopg.AsyncConnection.connect(url) as connection:
            await insert_many(connection, jobs)
            worked = await testing.work_all(connection, worker)
            await connection.rollback()
            return worked

    with psycopg.connect(url) as connection:
        insert_many(connection, jobs)
        worked = testing.work_all(connection, worker)
        connection.rollback()
    if sys.version_info >= (3, 11) or isinstance(error, SystemExit):
        worked += asyncio.run(work_all())
    assert {(one.state, one.error) for one in worked} == {("discarded", "ends")}


async def test_a_cancel_of_a_test_ends_work_all(url, queue):
    worker = Worker(url, queues=[queue])
    begun = asyncio.Event()

    @worker.kind("run")
    async def run(job):
        begun.set()
        await asyncio.sleep(60)

    async with await psycopg.AsyncConnection.connect(url) as connection:
        await insert(connection, "run", queue=queue)
        working = asyncio.create_task(testing.work_all(connection, worker))
        await begun.wait()
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        await connection.rollback()


def test_writes_are_rolled_back_if_the_output_is_no_json(url, queue):
    worker = Worker(url, queues=[queue])

    @worker.otherwise()
    def write(job):
        insert(connection, "written", queue=f"{queue} written")
        return {"encoded": object(), "stored": "\0"}[job.kind]

    with psycopg.connect(url) as connection:
        insert_many(connection, [{"kind": kind, "queue": queue, "max_attempts": 1} for kind in ("encoded", "stored")])
        worked = testing.work_all(connection, worker)
        assert ["the output cannot be stored as JSON" in one.error for one in worked] == [True, True]
        assert connection.execute("select from jobs.jobs where queue = %s", [f"{queue} written"]).fetchall() == []
        connection.rollback()


@pytest.mark.parametrize("library", IN_AUTOCOMMIT)
def test_work_all_needs_a_transaction(library, url, queue, look):
    worker = Worker(url, queues=[queue])
    worker.kind("run")(lambda job: None)
    for connection in library(url):
        insert(connection, "run", queue=queue)
        with pytest.raises(RuntimeError, match="work_all needs a transaction: begin one"):
            testing.work_all(connection, worker)
        assert look("select cast(state as text) from jobs.jobs where queue = %s", queue) == [("available",)]


def test_a_kind_stands_for_its_name(url, queue):
    kind = Kind("run", dict[str, int], queue=queue, priority=2)
    with psycopg.connect(url) as connection:
        insert(connection, kind, {"a": 1}, priority=None)
        insert_many(connection, [{"kind": kind, "args": {"a": 2}, "priority": 3}, {"kind": kind}])
        found = testing.assert_inserted(connection, kind, {"a": 1})
        assert (found.kind, found.queue, found.args) == ("run", queue, {"a": 1})
        rows = connection.execute("select priority, args from jobs.jobs where queue = %s order by id", [queue]).fetchall()
        assert rows == [(2, {"a": 1}), (3, {"a": 2}), (2, {})]
        connection.rollback()


async def test_a_job_for_unit_tests():
    async def handle(job: Job[int]):
        await job.progress({"half": 1})
        job.end("output")
        return job.attempt

    job = testing.job(7, attempt=2)
    assert (await handle(job), job.args, job.stored, job.ended) == (2, 7, [{"half": 1}], ["output"])
