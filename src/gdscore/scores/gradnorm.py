"""GradNorm: the last layer's gradient of the divergence from the uniform distribution."""

from __future__ import annotations

from gdscore._arrays import Array, namespace
from gdscore.outputs import Outputs
from gdscore.scores.means import MeanScore
from gdscore.scores.registry import register_score

__all__ = ["GradNorm"]


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

    inputs = frozenset({"logits", "features"})

    def row_values(self, chunk: Outputs) -> Array:
        """Norm of the gradient of each row: the product of two norms, as it has rank one."""
        xp, s = namespace(chunk.logits), chunk.probabilities
        return xp.sum(xp.abs(chunk.features), axis=1) * xp.sum(xp.abs(s - 1.0 / s.shape[1]), axis=1)
