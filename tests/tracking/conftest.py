"""A stream whose accuracy drifts, and an estimator for its model."""

from datetime import datetime, timedelta

import numpy as np
import pytest

import gdscore

START = datetime(2026, 1, 1)


def day(number):
    return START + timedelta(days=number)


def outputs(rows, noise, rng, mix=None, ids=None):
    """Labelled outputs of a model of three classes whose accuracy falls with the noise."""
    y = rng.choice(3, size=rows, p=mix)
    logits = 3 * np.eye(3)[y] + noise * rng.normal(size=(rows, 3))
    return gdscore.Outputs(logits=logits, labels=y, ids=ids)


def unlabelled(out):
    return gdscore.Outputs(**{name: a for name, a in out.arrays.items() if name != "labels"})


@pytest.fixture(scope="session")
def est():
    return gdscore.AccuracyEstimator().fit(outputs(2000, 1.0, np.random.default_rng(0)))


@pytest.fixture
def rng():
    return np.random.default_rng(1)


@pytest.fixture
def track(est):
    return gdscore.AccuracyTracker(est)
