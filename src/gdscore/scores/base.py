"""`Score`: one number for a set of rows, from a stream, in constant memory.

A method is written as three small steps over NumPy-like arrays: `measure` turns a chunk of rows into statistics,
`combine` adds two statistics up, `result` makes a number of them. Everything else is done here for all methods:

- rows are cut into chunks of a fixed size counted from the first row, whatever batches they arrive in, so that the
  answer does not depend on the loader, bit for bit;
- rows that do not fill a chunk yet are kept as copies; `compute` includes them and changes nothing;
- states merge, can be saved as plain arrays and numbers, and are refused where options, fits or arrays differ;
- invalid values found on an accelerator are remembered there and reported by `compute`;
- a number that is not finite never leaves a score: `finish` refuses it, and `compute` goes through `finish`.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore._arrays import Array
from gdscore._derived import how_to_get
from gdscore._stream import CHUNK_ROWS, Rechunker, kind_of
from gdscore.errors import GdscoreError, GdscoreWarning
from gdscore.outputs import Outputs
from gdscore.scores._state import Layout, SavedScore, check_restored, counts_of, refuse_damaged
from gdscore.scores.together import fit_together

__all__ = ["Score", "Stats"]

Stats: TypeAlias = dict[str, Array]
HostStats: TypeAlias = dict[str, NDArray[Any]]


class Score:
    """Base class of all scores; subclasses override the methods of the first part.

    Attributes
    ----------
    name : str
        Name in the registry.
    formula : str
        What the number is, in one line of plain text.
    inputs : frozenset of str
        Arrays that the `Outputs` given to `update` must hold.
    reference_inputs : frozenset of str
        Arrays that the reference given to `fit` must hold; empty where no reference is needed.
    learned : dict of str
        Attributes that `fit` sets, whose names end in ``_``, each with a letter for each of its axes: K for classes, D
        for features, others for any length.
    higher_is_better : bool
        Whether the number rises with accuracy. May depend on the options of the instance.
    """

    name: ClassVar[str] = ""
    formula: ClassVar[str] = ""
    inputs: frozenset[str] = frozenset({"logits"})
    reference_inputs: frozenset[str] = frozenset()
    learned: ClassVar[Mapping[str, str]] = {}
    higher_is_better: bool = True
    chunk_rows: int = CHUNK_ROWS

    # -- what a method is made of ---------------------------------------------------------------------------

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
        value = self._counts.get(what)
        if value is None:
            raise GdscoreError(f"Expected `{self.name}` to have seen rows with {what}, but it has not")
        return value

    def reset(self) -> Score:
        """Forget all rows; options and fit stay."""
        self._stats: Stats | None = None
        self._pending = Rechunker(self.chunk_rows)
        self._counted = 0
        self._chunks = 0
        self._invalid: Array | None = None
        self._layout: Layout | None = None
        return self

    @property
    def _counts(self) -> Mapping[str, int | None]:
        return self._layout.counts if self._layout else {}

    def fit(self, reference: Outputs | Iterable[Outputs]) -> Score:
        """Learn from the reference, where the score needs one; forgets all rows."""
        failure = fit_together([self], reference).get(self.name)
        if failure:
            raise GdscoreError(failure)
        return self

    def update(self, outputs: Outputs) -> Score:
        """Take in more rows."""
        self.check_rows(outputs)
        for chunk in self._pending.push(outputs.only(self.inputs)):
            self.add_chunk(chunk)
        return self

    def compute(self) -> float:
        """Return the number for all rows seen, with a warning where it needs one; the state stays as it is."""
        value = self.finish(self.statistics())
        message = self.warning()
        if message:
            warnings.warn(f"{self.name}: {message}", GdscoreWarning, stacklevel=2)
        return value

    def finish(self, stats: HostStats) -> float:
        """Return the number that `statistics` give, without warnings; one that is not finite is an error."""
        try:
            with np.errstate(all="ignore"):
                value = float(self.result(stats))
        except (np.linalg.LinAlgError, OverflowError):
            value = math.nan
        if not math.isfinite(value):
            raise GdscoreError(self.overflow_message())
        return value

    def overflow_message(self) -> str:
        """Error for numbers that are finite, but too large for the sums and products of the score."""
        named = "` or `".join(sorted(self.inputs - {"labels"}))
        return (
            f"`{self.name}` cannot be computed: values of `{named}` are so large that sums or products of them "
            "overflow; look for exploding activations, or divide the values by a constant in reference and target"
        )

    def merge(self, other: Score) -> Score:
        """Take in the rows another score of the same options and fit has seen; ``other`` stays as it is."""
        self._check_mergeable(other)
        if other._layout is not None:
            self._layout = other._layout.joined(self._layout)
        if not other.n_rows:
            return self
        if other._stats is not None:
            self._add(other._stats)
        rest = other._pending.rest()
        if rest is not None:
            self._merge_rest(rest)
        flags = [s._first_invalid() for s in (self, other)]
        bad = [f for f in flags if f is not None]
        self._invalid = np.asarray(min(bad)) if bad else None
        self._counted += other.n_rows
        self._chunks += other._chunks
        return self

    def state_dict(self) -> dict[str, Any]:
        """All that was seen and learned, as a flat dict of NumPy arrays, numbers and strings."""
        parts: dict[str, Mapping[str, Any]] = {
            "shape": self._counts,
            "reference_shape": self.reference_shape,
            "learned": {key: getattr(self, key) for key in self.learned if self.fitted},
            "stats": {key: arrays.to_numpy(value) for key, value in (self._stats or {}).items()},
            **{label: rows.to_numpy().arrays for label, rows in self._kept_rows().items() if rows is not None},
        }
        names = self._layout.arrays if self._layout else frozenset()
        saved = SavedScore(
            self.name, self.options, self._counted, self._chunks, self._first_invalid(), frozenset(names), parts
        )
        return saved.flat()

    def load_state_dict(self, state: Mapping[str, Any]) -> Score:
        """Go on from a saved state of the same name and options; nothing changes when it is another."""
        saved = SavedScore.read(state)
        saved.check_belongs_to(self.name, self.options, self.learned)
        parts = saved.parts
        with refuse_damaged():
            kept = {k: Outputs(**v, check_logits=False) for k, v in parts.items() if k in ("pending", "pool")}
            layout = Layout(saved.arrays, dict(parts["shape"])) if saved.arrays else None
            learned, stats = saved.numbers("learned"), saved.numbers("stats")
            check_restored(self, saved, layout, learned, stats, kept)
        self.reset()
        for entry, value in learned.items():
            setattr(self, entry, value)
        self._stats = stats or None
        self._layout = layout
        self.reference_shape = dict(parts["reference_shape"])
        self._counted, self._chunks = saved.rows, saved.chunks
        self._invalid = None if saved.invalid is None else np.asarray(saved.invalid)
        self._restore_rows(kept)
        return self

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"{type(self).__name__}({options}), {self.n_rows} rows"

    # -- how it works ---------------------------------------------------------------------------------------

    def check_rows(self, outputs: Outputs) -> None:
        """Check that rows fit this score and those before them; nothing changes when they do not."""
        if not isinstance(outputs, Outputs):
            raise GdscoreError(f"Expected `gdscore.Outputs`, but got {kind_of(outputs)}")
        missing = sorted(self.inputs - outputs.has)
        if missing:
            raise GdscoreError(
                f"`{self.name}` needs `{'`, `'.join(missing)}`, but the outputs hold only "
                f"{', '.join(outputs.arrays)}. {how_to_get(missing)}"
            )
        if not self.fitted:
            labelled = "labelled " if "labels" in self.reference_inputs else ""
            raise GdscoreError(
                f"`{self.name}` needs {labelled}reference data: call fit(reference) first, or pass reference="
            )
        layout = Layout.of(outputs, self.inputs)
        layout.check_reference(self.reference_shape)
        self._layout = layout.joined(self._layout)

    def compared_with_reference(self) -> list[str]:
        """Which of ``n_classes`` and ``n_features`` must be the reference's."""
        return counts_of(self.inputs & self.reference_inputs)

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

    def _check_mergeable(self, other: Score) -> None:
        if other is self:
            raise GdscoreError(
                f"Expected another `{self.name}` to merge, but got the same one: its rows would count twice"
            )
        if type(other) is not type(self):
            raise GdscoreError(f"Expected another `{self.name}` to merge, but got {type(other).__name__}")
        if self.options != other.options:
            raise GdscoreError(f"Expected equal options to merge, but got {self.options} and {other.options}")
        for name in self.learned:
            here, there = getattr(self, name, None), getattr(other, name, None)
            if not np.array_equal(np.asarray(here), np.asarray(there)):
                raise GdscoreError(f"Expected scores fitted on the same reference to merge, but `{name}` differs")
        if self._layout is not None and other._layout is not None:
            other._layout.check_mergeable(self._layout)


def option_names(cls: type[Score]) -> list[str]:
    """Names of a score's options: the parameters of its constructor."""
    return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]
