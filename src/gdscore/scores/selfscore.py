"""SelfScore: disagreement of a model with itself under the statistics of the data."""

from __future__ import annotations

from gdscore._arrays import Array
from gdscore.outputs import Outputs
from gdscore.scores.agreescore import soft_disagreement
from gdscore.scores.means import MeanScore
from gdscore.scores.registry import register_score

__all__ = ["SelfScore"]


@register_score("selfscore")
class SelfScore(MeanScore):
    r"""How far a model is from itself with BatchNorm's statistics of each batch; falls with accuracy.

    .. math:: \frac1m \sum_i \tfrac12 \lVert S_i - S'_i \rVert_1

    with S' the probabilities by the batch's own statistics (Nado et al., 2020; Schneider et al., 2020) instead of those
    stored in training. On data like those trained on the two are alike. We know of no paper that defines it. Batches of
    few classes have statistics of their own: give rows in random order, and mind that another mix of classes raises the
    score as well.

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> logits, again = 9 * np.eye(4), 9 * np.eye(4)[[0, 1, 2, 2]]
    >>> round(gdscore.score("selfscore", gdscore.Outputs(logits=logits, batch_logits=again)), 3)
    0.25
    """

    inputs = frozenset({"logits", "batch_logits"})
    higher_is_better = False

    def row_values(self, chunk: Outputs) -> Array:
        """Distance of the two distributions."""
        return soft_disagreement(chunk, chunk.batch_logits)
