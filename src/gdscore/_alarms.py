"""When an estimate asks for an alarm: one set of rules for the command line and the monitor.

Requirements met here:

- a comparison with NaN is an alarm, never a pass;
- few rows or a wide interval decide nothing: where the floor is inside the interval, the status is `not enough data`;
- an estimate that may be meaningless does not pass in silence: a critical warning is an alarm of its own kind;
- an old bad day does not alarm for ever: of dated targets only the newest are checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from gdscore._checks import integer, number
from gdscore._format import percent
from gdscore._windows import as_utc
from gdscore.errors import GdscoreError

if TYPE_CHECKING:
    from gdscore.estimator import Estimate

ROUNDING = 1e-9
NAMED = 3
"""Targets named in the summary; the table and the JSON have them all."""


MIN_ROWS = 200
MAX_WIDTH = 0.5


class Status(StrEnum):
    """What a check found; members are in the order of how much they matter, the most important first."""

    ALARM = "alarm"
    ERROR = "error"
    NOT_ENOUGH_DATA = "not enough data"
    FINE = "fine"


class AlarmOn(StrEnum):
    """What is compared with the floor: the estimate or an end of its interval."""

    LOW = "low"
    ESTIMATE = "estimate"
    HIGH = "high"


@dataclass(frozen=True)
class RuleResult:
    """What a rule says of one target: its status, and the reason in one line where it is not fine."""

    name: str
    status: Status
    reason: str = ""
    rule: str = "accuracy"
    began: datetime | None = None  # since when the target has the problem, where the rule looks at several windows
    level: float | None = None  # what the rule looks at without the problem
    value: float | None = None  # what it is now


@dataclass(frozen=True)
class AlarmRule:
    """The accuracy that is asked for.

    Examples
    --------
    >>> from gdscore import Estimate
    >>> e = Estimate(0.83, 0.78, 0.88, level=0.9, n_rows=900, reference_accuracy=0.9)
    >>> AlarmRule(min_accuracy=0.8).check("may", e).status.value
    'fine'
    >>> AlarmRule(max_drop=0.05).check("may", e).reason
    'may: the estimate of 83.0% is below 85% (interval 78.0% to 88.0%)'
    """

    min_accuracy: float | None = None  # least accuracy, in [0, 1]
    # How far the accuracy may be below that of the reference, in [0, 1]: 0.05 are five points
    max_drop: float | None = None
    alarm_on: AlarmOn = AlarmOn.ESTIMATE  # what is compared
    # An estimate of fewer rows, or with a wider interval, is `not enough data` where the floor is in its interval
    min_rows: int = MIN_ROWS
    max_width: float = MAX_WIDTH

    def __post_init__(self) -> None:
        if self.min_accuracy is None and self.max_drop is None:
            raise GdscoreError("Expected a least accuracy or a largest drop, but there is neither")
        for name in ("min_accuracy", "max_drop"):
            if getattr(self, name) is not None:
                number(name, getattr(self, name), least=0, most=1)

    def floor(self, estimate: Estimate) -> float:
        """Accuracy below which an estimate asks for an alarm."""
        floors = [] if self.min_accuracy is None else [self.min_accuracy]
        if self.max_drop is not None:
            floors.append(estimate.reference_accuracy - self.max_drop)
        return max(floors)

    def check(self, name: str, estimate: Estimate, what: str = "the estimate") -> RuleResult:
        """Compare one estimate, which the reason calls ``what``, with the floor."""
        quantity = estimate.low, estimate.accuracy, estimate.high
        return self.compare(name, what, quantity, estimate.n_rows, self.floor(estimate))

    def compare(
        self,
        name: str,
        what: str,
        quantity: tuple[float, float, float],
        n_rows: int,
        floor: float,
        rule: str = "accuracy",
    ) -> RuleResult:
        """Compare a quantity (low, value, high) of so many rows with a floor."""
        low, middle, high = quantity
        # 0.9 − 0.05 is above 0.85 by rounding: an estimate that meets the floor exactly is no alarm.
        least = floor - ROUNDING
        value, what = {
            AlarmOn.LOW: (low, f"the lower end of {what}" if rule != "accuracy" else "the lower end"),
            AlarmOn.ESTIMATE: (middle, what),
            AlarmOn.HIGH: (high, f"the upper end of {what}" if rule != "accuracy" else "the upper end"),
        }[self.alarm_on]
        interval = f"interval {percent(low)} to {percent(high)}"
        short = not_enough_data(n_rows, high - low, self.min_rows, self.max_width)
        facts: dict[str, Any] = {"rule": rule, "level": floor, "value": middle}
        if short and low < least <= high:
            reason = f"{name}: {short}, and {percent(floor, short=True)} is inside the {interval}"
            return RuleResult(name, Status.NOT_ENOUGH_DATA, reason, **facts)
        if not value >= least:
            reason = f"{name}: {what} of {percent(value)} is below {percent(floor, short=True)} ({interval})"
            return RuleResult(name, Status.ALARM, reason, **facts)
        return RuleResult(name, Status.FINE, **facts)

    def check_all(self, name: str, estimate: Estimate) -> RuleResult:
        """As `check`; a critical warning is an alarm too, as the estimate may then be meaningless."""
        checked = self.check(name, estimate)
        critical = [w for w in estimate.warnings if w.severity == "critical"]
        if checked.status is Status.ALARM or not critical:
            return checked
        codes = ", ".join(w.code for w in critical)
        reason = f"{name}: critical warning ({codes}): {critical[0].message}"
        return replace(checked, status=Status.ALARM, reason=reason)


def not_enough_data(n_rows: int, width: float, min_rows: int, max_width: float) -> str:
    """Why an estimate is no basis for a decision: few rows, or a wide interval; empty where it is one."""
    if n_rows < min_rows:
        return f"{n_rows} rows are fewer than {min_rows}"
    return f"the interval is wider than {percent(max_width, short=True)}" if width > max_width else ""


def checked_targets(
    times: Sequence[datetime | None], *, last: int | None = None, since: datetime | None = None
) -> list[bool]:
    """Which targets are checked: all without a time, and of the others those of the newest time.

    ``last`` is how many of the newest times are checked instead; ``since`` checks all from that time on.

    Examples
    --------
    >>> days = [datetime(2026, 1, day) for day in (29, 31, 30)]
    >>> checked_targets([*days, None]), checked_targets(days, last=2), checked_targets(days, since=days[2])
    ([False, True, False, True], [False, True, True], [False, True, True])
    """
    dates = sorted({as_utc(when) for when in times if when is not None})
    if since is not None:
        if last is not None:
            raise GdscoreError("Expected the number of newest times or the first time to check, but got both: give one")
        first = as_utc(since)
    else:
        newest = dates[-integer("last", 1 if last is None else last, least=1) :]
        if not newest:
            return [True] * len(times)
        first = newest[0]
    return [when is None or as_utc(when) >= first for when in times]


def worst_status(checks: Sequence[RuleResult]) -> Status:
    """Status of all together: an alarm takes precedence over an error, and an error over "not enough data"."""
    order = list(Status)
    return min((c.status for c in checks), key=order.index, default=Status.FINE)


def summarize(checks: Sequence[RuleResult]) -> str:
    """Reasons of the most important status in one line; empty where all is fine."""
    status = worst_status(checks)
    reasons = list(dict.fromkeys(c.reason for c in checks if c.status is status and c.reason))
    more = f"; and {len(reasons) - NAMED} more" if len(reasons) > NAMED else ""
    return f"{status.value}: {'; '.join(reasons[:NAMED])}{more}" if reasons else ""
