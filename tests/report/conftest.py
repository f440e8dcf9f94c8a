"""Estimates and a fitted estimator made by hand: the report must show what it is given."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from types import SimpleNamespace

import numpy as np
import pytest

from gdscore.estimator import ClassEstimate, Estimate, EstimateWarning, Quantity
from gdscore.estimator.estimate import ConfidenceHistogram
from gdscore.report import Target

FEW = EstimateWarning("few_rows", "warning", "80 rows are few: collect more")
COLLAPSE = EstimateWarning("collapse", "critical", "97% of the predictions are one class")
NOTE = EstimateWarning("class_mix", "info", "the mix of classes is taken as unknown")


def quantity(value: float) -> Quantity:
    return Quantity(value, max(0.0, value - 0.1), min(1.0, value + 0.1))


def made_estimate(accuracy: float = 0.8, classes: int = 5, warnings=(), **more) -> Estimate:
    per_class = [
        ClassEstimate(
            k,
            f"name {k}",
            1 / classes,
            1 / classes,
            quantity((k * 37 % classes) / classes),
            Quantity(0.5),
            Quantity(0.4),
        )
        for k in range(classes)
    ]
    rows = [0.0] * 10 + [10.0, 20.0, 30.0, 40.0, 50.0] + [25.0] * 5
    given = {
        "accuracy": accuracy,
        "low": max(0.0, accuracy - 0.08),
        "high": min(1.0, accuracy + 0.06),
        "level": 0.9,
        "n_rows": 275,
        "reference_accuracy": 0.93,
        "assumptions": {"unknown": accuracy, "stable": accuracy / 2},
        "per_class": per_class,
        "f1": quantity(0.7),
        "warnings": list(warnings),
        "scores": {"atc": accuracy, "odds": 1.5},
        "confidence": ConfidenceHistogram(rows, [0.8 * n for n in rows]),
    }
    return Estimate(**given | more)


def shifted_sets(families: list[str], seed: int = 0) -> SimpleNamespace:
    rng = np.random.default_rng(seed)
    accuracy = rng.uniform(0.2, 0.95, len(families))
    predicted = np.clip(accuracy + 0.03 * rng.normal(size=len(families)), 0, 1)
    return SimpleNamespace(families=families, accuracy=accuracy, predicted=predicted, rows=np.full(len(families), 1000))


@dataclass
class FittedEstimator:
    """The attributes of a fitted `AccuracyEstimator` that a report reads."""

    shifted_sets_: SimpleNamespace = field(repr=False)
    level: float = 0.9
    reference_accuracy_: float = field(default=0.93, repr=False)
    reference_rows_: int = field(default=1000, repr=False)
    decision_: str = field(default="argmax", repr=False)

    @property
    def left_out_error_(self) -> float:
        errors = np.abs(self.shifted_sets_.predicted - self.shifted_sets_.accuracy)
        return float(np.nanmean(errors)) if np.isfinite(errors).any() else float("nan")

    @property
    def n_families_(self) -> int:
        return len(set(self.shifted_sets_.families))

    @property
    def reference_confidence_(self) -> ConfidenceHistogram:
        rows = [0.0] * 10 + [10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 240.0, 400.0]
        middle = (np.arange(20) + 0.5) / 20
        return ConfidenceHistogram(rows, list(middle * rows), [round(n * 0.9) for n in rows])


@pytest.fixture
def estimator():
    return FittedEstimator(shifted_sets([f for f in ("fog", "<i>snow", "_$rain$") for _ in range(5)]))


@pytest.fixture
def large():
    """500 shifted sets of 40 families."""
    return FittedEstimator(shifted_sets([f"family {i % 40}" for i in range(500)]))


@pytest.fixture
def estimate():
    return made_estimate(warnings=[COLLAPSE, NOTE])


@pytest.fixture
def targets():
    """A year of targets, out of order."""
    months = [7, 1, *range(2, 7), *range(8, 13)]
    return [
        Target(
            f"month {m}",
            made_estimate(0.9 - 0.03 * m, warnings=[COLLAPSE] if m == 9 else []),
            when=datetime(2025, m, 1),
        )
        for m in months
    ]
