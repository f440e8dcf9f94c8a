"""The picture of a tracker: estimates over time, and the weights of the answers beneath."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from gdscore._format import percent
from gdscore.tracking.method import ANSWERS
from gdscore.tracking.windows import TrackedWindow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ESTIMATE, TRUTH, PLAIN = "#b23c17", "#1b1f24", "#646b75"
WEIGHTS = ("#1f5a8c", "#5b93bf", "#a6c8e0", "#b23c17", "#a3a9b1")
"""Colours of the answers: blue rests on outputs, red on labels alone, grey on neither."""


def draw(windows: Sequence[TrackedWindow], level: float) -> Figure:
    """Figure of windows in order of time, without the state of ``matplotlib.pyplot``."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.dates import AutoDateLocator
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5), layout="constrained")
    FigureCanvasAgg(figure)
    above, beneath = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    times = np.array([window.time.replace(tzinfo=None) for window in windows], dtype="datetime64[us]")

    def column(name: str) -> np.ndarray:
        values = [getattr(window, name) for window in windows]
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)

    interval = f"{percent(level, short=True)} interval"
    above.fill_between(times, column("low"), column("high"), color=ESTIMATE, alpha=0.18, linewidth=0, label=interval)
    above.plot(times, column("label_free"), color=PLAIN, linewidth=1, label="without labels")
    above.plot(times, column("unchanged"), color=PLAIN, linewidth=1, linestyle="--", label="on the reference")
    above.plot(times, column("accuracy"), color=ESTIMATE, linewidth=1.8, label="estimate then")
    above.plot(times, column("known"), "o", color=TRUTH, markersize=3, label="accuracy by labels that came later")
    above.set(ylim=(0, 1), ylabel="accuracy")
    above.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    above.legend(loc="lower left", ncols=3, frameon=False, fontsize="small")
    weights = np.array([window.weights or [np.nan] * len(ANSWERS) for window in windows])
    beneath.stackplot(times, weights.T, colors=WEIGHTS, labels=ANSWERS, linewidth=0)
    beneath.set(ylim=(0, 1), ylabel="weight")
    beneath.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    beneath.legend(loc="upper center", bbox_to_anchor=(0.5, -0.25), ncols=3, frameon=False, fontsize="small")
    beneath.xaxis.set_major_locator(AutoDateLocator(minticks=3, maxticks=7))  # type: ignore[no-untyped-call]
    return figure
