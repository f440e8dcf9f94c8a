"""Labelled, shifted copies of the reference data to calibrate on: image corruptions and their compositions."""

from gdscore.metasets.composed import Composition, compositions
from gdscore.metasets.shifts import Corruption, corrupt, corruption_names, corruptions

__all__ = ["Composition", "Corruption", "compositions", "corrupt", "corruption_names", "corruptions"]
