"""Questions to the history: windows, series of at most so many points, the overview, how good estimates were.

Charts are made of at most so many points whatever the length of the series: the database puts windows together, and a
point keeps the lowest and the highest of them, so that no single bad window is averaged away.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Float,
    Select,
    bindparam,
    case,
    cast,
    exists,
    func,
    select,
    type_coerce,
)
from sqlalchemy.orm import Session, aliased, undefer

from gdscore._format import percent
from gdscore._windows import as_time
from gdscore.errors import GdscoreError, nearest
from gdscore.estimator import Quantity
from gdscore.estimator.estimate import sampling_error
from gdscore.labeling import LabelledEstimate
from gdscore.monitor.database import shown_length, shown_time, utc_now
from gdscore.monitor.rules import Rules, contradicts
from gdscore.monitor.schema import Alarm, Base, Model, Notice, RulesChange, Series, Target, Window
from gdscore.monitor.sequential import WARM_UP, SequentialTest

MOST_CHANGES = 100
FILLED_IN = timedelta(days=7)
"""An alarm that was found so long after it began is one of windows that were filled in."""
SHORTEST_GAP = 0.75
"""Lengths of a window without one that a chart shows as a gap."""
MOST_LABELLED = 1000
"""Labelled windows that are compared with their estimates, the newest."""
NEWEST_LABELLED = 30
"""The same for Prometheus."""
ESTIMATED = (
    *(Window.rows, Window.accuracy, Window.low, Window.high, Window.level, Window.reference_accuracy),
    *(Window.label_free, Window.last_known, Window.labelled, Window.correct),
)
"""Columns of an estimate, and of the labels that came for it."""


class NotFoundError(GdscoreError):
    """There is no such model, window or alarm."""


def current_models() -> Select[Any]:
    """Numbers of the versions that windows go to, of models that are watched."""
    return select(Model.id).where(Model.superseded_at.is_(None), Model.retired_at.is_(None))


# Statements of every post are made once: to make them takes as long as to run them.
_NAMED = select(Model).where(Model.name == bindparam("name"))
_CURRENT = _NAMED.where(Model.superseded_at.is_(None))
_OF_VERSION = _NAMED.where(Model.version == bindparam("version"))


def find_model(session: Session, name: str, version: str | None = None) -> Model:
    """A model, of the version that windows go to where none is given."""
    asked = {"name": str(name)} if version is None else {"name": str(name), "version": version}
    model = session.scalars(_CURRENT if version is None else _OF_VERSION, asked).first()
    if model is None:
        hint = nearest(str(version)[:60], [one.version for one in versions_of(session, str(name))])
        raise NotFoundError(f"Unknown version {str(version)[:60]!r} of the model {name!r}: {hint}")
    return model


def versions_of(session: Session, name: str) -> list[Model]:
    """Versions of a model in the order in which they became the current one, which is the last."""
    order = (Model.superseded_at.is_(None), Model.current_since, Model.id)
    versions = list(session.scalars(select(Model).where(Model.name == name).order_by(*order)))
    if not versions:
        names = session.scalars(select(Model.name).distinct().limit(1000)).all()
        hint = nearest(name[:60], names) if names else "no model is registered: register it first"
        raise NotFoundError(f"Unknown model {name[:60]!r}: {hint}")
    return versions


def _chosen(
    session: Session,
    model: str | None,
    segment: str | None,
    since: Any = None,
    until: Any = None,
    *,
    one_version: bool = False,
) -> list[ColumnElement[bool]]:
    """Clauses; with ``one_version`` a window counts only where no later version of the model has one of its start."""
    clauses: list[ColumnElement[bool]] = []
    if model is not None:
        # With one number instead of a list, databases read the index in its order and sort nothing.
        numbers = [version.id for version in versions_of(session, model)]
        clauses.append(Window.model_id == numbers[0] if len(numbers) == 1 else Window.model_id.in_(numbers))
        if one_version and len(numbers) > 1:
            later = aliased(Window)
            place = {number: place for place, number in enumerate(numbers)}
            after = case(place, value=later.model_id) > case(place, value=Window.model_id)
            same = (later.segment == Window.segment, later.start == Window.start, after)
            clauses.append(~exists().where(later.model_id.in_(numbers), *same))
    if segment is not None:
        clauses.append(Window.segment == segment)
    if since is not None:
        clauses.append(Window.start >= as_time(since))
    if until is not None:
        clauses.append(Window.start < as_time(until))
    return clauses


# -- plain data -----------------------------------------------------------------------------------------------


def window_facts(window: Window, model: Model) -> dict[str, Any]:
    """A window as plain data, for JSON and frames."""
    facts = {"model": model.name, "version": model.version, **columns_of(window, _OF_WINDOW)}
    return facts | {"truth": None if not window.labelled else (window.correct or 0) / window.labelled}


def alarm_facts(alarm: Alarm, model: Model) -> dict[str, Any]:
    """An alarm as plain data, for JSON, notices and frames."""
    facts = {"model": model.name, "version": model.version, **columns_of(alarm, _OF_ALARM)}
    return facts | {"text": _alarm_text(alarm)}


_OF_WINDOW = (
    *("id", "segment", "start", "end", "so_far", "rows", "accuracy", "low", "high", "level", "reference_accuracy"),
    *("label_free", "last_known", "warnings", "scores", "created_at", "labelled", "labels_at"),
)
_OF_ALARM = (
    *("id", "segment", "rule", "message", "raised", "began", "opened_at", "ended", "end_reason", "level", "value"),
    *("latest", "withdrawn", "acknowledged_by", "acknowledged_at", "snoozed_until"),
)


def columns_of(row: Base, names: Sequence[str]) -> dict[str, Any]:
    """Columns of a row as plain data."""
    values = {name: getattr(row, name) for name in names}
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in values.items()}


def _alarm_text(alarm: Alarm) -> str:
    """The values then and now, how long it lasts, and why it ended."""
    asked = "of intervals should hold" if alarm.rule == "labels:coverage" else "asked for"
    before = "before" if "sequential" in (alarm.rule or "") else asked
    recovered = alarm.end_reason == "recovered"
    latest = "after it" if recovered else "when it ended" if alarm.ended else "now"
    named = [(before, alarm.level), ("when raised", alarm.value), (latest, alarm.latest)]
    if alarm.rule == "labels:coverage" and alarm.ended:
        named.pop()  # a share of many windows, which says nothing of those that ended the alarm
    values = ", ".join(f"{percent(value)} {name}" for name, value in named if value is not None)
    if alarm.ended is None:
        state = _open_since(alarm)
    else:
        lasted = shown_length(alarm.ended - alarm.began)
        state = f"lasted {lasted}, ended: {'withdrawn' if alarm.withdrawn else alarm.end_reason or 'unknown'}"
    seen = f"acknowledged by {alarm.acknowledged_by}" if alarm.acknowledged_by else ""
    return "; ".join(part for part in (values, state, seen) if part)


def _open_since(alarm: Alarm) -> str:
    """How long an alarm is open; where windows of the past were filled in, when it began, as it is not known longer."""
    if alarm.began is None:
        return ""
    since_found = utc_now() - alarm.opened_at
    if alarm.opened_at - alarm.began > max(FILLED_IN, since_found):
        return f"began {shown_time(alarm.began)}, found {shown_length(since_found)} ago in windows of the past"
    return f"open for {shown_length(utc_now() - alarm.began)}"


# -- windows and charts ---------------------------------------------------------------------------------------


def list_windows(
    session: Session,
    model: str | None,
    segment: str | None,
    *,
    since: Any = None,
    until: Any = None,
    limit: int | None = 100,
    after: int = 0,
    newest_first: bool = False,
    one_version: bool = False,
) -> list[dict[str, Any]]:
    """Windows by time; ``after`` skips so many, and ``one_version`` those that a newer version has too."""
    order = Window.start.desc() if newest_first else Window.start
    query = (
        select(Window, Model)
        .join(Model, Model.id == Window.model_id)
        .where(*_chosen(session, model, segment, since, until, one_version=one_version))
        .order_by(order, Window.segment, Window.id)
        .offset(after)
        .limit(limit)
    )
    return [window_facts(window, version) for window, version in session.execute(query)]


def series_points(
    session: Session, model: str, segment: str, *, since: Any = None, until: Any = None, points: int = 500
) -> dict[str, Any]:
    """At most so many points of a series, made in the database: windows of equal spans of time are put together.

    Returns
    -------
    dict
        ``points``: mean, lowest and highest estimate, widest interval, rows, number of windows, newest window; ``gap``
        where windows are missing before it. Where two versions have a window of the same start, the newer one counts.
        ``labels``: accuracy by labels, of every version. ``measures``: recall, precision and F1 that rules name, of the
        newest windows. ``versions``: the first window of each. ``lines``: the
        accuracies that the rules of the newest version compare with. ``alarms``: the newest. Times are in the zone of
        the windows.
    """
    where = _chosen(session, model, segment, since, until, one_version=True)
    micros = type_coerce(Window.start, BigInteger)
    first, last, count = session.execute(select(func.min(micros), func.max(micros), func.count()).where(*where)).one()
    chart: dict[str, Any] = {"points": [], "labels": [], "measures": [], "versions": [], "lines": {}, "alarms": []}
    models = versions_of(session, model)
    newest, versions = models[-1], {one.id: one.version for one in models}

    def local(time: datetime | str) -> str:
        return as_time(time).astimezone(newest.every.tzinfo).isoformat()

    chart["alarms"] = [
        alarm | {time: local(alarm[time]) for time in ("began", "ended") if alarm[time] is not None}
        for alarm in list_alarms(session, model, segment)
    ]
    if not count:
        return chart
    # Integer division differs between databases, so that spans are counted in floating point.
    span = cast((last - first) // points + 1, Float)
    bucket = Window.start if count <= points else func.floor((micros - first) / span)
    values = {
        "start": func.min(Window.start),
        "end": func.max(Window.end),
        "accuracy": func.avg(Window.accuracy),
        "lowest": func.min(Window.accuracy),
        "highest": func.max(Window.accuracy),
        "low": func.min(Window.low),
        "high": func.max(Window.high),
        "reference_accuracy": func.avg(Window.reference_accuracy),
        "label_free": func.avg(Window.label_free),
        "last_known": func.avg(Window.last_known),
        "rows": func.sum(Window.rows),
        "windows": func.count(),
        "window": func.max(Window.id),
    }
    named = [value.label(name) for name, value in values.items()]
    made = session.execute(select(*named).where(*where).group_by(bucket).order_by(func.min(Window.start))).all()
    before = None
    for row in made:
        gap = before is not None and (row.start - before) / newest.every.length > SHORTEST_GAP
        times = {"start": local(row.start), "end": local(row.end)}
        chart["points"].append({**row._mapping, **times, "rows": int(row.rows), "gap": gap})
        before = row.end
    everything = (*_chosen(session, model, segment, since, until), Window.labelled > 0)
    sums = func.min(Window.start), func.sum(Window.labelled), func.sum(Window.correct)
    query: Any = select(Window.model_id, *sums).where(*everything).group_by(Window.model_id, bucket)
    first_ones = select(Window.model_id, func.min(Window.start)).where(*where).group_by(Window.model_id)
    begun = session.execute(first_ones.order_by(func.min(Window.start)))
    chart["labels"] = [
        {"version": versions[number], "start": local(start), "truth": float(correct / rows), "rows": int(rows)}
        for number, start, rows, correct in session.execute(query.order_by(func.min(Window.start), Window.model_id))
    ]
    chart["versions"] = [{"version": versions[number], "start": local(start)} for number, start in begun]
    state = session.scalars(select(Series.state).where(Series.model_id == newest.id, Series.segment == segment)).first()
    reference = chart["points"][-1]["reference_accuracy"]
    rules = Rules.from_dict(newest.rules)
    chart["lines"] = rules.lines(reference, newest.reference_rows, state)
    if rules_of_classes := rules.of_segment(segment).measured():
        newest_first = select(Window.start, Window.measures).where(*where).order_by(Window.start.desc()).limit(points)
        windows = [(local(start), of or {}) for start, of in session.execute(newest_first)][::-1]
        for measure, name, least in rules_of_classes:
            of_class = [(start, *of[f"{measure}:{name}"]) for start, of in windows if f"{measure}:{name}" in of]
            points_of_class = [dict(zip(("start", "low", "value", "high"), one, strict=True)) for one in of_class]
            chart["measures"].append({"measure": measure, "class": name, "least": least, "points": points_of_class})
    return chart


def overview(session: Session, *, limit: int | None = None, after: int = 0) -> list[dict[str, Any]]:
    """Newest version of every model with its last window and its open alarms, those with alarms first."""
    alarms = (
        select(Alarm.model_id, func.count().label("open_alarms"))
        .where(Alarm.ended.is_(None))
        .group_by(Alarm.model_id)
        .subquery()
    )
    open_alarms = func.coalesce(alarms.c.open_alarms, 0).label("open_alarms")
    # The models of a page are chosen first, so that only their windows are read.
    page = (
        select(Model.id, open_alarms)
        .outerjoin(alarms, alarms.c.model_id == Model.id)
        .where(Model.id.in_(current_models()))
        .order_by(open_alarms.desc(), Model.name)
        .limit(limit)
        .offset(after)
        .subquery()
    )
    rows = session.execute(
        select(Model, Series, Window, page.c.open_alarms)
        .join(page, page.c.id == Model.id)
        .outerjoin(Series, (Series.model_id == Model.id) & (Series.segment == ""))
        .outerjoin(Window, Window.id == Series.last_window)
        .order_by(page.c.open_alarms.desc(), Model.name)
        .options(undefer(Series.state))
    )
    listed = []
    for model, series, window, alarmed in rows:
        rules = Rules.from_dict(model.rules)
        last = None if window is None else window_facts(window, model)
        lines = {} if last is None else rules.lines(window.reference_accuracy, model.reference_rows, series.state)
        facts = {"name": model.name, "version": model.version, "every": str(model.every), "rules": rules.to_dict()}
        facts |= {"windows": series.windows if series else 0, "recent": series.recent if series else [], "last": last}
        facts |= {"open_alarms": alarmed, "state": rules.state(alarmed, last), "lines": lines}
        listed.append(facts | {"estimator_hash": model.estimator_hash})
    return listed


def segments_of(session: Session, model: str) -> list[dict[str, Any]]:
    """Segments of the newest version with their last windows and numbers of open alarms; the one of all rows first."""
    open_alarms = (
        select(func.count())
        .where(Alarm.model_id == Series.model_id, Alarm.segment == Series.segment, Alarm.ended.is_(None))
        .scalar_subquery()
    )
    rows = session.execute(
        select(Window, Model, open_alarms)
        .join(Series, Series.last_window == Window.id)
        .join(Model, Model.id == Window.model_id)
        .where(Model.name == model, Model.superseded_at.is_(None))
        .order_by(Window.segment)
    )
    listed = [(window_facts(w, version), Rules.from_dict(version.rules), count) for w, version, count in rows]
    return [last | {"open_alarms": count, "state": rules.state(count, last)} for last, rules, count in listed]


def past_errors(session: Session, model: str, segment: str = "") -> dict[str, Any] | None:
    """How far answers were off in the newest windows with labels; None without labels.

    Returns
    -------
    dict
        ``windows``; ``missed``: those whose interval has no accuracy in common with that by the labels; ``bias`` of the
        estimates. ``compared``: the windows before which an accuracy by labels was known, or all where there are none;
        ``errors``: in them the mean distances to the accuracy by the labels, of the estimates, of those without labels,
        of the last known accuracy, and of the accuracy on the reference.
    """
    rows = _labelled(session, _chosen(session, model, segment), MOST_LABELLED)
    if not rows:
        return None
    compared = [row for row in rows if row.last_known is not None] or rows
    answers = {"estimate": "accuracy", "label_free": "label_free", "last_known": "last_known"}
    answers["unchanged"] = "reference_accuracy"
    if compared[0].last_known is None:
        del answers["last_known"]
    return {
        "windows": len(rows),
        "missed": sum(contradicts(labelled_estimate(row)) for row in rows),
        "bias": statistics.fmean(row.accuracy - row.correct / row.labelled for row in rows),
        "compared": len(compared),
        "errors": {
            name: statistics.fmean(abs(getattr(row, column) - row.correct / row.labelled) for row in compared)
            for name, column in answers.items()
        },
    }


def newest_labels(session: Session, model: int, segment: str) -> dict[str, float] | None:
    """Accuracy and rows of the newest window with labels; and of so many of them how many, and the share that holds."""
    rows = _labelled(session, [Window.model_id == model, Window.segment == segment], NEWEST_LABELLED)
    if not rows:
        return None
    seen = [labelled_estimate(row) for row in rows]
    held = 1 - sum(map(contradicts, seen)) / len(seen)
    return {"accuracy": seen[0].accuracy, "rows": seen[0].labels, "windows": len(seen), "coverage": held}


def _labelled(session: Session, where: list[ColumnElement[bool]], limit: int) -> Sequence[Any]:
    """Newest windows with labels."""
    query = select(*ESTIMATED).where(*where, Window.labelled.is_not(None))
    return session.execute(query.order_by(Window.start.desc()).limit(limit)).all()


def labelled_estimate(window: Any) -> LabelledEstimate:
    """What labels say of a window, which may be a row of its columns, with its estimate before them."""
    truth = window.correct / window.labelled
    error = float(sampling_error(truth, window.labelled, window.level))
    numbers = max(truth - error, 0.0), min(truth + error, 1.0), window.level, window.rows, window.reference_accuracy
    before = Quantity(window.accuracy, window.low, window.high)
    return LabelledEstimate(truth, *numbers, labels=window.labelled, label_free=before)


def list_alarms(
    session: Session,
    model: str | None = None,
    segment: str | None = None,
    *,
    open_only: bool = False,
    limit: int | None = 200,
    after: int = 0,
) -> list[dict[str, Any]]:
    """Alarms, open ones first, then the newest first."""
    query = select(Alarm, Model).join(Model, Model.id == Alarm.model_id)
    if model is not None:
        query = query.where(Model.id.in_([version.id for version in versions_of(session, model)]))
    if segment is not None:
        query = query.where(Alarm.segment == segment)
    if open_only:
        query = query.where(Alarm.ended.is_(None))
    query = query.order_by(Alarm.ended.is_not(None), Alarm.began.desc(), Alarm.id.desc()).offset(after).limit(limit)
    return [alarm_facts(alarm, version) for alarm, version in session.execute(query)]


def learned(session: Session, model: str, segment: str = "") -> str:
    """What the test over all windows has learned of the newest version of a model, in one line."""
    series = session.get(Series, (find_model(session, model).id, segment))
    test = SequentialTest.from_dict({} if series is None else series.state.get("test"))
    if test.quiet is None:
        return f"Learned so far: {len(test.seen)} of {WARM_UP} quiet windows."
    return f"Learned of its quiet windows: {test.quiet}."


def rules_changes(session: Session, model: str) -> list[dict[str, Any]]:
    """Changes of the rules of all versions of a model, newest first."""
    query = (
        select(RulesChange, Model.version)
        .join(Model, Model.id == RulesChange.model_id)
        .where(Model.name == model)
        .order_by(RulesChange.id.desc())
        .limit(MOST_CHANGES)
    )
    return [
        {"version": version, "at": change.changed_at.isoformat(), "by": change.changed_by, "rules": change.changes}
        for change, version in session.execute(query)
        if change.changes
    ]


# -- why an alarm is there ------------------------------------------------------------------------------------

BEFORE = 28
"""Windows before an alarm that are compared with those of the alarm."""
MIX_BEFORE = 5
"""The same for what is read from whole estimates."""
MOST_SEGMENTS, MOST_COLUMNS, MOST_CLASSES = 50, 10, 10


def explain_alarm(session: Session, number: int) -> dict[str, Any]:
    """An alarm, and what a person who looks into it wants to see.

    Returns
    -------
    dict
        ``alarm``; ``window``: the one that raised it; ``rows``: of this window, and the median of those before;
        ``segments``: their accuracies in windows of that time and before the alarm, those that fell most first, by
        ``labels`` or by ``estimates`` (``segments_by``);
        ``columns``: of the inputs, those that moved most first; ``classes``: their shares of the predictions then and
        before, those that changed most first; ``labels``: of the windows since the alarm began; ``versions``: the
        versions of the model, the current one last; ``notices``: which target was told what.
    """
    row = session.execute(
        select(Alarm, Model).join(Model, Model.id == Alarm.model_id).where(Alarm.id == number)
    ).first()
    if row is None:
        raise NotFoundError(f"Expected the number of an alarm, but there is no alarm {number}")
    alarm, model = row
    mine = (Window.model_id == model.id, Window.segment == alarm.segment)
    window = session.scalars(select(Window).where(*mine, Window.start == alarm.raised).limit(1)).first()
    before = select(Window).where(*mine, Window.start < alarm.began).order_by(Window.start.desc())
    rows_before = session.scalars(before.with_only_columns(Window.rows).limit(BEFORE)).all()
    estimates = session.scalars(before.with_only_columns(Window.estimate).limit(MIX_BEFORE)).all()
    then = None if window is None else session.scalars(select(Window.estimate).where(Window.id == window.id)).one()
    labelled = select(func.sum(Window.labelled), func.sum(Window.correct), func.count())
    labels, correct, windows = session.execute(
        labelled.where(*mine, Window.start >= alarm.began, Window.labelled > 0)
    ).one()
    segments_by, segments = _worst_segments(session, model, alarm)
    told = select(Target.name, Notice).join(Notice, Notice.target_id == Target.id).where(Notice.alarm_id == number)
    return {
        "alarm": alarm_facts(alarm, model),
        "window": None if window is None else window_facts(window, model),
        "rows": None if window is None else window.rows,
        "rows_before": statistics.median(rows_before) if rows_before else None,
        "segments": segments,
        "segments_by": segments_by,
        "columns": [] if then is None else list(then.get("drift") or ())[:MOST_COLUMNS],
        "classes": [] if then is None else _moved_classes(then, estimates),
        "labels": int(labels or 0),
        "correct": int(correct or 0),
        "labelled_windows": windows,
        "versions": [version.version for version in versions_of(session, model.name)],
        "notices": [
            {"target": target, **columns_of(notice, ("kind", "sent_at", "error", "attempts", "next_try"))}
            for target, notice in session.execute(told.order_by(Notice.id))
        ],
    }


def _worst_segments(session: Session, model: Model, alarm: Alarm) -> tuple[str, list[dict[str, Any]]]:
    """Segments at the time of an alarm, those first that have fallen most since before it, and what tells that.

    An alarm of labels is told by labels, where several segments have some: estimates may not have seen the drop.
    """
    for source in ("labels", "estimates") if alarm.rule.startswith("labels:") else ("estimates",):
        by_labels = source == "labels"
        accuracy = cast(Window.correct, Float) / Window.labelled if by_labels else Window.accuracy
        usable = (Window.model_id == model.id, *([Window.labelled > 0] if by_labels else []))
        query = select(Window.id, Window.segment, *ESTIMATED)
        at = session.execute(
            query.where(*usable, Window.start == alarm.raised).order_by(accuracy).limit(10 * MOST_SEGMENTS)
        ).all()
        if len(at) > 1:
            break
    place = func.row_number().over(partition_by=Window.segment, order_by=Window.start.desc())
    recent = (
        select(Window.segment, accuracy.label("accuracy"), place.label("place"))
        .where(*usable, Window.start < alarm.began, Window.segment.in_([row.segment for row in at]))
        .subquery()
    )
    means = select(recent.c.segment, func.avg(recent.c.accuracy)).where(recent.c.place <= BEFORE)
    before = {row[0]: row[1] for row in session.execute(means.group_by(recent.c.segment))}
    listed = []
    for row in at:
        shown = labelled_estimate(row) if by_labels else row
        facts = {"segment": row.segment, "window": row.id, "rows": row.labelled if by_labels else row.rows}
        facts |= {"accuracy": shown.accuracy, "low": shown.low, "high": shown.high}
        listed.append(facts | {"before": before.get(row.segment)})
    listed.sort(key=lambda s: s["accuracy"] - (s["before"] if s["before"] is not None else s["accuracy"]))
    return source, listed[:MOST_SEGMENTS]


def _moved_classes(then: Mapping[str, Any], before: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Classes whose share of the predictions has changed most."""
    shares: dict[str, list[float]] = {}
    for estimate in before:
        for one in estimate.get("per_class") or ():
            shares.setdefault(one["name"], []).append(one["predicted"])
    moved = [
        {"name": one["name"], "predicted": one["predicted"], "before": statistics.fmean(shares[one["name"]])}
        for one in then.get("per_class") or ()
        if one["name"] in shares
    ]
    return sorted(moved, key=lambda c: -abs(c["predicted"] - c["before"]))[:MOST_CLASSES]
