"""Labelled, shifted copies of the reference data to calibrate on: corruptions, resampling, disturbed heads."""

from gdscore.shifts.composed import Composition, compositions
from gdscore.shifts.images import Corruption, corrupt, corruption_names, corruptions
from gdscore.shifts.perturbed import perturbed
from gdscore.shifts.resampled import resampled
from gdscore.shifts.sets import ShiftedSet

__all__ = [
    "Composition",
    "Corruption",
    "ShiftedSet",
    "compositions",
    "corrupt",
    "corruption_names",
    "corruptions",
    "perturbed",
    "resampled",
]
