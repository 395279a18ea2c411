"""A driver whose worker is wrong, as the negative control of the suite. A handler that raises
anything, or is cancelled, ends the process; with JOBS_BROKEN=lose what it raises is lost."""

import os

import driver

run, run_blocking = driver.run, driver.run_blocking


def break_down() -> None:
    if os.environ.get("JOBS_BROKEN") != "lose":
        os._exit(70)


async def run_or_break(job):
    try:
        return await run(job)
    except BaseException:
        break_down()


def run_blocking_or_break(job):
    try:
        return run_blocking(job)
    except BaseException:
        break_down()


driver.run, driver.run_blocking = run_or_break, run_blocking_or_break
driver.main()
