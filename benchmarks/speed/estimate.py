"""What does an estimate of stored outputs cost beside reading them? Medians of interleaved repeats in one process.

    python -m benchmarks.speed.estimate                    # 1,000,000 rows × 64 features × 10 classes, 300 MB of disk
    python -m benchmarks.speed.estimate --rows 20000 --output ""   # a quick try

The file is read once before, so that it lies in the system's cache. `read` is `gdscore.io.read_outputs` to the end of the
file; `estimate` is `AccuracyEstimator.estimate` of the same stream. Ends with status 1 when a full-size ratio is above
its bound.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa

import gdscore
from benchmarks import RESULTS
from benchmarks.speed.bigfile import write
from benchmarks.speed.fit import commit, processor

FULL, BOUND = 1_000_000, 3.0


def measured(options, folder):
    """Seconds by the clock and of the processor for both tasks, and their ratios."""
    sizes = SimpleNamespace(rows=options.rows, features=64, classes=10, reference=2000)
    write(folder, sizes)
    estimator = gdscore.AccuracyEstimator.load(folder / "m.gdscore")

    def read():
        return sum(len(part) for part in gdscore.io.read_outputs(folder / "big.parquet"))

    def estimate():
        return estimator.estimate(gdscore.io.read_outputs(folder / "big.parquet")).n_rows

    tasks = {"read": read, "estimate": estimate}
    spent = {name: [] for name in tasks}
    for repeat in range(options.repeats + 1):
        for name, task in tasks.items():
            begin = time.perf_counter(), time.process_time()
            assert task() == options.rows
            if repeat:
                spent[name].append((time.perf_counter() - begin[0], time.process_time() - begin[1]))
    found = {}
    for which, kind in enumerate(("seconds", "cpu_seconds")):
        median = {name: statistics.median(pair[which] for pair in pairs) for name, pairs in spent.items()}
        found |= {f"{name}_{kind}": round(value, 3) for name, value in median.items()}
        found["ratio" if kind == "seconds" else "cpu_ratio"] = round(median["estimate"] / median["read"], 2)
    return found | {"rows": options.rows, "features": sizes.features, "classes": sizes.classes}


def main(given=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=FULL)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--output", default=str(RESULTS / "estimate_speed.json"), help="JSON file; empty: none")
    options = parser.parse_args(given)
    with tempfile.TemporaryDirectory() as folder:
        result = measured(options, Path(folder))
    result |= {
        "repeats": options.repeats,
        "device": processor(),
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "versions": {"numpy": np.__version__, "pyarrow": pa.__version__, "gdscore": gdscore.__version__},
        "commit": commit(),
    }
    print(
        f"{result['rows']:,} rows: read {result['read_seconds']:.2f} s, estimate {result['estimate_seconds']:.2f} s, "
        f"ratio {result['ratio']:.2f} (of processor time {result['cpu_ratio']:.2f})"
    )
    if options.output:
        Path(options.output).write_text(json.dumps(result, indent=1) + "\n")
    if options.rows >= FULL and result["ratio"] > BOUND:
        sys.exit(1)
    return result


if __name__ == "__main__":
    main()
