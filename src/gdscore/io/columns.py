"""Which columns of a table are which arrays of `Outputs`, by name.

The rules are the same for data frames and for all kinds of files:

- a column is named exactly, several by a list or by a pattern with one ``*``;
- what the stars of a pattern stand for are the names of the classes; numbers among them are put in order;
- where no logits, probabilities or features are named, columns that have the names of arguments of `Outputs` are used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TypeAlias

from gdscore._checks import MATRICES, OUTPUT_ARRAYS
from gdscore.errors import GdscoreError, nearest

__all__ = ["Chosen", "ColumnType", "Columns", "check_types", "choose_columns"]

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
    label: str | None = None
    id: str | None = None
    time: str | None = None
    by: Selection | None = None
    class_names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            several = field.name in (*_NAMED, "by", "class_names")
            if value is None or (isinstance(value, str) and field.name != "class_names"):
                continue
            wanted = "a list of names" if field.name == "class_names" else "the name of a column"
            if not several or isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
                shown = " ".join(repr(value).split())
                raise GdscoreError(f"Expected `{field.name}` to be {wanted}, but got {shown[:80]}")
            names = tuple(str(name) for name in value)
            if not names or len(set(names)) < len(names):
                raise GdscoreError(f"Expected `{field.name}` to name each thing once, but got {list(names)!r}")
            object.__setattr__(self, field.name, names)
        if self.logits is not None and self.probabilities is not None:
            raise GdscoreError("Expected `logits` or `probabilities`, but got both: give `logits`, they hold more")


@dataclass(frozen=True)
class ColumnType:
    """Type of a column as a table declares it.

    ``kind`` is "f" for floating-point numbers, "i" for integers, "b", "U" for text, "t" for times, "csv" for text that
    is read as what it is used for, or "other"; ``depth`` is the number of levels of lists.
    """

    kind: str
    depth: int
    shown: str


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

    @property
    def names(self) -> list[str]:
        """All columns, each once."""
        single = [name for name in (self.label, self.id, self.time) if name is not None]
        return list(dict.fromkeys([*(c for columns in self.matrices.values() for c in columns), *single, *self.by]))

    @property
    def numeric(self) -> frozenset[str]:
        """Columns of numbers."""
        return frozenset(column for columns in self.matrices.values() for column in columns)


def choose_columns(columns: Columns, found: Sequence[str], where: str) -> Chosen:
    """Find the columns in a table that has columns of the names ``found``."""
    given = {name: getattr(columns, name) for name in _NAMED}
    given = {name: selection for name, selection in given.items() if selection is not None}
    stars: list[str] | None = None
    matrices: dict[str, tuple[str, ...]] = {}
    for name, selection in given.items():
        matrices[name], parts = _selected(name, selection, found, where)
        if OUTPUT_ARRAYS[name].per_class and len(matrices[name]) > 1:
            stars = parts
    label, ids = columns.label, columns.id
    if not given:
        matrices = _default_matrices(found, where)
        label = label if label is not None else _default_name(("label", "labels"), found, where)
        ids = ids if ids is not None else _default_name(("id", "ids"), found, where)
    by = (columns.by,) if isinstance(columns.by, str) else tuple(columns.by or ())
    for name, column in (("label", label), ("id", ids), ("time", columns.time), *(("by", column) for column in by)):
        if column is not None:
            _require_one(name, column, found, where)
    class_names = None if columns.class_names is None else tuple(columns.class_names)
    outputs_name = "logits" if "logits" in matrices else "probabilities"
    if stars is not None:
        matrices[outputs_name], class_names = _in_class_order(matrices[outputs_name], stars, class_names, where)
    chosen = Chosen(matrices, label, ids, columns.time, by, class_names)
    for single in (label, ids, columns.time):
        if single in chosen.numeric:
            raise GdscoreError(
                f"Expected {single!r} of {where} to be used once, but it is also among the columns of outputs or "
                "features: give them as a list instead of a pattern"
            )
    return chosen


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
        (chosen.label, {"i", "b", "U", "f"}, "an integer, a boolean or the name of a class per row"),
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


def _require_one(name: str, column: str, found: Sequence[str], where: str) -> None:
    count = found.count(column)
    if count == 0:
        raise GdscoreError(
            f"Expected a column {column!r} for `{name}` in {where}, but there is none: {nearest(column, found)}"
            if found
            else f"Expected a column {column!r} for `{name}` in {where}, but it has no columns"
        )
    if count > 1:
        raise GdscoreError(f"Expected one column {column!r} in {where}, but there are {count}: rename the others")


def _selected(
    name: str, selection: Selection, found: Sequence[str], where: str
) -> tuple[tuple[str, ...], list[str] | None]:
    """Columns of a selection, and what distinguishes them: the parts for the star, or the names in a list."""
    if not isinstance(selection, str):
        for column in selection:
            _require_one(name, column, found, where)
        return tuple(selection), list(selection)
    if selection in found or selection.count("*") != 1:
        if selection.count("*") > 1 and selection not in found:
            raise GdscoreError(f"Expected a pattern with one `*` for `{name}`, but got {selection!r}")
        _require_one(name, selection, found, where)
        return (selection,), None
    before, after = selection.split("*")
    matches = [
        column
        for column in found
        if column.startswith(before) and column.endswith(after) and len(column) > len(before) + len(after)
    ]
    if not matches:
        raise GdscoreError(
            f"Expected columns that match {selection!r} for `{name}` in {where}, but there are none: it has "
            f"{_listed(found)}"
        )
    for column in matches:
        _require_one(name, column, found, where)
    parts = [column[len(before) : len(column) - len(after)] for column in matches]
    if all(part.isascii() and part.isdigit() for part in parts):
        # Compared as text of one length, as numbers of any length are possible here.
        order = sorted(range(len(parts)), key=lambda i: (len(parts[i].lstrip("0")), parts[i].lstrip("0"), parts[i]))
        matches, parts = [matches[i] for i in order], [parts[i] for i in order]
    return tuple(matches), parts


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
    for column, name in zip(columns, names, strict=True):
        of = [other for other in names if column.endswith(other)]
        if of and name not in of and all(any(c.endswith(n) for n in names) for c in columns):
            raise GdscoreError(
                f"Expected `class_names` in the order of the columns, but {column!r} of {where} would be of the class "
                f"{name!r}: give the names as {', '.join(next(n for n in names if c.endswith(n)) for c in columns)}"
            )
    return columns, names


def _default_name(valid: tuple[str, ...], found: Sequence[str], where: str) -> str | None:
    here = [name for name in found if name in valid]
    if len(here) > 1:
        raise GdscoreError(f"Expected one `{valid[1]}` in {where}, but got {' and '.join(map(repr, here))}: drop one")
    return here[0] if here else None


def _default_matrices(found: Sequence[str], where: str) -> dict[str, tuple[str, ...]]:
    named: dict[str, tuple[str, ...]] = {
        name: (name,) for name in MATRICES if _default_name((name, name), found, where)
    }
    if not named:
        raise GdscoreError(
            f"Expected at least one of {', '.join(map(repr, MATRICES))} in {where}, but found {_listed(found)}: "
            + _suggestion(found)
        )
    if "logits" in named and "probabilities" in named:
        raise GdscoreError(
            f"Expected 'logits' or 'probabilities' in {where}, but got both: name the one to use, or drop one"
        )
    return named


def _suggestion(found: Sequence[str]) -> str:
    """Name the pattern that the columns look like."""
    counts: dict[str, int] = {}
    for name in found:
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
