"""Figures of the ablations; ``benchmarks/paper/figures.py`` has the command."""

import numpy as np

from benchmarks.paper.relation import preferred, relation_of, shifted
from benchmarks.plotting import COLOURS, panels
from benchmarks.row_files import read

__all__ = ["choices", "options", "pitfalls"]

CURVES = (("norms", "norm p"), ("thresholds", "threshold τ"), ("batches", "batch size"), ("rows", "rows of the set"))
BARS = (
    ("labels", None, "labels"),
    ("losses", None, "loss"),
    ("epochs", None, "epochs of fine-tuning"),
    ("layers", None, "layers"),
    ("layers", "cifar10-vit", "layers, ViT"),
)
# Benchmarks shown beside the one that choices are made on.
ALSO = ("cifar100-resnet18", "pacs128-lite0")
MIXED = ("cot", "nuclear", "dispersion", "gradnorm", "gdscore", "entropy", "confscore", "doc", "atc", "mano")
SLANTED = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"}
AGAINST = "hollow: the score rises with accuracy"


def source_of(given, ablation):
    """The source asked for, or else the largest that the ablation was run on."""
    return given.source or preferred({row["source"] for row in read(given.choices) if row["ablation"] == ablation})


def of(given, ablation, source=None):
    """Rows of one ablation's plain choices."""
    rows, source = read(given.choices), source or source_of(given, ablation)
    return [row for row in rows if row["ablation"] == ablation and row["source"] == source and "," not in row["choice"]]


def curve(axis, rows, colour, label):
    """R² of choices in their order, hollow where the score rises with accuracy."""
    for place, row in enumerate(rows):
        inside = "white" if row["rho"] > 0 else colour
        axis.plot(place, row["r2"], "o", color=inside, markeredgecolor=colour, markersize=4, zorder=3)
    axis.plot(range(len(rows)), [row["r2"] for row in rows], "-", color=colour, label=label)


def options(given):
    """R² over each option's values, one line a benchmark; the dotted line is the default."""
    figure, axes = panels(1, 4, width=10, height=2.8, sharey="row")
    defaults = {"norms": "0.3", "thresholds": "0.5", "batches": "128"}
    sources = [given.source or source_of(given, "norms")]
    sources += [] if given.source else [source for source in ALSO if of(given, "norms", source)]
    for axis, (name, title) in zip(axes[0], CURVES, strict=True):
        for source, colour in zip(sources, COLOURS, strict=False):
            rows = [row for row in of(given, name, source) if np.isfinite(row["r2"])]
            if not rows:
                continue
            curve(axis, rows, colour, source)
            names = [row["choice"].split("=")[-1].replace("inf", "∞").replace("None", "whole") for row in rows]
            axis.set_xticks(range(len(names)), names)
            if source == sources[0] and defaults.get(name) in names:
                axis.axvline(names.index(defaults[name]), color="#888888", linestyle=":", linewidth=1)
        axis.set_ylim(0, 1.03)
        axis.set_title(title, fontsize=9)
        axis.tick_params(axis="x", labelsize=6)
    axes[0][0].set_ylabel("R²")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(sources), fontsize=7, frameon=False)
    figure.suptitle(f"Dotted: the default; {AGAINST}", fontsize=8)
    return figure


def choices(given):
    """R² and |ρ| of labels, losses, epochs and layers, as far as they were run."""
    shown = [(title, rows) for name, source, title in BARS if (rows := of(given, name, source))]
    widths = [len(rows) + 1 for _, rows in shown]
    figure, axes = panels(1, len(shown), width=10, height=2.8, sharey="row", width_ratios=widths)
    for axis, (title, rows) in zip(axes[0], shown, strict=True):
        for key, shift, colour, label in (("r2", -0.2, COLOURS[0], "R²"), ("rho", 0.2, COLOURS[1], "|ρ|")):
            bars = axis.bar(
                np.arange(len(rows)) + shift, [abs(row[key]) for row in rows], 0.36, color=colour, label=label
            )
            for bar, row in zip(bars, rows, strict=True):
                if row["rho"] > 0:
                    bar.set(facecolor="white", edgecolor=colour)
        names = [row["choice"].split("=")[-1].replace("_", "-") for row in rows]
        slanted = {} if all(map(str.isdigit, names)) else SLANTED
        axis.set_xticks(range(len(rows)), names, **slanted)
        axis.set_title(f"{title} ({rows[0]['sets']:.0f} sets)", fontsize=8)
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside right center", fontsize=7, frameon=False)
    figure.suptitle(f"{source_of(given, 'labels')}; {AGAINST}", fontsize=8)
    return figure


def pitfalls(given):
    """The same sets shuffled and sorted by class, and scores under mixes of classes."""
    order = shifted(read(given.ablations / "order" / f"{source_of(given, 'order')}.csv"))
    mixed = of(given, "labelshift")
    figure, (axes,) = panels(1, 2, width=10, height=3.2, width_ratios=(2, 3))
    for name, colour, marker in zip(("shuffled", "sorted"), COLOURS, "o^", strict=False):
        found = relation_of(order, name)
        x, y = [row[name] for row in order], [100 * row["accuracy"] for row in order]
        axes[0].scatter(
            x, y, s=9, color=colour, marker=marker, label=f"{name}: R² {found['r2']:.3f}, ρ {found['rho']:.3f}"
        )
    axes[0].set_title(f"GdScore of rows shuffled and sorted by class, {source_of(given, 'order')}", fontsize=8)
    axes[0].set_xlabel("gdscore")
    axes[0].set_ylabel("accuracy, %")
    axes[0].legend(fontsize=7, frameon=False)
    levels = (("none", "as corrupted"), (1.0, "mild mix"), (0.1, "strong mix"))
    for place, (level, label) in enumerate(levels):
        values = {row["choice"]: row["r2"] for row in mixed if row["alpha"] == level}
        where = np.arange(len(MIXED)) + 0.27 * (place - 1)
        axes[1].bar(where, [values.get(name, np.nan) for name in MIXED], 0.25, color=COLOURS[place], label=label)
    axes[1].set_xticks(range(len(MIXED)), MIXED, **SLANTED)
    axes[1].set_ylabel("R²")
    axes[1].set_title("Every set with a mix of classes of its own", fontsize=8, loc="left")
    axes[1].legend(fontsize=7, frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=3)
    return figure
