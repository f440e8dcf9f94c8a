"""Exact optimal transport from many rows of probabilities to few class vertices, with a certificate.

`solve` answers one problem, `solved` remembers the last answer. `prices` finds near-optimal prices of the classes and
`flow` the exact plan from there.
"""

from __future__ import annotations

import hashlib
import threading
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gdscore.errors import GdscoreError
from gdscore.scores._transport.flow import Flow
from gdscore.scores._transport.prices import GRID, Floats, Integers, blocks, near_optimal_prices

RELATIVE_GAP = 1e-9
ABSOLUTE_GAP = 1e-12  # what rounding alone leaves between two equal sums of up to 1e6 terms
TOTAL_UNITS = 2**50
MOST_ROWS = 2**16  # larger plans are not remembered

Plan = tuple[Integers, Integers, Floats]


class Transport(NamedTuple):
    """The solved problem."""

    cost: float  # the least cost Σ π_ik (1 − S_ik)
    # The plan: every positive π_ik as its row, its class and its value; fewer rows than classes are split
    rows: Integers
    classes: Integers
    mass: Floats


def solve(probabilities: Floats, row_weights: Floats, class_weights: Floats) -> Transport:
    """Solve the transport problem between probability rows and class vertices exactly.

    The cost of sending row i to class k is half the L1 distance to the vertex, ½‖S_i − e_k‖₁ = 1 − S_ik:

        min_π Σ_ik π_ik (1 − S_ik)   s.t.   Σ_k π_ik = a_i,  Σ_i π_ik = q_k,  π ≥ 0

    with S the probabilities, shape (m, K), and a and q the weights of rows and classes, scaled to sum to one; q may
    have zeros. Every answer is certified: for any prices v the dual value 1 − Σ_k q_k v_k − Σ_i a_i max_k (S_ik − v_k)
    is a lower bound, and the answer's cost has to meet it.

    Examples
    --------
    >>> answer = solve(np.array([[0.9, 0.1], [0.6, 0.4]]), np.ones(2), np.array([0.5, 0.5]))
    >>> round(answer.cost, 6), answer.classes.tolist()
    (0.35, [0, 1])
    """
    S = np.ascontiguousarray(probabilities, dtype=np.float64)
    if S.ndim != 2 or S.size == 0:
        raise GdscoreError(f"probabilities must be a non-empty (rows, classes) array, got shape {S.shape}")
    if not np.isfinite(S).all():
        raise GdscoreError("probabilities contain NaN or infinite values")
    a = _normalised(row_weights, S.shape[0], "row_weights")
    q = _normalised(class_weights, S.shape[1], "class_weights")
    row_units, class_units = _in_units(a, q)
    # A class that takes nothing constrains nothing, and its price would be arbitrary.
    open_classes = np.flatnonzero(class_units)
    if open_classes.size < q.size:
        S, q, class_units = np.ascontiguousarray(S[:, open_classes]), q[open_classes], class_units[open_classes]
        q /= q.sum()

    cost, prices, (rows, classes, mass) = _balanced(S, row_units, class_units)
    bound = _dual_value(S, a, q, prices)
    if not abs(cost - bound) <= RELATIVE_GAP * abs(cost) + ABSOLUTE_GAP:  # also where one of them is NaN
        raise GdscoreError(f"the transport problem was not solved: cost {cost!r}, lower bound {bound!r}")
    return Transport(cost, rows, open_classes[classes].astype(np.int64), mass)


class _Last(threading.local):
    """What this thread solved last, so that COT and COTT of the same rows solve it together; threads share nothing."""

    key: bytes = b""
    answer: Transport | None = None


_last = _Last()


def solved(probabilities: NDArray[np.floating[Any]], counts: NDArray[Any], class_weights: NDArray[Any]) -> Transport:
    """`solve` for rows that occur ``counts`` times; the answer of the last call if it was for the same numbers.

    Only the plan is kept, with read-only arrays, and a hash of all bytes of the rows, to recognise equal ones.
    """
    key = _digest(probabilities, counts, class_weights)
    if _last.answer is not None and _last.key == key:
        return _last.answer
    answer = solve(probabilities.astype(np.float64), counts / counts.sum(), class_weights)
    for array in answer[1:]:
        array.flags.writeable = False
    _last.key, _last.answer = (key, answer) if len(counts) <= MOST_ROWS else (b"", None)
    return answer


def _digest(*parts: NDArray[Any]) -> bytes:
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(f"{part.dtype}{part.shape}".encode())
        hashed.update(np.ascontiguousarray(part).data)
    return hashed.digest()


def _normalised(weights: Floats, size: int, name: str) -> Floats:
    """Check one marginal and scale it to sum to one."""
    values = np.asarray(weights, dtype=np.float64)
    if values.shape != (size,):
        raise GdscoreError(f"{name} must have shape ({size},), got {values.shape}")
    total = values.sum()
    if not np.isfinite(total) or total <= 0 or values.min() < 0:
        raise GdscoreError(f"{name} must be non-negative with a positive finite sum")
    return np.asarray(values / total)


def _in_units(a: Floats, q: Floats) -> tuple[Integers, Integers]:
    """Write both marginals as integers with one common sum, near 2**50.

    Integer masses make every push exact. The sum is a multiple of 1 / min a, so that weights that are
    counts over their total stay exact and equal rows stay equal.
    """
    base = max(1, round(min(1.0 / a[a > 0].min(), TOTAL_UNITS)))
    total = base * max(1, TOTAL_UNITS // base)

    def rounded(weights: Floats) -> Integers:
        units: Integers = np.rint(weights * total).astype(np.int64)
        missing = total - int(units.sum())
        # The largest entries feel one unit least.
        while missing:
            largest = np.argsort(-units, kind="stable")[: abs(missing)]
            units[largest] += np.sign(missing)
            missing = total - int(units.sum())
        return units

    return rounded(a), rounded(q)


def _dual_value(S: Floats, a: Floats, q: Floats, prices: Floats) -> float:
    """Lower bound 1 − Σ_k q_k v_k − Σ_i a_i max_k (S_ik − v_k) at prices v."""
    gain = np.concatenate([(S[rows] - prices).max(axis=1) for rows in blocks(S)])
    return float(1.0 - q @ prices - a @ gain)


def _balanced(S: Floats, row_units: Integers, class_units: Integers) -> tuple[float, Floats, Plan]:
    """Balance the classes by shortest paths on the graph of classes, from near-optimal prices."""
    rewards = S * GRID
    np.rint(rewards, out=rewards)
    rewards /= GRID
    first, group = _distinct_rows(rewards)
    if first.size < S.shape[0]:
        rewards = rewards[first]
    masses = np.zeros(first.size, dtype=np.int64)
    np.add.at(masses, group, row_units)
    prices, best = near_optimal_prices(rewards, masses / masses.sum(), class_units / class_units.sum())
    flow = Flow(rewards, masses, class_units, prices, best)
    flow.balance()

    rows, classes, units = _per_row(group, row_units, flow.held)
    cost = float(units @ (1.0 - S[rows, classes])) / int(row_units.sum())
    return cost, flow.prices, (rows, classes, units / int(row_units.sum()))


def _distinct_rows(rewards: Floats) -> tuple[Integers, Integers]:
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


def _per_row(group: Integers, row_units: Integers, held: list[dict[int, int]]) -> tuple[Integers, ...]:
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
