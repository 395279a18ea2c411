#!/usr/bin/env python3
"""Writes docs/performance.md and its plots from the results of a run: report.py RESULTS DOCS.

The words are in performance.in.md, beside this. The figures come from the run, and those of cases
that it did not have from the page as it is. Each row says in which run it was measured.
"""

import html
import pathlib
import re
import sys

WIDTH, HEIGHT, LEFT, BOTTOM = 720, 260, 70, 36
COLOURS = ["#1b6ac9", "#d1495b", "#2e8b57", "#999999"]

PLOTS = {
    "held": (
        "jobs a second, batches of 10, while another session holds a snapshot; seconds",
        [("held", "jobs"), ("held_retries", "one in ten retried"), ("held_r2", "R2"), ("free", "jobs, nobody holds one")],
    ),
    "one-key": (
        "cycles of one key a second; cycles so far",
        [("one_key", "alone"), ("one_key_held", "under a held snapshot")],
    ),
}


def plot(title, lines):
    """A line chart as SVG; lines are (name, [(x, y), ..])."""
    right = max(x for _, points in lines for x, _ in points)
    top = max(y for _, points in lines for _, y in points) * 1.1

    def place(x, y):
        across = LEFT + x / right * (WIDTH - LEFT - 20)
        return f"{across:.1f},{HEIGHT - BOTTOM - y / top * (HEIGHT - BOTTOM - 40):.1f}"

    def text(x, y, words, anchor="start", colour="#444"):
        return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{colour}">{html.escape(words)}</text>'

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        text(LEFT, 16, title),
    ]
    for share in (0, 0.25, 0.5, 0.75, 1):
        value = top / 1.1 * share
        _, y = place(0, value).split(",")
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{y}" y2="{y}" stroke="#ddd"/>')
        parts.append(text(LEFT - 6, float(y) + 4, f"{value:,.0f}", "end"))
        x, _ = place(right * share, 0).split(",")
        parts.append(text(x, HEIGHT - BOTTOM + 16, f"{right * share:,.0f}", "middle"))
    for number, (name, points) in enumerate(lines):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(place(x, y) for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(text(LEFT + 160 * number, HEIGHT - 6, name, colour=colour))
    return "\n".join(parts + ["</svg>", ""])


ROW = "| {} | {} | {} | **{}** | {} | {} | {} |\n"
HEAD = "| case | what is compared | wanted | measured | spread | that is | run |\n|---|---|---|---|---|---|---|\n"
MEMORY = "| what was called | times | kB | of that in the second half |\n|---|---|---|---|\n"


def rows_of(page):
    """The rows that the page has, each with its case first and the description of its run last."""
    runs = dict(re.findall(r"^(\d+)\. (.*(?:\n   \* .*)*)", page.partition("## What is compared")[0], re.M))
    results = page.partition(HEAD)[2].partition("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in results.splitlines()]
    return [[case, title, aim, figure.strip("*"), spread, of, runs[run]] for case, title, aim, figure, spread, of, run in rows]


def main(results, docs):
    def read(name):
        file = results / name
        return file.read_text() if file.exists() else ""

    def found(pattern, nothing):
        """What another run has written to the page."""
        match = re.search(pattern, page, re.S)
        return match[1] if match else nothing

    page = (docs / "performance.md").read_text()
    cases, measured = read("cases").split(), read("measured").split()
    run = "\n   * ".join(read("machine").splitlines())
    rows = [row for row in rows_of(page) if row[0] in cases and row[0] not in measured]
    rows += [[*line.split("\t"), run] for line in read("table").splitlines() if line.split("\t")[0] in measured]
    rows.sort(key=lambda row: cases.index(row[0]))
    runs = list(dict.fromkeys(row[-1] for row in rows))
    missing = [case for case in cases if case not in [row[0] for row in rows] and case != "yardstick_sizes"]

    figures = []
    for name, (title, series) in PLOTS.items():
        # A plot is of one run: of one that had its first line.
        lines, file = [], docs / f"performance-{name}.svg"
        for key, label in series:
            points = [tuple(map(float, line.split()[:2])) for line in read(f"series.{key}").splitlines()]
            if points:
                lines.append((label, points))
        if read(f"series.{series[0][0]}"):
            file.write_text(plot(title, lines))
        if file.exists():
            figures.append(f"![{title}]({file.name})\n")
    memory = "".join("| {} | {} | {} | {} |\n".format(*line.split("|")) for line in read("memory").splitlines())
    words = (pathlib.Path(__file__).parent / "performance.in.md").read_text()
    (docs / "performance.md").write_text(
        words.replace("@RUNS@", "\n".join(f"{number}. {run}" for number, run in enumerate(runs, 1)))
        .replace("@TABLE@", HEAD + "".join(ROW.format(*row[:-1], runs.index(row[-1]) + 1) for row in rows))
        .replace("@MISSING@", f"Not measured: {', '.join(missing)}.\n" if missing else "")
        .replace("@PLOTS@", "\n".join(figures))
        .replace("@MEMORY@", MEMORY + memory if memory else found(rf"({re.escape(MEMORY)}.*?\n)\n", "Not measured.\n"))
        .replace("@PLANS@", f"```\n{read('plans').rstrip()}\n```\n" if read("plans") else found(r"(```\nplans .*?\n```\n)", "Not measured.\n"))
    )


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
