"""The worker: its options, its handlers, its start and its stop."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import math
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypedDict, TypeVar, cast, overload

import psycopg
from psycopg.conninfo import conninfo_to_dict

from ._database import AsyncTransaction, Later
from ._engine import CANCEL, GRACE, RUN, Engine
from ._errors import shown
from ._failures import Hook
from ._handler import Handler
from ._sync import Change, Periodic, ScheduleOptions, sync
from ._values import NAME, Duration, args_type, as_kept, check_type, encode, is_name, read, seconds
from ._version import __version__
from .cells import Map
from .job import Job, log
from .produce import Kind

if TYPE_CHECKING:
    from typing_extensions import Unpack

A = TypeVar("A")
Function = TypeVar("Function", bound=Callable[..., Any])
Single = TypeVar("Single", bound=Callable[[Job[Any]], Any])
T = TypeVar("T")
Plain = TypeVar("Plain", bound=Callable[[], Any])
Several = TypeVar("Several", bound=Callable[[list[Job[Any]]], Any])
LONGEST_LEASE = 1000 * 360 * 86400  # seconds of 1000 years of 360 days, as the server counts
SIGNALS = signal.SIGTERM, signal.SIGINT
Handle = Callable[[Job[Any]], Awaitable[Any]]
Middleware = Callable[[Job[Any], Handle], Awaitable[Any]]
"""`async def around(job, handler)`, which returns what `await handler(job)` returns."""


class HandlerOptions(TypedDict, total=False):
    timeout: Duration | None
    concurrency: int | None


class BatchOptions(HandlerOptions, total=False):
    size: int
    linger: Duration


class Worker:
    """Fetches jobs and runs their handlers.

    dsn: a URL or libpq connection string, or a list of those of several cells. PG* environment
        variables supply the rest.
    queues: names, or names with weights by which they share the places.
    concurrency: the maximum number of handlers that run at once.
    timeout: how long a handler may run, unless its kind has a timeout. None: only the job's limit.
    lease: how long a job stays with a dead worker before it is rescued.
    grace: how long handlers may run after a stop.
    name: the worker's name in jobs.workers. Default: HOST:PID:RANDOM.
    info: shown in jobs.workers.
    prefetch: how many more jobs than it has free places a worker fetches.
    on_error: called with the job and the error of each failed attempt.
    on_discarded: called so when the server has discarded the job.
    middleware: functions around every handler, the first outermost.

    Durations are seconds or timedeltas.
    """

    def __init__(
        self,
        dsn: str | Sequence[str] = "",
        *,
        queues: Sequence[str] | Mapping[str, float] = ("default",),
        concurrency: int = 10,
        timeout: Duration | None = None,
        lease: Duration = 30,
        grace: Duration = 10,
        name: str | None = None,
        info: Mapping[str, Any] | None = None,
        prefetch: int = 0,
        on_error: Hook | None = None,
        on_discarded: Hook | None = None,
        middleware: Sequence[Middleware] = (),
    ) -> None:
        rule = 'a URL such as "postgresql://localhost/shop", or a libpq connection string'
        self.has_cells = isinstance(dsn, Sequence) and not isinstance(dsn, str)
        for one in (dsn or (None,)) if self.has_cells else (dsn,):
            is_url = isinstance(one, str) and not re.match(r"\w+\+\w+://", one)
            _check(is_url, "dsn", re.sub("//.*@", "//..@", one) if isinstance(one, str) else one, rule)
            _check_syntax(cast(str, one))
        self._set(queues, concurrency)
        _check(1e-6 <= seconds(lease) <= LONGEST_LEASE, "lease", lease, "between 1 µs and 1000 years")
        _check(seconds(grace) >= 0, "grace", grace, "at least 0")
        _check(_is_whole(prefetch, 0), "prefetch", prefetch, "an integer of at least 0")
        self.dsn, self.prefetch, self.timeout = dsn, prefetch, _timeout("timeout", timeout)
        for option, hook in [("on_error", on_error), ("on_discarded", on_discarded)]:
            _check(hook is None or callable(hook), option, hook, "a function, as in def hook(job, error)")
        self.on_error, self.on_discarded = on_error, on_discarded
        self.lease, self.grace = seconds(lease), seconds(grace)
        self.is_named = name is not None
        self.name = name or f"{socket.gethostname()[:80]}:{os.getpid()}:{os.urandom(4).hex()}"
        _check(isinstance(self.name, str) and is_name(as_kept(self.name)), "name", name, NAME)
        self.info = {"library": "postgres-jobs for Python", "version": __version__, **(info or {})}
        _check(_is_storable(self.info), "info", info, "JSON that the database can store")
        rule = "functions, as in async def around(job, handler)"
        self.middleware = list(middleware)
        _check(all(map(callable, self.middleware)), "middleware", middleware, rule)
        self.handlers: dict[str | None, Handler] = {}
        """By kind. None is the handler of every other kind."""
        self.periodics: dict[str, Periodic] = {}
        self.starts: list[Callable[[], Any]] = []
        self.stops: list[Callable[[], Any]] = []
        self.ready = threading.Event()
        """Set after the first beat: the worker is in jobs.workers and starts to fetch."""
        self._engines: list[Engine] = []
        """One for each cell."""
        self._maps: dict[Engine, Map] = {}
        self._serving: asyncio.Task[bool] | None = None
        self._starting: asyncio.Task[Any] | None = None
        """Runs the functions of `on_start`. A stop cancels it."""

    def _set(self, queues: Sequence[str] | Mapping[str, float] | None = None, concurrency: int | None = None) -> None:
        """Changes these options of a worker that does not run."""
        if queues is not None:
            weights = dict(queues) if isinstance(queues, Mapping) else dict.fromkeys(queues, 1.0)
            self.queues = {as_kept(queue): weight for queue, weight in weights.items()}
            is_list = not isinstance(queues, str) and 0 < len(queues) == len(self.queues)
            rule = f"distinct names, or names with weights, each {NAME}"
            _check(is_list and all(map(is_name, self.queues)), "queues", queues, rule)
            for queue, weight in self.queues.items():
                _check(0 < weight < math.inf, f"the weight of queue {queue!r}", weight, "a positive number")
        if concurrency is not None:
            _check(_is_whole(concurrency, 1), "concurrency", concurrency, "an integer of at least 1")
            self.concurrency = concurrency

    @overload
    def kind(
        self, kind: Kind[A], **options: Unpack[HandlerOptions]
    ) -> Callable[[Callable[[Job[A]], T]], Callable[[Job[A]], T]]: ...
    @overload
    def kind(self, kind: str, **options: Unpack[HandlerOptions]) -> Callable[[Single], Single]: ...
    def kind(self, kind: Any, *, timeout: Duration | None = None, concurrency: int | None = None) -> Any:
        """Makes the decorated function the handler of the kind. An async function runs as a task of
        the event loop, any other in a thread. timeout: how long it may run, or -1 for no limit but
        the job's. concurrency: how many jobs of the kind this worker runs at once."""
        return self._register(kind, timeout, concurrency)

    @overload
    def batch(
        self, kind: Kind[A], **options: Unpack[BatchOptions]
    ) -> Callable[[Callable[[list[Job[A]]], T]], Callable[[list[Job[A]]], T]]: ...
    @overload
    def batch(self, kind: str, **options: Unpack[BatchOptions]) -> Callable[[Several], Several]: ...
    def batch(self, kind: Any, *, size: int = 100, linger: Duration = 0, **options: Any) -> Any:
        """Makes the decorated function the handler of up to `size` jobs of the kind at a time:
        those of one fetch, or those that came within `linger` of the first. It ends each by
        `job.end`. When it returns, the others are completed; when it raises, they fail."""
        return self._register(kind, **options, batch=(size, linger))

    def otherwise(self, *, timeout: Duration | None = None) -> Callable[[Single], Single]:
        """Makes the decorated function the handler of every other kind."""
        return self._register(None, timeout)

    def _register(
        self,
        kind: Kind[Any] | str | None,
        timeout: Duration | None = None,
        concurrency: int | None = None,
        batch: tuple[int, Duration] | None = None,
    ) -> Callable[[Function], Function]:
        defined = kind if isinstance(kind, Kind) else None
        name = defined.name if defined else kind
        _check(isinstance(name, str | None) and name != "", "kind", kind, "a name, as in @worker.kind('email.send'), or a Kind")
        name = cast("str | None", name)
        shown = "every other kind" if name is None else f"kind {name!r}"
        if timeout is None and defined:
            timeout = defined.defaults.get("timeout")
        limit = _timeout(f"the timeout of {shown}", timeout)
        is_limit = concurrency is None or _is_whole(concurrency, 1)
        _check(is_limit, f"the concurrency of {shown}", concurrency, "an integer of at least 1")
        if batch:
            _check(_is_whole(batch[0], 1), f"the size of the batches of {shown}", batch[0], "an integer of at least 1")
            _check(seconds(batch[1]) >= 0, f"the linger of {shown}", batch[1], "at least 0")
            batch = batch[0], seconds(batch[1])
        name = name and as_kept(name)
        _check(name is None or is_name(name), "kind", kind, NAME)

        def register(function: Function) -> Function:
            if name in self.handlers:
                raise ValueError(f"{shown} already has a handler")
            is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
            wanted = args_type(function)
            if wanted is Any and defined:
                wanted = defined.args
            check_type(wanted)
            handler = Handler(function, wanted, is_async, limit, concurrency, batch, defined)
            handlers = {**self.handlers, name: handler}
            limited = [one for one, handler in handlers.items() if handler.concurrency]
            if None in handlers and limited:
                rule = "None beside a handler for every other kind"
                _check(False, f"the concurrency of kind {limited[0]!r}", handlers[limited[0]].concurrency, rule)
            self.handlers = handlers
            return function

        return register

    @overload
    def periodic(
        self, name: str, cron: str, kind: Kind[A], args: A = ..., **options: Unpack[ScheduleOptions]
    ) -> None: ...
    @overload
    def periodic(self, name: str, cron: str, kind: str, args: Any = ..., **options: Unpack[ScheduleOptions]) -> None: ...
    def periodic(self, name: str, cron: str, kind: Any, args: Any = {}, **options: Unpack[ScheduleOptions]) -> None:
        """Declares a periodic job, which `sync` writes into the database. Options are those of
        jobs.schedule."""
        if name in self.periodics:
            raise ValueError(f"there already is a periodic job {name!r}")
        kind_name, defaults = (kind.name, kind.defaults) if isinstance(kind, Kind) else (kind, {})
        self.periodics[name] = {"name": name, "cron": cron, "kind": kind_name, "args": args, **defaults, **options}

    @overload
    def sync(self, connection: AsyncTransaction) -> Later[list[Change]]: ...
    @overload
    def sync(self, connection: Any) -> list[Change]: ...
    def sync(self, connection: Any) -> Any:
        """Writes the defaults of the worker's kinds and its periodic jobs into the database, in the
        caller's transaction, and returns what has changed. It removes nothing."""
        kinds = [handler.kind for handler in self.handlers.values() if handler.kind]
        return sync(connection, kinds, list(self.periodics.values()))

    def on_start(self, function: Plain) -> Plain:
        """Runs the decorated function, which may be async, in the worker's event loop before the
        worker begins, such as to open a pool. If it raises, the worker does not start."""
        _check(callable(function), "on_start", function, "a function")
        self.starts.append(function)
        return function

    def on_stop(self, function: Plain) -> Plain:
        """Runs the decorated function after the worker has ended, the last one first."""
        _check(callable(function), "on_stop", function, "a function")
        self.stops.append(function)
        return function

    def _kinds(self) -> list[str | None] | None:
        """The kinds to fetch, or None for all."""
        return None if None in self.handlers else list(self.handlers)

    def _call_in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        """Calls a blocking handler or hook in a thread of the worker."""
        return function(*args)

    def _handler(self, job: Job[Any]) -> Handler:
        return self.handlers.get(job.kind) or self.handlers[None]

    async def _handle(self, job: Job[Any], innermost: Handle) -> Any:
        """Runs the job's handler within the middleware. Raises what it raises, or if the args do
        not fit its type."""
        call, text = innermost, cast(str, job.args)
        job.meta = json.loads(cast(str, job.meta))
        try:
            job.args = read(self._handler(job).args_type, text)
        except Exception as error:  # which middleware sees
            job.args, call = json.loads(text), partial(_refuse, error)
        for around in reversed(self.middleware):
            call = _within(around, call)
        return await call(job)

    def run(self) -> None:
        """Works until SIGTERM or SIGINT. A second signal skips the grace period. Exits with 1 if a
        result could not be sent, or if the database refuses the worker."""
        _show_log()
        loop = asyncio.new_event_loop()
        try:
            asyncio.set_event_loop(loop)
            for number in SIGNALS:
                loop.add_signal_handler(number, self._signal)
            serving = loop.create_task(self._serve())
            while not serving.done():
                try:
                    loop.run_until_complete(serving)
                except (SystemExit, KeyboardInterrupt) as error:
                    # A task also raises these in the caller of the loop.
                    log.warning("error outside of handlers: %r", error)
                except Exception:
                    break
            try:
                is_all_sent = serving.result()
            except (psycopg.Error, RuntimeError) as error:  # which is logged
                raise SystemExit(1) from error
            if not is_all_sent:
                sys.exit(1)
        finally:
            # Not asyncio.run: it waits for handlers that do not stop.
            loop.set_exception_handler(lambda *_: None)
            asyncio.set_event_loop(None)
            loop.close()

    async def serve(self) -> None:
        """Works until SIGTERM or SIGINT, within the caller's event loop. Raises what `ended`
        raises."""
        _show_log()
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._signal)
        try:
            await self.start()
            await self.ended()
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)

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
        self._stop_engines(stage)
        await self.ended()

    def _signal(self) -> None:
        is_second = any(engine.stage >= GRACE for engine in self._engines)
        self._stop_engines(CANCEL if is_second else GRACE)

    def _stop_engines(self, stage: int) -> None:
        for engine in self._engines:
            engine.stop(stage)
        if self._starting:
            self._starting.cancel()

    async def _serve(self) -> bool:
        if not self.handlers:
            raise ValueError("the worker has no handlers")
        dsns = [self.dsn] if isinstance(self.dsn, str) else self.dsn
        engines: list[Engine] = []
        self._engines = engines
        try:
            engines += [Engine(self, dsn, engines) for dsn in dsns]
            await self._call_starts()
            is_all_sent = engines[0].stage > RUN or await _serve_all(engines)
            log.info("worker stopped: %s", self.name)
            return is_all_sent
        except Exception as error:
            log.error("worker failed: %s: %s", self.name, shown(error))
            raise
        finally:
            for stop in reversed(self.stops):
                try:
                    await _call(stop)
                except Exception as error:
                    log.exception("hook failed: on_stop: %r", error)
            self.ready.clear()
            self._engines, self._maps = [], {}

    async def _call_starts(self) -> None:
        self._starting = asyncio.current_task()
        try:
            for start in self.starts:
                if self._engines[0].stage == RUN:
                    await _call(start)
        except asyncio.CancelledError:
            if self._engines[0].stage == RUN:
                raise
        finally:
            self._starting = None


def _show_log() -> None:
    """Logs to stderr, unless the program has a handler of its own."""
    if not log.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)


async def _serve_all(engines: list[Engine]) -> bool:
    serving = [asyncio.create_task(engine.serve()) for engine in engines]
    try:
        return all(await asyncio.gather(*serving))
    except Exception:
        for engine in engines:
            engine.stop(GRACE)
        await asyncio.wait(serving)
        raise


def _within(around: Middleware, handler: Handle) -> Handle:
    return lambda job: around(job, handler)


async def _refuse(error: Exception, job: Job[Any]) -> NoReturn:
    raise error


async def _call(function: Callable[[], Any]) -> None:
    if isinstance(called := function(), Awaitable):
        await called


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and value >= least


def _check(is_right: bool, option: str, value: object, rule: str) -> None:
    if not is_right:
        raise ValueError(f"{option} must be {rule}, not {value!r}")


def _check_syntax(dsn: str) -> None:
    try:
        conninfo_to_dict(dsn)
    except psycopg.Error as error:
        # What libpq quotes may have the password.
        reason = re.sub('(?<= )"(?!=").*"(?!=)', '".."', shown(error))
        raise ValueError(f"dsn is malformed: {reason}") from None


def _is_storable(value: object) -> bool:
    try:
        # A NUL, and not a text of a backslash and "u0000".
        return "\\u0000" not in encode(value).replace(r"\\", "")
    except Exception:  # also what the value's own classes raise
        return False


def _timeout(option: str, timeout: Duration | None) -> float | None:
    _check(timeout is None or timeout == -1 or seconds(timeout) > 0, option, timeout, "positive, or -1 for no limit")
    return None if timeout is None else math.inf if timeout == -1 else seconds(timeout)
