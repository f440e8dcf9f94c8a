"""The demo's data: what it promises about its splits and shifts."""

from __future__ import annotations

import numpy as np
import pytest

import gdscore
from gdscore.demo import METHODS, TARGETS, Digits


@pytest.fixture(scope="module")
def digits():
    return Digits()


@pytest.fixture(scope="module")
def sets(digits):
    return digits.shifted_sets()


def test_reference_and_targets_are_large_enough_for_no_warning(digits, sets):
    estimator = gdscore.AccuracyEstimator().fit(digits.reference, shifted_sets=sets)
    trial = digits.trial("other-writers", estimator)
    codes = {warning.code for warning in trial.estimate.warnings}
    assert not codes & {"few_rows", "small_reference", "easy_reference", "below_chance", "outputs_only", "level"}
    assert set(trial.direct) == set(METHODS)
    assert "labels" in trial.outputs.has


def test_no_target_is_of_a_family_that_the_estimator_saw(sets):
    assert {s.family for s in sets} == set(gdscore.shifts.corruption_names())
    assert not {s.family for s in sets} & set(TARGETS)


def test_shifts_keep_images_images(digits):
    images = digits._new_images
    for name, shift in TARGETS.items():
        shifted = shift(images)
        assert shifted.shape == images.shape
        assert shifted.min() >= 0
        assert shifted.max() <= 1
        assert (name == "other-writers") == np.array_equal(shifted, images)
