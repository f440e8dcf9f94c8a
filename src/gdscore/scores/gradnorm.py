"""GradNorm: the last layer's gradient of the divergence from the uniform distribution."""

from __future__ import annotations

from gdscore._arrays import Array, namespace
from gdscore.outputs import Outputs
from gdscore.scores.base import MeanScore
from gdscore.scores.registry import register_score


@register_score("gradnorm")
class GradNorm(MeanScore):
    r"""Mean L1 norm of each row's last-layer gradient of KL(uniform ‖ S) (Huang et al., 2021); rises with accuracy.

    .. math:: \frac1m \sum_i \|x_i\|_1 \, \|S_i - 1/K\|_1

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> out = gdscore.Outputs(logits=np.array([[50.0, 0.0]]), features=np.array([[1.0, -2.0]]))
    >>> gdscore.score("gradnorm", out)
    3.0
    """

    formula = "mean over rows of ||x||_1 * sum_k |S_k - 1/K|"
    good_for = "a value for each row: it comes from the detection of rows unlike the training data"
    fails_when = "the scale of features changes without accuracy"
    inputs = frozenset({"logits", "features"})

    def row_values(self, chunk: Outputs) -> Array:
        """Norm of each row's gradient, which is the product of x and S − 1/K: the product of their norms."""
        xp, s = namespace(chunk.probabilities), chunk.probabilities
        return xp.sum(xp.abs(chunk.features), axis=1) * xp.sum(xp.abs(s - 1.0 / s.shape[1]), axis=1)
