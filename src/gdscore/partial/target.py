"""State of a target for one estimator, by segments: a sparse matrix of integers with a row for each segment.

All that an estimate needs of some rows are sums of numbers on a binary grid (see `gdscore.estimator.evidence`), that is
integers times 2⁻²⁰. A segment's sums are one long vector, of which a small segment fills few cells, and only those are
kept. Merging adds integers: exact, and the same bit for bit in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gdscore.errors import GdscoreError
from gdscore.estimator.evidence import CENTRES, CONFIDENCE_BINS, GRID, Evidence, Rows, bins_of
from gdscore.files import ArraySpec, Number, RecordSchema
from gdscore.partial._frame import pack, unpack

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["SCHEMA", "CellLayout", "TargetCells"]

Integers = NDArray[np.int64]

SCHEMA = RecordSchema(
    format="gdscore target state",
    version=2,
    header={
        "estimator": str,
        "classes": Number(least=2, most=2**31, integer=True),
        "evidence": Number(least=1, most=64, integer=True),
        "segmented": bool,
    },
    arrays={
        # Steps from one filled cell to the next, counted through all segments, and what is in them.
        "cells": ArraySpec("i", (2, "cells")),
        "segments": ArraySpec("U", ("segments",), optional=True),
        # Saved scores, of estimators that are a straight line through one.
        "score": ArraySpec("i", ("bytes",), least=0, most=255, optional=True),
        "score_ends": ArraySpec("i", ("scores",), least=0, optional=True),
    },
    least_sizes={"cells": 0, "segments": 0, "bytes": 0, "scores": 0},
)


@dataclass(frozen=True)
class CellLayout:
    """Where in a segment's vector each sum stands."""

    classes: int
    evidence: int

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Cells of each sum, in order; ``other_model`` counts parts whose outputs come from another model."""
        bins = len(CENTRES)
        return {
            "rows": 1,
            "other_model": 1,
            "context": self.evidence,
            "histogram": self.classes * bins,
            "odds": bins,
            "others": bins * self.classes,
            "confident_rows": CONFIDENCE_BINS,
            "confidence": CONFIDENCE_BINS,
        }

    @cached_property
    def width(self) -> int:
        """Cells of a segment."""
        return sum(self.sizes.values())

    @cached_property
    def starts(self) -> dict[str, int]:
        """First cell of each sum."""
        ends = np.cumsum(list(self.sizes.values()))
        return {name: int(end) - size for (name, size), end in zip(self.sizes.items(), ends, strict=True)}


_layout = lru_cache(maxsize=16)(CellLayout)
"""Layouts of the states that are merged, whose sizes are worked out once."""


@dataclass(frozen=True)
class TargetCells:
    """Filled cells of all segments.

    Attributes
    ----------
    layout : CellLayout
        Of one segment.
    segments : array of str, or None
        Names in rising order; None for a target without segments, which is one.
    at, values : integer arrays of equal length
        Number of the cell, counted through the segments, in rising order; and the integer in it.
    """

    layout: CellLayout
    segments: NDArray[np.str_] | None
    at: Integers
    values: Integers

    @classmethod
    def empty(cls, layout: CellLayout, segmented: bool) -> Self:
        """State of no rows."""
        nothing = np.zeros(0, dtype=np.int64)
        return cls(layout, np.zeros(0, dtype="<U1") if segmented else None, nothing, nothing)

    @classmethod
    def of(
        cls, layout: CellLayout, rows: Rows, others: NDArray[Any], same_model: bool, by: NDArray[np.str_] | None
    ) -> Self:
        """State of some rows, given as in `Evidence.add`; ``by`` names the segment of each."""
        count, bins, starts = len(rows.predicted), len(CENTRES), layout.starts
        segments, own = (None, np.zeros(count, np.int64)) if by is None else np.unique(by, return_inverse=True)
        base = own * layout.width
        level = np.minimum((rows.confidence * CONFIDENCE_BINS).astype(np.int64), CONFIDENCE_BINS - 1)
        index = bins_of(rows.calibrated)
        one = np.ones(count, dtype=np.int64)
        parts = [
            (base, one),
            (base[:, None] + starts["context"] + np.arange(layout.evidence), _on_grid(rows.evidence)),
            (base + starts["histogram"] + rows.predicted * bins + index, one),
            (base + starts["odds"] + index, _on_grid(rows.calibrated)),
            (base + starts["confident_rows"] + level, one),
            (base + starts["confidence"] + level, _on_grid(rows.confidence)),
        ]
        if not same_model:
            first = np.unique(base)
            parts.append((first + starts["other_model"], np.ones(len(first), np.int64)))
        # Rows of one segment and bin are added up before they become cells: there are K of each.
        where = own * bins + index
        order = np.argsort(where, kind="stable")
        begins = np.flatnonzero(np.diff(where[order], prepend=-1))
        sums = np.add.reduceat(_on_grid(others)[order], begins, axis=0)
        present = where[order][begins]
        at = (present // bins) * layout.width + starts["others"] + (present % bins) * layout.classes
        parts.append((at[:, None] + np.arange(layout.classes), sums))
        return cls(layout, segments, *_summed([p[0].ravel() for p in parts], [p[1].ravel() for p in parts]))

    @classmethod
    def merged(cls, parts: Sequence[TargetCells]) -> Self:
        """State of all rows of states with one layout."""
        layout, given = parts[0].layout, [p.segments for p in parts]
        named = [g for g in given if g is not None]
        if not named:
            return cls(layout, None, *_summed([p.at for p in parts], [p.values for p in parts]))
        segments, own = np.unique(np.concatenate(named), return_inverse=True)
        keys, start = [], 0
        for part, names in zip(parts, named, strict=True):
            new = own[start : start + len(names)]
            start += len(names)
            segment, cell = np.divmod(part.at, layout.width)
            keys.append(new[segment] * layout.width + cell)
        return cls(layout, segments, *_summed(keys, [p.values for p in parts]))

    def evidence(self) -> Iterable[tuple[Evidence, bool]]:
        """For each segment its sums, and whether all its outputs come from the estimator's model."""
        layout, starts, sizes = self.layout, self.layout.starts, self.layout.sizes
        count = 1 if self.segments is None else len(self.segments)
        ends = np.searchsorted(self.at, np.arange(count + 1) * layout.width)
        for number in range(count):
            dense = np.zeros(layout.width, dtype=np.int64)
            span = slice(ends[number], ends[number + 1])
            dense[self.at[span] - number * layout.width] = self.values[span]
            sums = {name: dense[starts[name] : starts[name] + sizes[name]] for name in sizes}
            found = Evidence(layout.classes, layout.evidence)
            found.rows = int(sums["rows"][0])
            found.context = np.asarray(sums["context"] * GRID, dtype=np.float64)
            found.histogram = sums["histogram"].reshape(found.histogram.shape).astype(np.float64)
            found.odds = np.asarray(sums["odds"] * GRID, dtype=np.float64)
            found.others = np.asarray(sums["others"].reshape(found.others.shape) * GRID, dtype=np.float64)
            found.confidence = np.stack([sums["confident_rows"], sums["confidence"] * GRID])
            yield found, not sums["other_model"][0]

    def to_bytes(self, estimator: str, scores: Sequence[bytes] | None) -> bytes:
        """State as bytes; ``estimator`` is the digest of the estimator, ``scores`` a saved score for each segment."""
        cells = np.stack([np.diff(self.at, prepend=0), self.values])
        small = np.int32 if not cells.size or np.abs(cells).max() < 2**31 else np.int64
        header = {
            "estimator": estimator,
            "classes": self.layout.classes,
            "evidence": self.layout.evidence,
            "segmented": self.segments is not None,
        }
        arrays: dict[str, Any] = {"cells": cells.astype(small)}
        if self.segments is not None:
            arrays["segments"] = self.segments
        if scores is not None:
            arrays["score"] = np.frombuffer(b"".join(scores), dtype=np.uint8)
            arrays["score_ends"] = np.cumsum([len(s) for s in scores], dtype=np.int64)
        return pack(SCHEMA, header, arrays)

    @classmethod
    def from_bytes(cls, state: bytes) -> tuple[Self, str, list[bytes] | None]:
        """State, digest of its estimator and saved scores, all checked."""
        header, arrays, _ = unpack(state, SCHEMA)
        layout = _layout(header["classes"], header["evidence"])
        segments = arrays.get("segments")
        steps, values = arrays["cells"].astype(np.int64)
        at = np.cumsum(steps)
        count = 1 if segments is None else len(segments)
        _require((segments is not None) == header["segmented"], "names of segments where it has segments")
        _require(segments is None or bool((segments[1:] > segments[:-1]).all()), "segments in rising order")
        _require(not len(at) or bool(steps[0] >= 0 and (steps[1:] > 0).all()), "cells in rising order")
        _require(not len(at) or at[-1] < count * layout.width, "cells within its segments")
        negative = at[values < 0] % layout.width
        fits = np.zeros(len(negative), dtype=bool)
        for name in ("context", "odds"):
            start = layout.starts[name]
            fits |= (negative >= start) & (negative < start + layout.sizes[name])
        _require(bool(fits.all()), "counts that are not negative")
        scores = None
        if "score" in arrays:
            ends, raw = arrays.get("score_ends", np.zeros(0)).tolist(), arrays["score"].astype(np.uint8).tobytes()
            _require(ends == sorted(ends) and (ends[-1] if ends else 0) == len(raw), "saved scores of its length")
            scores = [raw[a:b] for a, b in pairwise([0, *ends])]
            _require(len(scores) in (0, count), "a saved score for each segment")
        return cls(layout, segments, at, values), header["estimator"], scores


def _on_grid(values: NDArray[Any]) -> Integers:
    return np.asarray(np.round(values / GRID), dtype=np.int64)


def _summed(keys: Sequence[Integers], values: Sequence[Integers]) -> tuple[Integers, Integers]:
    """Cells in rising order, each once, without those that are 0."""
    at, numbers = np.concatenate(keys), np.concatenate(values)
    if not len(at):
        return at, numbers
    order = np.argsort(at, kind="stable")
    at, numbers = at[order], numbers[order]
    begins = np.flatnonzero(np.diff(at, prepend=-1))
    sums = np.add.reduceat(numbers, begins)
    filled = sums != 0
    return at[begins][filled], sums[filled]


def _require(fits: bool, what: str) -> None:
    if not fits:
        raise GdscoreError(f"Expected a target state with {what}, but it has others: make the state again")
