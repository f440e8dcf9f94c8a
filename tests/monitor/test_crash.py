"""The service is killed in the middle of posts: every window it acknowledged is there."""

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

from gdscore.monitor import Monitor
from tests.monitor.conftest import START

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
