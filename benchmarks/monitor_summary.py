"""Blocks of docs/monitor.md from the results of monitor_alarms.py and monitor_load.py."""

import csv

from tables import RESULTS
from tables_page import markdown

__all__ = ["blocks"]

NAMES = {
    "sequential": "sequential test (default, 0.1 allowed)",
    "window: estimate 5 points below": "each window: estimate 5 points below the reference",
    "window: 90 % interval below the reference": "each window: 90 % interval below the reference",
    "CBPE, 3 sigma": "calibrated confidence (CBPE), three standard deviations",
}


def read(name):
    with (RESULTS / name).open(newline="") as file:
        return list(csv.DictReader(file))


def days(text):
    return "not found" if text == "inf" else f"{float(text):.0f}"


def alarms():
    """Table of false alarms and delays."""
    rows = {(row["rule"], int(row["drop (points)"])): row for row in read("monitor_alarms.csv")}
    lines = []
    for rule, name in NAMES.items():
        small = rows[rule, 2]
        lines.append(
            [
                name,
                f"{float(rows[rule, 0]['false alarms per year']):.2f}",
                days(small["median delay (days)"]),
                f"{100 * float(small['found within 30 days']):.0f} %",
                ", ".join(days(rows[rule, drop]["median delay (days)"]) for drop in (5, 10, 20)),
            ]
        )
    heads = (
        "rule",
        "false alarms per year",
        "days to find 2 points (median)",
        "found within 30 days",
        "5, 10 and 20 points (median days)",
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


def blocks():
    """Blocks by name."""
    return {"alarms": alarms(), "load": load()}
