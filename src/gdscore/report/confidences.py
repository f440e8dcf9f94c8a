"""How sure the model is, and how right it is when it is sure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gdscore.calibration import error_of_bins
from gdscore.errors import GdscoreError
from gdscore.estimator.direct import sampling_error
from gdscore.report.style import FONT, LIGHT, blank, percent_axis
from gdscore.report.target import Targets, as_targets

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gdscore.estimator import AccuracyEstimator

__all__ = ["confidence_figure", "reference_error", "reliability_figure"]


def reference_error(estimator: AccuracyEstimator) -> float:
    """Expected calibration error on the reference, in the bins of its histogram."""
    seen = estimator.reference_confidence_
    return error_of_bins(seen.rows, seen.confidence, seen.correct)


def reliability_figure(estimator: AccuracyEstimator) -> Figure:
    """Accuracy against confidence on the reference, by bins, with its sampling error; larger dots hold more rows.

    Parameters
    ----------
    estimator : AccuracyEstimator
        Fitted.
    """
    seen = estimator.reference_confidence_
    rows = np.asarray(seen.rows)
    of = rows > 0
    confidence, right = np.asarray(seen.confidence)[of] / rows[of], np.asarray(seen.correct)[of] / rows[of]
    figure, axes = blank()
    axes.plot([0, 1], [0, 1], color=LIGHT["quiet"], linewidth=1, dashes=(4, 3))
    error = np.array([sampling_error(p, int(n), estimator.level) for p, n in zip(right, rows[of], strict=True)])
    axes.vlines(
        confidence, np.maximum(right - error, 0), np.minimum(right + error, 1), color=LIGHT["quiet"], linewidth=1
    )
    axes.scatter(confidence, right, s=12 + 160 * rows[of] / rows.max(), color=LIGHT["ink"], linewidth=0, zorder=3)
    axes.set_xlabel("confidence")
    axes.set_ylabel("accuracy on the reference")
    axes.set_xlim(-0.02, 1.03)
    axes.set_ylim(-0.02, 1.05)
    percent_axis(axes, "x")
    percent_axis(axes, "y")
    return figure


def confidence_figure(estimator: AccuracyEstimator, targets: Targets) -> Figure:
    """Share of rows by confidence, of the reference and of one target.

    Parameters
    ----------
    estimator : AccuracyEstimator
        Fitted.
    targets : Estimate or Target
        What to compare with the reference.
    """
    (target,) = as_targets(targets)
    if target.estimate.confidence is None:
        raise GdscoreError(f"Expected the estimate of {target.name!r} to hold confidences, but it does not")
    figure, axes = blank()
    shares = [
        np.asarray(h.rows) / np.sum(h.rows) for h in (estimator.reference_confidence_, target.estimate.confidence)
    ]
    edges = estimator.reference_confidence_.edges
    axes.stairs(shares[0], edges, fill=True, color=LIGHT["quiet"], alpha=0.3, linewidth=0, label="reference")
    axes.stairs(shares[1], edges, color=LIGHT["accent"], linewidth=1.8, label="target")
    axes.set_xlabel("confidence")
    axes.set_ylabel("share of rows")
    axes.grid(False, axis="x")
    axes.set_xlim(0, 1)
    percent_axis(axes, "x")
    percent_axis(axes, "y")
    axes.legend(loc="upper left", frameon=False, fontsize=FONT, labelcolor=LIGHT["ink"])
    return figure
