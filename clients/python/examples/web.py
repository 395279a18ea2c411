"""A web application that inserts jobs in its own transactions, and a worker beside it.

    pip install "..[binary]" fastapi uvicorn psycopg-pool
    DATABASE_URL=postgresql://app@localhost/shop uvicorn web:app
    DATABASE_URL=postgresql://app@localhost/shop python web.py     # the worker

    create table orders (id bigint generated always as identity primary key, customer text,
                         confirmed boolean default false);
"""

import os
from contextlib import asynccontextmanager
from dataclasses import dataclass

import psycopg
from fastapi import FastAPI
from psycopg_pool import AsyncConnectionPool

from postgres_jobs import Job, Worker, insert, wait_for

URL = os.environ.get("DATABASE_URL", "")
pool = AsyncConnectionPool(URL, open=False)
worker = Worker(URL, queues=["orders"])


@dataclass
class Confirm:
    order: int


@asynccontextmanager
async def lifespan(app: FastAPI):
    async with pool:
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders")
async def place_order(customer: str) -> dict:
    # The order and its job: both or neither.
    async with pool.connection() as connection:
        cursor = await connection.execute("insert into orders (customer) values (%s) returning id", [customer])
        (order,) = await cursor.fetchone()
        job = await insert(connection, "order.confirm", Confirm(order), queue="orders")
    return {"order": order, "job": job.id}


@app.get("/jobs/{job}")
async def wait_for_job(job: int) -> dict:
    # Waiting occupies a connection: better one of its own than one of the pool.
    async with await psycopg.AsyncConnection.connect(URL, autocommit=True) as connection:
        (result,) = await wait_for(connection, [job], timeout=5)
    return {"state": result.state, "output": result.output}


@worker.kind("order.confirm", timeout=30)
async def confirm(job: Job[Confirm]) -> None:
    # What the job changes and its end: both or neither, so never twice.
    async with await psycopg.AsyncConnection.connect(URL) as connection:
        await connection.execute("update orders set confirmed = true where id = %s", [job.args.order])
        await job.complete(connection, {"confirmed": job.args.order})


if __name__ == "__main__":
    worker.run()
