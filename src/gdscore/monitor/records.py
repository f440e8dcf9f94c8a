"""Windows and alarms as plain data, for JSON, notices and frames."""

from __future__ import annotations

from typing import Any

from gdscore.monitor.schema import Alarm, Model, Window
from gdscore.monitor.windows import to_datetime

__all__ = ["alarm_dict", "iso_time", "window_dict"]


def iso_time(micros: int | None) -> str | None:
    """A time of the database as text, in UTC."""
    return None if micros is None else to_datetime(micros).isoformat()


def window_dict(window: Window, model: Model) -> dict[str, Any]:
    """A window as plain data."""
    return {
        "id": window.id,
        "model": model.name,
        "version": model.version,
        "segment": window.segment,
        "start": iso_time(window.start),
        "end": iso_time(window.end),
        "rows": window.rows,
        "accuracy": window.accuracy,
        "low": window.low,
        "high": window.high,
        "level": window.level,
        "reference_accuracy": window.reference_accuracy,
        "warnings": window.warnings,
        "scores": window.scores,
        "created_at": iso_time(window.created_at),
        "labelled": window.labelled,
        "truth": None if not window.labelled else (window.correct or 0) / window.labelled,
        "labels_at": iso_time(window.labels_at),
    }


def alarm_dict(alarm: Alarm, model: Model) -> dict[str, Any]:
    """An alarm as plain data."""
    return {
        "id": alarm.id,
        "model": model.name,
        "version": model.version,
        "segment": alarm.segment,
        "rule": alarm.rule,
        "message": alarm.message,
        "began": iso_time(alarm.began),
        "opened_at": iso_time(alarm.opened_at),
        "ended": iso_time(alarm.ended),
        "withdrawn": alarm.withdrawn,
        "acknowledged_by": alarm.acknowledged_by,
        "acknowledged_at": iso_time(alarm.acknowledged_at),
    }
