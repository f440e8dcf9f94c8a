"""Random numbers that belong to a row of a table or to a text, and shift families by name with their strength.

A draw is the same for every batch size. It is a hash of the seed, a name (of the shift family), a layer (which of its
random fields), the position of the row in its set and a position within the row (a column, a word)::

    key  = fmix32(row_low ^ fmix32(row_high ^ salt(seed, name, layer)))
    bits = fmix32(key ^ fmix32(position + 0x9e3779b9))
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from gdscore._checks import integer
from gdscore._hashing import fmix32
from gdscore.errors import GdscoreError

__all__ = [
    "SEVERITIES",
    "Context",
    "Families",
    "Numbers",
    "RowDraws",
    "RowShift",
    "check_severities",
    "chosen",
    "pairs_to_swap",
    "set_draws",
    "signs",
]

Numbers = NDArray[np.float64]


def _signed(values: Any) -> NDArray[np.int32]:
    return np.asarray(values, dtype=np.uint64).astype(np.uint32).view(np.int32)


def _mixed_positions(positions: NDArray[Any]) -> NDArray[np.int32]:
    mixed: NDArray[np.int32] = fmix32(_signed((positions.astype(np.uint64) + 0x9E3779B9) & 0xFFFFFFFF))
    return mixed


class RowDraws:
    """Random numbers for the rows ``start, start + 1, …`` of a set.

    Parameters
    ----------
    name : str
        Draws of different names are independent.
    seed : int
        Seed of the whole set.
    start, rows : int
        Position in the set of the first row, and number of rows.
    """

    def __init__(self, name: str, seed: int, start: int = 0, rows: int = 1) -> None:
        self._name = name
        self._seed = seed
        index = np.arange(start, start + rows, dtype=np.uint64)
        self._low, self._high = _signed(index & np.uint64(0xFFFFFFFF)), _signed(index >> np.uint64(32))
        self._made: dict[int, NDArray[np.int32]] = {}

    def _keys(self, layer: int) -> NDArray[np.int32]:
        if layer not in self._made:
            salt = _signed(zlib.crc32(f"{self._name}/{layer}/{self._seed}".encode()))
            self._made[layer] = fmix32(self._low ^ fmix32(self._high ^ salt))
        return self._made[layer]

    def uniform(self, layer: int, count: int) -> Numbers:
        """Field of uniform numbers strictly between 0 and 1, rows × ``count``."""
        return _unit(fmix32(self._keys(layer)[:, None] ^ _mixed_positions(np.arange(count))[None, :]))

    def uniform_at(self, layer: int, row: NDArray[Any], position: NDArray[Any]) -> Numbers:
        """Entries (``row``, ``position``) of the same field, without making the rest of it."""
        return _unit(fmix32(self._keys(layer)[row] ^ _mixed_positions(position)))

    def normal(self, layer: int, count: int) -> Numbers:
        """Field of standard normal numbers, rows × ``count``."""
        return np.asarray(ndtri(self.uniform(layer, count)))

    def integers(self, layer: int, count: int, below: int) -> NDArray[np.int64]:
        """Field of integers from 0 to ``below`` − 1, rows × ``count``."""
        return (self.uniform(layer, count) * below).astype(np.int64)


def set_draws(family: str, severity: int, seed: int, layer: int, count: int) -> Numbers:
    """``count`` uniform numbers that a whole shifted set shares: for the choice of columns, factors and directions."""
    return np.asarray(RowDraws(f"{family}, the set, {severity}", seed).uniform(layer, count)[0])


def _unit(words: NDArray[np.int32]) -> Numbers:
    return (words.view(np.uint32).astype(np.float64) + 0.5) * 2.0**-32


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


@dataclass(frozen=True, eq=False)
class RowShift:
    """One shift family at one severity, with what it has learned from the reference; callable on a batch.

    Attributes
    ----------
    family : str
        Name that all severities share.
    severity : int
        1 (mild) to 4 (strong).
    seed : int
        Of the random numbers of the rows and of the set.
    """

    family: str
    severity: int
    seed: int = 0
    reference: Any = field(default=None, repr=False)

    selects_rows: ClassVar[bool] = False


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
