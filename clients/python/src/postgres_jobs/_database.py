"""Statements on the caller's connection, whatever its library.

Each conversation is a coroutine. On a blocking connection it never waits and ends at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

import psycopg
from psycopg.rows import tuple_row

from ._errors import hint_at

T = TypeVar("T")
Row = tuple[Any, ...]
# Takes a statement with at most one %s, and the text for it.
Execute = Callable[..., Awaitable[list[Row]]]
# That text as jsonb. The inner cast makes it a text for every driver.
JSONB = "cast(cast(%s as text) as jsonb)"
INSERT = f"select id, cast(state as text), unique_skipped_as_duplicate from jobs.insert_many({JSONB}) order by ord"
_CELLS = "postgres_jobs.cells"


class AsyncTransaction(Protocol):
    """An AsyncConnection or AsyncCursor of psycopg, an AsyncSession or AsyncConnection of
    SQLAlchemy, a Connection of asyncpg, AsyncCells."""

    def execute(self, *args: Any, **kwargs: Any) -> Awaitable[Any]: ...


Later = Coroutine[Any, Any, T]
"""What a call on an async connection returns. Type checkers report one that is not awaited."""


def is_async(connection: object) -> bool:
    is_psycopg = isinstance(connection, (psycopg.AsyncConnection, psycopg.AsyncCursor))
    if _is_of(connection, _CELLS):
        return hasattr(connection, "execute")
    return is_psycopg or _is_of(connection, "sqlalchemy.ext.asyncio") or _is_of(connection, "asyncpg")


def converse(connection: Any, talk: Callable[..., Later[Any]], *args: object, grant: str | None = None) -> Any:
    """Runs the coroutine now, or when it is awaited if the connection is async. `grant` is the
    function that gives a role the right to it."""

    async def execute(sql: str, *text: str) -> list[Row]:
        try:
            if _is_of(connection, _CELLS):
                rows: list[Row] = await connection._execute(sql, *text)
                return rows
            if is_async(connection):
                return await _execute_later(connection, sql, text)
            return _execute(connection, sql, text)
        except Exception as error:
            if grant:
                hint_at(error, grant, getattr(getattr(connection, "info", None), "user", None))
            raise

    said = talk(execute, *args)
    if is_async(connection):
        return said
    try:
        said.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("a call on a blocking connection has waited")


def _execute(connection: Any, sql: str, text: tuple[str, ...]) -> list[Row]:
    if _is_of(connection, "sqlalchemy"):
        return _rows_of_sqlalchemy(connection.execute(*_for_sqlalchemy(sql, text)))
    if isinstance(connection, psycopg.Cursor):
        connection = connection.connection
    if _is_of(connection, "django.db.backends.utils"):
        raise TypeError("a cursor of Django is not a connection: pass django.db.connection")
    if not hasattr(connection, "cursor"):
        raise TypeError(f"{type(connection).__name__} is not a connection or session: it has no cursor()")
    # A cursor of our own: the caller's may have unread rows, or another row factory.
    is_psycopg_3 = isinstance(connection, psycopg.Connection)
    with psycopg.Cursor(connection, row_factory=tuple_row) if is_psycopg_3 else connection.cursor() as cursor:
        cursor.execute(sql, text or None)
        rows = cursor.fetchall() if cursor.description else []
        return [tuple(row.values() if isinstance(row, dict) else row) for row in rows]


async def _execute_later(connection: Any, sql: str, text: tuple[str, ...]) -> list[Row]:
    if isinstance(connection, psycopg.AsyncCursor):
        connection = connection.connection
    if isinstance(connection, psycopg.AsyncConnection):
        async with psycopg.AsyncCursor(connection, row_factory=tuple_row) as cursor:
            await cursor.execute(sql.encode(), text or None)
            return await cursor.fetchall() if cursor.description else []
    if _is_of(connection, "asyncpg"):
        return [tuple(row) for row in await connection.fetch(sql.replace("%s", "$1"), *text)]
    return _rows_of_sqlalchemy(await connection.execute(*_for_sqlalchemy(sql, text)))


def _for_sqlalchemy(sql: str, text: tuple[str, ...]) -> tuple[Any, dict[str, str]]:
    import sqlalchemy  # installed: the connection is one of its own

    return sqlalchemy.text(sql.replace("%s", ":text")), {"text": one for one in text}


def _rows_of_sqlalchemy(result: Any) -> list[Row]:
    return [tuple(row) for row in result] if result.returns_rows else []


def _is_of(connection: object, package: str) -> bool:
    """Whether the connection's class, or one that it is derived from, is of the package."""
    return any(f"{one.__module__}.".startswith(f"{package}.") for one in type(connection).__mro__)
