"""Accuracies with their intervals: by class, by target, over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

from gdscore._options import integer
from gdscore.errors import GdscoreError
from gdscore.report.style import FONT, LIGHT, blank, percent_axis
from gdscore.report.target import Target, Targets, as_targets, moment
from gdscore.report.words import worst_first

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["interval_figure", "per_class_figure", "timeline_figure"]


def per_class_figure(target: Targets, most: int = 20) -> Figure:
    """Estimated recall of each class with its interval, the worst first.

    Parameters
    ----------
    target : Estimate or Target
        With estimates by class.
    most : int
        How many classes to show.
    """
    (shown,) = as_targets(target)
    classes = worst_first(shown.estimate)[: integer("most", most, least=1)]
    if not classes:
        raise GdscoreError(f"Expected the estimate of {shown.name!r} to have estimates by class, but it has none")
    intervals = [(c.low, c.recall, c.high) for c in classes]
    figure, axes = _intervals(intervals, [f"class {c.label}" for c in classes])
    axes.set_xlabel("estimated recall")
    return figure


def interval_figure(targets: Targets, *, min_accuracy: float | None = None) -> Figure:
    """Estimate and interval of each target, against the reference and the threshold.

    Parameters
    ----------
    targets : Estimate, Target or sequence of Target
        In this order from the top.
    min_accuracy : float, optional
        Threshold to draw.
    """
    shown = _some(as_targets(targets))
    intervals = [(t.estimate.low, t.estimate.accuracy, t.estimate.high) for t in shown]
    figure, axes = _intervals(intervals, [t.name for t in shown])
    axes.set_xlabel("estimated accuracy")
    axes.axvline(shown[0].estimate.reference_accuracy, color=LIGHT["quiet"], linewidth=1.2, dashes=(4, 3), zorder=1)
    if min_accuracy is not None:
        axes.axvline(min_accuracy, color=LIGHT["ink"], linewidth=1.2, zorder=1)
    return figure


def timeline_figure(targets: Sequence[Target], *, min_accuracy: float | None = None, width: float = 9.4) -> Figure:
    """Estimates over time, with their intervals, the reference accuracy (dashed) and the threshold.

    Parameters
    ----------
    targets : sequence of Target
        Each with `when`.
    min_accuracy : float, optional
        Threshold to draw.
    width : float
        Of the figure, in inches.
    """
    shown = sorted(_some(as_targets(targets)), key=moment)
    figure, axes = blank(width, 2.9)
    times = np.array([moment(t).replace(tzinfo=None) for t in shown], dtype="datetime64[us]")
    low, middle, high = np.array([(t.estimate.low, t.estimate.accuracy, t.estimate.high) for t in shown]).T
    axes.fill_between(times, low, high, color=LIGHT["accent"], alpha=0.12, linewidth=0)
    axes.vlines(times, low, high, color=LIGHT["accent"], alpha=0.45, linewidth=1)
    axes.plot(times, middle, color=LIGHT["accent"], linewidth=1.6)
    axes.plot(times, middle, "o", color=LIGHT["accent"], markersize=5, markeredgecolor=LIGHT["paper"])
    axes.axhline(shown[0].estimate.reference_accuracy, color=LIGHT["quiet"], linewidth=1.2, dashes=(4, 3), zorder=1)
    if min_accuracy is not None:
        axes.axhline(min_accuracy, color=LIGHT["ink"], linewidth=1.2, zorder=1)
    locator = AutoDateLocator(minticks=3, maxticks=7)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.xaxis.get_offset_text().set(color=LIGHT["quiet"], size=FONT)
    axes.grid(False, axis="x")
    axes.set_ylabel("estimated accuracy")
    percent_axis(axes, "y")
    return figure


def _some(targets: list[Target]) -> list[Target]:
    if not targets:
        raise GdscoreError("Expected at least one target, but there is none")
    return targets


def _intervals(intervals: list[tuple[float, float, float]], names: list[str]) -> tuple[Figure, Axes]:
    figure, axes = blank(5.0, 0.8 + 0.26 * len(names))
    low, middle, high = np.array(intervals).T
    places = np.arange(len(names))
    axes.hlines(places, low, high, color=LIGHT["accent"], alpha=0.4, linewidth=5)
    axes.plot(middle, places, "o", color=LIGHT["accent"], markersize=6, markeredgecolor=LIGHT["paper"])
    axes.set_yticks(places, names, parse_math=False, color=LIGHT["ink"])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(0, 1)
    axes.grid(False, axis="y")
    percent_axis(axes, "x")
    return figure, axes
