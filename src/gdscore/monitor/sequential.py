"""A test over a series of windows whose false alarms per year are bounded however often one looks.

**Warm-up.** Of the first WARM_UP quiet windows of a series its own level, spread, autocorrelation and weekday pattern
are learned (`Quiet.learn`), and then frozen, so that a slow drift is not learned as spread. Until then each estimate a
of n rows is compared with the accuracy r on the reference:

    z = (f − a) / s,    f = r − tolerance − 2 √(r (1 − r) / reference rows + REFERENCE_ERROR²),
    s² = r (1 − r) / n + UNKNOWN_SPREAD².

After FIRST windows the floor is at least their median, less the tolerance and twice UNKNOWN_SPREAD.

**Afterwards** the floor f of a window is the learned level of its weekday, less the larger of the tolerance and
LEVEL_ERRORS standard errors of that level, and what the window before predicts is taken away:

    z = (d − ρ d′) / s,    d = f − a,    d′ the same of the window before,

where ρ is the learned autocorrelation and s the learned standard deviation of d − ρ d′.

For each λ of a grid, R(t) = (1 + R(t−1)) · exp(λ z − λ²/2) is the Shiryaev–Roberts statistic, and the test statistic M
is their mean over the grid. An alarm is raised where M ≥ threshold = windows per year / false alarms per year.

**Assumptions.** While nothing is wrong, windows are a level, a weekday pattern (of windows of one day), and noise that
is about normal and depends on the window before it, as in an autoregression of order one. If level, pattern, ρ and s
were known exactly, exp(λ z − λ²/2) would have expectation at most 1, M(t) − t would be a supermartingale, and by
optional stopping the mean number of windows between false alarms would be at least the threshold. They are learned
from 28 windows; MARGIN, STRETCH and LEVEL_ERRORS make up for that, and `benchmarks/monitor/alarms.py` counts what is
left.

References: Roberts (1966), Technometrics 8(3); Shin, Ramdas, Rinaldo (2024), E-detectors, NEJSDS 2(2); Kendall (1954),
Biometrika 41, for the bias of an autocorrelation.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gdscore._windows import Every

__all__ = ["LAMBDAS", "MISSES", "WARM_UP", "Quiet", "SequentialTest", "Tests", "reference_floor", "threshold"]

ONE_DAY = timedelta(days=1)
LAMBDAS = (0.25, 0.5, 1.0, 2.0, 4.0)
MISSES = (0.05, 0.15, 0.3, 0.5, 0.8)
"""Intervals that fail beyond those that may, as shares of the rest."""
WARM_UP = 28
"""Quiet windows that are learned from: four of each weekday where windows are days."""
FIRST = 7
"""Windows of the warm-up whose median is a level to fall from."""
UNKNOWN_SPREAD = 0.02
"""Standard deviation between windows beyond that of drawing rows while it is not known, in shares."""
REFERENCE_ERROR = 0.01
"""How far estimates of unshifted data are from the accuracy on the reference, measured in research/lab-notebook.md."""
LABEL_SPREAD, LABEL_RHO = 0.05, 0.5
"""The same of accuracies by labels, and their autocorrelation; as much is known of them as of FIRST windows."""
MARGIN = 1.2
"""Times the learned spread, as 28 windows tell it to some 15 % only."""
STRETCH, MOST_RHO = 1.5, 0.95
"""Times the learned autocorrelation, at most MOST_RHO: where it is taken for too small, evidence is counted twice."""
LABEL_STRETCH = 1.0
"""The same of accuracies by labels, which vary so much that a stretched one would hide drops of 20 points."""
LEVEL_ERRORS = 3.0
"""Standard errors of the learned level that its floor is below it, where that is more than the tolerance."""
LEAST_SPREAD = 0.25
"""Least spread, in standard deviations of drawing rows: values that happen to be equal prove no precision."""
SHRINK = 2.0
"""A weekday pattern counts as far as its F statistic is above this."""
CLIP = 2.5
"""Robust standard deviations beyond which a window is moved in before anything is learned from it."""
MOST_EXTREME = 6.0
"""Drops beyond this count as this, so that one absurd window is no proof on its own of more than it shows."""
EDGE = 0.02
"""Reference accuracies are kept this far from 0 and 1, as a reference without errors does not prove that none occur."""


def _row_variance(accuracy: float, rows: float) -> float:
    inside = min(max(accuracy, EDGE), 1 - EDGE)
    return inside * (1 - inside) / rows


def reference_floor(reference: float, reference_rows: float, tolerance: float) -> float:
    """Accuracy below which windows are worse than the reference, as far as its size tells.

    Examples
    --------
    >>> round(reference_floor(0.9, 900, 0.01), 3), round(reference_floor(0.9, 100, 0.01), 3)
    (0.862, 0.827)
    """
    return reference - tolerance - 2 * math.sqrt(_row_variance(reference, reference_rows) + REFERENCE_ERROR**2)


def threshold(false_alarms_per_year: float, windows_per_year: float, series: int = 1) -> float:
    """Value of the statistic that raises an alarm; the rate is shared by the series (segments) of a model.

    Examples
    --------
    >>> threshold(0.1, 365)
    3650.0
    """
    return max(1.0, windows_per_year * series / false_alarms_per_year)


class Seen(NamedTuple):
    """A quiet window of the warm-up; the weekday is None where windows are not days."""

    accuracy: float
    rows: int
    weekday: int | None


@dataclass(frozen=True)
class Quiet:
    """What a series is like while nothing is wrong.

    Attributes
    ----------
    level, error : float
        Mean of its windows, and the standard error of that mean.
    spread, innovation : float
        Standard deviation of a window around its level and weekday, and given the window before; with their margin.
    rho : float
        Correlation of a window with the one before; with its margin.
    rows : float
        Rows of a window; a window with fewer is expected to vary more.
    weekdays : tuple of float
        What Monday to Sunday are above or below the level.
    """

    level: float
    error: float
    spread: float
    innovation: float
    rho: float
    rows: float
    weekdays: tuple[float, ...] = (0.0,) * 7

    @classmethod
    def learn(cls, windows: Sequence[Seen], stretch: float = STRETCH) -> Quiet:
        """Learn from quiet windows in the order of time; single ones that are far off count little.

        ``stretch`` is that of the learned autocorrelation.

        Examples
        --------
        >>> values = [0.9, 0.91, 0.89, 0.9, 0.905, 0.86, 0.855] * 4
        >>> quiet = Quiet.learn([Seen(value, 400, day % 7) for day, value in enumerate(values)])
        >>> round(quiet.level, 3), [round(100 * offset, 1) for offset in quiet.weekdays]
        (0.889, [1.1, 2.1, 0.1, 1.1, 1.6, -2.9, -3.4])
        """
        accuracy = np.array([w.accuracy for w in windows])
        count = len(windows)
        centre = float(np.median(accuracy))
        pattern, used = _weekday_pattern(accuracy - centre, [w.weekday for w in windows])
        days = np.array([pattern[w.weekday] if w.weekday is not None else 0.0 for w in windows])
        apart = _clipped(accuracy - centre - days)
        mean = float(np.median(accuracy - centre - days) + apart.mean())
        apart = apart - apart.mean()
        total = float(apart @ apart)
        rho = float(apart[1:] @ apart[:-1]) / total if total > 0 else 0.0
        rho = min(max(stretch * (rho + (1 + 3 * rho) / count), 0.0), MOST_RHO)
        left = apart[1:] - rho * apart[:-1]
        spread = MARGIN * math.sqrt(total / max(count - 1 - used, 1))
        # The next window of a weekday is as far off as windows are, and as its learned offset is.
        innovation = MARGIN * math.sqrt(float(left @ left) / max(count - 2 - used, 1) * (1 + used / count))
        error = spread * math.sqrt((1 + rho) / (1 - rho) / count)
        rows = count / sum(1 / w.rows for w in windows)
        return cls(centre + mean, error, spread, innovation, rho, rows, tuple(pattern.tolist()))

    def __str__(self) -> str:
        """What was learned, in one line."""
        names = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
        days = [f"{n} {100 * o:+.1f}" for n, o in zip(names, self.weekdays, strict=True) if abs(o) >= 0.0005]
        pattern = f", weekdays in points: {', '.join(days)}" if days else ""
        return (
            f"level {100 * self.level:.1f} %, spread {100 * self.spread:.1f} points, autocorrelation "
            f"{self.rho:.2f} (both with their margin){pattern}"
        )


def _clipped(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Distances from the median, those of single windows that are far off moved in."""
    apart = values - np.median(values)
    most = CLIP * 1.4826 * float(np.median(np.abs(apart)))
    return np.asarray(np.clip(apart, -most, most) if most > 0 else apart)


def _weekday_pattern(values: NDArray[np.float64], weekdays: Sequence[int | None]) -> tuple[NDArray[np.float64], float]:
    """Offset of each weekday, shrunk as far as chance explains them, and the parameters that this costs."""
    pattern = np.zeros(7)
    days = np.array([-1 if day is None else day for day in weekdays])
    counts = np.bincount(days[days >= 0], minlength=7)
    measured = np.flatnonzero(counts >= 2)
    inside = np.isin(days, measured)
    free = int(inside.sum()) - len(measured)
    if len(measured) < 2 or free < len(measured):
        return pattern, 0.0
    pattern[measured] = [np.median(values[days == day]) for day in measured]
    pattern[measured] -= pattern[measured].mean()
    left = _clipped((values - pattern[days])[inside])
    within = float(left @ left) / free
    between = float(counts[measured] @ pattern[measured] ** 2) / (len(measured) - 1)
    kept = max(0.0, 1 - SHRINK * within / between) if between > 0 else 0.0
    return kept * pattern, kept * (len(measured) - 1)


@dataclass
class SequentialTest:
    """Statistic of one series.

    Attributes
    ----------
    log_r : list of float
        Logarithm of R for each λ.
    run, began : list
        For each λ the sum that tells since when the drop lasts (a CUSUM), and the time at which it left 0.
    dropped : tuple of int and float
        Number and sum of the estimates of windows with the problem, while an alarm is open.
    seen : list of Seen
        The newest quiet windows, while they are learned from.
    all_seen : list of float
        The newest accuracies by labels, of quiet windows and others, until something is learned.
    quiet : Quiet, optional
        What was learned.
    previous : float, optional
        How far the window before was below its floor.
    """

    log_r: list[float] = field(default_factory=lambda: [-math.inf] * len(LAMBDAS))
    run: list[float] = field(default_factory=lambda: [0.0] * len(LAMBDAS))
    began: list[datetime | None] = field(default_factory=lambda: [None] * len(LAMBDAS))
    dropped: tuple[int, float] = (0, 0.0)
    seen: list[Seen] = field(default_factory=list)
    all_seen: list[float] = field(default_factory=list)
    quiet: Quiet | None = None
    previous: float | None = None

    def take(
        self,
        window: Seen,
        time: datetime,
        *,
        reference: float,
        reference_rows: int,
        tolerance: float,
        limit: float,
        learn: bool = True,
        by_labels: bool = False,
    ) -> tuple[bool, float]:
        """Take in one more window; gives whether it has dropped, and the level that it is compared with.

        ``learn`` is whether it may be a quiet one, ``by_labels`` whether its accuracy is that of labels.
        """
        accuracy, rows, weekday = window
        rows_variance = _row_variance(reference, rows)
        level, floor = self.level_and_floor(reference, reference_rows, tolerance, weekday)
        drop, quiet = floor - accuracy, self.quiet
        if quiet is None:
            spread, rho = self._so_far(rows_variance) if by_labels else (UNKNOWN_SPREAD, 0.0)
            scale = math.sqrt(rows_variance + spread**2)
            before = 0.0 if self.previous is None else self.previous
            z = (drop - rho * before) / (scale * math.sqrt(1 - rho**2))
            if by_labels:
                self.previous, self.all_seen = drop, [*self.all_seen, accuracy][-WARM_UP:]
        else:
            times = math.sqrt(max(1.0, quiet.rows / rows))
            least = LEAST_SPREAD * math.sqrt(rows_variance)
            innovation = max(times * quiet.innovation, least)
            scale = innovation / math.sqrt(1 - quiet.rho**2)
            z = drop / scale if self.previous is None else (drop - quiet.rho * self.previous) / innovation
            self.previous = drop
        z = min(z, MOST_EXTREME)
        self.add([lam * z - lam**2 / 2 for lam in LAMBDAS], time)
        problem = self._has_problem(accuracy, drop / scale, floor, limit)
        if quiet is None and learn and not self.dropped[0]:
            self.seen = [*self.seen, window][-WARM_UP:]
            if len(self.seen) == WARM_UP:
                learned = Quiet.learn(self.seen, LABEL_STRETCH if by_labels else STRETCH)
                # The mean of accuracies that vary with the weather is known to its own error only.
                known_to = 2 * learned.error if by_labels else 0.0
                if learned.level >= reference_floor(reference, reference_rows, tolerance) - known_to:
                    self.quiet, self.seen, self.all_seen, self.previous = learned, [], [], None
        return problem, level

    def _so_far(self, rows_variance: float) -> tuple[float, float]:
        """Spread and autocorrelation of the windows so far, with and without a problem.

        The spread is that of steps from one window to the next: a drop is one step, which counts no more than others.
        """
        if len(self.all_seen) <= FIRST:
            return LABEL_SPREAD, LABEL_RHO
        steps = np.abs(np.diff(self.all_seen))
        steps = np.minimum(steps, CLIP * 1.4826 * np.median(steps))
        spread = MARGIN**2 * max(float(steps @ steps) / len(steps) / (2 - 2 * LABEL_RHO) - rows_variance, 0.0)
        spread = (len(steps) * spread + FIRST * LABEL_SPREAD**2) / (len(steps) + FIRST)
        return max(math.sqrt(spread), UNKNOWN_SPREAD), LABEL_RHO

    def level_and_floor(
        self, reference: float, reference_rows: int, tolerance: float, weekday: int | None = None
    ) -> tuple[float, float]:
        """What the next window is compared with, and the accuracy below which it counts as a drop."""
        if self.quiet is not None:
            level = self.quiet.level + (0.0 if weekday is None else self.quiet.weekdays[weekday])
            return level, level - max(tolerance, LEVEL_ERRORS * self.quiet.error)
        floor = reference_floor(reference, reference_rows, tolerance)
        if len(self.seen) >= FIRST:
            so_far = statistics.median(w.accuracy for w in self.seen)
            if so_far - tolerance - 2 * UNKNOWN_SPREAD > floor:
                return so_far, so_far - tolerance - 2 * UNKNOWN_SPREAD
        return reference, floor

    def take_miss(self, missed: bool, level: float, time: datetime) -> None:
        """Take in whether the labels of a window contradict its interval, of which a share ``level`` should hold.

        The gain is the log-likelihood ratio of each share of MISSES against 1 − level, so that its expectation is at
        most 1 while no more intervals fail than that.
        """
        allowed = min(max(1 - level, 1e-3), 0.5)
        shares = [allowed + (1 - allowed) * share for share in MISSES]
        self.add([math.log(s / allowed if missed else (1 - s) / (1 - allowed)) for s in shares], time)

    def add(self, gains: Sequence[float], time: datetime) -> None:
        """Take in the logarithm of the evidence of one more window, for each λ."""
        for k, gain in enumerate(gains):
            if self.run[k] <= 0:
                self.run[k], self.began[k] = 0.0, time
            self.run[k] += gain
            before = self.log_r[k]
            self.log_r[k] = max(before, 0.0) + math.log1p(math.exp(-abs(before))) + gain

    def _has_problem(self, accuracy: float, z: float, floor: float, limit: float) -> bool:
        """Whether a window that was taken in has the problem; it then counts among those that dropped.

        It has where the statistic is at its limit and the estimate is below the floor. While an alarm is open, half a
        standard error below the floor is allowed, so that the noise of small windows does not keep the alarm open, but
        only where that is nearer to the floor than to the windows that dropped.
        """
        count, total = self.dropped
        allowed = bool(count) and z < 0.5 and accuracy > (floor + total / count) / 2
        if z <= 0 or allowed or self.log_statistic < limit:
            return False
        self.dropped = (count + 1, total + accuracy)
        return True

    def restarted(self) -> SequentialTest:
        """New test that knows what this one has learned."""
        return SequentialTest(seen=self.seen, all_seen=self.all_seen, quiet=self.quiet, previous=self.previous)

    @property
    def log_statistic(self) -> float:
        """Logarithm of the mean of R over the grid."""
        most = max(self.log_r)
        return most + math.log(sum(math.exp(value - most) for value in self.log_r) / len(self.log_r))

    @property
    def beginning(self) -> datetime | None:
        """Time since when the drop lasts, by the λ with the largest statistic."""
        return self.began[self.log_r.index(max(self.log_r))]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for the database."""
        return {
            "log_r": [max(value, -1e9) for value in self.log_r],
            "run": [*self.run],
            "began": [None if time is None else time.isoformat() for time in self.began],
            "dropped": [*self.dropped],
            "seen": [[*window] for window in self.seen],
            "all_seen": [*self.all_seen],
            "quiet": None if self.quiet is None else {**vars(self.quiet), "weekdays": [*self.quiet.weekdays]},
            "previous": self.previous,
        }

    @classmethod
    def from_dict(cls, plain: dict[str, Any] | None) -> SequentialTest:
        """Inverse of `to_dict`; a new test where there is none."""
        if not plain:
            return cls()
        quiet = plain["quiet"]
        return cls(
            [*plain["log_r"]],
            [*plain["run"]],
            [None if time is None else datetime.fromisoformat(time) for time in plain["began"]],
            (plain["dropped"][0], plain["dropped"][1]),
            [Seen(*window) for window in plain["seen"]],
            [*plain["all_seen"]],
            None if quiet is None else Quiet(**{**quiet, "weekdays": tuple(quiet["weekdays"])}),
            plain["previous"],
        )


@dataclass
class Tests:
    """Sequential tests of a series, and what they need to know of its model.

    Attributes
    ----------
    every, series, reference_rows : Every, int, int
        Length of windows; series of the model; rows of its reference.
    estimates, labels, coverage : SequentialTest
        Over the estimates, over the accuracies that labels show, and over the intervals that labels contradict.
    missed : list of bool
        Of the newest labelled windows: whether their labels contradict the interval.
    """

    every: Every
    series: int
    reference_rows: int
    estimates: SequentialTest = field(default_factory=SequentialTest)
    labels: SequentialTest = field(default_factory=SequentialTest)
    coverage: SequentialTest = field(default_factory=SequentialTest)
    missed: list[bool] = field(default_factory=list)

    def limit(self, false_alarms_per_year: float) -> float:
        """Logarithm of the statistic that raises an alarm."""
        return math.log(threshold(false_alarms_per_year, 365.25 * ONE_DAY / self.every.length, self.series))

    def weekday(self, start: datetime) -> int | None:
        """Weekday of a window of one day in its time zone, Monday is 0; None where windows are of another length."""
        return start.astimezone(self.every.tzinfo).weekday() if self.every.length == ONE_DAY else None

    def restart(self, rule: str) -> None:
        """Begin a test anew, as its alarm has ended."""
        name = {"sequential": "estimates", "labels:sequential": "labels", "labels:coverage": "coverage"}.get(rule)
        if name is not None:
            setattr(self, name, getattr(self, name).restarted())
