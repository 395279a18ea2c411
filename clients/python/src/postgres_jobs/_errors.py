"""What to do about the errors of a first run."""

from __future__ import annotations

import re
import socket
from typing import NoReturn

NEEDS = "0.1.0"
"""The oldest version of the extension that this library works with."""

VERSION = "select extversion from pg_extension where extname = 'jobs'"

_CREATE = "Check the database, or run CREATE EXTENSION jobs in it."
_UPDATE = "Run ALTER EXTENSION jobs UPDATE, after installing the version that the library needs on the server."
_USER = "Check the user and the password in the URL."

# By SQLSTATE.
_CALLS = {"3F000": _CREATE, "42P01": _CREATE, "42883": _UPDATE}
_CONNECTIONS = {"3D000": "Check the database in the URL.", "28000": _USER, "28P01": _USER}

# libpq passes no SQLSTATE on for an error while connecting, only the server's text.
_TEXTS = {
    r'FATAL: +database ".*" does not exist': _CONNECTIONS["3D000"],
    r'FATAL: +role ".*" (does not exist|is not permitted to log in)': _USER,
    r"FATAL: .*(authentication failed|pg_hba\.conf)|no password supplied": _USER,
    "does not support SSL, but SSL was required": "Add ?sslmode=disable to the URL.",
    r'invalid (integer value|\w+ value:|port number:) "|bad value for|could not match \d': "Check the URL.",
    (
        r'FATAL: +(unrecognized configuration parameter|invalid value for parameter|invalid command-line arg|parameter ".*" cannot be)'
    ): "Check the URL.",
    rf"\[Errno {socket.EAI_NONAME}\]": "Check the host in the URL.",
}


def code_of(error: BaseException) -> str:
    """The SQLSTATE of an error of psycopg, SQLAlchemy (orig) or Django (__cause__); else the
    error's own code."""
    places = (error, getattr(error, "orig", None), error.__cause__)
    found = [getattr(one, name, None) for one in places for name in ("sqlstate", "pgcode")]
    codes = [code for code in [*found, getattr(error, "code", None)] if isinstance(code, (str, int))]
    return str(codes[0]) if codes else ""


def hint_at(error: BaseException, grant: str, role: str | None, *, of_connection: bool = False) -> bool:
    """Adds a hint to the error if it is one of a first run, and returns whether it is. `grant` is
    the function that gives the role what it lacks."""
    code = code_of(error)
    if code == "42501":
        name = (role or "ROLE").replace("'", "''")
        hint = f"Ask an administrator to run SELECT jobs.{grant}('{name}')."
    else:
        hint = _CALLS.get(code, "")
    if of_connection and not hint:
        # A host with several addresses has a failure for each.
        failures = re.findall(r"failed: (.*)", str(error)) or [str(error)]
        found = {next((hint for text, hint in _TEXTS.items() if re.search(text, one)), "") for one in failures}
        hint = _CONNECTIONS.get(code) or (found.pop() if len(found) == 1 else "")
    if hint:
        add_hint(error, hint)
    return bool(hint)


def add_hint(error: BaseException, hint: str) -> None:
    notes = getattr(error, "__notes__", [])
    if hint not in notes:  # add_note of Python 3.11
        error.__notes__ = [*notes, hint]  # type: ignore[attr-defined, unused-ignore]


def shown(error: BaseException) -> str:
    """The error's text and hints in one line."""
    return " ".join(" ".join([str(error), *getattr(error, "__notes__", [])]).split())


def check_version(version: str | None, database: str) -> None:
    """Raises RuntimeError unless the database has an extension that is new enough."""
    if version is None:
        error, hint = f'the database "{database}" does not have the extension jobs', _CREATE
    elif _number(version) < _number(NEEDS):
        error = f"the extension jobs has version {version}, and this library needs {NEEDS}"
        hint = "Run ALTER EXTENSION jobs UPDATE, after installing it on the server."
    else:
        return
    refuse(error, hint)


def refuse(error: str, hint: str) -> NoReturn:
    refused = RuntimeError(error)
    add_hint(refused, hint)
    raise refused


def _number(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]
