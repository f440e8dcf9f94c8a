"""Streams of `Outputs`: read one by one, cut into chunks of one size from the first row, and split by segment."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore._arrays import is_array
from gdscore.errors import GdscoreError
from gdscore.outputs import Outputs

__all__ = ["CHUNK_ROWS", "Rechunker", "joined", "kind_of", "labelled_reference", "segments", "stream", "with_segments"]

CHUNK_ROWS = 1024
"""Rows worked on at once: a multiple of GdScore's mini-batch, and small enough for a processor's cache."""


class Rechunker:
    """Keeps copies of the rows that do not fill a chunk yet."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._kept: list[Outputs] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def push(self, outputs: Outputs) -> Iterator[Outputs]:
        """Chunks completed by these rows; full chunks of a large input are passed on without a copy."""
        start = 0
        if self._count:
            start = min(self.rows - self._count, len(outputs))
            self._keep(outputs[:start])
            if self._count == self.rows:
                full = self.rest()
                self._kept, self._count = [], 0
                if full is not None:
                    yield full
        while len(outputs) - start >= self.rows:
            yield outputs[start : start + self.rows]
            start += self.rows
        if start < len(outputs):
            self._keep(outputs[start:])

    def rest(self) -> Outputs | None:
        """Rows kept so far as one piece, or None."""
        if not self._kept:
            return None
        if len(self._kept) > 1:
            self._kept = [joined(self._kept)]
        return self._kept[0]

    def adopt(self, rest: Outputs) -> None:
        """Take over rows that nobody else will change, without a copy."""
        self._kept, self._count = [rest], len(rest)

    def _keep(self, rows: Outputs) -> None:
        self._kept.append(rows.working_copy())
        self._count += len(rows)


def joined(parts: Sequence[Outputs]) -> Outputs:
    """Rows of all parts, in the array library and on the device of the last."""
    return Outputs.concatenate([part.like(parts[-1]) for part in parts])


def stream(data: Outputs | Iterable[Outputs] | None, what: str) -> Iterator[Outputs]:
    """Outputs one by one, of a single one or of any iterable; anything else, or nothing, is an error."""
    if isinstance(data, Outputs):
        yield data
        return
    no_stream = isinstance(data, (str, bytes, dict)) or is_array(data) or hasattr(data, "iloc")
    if no_stream or not isinstance(data, Iterable):
        raise GdscoreError(f"Expected `{what}` to be `gdscore.Outputs` or a stream of them, but got {kind_of(data)}")
    empty = True
    for outputs in data:
        if not isinstance(outputs, Outputs):
            raise GdscoreError(f"Expected `{what}` to yield `gdscore.Outputs`, but it yielded {kind_of(outputs)}")
        empty = False
        yield outputs
    if empty:
        raise GdscoreError(
            f"Expected `{what}` to have rows, but the stream is empty: a generator gives its rows once, make it again"
        )


def labelled_reference(reference: Outputs | Iterable[Outputs]) -> Outputs:
    """Labelled outputs as one, of a stream too; or an error."""
    parts = list(stream(reference, "reference"))
    for part in parts:
        if "labels" not in part.has:
            raise GdscoreError(
                "Expected `reference` with labels, but it has none: pass labels= to Outputs, y to from_sklearn, or "
                "label= to from_frame"
            )
        if "logits" not in part.has:
            raise GdscoreError("Expected `reference` with logits or probabilities, but it has neither")
    return Outputs.concatenate(parts)


def kind_of(value: object) -> str:
    """Name what came in place of `Outputs`, with the way to make them where there is one."""
    if value is None:
        return "nothing"
    name = type(value).__name__
    if is_array(value):
        ways = "gdscore.Outputs(logits=…), gdscore.Outputs(probabilities=…) or gdscore.from_sklearn(clf, X)"
        return f"{name}: give {ways}"
    if isinstance(value, str | os.PathLike):
        return f"{name}: gdscore.io.read_outputs reads files"
    return f"{name}: gdscore.from_frame makes outputs of it" if hasattr(value, "iloc") else name


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
