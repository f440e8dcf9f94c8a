"""Windows of time: their bounds from what people write, and outputs split into windows and segments in one pass.

Times are microseconds since 1970 in UTC.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gdscore._arrays import is_array, to_numpy
from gdscore._format import as_utc, time_text
from gdscore._stream import Batch
from gdscore._windows import parse_every, window_starts
from gdscore.errors import GdscoreError, shown
from gdscore.monitor.schema import check_name
from gdscore.outputs import Outputs

if TYPE_CHECKING:
    from gdscore.estimator import AccuracyEstimator, TargetState

__all__ = [
    "DAY",
    "Key",
    "as_duration",
    "as_micros",
    "as_times",
    "now_micros",
    "shown_time",
    "to_datetime",
    "window_bounds",
    "window_states",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
DAY = 86_400_000_000
_FIRST, _LAST = (
    (end.replace(tzinfo=timezone.utc) - _EPOCH) // timedelta(microseconds=1) for end in (datetime.min, datetime.max)
)
MOST_WINDOWS = 100_000

Key: TypeAlias = tuple[int, int, str]
"""Start and end of a window, and its segment; the empty segment holds all rows."""


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
        value = datetime.combine(value, datetime.min.time())
    if isinstance(value, datetime) and value == value:  # NaT of pandas is not equal to itself
        with contextlib.suppress(OverflowError):  # the first and the last day of the calendar in another zone
            return (as_utc(value) - _EPOCH) // timedelta(microseconds=1)
    raise GdscoreError(f"Expected a time such as 2026-01-31 or 2026-01-31T05:00:00Z, but got {shown(value)}")


def as_times(values: Any) -> NDArray[np.datetime64]:
    """Times of rows in UTC, from an array or a column of a frame; numbers are refused, as their unit is not known.

    Examples
    --------
    >>> as_times(np.array(["2026-01-31T05:00", "2026-01-31T05:00+01:00"])).astype(str).tolist()
    ['2026-01-31T05:00:00.000000', '2026-01-31T04:00:00.000000']
    """
    column = np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)
    if column.dtype.kind == "M":
        return column.astype("datetime64[us]")
    if column.dtype.kind not in "OUT":
        raise GdscoreError(
            "Expected `time` to be one time, a start and an end, or a time for each row, but got an array of "
            f"{column.dtype}: are these seconds? np.array(…).astype('datetime64[s]') makes times of them"
        )
    # NumPy has no zones: it would warn of those in text and in Python's times.
    return np.array([as_micros(value) for value in column.tolist()], dtype=np.int64).astype("datetime64[us]")


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
    _check_times(start, end)
    return start, end


def _check_times(first: int, last: int) -> None:
    """Refuse windows outside the calendar and in the future: the newest would stay the newest for ever.

    A day is allowed, as clocks differ and local times are given without a zone.
    """
    now = now_micros()
    if first > now + DAY or first < _FIRST or last > _LAST:
        got = str(np.datetime64(first, "us").astype("datetime64[s]")).replace("T", " ")
        raise GdscoreError(
            f"Expected a window that has begun, but it starts at {got} and the clock here is at {shown_time(now)}: "
            "are the time, its unit and the length of windows right?"
        )


def window_states(
    estimator: AccuracyEstimator, outputs: Outputs | Iterable[Outputs | Batch], time: Any, by: Any, every: int
) -> dict[Key, TargetState]:
    """State of each window and segment."""
    states: dict[Key, TargetState] = {}
    for part, times, segments in _parts(outputs, time, by):
        for (start, end), rows in _windows(times, every, len(part)):
            chosen = part if len(rows) == len(part) else part[rows]
            for key, inside in _segments(segments, rows):
                if len(states) >= MOST_WINDOWS:
                    raise GdscoreError(
                        f"Expected at most {MOST_WINDOWS:,} windows and segments at once, but there are more: are the "
                        "columns of time and segments the right ones?"
                    )
                state = states.setdefault((start, end, key), estimator.state())
                state.update(chosen if inside is None else chosen[inside])
    return states


def _parts(outputs: Any, time: Any, by: Any) -> Iterator[tuple[Outputs, Any, Mapping[str, Any]]]:
    if isinstance(outputs, Outputs):
        yield outputs, time, _columns(by)
        return
    for item in outputs:
        if isinstance(item, Outputs):
            if by is not None or _is_column(time):
                raise GdscoreError(
                    "Expected `time` and `by` of a stream in its batches, as gdscore.io.read_batches has them"
                )
            yield item, time, {}
        else:
            part, times, segments = item
            if times is None and time is None:
                raise GdscoreError("Expected a time for the rows, but neither `time` nor the batches have one")
            yield part, times if time is None else time, segments or {}


def _columns(by: Any) -> Mapping[str, Any]:
    if by is None:
        return {}
    return by if isinstance(by, Mapping) else {"": by}


def _is_column(time: Any) -> bool:
    return (is_array(time) and np.ndim(time) == 1) or (hasattr(time, "to_numpy") and np.ndim(time) == 1)


def _windows(time: Any, every: int, rows: int) -> Iterator[tuple[tuple[int, int], NDArray[Any]]]:
    """Windows of the rows: one where the time is one, else those of `gdscore._windows`."""
    if not _is_column(time):
        yield window_bounds(time, every), np.arange(rows)
        return
    column = as_times(time)
    if column.shape != (rows,) or np.isnat(column).any():
        raise GdscoreError(f"Expected a time for each of {rows} rows, but some are missing")
    starts = window_starts(column, timedelta(microseconds=every)).astype(np.int64)
    for start in np.unique(starts):
        _check_times(int(start), int(start) + every)
        yield (int(start), int(start) + every), np.flatnonzero(starts == start)


def _segments(columns: Mapping[str, Any], rows: NDArray[Any]) -> Iterator[tuple[str, NDArray[Any] | None]]:
    yield "", None
    for column, values in columns.items():
        listed = to_numpy(values) if is_array(values) else np.asarray(values, dtype=object)
        if listed.ndim != 1 or len(listed) <= int(rows.max(initial=-1)):
            raise GdscoreError(f"Expected `by` to name a segment for each row, but its shape is {listed.shape}")
        found: dict[str, list[int]] = {}
        for row, value in enumerate(listed[rows].tolist()):
            found.setdefault(str(value), []).append(row)
        for value, inside in found.items():
            yield check_name("segment", f"{column}={value}" if column else value or "(empty)"), np.array(inside)
