"""Figures of docs/results.md from committed files, the same bytes each time.

    python -m benchmarks.paper.figures                      # all of them, to docs/images/results-*.svg
    python -m benchmarks.paper.figures scatter robustness   # some
    python -m benchmarks.paper.figures scatter --cells out/cells --output out

| figure | shows | reads |
|---|---|---|
| protocols | GdScore against accuracy on four data sets under both protocols | cells/{deployed,published}/<source>.csv |
| natural | PACS: networks from scratch beside pretrained ones, two scores, both protocols | the same of PACS |
| scatter | four scores against accuracy, the same sets under both protocols | the same of one source |
| robustness | R² of each method on each benchmark | main.csv (``benchmarks/paper/tables.py``) |
| comparison | GdScore beside GradNorm and the nuclear norm | main.csv |
| calibration | calibration error by severity and by domain | cells/deployed/*.csv |
| options | R² over p, τ, batch size and number of rows, by benchmark | ablations.csv (``benchmarks/paper/tables.py``) |
| choices | R² of label rules, losses, layers, epochs | ablations.csv |
| pitfalls | class-sorted rows and label shift | ablations/{order,labelshift}/<source>.csv |
"""

import argparse
import re
from itertools import product
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from benchmarks import RESULTS, ROOT
from benchmarks.paper.figures_ablations import choices, options, pitfalls
from benchmarks.paper.long_tables import SHOWN
from benchmarks.paper.relation import group_of, preferred, relation_of, shifted
from benchmarks.plotting import COLOURS, panels, plain, save
from benchmarks.row_files import read

IMAGES = ROOT / "docs" / "images"
SCATTERED = ("gdscore", "confscore", "nuclear", "cott")
DATA_SETS = ("cifar10-resnet18", "cifar100-resnet18", "tiny-resnet18", "cifar100sub0-resnet18")
NATURAL = {"pacs-resnet18": "from scratch", "pacs128-lite0": "pretrained Lite0", "pacs128-lite1": "pretrained Lite1"}
DOMAINS = {"photo": "o", "art_painting": "s", "cartoon": "^", "sketch": "D"}
SHIFTS = {"synthetic": "corruptions", "natural": "other domains", "subpopulation": "other subpopulations"}


def benchmark(folder, name):
    """Rows of every source of a benchmark, by the source's name."""
    return {file.stem: read(file) for file in sorted(folder.glob("*.csv")) if group_of(file.stem)[0] == name}


def severities(axis, rows, x):
    """Accuracies over `x`, the darker the more severe, in pixels as they are many; sets without corruption are crosses."""
    clean = [(x(row), 100 * row["accuracy"]) for row in rows if row["severity"] == 0]
    axis.plot(*np.transpose(clean or np.empty((0, 2))), "x", markersize=6, color=COLOURS[1])
    dots = [(x(row), 100 * row["accuracy"], row["severity"] / 5) for row in rows if row["severity"]]
    across, up, shade = np.transpose(dots or np.empty((0, 3)))
    axis.scatter(across, up, s=9, c=shade, cmap="viridis_r", vmin=0, vmax=1, linewidths=0, rasterized=True)


def protocols(given):
    """GdScore, as a multiple of what it is on the unshifted test set, against accuracy; one column a data set."""
    there = [name for name in DATA_SETS if (given.cells / "published" / f"{name}.csv").exists()]
    names = [given.source] if given.source else there
    figure, axes = panels(2, len(names), width=3 * len(names), height=4.6, sharey="col")
    for line, protocol in zip(axes, ("deployed", "published"), strict=True):
        for axis, name in zip(line, names, strict=True):
            every = read(given.cells / protocol / f"{name}.csv")
            rows, unit = shifted(every), every[0]["gdscore"]
            found = relation_of(rows, "gdscore")
            severities(axis, rows, lambda row, unit=unit: row["gdscore"] / unit)
            axis.plot(1, 100 * every[0]["accuracy"], "*", markersize=9, color=COLOURS[1])
            axis.set_title(f"{name}, {protocol}\nR² {found['r2']:.3f}, ρ {found['rho']:.3f}", fontsize=8)
            axis.set_ylim(0, 100)
        line[0].set_ylabel("accuracy, %")
    for axis in axes[-1]:
        axis.set_xlabel("GdScore (1: unshifted test set, the star)")
    figure.suptitle(
        "One dot a corrupted set; darker is more severe; cross: other subpopulations, not corrupted", fontsize=9
    )
    return figure


def natural(given):
    """PACS: a line of panels a network, GdScore and COT by both protocols; colour is the source, shape the target."""
    names = [name for name in NATURAL if benchmark(given.cells / "deployed", name)]
    shown = list(product(("gdscore", "cot"), ("deployed", "published")))
    figure, axes = panels(len(names), len(shown), width=10, height=2.3 * len(names) + 0.6, sharey=True)
    for line, name in zip(axes, names, strict=True):
        for axis, (score, protocol) in zip(line, shown, strict=True):
            every = benchmark(given.cells / protocol, name)
            rows = [row for own in every.values() for row in shifted(own)]
            found = relation_of(rows, score)
            for colour, domain in zip(COLOURS, DOMAINS, strict=False):
                for row in next((own for source, own in every.items() if f"-{domain}-" in source), []):
                    axis.plot(row[score], 100 * row["accuracy"], DOMAINS[row["set"]], color=colour, markersize=5)
            axis.set_title(f"{score}, {protocol}: R² {found['r2']:.3f}, ρ {found['rho']:.3f}", fontsize=8)
            axis.set_ylim(0, 100)
        line[0].set_ylabel(f"{NATURAL[name]}\naccuracy, %")
    colours = [
        plt.Line2D([], [], marker="s", linestyle="", color=c, label=f"from {d}")
        for c, d in zip(COLOURS, DOMAINS, strict=False)
    ]
    shapes = [plt.Line2D([], [], marker=m, linestyle="", color="#555555", label=f"to {d}") for d, m in DOMAINS.items()]
    figure.legend(handles=colours + shapes, loc="outside upper center", ncols=8, fontsize=7, frameon=False)
    return figure


def scatter(given):
    """Score against accuracy, one row of panels a protocol."""
    source = given.source or preferred({file.stem for file in (given.cells / "deployed").glob("*.csv")})
    figure, axes = panels(2, len(SCATTERED), width=9, height=4.6, sharey="row")
    for line, protocol in zip(axes, ("deployed", "published"), strict=True):
        rows = shifted(read(given.cells / protocol / f"{source}.csv"))
        for axis, name in zip(line, SCATTERED, strict=True):
            found = relation_of(rows, name)
            severities(axis, rows, lambda row, name=name: row[name])
            axis.set_title(f"{name}: R² {found['r2']:.3f}, ρ {found['rho']:.3f}", fontsize=8)
            axis.set_ylim(15, 100)
        line[0].set_ylabel(f"{protocol}\naccuracy, %")
    figure.suptitle(f"{source}, {len(rows)} corrupted sets; darker is more severe", fontsize=9)
    return figure


def robustness(given):
    """R² on every benchmark by method, from the highest median over the corruptions down; one panel a protocol."""
    rows = [row for row in read(given.main) if row["method"] in SHOWN and np.isfinite(row["r2"])]
    figure, axes = panels(1, 2, width=9, height=3.6)
    for axis, protocol in zip(axes[0], ("deployed", "published"), strict=True):
        chosen = [row for row in rows if row["protocol"] == protocol]

        def values(method, shift, chosen=chosen):
            return [row["r2"] for row in chosen if (row["method"], row["shift"]) == (method, shift)]

        medians = {name: np.median(values(name, "synthetic")) for name in SHOWN if values(name, "synthetic")}
        names = sorted(medians, key=medians.get)
        for place, name in enumerate(names):
            axis.plot([medians[name]] * 2, [place - 0.35, place + 0.35], color="black", linewidth=1.5, zorder=3)
            for (shift, label), colour, marker in zip(SHIFTS.items(), COLOURS, "osD", strict=False):
                found = values(name, shift)
                legend = f"{label}; line: median" if shift == "synthetic" else label
                axis.plot(
                    found,
                    [place] * len(found),
                    marker,
                    color=colour,
                    markersize=4,
                    alpha=0.8,
                    label=legend if place == 0 else None,
                )
        axis.set_yticks(range(len(names)), names)
        axis.set_xlim(-0.03, 1.03)
        axis.set_xlabel(f"R², {protocol}")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False)
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
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False)
    return figure


def calibration(given):
    """Calibration error: corrupted sets by severity, domains one by one."""
    files = sorted((given.cells / "deployed").glob("*.csv"))
    corrupted, pairs = {}, []
    for file in files:
        rows = read(file)
        clean = [row for row in shifted(rows) if row["severity"] == 0]
        source = re.sub(r"-small$|-resnet18$", "", file.stem)
        pairs += [(f"{source} → {row['set']}", 100 * row["ece"]) for row in clean]
        if len({row["severity"] for row in rows}) > 1:
            corrupted.setdefault(group_of(file.stem)[0], []).extend(row for row in rows if row not in clean)
    figure, axes = panels(1, 2, width=9, height=max(4.2, 0.14 * len(pairs)))
    for place, (name, rows) in enumerate(corrupted.items()):
        colour, line = COLOURS[place % len(COLOURS)], "o-" if place < len(COLOURS) else "s--"
        levels = sorted({row["severity"] for row in rows})
        errors = [[100 * row["ece"] for row in rows if row["severity"] == level] for level in levels]
        axes[0][0].plot(levels, [np.median(part) for part in errors], line, color=colour, markersize=3, label=name)
        axes[0][0].plot(levels, [np.quantile(part, 0.9) for part in errors], ":", color=colour)
    axes[0][0].set_ylim(0)
    axes[0][0].set_xlabel("severity (0: none); line: median, dotted: 90 % quantile")
    axes[0][0].set_ylabel("calibration error, points")
    axes[0][0].legend(fontsize=7, frameon=False)
    axes[0][1].barh([name for name, _ in pairs][::-1], [error for _, error in pairs][::-1], color=COLOURS[0])
    axes[0][1].tick_params(axis="y", labelsize=6)
    axes[0][1].margins(y=0.01)
    axes[0][1].set_xlabel("calibration error, points")
    return figure


FIGURES = {
    "protocols": protocols,
    "natural": natural,
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
