"""ConfScore: mean confidence."""

from __future__ import annotations

from gdscore._arrays import Array
from gdscore.outputs import Outputs
from gdscore.scores.base import MeanScore
from gdscore.scores.registry import register_score


@register_score("confscore")
class ConfScore(MeanScore):
    r"""Mean confidence (Hendrycks and Gimpel, ICLR 2017); rises with accuracy.

    .. math:: \frac1m \sum_i S_{i \hat y_i}

    with ŷ the decided class, that of the largest probability unless predictions or a threshold were given.

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> round(gdscore.score("confscore", gdscore.Outputs(logits=np.array([[0.0, 0.0], [9.0, 0.0]]))), 6)
    0.749938
    """

    formula = "mean over rows of S_k of the decided class k (max_k S_k by default), with S = softmax(logits)"
    optional_inputs = frozenset({"predictions"})
    good_for = "the simplest thing to watch"
    fails_when = "the model is confidently wrong: nothing is compared with labels"

    def row_values(self, chunk: Outputs) -> Array:
        """Confidence of each row, computed by `gdscore._softmax.Softmax`."""
        return chunk.confidence
