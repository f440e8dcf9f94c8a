"""COTT: confidence optimal transport, thresholded."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore.outputs import Outputs
from gdscore.scores._sample import bottom_k, sample_of
from gdscore.scores._threshold import error_threshold
from gdscore.scores.base import HostStats, Stats
from gdscore.scores.cot import COT, class_counts
from gdscore.scores.registry import register_score

__all__ = ["COTT"]


@register_score("cott")
class COTT(COT):
    r"""Share of rows that are cheap to transport to the source's class mix (Lu et al., NeurIPS 2023): an accuracy.

    .. math:: \frac1m \sum_i [\, 1 - S_{i\,k(i)} \le t \,]

    with k(i) the class that the plan of `COT` sends most of row i to (the smallest of equals), and t such that on the
    source the share of dearer rows equals the source error. Rises with accuracy.

    Parameters
    ----------
    k, solver, seed
        As for `COT`.
    variant : str, default "default"
        ``published``: as for `COT`, and the threshold is the cost of the row *before*, which adds 1/n to the accuracy;
        the smallest cost where the source has no error.

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> val = gdscore.Outputs(logits=np.diag([4.0, 3.0, 2.0, 1.0]), labels=np.array([0, 1, 2, 0]))
    >>> new = gdscore.Outputs(logits=np.diag([4.0, 3.0, 2.0, 1.0])[[0, 1, 2, 3] * 10])
    >>> gdscore.score("cott", new, source=val)  # class 3 is not in the source: its rows are dear
    0.75
    """

    learned = ("class_weights_", "threshold_")
    higher_is_better = True

    def measure_source(self, chunk: Outputs) -> Stats:
        """Rows of each class, errors, and a sample of the rows."""
        errors = np.asarray(np.sum(~arrays.to_numpy(chunk.correct)))
        return {"class_counts": class_counts(chunk), "errors": errors, **sample_of(chunk)}

    def combine_source(self, first: Stats, second: Stats) -> Stats:
        """Sums, and the sample of the union."""
        names = ("high", "low", "counts", "rows")
        sample = bottom_k([{n: s[n] for n in names} for s in (first, second)], self.k)
        return {
            "class_counts": first["class_counts"] + second["class_counts"],
            "errors": first["errors"] + second["errors"],
            **sample,
        }

    def learn(self, stats: HostStats) -> None:
        """Class shares, and the threshold with the source error below it."""
        super().learn(stats)
        plan, rows, weights = self._transport(stats["rows"], stats["counts"].astype(np.float64), self.class_weights_)
        error = float(stats["errors"]) / stats["class_counts"].sum()
        cheapness = _cheapness(plan.match, rows)
        if self.variant == "published":
            wrong = round(error * len(cheapness))
            self.threshold_ = float(np.sort(cheapness)[wrong - 1])
        else:
            self.threshold_ = error_threshold(cheapness, error, weights)

    def finish(self, stats: HostStats) -> float:
        """Share of rows no dearer than the threshold."""
        shares = []
        for plan, rows, weights in self._plans(stats):
            cheap = _cheapness(plan.match, rows) >= self.threshold_
            shares.append(weights[cheap].sum() / weights.sum())
        return float(np.mean(shares))


def _cheapness(match: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
    """Minus the transport cost of each row: its probability of the class it is sent to, less one."""
    return np.asarray(rows[np.arange(len(rows)), match].astype(np.float64) - 1.0)
