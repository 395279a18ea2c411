"""Runs a worker: `python -m postgres_jobs app:worker --processes 4`."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import FrameType
from typing import Any

from ._errors import shown
from .worker import SIGNALS, Worker

# Exit code of a process that cannot start its worker: the others would fail as well.
UNFIT = 3

# Seconds until a process that has died is replaced: doubled each time, but for one that ran longer
# than LONG.
PAUSE, LONGEST_PAUSE, LONG = 1, 30, 60


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m postgres_jobs", description="Runs a worker.")
    parser.add_argument("worker", metavar="MODULE:WORKER", help="where the worker is, such as app:worker")
    add_options(parser)
    options = vars(parser.parse_args())
    return run(lambda: find(options["worker"]), options, [sys.executable, "-m", "postgres_jobs", *sys.argv[1:]])


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="how many processes (1)")
    parser.add_argument("--concurrency", type=int, metavar="N", help="maximum number of handlers per process")
    parser.add_argument("--queue", action="append", help="instead of the worker's queues; can be repeated")
    # The number of a process that this one has started.
    parser.add_argument("--child", help=argparse.SUPPRESS)


def find(path: str) -> Worker:
    module, _, names = path.partition(":")
    found: object = importlib.import_module(module)
    for name in (names or "worker").split("."):
        found = getattr(found, name)
    if not isinstance(found, Worker):
        raise TypeError(f"{path} is not a Worker")
    return found


def run(find: Callable[[], Worker], options: Mapping[str, Any], command: list[str]) -> int:
    """Runs the worker here, or the command in several processes. Returns the exit code."""
    child = options["child"]
    if options["processes"] > 1 and not child:
        return Processes(options["processes"], command).run()
    try:
        worker = find()
        worker._set(options["queue"], options["concurrency"])
        if child:
            worker.name += f":{child}" if worker.is_named else ""
            threading.Thread(target=_end_with_parent, daemon=True).start()
        worker.run()
        return 0
    except (Exception, SystemExit) as error:
        if not child:
            raise
        if not isinstance(error, SystemExit):
            print(f"the worker cannot run: {type(error).__name__}: {shown(error)}", file=sys.stderr)
        return 1 if isinstance(error, SystemExit) and not error.__cause__ else UNFIT


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


class Processes:
    """Processes that each run the worker. One that dies is replaced; one that has stopped in order
    is not."""

    def __init__(self, count: int, command: list[str]) -> None:
        self.count, self.command = count, command
        self.all: dict[int, subprocess.Popen[bytes]] = {}
        self.is_stopping = False
        self.code = 0

    def run(self) -> int:
        for number in SIGNALS:
            signal.signal(number, self._pass_on)
        watches = [threading.Thread(target=self._keep, args=[number]) for number in range(1, self.count + 1)]
        for watch in watches:
            watch.start()
        for watch in watches:
            while watch.is_alive():
                watch.join(0.1)  # so that signals are handled
        return self.code

    def _pass_on(self, number: int, _: FrameType | None) -> None:
        self.is_stopping = True
        for process in list(self.all.values()):
            with suppress(ProcessLookupError):
                process.send_signal(number)

    def _keep(self, number: int) -> None:
        command = [*self.command, "--child", str(number)]
        pause, code = 0.0, 0
        while not self.is_stopping:
            began = time.monotonic()
            # Of a session of its own: a Ctrl-C of the terminal comes once, from here.
            process = self.all[number] = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
            if self.is_stopping:
                process.terminate()
            code = process.wait()
            if code == 0 or self.is_stopping or (code == UNFIT and not pause):
                break
            pause = PAUSE if not pause or time.monotonic() - began > LONG else min(pause * 2, LONGEST_PAUSE)
            print(f"process {number} ended with {code}; it is replaced in {pause:g} s", file=sys.stderr)
            end = time.monotonic() + pause
            while time.monotonic() < end and not self.is_stopping:
                time.sleep(0.1)
        if code:
            self.code = 1
        if code == UNFIT:
            self._pass_on(signal.SIGTERM, None)


if __name__ == "__main__":
    sys.exit(main())
