"""procrastinate. It fetches one job at a time and finishes each by itself, and has no batches. Its
pool has a connection for every four jobs that run, and one to listen on."""

import asyncio
import logging

import bench
from procrastinate import App, PsycopgConnector

PAYLOAD = {"user_id": 42, "template": "welcome"}


def application(connections=4):
    return App(connector=PsycopgConnector(conninfo=bench.URL, min_size=connections, max_size=connections))


async def setup():
    async with application().open_async() as app:
        await app.schema_manager.apply_schema_async()


async def fill(jobs):
    async with application().open_async() as app:
        task = app.configure_task("bench", queue="bench")
        await task.batch_defer_async(*[PAYLOAD] * jobs)


async def send():
    async with application().open_async() as app:
        task = app.configure_task("bench", queue="bench")
        await bench.send(lambda: task.defer_async(**PAYLOAD))


async def work(concurrency, handle):
    app = application(concurrency // 4 + 3)

    @app.task(name="bench", queue="bench")
    async def task(user_id, template):
        await handle()

    async with app.open_async():
        await app.run_worker_async(queues=["bench"], concurrency=concurrency, listen_notify=True)


bench.main(setup, fill, work, send)
