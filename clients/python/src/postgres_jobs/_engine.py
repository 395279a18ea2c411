"""One run of a worker: it fetches, handles, keeps and finishes jobs until it is to stop."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import threading
from collections.abc import Awaitable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg

from ._database import Row
from ._finish import MOST_RESULTS, Finisher
from ._link import Backoff, Link
from ._threads import Threads
from .job import COLUMNS, Job, Nothing, job_of
from .outcomes import Finish, Outcome, completion, failure, timed_out, wire

if TYPE_CHECKING:
    from .worker import Worker

log = logging.getLogger("postgres_jobs")

# When the worker stops: seconds that a cancelled handler has to end, and the last results to be sent.
LEFT_BEHIND = 1
SENDING = 10

_FETCH = f"""
    select {COLUMNS}
      from jobs.fetch_any(queues => %s::text[], max_jobs => %s, worker => %s, lease => %s, kinds => %s::text[])
"""


class Attempt:
    """A job that this worker has, and the handler that works on it."""

    def __init__(self, job: Job[Any], is_async: bool) -> None:
        self.job = job
        self.is_async = is_async
        self.task: asyncio.Task[Finish | None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.timeout = math.inf
        self.is_cancelled = False
        self.is_late = False
        self.is_settled = False
        """Whether there is nothing more to tell: it was told, or the job is somebody else's."""

    def cancel(self) -> None:
        if not self.is_cancelled:
            self.is_cancelled = True
            self.job.cancelled.set()
            if self.task and self.is_async:
                self.task.cancel()


class Engine:
    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        self.fetch_link, self.finish_link, self.control_link = (Link(worker.dsn, worker.name) for _ in range(3))
        self.finisher = Finisher(self.finish_link, self._told)
        self.threads = Threads()
        self.control: tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None = None
        self.is_over = False
        self.command = "run"
        # By tokens: attempts whose handlers run; and all that the server thinks to be ours, so also
        # those whose results are on their way.
        self.running: dict[int, Attempt] = {}
        self.held: dict[int, Attempt] = {}
        self.is_beaten = asyncio.Event()
        self.is_changed = asyncio.Event()  # a place is free, there is another command
        self.is_idle = asyncio.Event()  # nothing runs
        self.is_idle.set()
        # How far the worker is on its way to the end.
        self.is_ending = asyncio.Event()
        self.is_leaving = asyncio.Event()  # the grace period has begun
        self.is_now = asyncio.Event()  # and is over

    def stop(self, now: bool = False) -> None:
        self.is_ending.set()
        self.is_leaving.set()
        if now:
            self.is_now.set()

    async def serve(self) -> bool:
        """Works until it is stopped. Whether every result could be sent."""
        fetching = asyncio.create_task(self._fetch())
        control = asyncio.create_task(self.threads.run(asyncio.run, self._control()))
        finishing = asyncio.create_task(self.finisher.run())
        tasks = [fetching, finishing, control]
        grace = self.worker.grace
        try:
            await _first(self.is_ending, *tasks)
            for task in tasks:
                if task.done():
                    task.result()  # raises what the server has against this worker
            self.fetch_link.is_closing = True
            if not self.fetch_link.is_busy:
                fetching.cancel()
            await _first(fetching, timeout=max(grace, LEFT_BEHIND))
            await _first(self.is_idle, self.is_leaving)
            await _first(self.is_idle, self.is_now, timeout=grace)
            for attempt in list(self.running.values()):
                attempt.cancel()
            await _first(self.is_idle, timeout=LEFT_BEHIND)
            for attempt in list(self.running.values()):
                log.warning("the handler of job %s does not stop, it is left behind", attempt.job.id)
                if not attempt.job._is_completed:
                    self._settle(attempt, {"do": "release"})
            await _first(self.finisher.is_empty, timeout=SENDING)
            if not self.finisher.is_empty.is_set():
                log.error("results could not be sent")
            return self.finisher.is_empty.is_set()
        finally:
            fetching.cancel()
            finishing.cancel()
            self.is_over = True
            if self.control:
                loop, task = self.control
                with suppress(RuntimeError):  # it has ended by itself
                    loop.call_soon_threadsafe(task.cancel)
            await asyncio.wait(tasks, timeout=5)
            await self.fetch_link.close()
            await self.finish_link.close()
            self.threads.close()

    # --- Being there, and keeping what it has

    async def _control(self) -> None:
        """Runs in a thread and an event loop of its own: a handler that blocks the worker's loop
        must not cost other jobs their leases."""
        task = asyncio.current_task()
        assert task
        self.control = asyncio.get_running_loop(), task
        if self.is_over:
            return
        pace = min(self.worker.lease / 3, 10)
        wait = "call jobs.wait_any('{}', timeout => %s, worker => %s)"
        is_first = True
        try:
            while True:
                try:
                    await self._beat()
                    is_first = False
                    await self.control_link.wait(wait, timedelta(seconds=pace), self.worker.name)
                except psycopg.Error as error:
                    if is_first:
                        raise
                    log.error("a beat was refused: %s", error)
                    await asyncio.sleep(pace)
        finally:
            await self.control_link.close()

    async def _beat(self) -> None:
        worker = self.worker
        sql = "select jobs.worker_beat(%s, %s::text[], %s, %s)"
        info = json.dumps(worker.info)
        rows = await self.control_link.run(sql, worker.name, list(worker.queues), worker.concurrency, info)
        self.loop.call_soon_threadsafe(self._obey, rows[0][0])
        # What completes in a transaction of its own is locked by that.
        held = [attempt for attempt in list(self.held.values()) if not attempt.job._is_completed]
        ids, tokens = [attempt.job.id for attempt in held], [attempt.job.token for attempt in held]
        if held:
            sql = "select cancel_requested from jobs.heartbeat_many(%s::bigint[], %s::bigint[])"
            for attempt, (is_cancelled,) in zip(held, await self.control_link.run(sql, ids, tokens)):
                if is_cancelled is not False:
                    self.loop.call_soon_threadsafe(self._hear, attempt, is_cancelled)

    def _obey(self, command: str) -> None:
        if not self.is_beaten.is_set():
            log.info("worker %s is ready", self.worker.name)
            self.is_beaten.set()
            self.worker.ready.set()
        if command != self.command:
            log.info("worker %s is to %s", self.worker.name, command)
            self.command = command
            self.is_changed.set()
            if command == "stop":
                self.is_ending.set()

    def _hear(self, attempt: Attempt, is_cancelled: bool | None) -> None:
        """Of a heartbeat that says that the job is to be cancelled, or, by None, that it is lost.
        An attempt that ended meanwhile looks lost, and is not."""
        if attempt.job.token not in self.running or attempt.is_settled or attempt.job._is_completed:
            return
        if is_cancelled is None:
            log.warning("job %s was lost", attempt.job.id, extra={"job_id": attempt.job.id})
            attempt.is_settled = True
            self._told(attempt.job)
        attempt.cancel()

    # --- Fetching

    async def _fetch(self) -> None:
        await self.is_beaten.wait()
        worker = self.worker
        kinds = worker._kinds()
        lease = timedelta(seconds=worker.lease)
        in_vain = 0
        backoff = Backoff()
        while not self.is_ending.is_set():
            # Results that cannot be sent hold their places.
            free = worker.concurrency - len(self.held if self.finisher.is_stuck else self.running)
            if free <= 0 or self.command != "run" or len(self.finisher.waiting) > MOST_RESULTS:
                self.is_changed.clear()
                await self.is_changed.wait()
                continue
            queues, most = self._share(free)
            try:
                rows = await self.fetch_link.run(_FETCH, queues, most, worker.name, lease, kinds)
                for row in rows:
                    self._begin(row)
                if rows:
                    in_vain = 0
                elif not self.is_ending.is_set():
                    began = self.loop.time()
                    await self.fetch_link.wait("call jobs.wait_any(%s::text[], worker => %s)", queues, worker.name)
                    # Jobs that are there and cannot be had, such as those of other kinds, end
                    # every wait at once.
                    in_vain = min(in_vain + 1, 10) if self.loop.time() - began < 0.02 else 0
                    await asyncio.sleep(0.001 * 2**in_vain if in_vain > 2 else 0)
                backoff = Backoff()
            except psycopg.Error as error:
                if self.is_ending.is_set():
                    return  # and is not repeated
                log.error("a fetch was refused: %s", error)
                await backoff.pause()

    def _share(self, free: int) -> tuple[list[str], int]:
        """The queues, that which lacks most of its share first, and how many jobs to ask for."""
        weights = self.worker.queues
        runs = dict.fromkeys(weights, 0)
        for attempt in self.running.values():
            runs[attempt.job.queue] += 1
        queues = sorted(weights, key=lambda queue: runs[queue] / weights[queue])
        share = self.worker.concurrency * weights[queues[0]] / sum(weights.values())
        lacks = max(math.ceil(share) - runs[queues[0]], 1)
        return queues, min(free, lacks, 10_000)

    def _begin(self, row: Row) -> None:
        job, left, whole = job_of(row)
        handler = self.worker._handler(job)
        job._store = self._store
        attempt = self.held[job.token] = Attempt(job, handler.is_async)
        if self.is_ending.is_set():
            self._settle(attempt, {"do": "release"})
            return
        self.running[job.token] = attempt
        self.is_idle.clear()
        timeout = handler.timeout if handler.timeout is not None else self.worker.timeout
        limits = [timeout] if timeout is not None and timeout >= 0 else []
        if left is not None:  # the worker is to be earlier than the server
            limits.append(left - min(whole / 20, 1))
        attempt.task = self.loop.create_task(self._handle(attempt))
        attempt.task.add_done_callback(partial(self._ended, attempt))
        if limits:
            attempt.timeout = max(min(limits), 0)
            attempt.timer = self.loop.call_later(min(attempt.timeout, 1e9), self._timed_out, attempt)

    # --- Handling

    async def _handle(self, attempt: Attempt) -> Finish | None:
        """Runs the handler. It may raise anything, also what would end the event loop."""
        job = attempt.job
        try:
            output = await self.worker._handle(job, self.threads.run)
            return None if job._is_completed else completion(output)
        except BaseException as error:
            if attempt.is_cancelled and not isinstance(error, Outcome):
                # It ended because it was to. Who cancelled the job has given the reason, and the
                # server makes a cancelled job of one that is released.
                return {"do": "release"}
            finish = failure(error)
            if finish["do"] == "fail":
                told = {"job_id": job.id, "kind": job.kind, "queue": job.queue, "attempt": job.attempt}
                log.warning("job %s (%s) failed: %.200s", job.id, job.kind, finish["error"], extra=told)
            return finish

    def _ended(self, attempt: Attempt, task: asyncio.Task[Finish | None]) -> None:
        if attempt.timer:
            attempt.timer.cancel()
        # A task that was cancelled before it began has run nothing.
        finish: Finish | None = {"do": "release"} if task.cancelled() else task.result()
        self.running.pop(attempt.job.token, None)
        if not self.running:
            self.is_idle.set()
        self.is_changed.set()
        if finish is None:
            attempt.is_settled = True
            self._told(attempt.job)
        elif attempt.is_late and finish["do"] == "release":
            self._settle(attempt, timed_out(attempt.timeout))
        else:
            self._settle(attempt, finish)

    def _timed_out(self, attempt: Attempt) -> None:
        log.warning("job %s (%s) timed out", attempt.job.id, attempt.job.kind, extra={"job_id": attempt.job.id})
        attempt.is_late = True
        # If it completes the job itself its transaction decides, and has locked the job until then.
        if not attempt.job._is_completed:
            self._settle(attempt, timed_out(attempt.timeout))
        attempt.cancel()

    def _settle(self, attempt: Attempt, finish: Finish) -> None:
        if not attempt.is_settled:
            attempt.is_settled = True
            self.finisher.add(attempt.job, wire(attempt.job.id, attempt.job.token, finish))

    def _told(self, job: Job[Any]) -> None:
        self.held.pop(job.token, None)
        self.is_changed.set()

    def _store(self, token: int, progress: str) -> Awaitable[None]:
        if threading.get_ident() == self.thread:
            # A handler that is cancelled meanwhile must not break the statement off.
            return asyncio.shield(self.loop.create_task(self._store_progress(token, progress)))
        asyncio.run_coroutine_threadsafe(self._store_progress(token, progress), self.loop).result()
        return Nothing()

    async def _store_progress(self, token: int, progress: str) -> None:
        attempt = self.held.get(token)
        if attempt is None:
            return  # the job is lost, and its handler cancelled
        sql = "select cancel_requested from jobs.heartbeat(%s, %s, progress => %s)"
        try:
            rows = await self.finish_link.run(sql, attempt.job.id, token, progress)
            if rows[0][0]:
                self._hear(attempt, True)
        except psycopg.Error as error:
            if error.sqlstate not in ("55000", "P0002"):
                raise
            self._hear(attempt, None)


async def _first(*things: asyncio.Event | asyncio.Task[Any], timeout: float | None = None) -> None:
    """Waits for the first of events and tasks."""
    waits = [asyncio.create_task(thing.wait()) for thing in things if isinstance(thing, asyncio.Event)]
    tasks = [thing for thing in things if isinstance(thing, asyncio.Task)]
    try:
        await asyncio.wait([*waits, *tasks], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
