"""Passes over a large matrix in blocks that stay inside the cache."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

__all__ = ["Floats", "Integers", "best_classes", "blocks", "row_blocks"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

BLOCK_ENTRIES = 2**18  # one block of float64 scratch stays inside the cache


def best_classes(S: Floats, prices: Floats) -> Integers:
    """The class that maximises S_ik − v_k for each row."""
    return np.concatenate([(S[rows] - prices).argmax(axis=1) for rows in blocks(S)])


def blocks(S: NDArray[np.floating]) -> list[slice]:
    """Row slices of S of about BLOCK_ENTRIES entries."""
    step = max(1, BLOCK_ENTRIES // S.shape[1])
    return [slice(start, start + step) for start in range(0, S.shape[0], step)]


def row_blocks(S: Floats, rows: Integers) -> Iterator[slice | Integers]:
    """The same for some of the rows, in ascending order; slices where it is all of them."""
    for block in blocks(S):
        if rows.size == S.shape[0]:
            yield block
        elif block.start < rows.size:
            yield rows[block]
