"""Who may do what, and how large a request may be.

Requirements met here:

- without a token only requests of this machine are served, and none at all where tokens are asked for;
- a request that a proxy passed on is not of this machine, nor is one for another host name (DNS rebinding);
- pages of other sites cannot change anything: a foreign ``Origin`` is refused, and there are no CORS headers;
- a token is random, is shown once, and is kept as its SHA-256, with a role;
- a body is refused by its announced length before it is read, or at the byte that is one too many;
- connections are limited in number, and one that sends no request is closed;
- the log of accesses has one JSON object a line, with who asked and never a token, a query or a body.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from fastapi import HTTPException, Request
from sqlalchemy import delete, select
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from gdscore._checks import choice
from gdscore._windows import parse_every
from gdscore.errors import GdscoreError
from gdscore.monitor.database import check_name, utc_now
from gdscore.monitor.history import Monitor
from gdscore.monitor.schema import Token

__all__ = [
    "COOKIE",
    "Guard",
    "LimitedProtocol",
    "Role",
    "Settings",
    "Visitor",
    "create_token",
    "find_token",
    "require",
    "revoke_token",
]

Role = Literal["read", "write"]

_access = logging.getLogger("gdscore.monitor.access")
COOKIE = "gdscore_token"
_LOCAL = ("127.0.0.1", "::1", "localhost")
_LOCAL_HOST = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?", re.ASCII)
_FORWARDED = ("x-forwarded-for", "x-forwarded-host", "forwarded", "x-real-ip", "via")
_SMALL_BODY = 1 << 20
MOST_CONNECTIONS = 500
FIRST_REQUEST_S = 20.0
"""Seconds within which a new connection has to send its first request, up to its body."""
_HEADERS = {
    "content-security-policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with "no-referrer" browsers hide the origin of our own forms
    "x-frame-options": "DENY",
}


@dataclass(frozen=True)
class Settings:
    """Settings of the service.

    Attributes
    ----------
    require_token : bool
        Whether requests of this machine need a token too.
    max_body : int
        Largest body with outputs or an estimator, in bytes.
    max_rows : int
        Most rows of a window that is posted, so that a small file cannot keep the server busy for hours.
    behind_tls : bool
        Whether a proxy in front of the service speaks TLS, so that browsers send the cookie over TLS only.
    keep : str, optional
        How long windows are kept, such as ``400d``; for ever by default.
    check_seconds : float
        Pause between two looks for missing windows and undelivered notices.
    access_log : bool
        Whether each request is logged, as one JSON object a line, by the logger ``gdscore.monitor.auth``.
    """

    require_token: bool = False
    max_body: int = 256 << 20
    max_rows: int = 5_000_000
    behind_tls: bool = False
    keep: str | None = None
    check_seconds: float = 60.0
    access_log: bool = False

    def __post_init__(self) -> None:
        if self.keep is not None:
            parse_every(self.keep)


@dataclass(frozen=True)
class Visitor:
    """Who sent a request; ``by_cookie`` where a person has entered the token on a page."""

    name: str
    role: Role
    by_cookie: bool = False


def create_token(monitor: Monitor, name: str, role: str = "read") -> str:
    """Make a token and return it: it cannot be shown again."""
    check_name("token", name)
    choice("role", role, ("read", "write"))
    token = f"gds_{secrets.token_urlsafe(32)}"
    with monitor.writing() as session:
        if session.scalars(select(Token.id).where(Token.name == name)).first() is not None:
            raise GdscoreError(f"Expected a new name, but there is a token {name!r}: revoke it first")
        session.add(Token(name=name, digest=_digest(token), role=role, created_at=utc_now()))
    return token


def find_token(monitor: Monitor, token: str) -> tuple[str, Role] | None:
    """Name and role of a token, or None where it is none."""
    with monitor.reading() as session:
        found = session.scalars(select(Token).where(Token.digest == _digest(token))).first()
        if found is None:
            return None
        return found.name, "write" if found.role == "write" else "read"


def revoke_token(monitor: Monitor, name: str) -> None:
    """Make a token useless."""
    with monitor.writing() as session:
        if not session.execute(delete(Token).where(Token.name == name)).rowcount:  # type: ignore[attr-defined]
            raise GdscoreError(f"Expected the name of a token, but there is no {name[:60]!r}")


def _digest(token: str) -> str:
    # Tokens have 256 random bits, so that a fast hash without salt is enough.
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def require(role: Role) -> Callable[[Request], Awaitable[Visitor]]:
    """Dependency of a route: the visitor, where the role is enough."""

    async def check(request: Request) -> Visitor:
        # Only a token has to be looked for in the database, away from the event loop.
        visitor = await run_in_threadpool(_visitor, request) if _token(request)[0] else _visitor(request)
        if visitor is None:
            raise HTTPException(401, "Expected a token: Authorization: Bearer …", {"WWW-Authenticate": "Bearer"})
        if role == "write" and visitor.role != "write":
            raise HTTPException(403, "Expected a token with the role write, but it has the role read")
        request.state.visitor = visitor.name
        return visitor

    return check


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
        found = find_token(monitor, token)
        return None if found is None else Visitor(*found, by_cookie)
    if settings.require_token or request.client is None or request.client.host not in _LOCAL:
        return None
    if any(name in request.headers for name in _FORWARDED) or not _LOCAL_HOST.fullmatch(
        request.headers.get("host", "")
    ):
        return None
    return Visitor("localhost", "write")


class Guard:
    """Middleware: size of bodies, origin of requests, headers of answers."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it; and log it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
        elif not self.settings.access_log:
            await self._guarded(scope, receive, send)
        else:
            await self._logged(scope, receive, send)

    async def _logged(self, scope: Scope, receive: Receive, send: Send) -> None:
        began, status, received, sent = time.perf_counter(), 500, 0, 0

        async def read() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            return message

        async def write(message: Message) -> None:
            nonlocal status, sent
            status = message.get("status", status)
            sent += len(message.get("body", b""))
            await send(message)

        try:
            await self._guarded(scope, read, write)
        finally:
            line = {
                "time": utc_now().isoformat(timespec="milliseconds"),
                "client": (scope.get("client") or ("",))[0],
                "who": scope.get("state", {}).get("visitor"),
                "method": scope["method"],
                "path": scope["path"],
                "status": status,
                "ms": round(1000 * (time.perf_counter() - began), 1),
                "received": received,
                "sent": sent,
            }
            _access.info("%s", json.dumps(line, ensure_ascii=True))

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        large = request.url.path.endswith(("/windows", "/estimator", "/row-labels"))
        limit = self.settings.max_body if large else _SMALL_BODY
        problem = _refusal(request, limit)
        if problem is not None:
            await _answer(send, *problem)
            return
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > limit:
                raise HTTPException(413, f"Expected a body of at most {limit:,} bytes, but it is larger")
            return message

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message["headers"]}
                extra = [(k.encode(), v.encode()) for k, v in _HEADERS.items() if k.encode() not in present]
                message["headers"] = [*message["headers"], *extra]
            await send(message)

        await self.app(scope, counted, with_headers)


def _refusal(request: Request, limit: int) -> tuple[int, str] | None:
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or len(length) > 18:
        return 400, "Expected Content-Length to be a number"
    if int(length) > limit:
        return 413, f"Expected a body of at most {limit:,} bytes, but it is larger"
    origin = request.headers.get("origin")
    foreign = origin is not None and _host_of(origin) != request.headers.get("host")
    if foreign and request.method not in ("GET", "HEAD", "OPTIONS"):
        return 403, "Expected a request from a page of this service"
    return None


def _host_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:  # such as http://[
        return None


async def _answer(send: Send, status: int, error: str) -> None:
    body = json.dumps({"error": error}).encode()
    headers: list[Any] = [(b"content-type", b"application/json"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class LimitedProtocol(H11Protocol):
    """Connections of uvicorn: at most so many, and none that sends no request."""

    def connection_made(self, transport: Any) -> None:
        """Take a connection, or close it at once where there are too many."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        else:
            self.loop.call_later(FIRST_REQUEST_S, self._close_if_silent)

    def _close_if_silent(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.abort()
