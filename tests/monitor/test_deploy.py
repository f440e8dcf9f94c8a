"""The files in deploy/ fit the service: metrics they ask for exist, paths they name exist, the nightly job runs."""

import importlib.util
import json
import re
from datetime import date
from pathlib import Path

import numpy as np
import pytest
import yaml

import gdscore
from gdscore.monitor import Monitor, Rules, log_to_mlflow
from gdscore.monitor.metrics import render_metrics
from tests.monitor.conftest import estimate, sqlite_url

DEPLOY = Path(__file__).parents[2] / "deploy"


def test_the_dashboard_asks_only_for_metrics_that_exist(local):
    local.register("m", rules=Rules(None, min_accuracy=0.8))
    local.add_estimate("m", estimate(0.7), "2026-01-01")
    known = set(re.findall(r"^(gdscore_\w+)\{", render_metrics(local).decode(), re.MULTILINE))
    dashboard = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())
    asked = [t["expr"] for p in dashboard["panels"] for t in p["targets"]]
    asked += [v["definition"] for v in dashboard["templating"]["list"]]
    names = {name for expression in asked for name in re.findall(r"gdscore_\w+", expression)}
    assert names <= known
    assert len(names) >= 6


def test_compose_names_files_that_exist():
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    assert set(compose["services"]) == {"database", "monitor", "prometheus", "grafana"}
    made_later = {"./prometheus-token"}
    for service in compose["services"].values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in compose["volumes"] or source in made_later or (DEPLOY / source).is_file(), source
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:")
    scrape = yaml.safe_load((DEPLOY / "prometheus.yaml").read_text())["scrape_configs"][0]
    assert scrape["static_configs"][0]["targets"] == ["monitor:8600"]
    for name in ("datasource.yaml", "provider.yaml"):
        assert yaml.safe_load((DEPLOY / "grafana" / name).read_text())["apiVersion"] == 1


def test_the_nightly_job(tmp_path, monkeypatch):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    p = rng.dirichlet([1, 1], 600)
    labels = (rng.random(600) < p[:, 1]).astype(int)
    fitted = gdscore.AccuracyEstimator().fit(gdscore.Outputs(probabilities=p, labels=labels))
    monkeypatch.setenv("GDSCORE_MONITOR", sqlite_url(tmp_path))
    monitor = Monitor(sqlite_url(tmp_path))
    monitor.register("churn", fitted)
    table = pa.table({"prob_no": p[:300, 0], "prob_yes": p[:300, 1], "country": ["fr", "de", "it"] * 100})
    pq.write_table(table, tmp_path / "2026-01-31.parquet")
    spec = importlib.util.spec_from_file_location("nightly", DEPLOY / "nightly.py")
    nightly = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(nightly)
    for _ in range(2):
        nightly.run(date(2026, 1, 31), str(tmp_path))
    assert monitor.windows("churn").segment.tolist() == ["", "country=de", "country=fr", "country=it"]
    monitor.close()


@pytest.mark.filterwarnings("ignore")
def test_mlflow_gets_metrics_and_a_tag(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    logged = {}
    monkeypatch.setattr(mlflow, "log_metrics", lambda metrics, step=None: logged.update(metrics, step=step))
    monkeypatch.setattr(mlflow, "set_tag", lambda key, value: logged.update({key: value}))
    log_to_mlflow(estimate(0.8, rows=500), step=3, report=False)
    assert logged == {
        "gdscore.accuracy": 0.8,
        "gdscore.low": 0.77,
        "gdscore.high": pytest.approx(0.83),
        "gdscore.rows": 500.0,
        "gdscore.reference_accuracy": 0.9,
        "gdscore.warnings": "none",
        "step": 3,
    }


def test_the_demo_has_its_alarms(tmp_path):
    """Slow and sudden shifts raise alarms, another class mix does not."""
    pytest.importorskip("sklearn")
    from gdscore.monitor.demo import fill_demo

    monitor = Monitor(sqlite_url(tmp_path))
    fill_demo(monitor)
    alarms = monitor.alarms()
    assert set(alarms.model) == {"digits-slow", "digits-sudden"}
    sudden = alarms[(alarms.model == "digits-sudden") & (alarms.segment == "")]
    assert len(sudden) == 1
    assert sudden.ended.notna().all()
    with pytest.raises(gdscore.GdscoreError, match="another file"):
        fill_demo(monitor)
    monitor.close()
