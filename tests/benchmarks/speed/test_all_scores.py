"""Benchmarks that compute every score know what each of them needs."""

import sys

import numpy as np
import pytest

import gdscore

pytest.importorskip("torch")

from benchmarks.speed import devices, scores

SCORES = set(gdscore.list_scores()) - {"projnorm"}


def test_speed(tmp_path, monkeypatch):
    size = ["--rows", "256", "--features", "16", "--classes", "5", "--repeats", "1"]
    monkeypatch.setattr(sys, "argv", ["speed", *size])
    found = scores.measure(scores.arguments(), "numpy")
    assert set(found["compute_seconds"]) == SCORES


@pytest.mark.filterwarnings("ignore::gdscore.GdscoreWarning")
def test_devices():
    found = devices.scores_on(np.asarray, 300)
    assert {label.split()[0] for label in found} == SCORES
    assert np.isfinite(list(found.values())).all()
