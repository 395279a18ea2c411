"""The helpers for tests."""

import asyncio
import contextlib
from datetime import datetime, timedelta, timezone

import psycopg
import pytest
from test_transactions import BLOCKING

from postgres_jobs import Discard, Job, Snooze, Worker, insert, testing


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


async def test_a_job_for_unit_tests():
    async def handle(job: Job[int]):
        await job.progress({"half": 1})
        job.end("output")
        return job.attempt

    job = testing.job(7, attempt=2)
    assert (await handle(job), job.args, job.stored, job.ended) == (2, 7, [{"half": 1}], ["output"])
