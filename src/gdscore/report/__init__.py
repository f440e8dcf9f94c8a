"""What was estimated, for a person to read: one HTML file that stands alone, and its figures for notebooks."""

from gdscore.report.accuracies import interval_figure, per_class_figure, timeline_figure
from gdscore.report.calibrating import calibration_figure, prediction_figure
from gdscore.report.confidences import confidence_figure, reliability_figure
from gdscore.report.page import write_report
from gdscore.report.target import Target
from gdscore.report.words import verdict

__all__ = [
    "Target",
    "calibration_figure",
    "confidence_figure",
    "interval_figure",
    "per_class_figure",
    "prediction_figure",
    "reliability_figure",
    "timeline_figure",
    "verdict",
    "write_report",
]
