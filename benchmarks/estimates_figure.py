"""Estimates against the truth: ``docs/images/estimates.png`` from ``benchmarks/results/estimates.csv``.

python benchmarks/estimates_figure.py
"""

import csv
from pathlib import Path

from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[1]
ACCENT, GREY = "#b23c17", "#8a8a8a"


def values(rows, key):
    return [100 * float(row[key]) for row in rows]


def panel(axes, rows, title, *, intervals):
    axes.plot([0, 100], [0, 100], color="#bbbbbb", linewidth=0.8, zorder=0)
    truth, said = values(rows, "truth"), values(rows, "accuracy")
    for column, marker, name in (("cot@T", "x", "COT"), ("atc@T", "+", "ATC")):
        axes.scatter(
            truth, values(rows, column), marker=marker, s=18, linewidths=0.8, color=GREY, label=f"{name}, temperature"
        )
    if intervals:
        below = [a - b for a, b in zip(said, values(rows, "low"), strict=True)]
        above = [b - a for a, b in zip(said, values(rows, "high"), strict=True)]
        axes.errorbar(truth, said, yerr=[below, above], fmt="none", ecolor=ACCENT, elinewidth=0.9, alpha=0.6)
    axes.scatter(truth, said, s=16, color=ACCENT, label="gdscore", zorder=3)
    axes.set(xlim=(0, 100), ylim=(0, 100), xlabel="true accuracy, %", title=title)
    axes.title.set_fontsize(9)
    axes.set_aspect("equal")


def main():
    with (ROOT / "benchmarks" / "results" / "estimates.csv").open(newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["peer"] == "False"]
    figure = Figure(figsize=(8.4, 4.2), dpi=110, layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    corrupted = [row for row in rows if row["kind"] == "corruption"]
    natural = [row for row in rows if row["kind"] == "natural"]
    panel(left, corrupted, f"{len(corrupted)} corrupted CIFAR-10 test sets, family left out", intervals=False)
    panel(right, natural, f"{len(natural)} natural shifts, with 90 % intervals", intervals=True)
    left.set_ylabel("estimate without labels, %")
    left.legend(frameon=False, fontsize=8, loc="upper left")
    figure.savefig(ROOT / "docs" / "images" / "estimates.png", bbox_inches="tight", metadata={"Software": None})


if __name__ == "__main__":
    main()
