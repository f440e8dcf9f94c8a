"""Sums over rows that are matrices: XᵀX and sums by class."""

from __future__ import annotations

import numpy as np

from gdscore import _arrays as arrays
from gdscore._arrays import Array, namespace

_BLOCK = 256


def lower_gram(x: Array) -> Array:
    """XᵀX, of which only the lower triangle is meaningful; `mirrored` completes it."""
    xp = namespace(x)
    width = x.shape[1]
    if arrays.is_jax(x) or width <= 2 * _BLOCK:
        return x.T @ x
    gram = xp.zeros((width, width), dtype=x.dtype, device=arrays.device(x))
    for start in range(0, width, _BLOCK):
        end = min(start + _BLOCK, width)
        gram[start:end, :end] = x[:, start:end].T @ x[:, :end]
    return gram


def mirrored(lower: Array) -> Array:
    """Symmetric matrix with the given lower triangle."""
    xp = namespace(lower)
    return xp.tril(lower) + xp.tril(lower, k=-1).T


def sums_by_class(x: Array, classes: Array, n_classes: int) -> Array:
    """Sum of the rows of each class in float64, shape (K, D), the same in every run."""
    rows = x.shape[0]
    if arrays.on_host(x) or arrays.is_jax(x):
        from scipy.sparse import csr_array

        one_hot = csr_array((np.ones(rows), arrays.to_numpy(classes), np.arange(rows + 1)), shape=(rows, n_classes))
        return one_hot.T @ arrays.to_numpy(x)
    # On an accelerator adding by index has no fixed order; a product with the one-hot matrix has.
    xp = namespace(x)
    one_hot = xp.arange(n_classes, device=arrays.device(x))[:, None] == classes[None, :]
    return xp.astype(one_hot, xp.float64) @ xp.astype(x, xp.float64)
