"""Logistic functions, and logistic regression with an offset and a ridge penalty."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["expit", "fit_logistic", "log_odds"]

Floats = NDArray[np.float64]
LEAST_SCALE = 1e-3


def expit(x: Any) -> Any:
    """1 / (1 + e⁻ˣ), without overflow."""
    return 0.5 * (1 + np.tanh(0.5 * np.asarray(x, dtype=np.float64)))


def log_odds(share: Any, edge: float) -> Any:
    """ln(p / (1 − p)) of shares kept ``edge`` away from 0 and 1."""
    share = np.clip(share, edge, 1 - edge)
    return np.log(share / (1 - share))


def fit_logistic(
    x: Floats, weight: Floats, right: Floats, offset: Floats, *, penalty: float, start: Floats | None = None
) -> Floats:
    """Coefficients β of P = σ(offset + x β), by Newton's method with step halving.

    They maximise Σ right ln P + (weight − right) ln(1 − P) less ½ ``penalty`` times the sum of squares of β, each
    multiplied by the standard deviation of its column.

    Parameters
    ----------
    x : array of shape (m, C)
    weight, right : array of shape (m,)
        Number of rows, and of those that are right; fractions are allowed.
    offset : array of shape (m,)
    penalty : float
    start : array of shape (C,), optional
        Where to begin; at 0 by default.

    Examples
    --------
    >>> x, weight, right = np.array([[-1.0], [1.0]]), np.array([4.0, 4.0]), np.array([1.0, 3.0])
    >>> fit_logistic(x, weight, right, np.zeros(2), penalty=0.0).round(6).tolist()  # ln 3
    [1.098612]
    """
    share = weight / weight.sum()
    mean_square = share @ np.square(x)
    # Where a column hardly varies it is as good as constant, and its own size is its scale; what varies by less than
    # LEAST_SCALE in all is taken for rounding, from which nothing is learned.
    scale = np.sqrt(np.maximum(mean_square - np.square(share @ x), 1e-4 * mean_square))
    scale = np.maximum(scale, LEAST_SCALE)
    x = x / scale
    beta = np.zeros(x.shape[1]) if start is None else start * scale

    def loss(b: Floats) -> float:
        odds = offset + x @ b
        return float(weight @ np.logaddexp(0, odds) - right @ odds + 0.5 * penalty * b @ b)

    now = loss(beta)
    for _ in range(100):
        p = expit(offset + x @ beta)
        gradient = x.T @ (weight * p - right) + penalty * beta
        curvature = (x * (weight * p * (1 - p))[:, None]).T @ x + penalty * np.eye(len(beta))
        step = np.linalg.solve(curvature, gradient)
        size = 1.0
        while loss(beta - size * step) > now and size > 1e-6:
            size /= 2
        beta = beta - size * step
        before, now = now, loss(beta)
        if before - now < 1e-12:
            break
    return np.asarray(beta / scale)
