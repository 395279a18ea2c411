"""The beats of a worker: commands, cancels, and leases.

They have a thread and an event loop of their own: a handler that blocks the worker's loop must not
cost other jobs their leases, and is named from here.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg

from ._errors import VERSION, check_version
from ._link import Link
from ._values import encode
from ._version import __version__
from .cells import MAP, check, queues_here
from .job import Job, fields, job_of_task, log, named

if TYPE_CHECKING:
    from ._engine import Engine
    from .worker import Worker

# Seconds for the answer to a beat, so that another connection can renew the leases in time.
BEAT = 10

# Seconds for which a handler may block the event loop, and between looks at it.
BLOCKED = 1
LOOK = 0.25


class Control:
    def __init__(self, worker: Worker, engine: Engine, link: Link) -> None:
        self.worker = worker
        self.engine = engine
        self.link = link
        self.queues = list(worker.queues)
        self.has_beaten = False
        self.task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        self.task = asyncio.current_task()
        pace = min(self.worker.lease / 3, 10)
        wait = "call jobs.wait_any('{}', timeout => %s, worker => %s)"
        watching = asyncio.create_task(self._watch()) if self.engine is self.engine.all[0] else None
        try:
            while not self.engine.has_ended:
                try:
                    await self._beat()
                    await self.link.wait(wait, timedelta(seconds=pace), self.worker.name, patience=pace + 5)
                except psycopg.Error as error:
                    if not self.has_beaten:
                        raise
                    log.error("heartbeat refused, retrying: %s", error, extra={"error": error})
                    await asyncio.sleep(pace)
        finally:
            if watching:
                watching.cancel()
            if self.has_beaten and self.link.connection:
                self.link.is_closing = True
                with suppress(Exception):
                    await self.link.run("select jobs.worker_leave(%s)", self.worker.name, patience=1)
            await self.link.close()

    def end(self) -> None:
        if self.task:
            with suppress(RuntimeError):  # it has ended by itself
                self.task.get_loop().call_soon_threadsafe(self.task.cancel)

    async def _beat(self) -> None:
        worker = self.worker
        version = None if self.has_beaten else await self._version()
        if worker.has_cells:
            self._tell(self.engine.place, await self._place())
        values = worker.name, self.queues, worker.concurrency, encode(worker.info)
        rows = await self.link.run("select jobs.worker_beat(%s, %s::text[], %s, %s)", *values, patience=BEAT)
        if version:
            self.has_beaten = True
            self._say_started(version)
        self._tell(self.engine.obey, rows[0][0])
        if jobs := self.engine.held_jobs():
            # A call takes 10,000 at most.
            sql = """
                select cancel_requested
                  from (select %s::bigint[] as ids, %s::bigint[] as tokens) held,
                       generate_series(1, cardinality(ids), 10000) n,
                       jobs.heartbeat_many(ids[n:n + 9999], tokens[n:n + 9999])"""
            ids, tokens = [job.id for job in jobs], [job.token for job in jobs]
            rows = await self.link.run(sql, ids, tokens, patience=BEAT)
            for job, (is_cancelled,) in zip(jobs, rows):
                if is_cancelled is not False:
                    self._tell(self.engine.hear, job, is_cancelled)

    async def _place(self) -> list[str]:
        """The queues that live in this cell."""
        ((text,),) = await self.link.run(MAP, patience=BEAT)
        map = json.loads(text)
        if not self.has_beaten:
            self.worker._maps[self.engine] = map
            check(list(self.worker._maps.values()))
        self.queues = queues_here(map, self.worker.queues)
        return self.queues

    def _tell(self, function: Any, *args: object) -> None:
        self.engine.loop.call_soon_threadsafe(function, *args)

    async def _version(self) -> str:
        rows = await self.link.run(VERSION, patience=BEAT)
        version = rows[0][0] if rows else None
        check_version(version, self.link.connection.info.dbname if self.link.connection else "")
        return str(version)

    def _say_started(self, version: str) -> None:
        worker, connection = self.worker, self.link.connection
        names = worker._kinds()
        said: dict[str, object] = {
            "queues": ", ".join(self.queues),
            "kinds": "all kinds" if names is None else ", ".join(filter(None, names)),
            "concurrency": worker.concurrency,
        }
        if connection:
            info = connection.info
            said |= {"database": info.dbname, "user": info.user, "host": info.host}
        said |= {"extension": version, "library": __version__}
        text = "; ".join(f"{name} {value}" for name, value in said.items())
        log.info("worker started: %s; %s", worker.name, text, extra={"worker": worker.name, **said})

    async def _watch(self) -> None:
        """Says that a handler blocks the worker's event loop, once for each time."""
        loop, own, never = self.engine.loop, asyncio.get_running_loop(), asyncio.Event()
        while True:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(never.wait(), LOOK)
            if not any(engine.held_jobs() for engine in self.engine.all):
                continue
            answered = asyncio.Event()
            began = time.monotonic()
            loop.call_soon_threadsafe(own.call_soon_threadsafe, answered.set)
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(answered.wait(), BLOCKED)
            if not answered.is_set():
                job = job_of_task(asyncio.current_task(loop))
                shown_job, extra = (named(job), fields(job)) if job else ("by no handler", {})
                seconds = time.monotonic() - began
                log.warning("event loop blocked: %.1f s, %s", seconds, shown_job, extra={"seconds": seconds, **extra})
                await answered.wait()
