"""`Score`: one number for a set of rows, from a stream, in constant memory.

A method is written as three small steps over NumPy-like arrays: `measure` turns a chunk of rows into statistics,
`combine` adds two statistics up, `finish` makes a number of them. Everything else lives here, once:

- rows are cut into chunks of a fixed size counted from the first row, whatever batches they arrive in, so that the
  answer does not depend on the loader, bit for bit;
- rows that do not fill a chunk yet are kept as copies; `compute` includes them and changes nothing;
- states merge, can be saved as plain arrays and numbers, and are refused where options or fits differ;
- unsound values found on an accelerator are remembered there and reported by `compute`.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore._arrays import Array
from gdscore.errors import GdscoreError, GdscoreWarning
from gdscore.outputs import Outputs
from gdscore.scores._fitting import fit_together
from gdscore.scores._layout import checked_names, checked_shape, counts_of
from gdscore.scores._rechunk import CHUNK_ROWS, Rechunker
from gdscore.scores._saved import SavedScore, whole

__all__ = ["Score", "Stats"]

Stats: TypeAlias = dict[str, Array]
HostStats: TypeAlias = dict[str, NDArray[Any]]


class Score:
    """Base class of all scores; subclasses override the methods of the first part.

    Attributes
    ----------
    name : str
        Name in the registry.
    inputs : frozenset of str
        Arrays that the `Outputs` given to `update` must hold.
    reference_inputs : frozenset of str
        Arrays that the reference given to `fit` must hold; empty where no reference is needed.
    learned : tuple of str
        Attributes that `fit` sets; their names end in ``_``.
    higher_is_better : bool
        Whether the number rises with accuracy. May depend on the options of the instance.
    """

    name: ClassVar[str] = ""
    inputs: frozenset[str] = frozenset({"logits"})
    reference_inputs: frozenset[str] = frozenset()
    learned: ClassVar[tuple[str, ...]] = ()
    higher_is_better: bool = True
    chunk_rows: int = CHUNK_ROWS

    # -- what a method is made of ---------------------------------------------------------------------------

    def measure(self, chunk: Outputs) -> Stats:
        """Statistics of a chunk of rows, as arrays on the chunk's device; sums in float64 (`_arrays.wide`)."""
        raise NotImplementedError

    def combine(self, first: Stats, second: Stats) -> Stats:
        """Statistics of the rows of both; by default every entry is a sum."""
        return {name: first[name] + second[name] for name in second}

    def finish(self, stats: HostStats) -> float:
        """Turn statistics, now NumPy arrays on the host, into the number."""
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

    def caution(self) -> str | None:
        """What the reader should know about the number at this size of data, if anything."""
        return None

    # -- what every score can do ----------------------------------------------------------------------------

    def __init__(self) -> None:
        self.reference_shape: dict[str, int | None] = {}
        self.reset()

    @property
    def needs(self) -> frozenset[str]:
        """Everything the caller must have: arrays of the outputs, ``reference`` and ``reference_labels``."""
        reference = {"reference"} if self.reference_inputs else set()
        return self.inputs | reference | ({"reference_labels"} if "labels" in self.reference_inputs else set())

    @property
    def options(self) -> dict[str, Any]:
        """Options by name, as the constructor was given them."""
        return {name: getattr(self, name) for name in option_names(type(self))}

    @property
    def fitted(self) -> bool:
        """Whether the score has the reference it needs."""
        return all(hasattr(self, name) for name in self.learned)

    @property
    def n_rows(self) -> int:
        """Rows seen since the last reset."""
        return self._counted + len(self._pending)

    @property
    def n_classes(self) -> int:
        """Classes K of the rows seen; an error before the first."""
        return self._seen("n_classes")

    @property
    def n_features(self) -> int:
        """Features D of the rows seen; an error before the first."""
        return self._seen("n_features")

    def _seen(self, what: str) -> int:
        value = self._shape.get(what)
        if value is None:
            raise GdscoreError(f"Expected `{self.name}` to have seen rows with {what}, but it has not")
        return value

    def reset(self) -> Score:
        """Forget all rows; options and fit stay."""
        self._stats: Stats | None = None
        self._pending = Rechunker(self.chunk_rows)
        self._counted = 0
        self._chunks = 0
        self._unsound: Array | None = None
        self._shape: dict[str, int | None] = {}
        self._names: frozenset[str] | None = None
        return self

    def fit(self, reference: Outputs | Iterable[Outputs]) -> Score:
        """Learn from validation data of the training distribution, where the score needs any; forgets all rows."""
        failure = fit_together([self], reference).get(self.name)
        if failure:
            raise GdscoreError(failure)
        return self

    def update(self, outputs: Outputs) -> Score:
        """Take in more rows."""
        self.admit(outputs)
        for chunk in self._pending.push(outputs.only(self.inputs)):
            self.absorb(chunk)
        return self

    def compute(self) -> float:
        """Return the number for all rows seen; the state stays as it is."""
        value = float(self.finish(self.statistics()))
        if math.isnan(value) or value == math.inf:
            raise GdscoreError(
                f"`{self.name}` is not finite ({value}): the numbers given are too large to compute with"
            )
        message = self.caution()
        if message:
            warnings.warn(f"{self.name}: {message}", GdscoreWarning, stacklevel=2)
        return value

    def merge(self, other: Score) -> Score:
        """Take in the rows another score of the same options and fit has seen; ``other`` stays as it is."""
        self._check_mergeable(other)
        if not other.n_rows:
            return self
        if other._stats is not None:
            self._add(other._stats)
        rest = other._pending.rest()
        if rest is not None:
            self._merge_rest(rest)
        flags = [s._first_unsound() for s in (self, other)]
        bad = [f for f in flags if f is not None]
        self._unsound = np.asarray(min(bad)) if bad else None
        self._shape = self._shape or dict(other._shape)
        self._counted += other.n_rows
        self._chunks += other._chunks
        return self

    def state_dict(self) -> dict[str, Any]:
        """All that was seen and learned, as a flat dict of NumPy arrays, numbers and strings."""
        parts: dict[str, Mapping[str, Any]] = {
            "shape": self._shape,
            "reference_shape": self.reference_shape,
            "learned": {key: getattr(self, key) for key in self.learned if self.fitted},
            "stats": {key: arrays.to_numpy(value) for key, value in (self._stats or {}).items()},
            **{label: rows.to_numpy().arrays for label, rows in self._kept_rows().items() if rows is not None},
        }
        bad = self._first_unsound()
        return SavedScore(self.name, self.options, self._counted, self._chunks, bad, parts).flat()

    def load_state_dict(self, state: Mapping[str, Any]) -> Score:
        """Go on from a saved state of the same name and options; nothing changes when it is another."""
        saved = SavedScore.read(state)
        saved.check_belongs_to(self.name, self.options, self.learned)
        parts = saved.parts
        with whole():
            kept = {k: Outputs(**v) for k, v in parts.items() if k in ("pending", "pool")}
        self.reset()
        for entry, value in parts.get("learned", {}).items():
            setattr(self, entry, value)
        self._stats = {k: np.asarray(v) for k, v in parts["stats"].items()} if "stats" in parts else None
        self._shape, self.reference_shape = dict(parts["shape"]), dict(parts["reference_shape"])
        self._counted, self._chunks = saved.rows, saved.chunks
        self._unsound = None if saved.unsound is None else np.asarray(saved.unsound)
        self._restore_rows(kept)
        return self

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"{type(self).__name__}({options}), {self.n_rows} rows"

    # -- how it works ---------------------------------------------------------------------------------------

    def admit(self, outputs: Outputs) -> None:
        """Check that rows fit this score and those before them; nothing changes when they do not."""
        if not isinstance(outputs, Outputs):
            raise GdscoreError(f"Expected `gdscore.Outputs`, but got {type(outputs).__name__}")
        missing = sorted(self.inputs - outputs.has)
        if missing:
            raise GdscoreError(
                f"`{self.name}` needs `{'`, `'.join(missing)}`, but the outputs hold only {', '.join(outputs.arrays)}"
            )
        if not self.fitted:
            labelled = "labelled " if "labels" in self.reference_inputs else ""
            raise GdscoreError(
                f"`{self.name}` needs {labelled}reference data: call fit(reference) first, or pass reference="
            )
        shape = checked_shape(outputs, self.inputs, self.reference_shape, self._shape)
        self._names = checked_names(outputs, self.inputs, self._names)
        self._shape = shape

    def compared_with_reference(self) -> list[str]:
        """Which of ``n_classes`` and ``n_features`` must be the reference's."""
        return counts_of(self.inputs & self.reference_inputs)

    def absorb(self, chunk: Outputs) -> None:
        """Add one whole chunk to the statistics."""
        self._add(self._measured(chunk))
        self._counted += len(chunk)
        mark = chunk.mark_unsound(self._chunks)
        if mark is not None:
            seen = mark if self._unsound is None else arrays.like(self._unsound, mark)
            self._unsound = arrays.namespace(mark).minimum(seen, mark)
        self._chunks += 1

    def adopt_rest(self, rest: Outputs | None) -> None:
        """Take over the end of a stream that was cut into chunks elsewhere."""
        if rest is not None:
            self._pending.adopt(rest)

    def _measured(self, rows: Outputs) -> Stats:
        with arrays.full_precision(next(iter(rows.arrays.values()))):
            return self.measure(rows)

    def _added(self, stats: Stats | None, more: Stats) -> Stats:
        if stats is None:
            return more
        return self.combine({k: arrays.like(v, more[k]) for k, v in stats.items()}, more)

    def _add(self, more: Stats) -> None:
        self._stats = self._added(self._stats, more)

    def statistics(self) -> HostStats:
        """Statistics of all rows seen, on the host: what `finish` makes the number of."""
        if not self.n_rows:
            raise GdscoreError(f"`{self.name}` has seen no rows: call update before compute")
        self._raise_if_unsound()
        stats = self._with_kept_rows(self._stats)
        return {k: arrays.to_numpy(v) for k, v in stats.items()}

    def _with_kept_rows(self, stats: Stats | None) -> Stats:
        rest = self._pending.rest()
        if rest is not None:
            return self._added(stats, self._measured(rest))
        assert stats is not None
        return stats

    def _merge_rest(self, rest: Outputs) -> None:
        self._add(self._measured(rest))

    def _kept_rows(self) -> dict[str, Outputs | None]:
        return {"pending": self._pending.rest()}

    def _restore_rows(self, kept: Mapping[str, Outputs]) -> None:
        if "pending" in kept:
            self._pending.adopt(kept["pending"])

    def _first_unsound(self) -> int | None:
        """Number of the first chunk with values that cannot be used."""
        if self._unsound is not None and (number := int(arrays.to_numpy(self._unsound))) != 2**31 - 1:
            return number
        rest = self._pending.rest()
        return self._chunks if rest is not None and rest.sound is not None and not bool(rest.sound) else None

    def _raise_if_unsound(self) -> None:
        bad = self._first_unsound()
        if bad is not None:
            start = bad * self.chunk_rows
            raise GdscoreError(
                f"Expected finite numbers and labels in range, but rows {start} to {start + self.chunk_rows - 1} of "
                f"those given to `{self.name}` hold NaN, Inf or a label that is no class"
            )

    def _check_mergeable(self, other: Score) -> None:
        if type(other) is not type(self):
            raise GdscoreError(f"Expected another `{self.name}` to merge, but got {type(other).__name__}")
        if self.options != other.options:
            raise GdscoreError(f"Expected equal options to merge, but got {self.options} and {other.options}")
        for name in self.learned:
            here, there = getattr(self, name, None), getattr(other, name, None)
            if not np.array_equal(np.asarray(here), np.asarray(there)):
                raise GdscoreError(f"Expected scores fitted on the same reference to merge, but `{name}` differs")
        for what, seen in self._shape.items():
            if other.n_rows and other._shape.get(what) != seen:
                raise GdscoreError(f"Expected equal {what} to merge, but got {seen} and {other._shape.get(what)}")


def option_names(cls: type[Score]) -> list[str]:
    """Names of a score's options: the parameters of its constructor."""
    return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]
