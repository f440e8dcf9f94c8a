"""What goes into the database: models with their estimators and rules, windows, labels, who has seen an alarm."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from sqlalchemy import delete, func, select, text, update
from sqlalchemy.orm import Session

from gdscore._checks import integer, number
from gdscore.errors import GdscoreError, nearest
from gdscore.estimator import AccuracyEstimator, Estimate
from gdscore.monitor.alarms import end_alarms, recompute_series
from gdscore.monitor.records import alarm_dict, window_dict
from gdscore.monitor.rules import Rules
from gdscore.monitor.schema import Alarm, EstimatorFile, Model, Series, Window, check_name
from gdscore.monitor.windows import Key, now_micros, shown_time
from gdscore.outputs import Outputs

__all__ = [
    "ConflictError",
    "EstimatorLike",
    "NotFoundError",
    "acknowledge_alarm",
    "check_known",
    "check_model_name",
    "count_correct",
    "delete_windows",
    "find_model",
    "read_estimator",
    "store_labels",
    "store_model",
    "store_windows",
    "to_estimator",
]

LARGEST_ESTIMATOR = 256 << 20
UNKNOWN_REFERENCE = 1000
"""Rows of a reference that is not known."""

EstimatorLike: TypeAlias = AccuracyEstimator | str | Path | bytes


class NotFoundError(GdscoreError):
    """There is no such model, window or alarm."""


class ConflictError(GdscoreError):
    """What is added is there already, with other contents."""


def check_model_name(name: str, version: str) -> None:
    """Refuse a name that cannot be part of an address."""
    check_name("model", name)
    check_name("version", version)
    if "/" in name or "\\" in name or name in (".", ".."):
        raise GdscoreError(f"Expected a model name that can be part of an address, without slashes, but got {name!r}")


def find_model(session: Session, name: str, version: str | None = None) -> Model:
    """A model, of the newest version where none is given."""
    query = select(Model).where(Model.name == str(name)).order_by(Model.id.desc())
    if version is not None:
        query = query.where(Model.version == version)
    found = session.scalars(query).first()
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


def check_known(session: Session, name: str | None) -> None:
    """Refuse the name of a model that is not registered; None stands for all models."""
    if name is not None:
        find_model(session, name)


def store_model(
    session: Session,
    name: str,
    version: str,
    content: bytes | None,
    *,
    every: int,
    rules: Rules,
    reference_rows: int | None,
) -> None:
    """Register a model with the file of its estimator, or change one; a new version ends the alarms of older ones."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text("SELECT pg_advisory_xact_lock(7238402)"))  # two may register the same name at once
    digest = None if content is None else hashlib.sha256(content).hexdigest()
    if content is not None and digest is not None and session.get(EstimatorFile, digest) is None:
        session.add(EstimatorFile(hash=digest, content=content))
        session.flush()
    known = session.scalars(select(Model).where(Model.name == name, Model.version == version)).first()
    if known is None:
        now = now_micros()
        end_alarms(session, session.scalars(select(Model.id).where(Model.name == name)).all(), now)
        known = Model(name=name, version=version, created_at=now, reference_rows=UNKNOWN_REFERENCE)
        session.add(known)
    elif digest is not None and known.estimator_hash not in (None, digest):
        raise ConflictError(
            f"Expected a new version of {name!r} for another estimator, but {version!r} has one: give version= "
            "(--version)"
        )
    known.every, known.rules = every, rules.to_dict()
    if reference_rows is not None:
        known.reference_rows = reference_rows
    known.estimator_hash = digest or known.estimator_hash


def read_estimator(estimator: EstimatorLike) -> tuple[bytes, int]:
    """File of an estimator, and the rows of its reference."""
    if isinstance(estimator, AccuracyEstimator):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "estimator.gdscore"
            estimator.save(path)
            return path.read_bytes(), estimator.reference_rows_
    if isinstance(estimator, bytes):
        return estimator, to_estimator(estimator).reference_rows_
    rows = AccuracyEstimator.load(estimator).reference_rows_
    path = Path(estimator)
    if path.stat().st_size > LARGEST_ESTIMATOR:
        raise GdscoreError(f"Expected an estimator of at most {LARGEST_ESTIMATOR >> 20} MiB")
    return path.read_bytes(), rows


def to_estimator(content: bytes) -> AccuracyEstimator:
    """Estimator from the bytes of its file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "estimator.gdscore"
        path.write_bytes(content)
        try:
            return AccuracyEstimator.load(path)
        except GdscoreError as error:
            raise GdscoreError(str(error).replace(str(path), path.name)) from None


def store_windows(
    session: Session, model: Model, estimates: Mapping[Key, Estimate], replace: bool
) -> list[dict[str, Any]]:
    """Keep estimates of windows, and compute the alarms from the first changed window of each series on."""
    stored = [(*_store_window(session, model, key, made, replace), key) for key, made in estimates.items()]
    session.flush()
    changed: dict[str, int] = {}
    for _, fate, (start, _, segment) in stored:
        if fate != "same":
            changed[segment] = min(start, changed.get(segment, start))
    for segment, since in changed.items():
        recompute_series(session, model, segment, since)
    return [window_dict(window, model) | {"new": fate == "new"} for window, fate, _ in stored]


def _store_window(
    session: Session, model: Model, key: Key, estimate: Estimate, replace: bool
) -> tuple[Window, Literal["new", "same", "replaced"]]:
    start, end, segment = key
    facts = estimate.to_dict()
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    there = select(Window).where(
        Window.model_id == model.id, Window.segment == segment, Window.start == start, Window.end == end
    )
    window = session.scalars(there).first()
    if window is not None and window.content_hash == digest:
        return window, "same"
    if window is not None and not replace:
        raise ConflictError(
            f"Expected a new window of {model.name!r}, but the one at {shown_time(start)} is there with other "
            "numbers: give replace=True (--replace) to replace it"
        )
    fate: Literal["new", "replaced"] = "new" if window is None else "replaced"
    if window is None:
        window = Window(model_id=model.id, segment=segment, start=start, end=end)
        session.add(window)
    for column in ("accuracy", "low", "high", "level", "reference_accuracy", "scores", "warnings"):
        setattr(window, column, facts[column])
    window.rows, window.estimate, window.content_hash = estimate.n_rows, facts, digest
    window.created_at = now_micros()
    return window, fate


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
        correct = round(number("accuracy", accuracy, least=0, most=1) * rows)
    correct = integer("correct", correct, least=0)
    if correct > rows:
        raise GdscoreError(f"Expected at most {rows} correct rows, but got {correct}")
    return correct, rows


def store_labels(session: Session, model: Model, key: Key, correct: int, rows: int) -> None:
    """Keep how many rows of a window were predicted right."""
    start, end, segment = key
    changed = session.execute(
        update(Window)
        .where(Window.model_id == model.id, Window.segment == segment, Window.start == start, Window.end == end)
        .values(labelled=rows, correct=correct, labels_at=now_micros())
    )
    if not changed.rowcount:  # type: ignore[attr-defined]
        raise NotFoundError(f"Expected a window of {model.name!r} at {shown_time(start)}, but there is none: add it")


def delete_windows(session: Session, limit: int) -> int:
    """Delete windows that ended before this time, but for the newest of each series, and alarms that did."""
    latest = select(Series.last_window)
    gone = session.execute(delete(Window).where(Window.end < limit, Window.id.not_in(latest)))
    session.execute(delete(Alarm).where(Alarm.ended < limit))
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
        row[0].acknowledged_by, row[0].acknowledged_at = by, now_micros()
    return alarm_dict(*row)
