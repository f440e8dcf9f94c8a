"""Figures of docs/results.md from committed files, the same bytes each time.

    python benchmarks/figures.py                      # all of them, to docs/images/results-*.svg
    python benchmarks/figures.py scatter robustness   # some
    python benchmarks/figures.py scatter --cells out/cells --output out

| figure | shows | reads |
|---|---|---|
| scatter | score against accuracy, the same sets under both protocols | cells/{deployed,published}/<source>.csv |
| robustness | R² of each method over the benchmarks | main.csv (``tables.py``) |
| comparison | GdScore beside GradNorm and the nuclear norm | main.csv |
| calibration | calibration error by severity and by domain | cells/deployed/*.csv |
| options | R² over p, τ, batch size and number of rows | ablations.csv (``tables.py``) |
| choices | R² of label rules, losses, layers, epochs | ablations.csv |
| pitfalls | class-sorted rows and label shift | ablations/{order,labelshift}/<source>.csv |
"""

import argparse
import re
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from figures_ablations import SOURCES, choices, options, pitfalls
from plotting import COLOURS, LIGHT, panels, plain, save
from relation import read, relation_of, shifted
from tables import RESULTS, ROOT

IMAGES = ROOT / "docs" / "images"
SCATTERED = ("gdscore", "confscore", "nuclear", "cott")
PAPER = ("rotation", "confscore", "entropy", "agreescore", "atc", "frechet", "dispersion", "gdscore")
BEYOND = ("nuclear", "gradnorm", "doc", "mano", "cot", "cott")


def scatter(given):
    """Score against accuracy, one row of panels a protocol."""
    source = given.source or SOURCES[0]
    figure, axes = panels(2, len(SCATTERED), width=9, height=4.6, sharey="row")
    for line, protocol in zip(axes, ("deployed", "published"), strict=True):
        rows = shifted(read(given.cells / protocol / f"{source}.csv"))
        for axis, name in zip(line, SCATTERED, strict=True):
            found = relation_of(rows, name)
            for severity in range(1, 6):
                own = [row for row in rows if row["severity"] == severity]
                x, y = [row[name] for row in own], [100 * row["accuracy"] for row in own]
                axis.plot(x, y, "o", markersize=3, color=plt.get_cmap("viridis_r")(severity / 5))
            axis.set_title(f"{name}: R² {found['r2']:.3f}, ρ {found['rho']:.3f}", fontsize=8)
            axis.set_ylim(15, 100)
        line[0].set_ylabel(f"{protocol}\naccuracy, %")
    figure.suptitle(f"{source}, {len(rows)} corrupted sets; darker is more severe", fontsize=9)
    return figure


def by_method(rows, protocol):
    chosen = [row for row in rows if row["protocol"] == protocol]
    return lambda method: [row["r2"] for row in chosen if row["method"] == method and np.isfinite(row["r2"])]


def robustness(given):
    """R² over benchmarks as boxes, one panel a protocol; dots are the benchmarks."""
    rows = read(given.main)
    figure, axes = panels(1, 2, width=9, height=3.4, sharey="row")
    for axis, protocol in zip(axes[0], ("deployed", "published"), strict=True):
        of = by_method(rows, protocol)
        names = [name for name in (*PAPER, *BEYOND) if of(name)]
        axis.boxplot([of(name) for name in names], showfliers=False, medianprops={"color": COLOURS[1]})
        for place, name in enumerate(names, 1):
            values = of(name)
            axis.plot([place] * len(values), values, "o", color=LIGHT, markeredgecolor=COLOURS[0], markersize=3)
        axis.set_xticks(range(1, len(names) + 1), names, rotation=60, ha="right")
        count = len({row["benchmark"] for row in rows if row["protocol"] == protocol})
        axis.set_title(f"{protocol}: {count} benchmarks", fontsize=9)
    axes[0][0].set_ylabel("R²")
    return figure


def comparison(given):
    """GdScore, GradNorm and the nuclear norm on every benchmark and protocol."""
    rows, methods = read(given.main), ("gdscore", "gradnorm", "nuclear")
    figure, axes = panels(1, 2, width=9, height=2.8, sharey="row")
    for axis, protocol in zip(axes[0], ("deployed", "published"), strict=True):
        chosen = {(r["benchmark"], r["method"]): r["r2"] for r in rows if r["protocol"] == protocol}
        names = list(dict.fromkeys(name for name, _ in chosen))
        for place, method in enumerate(methods):
            heights = [chosen.get((name, method), np.nan) for name in names]
            axis.bar(np.arange(len(names)) + 0.27 * (place - 1), heights, 0.25, color=COLOURS[place], label=method)
        axis.set_xticks(range(len(names)), names, rotation=30, ha="right")
        axis.set_title(protocol, fontsize=9)
    axes[0][0].set_ylabel("R²")
    axes[0][0].legend(fontsize=7, frameon=False)
    return figure


def calibration(given):
    """Calibration error: corrupted sets by severity, domains one by one."""
    files = sorted((given.cells / "deployed").glob("*.csv"))
    every = {file.stem: read(file) for file in files}
    corrupted = {name: rows for name, rows in every.items() if len({row["severity"] for row in rows}) > 1}
    pairs = [
        (f"{re.sub('-(small|resnet18)$', '', name)} → {row['set']}", 100 * row["ece"])
        for name, rows in every.items()
        if name not in corrupted
        for row in shifted(rows)
    ]
    figure, axes = panels(1, 2, width=9, height=4.2)
    for colour, (name, rows) in zip(COLOURS, corrupted.items(), strict=False):
        levels = sorted({row["severity"] for row in rows})
        errors = [[100 * row["ece"] for row in rows if row["severity"] == level] for level in levels]
        axes[0][0].plot(levels, [np.median(part) for part in errors], "o-", color=colour, markersize=3, label=name)
        low, high = zip(*(np.quantile(part, (0.1, 0.9)) for part in errors), strict=True)
        axes[0][0].fill_between(levels, low, high, color=colour, alpha=0.15, linewidth=0)
    axes[0][0].set_xlabel("severity (0: no corruption); band: 10–90 % of corruptions")
    axes[0][0].set_ylabel("calibration error, points")
    axes[0][0].legend(fontsize=7, frameon=False)
    axes[0][1].barh([name for name, _ in pairs][::-1], [error for _, error in pairs][::-1], color=COLOURS[0])
    axes[0][1].tick_params(axis="y", labelsize=6)
    axes[0][1].set_xlabel("calibration error, points")
    return figure


FIGURES = {
    "scatter": scatter,
    "robustness": robustness,
    "comparison": comparison,
    "calibration": calibration,
    "options": options,
    "choices": choices,
    "pitfalls": pitfalls,
}


def main(given=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=f"{', '.join(FIGURES)} (default: all)")
    parser.add_argument("--cells", type=Path, default=RESULTS / "cells")
    parser.add_argument("--ablations", type=Path, default=RESULTS / "ablations")
    parser.add_argument("--tables", type=Path, default=RESULTS, help="folder of main.csv and ablations.csv")
    parser.add_argument("--source", help="of the figures of one classifier (default: CIFAR-10, the largest network)")
    parser.add_argument("--output", type=Path, default=IMAGES)
    asked = parser.parse_args(given)
    unknown = set(asked.figures) - set(FIGURES)
    if unknown:
        parser.error(f"no figure {sorted(unknown)}; there are {', '.join(FIGURES)}")
    asked.main, asked.choices = asked.tables / "main.csv", asked.tables / "ablations.csv"
    with plain():
        for name in asked.figures or FIGURES:
            file = save(FIGURES[name](asked), asked.output / f"results-{name}.svg")
            print(f"{file.name}: {file.stat().st_size / 1024:.0f} KB")


if __name__ == "__main__":
    main()
