"""Accuracy over time from outputs and from labels that come late."""

from gdscore.tracking.method import ANSWERS
from gdscore.tracking.tracker import AccuracyTracker
from gdscore.tracking.windows import CommonError, Tally, TrackedWindow, ages_of, class_mix, known_of, tracked

__all__ = [
    "ANSWERS",
    "AccuracyTracker",
    "CommonError",
    "Tally",
    "TrackedWindow",
    "ages_of",
    "class_mix",
    "known_of",
    "tracked",
]
