"""What a corruption of images is written with: its registration under a name with parameters, and random numbers.

Random numbers belong to an image: they are the same in every array library, on every device and in every batching.
A draw is a hash of the seed, the family, the layer (which of a family's random fields), the position of the image in
its set and the position in the field. Every step up to the returned number is an integer operation, a table look-up or
one rounded float32 addition or product, so that even thresholds on these numbers fall alike everywhere::

    key   = fmix32(fmix32(index_low ^ fmix32(index_high)) ^ salt(seed, family, layer))
    bits  = fmix32(key ^ fmix32(position + 0x9e3779b9))
"""

from __future__ import annotations

import math
import numbers
import os
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gdscore._arrays import Array, is_numpy, namespace
from gdscore._hashing import fmix32, logical_shift
from gdscore.errors import GdscoreError, nearest
from gdscore.shifts._resample import constant

__all__ = ["FAMILIES", "SEVERITIES", "Draws", "Family", "check_severity", "cores", "corruption", "family_of"]

SEVERITIES = 8
"""Five of the benchmark and three beyond it."""

Levels: TypeAlias = Sequence[float] | Sequence[tuple[float, ...]]


@dataclass(frozen=True)
class Family:
    """One corruption: ``apply(images, draws, *parameters)`` on float32 images N×C×H×W in [0, 1]."""

    name: str
    apply: Callable[..., Array]
    px32: tuple[tuple[float, ...], ...]
    px224: tuple[tuple[float, ...], ...]

    @property
    def group(self) -> str:
        """Name of the file it stands in: noise, blur, weather or digital."""
        return self.apply.__module__.rpartition(".")[2]

    def parameters(self, severity: int, height: int, width: int) -> tuple[float, ...]:
        """Parameters for an image size: those of 32 px up to there, of 224 px from there, and a power law between.

        A parameter that is 0 at one of the two sizes changes linearly in the logarithm of the size instead.
        """
        share = min(max(math.log(math.sqrt(height * width) / 32) / math.log(224 / 32), 0.0), 1.0)
        small, large = self.px32[severity - 1], self.px224[severity - 1]
        return tuple(
            a if a == b else a * (b / a) ** share if a > 0 and b > 0 else a + (b - a) * share
            for a, b in zip(small, large, strict=True)
        )


FAMILIES: dict[str, Family] = {}


def corruption(*, px32: Levels, px224: Levels) -> Callable[[Callable[..., Array]], Callable[..., Array]]:
    """Register a function under its own name, with its parameters at severities 1 … 8 for 32 px and 224 px images."""

    def decorate(function: Callable[..., Array]) -> Callable[..., Array]:
        tables = [tuple(p if isinstance(p, tuple) else (p,) for p in levels) for levels in (px32, px224)]
        FAMILIES[function.__name__] = Family(function.__name__, function, *tables)
        return function

    return decorate


_CELLS = 4096
_CELL_BITS = 12
_EXACT_RATE = 4.0
_MOST_COUNTS = 20


def _words(values: NDArray[np.uint64]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    low = (values & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.int32)
    return low, (values >> np.uint64(32)).astype(np.uint32).view(np.int32)


@lru_cache(maxsize=64)
def _indices(start: int, count: int) -> NDArray[np.int32]:
    low, high = _words(np.arange(start, start + count, dtype=np.uint64))
    mixed: NDArray[np.int32] = fmix32(low ^ fmix32(high))
    return mixed


@lru_cache(maxsize=16)
def _positions(count: int) -> NDArray[np.int32]:
    mixed: NDArray[np.int32] = fmix32((np.arange(count, dtype=np.uint32) + np.uint32(0x9E3779B9)).view(np.int32))
    return mixed


@lru_cache(maxsize=1)
def _normal_table() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Quantiles at the left end of each of 4096 cells of equal probability, and the rise within the cell."""
    inner = [NormalDist().inv_cdf(i / _CELLS) for i in range(1, _CELLS)]
    # The end cells are unbounded: they get the width that keeps their mean.
    end = 2 * NormalDist().pdf(inner[0]) * _CELLS + inner[0]
    knots = np.array([-end, *inner, end])
    return knots[:-1].astype(np.float32), np.diff(knots).astype(np.float32)


def check_severity(severity: Any) -> int:
    """Severity as an integer from 1 to 8."""
    integral = isinstance(severity, numbers.Integral) and not isinstance(severity, bool)
    if not (integral and 1 <= severity <= SEVERITIES):
        raise GdscoreError(f"Expected `severity` to be an integer from 1 to {SEVERITIES}, but got {severity!r}")
    return int(severity)


def family_of(name: Any) -> Family:
    """Registered corruption of this name."""
    if not isinstance(name, str) or name not in FAMILIES:
        raise GdscoreError(f"Unknown corruption {name!r}: {nearest(str(name), FAMILIES)}")
    return FAMILIES[name]


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Draws:
    """Random fields for the images ``start, start + 1, …`` of a set.

    Parameters
    ----------
    images : array of shape (N, C, H, W)
        Fields come in the library and on the device of these.
    family : str
        Name of the corruption: families draw independently of each other.
    seed, start : int
        Seed of the whole set, and position in the set of the first image.
    """

    def __init__(self, images: Array, family: str, seed: int, start: int) -> None:
        self._like = images
        self._rows = start, images.shape[0]
        self._seed = _words(np.array([seed & (2**64 - 1)], dtype=np.uint64))
        self._family = zlib.crc32(family.encode())

    def _salt(self, layer: int) -> NDArray[np.int32]:
        stream = np.array([(self._family + layer * 0x9E3779B9) & 0xFFFFFFFF], dtype=np.uint32).view(np.int32)
        salt: NDArray[np.int32] = fmix32(self._seed[0] ^ fmix32(self._seed[1] ^ fmix32(stream)))
        return salt

    def bits(self, layer: int, shape: tuple[int, ...]) -> Array:
        """Field of uniform int32 words, N × ``shape``."""
        count = int(np.prod(shape))
        # The keys are hashed where the images are: what goes there is the same for every layer, family and seed.
        keys = fmix32(constant(_indices(*self._rows), self._like, "indices", *self._rows) ^ int(self._salt(layer)[0]))
        positions = constant(_positions(count), self._like, "positions", count)
        words = fmix32(keys[:, None] ^ positions[None, :])
        return namespace(words).reshape(words, (keys.shape[0], *shape))

    def uniform(self, layer: int, shape: tuple[int, ...]) -> Array:
        """Field of multiples of 2⁻²⁴ in [0, 1)."""
        return _unit(logical_shift(self.bits(layer, shape), 8), 24)

    def normal(self, layer: int, shape: tuple[int, ...]) -> Array:
        """Field of standard normal numbers, within ±4."""
        return self._quantiles(self.bits(layer, shape))

    def poisson(self, layer: int, rate: Array, most: float) -> Array:
        """Poisson numbers for a field of rates up to ``most``.

        By inversion below a rate of 4, and above by the Cornish-Fisher expansion to third order, rounded.
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

    def per_image(self, layer: int, count: int = 1) -> NDArray[np.float64]:
        """N × ``count`` uniform numbers in [0, 1) on the host."""
        keys = fmix32(_indices(*self._rows) ^ self._salt(layer))
        words = fmix32(keys[:, None] ^ _positions(count)[None, :])
        unit: NDArray[np.float64] = words.view(np.uint32).astype(np.float64) * 2.0**-32
        return unit

    def _quantiles(self, bits: Array) -> Array:
        xp = namespace(bits)
        left, rise = (constant(t, self._like, "normal", i) for i, t in enumerate(_normal_table()))
        cell = xp.reshape(logical_shift(bits, 32 - _CELL_BITS), (-1,))
        within = _unit(bits & ((1 << (32 - _CELL_BITS)) - 1), 32 - _CELL_BITS)
        base, slope = (xp.reshape(_looked_up(t, cell), bits.shape) for t in (left, rise))
        slope *= within
        slope += base
        return slope


def _looked_up(table: Array, cell: Array) -> Array:
    # Without bounds to check, NumPy looks up twice as fast.
    return np.take(table, cell, mode="clip") if is_numpy(table) else namespace(table).take(table, cell, axis=0)


def _unit(words: Array, bits: int) -> Array:
    xp = namespace(words)
    unit = xp.astype(words, xp.float32)
    unit *= 2.0**-bits
    return unit


def _poisson_counts(u: Array, rate: Array, terms: int) -> Array:
    """Poisson numbers by inversion of the distribution function at ``u``, for rates up to 4."""
    xp = namespace(rate)
    # exp(−rate) from sums and products alone: libraries round their own exp differently, and a count would jump.
    term = 1.0 - rate * (1 / 16) * (1.0 - rate * (1 / 32) * (1.0 - rate * (1 / 48) * (1.0 - rate * (1 / 64))))
    for _ in range(4):
        term = term * term
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
