"""ProjNorm: listed here, computed in `gdscore.models`, as it trains the network."""

from __future__ import annotations

from gdscore.errors import GdscoreError
from gdscore.outputs import Outputs
from gdscore.scores.base import Score
from gdscore.scores.registry import register_score


@register_score("projnorm")
class ProjNorm(Score):
    r"""Distance in parameters of a network retrained on pseudo-labels (Yu et al., ICML 2022); falls with accuracy.

    .. math:: \|\theta_{ref} - \tilde\theta\|_2

    It needs the network and its training, not only its outputs: `gdscore.models.projnorm` computes it.
    """

    formula = "L2 distance of the parameters after retraining on pseudo-labels of the target"
    good_for = "the network and time to train it are there"
    fails_when = "time is short: it trains for every target"
    inputs = frozenset({"network"})
    higher_is_better = False

    def check_rows(self, outputs: Outputs) -> None:
        """Refuse outputs, and name the function that computes it."""
        raise GdscoreError("`projnorm` needs the network, not its outputs: use gdscore.models.projnorm")
