"""Exact balancing of the classes by cheapest paths on the graph of classes."""

from __future__ import annotations

import numpy as np

from gdscore.scores._transport.blocks import Floats, Integers, best_classes

__all__ = ["Flow", "per_row"]

DEFICITS_PER_FOREST = 16


class Flow:
    """Rows held by classes, optimal at the present prices, and the cheapest moves between classes.

    Moving a row i that class j holds to class k loses S_ij − S_ik. ``loss[j, k]`` is the least such
    loss and ``mover[j, k]`` the row that attains it. At prices v the reduced loss
    loss[j, k] + v_k − v_j is never negative; moves of reduced loss zero keep the plan optimal for the
    masses it delivers, and it is the answer when each class holds its due.
    """

    def __init__(self, S: Floats, masses: Integers, due: Integers, prices: Floats) -> None:
        K = S.shape[1]
        self.S, self.prices = S, prices
        best = best_classes(S, prices)
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
