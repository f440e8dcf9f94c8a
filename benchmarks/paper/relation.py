"""How well a score tells the accuracy of the sets that it was measured on."""

import re

import numpy as np
from scipy.stats import rankdata

__all__ = ["columns_of", "constant_error", "group_of", "preferred", "relation", "relation_of", "shifted"]

# Of an ablation run on several networks the one that the page tells of.
LARGEST_FIRST = ("cifar10-resnet18", "cifar10-small")

NO_METHODS = (
    "set",
    "family",
    "severity",
    "n",
    "accuracy",
    "alpha",
    "seed",
    "commit",
    "device",
    "command",
    "ece",
    "order",
)
NO_METHODS += ("selfscore",)  # for the estimator: not in every cell, and no method of the tables


def preferred(sources):
    """The largest CIFAR-10 network of those there are, or else the first by name."""
    return next((name for name in LARGEST_FIRST if name in sources), min(sources, default=LARGEST_FIRST[0]))


def group_of(source):
    """Benchmark that a source belongs to, and the kind of its shift."""
    data, _, network = source.rpartition("-")
    for name, kind, members in (
        ("pacs", "natural", r"pacs-.*"),
        ("pacs128", "natural", r"pacs128-.*"),
        ("digits", "natural", r"mnist|mnistm|usps"),
        ("cifar100sub", "subpopulation", r"cifar100sub\d"),
    ):
        if re.fullmatch(members, data):
            return f"{name}-{network}", kind
    return source, "synthetic"


def columns_of(rows):
    """Columns that hold a score."""
    return [name for name in rows[0] if name not in NO_METHODS and not name.endswith("seconds")]


def relation(scores, accuracies, families):
    """How well a score tells the accuracy of sets: R², ρ, held-out error in points, sets, refused sets."""
    scores, accuracies, families = np.array(scores, float), np.array(accuracies, float), np.array(families)
    there = np.isfinite(scores)
    found = {"sets": int(there.sum()), "refused": int((~there).sum()), "r2": np.nan, "rho": np.nan, "mae": np.nan}
    x, y, families = scores[there], accuracies[there], families[there]
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return found
    x = (x - x.mean()) / x.std()
    found |= {"r2": np.corrcoef(x, y)[0, 1] ** 2, "rho": np.corrcoef(rankdata(x), rankdata(y))[0, 1]}
    errors = []
    for family in np.unique(families):
        out = families == family
        if len(np.unique(x[~out])) < 3:
            return found
        slope, level = np.polyfit(x[~out], y[~out], 1)
        errors.extend(np.abs(np.clip(slope * x[out] + level, 0, 1) - y[out]))
    return found | {"mae": 100 * np.mean(errors)}


def constant_error(rows):
    """Error in points without any score: the mean accuracy of the other families."""
    accuracies, families = (np.array([row[key] for row in rows]) for key in ("accuracy", "family"))
    others = [accuracies[families != family].mean() if (families != family).any() else np.nan for family in families]
    return 100 * np.abs(others - accuracies).mean()


def shifted(rows):
    return [row for row in rows if row["family"] != "unshifted"]


def relation_of(rows, column):
    """`relation` of a column to the accuracies of the same rows."""
    return relation(*([row[key] for row in rows] for key in (column, "accuracy", "family")))
