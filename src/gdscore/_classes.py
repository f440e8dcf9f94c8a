"""Names of classes, and labels that stand for them: one rule for data frames, files, `Outputs` and people's labels.

Text that is the name of a class is that class. An integer (1, 1.0, "1" and "1.0" are one) is a name where all classes
are named by integers, and elsewhere a position in the order of the columns, 0 … K−1. True and False are classes of
these names, or else 1 and 0 of two classes.
"""

from __future__ import annotations

import math
import numbers
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore.errors import GdscoreError, RowError, shown

_INTEGER = re.compile(r"[+-]?[0-9]{1,400}(\.0*)?")
_MOST_CLASSES = 2**31
_TRUTHS = {"false": False, "true": True}


def list_of(value: Any) -> list[Any] | None:
    """Items of a list, a tuple, an array or another iterable; None for text, what has no order, or a single value."""
    if isinstance(value, str | bytes | Mapping | Set) or not isinstance(value, Iterable):
        return None
    return None if getattr(value, "ndim", 1) == 0 else list(value)


def listed_names(names: Any) -> Any:
    """Names in a tuple, where they are a sequence or an iterator, which is read only once; anything else as it is."""
    listed = list_of(names)
    return names if listed is None else tuple(listed)


def check_class_names(names: Any, classes: int | None) -> tuple[str, ...]:
    """K different strings as a tuple; anything else is refused."""
    listed = list_of(names)
    if listed is None:
        raise GdscoreError(f"Expected `class_names` to be a sequence of strings, but got {shown(names)}")
    for name in listed:
        if not isinstance(name, str):
            raise GdscoreError(f"Expected `class_names` to be strings, but got {shown(name)}")
    if classes is None or len(listed) != classes:
        expected = "no array with a column for each class" if classes is None else f"{classes} classes"
        raise GdscoreError(f"Expected a name for each class, but got {len(listed)} `class_names` for {expected}")
    name, count = Counter(listed).most_common(1)[0]
    if count > 1:
        raise GdscoreError(f"Expected different `class_names`, but {shown(name)} occurs more than once")
    return tuple(str(name) for name in listed)


class ClassLabels:
    """The rule of this file for single labels, of names in the order of the columns and a number of classes, if known.

    Examples
    --------
    >>> ClassLabels(("1", "2", "3"), 3).find(3), ClassLabels(("cat", "dog"), 2).find(1)
    (2, 1)
    >>> ClassLabels(("1.0", "2.0"), 2).find("2"), ClassLabels(("cat", "dog"), 2).find("fox")
    (1, None)
    """

    def __init__(self, names: tuple[str, ...] | None, classes: int | None) -> None:
        self.names, self.classes = names or (), classes
        self._by_name = {name: position for position, name in enumerate(self.names)}
        spelled = [(as_integer(name), position) for position, name in enumerate(self.names)]
        self._by_number = {number: position for number, position in spelled if number is not None}
        self.named_by_integers = 0 < len(self._by_number) == len(self.names)
        """Whether integers are names of classes."""
        self.integers_are_positions = all(number == position for number, position in self._by_number.items())
        """Whether no integer is the name of a class at another position."""

    def find(self, label: Any) -> int | None:
        """Position of the class that a label stands for; None where it stands for none.

        An integer may be a position beyond the last class where the number of classes is not known.
        """
        if isinstance(label, str) and label in self._by_name:
            return self._by_name[label]
        truth = _TRUTHS.get(label.lower()) if isinstance(label, str) else label
        if isinstance(truth, bool | np.bool_):
            named = {name.lower(): position for name, position in self._by_name.items()}
            if named.keys() == _TRUTHS.keys():
                return named[str(truth).lower()]
            if self.classes not in (None, 2) or self._by_number.keys() not in (set(), {0, 1}):
                return None
            label = int(truth)
        number = as_integer(label)
        if number is None or self.named_by_integers:
            return None if number is None else self._by_number.get(number)
        if self._by_number.get(number, number) != number:
            raise GdscoreError(
                f"Expected names of classes as labels, but got {shown(label)}, which can be a name or a position, as "
                f"only some of the classes {_listed(self.names)} are named by integers: write all labels as names"
            )
        return number if 0 <= number < (self.classes or _MOST_CLASSES) else None


def class_positions(
    labels: NDArray[Any], names: tuple[str, ...] | None, classes: int | None, what: str = "labels"
) -> NDArray[Any]:
    """Position of the class that each label stands for; integers that are positions already are given back.

    Labels are integers, whole floating-point numbers, booleans or strings; names and classes as for `ClassLabels`.
    Predicted classes follow the same rule: ``what`` names the array in messages.

    Examples
    --------
    >>> class_positions(np.array([3.0, 1.0]), ("1", "2", "3"), 3).tolist()
    [2, 0]
    >>> class_positions(np.array([0.5]), ("cat", "dog"), 2)
    Traceback (most recent call last):
    gdscore.errors.RowError: Expected labels to be classes, but got 0.5 in row 0: the classes are 'cat', 'dog'
    """
    rule = ClassLabels(names, classes)
    if labels.dtype.kind in "iu" and rule.integers_are_positions and not rule.named_by_integers:
        return labels  # `Outputs` checks their range
    different, rows = np.unique(labels, return_inverse=True)
    matches = [rule.find(label) for label in different.tolist()]
    positions = np.array([-1 if position is None else position for position in matches], dtype=np.int64)
    if None in matches:
        wrong = np.isin(rows.reshape(-1), [i for i, position in enumerate(matches) if position is None])
        row = int(wrong.argmax())
        label = np.asarray(labels[row]).item()
        problem = f"Expected {what} to be classes, but got {shown(label)}"
        raise RowError(problem, row, _cure(label, names, classes, what), what, int(wrong.sum()))
    return positions[rows.reshape(-1)]


def as_integer(value: Any) -> int | None:
    """Integer that a label or the name of a class is or spells; None for other values."""
    if isinstance(value, str):
        return int(value.partition(".")[0]) if _INTEGER.fullmatch(value) else None
    if isinstance(value, numbers.Integral):
        return None if isinstance(value, bool) else int(value)
    return int(value) if isinstance(value, float | np.floating) and float(value).is_integer() else None


def _cure(label: Any, names: tuple[str, ...] | None, classes: int | None, what: str) -> str:
    if isinstance(label, float) and math.isnan(label):
        return f": leave out the rows without a {what.removesuffix('s')}"
    if names is not None:
        return f": the classes are {_listed(names)}"
    if as_integer(label) is None:
        return ": pass class_names= in the order of the columns (--class-names)"
    return ": count classes from 0, in the order of the columns" + ("" if classes is None else f", to {classes - 1}")


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names[:12])) + (" …" if len(names) > 12 else "")
