"""Entropy: mean entropy of the softmax."""

from __future__ import annotations

from gdscore._arrays import Array
from gdscore.outputs import Outputs
from gdscore.scores.base import MeanScore
from gdscore.scores.registry import register_score


@register_score("entropy")
class Entropy(MeanScore):
    r"""Mean entropy of the softmax, natural logarithm (Guillory et al., ICCV 2021); falls with accuracy.

    .. math:: -\frac1m \sum_i \sum_k S_{ik} \ln S_{ik}

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> round(gdscore.score("entropy", gdscore.Outputs(logits=np.zeros((5, 4)))), 6)  # ln 4
    1.386294
    """

    formula = "mean over rows of -sum_k S_k ln S_k, with S = softmax(logits)"
    good_for = "as `confscore`, with the whole distribution"
    fails_when = "as `confscore`"
    higher_is_better = False

    def row_values(self, chunk: Outputs) -> Array:
        """Entropy of each row, computed by `gdscore._softmax.Softmax`."""
        return chunk.entropy
