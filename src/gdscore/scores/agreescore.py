"""AgreeScore: disagreement of two models."""

from __future__ import annotations

from gdscore._arrays import Array, namespace
from gdscore._options import boolean
from gdscore.outputs import Outputs
from gdscore.scores.means import MeanScore
from gdscore.scores.registry import register_score

__all__ = ["AgreeScore", "soft_disagreement"]


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
            return soft_disagreement(chunk, chunk.peer_logits)
        return namespace(chunk.logits).argmax(chunk.peer_logits, axis=1) != chunk.predictions


def soft_disagreement(chunk: Outputs, other: Array) -> Array:
    """½‖S − S'‖₁ of each row, with S' of other logits."""
    said = Outputs(logits=other).probabilities
    return 0.5 * namespace(said).sum(namespace(said).abs(chunk.probabilities - said), axis=1)
