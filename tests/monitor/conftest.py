"""Each history test runs on SQLite, and on PostgreSQL where GDSCORE_TEST_POSTGRES names a server (make postgres)."""

import os
import threading
import time
import uuid
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

import gdscore

pytest.importorskip("sqlalchemy")
pytest.importorskip("fastapi")

from sqlalchemy import event

from gdscore.monitor import Monitor
from gdscore.monitor.auth import cut_late_connections
from gdscore.monitor.settings import Settings

OPEN = Settings(auth=False)

START = datetime(2026, 1, 1, tzinfo=UTC)


def day(n):
    return START + timedelta(days=n)


def estimate(accuracy=0.9, rows=900, reference=0.9, width=0.03, warnings=()):
    low, high = max(0, accuracy - width), min(1, accuracy + width)
    return gdscore.Estimate(
        accuracy, low, high, level=0.9, n_rows=rows, reference_accuracy=reference, warnings=list(warnings)
    )


def make_outputs(rows, noise, seed, labels=True):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 5, rows)
    x = np.eye(5)[y] * 3 + noise * rng.normal(size=(rows, 5))
    return gdscore.Outputs(logits=2 * x, features=x, labels=y if labels else None)


@contextmanager
def serve(app, seconds=20, **options):
    """The service behind a socket; yields its port."""
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", ws="none", **options))
    cut_late_connections(server, seconds)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.005)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


def fill_disk(monitor):
    """Let the file of an SQLite history grow no more."""
    with monitor.engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
    event.listen(monitor.engine, "checkout", lambda made, *_: made.execute(f"PRAGMA max_page_count={pages}"))


@pytest.fixture(scope="session")
def fitted():
    sets = [gdscore.ShiftedSet(make_outputs(600, 1 + 0.2 * k, k), f"noise {k % 3}") for k in range(9)]
    return gdscore.AccuracyEstimator().fit(make_outputs(1500, 1.0, 99), shifted_sets=sets)


def sqlite_url(tmp_path):
    return f"sqlite:///{tmp_path}/history.db"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    if request.param == "sqlite":
        yield sqlite_url(tmp_path)
        return
    server = os.environ.get("GDSCORE_TEST_POSTGRES")
    if not server:
        pytest.skip("GDSCORE_TEST_POSTGRES is not set: make postgres starts a server and names it")
    import psycopg

    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    base, _, options = server.partition("?")
    yield f"{base.rpartition('/')[0]}/{name}" + (f"?{options}" if options else "")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def monitor(url):
    made = Monitor(url)
    yield made
    made.close()


@pytest.fixture
def local(tmp_path):
    """History in SQLite, where the database does not matter."""
    made = Monitor(sqlite_url(tmp_path))
    yield made
    made.close()
