"""Awa, with the claims of up to 512 jobs and the completions in batches that are its defaults and
that its documentation recommends before more claimers."""

import asyncio
from dataclasses import dataclass

import awa
import bench


@dataclass
class Bench:
    user_id: int
    template: str


PAYLOAD = Bench(42, "welcome")


async def setup():
    client = awa.AsyncClient(bench.URL)
    await client.migrate()
    await client.install_queue_storage()


async def fill(jobs):
    await awa.AsyncClient(bench.URL).enqueue_many_copy([PAYLOAD] * jobs, queue="bench")


async def send():
    client = awa.AsyncClient(bench.URL)
    await bench.send(lambda: client.insert(PAYLOAD, queue="bench"))


async def work(concurrency, handle):
    client = awa.AsyncClient(bench.URL, max_connections=10)

    @client.task(Bench, queue="bench")
    async def task(job):
        await handle()

    await client.start([("bench", concurrency)])
    await asyncio.Event().wait()


bench.main(setup, fill, work, send)
