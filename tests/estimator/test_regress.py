from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.neighbors import KNeighborsRegressor

from gdscore.estimator.regress import Line, Nearest, Stack

NEW = np.random.default_rng(1).normal(size=(7, 3))


def data(rows=120, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3))
    return x, x @ [1.0, -0.5, 0.2] + np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=rows)


def test_line_equals_scikit_learn():
    x, y = data()
    np.testing.assert_allclose(Line(x, y).predict(NEW), LinearRegression().fit(x, y).predict(NEW))


@pytest.mark.parametrize("neighbours", [1, 10, 120])
def test_nearest_equals_scikit_learn(neighbours):
    x, y = data()
    x = x * [1.0, 30.0, 0.2]
    factor = np.abs([np.corrcoef(column, y)[0, 1] for column in x.T]) / x.std(0)

    def weigh(distances):
        width = np.sort(distances, axis=1)[:, [neighbours - 1]]
        return np.exp(-np.square(distances / width))

    oracle = KNeighborsRegressor(n_neighbors=len(y), weights=weigh).fit(x * factor, y)
    new = NEW * [1.0, 30.0, 0.2]
    np.testing.assert_allclose(Nearest(x, y, neighbours).predict(new), oracle.predict(new * factor), rtol=1e-9)


def test_scores_without_relation_to_accuracy_do_not_drown_the_others():
    rng = np.random.default_rng(0)
    y = rng.normal(size=200)
    x = np.c_[y + 0.01 * rng.normal(size=200), rng.normal(size=(200, 5))]
    new = np.c_[[1.0, -1.0], rng.normal(size=(2, 5))]
    np.testing.assert_allclose(Nearest(x, y).predict(new), [1.0, -1.0], atol=0.2)


def test_stack_equals_scikit_learn():
    x, y = data()
    fit = Stack(x, y)
    z, scaled = (x - x.mean(0)) / x.std(0), (NEW - x.mean(0)) / x.std(0)
    ridge = Ridge(alpha=1.0).fit(z, y)
    left = y - ridge.predict(z)
    kernel = ConstantKernel(left.var() * fit.share) * RBF(fit.length) + WhiteKernel(left.var() * (1 - fit.share))
    process = GaussianProcessRegressor(kernel, optimizer=None, alpha=1e-10).fit(z, left)
    np.testing.assert_allclose(fit.predict(NEW), ridge.predict(scaled) + process.predict(scaled), rtol=1e-5)


def test_what_a_line_cannot_learn():
    x, y = data(300)
    new_x, new_y = data(200, seed=5)
    line, stack, nearest = (np.abs(kind(x, y).predict(new_x) - new_y).mean() for kind in (Line, Stack, Nearest))
    assert stack < 0.6 * line
    assert nearest < 0.9 * line


@pytest.mark.parametrize("kind", [Line, Nearest])
def test_sets_that_are_not_kept_have_no_say(kind):
    x, y = data()
    keep = np.arange(120) % 3 > 0
    other = y.copy()
    other[~keep] = 1e6
    np.testing.assert_array_equal(kind(x, y).predict(NEW, keep), kind(x, other).predict(NEW, keep))


def test_stack_learns_from_the_kept_alone_but_for_its_scales():
    x, y = data()
    keep = np.arange(120) % 3 > 0
    fit = Stack(x, y)
    other = y.copy()
    other[~keep] += 1e-3
    again = Stack(x, other)
    again.total, again.length, again.share = fit.total, fit.length, fit.share
    np.testing.assert_allclose(fit.predict(NEW, keep), again.predict(NEW, keep), rtol=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 30), st.integers(1, 4), st.integers(0, 10_000), st.booleans())
def test_nearest_never_leaves_the_range(sets, scores, seed, far):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(sets, scores)), rng.normal(size=sets)
    said = Nearest(x, y).predict(rng.normal(size=(3, scores)) * (1e6 if far else 1.0))
    assert np.all(said >= y.min() - 1e-9)
    assert np.all(said <= y.max() + 1e-9)


def test_equal_sets():
    assert Nearest(np.ones((5, 2)), np.arange(5.0)).predict(np.ones((1, 2)))[0] == pytest.approx(2.0)
