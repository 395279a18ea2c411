"""A driver whose worker is wrong, as the negative control of the suite: a handler that raises
anything, or is cancelled, ends the process."""

import os

import driver

run, run_blocking = driver.run, driver.run_blocking


async def run_or_end(job):
    try:
        return await run(job)
    except BaseException:
        os._exit(70)


def run_blocking_or_end(job):
    try:
        return run_blocking(job)
    except BaseException:
        os._exit(70)


driver.run, driver.run_blocking = run_or_end, run_blocking_or_end
driver.main()
