"""Near-optimal prices of the classes: where the exact search starts."""

from __future__ import annotations

import numpy as np

from gdscore.scores._transport.blocks import Floats, best_classes, blocks

__all__ = ["GRID", "near_optimal_prices"]

# Rewards and prices on this grid are added and subtracted without rounding while they stay below 8 in size,
# so ties are exact ties and no reduced cost is ever negative; the cost moves by less than 1e-15.
GRID = 2.0**50
MIN_LEVELS, STEPS_PER_LEVEL, NEWTON_CLASSES = 5, 5, 256


def near_optimal_prices(S: Floats, a: Floats, q: Floats) -> Floats:
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
            misplaced = float(np.maximum(np.bincount(best_classes(S, prices), a, K) - q, 0.0).sum())
            if misplaced <= may_be_split or misplaced > 0.9 * before:
                break
    return prices


def _smoothed_demand(
    S: Floats, a: Floats, prices: Floats, temperature: float, with_overlap: bool
) -> tuple[Floats, Floats]:
    """Mass c = Pᵀa that the softmax P sends to each class, and Pᵀ diag(a) P if it is wanted."""
    K = S.shape[1]
    sent, overlap = np.zeros(K), np.zeros((K, K) if with_overlap else 0)
    for block in blocks(S):
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
