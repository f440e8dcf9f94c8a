"""Exact balancing of the classes by cheapest paths on the graph of classes."""

from __future__ import annotations

import numpy as np

from gdscore.scores._transport.prices import Floats, Integers

DEFICITS_PER_FOREST = 16


class Flow:
    """Rows held by classes, optimal at the present prices, and the cheapest moves between classes.

    Moving a row i that class j holds to class k loses S_ij − S_ik; ``loss[j, k]`` is the least such loss.
    At prices v the reduced loss loss[j, k] + v_k − v_j is never negative; moves of reduced loss zero keep
    the plan optimal for the masses it delivers, and it is the answer when each class holds its due.
    """

    def __init__(self, S: Floats, masses: Integers, due: Integers, prices: Floats, best: Integers) -> None:
        K = S.shape[1]
        self.S, self.prices = S, prices
        self.loss = np.full((K, K), np.inf)
        self.held: list[dict[int, int]] = []
        some = np.flatnonzero(masses)
        by_class = some[np.argsort(best[some], kind="stable")]
        ends = np.searchsorted(best[by_class], np.arange(1, K))
        for k, rows in enumerate(np.split(by_class, ends)):
            self.held.append(dict(zip(rows.tolist(), masses[rows].tolist(), strict=True)))
            self._allow(k, rows)
        self.surplus = [sum(held.values()) - units for held, units in zip(self.held, due.tolist(), strict=True)]
        # The forest of cheapest paths from classes with a surplus: each class's parent, and the classes in
        # it, parents before children.
        self.parent = [-1] * K
        self.forest: list[int] = []

    def balance(self) -> None:
        """Move rows along cheapest paths until each class holds its due."""
        self.forest = [k for k, surplus in enumerate(self.surplus) if surplus > 0]
        while any(surplus < 0 for surplus in self.surplus):
            self._raise_sources()
            reached = self._grow_forest()
            self._push_to(reached)
            self._prune_forest()

    def _raise_sources(self) -> None:
        """Raise the price of every class with a surplus until it has a free move, so that all of them give at once."""
        sources = np.flatnonzero(np.array(self.surplus) > 0)
        self.prices[sources] += (self.loss[sources] + self.prices).min(axis=1) - self.prices[sources]

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
        self.forest += settled
        return reached

    def _push_to(self, reached: list[int]) -> None:
        """Send surplus down the forest to each deficit for as long as its path stands."""
        surplus, parent = self.surplus, self.parent
        movers: dict[int, list[int]] = {}
        lost: dict[int, list[int]] = {}
        gained: dict[int, list[int]] = {}
        for sink in reached:
            while surplus[sink] < 0:
                path = []
                k = sink
                amount = -surplus[sink]
                while amount and parent[k] >= 0:
                    path.append(k)
                    if k not in movers:
                        movers[k] = self._free_movers(parent[k], k)
                    amount = self._movable(parent[k], movers[k], amount)
                    k = parent[k]
                amount = min(amount, surplus[k])
                if amount <= 0:
                    if not self._find_source(path[-1], movers):
                        break
                    continue
                surplus[k] -= amount
                surplus[sink] += amount
                for k in path:
                    self._move(parent[k], k, movers[k], amount, lost, gained)
        for k, rows in gained.items():
            self._allow(k, [row for row in rows if row in self.held[k]])
        for j, rows in lost.items():
            self._forbid(j, rows)

    def _find_source(self, k: int, movers: dict[int, list[int]]) -> bool:
        """Hang class k onto another one with a surplus that is as near, if there is one."""
        for j in np.flatnonzero(self.loss[:, k] == self.prices - self.prices[k]).tolist():
            if self.surplus[j] > 0 and (rows := self._free_movers(j, k)):
                self.parent[k], movers[k] = j, rows
                return True
        return False

    def _free_movers(self, j: int, k: int) -> list[int]:
        """Rows that class j can give to class k at reduced loss zero: all of them, as equals move at once."""
        rows = self._rows(j)
        free: list[int] = rows[self.S[rows, j] - self.S[rows, k] == self.loss[j, k]].tolist()
        return free[::-1]

    def _movable(self, j: int, movers: list[int], amount: int) -> int:
        """Mass that class j still holds of the rows, at most ``amount``."""
        held = self.held[j]
        mass = 0
        for row in reversed(movers):
            mass += held.get(row, 0)
            if mass >= amount:
                return amount
        return mass

    def _move(
        self,
        j: int,
        k: int,
        movers: list[int],
        amount: int,
        lost: dict[int, list[int]],
        gained: dict[int, list[int]],
    ) -> None:
        """Take rows off the end of the list and move them from class j to class k."""
        giver, taker = self.held[j], self.held[k]
        while amount:
            row = movers[-1]
            mass = giver.get(row, 0)
            moved = min(mass, amount)
            if moved:
                amount -= moved
                if row not in taker:
                    gained.setdefault(k, []).append(row)
                taker[row] = taker.get(row, 0) + moved
            if moved == mass:
                movers.pop()
                if mass:
                    del giver[row]
                    lost.setdefault(j, []).append(row)
            else:
                giver[row] = mass - moved

    def _prune_forest(self) -> None:
        """Keep the classes whose path from a surplus still stands."""
        standing = [False] * len(self.surplus)
        kept = []
        for k in self.forest:
            j = self.parent[k]
            if self.surplus[k] > 0 if j < 0 else standing[j] and self.loss[j, k] == self.prices[j] - self.prices[k]:
                standing[k] = True
                kept.append(k)
            else:
                self.parent[k] = -1
        self.forest = kept

    def _rows(self, k: int) -> Integers:
        return np.fromiter(self.held[k], dtype=np.int64, count=len(self.held[k]))

    def _allow(self, k: int, rows: list[int] | Integers) -> None:
        """Class k got rows: some moves may be cheaper."""
        if len(rows):
            gain = self.S[rows]
            gain -= gain[:, k, None].copy()
            np.minimum(self.loss[k], -gain.max(axis=0), out=self.loss[k])
            self.loss[k, k] = np.inf

    def _forbid(self, j: int, rows: list[int]) -> None:
        """Class j lost rows: the moves in which they were the cheapest are dearer."""
        gain = self.S[rows]
        gain -= gain[:, j, None].copy()
        targets = np.flatnonzero((-gain == self.loss[j]).any(axis=0))
        self.loss[j, targets] = np.inf
        left = self._rows(j)
        if left.size and targets.size:
            kept = self.S[left[:, None], targets]
            kept -= self.S[left, j, None]
            self.loss[j, targets] = -kept.max(axis=0)
