"""Rows by segment: the name of each row, such as its country or day, beside outputs or a stream of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore.errors import GdscoreError
from gdscore.outputs import Outputs

__all__ = ["segments", "with_segments"]


def with_segments(parts: Iterable[Outputs], by: Any) -> Iterator[tuple[Outputs, Any]]:
    """Parts of a stream with their segments; one more or one fewer of them is an error."""
    if not isinstance(by, Iterable):
        raise GdscoreError(f"Expected `by` to name a segment for each row, but got {type(by).__name__}")
    names, nothing = iter(by), object()
    for part in parts:
        own = next(names, nothing)
        if own is nothing:
            raise GdscoreError("Expected `by` to have segments for every part of the stream, but it ended")
        yield part, own
    if next(names, nothing) is not nothing:
        raise GdscoreError("Expected `by` to have segments for the parts of the stream only, but it has more")


def _plain(names: NDArray[Any]) -> list[Any]:
    if names.dtype.kind == "M" and np.datetime_data(names.dtype)[0] not in ("Y", "M", "W", "D", "h", "m", "s", "ms"):
        names = names.astype("datetime64[us]")  # finer ones would be numbers of nanoseconds
    listed: list[Any] = names.tolist()
    return listed


def segments(names: Any, rows: int) -> Iterator[tuple[Any, NDArray[Any]]]:
    """Rows of each segment, in the order of their first appearance; a missing name is None."""
    if hasattr(names, "columns"):
        raise GdscoreError("Expected `by` to name a segment for each row, but got a data frame: give one column of it")
    if hasattr(names, "to_pylist"):  # scalars of Arrow are neither equal to their values nor missing
        names = names.to_pylist()
    listed = _plain(arrays.to_numpy(names)) if arrays.is_array(names) else names
    listed = list(listed) if isinstance(listed, Iterable) and not isinstance(listed, (str, bytes)) else None
    if listed is None or len(listed) != rows:
        came = "one value" if listed is None else f"{len(listed)}"
        raise GdscoreError(f"Expected `by` to name a segment for each of {rows} rows, but got {came}")
    index: dict[Any, list[int]] = {}
    try:
        for row, name in enumerate(listed):
            missing = name is None or type(name).__name__ in ("NAType", "NaTType") or name != name
            index.setdefault(None if missing else name, []).append(row)
    except (TypeError, ValueError):
        raise GdscoreError(f"Expected `by` to name segments by strings or numbers, but got {name!r:.80}") from None
    for name, found in index.items():
        yield name, np.array(found)
