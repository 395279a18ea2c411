"""The ways an attempt can end other than by returning, and the results sent for them.

Like asyncio.CancelledError, outcomes do not derive from `Exception`. Otherwise a handler that
catches every Exception, to log it or to retry a request, would swallow its own decision, and the
job would be completed.
"""

from __future__ import annotations

import math
import re
import traceback
from collections.abc import Callable
from typing import Any

from ._errors import code_of
from ._values import Duration, encode, seconds

LONGEST_TEXT = 10_000  # characters

Finish = dict[str, Any]  # members of an element of jobs.finish_many


class Outcome(BaseException):
    """Base class of what a handler raises to choose how its attempt ends."""

    def finish(self) -> Finish:
        raise NotImplementedError


class Snooze(Outcome):
    """Schedules the job again after the delay (seconds or a timedelta). The attempt does not
    count."""

    def __init__(self, delay: Duration) -> None:
        super().__init__(f"snooze for {delay}")
        self.delay = _delay(delay)

    def finish(self) -> Finish:
        return {"do": "snooze", "delay": self.delay}


class Cancel(Outcome):
    """Cancels the job, with this reason."""

    def __init__(self, reason: str | None = None) -> None:
        super().__init__(reason or "")
        self.reason = reason

    def finish(self) -> Finish:
        return {"do": "cancel"} | ({"reason": storable(str(self.reason))} if self.reason is not None else {})


class Discard(Outcome):
    """Fails the attempt and discards the job. The error is a text or an exception, by default the
    one that the outcome is raised from."""

    def __init__(self, error: str | BaseException | None = None) -> None:
        super().__init__(error or "")
        self.error = error

    def finish(self) -> Finish:
        return _failure(self, self.error) | {"retryable": False}


class RetryIn(Outcome):
    """Fails the attempt and retries the job after the delay (seconds or a timedelta). The error is
    as for Discard."""

    def __init__(self, delay: Duration, error: str | BaseException | None = None) -> None:
        super().__init__(error or "")
        self.delay = _delay(delay)
        self.error = error

    def finish(self) -> Finish:
        return _failure(self, self.error) | {"retry_in": self.delay}


def _delay(delay: Duration) -> float:
    if not math.isfinite(seconds(delay)):
        raise ValueError(f"delay must be a finite number of seconds or a timedelta, not {delay}")
    return max(seconds(delay), 0.0)


def completion(output: object) -> Finish:
    return {"do": "complete"} | ({"output": output} if output is not None else {})


def failure(error: BaseException) -> Finish:
    try:
        return error.finish() if isinstance(error, Outcome) else _failure(error)
    except BaseException as second:  # such as a class whose __init__ does not call Discard's
        return _failure(second)


TIMED_OUT: Finish = {"do": "fail", "error": "the attempt ran longer than its timeout", "details": {"type": "timeout"}}


def invalid_output(error: BaseException) -> Finish:
    """The failure for an output that the language or the database cannot store as JSON."""
    told = _failure(error)
    text = storable(f"the output cannot be stored as JSON: {told['error']}")
    return told | {"error": text, "details": {**told["details"], "type": "invalid_output"}}


def is_of_value(error: BaseException) -> bool:
    """Whether a call failed because of a value in it, or before it reached the database. A value
    that needs more memory than Postgres allocates at once raises the SQLSTATE of every internal
    error, with a text that is never translated."""
    is_too_large = "invalid memory alloc request size" in _ask(error, str)
    return is_too_large or (_ask(error, code_of) or "22").startswith(("22", "54"))


def wire(id: int, token: int, finish: Finish) -> tuple[str, Finish, BaseException | None]:
    """An element of jobs.finish_many as JSON, its content, and why that is another than `finish`:
    an output that is not JSON fails the attempt."""
    try:
        return encode({"id": id, "token": token} | finish), finish, None
    except Exception as error:  # also one raised by the output's own classes
        text, told, _ = wire(id, token, invalid_output(error))
        return text, told, error


def raised_by(error: BaseException) -> BaseException:
    """The error of an outcome, if it has one."""
    given = error.__dict__.get("error") if isinstance(error, (Discard, RetryIn)) else None
    if isinstance(given, BaseException):
        return given
    if given is None and isinstance(error, Outcome) and error.__cause__ is not None:
        return error.__cause__
    return error


def _failure(error: BaseException, given: str | BaseException | None = None) -> Finish:
    raised = raised_by(error)
    name = type(raised).__name__
    is_silent = isinstance(raised, Outcome)
    text = given if isinstance(given, str) else "no error was given" if is_silent else _ask(raised, str)
    details = {"type": storable(name), "trace": _ask(raised, _trace)}
    if code := _ask(raised, code_of):
        details["code"] = code
    return {"do": "fail", "error": storable(text) or storable(name), "details": details}


def _ask(error: BaseException, question: Callable[[BaseException], str]) -> str:
    """Asks the error about itself, which may raise."""
    try:
        return storable(question(error))
    except BaseException:
        return ""


def _trace(error: BaseException) -> str:
    """The stack, and those of the errors that caused it. Its end is kept, and texts are cut."""
    parts = traceback.format_exception(error, limit=-50)
    return "".join(part[:1000] for part in parts)[-LONGEST_TEXT:]


def storable(text: str) -> str:
    """A text that the database can store: cut, and without NUL and lone surrogates."""
    return re.sub("[\0\ud800-\udfff]", "\ufffd", text[:LONGEST_TEXT])
