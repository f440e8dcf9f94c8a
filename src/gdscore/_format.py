"""How numbers and names are written for people, and the environment of HTML templates."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


def percent(share: float, *, short: bool = False) -> str:
    """Share as a percentage with one decimal; ``short`` leaves out a decimal of 0.

    Examples
    --------
    >>> percent(0.9), percent(0.9, short=True), percent(0.999, short=True)
    ('90.0%', '90%', '99.9%')
    """
    text = f"{100 * share:.1f}"
    return f"{text.removesuffix('.0') if short else text}%"


def points(share: float) -> str:
    """Difference of shares in percentage points with one decimal.

    Examples
    --------
    >>> points(0.1264)
    '12.6 points'
    """
    return f"{100 * share:.1f} points"


def printable(text: str) -> str:
    r"""Text without anything that a terminal obeys: control characters and invalid Unicode become escapes.

    Line breaks stay. Characters that change the direction of writing count as control characters.

    Examples
    --------
    >>> print(printable("\x1b[2J" + "logs" + chr(0xDC80) + chr(0x202E)))
    \x1b[2Jlogs\udc80\u202e
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char.encode("unicode_escape").decode() if unicodedata.category(char) in _OBEYED and char != "\n" else char
        for char in text
    )


_OBEYED = ("Cc", "Cf", "Cs", "Zl", "Zp")


def template_environment(package: str, **filters: Callable[..., Any]) -> Environment:
    """Templates of a package, with filters of its own: undefined names are errors, and values are escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent, "thousands": lambda value: f"{value:,.0f}", **filters}
    return environment
