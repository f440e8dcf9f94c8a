"""The paper's own numbers, and what its tables get wrong about themselves.

``printed.csv`` holds the tables of "Leveraging Gradients for Unsupervised Accuracy Estimation under Distribution Shift" (GdScore, TMLR
2025) as printed, misprints included: R² and the absolute Spearman correlation (``rho``) of nine methods (``main``), the nuclear norm and
GradNorm beside GdScore, thresholds, layers, and calibration errors. Cells without a number are left out.
"""

from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np

from benchmarks.markdown import markdown
from benchmarks.row_files import read

__all__ = [
    "NETWORKS",
    "averages_table",
    "averages_text",
    "best_by",
    "data_sets",
    "mean",
    "number",
    "ranked_text",
    "table",
]

FILE = Path(__file__).with_name("printed.csv")
NETWORKS = ("ResNet18", "ResNet50", "WRN-50-2")
METRICS = {"r2": "R²", "rho": "ρ"}
# Three cells and their average are each rounded to 0.0005.
ROUNDING = 0.001 + 1e-9


@cache
def _numbers():
    keys = ("table", "dataset", "network", "method", "setting", "metric")
    return {tuple(row[key] for key in keys): row["value"] for row in read(FILE)}


def number(dataset, network, method="gdscore", metric="r2", *, of="main", setting=""):
    """A printed number, or None."""
    return _numbers().get((of, dataset, network, method, setting, metric))


def table(of, dataset, network):
    """Setting → number, of one of the small tables."""
    return {key[4]: value for key, value in _numbers().items() if key[:3] == (of, dataset, network)}


def data_sets(of="main"):
    return list(dict.fromkeys(key[1] for key in _numbers() if key[0] == of))


def data_tables():
    return {key[0] for key in _numbers()}


def methods(of="main"):
    return list(dict.fromkeys(key[3] for key in _numbers() if key[0] == of))


def mean(dataset, method="gdscore", metric="r2", *, of="main"):
    """Mean of the cells of three networks, or None where one is missing."""
    cells = [number(dataset, network, method, metric, of=of) for network in NETWORKS]
    return None if None in cells else float(np.mean(cells))


def best_by(metric):
    """Data set → methods whose mean is above that of GdScore."""
    ahead = {}
    for dataset in data_sets():
        means = {method: value for method in methods() if (value := mean(dataset, method, metric)) is not None}
        ahead[dataset] = [method for method, value in means.items() if value > means["gdscore"] + ROUNDING / 2]
    return ahead


def ranked_text(metric):
    """On how many data sets no method is above GdScore, and which method is on the others."""
    ahead = best_by(metric)
    others = "; ".join(f"{dataset}: {', '.join(found)}" for dataset, found in ahead.items() if found)
    return f"{METRICS[metric]}: {sum(not found for found in ahead.values())} of {len(ahead)} ({others})"


def rival_text(method):
    """On how many cells, and on how many means over networks, GdScore has the higher R²."""
    of = method if method in data_tables() else "main"
    cells, means = [], []
    for dataset in data_sets(of):
        pairs = [[number(dataset, network, name, of=of) for name in ("gdscore", method)] for network in NETWORKS]
        cells += [ours > theirs for ours, theirs in pairs if None not in (ours, theirs)]
        pair = [mean(dataset, name, of=of) for name in ("gdscore", method)]
        means += [pair[0] > pair[1]] if None not in pair else []
    averaged = f", {sum(means)} of {len(means)} data sets" if means else ""
    return f"{sum(cells)} of {len(cells)} cells{averaged}"


def choice_text(of, default):
    """R² of the paper's choice and of its best other one, on each data set and network of a small table."""
    texts = []
    for dataset, network in dict.fromkeys((key[1], key[2]) for key in _numbers() if key[0] == of):
        values = table(of, dataset, network)
        best = max((name for name in values if name != default), key=values.get)
        named = f"{dataset}{'' if network == NETWORKS[0] else f', {network}'}"
        texts.append(f"{named} {values[default]:.3f} against {values[best]:.3f} ({best.rpartition('=')[2]})")
    return "; ".join(texts)


def wrong_averages():
    """Table, data set, method, metric, printed average and mean of the cells, where rounding does not explain that they differ."""
    for (of, dataset, network, method, _, metric), printed in _numbers().items():
        if network == "Average" and abs(printed - mean(dataset, method, metric, of=of)) > ROUNDING:
            yield of, dataset, method, metric, printed, mean(dataset, method, metric, of=of)


def averages_table():
    """Printed averages, and in brackets the mean of their three cells, by data set and metric; ‡ marks the nuclear-norm table."""
    wrong = list(wrong_averages())
    lines = []
    for dataset in dict.fromkeys(dataset for _, dataset, *_ in wrong):
        texts = {metric: [] for metric in METRICS}
        for of, other, method, metric, printed, computed in wrong:
            if other == dataset:
                mark = "‡" if of == "nuclear" else ""
                texts[metric].append(f"{method}{mark} {printed:.3f} ({computed:.3f})".replace("772.000", "772"))
        lines.append([dataset, *(", ".join(found) for found in texts.values())])
    return markdown(("data set", *METRICS.values()), lines)


def exchanged():
    """Data sets and pairs of methods whose two printed averages fit each other's cells, in R² and in ρ."""
    wrong = {
        (dataset, method, metric): (printed, computed)
        for of, dataset, method, metric, printed, computed in wrong_averages()
    }
    for dataset in data_sets():
        for pair in combinations(methods(), 2):
            cells = [[wrong.get((dataset, method, metric)) for method in pair] for metric in METRICS]
            if all(None not in found for found in cells) and all(
                abs(first[0] - second[1]) < 2 * ROUNDING and abs(second[0] - first[1]) < 2 * ROUNDING
                for first, second in cells
            ):
                yield dataset, *pair


def repeated_columns():
    """Data set → methods whose R² and ρ are the same to 0.001 for ResNet18 and ResNet50, where that is over half of the methods."""
    found = {}
    for dataset in data_sets():
        same = []
        for method in methods():
            pairs = [[number(dataset, network, method, metric) for network in NETWORKS[:2]] for metric in METRICS]
            if all(None not in pair and abs(pair[0] - pair[1]) <= ROUNDING for pair in pairs):
                same.append(method)
        if 2 * len(same) > len(methods()):
            found[dataset] = same
    return found


def repeated_cells():
    """R² of GdScore with ResNet18 on a data set, by table, where the tables differ."""
    for dataset in data_sets():
        values = {"main": number(dataset, "ResNet18")}
        values |= {of: number(dataset, "ResNet18", of=of) for of in ("nuclear", "gradnorm")}
        values["thresholds"] = number(dataset, "ResNet18", of="threshold", setting="tau=0.5")
        values["layers"] = number(dataset, "ResNet18", of="layers", setting="last layer")
        there = {of: value for of, value in values.items() if value is not None}
        if np.ptp(list(there.values())) > ROUNDING:
            yield dataset, there


def averages_text():
    """Sentences: how many averages are wrong, which are exchanged, which columns and which cells disagree."""
    wrong, averages = list(wrong_averages()), sum(key[2] == "Average" for key in _numbers())
    swaps = "; ".join(f"{dataset}: {first} and {second}" for dataset, first, second in exchanged())
    columns = "; ".join(f"{dataset}: {', '.join(found)}" for dataset, found in repeated_columns().items())
    cells = "; ".join(
        f"{dataset} " + ", ".join(f"{value:.3f} ({of})" for of, value in found.items())
        for dataset, found in repeated_cells()
    )
    return (
        f"{len(wrong)} of {averages} printed averages differ from the mean of their three cells by more than rounding explains. "
        f"Averages exchanged in R² and ρ: {swaps}. ResNet18 and ResNet50 alike to 0.001: {columns or 'none'}. "
        f"One cell, R² of GdScore with ResNet18, in several tables: {cells}."
    )
