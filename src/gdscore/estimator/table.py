"""The table of a target, J[predicted, true], and how what is known of its class mix changes it.

The rows of a target are kept in cells: a predicted class and a group of confidence. Each cell has its share of the rows
and, for these, the probabilities of the true classes. Summed over the groups this is the table J, whose entries sum to
1: accuracy, recall, precision and class mix are all read off it.

A known class mix w *rakes* the rows: P'(k) = P(k) b_k / Σ_l P(l) b_l, where the factors b > 0 are such that the mean of
P' is w. With u = ln b they are the maximum of one smooth concave function in K unknowns,

    Σ_k w_k u_k − Σ_c share_c ln Σ_k P_c(k) e^{u_k} − ½ Σ_k slack_k u_k²,

at which the mean of P' is w_k − slack_k u_k. It is found by Newton's method, whose steps are computed by conjugate
gradients [1]_. Raking goes back to Deming and Stephan [2]_; the tilt of posterior probabilities to another class mix is
that of Saerens et al. [3]_, and the slack is the regularisation of Azizzadenesheli et al. [4]_.

References
----------
.. [1] J. Nocedal, S. J. Wright, "Numerical Optimization", 2006, chapter 7: inexact Newton methods.
.. [2] W. E. Deming, F. F. Stephan, "On a least squares adjustment of a sampled frequency table when the expected
   marginal totals are known", Annals of Mathematical Statistics 1940.
.. [3] M. Saerens, P. Latinne, C. Decaestecker, "Adjusting the outputs of a classifier to new a priori probabilities",
   Neural Computation 2002.
.. [4] K. Azizzadenesheli, A. Liu, F. Yang, A. Anandkumar, "Regularized learning for domain adaptation under label
   shifts", ICLR 2019.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore.estimator.evidence import Floats, expit, log_odds

REACHABLE = 1e-5
"""Share of the wanted mix that is added to each row, so that a class that no row shows can be approached."""
PRECISION = 1e-9
"""Largest difference between the mean of the raked rows and what is wanted."""
STEPS = 100


def rake(shares: Floats, classes: Floats, wanted: Floats, slack: Floats) -> Floats:
    """Raked probabilities of the true classes, of one target or of many.

    Parameters
    ----------
    shares : array of shape (…, C)
        Share of the rows in each cell; they sum to 1.
    classes : array of shape (…, C, K)
        Probabilities of the true classes in each cell.
    wanted : array of shape (…, K)
        Shares of the classes. A share of 0 excludes the class, except from cells that nothing else explains.
    slack : array of shape (…, K)
        How far the mean of the raked rows may be from ``wanted``, for each unit of the log of a factor; 0: not at all.

    Returns
    -------
    array of shape (…, C, K)

    Examples
    --------
    >>> classes = np.array([[0.8, 0.2], [0.4, 0.6]])
    >>> raked = rake(np.array([0.5, 0.5]), classes, np.array([0.5, 0.5]), np.zeros(2))
    >>> raked.mean(axis=0).round(6).tolist(), raked.round(3).tolist()
    ([0.5, 0.5], [[0.71, 0.29], [0.29, 0.71]])
    """
    possible = np.where(wanted[..., None, :] > 0, classes, 0.0)
    classes = np.where(possible.sum(axis=-1, keepdims=True) > REACHABLE, possible, classes)
    classes = classes + REACHABLE * wanted[..., None, :]
    odds, ridge = np.zeros(wanted.shape), slack + PRECISION
    raked, value = _tilted(shares, classes, wanted, ridge, odds)
    for _ in range(STEPS):
        mean = _mean(shares, raked)
        gradient = np.where(wanted > 0, wanted - mean, 0.0) - ridge * odds
        if np.abs(gradient).max() < PRECISION:
            break
        step = _newton_step(shares, raked, mean + ridge, gradient)
        slope, length = (gradient * step).sum(axis=-1), np.ones(step.shape[:-1])
        for _ in range(STEPS):
            further = odds + length[..., None] * step
            raked, reached = _tilted(shares, classes, wanted, ridge, further)
            short = reached < value + 1e-4 * length * slope - 1e-13
            if not short.any():
                break
            length = np.where(short, 0.5 * length, length)
        odds, value = further, reached
    return raked


def _mean(shares: Floats, classes: Floats) -> Floats:
    """Mean over the rows of the probabilities of the classes."""
    return np.asarray(np.matmul(shares[..., None, :], classes)[..., 0, :])


def _tilted(shares: Floats, classes: Floats, wanted: Floats, ridge: Floats, odds: Floats) -> tuple[Floats, Floats]:
    """Probabilities times e^odds, normalised, and the function that these odds are to maximise."""
    highest = odds.max(axis=-1, keepdims=True)
    tilted = classes * np.exp(odds - highest)[..., None, :]
    total = tilted.sum(axis=-1)
    tilted /= total[..., None]
    log_total = (shares * np.log(total)).sum(axis=-1) + highest[..., 0] * shares.sum(axis=-1)
    return tilted, (wanted * odds).sum(axis=-1) - log_total - 0.5 * (ridge * np.square(odds)).sum(axis=-1)


def _newton_step(shares: Floats, classes: Floats, diagonal: Floats, gradient: Floats) -> Floats:
    """Solution x of (diag(diagonal) − Σ_c share_c P_c P_cᵀ) x = gradient, by conjugate gradients."""
    scale = np.maximum(diagonal - _mean(shares, np.square(classes)), PRECISION)
    step, rest = np.zeros_like(gradient), gradient
    size = np.sqrt(np.square(gradient).sum(axis=-1))
    enough = np.minimum(0.1, np.sqrt(size)) * size
    direction = scaled = rest / scale
    product = (rest * scaled).sum(axis=-1)
    for _ in range(2 * gradient.shape[-1]):
        of_cell = np.matmul(classes, direction[..., None])[..., 0]
        image = diagonal * direction - _mean(shares * of_cell, classes)
        curvature = (direction * image).sum(axis=-1)
        length = np.where(curvature > 0, product / np.where(curvature > 0, curvature, 1.0), 0.0)[..., None]
        step, rest = step + length * direction, rest - length * image
        if (np.sqrt(np.square(rest).sum(axis=-1)) <= enough).all():
            break
        scaled = rest / scale
        before, product = product, (rest * scaled).sum(axis=-1)
        direction = scaled + (product / np.maximum(before, 1e-300))[..., None] * direction
    return step


@dataclass(frozen=True)
class Cells:
    """Rows of a target, or of R targets, by cell: a predicted class and a group of confidence."""

    predicted: NDArray[Any]  # shape (C,): predicted class of each cell
    shares: Floats  # shape (C,) or (R, C): share of the rows in each cell
    classes: Floats  # shape (C, K) or (R, C, K): probabilities of their true classes

    @property
    def correct(self) -> Floats:
        """Probability that the predictions of each cell are right, of shape (C,) or (R, C)."""
        return np.asarray(self.classes[..., np.arange(len(self.predicted)), self.predicted])

    @property
    def accuracy(self) -> Any:
        """Share of right rows, a number or of shape (R,)."""
        return (self.shares * self.correct).sum(axis=-1)

    def raked(self, wanted: Floats, slack: Floats) -> Cells:
        """The same rows where the classes have these shares."""
        return replace(self, classes=rake(self.shares, self.classes, wanted, slack))

    def towards(self, other: Cells, part: Any) -> Cells:
        """A part of the way, from 0 to 1, to what another assumption says of the same rows."""
        return replace(self, classes=self.classes + np.asarray(part)[..., None, None] * (other.classes - self.classes))

    def joint(self) -> Joint:
        """The table of one target."""
        size = self.classes.shape[-1]
        table = np.zeros((size, size))
        np.add.at(table, self.predicted, self.shares[:, None] * self.classes)
        return Joint(table)


def scaled_to(mean: float, probabilities: Floats, shares: Floats) -> Floats:
    """Probabilities whose log-odds are moved alike until their mean, weighted by shares, is this one."""
    return with_means(probabilities, np.zeros(len(shares), dtype=np.int64), np.array([mean]), shares)


def with_means(probabilities: Floats, group: NDArray[Any], means: Floats, shares: Floats | None = None) -> Floats:
    """Probabilities whose log-odds are moved alike within each group until its mean is this one."""
    odds = log_odds(probabilities, 1e-9)
    weights = np.ones(len(odds)) if shares is None else shares
    total, wanted = np.bincount(group, weights), log_odds(means, 1e-15)
    change, low, high = np.zeros(len(means)), np.full(len(means), -60.0), np.full(len(means), 60.0)
    for _ in range(60):  # Newton's steps on the log-odds of the mean, and halves of the range where one would leave it
        moved = expit(odds + change[group])
        mean = np.clip(np.bincount(group, weights * moved) / total, 1e-15, 1 - 1e-15)
        spread = np.bincount(group, weights * moved * (1 - moved)) / total
        missing = (wanted - log_odds(mean, 1e-15)) * mean * (1 - mean)
        low, high = np.where(missing < 0, low, change), np.where(missing < 0, change, high)
        step = change + missing / np.maximum(spread, 1e-30)
        before, change = change, np.where((low <= step) & (step <= high), step, 0.5 * (low + high))
        if np.abs(change - before).max(initial=0.0) < 1e-12:
            break
    return np.asarray(expit(odds + change[group]))


@dataclass(frozen=True)
class Joint:
    """Expected shares of a target's rows by predicted and true class.

    Examples
    --------
    >>> table = Joint(np.array([[0.5, 0.1], [0.1, 0.3]]))
    >>> table.accuracy, table.mix.tolist(), table.scaled(0.9).table.round(3).tolist()
    (0.8, [0.6, 0.4], [[0.551, 0.049], [0.051, 0.349]])
    """

    table: Floats  # shape (K, K): predicted, true

    @property
    def correct(self) -> Floats:
        """Share of the rows that are predicted as each class and right."""
        return np.asarray(self.table.diagonal())

    @property
    def accuracy(self) -> float:
        """Share of rows that are right."""
        return min(float(self.correct.sum()), 1.0)

    @property
    def predicted(self) -> Floats:
        """Share of the rows that are predicted as each class."""
        return np.asarray(self.table.sum(axis=1))

    @property
    def mix(self) -> Floats:
        """Share of the rows that are of each class."""
        return np.asarray(self.table.sum(axis=0))

    def scaled(self, accuracy: float) -> Joint:
        """The same with the log-odds of being right moved alike in all predicted classes until the accuracy is this."""
        predicted, correct = self.predicted, self.correct
        after = predicted * scaled_to(accuracy, correct / np.maximum(predicted, 1e-12), predicted)
        before_wrong, wrong = np.maximum(predicted - correct, 0), np.maximum(predicted - after, 0)
        all_right = before_wrong < 1e-12
        table = self.table * np.where(all_right, 0.0, wrong / np.maximum(before_wrong, 1e-12))[:, None]
        # Rows that were all right: nothing is known of what they are where they are wrong.
        table += np.where(all_right, wrong / max(len(table) - 1, 1), 0.0)[:, None]
        np.fill_diagonal(table, after)
        return Joint(table)

    def measures(self) -> Floats:
        """Recall, precision and F1 of each class, shape (3, K)."""
        sizes = np.stack([self.mix, self.predicted, 0.5 * (self.mix + self.predicted)])
        return np.asarray(np.clip(self.correct / np.maximum(sizes, 1e-12), 0, 1))
