"""The one exception and the one warning that gdscore raises on purpose."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

__all__ = ["GdscoreError", "GdscoreWarning", "NoRowsError", "nearest", "shown"]

_LONGEST = 120


class GdscoreError(ValueError):
    """Something the caller gave cannot be used; the message has what was expected and what came."""


class NoRowsError(GdscoreError):
    """Files that hold no rows: an error for one who reads them all, an empty part for one who reads one of many."""


class GdscoreWarning(UserWarning):
    """A number was computed, but the reader should know something about it."""


def nearest(name: str, valid: Iterable[str]) -> str:
    """Word the valid names closest to a mistyped one, or all of them when none is close."""
    names = sorted(valid)
    close = difflib.get_close_matches(str(name), names, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(map(repr, close))}?" if close else f"valid are {', '.join(map(repr, names))}"


def shown(value: Any) -> str:
    """Word a value for a message: its repr in one line, cut where it is long, or its type where it has none."""
    try:
        text = " ".join(repr(value).split())
    except Exception:
        return f"a {type(value).__name__}"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
