"""The public roads by name. A road is a function that yields what is recorded of it.

Every road calls the public API in its own lines, so that a renamed function is adapted in one place. Keys and what is
recorded do not depend on names of the API. `make test` runs the quick ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Found = Iterator[tuple[str, Any]]
ROADS: dict[str, Callable[[], Found]] = {}
QUICK: list[str] = []
OPTIONAL: list[str] = []


def road(name: str, *, quick: bool = True, optional: bool = False):
    """Register a road; ``optional`` ones are run only when they are named."""

    def decorate(function):
        ROADS[name] = function
        (OPTIONAL if optional else QUICK if quick else []).append(name)
        return function

    return decorate
