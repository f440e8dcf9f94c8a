"""What the committed benchmark says about severities: measured on a GPU, checked here."""

from __future__ import annotations

import csv
from itertools import pairwise
from pathlib import Path

from gdscore import shifts

CELL = Path(__file__).parents[2] / "benchmarks" / "results" / "cells" / "deployed" / "cifar10-resnet18.csv"
NOT_MONOTONE = {"glass_blur", "snow", "spatter", "elastic_transform", "saturate"}


def test_accuracy_falls_with_severity():
    with CELL.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    for name in shifts.corruption_names():
        by_severity = {int(row["severity"]): float(row["accuracy"]) for row in rows if row["family"] == name}
        accuracy = [by_severity[severity] for severity in range(1, 6)]
        assert accuracy[4] < accuracy[0], name
        assert all(a >= b for a, b in pairwise(accuracy)) == (name not in NOT_MONOTONE), name
