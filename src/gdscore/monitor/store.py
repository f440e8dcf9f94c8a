"""What goes into the database: models, estimators, rules, windows and labels; alarms follow (`alarms.py`)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import bindparam, delete, exists, func, or_, select, text, tuple_, update
from sqlalchemy.orm import Session

from gdscore._arrays import is_array, to_numpy
from gdscore._files import check_readable
from gdscore._stream import Batch, batches
from gdscore._windows import Every, as_times, utc_starts
from gdscore.errors import GdscoreError
from gdscore.estimator import AccuracyEstimator, Estimate, TargetState
from gdscore.labeling import LabelledEstimate
from gdscore.monitor.alarms import (
    end_alarms,
    follow_again,
    follow_changed,
    known_series,
    prune_alarms,
    prune_series,
    reopen_alarms,
    touch_windows,
)
from gdscore.monitor.database import AdvisedError, Key, check_name, shown_time, utc_now, window_bounds
from gdscore.monitor.labels import Collector, EarlierLabels, tracked_window
from gdscore.monitor.queries import NotFoundError, newest_labels, versions_of, window_facts
from gdscore.monitor.rules import Rules
from gdscore.monitor.schema import Alarm, EstimatorFile, Model, RulesChange, Series, Window
from gdscore.outputs import Outputs
from gdscore.tracking.windows import TRACKED

Outcome: TypeAlias = Literal["new", "same", "replaced", "too old"]
"""What became of a window that was added."""
LARGEST_ESTIMATOR = 256 << 20
MOST_WINDOWS = 100_000
AT_ONCE = 500
"""Windows that are stored in one transaction; between two of them others have their turn."""
ONE_DAY = Every(timedelta(days=1))
UNKNOWN_REFERENCE = 100
"""Rows of a reference whose size nobody has told: few, so that the alarms promise no more than is known."""

EstimatorLike: TypeAlias = AccuracyEstimator | str | Path | bytes


class ConflictError(AdvisedError):
    """What is added is there already, with other contents, or the model takes no windows."""


def check_model_name(name: str) -> str:
    """Name of a model, or an error where it cannot be part of an address."""
    name = check_name("model", name)
    if "/" in name or "\\" in name or name in (".", ".."):
        raise GdscoreError(f"Expected a model name that can be part of an address, without slashes, but got {name!r}")
    return name


_LOCKED = select(Model).where(Model.id == bindparam("number")).with_for_update()


def lock_model(session: Session, number: int) -> Model:
    """A model whose writers wait for each other from here on, so that its alarms see windows one after the other."""
    model = session.scalars(_LOCKED, {"number": number}).first()
    if model is None:
        raise NotFoundError("Expected a model, but somebody has deleted it just now")
    return model


def store_model(
    session: Session,
    name: str,
    version: str | None,
    content: bytes | None,
    digest: str | None,
    *,
    every: Every | None = None,
    rules: Rules | Mapping[str, Any] | None = None,
    reference_rows: int | None = None,
    by: str = "unknown",
    switch: bool = True,
) -> Model:
    """Register a model with the file of its estimator, or change one; another version ends the alarms of the others.

    What is not given stays as it is; a new version begins with the rules and the length of the one before. With
    ``switch`` windows go to the version from now on, and alarms that it had when it was superseded are open again.
    """
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text("SELECT pg_advisory_xact_lock(7238402)"))  # two may register the same name at once
    if content is not None and digest is not None and session.get(EstimatorFile, digest) is None:
        session.add(EstimatorFile(hash=digest, content=content))
        session.flush()
    versions = session.scalars(select(Model).where(Model.name == name).order_by(Model.id).with_for_update()).all()
    current = next((model for model in versions if model.superseded_at is None), None)
    version = (current.version if current else "1") if version is None else version
    model = next((model for model in versions if model.version == version), None)
    now = utc_now()
    if model is not None and digest is not None and model.estimator_hash not in (None, digest):
        raise ConflictError(
            f"Expected a new version of {name!r} for another estimator, but {version!r} has one",
            "give version= (--version)",
            'register a new version first: POST /api/v1/models with {"name": …, "version": …}',
        )
    switched = current is not None and model is not current and (switch or model is None)
    if current is not None and switched:
        end_alarms(session, [current.id], now, "new version")
        current.superseded_at = now
        session.flush()  # only one is current at any time
    if model is None:
        model = Model(name=name, version=version, created_at=now, current_since=now, rules_change=0)
        model.reference_rows = UNKNOWN_REFERENCE
        model.every, model.rules = (current.every, current.rules) if current else (ONE_DAY, Rules().to_dict())
        session.add(model)
    elif switched:
        model.current_since, model.superseded_at = now, None
    retired, model.retired_at = model.retired_at, None if switch else model.retired_at
    model.every = every or model.every
    counted = model.reference_rows
    if reference_rows is not None:
        model.reference_rows = reference_rows
    model.estimator_hash = digest or model.estimator_hash
    session.flush()
    store_rules(session, model, rules, by, always=model.rules_change == 0 or counted != model.reference_rows)
    if switched or (switch and retired is not None):
        reopen_alarms(session, model)
    return model


def store_rules(
    session: Session, model: Model, rules: Rules | Mapping[str, Any] | None, by: str, *, always: bool = False
) -> None:
    """Change rules of a model: all of them, or those that are named. Each change is kept with who made it."""
    before = Rules.from_dict(model.rules)
    after = rules if isinstance(rules, Rules) else before.changed(rules or {})
    changes = {name: value for name, value in after.to_dict().items() if value != before.to_dict()[name]}
    model.rules = after.to_dict()
    if changes or always:
        _note_change(session, model, changes, by)


def _note_change(session: Session, model: Model, changes: dict[str, Any], by: str) -> None:
    change = RulesChange(model_id=model.id, changed_at=utc_now(), changed_by=by, changes=changes, rules=model.rules)
    change.reference_rows, change.learn_from = model.reference_rows, model.learn_from
    session.add(change)
    session.flush()
    model.rules_change = change.id


def learn_again(session: Session, model: Model, since: datetime | None, by: str) -> datetime:
    """Let the tests of a model learn its quiet windows again, from a time on or from the next window on."""
    newest = select(func.max(Window.end)).where(Window.model_id == model.id)
    model.learn_from = since or session.scalars(newest).one() or utc_now()
    _note_change(session, model, {"learn_from": model.learn_from.isoformat()}, by)
    touch_windows(session, model, model.learn_from)
    for segment in session.scalars(select(Series.segment).where(Series.model_id == model.id)).all():
        follow_again(session, model, segment)
    return model.learn_from


def retire_model(session: Session, model: Model) -> None:
    """Watch a model no more: its alarms end, no window is missed, and none is taken."""
    model.retired_at = model.retired_at or utc_now()
    end_alarms(session, [model.id], model.retired_at, "retired")


def delete_model(session: Session, name: str) -> int:
    """Delete all versions of a model with their windows, rows, alarms and notices; returns how many versions."""
    versions_of(session, name)
    gone = session.execute(delete(Model).where(Model.name == name).execution_options(synchronize_session=False))
    used = exists().where(Model.estimator_hash == EstimatorFile.hash)
    session.execute(delete(EstimatorFile).where(~used).execution_options(synchronize_session=False))
    return int(gone.rowcount)  # type: ignore[attr-defined]


def read_estimator(estimator: EstimatorLike | None) -> tuple[bytes | None, str | None, int | None]:
    """Bytes of an estimator, their SHA-256 and the rows of its reference; nothing of none."""
    if estimator is None:
        return None, None, None
    if isinstance(estimator, AccuracyEstimator):
        estimator = estimator.to_bytes()
    elif not isinstance(estimator, bytes):
        path = check_readable(estimator)
        if path.stat().st_size > LARGEST_ESTIMATOR:
            raise GdscoreError(f"Expected an estimator of at most {LARGEST_ESTIMATOR >> 20} MiB")
        AccuracyEstimator.load(path)  # messages name the file
        estimator = path.read_bytes()
    return estimator, hashlib.sha256(estimator).hexdigest(), AccuracyEstimator.load(estimator).reference_rows_


class Fresh(NamedTuple):
    """An estimate of a window without labels of earlier ones, and how to make it with other shares of the classes."""

    estimate: Estimate
    with_class_mix: Callable[[Any], Estimate] | None = None


class Made(NamedTuple):
    """An estimate of a window as it will be stored."""

    key: Key
    estimate: Estimate
    facts: dict[str, Any]
    measures: dict[str, list[float]] | None
    label_free: float
    last_known: float | None
    tracked: dict[str, float] | None
    digest: str
    """Of the estimate without labels, so that adding a window again stays no change where labels have come since."""


def prepare_windows(model: Model, fresh: Mapping[Key, Fresh], history: EarlierLabels) -> list[Made]:
    """Estimates as they will be stored, in the order of time, so that a transaction has less to do.

    They rest on the labels of earlier windows too, where there are any.
    """
    rules, made = Rules.from_dict(model.rules), []
    for key, (free, with_class_mix) in sorted(fresh.items(), key=lambda item: item[0]):
        facts = free.to_dict()
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
        estimate, by_class, last_known, kept = free, free, None, None
        if rules.tracking and history.segments and free.method != TRACKED and not isinstance(free, LabelledEstimate):
            estimate, window, by_class = history.estimate(key, free, with_class_mix)
            last_known = window.last_known
            if window.error is not None and window.factor is not None:
                kept = {"raked": window.raked, "error": window.error, "factor": window.factor}
        # Labels tell how accurate the model is, not on which classes: of those the estimate without them tells.
        if estimate is not free:
            whole = replace(estimate, per_class=by_class.per_class, f1=by_class.f1, assumptions=free.assumptions)
            facts = whole.to_dict()
        label_free = estimate.accuracy if estimate.label_free is None else estimate.label_free.value
        measures = rules.measures_of(by_class)
        made.append(Made(key, estimate, facts, measures, label_free, last_known, kept, digest))
    return made


# -- outputs into windows and segments ----------------------------------------------------------------------


def estimate_windows(
    est: AccuracyEstimator,
    outputs: Outputs | Iterable[Any],
    time: Any,
    by: Any,
    inputs: Any,
    every: Every,
    kept: Collector | None,
) -> dict[Key, Fresh]:
    """Estimate of each window and segment, in one pass: a state for all rows, and one for each column of ``by``."""
    states: dict[str | None, TargetState] = {}
    bounds: dict[datetime, tuple[datetime, datetime]] = {}
    for batch in _timed(batches(outputs, by if isinstance(outputs, Outputs) else None), time):
        starts = _starts(batch.time, every, len(batch.outputs), bounds)
        segments = {column: _names(column, values) for column, values in batch.by.items()}
        if kept is not None:
            kept.take(batch.outputs, starts, segments.values())
        for column in (None, *segments):
            columns: dict[str, Any] = {"": starts}
            if column is not None:
                columns["segment"] = segments[column]
            state = states.setdefault(column, est.state()).update(batch.outputs, columns, inputs)
            if len(state.segments or ()) > MOST_WINDOWS:
                raise GdscoreError(
                    f"Expected at most {MOST_WINDOWS:,} windows and segments at once, but there are more: are the "
                    "columns of time and segments the right ones?"
                )
    fresh: dict[Key, Fresh] = {}
    for column, state in states.items():
        for key, estimate in est.estimate(state).items():
            start, segment = (key, "") if column is None else key
            window: Key = (*bounds[start], segment)
            fresh[window] = Fresh(estimate, partial(_with_class_mix, est, state, key))
    return fresh


def _with_class_mix(est: AccuracyEstimator, state: TargetState, key: Any, shares: Any) -> Estimate:
    """Estimate of one segment of a state where the shares of the classes are known."""
    estimate: Estimate = est.estimate(state.of_segment(key), class_mix=shares)
    return estimate


def _timed(parts: Iterable[Batch], time: Any) -> Iterator[Any]:
    """Batches whose time is the one given, or the one of their rows."""
    for part in parts:
        if time is None and part.time is None:
            raise AdvisedError(
                "Expected the time of the window, or of each row, but there is none",
                "give time=",
                "give `time` or `time_column` in the query, or `time` in JSON",
            )
        yield part._replace(time=part.time if time is None else time)


def _starts(
    time: Any, every: Every, rows: int, bounds: dict[datetime, tuple[datetime, datetime]]
) -> NDArray[np.datetime64]:
    """Start of each row's window; ``bounds`` takes in the start and end of each window."""
    if not ((is_array(time) or hasattr(time, "to_numpy")) and np.ndim(time) == 1):
        start, end = window_bounds(time, every)
        bounds[start.replace(tzinfo=None)] = start, end
        return np.full(rows, start.replace(tzinfo=None), dtype="datetime64[us]")
    column = as_times(time)
    if column.shape != (rows,) or np.isnat(column).any():
        raise GdscoreError(f"Expected a time for each of {rows} rows, but some are missing")
    starts = utc_starts(column, every)
    for start in np.unique(starts).tolist():
        if start not in bounds:
            bounds[start] = window_bounds(start.replace(tzinfo=UTC), every)
    return starts


def _names(column: str, values: Any) -> list[str]:
    """Names of the segments of rows: of a named column ``country=fr``, else the value itself."""
    values = values.to_pylist() if hasattr(values, "to_pylist") else values
    listed = to_numpy(values).tolist() if is_array(values) else list(values)
    names = {
        value: check_name("segment", f"{column}={value}" if column else str(value) or "(empty)")
        for value in dict.fromkeys(listed)
    }
    return [names[value] for value in listed]


# -- storing --------------------------------------------------------------------------------------------------


def store_windows(session: Session, model: Model, made: Sequence[Made], replace: bool) -> list[dict[str, Any]]:
    """Keep estimates of windows, and compute the alarms of the series that they are of."""
    if model.retired_at is not None:
        raise ConflictError(
            f"Expected a model that is watched, but {model.name!r} was retired on {shown_time(model.retired_at)}",
            "register it again to go on",
            "register it again to go on: POST /api/v1/models",
        )
    rules = Rules.from_dict(model.rules)
    series = known_series(session, model, list({one.key[2] for one in made}))
    _check_segments(session, model, rules, {m.key[2] for m in made} - set(series.series))
    there = known_windows(session, model, [m for m in made if series.may_have(m.key[2], m.key[0])], replace)
    stored = [(*_store_window(model, one, there.get(one.key)), one.key) for one in made]
    changed: dict[str, list[Window]] = {}
    for window, outcome, (_, _, segment) in stored:
        if outcome in ("new", "replaced"):
            changed.setdefault(segment, []).append(window)
    if changed:
        follow_changed(session, model, series, changed)
    return [
        window_facts(window, model) | {"new": outcome == "new"} | ({"too_old": True} if outcome == "too old" else {})
        for window, outcome, _ in stored
    ]


def check_added(session: Session, model: Model, made: Sequence[Made], replace: bool) -> None:
    """Refuse what `store_windows` would refuse, before a part of it is stored."""
    new: set[str] = set()
    for first in range(0, len(made), AT_ONCE):
        together = made[first : first + AT_ONCE]
        segments = {one.key[2] for one in together}
        new |= segments - set(known_series(session, model, list(segments)).series)
        known_windows(session, model, together, replace)
    _check_segments(session, model, Rules.from_dict(model.rules), new)


def _check_segments(session: Session, model: Model, rules: Rules, new: set[str]) -> None:
    """Refuse more segments than a model may have, which are often the numbers of users."""
    named = new - {""}  # that of all rows is no segment
    if not named:
        return
    stored = select(func.count()).where(Series.model_id == model.id, Series.segment != "")
    count = session.scalars(stored).one() + len(named)
    if count > rules.max_segments:
        raise AdvisedError(
            f"Expected at most {rules.max_segments:,} segments of {model.name!r} (rule max_segments), but with "
            f"{len(named):,} new ones such as {min(named)[:60]!r} there would be {count:,}",
            "choose other columns for segments, or raise the rule",
            "choose other columns for `by`, or raise the rule: "
            f'PATCH /api/v1/models/{model.name}/rules with {{"max_segments": …}}',
        )


_THERE = select(Window).where(
    Window.model_id == bindparam("model"),
    tuple_(Window.start, Window.end, Window.segment).in_(bindparam("keys", expanding=True)),
)


def known_windows(session: Session, model: Model, made: Sequence[Made], replace: bool) -> dict[Key, Window]:
    """Windows that are there already; one with other numbers is refused, unless it is to be replaced or was so far."""
    there = session.scalars(_THERE, {"model": model.id, "keys": [one.key for one in made]}) if made else ()
    by_key = {(window.start, window.end, window.segment): window for window in there}
    for one in made if by_key and not replace else ():
        same = by_key.get(one.key)
        if same is not None and same.content_hash != one.digest and not same.so_far:
            raise ConflictError(
                f"Expected a new window of {model.name!r}, but the one at {shown_time(same.start)} is there with other "
                "numbers",
                "give replace=True (--replace) to replace it",
                "send it with `replace` set to true to replace it",
            )
    return by_key


def _store_window(model: Model, made: Made, window: Window | None) -> tuple[Window, Outcome]:
    (start, end, segment), facts = made.key, made.facts
    if window is not None and window.content_hash == made.digest:
        if window.so_far:
            window.created_at = utc_now()
        return window, "same"
    outcome: Outcome = "new" if window is None else "replaced"
    if window is None:
        window = Window(model_id=model.id, segment=segment, start=start, end=end)
        if model.pruned_before is not None and end < model.pruned_before:
            outcome = "too old"
    else:
        window.rules_change = model.rules_change  # it came again
    for column in ("accuracy", "low", "high", "level", "reference_accuracy", "scores", "warnings"):
        setattr(window, column, facts[column])
    window.rows, window.estimate, window.content_hash = made.estimate.n_rows, facts, made.digest
    window.label_free, window.last_known, window.tracked = made.label_free, made.last_known, made.tracked
    if window.labelled is not None and window.labelled > window.rows:
        # They were of rows that the window no longer has.
        window.labelled = window.correct = window.classes = None
    window.missed = None if window.tracked is None else tracked_window(window).missed
    window.created_at, window.measures = utc_now(), made.measures
    return window, outcome


def prune_windows(session: Session, number: int, limit: datetime) -> int:
    """Delete windows of a model that ended before this time, but for the newest of each series, and its alarms."""
    model = lock_model(session, number)
    of_series = (Series.model_id == Window.model_id) & (Series.segment == Window.segment)
    old = (Window.model_id == number, Window.end < limit, Window.id != Series.last_window)
    segments = session.scalars(select(Window.segment).join(Series, of_series).where(*old).distinct()).all()
    deleted = sum(prune_series(session, model, segment, limit) for segment in segments)
    session.flush()
    prune_alarms(session, model, limit)
    return deleted


def prunable_models(session: Session, limit: datetime) -> Sequence[int]:
    """Numbers of models that have windows or alarms to delete; older windows are not added again."""
    older = or_(Model.pruned_before.is_(None), Model.pruned_before < limit)
    session.execute(update(Model).where(older).values(pruned_before=limit).execution_options(synchronize_session=False))
    last = select(Series.last_window)
    windows = exists().where(Window.model_id == Model.id, Window.end < limit, Window.id.not_in(last))
    alarms = exists().where(Alarm.model_id == Model.id, Alarm.ended < limit)
    return session.scalars(select(Model.id).where(or_(windows, alarms)).order_by(Model.id)).all()


def delete_window(session: Session, number: int, name: str | None = None) -> dict[str, Any]:
    """Delete a window with its rows and labels, and compute the alarms of its series without it."""
    window = session.get(Window, number)
    if window is None:
        raise NotFoundError(f"Expected the number of a window, but there is no window {number}")
    model = lock_model(session, window.model_id)
    if name is not None and model.name != name:
        raise NotFoundError(f"Expected a window of {name!r}, but the window {number} is one of {model.name!r}")
    facts, segment = window_facts(window, model), window.segment
    session.delete(window)
    session.flush()
    follow_again(session, model, segment)
    series = session.get(Series, (model.id, segment))
    if series is not None and facts["labelled"]:
        series.labels = newest_labels(session, model.id, segment)
    return facts


def lock_alarm(session: Session, number: int) -> tuple[Alarm, Model]:
    """An alarm, after its model, as all writers lock them: two that lock in different orders wait for each other."""
    owner = session.scalar(select(Alarm.model_id).where(Alarm.id == number))
    model = None if owner is None else lock_model(session, owner)
    alarm = session.get(Alarm, number)
    if alarm is None or model is None:
        raise NotFoundError(f"Expected the number of an alarm, but there is no alarm {number}")
    return alarm, model
