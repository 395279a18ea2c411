"""The job that a handler gets."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import Awaitable, Callable, Generator
from contextvars import Context, ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Generic, Literal, TypeVar, overload

from ._database import JSONB, AsyncTransaction, Execute, Later, Row, converse
from ._values import encode

log = logging.getLogger("postgres_jobs")

A = TypeVar("A")
Reason = Literal["timeout", "cancelled", "stopping", "lost"]


@dataclass(eq=False)
class Job(Generic[A]):
    """A running job. Its args have type A: a dataclass, a pydantic model or a JSON type."""

    id: int
    kind: str
    queue: str
    args: A
    meta: dict[str, Any]
    tags: list[str]
    priority: int
    """Lower numbers run first."""
    attempt: int
    """The number of this attempt, from 1."""
    max_attempts: int
    created_at: datetime
    scheduled_at: datetime
    """When it was due."""
    attempted_at: datetime
    """When it was fetched."""
    deadline: datetime | None
    """When the attempt is over, in this machine's clock. None: no limit."""
    token: int = field(repr=False)
    """Identifies the attempt to the server."""
    cancelled: threading.Event = field(default_factory=threading.Event, repr=False)
    """Set when the handler must stop. An async handler is cancelled as well; a handler in a thread
    checks this event, or waits for it instead of sleeping."""
    cancelled_because: Reason | None = field(default=None, repr=False)
    """Why the handler must stop: its timeout, a cancel of the job, a stop of the worker, or a lost
    job. It is also the message of an async handler's `CancelledError`."""

    _store: Callable[[Job[A], str], Awaitable[None]] | None = field(default=None, repr=False)
    _end: Callable[[object], None] | None = field(default=None, repr=False)
    _is_completed: bool = field(default=False, repr=False)

    def progress(self, value: object) -> Awaitable[None]:
        """Stores progress, any JSON value, and renews the lease. An async handler awaits it; in a
        thread it returns when it is done."""
        assert self._store, "the job is not running"
        return self._store(self, encode(value))

    @overload
    def complete(self, transaction: AsyncTransaction, output: object = None) -> Later[None]: ...
    @overload
    def complete(self, transaction: Any, output: object = None) -> None: ...
    def complete(self, transaction: Any, output: object = None) -> Any:
        """Completes the job within a transaction of the handler, so that its writes and the
        completion are atomic. `transaction` is any connection that `insert` takes. If the
        transaction does not commit, the handler must raise."""
        return converse(transaction, self._complete, encode(output), grant="grant_worker")

    def end(self, result: object = None) -> None:
        """Ends a job of a batch: with its output, or with an error or outcome, such as
        `Snooze(60)`. The first end counts."""
        if self._end is None:
            raise RuntimeError("only a job of a batch is ended so: return its output, or raise")
        self._end(result)

    async def _complete(self, execute: Execute, output: str) -> None:
        # The worker leaves the job alone from here on: its row is locked until the transaction
        # ends, and waiting for that would cost other jobs their leases.
        self._is_completed = True
        try:
            await execute(f"select jobs.complete({self.id}, {self.token}, nullif({JSONB}, 'null'))", output)
        except BaseException:
            self._is_completed = False
            raise


RUNNING: ContextVar[Job[Any]] = ContextVar("postgres_jobs.running")
"""The job of the handler, also in tasks that it creates."""


def job_of_task(task: asyncio.Task[Any] | None) -> Job[Any] | None:
    # Task.get_context is of Python 3.12.
    contexts = (one for one in gc.get_referents(task) if isinstance(one, Context))
    return next(contexts, Context()).get(RUNNING)


def fields(job: Job[Any], **more: object) -> dict[str, object]:
    """The fields of a log line about the job."""
    return {"job": job.id, "kind": job.kind, "attempt": job.attempt, **more}


def named(job: Job[Any]) -> str:
    """The job in the text of a log line."""
    return f"job {job.id} ({job.kind})"


class Nothing(Awaitable[None]):
    """An awaitable that is already done, so that it need not be awaited."""

    def __await__(self) -> Generator[Any, None, None]:
        yield from ()


# The columns of a fetch. Times come as numbers and JSON as text: a value that Python cannot
# represent must not fail the other jobs.
COLUMNS = ", ".join(
    ["id", "kind", "queue", "cast(args as text)", "cast(meta as text)", "tags", "priority", "attempt", "max_attempts"]
    + [f"cast(extract(epoch from {name}) as float8)" for name in ("created_at", "scheduled_at", "attempted_at")]
    + ["cast(extract(epoch from deadline_at - clock_timestamp()) as float8)"]
    + ["cast(extract(epoch from deadline_at - attempted_at) as float8)", "token"]
)


def job_of(row: Row) -> tuple[Job[Any], float | None, float]:
    """The job of a row of COLUMNS, with args and meta still JSON; how many seconds the attempt has
    left, and how many in all. The clocks of server and worker need not agree."""
    *values, left, whole, token = row
    deadline = None if left is None else _time(datetime.now().timestamp() + left)
    make: Any = Job  # the row is untyped
    return make(*values[:9], *map(_time, values[9:]), deadline, token), left, whole or 0.0


def _time(epoch: float) -> datetime:
    """The time, or the nearest that Python can represent."""
    try:
        return datetime.fromtimestamp(epoch, timezone.utc)
    except (ValueError, OverflowError):
        return (datetime.max if epoch > 0 else datetime.min).replace(tzinfo=timezone.utc)
