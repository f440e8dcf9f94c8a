from __future__ import annotations

import copy
import dataclasses
from datetime import datetime

import numpy as np
import pytest

import gdscore
from gdscore.estimator import Calibration, Judge
from gdscore.report import Target


def said(rng, rows, noise, classes=5):
    y = rng.integers(0, classes, rows)
    x = np.eye(classes)[y] * 3 + noise * rng.normal(size=(rows, classes))
    return gdscore.Outputs(logits=2 * x, features=x, labels=y)


@pytest.fixture(scope="session")
def reference():
    return said(np.random.default_rng(0), 1000, 1.0)


@pytest.fixture(scope="session")
def estimator(reference):
    rng = np.random.default_rng(1)
    sets = [gdscore.ShiftedSet(said(rng, 300, 1 + 0.3 * i), f) for f in ("fog", "<i>snow", "_$rain$") for i in range(5)]
    return gdscore.AccuracyEstimator(level=0.7, scores=["cott", "nuclear", "frechet"]).fit(reference, shifted_sets=sets)


@pytest.fixture(scope="session")
def estimate(estimator):
    return estimator.estimate(said(np.random.default_rng(2), 600, 1.5))


@pytest.fixture(scope="session")
def targets(estimator):
    """A year of targets, out of order."""
    rng = np.random.default_rng(3)
    months = [7, 1, *range(2, 7), *range(8, 13)]
    return [
        Target(f"month {m}", estimator.estimate(said(rng, 300, 1 + 0.1 * m)), when=datetime(2025, m, 1)) for m in months
    ]


@pytest.fixture
def large(estimator):
    """The same estimator as if it had seen 500 shifted sets of 40 families."""
    rng = np.random.default_rng(4)
    accuracy = rng.uniform(0.2, 0.95, 500)
    other = copy.copy(estimator)
    table = Calibration(
        families=[f"family {i % 40}" for i in range(500)],
        accuracy=accuracy,
        rows=np.full(500, 1000),
        scores={name: accuracy + 0.05 * rng.normal(size=500) for name in estimator.calibration_.scores},
    )
    other.judge_ = Judge(table)
    predicted = np.clip(accuracy + 0.03 * rng.normal(size=500), 0, 1)
    other.judge_.table = dataclasses.replace(other.calibration_, predicted=predicted)
    return other
