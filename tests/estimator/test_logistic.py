"""Logistic functions and regression against SciPy and scikit-learn."""

import numpy as np
import pytest
import scipy.special
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from gdscore.estimator.correctness import fit_logistic
from gdscore.estimator.evidence import expit, log_odds


def test_functions_are_scipys():
    x = np.concatenate([np.linspace(-800, 800, 41), np.linspace(-3, 3, 41)])
    np.testing.assert_allclose(expit(x), scipy.special.expit(x), atol=1e-15)
    shares = np.linspace(0.01, 0.99, 99)
    np.testing.assert_allclose(log_odds(shares, 1e-9), scipy.special.logit(shares), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(log_odds([0.0, 1.0], 0.005), scipy.special.logit([0.005, 0.995]))


def problem(seed, rows=200, columns=3):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, columns)) * [1, 30, 0.01]
    offset, weight = rng.normal(size=rows), rng.uniform(0.1, 2, rows)
    return x, weight, weight * rng.uniform(size=rows), offset


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("penalty", [0.1, 1.0, 10.0])
def test_regression_minimises_the_penalised_loss(seed, penalty):
    x, weight, right, offset = problem(seed)
    mean = np.average(x, axis=0, weights=weight)
    deviation = np.sqrt(np.average((x - mean) ** 2, axis=0, weights=weight))

    def loss(b):
        odds = offset + x @ (b / deviation)
        return weight @ np.logaddexp(0, odds) - right @ odds + 0.5 * penalty * b @ b

    expected = minimize(loss, np.zeros(3), method="BFGS", options={"gtol": 1e-7}).x / deviation
    found = fit_logistic(x, weight, right, offset, penalty=penalty)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    np.testing.assert_allclose(
        fit_logistic(x, weight, right, offset, penalty=penalty, start=np.array([1.0, -0.1, 50])), found, rtol=1e-6
    )


def test_regression_without_penalty_is_scikit_learns():
    x, weight, _, _ = problem(5)
    right = (x[:, 0] + np.random.default_rng(6).logistic(size=len(x)) > 0).astype(float)
    reference = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-10, max_iter=10_000, solver="newton-cg")
    expected = reference.fit(x / x.std(axis=0), right, sample_weight=weight).coef_[0] / x.std(axis=0)
    found = fit_logistic(x, weight, weight * right, np.zeros(len(x)), penalty=0.0)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
