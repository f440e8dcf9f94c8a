"""Optimal transport from many rows of probabilities to few class vertices, with a certificate.

`solve` answers one problem, `solved` remembers the last answer. Prices of the classes come near the optimum by Newton's
method on a smoothed dual; a linear program on what is still undecided at these prices makes the plan.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gdscore.errors import GdscoreError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

RELATIVE_GAP, ABSOLUTE_GAP = 1e-6, 1e-9  # of the cost to its lower bound

_GRID = 2.0**40  # rows whose prices decide alike on it are one row of the linear program
_COOLEST = 100 / _GRID
_COOLING = 0.2
_REACH = 16.0  # beyond this many temperatures behind the best class, a class gets nothing of a row
_FEW_ROWS, _FEW_ROWS_PER_CLASS = 100, 2  # so few undecided ones are left to the linear program
_NEWTON_ROWS, _NEWTON_ROWS_PER_CLASS = 2000, 4
_STEPS, _FARTHEST_MOVE = 12, 6.0  # of Newton's method at one temperature, and in temperatures
_SETTLED = 0.002  # share of mass sent amiss
_ROUNDS, _GROWTH = 60, 4.0
_CLOSED = -np.inf


class Transport(NamedTuple):
    """The solved problem."""

    cost: float  # of the plan, Σ π_ik (1 − S_ik)
    # The plan: every positive π_ik as its row, its class and its value; fewer rows than classes are split
    rows: Integers
    classes: Integers
    mass: Floats
    gap: float  # no plan costs less than the cost less this


def solve(probabilities: NDArray[Any], row_weights: NDArray[Any], class_weights: NDArray[Any]) -> Transport:
    """Solve the transport problem between probability rows and class vertices.

    The cost of sending row i to class k is half the L1 distance to the vertex, ½‖S_i − e_k‖₁ = 1 − S_ik:

        min_π Σ_ik π_ik (1 − S_ik)   s.t.   Σ_k π_ik = a_i,  Σ_i π_ik = q_k,  π ≥ 0

    with S the probabilities, shape (m, K), and a and q the weights of rows and classes, scaled to sum to one; q may
    have zeros. Every answer is certified: for any prices v the dual value 1 − Σ_k q_k v_k − Σ_i a_i max_k (S_ik − v_k)
    is a lower bound, and the answer's cost has to meet it within a millionth.

    Examples
    --------
    >>> answer = solve(np.array([[0.9, 0.1], [0.6, 0.4]]), np.ones(2), np.array([0.5, 0.5]))
    >>> round(answer.cost, 6), answer.classes.tolist()
    (0.35, [0, 1])
    """
    S, a, q = probabilities.astype(np.float64), row_weights / row_weights.sum(), class_weights / class_weights.sum()
    # A class that takes nothing constrains nothing, and its price would be arbitrary.
    open_classes = np.flatnonzero(q)
    S, q = np.ascontiguousarray(S[:, open_classes]), q[open_classes]

    prices, (rows, classes, mass) = _balanced(S, a, q)
    cost = float(mass @ (1.0 - S[rows, classes]))
    gap = cost - _dual_value(S, a, q, prices)
    if not abs(gap) <= RELATIVE_GAP * abs(cost) + ABSOLUTE_GAP:  # also where one of them is NaN
        raise GdscoreError(f"the transport problem was not solved: cost {cost!r}, lower bound {cost - gap!r}")
    return Transport(cost, rows, open_classes[classes].astype(np.int64), mass, gap)


_last: tuple[bytes, Transport] | None = None
"""What was solved last, so that COT and COTT of the same rows solve it together."""


def solved(probabilities: NDArray[Any], counts: NDArray[Any], class_weights: NDArray[Any]) -> Transport:
    """`solve` for rows that occur ``counts`` times; the answer of the last call if it was for the same numbers.

    Only the plan is kept, with read-only arrays, and a hash of all bytes of the rows, to recognise equal ones.
    """
    global _last
    hashed = hashlib.sha256()
    for part in (probabilities, counts, class_weights):
        hashed.update(f"{part.dtype}{part.shape}".encode())
        hashed.update(np.ascontiguousarray(part).data)
    key, last = hashed.digest(), _last
    if last is None or last[0] != key:
        answer = solve(probabilities, counts, class_weights)
        for array in (answer.rows, answer.classes, answer.mass):
            array.flags.writeable = False
        last = _last = key, answer
    return last[1]


def _dual_value(S: Floats, a: Floats, q: Floats, prices: Floats) -> float:
    """Lower bound 1 − Σ_k q_k v_k − Σ_i a_i max_k (S_ik − v_k) at prices v."""
    return float(1.0 - q @ prices - a @ (S - prices).max(axis=1))


def _behind(S: Floats, prices: Floats) -> Floats:
    """How far each class is behind the row's best one at these prices, as numbers of at most 0."""
    behind = S - prices
    behind -= behind.max(axis=1, keepdims=True)
    return behind


# -- near-optimal prices --------------------------------------------------------------------------------------


def _near_optimal_prices(S: Floats, a: Floats, q: Floats) -> tuple[Floats, float]:
    """Prices that nearly minimise the dual, and how far off they are about.

    The dual's max is smoothed at a temperature ε, which falls until few rows are undecided between classes.
    """
    temperature = max(0.1 * float(a @ (S.max(axis=1) - S.min(axis=1))), _COOLEST)
    prices = np.zeros(q.size)
    again = False
    while True:
        behind = _behind(S, prices)
        undecided = np.flatnonzero((behind > -_REACH * temperature).sum(axis=1) > 1)
        if undecided.size <= max(_FEW_ROWS, _FEW_ROWS_PER_CLASS * q.size) or temperature <= _COOLEST:
            return prices, temperature
        best, weight = behind.argmax(axis=1), a.copy()
        weight[undecided] = 0.0
        due = q - np.bincount(best, weight, q.size)
        # Some of the rows do for a first guess, and prices are exact only to the next temperature anyway.
        stride = max(1, undecided.size // max(_NEWTON_ROWS, _NEWTON_ROWS_PER_CLASS * q.size))
        rows = undecided[::stride]
        mass = a[rows] * (a[undecided].sum() / max(a[rows].sum(), np.finfo(float).tiny))
        move, settled = _newton(behind[rows] / temperature, mass, due, q)
        prices = prices + temperature * move
        again = not settled and not again
        temperature *= 1.0 if again else _COOLING


def _newton(z: Floats, mass: Floats, due: Floats, q: Floats) -> tuple[Floats, bool]:
    """Move of the prices by which softmax(z − move) sends to each class what it is due, and whether it does.

    It minimises Σ_i a_i ln Σ_k exp(z_ik − move_k) + Σ_k due_k move_k within the reach of the undecided rows, by damped
    Newton steps. Single precision is enough here, and halves the time.
    """
    logits, root = z.astype(np.float32), np.sqrt(mass).astype(np.float32)
    move = trial = np.zeros(q.size)
    value, damping, error = np.inf, 1e-3, np.inf
    for _ in range(_STEPS):
        share = logits - trial.astype(np.float32)
        peak = share.max(axis=1, keepdims=True)
        share -= peak
        # The floor keeps products of shares out of the subnormal numbers, which are many times slower.
        np.exp(np.maximum(share, np.float32(-30.0), out=share), out=share)
        total = share.sum(axis=1)
        trial_value = float(mass @ (peak[:, 0] + np.log(total)) + due @ trial)
        if trial_value < value:
            move, value, damping = trial, trial_value, damping / 5
            share *= (root / total)[:, None]
            sent = np.asarray(root @ share, dtype=np.float64)
            overlap = (share.T @ share).astype(np.float64)
            error = float(np.abs(sent - due).sum()) / 2
        else:
            damping *= 10
        if error <= _SETTLED:
            break
        curvature = np.diag(sent + damping * np.maximum(q, sent)) - overlap
        trial = np.clip(move + np.linalg.solve(curvature, sent - due), -_FARTHEST_MOVE, _FARTHEST_MOVE)
    return move, error <= 10 * _SETTLED


# -- the plan -------------------------------------------------------------------------------------------------


def _balanced(S: Floats, a: Floats, q: Floats) -> tuple[Floats, tuple[Integers, Integers, Floats]]:
    """Optimal prices and plan, by linear programs in which each price moves within a box (Marsten et al. 1975).

    Within its box a price brings no class into play that is farther behind, so that few pairs of row and class are
    variables. Where a class would go beyond its box, the box grows.
    """
    prices, temperature = _near_optimal_prices(S, a, q)
    box = np.full(q.size, 0.5 * _REACH * temperature)
    for _ in range(_ROUNDS):
        behind = _behind(S, prices)
        behind[behind < -(box + box[behind.argmax(axis=1)][:, None])] = _CLOSED
        patterns, group = _distinct(behind)
        move, (pattern, classes, mass), beyond = _linear_program(
            patterns, np.bincount(group, weights=a).astype(np.float64), q, box
        )
        prices = prices + move
        if beyond.sum() <= ABSOLUTE_GAP:
            break
        box = np.where(beyond > ABSOLUTE_GAP / q.size, _GROWTH * box, box)
    return prices, _per_row(group, a, pattern, classes, mass)


def _distinct(behind: Floats) -> tuple[Floats, Integers]:
    """Distinct rows, and for every row the number of its distinct one; all rows sent whole to one class are one."""
    on_grid = np.rint(np.maximum(behind, -4.0) * _GRID).astype(np.int64)
    keys = on_grid.view(np.dtype((np.void, on_grid.strides[0]))).ravel()
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    return behind[first], group.ravel()


def _linear_program(
    behind: Floats, mass: Floats, due: Floats, box: Floats
) -> tuple[Floats, tuple[Integers, Integers, Floats], Floats]:
    """Moves of the prices, shares of rows by class, and what each class gets too much or too little at its box."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    (m, K), unit = behind.shape, float(box.max())
    rows, classes = np.nonzero(behind > _CLOSED)
    n, every = rows.size, np.arange(K)
    variables = np.concatenate([np.arange(n), np.arange(n + 2 * K)])
    equations = np.concatenate([rows, m + classes, m + every, m + every])
    entries = np.concatenate([np.ones(2 * n + K), -np.ones(K)])
    answer = linprog(
        np.concatenate([-behind[rows, classes], box, box]) / unit,
        A_eq=csr_array((entries, (equations, variables)), shape=(m + K, n + 2 * K)),
        b_eq=np.concatenate([mass, due]) * m,
        method="highs-ds",
        options={"presolve": False, "dual_feasibility_tolerance": 1e-10, "primal_feasibility_tolerance": 1e-10},
    )
    if answer.status != 0:
        raise GdscoreError(f"the transport problem was not solved: {answer.message}")
    share = answer.x / m
    used = np.flatnonzero(share[:n] > 0)
    beyond = share[n:].reshape(2, K).sum(axis=0)
    return -answer.eqlin.marginals[m:] * unit, (rows[used], classes[used], share[used]), beyond


def _per_row(
    group: Integers, a: Floats, pattern: Integers, classes: Integers, mass: Floats
) -> tuple[Integers, Integers, Floats]:
    """Deal the shares of each distinct row to its members: (row, class, mass) of every positive share."""
    by_pattern, members = np.argsort(pattern, kind="stable"), np.argsort(group, kind="stable")
    # Both orders list the same groups with the same totals, so their running sums share one axis.
    share_ends, row_ends = np.cumsum(mass[by_pattern]), np.cumsum(a[members])
    ends = np.sort(np.concatenate([share_ends, row_ends]))
    widths = np.diff(ends, prepend=0.0)
    dealt = np.flatnonzero(widths > 1e-6 * a.max() / a.size)
    middles = ends[dealt] - widths[dealt] / 2
    rows = members[np.minimum(np.searchsorted(row_ends, middles), row_ends.size - 1)]
    of_share = np.minimum(np.searchsorted(share_ends, middles), share_ends.size - 1)
    return rows, classes[by_pattern][of_share], widths[dealt]
