"""The draw: equal probabilities, one row a stratum, larger budgets continue smaller ones."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdscore.labeling.sampling import random_ranks, stratified_ranks


@settings(max_examples=40)
@given(st.integers(1, 300), st.data())
def test_rows_differ_and_a_larger_budget_continues_a_smaller_one(rows, data):
    budget, seed = data.draw(st.integers(1, rows)), data.draw(st.integers(0, 2**40))
    for drawn in (lambda b: stratified_ranks(rows, b, np.array([seed]))[0], lambda b: random_ranks(rows, b, seed)):
        ranks = drawn(budget)
        assert ranks.shape == (budget,)
        assert len(set(ranks.tolist())) == budget
        assert 0 <= ranks.min() <= ranks.max() < rows
        np.testing.assert_array_equal(drawn(max(1, budget // 2)), ranks[: max(1, budget // 2)])
        assert set(drawn(rows).tolist()) == set(range(rows))


@pytest.mark.parametrize("power", [1, 3, 5, 7])
def test_of_a_power_of_two_there_is_one_in_each_stratum(power):
    count = 2**power
    for line in stratified_ranks(1024, count, np.arange(50)):
        moved = ((line - move) % 1024 for move in range(64))
        assert any((np.sort(ranks * count // 1024) == np.arange(count)).all() for ranks in moved)


@pytest.mark.parametrize(("rows", "budget"), [(7, 3), (10, 10), (50, 12), (1000, 20)])
def test_every_row_is_drawn_equally_often(rows, budget):
    runs = 5000 if rows == 10 else 20_000
    counts = np.bincount(stratified_ranks(rows, budget, np.arange(runs)).ravel(), minlength=rows)
    share = budget / rows
    expected, error = runs * share, np.sqrt(runs * share * (1 - share)) + 1e-9
    assert np.abs(counts - expected).max() < 5 * error


def test_the_mean_is_unbiased_and_varies_no_more_than_that_of_random_rows():
    rng = np.random.default_rng(0)
    for right in (rng.random(400) < np.linspace(0, 1, 400), rng.random(400) < 0.7, np.arange(400) % 2 == 0):
        means = right[stratified_ranks(400, 50, np.arange(4000))].mean(axis=1)
        random_error = np.sqrt(right.var() / 50 * 350 / 399)
        assert abs(means.mean() - right.mean()) < 4 * random_error / np.sqrt(4000)
        assert means.std() < 1.05 * random_error


def test_random_rows_are_uniform():
    counts = np.bincount(np.concatenate([random_ranks(30, 6, seed) for seed in range(5000)]), minlength=30)
    assert np.abs(counts - 1000).max() < 5 * np.sqrt(5000 * 0.2 * 0.8)
