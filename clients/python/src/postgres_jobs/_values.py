"""Converts values to JSON, and JSON to the types that handlers ask for."""

from __future__ import annotations

import dataclasses
import inspect
import json
import types
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

Duration = float | timedelta  # a number means seconds


def seconds(duration: Duration) -> float:
    return duration.total_seconds() if isinstance(duration, timedelta) else float(duration)


def encode(value: object) -> str:
    """The value as JSON. Raises what json raises, and ValueError for values that the database
    cannot store: NaN, infinity and lone surrogates."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)
    text.encode()
    return text


def _plain(value: Any) -> object:
    """The JSON form of a type that JSON lacks."""
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
    raise TypeError(f"{type(value).__name__} has no JSON form")


# The exact types that json returns for a type's JSON form: a bool is not an int.
_READ: dict[Any, tuple[type, ...]] = {one: (one,) for one in (str, int, bool, list, dict)}
_READ |= dict.fromkeys((float, timedelta), (int, float)) | dict.fromkeys((set, frozenset), (list,))
_READ |= dict.fromkeys((date, datetime, time, UUID), (str,))


def build(wanted: Any, value: Any, name: str = "args") -> Any:
    """Converts a JSON value to the type that is wanted: a dataclass, a pydantic model, or a type of
    their fields. Members that a dataclass lacks are ignored, since a producer may be newer than the
    worker. Pydantic converts its own types."""
    if hasattr(wanted, "model_validate"):
        return wanted.model_validate(value)
    origin, parts = get_origin(wanted) or wanted, get_args(wanted)
    if origin in (Union, types.UnionType):
        rest = [part for part in parts if part is not type(None)]
        return value if value is None or len(rest) > 1 else build(rest[0], value, name)
    is_dataclass = dataclasses.is_dataclass(origin)
    # A producer that divides sends 5.0, and Postgres keeps it.
    value = int(value) if origin is int and type(value) is float and value.is_integer() else value
    if type(value) not in _READ.get(dict if is_dataclass else origin, (type(value),)):
        raise TypeError(f"{name} must be {origin.__name__}, not {value!r:.100}")
    if hasattr(origin, "__pydantic_validator__"):  # a dataclass of pydantic's
        return origin(**value)
    if is_dataclass:
        hints = get_type_hints(origin)
        fields = [field for field in dataclasses.fields(origin) if field.init and field.name in value]
        # A null that equals the default, as in `note: str = None`, counts as left out.
        names = [field.name for field in fields if value[field.name] is not None or field.default is not None]
        return origin(**{name: build(hints[name], value[name], name) for name in names})
    if origin in (list, set, frozenset):
        return origin(build(parts[0] if parts else Any, one, name) for one in value)
    if parts and origin is dict:
        return {key: build(parts[1], one, name) for key, one in value.items()}
    if not isinstance(origin, type):
        return value
    if issubclass(origin, (date, time)):
        return origin.fromisoformat(value[:-1] + "+00:00" if value.endswith("Z") else value)
    if issubclass(origin, timedelta):
        return timedelta(seconds=value)
    return origin(value) if issubclass(origin, (UUID, Decimal, Enum)) else value


def args_type(handler: Callable[..., Any]) -> Any:
    """The type X of a handler whose parameter is a Job[X], or Any without an annotation."""
    parameters = list(inspect.signature(handler).parameters.values())
    if not parameters:
        raise TypeError(f"{handler!r} has no parameter for the job")
    annotation = parameters[0].annotation
    if isinstance(annotation, str):
        function: Any = inspect.unwrap(getattr(handler, "func", handler))  # of a partial
        function = function if hasattr(function, "__globals__") else type(function).__call__
        cells = zip(function.__code__.co_freevars, function.__closure__ or ())
        # An empty cell belongs to a variable without a value yet.
        names = {name: cell.cell_contents for name, cell in cells if cell != types.CellType()}
        annotation = eval(annotation, function.__globals__, names)
    parts = get_args(annotation)
    return parts[0] if parts and not isinstance(parts[0], TypeVar) else Any
