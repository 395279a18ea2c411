"""A driver whose worker is wrong, as the negative control of the suite. A handler that raises
anything, or is cancelled, ends the process. With JOBS_BROKEN=lose what it raises is lost, with
JOBS_BROKEN=mute what a worker logs and what its hooks print."""

import logging
import os

import driver


def break_down() -> None:
    if os.environ.get("JOBS_BROKEN") != "lose":
        os._exit(70)


def or_break(run):
    async def run_or_break(job):
        try:
            return await run(job)
        except BaseException:
            break_down()

    return run_or_break


run_blocking = driver.run_blocking


def run_blocking_or_break(job):
    try:
        return run_blocking(job)
    except BaseException:
        break_down()


if os.environ.get("JOBS_BROKEN") == "mute":
    logging.disable()
    driver.hook = lambda *_: None
else:
    driver.run, driver.run_in_batch = or_break(driver.run), or_break(driver.run_in_batch)
    driver.run_blocking = run_blocking_or_break
driver.main()
