"""Args of the handler's type, values as JSON, errors as texts."""

from __future__ import annotations

import enum
import json
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, make_dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import pydantic
import pydantic.dataclasses
import pytest
from pydantic.alias_generators import to_camel

from postgres_jobs import Discard, Job, RetryIn, Snooze, Worker, _values
from postgres_jobs._values import args_type, build, check_type, encode, read
from postgres_jobs.outcomes import failure, wire


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Line:
    product: int
    colour: Colour | None = None


@dataclass
class Order:
    id: uuid.UUID
    at: datetime
    lines: list[Line]
    by_name: dict[str, Line] = field(default_factory=dict)
    note: str | None = None


class Mail(pydantic.BaseModel):
    to: str
    at: datetime | None = None


ORDER = Order(uuid.UUID(int=7), datetime(2030, 1, 2, tzinfo=timezone.utc), [Line(1, Colour.RED), Line(2)], {"a": Line(3)})


def test_a_dataclass_comes_back_as_it_went():
    assert build(Order, json.loads(encode(ORDER))) == ORDER


def test_members_that_a_dataclass_does_not_have_are_left_out():
    assert build(Line, {"product": 1, "new": True}) == Line(1)


def test_members_that_are_missing_are_an_error():
    with pytest.raises(TypeError):
        build(Line, {})
    with pytest.raises(TypeError):
        build(Line, [1])


@dataclass
class Plain:
    text: str = ""
    whole: int = 0
    number: float = 0
    truth: bool = False
    many: list[int] = field(default_factory=list)
    bare: list = field(default_factory=list)
    few: set[str] = field(default_factory=set)
    named: dict[str, float] = field(default_factory=dict)
    bare_named: dict = field(default_factory=dict)
    day: date | None = None
    long: timedelta | None = None
    id: uuid.UUID | None = None
    colour: Colour | None = None
    line: Line | None = None
    lines: list[Line] = field(default_factory=list)


@pytest.mark.parametrize(
    ("name", "value", "type"),
    [
        ("text", 12, "str"),
        ("text", None, "str"),
        ("whole", "12", "int"),
        ("whole", 1.5, "int"),
        ("whole", True, "int"),
        ("number", "1.5", "float"),
        ("number", False, "float"),
        ("truth", 1, "bool"),
        ("many", 7, "list"),
        ("many", [1, "2"], "int"),
        ("bare", {"a": 1}, "list"),
        ("few", "abc", "set"),
        ("few", [1], "str"),
        ("named", [1], "dict"),
        ("named", {"a": "b"}, "float"),
        ("bare_named", "a", "dict"),
        ("day", 20300102, "date"),
        ("long", "90", "timedelta"),
        ("id", 7, "UUID"),
        ("line", [1], "Line"),
        ("lines", [{"product": 1}, 2], "Line"),
    ],
)
def test_args_that_do_not_fit_are_an_error(name, value, type):
    with pytest.raises(TypeError, match=f"^{name} must be {type}, not .*"):
        build(Plain, {name: value})


def test_args_that_do_not_fit_are_an_error_without_a_dataclass():
    for wanted, value in [(int, "12"), (dict, [1]), (list[int], 7), (dict[str, int], {"a": "b"}), (Plain, 7)]:
        with pytest.raises(TypeError, match="^args must be (int|dict|list|Plain), not .*"):
            build(wanted, value)


@dataclass
class Lax:
    to: str = None
    lines: list[Line] = None


def test_a_null_that_is_the_default_is_taken():
    assert build(Lax, {"to": None, "lines": None}) == build(Lax, {}) == Lax(None, None)
    assert build(Lax, {"to": "a@b", "lines": [{"product": 1}]}) == Lax("a@b", [Line(1)])
    with pytest.raises(TypeError, match="^to must be str, not 12$"):
        build(Lax, {"to": 12})


def test_a_whole_number_may_be_written_as_a_float():
    for wanted, value in [(int, 10 / 2), (int | None, 5.0), (int, 5)]:
        built = build(wanted, value)
        assert (type(built), built) == (int, 5)
    assert build(dict[str, list[int]], {"a": [1.0, -2e3]}) == {"a": [1, -2000]}
    for bad in (1.5, float("inf")):
        with pytest.raises(TypeError, match="must be int, not"):
            build(int, bad)


@pydantic.dataclasses.dataclass
class Parcel:
    number: int
    weight: float | str
    sent: date | None = pydantic.Field(alias="on", default=None)
    lines: list[Line] = field(default_factory=list)


def test_a_dataclass_of_pydantic_is_left_to_pydantic():
    taken = build(Parcel, {"number": "7", "weight": 1, "on": "2030-01-02", "lines": [{"product": "1"}], "new": True})
    assert taken == Parcel(number=7, weight=1.0, on=date(2030, 1, 2), lines=[Line(1)])
    assert build(list[Parcel], json.loads(encode([Parcel(7, "light")]))) == [Parcel(7, "light")]
    with pytest.raises(pydantic.ValidationError):
        build(Parcel, {"number": "seven", "weight": 1})
    with pytest.raises(TypeError, match="^args must be Parcel, not 7$"):
        build(Parcel, 7)


def test_args_that_fit_are_taken():
    for name, value in [("number", 3), ("number", 1.5), ("whole", 2**70), ("truth", True), ("bare", [1, "a"]), ("bare_named", {"a": 1})]:
        built = getattr(build(Plain, {name: value}), name)
        assert (type(built), built) == (type(value), value)
    taken = build(Plain, {"few": ["a"], "named": {"a": 1}, "day": "2030-01-02", "long": 90, "id": str(ORDER.id), "colour": "red"})
    assert (taken.few, taken.named, taken.day, taken.long) == ({"a"}, {"a": 1}, date(2030, 1, 2), timedelta(seconds=90))
    assert (taken.id, taken.colour) == (ORDER.id, Colour.RED)


@pytest.mark.parametrize("has_pydantic", [False, True])
def test_a_type_that_is_not_known_is_left_to_pydantic(has_pydantic, monkeypatch):
    assert build(set, ["a", 1]) == {"a", 1} and build(None, 1.5) == 1.5
    if not has_pydantic:
        monkeypatch.setattr(_values, "_adapter", lambda wanted: None)
    for wanted in (tuple[str, ...], int | str, Literal["a"], Sequence[int], Named):
        if has_pydantic and (wanted is not Named or sys.version_info >= (3, 12)):
            with pytest.raises(pydantic.ValidationError):
                build(wanted, 1.5)
        else:
            assert build(wanted, 1.5) == 1.5


class Cat(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(alias_generator=to_camel, strict=True)
    type: Literal["cat"] = "cat"
    lives_left: int
    born_at: datetime
    id: uuid.UUID


class Dog(pydantic.BaseModel):
    type: Literal["dog"] = "dog"
    price: Decimal


class Point(NamedTuple):
    x: int
    y: float


class Unknown:
    pass


Pet = Annotated[Cat | Dog, pydantic.Field(discriminator="type")]


@pydantic.dataclasses.dataclass
class Label:
    for_whom: str = pydantic.Field(alias="forWhom")


CAT = Cat(livesLeft=9, bornAt=ORDER.at, id=ORDER.id)


@pytest.mark.parametrize(
    ("wanted", "value"),
    [
        (Cat, CAT),
        (Cat | Dog, Dog(price="1.10")),
        (Pet, CAT),
        (list[Pet], [CAT, Dog(price="1.10")]),
        (Point, Point(1, 2.5)),
        (tuple[int, str], (1, "a")),
        (Label, Label(forWhom="me")),
        (dict[str, Point] | None, {"a": Point(1, 2)}),
    ],
)
def test_what_pydantic_builds_comes_back_as_it_went(wanted, value):
    check_type(wanted)
    assert read(wanted, encode(value)) == value


@dataclass
class Price:
    amount: Decimal
    rate: float = 0
    dog: Dog | None = None
    rest: dict = field(default_factory=dict)
    many: list[Any] = field(default_factory=list)


def test_a_decimal_has_every_digit():
    long = "12345678901234567890.12345678901234567890"
    for text in ("19.99", "7", long):
        assert read(Price, f'{{"amount": {text}}}') == Price(Decimal(text))
        assert read(dict[str, Decimal], f'{{"a": {text}}}') == {"a": Decimal(text)}
        assert read(Decimal, text) == Decimal(text)
    price = read(Price, '{"amount": "0.10", "rate": 0.1, "dog": {"price": 0.1}, "rest": {"a": [0.1]}, "many": [0.1]}')
    assert price == Price(Decimal("0.10"), 0.1, Dog(price="0.1"), {"a": [0.1]}, [0.1])
    assert all(type(one) is float for one in (price.rate, *price.rest["a"], *price.many))


def test_a_type_that_cannot_be_built_is_refused_when_the_handler_is_registered(monkeypatch):
    def handle(job: Job[Unknown]) -> None: ...
    def handle_either(job: Job[Line | Unknown]) -> None: ...
    def handle_a_point(job: Job[Point]) -> None: ...

    for handler in (handle, handle_either):
        with pytest.raises(TypeError, match="Unknown.* cannot be built from JSON: use a dataclass or a pydantic model"):
            Worker("").kind("k")(handler)
    Worker("").kind("k")(handle_a_point)
    monkeypatch.setattr(_values, "_adapter", lambda wanted: None)
    with pytest.raises(TypeError, match="Point.* cannot be built"):
        Worker("").kind("k")(handle_a_point)


class Named(TypedDict):
    a: int


def test_a_model_comes_back_as_it_went():
    mail = Mail(to="a@b", at=datetime(2030, 1, 2, tzinfo=timezone.utc))
    assert build(Mail, json.loads(encode(mail))) == mail
    with pytest.raises(pydantic.ValidationError):
        build(Mail, {"to": 1})


def test_the_annotation_says_the_type():
    @dataclass
    class Local:
        a: int

    def of_this_function(job: Job[Local]) -> None: ...
    async def of_the_module(job: Job[Order]) -> None: ...
    def of_a_dict(job: Job[dict[str, int]]) -> None: ...
    def of_none(job): ...
    def of_any(job: Job) -> None: ...

    def of_what_comes_later(job: Job[Order]) -> None:
        later(Local)

    assert args_type(of_what_comes_later) is Order

    def later(_): ...

    class Callable_:
        def __call__(self, job: Job[Mail]) -> None: ...

    with pytest.raises(NameError):
        args_type(of_this_function)
    assert args_type(of_the_module) is Order
    assert build(args_type(of_a_dict), {"a": 1}) == {"a": 1}
    assert args_type(Callable_()) is Mail
    assert build(args_type(of_none), 7) == build(args_type(of_any), 7) == 7


def test_what_is_no_json_is_refused():
    for bad in (float("nan"), "\ud800", object(), {object()}, b"x"):
        with pytest.raises((ValueError, TypeError)):
            encode(bad)
    assert encode({"d": timedelta(seconds=90)}) == '{"d":90.0}'


class Size(enum.IntEnum):
    NONE = 0


@pytest.mark.parametrize(
    ("wanted", "key", "name"),
    [
        (str, "1", "1"),
        (int, 1, "1"),
        (int | None, 1, "1"),
        (float, 1.5, "1.5"),
        (bool, True, "true"),
        (Decimal, Decimal("1.10"), "1.10"),
        (uuid.UUID, ORDER.id, str(ORDER.id)),
        (date, date(2030, 1, 2), "2030-01-02"),
        (datetime, ORDER.at, "2030-01-02T00:00:00+00:00"),
        (timedelta, timedelta(seconds=90), "90.0"),
        (Colour, Colour.RED, "red"),
        (Size, Size.NONE, "0"),
        (Literal["a"], "a", "a"),
        (Any, "1", "1"),
    ],
)
def test_a_key_comes_back_as_it_went(wanted, key, name):
    Nested = make_dataclass("Nested", [("all", list[dict[wanted, list[int]]])])
    for kind, value in [(dict[wanted, list[int]], {key: [1]}), (Nested, Nested([{key: [1]}]))]:
        check_type(kind)
        assert f'{{"{name}":[1]}}' in encode(value)
        assert read(kind, encode(value)) == value


def test_a_key_that_does_not_fit_is_an_error():
    for wanted in (int, bool, timedelta):
        with pytest.raises(TypeError, match="args must be .*, not 'a'"):
            read(dict[wanted, int], '{"a": 1}')
    for wanted in (Line, list[int], tuple[int, int], frozenset[int]):
        with pytest.raises(TypeError, match="its keys must be strings, numbers"):
            check_type(list[dict[wanted, int]])


def test_a_set_comes_back_as_it_went():
    value = {Colour.RED, "a", frozenset({2, 1})}
    assert encode(value) == '["a","red",[1,2]]' == encode(set(reversed(list(value))))
    assert read(set[date], encode({date(2030, 1, 2)})) == {date(2030, 1, 2)}


def test_outcomes_are_no_exceptions():
    def careful():
        try:
            raise Snooze(1)
        except Exception:
            return "swallowed"

    with pytest.raises(Snooze):
        careful()


def test_a_delay_is_a_number():
    for bad in (float("nan"), float("inf"), float("-inf")):
        with pytest.raises(ValueError, match=f"^delay must be .*, not {bad}"):
            Snooze(bad)
        with pytest.raises(ValueError, match=f"^delay must be .*, not {bad}"):
            RetryIn(bad)
    for past in (-1, -0.5, timedelta(seconds=-1)):
        assert Snooze(past).finish()["delay"] == RetryIn(past).finish()["retry_in"] == 0
    assert Snooze(timedelta(minutes=1)).finish() == {"do": "snooze", "delay": 60.0}


def test_an_error_keeps_its_text_type_and_stack():
    try:
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise LookupError("out\0er\ud800") from error
    except LookupError as error:
        told = failure(error)
    assert told["error"] == "out\ufffder\ufffd"
    assert told["details"]["type"] == "LookupError"
    trace = told["details"]["trace"]
    assert trace.index("KeyError") < trace.index("LookupError") and "test_values.py" in trace


def test_a_long_text_does_not_drive_the_stack_out_of_the_trace():
    try:
        raise ValueError("x" * 100_000)
    except ValueError as error:
        trace = failure(error)["details"]["trace"]
    assert "test_values.py" in trace and "ValueError: xxx" in trace and len(trace) <= 10_000


def test_the_error_of_an_outcome():
    assert failure(Discard("text"))["error"] == "text"
    for without in (Discard(), RetryIn(5)):
        told = failure(without)
        assert (told["error"], told["details"]["type"]) == ("no error was given", type(without).__name__)
    inner = failure(RetryIn(5, OSError("busy")))
    assert (inner["error"], inner["details"]["type"], inner["retry_in"]) == ("busy", "OSError", 5.0)
    try:
        raise Discard from ValueError("bad")
    except Discard as outcome:
        told = failure(outcome)
    assert (told["error"], told["details"]["type"], told["retryable"]) == ("bad", "ValueError", False)


def test_codes_of_errors():
    class Driver(Exception):
        sqlstate = "P0002"

    class Orm(Exception):
        code = "e3q8"
        orig = Driver()

    assert failure(Driver())["details"]["code"] == "P0002"
    assert failure(Orm())["details"]["code"] == "P0002"
    try:
        raise ValueError from Driver()
    except ValueError as error:
        assert failure(error)["details"]["code"] == "P0002"


def test_an_output_that_is_none_fails():
    class Worse:
        def __getattribute__(self, name):
            raise RuntimeError("no")

    for bad in (object(), "\ud800", Worse()):
        told = json.loads(wire(1, 2, {"do": "complete", "output": bad})[0])
        assert (told["do"], told["details"]["type"]) == ("fail", "invalid_output")
