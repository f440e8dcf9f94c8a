from __future__ import annotations

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import LinearRegression, Ridge

from gdscore.estimator.regress import GroupedInterval, fit_line, fit_stack


def data(rows=120, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3))
    return x, x @ [1.0, -0.5, 0.2] + np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=rows)


def test_line_equals_scikit_learn():
    x, y = data()
    new = np.random.default_rng(1).normal(size=(7, 3))
    np.testing.assert_allclose(fit_line(x, y).predict(new), LinearRegression().fit(x, y).predict(new))


def test_stack_equals_scikit_learn():
    x, y = data()
    new = np.random.default_rng(1).normal(size=(7, 3))
    fit = fit_stack(x, y)
    z = (x - x.mean(0)) / x.std(0)
    ridge = Ridge(alpha=1.0).fit(z, y)
    left = y - ridge.predict(z)
    kernel = ConstantKernel(fit.variance) * RBF(fit.length) + WhiteKernel(left.var() - fit.variance)
    process = GaussianProcessRegressor(kernel, optimizer=None, alpha=1e-10).fit(z, left)
    scaled = (new - x.mean(0)) / x.std(0)
    np.testing.assert_allclose(fit.predict(new), ridge.predict(scaled) + process.predict(scaled), rtol=1e-6)


def test_stack_learns_what_a_line_cannot():
    x, y = data(300)
    new_x, new_y = data(200, seed=5)
    errors = [np.abs(fit(x, y).predict(new_x) - new_y).mean() for fit in (fit_stack, fit_line)]
    assert errors[0] < 0.6 * errors[1]


@pytest.mark.parametrize("level", [0.8, 0.9])
def test_intervals_cover_families_not_seen(level):
    """Families with offsets of their own: the interval must hold on new ones, which plain residuals would not."""
    rng = np.random.default_rng(0)
    held = []
    for _ in range(60):
        offsets = rng.normal(size=21)
        family = np.repeat(np.arange(21), 8)
        x = rng.normal(size=(168, 2))
        y = x @ [1.0, 0.5] + offsets[family] + 0.1 * rng.normal(size=168)
        seen = family < 20
        interval = GroupedInterval.make(x[seen], y[seen], family[seen], fit_line)
        for row, value in zip(x[~seen], y[~seen], strict=True):
            low, high = interval.bounds(row, level)
            held.append(low <= value <= high)
    assert level - 0.06 < np.mean(held) <= 1.0


def test_every_family_weighs_the_same():
    x = np.zeros((110, 1))
    y = np.concatenate([np.zeros(100), np.full(5, 3.0), np.full(5, -3.0)])
    family = np.repeat([0, 1, 2], [100, 5, 5])
    interval = GroupedInterval.make(x, y, family, fit_line)
    low, high = interval.bounds(np.zeros(1), 0.74)
    assert low < -2
    assert high > 2
    assert interval.n_families == 3


def test_many_families_share_folds():
    x, y = data(200)
    interval = GroupedInterval.make(x, y, np.arange(200) % 50, fit_line, most=10)
    assert interval.n_families == 50
    assert len({id(f) for f in interval.fits}) == 10
