"""A driver whose worker is wrong, as the negative control of the suite: what a handler raises is
lost, and nothing cancels it."""

import asyncio
import contextlib

import driver

run, run_blocking = driver.run, driver.run_blocking


async def lose(job):
    with contextlib.suppress(BaseException):
        return await asyncio.shield(run(job))


def lose_blocking(job):
    with contextlib.suppress(BaseException):
        return run_blocking(job)


driver.run, driver.run_blocking = lose, lose_blocking
driver.main()
