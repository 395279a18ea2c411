"""Handlers, and how they are called."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from .job import Job
from .produce import Kind


@dataclass(frozen=True)
class Handler:
    """The handler of a kind."""

    function: Callable[[Any], Any]
    args_type: Any
    is_async: bool
    timeout: float | None
    """Seconds, infinity, or None for the worker's timeout."""
    concurrency: int | None = None
    batch: tuple[int, float] | None = None
    """Size and linger."""
    kind: Kind[Any] | None = None

    async def call(self, given: Job[Any] | list[Job[Any]], in_thread: Callable[..., Awaitable[Any]]) -> Any:
        """Runs the function with a job or a batch."""
        output = self.function(given) if self.is_async else await in_thread(self.function, given)
        jobs = given if isinstance(given, list) else [given]
        if inspect.iscoroutine(output) and all(job.cancelled.is_set() for job in jobs):
            # It has not begun.
            output.close()
            raise asyncio.CancelledError(jobs[0].cancelled_because)
        return await output if isinstance(output, Awaitable) else output
