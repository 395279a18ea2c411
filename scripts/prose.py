"""Fails where a line of prose, in the documentation or in a comment, has more than 100 columns, and where a comment
does not stand alone. Run by ./dev lint.

A line of prose ends at a sentence or at the margin, so that a change shows as the lines it changes. Tables, code and
the targets of links do not count. Of pages that are generated the words are looked at where they are written: in
*.in.md. docs/reference.md is made from COMMENTs, which psql shows as they are. Comments are lines of their own.
"""

import pathlib
import re
import subprocess
import sys

COLUMNS = 100
GENERATED = {"docs/reference.md", "docs/performance.md", "docs/reliability.md"}


def violations(text):
    """Yields (line number, what is wrong) of each line of prose that is too long."""
    in_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code and not line.lstrip().startswith(("|", "<!--", "![")):
            columns = len(re.sub(r"\]\([^)]*\)", "]", line))
            if columns > COLUMNS:
                yield number, f"{columns} columns of prose, at most {COLUMNS}"


# How a line of a comment begins, by the ends of the files' names; expected output repeats its
# script's.
COMMENTS = {
    (".rs", ".mjs", ".js", ".java", ".go"): r"\s*//",
    (".sql", ".out"): r"\s*--\s",
    (".sh", ".py", ".rb", ".toml", ".yml", ".conf", ".spec", ".control"): r"\s*#",
    ("dev", "Makefile", "Dockerfile", ".ci/run", ".ci/publish"): r"\s*#",
}


def comments(name, text):
    """Yields (line number, what is wrong) of each comment that is too long, or says only what it is like."""
    for ends, begins in COMMENTS.items():
        if name.endswith(ends):
            for number, line in enumerate(text.splitlines(), 1):
                if len(line) > COLUMNS and re.match(begins, line):
                    yield number, f"{len(line)} columns of prose, at most {COLUMNS}"
                if re.match(begins + r"\S*\s*The same\b", line):
                    yield number, "begins with The same: what is it by itself?"


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    planted = f"{'a ' * 60}\n| {'a ' * 60} |\n```\n{'a ' * 60}\n```\n[a]({'a' * 120})\n"
    # Its negative control: of four long lines only the one of prose is found.
    if [number for number, _ in violations(planted)] != [1]:
        sys.exit("prose: a planted line was not found, or another one was")
    planted = f"{'a' * 120}\n// {'a' * 98}\n// {'a' * 97}\n/// The same of b.\n/// Of b the same.\n"
    if [number for number, _ in comments("a.rs", planted)] != [2, 4]:
        sys.exit("prose: a planted comment was not found, or another line was")
    pages = [*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("model/*.md"), *root.glob("**/*.in.md")]
    found = [
        (name, *at)
        for page in sorted(pages)
        if (name := str(page.relative_to(root))) not in GENERATED
        for at in violations(page.read_text())
    ]
    tracked = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True).stdout
    for name in tracked.splitlines():
        if name.endswith(tuple(end for ends in COMMENTS for end in ends)):
            found += [(name, *at) for at in comments(name, (root / name).read_text())]
    for name, number, wrong in found:
        print(f"{name}:{number}: {wrong}")
    sys.exit(1 if found else 0)


main()
