"""What goes into the database: models with their estimators and rules, windows, labels, and the alarms that follow.

Alarms are a function of a series of windows: one alarm a problem, with a beginning and an end.

- The order in which windows arrive makes no difference: every window keeps the state of its series before it, and a
  window that comes late or is replaced has all windows from its place on followed again. Where these are many, the
  series waits (`Series.stale_since`) until `settle_series`, the next newest window, or more late ones.
- An alarm that is still there afterwards stays the same alarm, with who acknowledged it.
- An alarm that is not is deleted where nobody knows of it, and is otherwise withdrawn: it ends, and its end is told.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from sqlalchemy import bindparam, delete, exists, func, null, or_, select, text, tuple_, update
from sqlalchemy.orm import Session, undefer

from gdscore._checks import integer, number
from gdscore._paths import check_readable
from gdscore._windows import Every
from gdscore.errors import GdscoreError, nearest
from gdscore.estimator import AccuracyEstimator, Estimate, EstimateWarning
from gdscore.labeling import recalibrate
from gdscore.monitor.reading import current_models, labelled_estimate, newest_labels
from gdscore.monitor.rules import LABEL_FREE, Follower, Problem, Rules
from gdscore.monitor.schema import (
    Alarm,
    EstimatorFile,
    Model,
    RulesChange,
    Series,
    Window,
    check_name,
    shown_time,
    utc_now,
)
from gdscore.outputs import Outputs

__all__ = [
    "ConflictError",
    "EstimatorLike",
    "Key",
    "Made",
    "NotFoundError",
    "acknowledge_alarm",
    "check_known",
    "check_missing",
    "check_model_name",
    "count_correct",
    "delete_windows",
    "find_model",
    "known_windows",
    "learn_again",
    "lock_model",
    "mark_told",
    "pending_notices",
    "prepare_windows",
    "read_estimator",
    "settle_series",
    "store_labels",
    "store_model",
    "store_rules",
    "store_windows",
]

Key: TypeAlias = tuple[datetime, datetime, str]
"""Start and end of a window, and its segment; the empty segment holds all rows."""
RECENT = 60
"""Estimates kept beside a series for the small chart of the overview."""
PATIENCE = 8
"""Windows that are followed again for each one that came late, at most and on average."""
KEYS_AT_ONCE = 500
LARGEST_ESTIMATOR = 256 << 20
ONE_DAY = Every(timedelta(days=1))
UNKNOWN_REFERENCE = 100
"""Rows of a reference whose size nobody has told: few, so that the alarms promise no more than is known."""

EstimatorLike: TypeAlias = AccuracyEstimator | str | Path | bytes


class NotFoundError(GdscoreError):
    """There is no such model, window or alarm."""


class ConflictError(GdscoreError):
    """What is added is there already, with other contents."""


def check_model_name(name: str) -> str:
    """Name of a model, or an error where it cannot be part of an address."""
    name = check_name("model", name)
    if "/" in name or "\\" in name or name in (".", ".."):
        raise GdscoreError(f"Expected a model name that can be part of an address, without slashes, but got {name!r}")
    return name


def find_model(session: Session, name: str, version: str | None = None) -> Model:
    """A model, of the version that windows go to where none is given."""
    given = {"name": str(name)} if version is None else {"name": str(name), "version": version}
    found = session.scalars(_NEWEST if version is None else _OF_VERSION, given).first()
    if found is None and version is not None:
        versions = session.scalars(select(Model.version).where(Model.name == str(name)).limit(1000)).all()
        if versions:
            hint = nearest(version[:60], versions)
            raise NotFoundError(f"Unknown version {version[:60]!r} of the model {name!r}: {hint}")
    if found is None:
        known = session.scalars(select(Model.name).distinct().limit(1000)).all()
        hint = nearest(str(name)[:60], known) if known else "no model is registered: register it first"
        raise NotFoundError(f"Unknown model {str(name)[:60]!r}: {hint}")
    return found


_NAMED = select(Model).where(Model.name == bindparam("name")).order_by(Model.current_since.desc()).limit(1)
# Statements of every post are made once: to make them takes as long as to run them.
_NEWEST = _NAMED
_OF_VERSION = _NAMED.where(Model.version == bindparam("version"))
_LOCKED = select(Model).where(Model.id == bindparam("number")).with_for_update()


def lock_model(session: Session, number: int) -> Model:
    """A model whose writers wait for each other from here on, so that its alarms see windows one after the other."""
    return session.scalars(_LOCKED, {"number": number}).one()


def check_known(session: Session, name: str | None) -> None:
    """Refuse the name of a model that is not registered; None stands for all models."""
    if name is not None:
        find_model(session, name)


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
    ``switch`` windows go to the version from now on.
    """
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text("SELECT pg_advisory_xact_lock(7238402)"))  # two may register the same name at once
    if content is not None and digest is not None and session.get(EstimatorFile, digest) is None:
        session.add(EstimatorFile(hash=digest, content=content))
        session.flush()
    versions = session.scalars(select(Model).where(Model.name == name).order_by(Model.current_since.desc())).all()
    version = (versions[0].version if versions else "1") if version is None else version
    known = next((model for model in versions if model.version == version), None)
    now = max(utc_now(), versions[0].current_since + timedelta(microseconds=1)) if versions else utc_now()
    if known is None or (switch and known is not versions[0]):
        _end_alarms(session, [model.id for model in versions], now, "new version")
    if known is None:
        known = Model(name=name, version=version, created_at=now, reference_rows=UNKNOWN_REFERENCE, current_since=now)
        known.every, known.rules = (versions[0].every, versions[0].rules) if versions else (ONE_DAY, {})
        session.add(known)
        session.flush()
    elif digest is not None and known.estimator_hash not in (None, digest):
        raise ConflictError(
            f"Expected a new version of {name!r} for another estimator, but {version!r} has one: give version= "
            "(--version)"
        )
    elif switch and known is not versions[0]:
        known.current_since = now
    known.every = every or known.every
    if reference_rows is not None:
        known.reference_rows = reference_rows
    known.estimator_hash = digest or known.estimator_hash
    store_rules(session, known, rules, by)
    return known


def store_rules(session: Session, model: Model, rules: Rules | Mapping[str, Any] | None, by: str) -> None:
    """Change rules of a model: all of them, or those that are named. Each change is kept with who made it."""
    before = Rules.from_dict(model.rules)
    after = rules if isinstance(rules, Rules) else before.changed(rules or {})
    changes = {name: value for name, value in after.to_dict().items() if value != before.to_dict()[name]}
    model.rules = after.to_dict()
    if changes:
        session.add(RulesChange(model_id=model.id, changed_at=utc_now(), changed_by=by, rules=changes))


def learn_again(session: Session, model: Model, since: datetime | None, by: str) -> datetime:
    """Let the tests of a model learn its quiet windows again, from a time on or from the next window on."""
    newest = select(func.max(Window.end)).where(Window.model_id == model.id)
    model.learn_from = since or session.scalars(newest).one() or utc_now()
    session.add(
        RulesChange(
            model_id=model.id,
            changed_at=utc_now(),
            changed_by=by,
            rules={"learn_from": model.learn_from.isoformat()},
        )
    )
    for segment in session.scalars(select(Series.segment).where(Series.model_id == model.id)).all():
        _follow_series(session, model, segment, model.learn_from)
    return model.learn_from


def read_estimator(estimator: EstimatorLike) -> tuple[bytes, AccuracyEstimator]:
    """Bytes of an estimator, and one that was read from them."""
    if isinstance(estimator, AccuracyEstimator):
        estimator = estimator.to_bytes()
    elif not isinstance(estimator, bytes):
        path = check_readable(estimator)
        if path.stat().st_size > LARGEST_ESTIMATOR:
            raise GdscoreError(f"Expected an estimator of at most {LARGEST_ESTIMATOR >> 20} MiB")
        AccuracyEstimator.load(path)  # messages name the file
        estimator = path.read_bytes()
    return estimator, AccuracyEstimator.load(estimator)


class Made(NamedTuple):
    """An estimate of a window as it will be stored."""

    key: Key
    estimate: Estimate
    facts: dict[str, Any]
    digest: str
    """Of the estimate without labels, so that adding a window again stays no change where labels have come since."""


def prepare_windows(estimates: Mapping[Key, Estimate]) -> list[Made]:
    """Estimates as they will be stored, in the order of time, so that a transaction has less to do."""
    made = []
    for key, estimate in sorted(estimates.items(), key=lambda item: item[0]):
        facts = estimate.to_dict()
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
        made.append(Made(key, estimate, facts, digest))
    return made


def store_windows(session: Session, model: Model, made: Sequence[Made], replace: bool) -> list[dict[str, Any]]:
    """Keep estimates of windows, and compute the alarms from the first changed window of each series on."""
    rules = Rules.from_dict(model.rules)
    there = known_windows(session, model, made, replace)
    stored = [(*_store_window(session, model, rules, one, there.get(one.key)), one.key) for one in made]
    changed: dict[str, list[Window]] = {}
    for window, fate, (_, _, segment) in stored:
        if fate in ("new", "replaced"):
            changed.setdefault(segment, []).append(window)
    if changed:
        _follow_changed(session, model, changed)
    return [
        window.to_dict(model) | {"new": fate == "new"} | ({"too_old": True} if fate == "too old" else {})
        for window, fate, _ in stored
    ]


Fate: TypeAlias = Literal["new", "same", "replaced", "too old"]


_THERE = select(Window).where(
    Window.model_id == bindparam("model"),
    tuple_(Window.start, Window.end, Window.segment).in_(bindparam("keys", expanding=True)),
)


def known_windows(session: Session, model: Model, made: Sequence[Made], replace: bool) -> dict[Key, Window]:
    """Windows that are there already; one with other numbers is refused, unless it is to be replaced or was so far."""
    found: dict[Key, Window] = {}
    for first in range(0, len(made), KEYS_AT_ONCE):
        keys = [one.key for one in made[first : first + KEYS_AT_ONCE]]
        for window in session.scalars(_THERE, {"model": model.id, "keys": keys}):
            found[window.start, window.end, window.segment] = window
    for one in made if found and not replace else ():
        same = found.get(one.key)
        if same is not None and same.content_hash != one.digest and not same.so_far:
            raise ConflictError(
                f"Expected a new window of {model.name!r}, but the one at {shown_time(same.start)} is there with other "
                "numbers: give replace=True (--replace) to replace it"
            )
    return found


def _store_window(
    session: Session, model: Model, rules: Rules, made: Made, window: Window | None
) -> tuple[Window, Fate]:
    (start, end, segment), estimate, facts, digest = made
    if window is not None and window.content_hash == digest:
        if window.so_far:
            window.created_at = utc_now()
        return window, "same"
    if rules.recalibrate:
        estimate = _recalibrated(session, model, made.key, estimate)
        facts = estimate.to_dict()
    fate: Fate = "new" if window is None else "replaced"
    if window is None:
        window = Window(model_id=model.id, segment=segment, start=start, end=end)
        if model.pruned_before is not None and end < model.pruned_before:
            fate = "too old"
    for column in ("accuracy", "low", "high", "level", "reference_accuracy", "scores", "warnings"):
        setattr(window, column, facts[column])
    window.rows, window.estimate, window.content_hash = estimate.n_rows, facts, digest
    window.created_at = utc_now()
    return window, fate


def _recalibrated(session: Session, model: Model, key: Key, estimate: Estimate) -> Estimate:
    """Estimate corrected by the labels of the newest labelled window before; the score `label_free` keeps the other."""
    start, _, segment = key
    before = session.scalars(
        select(Window)
        .where(Window.model_id == model.id, Window.segment == segment, Window.start < start)
        .where(Window.labelled.is_not(None))
        .order_by(Window.start.desc())
        .limit(1)
    ).first()
    if before is None or before.labelled is None or before.correct is None:
        return estimate
    free = before.scores.get(LABEL_FREE, before.accuracy)
    ends = min(before.low, free), max(before.high, free)
    seen = labelled_estimate(
        *(free, *ends, before.level, before.rows, before.reference_accuracy, before.labelled, before.correct)
    )
    corrected = recalibrate(seen).apply(estimate, age=(start - before.start) / model.every.length)
    return dataclasses.replace(corrected, scores={**estimate.scores, LABEL_FREE: estimate.accuracy})


def count_correct(
    outputs: Outputs | None, *, correct: int | None, accuracy: float | None, rows: int | None
) -> tuple[int, int]:
    """How many rows were predicted right, of how many: from outputs with labels, or from the numbers given."""
    if outputs is not None:
        if "labels" not in outputs.has:
            raise GdscoreError("Expected outputs with labels, but they have none")
        accuracy, rows = outputs.accuracy, len(outputs)
    rows = integer("rows", rows, least=1)
    if accuracy is not None:
        found = round(number("accuracy", accuracy, least=0, most=1) * rows)
        if correct is not None and correct != found:
            raise GdscoreError(
                f"Expected `correct` or `accuracy`, but got {correct} of {rows} and {accuracy:g}: give one"
            )
        correct = found
    correct = integer("correct", correct, least=0)
    if correct > rows:
        raise GdscoreError(f"Expected at most {rows} correct rows, but got {correct}")
    return correct, rows


def store_labels(session: Session, model: Model, key: Key, correct: int, rows: int) -> None:
    """Keep how many rows of a window were predicted right, and compute the alarms from this window on."""
    start, end, segment = key
    window = session.scalars(
        select(Window).where(
            Window.model_id == model.id, Window.segment == segment, Window.start == start, Window.end == end
        )
    ).first()
    if window is None:
        raise NotFoundError(f"Expected a window of {model.name!r} at {shown_time(start)}, but there is none: add it")
    if rows > window.rows:
        raise GdscoreError(
            f"Expected labels of at most {window.rows} rows, as the window of {shown_time(start)} has so many, but got "
            f"{rows}"
        )
    same = (window.labelled, window.correct) == (rows, correct)
    window.labelled, window.correct, window.labels_at = rows, correct, utc_now()
    if not same:
        _follow_changed(session, model, {segment: [window]})
        session.get_one(Series, (model.id, segment)).labels = newest_labels(session, model.id, segment)


def delete_windows(session: Session, limit: datetime) -> int:
    """Delete windows that ended before this time, but for the newest of each series, and alarms that did."""
    latest = select(Series.last_window)
    gone = session.execute(delete(Window).where(Window.end < limit, Window.id.not_in(latest)))
    session.execute(delete(Alarm).where(Alarm.ended < limit))
    older = or_(Model.pruned_before.is_(None), Model.pruned_before < limit)
    session.execute(update(Model).where(older).values(pruned_before=limit))
    deleted = int(gone.rowcount)  # type: ignore[attr-defined]
    if deleted:
        kept = select(func.count()).where(Window.model_id == Series.model_id, Window.segment == Series.segment)
        session.execute(update(Series).values(windows=kept.scalar_subquery()))
    return deleted


# -- alarms ---------------------------------------------------------------------------------------------------


def acknowledge_alarm(session: Session, alarm: int, by: str) -> dict[str, Any]:
    """Note who has seen an alarm, if nobody had."""
    row = session.execute(
        select(Alarm, Model).join(Model, Model.id == Alarm.model_id).where(Alarm.id == alarm).with_for_update()
    ).first()
    if row is None:
        raise NotFoundError(f"Expected the number of an alarm, but there is no alarm {alarm}")
    if row[0].acknowledged_at is None:
        row[0].acknowledged_by, row[0].acknowledged_at = by, utc_now()
    alarm_row, model = row
    return dict(alarm_row.to_dict(model))


def _follow_changed(session: Session, model: Model, changed: Mapping[str, list[Window]]) -> None:
    """Follow series of which some windows are new, not added to the session yet, or have changed."""
    with session.no_autoflush:
        known, count, missing = _series_of(session, model, list(changed))
        count += len(changed) - len(known)
        newest: list[tuple[Series, Window]] = []
        late: list[tuple[Series, datetime | None, list[Window]]] = []
        for segment, windows in changed.items():
            series, last = known.get(segment) or (_new_series(session, model, segment), None)
            windows.sort(key=lambda window: (window.start, window.end))
            new = [window for window in windows if window.id is None]
            session.add_all(new)
            series.windows += len(new)
            has_last = last is None or last < (windows[-1].start, windows[-1].end)
            all_last = last is None or last[0] < windows[0].start
            if all_last and len(new) == len(windows) and series.stale_since is None:
                _follow_newest(session, model, series, windows, count)
                newest.append((series, windows[-1]))
            else:
                late.append((series, None if has_last or last is None else last[0], windows))
    session.flush()
    for series, window in newest:
        series.last_window = window.id
    if newest and missing:
        last_start = max(window.start for _, window in newest)
        _end_alarms(session, [model.id], last_start, "a window came", Alarm.rule == "missing")
    for series, last_one, windows in late:
        _follow_late(session, model, series, windows, last_one)


_SERIES = (
    select(
        *(Series, Window.start, Window.end),
        select(func.count()).where(Series.model_id == bindparam("model")).scalar_subquery(),
        exists().where(Alarm.model_id == bindparam("model"), Alarm.ended.is_(None), Alarm.rule == "missing"),
    )
    .select_from(Model)
    .outerjoin(Series, (Series.model_id == Model.id) & Series.segment.in_(bindparam("segments", expanding=True)))
    .outerjoin(Window, Window.id == Series.last_window)
    .where(Model.id == bindparam("model"))
    .options(undefer(Series.state))
)


def _series_of(
    session: Session, model: Model, segments: list[str]
) -> tuple[dict[str, tuple[Series, tuple[datetime, datetime]]], int, bool]:
    """Series of segments with the bounds of their newest windows, how many the model has, and whether any is missed."""
    found: dict[str, tuple[Series, tuple[datetime, datetime]]] = {}
    total, missed = 0, False
    for first in range(0, len(segments), KEYS_AT_ONCE):
        chosen = {"model": model.id, "segments": segments[first : first + KEYS_AT_ONCE]}
        for series, start, end, total, missed in session.execute(_SERIES, chosen):  # noqa: B007
            if series is not None:
                found[series.segment] = series, (start, end)
    return found, total, missed


def _new_series(session: Session, model: Model, segment: str) -> Series:
    series = Series(model_id=model.id, segment=segment, windows=0, last_window=0, recent=[], state={}, late=0)
    session.add(series)
    return series


def _follow_newest(session: Session, model: Model, series: Series, windows: Sequence[Window], count: int) -> None:
    """Follow windows that come after all others of their series."""
    follower = _follower(model, series.segment, series.state, count)
    for window in windows:
        window.before = follower.state
        _take(follower, window)
    follower.finish()
    if follower.begun or follower.carried:
        _store_alarms(session, model, series.segment, windows[0].start, follower)
    series.recent = [*series.recent, *(round(window.accuracy, 5) for window in windows)][-RECENT:]
    series.state = follower.state


def _follow_late(
    session: Session, model: Model, series: Series, windows: Sequence[Window], last: datetime | None
) -> None:
    """Follow a series from the first of some changed windows on, or, where that takes long, note that it has to be.

    ``last`` is the start of the newest window, None where that is one of the changed ones. Following waits until as
    many windows have come late as pay for it, so that a history filled in any order takes time proportional to it.
    """
    since = min(windows[0].start, series.stale_since or windows[0].start)
    series.late += len(windows)
    if last is not None and min((last - since) / model.every.length, series.windows) > PATIENCE * series.late:
        series.stale_since = since
    else:
        _follow_series(session, model, series.segment, since)


def settle_series(session: Session, model: Model, segment: str) -> None:
    """Follow a series whose late windows have waited."""
    series = session.get(Series, (model.id, segment))
    if series is not None and series.stale_since is not None:
        _follow_series(session, model, segment, series.stale_since)


def _follower(model: Model, segment: str, state: dict[str, Any], count: int) -> Follower:
    return Follower(
        Rules.from_dict(model.rules),
        state,
        f"{model.name} ({segment})" if segment else model.name,
        every=model.every,
        series=count,
        reference_rows=model.reference_rows,
        learn_from=model.learn_from,
    )


def _take(follower: Follower, window: Any) -> None:
    """Take in a window, or a row of its columns."""
    warnings = [EstimateWarning(**found) for found in window.warnings]
    numbers = window.accuracy, window.low, window.high, window.level, window.rows, window.reference_accuracy
    labelled = None if window.labelled is None else labelled_estimate(*numbers, window.labelled, window.correct)
    follower.take(Estimate(*numbers, warnings=warnings, scores=window.scores), window.start, labelled)


def _follow_series(session: Session, model: Model, segment: str, since: datetime) -> None:
    """Follow the windows that start at this time or later, as one of them is new or has changed."""
    series = session.get_one(Series, (model.id, segment))
    since = min(since, series.stale_since or since)
    mine = (Window.model_id == model.id, Window.segment == segment)
    followed = session.execute(
        select(
            *(Window.id, Window.start, Window.rows, Window.accuracy, Window.low, Window.high),
            *(Window.level, Window.reference_accuracy, Window.warnings, Window.scores, Window.labelled, Window.correct),
        )
        .where(*mine, Window.start >= since)
        .order_by(Window.start, Window.end)
    ).all()
    # A new window has no state of its own; the one after it knows how things were before both.
    known = select(Window.before).where(*mine, Window.start >= since, Window.before.is_not(null()))
    before = session.scalars(known.order_by(Window.start, Window.end).limit(1)).first()
    before = series.state if before is None else before
    count = session.scalars(select(func.count()).where(Series.model_id == model.id)).one()
    follower = _follower(model, segment, before, count)
    states = []
    for w in followed:
        states.append({"id": w.id, "before": follower.state})
        _take(follower, w)
    follower.finish()
    _store_alarms(session, model, segment, since, follower)
    series.state, series.stale_since, series.late = follower.state, None, 0
    if not followed:
        return
    session.execute(update(Window), states)
    if series.last_window != followed[-1].id:
        _end_alarms(session, [model.id], followed[-1].start, "a window came", Alarm.rule == "missing")
    newest = select(Window.accuracy).where(*mine).order_by(Window.start.desc(), Window.end.desc()).limit(RECENT)
    series.recent = [round(accuracy, 5) for accuracy in session.scalars(newest)][::-1]
    series.last_window = followed[-1].id


def _store_alarms(session: Session, model: Model, segment: str, since: datetime, follower: Follower) -> None:
    """Make the alarms of a series those that its follower found from a time on."""
    superseded = session.scalars(
        select(func.min(Model.current_since)).where(Model.name == model.name, Model.current_since > model.current_since)
    ).one()
    stored = session.scalars(
        select(Alarm)
        .where(Alarm.model_id == model.id, Alarm.segment == segment, Alarm.rule != "missing")
        .order_by(Alarm.raised.desc())
    ).all()
    later = [alarm for alarm in stored if alarm.raised >= since]
    for rule, problem in follower.carried.items():  # the newest of those raised before is the one that was open
        open_before = (a for a in stored if a.rule == rule and a.raised < since and not a.withdrawn)
        if (alarm := next(open_before, None)) is not None:  # retention may have deleted it
            _set_state(alarm, problem, superseded)
    for problem, alarm in _pairs(follower.begun, later):
        if alarm is None:
            alarm = Alarm(model_id=model.id, segment=segment, rule=problem.rule, opened_at=utc_now())
            alarm.pending, alarm.withdrawn = "begin", False
            session.add(alarm)
        else:
            later.remove(alarm)
        alarm.raised, alarm.began, alarm.message = problem.raised, problem.began, problem.message
        alarm.level, alarm.value, alarm.withdrawn = problem.level, problem.value, False
        _set_state(alarm, problem, superseded)
    for alarm in later:
        if "begin" in alarm.pending and alarm.acknowledged_at is None:
            session.delete(alarm)
        else:
            _set_end(alarm, alarm.began if alarm.ended is None else alarm.ended, "withdrawn")
            alarm.withdrawn = True


def _set_state(alarm: Alarm, problem: Problem, superseded: datetime | None) -> None:
    """What became of an alarm; those of an older version ended when the newer one was registered."""
    alarm.latest = alarm.latest if problem.latest is None else problem.latest
    _set_end(alarm, superseded if problem.ended is None else problem.ended, problem.reason or "new version")


def _pairs(problems: Iterable[Problem], alarms: list[Alarm]) -> list[tuple[Problem, Alarm | None]]:
    """Each problem with its alarm: the one raised by the same window, else one of the same time."""
    problems, left = list(problems), list(alarms)
    found: dict[int, Alarm] = {}
    for same in (_same_window, _same_time):
        for k, problem in enumerate(problems):
            alarm = None if k in found else next((a for a in left if same(problem, a)), None)
            if alarm is not None:
                found[k] = alarm
                left.remove(alarm)
    return [(problem, found.get(k)) for k, problem in enumerate(problems)]


def _same_window(problem: Problem, alarm: Alarm) -> bool:
    return alarm.rule == problem.rule and alarm.raised == problem.raised


def _same_time(problem: Problem, alarm: Alarm) -> bool:
    ends = [end for end in (problem.ended, alarm.ended) if end is not None]
    return alarm.rule == problem.rule and max(problem.began, alarm.began) <= min(ends, default=utc_now())


def _set_end(alarm: Alarm, ended: datetime | None, reason: str | None = None) -> None:
    """End an alarm, never before it began, or open it again, and note what has to be told."""
    ended = None if ended is None else max(ended, alarm.began)
    if ended is not None and alarm.ended is None:
        alarm.pending = f"{alarm.pending} end".strip()
    elif ended is None and alarm.ended is not None:
        alarm.pending = alarm.pending.removesuffix("end").strip() if "end" in alarm.pending else "begin"
    alarm.ended, alarm.end_reason = ended, None if ended is None else reason or alarm.end_reason


def _end_alarms(session: Session, models: Iterable[int], at: datetime, reason: str, *clauses: Any) -> None:
    """End the open alarms of models, at the latest of this time and their beginning."""
    for alarm in session.scalars(select(Alarm).where(Alarm.model_id.in_(models), Alarm.ended.is_(None), *clauses)):
        _set_end(alarm, max(at, alarm.began), reason)


def check_missing(session: Session, clock: datetime) -> None:
    """Raise and end the alarms of models whose windows have stopped coming; one that never had a window counts too."""
    newest = (
        select(Series.model_id, func.max(Window.end).label("end"))
        .join(Window, Window.id == Series.last_window)
        .group_by(Series.model_id)
        .subquery()
    )
    found = session.execute(
        select(Model, func.coalesce(newest.c.end, Model.created_at))
        .outerjoin(newest, newest.c.model_id == Model.id)
        .where(Model.id.in_(current_models()))
    ).all()
    for model, end in found:
        finding = Rules.from_dict(model.rules).check_missing(model.name, end, clock, model.every.length)
        if not finding.problem:
            _end_alarms(session, [model.id], clock, "rule changed", Alarm.rule == "missing")
            continue
        session.refresh(model, with_for_update=True)  # another process may look at the same time
        known = select(Alarm).where(Alarm.model_id == model.id, Alarm.rule == "missing", Alarm.raised == end)
        alarm = session.scalars(known).first()
        if alarm is None:
            alarm = Alarm(model_id=model.id, segment="", rule="missing", opened_at=utc_now(), pending="begin")
            alarm.raised, alarm.began, alarm.message, alarm.withdrawn = end, end, finding.message, False
            session.add(alarm)
        else:
            _set_end(alarm, None)


def pending_notices(session: Session) -> list[tuple[int, str, dict[str, Any]]]:
    """Alarms of which something has to be told: number, what, and the alarm as plain data."""
    rows = session.execute(select(Alarm, Model).join(Model, Model.id == Alarm.model_id).where(Alarm.pending != ""))
    return [(alarm.id, alarm.pending, alarm.to_dict(model)) for alarm, model in rows]


def mark_told(session: Session, alarm: int, pending: str) -> None:
    """Note that all targets have these notices of an alarm, unless more has to be told since."""
    session.execute(update(Alarm).where(Alarm.id == alarm, Alarm.pending == pending).values(pending=""))
