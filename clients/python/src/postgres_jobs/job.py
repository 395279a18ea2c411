"""The job that a handler gets."""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Generic, Literal, TypeVar, overload

from ._database import JSONB, AsyncTransaction, Execute, Row, converse
from ._values import encode

log = logging.getLogger("postgres_jobs")

A = TypeVar("A")
Reason = Literal["timeout", "cancelled", "stopping", "lost"]


@dataclass(eq=False)
class Job(Generic[A]):
    """A job that runs. Its args are of type A: a dataclass, a pydantic model, or what JSON has."""

    id: int
    kind: str
    queue: str
    args: A
    meta: dict[str, Any]
    tags: list[str]
    priority: int
    """The lower number runs first."""
    attempt: int
    """Which attempt this is, from 1."""
    max_attempts: int
    created_at: datetime
    scheduled_at: datetime
    """Since when it was to run."""
    attempted_at: datetime
    """When it was fetched."""
    deadline: datetime | None
    """When the attempt must have ended, in this computer's clock. None: whenever it likes."""
    token: int = field(repr=False)
    """What the server knows the attempt by."""
    cancelled: threading.Event = field(default_factory=threading.Event, repr=False)
    """Set when the handler is to stop. An async handler is cancelled then; a handler in a thread
    looks at this, or waits for it instead of sleeping."""
    cancelled_because: Reason | None = field(default=None, repr=False)
    """Why: its time is over, somebody has cancelled the job, the worker stops, or the job was lost.
    The `CancelledError` of an async handler has this as its message, too."""

    _store: Callable[[Job[A], str], Awaitable[None]] | None = field(default=None, repr=False)
    _is_completed: bool = field(default=False, repr=False)

    def progress(self, value: object) -> Awaitable[None]:
        """Stores progress, any JSON value, and renews the lease. In a thread it returns when that
        is done; in an async handler it is awaited."""
        assert self._store, "this job does not run"
        return self._store(self, encode(value))

    @overload
    def complete(self, transaction: AsyncTransaction, output: object = None) -> Awaitable[None]: ...
    @overload
    def complete(self, transaction: Any, output: object = None) -> None: ...
    def complete(self, transaction: Any, output: object = None) -> Any:
        """Completes the job within a transaction of the handler, so that what it wrote and the end
        of the job are one. `transaction` is anything that `insert` takes. If the transaction does
        not commit, the handler must raise."""
        return converse(transaction, self._complete, encode(output))

    async def _complete(self, execute: Execute, output: str) -> None:
        # The worker leaves the job alone from here on: its row is locked until the transaction
        # ends, and who waited for that could not keep the other jobs.
        self._is_completed = True
        try:
            await execute(f"select jobs.complete({self.id}, {self.token}, nullif({JSONB}, 'null'))", output)
        except BaseException:
            self._is_completed = False
            raise


def fields(job: Job[Any], **more: object) -> dict[str, object]:
    """What logs say of the job, beside their text."""
    return {"job": job.id, "kind": job.kind, "attempt": job.attempt, **more}


class Nothing(Awaitable[None]):
    """What may be awaited, or not: it is done."""

    def __await__(self) -> Generator[Any, None, None]:
        yield from ()


# What a fetch selects. Times come as numbers and JSON as text: a value that Python cannot hold must
# not spoil the jobs beside it.
COLUMNS = ", ".join(
    ["id", "kind", "queue", "cast(args as text)", "cast(meta as text)", "tags", "priority", "attempt", "max_attempts"]
    + [f"cast(extract(epoch from {name}) as float8)" for name in ("created_at", "scheduled_at", "attempted_at")]
    + ["cast(extract(epoch from deadline_at - clock_timestamp()) as float8)"]
    + ["cast(extract(epoch from deadline_at - attempted_at) as float8)", "token"]
)


def job_of(row: Row) -> tuple[Job[Any], float | None, float]:
    """The job of a row of COLUMNS, its args and meta still JSON; how many seconds are left of the
    attempt, and how many it has had. The clocks of server and worker need not agree."""
    *values, left, whole, token = row
    deadline = None if left is None else _time(datetime.now().timestamp() + left)
    make: Any = Job  # the row is of no type
    return make(*values[:9], *map(_time, values[9:]), deadline, token), left, whole or 0.0


def _time(epoch: float) -> datetime:
    """The time, or the nearest that Python knows."""
    try:
        return datetime.fromtimestamp(epoch, timezone.utc)
    except (ValueError, OverflowError):
        return (datetime.max if epoch > 0 else datetime.min).replace(tzinfo=timezone.utc)
