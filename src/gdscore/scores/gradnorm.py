"""GradNorm: the last layer's gradient of the divergence from the uniform distribution."""

from __future__ import annotations

from gdscore._arrays import Array, namespace
from gdscore.outputs import Outputs
from gdscore.scores.base import MeanScore
from gdscore.scores.registry import register_score


def gradient_l1_norms(features: Array, probabilities: Array) -> Array:
    r"""L1 norm of the last layer's gradient of KL(uniform ‖ S), row by row.

    The gradient of one row is the product of x and S − 1/K, so its norm is the product of their norms:

    .. math:: \|x_i\|_1 \, \|S_i - 1/K\|_1

    Parameters
    ----------
    features : array of shape (m, D)
    probabilities : array of shape (m, K)

    Returns
    -------
    array of shape (m,)

    Examples
    --------
    >>> import numpy as np
    >>> gradient_l1_norms(np.array([[1.0, -2.0]]), np.array([[1.0, 0.0]])).tolist()
    [3.0]
    """
    xp, s = namespace(probabilities), probabilities
    return xp.sum(xp.abs(features), axis=1) * xp.sum(xp.abs(s - 1.0 / s.shape[1]), axis=1)


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
        """Norm of the gradient of each row."""
        return gradient_l1_norms(chunk.features, chunk.probabilities)
