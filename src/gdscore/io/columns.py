"""Which columns of a table are which arrays of `Outputs`, and `Outputs` made of their values.

The rules are the same for data frames and for all kinds of files:

- a column is named exactly, several by a list or by a pattern with one ``*``;
- what the stars of a pattern stand for are the names of the classes; numbers among them are put in order;
- where no logits, probabilities, features or inputs are named, columns that have the names of arguments of `Outputs`
  are used;
- what is wrong is named with its row and column, and with the cure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gdscore._checks import MATRICES, OUTPUT_ARRAYS
from gdscore._classes import as_integer, class_positions, list_of
from gdscore._files import Limits
from gdscore._stream import Batch
from gdscore._windows import outside_calendar
from gdscore.errors import GdscoreError, RowError, nearest, shown
from gdscore.outputs import Outputs, checked_threshold

Selection: TypeAlias = str | Sequence[str]
"""A column, a list of columns, or a pattern with one ``*``."""

_NAMED = ("logits", "probabilities", "features", "inputs")
"""Arrays whose columns a caller can name."""


@dataclass(frozen=True)
class Columns:
    """Names of the columns that hold the outputs of a classifier.

    Parameters
    ----------
    logits, probabilities, features, inputs : str or list of str, optional
        A pattern such as ``"prob_*"``, a list of columns, or one column that holds a list per row. A single column of
        numbers is allowed for ``probabilities`` (of class 1 of a binary model), ``features`` and ``inputs``.
    prediction : str, optional
        Column of the classes that the model decided, as ``label``, where they are not those of largest probability.
    threshold : float, optional
        Of a binary model that decides for class 1 where its probability is at least this; instead of ``prediction``.
    label : str, optional
        Column of true classes: integers, booleans, or names of classes.
    id : str, optional
        Column that names the rows: integers or strings.
    time : str, optional
        Column of times: timestamps, dates, or text as in ISO 8601.
    by : str or list of str, optional
        Columns that name the segment of each row: strings, integers or booleans.
    class_names : list of str, optional
        Names of the classes, in the order of the columns; where a pattern's stars are the same names, in any order.

    Examples
    --------
    >>> columns = Columns(probabilities="prob_*", label="y")
    >>> choose_columns(columns, ["y", "prob_10", "prob_9", "other"], "the table").matrices
    {'probabilities': ('prob_9', 'prob_10')}
    """

    logits: Selection | None = None
    probabilities: Selection | None = None
    features: Selection | None = None
    inputs: Selection | None = None
    prediction: str | None = None
    threshold: float | None = None
    label: str | None = None
    id: str | None = None
    time: str | None = None
    by: Selection | None = None
    class_names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            several = field.name in (*_NAMED, "by", "class_names")
            if field.name == "threshold":
                object.__setattr__(self, field.name, None if value is None else checked_threshold(value))
                continue
            if value is None or (isinstance(value, str) and field.name != "class_names"):
                continue
            wanted = "a list of names" if field.name == "class_names" else "the name of a column"
            listed = list_of(value) if several else None
            if listed is None:
                raise GdscoreError(f"Expected `{field.name}` to be {wanted}, but got {shown(value)}")
            names = tuple(str(name) for name in listed)
            if not names or len(set(names)) < len(names):
                raise GdscoreError(f"Expected `{field.name}` to have each name once, but got {shown(list(names))}")
            object.__setattr__(self, field.name, names)
        if self.logits is not None and self.probabilities is not None:
            raise GdscoreError("Expected `logits` or `probabilities`, but got both: give `logits`, they hold more")
        if self.prediction is not None and self.threshold is not None:
            raise GdscoreError("Expected `prediction` or `threshold`, but got both: give the column, it holds more")


@dataclass(frozen=True)
class ColumnType:
    """Type of a column as a table declares it.

    ``kind`` is "f" for floating-point numbers, "i" for integers, "b", "U" for text, "t" for times, "csv" for text that
    is read as what it is used for, or "other"; ``depth`` is the number of levels of lists, ``zoned`` whether times have
    a time zone, None where the type does not tell.
    """

    kind: str
    depth: int
    shown: str
    zoned: bool | None = None


@dataclass(frozen=True)
class Chosen:
    """Columns of one table that are read, by what they are."""

    matrices: dict[str, tuple[str, ...]]
    label: str | None
    id: str | None
    time: str | None
    by: tuple[str, ...]
    class_names: tuple[str, ...] | None
    """From the pattern or given."""
    prediction: str | None = None
    threshold: float | None = None

    @cached_property
    def names(self) -> list[str]:
        """All columns, each once."""
        single = [name for name in (self.prediction, self.label, self.id, self.time) if name is not None]
        return list(dict.fromkeys([*(c for columns in self.matrices.values() for c in columns), *single, *self.by]))

    @cached_property
    def numeric(self) -> frozenset[str]:
        """Columns of numbers."""
        return frozenset(column for columns in self.matrices.values() for column in columns)


def choose_columns(columns: Columns, names: Sequence[str], where: str) -> Chosen:
    """Find the columns in a table that has columns of these names."""
    table = _Names(Counter(names), where)
    selections = {name: getattr(columns, name) for name in _NAMED}
    selections = {name: selection for name, selection in selections.items() if selection is not None}
    stars: list[str] | None = None
    matrices: dict[str, tuple[str, ...]] = {}
    for name, selection in selections.items():
        matrices[name], parts = _selected(name, selection, table)
        if OUTPUT_ARRAYS[name].per_class and len(matrices[name]) > 1:
            stars = parts
    prediction, label, ids = columns.prediction, columns.label, columns.id
    if not selections:
        matrices = _default_matrices(table)
        if prediction is None and columns.threshold is None and matrices.keys() & {"logits", "probabilities"}:
            prediction = _default_name(("prediction", "predictions"), table)
        label = label if label is not None else _default_name(("label", "labels"), table)
        ids = ids if ids is not None else _default_name(("id", "ids"), table)
    by = (columns.by,) if isinstance(columns.by, str) else tuple(columns.by or ())
    named = (("prediction", prediction), ("label", label), ("id", ids), ("time", columns.time))
    for name, column in (*named, *(("by", column) for column in by)):
        if column is not None:
            table.require(name, column)
    class_names = None if columns.class_names is None else tuple(columns.class_names)
    outputs_name = "logits" if "logits" in matrices else "probabilities"
    if stars is not None:
        matrices[outputs_name], class_names = _in_class_order(matrices[outputs_name], stars, class_names, where)
    chosen = Chosen(matrices, label, ids, columns.time, by, class_names, prediction, columns.threshold)
    outputs = frozenset(matrices.get(outputs_name, ()))
    for single, numeric in (*((s, chosen.numeric) for _, s in named), *((s, outputs) for s in by)):
        if single in numeric:
            raise GdscoreError(
                f"Expected {single!r} of {where} to be used once, but it is also among the columns of outputs or "
                "features: give them as a list instead of a pattern"
            )
    return chosen


_CLASS_PER_ROW = "an integer, a boolean or the name of a class per row"


def check_types(chosen: Chosen, types: Mapping[str, ColumnType], where: str) -> None:
    """Refuse columns whose declared type cannot be what they are used for."""
    for name, columns in chosen.matrices.items():
        for column in columns:
            kind = types[column]
            if len(columns) > 1:
                fine, wanted = kind.kind in ("f", "i", "csv") and kind.depth == 0, "a number per row"
            else:
                # Numbers without a fraction in lists are labels or counts more often than outputs.
                floating = kind.kind in ("f", "csv") or (kind.kind == "i" and kind.depth == 0)
                fine = floating and kind.depth in OUTPUT_ARRAYS[name].list_levels
                wanted = "a list of floating-point numbers per row"
            _require_type(fine, wanted, column, kind, where)
    for single, kinds, wanted in (
        *((c, {"i", "b", "U", "f"}, _CLASS_PER_ROW) for c in (chosen.prediction, chosen.label)),
        (chosen.id, {"i", "U"}, "an integer or a string per row"),
        (chosen.time, {"t", "U"}, "a time per row"),
        *((column, {"i", "b", "U"}, "a string, an integer or a boolean per row") for column in chosen.by),
    ):
        if single is not None:
            kind = types[single]
            _require_type(kind.kind in kinds | {"csv"} and kind.depth == 0, wanted, single, kind, where)


def _require_type(fine: bool, wanted: str, column: str, kind: ColumnType, where: str) -> None:
    if not fine:
        cure = ": convert it to numbers" if kind.kind in ("U", "other") and "number" in wanted else ""
        cure = ": convert it to timestamps, or to text as in ISO 8601" if "time" in wanted else cure
        raise GdscoreError(f"Expected `{column}` in {where} to be {wanted}, but its type is {kind.shown}{cure}")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return (", ".join(map(repr, names[:12])) + more) or "nothing"


class _Names(NamedTuple):
    """Names of the columns of a table, with how often each is there."""

    counts: Counter[str]
    where: str

    def require(self, name: str, column: str) -> None:
        count = self.counts[column]
        if count == 0:
            cure = f"there is none: {nearest(column, self.counts)}" if self.counts else "it has no columns"
            raise GdscoreError(f"Expected a column {column!r} for `{name}` in {self.where}, but {cure}")
        if count > 1:
            raise GdscoreError(
                f"Expected one column {column!r} in {self.where}, but there are {count}: rename the others"
            )


def _selected(name: str, selection: Selection, table: _Names) -> tuple[tuple[str, ...], list[str] | None]:
    """Columns of a selection, and what distinguishes them: the parts for the star, or the names in a list."""
    if not isinstance(selection, str):
        for column in selection:
            table.require(name, column)
        return tuple(selection), list(selection)
    if selection in table.counts or selection.count("*") != 1:
        if selection.count("*") > 1 and selection not in table.counts:
            raise GdscoreError(f"Expected a pattern with one `*` for `{name}`, but got {selection!r}")
        table.require(name, selection)
        return (selection,), None
    before, after = selection.split("*")
    matches = [
        column
        for column in table.counts
        if column.startswith(before) and column.endswith(after) and len(column) > len(before) + len(after)
    ]
    if not matches:
        raise GdscoreError(
            f"Expected columns that match {selection!r} for `{name}` in {table.where}, but there are none: it has "
            f"{_listed(list(table.counts))}"
        )
    for column in matches:
        table.require(name, column)
    if OUTPUT_ARRAYS[name].per_class and len(matches) == 1:
        # One column is the second class of two: the pattern may have missed the others.
        raise GdscoreError(
            f"Expected a column for each class that matches {selection!r} for `{name}` in {table.where}, but there is "
            f"{matches[0]!r} alone: name it without * if it holds lists, or the second class of two. There are "
            f"{_listed(list(table.counts))}"
        )
    parts = {column: column[len(before) : len(column) - len(after)] for column in matches}
    order = {column: as_integer(part) for column, part in parts.items()}
    if None not in order.values():
        # Compared as integers, then as text: 1 and 01 are one integer.
        matches.sort(key=lambda column: (order[column], parts[column]))
    return tuple(matches), [parts[column] for column in matches]


def _in_class_order(
    columns: tuple[str, ...], parts: list[str], names: tuple[str, ...] | None, where: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if names is None or names == tuple(parts):
        return columns, tuple(parts)
    if len(names) != len(columns):
        raise GdscoreError(
            f"Expected `class_names` for the {len(columns)} columns {_listed(columns)} of {where}, but got "
            f"{len(names)}: {_listed(names)}"
        )
    if set(names) == set(parts):
        by_part = dict(zip(parts, columns, strict=True))
        return tuple(by_part[name] for name in names), names
    lengths, named = sorted({len(name) for name in names}, reverse=True), set(names)
    ends = [{column[-length:] for length in lengths} & named for column in columns]
    for column, name, fitting in zip(columns, names, ends, strict=True):
        if all(ends) and name not in fitting:
            order = [next(c[-length:] for length in lengths if c[-length:] in named) for c in columns]
            raise GdscoreError(
                f"Expected `class_names` in the order of the columns, but {column!r} of {where} would be of the class "
                f"{name!r}: give the names as {', '.join(order[:12])}"
            )
    return columns, names


def _default_name(valid: tuple[str, ...], table: _Names) -> str | None:
    here = [name for name in dict.fromkeys(valid) for _ in range(table.counts[name])]
    if len(here) > 1:
        raise GdscoreError(
            f"Expected one `{valid[1]}` in {table.where}, but got {' and '.join(map(repr, here))}: drop one"
        )
    return here[0] if here else None


def _default_matrices(table: _Names) -> dict[str, tuple[str, ...]]:
    named: dict[str, tuple[str, ...]] = {name: (name,) for name in MATRICES if _default_name((name, name), table)}
    if not named:
        names = list(table.counts)
        raise GdscoreError(
            f"Expected at least one of {', '.join(map(repr, MATRICES))} in {table.where}, but found {_listed(names)}: "
            + _suggestion(names)
        )
    if "logits" in named and "probabilities" in named:
        raise GdscoreError(
            f"Expected 'logits' or 'probabilities' in {table.where}, but got both: name the one to use, or drop one"
        )
    return named


def _suggestion(names: Sequence[str]) -> str:
    """Name the pattern that the columns look like."""
    counts: dict[str, int] = {}
    for name in names:
        match = re.fullmatch(r"(.*?[^0-9])[0-9]{1,9}", name) or re.fullmatch(r"((?:p|prob\w*?|logit\w*?)[_.-]).+", name)
        if match:
            counts[match[1]] = counts.get(match[1], 0) + 1
    prefix = max(counts, key=lambda key: counts[key], default="")
    if counts.get(prefix, 0) < 2:
        return (
            "name the columns, for example probabilities='prob_*' or logits=['a', 'b', 'c'] (--probabilities, --logits)"
        )
    kind = "logits" if "logit" in prefix.lower() else "features" if prefix.lower().startswith("f") else "probabilities"
    return f"name the columns, for example {kind}='{prefix}*' (--{kind} '{prefix}*')"


# -- values ---------------------------------------------------------------------------------------------------


class Place(NamedTuple):
    """Where rows come from, for messages: the table, and the number of its rows before these."""

    table: str
    start: int = 0

    def row(self, position: Any) -> str:
        """Name a row."""
        return f"row {self.start + int(position)} of {self.table}"

    def error(self, problem: str, position: Any, cure: str = "") -> RowError:
        """Error about a row."""
        return RowError(problem, self.start + int(position), cure, table=self.table)


class TimeZone:
    """Whether the times of a stream have a time zone: all of them must, or none, in all of its files."""

    def __init__(self) -> None:
        self._zoned: bool | None = None
        self._first = ""

    def check(self, zoned: bool, time: str, column: str, place: Place, position: int) -> None:
        """Compare a time with those before."""
        if self._zoned is None:
            self._zoned, self._first = zoned, f"{time} in {place.row(position)}"
        if zoned != self._zoned:
            raise place.error(
                f"Expected a time zone for all times in column {column!r} or for none, but got {time}",
                position,
                f", after {self._first}: write all of them with a zone",
            )


def make_batch(
    chosen: Chosen,
    values: Mapping[str, NDArray[Any]],
    where: str,
    start: int = 0,
    stored_names: tuple[str, ...] | None = None,
    stored_threshold: float | None = None,
    *,
    zoned: bool | None = None,
    zone: TimeZone | None = None,
) -> Batch:
    """Make outputs of columns.

    ``where`` names the table in messages, and ``start`` is the number of its rows before these. ``stored_names`` are
    names of classes that a file has beside its columns: integers are positions in them, as `write_outputs` writes them.
    ``stored_threshold`` is the threshold that its predictions were made by, which are made by it where none are stored.
    ``zoned`` tells whether the type of the column of times has a time zone; ``zone`` has what is known from the rows
    before, of the same or of another file.
    """
    place = Place(where, start)
    arrays: dict[str, Any] = {}
    for name, columns in chosen.matrices.items():
        arrays[name] = _matrix(name, columns, values, place)
    names = stored_names if chosen.class_names is None else chosen.class_names
    outputs = arrays.get("logits", arrays.get("probabilities"))
    classes = None if outputs is None else 2 if outputs.ndim == 1 or outputs.shape[1] == 1 else outputs.shape[1]
    if names is not None and classes is not None and len(names) != classes:
        raise GdscoreError(
            f"Expected names of {classes} classes, as there are so many columns of outputs in {where}, but got "
            f"{len(names)}: {_listed(names)}"
        )
    time = None if chosen.time is None else _times(chosen.time, values[chosen.time], place, zoned, zone or TimeZone())
    by = {name: values[name] for name in chosen.by}
    for name, names_of_rows in by.items():
        if names_of_rows.dtype.kind == "U" and (names_of_rows == "").any():
            raise missing(name, place.row((names_of_rows == "").argmax()))
    if chosen.id is not None:
        arrays["ids"] = values[chosen.id]
    try:
        for name, column in (("predictions", chosen.prediction), ("labels", chosen.label)):
            if column is not None:
                numbers = values[column]
                positions = chosen.class_names is None and numbers.dtype.kind in "iu"
                arrays[name] = numbers if positions else class_positions(numbers, names, classes, name)
        threshold = chosen.threshold
        if threshold is None and outputs is not None:
            threshold = stored_threshold
        stored = chosen.prediction == "predictions" and threshold is not None
        arrays["threshold"] = threshold if chosen.prediction is None else None
        rows = Outputs(**arrays).with_class_names(None if classes is None else names)
        return Batch(rows.with_decision(f"threshold {threshold!r}") if stored else rows, time, by)
    except RowError as error:
        raise _placed(error, chosen, arrays, place) from error
    except GdscoreError as error:
        raise GdscoreError(f"{error} in {place.table}") from error


def _placed(error: RowError, chosen: Chosen, arrays: Mapping[str, NDArray[Any]], place: Place) -> RowError:
    """The same error with the column, and with the row as the table counts it."""
    of_classes = {"labels": chosen.label, "predictions": chosen.prediction}
    columns = (of_classes[error.array],) if error.array in of_classes else chosen.matrices.get(error.array, ())
    at = f" in column {columns[0]!r}" if len(columns) == 1 else ""
    if len(columns) > 1:
        infinite = np.flatnonzero(~np.isfinite(arrays[error.array][error.row]))
        at = (
            f" in column {columns[infinite[0]]!r}"
            if infinite.size
            else f" in columns {columns[0]!r} to {columns[-1]!r}"
        )
    return RowError(
        error.problem + at, place.start + error.row, error.cure, error.array, error.n_rows, table=place.table
    )


def too_long(column: str, length: int, where: str, limits: Limits) -> GdscoreError:
    """Error about text that would take too much memory."""
    return GdscoreError(
        f"Expected text of at most {limits.text:,} characters in column {column!r}, but got {length:,} in {where}: "
        "shorten it, or raise the limit with limits=Limits(text=...)"
    )


def check_row_bytes(row_bytes: int, where: str, limits: Limits) -> None:
    """Refuse rows that would take too much memory."""
    if row_bytes > limits.row:
        raise GdscoreError(
            f"Expected rows of at most {limits.row:,} bytes in {where}, but they take {row_bytes:,}: raise the limit "
            "with limits=Limits(row=...) if you trust the file"
        )


def missing(column: str, where: str) -> GdscoreError:
    """Error about a missing value."""
    return GdscoreError(f"Expected a value everywhere in column {column!r}, but got none in {where}: fill or drop it")


def _matrix(name: str, columns: Sequence[str], values: Mapping[str, NDArray[Any]], place: Place) -> NDArray[Any]:
    parts = [values[column] for column in columns]
    array = parts[0] if len(parts) == 1 else np.stack(parts, axis=1)
    array = array if array.dtype.kind == "f" else array.astype(np.float64)
    if array.ndim == 1 and name in ("features", "inputs"):
        array = array[:, None]
    if array.ndim == 1 and name == "logits":
        raise GdscoreError(
            f"Expected a column of logits for each class, but got only {columns[0]!r} in {place.table}: for a binary "
            "model give its probabilities of class 1 as `probabilities`"
        )
    return array.reshape(-1, 4, 4) if name == "rotation_logits" and array.shape[1:] == (16,) else array


def _times(
    column: str, values: NDArray[Any], place: Place, zoned: bool | None, zone: TimeZone
) -> NDArray[np.datetime64]:
    """Times in UTC, as microseconds."""
    if values.dtype.kind == "M":
        if np.isnat(values).any():
            raise missing(column, place.row(np.isnat(values).argmax()))
        far = outside_calendar(values)
        if far.any():
            row = int(far.argmax())
            raise _far_time(column, f"{values[row]}", place, row, ": check the unit of the times")
        zone.check(bool(zoned), f"a time of a type {'with' if zoned else 'without'} a zone", column, place, 0)
        return values.astype("datetime64[us]")
    parsed: list[datetime] = []
    for position, text in enumerate(values.tolist()):
        try:
            time = datetime.fromisoformat(text.upper())
        except ValueError:
            raise place.error(
                f"Expected times such as 2026-01-31 or 2026-01-31T05:30:00 in column {column!r}, but got {text!r}",
                position,
                ": write them as in ISO 8601",
            ) from None
        zone.check(time.tzinfo is not None, repr(text), column, place, position)
        try:
            parsed.append(time if time.tzinfo is None else time.astimezone(UTC).replace(tzinfo=None))
        except OverflowError:
            raise _far_time(column, repr(text), place, position, ": leave out such rows") from None
    return np.array(parsed, dtype="datetime64[us]")


def _far_time(column: str, time: str, place: Place, row: int, cure: str) -> RowError:
    return place.error(
        f"Expected times between the years 1 and 9999 in UTC in column {column!r}, but got {time}", row, cure
    )
