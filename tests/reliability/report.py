#!/usr/bin/env python3
"""Prints docs/reliability.md with other figures: report.py FIGURES MACHINE.

The figures are lines `figure: CASE KEY VALUE` of a run alone. In the page they stand between
`<!-- figures: CASE -->` and `<!-- end -->`.
"""

import pathlib
import re
import sys
import textwrap


# How the load went on the way: of use in the figures of a run alone.
LEFT_OUT = {
    "completed one by one", "completed together", "failed", "leases that were lost", "released", "replaced",
    "sessions lost", "snoozed", "refused or rolled back", "skipped as duplicates", "cancelled", "answers lost to workers",
    "completions, acknowledged", "tokens refused in a new session", "files of the worker, by quarters", "files of the session, by quarters",
    "plans of the session, by quarters", "memory in the session's contexts, by quarters", "seed", "of them with an error",
    "kinds of calls, half of them failing", "rounds of calls in the session that stays",
}


def tables(lines):
    """Keys and values per case, in the order in which they came; of a repeated key the last."""
    cases = {}
    for line in lines:
        _, case, key, value = line.split(" ", 3)
        if (key := key.replace("_", " ")) not in LEFT_OUT:
            cases.setdefault(case, {})[key] = value
    return cases


def table(figures):
    if not figures:
        return "Not in this run.\n"
    return "| | |\n|---|---|\n" + "".join(f"| {key} | {value} |\n" for key, value in figures.items())


def main(figures, machine):
    cases = tables(pathlib.Path(figures).read_text().splitlines())
    page = (pathlib.Path(__file__).parents[2] / "docs/reliability.md").read_text()
    lines = pathlib.Path(machine).read_text().splitlines()
    machine = "".join(textwrap.fill(f"* {line}", 100, subsequent_indent="  ") + "\n" for line in lines)

    def figures_of(match):
        figures = machine if match[2] == "machine" else table(cases.get(match[2]))
        return f"{match[1]}{figures}\n<!-- end -->"

    print(re.sub(r"(<!-- figures: (\w+) -->\n).*?<!-- end -->", figures_of, page, flags=re.S), end="")


if __name__ == "__main__":
    main(*sys.argv[1:])
