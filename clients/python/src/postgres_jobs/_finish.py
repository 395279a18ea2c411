"""Sends the results of attempts to the server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg

from ._link import Backoff, Link
from .job import Job, fields, log
from .outcomes import Finish, invalid_output, is_of_value, wire

MOST_RESULTS = 1000
MOST_CHARACTERS = 16 << 20
LONGEST_RESULT = 256 << 20  # bytes: more than jsonb takes

_FINISH = "select done, reason from jobs.finish_many(%s) order by ord"

Result = tuple[Job[Any], str]  # the second as an element of jobs.finish_many


class Finisher:
    """Sends results: at once if no call is under way, else together with others when that returns.
    A result that is refused through no fault of its own is kept and sent again after a pause.
    Other results do not wait for it."""

    def __init__(self, link: Link, on_told: Callable[[Job[Any]], None]) -> None:
        self.link = link
        self.on_told = on_told
        self.waiting: asyncio.Queue[Result] = asyncio.Queue()
        self.unsent = 0
        """Includes the results of the call under way."""
        self.again: dict[int, Backoff] = {}
        """The pauses of results that are sent again, by token. They hold their jobs' places."""

    def add(self, job: Job[Any], finish: Finish) -> None:
        self.waiting.put_nowait((job, self._element(job, finish)))
        self.unsent += 1

    def _element(self, job: Job[Any], finish: Finish) -> str:
        element, told = wire(job.id, job.token, finish)
        if error := told.get("error"):
            log.warning("attempt failed: job %s (%s): %.200s", job.id, job.kind, error, extra=fields(job, error=error))
        return element

    async def _repeat(self, job: Job[Any], element: str, error: object) -> None:
        log.warning("result refused, retrying: job %s: %s", job.id, error, extra=fields(job, error=error))
        await self.again.setdefault(job.token, Backoff()).pause()
        self.waiting.put_nowait((job, element))

    async def run(self) -> None:
        while True:
            await self._send(await self._batch())

    async def _batch(self) -> list[Result]:
        batch = [await self.waiting.get()]
        size = len(batch[0][1])
        while len(batch) < MOST_RESULTS and size < MOST_CHARACTERS and not self.waiting.empty():
            batch.append(self.waiting.get_nowait())
            size += len(batch[-1][1])
        return batch

    async def _send(self, batch: list[Result], is_last_try: bool = False) -> None:
        try:
            if any(len(element.encode()) > LONGEST_RESULT for _, element in batch):
                raise psycopg.errors.ProgramLimitExceeded("the result is too long")
            rows = await self.link.run(_FINISH, f"[{','.join(element for _, element in batch)}]")
        except Exception as error:  # also a lack of memory
            if len(batch) > 1:  # one refused result must not fail the others
                for result in batch:
                    await self._send([result])
            elif is_of_value(error) and not is_last_try:
                job = batch[0][0]
                await self._send([(job, self._element(job, invalid_output(error)))], is_last_try=True)
            else:
                asyncio.ensure_future(self._repeat(*batch[0], error))
            return
        for (job, element), (done, reason) in zip(batch, rows):
            if reason == "locked":  # by another transaction
                asyncio.ensure_future(self._repeat(job, element, reason))
                continue
            if not done:
                extra = fields(job, error=reason)
                log.warning("job lost, result discarded: job %s: %s", job.id, reason, extra=extra)
            self.again.pop(job.token, None)
            self.unsent -= 1
            self.on_told(job)
