"""Time of the monitor's pages on 200 models × 1,000 windows beside an empty history, and memory over 10,000 requests.

Times are those of the application without the network: requests through an ASGI transport in one process. Requests to
the histories take turns, so that whatever else the machine does falls on all of them. An empty history has
one registered model and no window, as there is no model page without a model.
Usage: python benchmarks/monitor_load.py [--models 200] [--windows 1000] [--requests 50]
"""

import argparse
import asyncio
import csv
import itertools
import multiprocessing
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import numpy as np
from sqlalchemy import insert

from gdscore import AccuracyEstimator, Estimate, Outputs
from gdscore.monitor import Monitor
from gdscore.monitor.app import create_app
from gdscore.monitor.schema import Model, Series, Window

HOUR = 3_600_000_000
FIRST = 1_767_225_600_000_000
RESULTS = Path(__file__).parent / "results" / "monitor_load.csv"
PATHS = {
    "overview": "/",
    "model page": "/models/model%200",
    "series of the model page": "/api/v1/models/model%200/series?points=600",
    "metrics": "/metrics",
}


def example_estimate():
    """Estimate of ten classes with everything that is stored of it."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 10, 1000)
    outputs = Outputs(logits=4 * np.eye(10)[y] + 1.5 * rng.normal(size=(1000, 10)), labels=y)
    return AccuracyEstimator().fit(outputs).estimate(outputs)


def fill(monitor, models, windows, estimate):
    """Rows as `Monitor.add_estimate` writes them, by bulk insert; half of the windows have labels."""
    rng = np.random.default_rng(0)
    facts = estimate.to_dict()
    for k in range(models):
        monitor.register(f"model {k}", every="1h")
    monitor.add_estimate("model 0", estimate, "2025-01-01")
    with monitor.writing() as session:
        state = session.get(Series, (1, "")).state
        session.query(Series).delete()
        session.query(Window).delete()
        for model in session.query(Model):
            values = np.clip(0.9 + 0.01 * rng.normal(size=windows), 0, 0.99).tolist()
            rows = [
                {
                    "model_id": model.id, "segment": "", "start": FIRST + n * HOUR, "end": FIRST + (n + 1) * HOUR,
                    "rows": 400, "accuracy": a, "low": a - 0.05, "high": min(1, a + 0.05), "level": 0.9,
                    "reference_accuracy": 0.9, "warnings": facts["warnings"], "scores": facts["scores"],
                    "estimate": facts, "before": state, "content_hash": f"{model.id}-{n}", "created_at": FIRST,
                    "labelled": 400 if n < windows // 2 else None, "correct": 360 if n < windows // 2 else None,
                }
                for n, a in enumerate(values)
            ]  # fmt: skip
            session.execute(insert(Window), rows)
            last = session.query(Window.id).where(Window.model_id == model.id).order_by(Window.start.desc()).first()
            recent = [round(a, 5) for a in values[-60:]]
            session.add(
                Series(model_id=model.id, segment="", windows=windows, last_window=last[0], recent=recent, state=state)
            )


def client_of(monitor):
    transport = httpx.ASGITransport(create_app(monitor), client=("127.0.0.1", 1))
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")


async def measure(monitors, requests):
    """Median milliseconds by the clock and of the processor, by page and history."""
    found = {}
    async with AsyncExitStack() as stack:
        clients = {name: await stack.enter_async_context(client_of(monitor)) for name, monitor in monitors.items()}
        for page, path in PATHS.items():
            times = {name: [] for name in clients}
            for _, (name, client) in itertools.product(range(requests + 1), clients.items()):
                start, processor = time.perf_counter(), time.process_time()
                answer = await client.get(path)
                times[name].append((time.perf_counter() - start, time.process_time() - processor))
                assert answer.status_code == 200, answer.text
            for name, listed in times.items():
                found[page, name] = [1000 * statistics.median(column) for column in zip(*listed[1:], strict=True)]
    return found


def resident_mib():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


async def request_all(monitor, models, requests):
    found = []
    async with client_of(monitor) as client:
        for k in range(requests):
            path = list(PATHS.values())[k % len(PATHS)].replace("%200", f"%20{k // len(PATHS) % models}")
            assert (await client.get(path)).status_code == 200
            if k + 1 in (requests // 10, requests // 2, requests):
                found.append(resident_mib())
    return found


def memory(url, models, requests):
    """MiB in use after the first tenth, after half, and after all requests, which go to all pages in turn."""
    return asyncio.run(request_all(Monitor(url), models, requests))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--windows", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=50)
    parser.add_argument("--memory-requests", type=int, default=10_000)
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args()
    sizes = {"empty": (1, 0), "full": (args.models, args.windows), "one long series": (1, 100_000)}
    estimate = example_estimate()
    assert isinstance(estimate, Estimate)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        monitors = {}
        for label, (models, windows) in sizes.items():
            monitors[label] = Monitor(f"sqlite:///{folder}/{label}.db")
            if windows:
                fill(monitors[label], models, windows, estimate)
            else:
                monitors[label].register("model 0")
        found = asyncio.run(measure(monitors, args.requests))
        for (page, label), (clock, processor) in found.items():
            ratios = [round(a / b, 2) for a, b in zip((clock, processor), found[page, "empty"], strict=True)]
            rows.append([page, label, *sizes[label], round(clock, 1), round(processor, 1), *ratios])
            print(*rows[-1], sep="\t", flush=True)
        if args.memory_requests:
            # In a process of its own: what filling has used and given back would hide what requests keep.
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                arguments = (f"sqlite:///{folder}/full.db", args.models, args.memory_requests)
                used = [round(mib, 1) for mib in pool.submit(memory, *arguments).result()]
            print(f"MiB in use after a tenth, half and all of {args.memory_requests:,} requests: {used}")
            for share, mib in zip((0.1, 0.5, 1.0), used, strict=True):
                count = f"{args.memory_requests * share:.0f}"
                rows.append([f"MiB after {count} requests", "full", *sizes["full"], mib, "", "", ""])
        for monitor in monitors.values():
            monitor.close()
    with args.output.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["page", "history", "models", "windows", "median ms (or MiB)", "processor ms",
                         "times empty", "processor times empty"])  # fmt: skip
        writer.writerows(rows)


if __name__ == "__main__":
    main()
