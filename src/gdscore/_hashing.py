"""A pseudo-random number that belongs to a row: the same in every array library, batching and order.

A row is seen as 32-bit words w_1 … w_L: the float32 bits of its logits (or of its probabilities, when that is
what the model gave), or the two halves of its id. Every step is a two's-complement int32 operation, which wraps
alike in NumPy, PyTorch, JAX and CuPy::

    t_j  = (w_j ^ (w_j >>> 16)) * c_j,   t_j ^= t_j >>> 15        c_j = fmix32(j) | 1,  j = 1 … L
    key  = ( fmix32(Σ_j t_j),  fmix32(Σ_j t_j * d_j) )            d_j = fmix32(j + 2³¹) | 1
    label = ( fmix32(key₁ ^ fmix32(seed + 0x9e3779b9)) & 0x7fffffff ) mod K

``fmix32`` is the finaliser of MurmurHash3 (A. Appleby, public domain). A word 0 adds nothing to the sums, so
strings of different padding keep their key. Test vectors stand in ``research/scores.md``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore._arrays import Array, device, is_numpy, is_torch, library, like, namespace, to_numpy, working

_MULTIPLIERS: dict[tuple[int, str, str], tuple[Array, Array]] = {}


def logical_shift(x: Array, bits: int) -> Array:
    """Right shift of int32 numbers as if they were unsigned."""
    x = x >> bits
    x &= (1 << (32 - bits)) - 1
    return x


def _signed(constant: int) -> int:
    return constant - (1 << 32) if constant >= 1 << 31 else constant


def fmix32(x: Array) -> Array:
    """Finaliser of MurmurHash3 on int32 numbers."""
    x = x ^ logical_shift(x, 16)
    # In place, where the library can: fields of random numbers are as large as the images.
    x *= _signed(0x85EBCA6B)
    x ^= logical_shift(x, 13)
    x *= _signed(0xC2B2AE35)
    x ^= logical_shift(x, 16)
    return x


def _multipliers(words: Array) -> tuple[Array, Array]:
    """Constants c and d for a matrix of words, kept for each width and device: a copy to a device waits for it."""
    place = (words.shape[1], library(words), str(device(words)))
    if place not in _MULTIPLIERS:
        if len(_MULTIPLIERS) >= 64:
            _MULTIPLIERS.clear()
        position = np.arange(1, words.shape[1] + 1, dtype=np.uint32)
        first = like(fmix32(position.view(np.int32)) | 1, words)
        second = like(fmix32((position + np.uint32(1 << 31)).view(np.int32)) | 1, words)
        _MULTIPLIERS[place] = first, second
    return _MULTIPLIERS[place]


def value_words(values: Array) -> Array:
    """Float32 bits of an m×K matrix as int32; −0 counts as 0."""
    xp = namespace(values)
    with np.errstate(over="ignore"):
        words = working(xp.astype(values, xp.float32, copy=False)).view(xp.int32)
    # Not by adding 0.0: JAX takes numbers below 1e-38 for 0 when it computes. The sign of a sum that overflows tells
    # numbers from 0, in less time than a comparison.
    size = words & 0x7FFFFFFF
    sign = size + 0x7FFFFFFF
    sign &= words
    sign &= -(2**31)
    sign |= size
    return sign


def id_words(ids: Array) -> Array:
    """Words of integer or (NumPy) string row ids, m×L int32."""
    xp = namespace(ids)
    if is_numpy(ids) and ids.dtype.kind in "US":
        points = np.ascontiguousarray(ids.astype(np.str_))
        return points.view(np.int32).reshape(len(ids), -1)
    if xp.isdtype(ids.dtype, xp.int64) or xp.isdtype(ids.dtype, xp.uint64):
        flat = ids.contiguous() if is_torch(ids) else xp.asarray(ids, order="C") if is_numpy(ids) else ids
        return flat.view(xp.int32).reshape((ids.shape[0], 2))
    low = xp.astype(ids, xp.int32)
    high = xp.zeros_like(low) if xp.isdtype(ids.dtype, "unsigned integer") else low >> 31
    return xp.stack([low, high], axis=1)


def row_key(words: Array) -> tuple[Array, Array]:
    """Two int32 hashes of every row of an m×L matrix of words."""
    xp = namespace(words)
    first, second = _multipliers(words)
    mixed = logical_shift(words, 16)
    mixed ^= words
    mixed *= first
    mixed ^= logical_shift(mixed, 15)
    high = fmix32(xp.sum(mixed, axis=1, dtype=xp.int32))
    mixed *= second
    return high, fmix32(xp.sum(mixed, axis=1, dtype=xp.int32))


def label_hash(key: Array, seed: int, classes: int) -> Array:
    """Label 0 … K−1 of every row, uniform over seeds and rows."""
    salt = fmix32(np.array([_signed((seed + 0x9E3779B9) & 0xFFFFFFFF)], dtype=np.int32))
    return (fmix32(key ^ int(salt[0])) & 0x7FFFFFFF) % classes


def key_as_uint64(key: tuple[Array, ...]) -> NDArray[np.uint64]:
    """Both hashes of a key as one host number, by which rows can be put in order."""
    high, low = [to_numpy(half).view(np.uint32).astype(np.uint64) for half in key]
    combined: NDArray[Any] = (high << np.uint64(32)) | low
    return combined
