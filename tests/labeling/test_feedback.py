"""What labels teach: the correction of later windows, and the errors of past estimates."""

import dataclasses

import numpy as np
import pytest
from scipy.special import expit, logit

import gdscore
from gdscore.labeling import LabelledEstimate
from gdscore.labeling.feedback import past_errors, recalibrate

FREE = gdscore.estimator.Quantity(0.8, 0.75, 0.85)
SEEN = LabelledEstimate(0.65, 0.58, 0.72, 0.9, 2000, 0.9, labels=100, label_free=FREE)
LATER = gdscore.Estimate(0.82, 0.74, 0.9, 0.9, 2000, 0.9)


def test_the_correction_is_the_shrunk_difference_of_log_odds_and_fades():
    error = 0.07 / 1.6448536
    shift = 0.06**2 / (0.06**2 + error**2) * (logit(0.65) - logit(0.8))
    made = recalibrate(SEEN)
    assert made.shift == pytest.approx(shift, rel=1e-6)
    for age in (0, 1, 3, 6):
        found = made.apply(LATER, age)
        assert found.accuracy == pytest.approx(expit(logit(0.82) + 0.5 ** (age / 3) * shift), rel=1e-6)
        assert found.high - found.low >= LATER.high - LATER.low - 1e-9
        assert found.low <= found.accuracy <= found.high
        assert found.warnings[-1].code == "recalibrated"
    assert recalibrate(SEEN, half_life=1e9).apply(LATER, 50).accuracy == pytest.approx(made.apply(LATER, 0).accuracy)
    assert "100 labels" in found.warnings[-1].message


def test_agreeing_labels_change_nothing():
    agrees = dataclasses.replace(SEEN, accuracy=0.8, low=0.73, high=0.86)
    assert recalibrate(agrees).apply(LATER).accuracy == pytest.approx(0.82)


@pytest.mark.parametrize(("low", "accuracy", "high"), [(0.0, 0.0, 0.1), (0.9, 1.0, 1.0), (0.0, 0.5, 1.0)])
def test_ends_of_the_range(low, accuracy, high):
    found = recalibrate(SEEN).apply(gdscore.Estimate(accuracy, low, high, 0.9, 10, 0.9))
    assert 0 <= found.low <= found.accuracy <= found.high <= 1


def test_past_errors():
    agrees = dataclasses.replace(SEEN, accuracy=0.79, low=0.72, high=0.86)
    found = past_errors([SEEN, agrees])
    assert found.windows == 2
    assert found.bias == pytest.approx(np.mean([0.15, 0.01]))
    assert found.mean_absolute_error == pytest.approx(0.08)
    assert found.missed == 1
    assert "2 windows" in str(found)


def test_bad_input():
    with pytest.raises(gdscore.GdscoreError, match="at least one"):
        past_errors([])
    for wrong in (LATER, None, dataclasses.replace(SEEN, label_free=None)):
        with pytest.raises(gdscore.GdscoreError, match="labeling.estimate"):
            recalibrate(wrong)
    with pytest.raises(gdscore.GdscoreError, match="half_life"):
        recalibrate(SEEN, half_life=0)
    with pytest.raises(gdscore.GdscoreError, match="age"):
        recalibrate(SEEN).apply(LATER, -1)
    for wrong in (SEEN, 0.8, None):  # an accuracy that labels have measured needs no correction
        with pytest.raises(gdscore.GdscoreError, match="without labels"):
            recalibrate(SEEN).apply(wrong)
    with pytest.raises(gdscore.GdscoreError, match="list"):
        past_errors(SEEN)


def test_nothing_made_of_the_accuracy_before_stays(est, target):
    free = est.estimate(target)
    found = recalibrate(SEEN).apply(free)
    assert found.accuracy != free.accuracy
    assert free.per_class
    assert (found.per_class, found.f1, found.brier, found.assumptions) == ([], None, None, {})
