"""COTT: confidence optimal transport, thresholded."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore.outputs import Outputs
from gdscore.scores._sample import bottom_k, sample_of
from gdscore.scores._threshold import error_threshold
from gdscore.scores._transport import Transport
from gdscore.scores.base import HostStats, Stats
from gdscore.scores.cot import COT, class_counts
from gdscore.scores.registry import register_score

__all__ = ["COTT"]


@register_score("cott")
class COTT(COT):
    r"""Share of rows that are cheap to transport to the reference's class mix (Lu et al., NeurIPS 2023): an accuracy.

    .. math:: \frac1m \sum_i [\, 1 - S_{i\,k(i)} \le t \,]

    with k(i) the class that the plan of `COT` sends most of row i to (the smallest of equals), and t such that on the
    reference the share of dearer rows equals the reference error. Rises with accuracy.

    Parameters
    ----------
    k, solver, seed
        As for `COT`.
    variant : str, default "default"
        ``published``: as for `COT`, and the threshold is the cost of the row *before*, which adds 1/n to the accuracy;
        the smallest cost where the reference has no error.

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> val = gdscore.Outputs(logits=np.diag([4.0, 3.0, 2.0, 1.0]), labels=np.array([0, 1, 2, 0]))
    >>> new = gdscore.Outputs(logits=np.diag([4.0, 3.0, 2.0, 1.0])[[0, 1, 2, 3] * 10])
    >>> gdscore.score("cott", new, reference=val)  # class 3 is not in the reference: its rows are dear
    0.75
    """

    learned = ("class_weights_", "threshold_")
    higher_is_better = True

    def measure_reference(self, chunk: Outputs) -> Stats:
        """Rows of each class, errors, and a sample of the rows."""
        errors = np.asarray(np.sum(~arrays.to_numpy(chunk.correct)))
        return {"class_counts": class_counts(chunk), "errors": errors, **sample_of(chunk)}

    def combine_reference(self, first: Stats, second: Stats) -> Stats:
        """Sums, and the sample of the union."""
        sums = ("class_counts", "errors")
        sample = bottom_k([{n: v for n, v in s.items() if n not in sums} for s in (first, second)], self.k)
        return {
            "class_counts": first["class_counts"] + second["class_counts"],
            "errors": first["errors"] + second["errors"],
            **sample,
        }

    def learn(self, stats: HostStats) -> None:
        """Class shares, and the threshold with the reference error below it."""
        super().learn(stats)
        plan, rows, counts = self._transport(stats["rows"], stats["counts"].astype(np.float64), self.class_weights_)
        error = float(stats["errors"]) / stats["class_counts"].sum()
        cheapness, weights = _cheapness(plan, rows, counts)
        if self.variant == "published":
            wrong = round(error * weights.sum())
            self.threshold_ = float(np.sort(np.repeat(cheapness, np.rint(weights).astype(int)))[wrong - 1])
        else:
            self.threshold_ = error_threshold(cheapness, error, weights)

    def finish(self, stats: HostStats) -> float:
        """Share of rows no dearer than the threshold."""
        shares = []
        for plan, rows, counts in self._plans(stats):
            cheapness, weights = _cheapness(plan, rows, counts)
            shares.append(weights[cheapness >= self.threshold_].sum() / weights.sum())
        return float(np.mean(shares))


def _cheapness(plan: Transport, rows: NDArray[Any], counts: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Minus the transport cost of each row, and how often it occurs.

    A row goes where most of it goes. One that occurs several times goes where its copies go, each share by itself.
    """
    once = np.flatnonzero(counts == 1)
    several = counts[plan.rows] != 1
    where = np.concatenate([once, plan.rows[several]])
    match = np.concatenate([plan.match[once], plan.classes[several]])
    weights = np.concatenate([np.ones(len(once)), plan.mass[several] * counts.sum()])
    return np.asarray(rows[where, match].astype(np.float64) - 1.0), weights
