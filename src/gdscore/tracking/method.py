"""The weighted mean of simple answers, as functions of arrays: docs/tracking.md tells it on one page.

A window's accuracy is answered in several simple ways from windows whose labels are known. Every answer is tried out on
those windows first, each time with labels as late as they are now, and answers that were close weigh more. A position
counts windows: consecutive windows are 1 apart, and a gap is as long as the windows that would fit into it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ANSWERS = (
    "label-free with the class mix of the labels",
    "the same plus its mean past error",
    "last known accuracy",
    "mean of the latest known accuracies",
    "mean of the known accuracies",
)
"""Names of the answers, in the order of the weights."""


@dataclass(frozen=True)
class Settings:
    """Constants of the method; ``benchmarks/late_labels.py choose`` compares them with others.

    Attributes
    ----------
    forgetting : float
        Share of a past error that still counts one window later, when answers are weighed.
    scale : float
        Error at which an answer's weight falls by the factor e^½, in shares.
    fast, slow : float
        Share of its weight that a window keeps one window later, in the two means.
    error_memory : float
        The same in the mean of past errors and of their squares.
    prior_windows : float
        Windows that the estimator's own interval counts as, when the size of errors is estimated.
    mix_memory, mix_rows : float
        Share of its weight that a window's labels keep one window later in the class mix, and rows of the reference
        that are added to them.
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
    fast: float = 0.5
    slow: float = 0.8
    error_memory: float = 0.8
    prior_windows: float = 1.0
    mix_memory: float = 0.7
    mix_rows: float = 50.0
    rate: float = 0.1
    least_factor: float = 0.05
    most_factor: float = 30.0
    segment_spread: float = 0.05
    new_model: float = 0.05
    most_windows: int = 64


SETTINGS = Settings()


class Known(NamedTuple):
    """Windows with labels, in order of time: arrays of shape (n,)."""

    position: Floats
    accuracy: Floats  # by the labels
    variance: Floats  # of that accuracy, as labels are a sample
    raked: Floats  # the label-free estimate as it was given, with the class mix of the labels known then


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


def answer(known: Known, position: float, raked: float, prior_error: float, settings: Settings = SETTINGS) -> Answered:
    """Answer for a window at ``position`` whose label-free estimate is ``raked``.

    ``prior_error`` is the error that the estimator expects of itself.

    Examples
    --------
    >>> known = Known(np.arange(3.0), np.array([0.80, 0.71, 0.70]), np.full(3, 0.0004), np.array([0.82, 0.80, 0.81]))
    >>> found = answer(known, 3.0, 0.80, 0.05)
    >>> round(found.accuracy, 2), found.weights.round(2).tolist()
    """
    place = np.append(known.position, position)
    estimates = np.append(known.raked, raked)
    age = place[:, None] - known.position
    # As late as they are now: rounded, as windows may be a little apart from equal distances.
    delay = np.round(age[-1, -1])
    usable = np.round(age) >= max(delay, 1.0)
    # Relative to the latest usable window, so that no power underflows.
    latest = np.where(usable, age, np.inf).min(axis=1, keepdims=True)
    some = np.isfinite(latest)
    relative = np.where(usable, age - np.where(some, latest, 0.0), np.inf)
    precision = 1 / (settings.scale**2 + known.variance)

    def mean(memory: float, of: Floats, otherwise: Floats) -> Floats:
        weight = memory**relative * precision
        total = weight.sum(axis=1)
        return np.where(total > 0, weight @ of / np.where(total > 0, total, 1.0), otherwise)

    last = np.where(
        some[:, 0], known.accuracy[np.where(usable, np.arange(len(known.position)), 0).argmax(axis=1)], estimates
    )
    values = np.stack(
        [
            estimates,
            estimates + mean(settings.error_memory, known.accuracy - known.raked, np.zeros(len(place))),
            last,
            mean(settings.fast, known.accuracy, estimates),
            mean(settings.slow, known.accuracy, estimates),
        ],
        axis=1,
    ).clip(0, 1)
    losses = np.square(values[:-1] - known.accuracy[:, None])
    lost = (settings.forgetting**relative * precision / 2) @ losses
    weights = np.exp(lost.min(axis=1, keepdims=True) - lost)
    weights /= weights.sum(axis=1, keepdims=True)
    given = (weights * values).sum(axis=1)
    squares = np.square(known.accuracy - given[:-1]) - known.variance
    counts = settings.error_memory ** relative[-1]
    total = counts.sum() + settings.prior_windows
    squared = (counts @ squares + settings.prior_windows * prior_error**2) / total
    return Answered(values[-1], weights[-1], float(given[-1]), float(np.sqrt(max(squared, 0.0))))
