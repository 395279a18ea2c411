"""Several databases that share queues, in place of one."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from ._database import INSERT, JSONB, Row
from ._errors import refuse
from ._link import connection_options
from ._values import as_kept, encode

WRONG_CELL = "JB001"

MAP = """
    select cast(json_build_object('database', current_database(), 'cell', c.cell, 'identity', c.identity,
             'is_retired', c.retired_at is not null, 'others', coalesce(o.list, '{}'), 'placements', coalesce(p.list, '{}')) as text)
      from (select json_object_agg(queue, to_json(p)) as list from jobs.placements p) p,
           (select json_object_agg(cell, identity) as list from jobs.cells where not is_self and identity is not null) o
      left join jobs.cells c on c.is_self"""

_ASK = f"""
    select jobs.cell_for(job->>'kind', args => coalesce(job->'args', '{{}}'), unique_opts => job->'unique_opts',
                         queue => job->>'queue', meta => job->'meta')
      from jsonb_array_elements({JSONB}) with ordinality as jobs(job, n) order by n"""

Map = dict[str, Any]
"""What a database says of itself, of other cells and of the queues."""


def check(maps: Iterable[Map]) -> None:
    """Raises RuntimeError unless the databases are different cells that know each other."""
    for one, other in itertools.permutations([map for map in maps if not map["is_retired"]], 2):
        name, number = other["database"], other["cell"]
        if number is None:
            refuse(f'the database "{name}" has no cell number', "Run jobs.set_cell in it, or remove it from the list.")
        if number == one["cell"]:
            error = f'the databases "{one["database"]}" and "{name}" are both cell {number}'
            refuse(error, "Remove one of them from the list.")
        if one["others"].get(str(number), other["identity"]) != other["identity"]:
            hint = f"If cell {number} was reinstated, call jobs.set_cell_address with its new identity in cell {one['cell']}."
            refuse(f'the database "{name}" is not the cell {number} that cell {one["cell"]} knows', f"Check its URL. {hint}")


def queues_here(map: Map, queues: Iterable[str]) -> list[str]:
    """Those of the queues that live in this database."""
    cell = map["cell"]
    return [queue for queue in queues if cell is None or cell in _placement(map, queue)[1]]


def _placement(map: Map, queue: str) -> tuple[dict[str, list[str]], list[int]]:
    placements = map["placements"]
    placement = placements.get(as_kept(queue)) or placements.get("*") or {"by": None, "cells": []}
    return placement["by"] or {}, placement["cells"]


def _cell_of(map: Map, job: dict[str, Any]) -> int | None:
    """The cell of the job, or None if the database must be asked."""
    by, cells = _placement(map, job.get("queue") or "")
    if not job.get("queue") or not cells:
        return None
    for field, (path,) in by.items():
        value = job.get(field.removeprefix("by_"))
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        if "\\" in path or not (isinstance(value, str) or type(value) is int and abs(value) < 2**53):
            return None
        text = encode(as_kept(value) if isinstance(value, str) else value)
        return cells[int.from_bytes(sha256(text.encode()).digest()[:8], "big") % len(cells)]
    return cells[0]


class Cells:
    """A list of databases, each a URL or libpq connection string, in place of a connection in
    `insert` and `insert_many`. Each job is inserted and committed in its cell.

    Uses as many connections as inserts run at a time, in as many threads, and keeps them."""

    def __init__(self, databases: Sequence[str]) -> None:
        if isinstance(databases, str) or not databases:
            raise ValueError(f"databases must be a list of at least one URL or connection string, not {databases!r}")
        self.idle: dict[str, list[Any]] = {database: [] for database in databases}
        self.maps: dict[str, Map] = {}
        """Of the databases that could be read, in the order of the list, the retired ones last."""
        self.down: Exception | None = None
        """Why another one could not."""

    def close(self) -> None:
        """Closes the connections that no insert uses."""
        for connection in itertools.chain(*self.idle.values()):
            connection.close()

    # No coroutine of this class waits: AsyncCells does.
    async def _run(self, database: str, sql: str, *text: str) -> list[Row]:
        idle = self.idle[database]
        connection = idle.pop() if idle else psycopg.connect(**connection_options(database))
        try:
            return connection.execute(sql.encode(), text).fetchall()
        finally:
            for broken in _give_back(connection, idle):
                broken.close()

    async def _execute(self, sql: str, *text: str) -> list[Row]:
        if sql != INSERT:
            raise TypeError("Cells can only insert: pass a connection to the cell")
        jobs = json.loads(*text)
        rows: list[Row] = [()] * len(jobs)
        for database, part in _parts(await self._place(jobs)):
            try:
                await self._insert(database, jobs, part, rows)
            except psycopg.Error as refusal:
                if refusal.sqlstate != WRONG_CELL:
                    raise
                cells = await self._ask(database, [jobs[n] for n in part])
                await self._read()
                homes = [self._database(cell) for cell in cells]
                if None in cells or None in homes or database in homes:
                    raise
                for home, smaller in _parts(homes):
                    await self._insert(home, jobs, [part[n] for n in smaller], rows)
        return rows

    async def _insert(self, database: Any, jobs: list[Any], part: list[int], rows: list[Row]) -> None:
        for n, row in zip(part, await self._run(database, INSERT, encode([jobs[n] for n in part]))):
            rows[n] = row

    async def _place(self, jobs: list[Any]) -> list[str]:
        """The database of each job."""
        if not self.maps:
            await self._read()
        cells = [_cell_of(self._first, job) for job in jobs]
        asked = [n for n, cell in enumerate(cells) if cell is None]
        if asked:
            for n, cell in zip(asked, await self._ask(None, [jobs[n] for n in asked])):
                cells[n] = cell
        if None in map(self._database, cells):
            await self._read()
        homes = []
        for cell in cells:
            if (home := self._database(cell)) is None:
                if self.down:
                    raise self.down
                refuse(f"cell {cell} is none of the databases", "Add it to the list.")
            homes.append(home)
        return homes

    async def _ask(self, database: str | None, jobs: list[Any]) -> list[int | None]:
        try:
            return [cell for (cell,) in await self._run(database or next(iter(self.maps)), _ASK, encode(jobs))]
        except (psycopg.OperationalError, psycopg.InterfaceError):
            if database:
                raise
            await self._read()  # and ask the next one
            return await self._ask(next(iter(self.maps)), jobs)

    @property
    def _first(self) -> Map:
        return next(iter(self.maps.values()))

    def _database(self, cell: int | None) -> str | None:
        """None: it is not known. Where no cell takes the job, the first one says so."""
        if cell is None:
            return next(iter(self.maps))
        return next((database for database, map in self.maps.items() if (map["cell"] or 0) == cell), None)

    async def _read(self) -> None:
        maps, down = {}, None
        for database in self.idle:
            try:
                ((text,),) = await self._run(database, MAP)
                maps[database] = json.loads(text)
            except psycopg.Error as error:
                down = error
        check(maps.values())
        if down and not maps:
            raise down
        self.maps, self.down = dict(sorted(maps.items(), key=lambda one: one[1]["is_retired"])), down


class AsyncCells(Cells):
    """Cells for programs with an event loop: what takes them is awaited."""

    async def execute(self, sql: str, *text: str) -> list[Row]:
        return await self._execute(sql, *text)

    async def close(self) -> None:  # type: ignore[override]
        for connection in itertools.chain(*self.idle.values()):
            await connection.close()

    async def _run(self, database: str, sql: str, *text: str) -> list[Row]:
        idle = self.idle[database]
        connection = idle.pop() if idle else await psycopg.AsyncConnection.connect(**connection_options(database))
        try:
            return await (await connection.execute(sql.encode(), text)).fetchall()
        finally:
            for broken in _give_back(connection, idle):
                await broken.close()


def _give_back(connection: Any, idle: list[Any]) -> list[Any]:
    """Returns what to close. If a connection is broken, the idle ones may be as well."""
    idle.append(connection)
    if connection.info.transaction_status == TransactionStatus.IDLE:
        return []
    broken = idle[:]
    del idle[: len(broken)]
    return broken


def _parts(homes: Sequence[Any]) -> list[tuple[Any, list[int]]]:
    """The numbers of the jobs of each database, in the order of their first jobs."""
    return [(home, [n for n, one in enumerate(homes) if one == home]) for home in dict.fromkeys(homes)]
