"""A complete worker in Python with psycopg: fetches in batches, keeps its leases, stops gracefully.

    pip install -r requirements.txt
    DATABASE_URL=postgresql://postgres@localhost/jobs python worker.py [QUEUE]

LEASE, CONCURRENCY and GRACE (seconds) set it up. Its handlers write a row into a table of ours:

    create table done (job_id bigint, attempt int, worker text);

It shows what the library in Python does: take that one for work (docs/workers.md).
docs/worker-in-sql.md says why it does what it does. A worker that loses its database ends with an
error; its supervisor starts it again, and the jobs that it held come back when their leases
run out.
"""

import asyncio
import os
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import psycopg
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

URL = os.environ.get("DATABASE_URL", "postgresql://postgres@localhost/jobs")
QUEUE = sys.argv[1] if len(sys.argv) > 1 else "default"
LEASE = float(os.environ.get("LEASE", "30"))
CONCURRENCY = int(os.environ.get("CONCURRENCY", "4"))
GRACE = float(os.environ.get("GRACE", "10"))
NAME = f"python worker {os.getpid()}"


@dataclass
class Job:
    id: int
    token: int
    attempt: int
    kind: str
    args: dict


# --- What the jobs do: a function for each kind. What blocks belongs into asyncio.to_thread. ------


async def ok(job: Job) -> dict:
    return {"by": NAME}


async def fail_once(job: Job) -> dict:
    if job.attempt == 1:
        raise ConnectionError("the first attempt always fails")
    return {"by": NAME}


async def slow(job: Job) -> dict:
    await asyncio.sleep(job.args["seconds"])
    return {"by": NAME}


async def endless(job: Job) -> dict:
    await asyncio.Event().wait()  # until the job is cancelled, or the worker stops
    return {}


async def bad_error(job: Job) -> dict:
    raise ValueError("no text of the database: \0 \ud800 " + "x" * 100_000)


async def bad_output(job: Job) -> dict:
    return {"no JSON of the database": "\0", "nor of any other": {1, 2}}


async def broken(job: Job) -> dict:
    sys.exit(1)  # such as a library might do it


HANDLERS: dict[str, Callable[[Job], Awaitable[dict]]] = {
    "ok": ok,
    "fail_once": fail_once,
    "slow": slow,
    "endless": endless,
    # Such as a bug would do it: none of it may end the worker.
    "bad_error": bad_error,
    "bad_output": bad_output,
    "broken": broken,
    # Whose rows the database refuses.
    "refused": ok,
    "not_found": ok,
}


# --- The worker -----------------------------------------------------------------------------------


class Lost(Exception):
    """The job is no longer ours: our lease ran out, or it was cancelled by force, or deleted.
    The job's new worker is unaffected."""


class Exited(Exception):
    """A handler wanted to end the program."""


async def handle(job: Job) -> dict:
    try:
        return await HANDLERS[job.kind](job)
    except (SystemExit, KeyboardInterrupt) as error:  # these would end the event loop
        raise Exited(repr(error)) from error


def storable(text: str) -> str:
    """A text as the database can hold it: without NUL and lone surrogates, and not endless."""
    return text[:10_000].replace("\0", "\\0").encode(errors="backslashreplace").decode()


class Worker:
    def __init__(self, fetching: psycopg.AsyncConnection, finishing: psycopg.AsyncConnection):
        self.fetching = fetching  # also waits for work, so nothing else can use it
        self.finishing = finishing  # heartbeats and results
        self.lock = asyncio.Lock()  # one transaction at a time on it
        # The jobs that we hold, and the tasks of their handlers.
        self.held: dict[int, tuple[Job, asyncio.Task]] = {}
        # Of operators; quiet: fetch no more; stop: end as well, once what runs is done.
        self.command = "run"

    async def fetch(self, max_jobs: int) -> list[Job]:
        # In autocommit: the statement is its own transaction, so the jobs are ours when it returns.
        cursor = self.fetching.cursor(row_factory=class_row(Job))
        await cursor.execute(
            "select id, token, attempt, kind, args from jobs.fetch(queue => %s, max_jobs => %s, worker => %s, lease => %s)",
            (QUEUE, max_jobs, NAME, f"{LEASE} s"),
        )
        return await cursor.fetchall()

    async def work(self, job: Job) -> None:
        """Runs the handler of a job that we hold, and tells the queue what came of it."""
        try:
            if job.kind not in HANDLERS:
                # Another attempt would not change that.
                await self.fail(job, f"there is no handler for {job.kind}", "unknown_kind", retryable=False)
                return
            handler = asyncio.create_task(handle(job))
            self.held[job.id] = job, handler
            try:
                await self.complete(job, await handler)
            except Lost:
                raise
            except (Exception, asyncio.CancelledError) as error:
                if handler.cancelling():
                    # Stopped, see beat() and run(). The attempt does not count; the job
                    # becomes available for others, or cancelled if that was the reason.
                    await self.release(job)
                else:
                    # The interpreter shows it, as an error may fail to show itself.
                    text = "".join(traceback.format_exception_only(error)).strip()
                    await self.fail(job, text, type(error).__name__)
        except Lost:
            pass
        finally:
            self.held.pop(job.id, None)

    async def finish(self, call: str, *values) -> None:
        """Makes a finishing call. What it refuses says something of the job; the same SQLSTATE from
        another statement, that of a handler, says nothing of it."""
        try:
            await self.finishing.execute(call, values)
        except psycopg.Error as error:
            is_refused = error.sqlstate == "55000" and error.diag.message_detail in ("lease_lost", "already_finished")
            if is_refused or error.sqlstate == "P0002":
                raise Lost from error
            raise

    async def complete(self, job: Job, output: dict) -> None:
        # The row and the end of the job are one transaction: if the job is no longer ours, there is
        # no row either.
        async with self.lock, self.finishing.transaction():
            await self.finishing.execute("insert into done values (%s, %s, %s)", (job.id, job.attempt, NAME))
            await self.finish("select jobs.complete(%s, %s, %s)", job.id, job.token, Jsonb(output))

    async def fail(self, job: Job, error: str, type: str, retryable: bool = True) -> None:
        call = "select jobs.fail(%s, %s, %s, retryable => %s, details => %s)"
        details = Jsonb({"type": storable(type)})
        async with self.lock:
            await self.finish(call, job.id, job.token, storable(error), retryable, details)

    async def release(self, job: Job) -> None:
        async with self.lock:
            await self.finish("select jobs.release(%s, %s)", job.id, job.token)

    async def beat(self) -> None:
        """Says that we are there, hears our command, renews all leases in one statement."""
        jobs = [job for job, _ in self.held.values()]
        async with self.lock:
            cursor = await self.finishing.execute("select jobs.worker_beat(%s, %s, %s)", (NAME, [QUEUE], CONCURRENCY))
            (self.command,) = await cursor.fetchone()
            cursor = await self.finishing.execute(
                "select id, cancel_requested is distinct from false from jobs.heartbeat_many(%s::bigint[], %s::bigint[])",
                ([job.id for job in jobs], [job.token for job in jobs]),
            )
            answers = await cursor.fetchall()
        for id, stop in answers:  # cancel_requested is null where the job is lost
            if stop and id in self.held:
                self.held[id][1].cancel()

    async def beats(self) -> None:
        while True:
            # Often enough that two heartbeats may go missing.
            await asyncio.sleep(min(LEASE / 3, 30))
            await self.beat()

    async def wait_for_work(self) -> None:
        # Also until we get another command, or one of our jobs is to stop. The beat says which.
        await self.fetching.execute("call jobs.wait_any(queues => %s, worker => %s)", ([QUEUE], NAME))
        await self.beat()

    async def run(self, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:  # if one of the tasks fails, the worker ends
            await self.beat()
            beats = group.create_task(self.beats())
            stopped = group.create_task(stop.wait())
            tasks: set[asyncio.Task] = set()
            while not stop.is_set() and self.command != "stop":
                free = CONCURRENCY - len(tasks)
                jobs = await self.fetch(free) if free and self.command == "run" else []
                for job in jobs:
                    tasks.add(task := group.create_task(self.work(job)))
                    task.add_done_callback(tasks.discard)
                if not jobs:
                    # No room: until a job is done. No job: until there may be one. In any case
                    # until we are to stop.
                    others = {group.create_task(self.wait_for_work())} if free else set(tasks)
                    await asyncio.wait({stopped} | others, return_when=asyncio.FIRST_COMPLETED)
                    if free and stop.is_set():
                        others.pop().cancel()  # cancels the CALL
            # Told to stop, we end once what runs is done. After a signal it may end within the
            # grace period, and the rest is released. Beats continue meanwhile.
            while tasks and not stop.is_set():
                await asyncio.wait({stopped} | tasks, return_when=asyncio.FIRST_COMPLETED)
            if tasks:
                await asyncio.wait(tasks, timeout=GRACE)
            for _, handler in list(self.held.values()):
                handler.cancel()
            if tasks:
                await asyncio.wait(tasks)
            beats.cancel()
            stopped.cancel()
        await self.finishing.execute("select jobs.worker_leave(%s)", (NAME,))


async def main() -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    connect = psycopg.AsyncConnection.connect
    async with (
        await connect(URL, autocommit=True, application_name=NAME) as fetching,
        await connect(URL, autocommit=True, application_name=NAME) as finishing,
    ):
        await Worker(fetching, finishing).run(stop)


asyncio.run(main())
