"""Rotation: error of a rotation head."""

from __future__ import annotations

from gdscore import _arrays as arrays
from gdscore._arrays import Array, namespace
from gdscore.outputs import Outputs
from gdscore.scores.base import MeanScore
from gdscore.scores.registry import register_score


@register_score("rotation")
class Rotation(MeanScore):
    r"""Error of a head that predicts by which of four rotations a row was turned (Deng et al., ICML 2021).

    .. math:: \frac{1}{4m} \sum_i \sum_{r=0}^{3} [\arg\max_q R_{irq} \neq r]

    Falls with accuracy. `gdscore.models.fit_rotation_head` trains such a head.

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> turned = np.eye(4)[[0, 1, 2, 2]][None]  # the fourth rotation is taken for the third
    >>> gdscore.score("rotation", gdscore.Outputs(rotation_logits=turned))
    0.25
    """

    formula = "share of the four rotations of each row that a rotation head mistakes, mean over rows"
    good_for = "images with an upright direction"
    fails_when = "a turned image looks like an upright one; needs a head of its own"
    inputs = frozenset({"rotation_logits"})
    higher_is_better = False

    def row_values(self, chunk: Outputs) -> Array:
        """Share of the four rotations that are mistaken."""
        logits = chunk.rotation_logits
        xp, shown = namespace(logits), arrays.columns(logits)[None, :]
        return xp.mean(xp.astype(xp.argmax(logits, axis=2) != shown, xp.float32), axis=1)
