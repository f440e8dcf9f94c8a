"""What a shift is written with: families by name with their parameters at each severity, and random numbers of rows.

A random number belongs to a row (an image, a row of a table, a text) and is the same for every batch size and, bit for
bit, with NumPy and PyTorch. It is a hash of the seed, a name (the shift family), a layer (which of the family's random
fields), the position of the row in its set and a position within the row (a pixel, a column, a word)::

    key  = fmix32(row_low ^ fmix32(row_high ^ crc32(name / layer / seed)))
    bits = fmix32(key ^ fmix32(position + 0x9e3779b9))
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import NormalDist
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gdscore._arrays import Array, is_numpy, namespace
from gdscore._checks import integer
from gdscore._hashing import fmix32, logical_shift
from gdscore.errors import GdscoreError, nearest
from gdscore.shifts._resample import constant

Numbers: TypeAlias = NDArray[np.float64]
Levels: TypeAlias = Sequence[float] | Sequence[tuple[float, ...]]

_CELLS = 4096
_CELL_BITS = 12
_EXACT_RATE = 4.0
_MOST_COUNTS = 20


class Draws:
    """Random numbers of the rows ``start, start + 1, …`` of a set; those of different names are independent.

    ``seed`` is that of the whole set. Fields come in the library and on the device of ``like``, by default NumPy's.
    """

    def __init__(self, name: str, seed: int, start: int = 0, rows: int = 1, like: Array | None = None) -> None:
        self._name, self._seed = name, seed
        self._rows = start, rows
        self._like = np.empty(0) if like is None else like
        self._made: dict[int, NDArray[np.int32]] = {}

    def uniform(self, layer: int, count: int) -> Numbers:
        """``count`` uniform numbers for each row, strictly between 0 and 1, on the host."""
        return _open_unit(fmix32(self._keys(layer)[:, None] ^ _positions(count)[None, :]))

    def uniform_at(self, layer: int, row: NDArray[Any], position: NDArray[Any]) -> Numbers:
        """Entries (``row``, ``position``) of what `uniform` gives, without making the rest of it."""
        return _open_unit(fmix32(self._keys(layer)[row] ^ _mixed(position)))

    def normal(self, layer: int, count: int) -> Numbers:
        """``count`` standard normal numbers for each row, on the host."""
        from scipy.special import ndtri

        return np.asarray(ndtri(self.uniform(layer, count)))

    def integers(self, layer: int, count: int, below: int) -> NDArray[np.int64]:
        """``count`` integers from 0 to ``below`` − 1 for each row, on the host."""
        return (self.uniform(layer, count) * below).astype(np.int64)

    def bits(self, layer: int, shape: tuple[int, ...]) -> Array:
        """Field of uniform int32 words, rows × ``shape``."""
        count = int(np.prod(shape))
        # Hashed where the images are: what goes there is the same for every layer, family and seed.
        low, high = _row_words(*self._rows)
        keys = self._hashed(
            constant(low, self._like, "low", *self._rows), constant(high, self._like, "high", *self._rows), layer
        )
        words = fmix32(keys[:, None] ^ constant(_positions(count), self._like, "positions", count)[None, :])
        return namespace(words).reshape(words, (keys.shape[0], *shape))

    def uniform_field(self, layer: int, shape: tuple[int, ...]) -> Array:
        """Field of float32 multiples of 2⁻²⁴ in [0, 1), rows × ``shape``."""
        return _unit(logical_shift(self.bits(layer, shape), 8), 24)

    def normal_field(self, layer: int, shape: tuple[int, ...]) -> Array:
        """Field of float32 standard normal numbers, within ±4, rows × ``shape``."""
        return self._quantiles(self.bits(layer, shape))

    def poisson_field(self, layer: int, rate: Array, most: float) -> Array:
        """Poisson numbers for a field of rates up to ``most``.

        By inversion below a rate of 4, and above by the Cornish-Fisher expansion to third order, rounded. Libraries
        draw Poisson numbers from one generator for the whole batch, so that a row's number would depend on the batch.
        """
        xp = namespace(rate)
        bits = self.bits(layer, tuple(rate.shape[1:]))
        u = _unit(logical_shift(bits, 8), 24)
        terms = min(_MOST_COUNTS, int(8 + 4 * most))
        if most <= _EXACT_RATE:
            return _poisson_counts(u, rate, terms)
        z, root = self._quantiles(bits), xp.sqrt(rate.clip(_EXACT_RATE, None))
        expansion = rate + root * z + (z * z - 1.0) * (1 / 6) + (z - z * z * z) * (1 / 72) / root
        large = xp.floor(expansion + 0.5).clip(0.0, None)
        if is_numpy(rate):
            few = np.flatnonzero(rate <= _EXACT_RATE)
            large.reshape(-1)[few] = _poisson_counts(u.reshape(-1)[few], rate.reshape(-1)[few], terms)
            return large
        return xp.where(rate <= _EXACT_RATE, _poisson_counts(u, rate.clip(None, _EXACT_RATE), terms), large)

    def _keys(self, layer: int) -> NDArray[np.int32]:
        if layer not in self._made:
            self._made[layer] = self._hashed(*_row_words(*self._rows), layer)
        return self._made[layer]

    def _hashed(self, low: Array, high: Array, layer: int) -> Array:
        salt = zlib.crc32(f"{self._name}/{layer}/{self._seed}".encode())
        return fmix32(low ^ fmix32(high ^ int(np.uint32(salt).view(np.int32))))

    def _quantiles(self, bits: Array) -> Array:
        xp = namespace(bits)
        left, rise = _normal_table()
        cell = xp.reshape(logical_shift(bits, 32 - _CELL_BITS), (-1,))
        within = _unit(bits & ((1 << (32 - _CELL_BITS)) - 1), 32 - _CELL_BITS)
        base = xp.reshape(_looked_up(constant(left, self._like, "left"), cell), bits.shape)
        slope = xp.reshape(_looked_up(constant(rise, self._like, "rise"), cell), bits.shape)
        slope *= within
        slope += base
        return slope


def set_draws(family: str, severity: int, seed: int, layer: int, count: int) -> Numbers:
    """``count`` uniform numbers that a whole shifted set shares: for the choice of columns, factors and directions."""
    return np.asarray(Draws(f"{family}, the set, {severity}", seed).uniform(layer, count)[0])


@lru_cache(maxsize=64)
def _row_words(start: int, rows: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Low and high halves of the positions of rows."""
    index = np.arange(start, start + rows, dtype=np.uint64)
    low = (index & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.int32)
    return low, (index >> np.uint64(32)).astype(np.uint32).view(np.int32)


def _mixed(positions: NDArray[Any]) -> NDArray[np.int32]:
    shifted = (positions.astype(np.uint64) + np.uint64(0x9E3779B9)).astype(np.uint32)
    mixed: NDArray[np.int32] = fmix32(shifted.view(np.int32))
    return mixed


@lru_cache(maxsize=16)
def _positions(count: int) -> NDArray[np.int32]:
    return _mixed(np.arange(count))


@lru_cache(maxsize=1)
def _normal_table() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Quantiles at the left end of each of 4096 cells of equal probability, and the rise within the cell."""
    inner = [NormalDist().inv_cdf(i / _CELLS) for i in range(1, _CELLS)]
    # The end cells are unbounded: they get the width that keeps their mean.
    end = 2 * NormalDist().pdf(inner[0]) * _CELLS + inner[0]
    knots = np.array([-end, *inner, end])
    return knots[:-1].astype(np.float32), np.diff(knots).astype(np.float32)


def _looked_up(table: Array, cell: Array) -> Array:
    # Without bounds to check, NumPy looks up twice as fast.
    return np.take(table, cell, mode="clip") if is_numpy(table) else namespace(table).take(table, cell, axis=0)


def _open_unit(words: NDArray[np.int32]) -> Numbers:
    return (words.view(np.uint32).astype(np.float64) + 0.5) * 2.0**-32


def _unit(words: Array, bits: int) -> Array:
    xp = namespace(words)
    unit = xp.astype(words, xp.float32)
    unit *= 2.0**-bits
    return unit


def _poisson_counts(u: Array, rate: Array, terms: int) -> Array:
    """Poisson numbers by inversion of the distribution function at ``u``, for rates up to 4."""
    xp = namespace(rate)
    term = xp.exp(-rate)
    cumulative, counts = term + 0.0, xp.astype(u >= term, xp.float32)
    for k in range(1, terms):
        term *= rate
        term *= 1 / k
        cumulative += term
        reached = u >= cumulative
        # An accelerator would have to be waited for to know this.
        if is_numpy(rate) and not reached.any():
            break
        counts += reached
    return counts


@dataclass(frozen=True)
class Family:
    """One shift family: its function, and the function's parameters at each severity.

    ``px224`` are the parameters for images of 224 pixels where those for 32 pixels, in ``levels``, differ.
    """

    name: str
    function: Callable[..., Any]
    levels: tuple[tuple[float, ...], ...]
    px224: tuple[tuple[float, ...], ...]

    def parameters(self, severity: int, height: int = 32, width: int = 32) -> tuple[float, ...]:
        """Parameters for an image size: those of 32 px up to there, of 224 px from there, and a power law between.

        A parameter that is 0 at one of the two sizes changes linearly in the logarithm of the size instead.
        """
        share = min(max(math.log(math.sqrt(height * width) / 32) / math.log(224 / 32), 0.0), 1.0)
        small, large = self.levels[severity - 1], self.px224[severity - 1]
        return tuple(
            a if a == b else a * (b / a) ** share if a > 0 and b > 0 else a + (b - a) * share
            for a, b in zip(small, large, strict=True)
        )


class Families:
    """Shift families of one kind of input by name, all with the same number of severities."""

    def __init__(self, severities: int) -> None:
        self.severities = range(1, severities + 1)
        self._families: dict[str, Family] = {}

    def family(
        self, levels: Levels, *, px224: Levels | None = None
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Register a function under its own name, with its parameters at severities 1, 2, …

        For images ``levels`` are those of 32×32 pixels, and ``px224`` those of 224×224.
        """

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            tables = [
                tuple(p if isinstance(p, tuple) else (p,) for p in levels_by_severity)
                for levels_by_severity in (levels, px224 or levels)
            ]
            self._families[function.__name__] = Family(function.__name__, function, *tables)
            return function

        return decorate

    def __iter__(self) -> Iterator[str]:
        return iter(self._families)

    def __getitem__(self, name: Any) -> Family:
        if not isinstance(name, str) or name not in self._families:
            raise GdscoreError(f"Unknown shift family {name!r}: {nearest(str(name), self._families)}")
        return self._families[name]

    def check_severities(self, severities: Iterable[int]) -> list[int]:
        """Severities as a list of integers that the families have."""
        most = self.severities[-1]
        if isinstance(severities, (str, bytes)) or not isinstance(severities, Iterable):
            raise GdscoreError(f"Expected `severities` to be integers from 1 to {most}, but got {severities!r}")
        return [integer("severity", severity, least=1, most=most) for severity in severities]

    def context(self, family: str, severity: int, seed: int, start: int, rows: int) -> Context:
        """Strength and random numbers for the rows ``start, start + 1, …`` of a set."""
        # All severities share the draws of a row, so that a stronger shift hits the cells that a weaker one hits.
        draws = Draws(family, seed, integer("start", start, least=0), rows)
        return Context(family, severity, seed, self[family].levels[severity - 1][0], draws)


IMAGES = Families(severities=8)
"""Corruptions of images, ``function(images, draws, *parameters)`` on float32 images N×C×H×W in [0, 1].

Severities 1 to 5 are those of the benchmark, 6 to 8 go beyond it.
"""


@dataclass(frozen=True)
class Context:
    """How strong a shift is, and its random numbers: ``rows`` of the batch's rows, ``of_set`` of the whole set."""

    family: str
    severity: int
    seed: int
    level: float
    rows: Draws

    def of_set(self, layer: int, count: int) -> Numbers:
        """``count`` uniform numbers in (0, 1), the same for all batches of the set."""
        return set_draws(self.family, self.severity, self.seed, layer, count)


@dataclass(frozen=True, eq=False)
class RowShift:
    """One shift family of tables or texts at one severity, with what it has learned from the reference."""

    family: str  # name that all severities share
    severity: int  # 1 (mild) to 4 (strong)
    seed: int = 0  # seed of the random numbers of the rows and of the set
    reference: Any = field(default=None, repr=False)

    selects_rows: ClassVar[bool] = False
