"""ATC: average thresholded confidence."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore._arrays import Array
from gdscore._checks import choice
from gdscore.outputs import Outputs
from gdscore.scores.base import HostStats, MeanScore, Stats, floats
from gdscore.scores.registry import register_score

__all__ = ["ATC", "error_threshold"]


def error_threshold(scores: NDArray[Any], error: float, weights: NDArray[Any] | None = None) -> float:
    r"""Threshold t for which the share of ``scores`` below t comes closest to ``error``.

    .. math:: \arg\min_t \Big| \frac{\sum_j w_j [s_j < t]}{\sum_j w_j} - \mathrm{error} \Big|

    Without ties the share is exact for every error that is a multiple of 1/n. Among equally close thresholds the
    lowest is taken; +∞ where all rows are to lie below.

    Parameters
    ----------
    scores : array of shape (n,)
        Certainty of each row of the reference.
    error : float
        Share of the reference that is predicted wrong.
    weights : array of shape (n,), optional
        How often each row occurs; 1 by default.

    Examples
    --------
    >>> error_threshold(np.array([0.1, 0.2, 0.3, 0.4]), 0.25)
    0.2
    >>> error_threshold(np.array([0.1, 0.2]), 1.0)
    inf
    """
    weights = np.ones(len(scores)) if weights is None else np.asarray(weights, dtype=float)
    values, group = np.unique(scores, return_inverse=True)
    mass = np.bincount(group.ravel(), weights=weights, minlength=len(values))
    below = np.concatenate([[0.0], np.cumsum(mass)]) / weights.sum()
    candidates = np.append(values, np.inf)
    # Shares are sums of 1/n: differences at the level of rounding are ties.
    distance = np.round(np.abs(below - error), 12)
    return float(candidates[np.argmin(distance)])


@register_score("atc")
class ATC(MeanScore):
    r"""Share of rows at least as certain as a threshold learned on the reference (Garg et al., ICLR 2022): an accuracy.

    .. math:: \frac1m \sum_i [s_i \ge t], \qquad t:\ \frac1n \sum_j [s^{reference}_j < t] = \mathrm{err}_{reference}

    On the reference it returns the reference accuracy (ties aside).

    Parameters
    ----------
    score : str, default "entropy"
        What s is: the negative ``entropy`` or the ``confidence``.
    variant : str, default "default"
        ``published``: the threshold is the score of the row *before*, which adds 1/n to the accuracy, and 0 where
        the reference has no error, which makes the accuracy by ``entropy`` 0 % then.

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> val = gdscore.Outputs(logits=np.diag([4.0, 3.0, 2.0, 1.0]), labels=np.array([0, 1, 2, 0]))
    >>> gdscore.score("atc", val, reference=val), gdscore.score("atc", val[2:], reference=val)
    (0.75, 0.5)
    """

    formula = "share of rows with -entropy (or confidence) >= t; t has the reference error below it on the reference"
    good_for = "exact on the reference"
    fails_when = "wrong predictions stay above the threshold"
    remark = "threshold learned on the labelled reference"
    reference_inputs = frozenset({"logits", "labels"})
    learned: ClassVar = {"threshold_": floats()}

    def __init__(self, *, score: str = "entropy", variant: str = "default") -> None:
        self.score = choice("score", score, ("entropy", "confidence"))
        self.variant = choice("variant", variant, ("default", "published"))
        super().__init__()

    def _certainty(self, chunk: Outputs) -> Array:
        if self.score == "entropy":
            return -chunk.entropy
        # Minus (1 − c) orders rows as c does, also where c rounds to 1; the released threshold 0 is one of c.
        return chunk.confidence if self.variant == "published" else -chunk.one_minus_confidence

    def measure_reference(self, chunk: Outputs) -> Stats:
        """Scores of the rows, on the host, and number of errors."""
        correct = arrays.to_numpy(chunk.correct)
        return {"scores": arrays.to_numpy(self._certainty(chunk)), "errors": np.asarray(np.sum(~correct))}

    def combine_reference(self, first: Stats, second: Stats) -> Stats:
        """All scores and all errors."""
        return {
            "scores": np.concatenate([first["scores"], second["scores"]]),
            "errors": first["errors"] + second["errors"],
        }

    def learn(self, stats: HostStats) -> None:
        """Threshold with the reference error below it."""
        scores, errors = stats["scores"], int(stats["errors"])
        if self.variant == "published":
            self.threshold_ = float(np.sort(scores)[errors - 1]) if errors else 0.0
        else:
            self.threshold_ = error_threshold(scores, errors / len(scores))

    def row_values(self, chunk: Outputs) -> Array:
        """Whether each row is at least as certain as the threshold."""
        certainty = self._certainty(chunk)
        return certainty >= self.threshold_
