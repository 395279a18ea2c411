"""Values as JSON, and as the types that handlers ask for."""

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


# What json makes of the JSON of a type, exactly: a bool is no int.
_READ: dict[Any, tuple[type, ...]] = {one: (one,) for one in (str, int, bool, list, dict)}
_READ |= dict.fromkeys((float, timedelta), (int, float)) | dict.fromkeys((set, frozenset), (list,))
_READ |= dict.fromkeys((date, datetime, time, UUID), (str,))


def build(wanted: Any, value: Any, name: str = "args") -> Any:
    """A value of JSON as the type that is wanted: a dataclass, a pydantic model, or a type that
    these have fields of. Members that a dataclass does not have are left out: a producer may be
    newer than the worker. What is pydantic's is left to pydantic."""
    if hasattr(wanted, "model_validate"):
        return wanted.model_validate(value)
    origin, parts = get_origin(wanted) or wanted, get_args(wanted)
    if origin in (Union, types.UnionType):
        rest = [part for part in parts if part is not type(None)]
        return value if value is None or len(rest) > 1 else build(rest[0], value, name)
    is_dataclass = dataclasses.is_dataclass(origin)
    # A producer that divides sends 5.0, and Postgres keeps it so.
    value = int(value) if origin is int and type(value) is float and value.is_integer() else value
    if type(value) not in _READ.get(dict if is_dataclass else origin, (type(value),)):
        raise TypeError(f"{name} is {value!r:.100}, and no {origin.__name__}")
    if hasattr(origin, "__pydantic_validator__"):  # a dataclass of pydantic's
        return origin(**value)
    if is_dataclass:
        hints = get_type_hints(origin)
        fields = [field for field in dataclasses.fields(origin) if field.init and field.name in value]
        # A null that is the default, as of `note: str = None`, is as if left out.
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
