"""The driver of the Python library: README.md says what it does."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import threading
import time
import traceback
from datetime import datetime

import psycopg

import postgres_jobs
from postgres_jobs import Cancel, Cells, Discard, Job, Kind, NewJob, RetryIn, Snooze, Unique, Worker
from postgres_jobs import insert, insert_many, testing, wait_for

URL = os.environ["DATABASE_URL"]
CELLS = os.environ["CELL_URLS"].split()
cells = Cells(CELLS)
LATER = 7  # seconds until rollback_later
in_test: psycopg.Connection | None = None  # that of the operation `testing`
printing = threading.Lock()


def say(event: str, **members) -> None:
    line = json.dumps({"event": event, **members})
    with printing:
        print(line, flush=True)


def lines_of_stdin() -> None:
    for line in sys.stdin:
        yield json.loads(line)


# --- Handlers -------------------------------------------------------------------------------------


class Broken(Exception):
    def __str__(self) -> str:
        raise RuntimeError("it cannot be shown")

    __repr__ = __str__


def bad_output(name: str) -> object:
    deep, circular = [], []
    if name == "deep":
        for _ in range(100_000):
            deep = [deep]
    circular.append(circular)
    makers = {"nul": "a\0b", "surrogate": "a\ud800b", "circular": circular, "deep": deep, "nan": float("nan"), "other": bad_output}
    if name in ("huge", "long"):
        return "x" * 300_000_000 if name == "huge" else [0] * (2**24 + 1)
    return makers[name]


def fail_badly(name: str) -> None:
    if name == "exit":
        sys.exit(3)
    if name == "nothing":
        raise ValueError
    if name == "broken":
        raise Broken
    texts = {"nul": "a\0b", "surrogate": "a\ud800b", "empty": ""}
    raise ValueError("x" * 100_000_000 if name == "huge" else texts[name])


def actions(job: Job) -> list[dict]:
    args = job.args if isinstance(job.args, dict) else {}
    return args.get("first" if job.attempt == 1 else "later", args.get("do", [])) if "do" not in args else args["do"]


def describe(job: Job) -> None:
    names = ("id", "kind", "queue", "attempt", "max_attempts", "priority", "args", "meta", "tags")
    left = job.deadline and (job.deadline - datetime.now(job.deadline.tzinfo)).total_seconds()
    say("described", job={name: getattr(job, name) for name in names}, left=left)


def simply(job: Job, action: dict) -> None:
    """The actions that do not wait."""
    match action:
        case {"say": text}:
            say("said", job=job.id, attempt=job.attempt, say=text)
        case {"describe": _}:
            describe(job)
        case {"fail": text}:
            raise RuntimeError(text)
        case {"fail_badly": name}:
            fail_badly(name)
        case {"snooze": delay}:
            raise Snooze(delay)
        case {"cancel": reason}:
            raise Cancel(reason)
        case {"discard": text}:
            raise Discard(text)
        case {"retry_in": delay}:
            raise RetryIn(delay, "later")
        case {"discard_without_error": _}:
            raise Discard
        case {"retry_in_without_error": delay}:
            raise RetryIn(delay)
        case {"block": seconds}:
            time.sleep(seconds)
        case {"exit_process": code}:
            os._exit(code)
        case {"sql_in_test": text}:
            in_test.execute(text)
        case {"complete_in_test": output}:
            job.complete(in_test, output)
        case _:
            raise RuntimeError(f"no such action: {action}")


def after_transaction(then: str) -> dict | None:
    if then == "commit_and_exit":
        os._exit(9)
    if then == "commit_and_fail":
        raise RuntimeError("after the commit")
    return {"in": "handler"}


async def sleep(job: Job, seconds: float) -> None:
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError as error:
        say("cancelled", job=job.id, why=str(error))
        raise


async def run(job: Job) -> object:
    for action in actions(job):
        match action:
            case {"sleep": seconds}:
                await sleep(job, seconds)
            case {"sleep_on": seconds}:
                end = time.monotonic() + seconds
                while (left := end - time.monotonic()) > 0:
                    with contextlib.suppress(asyncio.CancelledError):
                        await asyncio.sleep(left)
            case {"return": value}:
                return value
            case {"return_bad": name}:
                return bad_output(name)
            case {"progress": value}:
                await job.progress(value)
            case {"sql": text}:
                async with await psycopg.AsyncConnection.connect(URL, autocommit=True) as connection:
                    await connection.execute(text)
            case {"in_transaction": text, "then": then}:
                async with await psycopg.AsyncConnection.connect(URL) as connection:
                    await connection.execute(text)
                    await job.complete(connection, {"in": "transaction"})
                    if then == "rollback_later":
                        await asyncio.sleep(LATER)
                    if then.startswith("rollback"):
                        raise RuntimeError("rolled back")
                    if then == "exit":
                        os._exit(9)
                return after_transaction(then)
            case _:
                simply(job, action)
    return None


def run_blocking(job: Job) -> object:
    for action in actions(job):
        match action:
            case {"sleep": seconds}:
                if job.cancelled.wait(seconds):
                    say("cancelled", job=job.id, why=job.cancelled_because)
                    raise InterruptedError("cancelled")
            case {"sleep_on": seconds}:
                time.sleep(seconds)
            case {"return": value}:
                return value
            case {"return_bad": name}:
                return bad_output(name)
            case {"progress": value}:
                job.progress(value)
            case {"sql": text}:
                with psycopg.connect(URL, autocommit=True) as connection:
                    connection.execute(text)
            case {"in_transaction": text, "then": then}:
                with psycopg.connect(URL) as connection:
                    connection.execute(text)
                    job.complete(connection, {"in": "transaction"})
                    if then == "rollback_later":
                        time.sleep(LATER)
                    if then.startswith("rollback"):
                        raise RuntimeError("rolled back")
                    if then == "exit":
                        os._exit(9)
                return after_transaction(then)
            case _:
                simply(job, action)
    return None


class Left(Exception):
    """The job is not ended."""


async def run_batch(jobs: list[Job]) -> None:
    say("batch", jobs=[job.id for job in jobs])
    for job in jobs:
        try:
            job.end(await run_in_batch(job))
        except Left:
            pass
        except (Cancel, Discard, RetryIn, Snooze, Failed) as error:
            job.end(error)


class Failed(Exception):
    """The actions of a job fail it alone."""


async def run_in_batch(job: Job) -> object:
    for action in actions(job):
        match action:
            case {"sleep": seconds}:
                await sleep(job, seconds)
            case {"return": value}:
                return value
            case {"leave": _}:
                raise Left
            case {"fail": text}:
                raise Failed(text)
            case {"raise": text}:
                raise RuntimeError(text)
            case _:
                simply(job, action)
    return None


# --- Middleware -----------------------------------------------------------------------------------


async def around_work(job: Job, handler) -> object:
    say("middleware", around="work", kind=job.kind)
    return await handler(job)


@contextlib.contextmanager
def around_insert(jobs: list[dict]):
    for job in jobs:
        say("middleware", around="insert", kind=job["kind"])
        job["meta"]["middleware"] = True
    yield


def hook(name: str, then: object):
    def told(job: Job, error: BaseException) -> None:
        say("hook", hook=name, job=job.id, error=str(error))
        if then == "raise":
            raise RuntimeError(f"the hook {name} fails")

    return told


# --- Operations -----------------------------------------------------------------------------------


def typed(options: dict) -> dict:
    """Options as a program gives them."""
    times = {name: datetime.fromisoformat(options[name]) for name in ("scheduled_at", "expires_at") if name in options}
    unique = {"unique_opts": Unique(**options["unique_opts"])} if "unique_opts" in options else {}
    return options | times | unique


class Undone(Exception):
    """Rolls a transaction back."""


@contextlib.contextmanager
def transaction(then: str = "commit"):
    with psycopg.connect(URL) as connection, contextlib.suppress(Undone), connection.transaction():
        yield connection
        if then == "rollback":
            raise Undone


def place(op: dict):
    """The connection, or what takes its place."""
    return contextlib.nullcontext(cells) if op.get("cells") else transaction(op.get("then", "commit"))


def op_insert(op: dict) -> None:
    with place(op) as connection:
        say("inserted", **vars(insert(connection, op["kind"], op["args"], **typed(op.get("options", {})))))


def op_insert_of_kind(op: dict) -> None:
    with place(op) as connection:
        say("inserted", **vars(defined[op["kind"]].insert(connection, op["args"], **typed(op["options"]))))


def new_job(job: dict) -> NewJob:
    if not job.pop("of_kind", False):
        return typed(job)
    return defined[job.pop("kind")].job(job.pop("args"), **typed(job))


def op_insert_many(op: dict) -> None:
    with place(op) as connection:
        jobs = [new_job(job) for job in op["jobs"]]
        say("inserted_many", jobs=[vars(one) for one in insert_many(connection, jobs)])


def op_sync(op: dict) -> None:
    with transaction(op["then"]) as connection:
        changes = make_worker(op["worker"]).sync(connection)
        say("synced", changes=[[one.object, one.name, one.outcome] for one in changes])


def op_wait_for(op: dict) -> None:
    with psycopg.connect(URL, autocommit=True) as connection:
        results = wait_for(connection, op["ids"], op["timeout"], op["want"])
        say("results", results=[vars(one) for one in results])


def op_check(op: dict) -> None:
    try:
        make_worker(op["worker"])
        say("checked", error=None)
    except (ValueError, TypeError) as error:
        say("checked", error=str(error))


def op_testing(op: dict) -> None:
    global in_test
    with transaction("rollback") as connection:
        in_test = connection
        worker = make_worker(op["worker"])
        say("tested", results=[testing_step(connection, worker, step) for step in op["steps"]])


def testing_step(connection: psycopg.Connection, worker: Worker, step: dict) -> object:
    try:
        match step:
            case {"insert": job}:
                return insert(connection, job["kind"], job["args"], **typed(job.get("options", {}))).id
            case {"sql": text}:
                cursor = connection.execute(text)
                return cursor.fetchall() if cursor.description else []
            case {"assert_inserted": job}:
                return shown(testing.assert_inserted(connection, job["kind"], job["args"]))
            case {"advance": seconds}:
                return testing.advance(connection, seconds)
            case {"work_all": _}:
                return [shown(worked) for worked in testing.work_all(connection, worker)]
    except (AssertionError, RuntimeError, psycopg.Error) as error:
        return {"error": text_of(error)}
    raise ValueError(f"no such step: {step}")


def shown(job: object) -> dict:
    return {name: value for name, value in vars(job).items() if name in MEMBERS}


MEMBERS = ("id", "kind", "queue", "state", "args", "output", "error")
OPS = {"insert": op_insert, "insert_many": op_insert_many, "wait_for": op_wait_for}
OPS |= {"check": op_check, "testing": op_testing, "sync": op_sync, "insert_of_kind": op_insert_of_kind}


def text_of(error: BaseException) -> str:
    """What a user sees of it."""
    return "".join(traceback.format_exception_only(error))


def operate(op: dict) -> None:
    try:
        OPS[op["op"]](op)
    except (psycopg.Error, RuntimeError) as error:
        say("refused", code=getattr(error, "sqlstate", None), error=text_of(error))


# --- The program ----------------------------------------------------------------------------------


middleware: list = []
hooks: dict = {}
defined: dict[str, Kind] = {}


def define(kinds: dict) -> None:
    for name, kind in kinds.items():
        if "defaults" in kind:
            defined[name] = Kind(name, dict, **typed(kind["defaults"]))


def make_worker(options: dict) -> Worker:
    kinds, periodic = options.pop("kinds", {"run": {}}), options.pop("periodic", [])
    otherwise, again = options.pop("otherwise", False), options.pop("again", None)
    worker = Worker(CELLS if options.pop("cells", False) else URL, **options, **hooks, middleware=middleware)
    define(kinds)
    if otherwise:
        worker.otherwise()(run)
    for name, kind in kinds.items():
        given = {option: kind[option] for option in ("timeout", "concurrency") if option in kind}
        kind_of = defined[name] if "defaults" in kind else name
        if "batch" in kind:
            worker.batch(kind_of, **kind["batch"], **given)(run_batch)
        else:
            worker.kind(kind_of, **given)(run_blocking if kind.get("blocking") else run)
    for one in periodic:
        worker.periodic(**one)
    if again:
        worker.kind(again)(run)
    return worker


def say_ready(worker: Worker) -> None:
    worker.ready.wait()
    say("ready")


async def in_program(worker: Worker) -> None:
    await worker.start()
    ended = asyncio.create_task(worker.ended())
    while not worker.ready.is_set():
        if ended.done():
            return ended.result()
        await asyncio.sleep(0.01)
    say("ready")
    lines = lines_of_stdin()
    while op := await asyncio.to_thread(next, lines, None):
        if op["op"] == "stop":
            return await worker.stop()
        if op["op"] == "stop_and_cancel":
            return await worker.stop_and_cancel()
        await asyncio.to_thread(operate, op)


def operate_all() -> None:
    for op in lines_of_stdin():
        if op["op"] in ("stop", "stop_and_cancel"):
            signal.raise_signal(signal.SIGTERM)
        else:
            operate(op)


def fail(error: BaseException) -> None:
    say("failed", error=text_of(error))
    sys.exit(1)


def main() -> None:
    argument = json.loads(sys.argv[1])
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(message)s")
    define(argument.get("kinds", {}))
    if "hooks" in argument:
        hooks.update(on_error=hook("error", argument["hooks"]), on_discarded=hook("discarded", argument["hooks"]))
    if argument.get("middleware"):
        postgres_jobs.insert_middleware.append(around_insert)
        middleware.append(around_work)
    if "worker" not in argument:
        operate_all()
    elif argument.get("in_program"):
        try:
            asyncio.run(in_program(make_worker(argument["worker"])))
        except (psycopg.Error, RuntimeError) as error:
            fail(error)
    else:
        worker = make_worker(argument["worker"])
        threading.Thread(target=say_ready, args=[worker], daemon=True).start()
        threading.Thread(target=operate_all, daemon=True).start()
        try:
            worker.run()
        except ValueError as error:
            say("unfit", error=str(error))
            sys.exit(2)
        except SystemExit as end:
            if end.__cause__:
                fail(end.__cause__)
            raise
    say("stopped")


if __name__ == "__main__":
    main()
