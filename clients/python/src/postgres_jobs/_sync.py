"""Writes what a worker declares into the database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ._database import JSONB, Execute, converse
from ._values import as_kept, encode, seconds
from .produce import Kind, KindOptions, member_values


class ScheduleOptions(KindOptions, total=False):
    """The options of jobs.schedule."""

    time_zone: str | None
    tags: Sequence[str] | None
    meta: Mapping[str, Any] | None
    missed: Literal["once", "skip"] | None
    reason: str | None


Periodic = dict[str, Any]


@dataclass(frozen=True)
class Change:
    """What `sync` did about something that the worker declares."""

    object: Literal["kind", "periodic job"]
    name: str
    outcome: Literal["created", "changed", "unchanged"]


_ASKED = f"(select asked, make_interval(secs => cast(asked->>'timeout' as float8)) timeout from {JSONB} asked) asked"
_OPTIONS = (
    "queue => asked->>'queue', priority => cast(asked->>'priority' as integer),"
    " max_attempts => cast(asked->>'max_attempts' as integer), timeout => timeout,"
    " retry => asked->'retry', unique_opts => asked->'unique_opts'"
)
_COMPARE = f"""
    select case when k.kind is null then 'created'
                when (k.queue, k.priority, k.max_attempts, k.timeout, k.retry, k.unique_opts)
                     is distinct from
                     (asked->>'queue', cast(asked->>'priority' as integer), cast(asked->>'max_attempts' as integer),
                      asked.timeout, asked->'retry', asked->'unique_opts') then 'changed'
                else 'unchanged' end
      from {_ASKED} left join jobs.kinds k on k.kind = asked->>'kind'"""
_DEFINE = f"select jobs.define_kind(asked->>'kind', {_OPTIONS}) from {_ASKED}"
_SCHEDULE = f"""
    select cast(s.outcome as text)
      from {_ASKED}, lateral jobs.schedule(asked->>'name', asked->>'cron', asked->>'kind',
           args => asked->'args', time_zone => coalesce(asked->>'time_zone', 'UTC'), {_OPTIONS},
           tags => case jsonb_typeof(asked->'tags') when 'array' then array(select jsonb_array_elements_text(asked->'tags')) end,
           meta => asked->'meta', missed => coalesce(asked->>'missed', 'once'), reason => asked->>'reason') s"""


def sync(connection: Any, kinds: Sequence[Kind[Any]], periodics: Sequence[Periodic]) -> Any:
    return converse(connection, _sync, kinds, periodics, grant="grant_application")


async def _sync(execute: Execute, kinds: Sequence[Kind[Any]], periodics: Sequence[Periodic]) -> list[Change]:
    changes = []
    for kind in kinds:
        if not kind.defaults:
            continue
        asked = _encode({"kind": as_kept(kind.name), **kind.defaults})
        ((outcome,),) = await execute(_COMPARE, asked)
        if outcome != "unchanged":
            await execute(_DEFINE, asked)
        changes.append(Change("kind", kind.name, outcome))
    for periodic in periodics:
        ((outcome,),) = await execute(_SCHEDULE, _encode(periodic))
        changes.append(Change("periodic job", periodic["name"], outcome))
    return changes


def _encode(options: Mapping[str, Any]) -> str:
    values = member_values(options)
    if values.get("timeout") is not None:
        values["timeout"] = seconds(values["timeout"])
    return encode(values)
