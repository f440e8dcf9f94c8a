"""Is a file of any size estimated in constant memory? `gdscore estimate` on 10 million rows of Parquet.

    python -m benchmarks.speed.bigfile --output benchmarks/results/bigfile.json    # 3 GB of disk for as long as it runs
    python -m benchmarks.speed.bigfile --rows 20000                                # a quick try

A linear classifier of 10 classes on 64 features (float32); calibration on 2,000 rows, the target is noisier and has no
labels in the file. Ends with status 1 when the command takes more memory than the bound.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import ROOT

BATCH = 1 << 16


def classifier(options):
    """Last layer, and a function from rows, noise and seed to batches of labelled outputs."""
    import numpy as np

    import gdscore

    centres = np.maximum(np.random.default_rng(0).normal(size=(options.classes, options.features)), 0).astype("float32")
    weight, bias = 0.5 * centres.T, -0.25 * np.square(centres).sum(1)

    def batches(rows, noise, seed):
        rng = np.random.default_rng(seed)
        for start in range(0, rows, BATCH):
            labels = rng.integers(0, options.classes, min(BATCH, rows - start))
            x = centres[labels]
            x += noise * rng.standard_normal(x.shape, dtype=np.float32)
            yield gdscore.Outputs(logits=x @ weight + bias, features=x, labels=labels)

    return batches


def write(folder, options):
    import gdscore

    batches = classifier(options)
    reference = gdscore.Outputs.concatenate(list(batches(options.reference, 2.0, seed=1)))
    gdscore.AccuracyEstimator().fit(reference).save(folder / "m.gdscore")
    correct = 0

    def unlabelled():
        nonlocal correct
        for out in batches(options.rows, 2.5, seed=2):
            correct += int(out.correct.sum())
            yield out.only({"logits", "features"})

    gdscore.io.write_outputs(folder / "big.parquet", unlabelled())
    return {"truth": correct / options.rows, "reference_accuracy": reference.accuracy}


def measure(folder, options):
    # A child begins with the peak of its parent: nothing large is imported or written in this process.
    sizes = [f"--{name}={getattr(options, name)}" for name in ("rows", "features", "classes", "reference")]
    step = [sys.executable, "-m", "benchmarks.speed.bigfile", "--step", str(folder), *sizes]
    written = json.loads(subprocess.run(step, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout)
    command = [sys.executable, "-m", "gdscore.cli", "estimate", str(folder / "m.gdscore"), str(folder / "big.parquet")]
    begin = time.perf_counter()
    child = subprocess.Popen([*command, "--json", str(folder / "out.json"), "--quiet"])
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - begin
    if status:
        sys.exit(f"gdscore estimate failed with {os.waitstatus_to_exitcode(status)}")
    (estimate,) = json.loads((folder / "out.json").read_text())["targets"]
    return {
        "rows": options.rows,
        "features": options.features,
        "classes": options.classes,
        "file_mb": (folder / "big.parquet").stat().st_size / 2**20,
        "peak_mb": usage.ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10),
        "bound_mb": options.bound,
        "seconds": seconds,
        "rows_per_second": options.rows / seconds,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        **written,
        **{name: estimate[name] for name in ("accuracy", "low", "high", "level", "n_rows")},
        "warnings": [w["code"] for w in estimate["warnings"]],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--reference", type=int, default=2000, help="labelled rows to calibrate on")
    parser.add_argument("--bound", type=float, default=1000.0, help="MB of memory that the command may take")
    parser.add_argument("--folder", type=Path, help="where the file lies meanwhile; a temporary folder by default")
    parser.add_argument("--output", type=Path, help="JSON file for the numbers")
    parser.add_argument("--step", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        print(json.dumps(write(options.step, options)))
        return
    if options.folder:
        options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        result = measure(Path(folder), options)
    print(
        f"{result['rows']:,} rows, {result['file_mb']:.0f} MB: {result['peak_mb']:.0f} MB of memory at most, "
        f"{result['seconds']:.1f} s, {result['rows_per_second']:,.0f} rows/s; estimate {result['accuracy']:.1%} "
        f"({result['low']:.1%} to {result['high']:.1%}; {', '.join(result['warnings'])}), truth {result['truth']:.1%}"
    )
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(result, indent=2) + "\n")
    sys.exit(result["peak_mb"] > options.bound)


if __name__ == "__main__":
    main()
