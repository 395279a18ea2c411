"""Inserting and completing with the connections of every library."""

import asyncio
import os

import asyncpg
import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from postgres_jobs import Inserted, Result, Unique, Worker, insert, insert_many, testing, wait_for

UNIQUE = Unique(by_args=True, by_queue=True)


def count(look, queue):
    return look("select count(*) from jobs.jobs where queue = %s", queue)[0][0]


def sqlalchemy_url(url, driver):
    return sqlalchemy.make_url(url).set(drivername=f"postgresql+{driver}")


def with_psycopg(url):
    with psycopg.connect(url, row_factory=dict_row) as connection:
        yield connection, connection.commit, connection.rollback


def with_a_cursor(url):
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        yield cursor, connection.commit, connection.rollback


def with_session(url):
    with Session(sqlalchemy.create_engine(sqlalchemy_url(url, "psycopg"))) as session:
        yield session, session.commit, session.rollback


def with_sqlalchemy_and_psycopg_2(url):
    with sqlalchemy.create_engine(sqlalchemy_url(url, "psycopg2")).connect() as connection:
        yield connection, connection.commit, connection.rollback


def with_django(url):
    import django.conf
    from django.db import connection

    if not django.conf.settings.configured:
        parts = psycopg.conninfo.conninfo_to_dict(url)
        names = {"NAME": "dbname", "USER": "user", "HOST": "host", "PORT": "port"}
        database = {"ENGINE": "django.db.backends.postgresql"} | {to: parts[name] for to, name in names.items()}
        django.conf.settings.configure(DATABASES={"default": database})
    connection.set_autocommit(False)
    yield connection, connection.commit, connection.rollback
    connection.close()


BLOCKING = [with_psycopg, with_a_cursor, with_session, with_sqlalchemy_and_psycopg_2, with_django]


@pytest.mark.parametrize("library", BLOCKING)
def test_blocking(library, url, queue, look):
    for connection, commit, rollback in library(url):
        insert(connection, "k", {"n": "%s :n"}, queue=queue)
        rollback()
        assert count(look, queue) == 0
        first = insert(connection, "k", {"n": "%s :n"}, queue=queue, unique_opts=UNIQUE)
        again = insert(connection, "k", {"n": "%s :n"}, queue=queue, unique_opts=UNIQUE)
        assert (first.duplicate, again) == (False, Inserted(first.id, "available", True))
        many = insert_many(connection, [{"kind": "a", "queue": queue}, {"kind": "b", "queue": queue, "meta": {"m": 1}}])
        commit()
        assert [one.state for one in many] == ["available"] * 2
        rows = look("select kind, args, meta from jobs.jobs where queue = %s order by id", queue)
        assert rows == [("k", {"n": "%s :n"}, {}), ("a", {}, {}), ("b", {}, {"m": 1})]


@pytest.mark.parametrize("library", BLOCKING)
def test_completing(library, url, queue):
    worker = Worker(url, queues=[queue])
    for connection, _, rollback in library(url):
        worker.kind("k")(lambda job: job.complete(connection, {"n": "%s :n"}))
        insert(connection, "k", queue=queue)
        (worked,) = testing.work_all(connection, worker)
        assert (worked.state, worked.output) == ("completed", {"n": "%s :n"})
        rollback()


async def completing(connection, rollback, url, queue):
    worker = Worker(url, queues=[queue])

    @worker.kind("k")
    async def complete(job):
        await job.complete(connection, {"n": 1})

    await insert(connection, "k", queue=queue)
    (worked,) = await testing.work_all(connection, worker)
    assert (worked.state, worked.output) == ("completed", {"n": 1})
    await rollback()


def in_autocommit_with_psycopg(url):
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
        yield connection


def in_autocommit_with_session(url):
    with Session(sqlalchemy.create_engine(sqlalchemy_url(url, "psycopg"), isolation_level="AUTOCOMMIT")) as session:
        yield session


def in_autocommit_with_sqlalchemy_and_psycopg_2(url):
    engine = sqlalchemy.create_engine(sqlalchemy_url(url, "psycopg2"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        yield connection


def in_autocommit_with_django(url):
    for connection, _, _ in with_django(url):
        connection.set_autocommit(True)
        yield connection


IN_AUTOCOMMIT = [in_autocommit_with_psycopg, in_autocommit_with_session]
IN_AUTOCOMMIT += [in_autocommit_with_sqlalchemy_and_psycopg_2, in_autocommit_with_django]


@pytest.mark.parametrize("library", IN_AUTOCOMMIT)
def test_waiting(library, url, queue):
    for connection in library(url):
        job = insert(connection, "k", queue=queue)
        assert wait_for(connection, [job.id], 0.1) == [Result(job.id, "available", None, None)]


async def awaiting(connection, commit, rollback, look, queue):
    await insert(connection, "k", {"n": 1}, queue=queue)
    await rollback()
    assert count(look, queue) == 0
    first = await insert(connection, "k", {"n": 1}, queue=queue, unique_opts=UNIQUE)
    again = await insert(connection, "k", {"n": 1}, queue=queue, unique_opts=UNIQUE)
    assert again == Inserted(first.id, "available", True)
    await insert_many(connection, [{"kind": "a", "queue": queue}])
    await commit()
    assert count(look, queue) == 2


async def test_psycopg_async(url, queue, look):
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await awaiting(connection, connection.commit, connection.rollback, look, queue)
        async with connection.cursor() as cursor:
            await insert(cursor, "c", queue=queue)
        await connection.commit()
    assert count(look, queue) == 3


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_async_session(driver, url, queue, look):
    engine = create_async_engine(sqlalchemy_url(url, driver))
    async with AsyncSession(engine) as session:
        await awaiting(session, session.commit, session.rollback, look, queue)
        await completing(session, session.rollback, url, f"{queue} completed")
    await engine.dispose()
    engine = create_async_engine(sqlalchemy_url(url, driver), isolation_level="AUTOCOMMIT")
    async with AsyncSession(engine) as session:
        job = await insert(session, "k", queue=queue)
        assert await wait_for(session, [job.id], 0.1) == [Result(job.id, "available", None, None)]
    await engine.dispose()


async def test_asyncpg(url, queue, look):
    connection = await asyncpg.connect(url)
    transactions = [connection.transaction()]
    await transactions[0].start()

    async def rollback():
        await transactions[-1].rollback()
        transactions.append(connection.transaction())
        await transactions[-1].start()

    await awaiting(connection, lambda: transactions[-1].commit(), rollback, look, queue)
    job = await insert(connection, "k", queue=queue)
    assert await wait_for(connection, [job.id], 0.1) == [Result(job.id, "available", None, None)]
    transactions.append(connection.transaction())
    await transactions[-1].start()
    await completing(connection, transactions[-1].rollback, url, f"{queue} completed")
    await connection.close()


def test_what_is_no_connection(url):
    for bad in (url, sqlalchemy.create_engine(sqlalchemy_url(url, "psycopg")), None):
        with pytest.raises((TypeError, AttributeError)):
            insert(bad, "k")


def test_a_cursor_of_django_is_refused_with_what_to_do(url):
    for connection, _, _ in with_django(url):
        with connection.cursor() as cursor, pytest.raises(TypeError, match="pass django.db.connection"):
            insert(cursor, "k")


def test_a_time_without_zone_is_refused(url, queue):
    from datetime import datetime

    with psycopg.connect(url) as connection, pytest.raises(ValueError, match="time zone"):
        insert(connection, "k", queue=queue, scheduled_at=datetime(2030, 1, 1))


def test_waiting_needs_autocommit(url, queue):
    with psycopg.connect(url) as connection, pytest.raises(psycopg.errors.ActiveSqlTransaction):
        connection.execute("select 1")
        wait_for(connection, [1], 0.1)


async def test_waiting_asynchronously(url, queue):
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        job = await insert(connection, "k", queue=queue)
        waiting = asyncio.create_task(wait_for(connection, [job.id], 0.1))
        assert [one.state for one in await waiting] == ["available"]
        assert (await wait_for(connection, [2**52], 0))[0].state is None


def test_nothing_is_imported_that_is_not_there(url):
    import subprocess
    import sys

    code = "import sys, postgres_jobs; print([m for m in sys.modules if m.partition('.')[0] in ('sqlalchemy', 'django', 'pydantic', 'opentelemetry', 'asyncpg')])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": "src"})
    assert out.stdout == "[]\n"
