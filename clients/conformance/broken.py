"""A driver whose worker is wrong, as the negative control of the suite. A handler that raises
anything, or is cancelled, ends the process. With JOBS_BROKEN=lose what it raises is lost, with
JOBS_BROKEN=mute what a worker logs and what its hooks print. With JOBS_BROKEN=stray producers
follow no refusal and compute another hash."""

import hashlib
import logging
import os

import driver
from postgres_jobs import cells


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
elif os.environ.get("JOBS_BROKEN") == "stray":
    cells.WRONG_CELL, cells.sha256 = "none", hashlib.sha512
else:
    driver.run, driver.run_in_batch = or_break(driver.run), or_break(driver.run_in_batch)
    driver.run_blocking = run_blocking_or_break
driver.main()
