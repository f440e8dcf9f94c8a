"""The interval of an accuracy from labelled rows: the Agresti–Coull interval for an effective number of labels.

Labels of rows that are spread over the order by predicted class and predicted correctness tell more than labels of
random rows, by as much as right and wrong predictions are apart in that order. With right and wrong of the n labelled
rows in order, y₁ … yₙ, half the mean squared successive difference estimates the variance that is left [1]_; where the
order tells nothing it is that of random rows, and where accuracy changes along the order it errs to the wide side. Of
N rows, n are known, which leaves the share (N − n)/(N − 1) of the variance. The effective number of labels is [2]_

    n / ( ratio · (N − n)/(N − 1) ),     ratio = 1 − (1 − v/s²) n/(n + 15),

where v is that half mean, s² the variance of y and the ratio at most 1: below 15 labels it counts for less than half.
The interval of a share with so many labels is Agresti and Coull's [3]_, which covers near 0 and 1 too.

References
----------
.. [1] K. M. Wolter, "Introduction to Variance Estimation", 2007, chapter 8: systematic sampling.
.. [2] E. L. Korn, B. I. Graubard, "Confidence intervals for proportions with small expected number of positive counts
   estimated from survey data", Survey Methodology 1998.
.. [3] A. Agresti, B. A. Coull, "Approximate is better than exact for interval estimation of binomial proportions",
   The American Statistician 1998.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore.estimator.estimate import quantile_of

__all__ = ["PRIOR_LABELS", "interval", "labels_for", "variance_ratio"]

Floats = NDArray[np.float64]
PRIOR_LABELS = 15
"""Labels that the variance of random rows counts as; chosen on the development part of benchmarks/labels.py."""


def variance_ratio(right: NDArray[Any]) -> Floats:
    """Variance relative to that of random rows.

    Parameters
    ----------
    right : array of shape (…, n)
        Whether the labelled rows are predicted right, in the order of their predicted correctness.

    Examples
    --------
    >>> float(variance_ratio(np.array([0] * 25 + [1] * 75)).round(3))
    0.154
    >>> float(variance_ratio(np.array([0, 1] * 50)))
    1.0
    """
    y = np.asarray(right, dtype=np.float64)
    n = y.shape[-1]
    if n < 3:
        return np.ones(y.shape[:-1])
    variance = y.var(axis=-1, ddof=1)
    successive = np.square(np.diff(y, axis=-1)).sum(axis=-1) / (2 * (n - 1))
    plain = np.where(variance > 0, np.minimum(successive / np.maximum(variance, 1e-12), 1.0), 1.0)
    return np.asarray(1 - (1 - plain) * n / (n + PRIOR_LABELS))


def interval(right: NDArray[Any], n_rows: int, level: float, ratio: Any = None) -> tuple[Floats, Floats]:
    """Low and high end of the interval.

    Parameters
    ----------
    right : array of shape (…, n)
        Whether the labelled rows are predicted right, in the order of their predicted correctness.
    n_rows : int
        Rows of the target, N.
    level : float
        Share of intervals that hold the accuracy on these N rows.
    ratio : array of shape (…,), optional
        Variance relative to that of random rows; by default `variance_ratio`.

    Examples
    --------
    >>> low, high = interval(np.array([0] * 10 + [1] * 40), 1000, 0.9)
    >>> print(f"{low:.3f} {high:.3f}")
    0.748 0.844
    """
    n = right.shape[-1]
    correct = np.asarray(right, dtype=np.float64).sum(axis=-1)
    share = correct / n
    left = (n_rows - n) / max(n_rows - 1, 1)
    effective = n / np.maximum((variance_ratio(right) if ratio is None else ratio) * left, 1e-9)
    low, high = _agresti_coull(share, effective, level)
    # The labelled rows are known: the others can make no more than all of them right or wrong.
    return np.maximum(low, correct / n_rows), np.minimum(high, (correct + n_rows - n) / n_rows)


def _agresti_coull(share: Any, labels: Any, level: float) -> tuple[Floats, Floats]:
    z2 = quantile_of(level) ** 2
    centre = (share * labels + z2 / 2) / (labels + z2)
    half = np.sqrt(z2 * centre * (1 - centre) / (labels + z2))
    return np.maximum(centre - half, 0.0), np.minimum(centre + half, 1.0)


def labels_for(half_width: float, share: float, ratio: float, n_rows: int, level: float) -> int:
    """Labels after which the interval is expected to reach no further than ``half_width`` to each side on average.

    Examples
    --------
    >>> labels_for(0.05, 0.8, 1.0, 100_000, 0.9)
    174
    """
    fewest, most = 1, n_rows
    while fewest < most:
        n = (fewest + most) // 2
        effective = n / max(ratio * (n_rows - n) / max(n_rows - 1, 1), 1e-9)
        low, high = _agresti_coull(share, effective, level)
        fewest, most = (fewest, n) if high - low <= 2 * half_width else (n + 1, most)
    return fewest
