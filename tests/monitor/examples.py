"""The examples of the API's description: ``python -m tests.monitor.examples`` writes them as a service answers them.

One request of each route, in an order in which all of them work. `test_api.py` sends them again and compares the answers.
"""

import json
import re
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from starlette.testclient import TestClient

import gdscore
from gdscore.monitor import Monitor
from gdscore.monitor.app import create_app

PATH = Path(__file__).parents[2] / "src/gdscore/monitor/examples.json"
API = "/api/v1"
CHURN = f"{API}/models/churn"
ESTIMATE = {"accuracy": 0.64, "low": 0.6, "high": 0.68, "level": 0.9, "n_rows": 400, "reference_accuracy": 0.9}
REQUESTS = {
    "register_model": ("POST", f"{API}/models", {"name": "churn", "every": "1d", "rules": {"min_accuracy": 0.7}}),
    "put_estimator": ("PUT", f"{CHURN}/estimator", None),
    "change_rules": ("PATCH", f"{CHURN}/rules", {"missing_after": 2, "keep_rows": "90d"}),
    "get_rules": ("GET", f"{CHURN}/rules", None),
    "add_windows": (
        "POST",
        f"{CHURN}/windows?time=2026-01-30",
        {
            "probabilities": [[0.9, 0.1], [0.3, 0.7], [0.8, 0.2]],
            "ids": ["a1", "a2", "a3"],
            "by": {"country": ["fr", "de", "fr"]},
        },
    ),
    "add_estimate": ("POST", f"{CHURN}/estimates", {"time": "2026-01-31", **ESTIMATE}),
    "add_labels": ("POST", f"{CHURN}/labels", {"time": "2026-01-31", "rows": 100, "correct": 62}),
    "add_row_labels": ("POST", f"{CHURN}/row-labels", {"id": ["a1", "a2"], "label": [0, 1]}),
    "list_models": ("GET", f"{API}/models?limit=10", None),
    "list_windows": ("GET", f"{CHURN}/windows?segment=&limit=1", None),
    "get_series": ("GET", f"{CHURN}/series?points=100", None),
    "get_past_estimates": ("GET", f"{CHURN}/past-estimates", None),
    "list_alarms": ("GET", f"{API}/alarms?model=churn&limit=1", None),
    "acknowledge": ("POST", f"{API}/alarms/1/acknowledge", None),
    "learn_again": ("POST", f"{CHURN}/learn", {"since": "2026-02-01"}),
}


def binary_estimator():
    """Estimator of a model with two classes, of probabilities alone."""
    rng = np.random.default_rng(0)
    right = rng.beta(6, 1, 500)
    labels = rng.integers(0, 2, 500)
    share = np.where(rng.random(500) < right, right, 1 - right)
    one = np.where(labels == 1, share, 1 - share)
    return gdscore.AccuracyEstimator().fit(gdscore.Outputs(probabilities=np.stack([1 - one, one], 1), labels=labels))


@contextmanager
def service(folder):
    """The service without a socket."""
    monitor = Monitor(f"sqlite:///{folder}/history.db")
    with TestClient(create_app(monitor), client=("127.0.0.1", 50000), base_url="http://127.0.0.1") as client:
        yield client
    monitor.close()


def send(client, name, method, path, request):
    """The answer to an example."""
    if name == "put_estimator":
        return client.request(method, path, content=binary_estimator().to_bytes())
    return client.request(method, path, json=request)


def rounded(value):
    """Numbers with four decimals and times without microseconds, for people."""
    if isinstance(value, dict):
        return {key: rounded(found) for key, found in value.items()}
    if isinstance(value, list):
        return [rounded(found) for found in value]
    if isinstance(value, str):
        return re.sub(r"(T\d\d:\d\d:\d\d)\.\d{6}", r"\1", value)
    return round(value, 4) if isinstance(value, float) else value


def made():
    """Examples as a service answers them now."""
    found = {}
    with tempfile.TemporaryDirectory() as folder, service(folder) as client:
        for name, (method, path, request) in REQUESTS.items():
            answer = send(client, name, method, path, request)
            assert answer.is_success, (name, answer.text)
            response = answer.json() if answer.content else None
            found[name] = {"method": method, "path": path, **({} if request is None else {"request": request})}
            found[name]["response"] = response
    return found


if __name__ == "__main__":
    PATH.write_text(json.dumps(rounded(made()), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
