"""The interval: against textbook formulas written out here, and by simulation on populations made to be hard."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gdscore.labeling.choice import stratified_ranks
from gdscore.labeling.labelled import interval, labels_for, variance_ratio


def agresti_coull(correct, n, level):
    z = stats.norm.ppf(0.5 + level / 2)
    p = (correct + z * z / 2) / (n + z * z)
    half = z * np.sqrt(p * (1 - p) / (n + z * z))
    return max(p - half, 0), min(p + half, 1)


@pytest.mark.parametrize("level", [0.8, 0.9, 0.99])
@pytest.mark.parametrize(("correct", "n"), [(0, 5), (3, 5), (17, 20), (50, 50), (450, 1000)])
def test_without_gain_and_of_many_rows_it_is_agresti_and_coulls(correct, n, level):
    right = np.arange(n) < correct
    low, high = interval(right, 10**12, level, ratio=1.0)
    np.testing.assert_allclose((low, high), agresti_coull(correct, n, level), rtol=1e-6, atol=1e-9)


def test_the_gain_is_that_of_successive_differences():
    right = np.array([0, 0, 1, 0, 1, 1, 0, 1, 1, 1, 1, 1])
    n = len(right)
    plain = sum((a - b) ** 2 for a, b in zip(right[1:], right[:-1], strict=True)) / 2 / (n - 1) / np.var(right, ddof=1)
    assert variance_ratio(right) == pytest.approx(1 - (1 - plain) * n / (n + 15))
    assert variance_ratio(np.ones(30)) == 1
    assert variance_ratio(np.array([0, 1] * 20)) == 1
    assert variance_ratio(np.array([1])) == 1


@given(st.lists(st.booleans(), min_size=1, max_size=60), st.integers(0, 500), st.sampled_from([0.5, 0.9, 0.99]))
def test_it_lies_between_the_accuracies_that_are_possible(right, more, level):
    right = np.array(right)
    rows = len(right) + more
    low, high = interval(right, rows, level)
    assert right.sum() / rows <= low <= right.mean() + 1e-6
    assert right.mean() - 1e-6 <= high <= (right.sum() + more) / rows
    if more == 0:
        assert low == high == right.mean()


def test_many_draws_at_once_are_each_by_itself():
    right = np.random.default_rng(0).random((20, 30)) < 0.7
    lows, highs = interval(right, 500, 0.9)
    for row, low, high in zip(right, lows, highs, strict=True):
        assert (low, high) == interval(row, 500, 0.9)


POPULATIONS = {
    "order tells nothing": lambda rng, p: rng.random(2000) < p,
    "order tells much": lambda rng, p: rng.random(2000) < np.clip(np.linspace(2 * p - 1, 1, 2000), 0, 1),
    "order is wrong way round": lambda rng, p: rng.random(2000) < np.clip(np.linspace(1, 2 * p - 1, 2000), 0, 1),
    "confidently wrong": lambda rng, p: np.where(np.arange(2000) > 1700, rng.random(2000) < 0.3, rng.random(2000) < p),
}


@pytest.mark.parametrize("labels", [10, 20, 50, 200])
@pytest.mark.parametrize("population", POPULATIONS)
def test_coverage_on_average_over_accuracies(population, labels):
    rng, covered = np.random.default_rng(0), []
    for p in (0.55, 0.65, 0.75, 0.85, 0.92, 0.97):
        right = POPULATIONS[population](rng, p)
        drawn = right[np.sort(stratified_ranks(2000, labels, np.arange(400)), axis=1)]
        low, high = interval(drawn, 2000, 0.9)
        covered.append(np.mean((low <= right.mean()) & (right.mean() <= high)))
    assert np.mean(covered) > 0.885
    assert min(covered) > 0.83


def test_forecast_inverts_the_interval():
    for half in (0.02, 0.05, 0.1):
        n = labels_for(half, 0.8, 0.9, 5000, 0.9)
        right = np.concatenate([np.zeros(round(0.2 * n)), np.ones(n - round(0.2 * n))])
        low, high = interval(right, 5000, 0.9, ratio=0.9)
        assert (high - low) / 2 == pytest.approx(half, rel=0.08)
    assert labels_for(1e-6, 0.5, 1.0, 300, 0.9) == 300


WRONG = {
    "one class": lambda rng, n: (np.arange(n) >= n // 3) & (np.arange(n) < n // 3 + max(n // 6, 1)),
    "first ranks": lambda rng, n: np.arange(n) < max(round(0.15 * n), 1),
    "two fifths": lambda rng, n: np.arange(n) < 0.4 * n,
    "every second tenth": lambda rng, n: np.arange(n) // max(n // 10, 1) % 2 == 1,
    "random 15 %": lambda rng, n: rng.permutation(n) < max(round(0.15 * n), 1),
    "one row": lambda rng, n: rng.permutation(n) < 1,
}


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize(
    ("rows", "labels"), [(20, 10), (20, 18), (40, 20), (257, 192), (300, 150), (513, 410), (600, 540), (1000, 50)]
)
def test_coverage_where_much_of_the_target_is_labelled(rows, labels, kind):
    rng = np.random.default_rng(rows)
    covered, off = [], []
    for _ in range(4):
        right = ~WRONG[kind](rng, rows)
        drawn = np.sort(stratified_ranks(rows, labels, rng.integers(0, 2**40, 300)), axis=1)
        low, high = interval(right[drawn], rows, 0.9)
        covered.append((low <= right.mean() + 1e-9) & (right.mean() <= high + 1e-9))
        off.append(right[drawn].mean(axis=1) - right.mean())
    assert np.mean(covered) >= 0.87
    assert abs(np.mean(off)) < 5 * np.std(off) / np.sqrt(np.size(off)) + 1e-12
