#!/usr/bin/env python3
"""Writes docs/performance.md, .tsv and the plots from the results of a run: report.py RESULTS DOCS.

The TSV has every row with its run; of cases that this run did not measure it keeps the rows. The
page has the rows of CHOSEN, all of one run; they stand between `<!-- figures: .. -->`
and `<!-- end -->`.
"""

import html
import pathlib
import re
import sys
import textwrap

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


RUN = ["jobs", "machine", "server", "settings", "load"]
COLUMNS = ["case", "compared", "wanted", "measured", "spread", "of", *RUN]

# The rows of the page, in its words: case, title (of several the first), words.
CHOSEN = [
    ("batch", "insert_batch of 10,000 unique, against R1 as INSERT .. SELECT unnest", "`insert_batch` of 10,000 unique jobs, against R1"),
    ("work1", "fetch + complete, batches of 1, against R2", "fetch and complete one by one, against R2"),
    ("work10", "fetch + complete, batches of 10, against R2", "fetch and complete 10 at a time, against R2"),
    ("work100", "fetch + complete, batches of 100, against R2", "fetch and complete 100 at a time, against R2"),
    ("work100", "- WAL a job", "WAL per job, 100 at a time, against R2"),
    ("life", "the whole life: insert unique, fetch, complete, prune, against R2 with DELETE", "insert unique, fetch, complete and prune, against R2 with DELETE"),
    ("storm", "64 clients inserting one hot key, against distinct keys", "64 clients inserting one key, against distinct keys"),
    ("notify", "producers with notifications on, against off", "inserts with notifications, against none"),
    ("wake", "commit to wake-up by jobs.wait and fetch, 1,000 inserts/s: median", "from the insert's commit to the fetch after `jobs.wait`, median"),
    ("wake", "commit to wake-up by jobs.wait and fetch, 1,000 inserts/s: 99th percentile", "from the insert's commit to the fetch, 99th percentile"),
    ("wake", "the same with each commit flushed to the disk: 99th percentile", "from the insert's commit to the fetch, commits flushed, 99th percentile"),
    ("forward", "pgjobs forward of 20000 jobs, against insert_batch of 1,000 at the queue", "`pgjobs forward` from an outbox, against `insert_batch` of 1,000"),
    ("forward", "- WAL a job of both databases, without images of pages", "WAL per job, outbox and queue, against the queue alone"),
    ("forward", "from jobs.insert in the outbox to the fetch at the queue, 20 inserts/s: median", "from `jobs.insert` in an outbox to the fetch at the queue, commits flushed, median"),
    ("forward", "the same, 20 inserts/s: 99th percentile", "from `jobs.insert` in an outbox to the fetch, 99th percentile"),
    ("prune", "pruning 1000000 finished jobs that were unique", "prune a million unique jobs"),
    ("one_key", "one key 100000 times within its retention, the last 1000 against the first", "insert and work one key 100,000 times, the last 1,000 against the first"),
    ("held", "insert, fetch and complete after 300 s under a held snapshot, against the first 10 s", "work after 5 min of an open transaction, against the first 10 s"),
    ("held", "R2 under the held snapshot", "R2 under the same transaction"),
]
HEAD = "| | figure | lowest to highest | detail |\n|---|---|---|---|\n"


def chosen(rows):
    """The run that has most of the chosen rows, of several the newest, and its table."""

    def row_of(run, case, title):
        return next((row for row in rows if row["case"] == case and row["compared"] == title and run_of(row) == run), None)

    runs = list(dict.fromkeys(run_of(row) for row in rows))
    run = max(runs, key=lambda run: (sum(bool(row_of(run, *key[:2])) for key in CHOSEN), runs.index(run)))
    lines, missing = "", []
    for case, title, words in CHOSEN:
        row = row_of(run, case, title)
        if row:
            lines += f"| {words} | **{row['measured']}** | {row['spread']} | {row['of']} |\n"
        else:
            missing.append(words)
    return run, HEAD + lines + (f"\nNot in this run: {'; '.join(missing)}.\n" if missing else "")


def run_of(row):
    return tuple(row[name] for name in RUN)


def main(results, docs):
    def read(name):
        file = results / name
        return file.read_text() if file.exists() else ""

    tsv = docs / "performance.tsv"
    cases, measured = read("cases").split(), read("measured").split()
    run = [line.partition(": ")[2] for line in read("machine").splitlines()]
    new = [line.split("\t") for line in read("table").splitlines()]
    for line in read("memory").splitlines():
        call, times, kilobytes, later = line.split("|")
        new.append(["memory", f"own memory, {times} calls of {call}", "-", kilobytes, "-", f"kB; {later} in the second half"])
    kept = [line.split("\t") for line in tsv.read_text().splitlines()[1:]]
    lines = [line for line in kept if line[0] in cases and line[0] not in measured]
    lines += [[*line, *run] for line in new if line[0] in measured]
    lines.sort(key=lambda line: cases.index(line[0]))
    tsv.write_text("".join("\t".join(line) + "\n" for line in [COLUMNS, *lines]))
    described, table = chosen([dict(zip(COLUMNS, line)) for line in lines])

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
    lines = (textwrap.fill(f"* {name}: {value}", 100, subsequent_indent="  ") for name, value in zip(RUN, described))
    new = {"table": table, "plots": "\n".join(figures), "run": "\n".join(lines) + "\n"}
    page = docs / "performance.md"
    place = r"(<!-- figures: (\w+) -->\n).*?<!-- end -->"
    page.write_text(re.sub(place, lambda match: f"{match[1]}{new[match[2]]}\n<!-- end -->", page.read_text(), flags=re.S))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
