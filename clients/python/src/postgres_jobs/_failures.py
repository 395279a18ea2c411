"""What a worker logs of failed attempts, and the hooks that it calls for them."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ._threads import Threads
from .job import Job, fields, log, named
from .outcomes import Finish

Hook = Callable[[Job[Any], BaseException], Any]
"""`def hook(job, error)`, or async."""


@dataclass(frozen=True)
class Failure:
    job: Job[Any]
    told: Finish
    error: BaseException

    def log(self, level: int, event: str) -> None:
        if not log.isEnabledFor(level):
            return
        job, type, text = self.job, self.told["details"]["type"], self.told["error"]
        extra = fields(job, max_attempts=job.max_attempts, type=type, error=text)
        args = (named(job), job.attempt, job.max_attempts, type, text)
        trace = self.told["details"].get("trace")
        exc_info: Any = trace and (self.error.__class__, self.error, self.error.__traceback__)
        line = f"{event}: %s, attempt %s of %s: %s: %.1000s"
        record = log.makeRecord(log.name, level, __file__, 0, line, args, exc_info, extra=extra)
        record.exc_text = trace  # the error can be of any length, and fail when it is shown
        with suppress(Exception):
            log.handle(record)


class Failures:
    """Logs failures, and tells the hooks: an async one in a task, any other in a thread."""

    def __init__(self, threads: Threads, on_error: Hook | None, on_discarded: Hook | None) -> None:
        self.threads = threads
        self.on_error, self.on_discarded = on_error, on_discarded
        self.calls: set[asyncio.Task[None]] = set()

    def attempt_failed(self, job: Job[Any], told: Finish, error: BaseException | None) -> Failure | None:
        if told["do"] != "fail" or error is None:
            return None
        failure = Failure(job, told, error)
        failure.log(logging.WARNING, "attempt failed")
        self._tell("on_error", self.on_error, failure)
        return failure

    def job_discarded(self, failure: Failure) -> None:
        failure.log(logging.ERROR, "job discarded")
        self._tell("on_discarded", self.on_discarded, failure)

    def _tell(self, name: str, hook: Hook | None, failure: Failure) -> None:
        if hook:
            call = asyncio.get_running_loop().create_task(self._call(name, hook, failure))
            self.calls.add(call)
            call.add_done_callback(self.calls.discard)

    async def _call(self, name: str, hook: Hook, failure: Failure) -> None:
        job = failure.job
        try:
            is_async = inspect.iscoroutinefunction(hook)
            told = hook(job, failure.error) if is_async else await self.threads.run(hook, job, failure.error)
            if inspect.isawaitable(told):
                await told
        except BaseException as error:
            log.error("hook failed: %s, %s: %r", name, named(job), error, exc_info=error, extra=fields(job, error=error))
