"""Equal rows: merged before the problem is solved, and given their shares afterwards."""

from __future__ import annotations

import numpy as np

from gdscore.scores._transport.blocks import Floats, Integers, blocks

__all__ = ["distinct_rows", "per_row"]


def distinct_rows(rewards: Floats) -> tuple[Integers, Integers]:
    """First index of each distinct row, and for every row the number of its distinct one.

    Equal rows would be moved one after the other at equal cost; merged they move at once.
    """
    bits = rewards.view(np.uint64)
    odd = np.random.default_rng(0).integers(2**63, size=rewards.shape[1], dtype=np.uint64) * 2 + 1
    # Round numbers such as 1.0 have high bits only, which the product alone would push out.
    keys = np.concatenate([((bits[block] ^ (bits[block] >> 44)) * odd).sum(axis=1) for block in blocks(rewards)])
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    merges = first.size < keys.size and all(
        np.array_equal(rewards[block], rewards[first[group[block]]]) for block in blocks(rewards)
    )
    return (first, group) if merges else (np.arange(keys.size), np.arange(keys.size))


def per_row(group: Integers, row_units: Integers, held: list[dict[int, int]]) -> tuple[Integers, ...]:
    """Deal the shares of each merged row to its members: (row, class, units) of every positive share."""
    sharers = np.array([distinct for shares in held for distinct in shares], dtype=np.int64)
    classes = np.repeat(np.arange(len(held)), [len(shares) for shares in held])
    units = np.array([share for shares in held for share in shares.values()], dtype=np.int64)
    by_group = np.argsort(sharers, kind="stable")
    members = np.argsort(group, kind="stable")
    # Both orders list the same groups with the same totals, so their running sums share one axis.
    share_ends, row_ends = np.cumsum(units[by_group]), np.cumsum(row_units[members])
    ends = np.union1d(share_ends, row_ends)
    ends = ends[ends > 0]
    rows = members[np.searchsorted(row_ends, ends)]
    return rows, classes[by_group][np.searchsorted(share_ends, ends)], np.diff(ends, prepend=0)
