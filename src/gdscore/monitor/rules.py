"""Rules of a model: when a window asks for an alarm, and when an alarm ends. Nothing here needs the database."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from gdscore._alarms import MAX_WIDTH, MIN_ROWS, ROUNDING, AlarmOn, AlarmRule, Status, not_enough_data
from gdscore._checks import integer, number
from gdscore._format import percent
from gdscore._windows import Every, parse_every
from gdscore.errors import GdscoreError, nearest, shown
from gdscore.estimator import Estimate
from gdscore.labeling import LabelledEstimate, past_errors
from gdscore.monitor.schema import shown_time
from gdscore.monitor.sequential import Seen, SequentialTest, threshold

__all__ = ["LABEL_FREE", "Finding", "Follower", "Problem", "Rules", "Tests"]

MOST_LENGTHS = 1e6
MOST_MISSED = 30
ONE_DAY = timedelta(days=1)
LABEL_FREE = "label_free"
"""Score of a window whose estimate was corrected by labels: the estimate without them."""
NEVER = datetime.max.replace(tzinfo=UTC)
EACH_WINDOW = ("accuracy", "labels:accuracy")
LEARNING = ("sequential", "labels:sequential")
"""Rules whose tests learn what a series is like while nothing is wrong."""
LONGEST_CODE = 32
"""Of a warning: with "warning:" before it, it fits into the column of rules."""


def _is_code(code: object) -> bool:
    return isinstance(code, str) and code.isprintable() and len(code) <= LONGEST_CODE


@dataclass(frozen=True)
class Finding:
    """What a rule found in one window: a problem with its beginning, or none; None where the window decides nothing.

    ``value`` is what the rule looks at in this window, and ``level`` what it is without the problem.
    """

    rule: str
    problem: bool | None
    message: str = ""
    began: datetime | None = None
    level: float | None = None
    value: float | None = None


@dataclass(frozen=True)
class Rules:
    """Rules of a model. By default: tests over all windows, of estimates and of labels, and critical warnings.

    Attributes
    ----------
    false_alarms_per_year : float, optional
        Of each sequential test, over all segments of a model together; None leaves these tests out.
    tolerance : float
        How far the accuracy may be below its level before that counts as a drop, in shares; the module `sequential`
        defines the level.
    min_accuracy, max_drop : float, optional
        Alarm at every window below this accuracy, or farther below the reference than this: by the estimate, and by
        labels where they come.
    alarm_on : {"estimate", "low", "high"}
        What those two are compared with.
    min_rows, max_width : int, float
        A window with fewer rows or a wider interval is `not enough data`: where the least accuracy is inside its
        interval, it neither raises nor ends the alarm of `min_accuracy` and `max_drop`.
    warnings : tuple of str
        Codes of `EstimateWarning` that raise an alarm of their own; ``critical`` stands for all critical ones. A window
        with a critical warning ends no other alarm.
    labels : bool
        Whether labels raise alarms: on the accuracy that they show, on a drop of it over several windows, and where
        they contradict the intervals of the estimates.
    recalibrate : bool
        Whether labels correct the estimates of later windows, as `gdscore.labeling.recalibrate` does. The test over
        all windows goes on with the estimates without labels.
    missing_after : float, optional
        Alarm where the newest window ended longer ago than this many lengths of a window.
    recovery : int
        Windows in a row without the problem that end an alarm.
    keep_rows : str, optional
        How long id, prediction and P(right) of each row are kept after its window, such as ``90d``, so that labels can
        be given by id; not at all by default.

    Examples
    --------
    >>> Rules(min_accuracy=0.8).changed({"missing_after": 2}).to_dict()["min_accuracy"]
    0.8
    """

    false_alarms_per_year: float | None = 0.1
    tolerance: float = 0.01
    min_accuracy: float | None = None
    max_drop: float | None = None
    alarm_on: str = "estimate"
    min_rows: int = MIN_ROWS
    max_width: float = MAX_WIDTH
    warnings: tuple[str, ...] = ("critical",)
    labels: bool = True
    recalibrate: bool = False
    missing_after: float | None = None
    recovery: int = 3
    keep_rows: str | None = None

    def __post_init__(self) -> None:
        if self.false_alarms_per_year is not None:
            number("false_alarms_per_year", self.false_alarms_per_year, above=0, most=365)
        number("tolerance", self.tolerance, least=0, most=1)
        integer("min_rows", self.min_rows, least=1)
        number("max_width", self.max_width, above=0, most=1)
        if self.missing_after is not None:
            number("missing_after", self.missing_after, above=0, most=MOST_LENGTHS)
        integer("recovery", self.recovery, least=1)
        if self.keep_rows is not None:
            parse_every(self.keep_rows)
        for name in ("labels", "recalibrate"):
            if not isinstance(getattr(self, name), bool):
                raise GdscoreError(f"Expected `{name}` to be true or false, but got {shown(getattr(self, name))}")
        if self.alarm_on not in [on.value for on in AlarmOn]:
            raise GdscoreError(
                f"Expected `alarm_on` to be 'estimate', 'low' or 'high', but got {str(self.alarm_on)[:40]!r}"
            )
        if not isinstance(self.warnings, (list, tuple)) or not all(_is_code(code) for code in self.warnings):
            raise GdscoreError("Expected `warnings` to be a list of codes such as ['collapse', 'other_model']")
        object.__setattr__(self, "warnings", tuple(self.warnings))
        self._per_window()

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Rules:
        """Rules from plain data; unknown names are refused."""
        return cls().changed(found)

    def changed(self, changes: Mapping[str, Any]) -> Rules:
        """Rules with some of them changed, by name; the others stay."""
        known = {f.name for f in fields(self)}
        for name in changes:
            if name not in known:
                raise GdscoreError(f"Unknown rule {str(name)[:60]!r}: {nearest(str(name)[:60], known)}")
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as JSON has it."""
        return {**asdict(self), "warnings": list(self.warnings)}

    def __str__(self) -> str:
        """The rules that are set, in one line."""
        values = {name: value for name, value in self.to_dict().items() if value is not None}
        return ", ".join(f"{name} {_worded(value)}" for name, value in values.items())

    def _per_window(self) -> AlarmRule | None:
        if self.min_accuracy is None and self.max_drop is None:
            return None
        return AlarmRule(self.min_accuracy, self.max_drop, AlarmOn(self.alarm_on), self.min_rows, self.max_width)

    def lines(self, reference: float, reference_rows: int, state: Mapping[str, Any] | None) -> dict[str, float]:
        """Accuracies that estimates are compared with, by rule; ``state`` is that of the series (`Follower.state`)."""
        found: dict[str, float] = {}
        if self.min_accuracy is not None:
            found["min_accuracy"] = self.min_accuracy
        if self.max_drop is not None:
            found["max_drop"] = max(reference - self.max_drop, 0.0)
        if self.false_alarms_per_year is not None:
            test = SequentialTest.from_dict((state or {}).get("test"))
            found["sequential"] = test.level_and_floor(reference, reference_rows, self.tolerance)[1]
        return found

    def has(self, rule: str) -> bool:
        """Whether these rules can raise an alarm of this kind."""
        if rule.startswith("warning:"):
            return bool({rule.removeprefix("warning:"), "critical"} & set(self.warnings))
        if rule.startswith("labels:") and not self.labels:
            return False
        return (self._per_window() if rule in EACH_WINDOW else self.false_alarms_per_year) is not None

    def state(self, open_alarms: int, last: Mapping[str, Any] | None) -> str:
        """State of a series by its open alarms and its last window: alarm, no windows, not enough data, or fine."""
        if open_alarms or last is None:
            return "alarm" if open_alarms else "no windows"
        width = last["high"] - last["low"]
        short = not_enough_data(last["rows"], width, self.min_rows, self.max_width)
        return Status.NOT_ENOUGH_DATA.value if short else Status.FINE.value

    def check(
        self, name: str, estimate: Estimate, labelled: LabelledEstimate | None, start: datetime, tests: Tests
    ) -> list[Finding]:
        """Findings of all rules for the next window of a series; ``tests`` take the window in."""
        found = self._accuracy("sequential", "accuracy", name, estimate, start, tests.estimates, tests)
        for warning in estimate.warnings:
            if warning.code in self.warnings or (warning.severity == "critical" and "critical" in self.warnings):
                found.append(Finding(f"warning:{warning.code}"[:40], True, f"{name}: {warning.message}", start))
        if self.labels and labelled is not None:
            seen = replace(labelled, n_rows=labelled.labels)
            found += self._accuracy(
                "labels:sequential", "labels:accuracy", f"{name} with labels", seen, start, tests.labels, tests
            )
            if self.false_alarms_per_year is not None:
                found.append(self._coverage(name, labelled, start, tests))
        return found

    def _accuracy(
        self,
        over_windows: str,
        each_window: str,
        name: str,
        estimate: Estimate,
        start: datetime,
        test: SequentialTest,
        tests: Tests,
    ) -> list[Finding]:
        found: list[Finding] = []
        reference = estimate.reference_accuracy
        # Corrections by labels come in steps that have the noise of few labels; labels have tests of their own.
        accuracy = estimate.scores.get(LABEL_FREE, estimate.accuracy)
        if self.false_alarms_per_year is not None:
            drop = test.take(
                Seen(accuracy, estimate.n_rows, tests.weekday(start)),
                start,
                reference=reference,
                reference_rows=tests.reference_rows,
                tolerance=self.tolerance,
                limit=tests.limit(self.false_alarms_per_year),
                learn=not any(w.severity == "critical" for w in estimate.warnings),
            )
            message = ""
            if drop.problem:
                message = (
                    f"{name}: the {'' if over_windows.startswith('labels') else 'estimated '}accuracy has fallen from "
                    f"{percent(drop.level)} to {percent(accuracy)} in the window of {shown_time(start)} (interval "
                    f"{percent(estimate.low)} to {percent(estimate.high)}); on the reference it is {percent(reference)}"
                )
            found.append(Finding(over_windows, drop.problem, message, test.beginning, drop.level, accuracy))
        if (rule := self._per_window()) is not None:
            check = rule.check(name, estimate, "the accuracy" if each_window.startswith("labels") else "the estimate")
            problem = None if check.status is Status.NOT_ENOUGH_DATA else check.status is Status.ALARM
            found.append(Finding(each_window, problem, check.reason, start, rule.floor(estimate), estimate.accuracy))
        return found

    def _coverage(self, name: str, labelled: LabelledEstimate, start: datetime, tests: Tests) -> Finding:
        missed = past_errors([labelled]).missed > 0
        tests.coverage.take_miss(missed, labelled.level, start)
        tests.missed = [*tests.missed, missed][-MOST_MISSED:]
        rate = self.false_alarms_per_year or 0.1
        problem = missed and tests.coverage.log_statistic >= tests.limit(rate)
        message = (
            f"{name}: the estimate without labels can no longer be trusted for this model: labels contradict "
            f"{sum(tests.missed)} of its last {len(tests.missed)} intervals"
        )
        held = 1 - sum(tests.missed) / len(tests.missed)
        return Finding("labels:coverage", problem, message, tests.coverage.beginning, labelled.level, held)

    def check_missing(self, name: str, newest_end: datetime, now: datetime, every: timedelta) -> Finding:
        """Whether windows have stopped coming."""
        late = (now - newest_end) / every
        message = (
            f"{name}: no window for {late:.1f} lengths of a window, expected one within {self.missing_after or 0:g}"
        )
        return Finding("missing", self.missing_after is not None and late > self.missing_after, message, newest_end)


def _worded(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) or "none" if isinstance(value, list) else str(value)


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


@dataclass
class Problem:
    """What an alarm is about; the start of the window that raised it tells it from others of its rule.

    ``level``, ``value`` and ``latest`` are the accuracy without the problem, in the window that raised the alarm, and
    in the newest window of the alarm.
    """

    rule: str
    raised: datetime
    began: datetime
    message: str
    level: float | None = None
    value: float | None = None
    latest: float | None = None
    ended: datetime | None = None
    reason: str | None = None


class Follower:
    """Rules applied to the windows of a series, in the order of time.

    Parameters
    ----------
    rules : Rules
        When a window has a problem, and how many windows without it end an alarm.
    state : dict
        What `state` was after the window before, or empty.
    title : str
        Name of the series in messages.
    every, series, reference_rows
        As in `Tests`.
    learn_from : datetime, optional
        Windows from this time on are learned from again.

    Attributes
    ----------
    begun : list of Problem
        Alarms raised by windows that were taken in.
    carried : dict of str to Problem
        Alarms that were open in the given state, by rule, with what became of them.
    """

    def __init__(
        self,
        rules: Rules,
        state: dict[str, Any],
        title: str,
        *,
        every: Every,
        series: int,
        reference_rows: int,
        learn_from: datetime | None = None,
    ) -> None:
        self.rules, self.title = rules, title
        self.learn_from, self.learned_from = learn_from, state.get("learned_from")
        self.tests = Tests(
            every,
            series,
            reference_rows,
            SequentialTest.from_dict(state.get("test")),
            SequentialTest.from_dict(state.get("labels")),
            SequentialTest.from_dict(state.get("coverage")),
            list(state.get("missed", ())),
        )
        self.carried = {rule: Problem(rule, NEVER, NEVER, "", level) for rule, level in state.get("open", {}).items()}
        self.open = dict(self.carried)
        self.fine: dict[str, tuple[int, datetime]] = {
            rule: (n, datetime.fromisoformat(at)) for rule, (n, at) in state.get("fine", {}).items()
        }
        self.begun: list[Problem] = []

    @property
    def state(self) -> dict[str, Any]:
        """Plain data from which the next window goes on."""
        fine = {rule: [n, at.isoformat()] for rule, (n, at) in self.fine.items()}
        levels = {rule: problem.level for rule, problem in self.open.items()}
        known: dict[str, Any] = {"test": self.tests.estimates.to_dict(), "open": levels, "fine": fine}
        if self.learned_from is not None:
            known["learned_from"] = self.learned_from
        if self.tests.missed:  # series without labels have no more than this
            tests = {"labels": self.tests.labels.to_dict(), "coverage": self.tests.coverage.to_dict()}
            known |= {**tests, "missed": self.tests.missed}
        return known

    def take(self, estimate: Estimate, start: datetime, labelled: LabelledEstimate | None = None) -> None:
        """Take in the next window, with its labels where they have come."""
        if self.learn_from is not None and start >= self.learn_from:
            self._learn_again(self.learn_from)
        found = {f.rule: f for f in self.rules.check(self.title, estimate, labelled, start, self.tests)}
        critical = any(w.severity == "critical" for w in estimate.warnings)
        for rule in [*found, *(rule for rule in self.open if rule not in found)]:
            finding = found.get(rule)
            if finding is not None and finding.problem:
                self.fine.pop(rule, None)
                if rule not in self.open:
                    began = start if finding.began is None else finding.began
                    self.open[rule] = Problem(rule, start, began, finding.message, finding.level, finding.value)
                    self.begun.append(self.open[rule])
            if rule in self.open and finding is not None:
                self.open[rule].latest = finding.value
            if rule in self.open and not self.rules.has(rule):
                self._end(rule, start, "rule changed")
            elif rule in self.open and not (
                (finding is not None and finding.problem) or self._undecided(rule, finding, critical, labelled)
            ):
                count, first = self.fine.get(rule, (0, start))
                self.fine[rule] = (count + 1, first)
                if count + 1 >= self.rules.recovery:
                    self._end(rule, first, "rule changed" if self._still_there(rule) else "recovered")

    def finish(self) -> None:
        """After the newest window: what is to be learned again from later windows on is forgotten at once."""
        if self.learn_from is not None:
            self._learn_again(self.learn_from)

    def _undecided(self, rule: str, finding: Finding | None, critical: bool, labelled: LabelledEstimate | None) -> bool:
        """Whether a window without the problem says nothing about it."""
        if finding is not None and finding.problem is None:
            return True
        return labelled is None if rule.startswith("labels:") else critical

    def _still_there(self, rule: str) -> bool:
        """Whether the newest window would have raised the alarm too, had its rule not been changed."""
        level, latest = self.open[rule].level, self.open[rule].latest
        return rule in EACH_WINDOW and level is not None and latest is not None and latest < level - ROUNDING

    def _learn_again(self, since: datetime) -> None:
        """Forget what was learned of windows before this time, once."""
        if self.learned_from == since.isoformat():
            return
        self.learned_from = since.isoformat()
        for rule in LEARNING:
            if rule in self.open:
                self._end(rule, since, "learned again")
        self.tests.estimates, self.tests.labels = SequentialTest(), SequentialTest()

    def _end(self, rule: str, at: datetime, reason: str) -> None:
        problem = self.open.pop(rule)
        self.fine.pop(rule, None)
        problem.ended, problem.reason = at, reason
        self.tests.restart(rule)
