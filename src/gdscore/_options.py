"""Checks of option values, worded alike everywhere."""

from __future__ import annotations

import math
import numbers
from collections.abc import Collection
from typing import Any

import numpy as np

from gdscore.errors import GdscoreError, nearest, shown

__all__ = ["boolean", "choice", "integer", "number", "share"]


def number(
    name: str, value: Any, *, above: float | None = None, least: float | None = None, most: float | None = None
) -> float:
    """Real number within bounds, as float."""
    real = _as_float(value)
    low = real is not None and (above is None or real > above) and (least is None or real >= least)
    if real is None or not (low and (most is None or real <= most)):
        bounds = [f"larger than {above}"] if above is not None else []
        bounds += [f"at least {least}"] if least is not None else []
        bounds += [f"at most {most}"] if most is not None else []
        raise GdscoreError(f"Expected `{name}` to be a number {' and '.join(bounds)}, but got {shown(value)}")
    return real


def share(name: str, value: Any, *, most: float = 1) -> float:
    """Number above 0 and at most 1, or less; a percentage is refused with the advice to divide it."""
    real = _as_float(value)
    if real is not None and 10 <= real <= 100:
        cure = f"{real:g} % is {real / 100:g}"
        raise GdscoreError(f"Expected `{name}` to be a share of at most {most:g}, but got {shown(value)}: {cure}")
    return number(name, value, above=0, most=most)


def _as_float(value: Any) -> float | None:
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return None
    try:
        real = float(value)
    except (OverflowError, ValueError):
        return None
    return None if math.isnan(real) else real


def integer(name: str, value: Any, *, least: int) -> int:
    """Whole number of at least ``least``."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < least:
        raise GdscoreError(f"Expected `{name}` to be an integer of at least {least}, but got {shown(value)}")
    return int(value)


def boolean(name: str, value: Any) -> bool:
    """True or False, and nothing that merely counts as one."""
    if not isinstance(value, (bool, np.bool_)):
        raise GdscoreError(f"Expected `{name}` to be True or False, but got {shown(value)}")
    return bool(value)


def choice(name: str, value: Any, valid: Collection[str]) -> str:
    """One of a few words."""
    if not isinstance(value, str) or value not in valid:
        raise GdscoreError(f"Unknown `{name}` {shown(value)}: {nearest(shown(value), valid)}")
    return value
