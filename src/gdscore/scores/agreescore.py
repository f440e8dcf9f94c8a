"""AgreeScore: disagreement of two models."""

from __future__ import annotations

from gdscore._arrays import Array, namespace
from gdscore._options import boolean
from gdscore.outputs import Outputs
from gdscore.scores.means import MeanScore
from gdscore.scores.registry import register_score

__all__ = ["AgreeScore"]


@register_score("agreescore")
class AgreeScore(MeanScore):
    r"""Share of rows on which two independently trained models disagree (Jiang et al., ICLR 2022); falls with accuracy.

    .. math:: \frac1m \sum_i [\hat y_i \neq \hat y'_i]

    Parameters
    ----------
    soft : bool, default False
        Mean of ½‖S − S'‖₁ of the two models' probabilities in place of the share of different predictions: the same
        idea with less noise.

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> logits, peer = np.eye(4), np.eye(4)[[0, 1, 2, 2]]
    >>> gdscore.score("agreescore", gdscore.Outputs(logits=logits, peer_logits=peer))
    0.25
    """

    inputs = frozenset({"logits", "peer_logits"})
    higher_is_better = False

    def __init__(self, *, soft: bool = False) -> None:
        self.soft = boolean("soft", soft)
        super().__init__()

    def row_values(self, chunk: Outputs) -> Array:
        """Whether the two predictions differ, or by how much the two distributions do."""
        if self.soft:
            peer = Outputs(logits=chunk.peer_logits).probabilities
            return 0.5 * namespace(peer).sum(namespace(peer).abs(chunk.probabilities - peer), axis=1)
        return namespace(chunk.logits).argmax(chunk.peer_logits, axis=1) != chunk.predictions
