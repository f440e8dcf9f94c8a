"""The weighted mean of simple answers, as functions of arrays: docs/tracking.md tells it on one page.

A window's accuracy is answered in several simple ways from windows whose labels are known. Every answer is tried out on
those windows first, each time with labels as late as they are now, and answers that were close weigh more. A position
counts windows: consecutive windows are 1 apart, and a gap is as long as the windows that would fit into it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ANSWERS = (
    "label-free at the labels' class mix",
    "label-free plus its mean past error",
    "label-free",
    "last known accuracy",
    "mean of the known accuracies",
)
"""Names of the answers, in the order of the weights."""


@dataclass(frozen=True)
class Settings:
    """Constants of the method; ``benchmarks/estimates/late_labels.py choose`` compares them with others.

    Attributes
    ----------
    forgetting : float
        Share of a past error that still counts one known window later, when answers are weighed.
    scale : float
        Error that lowers an answer's weight by the factor e^½, in shares.
    largest : float
        Errors count as at most so many times the scale, so that no window decides alone.
    lateness : float
        The label-free estimate at the labels' class mix starts with delay^lateness times the weight of each other
        answer.
    memory : float
        Share of its weight that a window keeps one window later, in means of past errors and of accuracies.
    mix_memory, mix_rows : float
        Share of its weight that a window's labels keep one window later in the class mix, and rows of the reference
        that are added to them.
    spread_memory : float
        Share of its weight that a squared error keeps one known window later, when the size of errors is estimated.
    prior_windows : float
        Windows that the estimator's own interval counts as there, at a delay of one; (1 + delay) / 2 times as many at
        others, as errors of windows that are nearer than the delay come from the same labels.
    rate : float
        How fast the factor of the intervals follows misses.
    least_factor, most_factor : float
        At and beyond these the interval is a point, or all of [0, 1].
    segment_spread : float
        Standard deviation of the errors of segments around the error that all segments have in common.
    new_model : float
        Standard deviation that a known accuracy of an older version of the model has for the new one.
    most_windows : int
        Known windows that are looked at, the latest ones.
    """

    forgetting: float = 0.8
    scale: float = 0.06
    largest: float = 2.0
    lateness: float = 1.0
    memory: float = 0.7
    mix_memory: float = 0.85
    mix_rows: float = 25.0
    spread_memory: float = 0.9
    prior_windows: float = 1.0
    rate: float = 0.15
    least_factor: float = 0.2
    most_factor: float = 10.0
    segment_spread: float = 0.05
    new_model: float = 0.05
    most_windows: int = 64


SETTINGS = Settings()


class Known(NamedTuple):
    """Windows with labels, in order of time: arrays of shape (n,)."""

    position: Floats
    accuracy: Floats  # by the labels
    variance: Floats  # of that accuracy, as labels are a sample
    excess: Floats  # of squared differences from it: the same variance, less what it says nothing of
    label_free: Floats  # the estimate without labels as it was given
    raked: Floats  # the same with the class mix of the labels known then


class Answered(NamedTuple):
    """What `answer` gives."""

    values: Floats  # shape (5,): the answers
    weights: Floats  # shape (5,): sum to 1
    accuracy: float  # their weighted mean
    error: float  # expected error: standard deviation without the sampling of the window's own rows


def positions(times: Floats) -> Floats:
    """Position of each window, of times in ascending order.

    Examples
    --------
    >>> positions(np.array([0.0, 10, 20, 60, 70])).tolist()
    [0.0, 1.0, 2.0, 6.0, 7.0]
    """
    if len(times) < 2:
        return np.zeros(len(times))
    steps = np.diff(times)
    return np.concatenate([[0.0], np.cumsum(np.maximum(steps / np.median(steps), 1.0))])


def answer(
    known: Known, position: float, label_free: float, raked: float, prior_error: float, settings: Settings = SETTINGS
) -> Answered:
    """Answer for a window at ``position`` from its estimate without labels, and that at the labels' class mix.

    ``prior_error`` is the error that the estimator expects of itself. There is at least one known window.

    Examples
    --------
    >>> accuracy, noise, estimate = np.array([0.80, 0.71, 0.70]), np.full(3, 0.0004), np.array([0.82, 0.80, 0.81])
    >>> known = Known(np.arange(3.0), accuracy, noise, noise, estimate, estimate)
    >>> answered = answer(known, 3.0, 0.80, 0.80, 0.05)
    >>> round(answered.accuracy, 2), answered.weights.round(2).tolist()
    (0.73, [0.07, 0.32, 0.07, 0.31, 0.24])
    """
    n, place = len(known.position), np.append(known.position, position)
    age = place[:, None] - known.position  # one row for each known window, and the last one for the new window
    # A window is answered from those that are as far back as the new one's latest label: rounded, as windows may be a
    # little more or less than one window apart.
    delay = max(float(np.round(age[-1, -1])), 1.0)
    usable = np.round(age) >= delay
    latest = usable.sum(axis=1) - 1  # the latest usable window, -1 where there is none
    has_past = latest >= 0
    # Windows, and known windows, from each to the latest usable one.
    since = np.where(usable, age - age[np.arange(n + 1), latest][:, None], np.inf)
    known_since = np.where(usable, latest[:, None] - np.arange(n), np.inf)
    precision = 1 / (settings.scale**2 + known.variance)
    recent = settings.memory**since * precision

    def mean(values: Floats, otherwise: Any) -> Floats:
        return np.where(has_past, (recent @ values) / np.where(has_past, recent.sum(axis=1), 1.0), otherwise)

    estimates = np.append(known.raked, raked)
    values = np.stack(
        [
            estimates,
            estimates + mean(known.accuracy - known.raked, 0.0),
            np.append(known.label_free, label_free),
            np.where(has_past, known.accuracy[latest], estimates),
            mean(known.accuracy, estimates),
        ],
        axis=1,
    ).clip(0, 1)
    squares = np.square(values[:-1] - known.accuracy[:, None])
    losses = np.minimum(squares, (settings.largest * settings.scale) ** 2) * precision[:, None] / 2
    lost = settings.forgetting**known_since @ losses
    weights = np.exp(lost.min(axis=1, keepdims=True) - lost)
    # The later labels are, the less past errors tell, and the more counts the answer that needs them least.
    weights[:, 0] *= delay**settings.lateness
    weights /= weights.sum(axis=1, keepdims=True)
    means = (weights * values).sum(axis=1)
    counts = settings.spread_memory ** known_since[-1] * settings.scale**2 * precision
    prior = settings.prior_windows * (1 + delay) / 2
    excess = np.square(known.accuracy - means[:-1]) - known.excess
    total = float(counts.sum()) + prior
    squared = max(float(counts @ excess) + prior * prior_error**2, 0.0) / total
    # One standard error more, as few labels leave much noise in the squares.
    doubt = math.sqrt(2 * float(np.square(counts * known.variance).sum())) / total
    return Answered(values[-1], weights[-1], float(means[-1]), math.sqrt(squared + doubt))
