"""Threads for handlers that block."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


class Threads:
    """Threads that are reused for the next call. They are daemons: unlike an executor's threads, a
    handler that does not stop must not keep the program from exiting."""

    def __init__(self, call: Callable[..., Any]) -> None:
        """`call` is given each function and its arguments."""
        self.call = call
        self.calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
        # Counts threads that wait for a call, or are about to.
        self.idle = threading.Semaphore(0)

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        ended: Future[tuple[Any, BaseException | None]] = Future()
        ended.set_running_or_notify_cancel()  # the waiting task may be cancelled, the call may not
        if not self.idle.acquire(blocking=False):
            threading.Thread(target=self._work, name="postgres_jobs handler", daemon=True).start()
        self.calls.put((contextvars.copy_context(), function, args, ended))
        value, error = await asyncio.wrap_future(ended)
        if error is not None:
            raise error
        return value

    def _work(self) -> None:
        while call := self.calls.get():
            context, function, args, ended = call
            value = error = None
            try:
                value = context.run(self.call, function, *args)
            except BaseException as raised:
                error = raised
            self.idle.release()
            ended.set_result((value, error))
            del call, context, function, args, ended, value, error

    def close(self) -> None:
        while self.idle.acquire(blocking=False):
            self.calls.put(None)
