"""Random numbers that belong to a row of a table or to a text: the same for every batch size.

A draw is a hash of the seed, a name (of the shift family), a layer (which of its random fields), the position of the
row in its set and a position within the row (a column, a word)::

    key  = fmix32(row_low ^ fmix32(row_high ^ salt(seed, name, layer)))
    bits = fmix32(key ^ fmix32(position + 0x9e3779b9))
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from gdscore._hashing import fmix32

__all__ = ["Numbers", "RowDraws", "set_draws"]

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
