"""What goes into the database: models, estimators, rules, windows and labels; alarms follow (`following.py`)."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from sqlalchemy import bindparam, delete, func, or_, select, text, tuple_, update
from sqlalchemy.orm import Session

from gdscore._checks import integer, number
from gdscore._paths import check_readable
from gdscore._windows import Every
from gdscore.errors import GdscoreError, nearest
from gdscore.estimator import AccuracyEstimator, Estimate
from gdscore.labeling import recalibrate
from gdscore.monitor.following import KEYS_AT_ONCE, end_alarms, follow_changed, follow_series, known_series
from gdscore.monitor.reading import labelled_estimate, newest_labels
from gdscore.monitor.rules import LABEL_FREE, Rules
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
    "check_model_name",
    "count_correct",
    "delete_windows",
    "find_model",
    "known_windows",
    "learn_again",
    "lock_model",
    "prepare_windows",
    "read_estimator",
    "store_labels",
    "store_model",
    "store_rules",
    "store_windows",
]

Key: TypeAlias = tuple[datetime, datetime, str]
"""Start and end of a window, and its segment; the empty segment holds all rows."""
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
        end_alarms(session, [model.id for model in versions], now, "new version")
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
        follow_series(session, model, segment, model.learn_from)
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
    series = known_series(session, model, list({one.key[2] for one in made}))
    there = known_windows(session, model, [m for m in made if series.may_have(m.key[2], m.key[0])], replace)
    stored = [(*_store_window(session, model, rules, one, there.get(one.key)), one.key) for one in made]
    changed: dict[str, list[Window]] = {}
    for window, fate, (_, _, segment) in stored:
        if fate in ("new", "replaced"):
            changed.setdefault(segment, []).append(window)
    if changed:
        follow_changed(session, model, series, changed)
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
    if window.labelled is not None and window.labelled > estimate.n_rows:
        # They were of rows that the window no longer has.
        window.labelled = window.correct = None
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
        follow_changed(session, model, known_series(session, model, [segment]), {segment: [window]})
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
