"""Dispersion: how far the predicted classes lie apart in feature space."""

from __future__ import annotations

import numpy as np

from gdscore import _arrays as arrays
from gdscore._arrays import Array, namespace
from gdscore._checks import choice
from gdscore.errors import GdscoreError
from gdscore.outputs import Outputs
from gdscore.scores.base import HostStats, Score, Stats
from gdscore.scores.nuclear import few_rows_for_classes
from gdscore.scores.registry import register_score


def sums_by_class(x: Array, classes: Array, n_classes: int) -> Array:
    """Sum of the rows of each class in float64, shape (K, D), the same in every run."""
    if arrays.on_host(x) or arrays.is_jax(x):
        x, classes = arrays.to_numpy(x), arrays.to_numpy(classes)
        order = np.argsort(classes, kind="stable")
        present, starts = np.unique(classes[order], return_index=True)
        sums = np.zeros((n_classes, x.shape[1]))
        # Nine times faster than np.add.reduceat along the first axis, and thirty times than np.add.at.
        for k, rows in zip(present, np.split(order, starts[1:]), strict=True):
            sums[k] = x[rows].sum(axis=0, dtype=np.float64)
        return sums
    # On an accelerator adding by index has no fixed order; a product with the one-hot matrix has.
    xp = namespace(x)
    one_hot = xp.arange(n_classes, device=arrays.device(x))[:, None] == classes[None, :]
    return xp.astype(one_hot, xp.float64) @ xp.astype(x, xp.float64)


@register_score("dispersion")
class Dispersion(Score):
    r"""Logarithm of the between-class variance of the features, by predicted class (Xie et al., NeurIPS 2023).

    .. math:: \ln \frac{\sum_k m_k \|\mu_k - \mu\|^2}{m\,(K-1)}

    Rises with accuracy. Rows that were not decided by the largest logit are refused: the classes k are theirs.

    Parameters
    ----------
    variant : str, default "default"
        ``published``: without m, so that it grows by ln m, and with the number of *predicted* classes in place of K,
        so that a collapse to few classes raises it.

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> out = gdscore.Outputs(logits=2 * np.tile(np.eye(2), (10, 1)), features=np.tile([[1.0], [-1.0]], (10, 1)))
    >>> gdscore.score("dispersion", out)
    0.0
    """

    formula = "ln of (sum_k m_k * ||mean_k - mean||^2 / (m * (K - 1))), classes k by prediction"
    good_for = "features that still form clusters"
    fails_when = "one class is predicted for every row (an error)"
    argmax_only = True
    inputs = frozenset({"logits", "features"})

    def __init__(self, *, variant: str = "default") -> None:
        self.variant = choice("variant", variant, ("default", "published"))
        super().__init__()

    def measure(self, chunk: Outputs) -> Stats:
        """Rows and sum of features of each predicted class."""
        predicted, classes = chunk.predictions, chunk.logits.shape[1]
        sums = sums_by_class(chunk.features, predicted, classes)
        ones = namespace(chunk.features).ones_like(chunk.features[:, :1])
        return {"sums": sums, "counts": sums_by_class(ones, predicted, classes)[:, 0]}

    def result(self, stats: HostStats) -> float:
        """Log of the mean squared distance of class means from the overall mean."""
        counts = stats["counts"]
        predicted = int((counts > 0).sum())
        if predicted < 2:
            raise GdscoreError(
                f"`dispersion` needs at least two predicted classes, but all {self.n_rows} rows are predicted as class "
                f"{int(np.argmax(counts > 0))}: there is nothing between classes to measure"
            )
        means = stats["sums"][counts > 0] / counts[counts > 0, None]
        distances = np.square(means - stats["sums"].sum(axis=0) / counts.sum()).sum(axis=1)
        between = float(counts[counts > 0] @ distances)
        rounding = 1e-24 * float(counts[counts > 0] @ np.square(means).sum(axis=1))
        if between <= rounding and np.isfinite(between):
            raise GdscoreError("`dispersion` needs features that differ between predicted classes, but they do not")
        if self.variant == "published":
            return float(np.log(between / (predicted - 1)))
        return float(np.log(between / (counts.sum() * (len(counts) - 1))))

    def warning(self) -> str | None:
        """Few rows for the number of classes."""
        return few_rows_for_classes(self.n_rows, self.n_classes)
