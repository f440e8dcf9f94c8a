"""The committed estimates are what the command makes of the committed cells."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def estimates(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import estimates

    yield estimates
    sys.modules.pop("estimates")


@pytest.mark.parametrize(("source", "peer"), [("cifar100sub0-resnet18", True), ("mnist-small", False)])
def test_committed_rows(estimates, source, peer):
    with (BENCHMARKS / "results" / "estimates.csv").open(newline="") as lines:
        committed = [r for r in csv.DictReader(lines) if (r["source"], r["peer"]) == (source, str(peer))]
    made = list(estimates.estimates(BENCHMARKS / "results" / "cells", source, peer))
    assert len(made) == len(committed) > 2
    for row, there in zip(made, committed, strict=True):
        assert row["set"] == there["set"]
        for column in ("truth", "accuracy", "low", "high", "cot@T"):
            assert row[column] == pytest.approx(float(there[column]), abs=1e-4)


def test_summary(estimates):
    row = {
        "source": "mnist-small",
        "kind": "natural",
        "peer": False,
        "truth": 0.5,
        "accuracy": 0.6,
        "low": 0.55,
        "high": 0.8,
    }
    row |= dict.fromkeys(estimates.DIRECT, 0.4)
    (line,) = estimates.summary([row, row | {"accuracy": 0.4, "low": 0.3}])
    assert (line["mae"], line["bias"], line["coverage"], line["sets"]) == (10.0, 0.0, 50.0, 2)
    assert line["benchmark"] == "digits"
    assert line["width"] == 37.5
