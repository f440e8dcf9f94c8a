"""The sequence: a martingale at the truth, covers at all times, never widens, ends at the truth."""

import itertools

import numpy as np
import pytest

import gdscore
from gdscore.labeling import choose, sequence
from gdscore.labeling.betting import wealth

PREDICTED = np.array([0.9, 0.8, 0.6, 0.55, 0.3])


def all_orders(right, known=None):
    orders = np.array(list(itertools.permutations(range(len(right)))))
    least = right[orders] & (True if known is None else known[orders])
    most = right[orders] | (False if known is None else ~known[orders])
    share = np.array([[right.mean()]])
    return list(wealth(least, most, PREDICTED[orders], PREDICTED.mean(), len(right), share, 0.9))


@pytest.mark.parametrize("right", [[1, 1, 0, 1, 0], [1, 0, 0, 0, 0], [0, 1, 0, 1, 1]])
def test_at_the_truth_neither_gambler_gains_on_average_over_all_orders(right):
    # The richer of two martingales with half of the money each has at most the mean of their sum, which is 1.
    for reached in all_orders(np.array(right, dtype=bool)):
        assert 0.5 - 1e-12 <= reached.mean() <= 1 + 1e-12


def test_unknown_rows_only_make_gamblers_poorer():
    right = np.array([1, 1, 0, 1, 0], dtype=bool)
    for row in range(5):
        for reached in all_orders(right, np.arange(5) != row):
            assert reached.mean() <= 1 + 1e-12


@pytest.mark.parametrize("accuracy", [0.3, 0.8, 0.97])
def test_it_covers_at_all_times(accuracy):
    rng = np.random.default_rng(1)
    rows, runs = 1000, 600
    p = rng.random(rows)
    right = rng.random(rows) < np.clip(accuracy + 0.3 * (p - 0.5), 0, 1)
    drawn = np.argsort(rng.random((runs, rows)), axis=1)[:, :200]
    missed = np.zeros(runs, dtype=bool)
    for reached in wealth(right[drawn], right[drawn], p[drawn], p.mean(), rows, np.array([[right.mean()]]), 0.9):
        missed |= reached[:, 0] >= 10
    assert missed.mean() < 0.1 + 3 * np.sqrt(0.09 / runs)


@pytest.fixture(scope="module")
def drawn(est, target):
    return choose(est, target, 300, design="random", seed=4)


def test_intervals_never_widen_and_decide(est, target, drawn):
    labels = np.asarray(target.labels)[drawn.rows]
    found = sequence(est, target, drawn, labels)
    assert len(found) == 300
    assert (np.diff(found.low) >= 0).all()
    assert (np.diff(found.high) <= 0).all()
    assert found.low[-1] <= target.accuracy <= found.high[-1]
    assert found.compared_with(0.1) == "above"
    assert found.compared_with(0.99) == "below"
    assert found.compared_with(target.accuracy) == "undecided"
    assert found.narrow_enough(0.2)
    assert not found.narrow_enough(0.005)
    assert "300 of 900 rows" in str(found)
    np.testing.assert_array_equal(sequence(est, target, drawn, labels[:50]).low, found.low[:50])


def test_all_rows_labelled_leave_no_width(est):
    from tests.labeling.conftest import outputs

    small = outputs(40, 2.0, seed=5)
    rows = choose(est, small, 40, design="random")
    found = sequence(est, small, rows, np.asarray(small.labels)[rows.rows])
    assert found.low[-1] == found.high[-1] == pytest.approx(small.accuracy)


def test_what_nobody_can_tell_widens(est, target, drawn):
    labels = np.asarray(target.labels)[drawn.rows].tolist()
    plain = sequence(est, target, drawn, labels)
    unsure = sequence(est, target, drawn, ["?" if k % 10 == 0 else str(y) for k, y in enumerate(labels)])
    assert unsure.high[-1] - unsure.low[-1] > plain.high[-1] - plain.low[-1]
    assert unsure.low[-1] <= target.accuracy <= unsure.high[-1]


def test_rows_of_the_stratified_design_are_refused(est, target):
    with pytest.raises(gdscore.GdscoreError, match="design='random'"):
        sequence(est, target, choose(est, target, 20), [0] * 20)
