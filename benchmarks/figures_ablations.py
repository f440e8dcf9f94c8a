"""Figures of the ablations; ``figures.py`` has the command."""

import numpy as np

from plotting import COLOURS, panels
from relation import read, relation_of, shifted

__all__ = ["choices", "options", "pitfalls"]

SOURCES = ("cifar10-resnet18", "cifar10-small")
CURVES = (("norms", "norm p"), ("thresholds", "threshold τ"), ("batches", "batch size"), ("rows", "rows of the set"))
BARS = (
    ("labels", None, "labels"),
    ("losses", None, "loss"),
    ("epochs", None, "epochs of fine-tuning"),
    ("layers", None, "layers"),
    ("layers", "cifar10-vit", "layers, ViT"),
)
MIXED = ("gdscore", "confscore", "nuclear", "dispersion", "atc", "cot")


def source_of(given, ablation):
    """The source asked for, or else the largest that the ablation was run on."""
    there = {row["source"] for row in read(given.choices) if row["ablation"] == ablation}
    return given.source or next((name for name in SOURCES if name in there), SOURCES[0])


def of(given, ablation, source=None):
    """Rows of one ablation's plain choices."""
    rows, source = read(given.choices), source or source_of(given, ablation)
    return [row for row in rows if row["ablation"] == ablation and row["source"] == source and "," not in row["choice"]]


def heights(axis, rows, marker=None):
    places = range(len(rows))
    for key, colour, label in (("r2", COLOURS[0], "R²"), ("rho", COLOURS[1], "|ρ|")):
        axis.plot(places, [abs(row[key]) for row in rows], "o-", color=colour, markersize=4, label=label)
    names = [row["choice"].split("=")[-1].replace("inf", "∞").replace("None", "whole") for row in rows]
    axis.set_xticks(places, names)
    if marker in names:
        axis.axvline(names.index(marker), color="#bbbbbb", linestyle=":", linewidth=1)
    axis.set_ylim(0, 1.03)


def options(given):
    """R² and |ρ| over each option's values; the dotted line is the default."""
    figure, axes = panels(1, 4, width=10, height=2.5, sharey="row")
    defaults = {"norms": "0.3", "thresholds": "0.5", "batches": "128"}
    for axis, (name, title) in zip(axes[0], CURVES, strict=True):
        rows = [row for row in of(given, name) if np.isfinite(row["r2"])]
        heights(axis, rows, defaults.get(name))
        axis.set_title(title, fontsize=9)
        axis.tick_params(axis="x", labelsize=6)
    axes[0][0].legend(fontsize=7, frameon=False)
    return figure


def choices(given):
    """R² and |ρ| of labels, losses, epochs and layers, as far as they were run."""
    shown = [(title, rows) for name, source, title in BARS if (rows := of(given, name, source))]
    widths = [len(rows) + 1 for _, rows in shown]
    figure, axes = panels(1, len(shown), width=10, height=2.6, sharey="row", width_ratios=widths)
    for axis, (title, rows) in zip(axes[0], shown, strict=True):
        places = np.arange(len(rows))
        axis.bar(places - 0.2, [row["r2"] for row in rows], 0.38, color=COLOURS[0], label="R²")
        axis.bar(places + 0.2, [abs(row["rho"]) for row in rows], 0.38, color=COLOURS[1], label="|ρ|")
        axis.set_xticks(places, [row["choice"].split("=")[-1] for row in rows], rotation=60, ha="right")
        axis.set_title(f"{title} ({rows[0]['sets']:.0f} sets)", fontsize=8)
    axes[0][min(1, len(shown) - 1)].legend(fontsize=7, frameon=False, loc="upper center")
    return figure


def pitfalls(given):
    """The same sets shuffled and sorted by class, and scores under mixes of classes."""
    order = shifted(read(given.ablations / "order" / f"{source_of(given, 'order')}.csv"))
    mixed = of(given, "labelshift")
    figure, axes = panels(1, 3, width=10, height=2.8)
    for axis, name in zip(axes[0], ("shuffled", "sorted"), strict=False):
        found = relation_of(order, name)
        axis.scatter([row[name] for row in order], [100 * row["accuracy"] for row in order], s=9, color=COLOURS[0])
        axis.set_title(f"gdscore, rows {name}: R² {found['r2']:.3f}, ρ {found['rho']:.3f}", fontsize=8)
        axis.set_xlabel("gdscore")
    axes[0][0].set_ylabel("accuracy, %")
    levels = (("none", "as corrupted"), (1.0, "mild mix"), (0.1, "strong mix"), ("any", "all together"))
    for place, (level, label) in enumerate(levels):
        values = {row["choice"]: row["r2"] for row in mixed if row["alpha"] == level}
        where = np.arange(len(MIXED)) + 0.2 * (place - 1.5)
        axes[0][2].bar(where, [values.get(name, np.nan) for name in MIXED], 0.19, color=COLOURS[place], label=label)
    axes[0][2].set_xticks(range(len(MIXED)), MIXED, rotation=30, ha="right")
    axes[0][2].set_title("R² under label shift", fontsize=8)
    axes[0][2].set_ylim(0, 1.3)
    axes[0][2].legend(fontsize=6, frameon=False, loc="upper center", ncols=4, columnspacing=0.8)
    return figure
