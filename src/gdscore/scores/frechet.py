"""Fréchet: distance of the features of target and reference."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore._arrays import namespace
from gdscore._options import boolean
from gdscore.errors import GdscoreError
from gdscore.outputs import Outputs
from gdscore.scores._moments import lower_gram, mirrored
from gdscore.scores._rechunk import CHUNK_ROWS
from gdscore.scores.base import HostStats, Score, Stats
from gdscore.scores.registry import register_score

__all__ = ["Frechet"]


@register_score("frechet")
class Frechet(Score):
    r"""Fréchet distance of Gaussians fitted to reference and target features (Deng and Zheng, CVPR 2021).

    .. math:: \|\mu_s-\mu_t\|^2 + \operatorname{Tr}\big(\Sigma_s + \Sigma_t - 2(\Sigma_s\Sigma_t)^{1/2}\big)

    Falls with accuracy. Covariances are unbiased (divided by n − 1). The number shrinks as rows are added: compare
    only sets of equal size.

    Parameters
    ----------
    squared : bool, default True
        False takes the norm of the difference of means without its square, as the GdScore paper prints it.

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> x = np.random.default_rng(0).normal(size=(100, 3))
    >>> reference, target = gdscore.Outputs(features=x), gdscore.Outputs(features=x + [3.0, 0.0, 4.0])
    >>> round(gdscore.score("frechet", target, reference=reference), 6)
    25.0
    >>> round(gdscore.score("frechet", target, reference=reference, squared=False), 6)
    5.0
    """

    inputs = frozenset({"features"})
    reference_inputs = frozenset({"features"})
    higher_is_better = False
    learned = ("reference_mean_", "reference_covariance_")
    # Adding up D×D matrices costs a third of making one of 1024 rows; larger chunks do it more rarely.
    chunk_rows = 4 * CHUNK_ROWS

    def __init__(self, *, squared: bool = True) -> None:
        self.squared = boolean("squared", squared)
        super().__init__()

    def measure(self, chunk: Outputs) -> Stats:
        """Number, mean and centred second moment of the rows."""
        x = chunk.features
        xp = namespace(x)
        pivot = xp.mean(x, axis=0)
        centred = x - pivot
        # The pivot is a rounded mean; what it is off by is small enough to be measured and taken out.
        off = arrays.wide(centred).sum(axis=0) / x.shape[0]
        moment = arrays.wide(lower_gram(centred)) - off[:, None] * (x.shape[0] * off)[None, :]
        return {
            "rows": namespace(off).zeros_like(off[0]) + x.shape[0],
            "mean": arrays.wide(pivot) + off,
            "moment": moment,
        }

    def combine(self, first: Stats, second: Stats) -> Stats:
        """Chan's update: moments about a common mean, without the cancellation of raw second moments."""
        rows = first["rows"] + second["rows"]
        shift = second["mean"] - first["mean"]
        weight = first["rows"] * second["rows"] / rows
        moment = first["moment"] + second["moment"]
        moment += shift[:, None] * (weight * shift)[None, :]
        return {"rows": rows, "mean": first["mean"] + shift * (second["rows"] / rows), "moment": moment}

    measure_reference, combine_reference = measure, combine

    def learn(self, stats: HostStats) -> None:
        """Mean and covariance of the reference."""
        self.reference_mean_, self.reference_covariance_ = _gaussian(stats, "reference")

    def finish(self, stats: HostStats) -> float:
        """Distance of the two Gaussians, by eigenvalues of a symmetric matrix rather than a matrix root."""
        mean, covariance = _gaussian(stats, "target")
        reference = self.reference_covariance_
        between = float(np.square(mean - self.reference_mean_).sum())
        values, vectors = np.linalg.eigh(reference)
        root = vectors * np.sqrt(np.clip(values, 0, None))
        # Eigenvalues of rootᵀ Σ_t root are those of Σ_s Σ_t.
        cross = np.sqrt(np.clip(np.linalg.eigvalsh(root.T @ covariance @ root), 0, None)).sum()
        within = float(np.trace(reference) + np.trace(covariance) - 2 * cross)
        return (between if self.squared else np.sqrt(between)) + max(within, 0.0)

    def caution(self) -> str | None:
        """A covariance of fewer rows than features."""
        if self.n_rows > self.n_features:
            return None
        return (
            f"{self.n_rows} rows give a covariance of {self.n_features} features that has not full rank; the number is "
            "larger than that of more rows of the same kind would be, so compare it only with sets of as many rows"
        )


def _gaussian(stats: HostStats, what: str) -> tuple[NDArray[Any], NDArray[Any]]:
    rows = float(stats["rows"])
    if rows < 2:
        raise GdscoreError(f"`frechet` needs at least 2 rows of {what} for a covariance, but got {int(rows)}")
    return stats["mean"], mirrored(stats["moment"]) / (rows - 1)
