"""ATC: average thresholded confidence."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore._arrays import Array, namespace
from gdscore._checks import choice
from gdscore._softmax import ROUNDING
from gdscore.outputs import ARGMAX, Outputs
from gdscore.scores.base import HostStats, MeanScore, Stats
from gdscore.scores.registry import register_score


def error_threshold(
    scores: NDArray[Any], error: float, weights: NDArray[Any] | None = None, *, rounding: float = 1e-30
) -> float:
    """Threshold t for which the share of ``scores`` (at most 0) below t comes closest to ``error``.

    Without ties the share is exact for every error that is a multiple of 1/n. Among equally close thresholds the
    lowest is taken; +∞ where all rows are to lie below. ``weights`` is how often each row occurs.

    The threshold lies in the middle between two scores, so that a row that has the score of a reference row up to
    rounding (in another precision or array library, as logits or as probabilities) is on the same side of it. Scores
    that differ by rounding only are one score: a run of neighbours closer than 1e-5 of their size, or than ``rounding``
    near 0. A run longer than eight such steps is a continuum, not a tie, and may be divided anywhere.

    Examples
    --------
    >>> error_threshold(-np.array([0.4, 0.3, 0.2, 0.1]), 0.25), error_threshold(-np.array([0.2, 0.1]), 1.0)
    (-0.35, inf)
    """
    weights = np.ones(len(scores)) if weights is None else np.asarray(weights, dtype=float)
    values, group = np.unique(np.asarray(scores, dtype=np.float64), return_inverse=True)
    mass = np.bincount(group.ravel(), weights=weights, minlength=len(values))
    below = np.concatenate([[0.0], np.cumsum(mass)]) / weights.sum()
    step = ROUNDING * np.abs(values) + rounding
    run = np.cumsum(np.concatenate([[True], np.diff(values) > step[:-1]])) - 1
    first, last = np.unique(run, return_index=True)[1], np.append(np.flatnonzero(np.diff(run)), len(values) - 1)
    tied = (values[last] - values[first] <= 8 * step[first])[run]
    lowest = values[0] - abs(values[0]) / 64 - rounding  # below all rows also where they are given in half precision
    candidates = np.concatenate([[lowest], (values[:-1] + values[1:]) / 2, [np.inf]])
    distance = np.abs(below - error)
    distance[1:-1][tied[1:] & (np.diff(run) == 0)] = np.inf
    # Shares are sums of 1/n: those that differ by rounding are equally close.
    return float(candidates[np.argmax(distance <= distance.min() + 1e-12)])


@register_score("atc")
class ATC(MeanScore):
    r"""Share of rows at least as certain as a threshold learned on the reference (Garg et al., ICLR 2022): an accuracy.

    .. math:: \frac1m \sum_i [s_i \ge t], \qquad t:\ \frac1n \sum_j [s^{reference}_j < t] = \mathrm{err}_{reference}

    On the reference it returns the reference accuracy (ties aside). t lies between two scores of the reference, see
    `error_threshold`. A row that was decided for another class than the most probable one is less certain than all
    others: −H is reflected there at its least value −ln K, and the confidence is that of the decided class.

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
    optional_inputs = frozenset({"predictions"})
    reference_inputs = frozenset({"logits", "labels"})
    learned: ClassVar = ("threshold_",)

    def __init__(self, *, score: str = "entropy", variant: str = "default") -> None:
        self.score = choice("score", score, ("entropy", "confidence"))
        self.variant = choice("variant", variant, ("default", "published"))
        super().__init__()

    def _certainty(self, chunk: Outputs) -> Array:
        if self.score == "entropy":
            if chunk.decision == ARGMAX:
                return -chunk.entropy
            # Of two classes this is the order of the decided class's probability.
            reflected = chunk.entropy - 2 * math.log(int(chunk.n_classes or 2))
            return namespace(reflected).where(chunk.is_top, -chunk.entropy, reflected)
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
