"""Windows and labels on their way into the database."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from gdscore.estimator import Estimate
from gdscore.monitor.alarms import recompute_series
from gdscore.monitor.models import ConflictError, NotFoundError
from gdscore.monitor.reading import window_dict
from gdscore.monitor.schema import Alarm, Model, Series, Window
from gdscore.monitor.windows import Key, now_micros, shown_time

__all__ = ["delete_windows", "store_labels", "store_windows"]


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
            "numbers: give replace=True to replace it"
        )
    fate: Literal["new", "replaced"] = "new" if window is None else "replaced"
    if window is None:
        window = Window(model_id=model.id, segment=segment, start=start, end=end)
        session.add(window)
    for column in ("accuracy", "low", "high", "level", "reference_accuracy", "scores", "warnings"):
        setattr(window, column, facts[column])
    window.rows, window.estimate, window.content_hash = estimate.n, facts, digest
    window.created_at = now_micros()
    return window, fate


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
