"""Attempts, and the batches that some of them form."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from .job import RUNNING, Job, Reason
from .outcomes import Finish

if TYPE_CHECKING:
    from ._handler import Handler

InThread = Callable[..., Awaitable[Any]]


class Threaded:
    """Calls a handler, perhaps in a thread, which cannot be cancelled: its result counts."""

    is_in_thread = False

    async def in_thread(self, run: InThread, function: Callable[..., Any], *args: Any) -> Any:
        self.is_in_thread = True
        try:
            return await run(function, *args)
        finally:
            self.is_in_thread = False


class Attempt(Threaded):
    """A job that this worker holds, and its handler."""

    timer: asyncio.TimerHandle | None = None
    """Fires when it has waited too long for a place, or at the timeout."""

    def __init__(self, job: Job[Any], handler: Handler, latest: float) -> None:
        self.job = job
        self.handler = handler
        self.latest = latest
        """When it times out by the server's deadline, in the time of the event loop."""
        self.task: asyncio.Task[Finish | None] | None = None
        self.batch: Batch | None = None
        self.error: BaseException | None = None
        """What has failed it."""
        self.is_settled = False
        """Whether nothing more is sent: the result is sent, or the job is lost."""

    def cancel(self, because: Reason) -> None:
        """The first reason counts."""
        if not self.job.cancelled.is_set():
            self.job.cancelled_because = because
            self.job.cancelled.set()
            if self.batch and self.batch.task:
                self.batch.cancel(because)
            elif self.task and not self.is_in_thread:
                self.task.cancel(because)


class Batch(Threaded):
    """Jobs of one kind for one call of their handler, which begins once the batch is closed and
    the middleware of each job has come to its handler."""

    def __init__(self, handler: Handler, in_thread: InThread, begins: Callable[[Attempt], None]) -> None:
        self.handler = handler
        self.run_in_thread = in_thread
        self.begins = begins
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        self.members: list[Attempt] = []
        self.ends: dict[Attempt, asyncio.Future[Any]] = {}
        """The end of each job that has come to its handler."""
        self.is_closed = False
        self.task: asyncio.Task[None] | None = None
        self.is_cancelled = False

    def add(self, attempt: Attempt) -> None:
        attempt.batch = self
        self.members.append(attempt)

    def close(self) -> None:
        self.is_closed = True
        self._begin()

    def leave(self, attempt: Attempt) -> None:
        """The attempt has ended. If it never came to its handler, the others do not wait for it."""
        if self.task is None:
            self.members.remove(attempt)
            self.ends.pop(attempt, None)
            self._begin()

    async def join(self, attempt: Attempt) -> Any:
        """Returns the job's output, or raises its error, once the handler has ended it."""
        end = self.ends[attempt] = self.loop.create_future()

        def set_end(result: object) -> None:
            if end.done():
                return
            if isinstance(result, BaseException):
                end.set_exception(result)
            else:
                end.set_result(result)

        def end_job(result: object) -> None:
            if threading.get_ident() == self.thread:
                set_end(result)
            else:
                self.loop.call_soon_threadsafe(set_end, result)

        attempt.job._end = end_job
        self._begin()
        return await end

    def _begin(self) -> None:
        if self.is_closed and self.task is None and self.members and len(self.ends) == len(self.members):
            self.task = self.loop.create_task(self._run())
            for attempt in self.members:
                self.begins(attempt)

    async def _run(self) -> None:
        RUNNING.set(self.members[0].job)
        result: BaseException | None = None
        try:
            await self.handler.call([one.job for one in self.members], partial(self.in_thread, self.run_in_thread))
        except BaseException as error:
            result = error
        for attempt in self.members:
            if end := attempt.job._end:
                end(result)

    def cancel(self, because: Reason) -> None:
        """Ends the handler, unless it continues for jobs that are neither ended nor cancelled."""
        is_over = all(one.job.cancelled.is_set() or self.ends[one].done() for one in self.members)
        goes_on = because in ("cancelled", "lost") and not is_over
        if self.task and not (goes_on or self.is_cancelled or self.is_in_thread):
            self.is_cancelled = True
            self.task.cancel(because)
