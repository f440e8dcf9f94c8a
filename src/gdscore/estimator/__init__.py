"""From scores to accuracy: calibration on shifted sets, estimates with intervals and warnings."""

from gdscore.estimator.calibrated import Calibration
from gdscore.estimator.core import AccuracyEstimator
from gdscore.estimator.direct import direct_estimate
from gdscore.estimator.estimate import ClassEstimate, Estimate, Lookalike
from gdscore.estimator.judge import Judge

__all__ = ["AccuracyEstimator", "Calibration", "ClassEstimate", "Estimate", "Judge", "Lookalike", "direct_estimate"]
