"""AgreeScore: disagreement of two models."""

from __future__ import annotations

from gdscore._arrays import Array, namespace, working
from gdscore._checks import boolean
from gdscore._softmax import softmax
from gdscore.outputs import Outputs
from gdscore.scores.base import MeanScore
from gdscore.scores.registry import register_score


def soft_disagreement(probabilities: Array, logits: Array) -> Array:
    """Total variation distance ½‖S − softmax(Z')‖₁ of two models' distributions, row by row: between 0 and 1."""
    other = softmax(working(logits)).probabilities
    return 0.5 * namespace(other).sum(namespace(other).abs(probabilities - other), axis=1)


@register_score("agreescore")
class AgreeScore(MeanScore):
    r"""Share of rows on which two independently trained models disagree (Jiang et al., ICLR 2022); falls with accuracy.

    .. math:: \frac1m \sum_i [\hat y_i \neq \hat y'_i]

    Rows that were not decided by the largest logit are refused, as those of the second model are.

    Parameters
    ----------
    soft : bool, default False
        Mean of ½‖S − S'‖₁ of the two models' probabilities in place of the share of different predictions: the same
        idea with less noise. It does not read how rows were decided.

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> logits, peer = 2 * np.eye(4), 2 * np.eye(4)[[0, 1, 2, 2]]
    >>> gdscore.score("agreescore", gdscore.Outputs(logits=logits, peer_logits=peer))
    0.25
    """

    formula = "share of rows where the predictions of the model and of a second model differ"
    good_for = "a second model is trained anyway"
    fails_when = "the two models make the same mistakes"
    argmax_only = True
    inputs = frozenset({"logits", "peer_logits"})
    higher_is_better = False

    def __init__(self, *, soft: bool = False) -> None:
        self.soft = boolean("soft", soft)
        self.argmax_only = not self.soft
        super().__init__()

    def row_values(self, chunk: Outputs) -> Array:
        """Whether the two predictions differ, or by how much the two distributions do."""
        if self.soft:
            return soft_disagreement(chunk.probabilities, chunk.peer_logits)
        return namespace(chunk.peer_logits).argmax(chunk.peer_logits, axis=1) != chunk.predictions
