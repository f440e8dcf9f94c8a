"""A test over a series of windows whose false alarms per year are bounded however often one looks.

For each window with estimate a and n rows, the standardised drop below a floor f is

    z = (f − a) / s,    s² = r (1 − r) / n + SPREAD²,

where r is the accuracy on the reference. The floor is r − tolerance − 2 standard errors of r, as the reference is a
sample too. Once BASELINE windows have come, their mean b is known much better than r, and the floor is the larger of
that and min(r, b) − tolerance.

For each λ of a grid, R(t) = (1 + R(t−1)) · exp(λ z − λ²/2) is the Shiryaev–Roberts statistic, and the test statistic M
is their mean over the grid. An alarm is raised where M ≥ threshold = windows per year / false alarms per year.

Assumptions. While nothing is wrong, and given all windows before: the mean of the estimate is at least the
floor, and its deviations downwards are no larger than those of a normal variable with standard deviation s. Windows may
otherwise depend on each other. Then exp(λ z − λ²/2) has expectation at most 1, M(t) − t is a supermartingale, and by
optional stopping the mean number of windows between false alarms is at least the threshold; by Doob's inequality the
probability of one within a year is at most the rate.

References: Roberts (1966), Technometrics 8(3); Shin, Ramdas, Rinaldo (2024), E-detectors, NEJSDS 2(2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["BASELINE", "LAMBDAS", "MISSES", "SequentialTest", "floor_of", "standardised_drop", "threshold"]

LAMBDAS = np.array([0.25, 0.5, 1.0, 2.0, 4.0])
MISSES = np.array([0.05, 0.15, 0.3, 0.5, 0.8])
"""Intervals that fail beyond those that may, as shares of the rest."""
SPREAD = 0.005
"""Standard deviation between windows beyond that of drawing rows, in shares: weekdays, seasons."""
MOST_EXTREME = 6.0
"""Drops beyond this count as this, so that one absurd window is no proof on its own of more than it shows."""
BASELINE = 30
"""Windows whose mean becomes the level that later ones are compared with."""
EDGE = 0.02
"""Reference accuracies are kept this far from 0 and 1, as a reference without errors does not prove that none occur."""


def floor_of(
    reference: ArrayLike, reference_rows: ArrayLike, tolerance: float, baseline: ArrayLike | None = None
) -> NDArray[Any]:
    """Accuracy below which a mean estimate counts as a drop; ``baseline`` is the mean of the first windows.

    Examples
    --------
    >>> float(floor_of(0.9, 900, 0.01).round(3)), float(floor_of(0.9, 900, 0.01, baseline=0.895).round(3))
    (0.87, 0.885)
    """
    r = np.asarray(reference, dtype=np.float64)
    inside = np.clip(r, EDGE, 1 - EDGE)
    floor = r - tolerance - 2 * np.sqrt(inside * (1 - inside) / np.asarray(reference_rows, dtype=np.float64))
    return np.asarray(floor if baseline is None else np.maximum(floor, np.minimum(r, np.asarray(baseline)) - tolerance))


def standardised_drop(accuracy: ArrayLike, rows: ArrayLike, reference: ArrayLike, floor: ArrayLike) -> NDArray[Any]:
    """How far estimates are below a floor, in standard errors.

    Examples
    --------
    >>> standardised_drop([0.9, 0.85], 400, 0.9, floor=0.89).round(2).tolist()
    [-0.63, 2.53]
    """
    inside = np.clip(np.asarray(reference, dtype=np.float64), EDGE, 1 - EDGE)
    scale = np.sqrt(inside * (1 - inside) / np.asarray(rows, dtype=np.float64) + SPREAD**2)
    return np.asarray(np.minimum((np.asarray(floor) - np.asarray(accuracy)) / scale, MOST_EXTREME))


def threshold(false_alarms_per_year: float, windows_per_year: float, series: int = 1) -> float:
    """Value of the statistic that raises an alarm; the rate is shared by the series (segments) of a model.

    Examples
    --------
    >>> threshold(0.1, 365)
    3650.0
    """
    return max(1.0, windows_per_year * series / false_alarms_per_year)


@dataclass
class SequentialTest:
    """Statistic of one series, or of many at once where drops are arrays.

    Attributes
    ----------
    log_r : array of shape (5,) or (5, …)
        Logarithm of R for each λ.
    run, began : list
        For each λ the sum that tells since when the drop lasts (a CUSUM), and the time at which it left 0.
    first : tuple of int and float
        Number and sum of the estimates of the first windows, at most BASELINE.
    dropped : tuple of int and float
        Number and sum of the estimates of windows with the problem, while an alarm is open.
    """

    log_r: NDArray[Any] = field(default_factory=lambda: np.full(len(LAMBDAS), -np.inf))
    run: list[float] = field(default_factory=lambda: [0.0] * len(LAMBDAS))
    began: list[datetime | None] = field(default_factory=lambda: [None] * len(LAMBDAS))
    first: tuple[int, float] = (0, 0.0)
    dropped: tuple[int, float] = (0, 0.0)

    def update(self, z: Any) -> SequentialTest:
        """Take in the standardised drop of one more window, or of one more window of each of many series."""
        return self._add(np.multiply.outer(LAMBDAS, z) - (LAMBDAS**2 / 2).reshape(-1, *[1] * np.ndim(z)))

    def _add(self, gain: NDArray[Any]) -> SequentialTest:
        z = gain[0]
        before = self.log_r if self.log_r.shape == gain.shape else self.log_r.reshape(-1, *[1] * np.ndim(z))
        self.log_r = np.logaddexp(0.0, before) + gain
        return self

    def update_at(self, z: float, time: datetime) -> SequentialTest:
        """As `update` for one series, and keep since when the drop lasts."""
        return self._add_at(LAMBDAS * z - LAMBDAS**2 / 2, time)

    def update_misses(self, missed: bool, level: float, time: datetime) -> SequentialTest:
        """Take in whether the labels of a window contradict its interval, of which a share ``level`` should hold.

        The gain is the log-likelihood ratio of each share of MISSES against 1 − level, so that its expectation is at
        most 1 while no more intervals fail than that.
        """
        allowed = min(max(1 - level, 1e-3), 0.5)
        shares = allowed + (1 - allowed) * MISSES
        ratio = shares / allowed if missed else (1 - shares) / (1 - allowed)
        return self._add_at(np.log(ratio), time)

    def _add_at(self, gains: NDArray[Any], time: datetime) -> SequentialTest:
        for k, gain in enumerate(gains.tolist()):
            if self.run[k] <= 0:
                self.run[k], self.began[k] = 0.0, time
            self.run[k] += gain
        return self._add(gains)

    @property
    def baseline(self) -> float | None:
        """Mean of the first windows, once there are enough."""
        count, total = self.first
        return total / count if count >= BASELINE else None

    def learn_baseline(self, accuracy: float) -> None:
        """Take in the estimate of one more window, where it is one of the first."""
        count, total = self.first
        if count < BASELINE:
            self.first = (count + 1, total + accuracy)

    def has_problem(self, accuracy: float, z: float, floor: float, limit: float) -> bool:
        """Whether a window that was taken in has the problem; it then counts among those that dropped.

        It has where the statistic is at its limit and the estimate is below the floor. While an alarm is open, half a
        standard error below the floor is allowed, so that the noise of small windows does not keep the alarm open, but
        only where that is nearer to the floor than to the windows that dropped.
        """
        count, total = self.dropped
        allowed = bool(count) and z < 0.5 and accuracy > (floor + total / count) / 2
        if z <= 0 or allowed or float(self.log_statistic) < limit:
            return False
        self.dropped = (count + 1, total + accuracy)
        return True

    def restarted(self) -> SequentialTest:
        """New test with the same baseline."""
        return SequentialTest(first=self.first)

    @property
    def log_statistic(self) -> NDArray[Any]:
        """Logarithm of the mean of R over the grid."""
        return np.asarray(np.logaddexp.reduce(self.log_r, axis=0) - math.log(len(LAMBDAS)))

    @property
    def beginning(self) -> datetime | None:
        """Time since when the drop lasts, by the λ with the largest statistic."""
        return self.began[int(np.argmax(self.log_r))]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for the database."""
        log_r = [max(value, -1e9) for value in self.log_r.tolist()]
        began = [None if time is None else time.isoformat() for time in self.began]
        return {"log_r": log_r, "run": [*self.run], "began": began, "first": [*self.first], "dropped": [*self.dropped]}

    @classmethod
    def from_dict(cls, found: dict[str, Any] | None) -> SequentialTest:
        """Inverse of `to_dict`; a new test where there is none."""
        if not found:
            return cls()
        log_r = np.array(found["log_r"], dtype=np.float64)
        began = [None if time is None else datetime.fromisoformat(time) for time in found["began"]]
        first, dropped = found["first"], found["dropped"]
        return cls(log_r, [*found["run"]], began, (first[0], first[1]), (dropped[0], dropped[1]))
