"""Nuclear: nuclear norm of the matrix of probabilities."""

from __future__ import annotations

import numpy as np

from gdscore import _arrays as arrays
from gdscore._arrays import Array
from gdscore.outputs import Outputs
from gdscore.scores.base import HostStats, Score, Stats
from gdscore.scores.registry import register_score


def gram(x: Array) -> Array:
    """XᵀX; on a processor NumPy computes one half of it, where PyTorch would compute both."""
    x = arrays.to_numpy(x) if arrays.on_host(x) else x
    return x.T @ x


@register_score("nuclear")
class Nuclear(Score):
    r"""Nuclear norm of the m×K matrix of probabilities, scaled to at most 1 (Deng et al., ICML 2023).

    .. math:: \|S\|_* \,/\, \sqrt{m \min(m, K)}

    Rises with accuracy: large where predictions are confident and spread over the classes. The singular values are
    the roots of the eigenvalues of SᵀS, kept in float64.

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> round(gdscore.score("nuclear", gdscore.Outputs(logits=99 * np.tile(np.eye(4), (10, 1)))), 6)
    1.0
    """

    formula = "nuclear norm of the m x K matrix of probabilities / sqrt(m * min(m, K))"
    good_for = "confidence and spread over the classes in one number, without a reference"
    fails_when = "the true mix is uneven; fewer than ten rows a class"

    def measure(self, chunk: Outputs) -> Stats:
        """SᵀS in float64: it squares the condition number."""
        return {"gram": gram(arrays.wide(chunk.probabilities))}

    def result(self, stats: HostStats) -> float:
        """Sum of singular values over its largest possible value."""
        rank = min(self.n_rows, self.n_classes)
        eigenvalues = np.linalg.eigvalsh(stats["gram"])[-rank:]
        # Below this an eigenvalue is rounding, and its root would not be small.
        real = eigenvalues[eigenvalues > 4 * np.finfo(float).eps * eigenvalues[-1]]
        return float(np.sqrt(real).sum() / np.sqrt(self.n_rows * rank))

    def warning(self) -> str | None:
        """Few rows for the number of classes."""
        return few_rows_for_classes(self.n_rows, self.n_classes)


def few_rows_for_classes(rows: int, classes: int) -> str | None:
    """Words for fewer than ten rows a class, below which the number depends on how many there are."""
    if rows >= 10 * classes:
        return None
    return (
        f"{rows} rows are few for {classes} classes (fewer than 10 a class), so the number depends on how many "
        "there are; compare it only with sets of as many rows"
    )
