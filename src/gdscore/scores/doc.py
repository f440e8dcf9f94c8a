"""DoC: difference of confidences."""

from __future__ import annotations

from typing import ClassVar

from gdscore._arrays import Array
from gdscore.outputs import Outputs
from gdscore.scores.base import HostStats, MeanScore, Stats, mean_stats
from gdscore.scores.registry import register_score


@register_score("doc")
class DoC(MeanScore):
    r"""Reference accuracy less the fall in mean confidence (Guillory et al., ICCV 2021): an accuracy.

    .. math:: \mathrm{acc}_{reference} - \big(\overline{c}_{reference} - \overline{c}_{target}\big)

    Not clipped to [0, 1].

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> val = gdscore.Outputs(logits=2 * np.eye(4), labels=np.array([0, 1, 2, 0]))
    >>> gdscore.score("doc", val, reference=val)
    0.75
    """

    formula = "reference accuracy - (mean confidence on the reference - mean confidence on the target)"
    good_for = "confidences whose error is the same on reference and target"
    fails_when = "confidence does not fall with accuracy; it can leave [0, 1]"
    optional_inputs = frozenset({"predictions"})
    reference_inputs = frozenset({"logits", "labels"})
    learned: ClassVar = ("reference_accuracy_", "reference_confidence_")

    def measure_reference(self, chunk: Outputs) -> Stats:
        """Sums of confidence and of correctness."""
        correct = mean_stats(chunk.correct)
        return {**mean_stats(chunk.confidence), "correct": correct["total"]}

    def learn(self, stats: HostStats) -> None:
        """Accuracy and mean confidence of the reference."""
        self.reference_accuracy_ = float(stats["correct"] / stats["rows"])
        self.reference_confidence_ = float(stats["total"] / stats["rows"])

    def row_values(self, chunk: Outputs) -> Array:
        """Confidence of each row."""
        return chunk.confidence

    def result(self, stats: HostStats) -> float:
        """Reference accuracy moved by the difference of the mean confidences."""
        return self.reference_accuracy_ - (self.reference_confidence_ - super().result(stats))
