"""A worker whose calls fail in ways that the conformance suite cannot bring about."""

import asyncio
import time

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from test_worker import begin, done, working

from postgres_jobs import Worker, _engine
from postgres_jobs._link import Backoff, Link


class Pooler:
    """Takes what it is sent, and passes it on to the server and back. With `silent_on` the next
    connection on which that text comes gets no answer any more, and is not closed either."""

    def __init__(self):
        self.silent_on = b"never sent"
        self.is_silent = asyncio.Event()

    async def serve(self, url, reader, writer):
        to = conninfo_to_dict(url)
        server_reader, server_writer = await asyncio.open_connection(to["host"], to["port"])
        is_silent = False

        async def requests():
            nonlocal is_silent
            while data := await reader.read(1 << 16):
                if self.silent_on in data:
                    self.silent_on = b"never sent"
                    is_silent = True
                    self.is_silent.set()
                if not is_silent:
                    server_writer.write(data)
            server_writer.close()

        async def answers():
            while data := await server_reader.read(1 << 16):
                if not is_silent:
                    writer.write(data)
            writer.close()

        await asyncio.gather(requests(), answers(), return_exceptions=True)


@pytest.fixture
async def pooler(url):
    pooler = Pooler()
    server = await asyncio.start_server(lambda *streams: pooler.serve(url, *streams), "127.0.0.1")
    port = server.sockets[0].getsockname()[1]
    pooler.url = make_conninfo(url, host="127.0.0.1", port=port, sslmode="disable", gssencmode="disable")
    yield pooler
    server.close()


def fail(monkeypatch, function, errors):
    """Calls of this function raise these errors, the last one first, and then none."""
    run = Link.run

    async def run_or_fail(link, sql, *values, **options):
        if function in sql and errors:
            raise errors.pop()
        return await run(link, sql, *values, **options)

    monkeypatch.setattr(Link, "run", run_or_fail)


async def test_a_fetch_that_raises_anything_is_tried_again(url, queue, caplog, monkeypatch):
    """Such as a text of the server that is not in the database's encoding."""
    errors = [RecursionError("too deep"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid")]
    fail(monkeypatch, "fetch_any", errors)
    worker = Worker(url, queues=[queue])
    worker.kind("run")(lambda job: "output")
    async with working(worker):
        assert (await done(url, begin(url, queue, "run", {})))[0].output == "output"
    refused = [line.getMessage() for line in caplog.records if line.levelname == "ERROR"]
    assert len(refused) == 2 and "can't decode" in refused[0] and "too deep" in refused[1]


async def test_a_result_that_is_refused_for_its_size_fails_its_attempt(url, queue, caplog, monkeypatch):
    run = Link.run

    async def run_with_less_memory(link, sql, *values, **options):
        if "finish_many" in sql and "much" in values[0]:
            raise psycopg.errors.InternalError_("invalid memory alloc request size 1073741824")
        return await run(link, sql, *values, **options)

    monkeypatch.setattr(Link, "run", run_with_less_memory)
    worker = Worker(url, queues=[queue])
    worker.otherwise()(lambda job: job.kind)
    ids = [begin(url, queue, kind, {}, max_attempts=1) for kind in ("little", "much", "less")]
    async with working(worker):
        results = await done(url, *ids)
    assert [one.state for one in results] == ["completed", "discarded", "completed"]
    assert "invalid memory alloc request size" in results[1].error
    assert "refused" not in caplog.text


async def test_a_result_that_an_internal_error_refuses_is_sent_again(url, queue, monkeypatch):
    errors = [psycopg.errors.InternalError_("tuple concurrently updated")]
    fail(monkeypatch, "finish_many", errors)
    worker = Worker(url, queues=[queue])
    worker.kind("run")(lambda job: "output")
    async with working(worker):
        (result,) = await done(url, begin(url, queue, "run", {}, max_attempts=1))
    assert (result.state, result.output, errors) == ("completed", "output", [])


async def test_the_grace_period_is_one_for_handlers_and_a_fetch_without_an_answer(queue, url, pooler):
    worker = Worker(pooler.url, queues=[queue], grace=4)
    begun, cancelled = asyncio.Event(), asyncio.Event()

    @worker.kind("run")
    async def run(job):
        pooler.silent_on = b"jobs.fetch_any"
        begun.set()
        try:
            await asyncio.sleep(600)
        finally:
            cancelled.set()

    begin(url, queue, "run", {}, timeout=-1)
    await worker.start()
    await begun.wait()
    begin(url, queue, "other", {})  # ends the wait for work
    await asyncio.wait_for(pooler.is_silent.wait(), 60)
    stopping = asyncio.create_task(worker.stop())
    await asyncio.sleep(1.75 * worker.grace)
    assert cancelled.is_set()
    await asyncio.wait_for(stopping, 60)


async def test_the_grace_period_can_be_ended_while_a_fetch_has_no_answer(queue, url, pooler):
    worker = Worker(pooler.url, queues=[queue], grace=600)
    worker.kind("run")(lambda job: None)
    pooler.silent_on = b"jobs.fetch_any"
    await worker.start()
    await asyncio.wait_for(pooler.is_silent.wait(), 60)
    stopping = asyncio.create_task(worker.stop())
    await asyncio.sleep(0.1)
    await asyncio.wait_for(worker.stop_and_cancel(), 60)
    await stopping


async def test_jobs_of_a_fetch_that_outlasts_the_handlers_are_released(queue, url, monkeypatch, look):
    execute, fetched, answers = psycopg.AsyncConnection.execute, asyncio.Event(), asyncio.Event()

    async def execute_and_answer_late(connection, sql, values):
        cursor = await execute(connection, sql, values)
        if b"jobs.fetch_any" in sql:
            fetched.set()
            await answers.wait()
        return cursor

    monkeypatch.setattr(psycopg.AsyncConnection, "execute", execute_and_answer_late)
    monkeypatch.setattr(_engine, "LEFT_BEHIND", 0.1)
    monkeypatch.setattr(_engine, "SENDING", 60)
    worker = Worker(url, queues=[queue], grace=600)
    worker.kind("run")(lambda job: None)
    job = begin(url, queue, "run", {}, timeout=-1)
    await worker.start()
    await fetched.wait()
    stopping = asyncio.create_task(worker.stop_and_cancel())
    await asyncio.sleep(1)
    assert not stopping.done()
    answers.set()
    await stopping
    assert look("select state::text, attempt from jobs.jobs where id = %s", job) == [("available", 0)]


async def test_a_call_without_an_answer_is_repeated_by_another_connection(pooler):
    link = Link(pooler.url, "worker")
    try:
        pooler.silent_on = b"silence"
        assert await asyncio.wait_for(link.run("select 1 -- silence", patience=0.5), 60) == [(1,)]
        assert pooler.is_silent.is_set()
        pooler.silent_on = b"silence"
        await asyncio.wait_for(link.wait("select 2 -- silence", patience=0.5), 60)
        assert await link.run("select 3") == [(3,)]
    finally:
        await link.close()


@pytest.mark.parametrize("call", ["jobs.wait_any('{}'", "jobs.heartbeat_many"])
async def test_a_worker_whose_connection_was_forgotten_keeps_its_leases(call, queue, url, pooler, look):
    worker = Worker(pooler.url, queues=[queue])
    begun, ends = asyncio.Event(), asyncio.Event()

    @worker.kind("run")
    async def run(job):
        begun.set()
        await ends.wait()
        return job.attempt

    job = begin(url, queue, "run", {}, timeout=-1)
    async with working(worker):
        await begun.wait()
        pooler.silent_on = call.encode()
        await asyncio.wait_for(pooler.is_silent.wait(), 60)
        ((lease,),) = look("select lease_expires_at from jobs.jobs where id = %s", job)
        latest = time.monotonic() + 60
        while look("select lease_expires_at from jobs.jobs where id = %s", job) == [(lease,)]:
            assert time.monotonic() < latest
            await asyncio.sleep(0.1)
        ends.set()
        assert (await done(url, job))[0].output == 1


async def test_a_wait_that_broke_is_not_repeated_at_once(queue, url, monkeypatch):
    """As of a pooler that closes the connection of every call that waits."""
    pauses, pause = [], Backoff.pause

    async def pause_and_note(backoff):
        pauses.append(backoff)
        await pause(backoff)

    monkeypatch.setattr(Backoff, "pause", pause_and_note)
    link = Link(url, "worker")
    await link.wait("select pg_terminate_backend(pg_backend_pid())", patience=60)
    assert pauses == [link.backoff] and link.connection is None
