from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from gdscore.shifts._families import Draws

VECTOR = [[-1911556423, -903750403, 2069165329], [-347586127, -174378452, -1219008896]]


def draws(seed: int = 0, family: str = "test", start: int = 0, images: int = 64) -> Draws:
    return Draws(family, seed, start, images)


def test_vector():
    assert draws(seed=7).bits(0, (3,))[:2].tolist() == VECTOR
    assert draws(seed=7, start=1).bits(0, (3,))[0].tolist() == VECTOR[1]


def test_uniform():
    u = draws().uniform_field(0, (3, 32, 32)).ravel()
    assert u.dtype == np.float32
    assert 0 <= u.min() < u.max() < 1
    assert stats.kstest(u, "uniform").pvalue > 1e-3


def test_normal():
    z = draws().normal_field(0, (3, 32, 32)).ravel().astype(np.float64)
    assert stats.kstest(z, "norm").pvalue > 1e-3
    assert abs(z.std() - 1) < 0.005
    assert 3.8 < abs(z).max() < 4.1


@pytest.mark.parametrize("rate", [0.02, 0.5, 2.0, 3.9, 4.1, 7.0, 30.0, 400.0])
def test_poisson(rate):
    field = np.full((64, 1, 40, 40), rate, dtype=np.float32)
    counts = draws().poisson_field(0, field, rate).ravel()
    assert np.array_equal(counts, np.round(counts))
    support = np.arange(int(rate + 8 * np.sqrt(rate) + 8))
    seen = np.cumsum(np.bincount(counts.astype(int), minlength=len(support)))[: len(support)] / counts.size
    assert np.abs(seen - stats.poisson.cdf(support, rate)).max() < 0.006
    assert abs(counts.mean() - rate) < 5 * np.sqrt(rate / counts.size) + 0.003 * rate


def test_everything_that_names_a_draw_counts():
    base = draws().uniform_field(0, (32, 32)).ravel()
    others = {
        "seed": draws(seed=1).uniform_field(0, (32, 32)).ravel(),
        "high half of the seed": draws(seed=1 << 32).uniform_field(0, (32, 32)).ravel(),
        "family": draws(family="other").uniform_field(0, (32, 32)).ravel(),
        "layer": draws().uniform_field(1, (32, 32)).ravel(),
        "image": draws(start=64).uniform_field(0, (32, 32)).ravel(),
        "image far away": draws(start=2**40).uniform_field(0, (32, 32)).ravel(),
        "position": np.roll(base, 1),
        "row": np.roll(base, 32),
        "next image": np.roll(base, 1024),
    }
    for what, other in others.items():
        assert abs(np.corrcoef(base, other)[0, 1]) < 0.02, what


def test_uniform_on_the_host():
    u = draws(images=4000).uniform(2, 3)
    assert u.shape == (4000, 3)
    assert stats.kstest(u.ravel(), "uniform").pvalue > 1e-3
    np.testing.assert_array_equal(draws(start=5, images=3).uniform(2, 3), u[5:8])


def test_entries_of_a_row_are_those_of_all_rows():
    u = draws(start=3).uniform(1, 9)
    np.testing.assert_array_equal(draws(start=3).uniform_at(1, np.array([5, 0]), np.array([8, 2])), u[[5, 0], [8, 2]])


@pytest.mark.parametrize("start", [0, 2**32 - 32])
def test_words_are_the_same_with_torch(start):
    expected = Draws("test", 7, start, 64).bits(2, (4, 5))
    got = Draws("test", 7, start, 64, like=torch.zeros(1)).bits(2, (4, 5))
    np.testing.assert_array_equal(np.asarray(got), expected)
