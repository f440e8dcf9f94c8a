"""From scores to accuracy: calibration on meta-sets, estimates with intervals and warnings."""

from gdscore.estimator.core import AccuracyEstimator
from gdscore.estimator.direct import direct_estimate
from gdscore.estimator.estimate import ClassEstimate, Estimate

__all__ = ["AccuracyEstimator", "ClassEstimate", "Estimate", "direct_estimate"]
