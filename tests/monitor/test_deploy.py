"""The files in deploy/ fit the service: metrics they ask for exist, paths they name exist, the nightly job runs."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
import yaml
from sqlalchemy import make_url
from starlette.testclient import TestClient

import gdscore
from gdscore.monitor import Monitor, Rules, log_to_mlflow
from gdscore.monitor.alarms import Outbox
from gdscore.monitor.app import create_app, render_metrics
from gdscore.monitor.database import with_password
from gdscore.monitor.queries import _alarm_text
from gdscore.monitor.schema import Alarm
from tests.monitor.conftest import OPEN, START, day, estimate, sqlite_url

DEPLOY = Path(__file__).parents[2] / "deploy"


def test_dashboard_and_alerts_ask_only_for_metrics_that_exist(local):
    local.register("m", rules=Rules(None, min_accuracy=0.8))
    local.add_estimate("m", estimate(0.7), "2026-01-01")
    Outbox(local).register_targets({"x": "webhook example.org"})
    looked_at = datetime.now(UTC)
    known = set(re.findall(r"^(gdscore_\w+)", render_metrics(local, looked_at).decode(), re.MULTILINE))
    dashboard = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())
    asked = [t["expr"] for p in dashboard["panels"] for t in p["targets"] if "expr" in t]
    alerts = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())
    asked += [rule["expr"] for group in alerts["groups"] for rule in group["rules"]]
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
    settings = yaml.safe_load((DEPLOY / "prometheus.yaml").read_text())
    (scrape,) = settings["scrape_configs"]
    assert scrape["static_configs"][0]["targets"] == ["monitor:8600"]
    sources = yaml.safe_load((DEPLOY / "grafana" / "datasource.yaml").read_text())
    provider = yaml.safe_load((DEPLOY / "grafana" / "provider.yaml").read_text())
    assert sources["apiVersion"] == provider["apiVersion"] == 1
    source, history = sources["datasources"]
    assert (source["url"], history["url"]) == ("http://prometheus:9090", "database:5432")
    mounted = [v.split(":")[1] for v in compose["services"]["grafana"]["volumes"]]
    assert provider["providers"][0]["options"]["path"] in {str(Path(path).parent) for path in mounted}
    mounted = {Path(v.split(":")[1]) for v in compose["services"]["prometheus"]["volumes"]}
    named = [scrape["authorization"]["credentials_file"], *settings["rule_files"], "prometheus.yml"]
    assert {Path("/etc/prometheus") / name for name in named} <= mounted
    dashboard = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())
    asked = [t["datasource"] for p in dashboard["panels"] for t in [p, *p["targets"]]]
    assert {(d["type"], d["uid"]) for d in asked} == {(d["type"], d["uid"]) for d in (source, history)}


def test_the_dashboard_asks_postgres_for_windows_by_their_time(monitor):
    if monitor.engine.dialect.name == "sqlite":
        pytest.skip("Grafana reads PostgreSQL")
    monitor.register("m", rules=Rules(None, min_accuracy=0.8))
    for n in range(3):
        monitor.add_estimate("m", estimate(0.9 - 0.1 * n), day(n))
    monitor.add_labels("m", day(0), correct=90, rows=100)
    dashboard = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())
    asked = [v["query"] for v in dashboard["templating"]["list"]]
    asked += [t["rawSql"] for p in dashboard["panels"] for t in p["targets"] if "rawSql" in t]
    answers = []
    for sql in asked:
        sql = re.sub(r"\$__timeFilter\((.*?\))\)", r"\1 BETWEEN '2026-01-01' AND '2026-01-02'", sql)
        with monitor.engine.connect() as connection:
            answers.append(connection.exec_driver_sql(sql.replace("$model", "'m'").replace("$segment", "")).all())
    models, segments, windows, rows, alarms = answers
    assert (models, segments) == ([("m",)], [("",)])
    assert [(w.time, w.metric, w.estimate, w.labels) for w in windows] == [
        (day(0), "m", 0.9, 0.9),
        (day(1), "m", 0.8, None),
    ]
    assert [r.rows for r in rows] == [900, 900]
    assert [(a.began, a.rule) for a in alarms] == [(day(2), "accuracy")]


def test_prometheus_takes_its_settings_and_our_metrics(local):
    """With promtool of Debian's package prometheus, where it is installed."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("there is no promtool: apt-get install prometheus")
    subprocess.run([promtool, "check", "config", "--syntax-only", DEPLOY / "prometheus.yaml"], check=True)
    subprocess.run([promtool, "check", "rules", DEPLOY / "alerts.yaml"], check=True)
    local.register("m", rules=Rules(None, min_accuracy=0.8))
    local.add_estimate("m", estimate(0.7), "2026-01-01", segment='x"y\\z')
    subprocess.run([promtool, "check", "metrics"], input=render_metrics(local), check=True)


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
def test_mlflow_run_has_metrics_tag_and_report(tmp_path, monkeypatch):
    """A real run in a folder of files, the only store of the light package."""
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.chdir(tmp_path)
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    warning = gdscore.EstimateWarning("few_rows", "warning", "few rows")
    try:
        mlflow.set_experiment("nightly")
        with mlflow.start_run() as run:
            log_to_mlflow(estimate(0.9, rows=400), step=2, report=False)
            log_to_mlflow(estimate(0.8, rows=500, warnings=[warning]), step=3, name="3 May/../x")
        client = mlflow.MlflowClient()
        data = client.get_run(run.info.run_id).data
        (artifact,) = client.list_artifacts(run.info.run_id, "gdscore")
        report = Path(mlflow.artifacts.download_artifacts(run_id=run.info.run_id, artifact_path=artifact.path))
        page = report.read_text()
        steps = [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, "gdscore.accuracy")]
    finally:
        mlflow.set_tracking_uri(before)
    assert data.metrics == {
        "gdscore.accuracy": 0.8,
        "gdscore.low": pytest.approx(0.77),
        "gdscore.high": pytest.approx(0.83),
        "gdscore.rows": 500,
        "gdscore.reference_accuracy": 0.9,
    }
    assert data.tags["gdscore.warnings"] == "few_rows"
    assert sorted(steps) == [(2, 0.9), (3, 0.8)]
    assert artifact.path == "gdscore/3_May____x.html"
    assert "80.0%" in page


def test_compose_is_kept_small_and_safe():
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    for name, service in compose["services"].items():
        assert "healthcheck" in service or name == "monitor"  # the monitor's is in its Dockerfile
        assert "build" in service or re.search(r":v?\d+\.\d+", service["image"]), name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    monitor = compose["services"]["monitor"]
    assert monitor["mem_limit"]
    # A password may hold @ and /, which have a meaning in an address; all come from files.
    assert "PASSWORD" not in monitor["environment"]["GDSCORE_MONITOR"]
    for name in ("database", "monitor", "grafana"):
        own = compose["services"][name]
        (given,) = (value for key, value in own["environment"].items() if "PASSWORD" in key)
        secret = own["secrets"][0]
        assert given == f"/run/secrets/{secret}"
        assert compose["secrets"][secret]["file"].startswith("./secrets/")
        assert all(key.endswith("_FILE") for key in own["environment"] if "PASSWORD" in key)
    assert any(volume.startswith("grafana:") for volume in compose["services"]["grafana"]["volumes"])
    lines = (DEPLOY / "Dockerfile").read_text()
    for needed in ("WORKDIR", "HEALTHCHECK", "USER monitor"):
        assert needed in lines


def test_a_password_of_any_characters_comes_from_a_file(tmp_path, monkeypatch):
    secret = "a@b/c:d %41#?"
    (tmp_path / "password").write_text(secret + "\n")
    monkeypatch.setenv("GDSCORE_DATABASE_PASSWORD_FILE", str(tmp_path / "password"))
    url = with_password(make_url("postgresql://gdscore@database/gdscore"))
    assert (url.password, url.username, url.host) == (secret, "gdscore", "database")
    assert with_password(make_url("postgresql://me:own@database/x")).password == "own"
    monkeypatch.setenv("GDSCORE_DATABASE_PASSWORD_FILE", str(tmp_path / "none"))
    with pytest.raises(gdscore.GdscoreError, match="GDSCORE_DATABASE_PASSWORD_FILE"):
        with_password(make_url("postgresql://gdscore@database/gdscore"))


DEVELOPMENT = ("pandas", "torch", "ray", "mlflow", "httpx", "polars", "pytest", "hypothesis", "yaml")
LIGHT = f"""
import sys
class Absent:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in {DEVELOPMENT!r}:
            raise ModuleNotFoundError(name=name)
sys.meta_path.insert(0, Absent())
from gdscore.monitor import Monitor
from gdscore.monitor.app import create_app
from gdscore.cli import main
sys.argv = ["gdscore", "monitor", "demo", "--only-fill", "--file", sys.argv[1]]
create_app(Monitor("sqlite:///" + sys.argv[-1] + "2"))
main()
"""


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Folder that `gdscore monitor demo` filled, without any development package."""
    pytest.importorskip("sklearn")
    folder = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-c", LIGHT, str(folder / "history.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_demo_has_its_alarms(demo):
    """Slow and sudden shifts are drops, another class mix is none."""
    from gdscore.demo.monitored import fill_demo

    monitor = Monitor(sqlite_url(demo))
    alarms = monitor.alarms()
    drops = alarms[alarms.rule.str.endswith("sequential")]
    assert set(drops.model) == {"digits-slow", "digits-sudden"}
    sudden = drops[(drops.model == "digits-sudden") & (drops.segment == "")]
    assert sorted(sudden.rule) == ["labels:sequential", "sequential"]
    assert sudden.ended.notna().all()
    # Labels that are a week late tell the class mix of a week before, which intervals learn to allow for.
    assert set(alarms[alarms.model == "digits-class-mix"].rule) <= {"labels:coverage"}
    windows = monitor.windows("digits-sudden", segment="")
    labelled = windows[windows.truth.notna() & windows.last_known.notna()]
    errors = {name: (labelled[name] - labelled.truth).abs().mean() for name in ("accuracy", "label_free", "last_known")}
    assert errors["accuracy"] < errors["label_free"]
    with pytest.raises(gdscore.GdscoreError, match="another file"):
        fill_demo(monitor)
    monitor.close()


def test_fifty_labels_of_the_newest_window_of_the_demo(demo):
    """With what the demo wrote and the estimator that the page of an alarm links to."""
    monitor = Monitor(sqlite_url(demo))
    here = {"client": ("127.0.0.1", 50000), "base_url": "http://127.0.0.1"}
    with TestClient(create_app(monitor, OPEN), **here) as client:
        alarm = int(monitor.alarms("digits-slow").id.iloc[0])
        page = client.get(f"/alarms/{alarm}").text
        (link,) = re.findall(r'gdscore label choose <a href="([^"]+)">digits-slow.gdscore</a>', page)
        answer = client.get(link)
    assert answer.headers["content-disposition"] == 'attachment; filename="digits-slow.gdscore"'
    estimator = gdscore.AccuracyEstimator.load(answer.content)
    (target,) = gdscore.io.read_outputs(demo / "digits-slow.npz")
    truth = np.loadtxt(demo / "digits-slow-labels.csv", delimiter=",", skiprows=1, dtype=int)[:, 1]
    rows = gdscore.labeling.choose(estimator, target, budget=50)
    e = gdscore.labeling.estimate(estimator, target, rows, truth[rows.rows])
    accuracy = np.mean(np.asarray(target.predictions) == truth)
    assert abs(e.accuracy - accuracy) < 0.12  # the interval of these fifty misses it by a point
    monitor.close()


def test_a_share_of_intervals_is_not_told_of_an_alarm_that_has_ended():
    times = {"raised": START, "began": START, "opened_at": START, "ended": START + timedelta(days=2)}
    alarm = Alarm(rule="labels:coverage", level=0.9, value=0.83, latest=0.73, end_reason="recovered", **times)
    assert _alarm_text(alarm).startswith("90.0% of intervals should hold, 83.0% when raised; lasted 2 days")
