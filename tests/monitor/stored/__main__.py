"""``python -m tests.monitor.stored`` writes a small history of this version as SQL, which later versions have to read."""

import sqlite3
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from gdscore import Outputs
from gdscore.monitor import Monitor
from gdscore.monitor.alarms import Outbox
from gdscore.monitor.database import REVISION
from tests.monitor.test_api import binary_estimator

START = datetime(2026, 1, 1, tzinfo=UTC)


def fill(monitor):
    rules = {
        "false_alarms_per_year": None,
        "min_accuracy": 0.75,
        "labels": False,
        "min_recall": {"0": 0.1},
        "keep_rows": "900000d",
    }
    monitor.register("churn", binary_estimator(), rules=rules)
    rng = np.random.default_rng(0)
    for n in range(5):
        share = rng.beta(6, 1, 300)
        swap = rng.random(300) < 0.5
        p = np.stack([np.where(swap, share, 1 - share), np.where(swap, 1 - share, share)], 1)
        ids = np.array([f"{n}-{k}" for k in range(300)])
        if n == 4:
            monitor.set_rules("churn", {"min_accuracy": 0.99})
        by = {"country": np.where(np.arange(300) % 2, "fr", "de").tolist()} if n == 0 else None
        monitor.add("churn", Outputs(probabilities=p, ids=ids), START + timedelta(days=n), by)
    for n in range(3):
        monitor.add_labels("churn", START + timedelta(days=n), correct=270, rows=300)
    (alarm,) = monitor.alarms("churn").id
    monitor.acknowledge(int(alarm), "Ada")
    Outbox(monitor).register_targets({"0" * 64: "webhook example.org"})


with tempfile.TemporaryDirectory() as folder:
    history = Monitor(f"sqlite:///{folder}/history.db")
    fill(history)
    history.close()
    with sqlite3.connect(f"{folder}/history.db") as connection:
        dump = "\n".join(connection.iterdump())
    connection.close()
(Path(__file__).parent / f"history-{REVISION}.sql").write_text(dump + "\n", encoding="utf-8")
