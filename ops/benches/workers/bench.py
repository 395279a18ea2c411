"""What the programs in Python have in common: the shape that run.py describes."""

import asyncio
import json
import os
import sys
import time

URL = os.environ["DATABASE_URL"]


def say(**values):
    print(json.dumps(values), flush=True)


def working(milliseconds, jobs):
    """A handler that says when the first of so many jobs began and the last one ended."""
    first, left = None, jobs

    async def handle(*_):
        nonlocal first, left
        first = first or time.time()
        if milliseconds:
            await asyncio.sleep(milliseconds / 1000)
        left -= 1
        if left == 0:
            say(first=first, last=time.time())

    return handle


async def listening(*_):
    """A handler that says when it starts."""
    say(started=time.time())


async def cancelling(*_):
    """A handler that says when it starts, and when it is cancelled."""
    say(started=time.time())
    try:
        await asyncio.sleep(3600)
    finally:
        say(cancelled=time.time())


async def send(insert):
    """Inserts a job for each line that comes in, and says when it was committed."""
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        await insert()
        say(committed=time.time())


def main(setup, fill, work, send):
    command, *values = sys.argv[1], *map(float, sys.argv[2:])
    if command == "setup":
        run = setup()
    elif command == "fill":
        run = fill(int(values[0]))
    elif command == "send":
        run = send()
    elif command == "listen":
        run = work(int(values[0]), listening)
    elif command == "cancel":
        run = work(int(values[0]), cancelling)
    else:
        concurrency, milliseconds, jobs = values
        run = work(int(concurrency), working(milliseconds, int(jobs)))
    asyncio.run(run)
