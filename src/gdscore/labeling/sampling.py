"""Which ranks are drawn: a random sequence of rows every beginning of which is spread evenly over their order.

Rows are in an order in which neighbours are alike. The order is halved again and again, down to single rows. Of the
first c draws from a part of m rows, its first half of h rows gets ⌊(U + c h) / m⌋, with U drawn uniformly from
0 … m − 1 for each part: the proportional number, rounded up or down, and c h / m in expectation. So every row has the
same probability n / N of being among the first n, no row is drawn twice, and more labels continue the sequence. Where N
and n are powers of two there is one row in each of n equal strata: that is the van der Corput sequence with Owen's
nested scrambling [1]_, of which this is the form for any number of rows.

References
----------
.. [1] A. B. Owen, "Randomly permuted (t, m, s)-nets and (t, s)-sequences", 1995.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

CHUNK = 1 << 16
_U64 = np.uint64


def stratified_ranks(n_rows: int, budget: int, seeds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Ranks in the order in which they are to be labelled, one line for every seed.

    Examples
    --------
    >>> stratified_ranks(1000, 4, np.array([0, 1]))
    array([[324, 863, 170, 745],
           [801, 307, 664, 108]])
    """
    salt = _mix(seeds.astype(_U64)[:, None] + _U64(0x9E3779B97F4A7C15))
    first = np.zeros((len(seeds), budget), dtype=np.int64)
    size = np.full_like(first, n_rows)
    draw = np.tile(np.arange(1, budget + 1), (len(seeds), 1))  # number of the draw within the part that it falls in
    while size.max() > 1:
        half = size // 2
        phase = _mix(salt + _mix((first.astype(_U64) << _U64(32)) + size.astype(_U64))) % size.astype(_U64)
        into_half = (phase.astype(np.int64) + draw * half) // size
        before = (phase.astype(np.int64) + (draw - 1) * half) // size
        chosen = into_half > before
        first = np.where(chosen, first, first + half)
        draw = np.where(chosen, into_half, draw - into_half)
        size = np.where(chosen, half, size - half)
    return first


def random_ranks(n_rows: int, budget: int, seed: int) -> NDArray[np.int64]:
    """Ranks drawn uniformly without replacement; a larger budget begins with the same ones."""
    rng = np.random.default_rng(seed)
    keys, ranks = np.zeros(0), np.zeros(0, dtype=np.int64)
    for start in range(0, n_rows, CHUNK):
        rows = np.arange(start, min(start + CHUNK, n_rows))
        keys, ranks = np.concatenate([keys, rng.random(len(rows))]), np.concatenate([ranks, rows])
        first = np.argsort(keys, kind="stable")[:budget]
        keys, ranks = keys[first], ranks[first]
    return ranks


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Finaliser of SplitMix64 (S. Vigna, public domain)."""
    x = (x ^ (x >> _U64(30))) * _U64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> _U64(27))) * _U64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> _U64(31)))
