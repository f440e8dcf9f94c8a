"""The table of a target: raking against optimisers of its own and iterative proportional fitting; its measures."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit, logit, logsumexp, softmax
from sklearn.metrics import accuracy_score, precision_recall_fscore_support

from gdscore.estimator.table import REACHABLE, Cells, Joint, rake, scaled_to, with_means

seeds = st.integers(0, 2**32 - 1)


def problem(seed, classes, cells=40, slack=0.0, *, sharp=2.0):
    """Shares of cells, probabilities of their classes, wanted shares and their slack."""
    rng = np.random.default_rng([seed, classes])
    wanted = rng.dirichlet(np.ones(classes))
    posterior = softmax(sharp * rng.normal(size=(cells, classes)), axis=1)
    return rng.dirichlet(np.ones(cells)), posterior, wanted, slack * rng.uniform(0.5, 1.5, classes)


def reachable(classes, wanted):
    """A little of the wanted mix in each cell."""
    return classes + REACHABLE * wanted


def dual(odds, shares, classes, wanted, slack):
    """The concave function that factors e^odds of the classes maximise, and its gradient."""
    log_rows = np.log(classes) + odds
    total = logsumexp(log_rows, axis=1)
    value = wanted @ odds - shares @ total - 0.5 * slack @ np.square(odds)
    return value, wanted - shares @ np.exp(log_rows - total[:, None]) - slack * odds


def by_bfgs(shares, classes, wanted, slack):
    """Raked rows by a general optimiser, which knows nothing of Newton steps."""
    classes = reachable(classes, wanted)

    def loss(odds):
        value, gradient = dual(odds, shares, classes, wanted, slack)
        return -value, -gradient

    best = minimize(loss, np.zeros(len(wanted)), jac=True, method="BFGS", options={"gtol": 1e-9, "maxiter": 5000}).x
    return softmax(np.log(classes) + best, axis=1)


def by_proportional_fitting(shares, classes, wanted, rounds=20_000):
    """Deming and Stephan 1940: the factors are multiplied by wanted / reached, again and again."""
    classes, factors = reachable(classes, wanted), np.ones(len(wanted))
    for _ in range(rounds):
        raked = classes * factors
        raked /= raked.sum(axis=1, keepdims=True)
        reached = shares @ raked
        if np.abs(reached - wanted).max() < 1e-10:
            break
        factors *= wanted / reached
    return raked


@pytest.mark.parametrize("classes", [2, 3, 7, 30])
@pytest.mark.parametrize("slack", [0.0, 1e-4, 1e-2, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_raking_is_the_maximum_that_bfgs_finds(classes, slack, seed):
    shares, posterior, wanted, allowed = problem(seed, classes, slack=slack)
    raked = rake(shares, posterior, wanted, allowed)
    np.testing.assert_allclose(raked, by_bfgs(shares, posterior, wanted, allowed), atol=1e-5)
    if not slack:
        np.testing.assert_allclose(shares @ raked, wanted, atol=1e-7)


@pytest.mark.parametrize("classes", [2, 5, 20])
@pytest.mark.parametrize("seed", range(3))
def test_raking_without_slack_is_iterative_proportional_fitting(classes, seed):
    shares, posterior, wanted, slack = problem(seed, classes, sharp=1.0)
    raked = rake(shares, posterior, wanted, slack)
    np.testing.assert_allclose(raked, by_proportional_fitting(shares, posterior, wanted), atol=1e-5)


def test_what_is_added_so_that_all_is_reachable_changes_little():
    """A share that rows show plainly is reached without it: the table is the same to a tenth of a point."""
    for seed in range(5):
        shares, posterior, wanted, slack = problem(seed, 6, sharp=1.0)
        plain = np.full(6, 1 / 6)
        for _ in range(2000):
            tilted = posterior * plain
            tilted /= tilted.sum(axis=1, keepdims=True)
            plain *= wanted / (shares @ tilted)
        np.testing.assert_allclose(rake(shares, posterior, wanted, slack), tilted, atol=1e-3)


@given(
    seed=seeds, classes=st.sampled_from([2, 3, 8]), slack=st.sampled_from([1e-3, 0.1, 10.0]), cells=st.integers(1, 30)
)
@settings(max_examples=40, deadline=None)
def test_raked_rows_are_nearest_to_the_rows(seed, classes, slack, cells):
    """Duality: the Kullback-Leibler divergence of the rows and the penalty reach what no other rows can undercut."""
    shares, posterior, wanted, allowed = problem(seed, classes, cells, slack)
    raked, posterior = rake(shares, posterior, wanted, allowed), reachable(posterior, wanted)
    assert (raked >= 0).all()
    np.testing.assert_allclose(raked.sum(axis=1), 1, atol=1e-12)
    missed = wanted - shares @ raked
    primal = shares @ (raked * np.log(np.maximum(raked, 1e-300) / posterior)).sum(axis=1)
    primal += 0.5 * (np.square(missed) / allowed).sum()
    bound, _ = dual(missed / allowed, shares, posterior, wanted, allowed)
    assert primal == pytest.approx(bound, abs=1e-6 * (1 + abs(bound)))


@given(seed=seeds, classes=st.sampled_from([2, 4, 9]), cells=st.integers(1, 60), sharp=st.floats(0, 30))
@settings(max_examples=30, deadline=None)
def test_many_targets_at_once_are_each_alone(seed, classes, cells, sharp):
    targets = [problem(seed + k, classes, cells, slack, sharp=sharp) for k, slack in enumerate([0.0, 1e-6, 1e-2, 5.0])]
    together = rake(*(np.stack(parts) for parts in zip(*targets, strict=True)))
    for raked, target in zip(together, targets, strict=True):
        assert np.isfinite(raked).all()
        np.testing.assert_allclose(raked.sum(axis=1), 1, atol=1e-9)
        alone = rake(*target)
        np.testing.assert_allclose(target[0] @ raked, target[0] @ alone, atol=1e-6)


def test_rows_that_have_the_wanted_mix_stay():
    shares, posterior, _, _ = problem(0, 6)
    for slack in (0.0, 0.1):
        raked = rake(shares, posterior, shares @ posterior, np.full(6, slack))
        np.testing.assert_allclose(raked, posterior, atol=1e-4)


def test_the_order_of_classes_and_of_cells_changes_nothing():
    rng = np.random.default_rng(1)
    shares, posterior, wanted, slack = problem(1, 8, slack=0.01)
    k, c = rng.permutation(8), rng.permutation(len(shares))
    raked = rake(shares[c], posterior[c][:, k], wanted[k], slack[k])
    np.testing.assert_allclose(raked, rake(shares, posterior, wanted, slack)[c][:, k], atol=1e-8)


def test_endless_slack_changes_nothing_and_little_slack_nearly_all():
    shares, posterior, wanted, _ = problem(2, 5)
    off = [
        np.abs(shares @ rake(shares, posterior, wanted, np.full(5, slack)) - wanted).max()
        for slack in (0.0, 1e-3, 1e-2, 1e-1, 1.0, 1e6)
    ]
    assert off == sorted(off)
    assert off[0] < 1e-7
    assert off[-1] == pytest.approx(np.abs(shares @ posterior - wanted).max(), abs=1e-4)


def test_a_share_of_zero_excludes_a_class():
    shares, posterior, wanted, slack = problem(3, 5)
    wanted = np.where(np.arange(5) == 2, 0, wanted)
    wanted = wanted / wanted.sum()
    raked = rake(shares, posterior, wanted, slack)
    assert (raked[:, 2] == 0).all()
    rest = [0, 1, 3, 4]
    without = posterior[:, rest] / posterior[:, rest].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(raked[:, rest], by_bfgs(shares, without, wanted[rest], slack[rest]), atol=1e-3)


def test_a_class_of_share_zero_stays_where_nothing_else_explains_a_cell():
    shares = np.array([0.5, 0.5])
    raked = rake(shares, np.array([[0.0, 1.0, 0.0], [0.3, 0.4, 0.3]]), np.array([0.5, 0.0, 0.5]), np.zeros(3))
    assert raked[0, 1] > 0.99
    assert raked[1, 1] < 1e-3
    assert np.isfinite(raked).all()


@pytest.mark.parametrize("slack", [0.0, 1e-3])
def test_a_class_that_no_row_shows_is_approached(slack):
    """Rows cannot be of a class that has no probability anywhere, but for the little that is added."""
    rng = np.random.default_rng(4)
    posterior = np.hstack([rng.dirichlet(np.ones(3), 20), np.zeros((20, 1))])
    wanted, shares = np.array([0.3, 0.2, 0.1, 0.4]), np.full(20, 0.05)
    raked = rake(shares, posterior, wanted, np.full(4, slack))
    assert np.isfinite(raked).all()
    np.testing.assert_allclose(raked.sum(axis=1), 1, atol=1e-9)
    reached = shares @ raked
    assert 0.01 < reached[3] <= 0.4 + 1e-6
    assert (reached[3] == pytest.approx(0.4, abs=1e-6)) == (slack == 0)


def test_certain_rows_are_not_overruled():
    """One-hot rows, and a mix that they do not have: finite, and shares that are there are not lost."""
    for classes in (2, 4):
        posterior = np.eye(classes)[np.arange(40) % classes]
        raked = rake(np.full(40, 1 / 40), posterior, np.eye(classes)[0] * 0.5 + 0.5 / classes, np.full(classes, 1e-3))
        assert np.isfinite(raked).all()
        np.testing.assert_allclose(raked.sum(axis=1), 1, atol=1e-9)


def test_a_thousand_classes():
    rng = np.random.default_rng(5)
    cells, classes = 1000, 1000
    posterior = softmax(3 * rng.normal(size=(cells, classes)) + 8 * np.eye(classes), axis=1)
    shares, wanted = rng.dirichlet(np.full(cells, 3.0)), rng.dirichlet(np.full(classes, 2.0))
    raked = rake(shares, posterior, wanted, np.zeros(classes))
    np.testing.assert_allclose(shares @ raked, wanted, atol=1e-7)
    # The tilt of these shares: every cell has the same factors of the classes.
    odds = np.log(raked / reachable(posterior, wanted))
    np.testing.assert_allclose(odds - odds[:, :1], np.tile(odds[0] - odds[0, 0], (cells, 1)), atol=1e-6)


def cells_of(seed, classes=4, groups=3):
    rng = np.random.default_rng(seed)
    predicted = np.repeat(np.arange(classes), groups)
    posterior = rng.dirichlet(np.ones(classes), len(predicted)) + np.eye(classes)[predicted]
    return Cells(predicted, rng.dirichlet(np.ones(len(predicted))), posterior / 2)


def test_a_known_mix_is_the_mix_of_the_table():
    cells, wanted = cells_of(0), np.array([0.1, 0.2, 0.3, 0.4])
    joint = cells.raked(wanted, np.zeros(4)).joint()
    np.testing.assert_allclose(joint.mix, wanted, atol=1e-7)
    np.testing.assert_allclose(joint.predicted, cells.joint().predicted, atol=1e-12)
    assert joint.accuracy == pytest.approx(cells.raked(wanted, np.zeros(4)).accuracy, abs=1e-12)
    assert joint.table.sum() == pytest.approx(1)


def test_a_part_of_the_way_to_another_assumption():
    first, second = cells_of(1), cells_of(1).raked(np.array([0.7, 0.1, 0.1, 0.1]), np.zeros(4))
    for part in (0.0, 0.3, 1.0):
        between = first.towards(second, part)
        assert between.accuracy == pytest.approx((1 - part) * first.accuracy + part * second.accuracy)
        np.testing.assert_allclose(between.classes.sum(axis=1), 1)


def test_measures_of_a_table_are_scikit_learns():
    rng = np.random.default_rng(6)
    labels, predictions = rng.integers(0, 4, 500), rng.integers(0, 4, 500)
    predictions = np.where(rng.random(500) < 0.6, labels, predictions)
    counts = np.zeros((4, 4))
    np.add.at(counts, (predictions, labels), 1)
    joint = Joint(counts / 500)
    precision, recall, f1, support = precision_recall_fscore_support(labels, predictions)
    np.testing.assert_allclose(joint.measures(), [recall, precision, f1])
    np.testing.assert_allclose(joint.mix, support / 500)
    assert joint.accuracy == pytest.approx(accuracy_score(labels, predictions))


def test_measures_of_classes_that_are_not_there():
    table = np.zeros((3, 3))
    table[0, 0], table[1, 0] = 0.5, 0.5
    np.testing.assert_allclose(Joint(table).measures(), [[0.5, 0, 0], [1, 0, 0], [2 / 3, 0, 0]])


@given(seed=seeds, accuracy=st.floats(0, 1), classes=st.integers(2, 6))
@settings(max_examples=40, deadline=None)
def test_a_table_is_scaled_to_an_accuracy(seed, accuracy, classes):
    joint = cells_of(seed, classes).joint()
    scaled = joint.scaled(accuracy)
    assert scaled.accuracy == pytest.approx(accuracy, abs=1e-6)
    np.testing.assert_allclose(scaled.predicted, joint.predicted, atol=1e-9)
    assert (scaled.table >= 0).all()
    if 0.01 < accuracy < 0.99:
        change = logit(scaled.correct / scaled.predicted) - logit(joint.correct / joint.predicted)
        np.testing.assert_allclose(change, change[0], atol=1e-5)
    # What is wrong keeps its proportions.
    wrong, before = (t.table - np.diag(t.correct) for t in (scaled, joint))
    np.testing.assert_allclose(wrong * before.sum(axis=1)[:, None], before * wrong.sum(axis=1)[:, None], atol=1e-9)


def test_a_table_without_errors_gets_them_from_all_classes():
    scaled = Joint(np.diag([0.5, 0.3, 0.2])).scaled(0.8)
    assert scaled.accuracy == pytest.approx(0.8)
    np.testing.assert_allclose(scaled.predicted, [0.5, 0.3, 0.2])
    off = scaled.table - np.diag(scaled.correct)
    np.testing.assert_allclose(off[0, 1:], off[0, 1])


@pytest.mark.parametrize("seed", range(5))
def test_a_table_scaled_to_no_errors_and_back_keeps_its_predictions(seed):
    """What rounding left of the errors was multiplied by up to 1e12 and counted beside the new ones."""
    joint = cells_of(seed, 4).joint()
    again = joint.scaled(1.0).scaled(0.8)
    np.testing.assert_allclose(again.predicted, joint.predicted, atol=1e-9)
    assert again.accuracy == pytest.approx(0.8, abs=1e-9)
    off = again.table - np.diag(again.correct)
    np.testing.assert_allclose(off.sum(axis=1, keepdims=True) / 3, off.max(axis=1, keepdims=True), atol=1e-9)


@given(seed=seeds, rows=st.integers(1, 200), groups=st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_rows_move_alike_within_their_cell(seed, rows, groups):
    rng = np.random.default_rng(seed)
    p, group = rng.uniform(0.01, 0.99, rows), np.unique(rng.integers(0, groups, rows), return_inverse=True)[1]
    means = rng.uniform(0, 1, group.max() + 1)
    moved = with_means(p, group, means)
    np.testing.assert_allclose(np.bincount(group, moved) / np.bincount(group), means, atol=1e-9)
    inside = (means[group] > 0.01) & (means[group] < 0.99)
    change = logit(moved) - logit(p)
    for g in np.unique(group[inside]):
        assert np.ptp(change[group == g]) < 1e-6


@pytest.mark.parametrize("mean", [0.0, 0.2, 0.55, 0.9, 1.0])
def test_scaled_probabilities_keep_their_order(mean):
    p, alike = np.random.default_rng(0).random(500), np.full(500, 1 / 500)
    scaled = scaled_to(mean, p, alike)
    assert scaled.mean() == pytest.approx(mean, abs=1e-3)
    assert (np.diff(scaled[np.argsort(p)]) >= 0).all()
    sure = np.repeat([0.0, 1e-9, 1 - 1e-7, 1.0], 125)
    assert scaled_to(mean, sure, alike).mean() == pytest.approx(mean, abs=1e-3)


@pytest.mark.parametrize("mean", [0.0, 1e-6, 0.3, 0.999, 1.0])
def test_scaled_probabilities_have_the_mean(mean):
    p, shares = np.array([0.1, 0.5, 0.9, 1.0, 0.0]), np.array([0.3, 0.3, 0.2, 0.1, 0.1])
    scaled = scaled_to(mean, p, shares)
    assert shares @ scaled == pytest.approx(mean, abs=1e-7)
    if 0 < mean < 1:
        change = logit(scaled[:3]) - logit(p[:3])
        np.testing.assert_allclose(scaled[:3], expit(logit(p[:3]) + change.mean()), atol=1e-7)
