"""Exact optimal transport from many rows of probabilities to few class vertices."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gdscore.errors import GdscoreError, nearest

__all__ = ["Transport", "solve"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

RELATIVE_GAP = 1e-9
ABSOLUTE_GAP = 1e-12  # what rounding alone leaves between two equal sums of up to 1e6 terms
# Rewards on this grid are added and subtracted without rounding while they stay below 8 in size, so
# ties are exact ties and no reduced cost is ever negative; the cost moves by less than 1e-15.
GRID = 2.0**50
TOTAL_UNITS = 2**50
BLOCK_ENTRIES = 2**18  # one block of float64 scratch stays inside the cache
MIN_LEVELS, STEPS_PER_LEVEL, NEWTON_CLASSES = 5, 5, 256
DEFICITS_PER_FOREST = 16
SOLVERS = ("auto", "native", "pot")


class Transport(NamedTuple):
    """The solved problem.

    Attributes
    ----------
    cost
        The least cost Σ π_ik (1 − S_ik).
    match
        Shape (m,). The class that takes most of each row's mass, argmax_k π_ik; the smallest on ties.
    """

    cost: float
    match: Integers


def solve(probabilities: Floats, row_weights: Floats, class_weights: Floats, solver: str = "auto") -> Transport:
    """Solve the transport problem between probability rows and class vertices exactly.

    The cost of sending row i to class k is half the L1 distance to the vertex, ½‖S_i − e_k‖₁ = 1 − S_ik:

        min_π Σ_ik π_ik (1 − S_ik)   s.t.   Σ_k π_ik = a_i,  Σ_i π_ik = q_k,  π ≥ 0.

    Every answer is certified: for any prices v the dual value
    1 − Σ_k q_k v_k − Σ_i a_i max_k (S_ik − v_k) is a lower bound, and the answer's cost has to meet it.

    Parameters
    ----------
    probabilities
        S, shape (m, K); rows sum to one.
    row_weights
        a, shape (m,), non-negative; scaled to sum to one.
    class_weights
        q, shape (K,), non-negative, zeros allowed; scaled to sum to one.
    solver
        "native" needs numpy alone, "pot" the optional package POT. "auto" is native: it needs less
        memory, is faster for many rows, and the same answer comes with and without POT installed.

    Returns
    -------
    Transport
        The least cost and the class that each row mostly goes to.
    """
    if solver not in SOLVERS:
        raise GdscoreError(f"unknown transport solver {solver!r}; {nearest(solver, SOLVERS)}")
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

    if solver == "pot":
        cost, match, prices = _solve_with_pot(S, a, q)
    else:
        cost, match, prices = _solve_natively(S, row_units, class_units)
    bound = _dual_value(S, a, q, prices)
    if abs(cost - bound) > RELATIVE_GAP * abs(cost) + ABSOLUTE_GAP:
        raise GdscoreError(f"the transport problem was not solved: cost {cost!r}, lower bound {bound!r}")
    return Transport(cost, open_classes[match].astype(np.int64))


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
    gain = np.concatenate([(S[rows] - prices).max(axis=1) for rows in _blocks(S)])
    return float(1.0 - q @ prices - a @ gain)


def _best_classes(S: Floats, prices: Floats) -> Integers:
    """The class that maximises S_ik − v_k for each row."""
    return np.concatenate([(S[rows] - prices).argmax(axis=1) for rows in _blocks(S)])


def _blocks(S: Floats) -> list[slice]:
    """Row slices of S of about BLOCK_ENTRIES entries."""
    step = max(1, BLOCK_ENTRIES // S.shape[1])
    return [slice(start, start + step) for start in range(0, S.shape[0], step)]


def _solve_with_pot(S: Floats, a: Floats, q: Floats) -> tuple[float, Integers, Floats]:
    """Run POT's network simplex on the m × K costs."""
    try:
        import ot
    except ImportError as error:
        raise GdscoreError("solver 'pot' needs the package POT: pip install 'gdscore[ot]'") from error
    plan, log = ot.emd(a, q, 1.0 - S, numItermax=2**31 - 1, log=True)
    if log["warning"] is not None:
        raise GdscoreError(f"POT did not solve the transport problem: {log['warning']}")
    return float(1.0 - np.vdot(plan, S)), plan.argmax(axis=1), -np.asarray(log["v"], dtype=np.float64)


def _solve_natively(S: Floats, row_units: Integers, class_units: Integers) -> tuple[float, Integers, Floats]:
    """Balance the classes by shortest paths on the graph of classes, from near-optimal prices."""
    rewards = np.rint(S * GRID)
    rewards /= GRID
    first, group = _distinct_rows(rewards)
    if first.size < S.shape[0]:
        rewards = rewards[first]
    masses = np.zeros(first.size, dtype=np.int64)
    np.add.at(masses, group, row_units)
    prices = _near_optimal_prices(rewards, masses / masses.sum(), class_units / class_units.sum())
    flow = _Flow(rewards, masses, class_units, np.rint(prices * GRID) / GRID)
    flow.balance()

    rows, classes, units = _per_row(group, row_units, flow.held)
    cost = float(units @ (1.0 - S[rows, classes])) / int(row_units.sum())
    match = _best_classes(S, flow.prices)
    # Written in this order, each row's largest share comes last, the smallest class last of equals.
    order = np.lexsort((-classes, units))
    match[rows[order]] = classes[order]
    return cost, match, flow.prices


def _distinct_rows(rewards: Floats) -> tuple[Integers, Integers]:
    """First index of each distinct row, and for every row the number of its distinct one.

    Equal rows would be moved one after the other at equal cost; merged they move at once.
    """
    bits = rewards.view(np.uint64)
    odd = np.random.default_rng(0).integers(2**63, size=rewards.shape[1], dtype=np.uint64) * 2 + 1
    # Round numbers such as 1.0 have high bits only, which the product alone would push out.
    keys = np.concatenate([((bits[block] ^ (bits[block] >> 44)) * odd).sum(axis=1) for block in _blocks(rewards)])
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    merges = first.size < keys.size and all(
        np.array_equal(rewards[block], rewards[first[group[block]]]) for block in _blocks(rewards)
    )
    return (first, group) if merges else (np.arange(keys.size), np.arange(keys.size))


def _near_optimal_prices(S: Floats, a: Floats, q: Floats) -> Floats:
    """Minimise the dual with its max smoothed at a falling temperature ε.

    With P = softmax((S − v) / ε) by rows and c = Pᵀa, the smoothed dual has gradient q − c and Hessian
    (diag c − Pᵀ diag(a) P) / ε. The steps are v_k + ε log(c_k / q_k), and for few classes also Newton's.
    It ends once sending each row to its best class misplaces no more mass than an exact plan may have
    to split, or when cooling no longer helps; what is left over costs time, never exactness.
    """
    K = S.shape[1]
    prices = np.zeros(K)
    temperature = 0.1 * float(a @ (S.max(axis=1) - S.min(axis=1)))
    may_be_split = np.sort(a)[-K:].sum()
    misplaced = np.inf
    level = 0
    while temperature * GRID > 1.0:
        for step in range(STEPS_PER_LEVEL):
            newton = K <= NEWTON_CLASSES and step > 0
            sent, overlap = _smoothed_demand(S, a, prices, temperature, newton)
            if newton:
                # Never less than q on the diagonal: a class that gets nothing has no curvature.
                curvature = np.diag(1.001 * np.maximum(overlap.sum(axis=1), q)) - overlap
                move = np.linalg.solve(curvature, sent - q)
                prices += temperature * move * min(1.0, 10.0 / max(float(np.abs(move).max()), 1e-300))
            else:
                prices += temperature * np.log(np.maximum(sent, 1e-30) / q)
        temperature *= 0.4
        level += 1
        if level >= MIN_LEVELS:
            before = misplaced
            misplaced = float(np.maximum(np.bincount(_best_classes(S, prices), a, K) - q, 0.0).sum())
            if misplaced <= may_be_split or misplaced > 0.9 * before:
                break
    return prices


def _smoothed_demand(
    S: Floats, a: Floats, prices: Floats, temperature: float, with_overlap: bool
) -> tuple[Floats, Floats]:
    """Mass c = Pᵀa that the softmax P sends to each class, and Pᵀ diag(a) P if it is wanted."""
    K = S.shape[1]
    sent, overlap = np.zeros(K), np.zeros((K, K) if with_overlap else 0)
    for block in _blocks(S):
        scaled = S[block] - prices
        scaled -= scaled.max(axis=1, keepdims=True)
        scaled /= temperature
        # Single precision halves the time, and is enough once the row's maximum is zero; the floor
        # keeps products of shares out of the subnormal numbers, which are many times slower.
        np.maximum(scaled, -30.0, out=scaled)
        share = np.exp(scaled.astype(np.float32))
        share /= share.sum(axis=1, keepdims=True)
        sent += a[block].astype(np.float32) @ share
        if with_overlap:
            share *= np.sqrt(a[block]).astype(np.float32)[:, None]
            overlap += share.T @ share
    return sent, overlap


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


class _Flow:
    """Rows held by classes, optimal at the present prices, and the cheapest moves between classes.

    Moving a row i that class j holds to class k loses S_ij − S_ik. ``loss[j, k]`` is the least such
    loss and ``mover[j, k]`` the row that attains it. At prices v the reduced loss
    loss[j, k] + v_k − v_j is never negative; moves of reduced loss zero keep the plan optimal for the
    masses it delivers, and it is the answer when each class holds its due.
    """

    def __init__(self, S: Floats, masses: Integers, due: Integers, prices: Floats) -> None:
        K = S.shape[1]
        self.S, self.prices = S, prices
        best = _best_classes(S, prices)
        self.held: list[dict[int, int]] = [{} for _ in range(K)]
        self.surplus: list[int] = (-due).tolist()
        for row, (k, mass) in enumerate(zip(best.tolist(), masses.tolist(), strict=True)):
            if mass:
                self.held[k][row] = mass
                self.surplus[k] += mass
        self.loss = np.full((K, K), np.inf)
        self.mover = np.full((K, K), -1, dtype=np.int64)
        for j in range(K):
            self._find_movers(j, np.delete(np.arange(K), j))
        # The forest of cheapest paths from classes with a surplus: each class's parent, the row that
        # the parent gives it, and the classes in it, parents before children.
        self.parent = [-1] * K
        self.given = [-1] * K
        self.forest: list[int] = []

    def balance(self) -> None:
        """Move rows along cheapest paths until each class holds its due."""
        self.forest = [k for k, surplus in enumerate(self.surplus) if surplus > 0]
        while any(surplus < 0 for surplus in self.surplus):
            reached = self._grow_forest()
            self._push_to(reached)
            self._prune_forest()

    def _grow_forest(self) -> list[int]:
        """Extend the forest to the nearest deficits, and lower prices so that its moves are free.

        Dijkstra's algorithm on reduced losses, started from the part of the forest that still stands.
        Classes beyond the last one reached get its distance, which keeps reduced losses non-negative.
        """
        loss, prices, surplus = self.loss, self.prices, self.surplus
        standing = np.array(self.forest)
        parent = np.zeros(prices.size, dtype=np.int64)
        parent[standing] = -1
        outside = np.flatnonzero(parent == 0)
        reduced = loss[np.ix_(standing, outside)]
        reduced -= prices[standing, None]
        closest = reduced.argmin(axis=0)
        parent[outside] = standing[closest]
        frontier = np.full(prices.size, np.inf)
        frontier[outside] = reduced[closest, np.arange(outside.size)] + prices[outside]
        distance = np.zeros(prices.size)
        open_prices = prices.copy()
        open_prices[standing] = np.inf  # an infinite price keeps a settled class from being reached again
        shorter = np.empty(prices.size, dtype=bool)
        settled, reached = [], []
        wanted = min(DEFICITS_PER_FOREST, sum(units < 0 for units in surplus))
        while True:
            k = int(frontier.argmin())
            distance[k] = farthest = frontier[k]
            settled.append(k)
            frontier[k] = open_prices[k] = np.inf
            if surplus[k] < 0:
                reached.append(k)
                if len(reached) == wanted:
                    break
            through = loss[k] + open_prices
            through += farthest - prices[k]
            np.less(through, frontier, out=shorter)
            np.minimum(through, frontier, out=frontier)
            np.copyto(parent, k, where=shorter)
        distance[np.isfinite(open_prices)] = farthest
        prices -= distance
        for k in settled:
            self.parent[k] = int(parent[k])
            self.given[k] = int(self.mover[parent[k], k])
        self.forest += settled
        return reached

    def _push_to(self, reached: list[int]) -> None:
        """Send surplus down the forest to each deficit for as long as its path stands."""
        held, surplus, parent, given = self.held, self.surplus, self.parent, self.given
        lost: dict[int, set[int]] = {}
        gained: list[tuple[int, int]] = []
        for sink in reached:
            while surplus[sink] < 0:
                path = []
                k = sink
                amount = -surplus[sink]
                while amount and parent[k] >= 0:
                    path.append(k)
                    amount = min(amount, held[parent[k]].get(given[k], 0))
                    k = parent[k]
                amount = min(amount, surplus[k])
                if amount <= 0:
                    break
                surplus[k] -= amount
                surplus[sink] += amount
                for k in path:
                    source, row = parent[k], given[k]
                    held[source][row] -= amount
                    if not held[source][row]:
                        del held[source][row]
                        lost.setdefault(source, set()).add(row)
                    if row not in held[k]:
                        gained.append((k, row))
                    held[k][row] = held[k].get(row, 0) + amount
        self._update_movers(lost, gained)

    def _prune_forest(self) -> None:
        """Keep the classes whose path from a surplus still stands."""
        standing = [False] * len(self.surplus)
        kept = []
        for k in self.forest:
            parent = self.parent[k]
            if self.surplus[k] > 0 if parent < 0 else standing[parent] and self.given[k] in self.held[parent]:
                standing[k] = True
                kept.append(k)
            else:
                self.parent[k] = -1
        self.forest = kept

    def _update_movers(self, lost: dict[int, set[int]], gained: list[tuple[int, int]]) -> None:
        """Repair the cheapest moves after rows left and entered classes."""
        for k, row in gained:
            if row in self.held[k]:
                loss = self.S[row, k] - self.S[row]
                loss[k] = np.inf
                better = loss < self.loss[k]
                self.loss[k, better] = loss[better]
                self.mover[k, better] = row
        for j, rows in lost.items():
            stale = np.zeros(len(self.surplus), dtype=bool)
            for row in rows:
                stale |= self.mover[j] == row
            self._find_movers(j, np.flatnonzero(stale))

    def _find_movers(self, j: int, targets: Integers) -> None:
        """Find the cheapest row to move from class j to each target."""
        rows = np.fromiter(self.held[j], dtype=np.int64, count=len(self.held[j]))
        if not rows.size:
            self.loss[j, targets] = np.inf
            self.mover[j, targets] = -1
        elif targets.size:
            kept = self.S[rows[:, None], targets]
            kept -= self.S[rows, j, None]
            cheapest = kept.argmax(axis=0)
            self.loss[j, targets] = -kept[cheapest, np.arange(targets.size)]
            self.mover[j, targets] = rows[cheapest]
