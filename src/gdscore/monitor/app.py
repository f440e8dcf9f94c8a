"""The HTTP service: `create_app` puts the API, the pages and the metrics for Prometheus together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

import uvicorn
from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from sqlalchemy import case, func, or_, select
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect
from starlette.staticfiles import StaticFiles

import gdscore
from gdscore.errors import GdscoreError, nearest, shown
from gdscore.monitor import api, pages, queries
from gdscore.monitor.auth import Guard, cut_late_connections, list_tokens, require
from gdscore.monitor.database import AdvisedError, StorageError, utc_now
from gdscore.monitor.history import Monitor
from gdscore.monitor.queries import NotFoundError
from gdscore.monitor.schema import Alarm, Model, Notice, Series, Target, Window
from gdscore.monitor.settings import Settings
from gdscore.monitor.store import ConflictError

OPTION = re.compile(r"--([a-z][a-z-]+)")
"""Options of commands in messages: the service has parameters of the same names."""
_log = logging.getLogger("gdscore.monitor")
_FROM_WINDOW = {
    "accuracy": "Estimated accuracy of the newest window.",
    "low": "Lower end of its interval.",
    "high": "Upper end of its interval.",
    "rows": "Rows of the newest window.",
    "reference_accuracy": "Accuracy on the reference.",
}
_FROM_LABELS = {
    "accuracy": ("labelled_accuracy", "Accuracy by labels of the newest window that has some."),
    "rows": ("labelled_rows", "Rows with labels of that window."),
    "coverage": ("past_estimates_coverage", "Share of past intervals that labels do not contradict."),
    "windows": ("past_estimates_windows", "Windows that this share is of, at most 30, the newest."),
}


def create_app(monitor: Monitor, settings: Settings | None = None) -> FastAPI:
    """Application of a history, to be run by uvicorn or another ASGI server."""
    settings = settings or Settings()
    # FastAPI would serve its description without a token, and a page that loads scripts from elsewhere.
    app = FastAPI(
        title="gdscore monitor",
        version=gdscore.__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        lifespan=_look_regularly,
    )
    app.state.monitor, app.state.settings, app.state.small_posts = monitor, settings, asyncio.Lock()
    app.include_router(api.router)
    app.include_router(pages.router)
    app.mount("/static", GZipMiddleware(StaticFiles(packages=[("gdscore.monitor", "static")])))
    app.add_middleware(Guard, settings=settings)
    app.add_exception_handler(GdscoreError, _explain)
    app.add_exception_handler(RequestValidationError, _misunderstood)
    app.add_exception_handler(HTTPException, _refuse)
    app.add_exception_handler(ClientDisconnect, _gone)

    @app.get("/healthz", include_in_schema=False)
    def healthz() -> Response:
        with monitor.reading() as session:
            session.execute(select(Model.id).limit(1))  # of a table, so that a damaged file is noticed
        return JSONResponse({"status": "ok"})

    @app.get("/metrics", include_in_schema=False, dependencies=[Depends(require("read"))])
    def metrics() -> Response:
        looked_at = getattr(app.state, "looked_at", None)
        return Response(render_metrics(monitor, looked_at), media_type="text/plain; version=0.0.4; charset=utf-8")

    return app


@contextlib.asynccontextmanager
async def _look_regularly(app: FastAPI) -> AsyncIterator[None]:
    monitor: Monitor = app.state.monitor
    settings: Settings = app.state.settings
    ended = threading.Event()

    def look() -> None:
        while not ended.is_set():
            try:
                monitor.check_missing()
                monitor.prune_rows()
                if settings.keep is not None:
                    monitor.prune(settings.keep)
            except GdscoreError as error:  # the next look may succeed
                _log.warning("the regular look failed: %s", error)
            except Exception as error:  # its message may have secrets
                _log.warning("the regular look failed: %s", type(error).__name__)
            monitor.delivery.start()
            app.state.looked_at = utc_now()
            for problem in monitor.delivery.problems():
                _log.warning("%s", problem)
            ended.wait(settings.check_seconds)

    # A thread that ends with the process, so that a slow database does not hold up its end.
    thread = threading.Thread(target=look, name="gdscore look", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(timeout=1)


def _explain(request: Request, error: Exception) -> Response:
    if isinstance(error, StorageError):  # it may name hosts and folders, and who asks is not known
        _log.error("%s", error)
        return _problem(request, "Expected the storage to work, but it failed: the log of the service tells why", 503)
    statuses: dict[type[Exception], int] = {NotFoundError: 404, ConflictError: 409}
    # Advice for Python and the command line is none for a program that speaks HTTP.
    message = f"{error.problem}: {error.http_advice}" if isinstance(error, AdvisedError) else str(error)
    return _problem(
        request, OPTION.sub(lambda found: f"`{found[1].replace('-', '_')}`", message), statuses.get(type(error), 422)
    )


def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=400)  # nobody reads it


def _misunderstood(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"][1:])[:100]
    where = f"`{place}`" + ("" if first["loc"][0] == "body" else f" ({first['loc'][0]})")
    if first["type"] == "missing" and place:
        message = f"Expected the field {where}, but it is missing"
    elif first["type"] == "missing":
        message = "Expected a body, but there is none"
    elif first["type"] == "json_invalid":
        message = f"Expected the body to be JSON, but it is not: {first['ctx']['error']}"
    elif first["type"] == "extra_forbidden":
        in_query = first["loc"][0] == "query"
        names = list(api.WindowQuery.model_fields) if in_query else api.fields_of(request.scope.get("route"))
        hint = nearest(str(first["loc"][-1])[:60], names)
        message = f"Unknown field {where}: {hint}"
    else:
        where = where if place else "the body"
        message = f"Expected another value in {where}: {first['msg']}, but got {shown(first['input'])}"
    return _problem(request, message, 422)


def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 401 and _is_browser(request) and request.method == "GET":
        query = f"?{request.url.query}" if request.url.query else ""
        place = quote(quote(request.url.path) + query, safe="")
        return RedirectResponse("/login" if place == "%2F" else f"/login?next={place}", 303)
    return _problem(request, str(error.detail), error.status_code, error.headers)


def _is_browser(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "")


def _problem(request: Request, message: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
    if _is_browser(request):
        return HTMLResponse(pages.render_problem(message, status), status, headers)
    problem: dict[str, Any] = {"error": message}
    example = api.example_of(request.scope.get("route"))
    if status == 422 and example is not None:
        problem["example"] = example
    return JSONResponse(problem, status, headers)


def serve_app(monitor: Monitor, settings: Settings, say: Callable[[str], None]) -> None:
    """Serve a history until the process is told to end; ``say`` tells people the address."""
    # A thread that waits for the database has its turn sooner beside others that compute.
    sys.setswitchinterval(5e-4)
    app = create_app(monitor, settings)
    if settings.access_log:
        lines = logging.getLogger("gdscore.monitor.access")
        lines.addHandler(logging.StreamHandler())
        lines.setLevel(logging.INFO)
        lines.propagate = False
    host = settings.host
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, settings.port), family=family)
    except OSError as error:
        reason = error.strerror or error
        raise GdscoreError(
            f"Expected to listen at {host}, port {settings.port}, but the system refused: {reason}"
        ) from None
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # answers on a kept connection are not held back
    address = f"[{host}]" if family == socket.AF_INET6 else host
    say(f"Serving at http://{address}:{listener.getsockname()[1]}")
    if settings.auth and not list_tokens(monitor):
        _log.warning("There is no token yet: `gdscore monitor token NAME --role write` makes one, --no-auth needs none")
    # Forwarded addresses are not trusted, as a request from a proxy must not count as one of this machine.
    config = uvicorn.Config(
        app,
        ws="none",
        log_level="warning",
        proxy_headers=False,
        server_header=False,
        limit_concurrency=settings.max_connections,
        timeout_graceful_shutdown=3,
    )
    server = uvicorn.Server(config)
    cut_late_connections(server, settings.request_seconds)
    server.run(sockets=[listener])


_OF_NOTICES = (
    ("notices_waiting", "Notices that have not been sent yet.", 1),
    ("notices_failed", "Notices that were given up after seven days.", 2),
    ("notice_failures", "Failures of a target since its last success.", 3),
)


def render_metrics(monitor: Monitor, looked_at: datetime | None = None) -> bytes:
    """Metrics of the current version of each model, by model and segment, in the text format.

    ``looked_at`` is when the service looked for missing windows and due notices.
    """
    registry = CollectorRegistry()
    registry.register(_Collector(monitor, looked_at))
    return generate_latest(registry)


class _Collector:
    def __init__(self, monitor: Monitor, looked_at: datetime | None) -> None:
        self.monitor, self.looked_at = monitor, looked_at

    def collect(self) -> Iterator[GaugeMetricFamily]:
        with self.monitor.reading() as session:
            newest = session.execute(
                select(Model.name, Window.segment, Window.end, Series.labels)
                .add_columns(*(getattr(Window, column) for column in _FROM_WINDOW))
                .join(Series, Series.model_id == Model.id)
                .join(Window, Window.id == Series.last_window)
                .where(Model.id.in_(queries.current_models()))
            ).all()
            silent = or_(Alarm.acknowledged_at.is_not(None), Alarm.snoozed_until > utc_now())
            counts = session.execute(
                select(Model.name, Alarm.segment, func.count(), func.sum(case((silent, 0), else_=1)))
                .join(Alarm, Alarm.model_id == Model.id)
                .where(Alarm.ended.is_(None))
                .group_by(Model.name, Alarm.segment)
            ).all()
            given_up = Notice.sent_at.is_(None) & Notice.next_try.is_(None) & Notice.id.is_not(None)
            notices = session.execute(
                select(Target.name, func.count(Notice.next_try), func.sum(case((given_up, 1), else_=0)))
                .add_columns(func.max(Target.failures))
                .outerjoin(Notice, Notice.target_id == Target.id)
                .group_by(Target.name)  # which several targets may have: of an address it is only the host
            ).all()
            models = session.scalars(select(Model.name).where(Model.id.in_(queries.current_models()))).all()
        of_series = [(window, (window.name, window.segment)) for window in newest]
        for column, description in _FROM_WINDOW.items():
            yield _gauge(column, description, [(series, getattr(window, column)) for window, series in of_series])
        for key, (column, description) in _FROM_LABELS.items():
            labelled = [(series, window.labels[key]) for window, series in of_series if window.labels is not None]
            yield _gauge(column, description, labelled)
        clock = utc_now()
        ages = [(series, (clock - window.end).total_seconds()) for window, series in of_series]
        yield _gauge("last_window_age_seconds", "Seconds since the newest window ended.", ages)
        # Windows that stop coming are an alarm of all rows, also where no window has all rows.
        none = dict.fromkeys([*((name, "") for name in models), *(series for _, series in of_series)], 0)
        open_now = none | {(name, segment): count for name, segment, count, _ in counts}
        loud_now = none | {(name, segment): int(loud) for name, segment, _, loud in counts}
        yield _gauge("open_alarms", "Alarms that have not ended.", open_now.items())
        loud = "Open alarms that nobody has acknowledged or snoozed."
        yield _gauge("unacknowledged_alarms", loud, loud_now.items())
        for column, description, place in _OF_NOTICES:
            yield _gauge(column, description, [((row[0],), int(row[place] or 0)) for row in notices], ("target",))
        if self.looked_at is not None:
            seconds = (clock - self.looked_at).total_seconds()
            yield GaugeMetricFamily("gdscore_last_look_age_seconds", "Seconds since the service looked.", value=seconds)


def _gauge(
    name: str,
    description: str,
    values: Iterable[tuple[Sequence[str], float]],
    labels: Sequence[str] = ("model", "segment"),
) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(f"gdscore_{name}", description, labels=labels)
    for of, value in values:
        gauge.add_metric(of, value)
    return gauge
