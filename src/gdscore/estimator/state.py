"""`TargetState`: all that an estimate needs of a target, by segment; parts of a target merge exactly, also as bytes.

All of it are sums of numbers on a binary grid (see `gdscore.estimator.evidence`), that is, of integers. The sums of a
segment are one long vector of slots, of which a small segment fills few, and only those are kept. Merging adds
integers: it is exact, and the same bit for bit in any order.

The bytes are those of a file of arrays (`gdscore._files`): a header in JSON, and the slots, each with a checksum.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from gdscore import _arrays as arrays
from gdscore._drift import BINS
from gdscore._files import DEFAULT_LIMITS, arrays_to_bytes, read_arrays
from gdscore._records import Number, OneOf, check_json
from gdscore._stream import (
    Batch,
    columns_of,
    in_order,
    kind_of,
    segment_codes,
    segment_from_json,
    segment_to_json,
)
from gdscore.calibration import confidence_bins
from gdscore.errors import GdscoreError, shown
from gdscore.estimator.evidence import (
    CENTRES,
    CONFIDENCE_BINS,
    GRID,
    Evidence,
    Rows,
    bins_of,
    group_of_bin,
    groups_of,
    in_steps,
)
from gdscore.estimator.fitted import Fitted
from gdscore.outputs import Outputs, same_class_names, same_decision
from gdscore.scores.base import Score
from gdscore.scores.registry import restore_score

Integers = NDArray[np.int64]

_HEADER: dict[str, Any] = {
    "format": "gdscore target state, version 7",
    "estimator": str,
    "classes": Number(least=2, most=2**31, integer=True),
    "evidence": Number(least=1, most=64, integer=True),
    "columns": Number(least=0, most=2**20, integer=True),
    "by": OneOf(None, [str]),
    "scores": [Number(least=0, most=2**40, integer=True)],
}
_HELD = 1 << 18
"""Slots that are held before they are added up."""
_DENSE = 1 << 21
"""Slots, filled or not, up to which they are added up in an array of all slots: quicker than sorting them."""


class Truth(NamedTuple):
    """Rows of a segment that have labels, and those among them that are predicted correctly."""

    n_rows: int
    n_correct: int

    @property
    def accuracy(self) -> float | None:
        """Share of correct rows; None without labels."""
        return self.n_correct / self.n_rows if self.n_rows else None


@dataclass(frozen=True)
class _Layout:
    """Where in a segment's vector each sum stands; ``other_model`` is 1 where outputs come from another model."""

    classes: int
    evidence: int
    columns: int

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Slots of each sum, in order."""
        bins = len(CENTRES)
        return {
            "rows": 1,
            "other_model": 1,
            "labelled": 1,
            "correct": 1,
            "total": self.evidence,
            "histogram": self.classes * bins,
            "odds": bins,
            "others": self.classes**2 * groups_of(self.classes),
            "losses": 2 * bins,
            "confident_rows": CONFIDENCE_BINS,
            "confidence": CONFIDENCE_BINS,
            "columns": self.columns * BINS,
        }

    @cached_property
    def width(self) -> int:
        """Slots of a segment."""
        return sum(self.sizes.values())

    @cached_property
    def starts(self) -> dict[str, int]:
        """First slot of each sum."""
        ends = np.cumsum(list(self.sizes.values()))
        return {name: int(end) - size for (name, size), end in zip(self.sizes.items(), ends, strict=True)}

    def of_rows(
        self,
        rows: Rows,
        others: NDArray[Any],
        losses: NDArray[Any],
        correct: NDArray[np.bool_] | None,
        segment: Integers,
        segments: int,
    ) -> tuple[Integers, Integers]:
        """Filled slots of some rows: their numbers, counted through the segments, and what is in them.

        ``others`` are the probabilities of the classes that are not predicted, ``losses`` those of each row if it is
        correct or wrong, ``correct`` tells which rows are where labels are known, ``segment`` has the number of each
        row's segment.
        """
        count, bins, starts = len(rows.predicted), len(CENTRES), self.starts
        index, level = bins_of(rows.calibrated), confidence_bins(rows.confidence, CONFIDENCE_BINS)
        base, one = segment * self.width, np.ones(count)
        parts = [
            (base, one),
            (base[:, None] + starts["total"] + np.arange(self.evidence), in_steps(rows.evidence)),
            (base + starts["histogram"] + rows.predicted * bins + index, one),
            (base + starts["odds"] + index, in_steps(rows.calibrated)),
            ((base + starts["losses"] + index)[:, None] + bins * np.arange(2), in_steps(losses)),
            (base + starts["confident_rows"] + level, one),
            (base + starts["confidence"] + level, in_steps(rows.confidence)),
        ]
        if correct is not None:
            parts += [(base + starts["labelled"], one), (base + starts["correct"], correct.astype(np.float64))]
        # Rows of one segment, predicted class and group are added up before they become slots: there are K of each.
        groups = groups_of(self.classes)
        group = rows.predicted * groups + group_of_bin(groups)[index]
        present, member = np.unique(segment * self.classes * groups + group, return_inverse=True)
        members = csr_array((one, member.reshape(-1), np.arange(count + 1)), shape=(count, len(present)))
        segment_of_group, group = np.divmod(present, self.classes * groups)
        at = segment_of_group * self.width + starts["others"] + group * self.classes
        parts.append((at[:, None] + np.arange(self.classes), members.T @ in_steps(others)))
        where = np.concatenate([place.ravel() for place, _ in parts])
        values = np.concatenate([value.ravel() for _, value in parts])
        if segments * self.width <= _DENSE:
            sums = np.bincount(where, weights=values)
            filled = np.flatnonzero(sums)
            return filled, sums[filled].astype(np.int64)
        return _sorted_sums(where, values.astype(np.int64))

    def with_segments(self, at: Integers, numbers: Integers) -> Integers:
        """Slots where the segments have other numbers."""
        segment, slot = np.divmod(at, self.width)
        return np.asarray(numbers[segment] * self.width + slot)

    def sums(self, dense: Integers) -> dict[str, Integers]:
        """Sums of one segment by name."""
        return {name: dense[start : start + self.sizes[name]] for name, start in self.starts.items()}


_layout = lru_cache(maxsize=16)(_Layout)
"""Layouts, whose sizes are worked out once."""


class TargetState:
    """What an estimate needs of a target: sums over its rows by segment, which merge in any order.

    `AccuracyEstimator.state` makes one, `AccuracyEstimator.estimate` makes an estimate of it. One that
    `TargetState.from_bytes` has read can be merged and estimated; only a state made by an estimator takes in rows.

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> rng = np.random.default_rng(0)
    >>> z = 3 * np.eye(4)[rng.integers(0, 4, 3000)] + rng.normal(size=(3000, 4))
    >>> labels = (z + rng.normal(size=z.shape)).argmax(1)
    >>> est = gdscore.AccuracyEstimator().fit(gdscore.Outputs(logits=z, labels=labels))
    >>> parts = [gdscore.Outputs(logits=z[i : i + 1000]) for i in (0, 1000, 2000)]
    >>> sent = [est.state().update(part).to_bytes() for part in parts]  # anywhere
    >>> state = est.state()
    >>> for data in sent:
    ...     state = state.merge(est.state(data))
    >>> est.estimate(state) == est.estimate(parts)
    True
    """

    def __init__(self, fitted: Fitted) -> None:
        profile = fitted.correction.profile
        columns = 0 if fitted.table_profile is None else len(fitted.table_profile.names)
        self._start(fitted, "", _layout(len(profile.mix), len(profile.mean), columns))

    def _start(self, fitted: Fitted | None, digest: str, layout: _Layout) -> None:
        self._fitted, self._digest, self._layout = fitted, digest, layout
        self.by: tuple[str, ...] | None = None
        """Columns that name the segments; none where rows have no segments, None before the first rows."""
        self._numbers: dict[Any, int] = {}
        self._held: list[tuple[Integers, Integers]] = []
        self._n_held = 0
        self._scores: dict[Any, Score] = {}

    @property
    def digest(self) -> str:
        """Digest of the estimator that the state belongs to."""
        return self._digest if self._fitted is None else self._fitted.digest

    @property
    def segments(self) -> list[Any] | None:
        """Segments seen so far; None where rows have none."""
        return list(self._numbers) if self.by else None

    @property
    def n_rows(self) -> int:
        """Rows seen."""
        at, values = self._summed()
        return int(values[at % self._layout.width == 0].sum())

    def __repr__(self) -> str:
        segments = f", {len(self._numbers):,} segments" if self.by else ""
        return f"TargetState({self.n_rows:,} rows{segments})"

    def update(self, outputs: Outputs | Batch, by: Any = None, inputs: Any = None) -> Self:
        """Take in more rows; where they are refused, none of them counts.

        Parameters
        ----------
        outputs : Outputs or Batch
            Outputs of the target; a batch of `gdscore.io.read_batches` has the segments of its rows with it. Labels,
            where there are any, are counted for `truth` and never enter an estimate.
        by : array, column or data frame of columns, optional
            Segment of each row: a value, or a tuple of values where there are several columns.
        inputs : data frame or matrix, optional
            Inputs of the same rows, for ``Estimate.drift``.
        """
        batch = outputs if isinstance(outputs, Batch) else Batch(outputs)
        if by is not None and batch.by:
            raise GdscoreError("Expected `by` or a batch that has segments, but got both")
        part, columns = batch.outputs, batch.by if by is None else columns_of(by)
        fitted = self._fitted
        if fitted is None:
            raise GdscoreError("Expected a state that an estimator made, but it was read from bytes: merge them")
        check_outputs(fitted, part)
        columns, rows = in_order(columns, self.by), len(part)
        keys, codes = segment_codes(columns, rows) if columns else ([None], np.zeros(rows, dtype=np.int64))
        filled, start, layout = [], 0, self._layout
        labels = arrays.to_numpy(part.labels) if "labels" in part.has else None
        # A score has a softmax of its own: no third one.
        for evidence, others, losses in fitted.correction.profile.chunks(part, brier=fitted.score is None):
            span = slice(start, start + len(others))
            numbers, segment = (
                (codes[:1], codes[span]) if len(keys) == 1 else np.unique(codes[span], return_inverse=True)
            )
            correct = None if labels is None else evidence.predicted == labels[span]
            at, values = layout.of_rows(evidence, others, losses, correct, segment.reshape(-1), len(numbers))
            filled.append((at if len(keys) == 1 else layout.with_segments(at, numbers), values))
            start = span.stop
        if inputs is not None:
            filled.append(self._column_slots(fitted, inputs, codes))
        if fitted.fingerprint is not None:
            other = np.flatnonzero(fitted.fingerprint.differs(part, codes, len(keys)))
            filled.append((other * layout.width + layout.starts["other_model"], np.ones(len(other), dtype=np.int64)))
        if fitted.score is not None:
            for number, key in enumerate(keys):
                # A copy of its own, so that several states can be filled at once.
                score = self._scores.setdefault(key, copy(fitted.score).reset())
                score.update(part if len(keys) == 1 else part[np.flatnonzero(codes == number)])
        self._add(keys, tuple(columns), filled)
        return self

    def _column_slots(self, fitted: Fitted, inputs: Any, codes: Integers) -> tuple[Integers, Integers]:
        """Filled slots of the columns of inputs."""
        if fitted.table_profile is None:
            raise GdscoreError(
                "Expected `inputs` with an estimator that fit_predictor has fitted on a table, but this one knows none"
            )
        bins = fitted.table_profile.bins(inputs)
        if len(bins) != len(codes):
            raise GdscoreError(f"Expected `inputs` of the same {len(codes)} rows, but got {len(bins)}")
        place = self._layout.starts["columns"] + np.arange(bins.shape[1]) * BINS
        at, values = np.unique((codes * self._layout.width)[:, None] + place + bins, return_counts=True)
        return at, values.astype(np.int64)

    def merge(self, other: TargetState) -> Self:
        """Take in the rows of another state of the same estimator, which stays as it is."""
        if not isinstance(other, TargetState) or other is self:
            came = "the same one: its rows would count twice" if other is self else kind_of(other)
            raise GdscoreError(f"Expected another state of a target to merge, but got {came}")
        other.check_like(self)
        if other.by is None:
            return self
        if self.by not in (None, other.by):
            raise GdscoreError(
                f"Expected a state with segments by the same columns, {list(self.by or ())}, but got "
                f"{list(other.by)}: give the same columns in the same order with all rows"
            )
        for key, score in other._scores.items():
            self._scores[key] = (self._scores[key] if key in self._scores else copy(score).reset()).merge(score)
        self._add(list(other._numbers), other.by, other._held)
        return self

    def truth(self) -> dict[Any, Truth]:
        """Rows with labels and those predicted correctly, by segment; the one of a state without segments is None."""
        counts = np.zeros((len(self._numbers), 2), dtype=np.int64)
        at, values = self._summed()
        for which, name in enumerate(("labelled", "correct")):
            of_name = at % self._layout.width == self._layout.starts[name]
            counts[at[of_name] // self._layout.width, which] = values[of_name]
        return {key: Truth(*pair) for key, pair in zip(self._numbers, counts.tolist(), strict=True)}

    def of_segment(self, key: Any) -> TargetState:
        """State of the rows of one segment alone, as rows without segments."""
        at, values = self._summed()
        first = self._numbers[key] * self._layout.width
        span = slice(*np.searchsorted(at, [first, first + self._layout.width]))
        state = TargetState.__new__(TargetState)
        state._start(self._fitted, self._digest, self._layout)
        state._add([None], (), [(at[span] - first, values[span])])
        if key in self._scores:
            state._scores[None] = copy(self._scores[key]).reset().merge(self._scores[key])
        return state

    def by_segment(self) -> Iterator[tuple[Any, Evidence]]:
        """Sums of each segment; the one of a state without segments is None."""
        layout, (at, values) = self._layout, self._summed()
        ends = np.searchsorted(at, np.arange(len(self._numbers) + 1) * layout.width)
        for number, key in enumerate(self._numbers):
            dense = np.zeros(layout.width, dtype=np.int64)
            span = slice(ends[number], ends[number + 1])
            dense[at[span] - number * layout.width] = values[span]
            sums = layout.sums(dense)
            real = {name: np.asarray(values * GRID, dtype=np.float64) for name, values in sums.items()}
            evidence = Evidence(
                rows=int(sums["rows"][0]),
                total=real["total"],
                histogram=sums["histogram"].reshape(layout.classes, -1).astype(np.float64),
                odds=real["odds"],
                others=real["others"].reshape(-1, layout.classes),
                confidence=np.stack([sums["confident_rows"], real["confidence"]]),
                losses=real["losses"].reshape(2, -1),
                columns=sums["columns"].reshape(layout.columns, BINS),
                same_model=not sums["other_model"][0],
                score=self._scores.get(key),
            )
            yield key, evidence

    def check_like(self, other: TargetState) -> None:
        """Refuse the state of another estimator than the other's, or of one that was fitted again since."""
        if (self._fitted is None or self._fitted is not other._fitted) and self.digest != other.digest:
            raise GdscoreError(
                "Expected a state of this estimator, but it was made by another one, or before the last fit: make it "
                "again with state()"
            )

    def _add(self, keys: Sequence[Any], by: tuple[str, ...], filled: Sequence[tuple[Integers, Integers]]) -> None:
        numbers = np.array([self._numbers.setdefault(key, len(self._numbers)) for key in keys], dtype=np.int64)
        self.by = by
        same = np.array_equal(numbers, np.arange(len(keys)))
        self._held += filled if same else [(self._layout.with_segments(at, numbers), values) for at, values in filled]
        self._n_held += sum(len(at) for at, _ in filled)
        if self._n_held > _HELD:
            self._summed()
            self._n_held = 0

    def _summed(self) -> tuple[Integers, Integers]:
        """Filled slots in rising order, each once."""
        if len(self._held) != 1:
            size = len(self._numbers) * self._layout.width
            if size <= _DENSE or size <= 4 * sum(len(at) for at, _ in self._held):
                dense = np.zeros(size, dtype=np.int64)
                for at, values in self._held:
                    dense[at] += values
                filled = np.flatnonzero(dense)
                self._held = [(filled, dense[filled])]
            else:
                self._held = [_sorted_sums(*map(np.concatenate, zip(*self._held, strict=True)))]
        return self._held[0]

    # -- bytes ------------------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """State as bytes: equal for equal rows, in whatever order they came. No pickle."""
        layout, (at, values) = self._layout, self._summed()
        texts = {key: json.dumps(segment_to_json(key)) for key in self._numbers}
        order = sorted(texts, key=texts.__getitem__)
        places = dict(zip(order, range(len(order)), strict=True))
        numbers = np.array([places[key] for key in self._numbers], dtype=np.int64)
        if len(order) > 1:
            at, values = _sorted_sums(layout.with_segments(at, numbers), values)
        # How many parts were of another model depends on how the rows were cut into parts.
        values = np.where(at % layout.width == layout.starts["other_model"], 1, values)
        packed = np.stack([np.diff(at, prepend=0), values])
        small = not packed.size or np.abs(packed).max() < 2**31
        # Rows that fill no chunk of a score become part of its sums: what merging would do anyway.
        scores = [copy(s).reset().merge(s) for s in (self._scores[key] for key in order if key in self._scores)]
        saved = [arrays_to_bytes(score.state_dict()) for score in scores]
        header = {
            "format": _HEADER["format"],
            "estimator": self.digest,
            "classes": layout.classes,
            "evidence": layout.evidence,
            "columns": layout.columns,
            "by": None if self.by is None else list(self.by),
            "scores": [len(score) for score in saved],
        }
        arrays_of_bytes = {
            "header": json.dumps(header).encode(),
            "segments": f"[{','.join(texts[key] for key in order)}]".encode() if self.by else b"[]",
            "scores": b"".join(saved),
        }
        return arrays_to_bytes(
            {name: np.frombuffer(raw, np.uint8) for name, raw in arrays_of_bytes.items()}
            | {"slots": packed.astype(np.int32 if small else np.int64)}
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """State that `to_bytes` wrote, all of it checked."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise GdscoreError(f"Expected the bytes of a target state, but got {type(data).__name__}")
        state = cls.__new__(cls)
        try:
            limits = replace(DEFAULT_LIMITS, memory=max(DEFAULT_LIMITS.memory, 2 * len(data)))
            state._read(read_arrays(bytes(data), limits=limits))
        except (KeyError, AttributeError, ValueError, TypeError, RecursionError, OverflowError) as error:
            raise GdscoreError(
                f"Expected the bytes of a target state as they were made, but they are others ({shown(error)}): make "
                "the state again"
            ) from error
        return state

    def _read(self, contents: Mapping[str, Any]) -> None:
        header, slots = json.loads(contents["header"].tobytes()), contents["slots"]
        check_json(header, _HEADER, "the header of the state")
        _require(slots.ndim == 2 and len(slots) == 2 and slots.dtype.kind == "i", "two rows of whole numbers")
        steps, values = slots.astype(np.int64)
        layout = _layout(header["classes"], header["evidence"], header["columns"])
        at, by = np.cumsum(steps), header["by"]
        listed = json.loads(contents["segments"].tobytes()) if by else []
        _require(isinstance(listed, list), "a list of segments")
        keys = [None] if by == [] else [segment_from_json(item) for item in listed]
        self._start(None, header["estimator"], layout)
        self.by = None if by is None else tuple(by)
        self._numbers = {key: number for number, key in enumerate(keys)}
        _require(len(self._numbers) == len(keys), "segments that differ")
        _require(not len(at) or bool(steps[0] >= 0 and (steps[1:] > 0).all()), "slots in rising order")
        _require(not len(at) or at[-1] < len(keys) * layout.width, "slots within its segments")
        negative = at[values < 0] % layout.width
        fits = np.zeros(len(negative), dtype=bool)
        for name in ("total", "odds"):
            fits |= (negative >= layout.starts[name]) & (negative < layout.starts[name] + layout.sizes[name])
        _require(bool(fits.all()), "counts that are not negative")
        _require(len(header["scores"]) in (0, len(keys)), "a saved score for each segment")
        self._held = [(at, values)]
        ends = np.cumsum([0, *header["scores"]]).tolist()
        for key, first, last in zip(keys, ends, ends[1:], strict=False):
            self._scores[key] = restore_score(read_arrays(contents["scores"][first:last].tobytes()))


def check_outputs(fitted: Fitted, outputs: Any) -> None:
    """Refuse what is no `Outputs`, or has other classes or features than the reference."""
    if not isinstance(outputs, Outputs):
        raise GdscoreError(f"Expected `gdscore.Outputs`, but got {kind_of(outputs)}")
    if "logits" not in outputs.has:
        raise GdscoreError("Expected outputs with logits or probabilities, but these have neither")
    outputs.check_values()
    same_class_names(fitted.class_names, outputs.class_names)
    same_decision(fitted.decision, outputs.decision, "the reference that the estimator was fitted on")
    name, centres = fitted.correction.profile.located, fitted.correction.profile.centres
    wanted = [("classes", fitted.n_classes, outputs.n_classes)]
    if centres is not None:
        wanted.append((name, centres.shape[1], outputs.arrays[name].shape[1] if name in outputs.has else None))
    for what, expected, came in wanted:
        if came != expected:
            cure = "are they of another model?"
            if came is None and what == "features":
                cure = "are they of another model, or extracted without features?"
            elif came is None:
                cure = (
                    "it was fitted on the model, so give from_sklearn(model, rows); for logged probabilities fit on "
                    "probabilities: AccuracyEstimator().fit(gdscore.Outputs(probabilities=p, labels=y))"
                )
            raise GdscoreError(
                f"Expected outputs with {expected} {what} as the reference of this estimator has, but they have "
                f"{'none' if came is None else came}: {cure}"
            )


def _sorted_sums(at: Integers, values: Integers) -> tuple[Integers, Integers]:
    """Slots in rising order, each once, without those that are 0."""
    if not len(at):
        return at, values
    order = np.argsort(at, kind="stable")
    at, values = at[order], values[order]
    begins = np.flatnonzero(np.diff(at, prepend=-1))
    sums = np.add.reduceat(values, begins)
    filled = sums != 0
    return at[begins][filled], sums[filled]


def _require(fits: bool, what: str) -> None:
    if not fits:
        raise ValueError(f"it should have {what} and has not")
