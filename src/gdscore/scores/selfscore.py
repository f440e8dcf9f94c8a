"""SelfScore: disagreement of a model with and without the BatchNorm statistics of the data."""

from __future__ import annotations

from gdscore._arrays import Array
from gdscore.outputs import Outputs
from gdscore.scores.agreescore import soft_disagreement
from gdscore.scores.base import MeanScore
from gdscore.scores.registry import register_score


@register_score("selfscore")
class SelfScore(MeanScore):
    r"""Disagreement of a model with its copy that uses BatchNorm's statistics of each batch; falls with accuracy.

    .. math:: \frac1m \sum_i \tfrac12 \lVert S_i - S'_i \rVert_1

    with S' the probabilities by the batch's own statistics (Nado et al., 2020; Schneider et al., 2020) instead of those
    stored in training. On data of the training distribution the two are nearly equal. We know of no paper that defines
    it. The statistics of a batch depend on its classes: give rows in random order. Another mix of classes raises the
    score as well.

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> logits, again = 9 * np.eye(4), 9 * np.eye(4)[[0, 1, 2, 2]]
    >>> round(gdscore.score("selfscore", gdscore.Outputs(logits=logits, batch_logits=again)), 3)
    0.25
    """

    formula = "mean over rows of 0.5 * sum_k |S_k - S'_k|, S' with BatchNorm's statistics of each batch"
    good_for = "networks with BatchNorm under shifts of style, without a second model"
    fails_when = "what is new is the content; batches of few classes or few rows"
    inputs = frozenset({"logits", "batch_logits"})
    higher_is_better = False

    def row_values(self, chunk: Outputs) -> Array:
        """Distance of the two distributions."""
        return soft_disagreement(chunk.probabilities, chunk.batch_logits)
