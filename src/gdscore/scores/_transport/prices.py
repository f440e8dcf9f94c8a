"""Near-optimal prices of the classes, from which the exact search starts; large matrices are read in blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

BLOCK_ENTRIES = 2**18  # one block of float64 scratch stays inside the cache

# Rewards and prices on this grid are added and subtracted without rounding while they stay below 8 in size,
# so ties are exact ties and no reduced cost is ever negative; the cost moves by less than 1e-15.
GRID = 2.0**50

COARSE_ROWS = 2000
COOLING, SLOWEST_COOLING = 0.2, 0.7
STEPS, LONGEST_STEP = 8, 5.0
REACH = 16.0  # beyond this many temperatures behind the best class, a class gets nothing of a row
FEW_ROWS, FEW_ROWS_PER_CLASS = 100, 2  # so few undecided ones are left to the exact search
SAFE_MARGIN = 1e-9  # far above what rounding does to margins


def near_optimal_prices(S: Floats, a: Floats, q: Floats) -> tuple[Floats, Integers]:
    """Prices on the grid that nearly minimise the dual, and each row's best class at them.

    The dual's max is smoothed at a temperature ε. With P = softmax((S − v) / ε) by rows and c = Pᵀa, the smoothed
    dual has gradient q − c and Hessian (diag c − Pᵀ diag(a) P) / ε: Newton's method, first on some of the rows.
    Then ε falls, as fast as Newton's method can follow; prices are carried on along the line through the last two,
    which is exact where many rows are tied. It ends once sending each row to its best class misplaces less mass than
    an exact plan may have to split, or few rows are undecided; what is left over costs time, never exactness.
    """
    K = q.size
    temperature = max(0.1 * float(a @ (S.max(axis=1) - S.min(axis=1))), 1.0 / GRID)
    enough = 0.5 * min(K * float(np.median(a[a > 0])), 0.02)
    prices, slope = np.zeros(K), np.zeros(K)
    few = max(FEW_ROWS, FEW_ROWS_PER_CLASS * K)
    choices = Choices(S, a)
    stride = a.size // max(COARSE_ROWS, 4 * K)
    if stride > 1:
        coarse = Choices(S[::stride], a[::stride] / a[::stride].sum())
        now = _settle(coarse, prices, temperature, q, 0.02)._replace(misplaced=1.0, undecided=a.size)
    else:
        now = _settle(choices, prices, temperature, q, 0.4 * enough)
    cooling = COOLING
    while temperature * GRID > 1.0 and now.misplaced > enough and now.undecided > few:
        cooler = temperature * cooling
        expected = now.prices + (cooler - temperature) * slope
        choices.moved(expected - now.prices)
        then = _settle(choices, expected, cooler, q, 0.4 * enough)
        if then.error > enough and cooling < SLOWEST_COOLING:
            choices.moved(now.prices - then.prices)
            cooling **= 0.5
            continue
        if then.steps <= 2 and then.error <= enough:
            cooling = max(cooling**1.5, 1e-3)
        slope = (now.prices - then.prices) / (temperature - cooler)
        now, temperature = then, cooler
    # Optimal prices are within one of each other; kept near, they stay on the grid.
    rounded = np.rint(np.clip(now.prices - np.median(now.prices), -2.0, 2.0) * GRID) / GRID
    choices.moved(rounded - now.prices)
    choices.undecided(rounded, SAFE_MARGIN)
    return rounded, choices.best


class Choices:
    """Each row's best class, and by how much at least it is better than the second.

    Prices that move by d_k change no margin by more than max d − min d. So most rows are read a single time,
    and only those near a tie again.
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


class _Settled(NamedTuple):
    """Prices at one temperature: how far from optimal, in how many steps; and what they do without smoothing."""

    prices: Floats
    error: float
    steps: int
    misplaced: float
    undecided: int


def _settle(choices: Choices, start: Floats, temperature: float, q: Floats, tolerance: float) -> _Settled:
    """Minimise the smoothed dual until the mass sent amiss is within tolerance, or no step helps."""
    rows = choices.undecided(start, REACH * temperature)
    a = choices.a[rows].astype(np.float32)
    decided = choices.sent_by_others(rows)
    behind = _behind(choices.S, rows, start, temperature)
    move = np.zeros(q.size)
    errors: list[float] = []
    while True:
        sent, overlap = _smoothed_demand(behind, a, move)
        sent += decided
        errors.append(float(np.abs(sent - q).sum()) / 2)
        steps = len(errors) - 1
        stuck = steps > 2 and errors[-1] > 0.5 * errors[-3]
        if errors[-1] <= tolerance or stuck or steps == STEPS:
            break
        step = np.log(np.maximum(sent, 1e-30) / q)
        if errors[-1] < 0.6:
            # A class that gets too little has too little curvature, and one without undecided rows none.
            missing = np.maximum(q - sent, 0.0) + 1e-3 * choices.a.max()
            newton = np.linalg.solve(np.diag(1.001 * overlap.sum(axis=1) + missing) - overlap, sent - q)
            # One that should get much and gets next to nothing is out of reach; only the logarithm shows how far.
            starved = (sent < 0.01 * q) & (q > 0.3 * tolerance)
            step = np.where(starved, step, np.clip(newton, -LONGEST_STEP, LONGEST_STEP))
        move += step
    choices.moved(temperature * move)
    shift = move.astype(np.float32)
    best = np.concatenate([(behind[block] - shift).argmax(axis=1) for block in blocks(behind)] or [rows])
    surplus = np.bincount(best, choices.a[rows], q.size) + decided - q
    misplaced = float(np.maximum(surplus, 0.0).sum())
    return _Settled(start + temperature * move, errors[-1], steps, misplaced, rows.size)


def _behind(S: Floats, rows: Integers, prices: Floats, temperature: float) -> NDArray[np.float32]:
    """How far each class is behind the row's best one, in temperatures.

    Single precision is enough from here on, and halves the time.
    """
    behind = np.empty((rows.size, prices.size), dtype=np.float32)
    for into, block in zip(blocks(behind), row_blocks(S, rows), strict=True):
        scaled = S[block] - prices
        scaled -= scaled.max(axis=1, keepdims=True)
        scaled /= temperature
        behind[into] = scaled
    return behind


def _smoothed_demand(behind: NDArray[np.float32], a: NDArray[np.float32], move: Floats) -> tuple[Floats, Floats]:
    """Mass c = Pᵀa that the softmax P sends to each class, and Pᵀ diag(a) P; prices moved by so many temperatures."""
    K = move.size
    sent, overlap = np.zeros(K), np.zeros((K, K))
    shift = move.astype(np.float32)
    for block in blocks(behind):
        share = behind[block] - shift
        share -= share.max(axis=1, keepdims=True)
        # The floor keeps products of shares out of the subnormal numbers, which are many times slower.
        np.maximum(share, np.float32(-30.0), out=share)
        np.exp(share, out=share)
        share *= (np.sqrt(a[block]) / share.sum(axis=1))[:, None]
        sent += np.sqrt(a[block]) @ share
        overlap += share.T @ share
    return sent, overlap


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
