"""Shift families by name with their strength at four severities, and the random choices that a whole set shares."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore._options import integer
from gdscore.errors import GdscoreError
from gdscore.shifts._rows import Numbers, RowDraws, set_draws

__all__ = ["SEVERITIES", "Context", "Families", "check_severities", "chosen", "pairs_to_swap", "signs"]

SEVERITIES = 4


@dataclass(frozen=True)
class Context:
    """How strong a shift is, and its random numbers: ``rows`` of the batch's rows, ``of_set`` of the whole set."""

    family: str
    severity: int
    seed: int
    level: float
    rows: RowDraws

    def of_set(self, layer: int, count: int) -> Numbers:
        """``count`` uniform numbers in (0, 1), the same for all batches of the set."""
        return set_draws(self.family, self.severity, self.seed, layer, count)


class Families:
    """Functions of one kind of input by name, each with its level at severities 1 to 4."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[Callable[..., Any], tuple[float, ...]]] = {}

    def family(self, *levels: float) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Register a function under its own name."""

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            self._entries[function.__name__] = function, levels
            return function

        return decorate

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def function(self, family: str) -> Callable[..., Any]:
        """Function of a family."""
        return self._entries[family][0]

    def context(self, family: str, severity: int, seed: int, start: int, rows: int) -> Context:
        """Strength and random numbers for the rows ``start, start + 1, …`` of a set."""
        level = self._entries[family][1][severity - 1]
        # All severities share the draws of a row, so that a stronger shift hits the cells that a weaker one hits.
        draws = RowDraws(family, seed, integer("start", start, least=0), rows)
        return Context(family, severity, seed, level, draws)


def check_severities(severities: Iterable[int]) -> list[int]:
    """Severities as integers from 1 to 4."""
    if isinstance(severities, (str, bytes)) or not isinstance(severities, Iterable):
        raise GdscoreError(f"Expected `severities` to be integers from 1 to {SEVERITIES}, but got {severities!r}")
    levels = list(severities)
    for level in levels:
        if integer("severities", level, least=1) > SEVERITIES:
            raise GdscoreError(f"Expected `severities` to be integers from 1 to {SEVERITIES}, but got {level!r}")
    return [int(level) for level in levels]


def signs(context: Context, count: int) -> Numbers:
    """−1 or 1 for each column, the same for the whole set."""
    return np.where(context.of_set(0, count) < 0.5, -1.0, 1.0)


def chosen(context: Context, count: int) -> NDArray[np.bool_]:
    """Choose a share ``level`` of the columns, and at least one, for the whole set."""
    number = max(1, round(context.level * count))
    which = np.zeros(count, dtype=np.bool_)
    which[np.argsort(context.of_set(0, count))[:number]] = True
    return which


def pairs_to_swap(size: Numbers, context: Context) -> NDArray[np.int64]:
    """Order of the columns after a share ``level`` of the pairs of columns of similar size have exchanged places."""
    by_size = np.argsort(size, kind="stable")
    pairs = by_size[: len(size) // 2 * 2].reshape(-1, 2)
    if len(size) % 2 and context.of_set(1, 1)[0] < 0.5:
        pairs = by_size[1:].reshape(-1, 2)
    pairs = pairs[chosen(context, len(pairs))]
    order = np.arange(len(size))
    order[pairs] = pairs[:, ::-1]
    return order
