"""Labels that come later: of windows as counts, of rows by their ids; and what they tell of the windows that follow.

Requirements met here:

- where the rule `keep_rows` asks for it, of each row its id, its predicted class and P(right) are kept, and the label
  once it comes; no features, no inputs;
- labels may come late, in parts and again: the newest one of a row counts, and the alarms from its window on are
  computed again;
- rows of windows that ended longer ago than the rule says are deleted, whether or not labels came.
"""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Integer, Row, bindparam, cast, delete, func, insert, select, update
from sqlalchemy.orm import Session

from gdscore._arrays import to_numpy
from gdscore._checks import integer, number
from gdscore._classes import class_positions
from gdscore.errors import GdscoreError, RowError, shown
from gdscore.estimator import AccuracyEstimator, Estimate
from gdscore.monitor.alarms import follow_again
from gdscore.monitor.database import AdvisedError, Key, shown_time, time_before, utc_now
from gdscore.monitor.queries import ESTIMATED, NotFoundError, newest_labels, versions_of
from gdscore.monitor.rules import Rules
from gdscore.monitor.schema import LONGEST_NAME, KeptRow, Model, Series, Window
from gdscore.outputs import Outputs
from gdscore.tracking.method import SETTINGS
from gdscore.tracking.rows import Version
from gdscore.tracking.windows import CommonError, History, Tally, Tracked, TrackedWindow, tracked

MOST_LABELS = 100_000
"""Labels of one request."""
SHOWN_IDS = 10
_CHUNK = 5000
"""Ids of one question to the database."""


class _Part(NamedTuple):
    ids: list[str]
    predictions: NDArray[Any]
    right: NDArray[Any]
    segments: list[str]


class Collector:
    """Takes in the rows of windows while their estimates are made."""

    def __init__(self, estimator: AccuracyEstimator) -> None:
        self.estimator = estimator
        self.parts: dict[datetime, list[_Part]] = defaultdict(list)

    def take(self, outputs: Outputs, starts: NDArray[np.datetime64], segments: Iterable[Sequence[str]]) -> None:
        """Take in a batch; ``starts`` are the starts of the rows' windows, ``segments`` those of each column."""
        if "ids" not in outputs.has:
            raise AdvisedError(
                "Expected an id for each row, as the rule `keep_rows` of this model is set, but there is none",
                "give `ids`, name their column (--id COLUMN), or remove the rule",
                "send `ids` in JSON, name their column in the query (&id=COLUMN), or remove the rule",
            )
        ids = [str(value) for value in to_numpy(outputs.ids).tolist()]
        _check_ids(ids)
        named = ["\n".join(dict.fromkeys(names)) for names in zip(*segments, strict=True)] or [""] * len(ids)
        predictions = to_numpy(outputs.predictions)
        for start in np.unique(starts):
            (rows,) = np.nonzero(starts == start)
            mine = outputs if len(rows) == len(ids) else outputs[rows]
            self.parts[start.item().replace(tzinfo=UTC)].append(
                _Part(
                    [ids[row] for row in rows],
                    predictions[rows],
                    self.estimator.predict_correct(mine),
                    [named[row] for row in rows],
                )
            )


def _check_ids(ids: Iterable[str]) -> None:
    wrong = next((i for i in ids if not 0 < len(i) <= LONGEST_NAME or not i.isprintable()), None)
    if wrong is not None:
        raise GdscoreError(f"Expected ids of 1 to {LONGEST_NAME} printable characters, but got {shown(wrong)}")


def store_rows(session: Session, model: Model, added: Iterable[dict[str, Any]], collected: Collector) -> None:
    """Keep the rows of windows that were stored; labels that rows of the same id have stay theirs.

    Rows that are older than rows are kept are not, and the window gets a ``note`` that says so.
    """
    oldest = _oldest_kept(model)
    counted: list[LabelCounts] = []
    for window in added:
        parts = collected.parts.get(datetime.fromisoformat(window["start"]))
        if window["segment"] or window["id"] is None or parts is None:
            continue
        if oldest is not None and datetime.fromisoformat(window["end"]) < oldest:
            window["note"] = (
                f"the rows of the window of {window['start'][:10]} are not kept for labels, as it ended longer ago "
                f"than the rule keep_rows ({Rules.from_dict(model.rules).keep_rows}) says"
            )
            continue
        mine = KeptRow.window_id == window["id"]
        label_before = {
            row.row_id: row.label for row in session.execute(select(KeptRow.row_id, KeptRow.label).where(mine))
        }
        rows = {
            row_id: {"prediction": int(prediction), "right": round(float(right), 4), "segments": segments}
            for part in parts
            for row_id, prediction, right, segments in zip(*part, strict=True)
        }
        if len(rows) < (total := sum(len(part.ids) for part in parts)):
            twice = Counter(i for part in parts for i in part.ids).most_common(1)[0][0]
            raise GdscoreError(
                f"Expected different ids in the window of {window['start'][:16]}, but {shown(twice)} occurs more than "
                f"once ({total - len(rows)} rows too many)"
            )
        session.execute(delete(KeptRow).where(mine))
        kept = [
            {"window_id": window["id"], "row_id": i, "label": label_before.get(i), **row} for i, row in rows.items()
        ]
        session.execute(insert(KeptRow.__table__), kept)  # type: ignore[arg-type]
        if any(label is not None for label in label_before.values()):
            again = session.get_one(Window, window["id"])
            counted += [counts for counts, _ in _count_rows(session, model, again, collected.estimator.n_classes_)]
    store_labels(session, model, counted)


def _oldest_kept(model: Model) -> datetime | None:
    """Rows of windows that ended before this time are kept no more; None where the model keeps no rows."""
    length = Rules.from_dict(model.rules).keep_rows
    return None if length is None else time_before(utc_now(), length)


def delete_rows(session: Session, clock: datetime) -> None:
    """Delete the rows of windows that ended longer ago than their model keeps rows."""
    for model in session.scalars(select(Model)):
        length = Rules.from_dict(model.rules).keep_rows
        windows = select(Window.id).where(Window.model_id == model.id)
        if length is not None:
            windows = windows.where(Window.end < time_before(clock, length))
        session.execute(delete(KeptRow).where(KeptRow.window_id.in_(windows)))


# -- labels ---------------------------------------------------------------------------------------------------


def read_row_labels(path: Path) -> tuple[list[str], list[Any]]:
    """Ids and labels of a CSV file with the columns ``id`` and ``label``."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(islice(csv.reader(file, strict=True), MOST_LABELS + 2))
    except (csv.Error, UnicodeDecodeError) as error:
        raise GdscoreError(f"Expected a CSV file in UTF-8, but it is not: {str(error)[:100]}") from None
    header = rows[0] if rows else []
    if not {"id", "label"} <= set(header):
        raise GdscoreError(f"Expected a first line with the columns id and label, but got {shown(header)}")
    wrong = next((k for k, row in enumerate(rows) if row and len(row) != len(header)), None)
    if wrong is not None:
        raise GdscoreError(f"Expected {len(header)} values in line {wrong + 1}, but got {shown(rows[wrong])}")
    ids, labels = ([row[header.index(name)] for row in rows[1:] if row] for name in ("id", "label"))
    if not 0 < len(ids) <= MOST_LABELS:
        raise GdscoreError(f"Expected 1 to {MOST_LABELS:,} ids with labels, but got {len(ids):,}")
    return ids, labels


def join_labels(
    session: Session,
    models: Mapping[int, tuple[Model, AccuracyEstimator | None]],
    ids: Sequence[str],
    labels: Sequence[Any],
    window: tuple[datetime, datetime] | None,
) -> dict[str, Any]:
    """Give kept rows their labels, and count again the windows that they are in.

    Parameters
    ----------
    models : dict
        Versions that are looked at, by number, with their estimators, which know the names of the classes.
    ids, labels : sequence
        Of the same length. Of an id that occurs more than once, the last label counts.
    window : pair of datetime, optional
        Start and end of the window that the rows are in; needed where an id is in several.
    """
    _check_ids(ids)
    label_of = dict(zip(ids, labels, strict=True))
    where = [
        Window.model_id.in_(models),
        *([] if window is None else [Window.start == window[0], Window.end == window[1]]),
    ]
    kept: list[Row[Any]] = []
    wanted = list(label_of)
    for first in range(0, len(wanted), _CHUNK):
        kept += session.execute(
            select(KeptRow.row_id, KeptRow.window_id, KeptRow.label, Window.model_id, Window.start)
            .join(Window, Window.id == KeptRow.window_id)
            .where(*where, KeptRow.row_id.in_(wanted[first : first + _CHUNK]))
        )
    seen: dict[str, datetime] = {}
    for row in kept:  # versions may have the same rows, but windows of different times may not
        if seen.setdefault(row.row_id, row.start) != row.start:
            raise GdscoreError(
                f"Expected ids of one window, but {shown(row.row_id)} is in those of {shown_time(seen[row.row_id])} "
                f"and {shown_time(row.start)}: give the time of the window"
            )
    expired = _expired(session, models, window)
    if not kept and not expired:
        _check_kept(models)
    positions = {number: _positions(label_of, estimator) for number, (_, estimator) in models.items()}
    values = [
        {"window": row.window_id, "id": row.row_id, "value": positions[row.model_id][row.row_id], "before": row.label}
        for row in kept
    ]
    changed = [value for value in values if value["value"] != value["before"]]
    if changed:
        table = KeptRow.__table__
        session.connection().execute(
            update(table)  # type: ignore[arg-type]
            .where(table.c.window_id == bindparam("window"), table.c.row_id == bindparam("id"))
            .values(label=bindparam("value")),
            [{key: value[key] for key in ("window", "id", "value")} for value in changed],
        )
    replaced = sum(value["before"] is not None for value in changed)
    unknown = [i for i in wanted if i not in seen]
    n_classes = {number: 0 if est is None else est.n_classes_ for number, (_, est) in models.items()}
    touched = sorted({(row.start, row.window_id, row.model_id) for row in kept})
    counted = [
        (model, *one)
        for _, number, model in touched
        for one in _count_rows(session, models[model][0], session.get_one(Window, number), n_classes[model])
    ]
    for owner, (version, _) in models.items():
        store_labels(session, version, [counts for model, counts, _ in counted if model == owner])
    return {
        "added": len(changed) - replaced,
        "replaced": replaced,
        "same": len(values) - len(changed),
        "unknown": len(unknown),
        "unknown_ids": unknown[:SHOWN_IDS],
        **({"expired": expired} if unknown and expired else {}),
        "windows": [facts for _, _, facts in counted],
    }


def _check_kept(models: Mapping[int, tuple[Model, Any]]) -> None:
    """Tell where no row can be found as none is kept."""
    current = next((model for model, _ in models.values() if model.superseded_at is None), None)
    if current is not None and Rules.from_dict(current.rules).keep_rows is None:
        raise NotFoundError(
            f"Expected rows of {current.name!r} that are kept, but there are none: set its rule `keep_rows`, such as "
            '{"keep_rows": "90d"}, before the windows are added'
        )


def _expired(
    session: Session, models: Mapping[int, tuple[Model, Any]], window: tuple[datetime, datetime] | None
) -> str:
    """That ids may be unknown as the rows of their windows are kept no more; empty where none has expired."""
    for model, _ in models.values():
        oldest = _oldest_kept(model)
        if oldest is None or (window is not None and window[1] >= oldest):
            continue
        old = select(func.count()).where(Window.model_id == model.id, Window.segment == "", Window.end < oldest)
        if window is not None:
            old = old.where(Window.start == window[0], Window.end == window[1])
        if session.scalars(old).one():
            kept = f"have expired (keep_rows {Rules.from_dict(model.rules).keep_rows})"
            if window is None:
                return f"rows of windows that ended before {shown_time(oldest)} {kept}"
            return f"the window of {shown_time(window[0])} is known, but its rows {kept}"
    return ""


def _positions(label_of: Mapping[str, Any], estimator: AccuracyEstimator | None) -> dict[str, int]:
    """Class of each id's label."""
    if estimator is None:
        return {}
    labels = list(label_of.values())
    kinds = {type(label) for label in labels}
    column = np.array(labels if len(kinds) == 1 else [str(label) for label in labels])
    try:
        positions = class_positions(column, estimator.class_names_, estimator.n_classes_)
    except RowError as error:
        ids = list(label_of)
        raise GdscoreError(f"{error} (id {shown(ids[error.row])})") from None
    outside = (positions < 0) | (positions >= estimator.n_classes_)
    if outside.any():
        row = int(outside.argmax())
        raise GdscoreError(
            f"Expected labels from 0 to {estimator.n_classes_ - 1}, but got {shown(labels[row])} for the id "
            f"{shown(list(label_of)[row])}"
        )
    return dict(zip(label_of, positions.tolist(), strict=True))


def _count_rows(
    session: Session, model: Model, window: Window, n_classes: int
) -> list[tuple[LabelCounts, dict[str, Any]]]:
    """What the labels of a window's rows say of it and of its segments, and the same as plain data."""
    rows = session.execute(
        select(KeptRow.prediction, KeptRow.label, KeptRow.right, KeptRow.segments).where(KeptRow.window_id == window.id)
    ).all()
    by_segment: dict[str, list[Any]] = {"": list(rows)}
    for row in rows:
        for segment in filter(None, row.segments.split("\n")):
            by_segment.setdefault(segment, []).append(row)
    same = (Window.model_id == model.id, Window.start == window.start, Window.end == window.end)
    there = set(session.scalars(select(Window.segment).where(*same)))  # that of a segment may have been deleted
    counted = []
    for segment, mine in by_segment.items():
        with_label = [row for row in mine if row.label is not None]
        if not with_label or segment not in there:
            continue
        correct = sum(row.label == row.prediction for row in with_label)
        by_class = np.bincount([row.label for row in with_label], minlength=n_classes).tolist()
        facts = {
            "version": model.version,
            "start": window.start.isoformat(),
            "end": window.end.isoformat(),
            "segment": segment,
            "rows": len(mine),
            "labelled": len(with_label),
            "correct": correct,
            "accuracy": correct / len(with_label),
            "expected": sum(row.right for row in with_label) / len(with_label),
            "expected_of_all": sum(row.right for row in mine) / len(mine),
        }
        key = window.start, window.end, segment
        counted.append((LabelCounts(key, correct, len(with_label), by_class), facts))
    return counted


# -- labels of windows, and of earlier ones ------------------------------------------------------------------


class LabelCounts(NamedTuple):
    """What labels show of a window."""

    key: Key
    correct: int
    rows: int
    classes: list[int] | None = None
    """Labels by class, where they are known."""


def count_labels(
    key: Key, outputs: Outputs | None, *, correct: int | None, accuracy: float | None, rows: int | None
) -> LabelCounts:
    """How many rows were predicted right, of how many: from outputs with labels, or from the numbers given."""
    classes = None
    if outputs is not None:
        if "labels" not in outputs.has:
            raise GdscoreError("Expected outputs with labels, but they have none")
        accuracy, rows = outputs.accuracy, len(outputs)
        if outputs.n_classes is not None:
            classes = np.bincount(to_numpy(outputs.labels), minlength=outputs.n_classes).tolist()
    rows = integer("rows", rows, least=1)
    if accuracy is not None:
        counted = round(number("accuracy", accuracy, least=0, most=1) * rows)
        if correct is not None and correct != counted:
            raise GdscoreError(
                f"Expected `correct` or `accuracy`, but got {correct} of {rows} and {accuracy:g}: give one"
            )
        correct = counted
    correct = integer("correct", correct, least=0)
    if correct > rows:
        raise GdscoreError(f"Expected at most {rows} correct rows, but got {correct}")
    return LabelCounts(key, correct, rows, classes)


def store_labels(session: Session, model: Model, counted: Iterable[LabelCounts]) -> None:
    """Keep how many rows of windows were predicted right, and compute the alarms of each series once."""
    changed = set()
    for counts in counted:
        start, end, segment = counts.key
        mine = (Window.model_id == model.id, Window.segment == segment)
        window = session.scalars(select(Window).where(*mine, Window.start == start, Window.end == end)).first()
        if window is None:
            raise NotFoundError(
                f"Expected a window of {model.name!r} at {shown_time(start)}, but there is none: add it"
            )
        if counts.rows > window.rows:
            raise GdscoreError(
                f"Expected labels of at most {window.rows} rows, as the window of {shown_time(start)} has so many, but "
                f"got {counts.rows}"
            )
        if (window.labelled, window.correct) != (counts.rows, counts.correct):
            changed.add(segment)
        window.labelled, window.correct, window.classes = counts.rows, counts.correct, counts.classes
        window.labels_at = utc_now()
        window.missed = None if window.tracked is None else tracked_window(window).missed
    for segment in sorted(changed):
        follow_again(session, model, segment)
        session.get_one(Series, (model.id, segment)).labels = newest_labels(session, model.id, segment)


_OF_LABELS = (
    select(Series.segment, Series.labels)
    .join(Model, Model.id == Series.model_id)
    .where(Model.name == bindparam("model"), Series.segment.in_(bindparam("segments", expanding=True)))
)
_EARLIER = select(Window.model_id, Window.start, *ESTIMATED, Window.classes, Window.tracked)


class EarlierLabels:
    """Labels of the windows of a model, of all its versions, for the estimates of later windows."""

    def __init__(
        self, session: Session, model: Model, segments: set[str], estimator_of: Callable[[str], AccuracyEstimator]
    ) -> None:
        self.session, self.model = session, model
        asked = {"model": model.name, "segments": [*segments, ""]}
        self.segments = {segment for segment, labels in session.execute(_OF_LABELS, asked) if labels}
        versions = versions_of(session, model.name) if self.segments else [model]
        self.versions = {one.id: place for place, one in enumerate(versions)}
        self.reference: Version | None = None
        self.alike: set[int] = set()
        if self.segments and model.estimator_hash is not None:
            self.reference = Version.of(estimator_of(model.estimator_hash))
            self.alike = {
                one.id
                for one in versions
                if one.estimator_hash and estimator_of(one.estimator_hash).class_names_ == self.reference.class_names
            }

    def estimate(self, key: Key, free: Estimate, with_class_mix: Callable[[Any], Estimate] | None) -> Tracked:
        """Estimate and window of a key, and the estimate without labels that knows the class mix of the labels."""
        start, _, segment = key
        past, starts = self._past(segment, start) if self.segments & {segment, ""} else ([], [])
        history = History(
            past,
            [time.timestamp() for time in starts],
            self._tally(segment, start) if past else Tally(),
            self.alike,
            self.reference.mix if self.reference is not None and with_class_mix is not None else None,
            self._common(past) if segment and past else None,
        )
        return tracked(free, with_class_mix or (lambda _: free), history, start, self.model.id)

    def _rows(self, *clauses: Any) -> list[Any]:
        """Windows of the newest version that has one of each start, in order of time."""
        newest: dict[datetime, Any] = {}
        for row in self.session.execute(_EARLIER.where(Window.model_id.in_(self.versions), *clauses)):
            there = newest.get(row.start)
            if there is None or self.versions[there.model_id] < self.versions[row.model_id]:
                newest[row.start] = row
        return [newest[start] for start in sorted(newest)]

    def _past(self, segment: str, start: datetime) -> tuple[list[TrackedWindow], list[datetime]]:
        """The latest windows before a time that labels tell of, and the starts of all from the first of these on.

        Labels of all rows tell of each segment too.
        """
        before = (Window.model_id.in_(self.versions), Window.start < start)
        labelled = select(Window.start).where(*before, Window.segment.in_({segment, ""}), Window.labelled > 0)
        latest = labelled.distinct().order_by(Window.start.desc()).limit(SETTINGS.most_windows)
        told = self.session.scalars(latest).all()
        past = [tracked_window(row) for row in self._rows(Window.segment == segment, Window.start.in_(told))]
        if not past:
            return [], []
        starts = select(Window.start).where(*before, Window.segment == segment, Window.start >= past[0].time)
        return past, list(self.session.scalars(starts.distinct().order_by(Window.start)))

    def _common(self, past: Sequence[TrackedWindow]) -> list[CommonError]:
        """What the segments of each window have in common: the errors of all rows, which are their sum."""
        all_rows = {
            row.start: CommonError.of([tracked_window(row)])
            for row in self._rows(Window.segment == "", Window.start.in_([w.time for w in past]), Window.labelled > 0)
        }
        return [all_rows.get(window.time, CommonError()) for window in past]

    def _tally(self, segment: str, start: datetime) -> Tally:
        counts = select(func.count(Window.missed), func.sum(cast(Window.missed, Integer)))
        mine = (Window.model_id.in_(self.versions), Window.segment == segment, Window.start < start)
        tested, missed = self.session.execute(counts.where(*mine)).one()
        return Tally(int(tested), int(missed or 0))


def tracked_window(row: Any) -> TrackedWindow:
    """What is stored of a window, as `gdscore.tracking` takes it."""
    window = TrackedWindow(row.start, row.rows, row.label_free, row.label_free, row.accuracy, row.low, row.high)
    window.unchanged, window.last_known, window.version = row.reference_accuracy, row.last_known, row.model_id
    window.n_labels, window.n_right, window.classes = row.labelled or 0, float(row.correct or 0), row.classes or []
    for name, value in (row.tracked or {}).items():
        setattr(window, name, value)
    return window
