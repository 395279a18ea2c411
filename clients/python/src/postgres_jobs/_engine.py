"""One run of a worker: fetches, handles and finishes jobs until it stops."""

from __future__ import annotations

import asyncio
import math
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg

from ._attempt import Attempt, Batch
from ._control import Control
from ._database import Row
from ._errors import shown
from ._failures import Failures
from ._finish import MOST_RESULTS, Finisher
from ._link import Backoff, Link
from ._threads import Threads
from .cells import WRONG_CELL
from .job import COLUMNS, RUNNING, Job, Nothing, fields, job_of, log
from .outcomes import TIMED_OUT, Finish, Outcome, completion, failure, raised_by

if TYPE_CHECKING:
    from ._handler import Handler
    from .worker import Worker

# The stages of a worker. Stop: fetches no more. Grace: handlers have the grace period. Cancel:
# handlers are cancelled.
RUN, STOP, GRACE, CANCEL = range(4)

# Seconds for a cancelled handler to end when the worker stops, and to send the last results.
LEFT_BEHIND = 1
SENDING = 10

RELEASE: Finish = {"do": "release"}

_FETCH = f"select {COLUMNS} from jobs.fetch_any(%s::text[], %s, worker => %s, lease => %s, kinds => %s::text[])"

Kinds = list[str | None] | None


class Engine:
    def __init__(self, worker: Worker, dsn: str, all: list[Engine]) -> None:
        self.worker = worker
        self.all = all
        """The engines of all cells, this one included. They share the places."""
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        link = partial(Link, dsn, worker.name, passing=[WRONG_CELL] if worker.has_cells else [])
        self.fetch_link, self.finish_link = link(can_end=True), link()
        self.threads = Threads(worker._call_in_thread)
        self.failures = Failures(self.threads, worker.on_error, worker.on_discarded)
        self.finisher = Finisher(self.finish_link, self.failures, self._told)
        self.control = Control(worker, self, link(can_end=True))
        self.command: str | None = None  # None: before the first beat
        self.stage = RUN
        self.has_ended = False
        self.stopping = self.loop.create_future()  # done once the worker is told to stop
        # By token: attempts that wait for a place; those whose handlers run; and all that the
        # server considers ours, so also those whose results are being sent.
        self.waiting: dict[int, Attempt] = {}
        self.running: dict[int, Attempt] = {}
        self.held: dict[int, Attempt] = {}
        self.batches: dict[str, Batch] = {}
        """By kind: those that take more jobs."""
        # Kinds with a concurrency are fetched by themselves.
        limits = {kind: handler.concurrency for kind, handler in worker.handlers.items()}
        self.limits = {kind: limit for kind, limit in limits.items() if kind and limit}
        self.others = None if None in limits else [kind for kind in limits if kind not in self.limits]
        self.more: set[str] = set()
        """Kinds with a concurrency that may have more jobs than were fetched."""
        self.queues = [] if worker.has_cells else list(worker.queues)
        """Those that live in this cell."""
        self.asked: tuple[int, str | None, int] = 0, None, 0
        """The places that a fetch under way has asked for: in all, and how many for a kind."""
        self.fetches = 0
        self.turn = asyncio.Lock()
        # Set when a place is free, a command arrived or a result was sent.
        self.is_changed = asyncio.Event()

    def stop(self, stage: int) -> None:
        self.stage = max(self.stage, stage)
        if not self.stopping.done():
            self.stopping.set_result(None)
        self._release_waiting()
        for batch in list(self.batches.values()):
            for attempt in list(batch.members):
                attempt.cancel("stopping")
        self.is_changed.set()

    async def _until(self, is_so: Callable[[], bool], timeout: float = math.inf) -> None:
        end = self.loop.time() + timeout
        while not is_so() and (left := end - self.loop.time()) > 0:
            self.is_changed.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.is_changed.wait(), left)

    async def serve(self) -> bool:
        """Works until it is stopped. Returns whether every result was sent."""
        fetching = [asyncio.create_task(self._fetch())]
        if self.limits:
            fetching.append(asyncio.create_task(self._refill()))
        finishing = asyncio.create_task(self.finisher.run())
        tasks = [*fetching, finishing, asyncio.create_task(self.threads.run(asyncio.run, self.control.run()))]
        try:
            done, _ = await asyncio.wait([self.stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # raises if the server refused this worker
            self.fetch_link.is_closing = True
            if not self.fetch_link.is_busy:
                fetching[0].cancel()
            for task in fetching:
                task.add_done_callback(lambda _: self.is_changed.set())

            def is_idle() -> bool:
                return not self.running and all(task.done() for task in fetching)

            await self._until(lambda: is_idle() or self.stage >= GRACE)
            await self._until(lambda: is_idle() or self.stage >= CANCEL, self.worker.grace)
            for attempt in list(self.running.values()):
                attempt.cancel("stopping")
            await self._until(is_idle, LEFT_BEHIND)
            for attempt in list(self.running.values()):
                log.warning("handler did not stop: job %s", attempt.job.id, extra=fields(attempt.job))
                if not attempt.job._is_completed:
                    self._settle(attempt, RELEASE)
            for backoff in [self.finish_link.backoff, *self.finisher.again.values()]:
                backoff.end()
            await self._until(lambda: all(task.done() for task in fetching) and not self.finisher.unsent, SENDING)
            if self.finisher.unsent:
                log.error("results could not be sent: %s", self.finisher.unsent)
            if self.failures.calls:
                await asyncio.wait(self.failures.calls, timeout=LEFT_BEHIND)
            return not self.finisher.unsent
        finally:
            for task in [*fetching, finishing]:
                task.cancel()
            self.has_ended = True
            self.control.end()
            await asyncio.wait(tasks, timeout=5)
            await self.fetch_link.close()
            await self.finish_link.close()
            self.threads.close()

    # --- Control

    def obey(self, command: str) -> None:
        if command != self.command:
            if self.command or command != "run":
                log.info("operator command received: %s, worker %s", command, self.worker.name)
            self.command = command
            self.worker.ready.set()
            self.is_changed.set()
            if command != "run":
                self._release_waiting()
            if command == "stop":
                for engine in self.all:
                    engine.stop(STOP)

    def place(self, queues: list[str]) -> None:
        if queues != self.queues:
            self.queues = queues
            self.is_changed.set()

    def hear(self, job: Job[Any], is_cancelled: bool | None) -> None:
        """Acts on a heartbeat that says that the job is cancelled, or lost (None). An attempt that
        ended meanwhile looks lost, and is not."""
        attempt = self.running.get(job.token) or self.waiting.get(job.token)
        if attempt is None or attempt.is_settled or job._is_completed:
            return
        if is_cancelled is None:
            log.warning("job lost: %s", job.id, extra=fields(job))
            self._settle(attempt, None)
        elif job.token in self.waiting:
            self._settle(attempt, RELEASE)  # which cancels it
        attempt.cancel("lost" if is_cancelled is None else "cancelled")
        self.waiting.pop(job.token, None)

    def held_jobs(self) -> list[Job[Any]]:
        return [attempt.job for attempt in list(self.held.values())]

    # --- Fetching

    def _taken(self) -> list[Attempt]:
        """Attempts of all cells that have a place, or wait for one."""
        return [one for engine in self.all for one in engine._taken_here()]

    def _taken_here(self) -> list[Attempt]:
        """A result that cannot be sent yet holds its place."""
        kept = self.held if self.finish_link.backoff.is_on else self.finisher.again
        kept_attempts = {token: attempt for token, attempt in self.held.items() if token in kept}
        return list({**self.running, **self.waiting, **kept_attempts}.values())

    def _asked_elsewhere(self) -> list[tuple[int, str | None, int]]:
        return [one.asked for one in self.all if one is not self and not one.fetch_link.backoff.is_on]

    def _free(self, taken: list[Attempt]) -> int:
        """Places that no fetch elsewhere has asked for."""
        asked = sum(places for places, *_ in self._asked_elsewhere())
        return self.worker.concurrency + self.worker.prefetch - len(taken) - asked

    def _may_fetch(self, kinds: Kinds) -> bool:
        is_free = self._free(self._taken()) > 0 and self.queues
        is_held_up = self.command != "run" or self.finisher.waiting.qsize() > MOST_RESULTS
        return bool(is_free) and not is_held_up and (kinds is None or any(self._room(kind) > 0 for kind in kinds))

    def _room(self, kind: str | None) -> float:
        """How many more jobs of the kind may run."""
        limit = self.limits.get(kind or "")
        if not limit:
            return math.inf
        asked = sum(places for _, one, places in self._asked_elsewhere() if one == kind)
        return limit - sum(one.job.kind == kind for one in self._taken()) - asked

    def _share(self) -> tuple[list[str], int]:
        """The queues, the one furthest below its share first, and how many jobs to ask for."""
        weights, places = self.worker.queues, self.worker.concurrency + self.worker.prefetch
        taken = self._taken()
        runs = Counter(attempt.job.queue for attempt in taken)
        queues = sorted(self.queues, key=lambda queue: runs[queue] / weights[queue])
        share = places * weights[queues[0]] / sum(weights.values())
        lacks = max(math.ceil(share) - runs[queues[0]], 1)
        return queues, min(math.ceil(self._free(taken) / len(self.all)), lacks, 10_000)

    async def _take(self, link: Link, kinds: Kinds) -> bool:
        """Fetches jobs. Returns whether there were fewer than places for them."""
        worker = self.worker
        async with self.turn:
            limited = [kind for kind in kinds or () if kind in self.limits]
            calls: list[Kinds] = [[kind] for kind in limited]
            if kinds is None or len(limited) < len(kinds):
                calls.append(self.others)
            self.fetches += 1  # they take turns to be the first
            first = self.fetches % len(calls)
            queues, left = self._share() if self.queues else ([], 0)
            for call in calls[first:] + calls[:first]:
                kind = call[0] if call and call[0] in self.limits else None
                most = int(max(min(left, self._room(kind)), 0))
                values = queues, most, worker.name, timedelta(seconds=worker.lease), call
                self.asked = left, kind, most
                try:
                    rows = await link.run(_FETCH, *values, is_repeated=False) if most and self.stage == RUN else []
                finally:
                    self.asked = 0, None, 0
                self._begin(rows)
                left -= len(rows)
                if kind:
                    (self.more.discard if len(rows) < most else self.more.add)(kind)
            if len(self.all) > 1 and left > 0:
                self._wake()  # others may have waited for these places
            return left > 0

    async def _fetch(self) -> None:
        kinds = self.worker._kinds()
        while self.stage == RUN:
            if not self._may_fetch(kinds):
                self.is_changed.clear()
                await self.is_changed.wait()
                continue
            try:
                has_all = await self._take(self.fetch_link, kinds)
                await asyncio.sleep(0)  # so that they begin before the next statement is made
                if has_all and self.stage == RUN:
                    wait = "call jobs.wait_any(%s::text[], worker => %s)"  # for 30 s
                    await self.fetch_link.wait(wait, self.queues, self.worker.name, patience=60)
            except Exception as error:  # also a row that cannot be read
                if self.stage > RUN:
                    return  # without a repetition
                if self.fetch_link.ends_with(error):
                    raise
                await self._refused(self.fetch_link.backoff, error)

    async def _refill(self) -> None:
        """Fetches kinds with a concurrency as their jobs end, while `_fetch` waits for a commit."""
        backoff = Backoff()
        while self.stage == RUN:
            kinds: list[str | None] = [kind for kind in self.more if self._room(kind) > 0]
            if not kinds or not self._may_fetch(kinds):
                self.is_changed.clear()
                await self.is_changed.wait()
                continue
            try:
                await self._take(self.finish_link, kinds)
                backoff.end()
            except Exception as error:
                await self._refused(backoff, error)

    async def _refused(self, backoff: Backoff, error: Exception) -> None:
        log.error("fetch refused, retrying: %s", shown(error), extra={"error": error})
        await backoff.pause()

    def _begin(self, rows: list[Row]) -> None:
        for row in rows:
            job, left, whole = job_of(row)
            job._store = self._store
            # The worker times out before the server.
            latest = math.inf if left is None else self.loop.time() + left - min(whole / 20, 1)
            attempt = Attempt(job, self.worker._handler(job), latest)
            self.held[job.token] = self.waiting[job.token] = attempt
        self._start_waiting()
        for attempt in self.waiting.values():
            if attempt.timer is None and attempt.latest < math.inf:
                self._limit(attempt, attempt.latest - self.loop.time(), self._release)
        if self.stage > RUN or self.command != "run":
            self._release_waiting()

    def _start_waiting(self) -> None:
        """Starts attempts that wait, in order, while places are free."""
        if self.stage == RUN and self.waiting:
            waiting = sum(len(engine.waiting) for engine in self.all)
            free = self.worker.concurrency - len(self._taken()) + waiting
            for token in list(self.waiting)[: max(free, 0)]:
                self._start(self.waiting.pop(token))
            for kind, batch in list(self.batches.items()):
                if batch.handler.batch and not batch.handler.batch[1]:
                    self._close(kind, batch)

    def _release_waiting(self) -> None:
        for attempt in list(self.waiting.values()):
            self._release(attempt)

    def _release(self, attempt: Attempt) -> None:
        if self.waiting.pop(attempt.job.token, None):
            self._settle(attempt, RELEASE)

    # --- Handling

    def _start(self, attempt: Attempt) -> None:
        self.running[attempt.job.token] = attempt
        if attempt.handler.batch:
            self._enlist(attempt, attempt.handler, *attempt.handler.batch)
        else:
            self._set_timer(attempt)
        attempt.task = self.loop.create_task(self._handle(attempt))
        attempt.task.add_done_callback(partial(self._ended, attempt))

    def _enlist(self, attempt: Attempt, handler: Handler, size: int, linger: float) -> None:
        kind = attempt.job.kind
        batch = self.batches.get(kind)
        if batch is None:
            batch = self.batches[kind] = Batch(handler, self.threads.run, self._set_timer)
            if linger:
                self.loop.call_later(linger, self._close, kind, batch)
        batch.add(attempt)
        if len(batch.members) >= min(size, handler.concurrency or size, self.worker.concurrency):
            self._close(kind, batch)

    def _close(self, kind: str, batch: Batch) -> None:
        if self.batches.get(kind) is batch:
            del self.batches[kind]
            batch.close()

    def _set_timer(self, attempt: Attempt) -> None:
        timeout = attempt.handler.timeout or self.worker.timeout or math.inf
        self._limit(attempt, min(timeout, attempt.latest - self.loop.time()), self._timed_out)

    def _limit(self, attempt: Attempt, seconds: float, end: Callable[[Attempt], None]) -> None:
        if attempt.timer:
            attempt.timer.cancel()
        attempt.timer = self.loop.call_later(max(min(seconds, 1e9), 0), end, attempt)

    async def _handle(self, attempt: Attempt) -> Finish | None:
        """Runs the handler, which may raise anything, also what would end the event loop."""
        job = attempt.job
        RUNNING.set(job)
        try:
            output = await self.worker._handle(job, partial(self._call, attempt))
            return None if job._is_completed else completion(output)
        except BaseException as error:
            if job.cancelled.is_set() and not isinstance(error, Outcome):
                # It ended because it was cancelled. The call that cancelled the job gave the
                # reason, and the server turns the release of such a job into a cancel.
                return TIMED_OUT if job.cancelled_because == "timeout" else RELEASE
            attempt.error = raised_by(error)
            return failure(error)

    async def _call(self, attempt: Attempt, job: Job[Any]) -> Any:
        if attempt.batch:
            return await attempt.batch.join(attempt)
        return await attempt.handler.call(job, partial(attempt.in_thread, self.threads.run))

    def _ended(self, attempt: Attempt, task: asyncio.Task[Finish | None]) -> None:
        if attempt.timer:
            attempt.timer.cancel()
        # A task that was cancelled before it began has run nothing.
        self._settle(attempt, RELEASE if task.cancelled() else task.result())
        if attempt.batch:
            attempt.batch.leave(attempt)
            if attempt.batch.task and not attempt.batch.task.done():
                attempt.batch.task.add_done_callback(lambda _: self._leave(attempt))
                return
        self._leave(attempt)

    def _leave(self, attempt: Attempt) -> None:
        self.running.pop(attempt.job.token, None)
        self._wake()

    def _wake(self) -> None:
        """Starts and fetches jobs, first in the cell with the fewest."""
        for engine in sorted(self.all, key=lambda one: len(one._taken_here())) if len(self.all) > 1 else self.all:
            engine._start_waiting()
            engine.is_changed.set()

    def _timed_out(self, attempt: Attempt) -> None:
        # If the handler completes the job itself, its transaction decides and has locked the job.
        # If that fails, the attempt has still timed out.
        for one in attempt.batch.members if attempt.batch else [attempt]:
            if one.is_settled:
                continue
            if one.job._is_completed:
                self._limit(one, 1, self._timed_out)
            else:
                self._settle(one, TIMED_OUT)
                one.cancel("timeout")

    def _settle(self, attempt: Attempt, finish: Finish | None) -> None:
        """The first result counts. None: there is nothing to send."""
        if not attempt.is_settled:
            attempt.is_settled = True
            if finish is None:
                self._told(attempt.job)
            else:
                error = TimeoutError(TIMED_OUT["error"]) if finish is TIMED_OUT else attempt.error
                self.finisher.add(attempt.job, finish, error)

    def _told(self, job: Job[Any]) -> None:
        self.held.pop(job.token, None)
        self._wake()

    def _store(self, job: Job[Any], progress: str) -> Awaitable[None]:
        if threading.get_ident() == self.thread:
            # The cancellation of a handler must not interrupt the statement.
            return asyncio.shield(self.loop.create_task(self._store_progress(job, progress)))
        asyncio.run_coroutine_threadsafe(self._store_progress(job, progress), self.loop).result()
        return Nothing()

    async def _store_progress(self, job: Job[Any], progress: str) -> None:
        if job.token not in self.held:
            return  # it is finished or lost
        sql = "select cancel_requested from jobs.heartbeat(%s, %s, progress => %s)"
        try:
            rows = await self.finish_link.run(sql, job.id, job.token, progress)
            if rows[0][0]:
                self.hear(job, True)
        except (psycopg.errors.ObjectNotInPrerequisiteState, psycopg.errors.NoDataFound):
            self.hear(job, None)
