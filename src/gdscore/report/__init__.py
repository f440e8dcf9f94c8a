"""Estimates for a person to read: one HTML file that needs nothing else, and its figures for notebooks."""

from gdscore.report.figures import (
    confidence_figure,
    interval_figure,
    per_class_figure,
    reliability_figure,
    shifted_sets_figure,
    timeline_figure,
)
from gdscore.report.page import write_report
from gdscore.report.targets import Target, compare_with_threshold

__all__ = [
    "Target",
    "compare_with_threshold",
    "confidence_figure",
    "interval_figure",
    "per_class_figure",
    "reliability_figure",
    "shifted_sets_figure",
    "timeline_figure",
    "write_report",
]
