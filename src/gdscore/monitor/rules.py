"""Rules of a model: when a window asks for an alarm, and when an alarm ends. Nothing here needs the database."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from gdscore._alarms import AlarmOn, AlarmRule, Status
from gdscore._checks import integer, number
from gdscore._format import percent
from gdscore.errors import GdscoreError, nearest
from gdscore.estimator import Estimate
from gdscore.monitor.schema import shown_time
from gdscore.monitor.sequential import SequentialTest, floor_of, standardised_drop, threshold

__all__ = ["Finding", "Follower", "Problem", "Rules"]

MOST_LENGTHS = 1e6
LONGEST_CODE = 32
"""Of a warning: with "warning:" before it, it fits into the column of rules."""


def _is_code(code: object) -> bool:
    return isinstance(code, str) and code.isprintable() and len(code) <= LONGEST_CODE


@dataclass(frozen=True)
class Finding:
    """What a rule found in one window: a problem with its beginning, or none."""

    rule: str
    problem: bool
    message: str = ""
    began: datetime | None = None


@dataclass(frozen=True)
class Rules:
    """Rules of a model. The default is a test over all windows, and an alarm where outputs are another model's.

    Attributes
    ----------
    false_alarms_per_year : float, optional
        Of the sequential test, over all segments of a model together; None leaves the test out.
    tolerance : float
        How far the accuracy may be below its level before that counts as a drop, in shares; the module `sequential`
        defines the level.
    min_accuracy, max_drop : float, optional
        Alarm at every window below this accuracy, or farther below the reference than this.
    alarm_on : {"estimate", "low", "high"}
        What those two are compared with.
    warnings : tuple of str
        Codes of `EstimateWarning` that raise an alarm.
    min_rows : int, optional
        Alarm at every window with fewer rows.
    missing_after : float, optional
        Alarm where the newest window ended longer ago than this many lengths of a window.
    recovery : int
        Windows in a row without the problem that end an alarm.

    Examples
    --------
    >>> Rules(min_accuracy=0.8).to_dict()["min_accuracy"]
    0.8
    """

    false_alarms_per_year: float | None = 0.1
    tolerance: float = 0.01
    min_accuracy: float | None = None
    max_drop: float | None = None
    alarm_on: str = "estimate"
    warnings: tuple[str, ...] = ("other_model",)
    min_rows: int | None = None
    missing_after: float | None = None
    recovery: int = 3

    def __post_init__(self) -> None:
        if self.false_alarms_per_year is not None:
            number("false_alarms_per_year", self.false_alarms_per_year, above=0, most=365)
        number("tolerance", self.tolerance, least=0, most=1)
        if self.min_rows is not None:
            integer("min_rows", self.min_rows, least=1)
        if self.missing_after is not None:
            number("missing_after", self.missing_after, above=0, most=MOST_LENGTHS)
        integer("recovery", self.recovery, least=1)
        if self.alarm_on not in [on.value for on in AlarmOn]:
            raise GdscoreError(
                f"Expected `alarm_on` to be 'estimate', 'low' or 'high', but got {str(self.alarm_on)[:40]!r}"
            )
        if not isinstance(self.warnings, (list, tuple)) or not all(_is_code(code) for code in self.warnings):
            raise GdscoreError("Expected `warnings` to be a list of codes such as ['collapse', 'other_model']")
        object.__setattr__(self, "warnings", tuple(self.warnings))
        self._per_window()

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Rules:
        """Rules from plain data; unknown names are refused."""
        known = {f.name for f in fields(cls)}
        for name in found:
            if name not in known:
                raise GdscoreError(f"Unknown rule {name[:60]!r}: {nearest(name[:60], known)}")
        return cls(**found)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as JSON has it."""
        return {**asdict(self), "warnings": list(self.warnings)}

    def _per_window(self) -> AlarmRule | None:
        if self.min_accuracy is None and self.max_drop is None:
            return None
        return AlarmRule(self.min_accuracy, self.max_drop, AlarmOn(self.alarm_on))

    def check(
        self,
        name: str,
        estimate: Estimate,
        start: datetime,
        test: SequentialTest,
        *,
        windows_per_year: float,
        series: int,
        reference_rows: int,
    ) -> list[Finding]:
        """Findings of all rules for the next window of a series; ``test`` takes the window in."""
        found: list[Finding] = []
        if self.false_alarms_per_year is not None:
            limit = math.log(threshold(self.false_alarms_per_year, windows_per_year, series))
            reference = estimate.reference_accuracy
            floor = float(floor_of(reference, reference_rows, self.tolerance, test.baseline))
            z = float(standardised_drop(estimate.accuracy, estimate.n_rows, reference, floor))
            test.update_at(z, start)
            test.learn_baseline(estimate.accuracy)
            message = (
                f"{name}: the estimated accuracy has fallen to {percent(estimate.accuracy)} "
                f"({percent(estimate.low)} to {percent(estimate.high)}) in the window of {shown_time(start)}; "
                f"on the reference it is {percent(reference)}"
            )
            problem = test.has_problem(estimate.accuracy, z, floor, limit)
            found.append(Finding("sequential", problem, message, test.beginning))
        if (rule := self._per_window()) is not None:
            check = rule.check(name, estimate)
            found.append(Finding("accuracy", check.status is not Status.FINE, check.reason, start))
        for code in self.warnings:
            hits = [w.message for w in estimate.warnings if w.code == code]
            found.append(Finding(f"warning:{code}", bool(hits), f"{name}: {'; '.join(hits)}", start))
        if self.min_rows is not None:
            message = f"{name}: the window has {estimate.n_rows} rows, expected are at least {self.min_rows}"
            found.append(Finding("rows", estimate.n_rows < self.min_rows, message, start))
        return found

    def check_missing(self, name: str, newest_end: datetime, now: datetime, every: timedelta) -> Finding:
        """Whether windows have stopped coming."""
        late = (now - newest_end) / every
        message = (
            f"{name}: no window for {late:.1f} lengths of a window, expected one within {self.missing_after or 0:g}"
        )
        return Finding("missing", self.missing_after is not None and late > self.missing_after, message, newest_end)


@dataclass
class Problem:
    """What an alarm is about; the start of the window that raised it tells it from others of its rule."""

    rule: str
    raised: datetime
    began: datetime
    message: str
    ended: datetime | None = None


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
    options
        Passed on to `Rules.check`.

    Attributes
    ----------
    begun : list of Problem
        Alarms raised by windows that were taken in.
    ended : dict
        Ends of alarms that were open in the given state, by rule.
    """

    def __init__(self, rules: Rules, state: dict[str, Any], title: str, **options: Any) -> None:
        self.rules, self.title, self.options = rules, title, options
        self.test = SequentialTest.from_dict(state.get("test"))
        self.open: dict[str, Problem | None] = dict.fromkeys(state.get("open", ()))
        self.fine: dict[str, tuple[int, datetime]] = {
            rule: (n, datetime.fromisoformat(at)) for rule, (n, at) in state.get("fine", {}).items()
        }
        self.begun: list[Problem] = []
        self.ended: dict[str, datetime] = {}

    @property
    def state(self) -> dict[str, Any]:
        """Plain data from which the next window goes on."""
        fine = {rule: [n, at.isoformat()] for rule, (n, at) in self.fine.items()}
        return {"test": self.test.to_dict(), "open": list(self.open), "fine": fine}

    def take(self, estimate: Estimate, start: datetime) -> None:
        """Take in the next window."""
        found = {f.rule: f for f in self.rules.check(self.title, estimate, start, self.test, **self.options)}
        gone = {rule: Finding(rule, False) for rule in self.open if rule not in found}  # rules that were taken away
        for rule, finding in (found | gone).items():
            if finding.problem:
                self.fine.pop(rule, None)
                if rule not in self.open:
                    began = start if finding.began is None else finding.began
                    self.open[rule] = Problem(rule, start, began, finding.message)
                    self.begun.append(self.open[rule])  # type: ignore[arg-type]
            elif rule in self.open:
                count, first = self.fine.get(rule, (0, start))
                self.fine[rule] = (count + 1, first)
                if count + 1 >= self.rules.recovery:
                    self._end(rule, first)

    def _end(self, rule: str, at: datetime) -> None:
        problem = self.open.pop(rule)
        del self.fine[rule]
        if problem is None:
            self.ended[rule] = at
        else:
            problem.ended = at
        if rule == "sequential":
            self.test = self.test.restarted()
