"""Values of columns as arrays of `Outputs`: what is wrong is named with its row and column, and with the cure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gdscore._paths import Limits
from gdscore._stream import Batch
from gdscore.errors import GdscoreError
from gdscore.io.columns import Chosen
from gdscore.outputs import Outputs

__all__ = ["make_batch", "to_text"]


class Place(NamedTuple):
    """Where rows come from, for messages: the table, and the number of its rows before these."""

    table: str
    start: int = 0

    def row(self, position: Any) -> str:
        """Word a row."""
        return f"row {self.start + int(position)} of {self.table}"


def make_batch(
    chosen: Chosen,
    values: Mapping[str, NDArray[Any]],
    where: str,
    start: int = 0,
    stored_names: tuple[str, ...] | None = None,
) -> Batch:
    """Make outputs of columns; ``stored_names`` are names of the classes that a file has beside its columns."""
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
            f"{len(names)}: {', '.join(map(repr, names[:12]))}"
        )
    if chosen.label is not None:
        by_name = chosen.class_names is not None
        arrays["labels"] = _labels(chosen.label, values[chosen.label], names, by_name, classes, place)
    if chosen.id is not None:
        arrays["ids"] = values[chosen.id]
    time = None if chosen.time is None else _times(chosen.time, values[chosen.time], place)
    by = {column: _segments(column, values[column], place) for column in chosen.by}
    if names is not None and classes is not None:
        arrays["class_names"] = names
    try:
        return Batch(Outputs(**arrays), time, by)
    except GdscoreError as error:
        for name, columns in chosen.matrices.items():
            _diagnose(name, columns, arrays[name], place)
        # Rows are numbered within the batch there, within the table here.
        message, found = re.subn(r"in row (\d+).*$", lambda match: f"in {place.row(match[1])}", str(error))
        raise GdscoreError(message if found else f"{message} in {place.table}") from error


def to_text(values: Sequence[str], column: str, place: Place, limits: Limits) -> NDArray[np.str_]:
    """Strings as a NumPy array, which takes for each as much memory as the longest needs."""
    longest = max(map(len, values), default=0)
    if longest > limits.text:
        row = next(i for i, value in enumerate(values) if len(value) > limits.text)
        raise too_long(column, len(values[row]), place.row(row), limits)
    return np.array(values, dtype=f"<U{max(longest, 1)}")


def too_long(column: str, length: int, where: str, limits: Limits) -> GdscoreError:
    """Error about text that would take too much memory."""
    return GdscoreError(
        f"Expected text of at most {limits.text:,} characters in column {column!r}, but got {length:,} in {where}: "
        "shorten it, or raise the limit with limits=Limits(text=...)"
    )


def missing(column: str, where: str) -> GdscoreError:
    """Error about a missing value."""
    return GdscoreError(f"Expected a value everywhere in column {column!r}, but got none in {where}: fill or drop it")


# -- numbers --------------------------------------------------------------------------------------------------


def _matrix(name: str, columns: Sequence[str], values: Mapping[str, NDArray[Any]], place: Place) -> NDArray[Any]:
    parts = [values[column] for column in columns]
    if len(parts) == 1:
        array = parts[0] if parts[0].dtype.kind == "f" else parts[0].astype(np.float64)
        if name in ("features", "inputs") and array.ndim == 1:
            array = array[:, None]
        if name == "logits" and array.ndim == 1:
            raise GdscoreError(
                f"Expected a column of logits for each class, but got only {columns[0]!r} in {place.table}: for a "
                "binary model give its probabilities of class 1 as `probabilities`"
            )
    else:
        array = np.stack(parts, axis=1)
        array = array if array.dtype.kind == "f" else array.astype(np.float64)
    if name == "rotation_logits" and array.shape[1:] == (16,):
        array = array.reshape(-1, 4, 4)
    return array


def _diagnose(name: str, columns: Sequence[str], array: NDArray[Any], place: Place) -> None:
    """Raise about values that `Outputs` refuses, with the column and the likely reason."""
    flat = array.reshape(len(array), -1)
    if not np.isfinite(flat).all():
        row, at = np.argwhere(~np.isfinite(flat))[0]
        column = columns[at] if len(columns) > 1 else columns[0]
        raise GdscoreError(
            f"Expected `{name}` to be finite, but got {flat[row, at]} in column {column!r} in {place.row(row)}: "
            "fill or drop it"
        )
    if name == "probabilities":
        _diagnose_probabilities(array, columns, place)


def _diagnose_probabilities(p: NDArray[Any], columns: Sequence[str], place: Place) -> None:
    tolerance = 0.02 if p.dtype.itemsize < 4 else 1e-3
    single = p.ndim == 1 or p.shape[1] == 1
    rows = p.reshape(len(p), -1)
    low, high = rows.min(axis=1, initial=np.inf), rows.max(axis=1, initial=-np.inf)
    total = high if single else rows.sum(axis=1, dtype=np.float64)
    bad = (low < 0) | ((high > 1 + tolerance) if single else (np.abs(total - 1) > tolerance))
    if not bad.any():
        return
    at = int(bad.argmax())
    got = f"{total[at]:.6g} in {place.row(at)}" + (
        f", the first of {int(bad.sum())} such rows" if bad.sum() > 1 else ""
    )
    named = repr(columns[0]) if len(columns) == 1 else f"{columns[0]!r} to {columns[-1]!r}"
    if low[at] < 0:
        raise GdscoreError(
            f"Expected probabilities of at least 0 in the columns {named}, but got {low[at]:.6g} in {place.row(at)}: "
            "these look like logits, pass them as `logits`"
        )
    if (single and high[at] > 1 and high.max() <= 100) or (not single and abs(total[at] - 100) < 2):
        raise GdscoreError(
            f"Expected probabilities {'of at most 1' if single else 'that add up to 1'} in the columns {named}, but "
            f"got {got}: these look like percentages, divide them by 100"
        )
    rounded = [d for d in (1, 2, 3) if np.allclose(rows[at], rows[at].round(d), atol=1e-9)]
    if not single and rounded and abs(total[at] - 1) <= 0.5 * 10.0 ** -rounded[0] * rows.shape[1]:
        raise GdscoreError(
            f"Expected probabilities that add up to 1 in the columns {named}, but they add up to {got}: they look "
            "rounded, so write more digits, or divide each row by its sum"
        )
    raise GdscoreError(
        f"Expected probabilities {'of at most 1' if single else 'that add up to 1'} in the columns {named}, but got "
        f"{got}: name the columns of all classes and no other, or pass raw scores as `logits`"
    )


# -- labels, times and segments -------------------------------------------------------------------------------


def _labels(
    column: str, values: NDArray[Any], names: tuple[str, ...] | None, by_name: bool, classes: int | None, place: Place
) -> NDArray[Any]:
    """Positions of the classes that labels name.

    Integers are names where the class names are integers themselves, as with columns ``prob_1`` … ``prob_5`` and
    labels 1 … 5; otherwise they are positions.
    """
    if values.dtype.kind == "f":
        whole = np.isfinite(values) & (values == np.round(values))
        if not whole.all():
            at = int(np.argmin(whole))
            raise GdscoreError(
                f"Expected labels to be classes in column {column!r}, but got {values[at]} in {place.row(at)}: "
                "give integers, or the names of classes"
            )
        values = values.astype(np.int64)
    numbered = names is not None and by_name and all(re.fullmatch(r"-?\d{1,18}", name) for name in names)
    if values.dtype.kind == "b":
        truths = {"false", "true"}
        if names is not None and {name.lower() for name in names} == truths:
            values = values ^ (names[0].lower() == "true")
        elif classes not in (None, 2):
            raise GdscoreError(f"Expected labels of {classes} classes in column {column!r}, but got booleans")
        return values.astype(np.int64)
    if values.dtype.kind in "iu" and not numbered:
        return values
    known: dict[Any, int] = {name: position for position, name in enumerate(names or ())}
    if values.dtype.kind in "iu":
        known = {int(name): position for name, position in known.items()}
    different, inverse = np.unique(values, return_inverse=True)
    found = [known.get(value, -1 if numbered else _position(value, classes)) for value in different.tolist()]
    positions = np.array(found, dtype=np.int64)[inverse]
    if (positions < 0).any():
        at = int((positions < 0).argmax())
        cure = "pass class_names= in the order of the columns (--class-names)"
        if names is not None:
            cure = f"the classes are {', '.join(map(repr, names[:12]))}{' …' if len(names) > 12 else ''}"
        raise GdscoreError(
            f"Expected labels to be classes in column {column!r}, but got {str(values[at])!r} in {place.row(at)}: "
            f"{cure}"
        )
    return positions


def _position(label: str, classes: int | None) -> int:
    """Position of a class that a text file writes as a number or a truth value; −1 for other text."""
    if re.fullmatch(r"\d{1,18}(\.0{1,9})?", label):
        return int(label.split(".")[0])
    if classes in (None, 2) and label.lower() in ("true", "false"):
        return int(label.lower() == "true")
    return -1


def _times(column: str, values: NDArray[Any], place: Place) -> NDArray[np.datetime64]:
    if values.dtype.kind == "M":
        if np.isnat(values).any():
            raise missing(column, place.row(np.isnat(values).argmax()))
        times_in_us = values.astype("datetime64[us]")
        # Times far away wrap around; finer units than microseconds cannot be far away.
        far = (times_in_us.astype(values.dtype) != values) & (np.datetime_data(values.dtype)[0] not in ("ns", "ps"))
        if far.any():
            raise GdscoreError(
                f"Expected times of our age in column {column!r}, but got {values[far.argmax()]} in "
                f"{place.row(far.argmax())}: check the unit of the times"
            )
        return times_in_us
    times: list[datetime] = []
    zoned: bool | None = None
    for position, text in enumerate(values.tolist()):
        try:
            time = datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith(("Z", "z")) else text)
        except ValueError:
            raise GdscoreError(
                f"Expected times such as 2026-01-31 or 2026-01-31T05:30:00 in column {column!r}, but got {text!r} in "
                f"{place.row(position)}: write them as in ISO 8601"
            ) from None
        if zoned not in (None, time.tzinfo is not None):
            raise GdscoreError(
                f"Expected a time zone for all times in column {column!r} or for none, but got {text!r} in "
                f"{place.row(position)} after {values[0]!s:.40}: write all of them with a zone"
            )
        zoned = time.tzinfo is not None
        times.append(time if time.tzinfo is None else time.astimezone(timezone.utc).replace(tzinfo=None))
    return np.array(times, dtype="datetime64[us]")


def _segments(column: str, values: NDArray[Any], place: Place) -> NDArray[Any]:
    if values.dtype.kind == "U" and (values == "").any():
        raise missing(column, place.row((values == "").argmax()))
    return values
