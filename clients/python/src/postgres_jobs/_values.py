"""Converts values to JSON, and JSON to the types that handlers ask for."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import types
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

Duration = float | timedelta  # a number means seconds


def seconds(duration: Duration) -> float:
    return duration.total_seconds() if isinstance(duration, timedelta) else float(duration)


def as_kept(name: str) -> str:
    """The name of a queue or kind as the database stores it."""
    return unicodedata.normalize("NFC", name)


NAME = "1 to 127 characters without control characters"


def is_name(name: str) -> bool:
    """Whether the database takes the name of a queue, kind or worker."""
    return 0 < len(name) <= 127 and not any(unicodedata.category(one) in ("Cc", "Cs") for one in name)


def encode(value: object) -> str:
    """The value as JSON. Raises what json raises, and ValueError for values that the database
    cannot store: NaN, infinity and lone surrogates."""
    dump = functools.partial(json.dumps, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)
    try:
        text = dump(value)
    except TypeError:  # perhaps of a key
        text = dump(_named(value))
    text.encode()
    return text


def _named(value: Any) -> Any:
    """The value with keys of dicts that JSON can carry."""
    if isinstance(value, dict):
        return {_name(key): _named(one) for key, one in value.items()}
    return [_named(one) for one in value] if isinstance(value, (list, tuple)) else value


def _name(key: Any) -> Any:
    while not isinstance(key, _NAMES):
        key = _plain(key)
    return key


def _plain(value: Any) -> object:
    """The JSON form of a type that JSON lacks."""
    if isinstance(value, type):
        raise TypeError(f"the class {value.__name__} has no JSON form")
    if _is_pydantic(type(value)):
        return _adapter(type(value)).dump_python(value, mode="json", by_alias=True)
    if dataclasses.is_dataclass(value):
        return {field.name: _named(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, (UUID, Decimal)):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=encode)  # always the same, for unique jobs
    raise TypeError(f"{type(value).__name__} has no JSON form")


# The types of keys that json writes.
_NAMES = (str, int, float, bool, type(None))
# The exact types that json returns for a type's JSON form: a bool is not an int.
_READ: dict[Any, tuple[type, ...]] = {one: (one,) for one in (str, int, bool, list, dict)}
_READ |= dict.fromkeys((float, timedelta), (int, float)) | dict.fromkeys((set, frozenset), (list,))
_READ |= dict.fromkeys((date, datetime, time, UUID), (str,))


def build(wanted: Any, value: Any, name: str = "args") -> Any:
    """Converts a JSON value to the type that is wanted: a dataclass, or a type of its fields.
    Members that a dataclass lacks are ignored, since a producer may be newer than the worker.
    Pydantic, if it is installed, converts its own types and those that are not known here."""
    origin, parts = get_origin(wanted) or wanted, get_args(wanted)
    if not _is_known(wanted):
        if dataclasses.is_dataclass(origin):
            _check(origin, value, name)
        adapter = _adapter(wanted)
        if adapter:
            return adapter.validate_json(encode(_inexact(value)))
        return build(parts[0], value, name) if origin is Annotated else _inexact(value)
    if origin in (Union, types.UnionType):
        return None if value is None else build(_optional(parts), value, name)
    is_dataclass = dataclasses.is_dataclass(origin)
    value = float(value) if isinstance(value, Decimal) and origin is not Decimal else value
    # A producer that divides sends 5.0, and Postgres keeps it.
    value = int(value) if origin is int and type(value) is float and value.is_integer() else value
    _check(origin, value, name)
    if is_dataclass:
        hints = get_type_hints(origin, include_extras=True)
        fields = [field for field in dataclasses.fields(origin) if field.init and field.name in value]
        # A null that equals the default, as in `note: str = None`, counts as left out.
        names = [field.name for field in fields if value[field.name] is not None or field.default is not None]
        return origin(**{name: build(hints[name], value[name], name) for name in names})
    if origin in (list, set, frozenset):
        return origin(build(parts[0] if parts else Any, one, name) for one in value)
    if parts and origin is dict:
        return {_build_key(parts[0], key, name): build(parts[1], one, name) for key, one in value.items()}
    if not isinstance(origin, type):
        return _inexact(value)
    if issubclass(origin, (date, time)):
        return origin.fromisoformat(value[:-1] + "+00:00" if value.endswith("Z") else value)
    if issubclass(origin, timedelta):
        return timedelta(seconds=value)
    return origin(value) if issubclass(origin, (UUID, Decimal, Enum)) else _inexact(value)


def _build_key(wanted: Any, key: Any, name: str) -> Any:
    """Converts the name of a JSON object's member to the key that is wanted."""
    if get_origin(wanted) in (Union, types.UnionType):
        wanted = _optional(get_args(wanted)) or wanted
    is_type = isinstance(wanted, type)
    is_enum = is_type and issubclass(wanted, Enum)
    if is_enum and key in (named := {name: one for one in wanted for name in json.loads(encode({one: 0}))}):
        return named[key]
    if is_enum or is_type and str not in _READ.get(wanted, (str,)):
        with suppress(ValueError):
            key = json.loads(key)
    return build(wanted, key, name)


def _inexact(value: Any) -> Any:
    """The value with floats in place of exact numbers."""
    if isinstance(value, list):
        return [_inexact(one) for one in value]
    if isinstance(value, dict):
        return {key: _inexact(one) for key, one in value.items()}
    return float(value) if isinstance(value, Decimal) else value


def _check(origin: Any, value: object, name: str) -> None:
    if type(value) not in _READ.get(dict if dataclasses.is_dataclass(origin) else origin, (type(value),)):
        raise TypeError(f"{name} must be {origin.__name__}, not {value!r:.100}")


def _optional(parts: tuple[Any, ...]) -> Any:
    """X of the parts of `X | None`, else None."""
    rest = [part for part in parts if part is not type(None)]
    return rest[0] if len(rest) == 1 else None


def _is_pydantic(wanted: Any) -> bool:
    return hasattr(wanted, "__pydantic_validator__")  # a model, or a dataclass of pydantic's


def _is_known(wanted: Any) -> bool:
    """Whether `build` converts the type itself."""
    origin = get_origin(wanted) or wanted
    if origin in (Union, types.UnionType):
        return _optional(get_args(wanted)) is not None
    if origin in (Any, None, type(None), Decimal, *_READ) or isinstance(origin, TypeVar):
        return True
    return isinstance(origin, type) and (
        issubclass(origin, Enum) or dataclasses.is_dataclass(origin) and not _is_pydantic(origin)
    )


def _adapter(wanted: Any) -> Any:
    """Pydantic's adapter of the type, or None if there is none."""
    try:
        hash(wanted)
    except TypeError:  # as some annotations
        return _make_adapter(wanted)
    return _cached_adapter(wanted)


def _make_adapter(wanted: Any) -> Any:
    try:
        from pydantic import TypeAdapter

        return TypeAdapter(wanted)
    except ImportError:
        return None
    except Exception as error:
        if getattr(error, "code", None) == "typed-dict-version":  # before Python 3.12
            return None
        raise


_cached_adapter = functools.cache(_make_adapter)


def check_type(wanted: Any, seen: tuple[Any, ...] = ()) -> None:
    """Raises TypeError if `build` cannot make the type."""
    if wanted in seen:
        return
    origin, parts = get_origin(wanted) or wanted, get_args(wanted)
    if _is_known(wanted):
        if dataclasses.is_dataclass(origin):
            with suppress(NameError):  # of a class that is defined later
                parts = tuple(get_type_hints(origin, include_extras=True).values())
        if origin is dict and parts:
            key = get_origin(parts[0]) or parts[0]
            if key in (dict, list, set, frozenset, tuple) or dataclasses.is_dataclass(key):
                rule = "its keys must be strings, numbers, dates, UUIDs or enums"
                raise TypeError(f"{wanted} cannot be built from JSON: {rule}")
        for part in parts:
            check_type(part, (*seen, wanted))
        return
    try:
        is_left = _adapter(wanted) is not None or not any(map(_is_of_program, [origin, *parts]))
    except NameError:
        return
    except Exception:
        is_left = False
    if not is_left:
        raise TypeError(f"{wanted} cannot be built from JSON: use a dataclass or a pydantic model")


def _is_of_program(wanted: Any) -> bool:
    """Whether it is a class that a JSON value is no instance of."""
    is_typed_dict = hasattr(wanted, "__required_keys__")
    is_class = isinstance(wanted, type) and not is_typed_dict
    return is_class and wanted.__module__ not in ("builtins", "types", "typing", "collections.abc")


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
    if parts and get_origin(annotation) is list:  # of a batch
        parts = get_args(parts[0])
    return parts[0] if parts and not isinstance(parts[0], TypeVar) else Any


def read(wanted: Any, text: str) -> Any:
    """Converts JSON to the type that is wanted."""
    adapter = None if _is_known(wanted) or dataclasses.is_dataclass(wanted) else _adapter(wanted)
    if adapter:
        return adapter.validate_json(text)
    return build(wanted, json.loads(text, parse_float=None if wanted is Any else Decimal))
