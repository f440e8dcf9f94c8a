"""Fréchet: distance of the features of target and reference.

Requirements met here:

- products and eigenvalues are float64 also for float32 features: their rounding would be taken for variance;
- the root of the reference's covariance is computed at `fit`, not for each target;
- of fewer rows than features the centred rows are kept, not their D×D moment, and the small Gram matrix is decomposed;
- eigenvalues are computed where the features are, on the host only where the device has no float64.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore._arrays import Array, namespace
from gdscore._checks import boolean
from gdscore._stream import CHUNK_ROWS
from gdscore.errors import GdscoreError
from gdscore.outputs import Outputs
from gdscore.scores.base import HostStats, Score, Stats
from gdscore.scores.nuclear import gram
from gdscore.scores.registry import register_score


def covariance_root(covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Root R of a covariance, R Rᵀ = Σ: the Cholesky factor, or by eigenvectors where Σ has not full rank."""
    try:
        return np.linalg.cholesky(covariance).astype(np.float64, copy=False)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(covariance)
        return np.asarray(vectors * np.sqrt(np.clip(values, 0, None)))


def cross_trace(factor: Array) -> float:
    """Trace of the root of Σ_r Σ_t = R Rᵀ Fᵀ F from the matrix F R, where R and F are roots of the covariances.

    It is the sum of the roots of the eigenvalues of the smaller of the two Gram matrices of F R.
    """
    return _root_trace(factor @ factor.T if factor.shape[0] <= factor.shape[1] else factor.T @ factor)


def contrasts(centred: Array) -> Array:
    """Reflect the first of n rows that sum to 0 into the others: n − 1 rows with the same Gram matrix.

    The Gram matrix of the n rows has an eigenvalue 0, of which rounding leaves something whose root would count.
    """
    rows = centred.shape[0]
    return centred[1:] + centred[0] / (rows**0.5 - 1 if rows > 1 else 1.0)


def _root_trace(matrix: Array) -> float:
    """Sum of the roots of the eigenvalues of a symmetric matrix.

    Small eigenvalues are kept: in spectra of many orders of magnitude they are exact, and where they are rounding all
    of them together stay below 1e-7 of the sum. NaN where the matrix is not finite.
    """
    if not bool(namespace(matrix).all(namespace(matrix).isfinite(matrix))):
        return float("nan")
    values = arrays.to_numpy(namespace(matrix).linalg.eigvalsh(matrix))
    return float(np.sqrt(np.clip(values, 0, None)).sum())


@register_score("frechet")
class Frechet(Score):
    r"""Fréchet distance of Gaussians fitted to reference and target features (Deng and Zheng, CVPR 2021).

    .. math:: \|\mu_r-\mu_t\|^2 + \operatorname{Tr}\big(\Sigma_r + \Sigma_t - 2(\Sigma_r\Sigma_t)^{1/2}\big)

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

    formula = "||mean_r - mean_t||^2 + trace(C_r + C_t - 2 (C_r C_t)^(1/2)), C the covariances of the features"
    good_for = "shifts that show in the features, before labels are there"
    fails_when = "the shift is harmless; sets of different sizes (the number shrinks as rows are added)"
    inputs = frozenset({"features"})
    reference_inputs = frozenset({"features"})
    higher_is_better = False
    learned: ClassVar = ("reference_mean_", "reference_root_")
    # Adding up D×D matrices costs a third of making one of 1024 rows; larger chunks do it more rarely.
    chunk_rows = 4 * CHUNK_ROWS

    def __init__(self, *, squared: bool = True) -> None:
        self.squared = boolean("squared", squared)
        super().__init__()

    def measure(self, chunk: Outputs) -> Stats:
        """Number and mean of the rows, and what their covariance is made of."""
        x = arrays.wide(chunk.features)
        xp = namespace(x)
        mean = xp.mean(x, axis=0)
        rows = xp.zeros_like(mean[0]) + x.shape[0]
        return {"rows": rows, "mean": mean, **_scatter([contrasts(x - mean)])}

    def combine(self, first: Stats, second: Stats) -> Stats:
        """Chan's update: moments about a common mean, without the cancellation of raw second moments."""
        rows = first["rows"] + second["rows"]
        shift = second["mean"] - first["mean"]
        between = (first["rows"] * second["rows"] / rows) ** 0.5 * shift
        stats = {"rows": rows, "mean": first["mean"] + shift * (second["rows"] / rows)}
        factors = [s["factor"] for s in (first, second) if "factor" in s]
        moments = [s["moment"] for s in (first, second) if "moment" in s]
        return {**stats, **_scatter([*factors, between[None, :]], moments)}

    measure_reference, combine_reference = measure, combine

    def learn(self, stats: HostStats) -> None:
        """Mean of the reference, and a root of its covariance."""
        rows = _at_least_two(stats["rows"], "reference")
        scatter = stats["factor"] if "factor" in stats else stats["moment"]
        if not (np.isfinite(scatter).all() and np.isfinite(stats["mean"]).all()):
            raise GdscoreError(self.overflow_message())
        self.reference_mean_ = stats["mean"]
        if "factor" in stats:
            self.reference_root_ = np.ascontiguousarray(scatter.T / np.sqrt(rows - 1))
        else:
            self.reference_root_ = covariance_root(scatter / (rows - 1))

    def summarise(self, stats: Stats) -> Stats:
        """Traces of the target's covariance and of the root of the product, on the device."""
        rows = _at_least_two(stats["rows"], "target")
        scatter = stats["factor"] if "factor" in stats else stats["moment"]
        xp = namespace(scatter)
        root = arrays.like(self.reference_root_, scatter)
        if not bool(xp.all(xp.isfinite(scatter))):
            raise GdscoreError(self.overflow_message())
        if "factor" in stats:
            trace, cross = xp.sum(scatter * scatter), cross_trace(scatter @ root)
        else:
            trace, cross = xp.sum(xp.linalg.diagonal(scatter)), _root_trace(root.T @ scatter @ root)
        return {
            "mean": stats["mean"],
            "trace": trace / (rows - 1),
            "cross": xp.zeros_like(trace) + cross / np.sqrt(rows - 1),
        }

    def result(self, stats: HostStats) -> float:
        """Distance of the two Gaussians."""
        between = float(np.square(stats["mean"] - self.reference_mean_).sum())
        traces = float(np.square(self.reference_root_).sum()) + float(stats["trace"])
        return (between if self.squared else float(np.sqrt(between))) + max(traces - 2 * float(stats["cross"]), 0.0)

    def warning(self) -> str | None:
        """A covariance of fewer rows than features."""
        if self.n_rows > self.n_features:
            return None
        return (
            f"{self.n_rows} rows give a covariance of {self.n_features} features that has not full rank; the number is "
            "larger than that of more rows of the same distribution would be, so compare it only with sets of as many "
            "rows"
        )


def _scatter(factors: list[Array], moments: list[Array] | None = None) -> Stats:
    """Sum of the Gram matrices of the factors and of the moments: as one factor while that has few rows."""
    factor = arrays.concatenate(factors)
    if not moments and factor.shape[0] <= factor.shape[1]:
        return {"factor": factor}
    total = gram(factor)
    for moment in moments or []:
        total = total + moment
    return {"moment": total}


def _at_least_two(rows: Any, what: str) -> float:
    count = float(rows)
    if count < 2:
        raise GdscoreError(f"`frechet` needs at least 2 rows of {what} for a covariance, but got {int(count)}")
    return count
