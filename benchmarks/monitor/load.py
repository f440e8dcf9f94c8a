"""Time of the monitor's pages on 200 models × 1,000 windows beside an empty history, and memory over 10,000 requests.

Times are those of the application without the network: requests through an ASGI transport in one process. Requests to
the histories take turns, so that whatever else the machine does falls on all of them. An empty history has
one registered model and no window, as there is no model page without a model.

With ``posts``: windows that a running service takes a second, the processor time of each, which other work on the machine
changes less, and posts that take long. Each is measured for the code of another checkout and right after it for this
one, so often in turn, and the table has the medians.
Usage: python -m benchmarks.monitor.load pages [--models 200] [--windows 1000] [--requests 50]
       python -m benchmarks.monitor.load posts [--before CHECKOUT] [--postgres URL] [--seconds 5] [--rounds 1]
"""

import argparse
import asyncio
import contextlib
import csv
import http.client
import io
import itertools
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import numpy as np
from sqlalchemy import insert

from benchmarks import RESULTS, ROOT
from gdscore import AccuracyEstimator, Estimate, Outputs
from gdscore.monitor import Monitor
from gdscore.monitor.app import create_app
from gdscore.monitor.schema import Model, Series, Window
from gdscore.monitor.settings import Settings

HOUR = timedelta(hours=1)
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
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
                    "estimate": facts, "content_hash": f"{model.id}-{n}", "created_at": FIRST,
                    "rules_change": model.rules_change, "n_series": 1,
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
    transport = httpx.ASGITransport(create_app(monitor, Settings(auth=False)), client=("127.0.0.1", 1))
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


# -- posts to a running service -------------------------------------------------------------------------------

MAKE_ESTIMATOR = """
import sys, numpy as np, gdscore
rng = np.random.default_rng(0)
y = rng.integers(0, 3, 600)
p = np.exp(2 * np.eye(3)[y] + rng.normal(size=(600, 3)))
gdscore.AccuracyEstimator().fit(gdscore.Outputs(probabilities=p / p.sum(1, keepdims=True), labels=y)).save(sys.argv[1])
"""
MIDNIGHT = datetime(2020, 1, 1)


def parquet_body(rows, **columns):
    """Rows of three classes with more columns, as a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    p = np.random.default_rng(0).dirichlet([4, 1, 1], rows)
    file = io.BytesIO()
    pq.write_table(pa.table({**{f"prob_{k}": p[:, k] for k in range(3)}, **columns}), file)
    return file.getvalue()


class Service:
    """``gdscore monitor serve`` of a checkout, with a history of its own."""

    def __init__(self, checkout, folder, database=None):
        settings = {"GDSCORE_AUTH": "false", "OMP_NUM_THREADS": "1"}
        self.environment = os.environ | settings | {"PYTHONPATH": str(checkout / "src")}
        url = database or f"sqlite:///{folder}/history.db"
        command = [sys.executable, "-m", "gdscore.cli", "monitor", "serve", "--port", "0", "--database", url]
        self.process = subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline().rpartition(":")[2])
        subprocess.run([sys.executable, "-c", MAKE_ESTIMATOR, f"{folder}/m"], env=self.environment, check=True)
        self.estimator = Path(folder, "m").read_bytes()

    def processor_seconds(self):
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Client:
    """A connection that is kept."""

    def __init__(self, service):
        self.service, self.connection = service, http.client.HTTPConnection("127.0.0.1", service.port, timeout=900)

    def send(self, method, path, body, kind):
        """Seconds until the answer; one that is no success is an error."""
        start = time.perf_counter()
        self.connection.request(method, f"/api/v1{path}", body, {"Content-Type": kind})
        answer = self.connection.getresponse()
        text = answer.read()
        assert answer.status < 300, text[:300]
        return time.perf_counter() - start

    def register(self, name, every="1h"):
        self.send("POST", "/models", json.dumps({"name": name, "every": every}), "application/json")
        self.send("PUT", f"/models/{name}/estimator", self.service.estimator, "application/octet-stream")

    def window(self, name, hour, body):
        at = (MIDNIGHT + timedelta(hours=int(hour))).isoformat()
        return self.send(
            "POST", f"/models/{name}/windows?probabilities=prob_*&time={at}", body, "application/vnd.apache.parquet"
        )

    def windows(self, name, body, by="segment"):
        query = "time_column=time" if by is None else f"time=2020-01-01&by={by}"
        return self.send(
            "POST", f"/models/{name}/windows?probabilities=prob_*&{query}", body, "application/vnd.apache.parquet"
        )


def posts_per_second(service, clients, models, seconds):
    """Windows of 200 rows that clients post in a time, each client its own hours of one of the models."""
    first = Client(service)
    for k in range(models):
        first.register(f"m{models}-{k}")
    body, stop = parquet_body(200), time.perf_counter() + seconds

    def post(number):
        client, sent = Client(service), 0
        while time.perf_counter() < stop:
            client.window(f"m{models}-{number % models}", clients * sent + number, body)
            sent += 1
        return sent

    with ThreadPoolExecutor(clients) as pool:
        return sum(pool.map(post, range(clients))) / seconds


def segments_seconds(service, segments):
    client = Client(service)
    client.register("segments", "1d")
    with contextlib.suppress(AssertionError):  # earlier code has no such limit
        client.send("PATCH", "/models/segments/rules", json.dumps({"max_segments": segments}), "application/json")
    names = [f"s{k}" for k in range(segments)] * 2
    return client.windows("segments", parquet_body(len(names), segment=names))


def backfill_seconds(service, windows, shuffled):
    client, name, body = Client(service), f"backfill-{shuffled}-{windows}", parquet_body(50)
    client.register(name)
    hours = np.random.default_rng(0).permutation(windows) if shuffled else range(windows)
    return sum(client.window(name, hour, body) for hour in hours)


def longest_wait(service, windows):
    """Longest answer to posts of one model while another model gets a body of many windows."""
    large, small, body = Client(service), Client(service), parquet_body(50)
    large.register("large", "1min")
    small.register("small")
    minutes = np.datetime64("2020-01-01", "us") + np.repeat(np.arange(windows), 2) * np.timedelta64(60, "s")
    many = parquet_body(2 * windows, time=minutes)
    with ThreadPoolExecutor(1) as pool:
        posting, waits = pool.submit(large.windows, "large", many, None), []
        while not posting.done():
            waits.append(small.window("small", len(waits), body))
        posting.result()
    return max(waits)


def measure_posts(args):
    """Table of posts: each measure for the code before, where it is given, and then for this one."""
    measures = {
        "posts/s, 1 client": lambda s: posts_per_second(s, 1, 1, args.seconds),
        "posts/s, 16 clients, 16 models": lambda s: posts_per_second(s, 16, 16, args.seconds),
        "posts/s, 16 clients, 1 model": lambda s: posts_per_second(s, 16, 1, args.seconds),
    }
    slow = {
        f"s, a post of {args.segments} segments": lambda s: segments_seconds(s, args.segments),
        f"s, {args.backfill} windows in order": lambda s: backfill_seconds(s, args.backfill, False),
        f"s, {args.backfill} windows in random order": lambda s: backfill_seconds(s, args.backfill, True),
        f"s, {2 * args.backfill} windows in random order": lambda s: backfill_seconds(s, 2 * args.backfill, True),
        f"s, longest wait beside a post of {args.many} windows": lambda s: longest_wait(s, args.many),
    }
    checkouts = {"before": args.before} if args.before else {}
    checkouts["now"] = ROOT
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for database in ("SQLite", *(["PostgreSQL"] if args.postgres else [])):
            for name, measure in (measures | slow if database == "SQLite" else measures).items():
                if args.only not in name:
                    continue
                found = {code: [] for code in checkouts}
                for turn, (code, checkout) in itertools.product(range(args.rounds), checkouts.items()):
                    own = Path(folder, f"{len(rows)}-{turn}-{code}")
                    own.mkdir()
                    service = Service(checkout, own, new_database(args.postgres) if database == "PostgreSQL" else None)
                    try:
                        start = service.processor_seconds()
                        value = measure(service)
                        used = 1000 * (service.processor_seconds() - start) / (value * args.seconds)
                        found[code].append((value, used))
                    finally:
                        service.stop()
                names = [name, f"ms of processor a post, {name.partition(', ')[2]}"] if name in measures else [name]
                for k, row in enumerate(names):
                    middle = {code: round(statistics.median(v[k] for v in listed), 2) for code, listed in found.items()}
                    rows.append([database, row, middle.get("before", ""), middle["now"]])
                    print(*rows[-1], sep="\t", flush=True)
    with args.output.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["database", "measure", "before", "now"])
        writer.writerows(rows)


def new_database(server):
    """Address of a new database on a PostgreSQL server."""
    import psycopg

    name = f"load_{uuid.uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    base, _, options = server.partition("?")
    return f"{base.rpartition('/')[0]}/{name}" + (f"?{options}" if options else "")


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(required=True)
    pages = commands.add_parser("pages")
    pages.add_argument("--models", type=int, default=200)
    pages.add_argument("--windows", type=int, default=1000)
    pages.add_argument("--requests", type=int, default=50)
    pages.add_argument("--memory-requests", type=int, default=10_000)
    pages.add_argument("--output", type=Path, default=RESULTS / "monitor_load.csv")
    pages.set_defaults(run=measure_pages)
    posts = commands.add_parser("posts")
    posts.add_argument("--before", type=Path)
    posts.add_argument("--postgres")
    posts.add_argument("--only", default="", help="Measures whose name has this in it.")
    posts.add_argument("--seconds", type=float, default=5)
    posts.add_argument("--rounds", type=int, default=1)
    posts.add_argument("--segments", type=int, default=10_000)
    posts.add_argument("--backfill", type=int, default=1000)
    posts.add_argument("--many", type=int, default=20_000)
    posts.add_argument("--output", type=Path, default=RESULTS / "monitor_posts.csv")
    posts.set_defaults(run=measure_posts)
    args = parser.parse_args()
    args.run(args)


def measure_pages(args):
    """Table of pages and memory."""
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
