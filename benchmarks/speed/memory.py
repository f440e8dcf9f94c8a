"""Does memory grow with the number of rows? Streams a small and a large Parquet file, each in a fresh process.

    python -m benchmarks.speed.memory                                  # 100,000 and 1,000,000 rows, about 2.3 GB of disk
    python -m benchmarks.speed.memory --rows 2000 20000 --features 64  # a quick try
    python -m benchmarks.speed.memory --read-only                      # reading alone, without any score
    python -m benchmarks.speed.memory --output memory.json             # keep the numbers

Ends with status 1 when the peaks differ by more than the bound.
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

BATCH = 4096


def write(path, options):
    import numpy as np

    import gdscore.io

    rng = np.random.default_rng(0)

    def batches():
        for start in range(0, options.rows[0], BATCH):
            m = min(BATCH, options.rows[0] - start)
            yield gdscore.Outputs(
                logits=rng.standard_normal((m, options.classes), dtype=np.float32),
                features=rng.standard_normal((m, options.features), dtype=np.float32),
            )

    gdscore.io.write_outputs(path, batches())


def stream(path, options):
    import gdscore.io

    begin = time.perf_counter()
    batches = gdscore.io.read_outputs(path, progress=False)
    if options.read_only:
        values, skipped = {"rows": sum(len(batch) for batch in batches)}, {}
    else:
        result = gdscore.score_all(batches, scores=options.scores)
        values, skipped = dict(result), dict(result.skipped)
    seconds = time.perf_counter() - begin
    kilobyte = 1024 if sys.platform == "darwin" else 1
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / kilobyte / 1024
    return {
        "rows": options.rows[0],
        "peak_mb": peak,
        "rows_per_second": options.rows[0] / seconds,
        "scores": values,
        "skipped": skipped,
    }


def in_fresh_process(step, path, rows, options):
    # A child begins with the peak of its parent: nothing large is imported or written in this one.
    command = [
        sys.executable,
        "-m",
        "benchmarks.speed.memory",
        "--step",
        step,
        "--path",
        str(path),
        "--rows",
        str(rows),
    ]
    command += ["--features", str(options.features), "--classes", str(options.classes)]
    command += ["--read-only"] if options.read_only else []
    command += ["--scores", *options.scores] if options.scores else []
    done = subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout or "null")


def compare(options):
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for rows in options.rows:
            path = Path(folder) / f"{rows}.parquet"
            in_fresh_process("write", path, rows, options)
            megabytes = path.stat().st_size / 2**20
            result = in_fresh_process("stream", path, rows, options)
            path.unlink()
            results.append({**result, "file_mb": megabytes})
            print(
                f"{rows:>10,} rows  {megabytes:7.0f} MB file  {result['peak_mb']:6.0f} MB peak  "
                f"{result['rows_per_second']:>10,.0f} rows/s"
            )
    growth = max(r["peak_mb"] for r in results) - min(r["peak_mb"] for r in results)
    used = "reading alone" if options.read_only else ", ".join(results[0]["scores"])
    print(f"{growth:.0f} MB between the peaks, bound {options.bound:.0f} MB; {used}")
    if options.output:
        import gdscore.files

        gdscore.files.write_json(options.output, {"growth_mb": growth, "bound_mb": options.bound, "runs": results})
    return 0 if growth <= options.bound else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--features", type=int, default=512)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--scores", nargs="+", help="names of scores; all the data allows by default")
    parser.add_argument("--read-only", action="store_true", help="compute no score")
    parser.add_argument("--bound", type=float, default=200.0, help="MB that the peaks may differ by")
    parser.add_argument("--output", type=Path, help="JSON file for the numbers")
    parser.add_argument("--step", choices=["write", "stream"], help=argparse.SUPPRESS)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step == "write":
        write(options.path, options)
    elif options.step == "stream":
        print(json.dumps(stream(options.path, options)))
    else:
        sys.exit(compare(options))


if __name__ == "__main__":
    main()
