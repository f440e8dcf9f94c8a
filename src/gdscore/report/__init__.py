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
from gdscore.report.targets import Target, verdict

__all__ = [
    "Target",
    "confidence_figure",
    "interval_figure",
    "per_class_figure",
    "reliability_figure",
    "shifted_sets_figure",
    "timeline_figure",
    "verdict",
    "write_report",
]
