"""From outputs to an accuracy with an interval and warnings."""

from gdscore.estimator.core import AccuracyEstimator
from gdscore.estimator.correctness import ShiftedSetTable
from gdscore.estimator.direct import direct_estimate
from gdscore.estimator.estimate import (
    ClassEstimate,
    ConfidenceHistogram,
    Estimate,
    Estimates,
    EstimateWarning,
    Quantity,
)
from gdscore.estimator.fitted import NotFittedError
from gdscore.estimator.state import TargetState

__all__ = [
    "AccuracyEstimator",
    "ClassEstimate",
    "ConfidenceHistogram",
    "Estimate",
    "EstimateWarning",
    "Estimates",
    "NotFittedError",
    "Quantity",
    "ShiftedSetTable",
    "TargetState",
    "direct_estimate",
]
