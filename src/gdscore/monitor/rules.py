"""Rules of a model: when a window asks for an alarm, and when an alarm ends. Nothing here needs the database."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from gdscore._alarms import MAX_WIDTH, MIN_ROWS, ROUNDING, AlarmOn, AlarmRule, RuleResult, Status, not_enough_data
from gdscore._checks import integer, number
from gdscore._format import percent
from gdscore._windows import Every, parse_every
from gdscore.errors import GdscoreError, nearest, shown
from gdscore.estimator import Estimate
from gdscore.labeling import LabelledEstimate
from gdscore.monitor.database import check_name, shown_time
from gdscore.monitor.sequential import Seen, SequentialTest, Tests

MOST_LENGTHS = 1e6
MOST_MISSED = 30
LEARNED = "learned"
"""Of `missing_after`: learned from the times at which windows came."""
NEVER = datetime.max.replace(tzinfo=UTC)
EACH_WINDOW = ("accuracy", "labels:accuracy")
LEARNING = ("sequential", "labels:sequential")
"""Rules whose tests learn what a series is like while nothing is wrong."""
MEASURES = ("recall", "precision", "f1")
"""Of a class: each has a rule of a least value."""
OF_SEGMENT = (
    *("tolerance", "min_accuracy", "max_drop", "alarm_on", "min_rows", "max_width", "warnings", "labels", "recovery"),
    *(f"min_{measure}" for measure in MEASURES),
)
"""Rules that a segment can have of its own."""
LONGEST_CODE = 32
MOST_NAMED = 200
"""Classes and segments that rules name."""


@dataclass(frozen=True)
class Rules:
    """Rules of a model. By default: tests over all windows, of estimates and of labels, critical warnings, silence.

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
    min_recall, min_precision, min_f1 : dict of str to float
        The same of classes, by name: ``{"fraud": 0.7}``; by the estimate.
    alarm_on : {"estimate", "low", "high"}
        What those are compared with.
    min_rows, max_width : int, float
        A window with fewer rows or a wider interval is `not enough data`: where the least accuracy is inside its
        interval, it neither raises nor ends the alarm of `min_accuracy` and `max_drop`.
    warnings : tuple of str
        Codes of `EstimateWarning` that raise an alarm of their own; ``critical`` stands for all critical ones, and
        ``sudden_drop`` is that of labels far below the interval of their window. A window with a critical warning ends
        no other alarm.
    labels : bool
        Whether labels raise alarms: on the accuracy that they show, on a drop of it over several windows, and where
        they contradict the intervals of the estimates.
    tracking : bool
        Whether estimates rest on the labels of earlier windows too, as those of `gdscore.AccuracyTracker`. The test
        over all windows goes on with the estimates without labels.
    missing_after : float or "learned", optional
        Alarm where the newest window ended longer ago than this many lengths of a window. ``learned``: where no window
        came for twice as long as the longest usual pause between two, once seven pauses are known.
    recovery : int
        Windows in a row without the problem that end an alarm.
    keep_rows : str, optional
        How long id, prediction and P(right) of each row are kept after its window, such as ``90d``, so that labels can
        be given by id; not at all by default.
    segments : dict of str to dict
        Rules that a segment has of its own, by its name: ``{"country=fr": {"min_accuracy": 0.8}}``.
    max_segments : int
        Segments that the model may have.
    notify_within : str, optional
        A notice is sent only where the window that raised the alarm ended at most this long ago, such as ``7d``, so
        that filling in the past sends none; always where it is None.

    Examples
    --------
    >>> Rules(min_accuracy=0.8).changed({"missing_after": 2}).to_dict()["min_accuracy"]
    0.8
    """

    false_alarms_per_year: float | None = 0.1
    tolerance: float = 0.01
    min_accuracy: float | None = None
    max_drop: float | None = None
    min_recall: Mapping[str, float] = field(default_factory=dict)
    min_precision: Mapping[str, float] = field(default_factory=dict)
    min_f1: Mapping[str, float] = field(default_factory=dict)
    alarm_on: str = "estimate"
    min_rows: int = MIN_ROWS
    max_width: float = MAX_WIDTH
    warnings: tuple[str, ...] = ("critical", "sudden_drop")
    labels: bool = True
    tracking: bool = True
    missing_after: float | str | None = LEARNED
    recovery: int = 3
    keep_rows: str | None = None
    segments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    max_segments: int = 200
    notify_within: str | None = "7d"

    def __post_init__(self) -> None:
        if self.false_alarms_per_year is not None:
            number("false_alarms_per_year", self.false_alarms_per_year, above=0, most=365)
        number("tolerance", self.tolerance, least=0, most=1)
        integer("min_rows", self.min_rows, least=1)
        number("max_width", self.max_width, above=0, most=1)
        if self.missing_after is not None and self.missing_after != LEARNED:
            if isinstance(self.missing_after, str):
                raise GdscoreError(
                    f"Expected `missing_after` to be a number of window lengths or '{LEARNED}', but got "
                    f"{shown(self.missing_after)}"
                )
            number("missing_after", self.missing_after, above=0, most=MOST_LENGTHS)
        integer("recovery", self.recovery, least=1)
        integer("max_segments", self.max_segments, least=1, most=100_000)
        for name in ("keep_rows", "notify_within"):
            if getattr(self, name) is not None:
                parse_every(getattr(self, name))
        for name in ("labels", "tracking"):
            if not isinstance(getattr(self, name), bool):
                raise GdscoreError(f"Expected `{name}` to be true or false, but got {shown(getattr(self, name))}")
        if self.alarm_on not in [on.value for on in AlarmOn]:
            raise GdscoreError(
                f"Expected `alarm_on` to be 'estimate', 'low' or 'high', but got {str(self.alarm_on)[:40]!r}"
            )
        codes = self.warnings if isinstance(self.warnings, (list, tuple)) else [None]
        if not all(isinstance(code, str) and code.isprintable() and len(code) <= LONGEST_CODE for code in codes):
            raise GdscoreError("Expected `warnings` to be a list of codes such as ['collapse', 'other_model']")
        object.__setattr__(self, "warnings", tuple(self.warnings))
        for measure in MEASURES:
            self._check_classes(f"min_{measure}")
        self._check_segments()
        self._per_window()

    def _check_classes(self, name: str) -> None:
        """Least values by the names of classes; a value of None takes one away."""
        least = getattr(self, name)
        least = {} if least is None else least
        if not isinstance(least, Mapping) or len(least) > MOST_NAMED:
            raise GdscoreError(
                f"Expected `{name}` to have a least value for each of at most {MOST_NAMED} classes, such as "
                f"{{'fraud': 0.7}}, but got {shown(least)}"
            )
        least = {key: value for key, value in least.items() if value is not None}
        for key, value in least.items():
            check_name("class", key)
            number(f"{name} of {key}", value, least=0, most=1)
        object.__setattr__(self, name, least)

    def _check_segments(self) -> None:
        segments = {} if self.segments is None else self.segments
        if (
            not isinstance(segments, Mapping)
            or len(segments) > MOST_NAMED
            or not all(isinstance(rules, Mapping) for rules in segments.values() if rules is not None)
        ):
            raise GdscoreError(
                "Expected `segments` to have rules for each segment, such as {'country=fr': {'min_accuracy': 0.8}}, "
                f"but got {shown(segments)}"
            )
        segments = {check_name("segment", name): dict(rules) for name, rules in segments.items() if rules}
        object.__setattr__(self, "segments", {})  # those of a segment are checked as rules without segments
        for name, rules in segments.items():
            for rule in rules:
                if rule not in OF_SEGMENT:
                    hint = nearest(str(rule)[:60], OF_SEGMENT)
                    raise GdscoreError(f"Unknown rule {str(rule)[:60]!r} of the segment {name!r}: {hint}")
            replace(self, **rules)
        object.__setattr__(self, "segments", segments)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Rules:
        """Rules from plain data; unknown names are refused."""
        return _parse_rules(json.dumps(plain))

    def changed(self, changes: Mapping[str, Any]) -> Rules:
        """Rules with some of them changed, by name; the others stay, also those of other classes and segments."""
        names = {f.name for f in fields(self)}
        changes = dict(changes)
        for name in changes:
            if name not in names:
                raise GdscoreError(f"Unknown rule {str(name)[:60]!r}: {nearest(str(name)[:60], names)}")
        for name in (*(f"min_{measure}" for measure in MEASURES), "segments"):
            if isinstance(changes.get(name), Mapping):
                changes[name] = {**getattr(self, name), **changes[name]}
        return replace(self, **changes)

    def of_segment(self, segment: str) -> Rules:
        """Rules with those that a segment has of its own."""
        return replace(self, **self.segments[segment]) if segment in self.segments else self

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as JSON has it."""
        return {**asdict(self), "warnings": list(self.warnings)}

    def __str__(self) -> str:
        """The rules that are set, in one line."""
        values = {name: value for name, value in self.to_dict().items() if value is not None and value != {}}
        return ", ".join(f"{name} {rule_text(value)}" for name, value in values.items())

    def _per_window(self) -> AlarmRule | None:
        if self.min_accuracy is None and self.max_drop is None:
            return None
        return AlarmRule(self.min_accuracy, self.max_drop, AlarmOn(self.alarm_on), self.min_rows, self.max_width)

    def measured(self) -> list[tuple[str, str, float]]:
        """Measure, class and least value of each rule of a class; those of segments are `of_segment`'s."""
        return [(m, name, least) for m in MEASURES for name, least in getattr(self, f"min_{m}").items()]

    def measures_of(self, estimate: Estimate) -> dict[str, list[float]] | None:
        """Low, value and high of what rules of classes look at, by rule; None where there are no such rules."""
        every = (self, *(self.of_segment(segment) for segment in self.segments))
        wanted = {(measure, name) for rules in every for measure, name, _ in rules.measured()}
        if not wanted:
            return None
        measures: dict[str, list[float]] = {}
        for one in estimate.per_class:
            for measure in MEASURES:
                if (measure, one.name) in wanted:
                    quantity = getattr(one, measure)
                    ends = (quantity.low, quantity.high) if quantity.low is not None else (quantity.value,) * 2
                    measures[f"{measure}:{one.name}"] = [ends[0], quantity.value, ends[1]]
        return measures

    def lines(self, reference: float, reference_rows: int, state: Mapping[str, Any] | None) -> dict[str, float]:
        """Accuracies that estimates are compared with, by rule; ``state`` is that of the series (`Follower.state`)."""
        lines: dict[str, float] = {}
        if self.min_accuracy is not None:
            lines["min_accuracy"] = self.min_accuracy
        if self.max_drop is not None:
            lines["max_drop"] = max(reference - self.max_drop, 0.0)
        if self.false_alarms_per_year is not None:
            test = SequentialTest.from_dict((state or {}).get("test"))
            lines["sequential"] = test.level_and_floor(reference, reference_rows, self.tolerance)[1]
        return lines

    def has(self, rule: str) -> bool:
        """Whether these rules can raise an alarm of this kind."""
        kind, _, name = rule.partition(":")
        if kind == "warning":
            return bool({name, "critical"} & set(self.warnings))
        if kind in MEASURES:
            return name in getattr(self, f"min_{kind}")
        if kind == "labels" and not self.labels:
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
        self,
        name: str,
        estimate: Estimate,
        labelled: LabelledEstimate | None,
        start: datetime,
        tests: Tests,
        measures: Mapping[str, Sequence[float]] | None = None,
    ) -> list[RuleResult]:
        """What all rules say of the next window of a series; ``tests`` take the window in."""
        checks = self._accuracy("sequential", "accuracy", name, estimate, start, tests.estimates, tests)
        for warning in estimate.warnings:
            if warning.code in self.warnings or (warning.severity == "critical" and "critical" in self.warnings):
                reason = f"{name}: {warning.message}"
                checks.append(RuleResult(name, Status.ALARM, reason, f"warning:{warning.code}"[:40], start))
        for measure in MEASURES:
            for one, least in getattr(self, f"min_{measure}").items():
                quantity = (measures or {}).get(f"{measure}:{one}")
                if quantity is not None:
                    checks.append(self._class(name, measure, one, quantity, least, estimate.n_rows, start))
        if self.labels and labelled is not None:
            seen = replace(labelled, n_rows=labelled.labels)
            checks += self._accuracy(
                "labels:sequential", "labels:accuracy", f"{name} with labels", seen, start, tests.labels, tests
            )
            if self.false_alarms_per_year is not None:
                checks.append(self._coverage(name, labelled, start, tests))
        return checks

    def _accuracy(
        self,
        over_windows: str,
        each_window: str,
        name: str,
        estimate: Estimate,
        start: datetime,
        test: SequentialTest,
        tests: Tests,
    ) -> list[RuleResult]:
        checks: list[RuleResult] = []
        by_labels = over_windows.startswith("labels")
        reference = estimate.reference_accuracy
        # What the first labels of a model change is no drop, and labels have tests of their own.
        accuracy = estimate.accuracy if by_labels or estimate.label_free is None else estimate.label_free.value
        if self.false_alarms_per_year is not None:
            dropped, level = test.take(
                Seen(accuracy, estimate.n_rows, tests.weekday(start)),
                start,
                reference=reference,
                reference_rows=tests.reference_rows,
                tolerance=self.tolerance,
                limit=tests.limit(self.false_alarms_per_year),
                learn=not any(w.severity == "critical" for w in estimate.warnings),
                by_labels=by_labels,
            )
            reason = ""
            if dropped:
                what, shown = "accuracy" if by_labels else "estimated accuracy", ""
                if accuracy != estimate.accuracy:
                    what = "estimate without labels"
                    shown = f"with labels of earlier windows {percent(estimate.accuracy)}, "
                reason = (
                    f"{name}: the {what} has fallen from {percent(level)} to {percent(accuracy)} in the window of "
                    f"{shown_time(start)} ({shown}interval {percent(estimate.low)} to {percent(estimate.high)}); on "
                    f"the reference it is {percent(reference)}"
                )
            status = Status.ALARM if dropped else Status.FINE
            checks.append(RuleResult(name, status, reason, over_windows, test.beginning, level, accuracy))
        if (rule := self._per_window()) is not None:
            check = rule.check(name, estimate, "the accuracy" if by_labels else "the estimate")
            checks.append(replace(check, rule=each_window, began=start))
        return checks

    def _class(
        self, name: str, measure: str, of: str, quantity: Sequence[float], least: float, rows: int, start: datetime
    ) -> RuleResult:
        """Whether the recall, precision or F1 of a class is below its least value."""
        low, value, high = quantity
        rule = AlarmRule(least, None, AlarmOn(self.alarm_on), self.min_rows, self.max_width)
        what = f"the {'F1' if measure == 'f1' else measure} of {of}"
        return replace(rule.compare(name, what, (low, value, high), rows, least, f"{measure}:{of}"), began=start)

    def _coverage(self, name: str, labelled: LabelledEstimate, start: datetime, tests: Tests) -> RuleResult:
        missed = contradicts(labelled)
        tests.coverage.take_miss(missed, labelled.level, start)
        tests.missed = [*tests.missed, missed][-MOST_MISSED:]
        rate = self.false_alarms_per_year or 0.1
        contradicted = missed and tests.coverage.log_statistic >= tests.limit(rate)
        reason = (
            f"{name}: the estimates can no longer be trusted for this model: labels contradict "
            f"{sum(tests.missed)} of its last {len(tests.missed)} intervals"
        )
        held = 1 - sum(tests.missed) / len(tests.missed)
        status = Status.ALARM if contradicted else Status.FINE
        return RuleResult(name, status, reason, "labels:coverage", tests.coverage.beginning, labelled.level, held)

    def check_missing(
        self, name: str, newest_end: datetime, now: datetime, every: timedelta, arrivals: Sequence[datetime] = ()
    ) -> RuleResult:
        """Whether windows have stopped coming.

        ``arrivals`` are the times at which the newest windows came, for a pause that is learned.
        """
        since, longest = newest_end, self.missing_after
        if longest == LEARNED:
            longest = usual_pause(arrivals, every)
            since = max([*arrivals, newest_end])
        late = (now - since) / every
        if longest is None or isinstance(longest, str) or late <= longest:
            return RuleResult(name, Status.FINE, rule="missing", began=newest_end)
        usual = f"expected one within {longest:.3g}"
        if self.missing_after == LEARNED:
            usual += ", as windows have come so far"
        reason = f"{name}: no window for {late:.1f} lengths of a window, {usual}"
        return RuleResult(name, Status.ALARM, reason, "missing", newest_end)


@lru_cache(maxsize=1000)
def _parse_rules(text: str) -> Rules:
    """Rules of a model, which are checked once and not again for every window."""
    return Rules().changed(json.loads(text))


def contradicts(labelled: LabelledEstimate) -> bool:
    """Whether the interval by labels and that of the estimate before them have no accuracy in common."""
    before = labelled.label_free
    if before is None or before.low is None or before.high is None:
        return False
    return before.high < labelled.low or labelled.high < before.low


PAUSES, FEWEST_PAUSES = 30, 7
"""Newest pauses between windows that are looked at, and how many there must be."""
BURST = 0.2
"""Lengths of a window; windows that come closer together were filled in together."""


def usual_pause(arrivals: Sequence[datetime], every: timedelta) -> float | None:
    """Lengths of a window without one that are unusual: twice the longest usual pause, and at least two.

    One pause of ten may be longer, so that a failure of the past is not usual.

    Examples
    --------
    >>> days = [datetime(2026, 1, 1) + timedelta(days=n) for n in range(30)]
    >>> usual_pause(days, timedelta(days=1)), usual_pause([d for d in days if d.weekday() < 5], timedelta(days=1))
    (2.0, 6.0)
    """
    times = sorted(arrivals)
    pauses = [(later - earlier) / every for earlier, later in itertools.pairwise(times)]
    pauses = sorted([pause for pause in pauses if pause >= BURST][-PAUSES:])
    if len(pauses) < FEWEST_PAUSES:
        return None
    return max(2 * pauses[math.ceil(0.9 * len(pauses)) - 1], 2.0)


def rule_text(value: Any) -> str:
    """Value of a rule for people."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {rule_text(one)}" for name, one in value.items()) + "}"
    return ", ".join(value) or "none" if isinstance(value, list) else str(value)


class Judgement(NamedTuple):
    """What a window is judged by: all that was set when it came."""

    rules: Rules
    n_series: int
    reference_rows: int
    learn_from: datetime | None = None


@dataclass
class RaisedAlarm:
    """An alarm of a series; the start of the window that raised it tells it from others of its rule.

    ``level``, ``value`` and ``latest`` are the accuracy without the problem, in the window that raised the alarm, and
    in the newest window that had the problem.
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
    """Rules applied to the windows of a series, in the order of time, from what `state` was after the window before.

    Attributes
    ----------
    raised : list of RaisedAlarm
        Alarms raised by windows that were taken in.
    carried : dict of str to RaisedAlarm
        Alarms that were open in the given state, by rule, with what became of them.
    """

    def __init__(
        self, judgement: Judgement, state: dict[str, Any], title: str, *, every: Every, segment: str = ""
    ) -> None:
        self.title, self.segment = title, segment
        self.learned_from = state.get("learned_from")
        self.tests = Tests(
            every,
            judgement.n_series,
            judgement.reference_rows,
            SequentialTest.from_dict(state.get("test")),
            SequentialTest.from_dict(state.get("labels")),
            SequentialTest.from_dict(state.get("coverage")),
            list(state.get("missed", ())),
        )
        self.judge_by(judgement)
        self.carried = {
            rule: RaisedAlarm(rule, NEVER, NEVER, "", level) for rule, level in state.get("open", {}).items()
        }
        self.open = dict(self.carried)
        self.fine: dict[str, tuple[int, datetime]] = {
            rule: (n, datetime.fromisoformat(at)) for rule, (n, at) in state.get("fine", {}).items()
        }
        self.raised: list[RaisedAlarm] = []

    def judge_by(self, judgement: Judgement) -> None:
        """Judge the next windows by these rules."""
        self.rules = judgement.rules.of_segment(self.segment)
        self.learn_from = judgement.learn_from
        self.tests.series, self.tests.reference_rows = judgement.n_series, judgement.reference_rows

    @property
    def state(self) -> dict[str, Any]:
        """Plain data from which the next window goes on."""
        fine = {rule: [n, at.isoformat()] for rule, (n, at) in self.fine.items()}
        levels = {rule: alarm.level for rule, alarm in self.open.items()}
        state: dict[str, Any] = {"test": self.tests.estimates.to_dict(), "open": levels, "fine": fine}
        if self.learned_from is not None:
            state["learned_from"] = self.learned_from
        if self.tests.missed:  # series without labels have no more than this
            tests = {"labels": self.tests.labels.to_dict(), "coverage": self.tests.coverage.to_dict()}
            state |= {**tests, "missed": self.tests.missed}
        return state

    def take(
        self,
        estimate: Estimate,
        start: datetime,
        labelled: LabelledEstimate | None = None,
        measures: Mapping[str, Sequence[float]] | None = None,
    ) -> None:
        """Take in the next window, with its labels where they have come, and what rules of classes look at."""
        if self.learn_from is not None and start >= self.learn_from:
            self._learn_again(self.learn_from)
        checks = {c.rule: c for c in self.rules.check(self.title, estimate, labelled, start, self.tests, measures)}
        critical = any(w.severity == "critical" for w in estimate.warnings)
        for rule in [*checks, *(rule for rule in self.open if rule not in checks)]:
            check = checks.get(rule)
            alarmed = check is not None and check.status is Status.ALARM
            if check is not None and alarmed:
                self.fine.pop(rule, None)
                if rule not in self.open:
                    began = start if check.began is None else check.began
                    self.open[rule] = RaisedAlarm(rule, start, began, check.reason, check.level, check.value)
                    self.raised.append(self.open[rule])
            if rule in self.open and check is not None:
                self.open[rule].latest = check.value
            if rule in self.open and not self.rules.has(rule):
                self._end(rule, start, "rule changed")
            elif rule in self.open and not alarmed and not self._undecided(rule, check, critical, labelled):
                count, first = self.fine.get(rule, (0, start))
                self.fine[rule] = (count + 1, first)
                if count + 1 >= self.rules.recovery:
                    self._end(rule, first, "rule changed" if self._still_there(rule) else "recovered")

    def finish(self) -> None:
        """After the newest window: what is to be learned again from later windows on is forgotten at once."""
        if self.learn_from is not None:
            self._learn_again(self.learn_from)

    def _undecided(
        self, rule: str, check: RuleResult | None, critical: bool, labelled: LabelledEstimate | None
    ) -> bool:
        """Whether a window without the problem says nothing about it."""
        if check is not None and check.status is Status.NOT_ENOUGH_DATA:
            return True
        if check is None and rule.partition(":")[0] in MEASURES:
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
        alarm = self.open.pop(rule)
        self.fine.pop(rule, None)
        alarm.ended, alarm.reason = at, reason
        self.tests.restart(rule)
