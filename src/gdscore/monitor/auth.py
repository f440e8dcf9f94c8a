"""Who may do what, and how large a request may be.

Requirements met here:

- requests need a token; where that is switched off (``--no-auth``) only those of this machine are served;
- a request that a proxy passed on is not of this machine, nor is one for another host name (DNS rebinding);
- pages of other sites cannot change anything: a foreign ``Origin`` is refused, and there are no CORS headers;
- a token is random, is shown once, and is kept as its SHA-256, with a role; it may be for one model and for a time;
- a body is refused by its announced length before it is read, or at the byte that is one too many;
- a request that does not arrive in time is cut: its headers, its body, and a connection that sends nothing;
- the log of accesses has one JSON object a line, with who asked and never a token, a query or a body.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Literal
from unicodedata import normalize
from urllib.parse import urlsplit

import uvicorn
from fastapi import HTTPException, Request
from sqlalchemy import delete, select
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gdscore._checks import choice
from gdscore._windows import parse_every
from gdscore.errors import GdscoreError
from gdscore.monitor.database import check_name, utc_now
from gdscore.monitor.history import Monitor
from gdscore.monitor.queries import columns_of, find_model
from gdscore.monitor.schema import Alarm, Model, Token, Window
from gdscore.monitor.settings import Settings

Role = Literal["read", "write"]

_access = logging.getLogger("gdscore.monitor.access")
COOKIE = "gdscore_token"
_LOCAL = ("127.0.0.1", "::1", "localhost")
_LOCAL_HOST = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?", re.ASCII)
_FORWARDED = ("x-forwarded-for", "x-forwarded-host", "forwarded", "x-real-ip", "via")
_SMALL_BODY = 1 << 20
SLOWEST = 64 << 10
"""Bytes a second that a body has to come at."""
POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; object-src 'none'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
LOCALHOST = "localhost"
"""Who sends requests without a token."""
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with "no-referrer" browsers hide the origin of our own forms
    "x-frame-options": "DENY",
}


@dataclass(frozen=True)
class Visitor:
    """Who sent a request; ``by_cookie`` where a person has entered the token on a page."""

    name: str
    role: Role
    model: str | None = None
    """The one model that the token is for."""
    by_cookie: bool = False


def create_token(
    monitor: Monitor, name: str, role: str = "read", *, model: str | None = None, expires: Any = None
) -> str:
    """Make a token and return it: it cannot be shown again.

    ``model`` is the one model that it is for, ``expires`` a length of time such as ``90d``.
    """
    check_name("token", name)
    choice("role", role, ("read", "write"))
    length = None if expires is None else parse_every(expires).length
    token = f"gds_{secrets.token_urlsafe(32)}"
    with monitor.writing() as session:
        if model is not None:
            find_model(session, model)
        if session.scalars(select(Token.id).where(Token.name == name)).first() is not None:
            raise GdscoreError(f"Expected a new name, but there is a token {name!r}: revoke it first")
        made = Token(name=name, digest=_digest(token), role=role, model=model, created_at=utc_now())
        made.expires_at = None if length is None else made.created_at + length
        session.add(made)
    return token


def list_tokens(monitor: Monitor) -> list[dict[str, Any]]:
    """Tokens by name: what they are for and until when; not the tokens themselves, which nobody knows."""
    with monitor.reading() as session:
        tokens = session.scalars(select(Token).order_by(Token.name)).all()
    return [columns_of(token, ("name", "role", "model", "created_at", "expires_at")) for token in tokens]


def find_token(monitor: Monitor, token: str) -> Visitor | None:
    """Whose token it is, or None where it is none or has expired."""
    with monitor.reading() as session:
        stored = session.scalars(select(Token).where(Token.digest == _digest(token))).first()
        if stored is None or (stored.expires_at is not None and stored.expires_at <= utc_now()):
            return None
        return Visitor(stored.name, "write" if stored.role == "write" else "read", stored.model)


def revoke_token(monitor: Monitor, name: str) -> None:
    """Make a token useless."""
    with monitor.writing() as session:
        if not session.execute(delete(Token).where(Token.name == name)).rowcount:  # type: ignore[attr-defined]
            raise GdscoreError(f"Expected the name of a token, but there is no {name[:60]!r}")


def _digest(token: str) -> str:
    # Tokens have 256 random bits, so that a fast hash without salt is enough.
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def require(role: Role) -> Callable[[Request], Awaitable[Visitor]]:
    """Dependency of a route: the visitor, where the role is enough and the token is for the model."""

    async def check(request: Request) -> Visitor:
        # Only a token has to be looked for in the database, away from the event loop.
        visitor = await run_in_threadpool(_visitor, request) if _token(request)[0] else _visitor(request)
        if visitor is None:
            raise HTTPException(401, "Expected a token: Authorization: Bearer …", {"WWW-Authenticate": "Bearer"})
        if role == "write" and visitor.role != "write":
            raise HTTPException(403, "Expected a token with the role write, but it has the role read")
        if visitor.model is not None and await run_in_threadpool(_model_of, request) != visitor.model:
            raise HTTPException(403, f"Expected a token for all models, but this one is for {visitor.model!r}")
        request.state.visitor = visitor.name
        return visitor

    return check


def _model_of(request: Request) -> str | None:
    """Name of the model that a request is about; none where it is about several."""
    monitor: Monitor = request.app.state.monitor
    path = request.path_params
    for name, table in (("alarm", Alarm), ("window", Window)):
        if name in path:
            number = int(path[name]) if str(path[name]).isdecimal() else 0
            with monitor.reading() as session:
                owner = select(Model.name).join(table, table.model_id == Model.id)
                return session.scalars(owner.where(table.id == min(number, 2**62))).first()
    # What others ignore must not open them: `?model=` counts only where the route looks at it.
    by_query = any(parameter.name == "model" for parameter in request.scope["route"].dependant.query_params)
    asked = path.get("name", request.query_params.get("model") if by_query else None)
    return None if asked is None else normalize("NFC", asked)


def _token(request: Request) -> tuple[str, bool]:
    """Token of a request, empty where it has none, and whether it may come by a cookie."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    by_cookie = scheme.lower() != "bearer"
    return request.cookies.get(COOKIE, "") if by_cookie else token.strip(), by_cookie


def _visitor(request: Request) -> Visitor | None:
    monitor: Monitor = request.app.state.monitor
    settings: Settings = request.app.state.settings
    token, by_cookie = _token(request)
    if token:
        visitor = find_token(monitor, token)
        return None if visitor is None else replace(visitor, by_cookie=by_cookie)
    if settings.auth or request.client is None or request.client.host not in _LOCAL:
        return None
    if any(name in request.headers for name in _FORWARDED) or not _LOCAL_HOST.fullmatch(
        request.headers.get("host", "")
    ):
        return None
    return Visitor(LOCALHOST, "write")


class Guard:
    """Middleware: size of bodies, origin of requests, headers of answers."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it; and log it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        large = scope["path"].endswith(("/windows", "/estimator", "/row-labels"))
        limit = self.settings.max_body if large else _SMALL_BODY
        began, status, received, sent = time.monotonic(), 500, 0, 0

        async def read() -> Message:
            nonlocal received
            # A large body has more time, as long as it comes at more than 64 KiB a second.
            allowed = self.settings.request_seconds + received / SLOWEST
            try:
                message = await asyncio.wait_for(receive(), max(began + allowed - time.monotonic(), 0.001))
            except TimeoutError:
                raise HTTPException(
                    408, f"Expected the request within {self.settings.request_seconds:g} seconds, but it did not arrive"
                ) from None
            received += len(message.get("body", b""))
            if received > limit:
                raise HTTPException(413, f"Expected a body of at most {limit:,} bytes, but it is larger")
            return message

        async def write(message: Message) -> None:
            nonlocal status, sent
            sent += len(message.get("body", b""))
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                if status == 408:  # the rest of the body would be read as the next request
                    headers["connection"] = "close"
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            refused = _refusal(Request(scope), limit)
            await (refused or self.app)(scope, read, write)
        finally:
            if self.settings.access_log:
                line = {
                    "time": utc_now().isoformat(timespec="milliseconds"),
                    "client": (scope.get("client") or ("",))[0],
                    "who": scope.get("state", {}).get("visitor"),
                    "method": scope["method"],
                    "path": scope["path"],
                    "status": status,
                    "ms": round(1000 * (time.monotonic() - began), 1),
                    "received": received,
                    "sent": sent,
                }
                _access.info("%s", json.dumps(line, ensure_ascii=True))


def _refusal(request: Request, limit: int) -> Response | None:
    """Answer to a request that is not taken, from its headers."""
    length, origin = request.headers.get("content-length", "0"), request.headers.get("origin")
    foreign = origin is not None and _host_of(origin) != request.headers.get("host")
    if not length.isdecimal() or len(length) > 18:
        status, error = 400, "Expected Content-Length to be a number"
    elif int(length) > limit:
        status, error = 413, f"Expected a body of at most {limit:,} bytes, but it is larger"
    elif foreign and request.method not in ("GET", "HEAD", "OPTIONS"):
        status, error = 403, "Expected a request from a page of this service"
    else:
        return None
    return JSONResponse({"error": error}, status, {"connection": "close"})  # its body is not read


def _host_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:  # such as http://[
        return None


def cut_late_connections(server: uvicorn.Server, seconds: float) -> None:
    """Let a server cut the connections that send no request, or not all of its headers, within so many seconds."""
    connections: set[Any] = server.server_state.connections
    waiting: dict[Any, float] = {}

    async def look() -> None:  # once a second
        nonlocal waiting
        clock = time.monotonic()
        between = [(c, c.cycle) for c in connections if c.cycle is None or c.cycle.response_complete]
        waiting = {one: waiting.get(one, clock) for one in between}
        for (connection, _), since in waiting.items():
            if clock - since > seconds:
                connection.transport.abort()

    server.config.callback_notify, server.config.timeout_notify = look, 0
