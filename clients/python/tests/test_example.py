"""The web application of the examples."""

import importlib

import psycopg
import pytest


@pytest.fixture
def web(url, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", url)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "create table if not exists orders (id bigint generated always as identity primary key,"
            " customer text, confirmed boolean default false)"
        )
    return importlib.import_module("web")


async def test_an_order_is_confirmed(web):
    await web.worker.start()
    async with web.lifespan(web.app):
        placed = await web.place_order("ann")
        for _ in range(12):  # 5 s each
            answer = await web.wait_for_job(placed["job"])
            if answer["state"] == "completed":
                break
        assert answer == {"state": "completed", "output": {"confirmed": placed["order"]}}
    await web.worker.stop()
