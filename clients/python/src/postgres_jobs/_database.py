"""Statements on the caller's connection, whatever its library.

What is said to a database is a generator: it yields statements and is sent their rows. So it is
written once, for connections that block and for those that are awaited.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from typing import Any, Protocol, TypeVar

import psycopg
from psycopg.rows import tuple_row

T = TypeVar("T")
Row = tuple[Any, ...]
# A statement with one %s, and the text for it. A statement without %s has no use for the text.
Talk = Generator[tuple[str, str], list[Row], T]


class AsyncTransaction(Protocol):
    """An AsyncConnection or AsyncCursor of psycopg, an AsyncSession or AsyncConnection of
    SQLAlchemy, a Connection of asyncpg."""

    def execute(self, *args: Any, **kwargs: Any) -> Awaitable[Any]: ...


def is_async(connection: Any) -> bool:
    is_psycopg = isinstance(connection, (psycopg.AsyncConnection, psycopg.AsyncCursor))
    return is_psycopg or _is_of(connection, "sqlalchemy.ext.asyncio") or _is_of(connection, "asyncpg")


def converse(connection: Any, talk: Talk[T]) -> Any:
    """Has the talk, now or when it is awaited."""
    if is_async(connection):
        return _converse_later(connection, talk)
    try:
        statement = next(talk)
        while True:
            try:
                rows = _execute(connection, *statement)
            except BaseException as error:
                talk.throw(error)
                raise
            statement = talk.send(rows)
    except StopIteration as end:
        return end.value


async def _converse_later(connection: Any, talk: Talk[T]) -> T:
    try:
        statement = next(talk)
        while True:
            try:
                rows = await _execute_later(connection, *statement)
            except BaseException as error:
                talk.throw(error)
                raise
            statement = talk.send(rows)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def _execute(connection: Any, sql: str, text: str) -> list[Row]:
    if isinstance(connection, psycopg.Cursor):
        connection = connection.connection
    if isinstance(connection, psycopg.Connection):
        # A cursor of our own: the caller's may have rows to read, or rows of another form.
        with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
            cursor.execute(sql.encode(), [text] if "%s" in sql else None)
            return cursor.fetchall() if cursor.description else []
    if _is_of(connection, "sqlalchemy"):
        result = connection.execute(*_for_sqlalchemy(sql, text))
        return [tuple(row) for row in result] if result.returns_rows else []
    if not hasattr(connection, "cursor"):
        raise TypeError(
            f"a {type(connection).__name__} is no connection: give one of psycopg, SQLAlchemy's Session or "
            "Connection, Django's django.db.connection, or what has a cursor()"
        )
    with connection.cursor() as cursor:  # Django, psycopg 2
        cursor.execute(sql, [text] if "%s" in sql else None)
        rows = cursor.fetchall() if cursor.description else []
        return [tuple(row.values() if isinstance(row, dict) else row) for row in rows]


async def _execute_later(connection: Any, sql: str, text: str) -> list[Row]:
    if isinstance(connection, psycopg.AsyncCursor):
        connection = connection.connection
    if isinstance(connection, psycopg.AsyncConnection):
        async with psycopg.AsyncCursor(connection, row_factory=tuple_row) as cursor:
            await cursor.execute(sql.encode(), [text] if "%s" in sql else None)
            return await cursor.fetchall() if cursor.description else []
    if _is_of(connection, "asyncpg"):
        rows = await connection.fetch(sql.replace("%s", "$1"), *([text] if "%s" in sql else []))
        return [tuple(row) for row in rows]
    result = await connection.execute(*_for_sqlalchemy(sql, text))
    return [tuple(row) for row in result] if result.returns_rows else []


def _for_sqlalchemy(sql: str, text: str) -> tuple[Any, dict[str, str]]:
    import sqlalchemy  # it is there: the connection is one of its own

    return sqlalchemy.text(sql.replace("%s", ":text")), {"text": text} if "%s" in sql else {}


def _is_of(connection: object, package: str) -> bool:
    """Whether the connection's class, or one that it is derived from, is of the package."""
    return any(f"{one.__module__}.".startswith(f"{package}.") for one in type(connection).__mro__)
