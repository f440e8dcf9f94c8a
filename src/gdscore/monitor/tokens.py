"""Tokens of the service: random, shown once, kept as their SHA-256, each with a role."""

from __future__ import annotations

import hashlib
import secrets
from typing import Literal

from sqlalchemy import delete, select

from gdscore._options import choice
from gdscore.errors import GdscoreError
from gdscore.monitor.history import Monitor
from gdscore.monitor.schema import Token
from gdscore.monitor.splitting import check_name
from gdscore.monitor.times import now_micros

__all__ = ["Role", "create_token", "find_token", "revoke_token"]

Role = Literal["read", "write"]


def create_token(monitor: Monitor, name: str, role: str = "read") -> str:
    """Make a token and return it: it cannot be shown again."""
    check_name("token", name)
    choice("role", role, ("read", "write"))
    token = f"gds_{secrets.token_urlsafe(32)}"
    with monitor.writing() as session:
        if session.scalars(select(Token.id).where(Token.name == name)).first() is not None:
            raise GdscoreError(f"Expected a new name, but there is a token {name!r}: revoke it first")
        session.add(Token(name=name, digest=_digest(token), role=role, created_at=now_micros()))
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
