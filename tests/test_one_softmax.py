"""The softmax of a chunk is computed once for each temperature, whoever asks for it."""

from __future__ import annotations

import numpy as np
import pytest

import gdscore
from gdscore import shifts

ROWS, CLASSES, WIDTH = 5000, 4, 6


def outputs(rows, noise, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, rows)
    x = np.eye(WIDTH)[labels] * 3 + noise * rng.normal(size=(rows, WIDTH))
    z = x @ np.eye(WIDTH, CLASSES)
    return gdscore.Outputs(logits=2 * z, features=x, labels=labels, peer_logits=2 * z + rng.normal(size=z.shape))


@pytest.fixture
def seen(monkeypatch):
    """Logits that a softmax was made of, as bytes of each row."""
    found = []
    original = gdscore.outputs.softmax

    def counted(logits):
        found.extend(row.tobytes() for row in logits)
        return original(logits)

    monkeypatch.setattr("gdscore.outputs.softmax", counted)
    return found


def fitted(method="correctness"):
    sets = [gdscore.ShiftedSet(outputs(600, 1 + 0.5 * k, k), f"noise {k}") for k in range(4)]
    return gdscore.AccuracyEstimator(method=method).fit(outputs(600, 1.0, 9), shifted_sets=sets)


def test_estimate(seen):
    """The calibrated temperature, and the model's own for its Brier score."""
    est, target = fitted(), outputs(ROWS, 1.5, 11)
    seen.clear()
    est.estimate(target)
    assert len(seen) == len(set(seen)) == 2 * ROWS
    seen.clear()
    est.estimate([target[:1000], target[1000:]])
    assert len(seen) == len(set(seen)) == 2 * ROWS
    seen.clear()
    est.estimate(target, by=np.arange(ROWS) % 3)
    assert len(seen) == len(set(seen)) == 2 * ROWS


def test_estimate_by_a_score_has_two_temperatures(seen):
    est, target = fitted("gdscore"), outputs(ROWS, 1.5, 11)
    seen.clear()
    est.estimate(target)
    assert len(seen) == len(set(seen)) == 2 * ROWS


def test_fit_on_shifted_sets(seen):
    fitted()
    # The reference with and without temperature, and every set with it.
    assert len(seen) == len(set(seen)) == (2 + 4) * 600


def test_fit_predictor_on_shifted_inputs(seen):
    images = np.random.default_rng(0).random((300, 1, 8, 8), dtype=np.float32)
    weights = np.random.default_rng(1).normal(size=(64, CLASSES))

    def predict(batch):
        x = batch.reshape(len(batch), -1)
        return gdscore.Outputs(logits=x @ weights, features=x)

    labels = (images.reshape(300, -1) @ weights).argmax(axis=1)
    labels[::5] = (labels[::5] + 1) % CLASSES
    chosen = shifts.corruptions((2, 5), names=("gaussian_noise", "fog"))
    gdscore.AccuracyEstimator().fit_predictor(predict, images, labels, shifts=chosen, batch_size=100)
    assert len(seen) == len(set(seen)) == (2 + len(chosen)) * 300


def test_score_all(seen):
    target, reference = outputs(ROWS, 1.5, 11), outputs(3000, 1.0, 9)
    table = gdscore.score_all([target[:1500], target[1500:]], reference=reference)
    assert set(table.skipped) == {"projnorm", "rotation", "selfscore"}
    assert len(seen) == len(set(seen)) == ROWS + 3000
