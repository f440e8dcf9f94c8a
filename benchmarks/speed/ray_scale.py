"""Estimates of many rows on one and on two Ray workers: rows/s, their ratio, and memory of the workers as rows go by.

Rows are made in rounds of Parquet files, estimated by `distributed.estimate` with one worker and then with two, and
deleted, so that 100,000,000 rows need 1.1 GB of disk at a time. Making files is not part of the times. The workers live
through all rounds: their largest memory after each round shows whether it grows with rows.

`make bench-ray` runs it; `--rows` makes it smaller, `--merging` only merges 10,000 states.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

import gdscore
from gdscore import distributed
from gdscore._files import write_json
from gdscore.estimator import TargetState
from gdscore.io import write_outputs

CLASSES, FEATURES = 10, 16
PART_ROWS, BLOCK_ROWS = 250_000, 25_000
ROUND_ROWS = 10_000_000
STATES = 10_000


def rows_of(rows: int, seed: int, noise: float = 1.0, labels: bool = False) -> gdscore.Outputs:
    """A linear classifier on Gaussian clusters."""
    centres = np.random.default_rng(99).normal(size=(CLASSES, FEATURES)).astype(np.float32)
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, rows)
    x = centres[y] + noise * rng.standard_normal((rows, FEATURES), dtype=np.float32) * 2
    z = 0.5 * x @ centres.T
    return gdscore.Outputs(logits=z, features=x, **({"labels": y} if labels else {}))


def make_part(folder: Path, number: int, rows: int) -> None:
    sizes = [min(BLOCK_ROWS, rows - at) for at in range(0, rows, BLOCK_ROWS)]
    blocks = (rows_of(size, 1000 * number + i, 1.2) for i, size in enumerate(sizes))
    write_outputs(folder / f"part-{number:05d}.parquet", blocks)


# -- workers ----------------------------------------------------------------------------------------------------


def memory_of_workers() -> list[float]:
    """Largest resident memory so far of each worker process that has worked, in MiB."""
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError, ValueError):
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
            name = (status.parent / "cmdline").read_bytes().split(b"\0")[0]
            # Workers of other clusters on this machine are not of this process' session.
            if name.startswith(b"ray::") and os.getsid(int(status.parent.name)) in _sessions():
                found.append(int(fields["VmHWM"].split()[0]) / 1024)
    return sorted(found, reverse=True)[:2]


def _sessions() -> set[int]:
    import ray

    node = ray._private.worker._global_node
    return {os.getsid(process.process.pid) for processes in node.all_processes.values() for process in processes}


@contextlib.contextmanager
def one_worker(ray) -> Iterator[None]:
    """Take one of two processors, so that tasks have the other."""

    class Idle:
        def ready(self) -> bool:
            return True

    idle = ray.remote(Idle).options(num_cpus=1).remote()
    ray.get(idle.ready.remote())
    try:
        yield
    finally:
        ray.kill(idle)


def warm(ray, workers: int) -> None:
    """Wait until so many worker processes are there and have imported what they need."""

    def process() -> int:
        import pyarrow.parquet  # noqa: F401

        import gdscore.distributed  # noqa: F401

        time.sleep(0.3)
        return os.getpid()

    ask = ray.remote(process)
    while len(set(ray.get([ask.remote() for _ in range(2 * workers)]))) < workers:
        pass


def timed(ray, workers: int, est: gdscore.AccuracyEstimator, folder: Path) -> tuple[float, gdscore.Estimate]:
    warm(ray, workers)
    start = time.perf_counter()
    found = distributed.estimate(est, folder, progress=False)
    return time.perf_counter() - start, found


def run(rows: int, est: gdscore.AccuracyEstimator) -> Iterator[dict]:
    """One row of the results for each round."""
    import ray

    ray.init(
        address="local",
        num_cpus=2,
        object_store_memory=100 << 20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
    )
    folder = Path(tempfile.mkdtemp(prefix="ray-scale-"))
    try:
        with ProcessPoolExecutor(2) as makers:
            for start in range(0, rows, ROUND_ROWS):
                parts = folder / f"rows-{start}"
                parts.mkdir()
                stop = min(rows, start + ROUND_ROWS)
                sizes = {at // PART_ROWS: min(PART_ROWS, stop - at) for at in range(start, stop, PART_ROWS)}
                began = time.perf_counter()
                list(makers.map(partial(make_part, parts), sizes, sizes.values()))
                made = time.perf_counter() - began
                with one_worker(ray):
                    one, first = timed(ray, 1, est, parts)
                two, second = timed(ray, 2, est, parts)
                assert first == second, "one and two workers must give the same estimate, bit for bit"
                size = sum(path.stat().st_size for path in parts.iterdir())
                shutil.rmtree(parts)
                yield {
                    "rows_so_far": stop,
                    "rows": stop - start,
                    "bytes": size,
                    "seconds_to_make": made,
                    "seconds": {"1": one, "2": two},
                    "rows_per_second": {"1": (stop - start) / one, "2": (stop - start) / two},
                    "ratio": one / two,
                    "worker_memory_mib": memory_of_workers(),
                    "accuracy": first.accuracy,
                }
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


# -- merging ----------------------------------------------------------------------------------------------------


def merging(est: gdscore.AccuracyEstimator, count: int = STATES, rows: int = 200_000) -> dict:
    """Seconds to read and merge many states, by the clock and of the processor; states of 2,000 rows repeat."""
    out = rows_of(rows, 7)
    few = [est.state().update(out[at : at + 2000]).to_bytes() for at in range(0, len(out), 2000)]
    states = [few[number % len(few)] for number in range(count)]
    start, used = time.perf_counter(), time.process_time()
    merged = est.state()
    for data in states:
        merged.merge(TargetState.from_bytes(data))
    merged.to_bytes()
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
    parser.add_argument("--merging", action="store_true", help="only merge states")
    arguments = parser.parse_args()
    est = gdscore.AccuracyEstimator().fit(rows_of(5000, 1, labels=True))
    found: dict = {"merging": merging(est), "load_before": os.getloadavg()[0], "rounds": []}
    merged = found["merging"]
    print(
        f"{merged['states']:,} states of {merged['bytes_each']:,} bytes merged in {merged['seconds']:.2f} s "
        f"({merged['processor_seconds']:.2f} s of the processor)",
        flush=True,
    )
    if not arguments.merging:
        start = time.perf_counter()
        print("rows so far | rows/s of 1 worker | of 2 | ratio | largest memory of the workers, MiB", flush=True)
        for row in run(arguments.rows, est):
            found["rounds"].append(row)
            found["seconds"] = time.perf_counter() - start
            found["ratio"] = statistics.median(row["ratio"] for row in found["rounds"])
            if arguments.output:
                write_json(arguments.output, found)  # after each round, should the run be ended
            speed, memory = row["rows_per_second"], " and ".join(f"{m:.0f}" for m in row["worker_memory_mib"])
            print(
                f"{row['rows_so_far']:,} | {speed['1']:,.0f} | {speed['2']:,.0f} | {row['ratio']:.2f} | {memory}",
                flush=True,
            )
        print(f"median ratio {found['ratio']:.2f}, all in {found['seconds']:.0f} s", flush=True)
    elif arguments.output:
        write_json(arguments.output, found)


if __name__ == "__main__":
    main()
