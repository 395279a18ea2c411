"""The helpers for tests."""

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
        return 1

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
        for kind in ("first", "second", "bad", "later"):
            insert(connection, kind, {"kind": kind}, queue=queue)
        assert testing.assert_inserted(connection, "first", {"kind": "first"})
        with pytest.raises(AssertionError, match="there is no job of kind 'first'"):
            testing.assert_inserted(connection, "first", {"kind": "second"})
        worked = testing.work_all(connection, worker)
        assert [(one.kind, one.state) for one in worked] == [
            ("first", "completed"),
            ("second", "completed"),
            ("bad", "discarded"),
            ("later", "scheduled"),
        ]
        assert testing.work_all(connection, worker) == []
        testing.advance(connection, 60)
        assert [one.state for one in testing.work_all(connection, {"later": lambda job: None})] == ["completed"]
        connection.rollback()


@pytest.mark.parametrize("library", BLOCKING)
def test_the_helpers_take_every_connection(library, url, queue):
    async def handle(job):
        return job.args

    for connection, _, rollback in library(url):
        kind = f"kind of {queue}"
        insert(connection, kind, {"a": 1}, queue=queue, scheduled_at=datetime.now(timezone.utc) + timedelta(hours=1))
        assert testing.work_all(connection, {kind: handle}) == []
        testing.advance(connection, timedelta(hours=1))
        testing.assert_inserted(connection, kind, {"a": 1})
        assert [one.state for one in testing.work_all(connection, {kind: handle})] == ["completed"]
        rollback()


async def test_work_all_asynchronously(url, queue):
    async def handle(job):
        return job.args

    async with await psycopg.AsyncConnection.connect(url) as connection:
        await insert(connection, f"kind of {queue}", {"a": 1, "b": 2}, queue=queue)
        await testing.assert_inserted(connection, f"kind of {queue}", {"a": 1})
        worked = await testing.work_all(connection, {f"kind of {queue}": handle})
        assert [(one.args, one.state) for one in worked] == [({"a": 1, "b": 2}, "completed")]
        await testing.advance(connection, 1)
        await connection.rollback()
