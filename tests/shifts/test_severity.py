"""Severities: the benchmark's numbers at its two sizes, and harder with each step."""

from __future__ import annotations

import numpy as np
import pytest

from gdscore import shifts
from gdscore.shifts._families import IMAGES

NAMES = shifts.corruption_names()
# Severities at which the benchmark's own parameters are milder, in squared distance, than those one step below.
MILDER = {
    "glass_blur": {2, 3, 5},  # more blur before and after, which averages what the shuffling did
    "motion_blur": {4},  # a longer cut of the same trail
    "frost": {4},  # less image behind the same ice
    "spatter": {4},  # water turns to mud
    "elastic_transform": {2, 3, 4, 5},  # less tilt, more bending
    "saturate": {3},  # from less colour to more
}


def distances(x: np.ndarray, name: str) -> list[float]:
    return [float(((shifts.Corruption(name, s)(x) - x) ** 2).mean()) for s in range(1, 9)]


@pytest.mark.parametrize("name", NAMES)
def test_photographs_get_further_away_with_severity(photos, name):
    away = distances(photos(32), name)
    assert away[0] > 0
    for severity in set(range(2, 9)) - MILDER.get(name, set()):
        assert away[severity - 1] > away[severity - 2], severity


@pytest.mark.parametrize("name", NAMES)
def test_digits_get_further_away_with_severity(digits, name):
    away = distances(digits, name)
    tilted = name == "elastic_transform"  # its first severity tilts the most, which moves thin strokes far
    assert max(away[tilted:5]) < away[7]
    assert away[4] < away[5] < away[6] < away[7]


@pytest.mark.parametrize("name", NAMES)
def test_beyond_the_benchmark_large_photographs_get_worse(photos, name):
    x = photos(224, 2)
    away = [float(((shifts.Corruption(name, s)(x) - x) ** 2).mean()) for s in (5, 6, 8)]
    assert away[0] < away[1] < away[2]


@pytest.mark.parametrize("name", NAMES)
def test_parameters_go_from_one_size_to_the_other(name):
    family = IMAGES[name]
    assert len(family.levels) == len(family.px224) == 8
    for severity in range(1, 9):
        sizes = [family.parameters(severity, s, s) for s in (8, 32, 48, 96, 224, 500)]
        assert sizes[0] == sizes[1] == family.levels[severity - 1]
        np.testing.assert_allclose(sizes[4], family.px224[severity - 1], rtol=1e-12)
        assert sizes[4] == sizes[5]
        for values in zip(*sizes[1:5], strict=True):
            steps = np.diff(values)
            assert (steps >= -1e-12).all() or (steps <= 1e-12).all()


def test_size_of_an_oblong_image_is_its_geometric_mean():
    parameters = IMAGES["gaussian_blur"].parameters
    assert parameters(3, 64, 64) == parameters(3, 32, 128)
