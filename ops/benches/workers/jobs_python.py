"""Our library in Python; and what the workers in all languages work on."""

import asyncio
import os

import bench
import psycopg

ARGS = '{"user_id": 42, "template": "welcome"}'


def connect():
    return psycopg.AsyncConnection.connect(bench.URL, autocommit=True)


async def setup():
    await (await connect()).execute("create extension jobs")


async def fill(jobs):
    sql = "select count(*) from jobs.insert_batch('bench', array_fill(%s::jsonb, array[%s::int]), queue => 'bench')"
    await (await connect()).execute(sql, (ARGS, jobs))


async def send():
    connection = await connect()
    sql = "select id from jobs.insert('bench', %s::jsonb, queue => 'bench')"
    await bench.send(lambda: connection.execute(sql, (ARGS,), prepare=True))


async def work(concurrency, handle):
    from postgres_jobs import Worker

    worker = Worker(bench.URL, queues=["bench"], concurrency=concurrency, prefetch=int(os.environ.get("PREFETCH", "0")))
    worker.kind("bench")(handle)
    await worker.start()
    await asyncio.Event().wait()


bench.main(setup, fill, work, send)
