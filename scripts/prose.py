"""Fails where a line of the documentation's prose has more than 100 columns. Run by the suite `doc`.

A line of prose ends at a sentence or at the margin, so that a change shows as the lines it changes. Tables, code and
the targets of links do not count. Of pages that are generated the words are looked at where they are written: in
*.in.md. docs/reference.md is made from COMMENTs, which psql shows as they are.
"""

import pathlib
import re
import sys

COLUMNS = 100
GENERATED = {"docs/reference.md", "docs/performance.md", "docs/reliability.md"}


def violations(text):
    """Yields (line number, columns) of each line of prose that is too long."""
    in_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code and not line.lstrip().startswith(("|", "<!--", "![")):
            columns = len(re.sub(r"\]\([^)]*\)", "]", line))
            if columns > COLUMNS:
                yield number, columns


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    planted = f"{'a ' * 60}\n| {'a ' * 60} |\n```\n{'a ' * 60}\n```\n[a]({'a' * 120})\n"
    # Its negative control: of four long lines only the one of prose is found.
    if [number for number, _ in violations(planted)] != [1]:
        sys.exit("prose: a planted line was not found, or another one was")
    pages = [*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("model/*.md"), *root.glob("**/*.in.md")]
    found = [
        (name, number, columns)
        for page in sorted(pages)
        if (name := str(page.relative_to(root))) not in GENERATED
        for number, columns in violations(page.read_text())
    ]
    for name, number, columns in found:
        print(f"{name}:{number}: {columns} columns of prose, at most {COLUMNS}")
    sys.exit(1 if found else 0)


main()
