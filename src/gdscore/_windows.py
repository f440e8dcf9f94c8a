"""Windows of time and segments: which of them each row belongs to."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gdscore.errors import GdscoreError

__all__ = ["Group", "group_of", "parse_every", "window_columns", "window_starts"]

_UNITS = {"s": "seconds", "min": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_MONDAY = np.datetime64("1970-01-05", "us")
_FIRST = np.datetime64("0001-01-01", "us")
"""Earliest time that Python has."""


def parse_every(text: str) -> timedelta:
    """Length of windows, written as a number and a unit: 30min, 6h, 1d, 1w.

    Examples
    --------
    >>> parse_every("6h"), parse_every("1w")
    (datetime.timedelta(seconds=21600), datetime.timedelta(days=7))
    """
    match = re.fullmatch(r"([1-9]\d{0,5}) ?(s|min|h|d|w)", text.strip())
    if match is None:
        raise GdscoreError(f"Expected the length of windows such as 30min, 6h, 1d or 1w, but got {text!r}")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def window_starts(times: NDArray[np.datetime64], every: timedelta) -> NDArray[np.datetime64]:
    """Start of each time's window, in UTC; weeks begin on Mondays, other windows are counted from 1970.

    The first window begins with the year 1.

    Examples
    --------
    >>> times = np.array(["2026-01-31T05:20", "2026-02-01T23:59"], dtype="datetime64[us]")
    >>> window_starts(times, timedelta(days=1)).astype(str).tolist()
    ['2026-01-31T00:00:00.000000', '2026-02-01T00:00:00.000000']
    """
    step = np.timedelta64(every, "us")
    origin = _MONDAY if every % timedelta(weeks=1) == timedelta(0) else np.datetime64(0, "us")
    starts = origin + (times.astype("datetime64[us]") - origin) // step * step
    return np.asarray(np.maximum(starts, _FIRST))


class Group(NamedTuple):
    """A window by its start, None without times, and a segment such as ``country=fr, device=phone``."""

    start: datetime | None
    segment: str


def window_columns(
    time: NDArray[np.datetime64] | None, by: Mapping[str, Any], every: timedelta | None
) -> dict[str, Any]:
    """Columns that name the window and segment of each row: starts of windows first, where there are times."""
    return dict(by) if time is None or every is None else {"": window_starts(time, every), **by}


def group_of(key: Any, timed: bool, names: Sequence[str]) -> Group:
    """Window and segment of a key of `window_columns`; ``names`` are those of the columns of segments.

    Examples
    --------
    >>> group_of((datetime(2026, 1, 31), "fr", 3), True, ["country", "site"]).segment
    'country=fr, site=3'
    >>> group_of("fr", False, ["country"])
    Group(start=None, segment='country=fr')
    """
    values = list(key) if timed + len(names) > 1 else [key] if timed or names else []
    start = values.pop(0) if timed else None
    return Group(start, ", ".join(f"{name}={value}" for name, value in zip(names, values, strict=True)))
