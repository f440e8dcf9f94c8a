"""Blocks of docs/monitor.md and of the complete tables from the rows of ``benchmarks/monitor/alarms.py`` and ``load.py``."""

import csv

from benchmarks import RESULTS
from benchmarks.markdown import markdown

__all__ = ["blocks"]

SHOWN = (
    "independent, spread 0.8",
    "independent, spread 2",
    "AR(1) 0.9, spread 0.8",
    "AR(1) 0.9, spread 2",
    "weekend 5 points lower",
    "reference of 100 rows",
    "digits, noise costs so much of the truth",
    "beyond the promise: heavy tails (t, 3 degrees)",
    "beyond the promise: AR(1) 0.9 of 0.8 below noise of 0.8",
)
LABELS = (
    ("labels, independent", "labels:sequential"),
    ("labels, AR(1) 0.9, spread 1", "labels:sequential"),
    ("labels, AR(1) 0.7, spread 6, 100 labels a window", "labels:sequential"),
    ("labels, independent, drop on day 10", "labels:sequential"),
    ("labels, independent", "labels:coverage"),
)
PROMISE, BEYOND = 0.1, "beyond the promise: "
DROPS = (2, 5, 10, 20)


def read(name):
    with (RESULTS / name).open(newline="") as file:
        return list(csv.DictReader(file))


def days(row):
    return (
        "–"
        if row is None
        else "not found"
        if row["median delay (days)"] == "inf"
        else f"{float(row['median delay (days)']):.0f}"
    )


def alarms():
    """Table of false alarms and delays."""
    rows = {(row["row"], row["rule"], int(row["drop (points)"])): row for row in read("monitor_alarms.csv")}

    def line(name, rule, beside):
        cells = [f"{float(rows[name, rule, 0]['false alarms per year']):.2f}"]
        cells.append(", ".join(days(rows.get((name, rule, drop))) for drop in DROPS))
        if beside:
            cells.append(f"{float(rows[name, beside, 0]['false alarms per year']):.2f}")
            cells.append(", ".join(days(rows.get((name, beside, drop))) for drop in DROPS))
        return cells if beside else [*cells, "–", "–"]

    lines = [[name, *line(name, "monitor", "3 sigma")] for name in SHOWN]
    for name, rule in LABELS:
        lines.append([f"`{rule}`: {name.removeprefix('labels, ')}", *line(name, rule, None)])
    for cells in lines:
        if float(cells[1]) > PROMISE and not cells[0].startswith(BEYOND):
            cells[0] = BEYOND + cells[0]
    heads = (
        "windows",
        "false alarms a year",
        "days to find 2, 5, 10, 20 points",
        "three sigma: false alarms",
        "its days",
    )
    return markdown(heads, lines)


def load():
    """Table of times, and what memory did."""
    rows = read("monitor_load.csv")
    timed = {(row["page"], row["history"]): row for row in rows if row["processor ms"]}
    pages = list(dict.fromkeys(page for page, _ in timed))
    lines = []
    for page in pages:
        empty, full, long = (timed[page, history] for history in ("empty", "full", "one long series"))
        lines.append(
            [
                page,
                f"{float(empty['median ms (or MiB)']):.0f} ms",
                f"{float(full['median ms (or MiB)']):.0f} ms",
                full["times empty"],
                full["processor times empty"],
                f"{float(long['median ms (or MiB)']):.0f} ms",
            ]
        )
    heads = (
        "page",
        "empty",
        "200 models × 1,000 windows",
        "times empty, by the clock",
        "times empty, processor time",
        "one series of 100,000 windows",
    )
    used = [row for row in rows if row["page"].startswith("MiB")]
    steps = ", ".join(f"{row['median ms (or MiB)']} MiB after {int(row['page'].split()[2]):,}" for row in used)
    return f"{markdown(heads, lines)}\n\nMemory of the process over requests to all of these in turn: {steps}."


def posts():
    """Table of posts before and now."""
    heads = ("database", "measure", "before", "now")
    return markdown(heads, [[row[head] for head in heads] for row in read("monitor_posts.csv")])


def blocks():
    """Blocks by name."""
    return {"alarms": alarms(), "load": load(), "posts": posts()}
