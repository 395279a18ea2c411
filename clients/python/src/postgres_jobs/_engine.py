"""One run of a worker: fetches, handles, renews and finishes jobs until it stops."""

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

from ._database import Row
from ._finish import MOST_RESULTS, Finisher
from ._link import Link
from ._threads import Threads
from ._values import encode
from .job import COLUMNS, Job, Nothing, Reason, fields, job_of, log
from .outcomes import TIMED_OUT, Finish, Outcome, completion, failure

if TYPE_CHECKING:
    from .worker import Worker

# The stages of a worker. Stop: fetches no more. Grace: handlers have the grace period. Cancel:
# handlers are cancelled. Ended: no more results are sent.
RUN, STOP, GRACE, CANCEL, ENDED = range(5)

# Seconds for a cancelled handler to end when the worker stops, and to send the last results.
LEFT_BEHIND = 1
SENDING = 10

# Seconds for the answer to a beat, so that another connection can renew the leases in time.
BEAT = 10

_FETCH = f"select {COLUMNS} from jobs.fetch_any(%s::text[], %s, worker => %s, lease => %s, kinds => %s::text[])"


class Attempt:
    """A job that this worker holds, and its handler."""

    timer: asyncio.TimerHandle
    """Fires at the timeout."""

    def __init__(self, job: Job[Any]) -> None:
        self.job = job
        self.is_in_thread = False
        """Whether it waits for a thread, which cannot be cancelled: its result counts."""
        self.task: asyncio.Task[Finish | None] | None = None
        self.is_settled = False
        """Whether nothing more is sent: the result is sent, or the job is lost."""

    def cancel(self, because: Reason) -> None:
        """The first reason counts."""
        if not self.job.cancelled.is_set():
            self.job.cancelled_because = because
            self.job.cancelled.set()
            if self.task and not self.is_in_thread:
                self.task.cancel(because)


class Engine:
    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        self.fetch_link, self.finish_link, self.control_link = (Link(worker.dsn, worker.name) for _ in range(3))
        self.finisher = Finisher(self.finish_link, self._told)
        self.threads = Threads()
        self.control: asyncio.Task[None] | None = None
        self.command: str | None = None  # None: before the first beat
        self.stage = RUN
        self.stopping = self.loop.create_future()  # done once the worker is told to stop
        # By token: attempts whose handlers run; and all that the server considers ours, so also
        # those whose results are being sent.
        self.running: dict[int, Attempt] = {}
        self.held: dict[int, Attempt] = {}
        # Set when a place is free, a command arrived or a result was sent.
        self.is_changed = asyncio.Event()

    def stop(self, stage: int) -> None:
        self.stage = max(self.stage, stage)
        if not self.stopping.done():
            self.stopping.set_result(None)
        self.is_changed.set()

    async def _until(self, is_so: Callable[[], bool], timeout: float = math.inf) -> None:
        end = self.loop.time() + timeout
        while not is_so() and (left := end - self.loop.time()) > 0:
            self.is_changed.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.is_changed.wait(), left)

    async def serve(self) -> bool:
        """Works until it is stopped. Returns whether every result was sent."""
        fetching = asyncio.create_task(self._fetch())
        finishing = asyncio.create_task(self.finisher.run())
        tasks = [fetching, finishing, asyncio.create_task(self.threads.run(asyncio.run, self._control()))]
        try:
            done, _ = await asyncio.wait([self.stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # raises if the server refused this worker
            self.fetch_link.is_closing = True
            if not self.fetch_link.is_busy:
                fetching.cancel()
            fetching.add_done_callback(lambda _: self.is_changed.set())
            await self._until(lambda: fetching.done() and not self.running or self.stage >= GRACE)
            await self._until(lambda: fetching.done() and not self.running or self.stage >= CANCEL, self.worker.grace)
            for attempt in list(self.running.values()):
                attempt.cancel("stopping")
            await self._until(lambda: fetching.done() and not self.running, LEFT_BEHIND)
            for attempt in list(self.running.values()):
                log.warning("handler did not stop: job %s", attempt.job.id, extra=fields(attempt.job))
                if not attempt.job._is_completed:
                    self._settle(attempt, {"do": "release"})
            for backoff in [self.finish_link.backoff, *self.finisher.again.values()]:
                backoff.end()
            await self._until(lambda: fetching.done() and not self.finisher.unsent, SENDING)
            if self.finisher.unsent:
                log.error("results could not be sent: %s", self.finisher.unsent)
            return not self.finisher.unsent
        finally:
            fetching.cancel()
            finishing.cancel()
            self.stage = ENDED
            if self.control:
                with suppress(RuntimeError):  # it has ended by itself
                    self.control.get_loop().call_soon_threadsafe(self.control.cancel)
            await asyncio.wait(tasks, timeout=5)
            await self.fetch_link.close()
            await self.finish_link.close()
            self.threads.close()

    # --- Control

    async def _control(self) -> None:
        """Runs in its own thread and event loop: a handler that blocks the worker's loop must not
        cost other jobs their leases."""
        self.control = asyncio.current_task()
        pace = min(self.worker.lease / 3, 10)
        wait = "call jobs.wait_any('{}', timeout => %s, worker => %s)"
        try:
            while self.stage != ENDED:
                try:
                    await self._beat()
                    await self.control_link.wait(wait, timedelta(seconds=pace), self.worker.name, patience=pace + 5)
                except psycopg.Error as error:
                    if self.command is None:
                        raise
                    log.error("heartbeat refused, retrying: %s", error, extra={"error": error})
                    await asyncio.sleep(pace)
        finally:
            await self.control_link.close()

    async def _beat(self) -> None:
        worker = self.worker
        values = worker.name, list(worker.queues), worker.concurrency, encode(worker.info)
        rows = await self.control_link.run("select jobs.worker_beat(%s, %s::text[], %s, %s)", *values, patience=BEAT)
        self.loop.call_soon_threadsafe(self._obey, rows[0][0])
        if jobs := [attempt.job for attempt in list(self.held.values())]:
            # A call takes 10,000 at most.
            sql = """
                select cancel_requested
                  from (select %s::bigint[] as ids, %s::bigint[] as tokens) held,
                       generate_series(1, cardinality(ids), 10000) n,
                       jobs.heartbeat_many(ids[n:n + 9999], tokens[n:n + 9999])"""
            ids, tokens = [job.id for job in jobs], [job.token for job in jobs]
            rows = await self.control_link.run(sql, ids, tokens, patience=BEAT)
            for job, (is_cancelled,) in zip(jobs, rows):
                if is_cancelled is not False:
                    self.loop.call_soon_threadsafe(self._hear, job, is_cancelled)

    def _obey(self, command: str) -> None:
        if command != self.command:
            if self.command or command != "run":
                log.info("operator command received: %s, worker %s", command, self.worker.name)
            self.command = command
            self.worker.ready.set()
            self.is_changed.set()
            if command == "stop":
                self.stop(STOP)

    def _hear(self, job: Job[Any], is_cancelled: bool | None) -> None:
        """Acts on a heartbeat that says that the job is cancelled, or lost (None). An attempt that
        ended meanwhile looks lost, and is not."""
        attempt = self.running.get(job.token)
        if attempt is None or attempt.is_settled or job._is_completed:
            return
        if is_cancelled is None:
            log.warning("job lost: %s", job.id, extra=fields(job))
            self._settle(attempt, None)
        attempt.cancel("lost" if is_cancelled is None else "cancelled")

    # --- Fetching

    async def _fetch(self) -> None:
        worker = self.worker
        lease = timedelta(seconds=worker.lease)
        while self.stage == RUN:
            # Results that cannot be sent yet hold their places.
            kept = self.held.keys() if self.finish_link.backoff.is_on else self.finisher.again.keys()
            free = worker.concurrency - len(self.running.keys() | kept)
            if free <= 0 or self.command != "run" or self.finisher.waiting.qsize() > MOST_RESULTS:
                self.is_changed.clear()
                await self.is_changed.wait()
                continue
            queues, most = self._share(free)
            try:
                rows = await self.fetch_link.run(_FETCH, queues, most, worker.name, lease, worker._kinds())
                for row in rows:
                    self._begin(row)
                await asyncio.sleep(0)  # so that they begin before the next statement is made
                if len(rows) < most and self.stage == RUN:
                    wait = "call jobs.wait_any(%s::text[], worker => %s)"  # for 30 s
                    await self.fetch_link.wait(wait, queues, worker.name, patience=60)
            except Exception as error:  # also a row that cannot be read
                if self.stage > RUN:
                    return  # without a repetition
                log.error("fetch refused, retrying: %s", error, extra={"error": error})
                await self.fetch_link.backoff.pause()

    def _share(self, free: int) -> tuple[list[str], int]:
        """The queues, the one furthest below its share first, and how many jobs to ask for."""
        weights = self.worker.queues
        runs = Counter(attempt.job.queue for attempt in self.running.values())
        queues = sorted(weights, key=lambda queue: runs[queue] / weights[queue])
        share = self.worker.concurrency * weights[queues[0]] / sum(weights.values())
        lacks = max(math.ceil(share) - runs[queues[0]], 1)
        return queues, min(free, lacks, 10_000)

    def _begin(self, row: Row) -> None:
        job, left, whole = job_of(row)
        handler = self.worker._handler(job)
        job._store = self._store
        attempt = self.held[job.token] = Attempt(job)
        if self.stage > RUN:
            self._settle(attempt, {"do": "release"})
            return
        self.running[job.token] = attempt
        timeout = handler.timeout or self.worker.timeout or math.inf
        if left is not None:  # the worker times out before the server
            timeout = max(min(timeout, left - min(whole / 20, 1)), 0)
        attempt.task = self.loop.create_task(self._handle(attempt))
        attempt.task.add_done_callback(partial(self._ended, attempt))
        attempt.timer = self.loop.call_later(min(timeout, 1e9), self._timed_out, attempt)

    # --- Handling

    async def _handle(self, attempt: Attempt) -> Finish | None:
        """Runs the handler, which may raise anything, also what would end the event loop."""
        job = attempt.job
        try:
            output = await self.worker._handle(job, partial(self._in_thread, attempt))
            return None if job._is_completed else completion(output)
        except BaseException as error:
            if job.cancelled.is_set() and not isinstance(error, Outcome):
                # It ended because it was cancelled. The call that cancelled the job gave the
                # reason, and the server turns the release of such a job into a cancel.
                return TIMED_OUT if job.cancelled_because == "timeout" else {"do": "release"}
            return failure(error)

    async def _in_thread(self, attempt: Attempt, function: Callable[..., Any], *args: Any) -> Any:
        attempt.is_in_thread = True
        try:
            return await self.threads.run(function, *args)
        finally:
            attempt.is_in_thread = False

    def _ended(self, attempt: Attempt, task: asyncio.Task[Finish | None]) -> None:
        self.running.pop(attempt.job.token, None)
        attempt.timer.cancel()
        self.is_changed.set()
        # A task that was cancelled before it began has run nothing.
        self._settle(attempt, {"do": "release"} if task.cancelled() else task.result())

    def _timed_out(self, attempt: Attempt) -> None:
        # If the handler completes the job itself, its transaction decides and has locked the job.
        # If that fails, the attempt has still timed out.
        if attempt.job._is_completed:
            attempt.timer = self.loop.call_later(1, self._timed_out, attempt)
        else:
            self._settle(attempt, TIMED_OUT)
            attempt.cancel("timeout")

    def _settle(self, attempt: Attempt, finish: Finish | None) -> None:
        """The first result counts. None: there is nothing to send."""
        if not attempt.is_settled:
            attempt.is_settled = True
            if finish is None:
                self._told(attempt.job)
            else:
                self.finisher.add(attempt.job, finish)

    def _told(self, job: Job[Any]) -> None:
        self.held.pop(job.token, None)
        self.is_changed.set()

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
                self._hear(job, True)
        except (psycopg.errors.ObjectNotInPrerequisiteState, psycopg.errors.NoDataFound):
            self._hear(job, None)
