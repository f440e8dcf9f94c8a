"""Numbers for Prometheus, read from the history at each scrape."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from sqlalchemy import func, select

from gdscore.monitor import reading
from gdscore.monitor.history import Monitor
from gdscore.monitor.schema import Alarm, Model, Series, Window
from gdscore.monitor.windows import now_micros

__all__ = ["render_metrics"]

_FROM_WINDOW = {
    "accuracy": "Estimated accuracy of the newest window.",
    "low": "Lower end of its interval.",
    "high": "Upper end of its interval.",
    "rows": "Rows of the newest window.",
    "reference_accuracy": "Accuracy on the reference.",
}


def render_metrics(monitor: Monitor) -> bytes:
    """Metrics of the newest version of each model, by model and segment, in the text format."""
    registry = CollectorRegistry()
    registry.register(_Collector(monitor))
    return generate_latest(registry)


class _Collector:
    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor

    def collect(self) -> Iterator[GaugeMetricFamily]:
        with self.monitor.reading() as session:
            newest = session.execute(
                select(Model.name, Window.segment, Window.end, *(getattr(Window, column) for column in _FROM_WINDOW))
                .join(Series, Series.model_id == Model.id)
                .join(Window, Window.id == Series.last_window)
                .where(Model.id.in_(reading.current_models()))
            ).all()
            counts = session.execute(
                select(Model.name, Alarm.segment, func.count())
                .join(Alarm, Alarm.model_id == Model.id)
                .where(Alarm.ended.is_(None))
                .group_by(Model.name, Alarm.segment)
            ).all()
        for column, text in _FROM_WINDOW.items():
            gauge = GaugeMetricFamily(f"gdscore_{column}", text, labels=["model", "segment"])
            for window in newest:
                gauge.add_metric([window.name, window.segment], getattr(window, column))
            yield gauge
        now = now_micros()
        age = GaugeMetricFamily(
            "gdscore_last_window_age_seconds", "Seconds since the newest window ended.", labels=["model", "segment"]
        )
        alarms = GaugeMetricFamily("gdscore_open_alarms", "Alarms that have not ended.", labels=["model", "segment"])
        open_now = {(name, segment): count for name, segment, count in counts}
        for window in newest:
            age.add_metric([window.name, window.segment], (now - window.end) / 1e6)
            alarms.add_metric([window.name, window.segment], open_now.get((window.name, window.segment), 0))
        yield age
        yield alarms
