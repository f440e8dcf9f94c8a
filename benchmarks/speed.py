"""How much do scores cost beside the bare matrix product XᵀS they rest on? Ratios of medians, interleaved in one run.

    python benchmarks/speed.py                                     # 6,400 × 2048 × 1000, about 3 minutes on 2 cores
    python benchmarks/speed.py --rows 1280 --features 256 --classes 100 --repeats 3
    python benchmarks/speed.py --scores gdscore                    # one score only
    python benchmarks/speed.py --output benchmarks/results/speed.json

The ratio of GdScore includes `compute`, which works through the rows that fill no chunk; the others are of `update`.
Ends with status 1 when a ratio is above its bound (checked at the full size only).
"""

import argparse
import json
import platform
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import torch

import gdscore
from gdscore.scores.together import fit_together, run_together

BOUNDS = {("torch", "gdscore"): 1.8, ("numpy", "gdscore"): 1.8, ("torch", "all"): 6.0, ("numpy", "all"): 6.0}
BATCH = 128


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=6400)
    parser.add_argument("--features", type=int, default=2048)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--scores", nargs="+", default=[n for n in gdscore.list_scores() if n != "projnorm"])
    parser.add_argument("--output", type=Path, help="write the numbers as JSON")
    return parser.parse_args()


def make(options, library):
    rng = np.random.default_rng(0)
    convert = torch.from_numpy if library == "torch" else np.asarray
    x = np.maximum(rng.standard_normal((options.rows, options.features), dtype=np.float32), 0)
    z = 3 * rng.standard_normal((options.rows, options.classes), dtype=np.float32)
    peer = z + rng.standard_normal(z.shape, dtype=np.float32)
    rotation = rng.standard_normal((options.rows, 4, 4), dtype=np.float32)
    out = gdscore.Outputs(
        logits=convert(z), features=convert(x), peer_logits=convert(peer), rotation_logits=convert(rotation)
    )
    few = slice(0, min(2000, options.rows))
    labels = rng.integers(0, options.classes, options.rows)
    reference = gdscore.Outputs(logits=convert(z[few]), features=convert(x[few]), labels=convert(labels[few]))
    return out, reference


def seconds(task):
    begin = time.perf_counter()
    task()
    return time.perf_counter() - begin


def measure(options, library):
    out, reference = make(options, library)
    x, s = out.features, out.probabilities
    out = gdscore.Outputs(**out.arrays)  # without the softmax made just now
    scores = {name: gdscore.create_score(name) for name in options.scores}
    fit_together(scores.values(), reference)

    def product():
        for start in range(0, options.rows, BATCH):
            x[start : start + BATCH].T @ s[start : start + BATCH]

    def update(names):
        chosen = [scores[name].reset() for name in names]
        run_together(chosen, [gdscore.Outputs(**out.arrays)])

    def update_and_compute():
        update(["gdscore"])
        scores["gdscore"].compute()

    tasks = {"product": product, **{name: (lambda name=name: update([name])) for name in scores}}
    if "gdscore" in scores:
        tasks["gdscore"] = update_and_compute
    if len(scores) > 1:
        tasks["all"] = lambda: update(scores)
    times = {name: [] for name in tasks}
    for _ in range(options.repeats):
        for name, task in tasks.items():
            times[name].append(seconds(task))
    median = {name: statistics.median(values) for name, values in times.items()}
    update(scores)
    return {
        "product_seconds": median["product"],
        "update_ratio": {name: median[name] / median["product"] for name in tasks if name != "product"},
        "compute_seconds": {name: seconds(score.compute) for name, score in scores.items()},
    }


def main():
    options = arguments()
    result = {
        "rows": options.rows,
        "features": options.features,
        "classes": options.classes,
        "repeats": options.repeats,
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads",
        "versions": {"numpy": np.__version__, "torch": torch.__version__, "gdscore": gdscore.__version__},
    }
    failed = False
    for library in ("torch", "numpy"):
        result[library] = measured = measure(options, library)
        print(f"\n{library}: bare product {measured['product_seconds']:.3f} s; update as multiples of it")
        for name, ratio in sorted(measured["update_ratio"].items(), key=lambda item: -item[1]):
            bound = BOUNDS.get((library, name)) if options.rows * options.features * options.classes > 1e10 else None
            failed |= bound is not None and ratio > bound
            print(f"  {name:12s} {ratio:6.2f}" + (f"   bound {bound}" if bound else ""))
        slow = {n: s for n, s in measured["compute_seconds"].items() if s > 0.01}
        print("  compute, seconds: " + ", ".join(f"{n} {s:.2f}" for n, s in slow.items()) + "; others under 0.01")
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
