"""Passes over a large matrix in blocks that stay inside the cache."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Floats", "Integers", "best_classes", "blocks"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

BLOCK_ENTRIES = 2**18  # one block of float64 scratch stays inside the cache


def best_classes(S: Floats, prices: Floats) -> Integers:
    """The class that maximises S_ik − v_k for each row."""
    return np.concatenate([(S[rows] - prices).argmax(axis=1) for rows in blocks(S)])


def blocks(S: Floats) -> list[slice]:
    """Row slices of S of about BLOCK_ENTRIES entries."""
    step = max(1, BLOCK_ENTRIES // S.shape[1])
    return [slice(start, start + step) for start in range(0, S.shape[0], step)]
