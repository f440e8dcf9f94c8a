"""Labels as people give them: class numbers or names, in any order, some missing."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore.errors import GdscoreError, nearest, shown
from gdscore.labeling.rows import LabelRows

__all__ = ["COULD_NOT_TELL", "NOT_LABELLED", "as_classes"]

NOT_LABELLED, COULD_NOT_TELL = -1, -2
_UNSURE = ("?", "could not tell", "unsure", "unclear")
_QUOTES = "\"'“”‘’«»"


def as_classes(labels: Any, rows: LabelRows, classes: int, names: tuple[str, ...] | None) -> NDArray[np.int64]:
    """Class of each row, in the order of the rows; `NOT_LABELLED` and `COULD_NOT_TELL` where there is none.

    Parameters
    ----------
    labels : sequence, or mapping from id or position to label
        Class numbers or names. None, NaN and empty text: not labelled yet. "?" or "could not tell": nobody can tell.
    rows : LabelRows
        What was drawn.
    classes : int
        Number of classes.
    names : tuple of str or None
        Names of the classes.
    """
    if isinstance(labels, Mapping):
        listed = _from_mapping(labels, rows)
    else:
        if not isinstance(labels, Sequence) and not arrays.is_array(labels) and not hasattr(labels, "tolist"):
            raise GdscoreError(f"Expected `labels` to be a list or a dict, but got {type(labels).__name__}")
        listed = list(labels) if isinstance(labels, Sequence) else arrays.to_numpy(np.asarray(labels)).tolist()
        if isinstance(labels, str) or len(listed) > len(rows):
            raise GdscoreError(
                f"Expected a label for each of the {len(rows)} rows that were drawn, but got {shown(labels)}"
                if isinstance(labels, str)
                else f"Expected at most {len(rows)} labels, as so many rows were drawn, but got {len(listed)}"
            )
        listed += [None] * (len(rows) - len(listed))
    known = {} if names is None else _by_name(names)
    return np.array([_as_class(value, classes, names, known, i) for i, value in enumerate(listed)], dtype=np.int64)


def _from_mapping(labels: Mapping[Any, Any], rows: LabelRows) -> list[Any]:
    keys = rows.rows if rows.ids is None else rows.ids
    place = {str(key): i for i, key in enumerate(keys.tolist())}
    listed: list[Any] = [None] * len(rows)
    for key, value in labels.items():
        if str(key) not in place:
            what = "position" if rows.ids is None else "id"
            raise GdscoreError(
                f"Expected labels of rows that were drawn, but the row with {what} {shown(key)} was not: labels of "
                "rows that somebody picked would bias the estimate"
            )
        listed[place[str(key)]] = value
    return listed


def _by_name(names: tuple[str, ...]) -> dict[str, int]:
    """Classes by name, and by name without case where that is unambiguous."""
    found = {name.casefold(): k for k, name in enumerate(names)}
    folded = found if len(found) == len(names) else {}
    return folded | {name: k for k, name in enumerate(names)}


def _as_class(value: Any, classes: int, names: tuple[str, ...] | None, known: dict[str, int], i: int) -> int:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return NOT_LABELLED
    if isinstance(value, str):
        text = value.strip()
        if text and text[0] in _QUOTES and text[-1] in _QUOTES and text not in known:
            text = text[1:-1].strip()
        if not text:
            return NOT_LABELLED
        for form in (text, text.casefold()):
            if form in known:
                return known[form]
        if text.casefold() in _UNSURE:
            return COULD_NOT_TELL
        number = _number(text)
    else:
        number = float(value) if isinstance(value, numbers.Real) and not isinstance(value, bool) else None
    if number is None or not number.is_integer() or not 0 <= number < classes:
        valid = f"a class from 0 to {classes - 1}" if names is None else nearest(str(value), names)
        raise GdscoreError(
            f"Expected the label of row {i + 1} of the sample to be a class, but got {shown(value)}: {valid}; leave it "
            "empty where there is no label, or write ? where nobody can tell"
        )
    return int(number)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
