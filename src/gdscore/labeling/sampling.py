"""Which ranks are drawn: a random sequence of rows every beginning of which is spread evenly over their order.

Rows are in an order in which neighbours are alike, and x in [0, 1) stands for the row of rank ⌊x N⌋. The points
x₁, x₂, … are a van der Corput sequence with Owen's nested scrambling [1]_: each of them is uniform on [0, 1), and of
the first 2ʲ there is exactly one in each of 2ʲ equal strata. So every row has the same probability of being among the
first n, and more labels continue the sequence. A point whose row was drawn before is skipped; as that would happen more
often to rows on the border of two strata, all ranks are moved by the same random number, modulo N.

References
----------
.. [1] A. B. Owen, "Randomly permuted (t, m, s)-nets and (t, s)-sequences", 1995.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["random_ranks", "stratified_ranks"]

LEVELS = 40
LARGEST_MOVE = 64
CHUNK = 1 << 16
_U64 = np.uint64


def stratified_ranks(n_rows: int, budget: int, seeds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Ranks in the order in which they are to be labelled, one line for every seed.

    Examples
    --------
    >>> stratified_ranks(1000, 4, np.array([0, 1]))
    array([[647, 418, 833, 305],
           [133, 708, 530,   3]])
    """
    count = budget + 16
    move = _mix(_salt(seeds)) % _U64(min(n_rows, LARGEST_MOVE))
    while True:
        ranks = (np.floor(_points(seeds, count) * n_rows).astype(np.int64) + move.astype(np.int64)) % n_rows
        repeated = _repeated(ranks)
        if (~repeated).sum(axis=1).min() >= budget:
            first = np.argsort(repeated, axis=1, kind="stable")[:, :budget]
            return np.take_along_axis(ranks, first, axis=1)
        count *= 2


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


def _points(seeds: NDArray[np.int64], count: int) -> NDArray[np.float64]:
    """First points of the scrambled sequence of every seed."""
    i = np.arange(count, dtype=_U64)[None, :]
    salt = _salt(seeds)
    found = np.zeros((len(seeds), count), dtype=_U64)
    for level in range(LEVELS):
        # The cell that a point is in so far decides whether its next binary digit is flipped.
        cell = i & _U64((1 << level) - 1)
        flip = _mix(salt + _mix((cell << _U64(6)) + _U64(level))) & _U64(1)
        found = (found << _U64(1)) + (((i >> _U64(level)) & _U64(1)) ^ flip)
    return np.asarray(found.astype(np.float64) / 2.0**LEVELS)


def _salt(seeds: NDArray[np.int64]) -> NDArray[np.uint64]:
    return _mix(seeds.astype(_U64)[:, None] + _U64(0x9E3779B97F4A7C15))


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Finaliser of SplitMix64 (S. Vigna, public domain)."""
    x = (x ^ (x >> _U64(30))) * _U64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> _U64(27))) * _U64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> _U64(31)))


def _repeated(ranks: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each rank stands further left in its line."""
    order = np.argsort(ranks, axis=1, kind="stable")
    in_order = np.take_along_axis(ranks, order, axis=1)
    same = np.zeros(ranks.shape, dtype=bool)
    same[:, 1:] = in_order[:, 1:] == in_order[:, :-1]
    found = np.zeros(ranks.shape, dtype=bool)
    np.put_along_axis(found, order, same, axis=1)
    return found
