"""`Method`: what a score measures of a chunk of rows, and the statistics of all chunks so far.

Requirements met here:

- rows are cut into chunks of a fixed size counted from the first row, whatever batches they arrive in, so that the
  answer does not depend on the loader, bit for bit;
- rows that do not fill a chunk yet are kept as copies; `statistics` includes them and changes nothing;
- invalid values found on an accelerator are remembered there and reported by `statistics`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from gdscore import _arrays as arrays
from gdscore._arrays import Array
from gdscore._stream import CHUNK_ROWS, Rechunker
from gdscore.errors import GdscoreError
from gdscore.outputs import Outputs

if TYPE_CHECKING:
    from gdscore.scores.base import HostStats, Stats

__all__ = ["Method"]


class Method:
    """What a score is made of, and how it adds rows up; `Score` explains the attributes."""

    name: ClassVar[str] = ""
    formula: ClassVar[str] = ""
    inputs: frozenset[str] = frozenset({"logits"})
    reference_inputs: frozenset[str] = frozenset()
    learned: ClassVar[Mapping[str, str]] = {}
    higher_is_better: bool = True
    chunk_rows: int = CHUNK_ROWS

    # -- what a subclass overrides --------------------------------------------------------------------------

    def measure(self, chunk: Outputs) -> Stats:
        """Statistics of a chunk of rows, as arrays on the chunk's device; sums in float64 (`_arrays.wide`)."""
        raise NotImplementedError

    def combine(self, first: Stats, second: Stats) -> Stats:
        """Statistics of the rows of both; by default every entry is a sum."""
        return {name: first[name] + second[name] for name in second}

    def summarise(self, stats: Stats) -> Stats:
        """Statistics that `result` needs, computed where they live before they are copied to the host."""
        return stats

    def result(self, stats: HostStats) -> float:
        """Turn statistics, now NumPy arrays on the host, into the number; callers use `finish`, which checks it."""
        raise NotImplementedError

    def measure_reference(self, chunk: Outputs) -> Stats:
        """Statistics of a chunk of reference rows."""
        raise NotImplementedError

    def combine_reference(self, first: Stats, second: Stats) -> Stats:
        """Statistics of the reference rows of both; by default every entry is a sum."""
        return {name: first[name] + second[name] for name in second}

    def learn(self, stats: HostStats) -> None:
        """Set the attributes named in ``learned`` from the statistics of the reference."""
        raise NotImplementedError

    def stat_axes(self) -> Sequence[Mapping[str, str]]:
        """Statistics that `measure` can return, with their axes as in ``learned``; a restored state must fit one."""
        return ()

    def warning(self) -> str | None:
        """What the reader should know about the number at this size of data, if anything."""
        return None

    # -- statistics of all rows seen ------------------------------------------------------------------------

    def _forget_rows(self) -> None:
        self._stats: Stats | None = None
        self._pending = Rechunker(self.chunk_rows)
        self._counted = 0
        self._chunks = 0
        self._invalid: Array | None = None

    @property
    def n_rows(self) -> int:
        """Rows seen since the last reset."""
        return self._counted + len(self._pending)

    def add_chunk(self, chunk: Outputs) -> None:
        """Add one chunk to the statistics."""
        self._add(self._measured(chunk))
        self._counted += len(chunk)
        mark = chunk.mark_invalid(self._chunks)
        if mark is not None:
            seen = mark if self._invalid is None else arrays.like(self._invalid, mark)
            self._invalid = arrays.namespace(mark).minimum(seen, mark)
        self._chunks += 1

    def take_rest(self, rest: Outputs | None) -> None:
        """Take over the end of a stream that was cut into chunks elsewhere."""
        if rest is not None:
            self._pending.adopt(rest)

    def _measured(self, rows: Outputs) -> Stats:
        with arrays.full_precision(next(iter(rows.arrays.values()))):
            return self.measure(rows)

    def _added(self, stats: Stats | None, more: Stats) -> Stats:
        if stats is None:
            return more
        other = next(iter(more.values()))
        return self.combine({k: arrays.like(v, more.get(k, other)) for k, v in stats.items()}, more)

    def _add(self, more: Stats) -> None:
        self._stats = self._added(self._stats, more)

    def statistics(self) -> HostStats:
        """Statistics of all rows seen, on the host: what `finish` makes the number of."""
        if not self.n_rows:
            raise GdscoreError(f"`{self.name}` has seen no rows: call update before compute")
        self._raise_if_invalid()
        with np.errstate(all="ignore"):
            stats = self.summarise(self._with_kept_rows(self._stats))
        return {k: arrays.to_numpy(v) for k, v in stats.items()}

    def _with_kept_rows(self, stats: Stats | None) -> Stats:
        rest = self._pending.rest()
        if rest is not None:
            return self._added(stats, self._measured(rest))
        assert stats is not None
        return stats

    def _merge_rows(self, other: Method) -> None:
        if other._stats is not None:
            self._add(other._stats)
        rest = other._pending.rest()
        if rest is not None:
            self._merge_rest(rest)
        bad = [first for method in (self, other) if (first := method._first_invalid()) is not None]
        self._invalid = np.asarray(min(bad)) if bad else None
        self._counted += other.n_rows
        self._chunks += other._chunks

    def _merge_rest(self, rest: Outputs) -> None:
        self._add(self._measured(rest))

    def _kept_rows(self) -> dict[str, Outputs | None]:
        return {"pending": self._pending.rest()}

    def _restore_rows(self, kept: Mapping[str, Outputs]) -> None:
        if "pending" in kept:
            self._pending.adopt(kept["pending"])

    def _first_invalid(self) -> int | None:
        """Number of the first chunk with values that cannot be used."""
        if self._invalid is not None and (number := int(arrays.to_numpy(self._invalid))) != 2**31 - 1:
            return number
        rest = self._pending.rest()
        return self._chunks if rest is not None and rest.valid is not None and not bool(rest.valid) else None

    def _raise_if_invalid(self) -> None:
        bad = self._first_invalid()
        if bad is not None:
            start = bad * self.chunk_rows
            raise GdscoreError(
                f"Expected finite numbers and labels in range, but rows {start} to {start + self.chunk_rows - 1} of "
                f"those given to `{self.name}` hold NaN, Inf, a label that is no class, or probabilities as `logits`"
            )
