"""The alarms that follow from windows: one alarm a problem, with a beginning and an end, and its notices.

They are a function of a series of windows.

- The order in which windows arrive makes no difference: the newest window goes on from the state of its series, and
  where one comes late, is replaced or is deleted, the series is followed again from its beginning. Each window is
  judged by the rules of the time at which it came, so that changed rules change no past alarm.
- An alarm that is still there afterwards stays the same alarm, with who acknowledged it.
- An alarm that is not is deleted where nobody knows of it, and is otherwise withdrawn: it ends, and its end is told.
- Alarms of a version end when another one is registered, and are open again where it is registered again.
- What has to be told is written with the alarm, for each target that is known then (`queue_notices`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import bindparam, delete, exists, func, insert, or_, select, update
from sqlalchemy.orm import Session, aliased, undefer

from gdscore._alarms import Status
from gdscore._windows import parse_every
from gdscore.estimator import Estimate, EstimateWarning, Quantity
from gdscore.monitor.database import utc_now
from gdscore.monitor.notify import Due
from gdscore.monitor.queries import ESTIMATED, alarm_facts, current_models, labelled_estimate
from gdscore.monitor.rules import LEARNED, Follower, Judgement, RaisedAlarm, Rules
from gdscore.monitor.schema import Alarm, Model, Notice, RulesChange, Series, Target, Window

if TYPE_CHECKING:
    from gdscore.monitor.history import Monitor

RECENT = 60
"""Estimates kept beside a series for the small chart of the overview."""
ARRIVALS = 200
"""Newest windows of a model whose times of arrival tell how often windows come."""
FORGET_TARGET = timedelta(days=7)
"""A target that no process has sent to for so long is forgotten, with its notices."""
RETRY, LONGEST_RETRY = timedelta(seconds=5), timedelta(hours=1)
"""Pause of a notice and of its target after the first failure; each next one is four times as long."""
GIVE_UP = timedelta(days=7)
"""A notice that could not be sent for so long is given up."""
MICROSECOND = timedelta(microseconds=1)
NEW_VERSION, RETIRED = "new version", "retired"


class Known(NamedTuple):
    """Series of a model: by segment with the bounds of their newest windows, their number, whether windows missed.

    A series has no newest window where retention and a person have deleted all of them.
    """

    series: dict[str, tuple[Series, tuple[datetime, datetime] | None]]
    total: int
    missing: bool

    def may_have(self, segment: str, start: datetime) -> bool:
        """Whether a window that starts then may be there: not where it starts after all others of its series."""
        _, newest = self.series.get(segment, (None, None))
        return newest is not None and start <= newest[0]


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
    """What the history has of these segments of a model, which are as many as are stored at once."""
    rows = session.execute(_SERIES, {"model": model.id, "segments": segments}).all()
    by_segment = {
        series.segment: (series, None if start is None else (start, end))
        for series, start, end, _, _ in rows
        if series is not None
    }
    total, missing = rows[0][3:] if rows else (0, False)  # somebody may have deleted the model
    return Known(by_segment, total, missing)


# -- following ------------------------------------------------------------------------------------------------


def follow_changed(session: Session, model: Model, stored: Known, changed: Mapping[str, list[Window]]) -> None:
    """Follow series of which some windows are new, not added to the session yet, or have changed."""
    count = stored.total + sum(segment not in stored.series for segment in changed)
    judgement = Judgement(Rules.from_dict(model.rules), count, model.reference_rows, model.learn_from)
    newest: list[tuple[Series, list[Window], dict[str, Any]]] = []
    late: list[str] = []
    began = False
    with session.no_autoflush:
        for segment, windows in changed.items():
            series, last = stored.series.get(segment) or (_new_series(model, segment), None)
            windows.sort(key=lambda window: (window.start, window.end))
            new = [window for window in windows if window.id is None]
            for window in new:
                window.rules_change, window.n_series = model.rules_change, count
            session.add_all(new)
            began = began or last is None or last < (windows[-1].start, windows[-1].end)
            if len(new) == len(windows) and (last is None or last[0] < windows[0].start):
                newest.append((series, windows, _follow_newest(session, model, judgement, series, windows)))
            else:
                late.append(segment)
    session.flush()
    for series, windows, state in newest:  # after the flush, which tells the number of a window: one update a series
        series.windows += len(windows)
        series.recent = [*series.recent, *(round(window.accuracy, 5) for window in windows)][-RECENT:]
        series.state, series.last_window = state, windows[-1].id
        session.add(series)
    if began and stored.missing:
        last_start = max(window.start for windows in changed.values() for window in windows)
        end_alarms(session, [model.id], last_start, "a window came", Alarm.rule == "missing")
    for segment in late:
        follow_again(session, model, segment)


def _new_series(model: Model, segment: str) -> Series:
    return Series(model_id=model.id, segment=segment, windows=0, last_window=0, recent=[], state={}, origin=None)


def _follow_newest(
    session: Session, model: Model, judgement: Judgement, series: Series, windows: Sequence[Window]
) -> dict[str, Any]:
    """Follow windows that come after all others of their series; returns the state after them."""
    follower = _follower(model, series.segment, judgement, series.state)
    for window in windows:
        _take(follower, window)
    follower.finish()
    if follower.raised or follower.carried:
        _store_alarms(session, model, series.segment, windows[0].start - MICROSECOND, follower)
    return follower.state


def _follower(model: Model, segment: str, judgement: Judgement, state: dict[str, Any] | None) -> Follower:
    title = f"{model.name} ({segment})" if segment else model.name
    return Follower(judgement, state or {}, title, every=model.every, segment=segment)


def _take(follower: Follower, window: Any) -> None:
    """Take in a window, or a row of its columns."""
    warnings = [EstimateWarning(**facts) for facts in window.warnings]
    numbers = window.accuracy, window.low, window.high, window.level, window.rows, window.reference_accuracy
    labelled = None if window.labelled is None else labelled_estimate(window)
    estimate = Estimate(*numbers, warnings=warnings, label_free=Quantity(window.label_free))
    follower.take(estimate, window.start, labelled, window.measures)


_FOLLOWED = select(*(Window.id, Window.start, Window.end, Window.warnings, Window.measures), *ESTIMATED)
_FOLLOWED = _FOLLOWED.add_columns(Window.rules_change, Window.n_series)


def _replay(
    session: Session, model: Model, series: Series, judgement: Judgement, *clauses: Any
) -> tuple[Sequence[Any], Follower]:
    """Follow windows of a series anew in the order of time, each judged by what was set when it came."""
    mine = (Window.model_id == model.id, Window.segment == series.segment, *clauses)
    windows = session.execute(_FOLLOWED.where(*mine).order_by(Window.start, Window.end)).all()
    wanted = {window.rules_change for window in windows}
    changes = {
        change.id: (Rules.from_dict(change.rules), change.reference_rows, change.learn_from)
        for change in session.scalars(select(RulesChange).where(RulesChange.id.in_(wanted)))
    }
    follower = _follower(model, series.segment, judgement, series.origin)
    for (change, n_series), together in itertools.groupby(windows, key=attrgetter("rules_change", "n_series")):
        rules, reference_rows, learn_from = changes[change]
        follower.judge_by(Judgement(rules, n_series, reference_rows, learn_from))
        for window in together:
            _take(follower, window)
    return windows, follower


def follow_again(session: Session, model: Model, segment: str) -> None:
    """Follow all windows of a series, as one of them is late, has changed or is gone."""
    session.flush()
    stored = session.get(Series, (model.id, segment))
    series = stored or _new_series(model, segment)
    count = session.scalars(select(func.count()).where(Series.model_id == model.id)).one()
    judgement = Judgement(Rules.from_dict(model.rules), max(count, 1), model.reference_rows, model.learn_from)
    windows, follower = _replay(session, model, series, judgement)
    follower.judge_by(judgement)
    follower.finish()
    _store_alarms(session, model, segment, _pruned_to(series), follower)
    if not windows and series.origin is None:
        if stored is not None:
            session.delete(stored)
        return
    series.state, series.windows = follower.state, len(windows)
    series.recent = [round(w.accuracy, 5) for w in windows[-RECENT:]]
    series.last_window = windows[-1].id if windows else 0
    session.add(series)


def prune_series(session: Session, model: Model, segment: str, limit: datetime) -> int:
    """Delete windows of a series that ended before a time, but for the newest; returns how many.

    The state after them stays, so that the alarms of the others are the same when they are followed again.
    """
    series = session.get_one(Series, (model.id, segment))
    old = (Window.end < limit, Window.id != series.last_window)
    windows, follower = _replay(session, model, series, Judgement(Rules.from_dict(model.rules), 1, 1), *old)
    mine = delete(Window).where(Window.model_id == model.id, Window.segment == segment, *old)
    session.execute(mine.execution_options(synchronize_session=False))
    if windows:
        last = max(windows[-1].start, _pruned_to(series) or windows[-1].start)
        series.origin = follower.state | {_PRUNED_TO: last.isoformat()}
    series.windows -= len(windows)
    return len(windows)


_PRUNED_TO = "pruned_to"


def _pruned_to(series: Series) -> datetime | None:
    """Start of the newest window that retention has deleted; None where it has deleted none."""
    return None if series.origin is None else datetime.fromisoformat(series.origin[_PRUNED_TO])


def prune_alarms(session: Session, model: Model, limit: datetime) -> None:
    """Delete alarms of a model that ended before a time.

    One that goes on where a window that is there has its problem stays: it is open in the state after the deleted ones.
    """
    ended = session.execute(
        select(Alarm, Series)
        .outerjoin(Series, (Series.model_id == Alarm.model_id) & (Series.segment == Alarm.segment))
        .where(Alarm.model_id == model.id, Alarm.ended < limit)
        .options(undefer(Series.origin))
        .order_by(Alarm.raised.desc())
    ).all()
    for alarm, series in ended:
        if series is not None and alarm.rule != "missing":
            until = _pruned_to(series)
            if until is None or alarm.raised > until:
                continue
            mine = (Alarm.model_id == model.id, Alarm.segment == alarm.segment, Alarm.rule == alarm.rule)
            later = select(Alarm.id).where(*mine, Alarm.raised > alarm.raised, Alarm.raised <= until, ~Alarm.withdrawn)
            newest = not alarm.withdrawn and session.scalars(later.limit(1)).first() is None
            if newest and series.origin is not None and alarm.rule in series.origin["open"]:
                continue
        session.delete(alarm)


def touch_windows(session: Session, model: Model, since: datetime) -> None:
    """Judge the windows from a time on by the newest rules."""
    session.execute(
        update(Window)
        .where(Window.model_id == model.id, Window.start >= since)
        .values(rules_change=model.rules_change)
        .execution_options(synchronize_session=False)
    )


# -- alarms ---------------------------------------------------------------------------------------------------


def _store_alarms(session: Session, model: Model, segment: str, after: datetime | None, follower: Follower) -> None:
    """Make the alarms of a series those that its follower has raised after a time; None is all time."""
    stored = session.scalars(
        select(Alarm)
        .where(Alarm.model_id == model.id, Alarm.segment == segment, Alarm.rule != "missing")
        .order_by(Alarm.raised.desc())
    ).all()
    if not (stored or follower.raised):
        return
    later = [alarm for alarm in stored if after is None or alarm.raised > after]
    for rule, carried in follower.carried.items():  # the newest of those raised before is the one that was open
        open_before = (a for a in stored if a.rule == rule and a not in later and not a.withdrawn)
        if (alarm := next(open_before, None)) is not None:  # retention may have deleted it
            _set_state(session, model, alarm, carried)
    for raised, alarm in _pairs(follower.raised, later):
        if alarm is None:
            alarm = Alarm(model_id=model.id, segment=segment, rule=raised.rule, opened_at=utc_now(), withdrawn=False)
            alarm.began = raised.began
            session.add(alarm)
            _tell(session, alarm, "begin")
        else:
            later.remove(alarm)
        alarm.raised, alarm.began, alarm.message = raised.raised, raised.began, raised.message
        alarm.level, alarm.value, alarm.withdrawn = raised.level, raised.value, False
        _set_state(session, model, alarm, raised)
    for alarm in later:
        sent = select(Notice.id).where(Notice.alarm_id == alarm.id, Notice.attempts > 0).limit(1)
        if alarm.acknowledged_at is None and session.scalars(sent).first() is None:
            session.delete(alarm)
        elif not alarm.withdrawn:
            _set_end(session, alarm, alarm.began if alarm.ended is None else alarm.ended, "withdrawn")
            alarm.withdrawn = True
    session.flush()  # one that is raised by the window of a deleted one has its key


def _set_state(session: Session, model: Model, alarm: Alarm, raised: RaisedAlarm) -> None:
    """What became of an alarm; those of an older version ended when the newer one was registered."""
    alarm.latest = alarm.latest if raised.latest is None else raised.latest
    ended, reason = raised.ended, raised.reason
    if ended is None and (model.retired_at or model.superseded_at) is not None:
        ended = model.retired_at or model.superseded_at
        reason = RETIRED if model.retired_at else NEW_VERSION
    _set_end(session, alarm, ended, reason)


def _pairs(raised: Iterable[RaisedAlarm], alarms: list[Alarm]) -> list[tuple[RaisedAlarm, Alarm | None]]:
    """Each alarm that was raised with the one that is stored: the one of the same window, else one of the same time."""
    raised, left = list(raised), list(alarms)
    stored: dict[int, Alarm] = {}
    for same in (_same_window, _same_time):
        for k, one in enumerate(raised):
            alarm = None if k in stored else next((a for a in left if same(one, a)), None)
            if alarm is not None:
                stored[k] = alarm
                left.remove(alarm)
    return [(one, stored.get(k)) for k, one in enumerate(raised)]


def _same_window(raised: RaisedAlarm, alarm: Alarm) -> bool:
    return alarm.rule == raised.rule and alarm.raised == raised.raised


def _same_time(raised: RaisedAlarm, alarm: Alarm) -> bool:
    ends = [end for end in (raised.ended, alarm.ended) if end is not None]
    return alarm.rule == raised.rule and max(raised.began, alarm.began) <= min(ends, default=utc_now())


def _set_end(session: Session, alarm: Alarm, ended: datetime | None, reason: str | None = None) -> None:
    """End an alarm, never before it began, or open it again, and note what has to be told."""
    ended = None if ended is None else max(ended, alarm.began)
    if ended is not None and alarm.ended is None:
        _tell(session, alarm, "end")
    elif ended is None and alarm.ended is not None:
        _tell(session, alarm, "begin")
    alarm.ended, alarm.end_reason = ended, None if ended is None else reason or alarm.end_reason


def end_alarms(session: Session, models: Iterable[int], at: datetime, reason: str, *clauses: Any) -> None:
    """End the open alarms of models, at the latest of this time and their beginning."""
    for alarm in session.scalars(select(Alarm).where(Alarm.model_id.in_(models), Alarm.ended.is_(None), *clauses)):
        _set_end(session, alarm, at, reason)


def reopen_alarms(session: Session, model: Model) -> None:
    """Open the alarms again that had ended only as the model was not the current one."""
    mine = (Alarm.model_id == model.id, Alarm.end_reason.in_((NEW_VERSION, RETIRED)), Alarm.rule != "missing")
    for segment in session.scalars(select(Alarm.segment).where(*mine).distinct()).all():
        follow_again(session, model, segment)


def check_missing(session: Session, clock: datetime) -> None:
    """Raise and end the alarms of models whose windows have stopped coming; one that never had a window counts too."""
    newest = (
        select(Series.model_id, func.max(Window.end).label("end"))
        .join(Window, Window.id == Series.last_window)
        .group_by(Series.model_id)
        .subquery()
    )
    models = session.execute(
        select(Model, newest.c.end)
        .outerjoin(newest, newest.c.model_id == Model.id)
        .where(Model.id.in_(current_models()))
        .order_by(Model.id)
    ).all()
    for model, newest_end in models:
        end = model.current_since if newest_end is None else newest_end
        if model.current_since > model.created_at:  # registered again: it waits for a window from then on
            end = max(end, model.current_since)
        rules = Rules.from_dict(model.rules)
        arrivals: Sequence[datetime] = ()
        if rules.missing_after == LEARNED:
            came = select(Window.created_at).where(Window.model_id == model.id)
            arrivals = session.scalars(came.order_by(Window.start.desc()).limit(ARRIVALS)).all()
        check = rules.check_missing(model.name, end, clock, model.every.length, arrivals)
        if check.status is not Status.ALARM:
            end_alarms(session, [model.id], clock, "rule changed", Alarm.rule == "missing")
            continue
        session.refresh(model, with_for_update=True)  # another process may look at the same time
        raised_before = select(Alarm).where(Alarm.model_id == model.id, Alarm.rule == "missing", Alarm.raised == end)
        alarm = session.scalars(raised_before).first()
        if alarm is None:
            alarm = Alarm(model_id=model.id, segment="", rule="missing", opened_at=utc_now(), withdrawn=False)
            alarm.raised, alarm.began, alarm.message = end, end, check.reason
            session.add(alarm)
            _tell(session, alarm, "begin")
        else:
            _set_end(session, alarm, None)


# -- notices --------------------------------------------------------------------------------------------------

_EVENTS = "gdscore alarm events"


def _tell(session: Session, alarm: Alarm, kind: str) -> None:
    session.info.setdefault(_EVENTS, []).append((alarm, kind))


def queue_notices(session: Session) -> bool:
    """Write the notices of what has happened in this transaction, for the known targets; whether there are any.

    An end is told to those that were told of the beginning. An alarm whose end nobody was told of yet goes on.
    """
    events = session.info.pop(_EVENTS, [])
    if not events:
        return False
    session.flush()
    clock = utc_now()
    targets = session.scalars(select(Target.id).where(Target.seen_at > clock - FORGET_TARGET)).all()
    queued: list[dict[str, Any]] = []
    within: dict[int, timedelta | None] = {}
    for alarm, kind in events:
        if not targets or alarm not in session:  # deleted in the same transaction
            continue
        before = session.execute(
            select(Notice.target_id, Notice.kind, Notice.attempts, Notice.id)
            .where(Notice.alarm_id == alarm.id)
            .order_by(Notice.id)
        ).all()
        mine = [(n.target_id, n.kind) for n in before]
        mine += [(n["target_id"], n["kind"]) for n in queued if n["alarm_id"] == alarm.id]
        last = dict(mine)
        if kind == "begin":
            untold = [n.id for n in before if n.kind == "end" and n.attempts == 0]
            if untold:
                session.execute(delete(Notice).where(Notice.id.in_(untold)))
                last |= {n.target_id: "begin" for n in before if n.id in untold}
            if not last and not _is_recent(session, alarm, within, clock):
                continue
            tell = [target for target in targets if last.get(target) != "begin" and (not mine or target in last)]
        else:
            tell = [target for target in targets if last.get(target) == "begin"]
        queued += [
            {"alarm_id": alarm.id, "target_id": target, "kind": kind, "created_at": clock, "next_try": clock}
            | {"attempts": 0}
            for target in tell
        ]
    if queued:
        session.execute(insert(Notice), queued)
    return bool(queued)


def _is_recent(session: Session, alarm: Alarm, within: dict[int, timedelta | None], clock: datetime) -> bool:
    """Whether the window that raised an alarm ended so lately that it is told."""
    if alarm.rule == "missing":
        return True
    if alarm.model_id not in within:
        length = Rules.from_dict(session.get_one(Model, alarm.model_id).rules).notify_within
        within[alarm.model_id] = None if length is None else parse_every(length).length
    longest = within[alarm.model_id]
    if longest is None:
        return True
    mine = (Window.model_id == alarm.model_id, Window.segment == alarm.segment, Window.start == alarm.raised)
    end = session.scalars(select(func.max(Window.end)).where(*mine)).one()
    return clock - (end or alarm.raised) <= longest


class Outbox:
    """The notices of a history, for those that send them."""

    def __init__(self, history: Monitor) -> None:
        self.history = history

    def register_targets(self, targets: Mapping[str, str]) -> dict[str, int]:
        """Numbers of targets, by digest; ``targets`` has their names. What has happened is not told to new ones."""
        clock = utc_now()
        mine = select(Target).where(Target.digest.in_(targets)).with_for_update()
        with self.history.writing() as session:
            session.execute(delete(Target).where(Target.seen_at < clock - FORGET_TARGET))
            by_digest = {target.digest: target for target in session.scalars(mine)}
            for digest, name in targets.items():
                if digest not in by_digest:
                    by_digest[digest] = Target(digest=digest, name=name)
                    session.add(by_digest[digest])
                by_digest[digest].seen_at = clock
            session.flush()
            return {digest: target.id for digest, target in by_digest.items()}

    def lease(self, target: int, sender: str, seconds: float) -> bool:
        """Let one process send to a target for so long; 0 gives it back. Whether this process may."""
        clock = utc_now()
        free = or_(Target.sender == sender, Target.leased_until.is_(None), Target.leased_until < clock)
        until = clock + timedelta(seconds=seconds) if seconds else None
        lease = update(Target).where(Target.id == target, free)
        lease = lease.values(sender=sender, leased_until=until, seen_at=clock)
        with self.history.writing() as session:
            taken = session.execute(lease.execution_options(synchronize_session=False))
            return bool(taken.rowcount)  # type: ignore[attr-defined]

    def due(self, target: int) -> Due | None:
        """The next notices of a target; the end of an alarm waits for its beginning, and what has failed for the rest.

        They have links where the address of the pages is known.
        """
        clock = utc_now()
        first = aliased(Notice)
        same = (first.alarm_id == Notice.alarm_id, first.target_id == target, first.id < Notice.id)
        due = (
            Notice.target_id == target,
            Notice.next_try <= clock,
            ~exists().where(*same, first.next_try.is_not(None)),
        )
        ready = or_(Target.waits_until.is_(None), Target.waits_until <= clock)
        notices = select(Notice, Alarm, Model).join(Alarm, Alarm.id == Notice.alarm_id)
        notices = notices.join(Model, Model.id == Alarm.model_id).where(*due)
        with self.history.reading() as session:
            newest = notices.join(Target, Target.id == Notice.target_id).where(ready)
            head = session.execute(newest.order_by(Notice.attempts, Notice.id).limit(1)).first()
            if head is None:
                return None
            kind, name = head[0].kind, head[2].name
            together = notices.where(Model.name == name, Notice.kind == kind).order_by(Alarm.segment, Alarm.id)
            rows = session.execute(together).all()
            facts = [alarm_facts(alarm, model) for _, alarm, model in rows]
            numbers = [notice.id for notice, _, _ in rows]
        for alarm in facts if self.history.public_url is not None else ():
            alarm["link"] = f"{self.history.public_url}/alarms/{alarm['id']}"
        return Due(kind, numbers, facts)

    def note_attempt(self, due: Due) -> None:
        """That notices are being sent now: from here on somebody may know of them."""
        attempt = update(Notice).where(Notice.id.in_(due.numbers)).values(attempts=Notice.attempts + 1)
        with self.history.writing() as session:
            session.execute(attempt.execution_options(synchronize_session=False))

    def note_result(self, target: int, due: Due, error: str | None) -> None:
        """That notices were sent, or why not: they are tried again later, and the target gets nothing for a while."""
        clock, mine = utc_now(), Notice.id.in_(due.numbers)
        with self.history.writing() as session:
            to = session.get(Target, target)
            if to is None:  # forgotten meanwhile, and its notices with it
                return
            if error is None:
                to.failures, to.waits_until = 0, None
                values: dict[str, Any] = {"next_try": None, "error": None, "sent_at": clock}
            else:
                to.failures += 1
                to.waits_until = clock + _pause(to.failures)
                attempts = session.scalars(select(func.max(Notice.attempts)).where(mine)).one() or 1
                values = {"next_try": clock + _pause(attempts), "error": error[:500]}
            session.execute(update(Notice).where(mine).values(**values).execution_options(synchronize_session=False))
            if error is not None:
                old = (Notice.target_id == target, Notice.next_try.is_not(None), Notice.created_at < clock - GIVE_UP)
                given_up = update(Notice).where(*old).values(next_try=None)
                session.execute(given_up.execution_options(synchronize_session=False))

    def seconds_to_next(self, target: int) -> float | None:
        """Seconds until a notice of a target is due; None where none waits."""
        waiting = select(func.min(Notice.next_try), func.max(Target.waits_until))
        waiting = waiting.join(Target, Target.id == Notice.target_id)
        with self.history.reading() as session:
            waiting = waiting.where(Notice.target_id == target, Notice.next_try.is_not(None))
            due, waits_until = session.execute(waiting).one()
        if due is None:
            return None
        return float((max(due, waits_until or due) - utc_now()).total_seconds())

    def disconnect(self) -> None:
        """Close the connections, as a thread has ended after the history was closed."""
        self.history.disconnect()


def _pause(failures: int) -> timedelta:
    return min(RETRY * int(4 ** min(failures - 1, 10)), LONGEST_RETRY)
