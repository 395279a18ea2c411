"""For the tests of programs that insert and work on jobs: each in a transaction that the test rolls
back. They take the connections that `insert` takes, and are async where these are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, overload

from ._database import AsyncTransaction, Execute, converse, is_async
from ._values import Duration, encode, seconds
from .job import COLUMNS, Job, Nothing, job_of
from .outcomes import Finish, Outcome, completion, failure, wire
from .worker import Handler, Worker

Handlers = Worker | Mapping[str, Callable[[Job[Any]], Any]]


@dataclass(frozen=True)
class Worked:
    """A job that `work_all` has run, and what it became."""

    id: int
    kind: str
    args: Any
    state: str


@overload
def assert_inserted(transaction: AsyncTransaction, kind: str, args: object = ...) -> Awaitable[int]: ...
@overload
def assert_inserted(transaction: Any, kind: str, args: object = ...) -> int: ...
def assert_inserted(transaction: Any, kind: str, args: object = {}) -> Any:
    """A job of that kind with at least these args is there; the id of the newest. Raises
    AssertionError if there is none, with what is there of that kind."""
    return converse(transaction, _assert_inserted, kind, args)


@overload
def advance(transaction: AsyncTransaction, interval: Duration) -> Awaitable[None]: ...
@overload
def advance(transaction: Any, interval: Duration) -> None: ...
def advance(transaction: Any, interval: Duration) -> Any:
    """Jobs that are to run later run that much earlier."""
    return converse(transaction, _advance, seconds(interval))


@overload
def work_all(transaction: AsyncTransaction, handlers: Handlers) -> Awaitable[list[Worked]]: ...
@overload
def work_all(transaction: Any, handlers: Handlers) -> list[Worked]: ...
def work_all(transaction: Any, handlers: Handlers) -> Any:
    """Runs the jobs that are due inline, in that transaction, until there is no more: those of the
    queues of the Worker; of all queues, where the handlers are functions by their kinds. Returns
    each attempt, in order, with the state that its job got."""
    return converse(transaction, _work_all, handlers, is_async(transaction))


async def _assert_inserted(execute: Execute, kind: str, args: object) -> int:
    sql = (
        "select id from jobs.jobs, cast(cast(%s as text) as jsonb) wanted"
        " where kind = wanted->>'kind' and args @> (wanted->'args') order by id desc limit 1"
    )
    found = await execute(sql, encode({"kind": kind, "args": args}))
    if not found:
        there = await execute("select cast(args as text) from jobs.jobs where kind = %s order by id desc limit 10", kind)
        shown = "\n".join(row[0] for row in there) or "none"
        raise AssertionError(f"there is no job of kind {kind!r} with args {encode(args)}; the newest of that kind:\n{shown}")
    return int(found[0][0])


async def _advance(execute: Execute, interval: float) -> None:
    sql = (
        "select jobs.update(id, scheduled_at => scheduled_at - cast(cast(%s as text) as interval))"
        " from jobs.jobs where state in ('scheduled', 'retryable')"
    )
    await execute(sql, f"{interval:f} s")


async def _work_all(execute: Execute, given: Handlers, may_wait: bool) -> list[Worked]:
    if isinstance(given, Worker):
        worker, queues = given, list(given.queues)
    else:
        worker, queues = Worker(), None
        for kind, function in given.items():
            worker.kind(kind)(function)
    kinds = None if worker.handler_of_others else list(worker.handlers)
    sql = (
        f"select {COLUMNS} from cast(cast(%s as text) as jsonb) asked, lateral jobs.fetch_any(worker => 'work_all',"
        " queues => case asked->'queues' when 'null' then array(select 'default' union select queue from jobs.jobs"
        " where state in ('available', 'scheduled', 'retryable'))"
        " else array(select jsonb_array_elements_text(asked->'queues')) end, kinds =>"
        " case asked->'kinds' when 'null' then null else array(select jsonb_array_elements_text(asked->'kinds')) end)"
    )
    worked: list[Worked] = []
    while rows := await execute(sql, encode({"queues": queues, "kinds": kinds})):
        job = job_of(rows[0])[0]
        job._store = lambda token, progress: Nothing()
        handler = worker.handlers.get(job.kind) or worker.handler_of_others
        assert handler
        must_run = handler.is_async and not may_wait
        finish = asyncio.run(_work(job, handler)) if must_run else await _work(job, handler)
        if not job._is_completed:
            element = wire(job.id, job.token, finish)
            await execute("select 1 from jobs.finish_many(cast(cast(%s as text) as jsonb))", f"[{element}]")
        rows = await execute(f"select cast(state as text) from jobs.results(array[{job.id}])")
        worked.append(Worked(job.id, job.kind, job.args, rows[0][0]))
    return worked


async def _work(job: Job[Any], handler: Handler) -> Finish:
    try:
        output = handler.function(handler.typed(job))
        return completion(await output if handler.is_async else output)
    except (Exception, Outcome) as error:
        return failure(error)
