#!/usr/bin/env python3
"""One round of the case `before`: turns.py PORT OTHER-PORT CALLS. The statement comes in.

Prints the nanoseconds of processor time that a call takes on each of two servers: the median of
turns of so many calls. Each server has one session. What counts is its backend's time alone, and
both backends have the same processor, so turns of a few milliseconds tell half a percent apart.
"""

import os
import pathlib
import statistics
import subprocess
import sys
import time

TURNS = 40
WARM_UP = 4  # turns until plans and caches are there


class Session:
    """A psql, which is asked one script after the other."""

    def __init__(self, port, statement):
        command = ["psql", "-X", "-q", "-At", "-v", "ON_ERROR_STOP=1", "-p", port]
        self.psql = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        backend = self.ask("select pg_backend_pid();")
        os.sched_setaffinity(int(backend), {min(os.sched_getaffinity(0))})
        self.times = pathlib.Path(f"/proc/{backend}/schedstat")
        self.ask(f"prepare call(bigint) as {statement};")
        self.calls = time.time_ns()  # so that no round has the keys of another

    def ask(self, script):
        self.psql.stdin.write(script + "\n\\echo answered\n")
        self.psql.stdin.flush()
        lines = []
        while (line := self.psql.stdout.readline()) != "answered\n":
            if not line:
                sys.exit("the session ended")
            lines.append(line.strip())
        return "\n".join(lines)

    def turn(self, calls):
        """Nanoseconds of processor time a call."""
        script = "".join(f"execute call({self.calls + n});\n" for n in range(calls))
        self.calls += calls
        begun = self.taken()
        self.ask(script)
        return (self.taken() - begun) / calls

    def taken(self):
        return int(self.times.read_text().split()[0])


def main(port, other_port, calls):
    statement = sys.stdin.read()
    ours, other = sessions = Session(port, statement), Session(other_port, statement)
    times = {session: [] for session in sessions}
    for turn in range(TURNS + WARM_UP):
        for session in sessions if turn % 2 else reversed(sessions):
            times[session].append(session.turn(int(calls)))
    print(*(statistics.median(times[session][WARM_UP:]) for session in (ours, other)))


if __name__ == "__main__":
    main(*sys.argv[1:])
