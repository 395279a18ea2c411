#!/usr/bin/env python3
"""Compares worker libraries: run.py PROGRAMS ROUNDS SECONDS LATENCIES. Prints a row of the page a
line.

PROGRAMS is where case.sh has put them. A program has the database in DATABASE_URL, and is called
as

    setup                                makes its tables
    fill JOBS                            inserts so many jobs
    work CONCURRENCY MILLISECONDS JOBS   works on them with handlers that sleep so long; prints, in
                                         seconds since 1970, when the first job began and the last
                                         one ended: {"first": .., "last": ..}
    listen CONCURRENCY                   prints {"started": ..} whenever a handler starts
    cancel CONCURRENCY                   so, and {"cancelled": ..} when it is cancelled; ours alone
    send                                 for each line of stdin inserts a job, and then prints
                                         {"committed": ..}
    single, unique, duplicates, many, many_unique JOBS
                                         inserts so many jobs, one by one or 1,000 at once; prints
                                         what work prints; in Go alone
    tenants RATE NOISY CONCURRENCY SECONDS
                                         inserts so many jobs a second, of which so many of a
                                         hundred are of one of ten tenants, and works on them;
                                         prints {"completed": .., "noisy": .., "others": ..}, jobs
                                         a second and how long the jobs of that tenant and of the
                                         others waited; in Go alone, of ours and of River

Those that work go on until they are killed. Every peer has a database of its own, and ours share
one. The programs work in turns, the one that goes first changing.
"""

import contextlib
import itertools
import json
import math
import os
import pathlib
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field

import psycopg

HERE = pathlib.Path(__file__).parent
PROGRAMS = pathlib.Path(sys.argv[1])
ROUNDS, SECONDS, LATENCIES = int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
HANDLERS = [(0, 10), (0, 100), (1, 10), (1, 100)]  # milliseconds, how many at a time
INSERTS = {
    "single": "one by one", "many": "1,000 at once", "unique": "as unique, one by one",
    "duplicates": "duplicates, one by one", "many_unique": "as unique, 1,000 at once",
}
# Jobs a second, how many of a hundred are of one of ten tenants, and how many run at a time: the
# scenarios of that name of the public queue-benchmark.
SCENARIOS = {"noisy_neighbor": (50, 50, 20), "noisy_neighbor_saturated": (100, 90, 10)}
IDLE = 0.01  # seconds in which a worker that has nothing to do has come to wait

PYTHON = [sys.executable]
NODE = [str(PROGRAMS / "npm/node_modules/.bin/node")]
OURS = [*PYTHON, str(HERE / "jobs_python.py")]
GRAPHILE = [*NODE, str(PROGRAMS / "npm/graphile_worker.mjs")]
SQL_ALONE = str(PROGRAMS / "sql_alone")
GRAPHILE_LEFT = "select exists(select from graphile_worker._private_jobs)"


@dataclass(eq=False)
class Contestant:
    name: str
    language: str
    worker: list
    producer: list
    # Whether a job is not completed yet: a statement, or a function.
    left: object
    # It takes more jobs than it may run at a time.
    takes_more: bool = False
    environment: dict = field(default_factory=dict)
    # So many jobs a second, until it is known better.
    rate: dict = field(default_factory=lambda: dict.fromkeys(HANDLERS, 1000))
    rates: dict = field(default_factory=lambda: {handler: [] for handler in HANDLERS})
    latencies: list = field(default_factory=list)
    cancels: list = field(default_factory=list)
    inserts: dict = field(default_factory=lambda: {how: [] for how in INSERTS})
    has_unique: bool = True

    @property
    def database(self):
        return "workers_" + ("jobs" if self.is_ours else "".join(filter(str.isalnum, self.name)).lower())

    @property
    def is_ours(self):
        return self.producer is OURS

    @property
    def is_sql(self):
        return self.worker == [SQL_ALONE]

    @property
    def sender(self):
        return self.worker if self.language in ("TypeScript", "Go") else self.producer


def ours(name, language, *worker, takes_more=False, **environment):
    left = "select exists(select from jobs.running) or exists(select from jobs.ready)"
    return Contestant(name, language, list(worker), OURS, left, takes_more, environment)


def ours_twice(language, *worker):
    """Our library as it is, and with a prefetch that is Graphile Worker's local queue."""
    prefetch = ours("jobs with prefetch", language, *worker, takes_more=True, PREFETCH="500")
    return ours("jobs", language, *worker), prefetch


def peer(name, language, left, *worker, takes_more=False, has_unique=True, **environment):
    return Contestant(name, language, list(worker), list(worker), left, takes_more, environment, has_unique=has_unique)


FAKTORY = ("localhost", 7519)


def left_in_faktory():
    with socket.create_connection(FAKTORY) as connection, connection.makefile("rwb", buffering=0) as server:
        server.readline()
        server.write(b'HELLO {"v": 2}\r\n')
        server.readline()
        server.write(b"INFO\r\n")
        server.readline()
        state = json.loads(server.readline())["faktory"]
        return state["sets"]["working"] + sum(state["queues"].values()) > 0


CONTESTANTS = [
    *ours_twice("Python", *OURS),
    peer("procrastinate", "Python", "select exists(select from procrastinate_jobs where status in ('todo', 'doing'))",
         *PYTHON, str(HERE / "procrastinate_worker.py")),
    peer("PgQueuer", "Python", "select exists(select from pgqueuer)", *PYTHON, str(HERE / "pgqueuer_worker.py")),
    # Its handlers hold their places until their jobs are completed.
    peer("Awa", "Python", "select false", *PYTHON, str(HERE / "awa_worker.py")),
    *ours_twice("TypeScript", *NODE, str(PROGRAMS / "npm/jobs_typescript.mjs")),
    peer("pg-boss", "TypeScript", "select exists(select from pgboss.job where name = 'bench' and state < 'completed')",
         *NODE, str(PROGRAMS / "npm/pgboss_worker.mjs")),
    peer("Graphile Worker", "TypeScript", GRAPHILE_LEFT, *GRAPHILE),
    peer("Graphile Worker with a local queue", "TypeScript", GRAPHILE_LEFT, *GRAPHILE, takes_more=True, LOCAL_QUEUE="500"),
    *ours_twice("Rust", str(PROGRAMS / "jobs_rust")),
    ours("SQL alone", "Rust", SQL_ALONE, CONNECTIONS="1"),
    ours("SQL alone over three connections", "Rust", SQL_ALONE, takes_more=True, CONNECTIONS="3"),
    *ours_twice("Go", str(PROGRAMS / "go/jobs")),
    peer("River", "Go", "select exists(select from river_job where state in ('available', 'running'))", str(PROGRAMS / "go/river")),
    # Unique jobs need its Enterprise version.
    peer("Faktory", "Go", left_in_faktory, str(PROGRAMS / "go/faktory"), has_unique=False, FAKTORY_URL="tcp://{}:{}".format(*FAKTORY)),
]
# What could not be built or installed is left out.
CONTESTANTS = [c for c in CONTESTANTS if all(pathlib.Path(part).exists() for part in c.worker)]
if not shutil.which("redis-server"):
    CONTESTANTS = [c for c in CONTESTANTS if c.name != "Faktory"]
if not (PROGRAMS / "npm/postgres-jobs/dist/esm/index.js").exists():
    CONTESTANTS = [c for c in CONTESTANTS if c.language != "TypeScript"]


def url(database):
    return f"postgresql:///{database}?host={os.environ['PGHOST']}&port={os.environ['PGPORT']}&user=postgres&sslmode=disable"


class Program:
    """One of a contestant's programs while it runs."""

    def __init__(self, contestant, command, *values):
        self.contestant = contestant
        self.title = f"{contestant.name} ({contestant.language}): {command[-1]} {' '.join(map(str, values))}"
        self.process = subprocess.Popen(
            [*command, *map(str, values)], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=os.environ | contestant.environment | {"DATABASE_URL": url(contestant.database)},
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # Faktory gives a job to a fetch whose worker was killed meanwhile, and waits for its lease.
        self.process.terminate() if self.contestant.name == "Faktory" else self.process.kill()
        self.process.communicate()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.title}\n{self.process.stderr.read()}")
        return json.loads(line)

    def ask(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.answer()

    def start_since(self, moment):
        """When a handler started. A job that was left over from a load may come at any time. The
        programs' clocks differ by less than it takes until the next job is sent."""
        while (started := self.answer()["started"]) < moment - IDLE / 2:
            pass
        return started

    def end(self):
        _, errors = self.process.communicate()
        if self.process.returncode:
            sys.exit(f"{self.title}\n{errors}")


def call(contestant, *values):
    with Program(contestant, contestant.producer, *values) as program:
        program.end()


def await_completion(contestant, connection):
    while contestant.left() if callable(contestant.left) else connection.execute(contestant.left).fetchone()[0]:
        time.sleep(0.001)


def work(contestant, handler, connection):
    """How many jobs a second it works on, from the start of the first handler until all are
    completed."""
    milliseconds, concurrency = handler
    jobs = max(int(contestant.rate[handler] * SECONDS), 2 * concurrency)
    call(contestant, "fill", jobs)
    connection.execute("vacuum analyze")
    with Program(contestant, contestant.worker, "work", concurrency, milliseconds, jobs) as worker:
        times = worker.answer()
        await_completion(contestant, connection)
        end = max(time.time() if contestant.left != "select false" else 0, times["last"])
    contestant.rate[handler] = jobs / (end - times["first"])
    return contestant.rate[handler]


def insert(contestant, how):
    """How many jobs a second it inserts."""
    jobs = int((contestant.inserts[how] or [2000])[-1] * SECONDS)
    with Program(contestant, contestant.worker, how, jobs) as program:
        times = program.answer()
        program.end()
    contestant.inserts[how].append(jobs / (times["last"] - times["first"]))


@contextlib.contextmanager
def faktory():
    """Runs its server with an empty Redis while there is a contestant that needs it. As Postgres
    does, Redis writes each change to the disk before it answers, which Faktory leaves off."""
    if not any(contestant.name == "Faktory" for contestant in CONTESTANTS):
        yield
        return
    with tempfile.TemporaryDirectory() as directory:
        server = [PROGRAMS / "go/faktory_server", "-b", "{}:{}".format(*FAKTORY), "-w", "localhost:7520", "-d", directory, "-c", directory, "-l", "error"]
        process = subprocess.Popen(server, stdout=subprocess.DEVNULL)
        try:
            while (redis := socket.socket(socket.AF_UNIX)).connect_ex(f"{directory}/redis.sock"):
                time.sleep(0.1)
            with redis:
                for setting in "appendfsync always", "appendonly yes":
                    redis.sendall(f"config set {setting}\r\n".encode())
                    assert redis.recv(99) == b"+OK\r\n"
            yield
        finally:
            process.terminate()
            process.wait()


def settle(connections):
    """What loads have left behind slows whoever comes first."""
    for connection in connections.values():
        connection.execute("vacuum analyze")
    connection.execute("checkpoint")


def listen(contestants, count):
    """Seconds from a commit to the handler's start, of jobs one by one. All workers run meanwhile,
    and are idle; they take turns job by job, in any order."""
    latencies = {contestant: [] for contestant in contestants}
    with contextlib.ExitStack() as stack:
        workers = {c: stack.enter_context(Program(c, c.worker, "listen", 10)) for c in contestants}
        senders = {c: stack.enter_context(Program(c, c.sender, "send")) for c in contestants}
        for _ in range(20 + count):  # the first ones are not counted
            for contestant in random.sample(contestants, len(contestants)):
                sent = time.time()
                committed = senders[contestant].ask()["committed"]
                latencies[contestant].append(workers[contestant].start_since(sent) - committed)
                time.sleep(IDLE * random.uniform(1, 2))
    for contestant in contestants:
        contestant.latencies.append(latencies[contestant][20:])


def cancel(contestant, connection, count):
    """Seconds from a commit of `jobs.cancel` until the handler is cancelled, of jobs one by one."""
    latencies = []
    with Program(contestant, contestant.worker, "cancel", 10) as worker:
        for _ in range(20 + count):  # the first ones are not counted
            job = connection.execute("select id from jobs.insert('bench', queue => 'bench')").fetchone()[0]
            worker.answer()
            time.sleep(IDLE * random.uniform(1, 2))
            connection.execute("select jobs.cancel(%s)", (job,))
            committed = time.time()
            latencies.append(worker.answer()["cancelled"] - committed)
        await_completion(contestant, connection)  # or its lease would be waited for next
    contestant.cancels.append(latencies[20:])


def tenants(contestant, scenario):
    """What the program prints of a scenario, in a database without jobs. Ours has a fair order."""
    rate, noisy, concurrency = SCENARIOS[scenario]
    create_database(contestant)
    if contestant.is_ours:
        with psycopg.connect(url(contestant.database), autocommit=True) as connection:
            connection.execute("""select jobs.order_queue('bench', '{"by_args": ["tenant.number"]}', fair => true)""")
    with Program(contestant, contestant.worker, "tenants", rate, noisy, concurrency, math.ceil(20 * SECONDS)) as program:
        return program.answer()


def percentile(seconds, share):
    """In milliseconds."""
    return 1000 * statistics.quantiles(seconds, n=100, method="inclusive")[share - 1]


def row(title, wanted, figure, spread, of):
    print(title, wanted, figure, spread, of, sep="\t", flush=True)


def compare(language, title, unit, figures, wanted, together=None):
    """Figures of each contestant by round, of ours against the best of its rivals that take no more
    jobs than they run, and of ours with prefetch against the best of all. Of latencies the least is
    the best, and what counts are the figures of all rounds together."""
    digits = 2 if together else 0
    overall = together or {contestant: statistics.median(values) for contestant, values in figures.items()}

    def against(mine, rivals):
        if not rivals:
            return row(f"{language}, {title}", "-", f"{overall[mine]:.{digits}f}", spread(figures[mine], digits), unit)
        rival, *others = sorted(rivals, key=overall.get, reverse=not together)
        pairs = list(zip(figures[mine], figures[rival]))
        ratios = [b / a if together else a / b for a, b in pairs]
        ratio = overall[rival] / overall[mine] if together else statistics.median(ratios)
        of = f"{overall[mine]:.{digits}f} {unit} against {overall[rival]:.{digits}f}"
        of += "".join(f"; {other.name} {overall[other]:.{digits}f}" for other in others)
        ours = ", with prefetch" if mine.takes_more else ""
        row(f"{language}, {title}{ours}, against {rival.name}", wanted, f"{ratio:.3f}", spread(ratios, 3), of)

    rivals = [c for c in figures if not c.is_ours or c.is_sql]
    for mine in (c for c in figures if c.is_ours and not c.is_sql):
        against(mine, [rival for rival in rivals if mine.takes_more or not rival.takes_more])


def spread(values, digits):
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


def ours_in(language):
    return next(c for c in CONTESTANTS if c.is_ours and c.language == language and not c.is_sql)


def create_database(contestant):
    with psycopg.connect(url("postgres"), autocommit=True) as connection:
        connection.execute(f"drop database if exists {contestant.database} (force)")
        connection.execute(f"create database {contestant.database}")
    call(contestant, "setup")


def main():
    connections = {}
    for contestant in CONTESTANTS:
        if contestant.database not in connections:
            create_database(contestant)
            connections[contestant.database] = psycopg.connect(url(contestant.database), autocommit=True)
    languages = list(dict.fromkeys(c.language for c in CONTESTANTS))
    for number in range(ROUNDS + 1):
        for contestant in reversed(CONTESTANTS) if number % 2 else CONTESTANTS:
            connection = connections[contestant.database]
            if number == 0:  # it is not counted, but says how many jobs there are to be
                rate = work(contestant, HANDLERS[0], connection)
                contestant.rate = {handler: min(rate, 500 * handler[1]) if handler[0] else rate for handler in HANDLERS}
                continue
            for handler in HANDLERS:
                if not contestant.is_sql or not handler[0]:
                    contestant.rates[handler].append(work(contestant, handler, connection))
            print(f"{number}. {contestant.name}, {contestant.language}: "
                  + ", ".join(f"{values[-1]:.0f}" for values in contestant.rates.values() if values) + " jobs/s", file=sys.stderr)
        if number:
            settle(connections)
        for language in languages if number else ():
            of_language = [c for c in CONTESTANTS if c.language == language and not c.is_sql and not (c.is_ours and c.takes_more)]
            listen(of_language, LATENCIES)
            mine = ours_in(language)
            cancel(mine, connections[mine.database], LATENCIES // 3)

    inserting = [c for c in CONTESTANTS if c.language == "Go" and not c.takes_more]
    for number in range(ROUNDS + 1):
        for how, contestant in itertools.product(INSERTS, reversed(inserting) if number % 2 else inserting):
            if contestant.has_unique or how in ("single", "many"):
                insert(contestant, how)
        settle(connections)

    served = {}
    with_tenants = [c for c in inserting if c.name != "Faktory"]
    for number, scenario in itertools.product(range(ROUNDS), SCENARIOS):
        for contestant in reversed(with_tenants) if number % 2 else with_tenants:
            for what, figure in tenants(contestant, scenario).items():
                served.setdefault((scenario, what), {}).setdefault(contestant, []).append(figure)

    for language in languages:
        of_language = [c for c in CONTESTANTS if c.language == language]
        wanted = {"Python": "> 1.0", "TypeScript": "> 1.0", "Rust": ">= 0.6", "Go": "> 1.0"}[language]
        for milliseconds, concurrency in HANDLERS:
            title = f"{f'handlers of {milliseconds} ms' if milliseconds else 'empty handlers'}, {concurrency} at a time"
            rates = {c: c.rates[milliseconds, concurrency] for c in of_language if c.rates[milliseconds, concurrency]}
            compare(language, title, "jobs/s", rates, wanted)
        for how, title in INSERTS.items():
            if language == "Go":  # the first one found out how many there are to be
                compare(language, f"insert {title}", "jobs/s", {c: c.inserts[how][1:] for c in inserting if c.inserts[how]}, wanted)
        mine = ours_in(language)
        for name, share in ("median", 50), ("99th percentile", 99):
            measured = [c for c in of_language if c.latencies]
            by_round = {c: [percentile(values, share) for values in c.latencies] for c in measured}
            together = {c: percentile(itertools.chain(*c.latencies), share) for c in measured}
            compare(language, f"from commit to the start of the handler: {name}", "ms", by_round, wanted, together)
        for name, share in ("median", 50), ("99th percentile", 99):
            by_round = [percentile(values, share) for values in mine.cancels]
            row(f"{language}, from the commit of jobs.cancel to the handler: {name}", "< 100 ms",
                f"{percentile(itertools.chain(*mine.cancels), share):.2f}", spread(by_round, 2), "ms")

    for (scenario, what), figures in served.items():
        if what == "completed":
            compare("Go", f"{scenario}: completed", "jobs/s", figures, "-")
        else:
            waits = {contestant: statistics.median(values) for contestant, values in figures.items()}
            of = {"noisy": "the noisy tenant", "others": "the others"}[what]
            wanted = "> 1.0" if what == "others" else "-"
            compare("Go", f"{scenario}: 95th percentile of the wait for a handler, {of}", "ms", figures, wanted, waits)


with faktory():
    main()
