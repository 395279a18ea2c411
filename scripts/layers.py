"""Fails where a module of src/ imports one above it. Run by ./dev lint.

The layers, from the top down. Modules on one line may import each other, which only errors and what raises them do.
"""

import pathlib
import re
import sys

LAYERS = """
lib
api
worker
maintenance
periodic
options
unique
transition
config
check
store
shmem
pg error
fault
settings
"""

DEPTH = {module: depth for depth, line in enumerate(LAYERS.splitlines()) for module in line.split()}


def violations(files):
    """Yields (file, line, module, imported) for each import that points up."""
    for name, text in files:
        module = re.split(r"[/.]", name)[0]
        if module not in DEPTH:
            yield name, 0, module, "no layer of its own"
            continue
        for number, line in enumerate(text.splitlines(), 1):
            code = line.split("//")[0]
            for imported in re.findall(r"\bcrate::(\w+)", code) + grouped(code):
                if imported in DEPTH and DEPTH[imported] < DEPTH[module]:
                    yield name, number, module, imported


def grouped(code):
    """The modules of `use crate::{a, b::c}`."""
    found = re.search(r"\bcrate::\{(.*)", code)
    return re.findall(r"(?:^|[,{ ])(\w+)", found.group(1)) if found else []


def main():
    source = pathlib.Path(__file__).resolve().parent.parent / "src"
    files = [(str(path.relative_to(source)), path.read_text()) for path in sorted(source.rglob("*.rs"))]
    # Its negative control: an import that points up is found.
    if not list(violations([("store/planted.rs", "use crate::api::insert;")])):
        sys.exit("layers: a planted import was not found")
    found = list(violations(files))
    for name, number, module, imported in found:
        print(f"src/{name}:{number}: {module} imports {imported}, which is above it")
    sys.exit(1 if found else 0)


main()
