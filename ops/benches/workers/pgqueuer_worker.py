"""PgQueuer, as its page about tuning says: larger batches for short jobs, of which it wants at most
half as many as may run at a time; one connection of asyncpg; the settings of `pgq autovac`."""

import asyncpg
import bench
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

PAYLOAD = b'{"user_id": 42, "template": "welcome"}'


async def driver():
    return AsyncpgDriver(await asyncpg.connect(bench.URL))


async def setup():
    queries = Queries(await driver())
    await queries.install()
    await queries.optimize_autovacuum()


async def fill(jobs):
    await Queries(await driver()).enqueue(["bench"] * jobs, [PAYLOAD] * jobs, [0] * jobs)


async def send():
    queries = Queries(await driver())
    await bench.send(lambda: queries.enqueue("bench", PAYLOAD))


async def work(concurrency, handle):
    queuer = PgQueuer(await driver())

    @queuer.entrypoint("bench")
    async def task(job):
        await handle()

    await queuer.run(batch_size=concurrency // 2, max_concurrent_tasks=concurrency)


bench.main(setup, fill, work, send)
