"""The exceptions and the warning that gdscore raises on purpose, and how values are written in their messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

__all__ = ["GdscoreError", "GdscoreWarning", "NoRowsError", "RowError", "nearest", "shown"]

_LONGEST = 120
_MOST_NAMES = 30
_MOST_COMPARED = 2000


class GdscoreError(ValueError):
    """Something the caller gave cannot be used; the message has what was expected and what came."""


class NoRowsError(GdscoreError):
    """Files that hold no rows: an error for one who reads them all, an empty part for one who reads one of many."""


class RowError(GdscoreError):
    """A row cannot be used.

    Readers of tables raise it again with the row number and the name of the table.
    """

    def __init__(
        self, problem: str, row: int, cure: str = "", array: str = "", n_rows: int = 1, table: str = ""
    ) -> None:
        # All arguments are kept by the base class, so that pickling gives the same exception.
        super().__init__(problem, row, cure, array, n_rows, table)
        self.problem = problem  # what was expected and what came, without the place
        self.row = row  # number of the first such row, counted from 0
        self.cure = cure  # what to do, beginning with a colon; may be empty
        self.array = array  # array of `Outputs` that the row is wrong in
        self.n_rows = n_rows  # how many rows are wrong in this way
        self.table = table  # file or table that the row number counts in; empty where it counts in the arrays given

    def __str__(self) -> str:
        place = f" of {self.table}" if self.table else ""
        more = f", the first of {self.n_rows} such rows" if self.n_rows > 1 else ""
        return f"{self.problem} in row {self.row}{place}{more}{self.cure}"


class GdscoreWarning(UserWarning):
    """A number was computed, but the reader should know something about it."""


def nearest(name: str, valid: Iterable[str]) -> str:
    """Suggest the valid names closest to a mistyped one, or list the valid names when none is close."""
    names = sorted(valid)
    close = difflib.get_close_matches(str(name)[:_LONGEST], names[:_MOST_COMPARED], n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"valid are {', '.join(map(repr, names[:_MOST_NAMES]))}{more}"


def shown(value: Any) -> str:
    """Format a value for an error message: its repr in one line, shortened if it is long, or its type without one."""
    try:
        text = " ".join(repr(value).split())
    except Exception:
        return f"a {type(value).__name__}"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
