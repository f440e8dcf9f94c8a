"""Times of windows as microseconds since 1970 in UTC, from what people write."""

from __future__ import annotations

import contextlib
from datetime import date, datetime, time, timedelta, timezone
from typing import Any

import numpy as np

from gdscore._format import as_utc, time_text
from gdscore._windows import parse_every
from gdscore.errors import GdscoreError, shown

__all__ = ["DAY", "as_duration", "as_micros", "now_micros", "shown_time", "to_datetime", "window_bounds"]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
DAY = 86_400_000_000


def as_micros(value: Any) -> int:
    """Microseconds of a datetime, date, ISO 8601 string or NumPy time; one without a zone is taken for UTC.

    Examples
    --------
    >>> as_micros("1970-01-02"), as_micros("1970-01-01T02:00+01:00")
    (86400000000, 3600000000)
    """
    if isinstance(value, np.datetime64) and not np.isnat(value):
        return int(value.astype("datetime64[us]").astype(np.int64))
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = datetime.fromisoformat(value.strip().replace("Z", "+00:00"))
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    if not isinstance(value, datetime) or value != value:  # NaT of pandas is not equal to itself
        raise GdscoreError(f"Expected a time such as 2026-01-31 or 2026-01-31T05:00:00Z, but got {shown(value)}")
    return (as_utc(value) - _EPOCH) // timedelta(microseconds=1)


def to_datetime(micros: int) -> datetime:
    """Time in UTC."""
    return _EPOCH + timedelta(microseconds=micros)


def now_micros() -> int:
    """Now."""
    return as_micros(datetime.now(timezone.utc))


def shown_time(micros: int | None) -> str:
    """Time for people, without the zone, which pages name once."""
    return (
        "" if micros is None else time_text(to_datetime(micros).replace(tzinfo=None, microsecond=0)).replace("T", " ")
    )


def as_duration(value: Any) -> int:
    """Microseconds of a timedelta, or of text such as ``1d``, ``6h`` or ``15min``.

    Examples
    --------
    >>> as_duration("1d") == DAY, as_duration("15min") // 1_000_000
    (True, 900)
    """
    if isinstance(value, str):
        value = parse_every(value)
    if not isinstance(value, timedelta) or value <= timedelta(0):
        raise GdscoreError(f"Expected a duration such as 1d, 6h or 15min, but got {shown(value)}")
    return value // timedelta(microseconds=1)


def window_bounds(when: Any, every: int) -> tuple[int, int]:
    """Start and end of a window: a pair of times, or its start, to which the length of a window is added."""
    if isinstance(when, (tuple, list)) and len(when) == 2:
        start, end = as_micros(when[0]), as_micros(when[1])
    else:
        start = as_micros(when)
        end = start + every
    if end <= start:
        raise GdscoreError(f"Expected a window that ends after it starts, but got {shown(when)}")
    return start, end
