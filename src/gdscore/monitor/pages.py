"""Pages for people: an overview, a page of each model, alarms, the report of a window.

Requirements met here:

- whatever models, segments and classes are called, their names are text and never markup or addresses;
- everything is served from here: no request leaves the machine; without script all but the large chart works.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
import shlex
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qsl, quote

from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from jinja2 import Environment
from sqlalchemy import case, func, select
from sqlalchemy.orm import Session

from gdscore._format import template_environment
from gdscore._windows import as_time
from gdscore.estimator import Estimate
from gdscore.monitor import queries
from gdscore.monitor.api import After, History, Number, Reader, describe
from gdscore.monitor.auth import COOKIE, LOCALHOST, POLICY, Visitor, find_token, require
from gdscore.monitor.database import shown_length, shown_time, utc_now
from gdscore.monitor.rules import Rules, contradicts, rule_text
from gdscore.monitor.schema import KeptRow, Model, Series, Window
from gdscore.monitor.settings import Settings

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)
Writer = Annotated[Visitor, Depends(require("write"))]
PAGE = 25
MOST_HOURS = 24 * 30
AROUND = 30
"""Windows before and after an alarm that its chart shows."""
MODELS = 50
MOST_ALARMS = 50
FEW_ALARMS = 5
"""Alarms of a model that are shown at once, and all open ones."""
CLASSES = 30
"""Classes listed on the page of a window, the worst first."""
RULES = {
    "false_alarms_per_year": "false alarms a year that the test over all windows may raise",
    "tolerance": "how far below its level the accuracy may be before that counts as a drop",
    "min_accuracy": "alarm at every window below this accuracy",
    "max_drop": "alarm at every window farther below the reference than this",
    "alarm_on": "what these two are compared with: the estimate, or an end of its interval",
    "min_rows": "a window with fewer rows is not enough data",
    "max_width": "a window with a wider interval is not enough data",
    "warnings": "warnings that raise an alarm of their own",
    "labels": "whether labels raise alarms",
    "tracking": "whether estimates rest on the labels of earlier windows too",
    "missing_after": "alarm after so many lengths of a window without one; learned from the usual pauses by default",
    "recovery": "windows in a row without the problem that end an alarm",
    "min_recall": "alarm at every window where the recall of a class is below this",
    "min_precision": "the same for its precision",
    "min_f1": "the same for its F1",
    "segments": "rules that a segment has of its own",
    "max_segments": "segments that the model may have",
    "notify_within": "notices are sent only of windows that ended at most this long ago",
    "keep_rows": "how long id, prediction and P(right) of each row are kept, so that labels can be given by id",
}


@router.get("/")
def overview(history: History, visitor: Reader, after: After = 0) -> str:
    """All models, those with alarms first."""
    with history.reading() as session:
        models = queries.overview(session, limit=MODELS + 1, after=after)
    shown = [model | {"floor": _floor(model["lines"])} for model in models[:MODELS]]
    return _render(
        "overview.html", visitor, models=shown, scale=_scale(shown), **_neighbours(after, MODELS, len(models))
    )


@router.get("/models/{name}")
def model_page(
    name: str,
    history: History,
    visitor: Reader,
    segment: str = "",
    days: Annotated[int, Query(ge=0, le=100_000)] = 0,
    after: After = 0,
) -> str:
    """One model: chart, warnings, alarms, how good estimates were, windows."""
    with history.reading() as session:
        segments = queries.segments_of(session, name)
        models = queries.versions_of(session, name)
        last = next((s for s in segments if s["segment"] == segment), None)
        since = None
        if days and last is not None:
            with suppress(OverflowError):  # the first days of the calendar
                since = as_time(last["start"]) - timedelta(days=days)
        windows = queries.list_windows(
            session, name, segment, since=since, limit=PAGE + 1, after=after, newest_first=True, one_version=True
        )
        alarms = queries.list_alarms(session, name, segment or None, limit=MOST_ALARMS)
        past = queries.past_errors(session, name, segment)
        changes = queries.rules_changes(session, name)
        learned = queries.learned(session, name, segment)
    rules = history.rules(name).to_dict()
    return _render(
        "model.html",
        visitor,
        name=name,
        segment=segment,
        segments=segments,
        last=last,
        versions=len(models),
        every=models[-1].every,
        rules=[(rule, value, RULES.get(rule, "")) for rule, value in rules.items()],
        changes=changes,
        learned=learned,
        windows=windows[:PAGE],
        **_neighbours(after, PAGE, len(windows)),
        alarms=alarms,
        shown_alarms=max(FEW_ALARMS, sum(a["ended"] is None for a in alarms)),
        past=past,
        days=days,
        series_address=_series_address(name, segment, since),
    )


def _series_address(name: str, segment: str, since: datetime | None, until: datetime | None = None) -> str:
    """Address of the points of a chart."""
    bounds = {"since": since, "until": until}
    times = "".join(f"&{key}={quote(time.isoformat(), safe='')}" for key, time in bounds.items() if time is not None)
    return f"/api/v1/models/{quote(name, safe='')}/series?segment={quote(segment, safe='')}&points=600{times}"


@router.get("/alarms")
def alarms_page(history: History, visitor: Reader, show: str = "open", after: After = 0) -> str:
    """Alarms, with a button to acknowledge each."""
    with history.reading() as session:
        alarms = queries.list_alarms(session, open_only=show != "all", limit=MOST_ALARMS + 1, after=after)
    return _render(
        "alarms.html", visitor, alarms=alarms[:MOST_ALARMS], show=show, **_neighbours(after, MOST_ALARMS, len(alarms))
    )


@router.get("/alarms/{alarm}")
def alarm_page(alarm: Number, history: History, visitor: Reader) -> str:
    """One alarm: what happened, since when, where, what moved, and what to do."""
    with history.reading() as session:
        facts = queries.explain_alarm(session, alarm)
        model = queries.versions_of(session, facts["alarm"]["model"])[-1]
    shown = facts.pop("alarm")
    since = as_time(shown["began"]) - AROUND * model.every.length
    until = (utc_now() if shown["ended"] is None else as_time(shown["ended"])) + AROUND * model.every.length
    address = _series_address(shown["model"], shown["segment"], since, until)
    return _render("alarm.html", visitor, a=shown, every=model.every, series_address=address, **facts)


async def _read_form(request: Request) -> dict[str, str]:
    return {name: value.strip() for name, value in parse_qsl((await request.body()).decode("utf-8", "replace"))}


Form = Annotated[dict[str, str], Depends(_read_form)]


@router.post("/alarms/{alarm}/acknowledge")
def acknowledge(alarm: Number, history: History, visitor: Writer, form: Form) -> Response:
    """Note who has seen an alarm: the owner of the token, who may give another name only where there are no tokens."""
    entered = form.get("by") if visitor.name == LOCALHOST else None
    history.acknowledge(alarm, entered or visitor.name)
    return RedirectResponse(_back(form, alarm), 303)


@router.post("/alarms/{alarm}/snooze")
def snooze(alarm: Number, history: History, visitor: Writer, form: Form) -> Response:
    """Silence an alarm for some hours."""
    hours = form.get("hours", "24")
    if not hours.isdecimal() or not 0 <= int(hours) <= MOST_HOURS:
        raise HTTPException(422, f"Expected a number of hours up to {MOST_HOURS}, but got {hours[:20]!r}")
    until = utc_now() + timedelta(hours=int(hours)) if int(hours) else None
    history.snooze(alarm, until)
    return RedirectResponse(_back(form, alarm), 303)


def _back(form: dict[str, str], alarm: int) -> str:
    """Page that a form of an alarm was sent from."""
    return {"all": "/alarms?show=all", "one": f"/alarms/{alarm}"}.get(form.get("show", ""), "/alarms")


@router.get("/windows/{window}")
def window_page(window: int, history: History, visitor: Reader) -> str:
    """One window: estimate, labels, warnings, assumptions and classes."""
    from gdscore.report.page import MIX_WORDS
    from gdscore.report.targets import worst_first

    with history.reading() as session:
        row, model, facts = _find_window(session, window)
        shown, every = queries.window_facts(row, model), model.every
        labelled = queries.labelled_estimate(row) if row.labelled else None
        of_labelled = func.avg(case((KeptRow.label.is_not(None), KeptRow.right)))
        expected = session.execute(
            select(of_labelled, func.avg(KeptRow.right)).where(KeptRow.window_id == row.id)
        ).one()
        listed = queries.list_alarms(session, model.name, row.segment, limit=None)
        state = session.get(Series, (model.id, row.segment))
        lines = Rules.from_dict(model.rules).lines(
            row.reference_accuracy, model.reference_rows, None if state is None else state.state
        )
        earlier, later = (
            session.scalars(
                select(Window.id)
                .where(Window.model_id == model.id, Window.segment == row.segment, side)
                .order_by(order, Window.id)
                .limit(1)
            ).first()
            for side, order in (
                (Window.start < row.start, Window.start.desc()),
                (Window.start > row.start, Window.start),
            )
        )
    estimate = Estimate.from_dict(facts)
    then = shown["start"]
    return _render(
        "window.html",
        visitor,
        w=shown,
        every=every,
        e=estimate,
        labels=labelled,
        contradicted=labelled is not None and contradicts(labelled),
        expected=expected,
        floor=_floor(lines),
        alarms=[a for a in listed if a["began"] <= then and (a["ended"] is None or a["ended"] > then)],
        classes=worst_first(estimate)[:CLASSES],
        mix_words=MIX_WORDS,
        earlier=earlier,
        later=later,
    )


def _find_window(session: Session, window: int) -> tuple[Window, Model, dict[str, Any]]:
    row = session.execute(
        select(Window, Model, Window.estimate)
        .join(Model, Model.id == Window.model_id)
        .where(Window.id == min(max(window, 0), 2**62))
    ).first()
    if row is None:
        raise HTTPException(404, f"Expected the number of a window, but there is no window {window}")
    return row[0], row[1], row[2]


@router.get("/windows/{window}/report")
def window_report(window: int, history: History, visitor: Reader) -> Response:
    """Report of one window, as `gdscore.report` writes it."""
    from gdscore.report import Target, write_report

    with history.reading() as session:
        row, model, facts = _find_window(session, window)
        title = f"{row.segment or 'all rows'}, {shown_time(row.start)}"
        name, version, when = model.name, model.version, row.start
        truth = None if not row.labelled else (row.correct or 0) / row.labelled
    target = Target(title, Estimate.from_dict(facts), when=when, truth=truth)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        write_report(path, history.estimator(name, version), [target], model_name=name)
        content = path.read_bytes()
    # The report has a policy of its own in its head, which forbids scripts; its styles are in it.
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
    return HTMLResponse(content, headers={"content-security-policy": policy})


@router.get("/models/{name}/estimator")
def estimator_file(name: str, history: History, visitor: Reader) -> Response:
    """File of the estimator of a model, as `gdscore label` takes it."""
    estimator = history.estimator(name)
    if estimator is None:
        raise HTTPException(404, f"Expected {name[:60]!r} to have an estimator, but it has none")
    headers = {"content-disposition": f'attachment; filename="{quote(name, safe="")}.gdscore"'}
    return Response(estimator.to_bytes(), media_type="application/octet-stream", headers=headers)


@router.get("/docs")
def documentation(visitor: Reader) -> Response:
    """Routes of the JSON API: FastAPI's page, with scripts of this service."""
    page = get_swagger_ui_html(
        openapi_url="/openapi.json",
        title="API · gdscore monitor",
        swagger_js_url="/static/vendor/swagger-ui-bundle.js",
        swagger_css_url="/static/vendor/swagger-ui.css",
        swagger_favicon_url="data:,",
        swagger_ui_parameters={"docExpansion": "list", "persistAuthorization": False, "validatorUrl": None},
    )
    # The page has one script within it, which alone is allowed beside those of this service.
    (script,) = re.findall(rb"<script>(.*?)</script>", bytes(page.body), re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script).digest()).decode()
    page.headers["content-security-policy"] = f"{POLICY}; script-src 'self' 'sha256-{digest}'"
    return page


@router.get("/openapi.json")
def openapi(request: Request, visitor: Reader) -> Response:
    """Description of the JSON API for programs."""
    return JSONResponse(describe(request.app.routes))


def render_problem(message: str, status: int) -> str:
    """Page that tells what is wrong with a request."""
    title = "There is no such page" if status == 404 else "This cannot be done"
    return _render("error.html", None, message=message, status=status, title=title)


@router.get("/login")
def login_page(next: str = "/") -> str:
    """Form for a token, and where to go with it."""
    return _render("login.html", None, failed=False, next=next)


@router.post("/login")
def login(request: Request, history: History, form: Form) -> Response:
    """Keep a valid token in a cookie that scripts cannot read and other sites cannot send."""
    token, place = form.get("token", ""), form.get("next", "")
    if not token or find_token(history, token) is None:
        return HTMLResponse(_render("login.html", None, failed=True, next=place), 401)
    answer = RedirectResponse(place if _is_page(place) else "/", 303)
    settings: Settings = request.app.state.settings
    secure = settings.behind_tls or request.url.scheme == "https"
    answer.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=secure, max_age=30 * 86400)
    return answer


def _is_page(place: str) -> bool:
    """Whether an address is one of this service: browsers read two slashes and backslashes as another host."""
    return place.startswith("/") and not place.startswith("//") and "\\" not in place and place.isprintable()


@router.post("/logout")
def logout() -> Response:
    """Forget the token."""
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(COOKIE)
    return answer


@cache
def _environment() -> Environment:
    environment = template_environment(
        "gdscore.monitor",
        rule_value=lambda value: "not set" if value in (None, {}) else rule_text(value),
        points=lambda share: f"{100 * share:+.1f}".replace("-", "−"),
        age=lambda time: shown_length(utc_now() - as_time(time)),
        shell=shlex.quote,
        in_path=lambda value: quote(value, safe=""),
        clock=lambda value, zone=UTC: "" if value is None else shown_time(as_time(value).astimezone(zone)),
    )
    environment.globals |= {"sparkline": _sparkline}
    return environment


def _neighbours(after: int, size: int, count: int) -> dict[str, int | None]:
    """Where the pages before and after this one start."""
    return {"before": max(0, after - size) if after else None, "following": after + size if count > size else None}


def _render(template: str, visitor: Visitor | None, **values: Any) -> str:
    return _environment().get_template(template).render(visitor=visitor, **values)


def _floor(lines: dict[str, float]) -> float | None:
    """The floor that was asked for, the higher one of two; otherwise that of the test over all windows."""
    asked = [value for rule, value in lines.items() if rule != "sequential"]
    return max(asked, default=lines.get("sequential"))


def _scale(models: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """Lowest and highest accuracy of the small charts, the same for all models of a page, in steps of 10 %."""
    shown = [(*m["recent"], m["last"]["reference_accuracy"], m["floor"]) for m in models if m["last"] is not None]
    values = [value for of_model in shown for value in of_model if value is not None]
    low, high = min(values, default=0.0), max(values, default=1.0)
    return max(math.floor(low * 10 - 1e-9) / 10, 0.0), min(math.ceil(high * 10 + 1e-9) / 10, 1.0)


def _sparkline(
    values: Sequence[float], reference: float, floor: float | None, scale: tuple[float, float]
) -> dict[str, Any]:
    """Points of a line in a box of 120 by 32, and the heights of the reference and of the floor."""
    low, high = scale

    def height(value: float) -> float:
        return round(30 - 28 * (value - low) / (high - low), 1)

    step = 116 / max(len(values) - 1, 1)
    return {
        "points": " ".join(f"{2 + i * step:.1f},{height(v)}" for i, v in enumerate(values)),
        "reference": height(reference),
        "floor": None if floor is None else height(floor),
        "end": (2 + (len(values) - 1) * step, height(values[-1])),
    }
