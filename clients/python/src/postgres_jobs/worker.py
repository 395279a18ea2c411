"""The worker: its options, its handlers, its start and its stop."""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import os
import signal
import socket
import sys
import threading
import unicodedata
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

from ._engine import CANCEL, GRACE, Engine
from ._values import Duration, args_type, build, encode, seconds
from ._version import __version__
from .job import Job, log

Function = TypeVar("Function", bound=Callable[[Job[Any]], Any])
Middleware = Callable[..., Awaitable[Any]]
"""`async def around(job, handler)`, which returns what `await handler(job)` returns."""


@dataclass(frozen=True)
class Handler:
    """The handler of a kind."""

    function: Callable[[Job[Any]], Any]
    args_type: Any
    is_async: bool
    timeout: float | None
    """Seconds, infinity, or None for the worker's timeout."""


def _as_kept(name: str) -> str:
    """The name as the database stores it."""
    return unicodedata.normalize("NFC", name)


class Worker:
    """Fetches jobs and runs their handlers.

    dsn: a URL or libpq connection string; PG* environment variables supply the rest.
    queues: names, or names with weights by which they share the places.
    concurrency: the maximum number of handlers that run at once.
    timeout: how long a handler may run, unless its kind has a timeout. None: only the job's limit.
    lease: how long a job stays with a dead worker before it is rescued.
    grace: how long handlers may go on after a stop.
    name: the worker's name in jobs.workers. Default: HOST:PID:RANDOM.
    info: shown in jobs.workers.
    middleware: functions around every handler, the first outermost.

    Durations are seconds or timedeltas.
    """

    def __init__(
        self,
        dsn: str = "",
        *,
        queues: Sequence[str] | Mapping[str, float] = ("default",),
        concurrency: int = 10,
        timeout: Duration | None = None,
        lease: Duration = 30,
        grace: Duration = 10,
        name: str | None = None,
        info: Mapping[str, Any] | None = None,
        middleware: Sequence[Middleware] = (),
    ) -> None:
        weights = dict(queues) if isinstance(queues, Mapping) else dict.fromkeys(queues, 1.0)
        self.queues = {_as_kept(queue): weight for queue, weight in weights.items()}
        is_list = not isinstance(queues, str) and 0 < len(queues) == len(self.queues)
        _check(is_list, "queues", queues, "distinct names, or names with weights")
        for queue, weight in self.queues.items():
            _check(0 < weight < math.inf, f"the weight of queue {queue!r}", weight, "a positive number")
        _check(isinstance(concurrency, int) and concurrency >= 1, "concurrency", concurrency, "an integer of at least 1")
        _check(0 < seconds(lease) < math.inf, "lease", lease, "positive")
        _check(seconds(grace) >= 0, "grace", grace, "at least 0")
        self.dsn, self.concurrency, self.timeout = dsn, concurrency, _timeout("timeout", timeout)
        self.lease, self.grace = seconds(lease), seconds(grace)
        self.name = name or f"{socket.gethostname()[:80]}:{os.getpid()}:{os.urandom(4).hex()}"
        self.info = {"library": "postgres-jobs for Python", "version": __version__, **(info or {})}
        _check(_is_storable(self.info), "info", info, "JSON that the database can store")
        self.middleware = list(middleware)
        self.handlers: dict[str | None, Handler] = {}
        """By kind. None is the handler of every other kind."""
        self.ready = threading.Event()
        """Set after the first beat: the worker is in jobs.workers and starts to fetch."""
        self._engine: Engine | None = None
        self._serving: asyncio.Task[bool] | None = None

    def kind(self, name: str, *, timeout: Duration | None = None) -> Callable[[Function], Function]:
        """Makes the decorated function the handler of the kind. An async function runs as a task of
        the event loop, any other in a thread. timeout: how long it may run, or -1 for no limit but
        the job's."""
        return self._register(name, timeout)

    def otherwise(self, *, timeout: Duration | None = None) -> Callable[[Function], Function]:
        """Makes the decorated function the handler of every other kind."""
        return self._register(None, timeout)

    def _register(self, kind: str | None, timeout: Duration | None) -> Callable[[Function], Function]:
        _check(isinstance(kind, str | None), "kind", kind, "a name, as in @worker.kind('email.send')")
        shown = "every other kind" if kind is None else f"kind {kind!r}"
        limit = _timeout(f"the timeout of {shown}", timeout)

        kind = kind and _as_kept(kind)

        def register(function: Function) -> Function:
            if kind in self.handlers:
                raise ValueError(f"{shown} already has a handler")
            is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
            self.handlers[kind] = Handler(function, args_type(function), is_async, limit)
            return function

        return register

    def _kinds(self) -> list[str | None] | None:
        """The kinds to fetch, or None for all."""
        return None if None in self.handlers else list(self.handlers)

    def _handler(self, job: Job[Any]) -> Handler:
        return self.handlers.get(job.kind) or self.handlers[None]

    async def _handle(self, job: Job[Any], in_thread: Callable[..., Awaitable[Any]]) -> Any:
        """Runs the job's handler within the middleware. Raises what it raises, or if the args do
        not fit its type."""
        handler = self._handler(job)

        async def innermost(job: Job[Any]) -> Any:
            output = handler.function(job) if handler.is_async else await in_thread(handler.function, job)
            if inspect.iscoroutine(output) and job.cancelled.is_set():  # before it has begun
                output.close()
                raise asyncio.CancelledError(job.cancelled_because)
            return await output if isinstance(output, Awaitable) else output

        call: Callable[[Job[Any]], Awaitable[Any]] = innermost
        for around in reversed(self.middleware):
            call = partial(around, handler=call)
        job.args, job.meta = build(handler.args_type, json.loads(job.args)), json.loads(cast(str, job.meta))
        return await call(job)

    def run(self) -> None:
        """Works until SIGTERM or SIGINT. A second signal skips the grace period. Exits with 1 if a
        result could not be sent."""
        loop = asyncio.new_event_loop()
        try:
            asyncio.set_event_loop(loop)
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._signal)
            serving = loop.create_task(self._serve())
            while not serving.done():
                try:
                    loop.run_until_complete(serving)
                except (SystemExit, KeyboardInterrupt) as error:
                    # A task also raises these in the caller of the loop.
                    log.warning("error outside of handlers: %r", error)
            if not serving.result():
                sys.exit(1)
        finally:
            # Not asyncio.run: it waits for handlers that do not stop.
            loop.set_exception_handler(lambda *_: None)
            asyncio.set_event_loop(None)
            loop.close()

    async def start(self) -> None:
        """Starts the worker within a program, until `stop`. It installs no signal handlers and does
        not wait for the database."""
        if self._serving and not self._serving.done():
            raise RuntimeError("the worker is already running")
        self._serving = asyncio.create_task(self._serve())
        await asyncio.sleep(0)
        if self._serving.done():
            self._serving.result()  # raises if the worker cannot start

    async def ended(self) -> None:
        """Returns when the worker has stopped, also by an operator's command. Raises RuntimeError
        if a result could not be sent, or the error that ended the worker."""
        if self._serving and not await asyncio.shield(self._serving):
            raise RuntimeError("results could not be sent; their jobs run again once their leases expire")

    async def stop(self) -> None:
        """Stops fetching, gives handlers the grace period, and returns when all results are sent.
        Raises what `ended` raises."""
        await self._stop(GRACE)

    async def stop_and_cancel(self) -> None:
        """Stops without a grace period. May be called while `stop` is running."""
        await self._stop(CANCEL)

    async def _stop(self, stage: int) -> None:
        if self._engine:
            self._engine.stop(stage)
        await self.ended()

    def _signal(self) -> None:
        if self._engine:
            self._engine.stop(CANCEL if self._engine.stage >= GRACE else GRACE)

    async def _serve(self) -> bool:
        if not self.handlers:
            raise ValueError("the worker has no handlers")
        self._engine = Engine(self)
        log.info("worker started: %s", self.name)
        try:
            is_all_sent = await self._engine.serve()
            log.info("worker stopped: %s", self.name)
            return is_all_sent
        except Exception as error:
            log.error("worker failed: %s: %s", self.name, error)
            raise
        finally:
            self.ready.clear()
            self._engine = None


def _check(is_right: bool, option: str, value: object, rule: str) -> None:
    if not is_right:
        raise ValueError(f"{option} must be {rule}, not {value!r}")


def _is_storable(value: object) -> bool:
    try:
        # A NUL, and not a text of a backslash and "u0000".
        return "\\u0000" not in encode(value).replace(r"\\", "")
    except Exception:  # also what the value's own classes raise
        return False


def _timeout(option: str, timeout: Duration | None) -> float | None:
    _check(timeout is None or timeout == -1 or seconds(timeout) > 0, option, timeout, "positive, or -1 for no limit")
    return None if timeout is None else math.inf if timeout == -1 else seconds(timeout)
