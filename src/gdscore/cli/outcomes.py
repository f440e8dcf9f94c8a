"""What came of each target: an estimate, or the reason why there is none; and whether it asks for an alarm.

Requirements met here:

- of several targets, one that cannot be estimated keeps none of the others from being estimated;
- a single one is an error like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from gdscore.cli.console import once
from gdscore.cli.guard import worded
from gdscore.cli.targets import Data, about
from gdscore.errors import GdscoreError

if TYPE_CHECKING:
    from gdscore.estimator import AccuracyEstimator, Estimate

__all__ = ["AlarmOn", "Outcome", "Threshold", "outcomes_of", "reasons", "summary"]

SAID = 3
"""Reasons in the line on standard error; the table and the JSON have them all."""


class AlarmOn(str, Enum):
    """What is compared with the threshold."""

    ESTIMATE = "estimate"
    LOW = "low"
    HIGH = "high"


@dataclass(frozen=True)
class Threshold:
    """Accuracy that is asked for, and of what."""

    accuracy: float
    on: AlarmOn

    def missed_by(self, estimate: Estimate) -> bool:
        """Whether the estimate, or the chosen end of its interval, is below."""
        ends = {AlarmOn.ESTIMATE: estimate.accuracy, AlarmOn.LOW: estimate.low, AlarmOn.HIGH: estimate.high}
        return ends[self.on] < self.accuracy

    @property
    def question(self) -> str:
        """Title of the column that answers it with yes or below."""
        what = "" if self.on is AlarmOn.ESTIMATE else f"{self.on.value} end "
        return f"{what}at least {100 * self.accuracy:.6g}%?"


@dataclass(frozen=True)
class Outcome:
    """One target and its estimate, or the reason why it has none."""

    data: Data
    estimate: Estimate | None
    error: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as the JSON has it."""
        data = {"name": self.data.name, "when": self.data.when and self.data.when.isoformat()}
        return data | ({"error": self.error} if self.estimate is None else self.estimate.to_dict())


def outcomes_of(fitted: AccuracyEstimator, found: Sequence[Data], quiet: bool) -> list[Outcome]:
    """Estimate every target, one after the other."""
    if len(found) == 1:
        with about(found[0]):
            return [Outcome(found[0], fitted.estimate(found[0].stream(quiet)))]
    return [_tried(fitted, data, quiet) for data in found]


def _tried(fitted: AccuracyEstimator, data: Data, quiet: bool) -> Outcome:
    try:
        return Outcome(data, fitted.estimate(data.stream(quiet)))
    except BrokenPipeError:
        raise  # of the progress bar
    except (GdscoreError, OSError, MemoryError) as error:
        return Outcome(data, None, worded(error)[0])


def reasons(outcomes: Sequence[Outcome]) -> list[str]:
    """Why targets are not estimated, each reason once with the targets it is about."""
    return once([(o.data.name, [o.error] if o.estimate is None else []) for o in outcomes])


def summary(outcomes: Sequence[Outcome], report: bool) -> str:
    """One line about targets that are not estimated."""
    failed, why = sum(o.estimate is None for o in outcomes), reasons(outcomes)
    said = "; ".join(why[:SAID]) + (f"; and {len(why) - SAID} more reasons" if len(why) > SAID else "")
    if failed == len(outcomes):
        return f"none of {failed} targets is estimated{', and there is no report' if report else ''}: {said}"
    return f"{failed} of {len(outcomes)} targets {'is' if failed == 1 else 'are'} not estimated: {said}"
