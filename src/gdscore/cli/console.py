"""Where words go: results to standard output, everything else to standard error.

Requirements met here:

- colour and bars only where a terminal is attached, and no colour under ``NO_COLOR``;
- into a pipe or a file nothing is wrapped or cut, so that a line stays a line;
- rich is imported when something is printed.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gdscore.errors import GdscoreWarning

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["cautions", "errors", "once", "percent", "results", "short_percent", "working"]

_UNWRAPPED = 10_000


def results() -> Console:
    """Console of standard output."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else _UNWRAPPED, highlight=False, emoji=False)


def errors() -> Console:
    """Console of standard error."""
    from rich.console import Console

    return Console(stderr=True, width=None if sys.stderr.isatty() else _UNWRAPPED, highlight=False, emoji=False)


@contextlib.contextmanager
def working(what: str, quiet: bool) -> Iterator[None]:
    """Show that something is going on whose length is not known."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    with errors().status(what):
        yield


@contextlib.contextmanager
def cautions() -> Iterator[list[str]]:
    """Collect what gdscore warns of as sentences; warnings of others pass."""
    said: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GdscoreWarning)
        yield said
    for warning in caught:
        if issubclass(warning.category, GdscoreWarning):
            said.append(str(warning.message))
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def percent(share: float) -> str:
    """Share as a percentage."""
    return f"{share:.1%}"


def short_percent(share: float) -> str:
    """Share as a percentage, with a decimal where it has one.

    Examples
    --------
    >>> short_percent(0.9), short_percent(0.999)
    ('90%', '99.9%')
    """
    return f"{100 * share:.1f}".removesuffix(".0") + "%"


def once(said: list[tuple[str, list[str]]]) -> list[str]:
    """Each sentence once, with the targets it concerns where that is not all of them."""
    concerned: dict[str, list[str]] = {}
    for name, lines in said:
        for line in lines:
            concerned.setdefault(line, []).append(name)
    return [line if len(names) == len(said) else f"{line} ({', '.join(names)})" for line, names in concerned.items()]
