"""The tests need DATABASE_URL, a database with the extension."""

import os

import psycopg
import pytest

URL = os.environ.get("DATABASE_URL", "")


@pytest.fixture
def url() -> str:
    if not URL:
        pytest.skip("DATABASE_URL is not set")
    return URL


@pytest.fixture
def queue(url: str, request: pytest.FixtureRequest) -> str:
    """A queue of the test's own."""
    return f"{request.node.name[:80]} {os.urandom(4).hex()}"


@pytest.fixture
def look(url: str):
    """Runs a statement, and returns its rows."""
    with psycopg.connect(url, autocommit=True) as connection:
        yield lambda sql, *values: connection.execute(sql, values).fetchall()
