"""Fails where a module of src/ imports one above it, or is unsafe, reads and writes tables without
statements or does what follows from a job's move outside the rooms for that. Also where a file that
all screens of the console share names a screen. Run by ./dev lint.

The layers, from the top down. Modules on one line may import each other, which only errors and what
raises them do.
"""

import pathlib
import re
import sys

LAYERS = """
lib
api
worker
maintenance
ticks
options
unique
transition
attempt
check
store
shmem
pg error
fault
settings
"""

# What talks with the server or shares memory. Everything else calls these.
UNSAFE = ("pg/", "shmem/", "worker/process.rs", "fault.rs")

# What reads and writes tables without statements, and who may.
ACCESS = ("index", "page_lookup", "row", "scan", "table")
DIRECT = ("pg/", "store/direct/")

# What follows from a job's move, and who may do it: the doors, and what they go through.
FOLLOWS = {
    "announce": "available|cancelled|over|waits",
    "bounds": "put",
    "history": "inserted|over|started",
    "lanes": r"put_\w+",
    "limits": "free|occupy|start",
    "notes": "release_holds",
    "tally": "count",
}
DOORS = ("store/effects.rs", "store/history.rs", "store/lanes.rs")

DEPTH = {module: depth for depth, line in enumerate(LAYERS.splitlines()) for module in line.split()}


def violations(files):
    """Yields (file, line, module, imported) for each import that points up."""
    for name, text in files:
        module = re.split(r"[/.]", name)[0]
        if module not in DEPTH:
            yield name, 0, module, "no layer of its own"
            continue
        for number, imported in imports(name, text):
            if imported == "*" or DEPTH.get(imported, DEPTH[module]) < DEPTH[module]:
                yield name, number, module, imported


def imports(name, text):
    """Yields (line, module) of each module of the crate that a file names, by crate or by super."""
    code = re.sub("//.*", "", text)
    above = len(re.sub(r"(/mod)?\.rs$", "", name).split("/"))
    for found in re.finditer(rf"(?<!:)\b(?:crate|{'::'.join(['super'] * above)})::(\*|\w+|{{[^;]*)", code):
        names, changed = found[1], True
        while changed:  # what stands within a module is none of the crate's
            names, changed = re.subn(r"(?<=::){[^{}]*}", "", names)
        for module in re.findall(r"(?:^|[{,\s])(\*|\w+)", names):
            yield code.count("\n", 0, found.start()) + 1, module


def unsafe(files):
    """Yields (file, line) of each `unsafe` where there is to be none, also in an attribute."""
    for name, text in files:
        if not name.startswith(UNSAFE):
            for number, line in enumerate(text.splitlines(), 1):
                if re.search(r"\bunsafe\b", line.split("//")[0]):
                    yield name, number


def access(files):
    """Yields (file, line, module) of each module of direct access named outside its rooms."""
    for name, text in files:
        if name.startswith(DIRECT):
            continue
        code = re.sub("//.*", "", text)
        for found in re.finditer(r"\bpg::(\w+|\{[^;]*)", code):
            for module in re.findall(r"(?:^|[{,\s])(\w+)", found[1]):
                if module in ACCESS:
                    yield name, code.count("\n", 0, found.start()) + 1, module


def follows(files):
    """Yields (file, line, what) of each thing that follows from a job's move and is named past the
    doors."""
    for name, text in files:
        if name in DOORS:
            continue
        code = re.sub("//.*", "", text)
        for found in re.finditer(rf"\b({'|'.join(FOLLOWS)})::(\*|\w+|\{{[^;]*)", code):
            for what in re.findall(r"(?:^|[{,\s])(\*|\w+)", found[2]):
                if re.fullmatch(rf"\*|{FOLLOWS[found[1]]}", what):
                    yield name, code.count("\n", 0, found.start()) + 1, f"{found[1]}::{what}"


def screens(files):
    """Yields (file, line) of each screen of the console that a file names which all share."""
    for name, text in files:
        if name != "mod.rs" and not name.startswith("screens/"):
            for number, line in enumerate(text.splitlines(), 1):
                if re.search(r"\bscreens\b", line.split("//")[0]):
                    yield name, number


def sources(directory):
    """The files of a directory, each with its text."""
    root = pathlib.Path(__file__).resolve().parent.parent / directory
    return [(str(path.relative_to(root)), path.read_text()) for path in sorted(root.rglob("*.rs"))]


def main():
    files = sources("src")
    # Its negative controls: an import that points up is found, and so is what is unsafe, direct
    # access or follows from a move, but in its rooms.
    for name, text, expected in [
        ("store/planted.rs", "use crate::api::insert;", ["api"]),
        ("store/planted.rs", "use crate::{\n    pg::{time, api},\n    api,\n    worker::a,\n};", ["api", "worker"]),
        ("store/planted.rs", "use crate::*;", ["*"]),
        ("store/planted.rs", "use super::super::api;\nuse super::api;", ["api"]),
        ("store/planted/mod.rs", "super::super::api::a()", ["api"]),
        ("store/planted/a.rs", "use super::super::api;", []),
    ]:
        if [imported for *_, imported in violations([(name, text)])] != expected:
            sys.exit("layers: a planted import was not found, or one that may be")
    planted = [(name, "unsafe { f() }") for name in ("store/planted.rs", "pg/planted.rs")]
    if list(unsafe(planted)) != [("store/planted.rs", 1)]:
        sys.exit("layers: a planted unsafe block was not found, or one that may be")
    planted = [
        "use crate::pg::scan::Seen;",
        "use crate::pg::{time, scan};",
        "use crate::pg::{\n    scan::Seen,\n};",
    ]
    for room, expected in [("store/", [1]), ("unique/", [1]), ("pg/", []), ("store/direct/", [])]:
        for text in planted:
            if [line for _, line, _ in access([(f"{room}planted.rs", text)])] != expected:
                sys.exit("layers: planted direct access was not found, or one that may be")
    for text, expected in [
        ("announce::over(id);", 1),
        ("use crate::shmem::announce::{self, over};", 1),
        ("use super::history::*;", 1),
        ("announce::requested(worker); history::keep(); limits::lock_starts();", 0),
    ]:
        for room, found in [("store/planted.rs", expected), (DOORS[0], 0)]:
            if len(list(follows([(room, text)]))) != found:
                sys.exit("layers: what follows from a move was not found where it was planted, or where it may be")
    rooms = ("parts.rs", "mod.rs", "screens/job.rs")
    if list(screens([(room, "use super::screens::job;") for room in rooms])) != [("parts.rs", 1)]:
        sys.exit("layers: a planted screen was not found, or one that may be")
    found = list(violations(files))
    for name, number, module, imported in found:
        print(f"src/{name}:{number}: {module} imports {imported}, which is above it")
    blocks = list(unsafe(files))
    for name, number in blocks:
        print(f"src/{name}:{number}: unsafe; only {', '.join(UNSAFE)} may be: give it a safe function there")
    accesses = list(access(files))
    for name, number, module in accesses:
        print(f"src/{name}:{number}: imports pg::{module}; only {', '.join(DIRECT)} may: give it a function there")
    past = list(follows(files))
    for name, number, what in past:
        print(f"src/{name}:{number}: names {what}; only {', '.join(DOORS)} may: say what has moved by a function of store/effects.rs")
    named = list(screens(sources("cli/src/console")))
    for name, number in named:
        print(f"cli/src/console/{name}:{number}: names a screen; only mod.rs and screens/ may")
    sys.exit(1 if found or blocks or accesses or past or named else 0)


main()
