"""Runs the cases of cases/*.toml against the driver of one library. README.md says what they are.

    DATABASE_URL=.. python run.py LIBRARY [--only TEXT] [--jobs N] -- COMMAND ARG..

The last line says how many cases passed and how many failed. Cases that not_yet.toml, if there is
one, lists for the library are skipped.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import pathlib
import random
import re
import shlex
import signal
import socket
import sys
import time
import tomllib
import unicodedata
import urllib.parse
from collections.abc import Callable

import psycopg

# How long to wait for what must come. It is no measure of speed: a machine may be busy.
PATIENCE = float(os.environ.get("JOBS_PATIENCE", "120"))
# A step that takes longer waits for what the runner does not know to wait for.
LONGEST_STEP = 900
# Of a job whose case says nothing else: nothing happens to it because the machine is slow.
USUAL = {"timeout": "'-1 s'", "retry": """'{"strategy": "constant", "initial": 3600}'"""}
# Seconds, of a worker whose case says nothing else. To encode an output of 300 MB can take longer
# than the default lease on a busy machine. Heartbeats come as often as with the default.
USUAL_LEASE = 600
TOP = pathlib.Path(__file__).parents[2]
# A line of a driver can have an output of megabytes.
LONGEST_LINE = 64 << 20


class Failed(Exception):
    """What a step expected did not come."""


class Impossible(Exception):
    """The language cannot do what the rest of the case is about."""


class Lines:
    """The lines of a pipe: the events that a driver prints, or what it logs."""

    def __init__(self, what: str, pipe: asyncio.StreamReader, parse: Callable[[bytes], object]):
        self.what, self.parse = what, parse
        self.all: list = []
        self.left: list = []  # what no step has taken
        self.changed = asyncio.Condition()
        self.is_over = False
        self.reader = asyncio.create_task(self.read(pipe))

    async def read(self, pipe: asyncio.StreamReader) -> None:
        try:
            async for line in pipe:
                parsed = self.parse(line)
                async with self.changed:
                    self.all.append(parsed)
                    self.left.append(parsed)
                    self.changed.notify_all()
        finally:
            async with self.changed:
                self.is_over = True
                self.changed.notify_all()

    async def take(self, wanted: object) -> None:
        """Waits for a line, and takes it, so that the next step waits for another one."""

        def find() -> int | None:
            return next((n for n, line in enumerate(self.left) if is_within(wanted, line)), None)

        async with self.changed:
            try:
                await asyncio.wait_for(self.changed.wait_for(lambda: find() is not None or self.is_over), PATIENCE)
            except TimeoutError:
                raise Failed(f"no {self.what} {wanted}") from None
            if (n := find()) is None:
                raise Failed(f"no {self.what} {wanted}, and the driver says no more")
            del self.left[n]

    def refuse(self, unwanted: object, among: list) -> None:
        if seen := [line for line in among if is_within(unwanted, line)]:
            raise Failed(f"{self.what} {json.dumps(seen)[:1000]}")


def event_of(line: bytes) -> dict:
    try:
        return json.loads(line)
    except ValueError:
        return {"event": "no JSON", "line": line.decode(errors="replace")[:1000]}


class Driver:
    """A driver that runs, and what it has printed and logged."""

    def __init__(self, process: asyncio.subprocess.Process):
        self.process = process
        self.events = Lines("event", process.stdout, event_of)
        self.log = Lines("line of the log", process.stderr, lambda line: line.decode(errors="replace").rstrip()[:2000])
        self.readers = [self.events.reader, self.log.reader]
        self.expected_to_end_with = 0

    def has_failed(self) -> bool:
        """Whether it has ended with a code that no step expects."""
        return self.process.returncode not in (None, 0, self.expected_to_end_with)

    async def write(self, op: dict) -> None:
        self.process.stdin.write(json.dumps(op).encode() + b"\n")
        await self.process.stdin.drain()

    async def end(self) -> None:
        # Of one that has ended somebody else may have the number by now.
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)  # faketime is a parent of the driver
        await self.process.wait()
        # It could not put its things away, and would not start where its pid comes again.
        for left in pathlib.Path("/dev/shm").glob(f"*faketime_*_{self.process.pid}"):
            left.unlink()
        for reader in self.readers:
            reader.cancel()

    async def report(self) -> str:
        if self.process.returncode is not None:
            await asyncio.wait(self.readers, timeout=5)  # what it has logged until then
        said = [json.dumps(event)[:300] for event in self.events.all[-20:]]
        return "\n".join(["printed:", *said, "logged:", *[line[:500] for line in self.log.all[-30:]]])


class Network:
    """Is between a driver and the server. Until it listens, its port refuses connections. When it
    falls silent, the connections of that moment stay open, and carry nothing any more. Later ones
    are good."""

    def __init__(self, url: str):
        self.url = urllib.parse.urlsplit(url)
        self.ends: list[asyncio.StreamWriter] = []
        self.carriers: list[asyncio.Task] = []
        self.silences = 0
        self.server: asyncio.Server | None = None
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))

    def through(self) -> str:
        """Returns the URL that leads through it."""
        user, at, _ = self.url.netloc.rpartition("@")
        return self.url._replace(netloc=f"{user}{at}127.0.0.1:{self.socket.getsockname()[1]}").geturl()

    async def listen(self) -> None:
        self.server = await asyncio.start_server(self.connect, sock=self.socket)

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        silences = self.silences
        from_server, to_server = await asyncio.open_connection(self.url.hostname, self.url.port)
        self.ends += [writer, to_server]
        both_ways = [(reader, to_server), (from_server, writer)]
        if silences == self.silences:
            self.carriers += [asyncio.create_task(self.carry(*way)) for way in both_ways]

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()

    def fall_silent(self) -> int:
        """Returns how many connections it was that carried something."""
        self.silences += 1
        return sum(carrier.cancel() for carrier in self.carriers) // 2

    def close(self) -> None:
        if self.server:
            self.server.close()
        self.socket.close()
        self.fall_silent()
        for end in self.ends:
            end.close()


def with_database(url: str, name: str) -> str:
    return urllib.parse.urlsplit(url)._replace(path=f"/{name}").geturl()


def vectors() -> list:
    """Ten thousand different strings and integers that place jobs. Their characters are in Unicode
    3.2, so that every library knows their form C."""
    path = TOP / "core/tests/core/vectors/dimensions.json"
    values = [json.loads(one["text"]) for one in json.loads(path.read_text()) if one["text"]]
    values = dict.fromkeys(one for one in values if isinstance(one, str) or type(one) is int and abs(one) < 2**53)
    chance = random.Random(1)
    is_character = unicodedata.ucd_3_2_0.category
    characters = [chr(code) for code in range(1, 0x110000) if is_character(chr(code)) not in ("Cn", "Cs", "Co")]
    combined = [*'"\\\x01\x1f\x7f/\u2028\ufeff', "e\u0301", "q\u0323\u0307", "\u212b", "\u1100\u1161\u11a8", "😀", "a"]
    while len(values) < 10_000:
        if chance.random() < 0.3:
            values[chance.randrange(2 ** chance.randrange(54)) * chance.choice((1, -1))] = None
        else:
            among = chance.choice((characters, combined))
            values["".join(chance.choices(among, k=chance.randrange(12)))] = None
    return list(values)


def is_within(wanted: object, found: object) -> bool:
    """Whether all members that are wanted of an object are there; "any" is anything, "*a*b*" what
    has these parts, of which those that are numbers are whole numbers there, {least, most} a number
    between these."""
    if wanted == "any":
        return True
    if isinstance(wanted, dict) and wanted.keys() == {"least", "most"}:
        return isinstance(found, int | float) and wanted["least"] <= found <= wanted["most"]
    if isinstance(wanted, str) and len(wanted) > 2 and wanted[0] == wanted[-1] == "*":
        parts = [rf"(?<!\d){part}(?!\d)" if part.isdecimal() else re.escape(part) for part in wanted.split("*")]
        return isinstance(found, str) and bool(re.search(".*".join(parts), found, re.S))
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(k in found and is_within(v, found[k]) for k, v in wanted.items())
    if isinstance(wanted, list):
        is_list = isinstance(found, list) and len(found) == len(wanted)
        return is_list and all(map(is_within, wanted, found))
    return wanted == found and isinstance(wanted, bool) == isinstance(found, bool)


class Case:
    """A case that runs: its queue, its jobs, its driver."""

    def __init__(self, case: dict, library: str, command: list[str]):
        self.steps = case["steps"]
        self.command = command
        slug = re.sub(r"\W+", "_", case["name"])[:60]
        self.queue = f"{library} {slug} {os.getpid()}"
        self.worker = f"worker of {self.queue}"
        self.url = os.environ["DATABASE_URL"]
        self.cells: list[int | str] = case.get("cells", [])
        self.has_outbox = case.get("outbox", False)
        own = range(1, len(self.cells) + 1) or range(2 if self.has_outbox else case.get("own_database", 0))
        self.own_databases = [f"{library}_{os.getpid()}_{number}_{slug.lower()}"[:63] for number in own]
        self.urls = [with_database(self.url, name) for name in self.own_databases] or [self.url]
        self.url = self.urls[0]
        self.host = urllib.parse.urlsplit(self.url).hostname
        self.ids: list[int] = []
        self.driver: Driver | None = None
        self.network: Network | None = None
        self.connections: dict[str, psycopg.AsyncConnection] = {}  # by URL

    async def run(self) -> None:
        try:
            for name in self.own_databases:
                await self.administer(f'create database "{name}" template template0')
            if self.has_outbox:
                await self.query((TOP / "outbox/outbox.sql").read_text())
                await self.query("create extension jobs", url=self.urls[1])
            for cell, url in zip(self.cells, self.urls):
                await self.query("create extension jobs", url=url)
                if cell != "none":
                    await self.query("select jobs.set_cell(%s::int)", cell, url=url)
            for number, step in enumerate(self.steps, 1):
                try:
                    async with asyncio.timeout(LONGEST_STEP) as clock:
                        await self.step(self.fill(step))
                except (Failed, TimeoutError) as failed:
                    if clock.expired():
                        failed = f"it had not ended after {LONGEST_STEP} s"
                    shown = await self.driver.report() if self.driver else "no driver"
                    raise Failed(f"step {number}, {json.dumps(step)[:300]}: {failed}\n{shown}") from None
        finally:
            if self.driver:
                await self.driver.end()
            if self.network:
                self.network.close()
            for connection in self.connections.values():
                await connection.close()
            for name in self.own_databases:
                await self.administer(f'drop database if exists "{name}" with (force)')

    async def administer(self, sql: str) -> None:
        async with await psycopg.AsyncConnection.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
            await connection.execute(sql)

    def fill(self, value: object) -> object:
        """Puts the queue, the names of worker, database and host, and ids of jobs where the case
        names them."""
        if isinstance(value, dict):
            return {name.replace("$Q", self.queue): self.fill(one) for name, one in value.items()}
        if isinstance(value, list):
            return [self.fill(one) for one in value]
        if not isinstance(value, str):
            return value
        if value == "none":
            return None
        if match := re.fullmatch(r"\$(\d+)", value):
            return self.ids[int(match[1]) - 1]
        value = re.sub(r"\$(\d+)", lambda m: str(self.ids[int(m[1]) - 1]), value)
        is_sql = re.match(r"(select|insert|update|delete|begin|call|with|create|set)\b", value, re.I)
        first, last = (urllib.parse.urlsplit(self.urls[at]).path[1:] for at in (0, -1))
        names = {"$Q": self.queue, "$W": self.worker, "$D2": last, "$D": first, "$H": self.host}
        for name, text in names.items():
            value = value.replace(name, f"'{text}'" if is_sql else text)
        return value

    async def step(self, step: dict) -> None:
        cell = step.get("cell", 1)
        urls = [self.urls[cell - 1]] if cell else self.urls
        match step:
            case {"insert": args}:
                given = step.get("options", "")
                unsaid = [f"{option} => {value}" for option, value in USUAL.items() if f"{option} =>" not in given]
                options = ", ".join(["queue => %s", *unsaid, *filter(None, [given.replace("%", "%%")])])
                call = f"select (jobs.insert(%s, %s, {options})).id"
                for one in args:
                    values = step.get("kind", "run"), psycopg.types.json.Jsonb(one), step.get("queue", self.queue)
                    rows = await self.query(call, *values, url=urls[0])
                    self.ids.append(rows[0][0])
            case {"start": worker}:
                await self.start(worker, step)
            case {"equal": [sql, rows]}:
                for url in urls:
                    await self.equal(sql, rows, url=url)
            case {"stays": [sql, rows]}:
                await self.equal(sql, rows, patience=0)
                await asyncio.sleep(0.5)
                await self.equal(sql, rows, patience=0)
            case {"event": wanted}:
                await self.driver.events.take(wanted)
            case {"never": unwanted}:
                self.driver.events.refuse(unwanted, self.driver.events.all)
            case {"logged": wanted}:
                await self.driver.log.take(wanted)
            case {"unlogged": unwanted}:
                self.driver.log.refuse(unwanted, self.driver.log.left)
            case {"role": role}:
                there = "exception when duplicate_object or unique_violation then null"
                await self.query(f"do $$ begin create role {role}; {there}; end $$")
            case {"sql": sql}:
                for url in urls:
                    await self.query(sql, url=url)
            case {"op": op, "vectors": name}:
                (job,) = op["jobs"]
                await self.driver.write(op | {"jobs": [{**job, "args": {name: value}} for value in vectors()]})
            case {"op": op}:
                await self.driver.write({"op": op} if isinstance(op, str) else op)
            case {"signal": name}:
                self.driver.process.send_signal(getattr(signal, "SIG" + name))
                if name == "KILL":
                    self.driver.expected_to_end_with = -signal.SIGKILL
            case {"exit": code}:
                try:
                    found = await asyncio.wait_for(self.driver.process.wait(), PATIENCE)
                except TimeoutError:
                    raise Failed("it did not end") from None
                if found != code:
                    raise Failed(f"it ended with {found}")
                self.driver.expected_to_end_with = code
                await asyncio.wait(self.driver.readers)  # what it has printed until then
            case {"cut": True}:
                # The server keeps 63 bytes of the name.
                cut = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = left(%s, 63)"
                end = time.monotonic() + PATIENCE
                while not await self.query(cut, self.worker):  # it waits before it connects again
                    if time.monotonic() > end:
                        raise Failed("it has no connection")
                    await asyncio.sleep(0.01)
            case {"silence": True}:
                if self.network.fall_silent() == 0:
                    raise Failed("it has no connection")
            case {"open": True}:
                await self.network.listen()
            case {"forward": True}:
                command = [os.environ["JOBS_PROGRAM"], "forward", "--once", "--from", self.urls[0], "--to", self.urls[1]]
                process = await asyncio.create_subprocess_exec(*command)
                if code := await process.wait():
                    raise Failed(f"pgjobs forward ended with {code}")
            case {"restart": True}:
                process = await asyncio.create_subprocess_shell(os.environ["JOBS_RESTART"])
                if await process.wait() != 0:
                    raise Failed("the server did not restart")
                self.connections.clear()
            case {"possible": True}:
                for _ in range(10):  # what the driver has printed is in the pipe: read it
                    await asyncio.sleep(0)
                if any(event.get("event") == "impossible" for event in self.driver.events.all):
                    raise Impossible
            case {"sleep": seconds}:
                await asyncio.sleep(seconds)
            case _:
                raise Failed("there is no such step")

    async def start(self, worker: dict, step: dict) -> None:
        argument = dict(step.get("driver", {}))
        if worker.pop("none", False) is False:
            argument["worker"] = {"queues": [self.queue], "name": self.worker, "lease": USUAL_LEASE} | worker
        command = [*self.command, json.dumps(argument)]
        if "clock" in step:
            command = ["faketime", "-f", step["clock"], *command]
        urls = [os.environ["JOBS_POOLED_URL"] + step["pooled"]] if "pooled" in step else [*self.urls]
        if "database" in step:
            urls[0] = with_database(urls[0], step["database"])
        if "user" in step:
            urls = [re.sub("(?<=://)[^@/]*(?=@)", step["user"], url) for url in urls]
        if "host" in step:
            urls[0] = re.sub("(?<=@)[^@:/]*(?=[:/])", step["host"], urls[0])
        if "network" in step:
            self.network = Network(urls[-1])
            urls[-1] = self.network.through()
            if step["network"] != "closed":
                await self.network.listen()
        parameters = [step["parameters"]] if "parameters" in step else []
        if "settings" in step:
            parameters.append("options=" + urllib.parse.quote("-c " + step["settings"]))
        if parameters:
            urls[0] += ("&" if "?" in urls[0] else "?") + "&".join(parameters)
        if self.driver:
            await self.driver.end()
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LONGEST_LINE,
            start_new_session=True,
            env=os.environ | {"DATABASE_URL": urls[0], "CELL_URLS": " ".join(urls), "PGAPPNAME": self.worker},
        )
        self.driver = Driver(process)
        if "worker" in argument and step.get("ready", True):
            await self.driver.events.take({"event": "ready"})

    async def equal(self, sql: str, wanted: list, patience: float = PATIENCE, url: str | None = None) -> None:
        end = time.monotonic() + patience
        while True:
            has_failed = self.driver is not None and self.driver.has_failed()
            rows = await self.query(sql, url=url)
            if is_within(wanted, rows):
                return
            found = f"it is {json.dumps(rows, default=str)[:1000]}"
            if has_failed:
                raise Failed(f"{found}, and the driver has ended with {self.driver.process.returncode}")
            if time.monotonic() > end:
                raise Failed(found)
            await asyncio.sleep(0.02)

    async def query(self, sql: str, *values: object, url: str | None = None) -> list:
        url = url or self.url
        end = time.monotonic() + PATIENCE
        while url not in self.connections:
            try:
                self.connections[url] = await psycopg.AsyncConnection.connect(
                    url, autocommit=True, application_name="conformance"
                )
            except psycopg.OperationalError:
                if time.monotonic() > end:
                    raise
                await asyncio.sleep(0.1)
        cursor = await self.connections[url].execute(sql, values or None)
        return [list(row) for row in await cursor.fetchall()] if cursor.description else []


async def run_case(case: dict, library: str, command: list[str]) -> str | None:
    """None, or why it failed."""
    try:
        await Case(case, library, command).run()
    except Impossible:
        print(f"impossible in {library}, but for what came before: {case['name']}")
    except Failed as failed:
        return str(failed)
    except Exception as error:  # what the server refuses, a driver that is gone
        return f"{type(error).__name__}: {error}"
    return None


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--only", default="", help="cases whose names this regular expression matches")
    parser.add_argument("--jobs", type=int, default=4, help="how many cases run at a time")
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    here = pathlib.Path(__file__).parent
    cases = [
        case
        for path in sorted((here / "cases").glob("*.toml"))
        for case in tomllib.loads(path.read_text())["case"]
    ]
    names = {case["name"] for case in cases}
    assert len(names) == len(cases), "two cases have one name"
    path = here / "not_yet.toml"
    not_yet = tomllib.loads(path.read_text()) if path.exists() else {}
    if unknown := set(itertools.chain(*not_yet.values())) - names:
        sys.exit(f"not_yet.toml: no case is named {sorted(unknown)}")
    cases = [case for case in cases if re.search(given.only, case["name"])]
    skipped = [case for case in cases if case["name"] in not_yet.get(given.library, [])]
    cases = [case for case in cases if case not in skipped]
    passed = failed = 0
    places = asyncio.Semaphore(given.jobs)

    async def run(case: dict) -> None:
        nonlocal passed, failed
        if why := case.get("except", {}).get(given.library):
            print(f"left out: {case['name']}: {why}")
            return
        async with places:
            why = await run_case(case, given.library, given.command)
        if why is None:
            passed += 1
        else:
            failed += 1
            print(f"FAILED: {case['name']}: {why}\n", flush=True)

    await asyncio.gather(*[run(case) for case in cases if not case.get("alone")])
    for case in cases:
        if case.get("alone"):
            await run(case)
    print(f"{given.library}: {shlex.join(given.command)}")
    if skipped:
        print(f"{len(skipped)} skipped, since the library does not do them yet")
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0 or passed == 0)


asyncio.run(main())
