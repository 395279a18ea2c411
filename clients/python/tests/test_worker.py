"""What the conformance suite cannot see of a worker."""

import asyncio
import contextvars
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg
import pydantic
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from psycopg.conninfo import make_conninfo

from postgres_jobs import Cancel, Discard, Job, Outcome, RetryIn, Snooze, Worker, _control, _engine
from postgres_jobs import insert, insert_many, insert_middleware, wait_for
from postgres_jobs._engine import Engine
from postgres_jobs._link import Link


@asynccontextmanager
async def working(worker):
    await worker.start()
    try:
        yield worker
    finally:
        await worker.stop_and_cancel()


async def done(url, *ids):
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        return await wait_for(connection, ids, 60)


def begin(url, queue, kind, args, **options):
    with psycopg.connect(url, autocommit=True) as connection:
        return insert(connection, kind, args, queue=queue, **options).id


@dataclass
class Sum:
    numbers: list[int]


async def test_args_are_of_the_annotated_type(url, queue):
    worker = Worker(url, queues=[queue])

    @worker.kind("add")
    async def add(job: Job[Sum]) -> int:
        return sum(job.args.numbers)

    @worker.kind("add in a thread")
    def add_in_a_thread(job: Job[Sum]) -> dict:
        return {"sum": sum(job.args.numbers), "thread": threading.current_thread() is not threading.main_thread()}

    ids = [begin(url, queue, "add", Sum([1, 2])), begin(url, queue, "add in a thread", {"numbers": [3]})]
    ids.append(begin(url, queue, "add", {"numbers_": [3]}))
    async with working(worker):
        first, second = await done(url, *ids[:2])
        assert (first.output, second.output) == (3, {"sum": 3, "thread": True})
        while (await done_now(url, ids[2])).state != "retryable":
            await asyncio.sleep(0.02)
        assert "numbers" in (await done_now(url, ids[2])).error


async def done_now(url, id):
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        return (await wait_for(connection, [id], 0))[0]


async def test_middleware_is_around_handlers_in_order(url, queue):
    said = []
    current = contextvars.ContextVar("current")

    def named(name):
        async def around(job, call_next):
            current.set(name)
            said.append(f"{name} before")
            output = await call_next(job)
            said.append(f"{name} after")
            return [output]

        return around

    worker = Worker(url, queues=[queue], middleware=[named("outer"), named("inner")])
    worker.kind("run")(lambda job: current.get())  # a thread has the context, too
    job = begin(url, queue, "run", {})
    async with working(worker):
        assert (await done(url, job))[0].output == [["inner"]]
    assert said == ["outer before", "inner before", "inner after", "outer after"]


async def test_middleware_and_hooks_see_args_that_do_not_fit(url, queue):
    seen = []

    async def around(job, handler):
        try:
            return await handler(job)
        except TypeError as error:
            seen.append((job.args, job.meta, str(error)))
            raise

    def on_error(job, error):
        seen.append((job.args, job.meta, str(error)))

    worker = Worker(url, queues=[queue], middleware=[around], on_error=on_error)

    @worker.kind("run")
    async def run(job: Job[Sum]) -> None:
        seen.append("run")

    begin(url, queue, "run", {"numbers": 1}, meta={"a": 1})
    async with working(worker):
        await until(lambda: len(seen) == 2)
    assert seen == [({"numbers": 1}, {"a": 1}, "numbers must be list, not 1")] * 2


async def test_a_worker_starts_again(url, queue):
    worker = Worker(url, queues=[queue])

    @worker.otherwise()
    async def handle(job):
        return job.kind

    for kind in ("one", "two"):
        job = begin(url, queue, kind, {})
        async with working(worker):
            with pytest.raises(RuntimeError):
                await worker.start()
            assert (await done(url, job))[0].output == kind


async def test_a_program_sees_that_an_operator_has_stopped_its_worker(url, queue, look):
    worker = Worker(url, queues=[queue])
    worker.kind("run")(lambda job: None)
    await worker.ended()  # it does not run
    await worker.start()
    ended = asyncio.create_task(worker.ended())
    await asyncio.to_thread(worker.ready.wait, 60)
    assert not ended.done()
    look("select jobs.stop_worker(%s)", worker.name)
    await asyncio.wait_for(ended, 60)
    await worker.stop()


async def test_who_waits_for_the_end_of_a_worker_may_give_up(url, queue):
    worker = Worker(url, queues=[queue])
    worker.kind("run")(lambda job: "output")
    async with working(worker):
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(worker.ended(), 0.01)
        assert (await done(url, begin(url, queue, "run", {})))[0].output == "output"


async def test_a_worker_stops_before_it_has_begun(url, queue):
    worker = Worker(url, queues=[queue])
    worker.kind("run")(lambda job: None)
    began = time.monotonic()
    for _ in range(20):
        await worker.start()
        await worker.stop()
    assert time.monotonic() - began < 60  # none has waited for a thread that was not there


async def test_a_worker_without_a_database_stops(queue):
    worker = Worker("host=/nowhere", queues=[queue], grace=0)
    worker.kind("run")(lambda job: None)
    await worker.start()
    await asyncio.sleep(0.3)
    assert not worker.ready.is_set()
    await worker.stop()


async def test_what_the_server_has_against_a_worker_is_raised(url, queue):
    worker = Worker(url, queues=[queue])
    worker.name = "x" * 200
    worker.kind("run")(lambda job: None)
    await worker.start()
    for end in (worker.ended, worker.stop):
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            await end()


def test_options_that_are_wrong_are_refused(url):
    with pytest.raises(ValueError, match="handler"):
        Worker(url).run()
    with pytest.raises(ValueError, match="handler"):
        asyncio.run(Worker(url).start())
    wrong = [("queues", "mail"), ("queues", {}), ("concurrency", 0), ("concurrency", 2.5), ("concurrency", "3")]
    wrong += [("info", {"since": bad}) for bad in (float("nan"), "\ud800", "a\0b", "\\\0", object(), {b"x"})]
    wrong += [(name, bad) for name in ("lease", "grace", "timeout") for bad in (timedelta(seconds=-2), float("nan"))]
    wrong += [("name", "x" * 128), ("name", 5), ("lease", 1e-9), ("lease", 1e12), ("queues", ["a" * 128]), ("queues", ["a\n"]), ("queues", {"": 1})]
    wrong += [("on_error", 3), ("on_discarded", "log"), ("middleware", [None])]
    for name, value in wrong:
        with pytest.raises(ValueError, match=f"{name} must be .*, not {re.escape(repr(value))}"):
            Worker(url, **{name: value})
    with pytest.raises(ValueError, match="weight of queue 'a' must be a positive number, not inf"):
        Worker(url, queues={"a": float("inf")})
    worker = Worker(url, info={"escape": "\\u0000"})
    worker.otherwise()(lambda job: None)
    with pytest.raises(ValueError, match="must be a name, as in @worker.kind"):
        worker.kind(lambda job: None)
    for bad in ("k" * 128, "k\0"):
        with pytest.raises(ValueError, match="kind must be 1 to 127 characters without control characters, not"):
            worker.kind(bad)
    for hook in (worker.on_start, worker.on_stop):
        with pytest.raises(ValueError, match="must be a function, not 3"):
            hook(3)
    with pytest.raises(ValueError, match="every other kind"):
        worker.otherwise()(lambda job: None)


async def test_a_coroutine_of_a_plain_function_ends_as_an_async_handler(url, queue, look, caplog, monkeypatch):
    monkeypatch.setattr(_engine, "LEFT_BEHIND", 60)
    worker = Worker(url, queues=[queue])
    begun, ended = set(), {}

    async def tarries(job):
        begun.add(job.kind)
        try:
            await asyncio.sleep(600)
        finally:
            ended[job.kind] = job.cancelled_because

    def decorated(job):
        return tarries(job)

    def decorated_and_slow(job):
        begun.add(job.kind)
        job.cancelled.wait()
        return tarries(job)

    worker.kind("timeout")(decorated)
    worker.kind("cancelled")(decorated)
    worker.kind("stopping")(decorated)
    worker.kind("stopping, slow")(decorated_and_slow)
    ids = {kind: begin(url, queue, kind, {}, max_attempts=1, timeout=-1) for kind in worker.handlers}
    async with working(worker):
        await until(lambda: begun == set(ids))
        # Not before it has begun, whenever that is.
        (attempt,) = [one for one in worker._engines[0].running.values() if one.job.kind == "timeout"]
        worker._engines[0]._timed_out(attempt)
        look("select jobs.cancel(%s)", ids["cancelled"])
        await until(lambda: ended == {"timeout": "timeout", "cancelled": "cancelled"})
    # What the slow one has returned was not begun.
    assert ended == {kind: kind for kind in ("timeout", "cancelled", "stopping")}
    states = look("select kind, state::text, attempt from jobs.jobs where queue = %s order by id", queue)
    assert states == [
        ("timeout", "discarded", 1),
        ("cancelled", "cancelled", 1),
        ("stopping", "available", 0),
        ("stopping, slow", "available", 0),
    ]
    assert "did not stop" not in caplog.text


async def test_a_timeout_while_a_handler_fails_to_complete_its_job_comes_later(url, queue, monkeypatch):
    timed_out, is_due, reasons = Engine._timed_out, threading.Event(), []

    def time_out(engine, attempt):
        timed_out(engine, attempt)
        is_due.set()

    class Broken:
        def cursor(self):
            is_due.wait(60)
            raise psycopg.OperationalError("it broke")

    monkeypatch.setattr(Engine, "_timed_out", time_out)
    worker = Worker(url, queues=[queue])

    @worker.kind("run", timeout=0.1)
    def run(job):
        with suppress(psycopg.OperationalError):
            job.complete(Broken())
        reasons.append(job.cancelled.wait(60) and job.cancelled_because)

    job = begin(url, queue, "run", {}, max_attempts=1)
    async with working(worker):
        (result,) = await done(url, job)
        await until(lambda: reasons)
    assert (result.state, result.error) == ("discarded", "the attempt ran longer than its timeout")
    assert reasons == ["timeout"]


async def test_middleware_around_a_thread_is_cancelled(url, queue, look):
    begun, outputs, ended = set(), {}, {}

    async def begin_and_tarry(job):
        begun.add(job.kind)
        await asyncio.sleep(600)

    async def around(job, handler):
        try:
            if job.kind == "before":
                await begin_and_tarry(job)
            outputs[job.kind] = await handler(job)
            await asyncio.sleep(0)
            if job.kind == "after":
                await begin_and_tarry(job)
            return outputs[job.kind]
        except asyncio.CancelledError as error:
            ended[job.kind] = str(error)
            raise

    def handle(job):
        begun.add(job.kind)
        if job.kind == "meanwhile":
            job.cancelled.wait()
            time.sleep(0.1)  # so that a cancel of its task would show
        return "a thread is not"

    worker = Worker(url, queues=[queue], middleware=[around])
    worker.otherwise()(handle)
    kinds = ["before", "meanwhile", "after"]
    ids = [begin(url, queue, kind, {}, max_attempts=1, timeout=-1) for kind in kinds]
    async with working(worker):
        await until(lambda: begun == set(kinds) and "after" in outputs)
        look("select jobs.cancel(id) from unnest(%s::bigint[]) id", ids)
        results = await done(url, *ids)
    assert outputs == dict.fromkeys(["meanwhile", "after"], "a thread is not")
    assert ended == dict.fromkeys(["before", "after"], "cancelled")
    assert [(one.state, one.output) for one in results] == [
        ("cancelled", None),
        ("completed", "a thread is not"),
        ("cancelled", None),
    ]


async def until(is_so):
    latest = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < latest
        await asyncio.sleep(0.02)


async def test_a_worker_that_loses_races_for_jobs_fetches_again_at_once(url, queue, monkeypatch):
    """A wait ends for each commit, and others have its jobs by then."""
    run, wait, sleep, races, pauses = Link.run, Link.wait, asyncio.sleep, list(range(20)), []

    async def run_and_lose(link, sql, *values, **options):
        if "jobs.fetch_any" not in sql or not races:
            return await run(link, sql, *values, **options)
        races.pop()
        return []

    async def wait_for_a_commit(link, sql, *values, **options):
        if "::text[]" not in sql or not races:
            await wait(link, sql, *values, **options)

    async def sleep_and_note(delay):
        pauses.append(delay)
        await sleep(delay)

    monkeypatch.setattr(Link, "run", run_and_lose)
    monkeypatch.setattr(Link, "wait", wait_for_a_commit)
    monkeypatch.setattr(asyncio, "sleep", sleep_and_note)
    worker = Worker(url, queues=[queue])
    worker.kind("run")(lambda job: "output")
    async with working(worker):
        assert (await done(url, begin(url, queue, "run", {})))[0].output == "output"
    assert len(pauses) >= 20 and set(pauses) == {0}


async def test_a_transaction_that_stays_open_does_not_keep_other_jobs_from_their_leases(url, queue, look):
    """A job that is completed in a transaction is locked until that ends."""
    worker = Worker(url, queues=[queue], lease=6)

    @worker.kind("slow commit")
    async def slow_commit(job):
        async with await psycopg.AsyncConnection.connect(url) as connection:
            await job.complete(connection, "in time")
            await asyncio.sleep(8)

    @worker.kind("beside")
    async def beside(job):
        await asyncio.sleep(9)
        return job.attempt

    retry = {"strategy": "constant", "initial": 0.1}
    ids = [begin(url, queue, kind, {}, retry=retry, timeout=-1) for kind in ("slow commit", "beside")]
    async with working(worker):
        results = await done(url, *ids)
    assert [one.output for one in results] == ["in time", 1]


async def test_a_stop_ends_the_pause_before_a_refused_result_is_sent_again(url, queue):
    role = f"refused_{os.urandom(4).hex()}"
    worker = Worker(make_conninfo(url, options=f"-c role={role}"), queues=[queue])
    worker.kind("run")(lambda job: "late")
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"create role {role}")
        admin.execute("select jobs.grant_worker(%s)", [role])
        admin.execute(f"revoke execute on function jobs.finish_many from {role}")
        job = begin(url, queue, "run", {}, timeout=-1)
        await worker.start()
        again = worker._engines[0].finisher.again
        while not again:
            await asyncio.sleep(0.01)
        for backoff in again.values():
            backoff.next = 1000
        await asyncio.sleep(1)  # so that it is tried again, and that many seconds are to pass
        admin.execute(f"grant execute on function jobs.finish_many to {role}")
        await worker.stop()
        assert (await done_now(url, job)).output == "late"
        admin.execute("select jobs.revoke(%s)", [role])
        admin.execute(f"drop role {role}")


async def test_a_handler_that_blocks_the_event_loop_keeps_its_leases(url, queue):
    worker = Worker(url, queues=[queue], lease=6)

    @worker.kind("blocks")
    async def blocks(job):
        time.sleep(8)
        return job.attempt

    @worker.kind("beside")
    async def beside(job):
        await asyncio.sleep(8)
        return job.attempt

    retry = {"strategy": "constant", "initial": 0.1}
    ids = [begin(url, queue, kind, {}, retry=retry, timeout=-1) for kind in ("beside", "blocks")]
    async with working(worker):
        assert [one.output for one in await done(url, *ids)] == [1, 1]


async def test_progress_and_complete_from_a_thread(url, queue, look):
    worker = Worker(url, queues=[queue])

    @worker.kind("run")
    def run(job: Job):
        job.progress({"step": 1})
        with psycopg.connect(url) as connection:
            seen = connection.execute("select progress from jobs.jobs where id = %s", [job.id]).fetchone()
            job.complete(connection, ["from the thread", *seen])
        return "dropped"

    @worker.kind("bad progress")
    async def bad_progress(job: Job):
        await job.progress("\0")

    job, bad = begin(url, queue, "run", {}), begin(url, queue, "bad progress", {}, max_attempts=1)
    async with working(worker):
        assert [one.output for one in await done(url, job, bad)] == [["from the thread", {"step": 1}], None]
    assert look("select details->>'code' from jobs.errors where job_id = %s", bad) == [("22P05",)]


async def test_args_that_python_cannot_read_fail_their_job_alone(url, queue, look):
    worker = Worker(url, queues=[queue])

    @worker.kind("run")
    async def run(job: Job):
        return "read"

    look("select jobs.insert('run', cast(repeat('9', 6000) as jsonb), queue => %s, max_attempts => 1)", queue)
    look("select jobs.insert('run', cast(repeat('[', 3000) || repeat(']', 3000) as jsonb), queue => %s, max_attempts => 1)", queue)
    look("select jobs.insert('run', queue => %s, scheduled_at => '4000-01-01 BC')", queue)
    ids = [id for (id,) in look("select id from jobs.jobs where queue = %s order by id", queue)]
    async with working(worker):
        states = [one.state for one in await done(url, *ids)]
    assert states[::2] == ["discarded", "completed"]
    assert states[1] in ("discarded", "completed")  # how deep Python reads depends on its version


async def test_outcomes_that_cannot_be_told_fail_their_job(url, queue, look):
    class Fatal(Discard):
        def __init__(self, order):
            self.order = order

    class Unshowable:
        def __str__(self):
            raise RuntimeError("not to be shown")

    raised = {"AttributeError": Fatal(1), "NotImplementedError": Outcome(), "RuntimeError": Cancel(Unshowable())}
    worker = Worker(url, queues=[queue])

    @worker.otherwise()
    async def handle(job):
        raise raised[job.kind]

    ids = [begin(url, queue, kind, {}, max_attempts=1) for kind in raised]
    async with working(worker):
        results = await asyncio.wait_for(done(url, *ids), 60)
    assert [one.state for one in results] == ["discarded"] * 3
    errors = look("select details->>'type' from jobs.errors where job_id = any(%s) order by job_id", ids)
    assert errors == [(kind,) for kind in raised]


def test_an_exit_in_a_task_of_a_handler_fails_its_job_alone(url, queue, look):
    worker = Worker(url, queues=[queue])

    async def parse():
        sys.exit("bad argument")

    @worker.kind("exits")
    async def exits(job):
        await asyncio.gather(parse())

    @worker.kind("stops")
    async def stops(job):
        os.kill(os.getpid(), signal.SIGTERM)

    ids = [begin(url, queue, kind, {}, max_attempts=1) for kind in ("exits", "stops")]
    worker.concurrency = 1  # one after the other
    worker.run()
    assert look("select state::text from jobs.jobs where id = any(%s) order by id", ids) == [("discarded",), ("completed",)]
    assert look("select error from jobs.errors where job_id = any(%s)", ids) == [("bad argument",)]


async def test_errors_that_are_false_or_odd_fail_their_job(url, queue):
    class Odd(Exception):
        def __bool__(self):
            raise RuntimeError("neither")

    worker = Worker(url, queues=[queue])

    @worker.kind("thread")
    def in_a_thread(job):
        raise Odd("odd") if job.args else StopIteration("stop")

    @worker.kind("task")
    async def in_a_task(job):
        raise Odd("odd")

    given = [("thread", 1), ("thread", 0), ("task", 1)]
    ids = [begin(url, queue, kind, args, max_attempts=1) for kind, args in given]
    async with working(worker):
        results = await done(url, *ids)
    assert [one.state for one in results] == ["discarded"] * 3
    assert results[0].error == results[2].error == "odd" and "StopIteration" in results[1].error


async def test_a_failed_attempt_is_logged_and_one_that_ends_otherwise_is_not(url, queue, caplog, monkeypatch):
    monkeypatch.setattr(_control, "BLOCKED", 60)  # the machine may stand still for a while
    caplog.set_level(logging.INFO, "postgres_jobs")
    worker = Worker(url, queues=[queue])

    @worker.kind("fails")
    def fails(job):
        raise ValueError("no")

    @worker.kind("tarries", timeout=0.05)
    async def tarries(job):
        await asyncio.sleep(60)

    @worker.kind("is cancelled")
    async def is_cancelled(job):
        raise Cancel("c")

    put_off = []

    @worker.kind("is put off")
    async def is_put_off(job):
        if not put_off:
            put_off.append(job.id)
            raise Snooze(0)

    worker.kind("invalid")(lambda job: float("nan"))
    worker.kind("refused")(lambda job: "\0")
    errors = {
        "fails": "no",
        "tarries": "the attempt ran longer than its timeout",
        "invalid": "the output cannot be stored as JSON: Out of range float values are not JSON compliant",
        "refused": "the output cannot be stored as JSON: unsupported Unicode escape sequence",
    }
    ids = {kind: begin(url, queue, kind, {}, max_attempts=1) for kind in [*errors, "is cancelled", "is put off"]}
    async with working(worker):
        await done(url, *ids.values())
    types = {"fails": "ValueError", "tarries": "timeout", "invalid": "invalid_output", "refused": "invalid_output"}
    for kind, error in errors.items():
        failed, discarded = [line for line in caplog.records if getattr(line, "job", None) == ids[kind]]
        assert (failed.levelname, failed.kind, failed.attempt) == ("WARNING", kind, 1)
        where = f"job {ids[kind]} ({kind}), attempt 1 of 1: {types[kind]}: {error}"
        assert failed.error.startswith(error) and failed.getMessage().startswith(f"attempt failed: {where}")
        assert discarded.levelname == "ERROR" and discarded.getMessage().startswith(f"job discarded: {where}")
        assert bool(failed.exc_info) == bool(discarded.exc_info) == (kind != "tarries")
    others = [(line.levelname, line.getMessage()) for line in caplog.records if getattr(line, "kind", None) not in errors]
    assert [level for level, _ in others] == ["INFO"] * 2
    assert [text.partition(";")[0] for _, text in others] == [f"worker {verb}: {worker.name}" for verb in ("started", "stopped")]


@pytest.fixture(scope="module")
def provider():
    provider = TracerProvider()
    trace.set_tracer_provider(provider)
    return provider


@pytest.fixture
def exporter(provider):
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield exporter
    exporter.shutdown()


async def test_opentelemetry(url, queue, exporter):
    from postgres_jobs import opentelemetry

    insert_middleware.append(opentelemetry.around_insert)
    worker = Worker(url, queues=[queue], middleware=[opentelemetry.around_work])

    @worker.kind("run")
    async def run(job):
        if job.attempt == 1:
            raise ValueError("once")

    try:
        job = begin(url, queue, "run", {}, retry={"strategy": "constant", "initial": 0.01})
    finally:
        insert_middleware.remove(opentelemetry.around_insert)
    async with working(worker):
        await done(url, job)
    inserted, first, second = exporter.get_finished_spans()
    assert [one.kind.name for one in (inserted, first, second)] == ["PRODUCER", "CONSUMER", "CONSUMER"]
    assert first.parent.span_id == inserted.context.span_id and first.status.status_code.name == "ERROR"
    assert second.parent is None and second.links[0].context.span_id == inserted.context.span_id
    assert second.status.status_code.name == "UNSET"
    assert dict(second.attributes) == {
        "messaging.system": "postgres_jobs",
        "messaging.operation.name": "work",
        "messaging.operation.type": "process",
        "messaging.destination.name": queue,
        "messaging.message.id": str(job),
        "jobs.kind": "run",
        "jobs.attempt": 2,
    }


async def test_a_span_has_failed_if_its_insert_has(url, queue, exporter):
    from postgres_jobs import opentelemetry

    insert_middleware.append(opentelemetry.around_insert)
    try:
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            begin(url, queue, "", {})
    finally:
        insert_middleware.remove(opentelemetry.around_insert)
    [span] = exporter.get_finished_spans()
    assert span.status.status_code.name == "ERROR"
    assert span.attributes["error.type"] == "InvalidParameterValue"


async def test_a_span_has_failed_if_its_attempt_has(url, queue, look, exporter, monkeypatch):
    from postgres_jobs import opentelemetry

    monkeypatch.setattr(_engine, "LEFT_BEHIND", 60)
    worker = Worker(url, queues=[queue], lease=9, middleware=[opentelemetry.around_work])
    ran = []

    async def tarries(job):
        if job.kind in ran:
            return
        ran.append(job.kind)
        await asyncio.sleep(600)

    def tarries_in_a_thread(job):
        if job.kind in ran:
            return
        ran.append(job.kind)
        job.cancelled.wait()
        if "fails for good" in job.kind:
            raise Discard(OSError("no"))
        if "is put off" in job.kind:
            raise Snooze(600)
        if "has no JSON" in job.kind:
            return object()

    async def completes(job):
        async with await psycopg.AsyncConnection.connect(url) as connection:
            await job.complete(connection)
        return object()

    def ends(ending):
        def handler(job):
            raise ending

        return handler

    worker.kind("timeout", timeout=0.05)(tarries)
    worker.kind("timeout, returns", timeout=0.05)(tarries_in_a_thread)
    worker.kind("timeout, raises", timeout=0.05)(tarries_in_a_thread)
    worker.kind("timeout, is put off", timeout=0.05)(tarries_in_a_thread)
    worker.kind("lost")(tarries)
    worker.kind("lost, fails for good")(tarries_in_a_thread)
    worker.kind("cancelled")(tarries)
    worker.kind("cancelled, raises")(tarries_in_a_thread)
    worker.kind("cancelled, fails for good")(tarries_in_a_thread)
    worker.kind("cancelled, has no JSON")(tarries_in_a_thread)
    worker.kind("stopping")(tarries)
    worker.kind("stopping, raises")(tarries_in_a_thread)
    worker.kind("fails")(ends(ValueError("no")))
    worker.kind("fails for good")(ends(Discard(OSError("no"))))
    worker.kind("fails for now")(ends(RetryIn(600, "no")))
    worker.kind("is put off")(ends(Snooze(600)))
    worker.kind("ends itself")(ends(Cancel("c")))
    worker.kind("has no JSON")(lambda job: object())
    worker.kind("completes itself")(completes)
    kinds = [kind for kind in worker.handlers if kind]
    worker.concurrency = len(kinds)
    ids = {kind: begin(url, queue, kind, {}, max_attempts=1, timeout=-1) for kind in kinds}
    async with working(worker):
        going_on = [(kind,) for kind in kinds if kind.partition(",")[0] in ("cancelled", "lost", "stopping")]
        while look("select kind from jobs.jobs where queue = %s and state = 'running' order by id", queue) != going_on:
            await asyncio.sleep(0.02)
        for kind in kinds:
            if kind.startswith("lost"):
                look("select jobs.release(job_id, token) from jobs.running where job_id = %s", ids[kind])
            elif kind.startswith("cancelled"):
                look("select jobs.cancel(%s)", ids[kind])
        while len(exporter.get_finished_spans()) < len(kinds):  # those lost have two, stopping none
            await asyncio.sleep(0.02)
    spans = {}
    for span in exporter.get_finished_spans():
        status = (span.status.status_code.name, span.attributes.get("error.type"), span.status.description)
        spans.setdefault(span.attributes["jobs.kind"], []).append(status)
    untouched = ("UNSET", None, None)
    failed = {"fails": ("ValueError", "no"), "fails for good": ("OSError", "no"), "fails for now": ("RetryIn", "no")}
    failed["cancelled, fails for good"] = failed["fails for good"]
    no_json = "the output cannot be stored as JSON: object has no JSON form"
    failed |= dict.fromkeys(["has no JSON", "cancelled, has no JSON"], ("invalid_output", no_json))
    failed |= {kind: ("timeout", "the attempt ran longer than its timeout") for kind in kinds if kind.startswith("timeout")}
    wanted = {kind: [("ERROR", *failed[kind]) if kind in failed else untouched] for kind in kinds}
    assert spans == wanted | {kind: [untouched, untouched] for kind in kinds if kind.startswith("lost")}


def test_insert_middleware_sees_errors(url, queue):
    seen = []

    @contextmanager
    def around(jobs):
        try:
            yield
        except psycopg.Error as error:
            seen.append(error.sqlstate)
            raise

    insert_middleware.append(around)
    try:
        with psycopg.connect(url) as connection, pytest.raises(psycopg.Error):
            insert(connection, "", queue=queue)
    finally:
        insert_middleware.remove(around)
    assert seen == ["22023"]


def test_insert_middleware_is_around_args_that_cannot_be_copied(url, queue, look):
    class Model(pydantic.BaseModel):
        to: str
        _lock: Any = pydantic.PrivateAttr(default_factory=threading.Lock)

    @contextmanager
    def around(jobs):
        for job in jobs:
            job["args"]["all"].append("b")
        yield

    insert_middleware.append(around)
    try:
        begin(url, queue, "run", {"all": ["a"], "one": Model(to="me"), "some": (Model(to="you"),)})
    finally:
        insert_middleware.remove(around)
    inserted = look("select args from jobs.jobs where queue = %s", queue)
    assert inserted == [({"all": ["a", "b"], "one": {"to": "me"}, "some": [{"to": "you"}]},)]


def test_what_insert_middleware_changes_is_of_that_insert_alone(url, queue, look):
    @contextmanager
    def around(jobs):
        for job in jobs:
            job["args"]["tenants"] = [*job["args"].get("tenants", []), tenant]
            job["args"].setdefault("to", []).append(tenant)
            job["meta"].setdefault("seen", []).append(tenant)
        yield

    args, meta = {"to": []}, {"seen": []}
    insert_middleware.append(around)
    try:
        with psycopg.connect(url) as connection:
            for tenant in ("a", "b"):
                insert(connection, "without args", queue=queue)
                insert(connection, "args", args, queue=queue, meta=meta)
                insert_many(connection, [{"kind": "many", "args": args, "meta": meta, "queue": queue}] * 2)
    finally:
        insert_middleware.remove(around)
    assert (args, meta) == ({"to": []}, {"seen": []})
    inserted = look("select args, meta from jobs.jobs where queue = %s order by id", queue)
    assert inserted == [({"tenants": [one], "to": [one]}, {"seen": [one]}) for one in "aaaabbbb"]


def test_a_worker_that_serves_in_a_loop_of_its_program_has_hooks_and_signals(url, queue):
    said = []
    worker = Worker(url, queues=[queue])

    @worker.on_start
    async def open_pool():
        said.append("opened")

    worker.on_stop(lambda: said.append("closed"))
    worker.on_stop(lambda: said.append("closed first"))

    @worker.kind("stops")
    async def stops(job):
        said.append("worked")
        os.kill(os.getpid(), signal.SIGTERM)

    begin(url, queue, "stops", {})
    asyncio.run(worker.serve())
    assert said == ["opened", "worked", "closed first", "closed"]


SERVES = """
import asyncio
from postgres_jobs import Worker

worker = Worker("", queues=["a queue"])
worker.kind("run")(print)

@worker.on_start
async def refuse():
    raise OSError("no pool")

asyncio.run(worker.serve())
"""


@pytest.mark.parametrize("own", ["", "import logging; logging.basicConfig(format='own %(message)s')"])
def test_a_worker_that_serves_shows_its_log_unless_the_program_does(own):
    environment = os.environ | {"PYTHONPATH": os.path.abspath("src")}
    ended = subprocess.run([sys.executable, "-c", own + SERVES], capture_output=True, text=True, env=environment)
    said = [line for line in ended.stderr.splitlines() if "worker failed" in line]
    assert len(said) == 1 and said[0].startswith("own " if own else "ERROR "), ended.stderr


async def test_a_hook_that_cannot_start_ends_the_worker(url, queue):
    worker = Worker(url, queues=[queue])
    worker.kind("run")(lambda job: None)

    @worker.on_start
    async def open_pool():
        raise OSError("no pool")

    with pytest.raises(OSError, match="no pool"):
        await worker.start()


def test_a_database_that_is_none_is_refused_with_what_to_do():
    for dsn in (None, "postgresql+psycopg://me:secret@localhost/shop"):
        with pytest.raises(ValueError, match='dsn must be a URL such as "postgresql://localhost/shop"') as refused:
            Worker(dsn)
        assert "secret" not in str(refused.value)


@pytest.mark.parametrize("serve", [Worker.run, lambda worker: asyncio.run(worker.serve())])
def test_a_signal_ends_a_worker_that_is_starting(url, queue, serve):
    worker = Worker(url, queues=[queue])
    worker.kind("run")(lambda job: None)
    said = []

    @worker.on_start
    async def wait_for_a_service():
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:  # a second signal skips what this takes
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(60)

    worker.on_start(lambda: said.append("started"))
    worker.on_stop(lambda: said.append("stopped"))
    serve(worker)
    assert said == ["stopped"] and not worker.ready.is_set()


def test_a_malformed_connection_string_is_refused_without_its_password():
    malformed = {
        "postgresql://me:sec%ret@localhost/shop": 'invalid percent-encoded token: ".."',
        "postgresql://me:secret@localhost/shop?schema=public": 'invalid URI query parameter: ".."',
        "postgresql://me:pa/x?secret@localhost/db": 'missing key/value separator "=" in URI query parameter: ".."',
        'me:"secret"more@localhost': 'missing "=" after ".."',
        "postgresql://me:secret@[::1]x/shop": "unexpected character",
        "me:secret@localhost": 'missing "=" after ".." in connection info string',
    }
    for dsn, reason in malformed.items():
        with pytest.raises(ValueError, match=f"dsn is malformed: {reason}") as refused:
            Worker(["", dsn])
        assert "secret" not in str(refused.value)


@pytest.mark.parametrize("dsn", ["postgresql://127.0.0.1:5432:x/shop", "port=99999", "sslmode=x", "connect_timeout=x"])
async def test_a_connection_string_that_no_connection_takes_ends_the_worker(dsn, caplog):
    worker = Worker(dsn)
    worker.kind("run")(lambda job: None)
    await worker.start()
    with pytest.raises(psycopg.Error):
        await asyncio.wait_for(worker.ended(), 60)
    assert "worker failed" in caplog.text and "Check the URL." in caplog.text


async def test_the_log_names_the_job_whose_tasks_block_the_event_loop(url, queue, caplog):
    worker = Worker(url, queues=[queue])

    async def block(number):
        await asyncio.sleep(0.01)
        time.sleep(8)

    @worker.kind("gathers")
    async def gathers(job):
        await asyncio.gather(block(1), asyncio.sleep(0))

    @worker.batch("batch")
    async def batch(jobs):
        await asyncio.create_task(block(1))

    async with working(worker):
        for kind in ("gathers", "batch"):
            id = begin(url, queue, kind, {})
            await done(url, id)
            blocked = [one for one in caplog.messages if "event loop blocked" in one]
            assert any(f"job {id} ({kind})" in one for one in blocked)


async def test_a_batch_handler_in_a_thread(url, queue):
    worker = Worker(url, queues=[queue])
    ids = [begin(url, queue, "run", {"n": n}, max_attempts=1) for n in range(3)]

    @worker.batch("run", size=3, linger=60)
    def run(jobs: list[Job[dict[str, int]]]):
        jobs[0].end(jobs[0].args["n"])
        jobs[1].end(ValueError("no"))

    async with working(worker):
        assert [(one.state, one.output) for one in await done(url, *ids)] == [("completed", 0), ("discarded", None), ("completed", None)]
