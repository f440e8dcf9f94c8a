"""Softmax of logits and what follows from it, with full relative precision where the confidence is nearly 1.

With ẑ the largest logit of a row and R = Σ exp(z − ẑ) over the other classes, the confidence is c = 1 / (1 + R). R is
kept, as 1 − c and the entropy would lose all their digits if they were computed from a c that rounds to 1.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from gdscore import _arrays as arrays
from gdscore._arrays import Array, namespace

_SMALLEST = float(np.finfo(np.float32).smallest_normal)
"""What a probability of 0 counts as, in every precision."""

ROUNDING = 1e-5
"""Relative difference of two confidences or entropies that rounding can cause: float32 in place of float64, another
array library or device, probabilities in place of logits. A number that close to a limit is equal to it."""


class Softmax(NamedTuple):
    """Logits and probabilities (m, K), and of each row the class of the largest logit ẑ, the value ẑ, and R."""

    logits: Array
    probabilities: Array
    top: Array
    peak: Array
    others: Array

    def confidence(self) -> Array:
        """Largest probability c = 1 / (1 + R) of each row."""
        return 1.0 / (1.0 + self.others)

    def one_minus_confidence(self) -> Array:
        """1 − c = R / (1 + R) of each row."""
        return self.others / (1.0 + self.others)

    def logsumexp(self) -> Array:
        """Ln Σ exp(z) = ẑ + ln(1 + R) of each row."""
        return self.peak + namespace(self.peak).log1p(self.others)

    def entropy(self) -> Array:
        """H = ln(1 + R) − Σ s (z − ẑ) of each row."""
        xp = namespace(self.logits)
        with arrays.full_precision(self.logits):
            # Far below the top s is 0, but 0 · ∞ would not be.
            below = xp.clip(self.logits - self.peak[:, None], -1e4, None)
            return xp.log1p(self.others) - xp.sum(self.probabilities * below, axis=1)


def softmax(logits: Array) -> Softmax:
    """Softmax of every row of a matrix in working precision."""
    xp = namespace(logits)
    with arrays.full_precision(logits):
        top = xp.argmax(logits, axis=1)
        peak = arrays.pick(logits, top)
        # The top class is left out of the sum: 1 − confidence then keeps its digits however large the margin.
        e = arrays.put(arrays.exp(logits - peak[:, None]), top, 0.0)
        others = xp.sum(e, axis=1)
        e = arrays.put(e, top, 1.0)
        e /= (1.0 + others)[:, None]
    return Softmax(logits, e, top, peak, others)


def above_threshold(z: Array, threshold: float, precision: float) -> Array:
    """Whether the second of two classes has at least this probability, which one has that differs by rounding only.

    ``precision`` is the relative difference of numbers that the logits were given in.
    """
    xp = namespace(z)
    with arrays.full_precision(z):
        rounding = precision * (1 + xp.sum(xp.abs(z), axis=1))
        return z[:, 1] - z[:, 0] >= math.log(threshold / (1 - threshold)) - rounding


def log_probabilities(p: Array) -> Array:
    """Logarithm of probabilities, which serves as logits: its softmax is the probabilities again."""
    xp = namespace(p)
    return xp.log(xp.clip(p, _SMALLEST, None))


def _is_single(x: Array) -> bool:
    return bool(x.ndim == 1 or (x.ndim == 2 and x.shape[1] == 1))


def binary_logits(z: Array) -> Array:
    """Columns (0, z) of the single logit z of a binary model: the softmax is its sigmoid; several columns as they are.

    Examples
    --------
    >>> binary_logits(np.array([-1.0, 2.0])).tolist()
    [[0.0, -1.0], [0.0, 2.0]]
    """
    if not _is_single(z):
        return z
    xp = namespace(z)
    column = xp.reshape(z, (-1,))
    return xp.stack([xp.zeros_like(column), column], axis=1)


def binary_probabilities(p: Array) -> Array:
    """Columns (1 − p, p) of the probability p of class 1 of a binary model; several columns as they are.

    Examples
    --------
    >>> binary_probabilities(np.array([0.25, 1.0])).tolist()
    [[0.75, 0.25], [0.0, 1.0]]
    """
    if not _is_single(p):
        return p
    xp = namespace(p)
    column = xp.reshape(p, (-1,))
    return xp.stack([1.0 - column, column], axis=1)
