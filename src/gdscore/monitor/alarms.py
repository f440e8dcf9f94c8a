"""Windows that join a series, and alarms that begin and end with them: one alarm a problem."""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gdscore.estimator import Estimate
from gdscore.monitor.rules import Finding, Rules
from gdscore.monitor.schema import Alarm, Model, Series, Window
from gdscore.monitor.sequential import SequentialTest
from gdscore.monitor.times import DAY, now_micros

__all__ = ["apply_finding", "extend_series"]

RECENT = 60
"""Estimates kept beside a series for the small chart of the overview."""


def extend_series(session: Session, model: Model, window: Window, estimate: Estimate) -> None:
    """Take a new window into its series. Alarms are about the present: older windows than the newest raise none."""
    series = session.get(Series, (model.id, window.segment))
    if series is None:
        series = Series(
            model_id=model.id, segment=window.segment, windows=0, newest=window.start - 1, recent=[], state={}
        )
        session.add(series)
    series.windows += 1
    if window.start <= series.newest:
        return
    series.newest, series.last_window = window.start, window.id
    series.recent = [*series.recent[1 - RECENT :], round(window.accuracy, 5)]
    session.flush()
    rules, state = Rules.from_dict(model.rules), dict(series.state)
    test = SequentialTest.from_dict(state.get("test"))
    count = session.scalars(select(func.count()).where(Series.model_id == model.id)).one()
    title = f"{model.name} ({window.segment})" if window.segment else model.name
    found = rules.check(
        title,
        estimate,
        window.start,
        test,
        windows_per_year=365.25 * DAY / model.every,
        series=count,
        reference_rows=model.reference_rows,
    )
    if rules.missing_after is not None:
        found.append(Finding("missing", False))
    state["test"] = test.to_dict()
    for finding in found:
        apply_finding(session, model, window.segment, finding, state, window.start, rules.recovery)
    series.state = state


def apply_finding(
    session: Session,
    model: Model,
    segment: str,
    finding: Finding,
    state: dict[str, Any],
    at: int,
    recovery: int,
) -> None:
    """Begin, continue or end the alarm of a rule: one alarm a problem."""
    fine = dict(state.get("fine", {}))
    query = select(Alarm).where(
        Alarm.model_id == model.id, Alarm.segment == segment, Alarm.rule == finding.rule, Alarm.ended.is_(None)
    )
    alarm = session.scalars(query).first()
    if finding.problem:
        fine.pop(finding.rule, None)
        if alarm is None:
            session.add(
                Alarm(
                    model_id=model.id,
                    segment=segment,
                    rule=finding.rule,
                    message=finding.message,
                    began=at if finding.began is None else finding.began,
                    opened_at=now_micros(),
                    pending="begin",
                )
            )
    elif alarm is not None:
        count, first = fine.get(finding.rule, (0, at))
        fine[finding.rule] = [count + 1, first]
        if count + 1 >= (1 if finding.rule == "missing" else recovery):
            alarm.ended, alarm.pending = first, "end"
            del fine[finding.rule]
            if finding.rule == "sequential":
                state["test"] = SequentialTest.from_dict(state["test"]).restarted().to_dict()
    state["fine"] = fine
