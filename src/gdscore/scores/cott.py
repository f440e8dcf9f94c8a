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
from gdscore.scores.base import HostStats, Stats
from gdscore.scores.cot import COT, Solved, class_counts
from gdscore.scores.registry import register_score

TIE_GRID = 2.0**-20
"""Outputs are counted on this grid, so that rows that differ by rounding are one output."""


def transport_scores(plan: Solved) -> tuple[NDArray[Any], NDArray[Any]]:
    """Minus the transport cost of every share of a row that the plan sends to one class, S_ik − 1, and its mass.

    The score is less where the decided class of the row has less. The plan splits fewer rows than there are classes. A
    split row counts in parts: which class gets most of it, and whether equal rows are split together or apart, is
    decided by rounding.
    """
    return plan.of_class(plan.plan.rows, plan.plan.classes) - 1.0, plan.plan.mass


@register_score("cott")
class COTT(COT):
    r"""Share of rows that are cheap to transport to the reference's class mix (Lu et al., NeurIPS 2023): an accuracy.

    .. math:: \sum_{ik} \pi_{ik} [\, 1 - S_{ik} \le t \,]

    with π the plan of `COT`, which sends all but a few rows whole to one class, and t such that on the reference the
    share of dearer rows equals the reference error. t lies between two costs of the reference, see
    `gdscore.scores.atc.error_threshold`. Rises with accuracy. Where rows were not decided by the largest logit, a row
    costs at least 1 − c as in `COT`.

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
    learned: ClassVar = ("class_weights_", "threshold_")
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
        plan = self._transport(stats["rows"], counts, decided, self.class_weights_)
        error = float(stats["errors"]) / stats["class_counts"].sum()
        scores, mass = transport_scores(plan)
        if self.variant == "published":
            repeated = np.repeat(scores, np.rint(mass * counts.sum()).astype(int))
            self.threshold_ = float(np.sort(repeated)[round(error * counts.sum()) - 1])
        else:
            self.threshold_ = error_threshold(scores, error, mass, rounding=1e-6)

    def _transport(
        self, rows: NDArray[Any], weights: NDArray[Any], decided: NDArray[Any] | None, class_weights: NDArray[Any]
    ) -> Solved:
        # Of few distinct outputs (a tree's, say) several plans can cost the same and differ in the costs of their rows.
        # Rounding would choose between them; the small square chooses the plan whose rows differ most in cost, always.
        wide = rows.astype(np.float64)
        distinct = len(np.unique(np.rint(wide.max(axis=1) / TIE_GRID)))
        if self.variant == "default" and 2 * distinct <= weights.sum():
            return Solved(solved(wide + ROUNDING * wide**2, weights, class_weights), rows, weights, decided)
        return super()._transport(rows, weights, decided, class_weights)

    def result(self, stats: HostStats) -> float:
        """Share of rows no dearer than the threshold."""
        shares = []
        for plan in self._plans(stats):
            scores, mass = transport_scores(plan)
            shares.append(mass[scores >= self.threshold_].sum() / mass.sum())
        return float(np.mean(shares))
