"""Time the native transport solver against POT's and print both costs: python benchmarks/transport.py."""

import time

import numpy as np
import ot  # noqa: F401  # imported here, so that its import is not timed

from gdscore.scores._transport import solve

SIZES = [(2_000, 100), (10_000, 1_000), (100_000, 10), (100_000, 100)]


def problem(m, K, seed=0):
    rng = np.random.default_rng(seed)
    frequency = rng.permutation(np.arange(1, K + 1) ** -0.7)
    logits = 4.0 * rng.standard_normal((m, K))
    logits[np.arange(m), rng.choice(K, m, p=frequency / frequency.sum())] += 6.0
    S = np.exp(logits - logits.max(axis=1, keepdims=True))
    return S / S.sum(axis=1, keepdims=True), np.full(m, 1 / m), rng.dirichlet(np.full(K, 2.0))


def main():
    for m, K in SIZES:
        S, a, q = problem(m, K)
        for solver in ("native", "pot"):
            start = time.perf_counter()
            answer = solve(S, a, q, solver)
            print(
                f"{m:>7} x {K:<5} {solver:<7} {time.perf_counter() - start:7.2f} s  cost {answer.cost:.15f}", flush=True
            )


if __name__ == "__main__":
    main()
