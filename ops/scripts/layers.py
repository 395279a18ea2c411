"""Fails where a file of src/, cli/src/ or clients/rust/src/ imports one above it, where files of
the latter two import each other in a circle, or where src/ is unsafe, reads and writes tables
without statements or does what follows from a job's move outside the rooms for that. Run by
./dev lint.

The layers, from the top down. A name is that of a file, or of a folder and all in it that has no
layer of its own. What stands on one line may import each other.
"""

import pathlib
import re
import sys

SRC = """
lib
api
worker
maintenance
explain health
ticks
options
unique
transition
check
cell
store
shmem
pg error
fault
settings
"""

CLI = """
main
apply console explain forward health insert manage pause show top unblock work
forward/cells forward/queue
forward/outbox
forward/fault
list
console/screens
console/guard console/login console/monitor console/serve
console/attach console/links console/page console/stream console/theme console/visit
console/app console/live console/login_attempts console/login_token console/session
console/connection console/role
console/edited console/fields console/filter console/http console/json console/problem
console/assets console/interval console/paging console/parts console/room
bulk cells selected
filter standby
database hang_up output seconds table times windows
failed finding terminal visible
"""

CLIENT = """
lib tests
handle opentelemetry testing
control fetch finish
engine
cells report sync
worker
handler insert
job new_job options unique
link
executor
error
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
    "permits": "free",
    "tally": "count",
    "turns": "over|returned",
}
DOORS = ("store/effects.rs", "store/history.rs", "store/lanes.rs")

# A path to another module, in `use` or without. What `pub use` names is found where it is from.
PATH = re.compile(r"(?P<pub>pub(\(\w+\))? )?\buse (?P<use>[^;]+);|(?<!in )\b(?P<path>(crate|super)(::\w+)+)")
INLINE = re.compile(r"^(?:pub(?:\(\w+\))? )?mod (\w+) \{", re.M)


def module_of(name):
    """The module that a file is, as the steps to it from the root of its crate."""
    return tuple(step for step in name.removesuffix(".rs").split("/") if step not in ("lib", "main", "mod"))


def paths(tree):
    """Yields the paths of what stands after `use`."""
    head, brace, rest = tree.partition("{")
    if not brace:
        yield re.sub(r"\s|\bas \w+", "", head)
        return
    depth, start = 0, 0
    for end, character in enumerate(rest):
        if character in ",}" and depth == 0:
            if rest[start:end].strip():
                yield from paths(head + rest[start:end])
            start = end + 1
        depth += (character == "{") - (character == "}")


def imports(files):
    """Yields (file, line, module, imported) for each path from a module to another one."""
    codes = {module_of(name): (name, re.sub("//.*", "", text)) for name, text in files}
    exports, found = {}, []
    for module, (name, code) in codes.items():
        for match in PATH.finditer(code):
            at = module + tuple(INLINE.findall(code[: match.start()])[-1:])
            for path in paths(match["use"] or match["path"]):
                steps = path.split("::")
                if steps[0] == "crate":
                    steps = tuple(steps[1:])
                elif steps[0] in ("self", "super") or module + (steps[0],) in codes:
                    above = steps.count("super")
                    steps = at[: len(at) - above] + tuple(step for step in steps if step not in ("self", "super"))
                else:
                    continue
                found.append((name, code.count("\n", 0, match.start()) + 1, module, steps))
                if match["pub"]:
                    exports[module + (steps[-1],)] = steps

    def owner(steps):
        """The module that has it."""
        for length in range(len(steps) + 1):
            if steps[:length] in exports and steps[:length] not in codes:
                return owner(exports[steps[:length]] + steps[length:])
        while steps not in codes and steps:
            steps = steps[:-1]
        return steps

    for name, number, module, steps in found:
        if owner(steps) != module:
            yield name, number, module, owner(steps)


def violations(layers, files):
    """Yields (file, line, what is wrong) for each import that points up."""
    depths = {module_of(name): depth for depth, line in enumerate(layers.splitlines()) for name in line.split()}

    def depth(module):
        while module not in depths and module:
            module = module[:-1]
        return depths[module]

    for name, number, module, imported in imports(files):
        if depth(imported) < depth(module):
            yield name, number, f"imports {'::'.join(imported) or 'the root'}, which is above it"
    for name, _ in files:
        if module_of(name)[:1] not in {module[:1] for module in depths}:
            yield name, 0, "has no layer"


def circle(files):
    """Modules each of which imports the next one, and the last one the first, if there are any."""
    below = {module_of(name): set() for name, _ in files}
    for _, _, module, imported in imports(files):
        below[module].add(imported)
    while ends := [module for module in below if not below[module] & below.keys()]:
        for module in ends:
            del below[module]
    way = [*below][:1]
    while way:
        following = min(below[way[-1]] & below.keys())
        if following in way:
            return ["::".join(module) or "the root" for module in way[way.index(following) :]]
        way.append(following)
    return []


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


def sources(directory):
    """The files of a directory, each with its text."""
    root = pathlib.Path(__file__).resolve().parents[2] / directory
    return [(str(path.relative_to(root)), path.read_text()) for path in sorted(root.rglob("*.rs"))]


def control(is_right, what):
    """Ends the run where a check does not find what is planted."""
    if not is_right:
        sys.exit(f"layers: {what} was not found, or one that may be")


def controls():
    """Plants what each check is to find, and what it is not."""
    crate = [(name, "") for name in ("api/mod.rs", "worker/mod.rs", "store/mod.rs", "pg.rs")]
    crate.append(("lib.rs", "pub use api::Insert;\npub use pg::time;"))
    for name, text, expected in [
        ("store/planted.rs", "use crate::api::insert;", [1]),
        ("store/planted.rs", "use crate::{\n    pg::{time, api},\n    api,\n    worker::{a, b::c},\n};", [1, 1, 1]),
        ("store/planted.rs", "\nuse crate::*;", [2]),
        ("store/planted.rs", "use super::super::api;\nuse super::api;", [1]),
        ("store/planted.rs", "use crate::Insert;\nuse crate::time;", [1]),
        ("store/planted.rs", "#[cfg(test)]\nmod tests {\n    use super::*;\n    use crate::api;\n}", [4]),
        ("store/planted/mod.rs", "super::super::api::a()", [1]),
        ("store/planted/a.rs", "use super::super::api;", []),
    ]:
        found = [line for _, line, _ in violations(SRC, [*crate, (name, text)])]
        control(found == expected, "a planted import")
    cli = [("main.rs", "mod console;"), ("console/mod.rs", ""), ("console/parts.rs", "")]
    for name, text, expected in [
        ("console/screens/job.rs", "use crate::console::parts;", 0),
        ("console/parts.rs", "use super::screens::job;", 1),
        ("console/app.rs", "use super::Console;", 1),
    ]:
        files = [*cli, ("console/screens/job.rs", ""), (name, text)]
        control(len(list(violations(CLI, files))) == expected, "a planted screen")
    files = [(f"{name}.rs", f"use crate::{imported};") for name, imported in ("ab", "bc", "ca", "da")]
    control(sorted(circle(files)) == ["a", "b", "c"] and not circle(files[1:]), "a planted circle")
    planted = [(name, "unsafe { f() }") for name in ("store/planted.rs", "pg/planted.rs")]
    control(list(unsafe(planted)) == [("store/planted.rs", 1)], "a planted unsafe block")
    planted = [
        "use crate::pg::scan::Seen;",
        "use crate::pg::{time, scan};",
        "use crate::pg::{\n    scan::Seen,\n};",
    ]
    for room, expected in [("store/", [1]), ("unique/", [1]), ("pg/", []), ("store/direct/", [])]:
        for text in planted:
            found = [line for _, line, _ in access([(f"{room}planted.rs", text)])]
            control(found == expected, "planted direct access")
    for text, expected in [
        ("announce::over(id);", 1),
        ("use crate::shmem::announce::{self, over};", 1),
        ("use super::history::*;", 1),
        ("announce::requested(worker); history::keep(); limits::lock_starts();", 0),
    ]:
        for room, found in [("store/planted.rs", expected), (DOORS[0], 0)]:
            control(len(list(follows([(room, text)]))) == found, "what follows from a move")


def main():
    controls()
    found = []
    for directory, layers in [("src", SRC), ("cli/src", CLI), ("clients/rust/src", CLIENT)]:
        files = sources(directory)
        found += [f"{directory}/{name}:{line}: {what}" for name, line, what in violations(layers, files)]
        if layers != SRC and (modules := circle(files)):
            found.append(f"{directory}: {', '.join(modules)} import each other in a circle")
    for name, line in unsafe(src := sources("src")):
        found.append(f"src/{name}:{line}: unsafe; only {', '.join(UNSAFE)} may be: give it a safe function there")
    for name, line, module in access(src):
        found.append(f"src/{name}:{line}: imports pg::{module}; only {', '.join(DIRECT)} may: give it a function there")
    for name, line, what in follows(src):
        found.append(
            f"src/{name}:{line}: names {what}; only {', '.join(DOORS)} may: "
            "say what has moved by a function of store/effects.rs"
        )
    if found:
        sys.exit("\n".join(found))


main()
