"""Labelled, shifted copies of the reference data to calibrate on: corruptions, resampling, disturbed heads."""

from gdscore.metasets.composed import Composition, compositions
from gdscore.metasets.perturbed import perturbed
from gdscore.metasets.resampled import resampled
from gdscore.metasets.sets import MetaSet
from gdscore.metasets.shifts import Corruption, corrupt, corruption_names, corruptions

__all__ = [
    "Composition",
    "Corruption",
    "MetaSet",
    "compositions",
    "corrupt",
    "corruption_names",
    "corruptions",
    "perturbed",
    "resampled",
]
