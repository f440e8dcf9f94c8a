"""Time the native transport solver against POT's in one run: python -m benchmarks.speed.transport [sizes|calibration].

``sizes`` are single problems up to large ones. ``calibration`` is what calibrating meets: sets of 4,000 rows against
one class mix, from soft to saturated outputs and with predictions that collapsed to few classes. The last column is
what COT and COTT of the set take together, from the outputs on; the plan is shared, so it is about one solution.
"""

import argparse
import time
import warnings

import numpy as np
import ot

import gdscore
from gdscore.scores._transport import solve

SIZES = [(2_000, 100), (10_000, 1_000), (100_000, 10), (100_000, 100)]
CALIBRATION_ROWS, CALIBRATION_CLASSES = 4_000, (7, 20, 100, 200)
SETS = {  # scale of the logits, and by how much some classes are ahead for every row
    "soft": (0.3, 0.0, 0.0),
    "as trained": (1.0, 0.0, 0.0),
    "sharp": (10.0, 0.0, 0.0),
    "saturated": (100.0, 0.0, 0.0),
    "one-hot": (1e4, 0.0, 0.0),
    "collapsed": (1.0, 8.0, 0.0),
    "collapsed, sharp": (10.0, 8.0, 0.0),
    "collapsed, one-hot": (1e4, 8.0, 0.0),
    "a fifth of classes": (1.0, 0.0, 4.0),
    "a fifth, saturated": (30.0, 0.0, 4.0),
}


def problem(m, K, seed=0):
    rng = np.random.default_rng(seed)
    frequency = rng.permutation(np.arange(1, K + 1) ** -0.7)
    logits = 4.0 * rng.standard_normal((m, K))
    logits[np.arange(m), rng.choice(K, m, p=frequency / frequency.sum())] += 6.0
    S = np.exp(logits - logits.max(axis=1, keepdims=True))
    return S / S.sum(axis=1, keepdims=True), np.full(m, 1 / m), rng.dirichlet(np.full(K, 2.0))


def outputs(m, K, scale, first_ahead, fifth_ahead, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(K, size=m)
    logits = rng.standard_normal((m, K)) + 0.3 * rng.standard_normal((K, K))[labels]
    logits[np.arange(m), labels] += 3.0
    logits[:, 0] += first_ahead
    logits[:, : max(2, K // 5)] += fifth_ahead
    return gdscore.Outputs(logits=(scale * logits).astype(np.float32), labels=labels)


def timed(function, *arguments):
    start = time.perf_counter()
    answer = function(*arguments)
    return answer, time.perf_counter() - start


def compare(name, S, a, q, end=""):
    native, native_s = timed(solve, S, a, q)
    pot, pot_s = timed(ot.emd2, a, q, 1 - S, 1, 2**31 - 1)
    print(
        f"{name:<32} native {native_s:8.3f} s  POT {pot_s:8.3f} s  POT/native {pot_s / native_s:6.1f}"
        f"  cost {native.cost:.12f}  apart {abs(native.cost - pot):.0e}{end}",
        flush=True,
    )
    return native_s, pot_s


def sizes():
    for m, K in SIZES:
        compare(f"{m} x {K}", *problem(m, K))


def both_scores(scores, out):
    return [s.reset().update(out).compute() for s in scores]


def calibration():
    m, total = CALIBRATION_ROWS, np.zeros(3)
    for K in CALIBRATION_CLASSES:
        source = outputs(m, K, *SETS["as trained"], seed=1)
        q = np.bincount(source.labels, minlength=K) / m
        scores = [gdscore.create_score(name, k=m).fit(source) for name in ("cot", "cott")]
        for name, shape in SETS.items():
            out = outputs(m, K, *shape, seed=0)
            _, both_s = timed(both_scores, scores, out)
            S = out.probabilities.astype(np.float64)
            times = compare(f"{m} x {K}, {name}", S, np.full(m, 1 / m), q, f"  cot + cott {both_s:6.3f} s")
            total += [*times, both_s]
    print(f"all sets: native {total[0]:.2f} s, POT {total[1]:.2f} s, cot + cott {total[2]:.2f} s")


if __name__ == "__main__":
    warnings.simplefilter("ignore", gdscore.GdscoreWarning)
    parts = {"sizes": sizes, "calibration": calibration}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=parts, default=list(parts), metavar="PART", help=" or ".join(parts))
    for part in parser.parse_args().parts:
        parts[part]()
