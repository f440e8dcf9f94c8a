"""From transformed scores to accuracy with an interval: a ridge with a Gaussian-process residual, and CV+.

Both work on the logit of accuracy. Meta-sets of one family resemble each other, so families are the unit that is left
out: for a new set x the bounds are quantiles of f₋ₖ(x) ± rₖ, with f₋ₖ fitted without family k and rₖ its residuals
there, every family weighing the same (jackknife+ of Barber et al., 2021, with groups). With F families no level above
F/(F+1) can be had.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Fit", "GroupedInterval", "fit_line", "fit_stack"]

Floats = NDArray[np.float64]
RIDGE = 1.0


@dataclass(frozen=True)
class Fit:
    """A fitted regressor as plain arrays: linear part, and a Gaussian-process residual where there is one."""

    centre: Floats
    scale: Floats
    weights: Floats
    offset: float
    anchors: Floats
    pull: Floats
    length: float
    variance: float

    def predict(self, x: Floats) -> Floats:
        """Logit of accuracy for rows of transformed scores."""
        z = (x - self.centre) / self.scale
        value = self.offset + z @ self.weights
        if len(self.anchors):
            value = value + self.variance * _kernel(z, self.anchors, self.length) @ self.pull
        return np.asarray(value)


def _kernel(a: Floats, b: Floats, length: float) -> Floats:
    distance = np.square(a[:, None, :] - b[None, :, :]).sum(axis=2)
    return np.asarray(np.exp(-0.5 * distance / length**2))


def fit_line(x: Floats, y: Floats) -> Fit:
    """Ordinary least squares, the paper's fit."""
    scale = np.maximum(x.std(axis=0), 1e-9)
    z = (x - x.mean(axis=0)) / scale
    weights = np.linalg.lstsq(z, y - y.mean(), rcond=None)[0]
    return Fit(x.mean(axis=0), scale, weights, float(y.mean()), np.empty((0, x.shape[1])), np.empty(0), 1.0, 0.0)


def fit_stack(x: Floats, y: Floats) -> Fit:
    """Ridge on standardised scores, then a Gaussian process on what it leaves, by its marginal likelihood."""
    centre, scale = x.mean(axis=0), np.maximum(x.std(axis=0), 1e-9)
    z = (x - centre) / scale
    offset = float(y.mean())
    weights = np.linalg.solve(z.T @ z + RIDGE * np.eye(z.shape[1]), z.T @ (y - offset))
    left = y - offset - z @ weights
    best: tuple[float, float, float, Floats] | None = None
    total = max(float(left.var()), 1e-8)
    for length in (0.5, 1.0, 2.0, 4.0):
        k = _kernel(z, z, length)
        for share in (0.1, 0.3, 0.6, 0.9):
            covariance = total * (share * k + (1 - share) * np.eye(len(z)))
            factor = np.linalg.cholesky(covariance + 1e-10 * np.eye(len(z)))
            half = np.linalg.solve(factor, left)
            evidence = -0.5 * float(half @ half) - float(np.log(np.diag(factor)).sum())
            if best is None or evidence > best[0]:
                best = (evidence, length, total * share, np.linalg.solve(factor.T, half))
    assert best is not None
    return Fit(centre, scale, weights, offset, z, best[3], best[1], best[2])


@dataclass(frozen=True)
class GroupedInterval:
    """Leave-one-family-out fits with their residuals: all that CV+ needs."""

    fits: list[Fit]
    residuals: list[Floats]

    @classmethod
    def make(
        cls, x: Floats, y: Floats, families: NDArray[Any], fit: Callable[[Floats, Floats], Fit], most: int = 20
    ) -> tuple[GroupedInterval, Floats]:
        """Fit without each family; with more than ``most``, without groups of them. Also what they say of those."""
        names = np.unique(families)
        fold_of = {name: index % most for index, name in enumerate(names)}
        folds = np.array([fold_of[f] for f in families])
        fits, residuals, predicted = [], [], np.empty(len(y))
        for fold in np.unique(folds):
            out = folds == fold
            fitted = fit(x[~out], y[~out])
            predicted[out] = fitted.predict(x[out])
            error = np.abs(y[out] - predicted[out])
            for name in np.unique(families[out]):
                fits.append(fitted)
                residuals.append(np.sort(error[families[out] == name]))
        return cls(fits, residuals), predicted

    @property
    def n_families(self) -> int:
        """Families F; levels up to F/(F+1) can be had."""
        return len(self.fits)

    def bounds(self, x: Floats, level: float) -> tuple[float, float]:
        """Lower and upper bound of the logit of accuracy for one row of transformed scores."""
        values = [float(fitted.predict(x[None])[0]) for fitted in self.fits]
        lows = np.concatenate([value - error for value, error in zip(values, self.residuals, strict=True)])
        highs = np.concatenate([value + error for value, error in zip(values, self.residuals, strict=True)])
        each = np.concatenate([np.full(len(e), 1 / len(e)) for e in self.residuals]) / (self.n_families + 1)
        return -_quantile(-lows, each, level), _quantile(highs, each, level)


def _quantile(values: Floats, weights: Floats, level: float) -> float:
    """Weighted quantile; what the weights lack to 1 is the family not seen yet, which may lie beyond all others."""
    order = np.argsort(values)
    index = int(np.searchsorted(np.cumsum(weights[order]), level - 1e-9))
    return float(values[order][min(index, len(values) - 1)])
