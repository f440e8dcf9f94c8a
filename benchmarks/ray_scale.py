"""Estimates over many rows on local Ray workers: rows/s for 1 and 2 workers, memory per worker, merging of states.

Parquet is made in parts by the workers themselves, read once and deleted, so that 100,000,000 rows need little disk.
`make bench-ray` runs it; `--rows` makes it smaller.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

import gdscore
from gdscore import partial
from gdscore.files import write_json
from gdscore.io import read_outputs, write_outputs

CLASSES, FEATURES = 10, 32
PART_ROWS = 250_000


def rows_of(rows: int, seed: int, noise: float = 1.0, labels: bool = False) -> gdscore.Outputs:
    """A linear classifier on Gaussian clusters."""
    centres = np.random.default_rng(99).normal(size=(CLASSES, FEATURES)).astype(np.float32)
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, rows)
    x = centres[y] + noise * rng.standard_normal((rows, FEATURES), dtype=np.float32) * 2
    z = 0.5 * x @ centres.T
    return gdscore.Outputs(logits=z, features=x, **({"labels": y} if labels else {}))


def part_state(est: gdscore.AccuracyEstimator, folder: str, number: int, rows: int) -> tuple[bytes, float, float, int]:
    """State of one part, seconds to write it, seconds to read and work on it, and the worker's largest memory."""
    path = Path(folder) / f"part-{number}.parquet"
    start = time.perf_counter()
    write_outputs(
        path, (rows_of(min(25_000, rows - at), 1000 * number + at // 25_000, 1.2) for at in range(0, rows, 25_000))
    )
    written = time.perf_counter()
    state = partial.partial_state(est, read_outputs(path, progress=False))
    done = time.perf_counter()
    path.unlink()
    return state, written - start, done - written, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def run(rows: int, workers: int, est: gdscore.AccuracyEstimator, folder: str) -> dict:
    import ray

    ray.init(num_cpus=workers, object_store_memory=100 << 20, include_dashboard=False, log_to_driver=False)
    try:
        work, shared = ray.remote(part_state), ray.put(est)
        sizes = [min(PART_ROWS, rows - at) for at in range(0, rows, PART_ROWS)]
        ray.get([work.remote(shared, folder, 10**6 + w, 1000) for w in range(workers)])  # imports are not measured
        start = time.perf_counter()
        waiting, states, reports = [], [], []
        for number, size in enumerate(sizes):
            waiting.append(work.remote(shared, folder, number, size))
            if len(waiting) == 2 * workers or number == len(sizes) - 1:
                while waiting and (len(waiting) == 2 * workers or number == len(sizes) - 1):
                    (done,), waiting = ray.wait(waiting)
                    state, *report = ray.get(done)
                    states.append(state)
                    reports.append(report)
        merged = partial.merge_states(states)
        seconds = time.perf_counter() - start
        busy = sum(report[1] for report in reports)
        memory = [report[2] / 1024 for report in reports]
        return {
            "workers": workers,
            "rows": rows,
            "seconds_with_writing": seconds,
            "rows_per_second_with_writing": rows / seconds,
            "rows_per_second": workers * rows / busy,
            "memory_mib_first_quarter": max(memory[: max(1, len(memory) // 4)]),
            "memory_mib": max(memory),
            "state_bytes": len(merged),
            "accuracy": partial.finish_state(est, merged).accuracy,
        }
    finally:
        ray.shutdown()


def merging(est: gdscore.AccuracyEstimator, count: int = 10_000) -> dict:
    """Seconds to merge many states, wall and processor."""
    out = rows_of(200_000, 7)
    few = [partial.partial_state(est, out[at : at + 2000]) for at in range(0, len(out), 2000)]
    states = [few[number % len(few)] for number in range(count)]
    start, used = time.perf_counter(), time.process_time()
    partial.merge_states(states)
    return {
        "states": count,
        "bytes_each": len(few[0]),
        "seconds": time.perf_counter() - start,
        "processor_seconds": time.process_time() - used,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--output", type=Path, help="JSON file of the results")
    arguments = parser.parse_args()
    est = gdscore.AccuracyEstimator().fit(rows_of(5000, 1, labels=True))
    found = {"merging": merging(est), "runs": []}
    print(f"merging {found['merging']}")
    with tempfile.TemporaryDirectory() as folder:
        for workers in (1, 2):
            found["runs"].append(run(arguments.rows, workers, est, folder))
            print(found["runs"][-1])
    one, two = found["runs"]
    found["ratio"] = two["rows_per_second_with_writing"] / one["rows_per_second_with_writing"]
    print(f"2 workers / 1 worker: {found['ratio']:.2f}; equal accuracy: {one['accuracy'] == two['accuracy']}")
    if arguments.output:
        write_json(arguments.output, found)


if __name__ == "__main__":
    main()
