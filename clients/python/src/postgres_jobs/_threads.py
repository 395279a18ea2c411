"""Threads for handlers that block."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any


class Threads:
    """Threads that are kept for the next call. They are daemons: a handler that does not stop must
    not keep the program from ending, as the threads of an executor do."""

    def __init__(self) -> None:
        self.idle: list[queue.SimpleQueue[Any]] = []

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
        if self.idle:
            calls = self.idle.pop()
        else:
            calls = queue.SimpleQueue()
            threading.Thread(target=self._work, args=(loop, calls), name="postgres_jobs handler", daemon=True).start()
        calls.put((contextvars.copy_context(), function, args, ended))
        value, error = await ended
        if error is not None:
            raise error
        return value

    def _work(self, loop: asyncio.AbstractEventLoop, calls: queue.SimpleQueue[Any]) -> None:
        while call := calls.get():
            context, function, args, ended = call
            value = error = None
            try:
                value = context.run(function, *args)
            except BaseException as raised:
                error = raised
            try:
                loop.call_soon_threadsafe(self._ended, calls, ended, (value, error))
            except RuntimeError:  # the loop is closed: the worker has left this handler behind
                return
            del call, context, function, args, ended, value, error

    def _ended(self, calls: queue.SimpleQueue[Any], ended: asyncio.Future[Any], outcome: tuple[Any, Any]) -> None:
        self.idle.append(calls)
        if not ended.done():
            ended.set_result(outcome)

    def close(self) -> None:
        while self.idle:
            self.idle.pop().put(None)
