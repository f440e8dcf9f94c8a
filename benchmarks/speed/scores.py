"""How much do scores cost beside the bare matrix product XᵀS they rest on? Ratios of medians, interleaved in one run.

    python -m benchmarks.speed.scores                                     # 6,400 × 2048 × 1000, about 3 minutes on 2 cores
    python -m benchmarks.speed.scores --rows 1280 --features 256 --classes 100 --repeats 3
    python -m benchmarks.speed.scores --scores gdscore --threads 1        # one score, on one core
    python -m benchmarks.speed.scores --output benchmarks/results/speed.json

The ratio of GdScore includes `compute`, which works through the rows that fill no chunk; the others are of `update`.
`update_ratio` is by the clock, `processor_ratio` of processor time: on a busy machine compare that, with one thread.
Ends with status 1 when a ratio (with one thread, of processor time) is above its bound; at the full size only.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import torch
from threadpoolctl import threadpool_limits

import gdscore
from gdscore.scores.base import fit_together
from gdscore.scores.registry import run_together

BOUNDS = {("torch", "gdscore"): 1.8, ("numpy", "gdscore"): 1.8, ("torch", "all"): 6.0, ("numpy", "all"): 6.0}
BATCH = 128


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=6400)
    parser.add_argument("--features", type=int, default=2048)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--scores", nargs="+", default=[n for n in gdscore.list_scores() if n != "projnorm"])
    parser.add_argument("--threads", type=int, help="of products and of torch; as many as there are cores by default")
    parser.add_argument("--output", type=Path, help="write the numbers as JSON")
    return parser.parse_args()


def make(options, library):
    rng = np.random.default_rng(0)
    # Copied, as a network's outputs lie in memory that torch has aligned.
    convert = torch.tensor if library == "torch" else np.asarray
    x = np.maximum(rng.standard_normal((options.rows, options.features), dtype=np.float32), 0)
    z = 3 * rng.standard_normal((options.rows, options.classes), dtype=np.float32)
    peer = z + rng.standard_normal(z.shape, dtype=np.float32)
    rotation = rng.standard_normal((options.rows, 4, 4), dtype=np.float32)
    made = {"logits": z, "features": x, "peer_logits": peer, "batch_logits": peer, "rotation_logits": rotation}
    out = gdscore.Outputs(**{name: convert(array) for name, array in made.items()})
    few = slice(0, min(2000, options.rows))
    labels = rng.integers(0, options.classes, options.rows)
    reference = gdscore.Outputs(logits=convert(z[few]), features=convert(x[few]), labels=convert(labels[few]))
    return out, reference


def seconds(task):
    begin = time.perf_counter(), time.process_time()
    task()
    return time.perf_counter() - begin[0], time.process_time() - begin[1]


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
    clock, processor = (
        {name: statistics.median(pair[which] for pair in pairs) for name, pairs in times.items()} for which in (0, 1)
    )
    update(scores)
    return {
        "product_seconds": clock["product"],
        "update_ratio": {name: clock[name] / clock["product"] for name in scores_of(tasks)},
        "processor_ratio": {name: processor[name] / processor["product"] for name in scores_of(tasks)},
        "compute_seconds": {name: seconds(score.compute)[0] for name, score in scores.items()},
    }


def scores_of(tasks):
    return [name for name in tasks if name != "product"]


def main():
    options = arguments()
    if options.threads:
        torch.set_num_threads(options.threads)
    with threadpool_limits(options.threads):
        sys.exit(run(options))


def run(options):
    result = {
        "rows": options.rows,
        "features": options.features,
        "classes": options.classes,
        "repeats": options.repeats,
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads",
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "versions": {"numpy": np.__version__, "torch": torch.__version__, "gdscore": gdscore.__version__},
    }
    failed = False
    for library in ("torch", "numpy"):
        result[library] = measured = measure(options, library)
        print(f"\n{library}: bare product {measured['product_seconds']:.3f} s; update as multiples of it")
        for name, ratio in sorted(measured["update_ratio"].items(), key=lambda item: -item[1]):
            bound = BOUNDS.get((library, name)) if options.rows * options.features * options.classes > 1e10 else None
            processor = measured["processor_ratio"][name]
            failed |= bound is not None and (processor if options.threads == 1 else ratio) > bound
            print(
                f"  {name:12s} {ratio:6.2f}   of processor time {processor:6.2f}"
                + (f"   bound {bound}" if bound else "")
            )
        slow = {n: s for n, s in measured["compute_seconds"].items() if s > 0.01}
        print("  compute, seconds: " + ", ".join(f"{n} {s:.2f}" for n, s in slow.items()) + "; others under 0.01")
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(result, indent=1) + "\n")
    return int(failed)


if __name__ == "__main__":
    main()
