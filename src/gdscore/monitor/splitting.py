"""Outputs split into windows of time and segments, in one pass over them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gdscore._arrays import is_array, to_numpy
from gdscore._cells import Batch
from gdscore._windows import window_starts
from gdscore.errors import GdscoreError
from gdscore.monitor.times import window_bounds
from gdscore.outputs import Outputs

if TYPE_CHECKING:
    from gdscore.estimator import AccuracyEstimator
    from gdscore.estimator.fitted import TargetState

__all__ = ["Key", "check_name", "window_states"]

Key: TypeAlias = tuple[int, int, str]
"""Start and end of a window, and its segment; the empty segment holds all rows."""

LONGEST_NAME = 200
MOST_WINDOWS = 100_000


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
    try:
        column = np.asarray(time.to_numpy() if hasattr(time, "to_numpy") else time).astype("datetime64[us]")
    except (TypeError, ValueError):
        raise GdscoreError("Expected `time` to be one time, a start and an end, or a time for each row") from None
    if column.shape != (rows,) or np.isnat(column).any():
        raise GdscoreError(f"Expected a time for each of {rows} rows, but some are missing")
    starts = window_starts(column, timedelta(microseconds=every)).astype(np.int64)
    for start in np.unique(starts):
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


def check_name(what: str, name: Any, *, empty: bool = False) -> str:
    """Name of a model, version, segment or person: printable text of at most 200 characters."""
    if not isinstance(name, str) or not (name or empty) or len(name) > LONGEST_NAME or not name.isprintable():
        raise GdscoreError(
            f"Expected the name of a {what} to be printable text of 1 to {LONGEST_NAME} characters, but got "
            f"{str(name)[:60]!r}"
        )
    return name
