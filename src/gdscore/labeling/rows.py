"""`LabelRows`: the rows to label, as a table that survives a spreadsheet, and the labels as people give them."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore._classes import ClassLabels, list_of
from gdscore._files import PathLike, atomic, check_readable, path_errors
from gdscore._stream import segment_from_text, segment_to_text
from gdscore.errors import GdscoreError, nearest, shown
from gdscore.frames import is_missing

STRATA = 10
_REQUIRED = ("order", "row", "rank", "predicted_correct", "sample", "label")
_NUMBERS = ("stratum", "rank", "predicted_correct", "probability")
_RESERVED = {*_REQUIRED, *_NUMBERS, "id", "segment", "segment_rows", "options"}
_AS_THEY_ARE = ("id", "segment", "label")
"""Columns whose white space can tell one name from another."""
_FORMULA = ("=", "+", "-", "@", "'")
_LARGEST_FILE = 64 * 2**20


@dataclass(frozen=True, eq=False)
class LabelRows:
    """Rows of a target that were drawn to be labelled, in the order in which they are to be labelled.

    Attributes
    ----------
    rows : integer array of shape (n,)
        Positions in the target, counted from 0.
    ids : array of shape (n,) or None
        Names of the rows, where the target has ids.
    ranks : integer array of shape (n,)
        Positions in the order by segment, predicted class and predicted correctness.
    predicted_correct : array of shape (n,)
        Predicted probability that the prediction is right.
    segments : tuple or None
        Segment of each row.
    segment_rows : dict of int
        Rows of the target in each segment.
    n_rows : int
        Rows of the target.
    design : {"stratified", "random"}
        How the rows were drawn.
    seed : int
        Seed of the random draw.
    mean_predicted_correct : float
        Mean over all rows of the target.
    fingerprint : str
        Hash of the target, by which rows of another one are refused.
    options : str
        Options of the command that drew them, for the command that draws more.
    """

    rows: NDArray[np.int64]
    ids: NDArray[Any] | None
    ranks: NDArray[np.int64]
    predicted_correct: NDArray[np.float64]
    segments: tuple[Any, ...] | None
    n_rows: int
    design: str
    seed: int
    mean_predicted_correct: float
    fingerprint: str
    segment_rows: dict[Any, int] = field(default_factory=dict)
    options: str = ""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def probability(self) -> float:
        """Probability of being drawn, the same for every row of the target."""
        return len(self) / self.n_rows

    @property
    def stratum(self) -> NDArray[np.int64]:
        """Tenth of the order that each row is in, from 1 to 10."""
        return np.asarray(self.ranks * STRATA // self.n_rows + 1)

    def __repr__(self) -> str:
        return f"LabelRows({len(self)} of {self.n_rows:,} rows, design={self.design!r}, seed={self.seed})"

    def to_csv(
        self, path: PathLike, labels: Iterable[Any] | None = None, show: Mapping[str, Sequence[Any]] | None = None
    ) -> None:
        """Write a table that opens in a spreadsheet; the column ``label`` is to be filled in.

        Parameters
        ----------
        path : path
            A file to write, all or nothing.
        labels : sequence, optional
            Labels that are known already, one for each row; empty or None where there is none.
        show : mapping of str to sequence, optional
            Further columns for the person who labels, such as texts or names of images: a value for each row.
        """
        show = show or {}
        if reserved := [name for name in show if name.strip().lower() in _RESERVED]:
            raise GdscoreError(
                f"Expected to show columns of other names than the table's own, but {reserved[0]!r} is one: rename it"
            )
        cells_by_name = {**show, "label": [None] * len(self) if labels is None else labels}
        filled = {name: ["" if cell is None else cell for cell in column] for name, column in cells_by_name.items()}
        for name, column in filled.items():
            if len(column) != len(self):
                raise GdscoreError(f"Expected a value of {name!r} for each of {len(self)} rows, but got {len(column)}")
        mean = float(self.mean_predicted_correct).hex()
        sample = ":".join((self.design, str(self.seed), str(self.n_rows), str(len(self)), mean, self.fingerprint))
        columns: dict[str, Iterable[Any]] = {"order": range(1, len(self) + 1), "row": self.rows}
        if self.ids is not None:
            columns["id"] = map(str, self.ids)
        if self.segments is not None:
            columns["segment"] = map(segment_to_text, self.segments)
            columns["segment_rows"] = [self.segment_rows[segment] for segment in self.segments]
        columns |= filled | {"stratum": self.stratum, "rank": self.ranks}
        columns["predicted_correct"] = map(float, self.predicted_correct)
        columns |= {"probability": [self.probability] * len(self), "sample": [sample] * len(self)}
        if self.options:
            columns["options"] = [self.options] * len(self)
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\r\n")
        writer.writerow(columns)
        writer.writerows([_guarded(str(cell)) for cell in line] for line in zip(*columns.values(), strict=True))
        with atomic(path, "wb") as file:
            # The mark tells spreadsheets that the file is UTF-8.
            file.write(b"\xef\xbb\xbf" + text.getvalue().encode())


def read_csv(path: PathLike) -> tuple[LabelRows, list[str]]:
    """Read what `LabelRows.to_csv` wrote, after a spreadsheet: the rows, and their labels as text in the same order.

    Lines and columns may be in any order, and there may be more columns; commas, semicolons and tabs are understood.
    """
    lines = _lines(path)
    where = str(path)
    parts = {line["sample"] for line in lines}
    if len(parts) != 1:
        raise GdscoreError(
            f"Expected the rows of one sample in {where!r}, but there are {len(parts)}: keep one file for each"
        )
    sample = parts.pop().split(":")
    if len(sample) != 6:
        raise GdscoreError(f"Expected the column `sample` of {where!r} as it was written, but got {shown(sample)}")
    design, seed, n_rows, count, mean, fingerprint = sample
    total, budget = _integer(n_rows, "sample", where), _integer(count, "sample", where)
    by_order: dict[int, dict[str, str]] = {}
    for line in lines:
        order = _integer(line["order"], "order", where)
        if order in by_order:
            raise GdscoreError(f"Expected every row once in {where!r}, but order {order} is there twice: remove one")
        by_order[order] = line
    missing = sorted(set(range(1, budget + 1)) - set(by_order))
    if missing or len(by_order) != budget:
        raise GdscoreError(
            f"Expected the {budget} rows that were drawn in {where!r}, but {len(by_order)} are there"
            + (f", without order {missing[0]}" if missing else "")
            + ": keep rows that have no label"
        )
    ordered = [by_order[k] for k in range(1, budget + 1)]
    with_segments = "segment" in lines[0] and "segment_rows" in lines[0]
    segments = tuple(segment_from_text(_unguarded(line["segment"])) for line in ordered) if with_segments else None
    sizes: dict[Any, int] = {}
    for segment, line in zip(segments or (), ordered, strict=False):
        size = _integer(line["segment_rows"], "segment_rows", where)
        if sizes.setdefault(segment, size) != size:
            raise GdscoreError(
                f"Expected one number of rows of the segment {segment!r} in {where!r}, but got {sizes[segment]} and "
                f"{size}: the columns were changed"
            )
    ids = np.array([_unguarded(line["id"]) for line in ordered]) if "id" in lines[0] else None
    if ids is not None and len(different := np.unique(ids)) < budget:
        twice = next(key for key in different if (ids == key).sum() > 1)
        raise GdscoreError(
            f"Expected ids that name one row each in {where!r}, but {shown(str(twice))} names two: the column `id` was "
            "changed, or the target's ids are not unique"
        )
    rows = LabelRows(
        rows=np.array([_integer(line["row"], "row", where) for line in ordered], dtype=np.int64),
        ids=ids,
        ranks=np.array([_integer(line["rank"], "rank", where) for line in ordered], dtype=np.int64),
        predicted_correct=np.array(
            [_number(line["predicted_correct"], "predicted_correct", where, 1) for line in ordered]
        ),
        segments=segments,
        n_rows=total,
        design=design,
        seed=_integer(seed, "sample", where),
        mean_predicted_correct=_number(mean, "sample", where, 1),
        fingerprint=fingerprint,
        segment_rows=sizes,
        options=_unguarded(lines[0].get("options", "")),
    )
    if len(set(rows.rows.tolist())) != budget or rows.rows.max() >= total or rows.ranks.max() >= total:
        raise GdscoreError(f"Expected {budget} different rows below {total} in {where!r}, but the columns were changed")
    return rows, [_unguarded(line["label"]) for line in ordered]


def _lines(path: PathLike) -> list[dict[str, str]]:
    checked = check_readable(path)
    with path_errors(path):
        if checked.stat().st_size > _LARGEST_FILE:
            raise GdscoreError(f"Expected a table of rows to label in {str(path)!r}, but the file is too large for one")
        raw = checked.read_bytes()
    try:
        text = raw.decode("utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("cp1252", errors="replace")  # as spreadsheets on Windows write
    head = text.split("\n", 1)[0]
    delimiter = max(",;\t", key=head.count)
    try:
        table = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    except csv.Error as error:
        raise GdscoreError(f"Expected a table in {str(path)!r}, but it cannot be read as CSV: {error}") from error
    filled = [line for line in table if any(cell.strip() for cell in line)]
    names = [name.strip().strip('"').lower() for name in filled[0]] if filled else []
    if absent := [name for name in _REQUIRED if name not in names]:
        raise GdscoreError(
            f"Expected a table that `choose` wrote with the columns {', '.join(_REQUIRED)}, but {str(path)!r} has no "
            f"{' and no '.join(absent)}"
        )
    if len(filled) < 2:
        raise GdscoreError(f"Expected rows in {str(path)!r}, but it has only the names of the columns")
    padded = ([*line, *[""] * (len(names) - len(line))] for line in filled[1:])
    return [
        {name: cell if name in _AS_THEY_ARE else cell.strip() for name, cell in zip(names, line, strict=False)}
        for line in padded
    ]


def _guarded(text: str) -> str:
    """Text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def _unguarded(text: str) -> str:
    return text[1:] if text.startswith("'") and text[1:].startswith(_FORMULA) else text


def _integer(text: str, column: str, where: str) -> int:
    value = _number(text, column, where)
    if not value.is_integer():
        raise GdscoreError(f"Expected a whole number in the column `{column}` of {where!r}, but got {shown(text)}")
    return int(value)


def _number(text: str, column: str, where: str, most: float = math.inf) -> float:
    """Number of at least 0, in hexadecimal digits where it is written so."""
    try:
        value = float.fromhex(text) if text[:2] == "0x" else float(text.replace(",", "."))
    except (ValueError, OverflowError):
        value = math.nan
    if not 0 <= value <= most or value == math.inf:
        raise GdscoreError(f"Expected a number in the column `{column}` of {where!r}, but got {shown(text)}")
    return value


NOT_LABELLED, COULD_NOT_TELL = -1, -2
_UNSURE = ("?", "could not tell", "unsure", "unclear")
_QUOTES = "\"'“”‘’«»"


def as_classes(labels: Any, rows: LabelRows, classes: int, names: tuple[str, ...] | None) -> NDArray[np.int64]:
    """Class of each row, in the order of the rows; `NOT_LABELLED` and `COULD_NOT_TELL` where there is none.

    ``labels`` is a sequence, or a mapping from id or position, of class numbers or names. None, NaN and empty text: not
    labelled yet. "?" or "could not tell": nobody can tell.
    """
    if isinstance(labels, Mapping):
        listed = _from_mapping(labels, rows)
    elif hasattr(labels, "index") and hasattr(labels, "to_dict"):
        listed = _from_series(labels, rows)
    else:
        if arrays.is_array(labels) or hasattr(labels, "tolist"):
            labels = arrays.to_numpy(labels if arrays.is_array(labels) else np.asarray(labels)).tolist()
        label_list = list_of(labels)
        if label_list is None:
            raise GdscoreError(
                f"Expected `labels` to be a list or a dict, with a label for each of the {len(rows)} rows that were "
                f"drawn, but got {shown(labels)}"
            )
        if len(label_list) > len(rows):
            raise GdscoreError(
                f"Expected at most {len(rows)} labels, as so many rows were drawn, but got {len(label_list)}"
            )
        listed = label_list + [None] * (len(rows) - len(label_list))
    return classes_of(listed, classes, names)


def classes_of(listed: Iterable[Any], classes: int, names: tuple[str, ...] | None) -> NDArray[np.int64]:
    """Class of each label, by the rules of `as_classes`."""
    if "" in (names or ()):
        raise GdscoreError(
            "Expected class names of at least one letter, but one is empty, which means not labelled: name the class, "
            "such as 'none'"
        )
    class_of_name = {} if names is None else _by_name(names)
    rule = ClassLabels(names, classes)
    return np.array([_as_class(value, rule, class_of_name, i) for i, value in enumerate(listed)], dtype=np.int64)


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


def _from_series(labels: Any, rows: LabelRows) -> list[Any]:
    """Labels of a pandas Series: by its index of rows or ids, or in the order of the rows where that is 0, 1, …"""
    index = labels.index.tolist()
    if getattr(labels, "ndim", 0) == 1 and len(labels) <= len(rows):
        if index == list(range(len(index))):
            return [*labels.tolist(), *[None] * (len(rows) - len(labels))]
        for keys in (rows.ids, rows.rows):
            place_of_key = {} if keys is None else {str(key): i for i, key in enumerate(keys.tolist())}
            places = [place_of_key.get(str(key), -1) for key in index]
            if min(places) >= 0 and len(set(places)) == len(places):
                by_place = dict(zip(places, labels.tolist(), strict=True))
                return [by_place.get(i) for i in range(len(rows))]
    raise GdscoreError(
        f"Expected the index of `labels` to hold the {len(rows)} rows that were drawn, or their ids, each once, but it "
        "holds others: give labels[rows.rows], or labels.to_numpy() in the order of the rows"
    )


def _by_name(names: tuple[str, ...]) -> dict[str, int]:
    """Classes by name, and by name without case and outer white space where that is unambiguous."""
    numbers = {name.strip().casefold(): k for k, name in enumerate(names)}
    folded = numbers if len(numbers) == len(names) else {}
    return folded | {name: k for k, name in enumerate(names)}


def _as_class(value: Any, rule: ClassLabels, class_of_name: dict[str, int], i: int) -> int:
    if is_missing(value):
        return NOT_LABELLED
    if isinstance(value, str):
        if value in class_of_name:
            return class_of_name[value]
        text = value.strip()
        if text and text[0] in _QUOTES and text[-1] in _QUOTES and text not in class_of_name:
            text = text[1:-1].strip()
        if not text:
            return NOT_LABELLED
        for form in (text, text.casefold()):
            if form in class_of_name:
                return class_of_name[form]
        if text.casefold() in _UNSURE:
            return COULD_NOT_TELL
        position = rule.find(text)
    else:
        position = rule.find(value)
    if position is None:
        valid = nearest(str(value), rule.names) if rule.names else f"a class from 0 to {(rule.classes or 0) - 1}"
        raise GdscoreError(
            f"Expected the label of row {i + 1} of the sample to be a class, but got {shown(value)}: {valid}; leave it "
            "empty where there is no label, or write ? where nobody can tell"
        )
    return position
