"""Speed of the monitor's pages on 200 models × 1,000 windows beside an empty history, and memory over 10,000 requests.

Times are those of the application without the network: requests through an ASGI transport in one process.
Usage: python benchmarks/monitor_load.py [--models 200] [--windows 1000] [--requests 50]
"""

import argparse
import asyncio
import csv
import resource
import statistics
import tempfile
import time
from pathlib import Path

import httpx
import numpy as np
from sqlalchemy import insert

from gdscore.monitor import Monitor, Rules
from gdscore.monitor.app import create_app
from gdscore.monitor.schema import Model, Series, Window

HOUR = 3_600_000_000
RESULTS = Path(__file__).parent / "results" / "monitor_load.csv"


def fill(monitor, models, windows):
    """Rows as `Monitor.add_estimate` writes them, by bulk insert."""
    rng = np.random.default_rng(0)
    first = 1_767_225_600_000_000
    with monitor.writing() as session:
        for k in range(models):
            model = Model(
                name=f"model {k}",
                version="1",
                every=HOUR,
                rules=Rules().to_dict(),
                reference_rows=1000,
                created_at=first,
            )
            session.add(model)
            session.flush()
            values = np.clip(0.9 + 0.01 * rng.normal(size=windows), 0, 0.99)
            rows = [
                {
                    "model_id": model.id, "segment": "", "start": first + n * HOUR, "end": first + (n + 1) * HOUR,
                    "rows": 400, "accuracy": float(a), "low": float(a - 0.05), "high": float(min(1, a + 0.05)),
                    "level": 0.9, "reference_accuracy": 0.9, "warnings": [], "scores": {}, "estimate": {},
                    "content_hash": f"{k}-{n}", "created_at": first, "labelled": 400 if n < windows // 2 else None,
                    "correct": 360 if n < windows // 2 else None,
                }
                for n, a in enumerate(values)
            ]  # fmt: skip
            session.execute(insert(Window), rows)
            last = session.query(Window.id).where(Window.model_id == model.id).order_by(Window.start.desc()).first()
            session.add(
                Series(
                    model_id=model.id, segment="", windows=windows, last_window=last[0],
                    recent=[round(float(a), 5) for a in values[-60:]], state={},
                )
            )  # fmt: skip


async def measure(monitor, paths, requests):
    transport = httpx.ASGITransport(create_app(monitor), client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        found = {}
        for name, path in paths.items():
            times = []
            for _ in range(requests):
                start = time.perf_counter()
                answer = await client.get(path)
                times.append(1000 * (time.perf_counter() - start))
                assert answer.status_code == 200, answer.text
            found[name] = statistics.median(times)
        return found


async def memory(monitor, requests):
    transport = httpx.ASGITransport(create_app(monitor), client=("127.0.0.1", 1))
    peaks = []
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        for k in range(requests):
            await client.get("/api/v1/models/model%201/windows?limit=20")
            if (k + 1) % (requests // 2) == 0:
                peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    return peaks


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--windows", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=50)
    parser.add_argument("--memory-requests", type=int, default=10_000)
    args = parser.parse_args()
    paths = {
        "overview": "/",
        "model page": "/models/model%201",
        "series of the model page": "/api/v1/models/model%201/series?points=600",
        "metrics": "/metrics",
    }
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        sizes = {"empty": (2, 1), "full": (args.models, args.windows), "one long series": (2, 100_000)}
        for label, (models, windows) in sizes.items():
            monitor = Monitor(f"sqlite:///{folder}/{label}.db")
            fill(monitor, models, windows)
            for name, median in asyncio.run(measure(monitor, paths, args.requests)).items():
                rows.append([label, models, windows, name, round(median, 1)])
                print(*rows[-1])
            if label == "full" and args.memory_requests:
                half, end = asyncio.run(memory(monitor, args.memory_requests))
                print(
                    f"peak memory after half of {args.memory_requests} requests {half:.0f} MiB, at the end {end:.0f} MiB"
                )
                rows.append([label, models, windows, "peak MiB after half the requests", round(half)])
                rows.append([label, models, windows, f"peak MiB after {args.memory_requests} requests", round(end)])
            monitor.close()
    with RESULTS.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["history", "models", "windows", "what", "median ms (or MiB)"])
        writer.writerows(rows)


if __name__ == "__main__":
    main()
