"""The alarms that follow from windows: one alarm a problem, with a beginning and an end.

They are a function of a series of windows.

- The order in which windows arrive makes no difference: every window keeps the state of its series before it, and a
  window that comes late or is replaced has all windows from its place on followed again. Where these are many, the
  series waits (`Series.stale_since`) until `settle_series`, the next newest window, or more late ones.
- An alarm that is still there afterwards stays the same alarm, with who acknowledged it.
- An alarm that is not is deleted where nobody knows of it, and is otherwise withdrawn: it ends, and its end is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import bindparam, exists, func, null, select, update
from sqlalchemy.orm import Session, undefer

from gdscore.estimator import Estimate, EstimateWarning
from gdscore.monitor.reading import current_models, labelled_estimate
from gdscore.monitor.rules import Follower, Problem, Rules
from gdscore.monitor.schema import Alarm, Model, Series, Window, utc_now

__all__ = [
    "KEYS_AT_ONCE",
    "Known",
    "check_missing",
    "end_alarms",
    "follow_changed",
    "follow_series",
    "known_series",
    "mark_told",
    "pending_notices",
    "settle_series",
]

RECENT = 60
"""Estimates kept beside a series for the small chart of the overview."""
PATIENCE = 8
"""Windows that are followed again for each one that came late, at most and on average."""
KEYS_AT_ONCE = 500


class Known(NamedTuple):
    """Series of a model: by segment with the bounds of their newest windows, their number, whether windows missed."""

    series: dict[str, tuple[Series, tuple[datetime, datetime]]]
    total: int
    missing: bool

    def may_have(self, segment: str, start: datetime) -> bool:
        """Whether a window that starts then may be there: not where it starts after all others of its series."""
        return segment in self.series and start <= self.series[segment][1][0]


def follow_changed(session: Session, model: Model, known: Known, changed: Mapping[str, list[Window]]) -> None:
    """Follow series of which some windows are new, not added to the session yet, or have changed."""
    count = known.total + sum(segment not in known.series for segment in changed)
    newest: list[tuple[Series, list[Window], dict[str, Any]]] = []
    late: list[tuple[Series, datetime | None, list[Window]]] = []
    with session.no_autoflush:
        for segment, windows in changed.items():
            series, last = known.series.get(segment) or (_new_series(model, segment), None)
            windows.sort(key=lambda window: (window.start, window.end))
            new = [window for window in windows if window.id is None]
            session.add_all(new)
            has_last = last is None or last < (windows[-1].start, windows[-1].end)
            all_last = last is None or last[0] < windows[0].start
            if all_last and len(new) == len(windows) and series.stale_since is None:
                newest.append((series, windows, _follow_newest(session, model, series, windows, count)))
            else:
                series.windows += len(new)
                late.append((series, None if has_last or last is None else last[0], windows))
    session.flush()
    for series, windows, state in newest:  # after the flush, which tells the number of a window: one update a series
        series.windows += len(windows)
        series.recent = [*series.recent, *(round(window.accuracy, 5) for window in windows)][-RECENT:]
        series.state, series.last_window = state, windows[-1].id
        session.add(series)
    if newest and known.missing:
        last_start = max(windows[-1].start for _, windows, _ in newest)
        end_alarms(session, [model.id], last_start, "a window came", Alarm.rule == "missing")
    for series, last_one, windows in late:
        _follow_late(session, model, series, windows, last_one)


_SERIES = (
    select(
        *(Series, Window.start, Window.end),
        select(func.count()).where(Series.model_id == bindparam("model")).scalar_subquery(),
        exists().where(Alarm.model_id == bindparam("model"), Alarm.ended.is_(None), Alarm.rule == "missing"),
    )
    .select_from(Model)
    .outerjoin(Series, (Series.model_id == Model.id) & Series.segment.in_(bindparam("segments", expanding=True)))
    .outerjoin(Window, Window.id == Series.last_window)
    .where(Model.id == bindparam("model"))
    .options(undefer(Series.state))
)


def known_series(session: Session, model: Model, segments: Sequence[str]) -> Known:
    """What the history has of these segments of a model."""
    found: dict[str, tuple[Series, tuple[datetime, datetime]]] = {}
    total, missed = 0, False
    for first in range(0, len(segments), KEYS_AT_ONCE):
        chosen = {"model": model.id, "segments": segments[first : first + KEYS_AT_ONCE]}
        for series, start, end, total, missed in session.execute(_SERIES, chosen):  # noqa: B007
            if series is not None:
                found[series.segment] = series, (start, end)
    return Known(found, total, missed)


def _new_series(model: Model, segment: str) -> Series:
    return Series(model_id=model.id, segment=segment, windows=0, last_window=0, recent=[], state={}, late=0)


def _follow_newest(
    session: Session, model: Model, series: Series, windows: Sequence[Window], count: int
) -> dict[str, Any]:
    """Follow windows that come after all others of their series; returns the state after them."""
    follower = _follower(model, series.segment, series.state, count)
    for window in windows:
        window.before = follower.state
        _take(follower, window)
    follower.finish()
    if follower.begun or follower.carried:
        _store_alarms(session, model, series.segment, windows[0].start, follower)
    return follower.state


def _follow_late(
    session: Session, model: Model, series: Series, windows: Sequence[Window], last: datetime | None
) -> None:
    """Follow a series from the first of some changed windows on, or, where that takes long, note that it has to be.

    ``last`` is the start of the newest window, None where that is one of the changed ones. Following waits until as
    many windows have come late as pay for it, so that a history filled in any order takes time proportional to it.
    """
    since = min(windows[0].start, series.stale_since or windows[0].start)
    series.late += len(windows)
    if last is not None and min((last - since) / model.every.length, series.windows) > PATIENCE * series.late:
        series.stale_since = since
    else:
        follow_series(session, model, series.segment, since)


def settle_series(session: Session, model: Model, segment: str) -> None:
    """Follow a series whose late windows have waited."""
    series = session.get(Series, (model.id, segment))
    if series is not None and series.stale_since is not None:
        follow_series(session, model, segment, series.stale_since)


def _follower(model: Model, segment: str, state: dict[str, Any], count: int) -> Follower:
    return Follower(
        Rules.from_dict(model.rules),
        state,
        f"{model.name} ({segment})" if segment else model.name,
        every=model.every,
        series=count,
        reference_rows=model.reference_rows,
        learn_from=model.learn_from,
    )


def _take(follower: Follower, window: Any) -> None:
    """Take in a window, or a row of its columns."""
    warnings = [EstimateWarning(**found) for found in window.warnings]
    numbers = window.accuracy, window.low, window.high, window.level, window.rows, window.reference_accuracy
    labelled = None if window.labelled is None else labelled_estimate(*numbers, window.labelled, window.correct)
    follower.take(Estimate(*numbers, warnings=warnings, scores=window.scores), window.start, labelled)


def follow_series(session: Session, model: Model, segment: str, since: datetime) -> None:
    """Follow the windows that start at this time or later, as one of them is new or has changed."""
    series = session.get_one(Series, (model.id, segment))
    since = min(since, series.stale_since or since)
    mine = (Window.model_id == model.id, Window.segment == segment)
    followed = session.execute(
        select(
            *(Window.id, Window.start, Window.rows, Window.accuracy, Window.low, Window.high),
            *(Window.level, Window.reference_accuracy, Window.warnings, Window.scores, Window.labelled, Window.correct),
            select(func.count()).where(Series.model_id == model.id).scalar_subquery().label("series"),
            Window.before.is_(null()).label("new"),
        )
        .where(*mine, Window.start >= since)
        .order_by(Window.start, Window.end)
    ).all()
    # A new window has no state of its own; the one after it knows how things were before both.
    known = select(Window.before).where(*mine, Window.start >= since, Window.before.is_not(null()))
    before = session.scalars(known.order_by(Window.start, Window.end).limit(1)).first()
    before = series.state if before is None else before
    follower = _follower(model, segment, before, followed[0].series if followed else 1)
    states = []
    for w in followed:
        states.append({"id": w.id, "before": follower.state})
        _take(follower, w)
    follower.finish()
    _store_alarms(session, model, segment, since, follower)
    series.state, series.stale_since, series.late = follower.state, None, 0
    if not followed:
        return
    session.execute(update(Window), states)
    if series.last_window != followed[-1].id:
        end_alarms(session, [model.id], followed[-1].start, "a window came", Alarm.rule == "missing")
    earlier = series.recent[: max(len(series.recent) - sum(not w.new for w in followed), 0)]
    series.recent = [*earlier, *(round(w.accuracy, 5) for w in followed)][-RECENT:]
    series.last_window = followed[-1].id


def _store_alarms(session: Session, model: Model, segment: str, since: datetime, follower: Follower) -> None:
    """Make the alarms of a series those that its follower found from a time on."""
    stored = session.scalars(
        select(Alarm)
        .where(Alarm.model_id == model.id, Alarm.segment == segment, Alarm.rule != "missing")
        .order_by(Alarm.raised.desc())
    ).all()
    if not (stored or follower.begun):
        return
    superseded = session.scalars(
        select(func.min(Model.current_since)).where(Model.name == model.name, Model.current_since > model.current_since)
    ).one()
    later = [alarm for alarm in stored if alarm.raised >= since]
    for rule, problem in follower.carried.items():  # the newest of those raised before is the one that was open
        open_before = (a for a in stored if a.rule == rule and a.raised < since and not a.withdrawn)
        if (alarm := next(open_before, None)) is not None:  # retention may have deleted it
            _set_state(alarm, problem, superseded)
    for problem, alarm in _pairs(follower.begun, later):
        if alarm is None:
            alarm = Alarm(model_id=model.id, segment=segment, rule=problem.rule, opened_at=utc_now())
            alarm.pending, alarm.withdrawn = "begin", False
            session.add(alarm)
        else:
            later.remove(alarm)
        alarm.raised, alarm.began, alarm.message = problem.raised, problem.began, problem.message
        alarm.level, alarm.value, alarm.withdrawn = problem.level, problem.value, False
        _set_state(alarm, problem, superseded)
    for alarm in later:
        if "begin" in alarm.pending and alarm.acknowledged_at is None:
            session.delete(alarm)
        else:
            _set_end(alarm, alarm.began if alarm.ended is None else alarm.ended, "withdrawn")
            alarm.withdrawn = True


def _set_state(alarm: Alarm, problem: Problem, superseded: datetime | None) -> None:
    """What became of an alarm; those of an older version ended when the newer one was registered."""
    alarm.latest = alarm.latest if problem.latest is None else problem.latest
    _set_end(alarm, superseded if problem.ended is None else problem.ended, problem.reason or "new version")


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
    ends = [end for end in (problem.ended, alarm.ended) if end is not None]
    return alarm.rule == problem.rule and max(problem.began, alarm.began) <= min(ends, default=utc_now())


def _set_end(alarm: Alarm, ended: datetime | None, reason: str | None = None) -> None:
    """End an alarm, never before it began, or open it again, and note what has to be told."""
    ended = None if ended is None else max(ended, alarm.began)
    if ended is not None and alarm.ended is None:
        alarm.pending = f"{alarm.pending} end".strip()
    elif ended is None and alarm.ended is not None:
        alarm.pending = alarm.pending.removesuffix("end").strip() if "end" in alarm.pending else "begin"
    alarm.ended, alarm.end_reason = ended, None if ended is None else reason or alarm.end_reason


def end_alarms(session: Session, models: Iterable[int], at: datetime, reason: str, *clauses: Any) -> None:
    """End the open alarms of models, at the latest of this time and their beginning."""
    for alarm in session.scalars(select(Alarm).where(Alarm.model_id.in_(models), Alarm.ended.is_(None), *clauses)):
        _set_end(alarm, max(at, alarm.began), reason)


def check_missing(session: Session, clock: datetime) -> None:
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
        finding = Rules.from_dict(model.rules).check_missing(model.name, end, clock, model.every.length)
        if not finding.problem:
            end_alarms(session, [model.id], clock, "rule changed", Alarm.rule == "missing")
            continue
        session.refresh(model, with_for_update=True)  # another process may look at the same time
        known = select(Alarm).where(Alarm.model_id == model.id, Alarm.rule == "missing", Alarm.raised == end)
        alarm = session.scalars(known).first()
        if alarm is None:
            alarm = Alarm(model_id=model.id, segment="", rule="missing", opened_at=utc_now(), pending="begin")
            alarm.raised, alarm.began, alarm.message, alarm.withdrawn = end, end, finding.message, False
            session.add(alarm)
        else:
            _set_end(alarm, None)


def pending_notices(session: Session) -> list[tuple[int, str, dict[str, Any]]]:
    """Alarms of which something has to be told, by model and segment: number, what, and the alarm as plain data."""
    query = select(Alarm, Model).join(Model, Model.id == Alarm.model_id).where(Alarm.pending != "")
    rows = session.execute(query.order_by(Model.name, Alarm.segment, Alarm.id))
    return [(alarm.id, alarm.pending, alarm.to_dict(model)) for alarm, model in rows]


def mark_told(session: Session, told: Mapping[int, str]) -> None:
    """Note that all targets have these notices of alarms, by number, unless more has to be told since."""
    for alarm, pending in told.items():
        session.execute(update(Alarm).where(Alarm.id == alarm, Alarm.pending == pending).values(pending=""))
