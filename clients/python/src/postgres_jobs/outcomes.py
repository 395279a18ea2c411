"""How an attempt can end, other than by returning, and what the server is told of it.

The outcomes are no `Exception`, as asyncio.CancelledError is none: a handler that catches every
Exception, to log it or to try a request again, means failures. It would swallow its own decision
otherwise, and the job would be completed.
"""

from __future__ import annotations

import math
import re
import traceback
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


def timed_out(after: float) -> Finish:
    return {"do": "fail", "error": f"timed out after {after:.3g} s", "details": {"type": "timeout"}}


def invalid_output(error: BaseException) -> Finish:
    """Of an output that the language or the database cannot write as JSON."""
    told = _failure(error)
    text = storable(f"the output is no JSON that the database can hold: {told['error']}")
    return told | {"error": text, "details": {**told["details"], "type": "invalid_output"}}


def is_of_value(error: BaseException) -> bool:
    """Whether a call failed because of a value in it. Also what comes of no database."""
    return (_code(error) or "22")[:2] in ("22", "54")


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
    text = given if isinstance(given, str) else "no error was given" if isinstance(shown, Outcome) else _text(shown)
    details = {"type": storable(name), "trace": _trace(shown)}
    if code := _code(shown):
        details["code"] = storable(code)
    return {"do": "fail", "error": storable(text) or storable(name), "details": details}


def _text(error: BaseException) -> str:
    try:
        return str(error)[: LONGEST_TEXT + 1]
    except BaseException:  # an error can fail to show itself
        return ""


def _code(error: BaseException) -> str | None:
    """The SQLSTATE of an error of psycopg, SQLAlchemy (orig) or Django (__cause__); else the
    error's own code."""
    try:
        places = (error, getattr(error, "orig", None), error.__cause__)
        found = [getattr(one, name, None) for one in places for name in ("sqlstate", "pgcode")]
        codes = [code for code in [*found, getattr(error, "code", None)] if isinstance(code, (str, int))]
        return str(codes[0]) if codes else None
    except BaseException:  # an error can fail to be looked at, too
        return None


def _trace(error: BaseException) -> str:
    """The stack, and those of the errors that led to it. The texts in it are short: the end is what
    is kept."""
    parts: list[str] = []
    seen: BaseException | None = error
    while seen is not None and len(parts) < 10:
        frames = "".join(traceback.format_tb(seen.__traceback__)[-50:])
        parts.append(f"{frames}{type(seen).__name__}: {_text(seen)[:1000]}\n")
        seen = seen.__cause__ if seen.__suppress_context__ else seen.__context__
    trace = "\n".join(reversed(parts))
    return _UNSTORABLE.sub("\ufffd", trace[-LONGEST_TEXT:])


_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def storable(text: str) -> str:
    """A text as the database can hold it: without NUL and lone surrogates, and not endless."""
    return _UNSTORABLE.sub("\ufffd", text[:LONGEST_TEXT])
