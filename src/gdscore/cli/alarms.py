"""Options of ``gdscore estimate`` that say when there is an alarm, and what they make of a target."""

from __future__ import annotations

from datetime import datetime

from gdscore._alarms import AlarmOn, AlarmRule, Check, Status, checked_targets
from gdscore.cli.files import Outcome, date_in
from gdscore.cli.results import Estimated
from gdscore.errors import GdscoreError

__all__ = ["alarm_rule", "check_outcome", "date_of"]


def alarm_rule(
    min_accuracy: float | None,
    max_drop: float | None,
    alarm_on: AlarmOn | None,
    last: int | None,
    since: str | None,
) -> AlarmRule | None:
    """Rule of the options; None where they name no bound."""
    if min_accuracy is None and max_drop is None:
        for name, value in (("--alarm-on", alarm_on), ("--last", last), ("--since", since)):
            if value is not None:
                raise GdscoreError(f"Expected --min-accuracy or --max-drop with {name}, but there is neither")
        return None
    for name, share in (("--min-accuracy", min_accuracy), ("--max-drop", max_drop)):
        if share is not None and not 0 <= share <= 1:
            raise GdscoreError(f"Expected {name} to be a share from 0 to 1, but got {share:g}: 0.8 is 80 %")
    checked_targets([], last=last, since=date_of(since))  # refuses both
    return AlarmRule(min_accuracy, max_drop, alarm_on or AlarmOn.ESTIMATE)


def date_of(text: str | None) -> datetime | None:
    """Date of ``--since``."""
    when = None if text is None else date_in(text)
    if when is None and text is not None:
        raise GdscoreError(f"Expected --since to be a date such as 2026-01-31, but got {text!r}")
    return when


def check_outcome(rule: AlarmRule | None, outcome: Outcome[Estimated]) -> Check:
    """Status of a target by the rule; without one, whether it could be estimated."""
    if outcome.value is None:
        return Check(outcome.name, Status.ERROR, f"{outcome.name}: {outcome.error}")
    return Check(outcome.name, Status.FINE) if rule is None else rule.check(outcome.name, outcome.value.estimate)
