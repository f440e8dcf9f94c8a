"""The estimate in the picture of the sets it was calibrated on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gdscore.errors import GdscoreError, nearest
from gdscore.report.style import LIGHT, blank, family_styles, kinds_of, log_axis, percent_axis
from gdscore.report.target import Target, Targets, as_targets
from gdscore.shifts.families import parts_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gdscore.estimator import AccuracyEstimator

__all__ = ["LeftOut", "calibration_figure", "chosen_score", "left_out", "prediction_figure"]

NUMBERED = 12
"""Targets that are numbered in a figure; more of them would hide each other."""


class LeftOut(NamedTuple):
    """How well families that the fit had not seen were predicted; those of compositions are taken apart.

    Sets whose family could not be left out are among the ``sets``, but not among those ``judged``.
    """

    sets: int
    judged: int
    compositions: int
    families: int
    rows: float
    error: float | None
    spearman: float | None
    r2: float | None


def left_out(estimator: AccuracyEstimator) -> LeftOut:
    """Mean absolute error, Spearman's ρ and squared Pearson correlation over sets whose family was left out."""
    seen = estimator.calibration_
    judged = np.isfinite(seen.predicted)
    predicted, accuracy = seen.predicted[judged], seen.accuracy[judged]
    pearson = _correlation(predicted, accuracy)
    return LeftOut(
        len(seen.families),
        len(predicted),
        sum("+" in family for family in seen.families),
        len(frozenset[str]().union(*map(parts_of, seen.families))),
        float(np.median(seen.rows)),
        float(np.abs(predicted - accuracy).mean()) if len(predicted) else None,
        _rank_correlation(predicted, accuracy),
        None if pearson is None else pearson**2,
    )


def chosen_score(estimator: AccuracyEstimator) -> str:
    """Score that orders the shifted sets most like their accuracy does."""
    scores, accuracy = estimator.calibration_.scores, estimator.calibration_.accuracy
    return max(scores, key=lambda name: abs(_rank_correlation(scores[name], accuracy) or 0.0))


def calibration_figure(
    estimator: AccuracyEstimator, targets: Targets = (), score: str | None = None, *, legend: bool = True
) -> Figure:
    """One score against the true accuracy of every shifted set, coloured by kind, with the targets in it.

    Parameters
    ----------
    estimator : AccuracyEstimator
        Fitted.
    targets : Estimate, Target or sequence of Target, optional
        Marked with their intervals; several are numbered in their order.
    score : str, optional
        One of the estimator's scores; by default the most informative one.
    legend : bool
        Whether to name the kinds of shift below; compositions are one kind.
    """
    seen = estimator.calibration_
    score = chosen_score(estimator) if score is None else score
    if score not in seen.scores:
        raise GdscoreError(f"Unknown score {score!r} of this estimator: {nearest(str(score), seen.scores)}")
    figure, axes = blank()
    values = seen.scores[score]
    _scatter(axes, seen.families, values, seen.accuracy)
    if marked := as_targets(targets):
        _mark(axes, marked, score)
    if values.min() > 0 and values.max() > 50 * values.min():
        log_axis(axes, float(values.max() / values.min()))
    axes.set_xlabel(score)
    axes.set_ylabel("true accuracy of shifted sets")
    percent_axis(axes, "y")
    if legend:
        _legend(figure, seen.families)
    return figure


def prediction_figure(estimator: AccuracyEstimator, targets: Targets = (), *, legend: bool = True) -> Figure:
    """Accuracy predicted without a set's own family against its true accuracy.

    The nearer to the diagonal, the better the estimator does on shifts it has not seen. The interval of a single
    target is shown as a band. Sets whose family could not be left out are not shown.

    Parameters
    ----------
    estimator : AccuracyEstimator
        Fitted.
    targets : Estimate, Target or sequence of Target, optional
        Whose estimates to mark.
    legend : bool
        Whether to name the kinds of shift below; compositions are one kind.
    """
    seen = estimator.calibration_
    figure, axes = blank()
    marked = as_targets(targets)
    if len(marked) == 1:
        e = marked[0].estimate
        axes.axvspan(e.low, e.high, color=LIGHT["accent"], alpha=0.1, linewidth=0)
        axes.axvline(e.accuracy, color=LIGHT["accent"], linewidth=1.5)
    judged = np.isfinite(seen.predicted)
    shown = np.concatenate([seen.predicted[judged], seen.accuracy])
    edge = [float(shown.min()), float(shown.max())]
    axes.plot(edge, edge, color=LIGHT["quiet"], linewidth=1, dashes=(4, 3))
    _scatter(axes, seen.families, seen.predicted, seen.accuracy)
    axes.set_xlabel("predicted with the set’s family left out")
    axes.set_ylabel("true accuracy of shifted sets")
    percent_axis(axes, "x")
    percent_axis(axes, "y")
    if legend:
        _legend(figure, seen.families)
    return figure


def _scatter(axes: Axes, families: list[str], x: NDArray[Any], y: NDArray[Any]) -> None:
    kinds = np.asarray(kinds_of(families))
    for kind, (colour, marker, _) in family_styles(families).items():
        of = (kinds == kind) & np.isfinite(x)
        axes.plot(
            x[of], y[of], marker, color=LIGHT[colour], markersize=4.5, markeredgewidth=0, alpha=0.75, zorder=3
        )  # fmt: skip


def _mark(axes: Axes, targets: list[Target], score: str) -> None:
    for target in targets:
        if score not in target.estimate.scores:
            raise GdscoreError(f"Expected the estimate of {target.name!r} to hold the score {score!r}, but it does not")
    numbered, many = 1 < len(targets) <= NUMBERED, len(targets) > NUMBERED
    x = [t.estimate.scores[score] for t in targets]
    low, middle, high = np.array([(t.estimate.low, t.estimate.accuracy, t.estimate.high) for t in targets]).T
    axes.vlines(x, low, high, color=LIGHT["accent"], linewidth=0.8 if many else 2.5, zorder=4)
    size = 4 if many else 12 if numbered else 9
    axes.plot(x, middle, "o", color=LIGHT["accent"], markeredgecolor=LIGHT["paper"], markersize=size, zorder=5)
    for number, place in enumerate(zip(x, middle, strict=True), 1) if numbered else ():
        axes.annotate(
            str(number), place, color=LIGHT["paper"], fontsize=8.5, ha="center", va="center_baseline", zorder=6
        )  # fmt: skip


def _legend(figure: Figure, families: list[str]) -> None:
    from matplotlib.lines import Line2D

    styles = family_styles(families)
    handles = [Line2D([], [], linestyle="", marker=m, color=LIGHT[c], markersize=4.5) for c, m, _ in styles.values()]
    columns = 3
    rows = math.ceil(len(handles) / columns)
    figure.set_size_inches(figure.get_figwidth(), figure.get_figheight() + 0.19 * rows)
    drawn = figure.legend(
        handles, ["x"] * len(handles), loc="outside lower center", ncols=columns, fontsize=7.5, frameon=False,
        handletextpad=0.1, labelcolor=LIGHT["quiet"],
    )  # fmt: skip
    # Written afterwards, as a legend leaves out names that begin with an underscore and sets $…$ as formulas.
    for text, kind in zip(drawn.get_texts(), styles, strict=True):
        text.set_parse_math(False)
        text.set_text(kind)


def _correlation(a: NDArray[Any], b: NDArray[Any]) -> float | None:
    if not len(a) or min(np.ptp(a), np.ptp(b)) <= 1e-12:
        return None
    return float(np.corrcoef(a, b)[0, 1])


def _rank_correlation(a: NDArray[Any], b: NDArray[Any]) -> float | None:
    from scipy.stats import rankdata

    return _correlation(rankdata(a), rankdata(b))
