"""AgreeScore: disagreement of two models."""

from __future__ import annotations

from gdscore._arrays import Array, namespace
from gdscore.outputs import Outputs
from gdscore.scores.means import MeanScore
from gdscore.scores.registry import register_score

__all__ = ["AgreeScore"]


@register_score("agreescore")
class AgreeScore(MeanScore):
    r"""Share of rows on which two independently trained models disagree (Jiang et al., ICLR 2022); falls with accuracy.

    .. math:: \frac1m \sum_i [\hat y_i \neq \hat y'_i]

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> logits, peer = np.eye(4), np.eye(4)[[0, 1, 2, 2]]
    >>> gdscore.score("agreescore", gdscore.Outputs(logits=logits, peer_logits=peer))
    0.25
    """

    inputs = frozenset({"logits", "peer_logits"})
    higher_is_better = False

    def row_values(self, chunk: Outputs) -> Array:
        """Whether the two predictions differ."""
        return namespace(chunk.logits).argmax(chunk.peer_logits, axis=1) != chunk.predictions
