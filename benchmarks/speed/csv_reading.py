"""How fast is CSV estimated, and does memory grow with rows? Beside Parquet of the same rows, each in a fresh process.

    python -m benchmarks.speed.csv_reading                        # 500,000 and 5,000,000 rows × 10 probabilities, 2 GB of disk
    python -m benchmarks.speed.csv_reading --rows 2000 20000      # a quick try
    python -m benchmarks.speed.csv_reading --output csv.json      # keep the numbers

Ends with status 1 when the peaks of the smallest and the largest file of a kind differ by more than the bound.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import ROOT

BATCH = 50_000
SUFFIXES = (".csv", ".parquet")


def write(path, rows, classes):
    import numpy as np
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    rng = np.random.default_rng(0)
    names = [f"prob_{k}" for k in range(classes)]
    schema = pa.schema([*((name, pa.float64()) for name in names), ("label", pa.int64())])
    writers = {".csv": pa.csv.CSVWriter, ".parquet": pa.parquet.ParquetWriter}
    with writers[path.suffix](path, schema) as writer:
        for start in range(0, rows, BATCH):
            m = min(BATCH, rows - start)
            p = rng.dirichlet(np.full(classes, 0.3), size=m).round(9)
            p[:, -1] = 1.0 - p[:, :-1].sum(axis=1)
            p = np.abs(p)
            columns = [pa.array(p[:, k].copy()) for k in range(classes)]
            writer.write(pa.record_batch([*columns, pa.array(rng.integers(0, classes, m))], schema=schema))


def estimate(path, rows):
    import pyarrow.csv
    import pyarrow.parquet  # noqa: F401

    import gdscore
    from gdscore.io import Columns, read_outputs

    columns = Columns(probabilities="prob_*", label="label")
    # The first rows of the file serve as the reference; what it is does not change the work.
    reference = next(read_outputs(path, columns=columns, batch_rows=1000, progress=False))
    est = gdscore.AccuracyEstimator().fit(reference)
    begin = time.perf_counter()
    found = est.estimate(read_outputs(path, columns=columns, progress=False))
    seconds = time.perf_counter() - begin
    if found.n_rows != rows:
        raise SystemExit(f"read {found.n_rows} rows of {rows}")
    kilobyte = 1024 if sys.platform == "darwin" else 1
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / kilobyte / 1024
    return {"rows": rows, "rows_per_second": rows / seconds, "peak_mb": peak, "accuracy": found.accuracy}


def in_fresh_process(step, path, rows, classes):
    # A child begins with the peak of its parent: nothing large is imported or written in this one.
    command = [
        sys.executable,
        "-m",
        "benchmarks.speed.csv_reading",
        "--step",
        step,
        "--path",
        str(path),
        "--rows",
        str(rows),
    ]
    done = subprocess.run(
        [*command, "--classes", str(classes)], check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    return json.loads(done.stdout or "null")


def compare(options):
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for rows in options.rows:
            for suffix in SUFFIXES:
                path = Path(folder) / f"{rows}{suffix}"
                in_fresh_process("write", path, rows, options.classes)
                megabytes = path.stat().st_size / 2**20
                result = in_fresh_process("estimate", path, rows, options.classes)
                path.unlink()
                results.append({"kind": suffix, "file_mb": megabytes, **result})
                print(
                    f"{suffix:<9}{rows:>10,} rows  {megabytes:7.0f} MB file  {result['peak_mb']:6.0f} MB peak  "
                    f"{result['rows_per_second']:>10,.0f} rows/s"
                )
    growth = {}
    for suffix in SUFFIXES:
        peaks = [result["peak_mb"] for result in results if result["kind"] == suffix]
        growth[suffix] = max(peaks) - min(peaks)
        print(f"{suffix:<9}{growth[suffix]:.0f} MB between the peaks, bound {options.bound:.0f} MB")
    if options.output:
        from gdscore._files import write_json

        write_json(options.output, {"growth_mb": growth, "bound_mb": options.bound, "runs": results})
    return 0 if max(growth.values()) <= options.bound else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[500_000, 5_000_000])
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--bound", type=float, default=50.0, help="MB that the peaks may differ by")
    parser.add_argument("--output", type=Path, help="JSON file for the numbers")
    parser.add_argument("--step", choices=["write", "estimate"], help=argparse.SUPPRESS)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step == "write":
        write(options.path, options.rows[0], options.classes)
    elif options.step == "estimate":
        print(json.dumps(estimate(options.path, options.rows[0])))
    else:
        sys.exit(compare(options))


if __name__ == "__main__":
    main()
