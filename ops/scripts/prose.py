"""Fails where a line of prose, in the documentation or in a comment, has more than 100 columns, and
where a comment does not stand alone. Run by ./dev lint.

A line of prose ends at a sentence or at the margin, so that a change shows as the lines it changes.
Tables, code and the targets of links do not count, nor does docs/reference.md, which is made from
COMMENTs. A comment may stand behind code; a docstring is a comment.
"""

import pathlib
import re
import subprocess
import sys

COLUMNS = 100
GENERATED = {"docs/reference.md"}

# What begins a comment, by the ends of the files' names; expected output repeats its script's.
# Files without a suffix are scripts, and the like.
COMMENTS = {
    (".rs", ".mjs", ".js", ".ts", ".java", ".go"): "//[/!]?",
    (".sql", ".psql", ".out"): "--",
    (".sh", ".py", ".rb", ".toml", ".yml", ".conf", ".spec", ".control", ""): "#",
}


def violations(text):
    """Yields (line number, what is wrong) of each line of prose that is too long."""
    in_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code and not line.lstrip().startswith(("|", "<!--", "![")):
            columns = len(re.sub(r"\]\([^)]*\)|(?<=\]): https://\S*$", "]", line))
            if columns > COLUMNS:
                yield number, f"{columns} columns of prose, at most {COLUMNS}"


def comments(name, text):
    """Yields (line number, what is wrong) of each comment that breaks a rule."""
    suffix = pathlib.PurePath(name).suffix
    mark = next((mark for suffixes, mark in COMMENTS.items() if suffix in suffixes), None)
    if not mark:
        return
    comment = rf"(?:^|\s){mark}(?:\s+|$)" + (r'|^\s*"""' if suffix == ".py" else "")
    in_string = in_docstring = False
    for number, line in enumerate(text.splitlines(), 1):
        found = re.search(comment, line)
        if len(line) > COLUMNS and (found or in_docstring):
            yield number, f"{len(line)} columns of prose, at most {COLUMNS}"
        if found and re.match(r"The same\b", line[found.end() :]):
            yield number, "begins with The same: what is it by itself?"
        if suffix == ".py" and line.count('"""') == 1:
            in_string = not in_string
            in_docstring = in_string and line.lstrip().startswith('"""')


def planted(found, lines):
    """The negative controls: of the planted lines these are found, and no others."""
    if [number for number, _ in found] != lines:
        sys.exit("prose: a planted line was not found, or another one was")


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    a = "a " * 60
    planted(violations(f"{a}\n| {a} |\n```\n{a}\n```\n[a]({'a' * 120})\n[a]: https://{'a' * 120}\n"), [1])
    planted(comments("a.rs", f"{a}\n// {'a' * 98}\n// {'a' * 97}\n{'a' * 90} // b b b b\n"), [2, 4])
    planted(comments("a.rs", "/// The same of b.\n/// Of b the same.\na // The same.\n"), [1, 3])
    planted(comments("dev", f"{a}\n# {a}\n{a}# a\n"), [2, 3])
    planted(comments("a.py", f'"""The same.\n\n{a}\n"""\n{a}\nb = """\n{a}\n"""\n{a}\n'), [1, 3])
    pages = [*root.glob("*.md"), *root.glob(".github/*.md"), *root.glob("docs/**/*.md"), *root.glob("tests/model/*.md")]
    pages += [*root.glob("clients/*.md"), *root.glob("clients/*/*.md"), *root.glob("cli/*.md")]
    found = [
        (name, *at)
        for page in sorted(pages)
        if (name := str(page.relative_to(root))) not in GENERATED
        for at in violations(page.read_text())
    ]
    tracked = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True).stdout
    for name in tracked.splitlines():
        found += [(name, *at) for at in comments(name, (root / name).read_text(errors="replace"))]
    for name, number, wrong in found:
        print(f"{name}:{number}: {wrong}")
    sys.exit(1 if found else 0)


main()
