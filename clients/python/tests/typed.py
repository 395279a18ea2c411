"""What type checkers say of a program that uses the library: mypy --strict, and basedpyright, whose
rules are those of pyright."""

from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session
from typing_extensions import assert_type

from postgres_jobs import AsyncCells, Cells, CertainJob, Inserted, Job, Kind, NewJob, Unique, Worker
from postgres_jobs import insert, insert_many, insert_middleware, opentelemetry, testing, wait_for


async def around(job: Job[Any], call_next: Callable[[Job[Any]], Awaitable[Any]]) -> Any:
    return await call_next(job)


async def around_nothing(job: Job[Any]) -> Any: ...


worker = Worker("", queues={"a": 3, "b": 1}, middleware=[around, opentelemetry.around_work])
Worker("", middleware=[around_nothing])  # type: ignore[list-item]  # pyright: ignore


@worker.kind("typed", timeout=30)
async def typed(job: Job[dict[str, int]]) -> int:
    assert_type(job.args, dict[str, int])
    await job.progress({"done": 1})
    return job.args["n"]


@worker.otherwise()
def blocking(job: Job[str]) -> None:
    job.progress(1)


@dataclass
class Email:
    to: str


SendEmail = Kind("email.send", Email, queue="mail", timeout=30)
Either: Kind[Email | None] = Kind("either", Email | None)


@worker.kind(SendEmail)
async def send(job: Job[Email]) -> str:
    return job.args.to


@worker.batch(SendEmail, size=10, linger=0.1)
async def send_all(jobs: list[Job[Email]]) -> None:
    for job in jobs:
        job.end(job.args.to)


@worker.kind(SendEmail)  # type: ignore[arg-type]  # pyright: ignore
async def send_wrongly(job: Job[int]) -> None: ...


worker.periodic("nightly", "@daily", SendEmail, Email("me"), time_zone="Europe/Berlin")
worker.periodic("hourly", "@hourly", "typed", {"n": 1})
worker.periodic("weekly", "@weekly", SendEmail, 1)  # type: ignore[misc]  # pyright: ignore


@contextmanager
def with_tenant(jobs: list[NewJob]) -> Iterator[None]:
    for job in jobs:
        job.setdefault("meta", {})["tenant"] = "blue"
    yield


insert_middleware.append(with_tenant)


async def forgets(session: AsyncSession, job: Job[None]) -> None:
    """Type checkers find each `await` that is missing."""
    insert(session, "k")  # type: ignore[unused-coroutine]  # pyright: ignore
    insert_many(session, [])  # type: ignore[unused-coroutine]  # pyright: ignore
    SendEmail.insert(session, Email("me"))  # type: ignore[unused-coroutine]  # pyright: ignore
    wait_for(session, [1])  # type: ignore[unused-coroutine]  # pyright: ignore
    job.complete(session)  # type: ignore[unused-coroutine]  # pyright: ignore
    testing.advance(session, 1)  # type: ignore[unused-coroutine]  # pyright: ignore
    worker.sync(session)  # type: ignore[unused-coroutine]  # pyright: ignore


async def produce(connection: psycopg.AsyncConnection, session: AsyncSession, asyncpg: "Pg", job: Job[None]) -> None:
    assert_type(await insert(connection, "k", {"a": 1}, queue="q", unique_opts=Unique(by_args=True)), Inserted)
    assert_type(await insert(connection.cursor(), "k"), Inserted)
    assert_type(await insert(session, "k"), Inserted)
    assert_type(await insert(AsyncCells(["a", "b"]), "k"), Inserted)
    later: Coroutine[Any, Any, Inserted] = insert(asyncpg, "k")
    assert_type(await later, Inserted)
    assert_type(await insert_many(session, [{"kind": "k", "args": {}, "priority": 1}]), list[Inserted])
    assert_type((await wait_for(connection, [1]))[0].state, str | None)
    assert_type((await testing.assert_inserted(session, "k")).id, int)
    assert_type(await job.complete(session), None)


def produce_blocking(connection: psycopg.Connection, session: Session, job: Job[None]) -> None:
    assert_type(insert(connection, "k").id, int)
    assert_type(insert(connection, "k", unique_opts=Unique(by_args=True)).id, int)
    assert_type(insert(connection, "k", unique_opts=Unique(by_args=True, wait=False)).id, int | None)
    assert_type(SendEmail.insert(connection, Email("me"), priority=2), Inserted)
    assert_type(insert_many(connection, [SendEmail.job(Email("me"))])[0].id, int)
    certain: list[CertainJob] = [{"kind": "k", "unique_opts": Unique(by_args=True)}]
    assert_type(insert_many(connection, certain)[0].id, int)
    uncertain = SendEmail.job(Email("me"), unique_opts=Unique(by_args=True, wait=False))
    assert_type(insert_many(connection, [uncertain])[0].id, int | None)
    SendEmail.insert(connection, {"to": "me"})  # type: ignore[call-overload]  # pyright: ignore
    assert_type(insert(connection, SendEmail, Email("me")).id, int)
    assert_type(testing.assert_inserted(connection, SendEmail).id, int)
    assert_type(testing.job(Email("me"), attempt=2).args, Email)
    assert_type(insert(connection, "k"), Inserted)
    assert_type(insert(connection.cursor(), "k"), Inserted)
    assert_type(insert(session, "k", timeout=30), Inserted)
    assert_type(insert(Cells(["a", "b"]), "k"), Inserted)
    jobs: list[NewJob] = [{"kind": "k"}]
    assert_type(insert_many(connection, jobs), list[Inserted[int | None]])
    insert(connection, "k", prioritty=1)  # type: ignore[call-overload]  # pyright: ignore
    insert_many(connection, [{"args": {}}])  # type: ignore[typeddict-item]  # pyright: ignore
    job.complete(connection, {"a": 1})


class Pg:
    async def execute(self, query: str, *args: object, timeout: float | None = None) -> str:
        return query
