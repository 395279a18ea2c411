"""What a type checker says of a program that uses the library: mypy --strict tests/typed.py."""

from collections.abc import Coroutine
from typing import Any

import psycopg
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session
from typing_extensions import assert_type

from postgres_jobs import Inserted, Job, NewJob, Unique, Worker, insert, insert_many, testing, wait_for

worker = Worker("", queues={"a": 3, "b": 1})


@worker.kind("typed", timeout=30)
async def typed(job: Job[dict[str, int]]) -> int:
    assert_type(job.args, dict[str, int])
    await job.progress({"done": 1})
    return job.args["n"]


@worker.otherwise()
def blocking(job: Job[str]) -> None:
    job.progress(1)


async def produce(connection: psycopg.AsyncConnection, session: AsyncSession, asyncpg: "Pg", job: Job[None]) -> None:
    assert_type(await insert(connection, "k", {"a": 1}, queue="q", unique_opts=Unique(by_args=True)), Inserted)
    assert_type(await insert(connection.cursor(), "k"), Inserted)
    assert_type(await insert(session, "k"), Inserted)
    later: Coroutine[Any, Any, Inserted] = insert(asyncpg, "k")
    assert_type(await later, Inserted)
    assert_type(await insert_many(session, [{"kind": "k", "args": {}, "priority": 1}]), list[Inserted[int | None]])
    assert_type((await wait_for(connection, [1]))[0].state, str | None)
    assert_type((await testing.assert_inserted(session, "k")).id, int)
    assert_type(await job.complete(session), None)


def produce_blocking(connection: psycopg.Connection, session: Session, job: Job[None]) -> None:
    assert_type(insert(connection, "k"), Inserted)
    assert_type(insert(connection.cursor(), "k"), Inserted)
    assert_type(insert(session, "k", timeout=30), Inserted)
    jobs: list[NewJob] = [{"kind": "k"}]
    assert_type(insert_many(connection, jobs), list[Inserted[int | None]])
    insert(connection, "k", prioritty=1)  # type: ignore[call-overload]
    insert_many(connection, [{"args": {}}])  # type: ignore[typeddict-item]
    job.complete(connection, {"a": 1})


class Pg:
    async def execute(self, query: str, *args: object, timeout: float | None = None) -> str:
        return query
