"""Helpers for tests of producers and handlers. They work in a transaction that the test rolls back,
take the connections that `insert` takes, and are async if the connection is."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, TypeVar, overload

from ._database import JSONB, AsyncTransaction, Execute, Later, converse, is_async
from ._errors import code_of
from ._values import Duration, encode, seconds
from .job import COLUMNS, Job, Nothing, job_of
from .outcomes import Finish, Outcome, completion, failure, invalid_output, is_of_value, wire
from .produce import Kind, results_of
from .worker import Worker

A = TypeVar("A")
MOST_ATTEMPTS = 1000


@dataclass(frozen=True)
class Found:
    """An inserted job."""

    id: int
    kind: str
    queue: str
    state: str
    args: Any


@dataclass(frozen=True)
class Worked:
    """An attempt made by `work_all`, and the job after it."""

    id: int
    kind: str
    state: str
    output: Any
    error: str | None
    """The error of the latest failed attempt."""


class UnitJob(Job[A]):
    """A job for unit tests of a handler."""

    stored: list[Any]
    """The progress that the handler has stored."""
    ended: list[object]
    """What a handler of batches has ended it with."""


def job(args: A, **fields: Any) -> UnitJob[A]:
    """A job that exists nowhere, at its first attempt, for unit tests of a handler:
    `await send(testing.job(EmailArgs("ann@example.com"), attempt=2))`. Fields are those of Job."""
    now = datetime.now(timezone.utc)
    times = dict.fromkeys(("created_at", "scheduled_at", "attempted_at"), now)
    given: dict[str, Any] = {"id": 1, "kind": "test", "queue": "default", "args": args, "meta": {}, "tags": []}
    given |= {"priority": 1, "attempt": 1, "max_attempts": 25, "deadline": None, "token": 1, **times}
    made: UnitJob[A] = UnitJob(**{**given, **fields})
    made.stored, made.ended = [], []

    def store(job: Job[A], progress: str) -> Nothing:
        made.stored.append(json.loads(progress))
        return Nothing()

    made._store, made._end = store, made.ended.append
    return made


@overload
def assert_inserted(transaction: AsyncTransaction, kind: str | Kind[Any], args: object = ...) -> Later[Found]: ...
@overload
def assert_inserted(transaction: Any, kind: str | Kind[Any], args: object = ...) -> Found: ...
def assert_inserted(transaction: Any, kind: str | Kind[Any], args: object = {}) -> Any:
    """Returns the newest job of the kind with at least these args. Raises AssertionError if there
    is none, with the args of the newest jobs of the kind."""
    name = kind.name if isinstance(kind, Kind) else kind
    return converse(transaction, _assert_inserted, name, args, grant="grant_application")


@overload
def advance(transaction: AsyncTransaction, interval: Duration) -> Later[None]: ...
@overload
def advance(transaction: Any, interval: Duration) -> None: ...
def advance(transaction: Any, interval: Duration) -> Any:
    """Makes every scheduled and retryable job due that much earlier."""
    return converse(transaction, _advance, seconds(interval), grant="grant_application")


@overload
def work_all(transaction: AsyncTransaction, worker: Worker) -> Later[list[Worked]]: ...
@overload
def work_all(transaction: Any, worker: Worker) -> list[Worked]: ...
def work_all(transaction: Any, worker: Worker) -> Any:
    """Runs the due jobs of the worker's queues in the transaction, one after another, with its
    handlers and middleware, until none is left. Returns an entry per attempt, in order. Raises
    RuntimeError after 1,000 attempts.

    The writes of a handler stay if it returned; otherwise they are rolled back. Progress is not
    stored. With a blocking connection, call this outside an event loop."""
    return converse(transaction, _work_all, worker, is_async(transaction), grant="grant_application")


async def _assert_inserted(execute: Execute, kind: str, args: object) -> Found:
    sql = (
        f"select id, kind, queue, cast(state as text), cast(args as text) from jobs.jobs, {JSONB} wanted"
        " where kind = wanted->>'kind' and args @> (wanted->'args') order by id desc limit 1"
    )
    found = await execute(sql, encode({"kind": kind, "args": args}))
    if not found:
        sql = "select cast(args as text) from jobs.jobs where kind = %s order by id desc limit 10"
        newest = "\n".join(row[0] for row in await execute(sql, kind)) or "none"
        raise AssertionError(f'no job of kind "{kind}" has args {encode(args)}; the newest of that kind have:\n{newest}')
    id, kind, queue, state, text = found[0]
    return Found(id, kind, queue, state, json.loads(text))


async def _advance(execute: Execute, interval: float) -> None:
    sql = (
        "select jobs.update(id, scheduled_at => scheduled_at - cast(cast(%s as text) as interval))"
        " from jobs.jobs where state in ('scheduled', 'retryable')"
    )
    await execute(sql, f"{interval:f} s")


async def _work_all(execute: Execute, worker: Worker, may_wait: bool) -> list[Worked]:
    sql = (
        f"select {COLUMNS} from {JSONB} asked, lateral jobs.fetch_any(worker => 'work_all',"
        " queues => array(select jsonb_array_elements_text(asked->'queues')), kinds =>"
        " case asked->'kinds' when 'null' then null else array(select jsonb_array_elements_text(asked->'kinds')) end)"
    )
    asked = encode({"queues": list(worker.queues), "kinds": worker._kinds()})
    try:
        await execute("savepoint work_all")
        await execute("release savepoint work_all")
    except Exception as error:
        if code_of(error) != "25P01":  # no active transaction
            raise
        raise RuntimeError("work_all needs a transaction: begin one, and roll it back after the test") from error
    worked: list[Worked] = []
    while rows := await execute(sql, asked):
        if len(worked) == MOST_ATTEMPTS:
            raise RuntimeError(f"jobs are still due after {MOST_ATTEMPTS:,} attempts")
        job = job_of(rows[0])[0]
        await _work(execute, worker, job, may_wait)
        (left,) = await results_of(execute, f"{{{job.id}}}")
        worked.append(Worked(job.id, job.kind, str(left.state), left.output, left.error))
    return worked


async def _work(execute: Execute, worker: Worker, job: Job[Any], may_wait: bool) -> None:
    job._store = lambda job, progress: Nothing()
    handler = worker._handler(job)
    ended: list[object] = []
    job._end = ended.append if handler.batch else None

    async def call(job: Job[Any]) -> Any:
        output = await handler.call([job] if handler.batch else job, _directly)
        if ended and isinstance(ended[0], BaseException):
            raise ended[0]
        return ended[0] if ended else None if handler.batch else output

    is_waiting = handler.is_async or worker.middleware
    if is_waiting and not may_wait and _runs_loop():
        raise RuntimeError("work_all was called within an event loop: give it an async connection, or call it outside")
    handling = worker._handle(job, call)
    told = failure
    await execute("savepoint before_handler")
    try:
        output = asyncio.run(handling) if is_waiting and not may_wait else await handling
        told = _refused
        await _finish(execute, job, None if job._is_completed else completion(output))
    except (Exception, Outcome, SystemExit, asyncio.CancelledError) as error:
        if may_wait and isinstance(error, asyncio.CancelledError) and _is_told_to_end():
            raise
        await execute("rollback to savepoint before_handler")
        await _finish(execute, job, told(error))


async def _finish(execute: Execute, job: Job[Any], finish: Finish | None) -> None:
    if finish:
        element, _, refused = wire(job.id, job.token, finish)
        if refused:
            raise refused
        await execute(f"select 1 from jobs.finish_many({JSONB})", f"[{element}]")
    await execute("release savepoint before_handler")


def _is_told_to_end() -> bool:
    """Whether the task of the test is cancelled. Before Python 3.11 a cancel of the handler's own
    looks the same."""
    return bool(getattr(asyncio.current_task(), "cancelling", lambda: 1)())


def _runs_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _refused(error: BaseException) -> Finish:
    return invalid_output(error) if is_of_value(error) else failure(error)


async def _directly(function: Callable[..., Any], *args: Any) -> Any:
    output = function(*args)
    return asyncio.run(output) if inspect.iscoroutine(output) and not _runs_loop() else output
