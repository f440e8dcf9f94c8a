"""What labels teach beyond their target: a correction for the windows after it, and how far past estimates were off.

The correction is a shift of the log-odds of accuracy. It is the difference between the labelled and the label-free
estimate, shrunk by their errors, and halves every three windows:

    logit(corrected) = logit(estimate) + 2^(−age/3) · w · ( logit(labelled) − logit(label-free) ),   w = τ² / (τ² + σ²),

where σ is the standard error of the labelled accuracy and τ = 6 points that of label-free estimates, both as log-odds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gdscore._checks import number
from gdscore.errors import GdscoreError
from gdscore.estimator import Estimate, EstimateWarning
from gdscore.estimator.estimate import quantile_of
from gdscore.estimator.evidence import expit, log_odds
from gdscore.labeling.labelled import LabelledEstimate

EXPECTED_ERROR = 0.06
HALF_LIFE = 3.0
EDGE = 0.01


@dataclass(frozen=True)
class Recalibration:
    """Correction of label-free estimates from the labels of an earlier window.

    Attributes
    ----------
    shift : float
        Added to the log-odds of an estimate for the labelled window.
    labels : int
        Labels that it comes from.
    half_life : float
        Windows after which half of it is left.
    """

    shift: float
    labels: int
    half_life: float = HALF_LIFE

    def apply(self, estimate: Estimate, age: float = 1.0) -> Estimate:
        """Correct the estimate of a window without labels; the interval moves with it and is not narrower.

        Parameters
        ----------
        estimate : Estimate
            Of `AccuracyEstimator.estimate`.
        age : float, default 1
            Windows since the labelled one.
        """
        number("age", age, least=0)
        if not isinstance(estimate, Estimate) or isinstance(estimate, LabelledEstimate):
            raise GdscoreError(
                f"Expected an estimate without labels, as `AccuracyEstimator.estimate` returns, but got a "
                f"{type(estimate).__name__}"
            )
        left = 0.5 ** (age / self.half_life)
        ends = (estimate.low, estimate.accuracy, estimate.high)
        low, accuracy, high = (_moved(end, left * self.shift) for end in ends)
        low, high = min(low, accuracy), max(high, accuracy)
        short = max((estimate.high - estimate.low) - (high - low), 0.0) / 2
        moved = 100 * (accuracy - estimate.accuracy)
        warning = EstimateWarning(
            "recalibrated",
            "info",
            f"moved by {moved:+.1f} points by {self.labels} labels of {age:g} window{'' if age == 1 else 's'} ago, of "
            f"which {left:.0%} counts",
        )
        return replace(
            estimate,
            accuracy=accuracy,
            low=max(low - short, 0.0),
            high=min(high + short, 1.0),
            # Labels tell how far the accuracy is off, not which classes it is off on.
            per_class=[],
            f1=None,
            brier=None,
            assumptions={},
            warnings=[*estimate.warnings, warning],
        )


def recalibrate(labelled: LabelledEstimate, *, half_life: float = HALF_LIFE) -> Recalibration:
    """Learn from a labelled window how label-free estimates of the next ones are to be corrected.

    Parameters
    ----------
    labelled : LabelledEstimate
        What `estimate` returned; it holds the label-free estimate of the same window.
    half_life : float, default 3
        Windows after which half of the correction is left.

    Examples
    --------
    >>> from gdscore.estimator import Estimate, Quantity
    >>> seen = LabelledEstimate(0.70, 0.62, 0.77, 0.9, 2000, 0.9, labels=100, label_free=Quantity(0.8, 0.7, 0.9))
    >>> later = Estimate(0.82, 0.72, 0.92, 0.9, 2000, 0.9)
    >>> round(recalibrate(seen).apply(later).accuracy, 3)
    0.776
    """
    number("half_life", half_life, above=0)
    free = _label_free(labelled)
    gap = float(_odds(labelled.accuracy) - _odds(free))
    error = (labelled.high - labelled.low) / 2 / quantile_of(labelled.level)
    weight = EXPECTED_ERROR**2 / (EXPECTED_ERROR**2 + error**2)
    return Recalibration(weight * gap, labelled.labels, float(half_life))


@dataclass(frozen=True)
class PastErrors:
    """How far label-free estimates were off, by labels that came later.

    Attributes
    ----------
    windows : int
        Windows with labels.
    bias : float
        Mean of estimate minus labelled accuracy.
    mean_absolute_error : float
        Mean distance of the two; it holds the error of the labelled accuracy too.
    missed : int
        Windows in which the label-free interval and the labelled one have no accuracy in common.
    """

    windows: int
    bias: float
    mean_absolute_error: float
    missed: int

    def __str__(self) -> str:
        return (
            f"{self.windows} window{'' if self.windows == 1 else 's'}: estimates without labels were off by "
            f"{100 * self.mean_absolute_error:.1f} points on average (bias {100 * self.bias:+.1f}), and the labels "
            f"contradicted {self.missed} of their intervals"
        )


def past_errors(labelled: Iterable[LabelledEstimate]) -> PastErrors:
    """Score past label-free estimates by the labels of the same windows."""
    if not isinstance(labelled, Iterable):
        raise GdscoreError(f"Expected a list of what `labeling.estimate` returns, but got {type(labelled).__name__}")
    windows = list(labelled)
    if not windows:
        raise GdscoreError("Expected at least one labelled window, but there is none")
    gaps = np.array([_label_free(e) - e.accuracy for e in windows])
    missed = sum(1 for e in windows if _apart(e))
    return PastErrors(len(windows), float(gaps.mean()), float(np.abs(gaps).mean()), missed)


def _apart(e: LabelledEstimate) -> bool:
    free = e.label_free
    return (
        free is not None and free.low is not None and free.high is not None and (free.high < e.low or free.low > e.high)
    )


def _label_free(labelled: Any) -> float:
    if not isinstance(labelled, LabelledEstimate) or labelled.label_free is None:
        raise GdscoreError(
            f"Expected what `labeling.estimate` returns for a target, but got {type(labelled).__name__} without the "
            "label-free estimate"
        )
    return labelled.label_free.value


def _odds(share: float) -> Any:
    return log_odds(share, EDGE)


def _moved(share: float, shift: float) -> float:
    """Share with moved log-odds; 0 and 1 stay, as no shift of finite size reaches them."""
    return share if share in (0.0, 1.0) else float(expit(log_odds(share, 1e-9) + shift))
