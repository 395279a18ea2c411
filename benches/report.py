#!/usr/bin/env python3
"""Writes docs/performance.md and its plots from the results of a full run: report.py RESULTS DOCS.

The words are in performance.in.md, beside this; the figures come from the run alone.
"""

import html
import pathlib
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


def table(lines):
    rows = [line.split("\t") for line in lines]
    head = "| case | wanted | measured | spread | that is |\n|---|---|---|---|---|\n"
    return head + "".join(f"| {title} | {aim} | **{figure}** | {spread} | {of} |\n" for title, aim, figure, spread, of in rows)


def main(results, docs):
    def read(name):
        file = results / name
        return file.read_text() if file.exists() else ""

    figures = []
    for name, (title, series) in PLOTS.items():
        lines = []
        for key, label in series:
            points = [tuple(map(float, line.split()[:2])) for line in read(f"series.{key}").splitlines()]
            if points:
                lines.append((label, points))
        if lines:
            (docs / f"performance-{name}.svg").write_text(plot(title, lines))
            figures.append(f"![{title}](performance-{name}.svg)\n")
    memory = "".join("| {} | {} | {} | {} |\n".format(*line.split("|")) for line in read("memory").splitlines())
    missing = read("missing").split()
    words = (pathlib.Path(__file__).parent / "performance.in.md").read_text()
    (docs / "performance.md").write_text(
        words.replace("@MACHINE@", "".join(f"* {line}\n" for line in read("machine").splitlines()))
        .replace("@TABLE@", table(read("table").splitlines()))
        .replace("@MISSING@", f"Not measured in this run: {', '.join(missing)}.\n" if missing else "")
        .replace("@PLOTS@", "\n".join(figures))
        .replace("@MEMORY@", "| what was called | times | kB | of that in the second half |\n|---|---|---|---|\n" + memory if memory else "Not measured in this run.\n")
        .replace("@PLANS@", f"```\n{read('plans').rstrip()}\n```\n")
    )


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
