"""`Score`: one number for a set of rows, from a stream, in constant memory.

A score is written as three small steps over NumPy-like arrays: `measure` turns a chunk of rows into statistics,
`combine` adds two statistics up, `result` makes a number of them. Everything else is done here for all scores.

Requirements met here:

- rows are cut into chunks of a fixed size counted from the first row, whatever batches they arrive in, so that the
  answer does not depend on the loader, bit for bit; rows that do not fill a chunk yet are kept as copies;
- states merge, and are refused where options, fits or arrays differ;
- a saved state is one flat dict of NumPy arrays, numbers and strings. What a score is and how far it has come has plain
  names, everything else the name of its part and a dot: ``learned.threshold_``, ``stats.total``, ``pending.logits``.
  The state of another score or of other options is refused; that nothing was changed is for the checksum of its file;
- invalid values found on an accelerator are remembered there and reported by `statistics`;
- a number that is not finite never leaves a score: `finish` refuses it, and `compute` goes through `finish`.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import math
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore._arrays import Array, namespace
from gdscore._stream import CHUNK_ROWS, Rechunker, kind_of, stream
from gdscore.errors import GdscoreError, GdscoreWarning, shown
from gdscore.outputs import ARGMAX, Outputs, how_to_get, same_class_names, same_decision

Stats: TypeAlias = dict[str, Array]
HostStats: TypeAlias = dict[str, NDArray[Any]]

_FORMAT = "gdscore score state, version 1"
_COUNTED_IN = {"n_classes": "logits", "n_features": "features"}


class Score:
    """Base class of all scores; subclasses override methods of the first part.

    Attributes
    ----------
    name : str
        Name in the registry.
    formula : str
        What the number is, in one line of plain text.
    good_for, fails_when : str
        Cells of the score in the tables of the documentation.
    inputs : frozenset of str
        Arrays that the `Outputs` given to `update` must hold.
    optional_inputs : frozenset of str
        Arrays that are read only with some options, or where they are there; ``predictions`` where the number is about
        the decided classes.
    reference_inputs : frozenset of str
        Arrays that the reference given to `fit` must hold; empty where no reference is needed.
    learned : tuple of str
        Attributes that `fit` sets; their names end in ``_``.
    higher_is_better : bool
        Whether the number rises with accuracy. May depend on the options of the instance.
    argmax_only : bool
        Whether the number is about the classes of the largest logits, so that rows decided otherwise are refused. May
        depend on the options of the instance.

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> z = np.random.default_rng(0).normal(size=(300, 4))
    >>> first, second = (gdscore.create_score("confscore").update(gdscore.Outputs(logits=part)) for part in (z, 2 * z))
    >>> first.merge(second).n_rows, second.n_rows
    (600, 300)
    >>> round(first.compute(), 4)
    0.5849
    """

    name: ClassVar[str] = ""
    formula: ClassVar[str] = ""
    good_for: ClassVar[str] = ""
    fails_when: ClassVar[str] = ""
    inputs: frozenset[str] = frozenset({"logits"})
    optional_inputs: frozenset[str] = frozenset()
    reference_inputs: frozenset[str] = frozenset()
    learned: ClassVar[tuple[str, ...]] = ()
    higher_is_better: bool = True
    argmax_only: bool = False
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

    def warning(self) -> str | None:
        """What the reader should know about the number at this size of data, if anything."""
        return None

    # -- what a caller uses ---------------------------------------------------------------------------------

    def __init__(self) -> None:
        self._reference: _RowLayout | None = None
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

    def reset(self) -> Score:
        """Forget all rows; options and fit stay."""
        self._stats: Stats | None = None
        self._pending = Rechunker(self.chunk_rows)
        self._counted = 0
        self._chunks = 0
        self._invalid: Array | None = None
        self._layout: _RowLayout | None = None
        return self

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

    def statistics(self) -> HostStats:
        """Statistics of all rows seen, on the host: what `finish` makes the number of."""
        if not self.n_rows:
            raise GdscoreError(f"`{self.name}` has seen no rows: call update before compute")
        bad = self._first_invalid()
        if bad is not None:
            start = bad * self.chunk_rows
            raise GdscoreError(
                f"Expected finite numbers and labels in range, but rows {start} to {start + self.chunk_rows - 1} of "
                f"those given to `{self.name}` hold NaN, Inf, a label that is no class, or probabilities as `logits`"
            )
        with np.errstate(all="ignore"):
            stats = self.summarise(self._with_kept_rows(self._stats))
        return {k: arrays.to_numpy(v) for k, v in stats.items()}

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
            self._layout = other._layout.joined(self._layout, "the score that it is merged into")
        if not other.n_rows:
            return self
        if other._stats is not None:
            self._add(other._stats)
        rest = other._pending.rest()
        if rest is not None:
            self._merge_rest(rest)
        bad = [first for score in (self, other) if (first := score._first_invalid()) is not None]
        self._invalid = np.asarray(min(bad)) if bad else None
        self._counted += other.n_rows
        self._chunks += other._chunks
        return self

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"{type(self).__name__}({options}), {self.n_rows} rows"

    # -- rows and statistics --------------------------------------------------------------------------------

    def check_rows(self, outputs: Outputs) -> None:
        """Check that rows fit this score and those before them; nothing changes when they do not."""
        if not isinstance(outputs, Outputs):
            raise GdscoreError(f"Expected `gdscore.Outputs`, but got {kind_of(outputs)}")
        _check_arrays(f"`{self.name}` needs", self.inputs, outputs)
        if not self.fitted:
            labelled = "labelled " if "labels" in self.reference_inputs else ""
            raise GdscoreError(
                f"`{self.name}` needs {labelled}reference data: call fit(reference) first, or pass reference="
            )
        layout = _RowLayout.of(outputs, self.inputs)
        if self.argmax_only and layout.decision != ARGMAX:
            raise GdscoreError(
                f"`{self.name}` is about the classes of largest probability, but these rows were decided otherwise "
                f"({layout.decision}): leave out `predictions` or `threshold` for the number of those classes"
            )
        if self._reference is not None:
            layout.check_like(self._reference, "the reference")
        self._layout = layout.joined(self._layout)

    def add_chunk(self, chunk: Outputs) -> None:
        """Add one chunk to the statistics."""
        self._add(self._measured(chunk))
        self._counted += len(chunk)
        mark = chunk.mark_invalid(self._chunks)
        if mark is not None:
            seen = mark if self._invalid is None else arrays.like(self._invalid, mark)
            self._invalid = namespace(mark).minimum(seen, mark)
        self._chunks += 1

    def take_rest(self, rest: Outputs | None) -> None:
        """Take over the end of a stream that was cut into chunks elsewhere."""
        if rest is not None:
            self._pending.adopt(rest)

    def _seen(self, what: str) -> int:
        value = self._layout.counts.get(what) if self._layout else None
        if value is None:
            raise GdscoreError(f"Expected `{self.name}` to have seen rows with {what}, but it has not")
        return value

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

    def _with_kept_rows(self, stats: Stats | None) -> Stats:
        rest = self._pending.rest()
        if rest is not None:
            return self._added(stats, self._measured(rest))
        assert stats is not None
        return stats

    def _merge_rest(self, rest: Outputs) -> None:
        self._add(self._measured(rest))

    def _first_invalid(self) -> int | None:
        """Number of the first chunk with values that cannot be used."""
        if self._invalid is not None and (number := int(arrays.to_numpy(self._invalid))) != 2**31 - 1:
            return number
        rest = self._pending.rest()
        return self._chunks if rest is not None and rest.valid is not None and not bool(rest.valid) else None

    def _check_mergeable(self, other: Score) -> None:
        if other is self:
            raise GdscoreError(
                f"Expected another `{self.name}` to merge, but got the same one: its rows would count twice"
            )
        if type(other) is not type(self):
            raise GdscoreError(f"Expected another `{self.name}` to merge, but got {type(other).__name__}")
        if self.options != other.options:
            raise GdscoreError(f"Expected equal options to merge, but got {self.options} and {other.options}")
        if self._reference is not None and other._reference is not None:
            other._reference.check_like(self._reference, "the reference of the score that it is merged into")
        for name in self.learned:
            here, there = getattr(self, name, None), getattr(other, name, None)
            if not np.array_equal(np.asarray(here), np.asarray(there)):
                raise GdscoreError(f"Expected scores fitted on the same reference to merge, but `{name}` differs")

    # -- saving ---------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """All that was seen and learned, as a flat dict of NumPy arrays, numbers and strings."""
        invalid = self._first_invalid()
        parts: dict[str, Mapping[str, Any]] = {
            "learned": {key: getattr(self, key) for key in self.learned if self.fitted},
            "stats": {key: arrays.to_numpy(value) for key, value in (self._stats or {}).items()},
            **{label: rows.to_numpy().arrays for label, rows in self._kept_rows().items() if rows is not None},
        }
        return {
            "format": _FORMAT,
            "name": self.name,
            "options": json.dumps(self.options),
            "rows": self._counted,
            "chunks": self._chunks,
            "invalid": -1 if invalid is None else invalid,
            "layout": _RowLayout.to_json(self._layout),
            "reference": _RowLayout.to_json(self._reference),
            **{f"{part}.{key}": value for part, entries in parts.items() for key, value in entries.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> Score:
        """Go on from a saved state of the same name and options; nothing changes when it is another."""
        name, options = read_options(state)
        if name != self.name:
            raise GdscoreError(f"Expected a state of `{self.name}`, but got one of `{name}`")
        if options != json.loads(json.dumps(self.options)):
            raise GdscoreError(
                f"Expected a state of `{name}` with options {self.options}, but it was saved with {options}"
            )
        parts: dict[str, dict[str, Any]] = {"learned": {}, "stats": {}}
        for key, value in state.items():
            part, dot, entry = str(key).partition(".")
            if dot:
                parts.setdefault(part, {})[entry] = value
        with _refuse_damaged():
            rows, chunks, invalid = int(state["rows"]), int(state["chunks"]), int(state["invalid"])
            layout, reference = _RowLayout.from_json(state["layout"]), _RowLayout.from_json(state["reference"])
            kept: dict[str, Outputs] = {}
            for part in parts.keys() & {"pending", "pool"}:
                rows_kept = Outputs(**parts[part], check_logits=False)
                read = layout if "logits" in rows_kept.has else None
                kept[part] = rows_kept.with_decision(read.decision) if read else rows_kept
            learned = {name: arrays.native(np.asarray(parts["learned"][name])) for name in self.learned if reference}
            stats = {entry: arrays.native(np.asarray(value)) for entry, value in parts["stats"].items()}
        self.reset()
        for entry, value in learned.items():
            setattr(self, entry, value if value.ndim else float(value))
        self._stats = stats or None
        self._layout, self._reference = layout, reference
        self._counted, self._chunks = rows, chunks
        self._invalid = np.asarray(invalid) if invalid >= 0 else None
        self._restore_rows(kept)
        return self

    def _kept_rows(self) -> dict[str, Outputs | None]:
        return {"pending": self._pending.rest()}

    def _restore_rows(self, kept: Mapping[str, Outputs]) -> None:
        if "pending" in kept:
            self._pending.adopt(kept["pending"])


class MeanScore(Score):
    """Mean over the rows of `row_values`."""

    def row_values(self, chunk: Outputs) -> Array:
        """One number, or truth value, for each row: shape (m,)."""
        raise NotImplementedError

    def measure(self, chunk: Outputs) -> Stats:
        """Sum of the row values and number of rows."""
        return mean_stats(self.row_values(chunk))

    def result(self, stats: HostStats) -> float:
        """Mean row value."""
        return float(stats["total"] / stats["rows"])


def mean_stats(values: Array) -> Stats:
    """Sum and number of the rows of a vector, in float64."""
    xp = namespace(values)
    if xp.isdtype(values.dtype, "bool"):
        values = xp.astype(values, xp.float32)
    total = arrays.wide(xp.sum(arrays.wide(values)))
    return {"total": total, "rows": namespace(total).zeros_like(total) + values.shape[0]}


def fit_together(scores: Iterable[Score], reference: Outputs | Iterable[Outputs] | None) -> dict[str, str]:
    """Fit all scores that need a reference in one pass over it; returns why a score could not learn from it."""
    fitting = [s for s in scores if s.reference_inputs]
    if not fitting:
        return {}
    stats: dict[int, Stats] = {}
    layouts: dict[int, _RowLayout] = {}
    for chunk in _reference_chunks(reference, fitting):
        if chunk.valid is not None and not bool(chunk.valid):
            raise GdscoreError(
                "Expected a reference of finite numbers and labels in range, but it holds NaN, Inf or others"
            )
        with arrays.full_precision(next(iter(chunk.arrays.values()))):
            for i, score in enumerate(fitting):
                layouts[i] = _RowLayout.of(chunk, score.reference_inputs).joined(layouts.get(i))
                part = score.measure_reference(chunk)
                stats[i] = score.combine_reference(stats[i], part) if i in stats else part
    failures: dict[str, str] = {}
    for i, score in enumerate(fitting):
        score.reset()
        try:
            with np.errstate(all="ignore"):
                score.learn({k: arrays.to_numpy(v) for k, v in stats[i].items()})
            # Infinity can be learned: it is the threshold below which all rows lie.
            if any(np.isnan(getattr(score, name)).any() for name in score.learned):
                for name in score.learned:
                    delattr(score, name)
                raise GdscoreError(score.overflow_message())
            score._reference = layouts[i]
        except GdscoreError as error:
            failures[score.name] = str(error)
    return failures


def _reference_chunks(reference: Outputs | Iterable[Outputs] | None, fitting: list[Score]) -> Iterator[Outputs]:
    cutter = Rechunker(CHUNK_ROWS)
    for outputs in stream(reference, "reference"):
        for score in fitting:
            _check_arrays(f"`{score.name}` needs a reference with", score.reference_inputs, outputs)
        yield from cutter.push(outputs)
    rest = cutter.rest()
    if rest is not None:
        yield rest


def _check_arrays(needs: str, inputs: frozenset[str], outputs: Outputs) -> None:
    missing = sorted(inputs - outputs.has)
    if missing:
        held = ", ".join(outputs.arrays)
        raise GdscoreError(f"{needs} `{'`, `'.join(missing)}`, but the outputs hold only {held}. {how_to_get(missing)}")


def option_names(cls: type[Score]) -> list[str]:
    """Names of a score's options: the parameters of its constructor."""
    return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]


def read_options(state: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Name and options of the score that a state belongs to."""
    with _refuse_damaged():
        written, name, options = str(state["format"]), str(state["name"]), dict(json.loads(str(state["options"])))
    if written != _FORMAT:
        raise GdscoreError(f"Expected a {_FORMAT}, but got {shown(written)}")
    return name, options


class _RowLayout(NamedTuple):
    """Arrays that hold what a score reads (ids included), their counts, the decision and the names of the classes."""

    arrays: frozenset[str]
    counts: Mapping[str, int | None]
    decision: str  # empty where no logits are read
    class_names: tuple[str, ...] | None

    @classmethod
    def of(cls, rows: Outputs, inputs: Collection[str]) -> _RowLayout:
        """Layout of the arrays that a score with these inputs reads."""
        counts = {what: getattr(rows, what) for what, name in _COUNTED_IN.items() if name in inputs}
        decided = (rows.decision, rows.class_names) if "logits" in inputs else ("", None)
        return cls(frozenset(rows.only(inputs).arrays), counts, *decided)

    def check_like(self, other: _RowLayout, where: str) -> None:
        """Refuse rows that differ from others, read for other arrays perhaps, in what both have."""
        for what in self.counts.keys() & other.counts.keys():
            expected, count = other.counts[what], self.counts[what]
            if count != expected:
                raise GdscoreError(f"Expected {expected} {what.removeprefix('n_')} as in {where}, but got {count}")
        if self.decision and other.decision:
            same_decision(other.decision, self.decision, where)
        same_class_names(other.class_names, self.class_names)

    def joined(self, before: _RowLayout | None, where: str = "the rows before") -> _RowLayout:
        """Layout of these rows and those before, which must agree."""
        if before is None:
            return self
        self.check_like(before, where)
        if self.arrays != before.arrays:
            raise GdscoreError(
                f"Expected the arrays to stay {sorted(before.arrays)} as in {where}, but got {sorted(self.arrays)}"
            )
        return self._replace(class_names=before.class_names or self.class_names)

    @staticmethod
    def to_json(layout: _RowLayout | None) -> str:
        """Layout as text, or that there is none."""
        return json.dumps(layout and layout._asdict(), default=sorted)

    @classmethod
    def from_json(cls, text: Any) -> _RowLayout | None:
        """Layout that `to_json` made text of."""
        facts = json.loads(str(text))
        if facts is None:
            return None
        names = facts["class_names"]
        return cls(frozenset(facts["arrays"]), facts["counts"], facts["decision"], names and tuple(names))


@contextlib.contextmanager
def _refuse_damaged() -> Iterator[None]:
    """Context in which something missing or of another kind means that the state is damaged."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise GdscoreError(f"Expected the complete state of a score, but it is damaged: {shown(error)}") from None
