"""The service is killed in the middle of posts, or ended while a notice is being delivered."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import httpx
from sqlalchemy import select

from gdscore.monitor import Monitor, Rules
from gdscore.monitor.schema import Notice
from tests.monitor.conftest import START, day, estimate, sqlite_url
from tests.monitor.test_notify import dripping

POSTS = 1000


def test_every_acknowledged_window_survives_a_kill(url):
    made = Monitor(url)
    made.register("m", every="1h")
    made.close()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    server = subprocess.Popen([sys.executable, "-m", "tests.monitor.server", url, str(port)], env=environment, cwd=root)
    acknowledged, lock = [], threading.Lock()

    def post(worker):
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10) as client:
            for k in range(worker, POSTS, 4):
                when = (START + timedelta(hours=k)).isoformat()
                body = {"time": when, "accuracy": 0.9, "low": 0.8, "high": 1, "n_rows": 100, "reference_accuracy": 0.9}
                try:
                    if client.post("/api/v1/models/m/estimates", json=body).status_code == 201:
                        with lock:
                            acknowledged.append(when)
                except httpx.HTTPError:
                    return

    try:
        for _ in range(300):
            try:
                if httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200:
                    break
            except httpx.HTTPError:
                time.sleep(0.1)
        workers = [threading.Thread(target=post, args=(k,)) for k in range(4)]
        for worker in workers:
            worker.start()
        while len(acknowledged) < 100 and any(worker.is_alive() for worker in workers):
            time.sleep(0.01)
        server.send_signal(signal.SIGKILL)
        for worker in workers:
            worker.join()
    finally:
        server.kill()
        server.wait()
    assert 100 <= len(acknowledged) < POSTS
    made = Monitor(url)
    there = [start.isoformat() for start in made.windows("m").start]
    made.close()
    assert set(acknowledged) <= set(there)
    assert len(there) == len(set(there))


def test_the_service_ends_within_seconds_while_a_webhook_drips(tmp_path):
    made = Monitor(sqlite_url(tmp_path))
    made.register("m", rules=Rules(None, min_accuracy=0.8, notify_within=None))
    settings = {"GDSCORE_REQUEST_SECONDS": "0.5", "GDSCORE_CHECK_SECONDS": "0.2"}
    environment = {**os.environ, "GDSCORE_MONITOR": sqlite_url(tmp_path), **settings}
    with dripping() as (hook, _):
        command = [sys.executable, "-m", "gdscore.cli", "monitor", "serve", "--port", "0", "--webhook", hook]
        log = (tmp_path / "log").open("w")
        server = subprocess.Popen(
            [*command, "--access-log"], env=environment, stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            port = server.stdout.readline().rpartition(":")[2].strip()
            for _ in range(100):
                try:
                    assert httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
                    break
                except httpx.HTTPError:
                    time.sleep(0.1)
            made.add_estimate("m", estimate(0.5), day(0))
            for _ in range(200):
                with made.reading() as session:
                    if session.scalars(select(Notice.attempts)).all() == [1]:
                        break  # the notice is on its way
                time.sleep(0.05)
            with socket.create_connection(("127.0.0.1", int(port)), timeout=20) as silent:
                assert silent.recv(1) == b""  # cut, as it sends nothing
            server.send_signal(signal.SIGTERM)
            server.wait(timeout=60)
        finally:
            server.kill()
            server.wait()
            server.stdout.close()
            log.close()
            made.close()
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines() if line.startswith("{")]
    assert [(line["method"], line["path"], line["status"]) for line in lines] == [("GET", "/healthz", 200)]
