"""The weighted mean of simple answers, as functions of arrays: docs/tracking.md tells it on one page.

A window's accuracy is answered in several simple ways from windows whose labels are known. Every answer is tried out on
those windows first, each time with labels as late as they are now, and answers that were close weigh more. A position
counts windows: consecutive windows are 1 apart, and a gap is as long as the windows that would fit into it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ANSWERS = (
    "label-free at the labels' class mix",
    "label-free plus its mean past error",
    "label-free",
    "last known accuracy",
    "unchanged since the reference",
)
"""Names of the answers, in the order of the weights."""


@dataclass(frozen=True)
class Settings:
    """Constants of the method; ``benchmarks/estimates/late_labels.py choose`` compares them with others.

    Attributes
    ----------
    memory : float
        Share of its weight that a window keeps one window later, in every mean over past windows.
    scale : float
        Error that halves an answer's weight, in shares; a window whose labels say its accuracy with this standard
        deviation counts for half.
    mix_rows : float
        Rows of the reference that are added to the labels of past windows, for the class mix.
    rate : float
        How fast the factor of the intervals follows misses.
    least_factor, most_factor : float
        At and beyond these the interval is a point, or all of [0, 1].
    difference : float
        Standard deviation of the error of a segment around the error that all segments have in common, and of the
        accuracy of a version of the model around that of the version before.
    most_windows : int
        Known windows that are looked at, the latest ones.
    """

    memory: float = 0.8
    scale: float = 0.06
    mix_rows: float = 25.0
    rate: float = 0.15
    least_factor: float = 0.2
    most_factor: float = 10.0
    difference: float = 0.05
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
    unchanged: Floats  # on the reference


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


class Tried(NamedTuple):
    """The answers to the known windows, as late as they are now, and to the new one, which comes last."""

    values: Floats  # shape (n + 1, 5)
    counts: Floats  # shape (n + 1, n): how much each known window says of the answers to each window
    delay: float  # windows since the latest known one


def try_out(
    known: Known, position: float, label_free: float, raked: float, unchanged: float, settings: Settings = SETTINGS
) -> Tried:
    """Answers to known windows and to one at ``position``; the parameters are those of `answer`."""
    n, place = len(known.position), np.append(known.position, position)
    age = place[:, None] - known.position  # one row for each known window, and the last one for the new window
    # A window is answered from those that are as far back as the new one's latest label: rounded, as windows may be a
    # little more or less than one window apart.
    delay = max(float(np.round(age[-1, -1])), 1.0)
    usable = np.round(age) >= delay
    latest = usable.sum(axis=1) - 1  # the latest usable window, -1 where there is none
    certain = settings.scale**2 / (settings.scale**2 + known.variance)  # few labels count for less than many
    # A level ages with time, but how good an answer is only with every window that shows it.
    age_of_level = np.where(usable, age - age[np.arange(n + 1), latest][:, None], np.inf)
    age_of_error = np.where(usable, latest[:, None] - np.arange(n), np.inf)
    recent, counts = (settings.memory**ages * certain for ages in (age_of_level, age_of_error))
    estimates = np.append(known.raked, raked)
    # Less than one window's worth of labels leaves the rest to the estimate, in both answers that know the labels.
    past_error = recent @ (known.accuracy - known.raked) / np.maximum(recent.sum(axis=1), 1.0)
    newest, rest = [0.0], [1.0]
    for accuracy, share in zip(known.accuracy.tolist(), certain.tolist(), strict=True):
        newest.append(share * accuracy + (1 - share) * newest[-1])
        rest.append((1 - share) * rest[-1])
    values = (
        estimates,
        estimates + past_error,
        np.append(known.label_free, label_free),
        np.array(newest)[latest + 1] + np.array(rest)[latest + 1] * estimates,
        np.append(known.unchanged, unchanged),
    )
    return Tried(np.stack(values, axis=1).clip(0, 1), counts, delay)


def weights_of(tried: Tried, known: Known, settings: Settings = SETTINGS) -> Floats:
    """Weights of the answers to each window, shape (n + 1, 5).

    They are divided by 1 + (error / scale)² for every window tried: no window decides alone, as it would if errors were
    thought normal, whose squares are of the one window in which everything was wrong.
    """
    errors = (tried.values[:-1] - known.accuracy[:, None]) / settings.scale
    lost = tried.counts @ np.log1p(np.square(errors))
    weights = np.exp(lost.min(axis=1, keepdims=True) - lost)
    # The later labels are, the less past errors tell, and the more counts the answer that needs them least.
    weights[:, 0] *= tried.delay
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def expected_error(tried: Tried, known: Known, means: Floats, prior_error: float) -> float:
    """Standard deviation that the next weighted mean is expected to have, from those before it."""
    counts = tried.counts[-1]
    # Errors of windows that are nearer than the delay come from the same labels: the estimator's own counts for more.
    prior = (1 + tried.delay) / 2
    total = float(counts.sum()) + prior
    # Distances in place of squares, again for the one window in which everything was wrong.
    distances = math.sqrt(math.pi / 2) * float(counts @ np.abs(known.accuracy - means[:-1]))
    squared = ((distances + prior * prior_error) / total) ** 2 - float(counts @ known.excess) / total
    # One standard error more, as few labels leave much noise in the distances.
    doubt = math.sqrt(2 * float(np.square(counts * known.variance).sum())) / total
    return min(math.sqrt(max(squared, 0.0) + doubt), 1.0)


def answer(
    known: Known,
    position: float,
    label_free: float,
    raked: float,
    unchanged: float,
    prior_error: float,
    settings: Settings = SETTINGS,
) -> Answered:
    """Answer for a window at ``position`` from its estimate without labels, and that at the labels' class mix.

    ``unchanged`` is the accuracy on the reference, ``prior_error`` the error that the estimator expects of itself.
    There is at least one known window.

    Examples
    --------
    >>> accuracy, noise, estimate = np.array([0.80, 0.71, 0.70]), np.full(3, 0.0004), np.array([0.82, 0.80, 0.81])
    >>> known = Known(np.arange(3.0), accuracy, noise, noise, estimate, estimate, np.full(3, 0.85))
    >>> answered = answer(known, 3.0, 0.80, 0.80, 0.85, 0.05)
    >>> round(answered.accuracy, 2), answered.weights.round(2).tolist()
    (0.74, [0.12, 0.33, 0.12, 0.4, 0.04])
    """
    tried = try_out(known, position, label_free, raked, unchanged, settings)
    weights = weights_of(tried, known, settings)
    means = (weights * tried.values).sum(axis=1)
    error = expected_error(tried, known, means, prior_error)
    return Answered(tried.values[-1], weights[-1], float(means[-1]), error)
