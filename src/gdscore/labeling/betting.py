"""`sequence`: an interval after every label that holds at all times at once.

For a share m that the accuracy might have, a gambler bets on the labels one after the other; were m the accuracy, the
wealth would be a non-negative martingale, which reaches 1/α with probability α at most (Ville). Shares at which one of
two gamblers, who bet on more and on less, each with half of the money, has reached it are excluded [1]_. Rows are
drawn without replacement, so that the expected next label is (N m − rights so far) / (rows left). Bets are on

    right − c (p − E p),     p: predicted correctness of the row, E p: its mean over the rows left,

which has the same mean and less variance where p tells right from wrong; c comes from the labels before. A row that
nobody can tell counts against the gambler: as wrong for the one, as right for the other.

References
----------
.. [1] I. Waudby-Smith, A. Ramdas, "Estimating means of bounded random variables by betting", JRSS B 2024.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore._checks import number
from gdscore.errors import GdscoreError
from gdscore.estimator import AccuracyEstimator
from gdscore.labeling.choice import TargetLike
from gdscore.labeling.labelled import labelled_rows
from gdscore.labeling.rows import LabelRows

Floats = NDArray[np.float64]
LARGEST_BET = 0.5
PRIOR_SPREAD = 0.5
"""Sum of squares of predicted correctness that must be there before it is trusted half."""
GRID = 2000


@dataclass(frozen=True, eq=False)
class LabelSequence:
    """Accuracy with an interval after each label; all intervals hold at once with probability ``level``.

    Attributes
    ----------
    accuracy, low, high : array of shape (t,)
        After 1, 2, … t rows.
    level : float
        Probability that none of the intervals misses the accuracy on the target's rows.
    n_rows : int
        Rows of the target.
    """

    accuracy: Floats
    low: Floats
    high: Floats
    level: float
    n_rows: int

    def __len__(self) -> int:
        return len(self.low)

    def narrow_enough(self, half_width: float) -> bool:
        """Whether the last interval is at most ± ``half_width`` wide: labelling can stop."""
        number("half_width", half_width, above=0, most=0.5)
        return bool(self.high[-1] - self.low[-1] <= 2 * half_width)

    def compared_with(self, threshold: float) -> str:
        """``above`` or ``below`` where the last interval is on one side of an accuracy, otherwise ``undecided``."""
        number("threshold", threshold, least=0, most=1)
        return "above" if self.low[-1] > threshold else "below" if self.high[-1] < threshold else "undecided"

    def __str__(self) -> str:
        return (
            f"between {self.low[-1]:.1%} and {self.high[-1]:.1%} after {len(self)} of {self.n_rows:,} rows "
            f"(valid at all times with probability {100 * self.level:g}%)"
        )


def sequence(est: AccuracyEstimator, outputs: TargetLike, rows: LabelRows, labels: Any) -> LabelSequence:
    """Intervals after every label, so that a person may look at each of them and stop when it is enough.

    Parameters
    ----------
    est, outputs, labels
        As for `estimate`.
    rows : LabelRows
        Drawn by ``choose(…, design="random")``.

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 3, 4000)
    >>> out = gdscore.Outputs(logits=4 * np.eye(3)[y] + rng.normal(size=(4000, 3)), labels=y)
    >>> est, target = gdscore.AccuracyEstimator().fit(out[:2000]), out[2000:]
    >>> rows = gdscore.labeling.choose(est, target, budget=100, design="random")
    >>> answer = gdscore.labeling.sequence(est, target, rows, y[2000:][rows.rows])
    >>> answer.compared_with(0.8)
    'above'
    """
    if isinstance(rows, LabelRows) and rows.design != "random":
        raise GdscoreError(
            f"Expected rows drawn with design='random', but they are {rows.design}: intervals for every label "
            "need rows that come in random order"
        )
    labelled = labelled_rows(est, outputs, rows, labels)
    n, count, level = rows.n_rows, labelled.count, float(est.level)
    exact = n <= GRID
    shares = np.linspace(0, 1, (n if exact else GRID) + 1)
    worth = wealth(
        labelled.correct[None] & labelled.has_label[None],
        labelled.correct[None] | ~labelled.has_label[None],
        rows.predicted_correct[None, :count],
        rows.mean_predicted_correct,
        n,
        shares[None],
        level,
    )
    counts, unknown = np.cumsum(labelled.correct & labelled.has_label), np.cumsum(~labelled.has_label)
    low, high, accuracy = np.zeros(count), np.ones(count), np.zeros(count)
    kept = np.ones(len(shares), dtype=bool)
    step = 0.0 if exact else 1 / GRID
    for t, reached in enumerate(worth):
        kept &= reached[0] < 1 / (1 - level)
        left = shares[kept] if kept.any() else shares
        before = (low[t - 1], high[t - 1]) if t else (0.0, 1.0)
        low[t] = max(before[0], left[0] - step, counts[t] / n)
        high[t] = max(low[t], min(before[1], left[-1] + step, (counts[t] + unknown[t] + n - t - 1) / n))
        labelled = t + 1 - unknown[t]
        accuracy[t] = np.clip(counts[t] / labelled if labelled else 0.5, low[t], high[t])
    return LabelSequence(accuracy, low, high, level, n)


def wealth(
    right_at_least: NDArray[Any],
    right_at_most: NDArray[Any],
    predicted: Floats,
    mean_predicted: float,
    n_rows: int,
    shares: Floats,
    level: float,
) -> Iterator[Floats]:
    """Wealth of the richer gambler, where both started with 1 together, at each share after each label.

    Each of d runs has t rows: ``right_at_least`` and ``right_at_most``, shape (d, t), tell whether each row is
    predicted right, where unknown rows count as wrong and as right; ``predicted`` is their predicted correctness, whose
    mean over the ``n_rows`` rows of the target is ``mean_predicted``. ``shares``, shape (d, g) or (1, g), are the
    accuracies to test. The size of bets is adapted to the level of the intervals. Yields arrays of shape (d, g).
    """
    least, most = np.asarray(right_at_least, dtype=np.float64), np.asarray(right_at_most, dtype=np.float64)
    runs, count = least.shape
    up = np.zeros((runs, shares.shape[1]))
    down = np.zeros_like(up)
    past, has_label = _Past(runs), least == most
    rights_least, rights_most = np.zeros((runs, 1)), np.zeros((runs, 1))
    for t in range(count):
        left = n_rows - t
        mean_p = np.clip((n_rows * mean_predicted - past.predicted_sum) / left, 0, 1)[:, None]
        c = past.slope()[:, None]
        bet = np.sqrt(2 * math.log(2 / (1 - level)) / (past.variance() * (t + 1) * math.log(t + 2)))[:, None]
        expected_high = (n_rows * shares - rights_least) / left
        expected_low = (n_rows * shares - rights_most) / left
        correction = c * (predicted[:, [t]] - mean_p)
        for side, y, expected, sign in ((up, least, expected_high, 1.0), (down, most, expected_low, -1.0)):
            expected = np.clip(expected, 0, 1)
            # The farthest that a value can lie on the losing side: a bet never loses more than half.
            reach = expected + c * (1 - mean_p) if sign > 0 else 1 + c * mean_p - expected
            size = np.minimum(bet, LARGEST_BET / np.maximum(reach, 1e-12))
            side += np.log1p(sign * size * (y[:, [t]] - correction - expected))
        rights_least += least[:, [t]]
        rights_most += most[:, [t]]
        past.add(least[:, t], predicted[:, t], has_label[:, t], least[:, t] - correction[:, 0])
        with np.errstate(over="ignore"):
            yield 0.5 * np.exp(np.maximum(up, down))


class _Past:
    """Sums over the labels before, from which the next bet is made."""

    def __init__(self, runs: int) -> None:
        self.count, self.y, self.p, self.pp, self.yp = np.zeros((5, runs))
        self.predicted_sum = np.zeros(runs)
        self.values, self.squares = np.zeros(runs), np.zeros(runs)

    def add(self, y: Floats, p: Floats, has_label: NDArray[np.bool_], value: Floats) -> None:
        """Take in one row of every run; those without a label teach nothing."""
        self.predicted_sum += p
        self.count += has_label
        for total, term in ((self.y, y), (self.p, p), (self.pp, p * p), (self.yp, y * p), (self.values, value)):
            total += np.where(has_label, term, 0.0)
        self.squares += np.where(has_label, value * value, 0.0)

    def slope(self) -> Floats:
        """C: regression of right on predicted correctness, shrunk towards 0."""
        n = np.maximum(self.count, 1)
        spread = self.pp - self.p**2 / n
        return np.asarray(np.clip((self.yp - self.y * self.p / n) / (spread + PRIOR_SPREAD), 0, 1))

    def variance(self) -> Floats:
        """Variance of the values so far, that of a fair coin to begin with."""
        n = np.maximum(self.count, 1)
        return np.asarray((0.25 + np.maximum(self.squares - self.values**2 / n, 0)) / (self.count + 1))
