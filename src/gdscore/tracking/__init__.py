"""Accuracy over time from outputs and from labels that come late."""

from gdscore.tracking.method import ANSWERS
from gdscore.tracking.tracker import AccuracyTracker
from gdscore.tracking.windows import CommonError, History, Tally, TrackedWindow, tracked

__all__ = ["ANSWERS", "AccuracyTracker", "CommonError", "History", "Tally", "TrackedWindow", "tracked"]
