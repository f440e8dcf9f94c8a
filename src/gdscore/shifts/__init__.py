"""Shifts of inputs that make labelled, shifted copies of the reference: corruptions of images, tables and texts."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gdscore.shifts.images import Composition, Corruption, compositions, corruption_names, corruptions
from gdscore.shifts.sets import ShiftedSet, default_shifts, quick_shifts, shifted_sets

if TYPE_CHECKING:
    from gdscore.shifts.tables import table_shifts
    from gdscore.shifts.text import text_shifts

_LAZY = {"table_shifts": "gdscore.shifts.tables", "text_shifts": "gdscore.shifts.text"}

__all__ = [
    "Composition",
    "Corruption",
    "ShiftedSet",
    "compositions",
    "corruption_names",
    "corruptions",
    "default_shifts",
    "quick_shifts",
    "shifted_sets",
    "table_shifts",
    "text_shifts",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'gdscore.shifts' has no attribute {name!r}")
