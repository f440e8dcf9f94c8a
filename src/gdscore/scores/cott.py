"""COTT: confidence optimal transport, thresholded."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore._softmax import ROUNDING
from gdscore.outputs import Outputs
from gdscore.scores._sample import bottom_k, sample_of
from gdscore.scores._transport import solved
from gdscore.scores.atc import error_threshold
from gdscore.scores.base import HostStats, Stats, floats
from gdscore.scores.cot import COT, Solved, class_counts
from gdscore.scores.registry import register_score


def transport_scores(found: Solved) -> tuple[NDArray[Any], NDArray[Any]]:
    """Minus the transport cost of each row, S_{i k(i)} − 1 (less where its decided class has less), and its frequency.

    k(i) is the class that takes most of row i. A row that occurs several times is split as the plan splits it, each
    share with the cost of its own class.
    """
    plan, counts = found.plan, found.counts
    single = np.flatnonzero(counts == 1)
    several = counts[plan.rows] != 1
    where = np.concatenate([single, plan.rows[several]])
    match = np.concatenate([plan.match[single], plan.classes[several]])
    weights = np.concatenate([np.ones(len(single)), plan.mass[several] * counts.sum()])
    return found.of_class(where, match) - 1.0, weights


@register_score("cott")
class COTT(COT):
    r"""Share of rows that are cheap to transport to the reference's class mix (Lu et al., NeurIPS 2023): an accuracy.

    .. math:: \frac1m \sum_i [\, 1 - S_{i\,k(i)} \le t \,]

    with k(i) the class that the plan of `COT` sends most of row i to (the smallest of equals), and t such that on the
    reference the share of dearer rows equals the reference error. Rises with accuracy. Where rows were not decided by
    the largest logit, a row costs at least 1 − c as in `COT`.

    Parameters
    ----------
    k, seed : int
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

    formula = "share of rows whose transport cost in COT's plan is at most t, learned on the reference"
    good_for = "as `cot`, less sensitive to how large single costs are"
    fails_when = "as `cot`"
    remark = "the class mix and a threshold"
    learned: ClassVar = {"class_weights_": floats("classes"), "threshold_": floats()}
    higher_is_better = True

    def measure_reference(self, chunk: Outputs) -> Stats:
        """Rows of each class, errors, and a sample of the rows."""
        errors = np.asarray(np.sum(~arrays.to_numpy(chunk.correct)))
        return {
            "class_counts": class_counts(arrays.to_numpy(chunk.labels), chunk.logits.shape[1]),
            "errors": errors,
            **sample_of(chunk),
        }

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
        counts, decided = stats["counts"].astype(np.float64), stats.get("decided")
        found = self._transport(stats["rows"], counts, decided, self.class_weights_)
        error = float(stats["errors"]) / stats["class_counts"].sum()
        scores, weights = transport_scores(found)
        if self.variant == "published":
            wrong = round(error * weights.sum())
            self.threshold_ = float(np.sort(np.repeat(scores, np.rint(weights).astype(int)))[wrong - 1])
        else:
            self.threshold_ = error_threshold(scores, error, weights, rounding=1e-6)

    def _transport(
        self, rows: NDArray[Any], weights: NDArray[Any], decided: NDArray[Any] | None, class_weights: NDArray[Any]
    ) -> Solved:
        # Of few distinct outputs (a tree's, say) several plans can cost the same and differ in the costs of their rows.
        # Rounding would choose between them; the small square chooses the plan whose rows differ most in cost, always.
        if self.variant == "default" and 2 * len(np.unique(rows.max(axis=1))) <= weights.sum():
            wide = rows.astype(np.float64)
            return Solved(solved(wide + ROUNDING * wide**2, weights, class_weights), rows, weights, decided)
        return super()._transport(rows, weights, decided, class_weights)

    def result(self, stats: HostStats) -> float:
        """Share of rows no dearer than the threshold."""
        shares = []
        for found in self._plans(stats):
            scores, weights = transport_scores(found)
            shares.append(weights[scores >= self.threshold_].sum() / weights.sum())
        return float(np.mean(shares))
