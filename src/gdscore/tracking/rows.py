"""The rows of windows and their labels: how they come in, what labels show of each segment, and all of it as a file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore._classes import ClassLabels, list_of
from gdscore._files import PathLike
from gdscore._records import ArraySpec, Number, OneOf, RecordSchema, check_json, read_record, record_to_bytes
from gdscore._stream import Batch, columns_of, in_order, segment_codes, segment_from_text, segment_to_text
from gdscore.errors import GdscoreError, shown
from gdscore.estimator import AccuracyEstimator
from gdscore.labeling.choice import FingerprintSum
from gdscore.labeling.labelled import variance_ratio
from gdscore.labeling.rows import COULD_NOT_TELL, NOT_LABELLED, LabelRows, as_classes, classes_of
from gdscore.outputs import Outputs
from gdscore.tracking.windows import FACTS, CommonError, TrackedWindow, shown_time

if TYPE_CHECKING:
    from typing import Self

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Version:
    """What a version of the model is like on its reference."""

    reference_accuracy: float
    class_names: tuple[str, ...] | None
    mix: tuple[float, ...]
    """Shares of the classes."""

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.mix)

    @classmethod
    def of(cls, est: AccuracyEstimator) -> Version:
        """Of a fitted estimator."""
        return cls(est.reference_accuracy_, est.class_names_, tuple(est.fitted_.correction.profile.mix.tolist()))


@dataclass
class Group:
    """A window with its rows, while they are kept, and its segments; one without segments has the segment None."""

    fingerprint: str
    version: int
    segments: dict[Any, TrackedWindow]
    # Shape (n,), None once they are forgotten: predicted classes, labels (negative where there is none), and the number
    # of each row's segment in the order of `segments`, which is None without segments.
    predictions: NDArray[Any] | None = None
    labels: NDArray[Any] | None = None
    codes: NDArray[Any] | None = None
    common: CommonError = field(default_factory=CommonError)

    def keep_rows(self, rows: WindowRows) -> None:
        """Keep the predicted class of each row, and its segment."""
        self.predictions, self.codes = rows.predictions, rows.codes if rows.names else None

    def forget_rows(self) -> None:
        """Keep only what labels have shown of the segments."""
        self.predictions = self.labels = self.codes = None

    @property
    def n_rows(self) -> int:
        """Rows of all segments."""
        return sum(segment.n_rows for segment in self.segments.values())

    def holds(self, rows: WindowRows) -> bool:
        """Whether these are its rows, in the same segments."""
        same = self.fingerprint == rows.fingerprint and list(self.segments) == rows.keys
        return same and (self.codes is None or np.array_equal(self.codes, rows.codes))

    @property
    def is_labelled(self) -> bool:
        """Whether there is a label, or an accuracy."""
        return self.common.labels > 0

    @property
    def is_complete(self) -> bool:
        """Whether all labels are known."""
        return all(segment.is_complete for segment in self.segments.values())


class WindowRows:
    """Rows of a window as they come: what an estimate needs of them, and the predicted class of each."""

    def __init__(self, est: AccuracyEstimator, names: tuple[str, ...] | None) -> None:
        self._est, self._names = est, names
        self._mark = FingerprintSum()
        self._numbers: dict[Any, int] = {}
        self._predictions: list[NDArray[Any]] = []
        self._codes: list[NDArray[Any]] = []
        self._labels: list[NDArray[Any] | None] = []
        self.state = est.state()
        """State of all rows."""

    def update(self, outputs: Outputs | Batch, by: Any = None) -> Self:
        """Take in more rows of the window.

        Parameters
        ----------
        outputs : Outputs or Batch
            With or without labels.
        by : array, column or data frame of columns, optional
            Segment of each row.
        """
        batch = outputs if isinstance(outputs, Batch) else Batch(outputs)
        if by is not None and batch.by:
            raise GdscoreError("Expected `by` or a batch that has segments, but got both")
        part, n_rows = batch.outputs, len(batch.outputs)
        columns = in_order(batch.by if by is None else columns_of(by), self._names)
        self.state.update(part, columns or None)
        self._mark.add(part)
        self._names = tuple(columns)
        keys, place = segment_codes(columns, n_rows) if columns else ([None], np.zeros(n_rows, dtype=np.int64))
        for key in keys:
            self._numbers.setdefault(key, len(self._numbers))
        codes = np.array([self._numbers[key] for key in keys], dtype=np.int64)[place]
        smallest = np.min_scalar_type(max(self._est.n_classes_ - 1, 0))
        self._predictions.append(arrays.to_numpy(part.predictions).astype(smallest))
        self._codes.append(codes)
        self._labels.append(arrays.to_numpy(part.labels) if "labels" in part.has else None)
        return self

    @property
    def n_rows(self) -> int:
        """Rows so far."""
        return self._mark.rows

    @property
    def names(self) -> tuple[str, ...]:
        """Columns that name the segments; none where rows have no segments."""
        return self._names or ()

    @property
    def fingerprint(self) -> str:
        """Hash of the rows."""
        return self._mark.text

    @property
    def keys(self) -> list[Any]:
        """Segments, in the order in which they first came."""
        return list(self._numbers)

    @property
    def predictions(self) -> NDArray[Any]:
        """Predicted class of each row."""
        return np.concatenate(self._predictions)

    @property
    def codes(self) -> NDArray[Any]:
        """Number of each row's segment."""
        return np.concatenate(self._codes).astype(np.min_scalar_type(len(self._numbers)))

    @property
    def labels(self) -> NDArray[Any] | None:
        """Label of each row; None where not all have one."""
        listed = [labels for labels in self._labels if labels is not None]
        return np.concatenate(listed) if len(listed) == len(self._labels) else None


def label_type(classes: int) -> np.dtype[Any]:
    """Smallest type that holds the classes and what stands for no label."""
    return np.dtype(np.int8 if classes <= 2**7 else np.int16 if classes <= 2**15 else np.int32)


def labels_by_row(
    labels: Any, rows: Any, group: Group, version: Version, when: datetime
) -> tuple[Integers, NDArray[Any]]:
    """Rows of a window and their classes, negative where there is none."""
    n_rows = group.n_rows
    if isinstance(rows, LabelRows):
        if rows.n_rows != n_rows or rows.fingerprint != group.fingerprint:
            raise GdscoreError(
                f"Expected rows that `choose` drew from the outputs of the window of {shown_time(when)}, but they were "
                "drawn from others: is the time right?"
            )
        return rows.rows, as_classes(labels, rows, version.classes, version.class_names)
    if isinstance(labels, Mapping):
        if rows is not None:
            raise GdscoreError("Expected labels in the order of `rows`, but got a mapping: leave out `rows`")
        rows, labels = list(labels), list(labels.values())
    place = np.arange(n_rows) if rows is None else _row_numbers(rows, n_rows, when)
    if rows is None and hasattr(labels, "index") and hasattr(labels, "to_dict"):
        index = np.asarray(labels.index)
        # A column that was sorted in another way tells by its index which row is which.
        if index.dtype.kind in "iu" and np.array_equal(np.sort(index), place):
            place = index.astype(np.int64)
    values = arrays.to_numpy(labels) if arrays.is_array(labels) else labels
    values = values.to_numpy() if hasattr(values, "to_numpy") else values
    values = values if isinstance(values, np.ndarray) else list_of(values)
    if values is None or np.ndim(values[:1]) != 1 or len(values) != len(place):
        of_window = f"each of the {n_rows:,} rows of the window of {shown_time(when)}, or `rows` that name some of them"
        raise GdscoreError(
            f"Expected a label for {of_window if rows is None else f'{len(place):,} rows'}, None where there is none "
            f"yet, but got {shown(labels) if values is None else ' × '.join(map(str, np.shape(values)))}"
        )
    rule = ClassLabels(version.class_names, version.classes)
    if isinstance(values, np.ndarray) and values.dtype.kind in "iu" and rule.integers_are_positions:
        if len(values) and not 0 <= int(values.min()) <= int(values.max()) < version.classes:
            raise GdscoreError(
                f"Expected labels to be classes from 0 to {version.classes - 1}, but they range from {values.min()} to "
                f"{values.max()}"
            )
        return place, values
    listed = values.tolist() if isinstance(values, np.ndarray) else values
    return place, classes_of(listed, version.classes, version.class_names)


def _row_numbers(rows: Any, n_rows: int, when: datetime) -> Integers:
    numbers = np.asarray(arrays.to_numpy(rows) if arrays.is_array(rows) else rows)
    if numbers.dtype == bool and numbers.shape == (n_rows,):
        return np.flatnonzero(numbers)
    if numbers.size == 0:
        return np.zeros(0, dtype=np.int64)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise GdscoreError(f"Expected row numbers of the window, counted from 0, but got {shown(rows)}")
    if numbers.min() < 0 or numbers.max() >= n_rows:
        wrong = int(numbers.max()) if numbers.max() >= n_rows else int(numbers.min())
        raise GdscoreError(
            f"Expected rows from 0 to {n_rows - 1:,}, as the window of {shown_time(when)} has {n_rows:,}, but got "
            f"{wrong:,}"
        )
    if len(np.unique(numbers)) < len(numbers):
        raise GdscoreError("Expected every row once, but one is named twice: give one label for each row")
    return numbers.astype(np.int64)


def counts_by_segment(
    predictions: NDArray[Any],
    labels: NDArray[Any],
    codes: NDArray[Any] | None,
    segments: int,
    classes: int,
    design: LabelRows | None = None,
) -> list[dict[str, Any]]:
    """What labels show of each segment, as fields of `TrackedWindow`; ``design`` where `choose` drew their rows."""
    counts = []
    for segment in range(segments):
        rows = slice(None) if codes is None else codes == segment
        y, predicted = labels[rows], predictions[rows]
        labelled, unsure = y >= 0, int((y == COULD_NOT_TELL).sum())
        n_labels, ratio = int(labelled.sum()), 1.0
        if design is not None and design.design == "stratified":
            drawn = design.rows[np.argsort(design.ranks)]
            drawn = drawn[labels[drawn] != NOT_LABELLED]
            drawn = drawn if codes is None else drawn[codes[drawn] == segment]
            # With other rows or unknown ones the gain of the design is not known.
            if n_labels == len(drawn) and not unsure:
                ratio = float(variance_ratio(predictions[drawn] == labels[drawn]))
        right = float((y[labelled] == predicted[labelled]).sum())
        by_class = np.bincount(y[labelled], minlength=classes).tolist() if n_labels else []
        counts.append({"n_labels": n_labels, "n_right": right, "unsure": unsure, "ratio": ratio, "classes": by_class})
    return counts


# -- as a file ------------------------------------------------------------------------------------------------

_PARTS = ("predictions", "labels", "codes")
_SCHEMA = RecordSchema(
    format="gdscore tracker",
    version=1,
    header={
        "level": Number(above=0, most=0.999),
        "keep": OneOf(None, Number(above=0)),
        "zoned": OneOf(None, True, False),
        "names": OneOf(None, [str]),
        "versions": [
            {
                "reference_accuracy": Number(least=0, most=1),
                "class_names": OneOf(None, [str]),
                "mix": [Number(least=0, most=1)],
            }
        ],
    },
    arrays={
        "estimator": ArraySpec("i", ("bytes",), least=0, most=255),
        "windows": ArraySpec("i", ("characters",), least=0, most=255),  # JSON
        "lengths": ArraySpec("i", ("windows", len(_PARTS)), least=0),
        "predictions": ArraySpec("i", ("predictions",), least=0),
        "labels": ArraySpec("i", ("labels",)),
        "codes": ArraySpec("i", ("codes",), least=0),
    },
    least_sizes=dict.fromkeys(("windows", *_PARTS), 0),
)
_GROUP = {"fingerprint": str, "version": Number(least=0, integer=True), "segments": {str: FACTS}}


def to_bytes(
    header: dict[str, Any], estimator: bytes, versions: Sequence[Version], groups: dict[datetime, Group]
) -> bytes:
    """Bytes of a tracker."""
    windows = [
        {
            "fingerprint": group.fingerprint,
            "version": group.version,
            "segments": {segment_to_text(key): window.to_dict() for key, window in group.segments.items()},
        }
        for group in groups.values()
    ]
    parts = {name: [getattr(group, name) for group in groups.values()] for name in _PARTS}
    lengths = [[0 if part is None else len(part) for part in parts[name]] for name in _PARTS]
    empty = np.zeros(0, dtype=np.int64)
    contents = {
        "estimator": np.frombuffer(estimator, dtype=np.uint8),
        "windows": np.frombuffer(json.dumps(windows, allow_nan=False).encode(), dtype=np.uint8),
        "lengths": np.array(lengths, dtype=np.int64).T,
        **{
            name: np.concatenate([part for part in listed if part is not None] or [empty])
            for name, listed in parts.items()
        },
    }
    return record_to_bytes(_SCHEMA, {**header, "versions": [vars(version) for version in versions]}, contents)


def load(source: PathLike | bytes) -> tuple[dict[str, Any], bytes, list[Version], dict[datetime, Group]]:
    """What `to_bytes` was given, from a file or from its bytes; anything that does not fit together is refused."""
    header, contents, _ = read_record(source, _SCHEMA)
    versions = [
        Version(facts["reference_accuracy"], facts["class_names"] and tuple(facts["class_names"]), tuple(facts["mix"]))
        for facts in header["versions"]
    ]
    try:
        windows = json.loads(contents["windows"].astype(np.uint8).tobytes())
        check_json(windows, [_GROUP], "the windows of a tracker")
        ends = np.cumsum(contents["lengths"], axis=0)
        if len(ends) != len(windows) or (len(ends) and ends[-1].tolist() != [len(contents[name]) for name in _PARTS]):
            raise ValueError("parts do not add up")
        parts = [np.split(contents[name], ends[:-1, i]) for i, name in enumerate(_PARTS)]
        groups = [_read_group(facts, versions, *rows) for facts, *rows in zip(windows, *parts, strict=bool(windows))]
        times = [next(iter(group.segments.values())).time for group in groups]
        if any(later <= earlier for earlier, later in pairwise(times)):
            raise ValueError("windows are not in order of time")
    except (ValueError, OverflowError, IndexError, TypeError, StopIteration) as error:
        raise GdscoreError(
            f"Expected windows and rows that fit together in a tracker, but they do not ({error}): the file is damaged"
        ) from error
    return header, contents["estimator"].astype(np.uint8).tobytes(), versions, dict(zip(times, groups, strict=True))


def _read_group(facts: dict[str, Any], versions: list[Version], *rows: NDArray[Any]) -> Group:
    segments = {segment_from_text(text): TrackedWindow.from_dict(one) for text, one in facts["segments"].items()}
    parts = dict(zip(_PARTS, (part if len(part) else None for part in rows), strict=True))
    group = Group(facts["fingerprint"], facts["version"], segments, **parts, common=CommonError.of(segments.values()))
    classes = versions[group.version].classes
    most = (classes, classes, len(segments))
    if (
        any(
            part is not None and (len(part) != group.n_rows or part.max() >= m)
            for part, m in zip(parts.values(), most, strict=True)
        )
        or any(window.classes and len(window.classes) != classes for window in segments.values())
        or len({window.time for window in segments.values()}) > 1
    ):
        raise ValueError("a window contradicts itself")
    return group
