"""Blocks and picture of docs/labeling.md, from what ``benchmarks/estimates/few_labels.py run`` wrote; ``benchmarks/pages.py`` writes the blocks.

python -m benchmarks.estimates.few_labels_page        # the picture
"""

import json

import numpy as np

from benchmarks import RESULTS, ROOT
from benchmarks.estimates.few_labels import LABELS
from benchmarks.markdown import markdown
from benchmarks.plotting import COLOURS, panels, plain, save
from benchmarks.row_files import read

__all__ = ["BENCHMARKS", "METHODS", "blocks", "relative_widths", "reported"]

METHODS = {
    "wilson": "random rows, Wilson",
    "clopper": "random rows, Clopper–Pearson",
    "ppi": "random rows, PPI++",
    "strata": "five strata of the same order, normal interval",
    "gdscore": "`labeling.estimate`",
    "sequence": "`labeling.sequence`",
}
BENCHMARKS = {
    "pacs128": "PACS, pretrained network",
    "cifar100sub": "CIFAR-100 subclasses, pretrained network",
    "electricity": "electricity (table)",
    "insects": "insects (table)",
    "reviews": "reviews (text)",
}


def reported(file):
    """Rows of the report half of a file of results."""
    return [row for row in read(file) if row["split"] == "report"]


def relative_widths(rows):
    return np.array([row["width_gdscore"] / row["width_wilson"] for row in rows])


def benchmarks_table(rows, complete):
    """Coverage at each number of labels and width relative to Wilson's, by benchmark; in short at 50 labels."""
    lines = []
    for name, title in BENCHMARKS.items():
        own = [row for row in rows if row["benchmark"] == name]
        by_labels = {n: [row for row in own if row["labels"] == n] for n in LABELS}
        first = by_labels[LABELS[0]]
        rho = np.mean([row["rho"] for row in first])
        limit = np.mean([np.sqrt(1 - row["rho"] ** 2) for row in first])
        coverage = " / ".join(f"{100 * np.mean([r['coverage_gdscore'] for r in by_labels[n]]):.1f}" for n in LABELS)
        width = " / ".join(f"{relative_widths(by_labels[n]).mean():.2f}" for n in LABELS)
        largest = max(relative_widths(by_labels[n]).max() for n in LABELS)
        at_all_times = f"{100 * np.mean([r['coverage_sequence'] for r in first]):.1f}"
        lines.append(
            [title, str(len(first)), coverage, width, f"{largest:.2f}", f"{rho:.2f}", f"{limit:.2f}", at_all_times]
        )
        if not complete:
            middle = by_labels[50]
            held = 100 * np.mean([row["coverage_gdscore"] for row in middle])
            points = (100 * np.mean([row[f"width_{method}"] for row in middle]) for method in ("gdscore", "wilson"))
            lines[-1] = [title, f"{held:.0f} %", *(f"{width:.1f}" for width in points), f"{at_all_times} %"]
    if not complete:
        heads = ("at 50 labels", "coverage", "width", "Wilson's width", "sequence covers at all times")
        return markdown(heads, lines)
    heads = ["benchmark", "pairs", f"coverage % at {' / '.join(map(str, LABELS))} labels", "width relative to Wilson's"]
    return markdown([*heads, "largest on a pair", "ρ", "√(1 − ρ²)", "sequence covers at all times, %"], lines)


def methods_table(rows):
    """Mean width in points, coverage, and the lowest coverage of a benchmark, by method."""
    lines = []
    for method, title in METHODS.items():
        cells = []
        for n in LABELS:
            own = [row for row in rows if row["labels"] == n]
            groups = [[r[f"coverage_{method}"] for r in own if r["benchmark"] == name] for name in BENCHMARKS]
            lowest = min(np.mean(group) for group in groups)
            cells.append(f"{100 * np.mean([r[f'width_{method}'] for r in own]):.1f} ({100 * lowest:.1f})")
        lines.append([title, *cells])
    return markdown(["width in points (lowest coverage of a benchmark, %)", *map(str, LABELS)], lines)


def blocks():
    """Blocks of docs/labeling.md and research/tables.md, name → text."""
    rows = reported(RESULTS / "labels.csv")
    measured_speed = json.loads((RESULTS / "labels-speed.json").read_text())
    at = {n: relative_widths([row for row in rows if row["labels"] == n]) for n in LABELS}
    return {
        "benchmarks": benchmarks_table(rows, complete=False),
        "benchmarks_complete": benchmarks_table(rows, complete=True),
        "methods": methods_table(rows),
        "widths": (
            f"Averaged over all {len(at[50])} pairs the interval is {at[50].mean():.2f} times as wide as Wilson's at 50 "
            f"labels and {at[100].mean():.2f} times at 100."
        ),
        "speed": (
            f"{measured_speed['rows']:,} rows and a budget of {measured_speed['budget']} take "
            f"{measured_speed['seconds_all']:.1f} s on one core and {measured_speed['peak_mb_all']:.0f} MB "
            f"({measured_speed['peak_mb_tenth']:.0f} MB for a tenth of the rows)."
        ),
    }


def draw(rows, file):
    """Width against labels."""
    with plain():
        figure, axes = panels(1, 1, width=5, height=3)
        shown = {
            "wilson": "random rows, Wilson",
            "strata": "five strata, normal (covers too little)",
            "gdscore": "labeling.estimate",
        }
        shown["sequence"] = "labeling.sequence, valid at all times"
        for colour, (method, title) in zip(COLOURS, shown.items(), strict=False):
            widths = [100 * np.mean([r[f"width_{method}"] for r in rows if r["labels"] == n]) for n in LABELS]
            axes[0, 0].plot(LABELS, widths, "o-", color=colour, label=title, markersize=3)
        axes[0, 0].set(xscale="log", xticks=LABELS, xlabel="labels", ylabel="mean width of 90 % intervals, points")
        axes[0, 0].set_xticklabels(LABELS)
        axes[0, 0].minorticks_off()
        axes[0, 0].set_ylim(0)
        axes[0, 0].legend(frameon=False)
        save(figure, file)


if __name__ == "__main__":
    draw(reported(RESULTS / "labels.csv"), ROOT / "docs" / "images" / "labels.svg")
