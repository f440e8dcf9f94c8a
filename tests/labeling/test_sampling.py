"""The draw: equal probabilities, one row a stratum, larger budgets continue smaller ones."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdscore.labeling.choice import random_ranks, stratified_ranks


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
        np.testing.assert_array_equal(np.sort(line * count // 1024), np.arange(count))


@pytest.mark.parametrize("rows", [7, 20, 33, 129, 257, 513, 600])
@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.8, 0.97, 1.0])
def test_every_row_is_drawn_equally_often(rows, share):
    budget, runs = max(1, round(share * rows)), 1500
    counts = np.bincount(stratified_ranks(rows, budget, np.arange(runs)).ravel(), minlength=rows)
    share = budget / rows
    assert np.abs(counts - runs * share).max() <= 4.5 * np.sqrt(runs * share * (1 - share))


def test_probabilities_are_exactly_equal():
    """All phases of all parts of five rows, one after the other: the draw by definition, without hashing."""

    def draws(first, size, phases):
        if size == 1:
            return [first]
        half = size // 2
        (own, *rest), counts = phases, [0]
        sides = []
        for c in range(1, size + 1):
            counts.append((own + c * half) // size)
            sides.append(counts[-1] > counts[-2])
        left = iter(draws(first, half, rest[: half - 1]))
        right = iter(draws(first + half, size - half, rest[half - 1 :]))
        return [next(left) if side else next(right) for side in sides]

    # Parts in the order in which `draws` takes them: 5 rows, 2, then 3, 1 + 2.
    every = [draws(0, 5, phases) for phases in product(range(5), range(2), range(3), range(2))]
    for budget in range(1, 6):
        counts = np.bincount(np.array(every)[:, :budget].ravel(), minlength=5)
        assert (counts == len(every) * budget // 5).all()
    drawn = {tuple(line) for line in stratified_ranks(5, 5, np.arange(3000)).tolist()}
    assert drawn == {tuple(line) for line in every}


def test_the_mean_is_unbiased_and_varies_no_more_than_that_of_random_rows():
    rng = np.random.default_rng(0)
    for right in (rng.random(400) < np.linspace(0, 1, 400), rng.random(400) < 0.7, np.arange(400) % 2 == 0):
        means = right[stratified_ranks(400, 50, np.arange(4000))].mean(axis=1)
        random_error = np.sqrt(right.var() / 50 * 350 / 399)
        assert abs(means.mean() - right.mean()) < 4 * random_error / np.sqrt(4000)
        # Where neighbours alternate, one of eight rows has the variance of a draw with replacement: sqrt(399 / 350).
        assert means.std() < 1.07 * random_error


def test_random_rows_are_uniform():
    counts = np.bincount(np.concatenate([random_ranks(30, 6, seed) for seed in range(5000)]), minlength=30)
    assert np.abs(counts - 1000).max() < 5 * np.sqrt(5000 * 0.2 * 0.8)
