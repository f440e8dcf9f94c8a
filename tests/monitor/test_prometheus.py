"""A real Prometheus with the files in deploy/ scrapes a real `gdscore monitor serve`; make prometheus installs it.

The processes run in one fixture, which keeps what the servers answered; each test looks at one part of it.
"""

import json
import math
import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from string import Template
from types import SimpleNamespace

import httpx
import pytest
import yaml

from gdscore.monitor import Monitor, Rules
from tests.monitor.conftest import estimate, sqlite_url

pytestmark = pytest.mark.skipif(not shutil.which("prometheus"), reason="there is no Prometheus: make prometheus")
ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
ODD = 'country="é\\n"'
FROM_WINDOW = ("accuracy", "low", "high", "rows", "reference_accuracy")


def fill(url):
    """One model is fine, the last window of one is far below its floor, and windows of one have stopped coming."""
    monitor = Monitor(url)
    for name in ("fine", "low"):
        monitor.register(name)
        for day in range(1, 6):
            monitor.add_estimate(name, estimate(0.9, rows=900 + day), f"2026-01-0{day}")
    monitor.add_estimate("fine", estimate(0.89, rows=12_345_678), "2026-01-06")
    monitor.add_estimate("fine", estimate(1 / 1.1, rows=321), "2026-01-06", segment=ODD)
    monitor.add_estimate("low", estimate(0.6), "2026-01-06")
    monitor.register("silent", rules=Rules(missing_after=2))
    monitor.add_estimate("silent", estimate(0.9), "2026-01-06", segment="country=fr")
    monitor.close()


def free_ports():
    with socket.socket() as first, socket.socket() as second:
        for s in (first, second):
            s.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]


@contextmanager
def process(arguments, log, environment=None):
    """A process that is ended with the block."""
    with log.open("wb") as output, subprocess.Popen(arguments, stdout=output, stderr=output, env=environment) as made:
        try:
            yield made
        finally:
            made.terminate()
            try:
                made.wait(30)
            except subprocess.TimeoutExpired:
                made.kill()


def prometheus_arguments(folder, monitor_port, port):
    """The files and options in deploy/, with another address of the monitor, other folders, and short intervals."""
    settings = yaml.safe_load((DEPLOY / "prometheus.yaml").read_text())
    settings["global"] = dict.fromkeys(settings["global"], "1s")
    (scrape,) = settings["scrape_configs"]
    scrape["static_configs"][0]["targets"] = [f"127.0.0.1:{monitor_port}"]
    stranger = {**scrape, "job_name": "stranger", "authorization": {"type": "Bearer", "credentials": "gds_wrong"}}
    settings["scrape_configs"].append(stranger)
    (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
    shutil.copy(DEPLOY / "alerts.yaml", folder)
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    options = dict(option.split("=") for option in compose["services"]["prometheus"]["command"])
    options |= {"--config.file": folder / "prometheus.yml", "--storage.tsdb.path": folder / "data"}
    options |= {"--web.listen-address": f"127.0.0.1:{port}"}
    return ["prometheus", *(f"{name}={value}" for name, value in options.items())]


def dashboard_queries():
    """Queries of Grafana's panels, as it sends them where all models and segments are chosen."""
    dashboard = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())
    every = {v["name"]: v["allValue"] for v in dashboard["templating"]["list"]}
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield Template(target["expr"]).substitute(every)


def wait_for(ask, good):
    """The first good answer, or the last one after a minute, which the tests then show."""
    answer = None
    for _ in range(600):
        try:
            answer = ask()
            if good(answer):
                break
        except httpx.HTTPError:
            pass  # it does not listen yet, or is not ready
        time.sleep(0.1)
    return answer


def states(alerts):
    return {
        (a["labels"]["alertname"], a["labels"].get("model"), a["labels"].get("segment", "")): a["state"] for a in alerts
    }


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """Answers of Prometheus and of the monitor's API, while the monitor serves and after it has ended."""
    folder = tmp_path_factory.mktemp("prometheus")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "GDSCORE_MONITOR": sqlite_url(folder)}
    command = [sys.executable, "-m", "gdscore.cli", "monitor"]
    fill(environment["GDSCORE_MONITOR"])
    with (folder / "token").open("wb") as file:
        subprocess.run([*command, "token", "prometheus"], stdout=file, env=environment, check=True)
    bearer = {"authorization": f"Bearer {(folder / 'token').read_text().strip()}"}
    monitor_port, port = free_ports()
    found = SimpleNamespace()
    with ExitStack() as running:
        serve = [*command, "serve", "--port", str(monitor_port)]
        server = running.enter_context(process(serve, folder / "monitor.log", environment))
        api = running.enter_context(
            httpx.Client(base_url=f"http://127.0.0.1:{monitor_port}", headers=bearer, trust_env=False)
        )
        wait_for(lambda: api.get("/healthz"), lambda answer: answer.is_success)
        running.enter_context(process(prometheus_arguments(folder, monitor_port, port), folder / "prometheus.log"))
        prometheus = running.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", trust_env=False))

        def ask(path, **query):
            return prometheus.get(path, params=query).raise_for_status().json()["data"]

        def targets():
            return {t["labels"]["job"]: t for t in ask("/targets")["activeTargets"]}

        def alerts():
            return states(ask("/alerts")["alerts"])

        found.targets = wait_for(targets, lambda got: {t["health"] for t in got.values()} == {"up", "down"})
        found.alerts = wait_for(alerts, lambda got: len(got) >= 2)
        found.samples = ask("/query", query='{__name__=~"gdscore_.+"}')["result"]
        found.window_ends = ask(
            "/query", query="timestamp(gdscore_last_window_age_seconds) - gdscore_last_window_age_seconds"
        )["result"]
        found.panels = {query: ask("/query", query=query)["result"] for query in dashboard_queries()}
        found.groups = ask("/rules")["groups"]
        found.windows = {
            (w["model"], w["segment"]): w  # by time, so that the newest stays
            for model in ("fine", "low", "silent")
            for w in api.get(f"/api/v1/models/{model}/windows").json()["windows"]
        }
        found.alarms = api.get("/api/v1/alarms", params={"open_only": True}).json()
        found.unscraped = httpx.get(f"http://127.0.0.1:{monitor_port}/metrics", trust_env=False)
        server.terminate()
        found.exit_code = server.wait(30)
        found.alerts_without_monitor = wait_for(alerts, lambda got: ("GdscoreMonitorDown", None, "") in got)
    found.logs = {name: (folder / f"{name}.log").read_text() for name in ("monitor", "prometheus")}
    return found


def test_the_target_is_up_with_the_token_only(seen):
    assert {job: t["health"] for job, t in seen.targets.items()} == {"gdscore": "up", "stranger": "down"}, seen.logs
    assert seen.targets["gdscore"]["lastError"] == ""
    assert "401" in seen.targets["stranger"]["lastError"]
    assert seen.unscraped.status_code == 401


def test_metrics_are_those_of_the_api(seen):
    found = {}
    for sample in seen.samples:
        labels = sample["metric"]
        assert set(labels) <= {"__name__", "instance", "job", "model", "segment"}
        assert labels["job"] == "gdscore"
        name = labels["__name__"].removeprefix("gdscore_")
        found.setdefault(name, {})[labels["model"], labels.get("segment", "")] = float(sample["value"][1])
    assert set(seen.windows) == {("fine", ""), ("fine", ODD), ("low", ""), ("silent", "country=fr")}
    assert set(found) == {*FROM_WINDOW, "last_window_age_seconds", "open_alarms"}
    for name in FROM_WINDOW:
        assert found[name] == {series: window[name] for series, window in seen.windows.items()}, name
    counts = dict.fromkeys([*seen.windows, ("silent", "")], 0)
    for alarm in seen.alarms:
        counts[alarm["model"], alarm["segment"]] += 1
    assert found["open_alarms"] == counts
    assert set(found["last_window_age_seconds"]) == set(seen.windows)


def test_the_age_of_a_window_counts_from_its_end(seen):
    ends = {(s["metric"]["model"], s["metric"].get("segment", "")): float(s["value"][1]) for s in seen.window_ends}
    for series, window in seen.windows.items():
        # A scrape has the time at which it began.
        assert math.isclose(ends[series], datetime.fromisoformat(window["end"]).timestamp(), abs_tol=600), series


def test_the_dashboard_shows_every_series(seen):
    assert len(seen.panels) == 7
    for query, result in seen.panels.items():
        if query.startswith("sum("):
            assert [float(sample["value"][1]) for sample in result] == [len(seen.alarms)]
        else:
            shown = {(s["metric"]["model"], s["metric"].get("segment", "")) for s in result}
            assert shown == set(seen.windows), query


def test_alerts_are_the_alarms_of_the_monitor(seen):
    (group,) = seen.groups
    assert {rule["name"]: rule["health"] for rule in group["rules"]} == {
        "GdscoreAlarm": "ok",
        "GdscoreMonitorDown": "ok",
    }
    assert {(a["model"], a["segment"], a["rule"]) for a in seen.alarms} == {
        ("low", "", "sequential"),
        ("silent", "", "missing"),
    }
    assert seen.alerts == {("GdscoreAlarm", "low", ""): "firing", ("GdscoreAlarm", "silent", ""): "firing"}


def test_alerts_stay_when_the_monitor_ends(seen):
    assert seen.exit_code in (0, 128 + 15, -15)
    assert seen.alerts_without_monitor == seen.alerts | {("GdscoreMonitorDown", None, ""): "pending"}


def test_logs_have_no_problem_and_no_token(seen):
    for name, log in seen.logs.items():
        assert "level=error" not in log, name
        assert "Traceback" not in log, name
        assert "gds_" not in log, name


def test_alerts_over_time(tmp_path):
    """In the simulated time of promtool: when alerts begin, what they tell, and that a short outage ends none."""

    def alert(model, summary, **labels):
        labels = {"severity": "warning", "model": model, "job": "gdscore", "instance": "m:8600", **labels}
        return {"exp_labels": labels, "exp_annotations": {"summary": summary}}

    low = alert("low", "low has open alarms: 2")
    segment = alert("other", "other (country=fr) has open alarms: 1", segment="country=fr")
    down = {
        "exp_labels": {"severity": "critical", "job": "gdscore", "instance": "m:8600"},
        "exp_annotations": {"summary": "Prometheus gets no metrics from the monitor at m:8600"},
    }
    labels = 'job="gdscore",instance="m:8600"'
    values = {
        f"up{{{labels}}}": "1x9 0x9 1x20",
        f'gdscore_open_alarms{{{labels},model="low"}}': "0 0 2x7 stale _x9 2x4 0x16",
        f'gdscore_open_alarms{{{labels},model="other",segment="country=fr"}}': "0x4 1x4 stale _x9 0x20",
        f'gdscore_open_alarms{{{labels},model="fine"}}': "0x40",
    }
    expected = {"1m": [], "2m": [low], "5m": [low, segment], "12m": [low, segment], "24m": [low], "30m": []}
    outage = {"9m": [], "14m": [], "15m": [down], "19m": [down], "20m": []}
    checks = [("GdscoreAlarm", expected), ("GdscoreMonitorDown", outage)]
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": value} for name, value in values.items()],
        "alert_rule_test": [
            {"eval_time": at, "alertname": name, "exp_alerts": alerts}
            for name, times in checks
            for at, alerts in times.items()
        ],
    }
    (tmp_path / "test.yaml").write_text(
        yaml.safe_dump({"rule_files": [str(DEPLOY / "alerts.yaml")], "evaluation_interval": "1m", "tests": [test]})
    )
    done = subprocess.run(["promtool", "test", "rules", tmp_path / "test.yaml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
