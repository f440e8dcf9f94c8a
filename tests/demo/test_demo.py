"""The demo's data: what it promises about its splits and shifts."""

from __future__ import annotations

import numpy as np
import pytest

import gdscore
from gdscore.demo import METHODS, TARGETS, Digits, with_labels


@pytest.fixture(scope="module")
def digits():
    return Digits()


@pytest.fixture(scope="module")
def sets(digits):
    return digits.shifted_sets()


@pytest.fixture(scope="module")
def est(digits, sets):
    return gdscore.AccuracyEstimator().fit(digits.reference, shifted_sets=sets)


def test_reference_and_targets_are_large_enough_for_no_warning(digits, est):
    trial = digits.trial("other-writers", est)
    codes = {warning.code for warning in trial.estimate.warnings}
    assert not codes & {"few_rows", "small_reference", "easy_reference", "below_chance", "outputs_only", "level"}
    assert set(trial.direct) == set(METHODS)
    assert "labels" in trial.outputs.has


def test_no_target_is_of_a_family_that_the_estimator_saw(sets):
    assert {s.family for s in sets} == set(gdscore.shifts.corruption_names())
    assert not {s.family for s in sets} & set(TARGETS)


def test_shifts_keep_images_images(digits):
    images = digits._new_images
    for name, (_, shift) in TARGETS.items():
        shifted = shift(images)
        assert shifted.shape == images.shape
        assert shifted.min() >= 0
        assert shifted.max() <= 1
        assert (name in ("other-writers", "other-mix")) == np.array_equal(shifted, images)


def test_the_mix_of_one_target_is_another_and_labels_hold(digits, est, tmp_path):
    trial = digits.trial("other-mix", est)
    labels = np.bincount(trial.outputs.labels, minlength=10)
    assert labels[:5].max() < labels[5:].min() / 2
    assert trial.known_mix.class_mix == "given"
    found = with_labels(trial, est, tmp_path / "labels.csv")
    assert found.labels == 50
    assert found.low <= trial.truth <= found.high
