"""From transformed scores to the logit of accuracy, each way with the choice of shifted sets to learn from.

Every regressor holds all shifted sets and predicts from those that ``keep`` names, so that intervals can leave families
out without fitting and storing a model for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Cautious", "Line", "Nearest", "Regressor", "Stack", "relevance", "sigmoid", "spread"]

NEIGHBOURS = 7
"""Shifted sets that a mean is mostly made of."""

VAGUE = (0.15, 0.2)
"""Standard deviations of the accuracies of look-alikes between which a view loses its say."""

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


class Regressor(Protocol):
    """What predicts the logit of accuracy."""

    x: Floats
    y: Floats

    def predict(self, query: Floats, keep: Mask | None = None) -> Floats:
        """Logit of accuracy for rows of transformed scores, from the kept shifted sets alone."""


class Nearest:
    r"""Weighted mean over the shifted sets whose scores are most alike.

    .. math:: \hat y(x) = \frac{\sum_i w_i y_i}{\sum_i w_i}, \quad w_i = \exp(-d_i^2 / d_{(k)}^2)

    with distances :math:`d_i` between standardised scores, each multiplied by its correlation with y, and
    :math:`d_{(k)}` the k-th smallest. A shift that calibration has not seen is judged by the sets that look like it,
    and nothing is extrapolated: scores beyond those of all sets count as the outermost.

    Parameters
    ----------
    x, y : array
        Transformed scores (sets × scores) and logits of accuracy.
    neighbours : int
        k.
    """

    def __init__(self, x: Floats, y: Floats, neighbours: int = NEIGHBOURS) -> None:
        self.x, self.y, self.neighbours = x, y, neighbours

    def weights(self, query: Floats, keep: Mask | None = None) -> Floats:
        """Weights (queries × sets), which add up to 1; 0 for those not kept."""
        x, y = (self.x, self.y) if keep is None else (self.x[keep], self.y[keep])
        # Seen from far away all sets are equally near, and their mean says nothing: look from the edge of the table.
        inside = np.clip(query, x.min(axis=0), x.max(axis=0))
        apart = (inside[:, None, :] - self.x[None, :, :]) * (relevance(x, y) / spread(x))
        distance = np.square(apart).sum(axis=2)
        if keep is not None:
            distance[:, ~keep] = np.inf
        count = min(self.neighbours, len(y))
        width = np.partition(distance, count - 1, axis=1)[:, [count - 1]]
        weights = np.exp(-distance / np.maximum(width, 1e-12))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def predict(self, query: Floats, keep: Mask | None = None) -> Floats:
        """Weighted means of the logits."""
        return np.asarray(self.weights(query, keep) @ self.y)


class Cautious:
    """The lowest of what several views of the same sets say, each by its own nearest shifted sets.

    Every score is blind to something. Scores of the population (COT, nuclear norm, Fréchet distance) do not see errors
    that leave the mix of classes and the features as they were; scores of rows (confidence, agreement with a second
    model) do not see a model that is sure of the same wrong classes everywhere. What a view does not see it takes for
    right, so the lowest is believed. The first view always has a say. Another's is mixed with the first's as the sets
    that look alike to it are less equally accurate, and lost where they are not at all.

    Parameters
    ----------
    x, y : array
        Transformed scores (sets × scores) and logits of accuracy.
    views : sequence of sequences of int
        Columns of x that each view looks at.
    neighbours : int
        Of each view.
    vague : (float, float)
        Standard deviation of look-alikes' accuracies up to which a view has its say, and from which on it has none.
    """

    def __init__(
        self,
        x: Floats,
        y: Floats,
        views: Sequence[Sequence[int]],
        neighbours: int = NEIGHBOURS,
        vague: tuple[float, float] = VAGUE,
    ) -> None:
        self.x, self.y, self.vague = x, y, vague
        self.columns = [list(view) for view in views]
        self.views = [Nearest(x[:, view], y, neighbours) for view in self.columns]

    def weights(self, query: Floats, keep: Mask | None = None) -> Floats:
        """Weights of the view that says least, for each row of scores."""
        each = self.each(query, keep)
        accuracy = sigmoid(self.y)
        variance = each @ accuracy**2 - (each @ accuracy) ** 2
        full, none = self.vague
        say = np.clip((none - np.sqrt(np.maximum(variance, 0))) / max(none - full, 1e-12), 0, 1)
        say[0] = 1
        each = say[..., None] * each + (1 - say[..., None]) * each[0]
        return np.asarray(each[(each @ self.y).argmin(axis=0), np.arange(len(query))])

    def each(self, query: Floats, keep: Mask | None = None) -> Floats:
        """Weights of every view (views × queries × sets)."""
        return np.array([view.weights(query[:, own], keep) for own, view in zip(self.columns, self.views, strict=True)])

    def predict(self, query: Floats, keep: Mask | None = None) -> Floats:
        """The lowest of the views' weighted means."""
        return np.asarray(self.weights(query, keep) @ self.y)


class Line:
    """Ordinary least squares."""

    def __init__(self, x: Floats, y: Floats) -> None:
        self.x, self.y = x, y

    def predict(self, query: Floats, keep: Mask | None = None) -> Floats:
        """Values on the line."""
        x, y = (self.x, self.y) if keep is None else (self.x[keep], self.y[keep])
        centre, scale = x.mean(axis=0), np.maximum(x.std(axis=0), 1e-9)
        weights = np.linalg.lstsq((x - centre) / scale, y - y.mean(), rcond=None)[0]
        return np.asarray(y.mean() + (query - centre) / scale @ weights)


class Stack:
    """Ridge on standardised scores, then a Gaussian process on what it leaves, chosen by its marginal likelihood."""

    RIDGE = 1.0

    def __init__(self, x: Floats, y: Floats) -> None:
        self.x, self.y = x, y
        self.centre, self.scale = x.mean(axis=0), np.maximum(x.std(axis=0), 1e-9)
        z = (x - self.centre) / self.scale
        left = y - self._ridge(z, y)(z)
        self.total = max(float(left.var()), 1e-8)
        best = -np.inf
        for length in (0.5, 1.0, 2.0, 4.0):
            kernel = _kernel(z, z, length)
            for share in (0.1, 0.3, 0.6, 0.9):
                factor = np.linalg.cholesky(self._covariance(kernel, share))
                half = np.linalg.solve(factor, left)
                evidence = -0.5 * float(half @ half) - float(np.log(np.diag(factor)).sum())
                if evidence > best:
                    best, self.length, self.share = evidence, length, share

    def predict(self, query: Floats, keep: Mask | None = None) -> Floats:
        """Ridge and posterior mean of the process."""
        x, y = (self.x, self.y) if keep is None else (self.x[keep], self.y[keep])
        z, new = (x - self.centre) / self.scale, (query - self.centre) / self.scale
        line = self._ridge(z, y)
        pull = np.linalg.solve(self._covariance(_kernel(z, z, self.length), self.share), y - line(z))
        return np.asarray(line(new) + self.total * self.share * _kernel(new, z, self.length) @ pull)

    def _covariance(self, kernel: Floats, share: float) -> Floats:
        return np.asarray(self.total * (share * kernel + (1 - share + 1e-8) * np.eye(len(kernel))))

    def _ridge(self, z: Floats, y: Floats) -> Any:
        centre = z.mean(axis=0)
        moved = z - centre
        weights = np.linalg.solve(moved.T @ moved + self.RIDGE * np.eye(z.shape[1]), moved.T @ (y - y.mean()))
        return lambda new: y.mean() + (new - centre) @ weights


def sigmoid(value: Any) -> Any:
    """Accuracy of a logit."""
    return 1 / (1 + np.exp(-np.clip(value, -700, None)))


def spread(x: Floats) -> Floats:
    """Standard deviation of each score; small ones are no scale, where a score is saturated on all sets."""
    return np.asarray(np.maximum(x.std(axis=0), 0.05))


def relevance(x: Floats, y: Floats) -> Floats:
    """Absolute correlation of each score with y, and a little for those without."""
    moved, target = x - x.mean(axis=0), y - y.mean()
    size = np.sqrt(np.square(moved).sum(axis=0) * np.square(target).sum())
    return np.asarray(np.clip(np.abs(target @ moved) / np.maximum(size, 1e-300), 0.05, 1.0))


def _kernel(a: Floats, b: Floats, length: float) -> Floats:
    distance = np.square(a[:, None, :] - b[None, :, :]).sum(axis=2)
    return np.asarray(np.exp(-0.5 * distance / length**2))
