"""Inserts jobs and waits for them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, TypeVar, overload

from ._database import INSERT, AsyncTransaction, Execute, Later, converse
from ._values import Duration, encode, seconds

if TYPE_CHECKING:
    from typing_extensions import Required, Unpack
    from typing_extensions import TypeVar as TypeVarWithDefault

    Id = TypeVarWithDefault("Id", covariant=True, default=int)
else:
    Id = TypeVar("Id")

A = TypeVar("A")
Want = Literal["all", "any"]


class UniqueOptions(TypedDict, total=False):
    """What makes a job unique, and what happens to a duplicate: see docs/uniqueness.md. None leaves
    an option to the server."""

    by_kind: bool | None
    """By kind alone."""
    by_args: bool | Sequence[str] | None
    """By all args (True), or by these paths of them."""
    by_meta: Sequence[str] | None
    """By these paths of meta."""
    by_queue: bool | None
    """Also by queue."""
    by_period: Duration | str | None
    """Also by the current time or scheduled_at, rounded down to a multiple of this."""
    by_state: Sequence[str] | None
    """The states in which an existing job conflicts. Default: all but cancelled and discarded."""
    window: Duration | str | None
    """An existing job conflicts only while it is younger than this."""
    window_from: Literal["created_at", "scheduled_at"] | None
    hold_for: Duration | str | None
    """How long the job holds its key, even if it is deleted."""
    hold_until: Literal["success", "start"] | None
    """What releases the hold early. Default: success."""
    exclude_kind: bool | None
    key: str | None
    """Use this text instead of args, meta, queue and period."""
    on_conflict: str | Mapping[str, Any] | None
    """skip (the default), reject, replace, replace_except_schedule or {"update": ..}."""


@dataclass(init=False)
class Unique(Generic[Id]):
    """Unique options. An empty Unique() means not unique, even if the kind has unique options.
    wait=False skips the job while another transaction is inserting its key: then it has no id."""

    options: dict[str, Any]

    @overload
    def __init__(self: Unique[int], *, wait: Literal[True] | None = ..., **options: Unpack[UniqueOptions]) -> None: ...
    @overload
    def __init__(self: Unique[int | None], *, wait: bool, **options: Unpack[UniqueOptions]) -> None: ...
    def __init__(self, **options: Any) -> None:
        if unknown := options.keys() - UniqueOptions.__annotations__ - {"wait"}:
            raise TypeError(f"there is no unique option {min(unknown)!r}")
        self.options = {name: value for name, value in options.items() if value is not None}


class Defaults(TypedDict, total=False):
    """The options of a job that its kind can have. None means the kind's default, else the
    server's."""

    queue: str | None
    priority: int | None
    max_attempts: int | None
    timeout: Duration | None
    retry: str | Mapping[str, Any] | None


class InsertOptions(Defaults, total=False):
    """The parameters of jobs.insert other than kind, args and unique_opts."""

    scheduled_at: datetime | None
    tags: Sequence[str] | None
    meta: dict[str, Any]
    expires_at: datetime | None
    pending: bool


UniqueOpts = Unique[Any] | Mapping[str, Any] | None


class KindOptions(Defaults, total=False):
    """The defaults of a kind."""

    unique_opts: UniqueOpts


class Options(InsertOptions, total=False):
    """The parameters of jobs.insert other than kind and args."""

    unique_opts: UniqueOpts


class CertainOptions(InsertOptions, total=False):
    """Options of an insert that returns an id."""

    unique_opts: Unique[int] | None


class NewJob(Options, total=False):
    """A job to insert. Only the kind is required."""

    kind: Required[str]
    args: Any


class CertainJob(CertainOptions, total=False):
    """A job whose insert returns an id."""

    kind: Required[str]
    args: Any


@dataclass(frozen=True)
class Inserted(Generic[Id]):
    """The result of an insert: the new job, or the existing one."""

    id: Id
    """None if the job was skipped because of `wait=False`. Also None, whatever its type, in an
    outbox."""
    state: str | None
    duplicate: bool
    """Whether nothing was inserted because the job is a duplicate."""


@dataclass(frozen=True)
class Result:
    """The state and result of a job."""

    id: int
    state: str | None
    """None if the job does not exist."""
    output: Any
    error: str | None
    """The error of the latest failed attempt."""


insert_middleware: list[Callable[[list[NewJob]], AbstractContextManager[Any]]] = []
"""Middleware around every insert of this program, the first outermost. Each gets the jobs, which
it may change (meta is always present), and returns a context manager. Lists and dicts in them are
copies; dataclasses and models are the caller's own."""


# With a wait of False, or a mapping, which may have one, there may be no id.
@overload
def insert(
    connection: AsyncTransaction, kind: str | Kind[Any], args: Any = ..., **options: Unpack[CertainOptions]
) -> Later[Inserted[int]]: ...
@overload
def insert(
    connection: AsyncTransaction, kind: str | Kind[Any], args: Any = ..., **options: Unpack[Options]
) -> Later[Inserted[int | None]]: ...
@overload
def insert(
    connection: Any, kind: str | Kind[Any], args: Any = ..., **options: Unpack[CertainOptions]
) -> Inserted[int]: ...
@overload
def insert(
    connection: Any, kind: str | Kind[Any], args: Any = ..., **options: Unpack[Options]
) -> Inserted[int | None]: ...
def insert(connection: Any, kind: str | Kind[Any], args: Any = {}, **options: Any) -> Any:
    """Inserts a job on the caller's connection, as part of its transaction. Args are any JSON
    value, a dataclass or a pydantic model.

    The connection is a connection or cursor of psycopg, a Session or Connection of SQLAlchemy or
    their async counterparts, Django's connection, an asyncpg connection, or Cells. If it is async,
    so is the call."""
    return _converse(connection, _insert_one, {"kind": kind, "args": args, **options})


@overload
def insert_many(connection: AsyncTransaction, jobs: Iterable[CertainJob]) -> Later[list[Inserted[int]]]: ...
@overload
def insert_many(connection: AsyncTransaction, jobs: Iterable[NewJob]) -> Later[list[Inserted[int | None]]]: ...
@overload
def insert_many(connection: Any, jobs: Iterable[CertainJob]) -> list[Inserted[int]]: ...
@overload
def insert_many(connection: Any, jobs: Iterable[NewJob]) -> list[Inserted[int | None]]: ...
def insert_many(connection: Any, jobs: Any) -> Any:
    """Inserts all of the jobs or none, and returns their results in order. The connection is as for
    `insert`."""
    return _converse(connection, _insert, jobs)


class Kind(Generic[A]):
    """A kind, for producers and workers: its name, the type of its args, and defaults, which travel
    with each insert. Options of the insert take precedence. `timeout` is the handler's, too."""

    @overload
    def __init__(self, name: str, args: type[A], **defaults: Unpack[KindOptions]) -> None: ...
    @overload  # a union has no type that every checker knows
    def __init__(self, name: str, args: Any = ..., **defaults: Unpack[KindOptions]) -> None: ...
    def __init__(self, name: str, args: Any = Any, **defaults: Any) -> None:
        self.name = name
        self.args = args
        self.defaults = {name: value for name, value in defaults.items() if value is not None}
        if unknown := defaults.keys() - {*Defaults.__annotations__, *KindOptions.__annotations__}:
            raise TypeError(f"a kind has no default {min(unknown)!r}")

    @overload
    def job(self, args: A, **options: Unpack[CertainOptions]) -> CertainJob: ...
    @overload
    def job(self, args: A, **options: Unpack[Options]) -> NewJob: ...
    def job(self, args: A, **options: Any) -> Any:
        """A job for `insert_many`."""
        given = {name: value for name, value in options.items() if value is not None}
        return {"kind": self.name, "args": args, **self.defaults, **given}

    @overload
    def insert(
        self, connection: AsyncTransaction, args: A, **options: Unpack[CertainOptions]
    ) -> Later[Inserted[int]]: ...
    @overload
    def insert(
        self, connection: AsyncTransaction, args: A, **options: Unpack[Options]
    ) -> Later[Inserted[int | None]]: ...
    @overload
    def insert(self, connection: Any, args: A, **options: Unpack[CertainOptions]) -> Inserted[int]: ...
    @overload
    def insert(self, connection: Any, args: A, **options: Unpack[Options]) -> Inserted[int | None]: ...
    def insert(self, connection: Any, args: A, **options: Any) -> Any:
        """Inserts a job of this kind, as the function `insert` does."""
        return _converse(connection, _insert_one, self.job(args, **options))


@overload
def wait_for(
    connection: AsyncTransaction, ids: Iterable[int], timeout: Duration = ..., want: Want = ...
) -> Later[list[Result]]: ...
@overload
def wait_for(connection: Any, ids: Iterable[int], timeout: Duration = ..., want: Want = ...) -> list[Result]: ...
def wait_for(connection: Any, ids: Iterable[int], timeout: Duration = 30, want: Want = "all") -> Any:
    """Waits until all of the jobs, or any of them, are over, at most for the timeout. Returns their
    states and results in order.

    The connection is as for `insert`, but in autocommit. The inserts must be committed."""
    return _converse(connection, _wait_for, [int(id) for id in ids], seconds(timeout), want)


def _converse(connection: Any, talk: Callable[..., Later[Any]], *args: object) -> Any:
    return converse(connection, talk, *args, grant="grant_producer")


async def _insert_one(execute: Execute, job: NewJob) -> Inserted[Any]:
    return (await _insert(execute, [job]))[0]


async def _insert(execute: Execute, jobs: Iterable[NewJob]) -> list[Inserted[Any]]:
    # Middleware changes copies.
    copy: Callable[[Any], Any] = _copy if insert_middleware else dict
    given = [copy({**job, "meta": dict(job.get("meta") or {})}) for job in map(_of_kind, jobs)]
    with ExitStack() as stack:
        for around in insert_middleware:
            stack.enter_context(around(given))
        rows = await execute(INSERT, encode([member_values(job) for job in given]))
        return [Inserted(*row) for row in rows]


def _of_kind(job: Any) -> Any:
    """The job, with the name and defaults of a Kind that is its kind."""
    kind = job.get("kind")
    if not isinstance(kind, Kind):
        return job
    options = {name: value for name, value in job.items() if name not in ("kind", "args")}
    return kind.job(job.get("args", {}), **options)


def _copy(value: Any) -> Any:
    """Copies dicts and lists only: other values cannot always be copied."""
    if isinstance(value, dict):
        return {name: _copy(one) for name, one in value.items()}
    return [_copy(one) for one in value] if isinstance(value, list) else value


def member_values(job: Mapping[str, Any]) -> dict[str, Any]:
    values = {name: value for name, value in job.items() if value is not None and value != {} or name == "args"}
    for name in ("scheduled_at", "expires_at"):
        if isinstance(time := values.get(name), datetime) and time.tzinfo is None:
            raise ValueError(f"{name} has no time zone: {time}")
    if isinstance(unique := job.get("unique_opts"), Unique):
        unique = unique.options
    return values | ({} if unique is None else {"unique_opts": unique})


async def _wait_for(execute: Execute, ids: list[int], timeout: float, want: str) -> list[Result]:
    if want not in ("all", "any"):
        raise ValueError(f"want must be 'all' or 'any', not {want!r}")
    array = f"{{{','.join(map(str, ids))}}}"
    await execute(f"call jobs.wait_for(cast(cast(%s as text) as bigint[]), interval '{timeout:f} s', '{want}')", array)
    return await results_of(execute, array)


async def results_of(execute: Execute, ids: str) -> list[Result]:
    columns = "id, cast(state as text), cast(output as text), error"
    rows = await execute(f"select {columns} from jobs.results(cast(cast(%s as text) as bigint[])) order by ord", ids)
    return [Result(id, state, json.loads(output or "null"), error) for id, state, output, error in rows]
