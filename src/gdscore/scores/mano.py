"""MaNo: norm of normalised logits."""

from __future__ import annotations

import math

from gdscore import _arrays as arrays
from gdscore._arrays import Array, namespace
from gdscore._checks import choice
from gdscore.outputs import Outputs
from gdscore.scores.base import HostStats, Score, Stats
from gdscore.scores.registry import register_score

_CRITERION = 5.0
_PUBLISHED_BATCH = 128


def taylor_probabilities(logits: Array, subtract_minimum: bool = False) -> Array:
    """Rows of q = 1 + Z + Z²/2, the second-order Taylor polynomial of exp, divided by their sum.

    ``subtract_minimum`` subtracts the smallest q of each row first, as the released code does.
    """
    xp = namespace(logits)
    q = 1.0 + logits + 0.5 * logits * logits
    if subtract_minimum:
        q = q - xp.min(q, axis=1, keepdims=True)
    return q / xp.clip(xp.sum(q, axis=1, keepdims=True), 1e-12, None)


def fourth_powers(q: Array) -> Array:
    """Sum of the fourth powers of each row, shape (m,)."""
    square = q * q
    return namespace(q).sum(square * square, axis=1)


@register_score("mano")
class MaNo(Score):
    r"""Norm of normalised logits (Xie et al., NeurIPS 2024); rises with accuracy.

    .. math:: \Big( \frac{1}{mK} \sum_{ik} Q_{ik}^4 \Big)^{1/4}

    with Q the softmax where the mean cross-entropy from the uniform distribution, Φ, exceeds 5, and otherwise the
    rows of 1 + Z + Z²/2 divided by their sum. As Φ ≥ ln K, K ≥ 149 classes always take the softmax.

    Parameters
    ----------
    variant : str, default "default"
        ``published``: mini-batches of 128 whose norms are averaged, each counting the same; Φ of the fifth
        mini-batch only (the last of fewer); the row's minimum subtracted from 1 + Z + Z²/2.

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> gdscore.score("mano", gdscore.Outputs(logits=np.zeros((3, 4))))
    0.25
    """

    formula = "(mean over rows and classes of Q^4)^(1/4), Q the softmax or its second-order Taylor form"
    good_for = "logits that are not calibrated: chooses its normalisation by the set"
    fails_when = "sets on both sides of its criterion are compared: the two normalisations have different scales"

    def __init__(self, *, variant: str = "default") -> None:
        self.variant = choice("variant", variant, ("default", "published"))
        super().__init__()

    def measure(self, chunk: Outputs) -> Stats:
        """Sums of both kinds of Q⁴ and of the uniform cross-entropy; or their norms by mini-batch."""
        xp = namespace(chunk.logits)
        softmax = fourth_powers(chunk.probabilities)
        taylor = fourth_powers(taylor_probabilities(chunk.logits, self.variant == "published"))
        phi = arrays.wide(chunk.logsumexp - xp.mean(chunk.logits, axis=1))
        softmax, taylor = arrays.wide(softmax), arrays.wide(taylor)
        xp = namespace(phi)
        if self.variant == "default":
            return {
                "softmax": xp.sum(softmax),
                "taylor": xp.sum(taylor),
                "phi": xp.sum(phi),
                "weight": xp.zeros_like(phi[0]) + len(chunk),
            }
        starts = list(range(0, len(chunk), _PUBLISHED_BATCH))
        batches = [slice(start, start + _PUBLISHED_BATCH) for start in starts]
        cells = chunk.logits.shape[1]
        return {
            "softmax": sum(xp.mean(softmax[b]) ** 0.25 for b in batches) / cells**0.25,
            "taylor": sum(xp.mean(taylor[b]) ** 0.25 for b in batches) / cells**0.25,
            "phi": xp.mean(phi[batches[min(4, len(batches) - 1)]]),
            "weight": xp.zeros_like(phi[0]) + len(batches),
        }

    def combine(self, first: Stats, second: Stats) -> Stats:
        """Sums; the published Φ is that of the first chunk."""
        stats = super().combine(first, second)
        return {**stats, "phi": first["phi"]} if self.variant == "published" else stats

    def result(self, stats: HostStats) -> float:
        """Root of the mean of Q⁴, with the kind of Q chosen by Φ."""
        weight = float(stats["weight"])
        if self.variant == "published":
            return float(stats["softmax"] if stats["phi"] > _CRITERION else stats["taylor"]) / weight
        kind = "softmax" if float(stats["phi"]) / weight > _CRITERION else "taylor"
        mean = float(stats[kind]) / (weight * self.n_classes)
        return math.pow(mean, 0.25) if mean >= 0 else math.nan
