"""For the tests of programs that insert and work on jobs: each in a transaction that the test rolls
back. They take the connections that `insert` takes, and are async where these are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, overload

from ._database import AsyncTransaction, Talk, converse, is_async
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
    return converse(transaction, _assert_inserted(kind, args))


@overload
def advance(transaction: AsyncTransaction, interval: Duration) -> Awaitable[None]: ...
@overload
def advance(transaction: Any, interval: Duration) -> None: ...
def advance(transaction: Any, interval: Duration) -> Any:
    """Jobs that are to run later run that much earlier."""
    return converse(transaction, _advance(seconds(interval)))


@overload
def work_all(transaction: AsyncTransaction, handlers: Handlers) -> Awaitable[list[Worked]]: ...
@overload
def work_all(transaction: Any, handlers: Handlers) -> list[Worked]: ...
def work_all(transaction: Any, handlers: Handlers) -> Any:
    """Runs the jobs that are due inline, in that transaction, until there is no more: those of the
    queues of the Worker; of all queues, where the handlers are functions by their kinds. Returns
    each attempt, in order, with the state that its job got."""
    if isinstance(handlers, Worker):
        queues: list[str] | None = list(handlers.queues)
        known, others = handlers.handlers, handlers.handler_of_others
    else:
        queues, others = None, None
        known = {kind: Handler.of(function) for kind, function in handlers.items()}
    if is_async(transaction):
        return _work_all_later(transaction, queues, known, others)
    worked: list[Worked] = []
    while job := converse(transaction, _fetch(queues, None if others else list(known))):
        handler = known.get(job.kind) or others
        assert handler
        finish = asyncio.run(_work(job, handler)) if handler.is_async else _work_blocking(job, handler)
        worked.append(converse(transaction, _finish(job, finish)))
    return worked


def _assert_inserted(kind: str, args: object) -> Talk[int]:
    wanted = encode({"kind": kind, "args": args})
    found = yield (
        "select id from jobs.jobs, cast(cast(%s as text) as jsonb) wanted where kind = wanted->>'kind'"
        " and args @> (wanted->'args') order by id desc limit 1",
        wanted,
    )
    if not found:
        there = yield "select cast(args as text) from jobs.jobs where kind = %s order by id desc limit 10", kind
        shown = "\n".join(row[0] for row in there) or "none"
        raise AssertionError(f"there is no job of kind {kind!r} with args {encode(args)}; the newest of that kind:\n{shown}")
    return int(found[0][0])


def _advance(interval: float) -> Talk[None]:
    yield (
        "select jobs.update(id, scheduled_at => scheduled_at - cast(cast(%s as text) as interval)) from jobs.jobs"
        " where state in ('scheduled', 'retryable')",
        f"{interval:f} s",
    )


async def _work_all_later(
    transaction: Any, queues: list[str] | None, known: dict[str, Handler], others: Handler | None
) -> list[Worked]:
    worked: list[Worked] = []
    while job := await converse(transaction, _fetch(queues, None if others else list(known))):
        handler = known.get(job.kind) or others
        assert handler
        finish = await _work(job, handler) if handler.is_async else _work_blocking(job, handler)
        worked.append(await converse(transaction, _finish(job, finish)))
    return worked


def _fetch(queues: list[str] | None, kinds: list[str] | None) -> Talk[Job[Any] | None]:
    """The next job that is due, if there is one."""
    if queues is None:
        rows = yield "select distinct queue from jobs.jobs where state in ('available', 'scheduled', 'retryable')", ""
        queues = [row[0] for row in rows]
    if not queues:
        return None
    rows = yield (
        f"select {COLUMNS} from cast(cast(%s as text) as jsonb) asked, lateral jobs.fetch_any("
        "queues => array(select jsonb_array_elements_text(asked->'queues')), worker => 'work_all', kinds =>"
        " case when asked->'kinds' <> 'null' then array(select jsonb_array_elements_text(asked->'kinds')) end)",
        encode({"queues": queues, "kinds": kinds}),
    )
    if not rows:
        return None
    job = job_of(rows[0])[0]
    job._store = lambda token, progress: Nothing()
    return job


async def _work(job: Job[Any], handler: Handler) -> Finish:
    try:
        return completion(await handler.function(handler.typed(job)))
    except (Exception, Outcome) as error:
        return failure(error)


def _work_blocking(job: Job[Any], handler: Handler) -> Finish:
    try:
        return completion(handler.function(handler.typed(job)))
    except (Exception, Outcome) as error:
        return failure(error)


def _finish(job: Job[Any], finish: Finish) -> Talk[Worked]:
    if not job._is_completed:
        yield "select 1 from jobs.finish_many(cast(cast(%s as text) as jsonb))", f"[{wire(job.id, job.token, finish)}]"
    rows = yield "select cast(state as text) from jobs.results(cast(%s as bigint[]))", f"{{{job.id}}}"
    return Worked(job.id, job.kind, job.args, rows[0][0])
