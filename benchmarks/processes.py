"""Jobs in several processes on one device: small networks leave most of a GPU idle."""

import multiprocessing
import os
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed

import torch

__all__ = ["run_jobs"]


def run_jobs(function, jobs, workers):
    """Call ``function(*job)`` for each job, `workers` at a time; jobs that fail are printed, and fail the run at its end.

    With one worker everything happens in this process.
    """
    jobs = list(jobs)
    if workers <= 1 or len(jobs) <= 1:
        for job in jobs:
            function(*job)
        return
    start, failed = time.perf_counter(), 0
    workers = min(workers, len(jobs))
    threads = max(1, (os.cpu_count() or 1) // workers)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, torch.set_num_threads, (threads,)) as pool:
        waiting = {pool.submit(function, *job) for job in jobs}
        for done in as_completed(waiting):
            if done.exception() is not None:
                failed += 1
                traceback.print_exception(done.exception())
    print(f"{len(jobs)} jobs, {workers} at a time: {time.perf_counter() - start:.1f} s", flush=True)
    if failed:
        raise SystemExit(f"{failed} of {len(jobs)} jobs failed; the same command makes what is missing")
