"""A connection that reconnects when it breaks."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import Collection
from contextlib import suppress
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import tuple_row

from ._database import Row
from ._errors import hint_at, shown
from .job import log

# SQLSTATEs of errors that pass by themselves. A rollback needs no new connection: 57014 comes from
# a statement_timeout, as while another transaction has the job locked.
_ROLLED_BACK = {"40001", "40P01", "55P03", "57014"}
_UNAVAILABLE = {"57P01", "57P02", "57P03", "57P04", "57P05", "25006"}


# Seconds. The network itself can take much longer to detect a dead peer, and cannot see past a
# pooler.
PATIENCE = 120


class Backoff:
    """Pauses that get longer: 0.1 s, doubled up to 10 s, each ± 25 %."""

    def __init__(self) -> None:
        self.next = 0.1
        self.is_hurried = asyncio.Event()

    @property
    def is_on(self) -> bool:
        return self.next > 0.1

    async def pause(self) -> None:
        pause, self.next = self.next * random.uniform(0.75, 1.25), min(self.next * 2, 10)
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.is_hurried.wait(), pause)

    def end(self) -> None:
        """Ends a pause under way and resets the next one."""
        self.next = 0.1
        self.is_hurried.set()
        self.is_hurried.clear()


def connection_options(dsn: str, name: str | None = None) -> dict[str, Any]:
    """The parameters of psycopg's connect."""
    given = conninfo_to_dict(dsn, client_encoding="utf8", fallback_application_name=name)
    # A broken network must not look like a wait for work.
    network = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 30_000}
    # No statement is prepared: a pooler may give each another session.
    of_psycopg = {"autocommit": True, "prepare_threshold": None, "row_factory": tuple_row}
    return {"connect_timeout": 10, **network, **given, **of_psycopg}


class Link:
    """One connection in autocommit, used by one statement at a time. `passing`: SQLSTATEs of more
    errors that pass by themselves."""

    def __init__(self, dsn: str, worker: str, *, can_end: bool = False, passing: Collection[str] = ()) -> None:
        self.options = connection_options(dsn, worker)
        self.passing = passing
        self.connection: psycopg.AsyncConnection[Any] | None = None
        self.lock = asyncio.Lock()
        self.backoff = Backoff()
        self.is_busy = False
        """Whether a statement is under way whose effect would be lost if it were abandoned."""
        self.is_closing = False
        """Set when a statement is not repeated any more."""
        self.can_end = can_end
        """Whether an error of a first run ends the worker: until a call has succeeded."""

    async def run(self, sql: str, *values: object, patience: float = PATIENCE, is_repeated: bool = True) -> list[Row]:
        """Repeats the statement until it is answered, or else returns no rows after a pause. A
        connection without an answer for `patience` seconds counts as broken. Raises errors that do
        not pass by themselves."""
        async with self.lock:
            while True:
                try:
                    rows = await self._run(sql, values, patience)
                    self.backoff.end()
                    return rows
                except psycopg.Error as error:
                    if self.ends_with(error) or not await self._passes(error) or self.is_closing:
                        raise
                    await self._pause(error)
                    if not is_repeated:
                        return []

    async def wait(self, sql: str, *values: object, patience: float) -> None:
        """Runs a CALL that waits. It may be abandoned. When the connection breaks it returns after
        a pause, since the caller looks for work then anyway."""
        try:
            await self._run(sql, values, patience, is_wait=True)
        except psycopg.Error as error:
            if self.ends_with(error) or not await self._passes(error):
                raise
            await self._pause(error)

    async def _pause(self, error: psycopg.Error) -> None:
        log.warning("call failed, retrying: %s", shown(error), extra={"error": error})
        await self.backoff.pause()

    async def _run(self, sql: str, values: tuple[object, ...], patience: float, is_wait: bool = False) -> list[Row]:
        if self.connection is None:
            self.connection = await psycopg.AsyncConnection.connect(**self.options)
        self.is_busy = not is_wait
        limit = asyncio.get_running_loop().call_later(patience, _break, self.connection, patience)
        try:
            cursor = await self.connection.execute(sql.encode(), values)
            rows = await cursor.fetchall() if cursor.description else []
            self.can_end &= "jobs." not in sql
            return rows
        finally:
            limit.cancel()
            self.is_busy = False

    def ends_with(self, error: BaseException) -> bool:
        """Whether the error ends the worker. Adds a hint to it then."""
        role = self.connection.info.user if self.connection else None
        return self.can_end and hint_at(error, "grant_worker", role, of_connection=True)

    async def _passes(self, error: psycopg.Error) -> bool:
        """Whether to retry after the error. Every error while connecting passes."""
        is_of_connection = isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
        state = error.sqlstate or ("08000" if is_of_connection else "")
        if self.connection is None or state in _UNAVAILABLE or state.startswith("08"):
            await self.close()
            return True
        return state in _ROLLED_BACK or state in self.passing

    async def close(self) -> None:
        connection, self.connection = self.connection, None
        if connection:
            await connection.close()


def _break(connection: psycopg.AsyncConnection[Any], after: float) -> None:
    """Fails the statement under way as a network failure does. To cancel the task instead would ask
    the server to cancel the statement, and wait for its answer."""
    log.warning("no answer from the database within %s s", after)
    with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)
