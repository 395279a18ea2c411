"""How an attempt can end, other than by returning, and what the server is told of it.

The outcomes are no `Exception`, as asyncio.CancelledError is none: a handler that catches every
Exception, to log it or to try a request again, means failures. It would swallow its own decision
otherwise, and the job would be completed.
"""

from __future__ import annotations

import math
import re
import traceback
from collections.abc import Callable
from typing import Any

from ._values import Duration, encode, seconds

LONGEST_TEXT = 10_000  # characters

Finish = dict[str, Any]  # members of an element of jobs.finish_many


class Outcome(BaseException):
    """What a handler raises to end its attempt in a particular way."""

    def finish(self) -> Finish:
        raise NotImplementedError


class Snooze(Outcome):
    """The job comes again after the delay (seconds, or a timedelta). The attempt does not count."""

    def __init__(self, delay: Duration) -> None:
        super().__init__(f"snooze for {delay}")
        self.delay = _delay(delay)

    def finish(self) -> Finish:
        return {"do": "snooze", "delay": self.delay}


class Cancel(Outcome):
    """The job is cancelled, for this reason."""

    def __init__(self, reason: str | None = None) -> None:
        super().__init__(reason or "")
        self.reason = reason

    def finish(self) -> Finish:
        return {"do": "cancel"} | ({"reason": storable(str(self.reason))} if self.reason is not None else {})


class Discard(Outcome):
    """The attempt failed, and another one cannot help. The error is a text or an exception;
    without one it is that which the outcome is raised from."""

    def __init__(self, error: str | BaseException | None = None) -> None:
        super().__init__(error or "")
        self.error = error

    def finish(self) -> Finish:
        return _failure(self, self.error) | {"retryable": False}


class RetryIn(Outcome):
    """The attempt failed, and is retried after the delay (seconds, or a timedelta). The error is as
    that of Discard."""

    def __init__(self, delay: Duration, error: str | BaseException | None = None) -> None:
        super().__init__(error or "")
        self.delay = _delay(delay)
        self.error = error

    def finish(self) -> Finish:
        return _failure(self, self.error) | {"retry_in": self.delay}


def _delay(delay: Duration) -> float:
    if not math.isfinite(seconds(delay)):
        raise ValueError(f"a delay of {delay} is none: it is a number of seconds, or a timedelta")
    return max(seconds(delay), 0.0)


def completion(output: object) -> Finish:
    return {"do": "complete"} | ({"output": output} if output is not None else {})


def failure(error: BaseException) -> Finish:
    try:
        return error.finish() if isinstance(error, Outcome) else _failure(error)
    except BaseException as second:  # as of a class whose __init__ does not call that of Discard
        return _failure(second)


TIMED_OUT: Finish = {"do": "fail", "error": "the attempt ran longer than its timeout", "details": {"type": "timeout"}}


def invalid_output(error: BaseException) -> Finish:
    """Of an output that the language or the database cannot write as JSON."""
    told = _failure(error)
    text = storable(f"the output is no JSON that the database can hold: {told['error']}")
    return told | {"error": text, "details": {**told["details"], "type": "invalid_output"}}


def is_of_value(error: BaseException) -> bool:
    """Whether a call failed because of a value in it. One that needs more memory than Postgres
    allots at once has the SQLSTATE of every internal error, and a text that is never translated.
    Also what comes of no database."""
    is_too_large = "invalid memory alloc request size" in _ask(error, str)
    return is_too_large or (_ask(error, _code) or "22").startswith(("22", "54"))


def wire(id: int, token: int, finish: Finish) -> tuple[str, Finish]:
    """An element of jobs.finish_many as JSON, and what it says: an output that is none fails the
    attempt."""
    try:
        return encode({"id": id, "token": token} | finish), finish
    except Exception as error:  # also what the output's own classes raise
        return wire(id, token, invalid_output(error))


def _failure(error: BaseException, given: str | BaseException | None = None) -> Finish:
    shown = given if isinstance(given, BaseException) else error
    if given is None and isinstance(error, Outcome) and error.__cause__ is not None:
        shown = error.__cause__
    name = type(shown).__name__
    text = given if isinstance(given, str) else "no error was given" if isinstance(shown, Outcome) else _ask(shown, str)
    details = {"type": storable(name), "trace": _ask(shown, _trace)}
    if code := _ask(shown, _code):
        details["code"] = code
    return {"do": "fail", "error": storable(text) or storable(name), "details": details}


def _ask(error: BaseException, question: Callable[[BaseException], str]) -> str:
    """What the error says of itself. It can fail to be shown, or even to be looked at."""
    try:
        return storable(question(error))
    except BaseException:
        return ""


def _code(error: BaseException) -> str:
    """The SQLSTATE of an error of psycopg, SQLAlchemy (orig) or Django (__cause__); else the
    error's own code."""
    places = (error, getattr(error, "orig", None), error.__cause__)
    found = [getattr(one, name, None) for one in places for name in ("sqlstate", "pgcode")]
    codes = [code for code in [*found, getattr(error, "code", None)] if isinstance(code, (str, int))]
    return str(codes[0]) if codes else ""


def _trace(error: BaseException) -> str:
    """The stack, and those of the errors that led to it. Its end is kept, so no text in it may be
    long."""
    parts = traceback.format_exception(error, limit=-50)
    return "".join(part[:1000] for part in parts)[-LONGEST_TEXT:]


def storable(text: str) -> str:
    """A text as the database can hold it: without NUL and lone surrogates, and not endless."""
    return re.sub("[\0\ud800-\udfff]", "\ufffd", text[:LONGEST_TEXT])
