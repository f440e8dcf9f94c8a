"""What is kept of a window, its estimate from the windows before it, and their picture, without a tracker's state.

`AccuracyTracker` keeps `TrackedWindow` in memory; a database can keep them as `TrackedWindow.to_dict` gives them, and
call `class_mix` and `tracked` in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gdscore._format import percent
from gdscore._records import Number, OneOf, check_json
from gdscore._windows import as_utc, time_text
from gdscore.errors import GdscoreError
from gdscore.estimator import Estimate, EstimateWarning, Quantity
from gdscore.estimator.estimate import most_severe_first, quantile_of, sampling_error
from gdscore.tracking.method import ANSWERS, SETTINGS, Floats, Known, Settings, answer, positions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TRACKED = "tracked"
"""``method`` of an estimate that rests on labels of earlier windows."""
OWN_LABELS = "labels of this window"
"""The answer of a window's own labels."""
NOT_BY_CLASS: dict[str, Any] = {"per_class": [], "f1": None, "brier": None, "assumptions": {}}
"""Fields of an estimate that rests on labels, which tell how accurate the model is, not on which classes."""


@dataclass
class TrackedWindow:
    """A window, or a segment of one: what was answered for it, and what labels have shown of it.

    Attributes
    ----------
    time : datetime
        Start of the window, or any time that names it.
    n_rows : int
        Rows.
    label_free, raked : float
        Estimate without labels, and the same with the class mix that labels of earlier windows had shown.
    accuracy, low, high : float or None
        What was answered when the window was estimated; None where it never was.
    prior_error : float
        Error that the estimator expected of itself, without the sampling of the rows.
    error, factor : float or None
        Expected error and factor that the interval was made of; None where no label was known.
    unchanged, last_known : float or None
        Accuracy on the reference, and the latest accuracy that was known then.
    labels_then : int
        Labels that were known then.
    weights : list of float
        Weights of `gdscore.tracking.ANSWERS` in the answer; empty where no label was known.
    version : int
        Version of the model, from 0.
    n_labels, n_right : float
        Labels of the window by now, and how many of those rows are right.
    unsure : int
        Rows for which nobody could tell the class.
    ratio : float
        Variance of the labelled accuracy relative to that of random rows.
    classes : list of int
        Labels by class; empty where only an accuracy is known.
    """

    time: datetime
    n_rows: int
    label_free: float
    raked: float
    accuracy: float | None = None
    low: float | None = None
    high: float | None = None
    prior_error: float = 0.0
    error: float | None = None
    factor: float | None = None
    unchanged: float | None = None
    last_known: float | None = None
    labels_then: int = 0
    weights: list[float] = field(default_factory=list)
    version: int = 0
    n_labels: int = 0
    n_right: float = 0.0
    unsure: int = 0
    ratio: float = 1.0
    classes: list[int] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether the label of every row is known."""
        return self.n_labels >= self.n_rows

    @property
    def known(self) -> float | None:
        """Accuracy by the labels; None without any."""
        return self.n_right / self.n_labels if self.n_labels else None

    @property
    def variance(self) -> float:
        """Variance of that accuracy, as that of a sample; never 0."""
        share = (self.n_right + 1) / (self.n_labels + 2)
        doubt = self.unsure / max(self.unsure + self.n_labels, 1)
        return self.ratio * share * (1 - share) / max(self.n_labels, 1) + doubt**2 / 12

    @property
    def missed(self) -> bool | None:
        """Whether labels showed an accuracy outside the interval, which is made as wide as for so many labels.

        None where there is no label, no interval, or one that was made without a label.
        """
        if self.known is None or self.accuracy is None or self.low is None or self.high is None:
            return None
        if self.is_complete or self.error is None or self.factor is None:
            return not self.low <= self.known <= self.high
        half = half_width(self.factor, self.error, self.variance)
        return abs(self.known - self.accuracy) > half

    def weight_of_labels(self, level: float) -> float:
        """Weight of the window's own labels beside what was answered: by the variances of both."""
        if self.known is None:
            return 0.0
        if self.is_complete or self.low is None or self.high is None:
            return 1.0
        before = max(((self.high - self.low) / 2 / quantile_of(level)) ** 2, 1e-6)
        return before / (before + self.variance)

    def now(self, level: float) -> tuple[float, float, float] | None:
        """Accuracy and interval from what was answered and from the window's own labels; None without either."""
        if self.known is None:
            answered = (self.accuracy, self.low, self.high)
            return None if None in answered else answered  # type: ignore[return-value]
        weight = self.weight_of_labels(level)
        accuracy = self.known if self.accuracy is None else weight * self.known + (1 - weight) * self.accuracy
        variance, missing = weight * self.variance, max(1 - self.n_labels / self.n_rows, 0.0)
        noise = float(sampling_error(accuracy, self.n_rows, level))
        half = math.hypot(quantile_of(level) * math.sqrt(variance * missing), noise)
        return accuracy, max(accuracy - half, 0.0), min(accuracy + half, 1.0)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers, strings and lists."""
        return {**asdict(self), "time": self.time.isoformat()}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> TrackedWindow:
        """Inverse of `to_dict`.

        Examples
        --------
        >>> window = TrackedWindow(datetime(2026, 1, 31), 500, 0.8, 0.79, n_labels=50, n_right=41)
        >>> TrackedWindow.from_dict(window.to_dict()) == window
        True
        """
        check_json(dict(facts), FACTS, "a tracked window")
        try:
            return cls(**{**facts, "time": datetime.fromisoformat(facts["time"])})
        except ValueError:
            raise GdscoreError(f"Expected a time in a tracked window, but got {facts['time']!r}") from None


_SHARE, _COUNT = Number(least=0, most=1), Number(least=0, most=2**53, integer=True)
FACTS: dict[str, Any] = {
    "time": str,
    "n_rows": Number(least=1, most=2**53, integer=True),
    **dict.fromkeys(("label_free", "raked", "prior_error"), _SHARE),
    **dict.fromkeys(("accuracy", "low", "high", "unchanged", "last_known"), OneOf(None, _SHARE)),
    **dict.fromkeys(("error", "factor"), OneOf(None, Number(least=0))),
    **dict.fromkeys(("labels_then", "version", "n_labels", "unsure"), _COUNT),
    "n_right": Number(least=0),
    "ratio": Number(least=0),
    "classes": [_COUNT],
    "weights": [_SHARE],
}


class Tally(NamedTuple):
    """Answers made with labels whose windows have labels by now, and how many of their intervals missed."""

    tested: int = 0
    missed: int = 0

    def factor(self, level: float, settings: Settings = SETTINGS) -> float:
        """Factor of the next interval: more for every miss, less for every interval that held.

        Examples
        --------
        >>> [round(Tally(10, missed).factor(0.9), 2) for missed in (0, 1, 4)]
        [1.42, 1.64, 2.58]
        """
        exponent = settings.rate * (self.missed - (1 - level) * self.tested)
        return quantile_of(level) * math.exp(min(max(exponent, -50.0), 50.0))


def half_width(factor: float, error: float, variance: float) -> float:
    """Half the width of an interval, for an accuracy that is seen with this sampling variance."""
    if factor >= SETTINGS.most_factor:
        return 1.0
    return 0.0 if factor <= SETTINGS.least_factor else factor * math.hypot(error, math.sqrt(variance))


class CommonError(NamedTuple):
    """Sums over the labelled segments of a window, of what their errors have in common."""

    labels: float = 0.0
    errors: float = 0.0  # sum of labels × (accuracy − raked)
    noise: float = 0.0  # sum of labels² × variance

    @classmethod
    def of(cls, segments: Iterable[TrackedWindow]) -> CommonError:
        """Sums over segments."""
        counts = [(s.n_labels, s.n_right - s.n_labels * s.raked, s.n_labels**2 * s.variance) for s in segments]
        return cls(*np.array(counts, dtype=np.float64).reshape(-1, 3).sum(axis=0).tolist())

    def without(self, segment: TrackedWindow) -> CommonError:
        """Sums over the other segments."""
        return CommonError(*(total - its for total, its in zip(self, CommonError.of([segment]), strict=True)))


def class_mix(past: Sequence[TrackedWindow], ages: Floats, reference_mix: Sequence[float] | Floats) -> Floats | None:
    """Shares of the classes by the labels of past windows, recent ones first; None where no window has labels.

    ``ages`` count windows from each to the one that is estimated, and are taken relative to the age of the latest
    labels: the later these are, the less it matters which came first.
    """
    usable = [
        (np.asarray(window.classes, dtype=np.float64), age)
        for window, age in zip(past, ages, strict=True)
        if sum(window.classes) and len(window.classes) == len(reference_mix)
    ]
    if not usable:
        return None
    delay = max(min(age for _, age in usable), 1.0)
    counts = SETTINGS.mix_rows * np.asarray(reference_mix, dtype=np.float64)
    for classes, age in usable:
        counts += SETTINGS.memory ** (age / delay - 1) * classes
    return np.asarray(counts / counts.sum())


def ages_of(past: Sequence[TrackedWindow], seconds: Floats, time: datetime) -> Floats:
    """Windows between each past one and the one at ``time``.

    ``seconds`` are the times of all windows before it, labelled or not, ascending, as ``datetime.timestamp`` gives
    them.
    """
    every = np.append(seconds, as_utc(time).timestamp())
    place = positions(every)
    where = np.searchsorted(every, [as_utc(window.time).timestamp() for window in past])
    return np.asarray(place[-1] - place[where])


def known_of(
    past: Sequence[TrackedWindow],
    ages: Floats,
    version: int,
    common: Sequence[CommonError] | None = None,
) -> Known:
    """Arrays of past windows that labels tell something of; ``common`` where they are segments.

    The error that the other segments of the window have in common is a first guess of a segment's own error, which its
    own labels correct: partial pooling.
    """
    rows: list[tuple[float, ...]] = []
    for i, window in enumerate(past):
        accuracy, variance, excess = window.known, window.variance, window.variance
        others = CommonError() if common is None else common[i].without(window)
        if others.labels > 0.5:
            shared = window.raked + others.errors / others.labels
            spread = SETTINGS.difference**2 + others.noise / others.labels**2
            if accuracy is None:
                accuracy, variance = shared, spread
            else:
                accuracy = (accuracy * spread + shared * variance) / (spread + variance)
                variance = spread * variance / (spread + variance)
            # A mean with a guess of the accuracy is nearer to the answers than the accuracy itself.
            excess = -variance
        if accuracy is not None:
            doubt = 0.0 if window.version == version else SETTINGS.difference**2
            unchanged = window.label_free if window.unchanged is None else window.unchanged
            place = -float(ages[i]), min(max(accuracy, 0.0), 1.0)
            rows.append((*place, variance + doubt, excess - doubt, window.label_free, window.raked, unchanged))
    return Known(*np.array(rows, dtype=np.float64).reshape(-1, 7).T)


class History(NamedTuple):
    """What is known before a window is estimated."""

    past: Sequence[TrackedWindow] = ()
    """Windows with labels, or with labels of other segments, in order of time: the latest ones."""
    seconds: Floats | Sequence[float] = ()
    """Times of all windows, labelled or not, ascending, from the first of ``past`` on, as ``datetime.timestamp``."""
    tally: Tally = Tally()
    alike: Collection[int] = ()
    """Versions of the model that have the same classes."""
    reference_mix: Sequence[float] | None = None
    """Shares of the classes on the reference; None where estimates cannot be made with other shares."""
    common: Sequence[CommonError] | None = None
    """For each past window, where it is a segment."""


class Tracked(NamedTuple):
    """What `tracked` gives."""

    estimate: Estimate
    window: TrackedWindow
    raked: Estimate  # without labels, at the class mix that they show


def tracked(
    free: Estimate,
    with_class_mix: Callable[[Any], Estimate],
    history: History,
    time: datetime,
    version: int = 0,
) -> Tracked:
    """Estimate of a window of a version of the model from its estimate without labels and from windows before it.

    ``with_class_mix`` makes the estimate ``free`` again with other shares of the classes. Where no label is known, the
    estimate stays ``free``.
    """
    past, raked = history.past, free
    labelled = [window for window in past if window.n_labels]
    ages = ages_of(past, np.asarray(history.seconds, dtype=np.float64), time) if past else np.zeros(0)
    if history.reference_mix is not None:
        alike = np.array([window.version in history.alike for window in past], dtype=bool)
        usable = [window for window, is_alike in zip(past, alike, strict=True) if is_alike]
        shares = class_mix(usable, ages[alike], history.reference_mix)
        raked = free if shares is None else with_class_mix(shares)
    window = TrackedWindow(
        time,
        free.n_rows,
        free.accuracy,
        raked.accuracy,
        free.accuracy,
        free.low,
        free.high,
        prior_error=prior_error(free),
        unchanged=free.reference_accuracy,
        last_known=last_known(labelled),
        labels_then=sum(w.n_labels for w in labelled),
        version=version,
    )
    known = known_of(past, ages, version, history.common)
    if not len(known.position):
        return Tracked(free, window, raked)
    estimates = free.accuracy, raked.accuracy, free.reference_accuracy
    answered = answer(known, 0.0, *estimates, window.prior_error)
    window.factor, window.error = history.tally.factor(free.level), answered.error
    half = half_width(window.factor, window.error, own_variance(answered.accuracy, raked.n_rows))
    window.accuracy, window.weights = answered.accuracy, answered.weights.tolist()
    window.low, window.high = max(answered.accuracy - half, 0.0), min(answered.accuracy + half, 1.0)
    estimate = replace(
        raked,
        **NOT_BY_CLASS,
        accuracy=window.accuracy,
        low=window.low,
        high=window.high,
        class_mix=free.class_mix,
        method=TRACKED,
        answers=dict(zip(ANSWERS, answered.weights.tolist(), strict=True)),
        label_free=Quantity(free.accuracy, free.low, free.high),
        warnings=most_severe_first([*free.warnings, *_warnings(window, labelled)]),
    )
    return Tracked(estimate, window, raked)


def last_known(labelled: Sequence[TrackedWindow]) -> float | None:
    """Accuracy of the latest window with labels of half its rows, or of any where none has so many.

    The few labels that the newest window may have by now are no accuracy that anybody would go by.
    """
    half = (window for window in reversed(labelled) if 2 * window.n_labels >= window.n_rows)
    latest = next(half, labelled[-1] if labelled else None)
    return None if latest is None else latest.known


def with_own_labels(estimate: Estimate, window: TrackedWindow, level: float) -> Estimate:
    """Estimate of a window from its own labels too."""
    ends = window.now(level)
    assert ends is not None
    accuracy, low, high = ends
    weight = window.weight_of_labels(level)
    others = {name: (1 - weight) * share for name, share in estimate.answers.items() if weight < 1}
    return replace(
        estimate,
        accuracy=accuracy,
        low=low,
        high=high,
        method=TRACKED,
        answers={OWN_LABELS: weight, **others},
        label_free=estimate.label_free or Quantity(estimate.accuracy, estimate.low, estimate.high),
        **NOT_BY_CLASS,
    )


def prior_error(free: Estimate) -> float:
    """Error that an estimator expects of itself, as its interval tells, without the sampling of the rows."""
    squared = ((free.high - free.low) / 2 / quantile_of(free.level)) ** 2
    return min(math.sqrt(max(squared - own_variance(free.accuracy, free.n_rows), 0.0)), 1.0)


def own_variance(accuracy: float, n_rows: int) -> float:
    """Sampling variance of the accuracy on so many rows; never 0."""
    share = (accuracy * n_rows + 1) / (n_rows + 2)
    return share * (1 - share) / n_rows


def _warnings(window: TrackedWindow, labelled: Sequence[TrackedWindow]) -> list[EstimateWarning]:
    if not labelled:
        return []
    newest, count = labelled[-1], len(labelled)
    several = "s" if count > 1 else ""
    made = [
        EstimateWarning(
            "tracked",
            "info",
            f"from {window.labels_then:,} label{'s' if window.labels_then > 1 else ''} of {count} window{several}, the "
            f"newest {_duration(as_utc(window.time) - as_utc(newest.time))} old",
        )
    ]
    if (change := sudden_change(labelled)) is not None:
        made.append(change)
    return made


def sudden_change(labelled: Sequence[TrackedWindow]) -> EstimateWarning | None:
    """Warning where one of the latest three labelled windows was much farther off than its interval allows.

    A rise is no reason to wake anybody: it has a code of its own.
    """
    for window in reversed(labelled[-3:]):
        if window.known is None or window.accuracy is None or window.high is None or window.low is None:
            continue
        noise = 3 * math.sqrt(window.variance)
        if abs(window.known - window.accuracy) > 2 * max(window.high - window.low, 0.02) / 2 + noise:
            fell = window.known < window.accuracy
            return EstimateWarning(
                "sudden_drop" if fell else "sudden_rise",
                "warning" if fell else "info",
                f"accuracy has {'fallen' if fell else 'risen'} suddenly: labels of {shown_time(window.time)} show "
                f"{window.known:.1%}, and the estimate then was {window.accuracy:.1%} ({window.low:.1%} to "
                f"{window.high:.1%})",
            )
    return None


def shown_time(when: datetime) -> str:
    """Time in UTC for a message."""
    return time_text(as_utc(when).replace(tzinfo=None))


def _duration(age: timedelta) -> str:
    """Length of time in the largest unit that it fills.

    Examples
    --------
    >>> _duration(timedelta(days=3, hours=2)), _duration(timedelta(hours=1))
    ('3 days', '1 hour')
    """
    for unit, seconds in (("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1)):
        count = int(age.total_seconds() // seconds)
        if count:
            return f"{count:,} {unit}{'s' if count > 1 else ''}"
    return "less than a second"


_ESTIMATE, _TRUTH, _PLAIN = "#b23c17", "#1b1f24", "#646b75"
_WEIGHTS = ("#1f5a8c", "#5b93bf", "#a6c8e0", "#b23c17", "#a3a9b1")
"""Colours of the answers: blue rests on outputs, red on labels alone, grey on neither."""


def draw(windows: Sequence[TrackedWindow], level: float) -> Figure:
    """Figure of windows in order of time, without the state of ``matplotlib.pyplot``."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.dates import AutoDateLocator
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5), layout="constrained")
    FigureCanvasAgg(figure)
    above, beneath = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    times = np.array([window.time.replace(tzinfo=None) for window in windows], dtype="datetime64[us]")

    def column(name: str) -> np.ndarray:
        values = [getattr(window, name) for window in windows]
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)

    interval = f"{percent(level, short=True)} interval"
    above.fill_between(times, column("low"), column("high"), color=_ESTIMATE, alpha=0.18, linewidth=0, label=interval)
    above.plot(times, column("label_free"), color=_PLAIN, linewidth=1, label="without labels")
    above.plot(times, column("unchanged"), color=_PLAIN, linewidth=1, linestyle="--", label="on the reference")
    above.plot(times, column("accuracy"), color=_ESTIMATE, linewidth=1.8, label="estimate then")
    above.plot(times, column("known"), "o", color=_TRUTH, markersize=3, label="accuracy by labels that came later")
    above.set(ylim=(0, 1), ylabel="accuracy")
    above.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    above.legend(loc="lower left", ncols=3, frameon=False, fontsize="small")
    weights = np.array([window.weights or [np.nan] * len(ANSWERS) for window in windows])
    beneath.stackplot(times, weights.T, colors=_WEIGHTS, labels=ANSWERS, linewidth=0)
    beneath.set(ylim=(0, 1), ylabel="weight")
    beneath.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    beneath.legend(loc="upper center", bbox_to_anchor=(0.5, -0.25), ncols=3, frameon=False, fontsize="small")
    beneath.xaxis.set_major_locator(AutoDateLocator(minticks=3, maxticks=7))  # type: ignore[no-untyped-call]
    return figure
