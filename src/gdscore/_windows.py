"""Windows of time and segments: which of them each row belongs to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gdscore.errors import GdscoreError

__all__ = ["Group", "RowGroups", "parse_every", "window_starts"]

_UNITS = {"s": "seconds", "min": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_MONDAY = np.datetime64("1970-01-05", "us")


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

    Examples
    --------
    >>> times = np.array(["2026-01-31T05:20", "2026-02-01T23:59"], dtype="datetime64[us]")
    >>> window_starts(times, timedelta(days=1)).astype(str).tolist()
    ['2026-01-31T00:00:00.000000', '2026-02-01T00:00:00.000000']
    """
    step = np.timedelta64(every, "us")
    origin = _MONDAY if every % timedelta(weeks=1) == timedelta(0) else np.datetime64(0, "us")
    return np.asarray(origin + (times.astype("datetime64[us]") - origin) // step * step)


class Group(NamedTuple):
    """A window by its start, None without times, and a segment such as ``country=fr, device=phone``."""

    start: datetime | None
    segment: str


class RowGroups:
    """Numbers windows and segments in the order in which rows of them first come.

    Examples
    --------
    >>> groups = RowGroups(timedelta(days=1))
    >>> groups.number(None, {"country": np.array(["fr", "de", "fr"])}).tolist()
    [1, 0, 1]
    >>> [group.segment for group in groups.found]
    ['country=de', 'country=fr']
    """

    def __init__(self, every: timedelta) -> None:
        self._every = every
        self._numbers: dict[Group, int] = {}

    @property
    def found(self) -> list[Group]:
        """Groups by their number."""
        return list(self._numbers)

    def number(self, time: NDArray[np.datetime64] | None, by: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
        """Group of each row, by its time and by the values of named columns."""
        columns = dict(by)
        if time is not None:
            columns = {"": window_starts(time, self._every), **columns}
        values = {name: np.unique(column, return_inverse=True) for name, column in columns.items()}
        codes = np.stack([codes.reshape(-1) for _, codes in values.values()], axis=1)
        distinct, rows = np.unique(codes, axis=0, return_inverse=True)
        numbers = []
        for row in distinct:
            named = {name: known[code].item() for (name, (known, _)), code in zip(values.items(), row, strict=True)}
            start = named.pop("", None)
            group = Group(start, ", ".join(f"{name}={value}" for name, value in named.items()))
            numbers.append(self._numbers.setdefault(group, len(self._numbers)))
        return np.asarray(numbers, dtype=np.int64)[rows.reshape(-1)]
