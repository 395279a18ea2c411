"""Values as JSON, and as the types that handlers ask for."""

from __future__ import annotations

import dataclasses
import inspect
import json
import types
from collections.abc import Callable
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

Duration = float | timedelta  # a number is of seconds


def seconds(duration: Duration) -> float:
    return duration.total_seconds() if isinstance(duration, timedelta) else float(duration)


def encode(value: object) -> str:
    """The value as JSON. Raises what json raises, and ValueError for what no database can hold:
    NaN, infinity and lone surrogates."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)
    text.encode()
    return text


def _plain(value: Any) -> object:
    """What JSON has instead of a type that it does not have."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(value, "model_dump") and not isinstance(value, type):  # a pydantic model
        return value.model_dump(mode="json")
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, (UUID, Decimal)):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    raise TypeError(f"there is no JSON for a {type(value).__name__}")


def build(wanted: Any, value: Any) -> Any:
    """A value of JSON as the type that is wanted: a dataclass, a pydantic model, or a type that
    these have fields of. Members that a dataclass does not have are left out: a producer may be
    newer than the worker."""
    if hasattr(wanted, "model_validate"):
        return wanted.model_validate(value)
    if dataclasses.is_dataclass(wanted) and isinstance(wanted, type):
        if not isinstance(value, dict):
            raise TypeError(f"{wanted.__name__} needs an object, not {value!r:.100}")
        hints = get_type_hints(wanted)
        names = [field.name for field in dataclasses.fields(wanted) if field.init and field.name in value]
        return wanted(**{name: build(hints[name], value[name]) for name in names})
    origin, parts = get_origin(wanted), get_args(wanted)
    if origin in (Union, types.UnionType):
        rest = [part for part in parts if part is not type(None)]
        return value if value is None or len(rest) > 1 else build(rest[0], value)
    if origin in (list, set, frozenset) and isinstance(value, list):
        return origin(build(parts[0], one) for one in value)
    if origin is dict and isinstance(value, dict):
        return {name: build(parts[1], one) for name, one in value.items()}
    if not isinstance(wanted, type):
        return value
    if issubclass(wanted, (date, time)) and isinstance(value, str):
        return wanted.fromisoformat(value[:-1] + "+00:00" if value.endswith("Z") else value)
    if issubclass(wanted, timedelta):
        return timedelta(seconds=value)
    return wanted(value) if issubclass(wanted, (UUID, Decimal, Enum)) else value


def args_type(handler: Callable[..., Any]) -> Any:
    """The type X of a handler whose parameter is a Job[X]; Any if it says none."""
    parameters = list(inspect.signature(handler).parameters.values())
    if not parameters:
        raise TypeError(f"{handler!r} has no parameter for the job")
    annotation = parameters[0].annotation
    if isinstance(annotation, str):
        function: Any = inspect.unwrap(getattr(handler, "func", handler))  # of a partial
        function = function if hasattr(function, "__globals__") else type(function).__call__
        cells = zip(function.__code__.co_freevars, function.__closure__ or ())
        # An empty cell is of a variable that has no value yet.
        names = {name: cell.cell_contents for name, cell in cells if cell != types.CellType()}
        annotation = eval(annotation, function.__globals__, names)
    parts = get_args(annotation)
    return parts[0] if parts and not isinstance(parts[0], TypeVar) else Any
