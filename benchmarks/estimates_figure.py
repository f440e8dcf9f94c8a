"""Estimates against the truth: ``docs/images/estimates.png`` from ``benchmarks/results/estimates.csv``.

python benchmarks/estimates_figure.py
"""

import csv
from pathlib import Path

from matplotlib.figure import Figure

from estimates import benchmark_of

ROOT = Path(__file__).resolve().parents[1]
OWN = "cautious"
ACCENT, GREY = "#b23c17", "#8a8a8a"
NATURAL = {
    "pacs": ("o", "PACS"),
    "digits": ("s", "digits"),
    "cifar100sub": ("^", "CIFAR-100 subclasses"),
}


def values(rows, key):
    return [100 * float(row[key]) for row in rows]


def panel(axes, rows, title, marks):
    axes.plot([0, 100], [0, 100], color="#bbbbbb", linewidth=0.8, zorder=0)
    for estimator, marker, name in (("cot@T", "x", "COT"), ("atc@T", "+", "ATC")):
        other = [row for row in rows if row["estimator"] == estimator]
        axes.scatter(
            values(other, "truth"),
            values(other, "accuracy"),
            marker=marker,
            s=18,
            linewidths=0.8,
            color=GREY,
            label=f"{name}, temperature",
        )
    for benchmark, (marker, name) in marks.items():
        own = [row for row in rows if benchmark_of(row["source"]) == benchmark and row["estimator"] == OWN]
        truth, said = values(own, "truth"), values(own, "accuracy")
        # White edges keep apart what lies on top of each other.
        axes.scatter(
            truth,
            said,
            marker=marker,
            s=28,
            color=ACCENT,
            edgecolors="white",
            linewidths=0.5,
            label=name,
            zorder=3,
        )
        if len(marks) > 1:
            below = [a - b for a, b in zip(said, values(own, "low"), strict=True)]
            above = [b - a for a, b in zip(said, values(own, "high"), strict=True)]
            axes.errorbar(truth, said, yerr=[below, above], fmt="none", ecolor=ACCENT, elinewidth=0.9, alpha=0.6)
    axes.set(xlim=(0, 100), ylim=(0, 100), xlabel="true accuracy, %", title=title)
    axes.title.set_fontsize(9)
    axes.set_aspect("equal")


def main():
    with (ROOT / "benchmarks" / "results" / "estimates.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    figure = Figure(figsize=(8.4, 4.2), dpi=110, layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    corrupted = [row for row in rows if row["kind"] == "corruption"]
    natural = [row for row in rows if row["kind"] == "natural"]
    sets = [sum(row["estimator"] == OWN for row in part) for part in (corrupted, natural)]
    title = f"{sets[0]} corrupted CIFAR-10 test sets, family left out"
    panel(left, corrupted, title, {"cifar10": ("o", "gdscore")})
    panel(right, natural, f"{sets[1]} natural shifts, with 90 % intervals", NATURAL)
    left.set_ylabel("estimate without labels, %")
    left.legend(frameon=False, fontsize=8, loc="upper left")
    handles, names = right.get_legend_handles_labels()
    right.legend(handles[2:], names[2:], frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(0.27, 1))
    figure.savefig(ROOT / "docs" / "images" / "estimates.png", bbox_inches="tight", metadata={"Software": None})


if __name__ == "__main__":
    main()
