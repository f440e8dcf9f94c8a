"""Which class each row chooses at given prices, and which rows may still change their mind."""

from __future__ import annotations

import numpy as np

from gdscore.scores._transport.blocks import Floats, Integers, row_blocks

__all__ = ["Choices"]


class Choices:
    """Each row's best class, and by how much at least it is better than the second.

    Prices that move by d_k change no margin by more than max d − min d. So most rows are looked at once, and
    only those near a tie again.
    """

    def __init__(self, S: Floats, a: Floats) -> None:
        self.S, self.a = S, a
        self.best = np.zeros(len(a), dtype=np.int64)
        self.margin = np.full(len(a), -np.inf)

    def moved(self, by: Floats) -> None:
        """Prices moved."""
        self.margin -= np.ptp(by)

    def undecided(self, prices: Floats, reach: float) -> Integers:
        """Rows whose best class is ahead by less than ``reach`` at these prices."""
        self._look_at(np.flatnonzero(self.margin < reach), prices)
        return np.flatnonzero(self.margin < reach)

    def sent_by_others(self, rows: Integers) -> Floats:
        """Mass that all but these rows send to each class."""
        a = self.a.copy()
        a[rows] = 0.0
        return np.bincount(self.best, a, self.S.shape[1]).astype(np.float64, copy=False)

    def _look_at(self, rows: Integers, prices: Floats) -> None:
        for block in row_blocks(self.S, rows):
            surplus = self.S[block] - prices
            every = np.arange(len(surplus))
            best = surplus.argmax(axis=1)
            top = surplus[every, best]
            surplus[every, best] = -np.inf
            self.best[block] = best
            self.margin[block] = top - surplus.max(axis=1)
