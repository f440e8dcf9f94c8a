"""The threshold of ATC and COTT: as much of the reference below it as the model gets wrong there."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["error_threshold"]


def error_threshold(scores: NDArray[Any], error: float, weights: NDArray[Any] | None = None) -> float:
    """Threshold t for which the share of ``scores`` below t comes closest to ``error``.

    Without ties the share is exact for every error that is a multiple of 1/n. Among equally close thresholds the
    lowest is taken; +∞ where all rows are to lie below.

    Examples
    --------
    >>> error_threshold(np.array([0.1, 0.2, 0.3, 0.4]), 0.25)
    0.2
    >>> error_threshold(np.array([0.1, 0.2]), 1.0)
    inf
    """
    weights = np.ones(len(scores)) if weights is None else np.asarray(weights, dtype=float)
    values, group = np.unique(scores, return_inverse=True)
    mass = np.bincount(group.ravel(), weights=weights, minlength=len(values))
    below = np.concatenate([[0.0], np.cumsum(mass)]) / weights.sum()
    candidates = np.append(values, np.inf)
    # Shares are sums of 1/n: differences at the level of rounding are ties.
    distance = np.round(np.abs(below - error), 12)
    return float(candidates[np.argmin(distance)])
