"""Alarms as a function of a series of windows: one alarm a problem, with a beginning and an end.

Requirements met here:

- the order in which windows arrive makes no difference: every window keeps the state of its series before it, and a
  window that comes late or is replaced has all windows from its place on followed again;
- an alarm that is still there afterwards stays the same alarm, with who acknowledged it;
- an alarm that is not is deleted where nobody knows of it, and is otherwise withdrawn: it ends, and its end is told.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from gdscore.estimator import Estimate, EstimateWarning
from gdscore.monitor.reading import current_models
from gdscore.monitor.rules import Finding, Rules
from gdscore.monitor.schema import Alarm, Model, Series, Window
from gdscore.monitor.sequential import SequentialTest
from gdscore.monitor.windows import DAY, now_micros

__all__ = ["Follower", "Problem", "check_missing", "end_alarms", "recompute_series"]

RECENT = 60
"""Estimates kept beside a series for the small chart of the overview."""


@dataclass
class Problem:
    """What an alarm is about; the start of the window that raised it tells it from others of its rule."""

    rule: str
    raised: int
    began: int
    message: str
    ended: int | None = None


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
        self.fine: dict[str, tuple[int, int]] = {rule: (n, at) for rule, (n, at) in state.get("fine", {}).items()}
        self.begun: list[Problem] = []
        self.ended: dict[str, int] = {}

    @property
    def state(self) -> dict[str, Any]:
        """Plain data from which the next window goes on."""
        return {"test": self.test.to_dict(), "open": list(self.open), "fine": dict(self.fine)}

    def take(self, estimate: Estimate, start: int) -> None:
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

    def _end(self, rule: str, at: int) -> None:
        problem = self.open.pop(rule)
        del self.fine[rule]
        if problem is None:
            self.ended[rule] = at
        else:
            problem.ended = at
        if rule == "sequential":
            self.test = self.test.restarted()


def recompute_series(session: Session, model: Model, segment: str, since: int) -> None:
    """Follow the windows that start at this time or later, as one of them is new or has changed."""
    series = session.get(Series, (model.id, segment))
    if series is None:
        series = Series(model_id=model.id, segment=segment, windows=0, last_window=0, recent=[], state={})
        session.add(series)
    mine = (Window.model_id == model.id, Window.segment == segment)
    followed = session.execute(
        select(
            *(Window.id, Window.start, Window.before, Window.rows, Window.accuracy, Window.low, Window.high),
            *(Window.level, Window.reference_accuracy, Window.warnings),
        )
        .where(*mine, Window.start >= since)
        .order_by(Window.start, Window.end)
    ).all()
    # A new window has no state of its own; the one after it knows how things were before both.
    before = next((w.before for w in followed if w.before is not None), series.state)
    count = session.scalars(select(func.count()).where(Series.model_id == model.id)).one()
    follower = Follower(
        Rules.from_dict(model.rules),
        before,
        f"{model.name} ({segment})" if segment else model.name,
        windows_per_year=365.25 * DAY / model.every,
        series=count,
        reference_rows=model.reference_rows,
    )
    states = []
    for w in followed:
        states.append({"id": w.id, "before": follower.state})
        warnings = [EstimateWarning(**found) for found in w.warnings]
        follower.take(
            Estimate(w.accuracy, w.low, w.high, w.level, w.rows, w.reference_accuracy, warnings=warnings), w.start
        )
    session.execute(update(Window), states)
    _store_alarms(session, model, segment, since, set(before.get("open", ())), follower)
    if series.last_window != followed[-1].id:
        end_alarms(session, [model.id], followed[-1].start, Alarm.rule == "missing")
    newest = select(Window.accuracy).where(*mine).order_by(Window.start.desc(), Window.end.desc()).limit(RECENT)
    series.recent = [round(accuracy, 5) for accuracy in session.scalars(newest)][::-1]
    series.windows += sum(w.before is None for w in followed)
    series.last_window, series.state = followed[-1].id, follower.state


def _store_alarms(
    session: Session, model: Model, segment: str, since: int, carried: set[str], follower: Follower
) -> None:
    """Make the alarms of a series those that its follower found from a time on."""
    superseded = session.scalars(
        select(func.min(Model.created_at)).where(Model.name == model.name, Model.id > model.id)
    ).one()
    stored = session.scalars(
        select(Alarm)
        .where(Alarm.model_id == model.id, Alarm.segment == segment, Alarm.rule != "missing")
        .order_by(Alarm.raised.desc())
    ).all()
    later = [alarm for alarm in stored if alarm.raised >= since]
    for rule in carried:  # the newest of those raised before is the one that was open
        open_before = (a for a in stored if a.rule == rule and a.raised < since and not a.withdrawn)
        if (alarm := next(open_before, None)) is not None:  # retention may have deleted it
            _set_end(alarm, follower.ended.get(rule, superseded))
    for problem, alarm in _pairs(follower.begun, later):
        if alarm is None:
            alarm = Alarm(model_id=model.id, segment=segment, rule=problem.rule, opened_at=now_micros())
            alarm.pending, alarm.withdrawn = "begin", False
            session.add(alarm)
        else:
            later.remove(alarm)
        alarm.raised, alarm.began, alarm.message = problem.raised, problem.began, problem.message
        _set_end(alarm, superseded if problem.ended is None else problem.ended)
        alarm.withdrawn = False
    for alarm in later:
        if "begin" in alarm.pending and alarm.acknowledged_at is None:
            session.delete(alarm)
        else:
            _set_end(alarm, alarm.began if alarm.ended is None else alarm.ended)
            alarm.withdrawn = True


def _pairs(problems: Iterable[Problem], alarms: list[Alarm]) -> list[tuple[Problem, Alarm | None]]:
    """Each problem with its alarm: the one raised by the same window, else one of the same time."""
    problems, left = list(problems), list(alarms)
    found: dict[int, Alarm] = {}
    for same in (_same_window, _same_time):
        for k, problem in enumerate(problems):
            alarm = None if k in found else next((a for a in left if same(problem, a)), None)
            if alarm is not None:
                found[k] = alarm
                left.remove(alarm)
    return [(problem, found.get(k)) for k, problem in enumerate(problems)]


def _same_window(problem: Problem, alarm: Alarm) -> bool:
    return alarm.rule == problem.rule and alarm.raised == problem.raised


def _same_time(problem: Problem, alarm: Alarm) -> bool:
    ends = (math.inf if end is None else end for end in (problem.ended, alarm.ended))
    return alarm.rule == problem.rule and max(problem.began, alarm.began) <= min(ends)


def _set_end(alarm: Alarm, ended: int | None) -> None:
    """End an alarm, or open it again, and note what has to be told."""
    if ended is not None and alarm.ended is None:
        alarm.pending = f"{alarm.pending} end".strip()
    elif ended is None and alarm.ended is not None:
        alarm.pending = alarm.pending.removesuffix("end").strip() if "end" in alarm.pending else "begin"
    alarm.ended = ended


def end_alarms(session: Session, models: Iterable[int], at: int, *clauses: Any) -> None:
    """End the open alarms of models, at the latest of this time and their beginning."""
    for alarm in session.scalars(select(Alarm).where(Alarm.model_id.in_(models), Alarm.ended.is_(None), *clauses)):
        _set_end(alarm, max(at, alarm.began))


def check_missing(session: Session, now: int) -> None:
    """Raise and end the alarms of models whose windows have stopped coming; one that never had a window counts too."""
    newest = (
        select(Series.model_id, func.max(Window.end).label("end"))
        .join(Window, Window.id == Series.last_window)
        .group_by(Series.model_id)
        .subquery()
    )
    found = session.execute(
        select(Model, func.coalesce(newest.c.end, Model.created_at))
        .outerjoin(newest, newest.c.model_id == Model.id)
        .where(Model.id.in_(current_models()))
    ).all()
    for model, end in found:
        finding = Rules.from_dict(model.rules).check_missing(model.name, end, now, model.every)
        if not finding.problem:
            end_alarms(session, [model.id], now, Alarm.rule == "missing")
            continue
        session.refresh(model, with_for_update=True)  # another process may look at the same time
        known = select(Alarm).where(Alarm.model_id == model.id, Alarm.rule == "missing", Alarm.raised == end)
        alarm = session.scalars(known).first()
        if alarm is None:
            alarm = Alarm(model_id=model.id, segment="", rule="missing", opened_at=now_micros(), pending="begin")
            alarm.raised, alarm.began, alarm.message, alarm.withdrawn = end, end, finding.message, False
            session.add(alarm)
        else:
            _set_end(alarm, None)
