"""Sends the results of attempts to the server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg

from ._failures import Failure, Failures
from ._link import Backoff, Link
from .job import Job, fields, log, named
from .outcomes import Finish, invalid_output, is_of_value, wire

MOST_RESULTS = 1000
MOST_CHARACTERS = 16 << 20
LONGEST_RESULT = 256 << 20  # bytes: more than jsonb takes

_FINISH = "select done, reason, state = 'discarded' from jobs.finish_many(%s) order by ord"


@dataclass(frozen=True)
class Result:
    job: Job[Any]
    element: str
    """Of the argument of jobs.finish_many."""
    failure: Failure | None


class Finisher:
    """Sends results: at once if no call is under way, else together with others when that returns.
    A result that is refused through no fault of its own is kept and sent again after a pause.
    Other results do not wait for it."""

    def __init__(self, link: Link, failures: Failures, on_told: Callable[[Job[Any]], None]) -> None:
        self.link = link
        self.failures = failures
        self.on_told = on_told
        self.waiting: asyncio.Queue[Result] = asyncio.Queue()
        self.unsent = 0
        """Includes the results of the call under way."""
        self.again: dict[int, Backoff] = {}
        """The pauses of results that are sent again, by token. They hold their jobs' places."""

    def add(self, job: Job[Any], finish: Finish, error: BaseException | None) -> None:
        self.waiting.put_nowait(self._result(job, finish, error))
        self.unsent += 1

    def _result(self, job: Job[Any], finish: Finish, error: BaseException | None) -> Result:
        element, told, refused = wire(job.id, job.token, finish)
        return Result(job, element, self.failures.attempt_failed(job, told, error if refused is None else refused))

    async def _repeat(self, result: Result, error: object) -> None:
        job = result.job
        log.warning("result refused, retrying: %s: %s", named(job), error, extra=fields(job, error=error))
        await self.again.setdefault(job.token, Backoff()).pause()
        self.waiting.put_nowait(result)

    async def run(self) -> None:
        while True:
            await self._send(await self._batch())

    async def _batch(self) -> list[Result]:
        batch = [await self.waiting.get()]
        size = len(batch[0].element)
        while len(batch) < MOST_RESULTS and size < MOST_CHARACTERS and not self.waiting.empty():
            batch.append(self.waiting.get_nowait())
            size += len(batch[-1].element)
        return batch

    async def _send(self, batch: list[Result], is_last_try: bool = False) -> None:
        try:
            elements = [result.element for result in batch]
            if any(len(element.encode()) > LONGEST_RESULT for element in elements):
                raise psycopg.errors.ProgramLimitExceeded("the result is too long")
            rows = await self.link.run(_FINISH, f"[{','.join(elements)}]")
        except Exception as error:  # also a lack of memory
            if len(batch) > 1:  # one refused result must not fail the others
                for result in batch:
                    await self._send([result])
            elif is_of_value(error) and not is_last_try:
                await self._send([self._result(batch[0].job, invalid_output(error), error)], is_last_try=True)
            else:
                asyncio.ensure_future(self._repeat(batch[0], error))
            return
        for result, (done, reason, is_discarded) in zip(batch, rows):
            job = result.job
            if reason == "locked":  # by another transaction
                asyncio.ensure_future(self._repeat(result, reason))
                continue
            if not done:
                log.warning("job lost, result discarded: %s: %s", named(job), reason, extra=fields(job, error=reason))
            elif is_discarded and result.failure:
                self.failures.job_discarded(result.failure)
            self.again.pop(job.token, None)
            self.unsent -= 1
            self.on_told(job)
