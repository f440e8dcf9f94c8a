import contextlib
import html
import io
import json
import logging
import os
import re
import select
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from starlette.testclient import TestClient

import gdscore
from gdscore import AccuracyEstimator, GdscoreError, Outputs
from gdscore.io import write_outputs
from gdscore.monitor import Monitor, Rules, api
from gdscore.monitor.alarms import Outbox
from gdscore.monitor.app import create_app, render_metrics
from gdscore.monitor.auth import Visitor, create_token, find_token, revoke_token
from gdscore.monitor.settings import Settings
from tests.monitor.conftest import OPEN, estimate, fill_disk, make_outputs, serve

HERE = {"client": ("127.0.0.1", 50000), "base_url": "http://127.0.0.1"}
AWAY = {"client": ("203.0.113.9", 50000), "base_url": "http://monitor.example.org"}
NEW = {"time": "2026-01-01", "accuracy": 0.9, "low": 0.85, "high": 0.95, "n_rows": 500, "reference_accuracy": 0.9}
PARQUET = {"content-type": "application/vnd.apache.parquet"}


@pytest.fixture
def client(monitor):
    with TestClient(create_app(monitor, OPEN), **HERE) as made:
        yield made


@pytest.fixture
def remote(local):
    with TestClient(create_app(local, OPEN), **AWAY) as made:
        yield made


def bearer(token):
    return {"authorization": f"Bearer {token}"}


def parquet(outputs, tmp_path):
    path = tmp_path / "body.parquet"
    write_outputs(path, outputs)
    return path.read_bytes()


# -- the API ------------------------------------------------------------------------------------------------


def test_from_registration_to_series(client, fitted, tmp_path):
    assert client.post("/api/v1/models", json={"name": "m", "rules": {"max_drop": 0.05}}).status_code == 201
    fitted.save(tmp_path / "e.gdscore")
    answer = client.put("/api/v1/models/m/estimator", content=(tmp_path / "e.gdscore").read_bytes())
    assert answer.status_code == 204
    outputs = make_outputs(300, 1.2, 5, labels=False)
    address = "/api/v1/models/m/windows?time=2026-01-01"
    first = client.post(address, content=parquet(outputs, tmp_path), headers=PARQUET)
    assert first.status_code == 201, first.text
    assert first.json()[0]["accuracy"] == pytest.approx(fitted.estimate(outputs).accuracy, abs=1e-6)
    again = client.post(address, content=parquet(outputs, tmp_path), headers=PARQUET)
    assert [w["new"] for w in again.json()] == [False]
    assert client.post("/api/v1/models/m/estimates", json=NEW).status_code == 409
    for day in range(2, 8):
        assert client.post("/api/v1/models/m/estimates", json=NEW | {"time": f"2026-01-0{day}"}).status_code == 201
    labels = {"time": "2026-01-02", "rows": 100, "correct": 91}
    assert client.post("/api/v1/models/m/labels", json=labels).status_code == 204
    page = client.get("/api/v1/models/m/windows?limit=3").json()
    rest = client.get(f"/api/v1/models/m/windows?limit=100&after={page['next']}").json()
    assert [w["start"][:10] for w in page["windows"] + rest["windows"]] == [f"2026-01-0{d}" for d in range(1, 8)]
    assert rest["next"] is None
    assert page["windows"][1]["truth"] == 0.91
    series = client.get("/api/v1/models/m/series?points=3").json()
    assert len(series["points"]) <= 3
    assert sum(p["windows"] for p in series["points"]) == 7
    assert client.get("/api/v1/models").json()[0]["windows"] == 7
    assert client.get("/api/v1/models/m/past-estimates").json()["windows"] == 1


def test_an_estimate_as_it_writes_itself_can_be_posted(client, fitted):
    client.post("/api/v1/models", json={"name": "m"})
    e = fitted.estimate(make_outputs(150, 1.2, 5, labels=False))
    answer = client.post("/api/v1/models/m/estimates", json={"time": "2026-01-01"} | e.to_dict())
    assert answer.status_code == 201, answer.text
    (window,) = client.get("/api/v1/models/m/windows").json()["windows"]
    assert (window["accuracy"], window["low"], window["high"]) == (e.accuracy, e.low, e.high)
    assert [w["code"] for w in window["warnings"]] == [w.code for w in e.warnings]
    assert e.warnings


def test_outputs_as_json_with_times_and_segments(client, fitted):
    client.app.state.monitor.register("m", fitted)
    outputs = make_outputs(40, 1.2, 5, labels=False)
    body = {
        "logits": np.asarray(outputs.logits).tolist(),
        "features": np.asarray(outputs.features).tolist(),
        "time": ["2026-01-01T05:00"] * 30 + ["2026-01-02T05:00"] * 10,
        "by": {"country": ["fr", "de"] * 20},
    }
    answer = client.post("/api/v1/models/m/windows", json=body)
    assert answer.status_code == 201, answer.text
    assert [(w["start"][:10], w["segment"], w["rows"]) for w in answer.json()] == [
        ("2026-01-01", "", 30),
        ("2026-01-01", "country=de", 15),
        ("2026-01-01", "country=fr", 15),
        ("2026-01-02", "", 10),
        ("2026-01-02", "country=de", 5),
        ("2026-01-02", "country=fr", 5),
    ]


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"PAR1nonsense", "application/vnd.apache.parquet", 422),
        (b"{", "application/json", 422),
        (b"[" * 100_000, "application/json", 422),
        (b'{"logits": [[1, 2], [3]]}', "application/json", 422),
        (b'{"logits": "x"}', "application/json", 422),
        (b'{"nonsense": 1}', "application/json", 422),
        (b"x", "application/x-pickle", 415),
        (b"", "application/vnd.apache.arrow.file", 422),
    ],
)
def test_bodies_that_are_refused(local, fitted, body, kind, status):
    local.register("m", fitted)
    with TestClient(create_app(local, OPEN), **HERE) as client:
        answer = client.post("/api/v1/models/m/windows?time=2026-01-01", content=body, headers={"content-type": kind})
    assert answer.status_code == status
    assert "/tmp" not in answer.text
    assert len(local.windows()) == 0


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/api/v1/models/none/estimates", NEW, 404),
        ("/api/v1/models/m/estimates", NEW | {"time": "soon"}, 422),
        ("/api/v1/models/m/estimates", NEW | {"low": 0.95}, 422),
        ("/api/v1/models/m/estimates", NEW | {"surprise": 1}, 422),
        ("/api/v1/models", {"name": "../x"}, 422),
        ("/api/v1/models", {"name": "x", "rules": {"nonsense": 1}}, 422),
        ("/api/v1/models/m/labels", {"time": "2026-01-01", "rows": 10, "correct": 3}, 404),
        ("/api/v1/alarms/99999999999999999999/acknowledge", {}, 422),
    ],
)
def test_errors_have_a_status_and_a_sentence(local, path, body, status):
    local.register("m")
    with TestClient(create_app(local, OPEN), **HERE) as client:
        answer = client.post(path, json=body)
    assert answer.status_code == status, answer.text


POOLS = []  # they must outlive all buffers that they gave


def same_row(rows):
    pa = pytest.importorskip("pyarrow")
    row = pa.array([[0.0] * 5], pa.list_(pa.float32(), 5))
    return pa.table({"logits": row, "features": row}).take(pa.array(np.zeros(rows, dtype=np.int64)))


def many_equal_rows(write):
    write(same_row(50_000))


def a_long_segment_in_every_row(write):
    """100 kB in the file, 20 GB as text."""
    pa = pytest.importorskip("pyarrow")
    names = pa.DictionaryArray.from_arrays(np.zeros(9_000, np.int32), ["x" * 2_000_000])
    write(same_row(9_000).append_column("country", names))


def a_long_row(write):
    pa = pytest.importorskip("pyarrow")
    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(4 * 1_000_000, np.float32)), 1_000_000)
    write(pa.table({"logits": lists}))


def nested(write, depth=20):
    pa = pytest.importorskip("pyarrow")
    kind, value = pa.float32(), 0.0
    for _ in range(depth):
        kind, value = pa.list_(kind), [value]
    write(pa.table({"logits": pa.array([value] * 10, kind)}))


def deeply_nested(write):
    nested(write, 300)


def many_row_groups(write):
    write(same_row(2_100), row_group_size=1)


def many_empty_row_groups(write):
    write(*[same_row(0)] * 2_100)


@pytest.mark.parametrize(
    ("bomb", "reason"),
    [
        (many_equal_rows, "at most 10,000 rows"),
        (a_long_segment_in_every_row, "at most 1,024 characters"),
        (a_long_row, "rows of at most 1,048,576 bytes"),
        (nested, "`logits` in 'body.parquet' to be a list of floating-point numbers"),
        (deeply_nested, "'body.parquet' to be a Parquet file"),
        (many_row_groups, "at most 2,000 row groups"),
        (many_empty_row_groups, "at most 2,000 row groups"),
    ],
)
def test_a_parquet_bomb_is_refused_in_little_memory(local, fitted, bomb, reason):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    file = io.BytesIO()

    def write(*tables, row_group_size=None):
        with pq.ParquetWriter(file, tables[0].schema, compression="zstd") as writer:
            for table in tables:
                writer.write_table(table, row_group_size)

    bomb(write)
    assert len(file.getvalue()) < 3_000_000
    local.register("m", fitted)
    pool, before = pa.proxy_memory_pool(pa.default_memory_pool()), pa.default_memory_pool()
    POOLS.append(pool)
    pa.set_memory_pool(pool)
    try:
        with TestClient(create_app(local, Settings(auth=False, max_rows=10_000)), **HERE) as client:
            address = "/api/v1/models/m/windows?time=2026-01-01&by=country"
            address = address if bomb is a_long_segment_in_every_row else address.removesuffix("&by=country")
            answer = client.post(address, content=file.getvalue(), headers=PARQUET)
    finally:
        pa.set_memory_pool(before)
    assert answer.status_code == 422, answer.text
    assert reason in answer.json()["error"]
    assert pool.max_memory() < 100 << 20
    assert len(local.windows()) == 0


def test_posts_of_one_window_are_handled_one_by_one_beside_those_of_many(local, fitted, tmp_path, monkeypatch):
    """Threads that take turns in Python need twice the processor time for each post (benchmarks/monitor/load.py)."""
    local.register("m", fitted)
    body, add = parquet(make_outputs(20, 1.2, 5, labels=False), tmp_path), Monitor.add_quietly
    at_work, together, small_are_done = [], [], threading.Event()

    def watched(self, name, batches, time, **options):
        if time is None:
            assert small_are_done.wait(60)
        at_work.append(time)
        together.append(len(at_work))
        try:
            return add(self, name, batches, time, **options)
        finally:
            at_work.remove(time)

    monkeypatch.setattr(Monitor, "add_quietly", watched)
    with TestClient(create_app(local, OPEN), **HERE) as client, ThreadPoolExecutor(9) as threads:

        def post(query):
            return client.post(f"/api/v1/models/m/windows?{query}", content=body, headers=PARQUET).status_code

        many = threads.submit(post, "time_column=t")
        small = list(threads.map(post, [f"time=2026-01-{day:02}" for day in range(1, 9)]))
        small_are_done.set()
        assert many.result() == 422  # there is no such column
    assert small == [201] * 8
    assert max(together) == 1
    assert len(local.windows("m")) == 8


def test_a_forged_footer_is_refused_before_it_is_read(local, fitted):
    local.register("m", fitted)
    body = b"PAR1" + bytes(100) + (200 << 20).to_bytes(4, "little") + b"PAR1"
    with TestClient(create_app(local, OPEN), **HERE) as client:
        answer = client.post("/api/v1/models/m/windows?time=2026-01-01", content=body, headers=PARQUET)
    assert answer.status_code == 422
    assert "footer of at most" in answer.json()["error"]


def test_metrics_and_health(client):
    client.app.state.monitor.register("m", rules=Rules(None, min_accuracy=0.8))
    client.app.state.monitor.add_estimate("m", estimate(0.7, rows=321), "2026-01-01", segment='x"y\\z')
    from prometheus_client.parser import text_string_to_metric_families

    found = {}
    for family in text_string_to_metric_families(client.get("/metrics").text):
        for sample in family.samples:
            found[sample.name, sample.labels.get("segment")] = sample.value
    assert found["gdscore_accuracy", 'x"y\\z'] == 0.7
    assert found["gdscore_rows", 'x"y\\z'] == 321
    assert found["gdscore_open_alarms", 'x"y\\z'] == 1
    assert found["gdscore_last_window_age_seconds", 'x"y\\z'] > 0
    assert client.get("/healthz").json() == {"status": "ok"}


def test_targets_of_one_host_are_one_metric(local):
    """Prometheus refuses two samples of one name; the names of webhooks are their hosts, as the rest is a secret."""
    Outbox(local).register_targets({"a": "webhook example.org", "b": "webhook example.org"})
    local.register("m", rules=Rules(None, min_accuracy=0.8, notify_within=None))

    def lines():
        return [line for line in render_metrics(local).decode().splitlines() if "notice" in line and line[0] != "#"]

    assert 'gdscore_notices_failed{target="webhook example.org"} 0.0' in lines()  # none was ever sent
    local.add_estimate("m", estimate(0.5), "2026-01-01")
    assert lines() == [
        'gdscore_notices_waiting{target="webhook example.org"} 2.0',
        'gdscore_notices_failed{target="webhook example.org"} 0.0',
        'gdscore_notice_failures{target="webhook example.org"} 0.0',
    ]


def test_metrics_count_alarms_of_models_without_windows_of_all_rows(monitor):
    """The alarm of missing windows is one of all rows, also where windows have segments only or never came."""
    from prometheus_client.parser import text_string_to_metric_families

    for name in ("segments", "never"):
        monitor.register(name, rules=Rules(None, missing_after=2))
    monitor.add_estimate("segments", estimate(), "2026-01-01", segment="country=fr")

    def samples(name):
        families = text_string_to_metric_families(render_metrics(monitor).decode())
        return {
            (s.labels["model"], s.labels["segment"]): s.value for f in families if f.name == name for s in f.samples
        }

    fine = {("segments", "country=fr"): 0, ("segments", ""): 0, ("never", ""): 0}
    assert samples("gdscore_open_alarms") == fine
    monitor.check("2100-01-01")
    assert samples("gdscore_open_alarms") == fine | {("segments", ""): 1, ("never", ""): 1}
    assert samples("gdscore_accuracy") == {("segments", "country=fr"): 0.9}


def test_the_schema_describes_every_route(client):
    paths = client.get("/openapi.json").json()["paths"]
    assert "/api/v1/models/{name}/windows" in paths
    assert all(path.startswith("/api/v1/") for path in paths)


def test_a_score_or_text_that_a_database_cannot_hold_is_refused(client):
    """Stored, it would break every later page that shows it."""
    client.app.state.monitor.register("m")
    text = json.dumps(NEW)[:-1]
    for more in (
        '"scores": {"x": NaN}',
        '"scores": {"x": 1e999}',
        '"scores": {"\\ud800": 1}',
        '"warnings": [{"code": "x", "severity": "info", "message": "\\u0000"}]',
    ):
        answer = client.post(
            "/api/v1/models/m/estimates", content=f"{text}, {more}}}", headers={"content-type": "application/json"}
        )
        assert answer.status_code == 422, more
        assert set(answer.json()) == {"error", "example"}
    assert client.get("/api/v1/models/m/windows").json()["windows"] == []


@pytest.mark.parametrize(
    "rules", [{"warnings": 3}, {"warnings": None}, {"warnings": ["x" * 33]}, {"missing_after": float("inf")}]
)
def test_rules_that_cannot_be_kept_are_refused(client, rules):
    body = json.dumps({"name": "m", "rules": rules})
    answer = client.post("/api/v1/models", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422, answer.text


@pytest.mark.parametrize("time", ["9999-12-31", "0001-01-01T00:00+10:00", "2126-01-01"])
def test_times_outside_the_calendar_are_refused(client, time):
    client.app.state.monitor.register("m")
    assert client.post("/api/v1/models/m/estimates", json=NEW | {"time": time}).status_code == 422


@pytest.mark.parametrize("what", ["windows", "series", "past-estimates"])
def test_reading_an_unknown_model_is_404(client, what):
    assert client.get(f"/api/v1/models/none/{what}").status_code == 404
    assert client.get("/api/v1/alarms?model=none").status_code == 404


@pytest.mark.parametrize(
    ("time", "query", "reason"),
    [
        ([1767225600] * 20, "", "`time"),  # seconds or milliseconds since 1970?
        ("2026-01-01", "", "`time"),
        (["2026-01-01"] * 20, "?by=country", "no names of columns"),
        (["2026-01-01"] * 20, "?tresh=0.1", "Unknown field `tresh` (query): did you mean 'threshold'"),
    ],
)
def test_json_that_would_be_misread_is_refused(local, fitted, time, query, reason):
    local.register("m", fitted)
    outputs = make_outputs(20, 1.2, 5, labels=False)
    body = {"logits": np.asarray(outputs.logits).tolist(), "time": time}
    with TestClient(create_app(local, OPEN), **HERE) as client:
        answer = client.post(f"/api/v1/models/m/windows{query}", json=body)
    assert answer.status_code == 422
    assert reason in answer.json()["error"]


@pytest.mark.filterwarnings("error")
def test_times_of_json_may_have_a_zone(local, fitted):
    local.register("m", fitted)
    outputs = make_outputs(20, 1.2, 5, labels=False)
    body = {
        "logits": np.asarray(outputs.logits).tolist(),
        "features": np.asarray(outputs.features).tolist(),
        "time": ["2026-03-01T23:30:00-05:00"] * 10 + ["2026-03-01T23:30:00Z"] * 10,
    }
    with TestClient(create_app(local, OPEN), **HERE) as client:
        answer = client.post("/api/v1/models/m/windows", json=body)
    assert [w["start"][:10] for w in answer.json()] == ["2026-03-01", "2026-03-02"]


def test_a_broken_estimator_is_refused_without_our_paths(local):
    local.register("m", version="b")
    with TestClient(create_app(local, OPEN), **HERE) as client:
        answer = client.put("/api/v1/models/m/estimator", content=b"junk")
    assert answer.status_code == 422
    assert tempfile.gettempdir() not in answer.text


def test_people_get_pages_and_programs_get_json(client):
    page = client.get("/models/none", headers={"accept": "text/html"})
    assert (page.status_code, page.headers["content-type"].partition(";")[0]) == (404, "text/html")
    assert client.get("/models/none").json() == {
        "error": "Unknown model 'none': no model is registered: register it first"
    }
    assert set(client.post("/api/v1/models", content=b"{").json()) == {"error", "example"}


def test_a_database_that_fails_is_503_and_tells_the_log_why(local, caplog):
    local.register("m")
    with TestClient(create_app(local, OPEN), **HERE) as client:
        fill_disk(local)
        answers = [
            client.post("/api/v1/models/m/estimates", json=NEW | {"time": f"2026-01-01T{hour:02}:00"})
            for hour in range(24)
        ]
    assert answers[-1].status_code == 503, answers[-1].text
    assert "full" in caplog.text
    assert "full" not in answers[-1].text


def test_how_long_windows_are_kept_is_checked_at_the_start():
    with pytest.raises(GdscoreError, match="length of windows"):
        Settings.read(keep="a year")


@pytest.mark.parametrize(
    ("given", "variable", "message"),
    [
        ({"port": 70000}, {}, "--port or GDSCORE_PORT: Input should be less"),
        ({}, {"GDSCORE_MAX_BODY": "much"}, "--max-body or GDSCORE_MAX_BODY: .* integer"),
        ({"public_url": "ftp://x"}, {}, "public-url.*https"),
        ({"run": "  "}, {}, "--run to be a command"),
        ({"mail": "a@b"}, {}, "GDSCORE_SMTP_HOST"),
    ],
)
def test_settings_that_cannot_be(given, variable, message, monkeypatch):
    for name, value in variable.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(GdscoreError, match=message) as caught:
        Settings.read(**given).notifiers()
    assert "much" not in str(caught.value)  # it may be a secret


def test_every_setting_comes_from_the_environment_too(monkeypatch):
    for name, value in {
        "MONITOR": "sqlite:///x.db",
        "AUTH": "false",
        "CHECK_SECONDS": "5",
        "MAIL": "a@b, c@d",
        "SMTP_HOST": "h",
        "SMTP_FROM": "m@x",
        "SMTP_PASSWORD": "hunter2",
        "WEBHOOK": "http://127.0.0.1:9/x?secret",
    }.items():
        monkeypatch.setenv(f"GDSCORE_{name}", value)
    settings = Settings.read(database=None, port=9)
    assert (settings.database, settings.auth, settings.check_seconds, settings.port) == ("sqlite:///x.db", False, 5, 9)
    _, mail = settings.notifiers()
    assert mail.to == ["a@b", "c@d"]
    assert mail.password == "hunter2"
    assert "hunter2" not in repr(settings)
    assert Settings.read(database="sqlite:///y.db").database == "sqlite:///y.db"


# -- security -----------------------------------------------------------------------------------------------

READS = ["/api/v1/models", "/api/v1/models/m/windows", "/api/v1/models/m/series", "/api/v1/alarms", "/metrics", "/"]
WRITES = ["/api/v1/models", "/api/v1/models/m/estimates", "/api/v1/models/m/labels", "/api/v1/alarms/1/acknowledge"]


def test_no_token_is_401_and_a_read_token_cannot_write(local, remote):
    local.register("m")
    reading, writing = create_token(local, "grafana"), create_token(local, "job", "write")
    for path in [*READS, "/alarms", "/models/m", "/windows/1/report"]:
        assert remote.get(path).status_code == 401, path
        assert remote.get(path, headers=bearer("gds_wrong")).status_code == 401, path
    for path in READS:
        assert remote.get(path, headers=bearer(reading)).status_code == 200, path
    for path in [*WRITES, "/api/v1/models/m/windows"]:
        assert remote.post(path, json={}).status_code == 401, path
    assert remote.post("/api/v1/models", json={"name": "m"}, headers=bearer(reading)).status_code == 403
    assert remote.post("/api/v1/models", json={"name": "m"}, headers=bearer(writing)).status_code == 201
    revoke_token(local, "job")
    assert remote.post("/api/v1/models", json={"name": "n"}, headers=bearer(writing)).status_code == 401


def test_tokens_are_hashed_at_rest(local, tmp_path):
    token = create_token(local, "grafana")
    local.close()
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert token.encode() not in stored
    assert find_token(local, token) == Visitor("grafana", "read")


@pytest.mark.parametrize(
    "headers", [{"x-forwarded-for": "127.0.0.1"}, {"forwarded": "for=127.0.0.1"}, {"host": "evil.example.org"}]
)
def test_what_only_looks_local_needs_a_token(local, headers):
    with TestClient(create_app(local, OPEN), **HERE) as client:
        assert client.get("/api/v1/models").status_code == 200
        assert client.get("/api/v1/models", headers=headers).status_code == 401


def test_tokens_can_be_asked_for_on_this_machine(local):
    with TestClient(create_app(local, Settings()), **HERE) as client:
        assert client.get("/api/v1/models").status_code == 401
        assert client.get("/healthz").status_code == 200


def test_other_sites_can_change_nothing(local):
    with TestClient(create_app(local, OPEN), **HERE) as client:
        origin = {"origin": "https://evil.example.org"}
        assert client.post("/api/v1/models", json={"name": "m"}, headers=origin).status_code == 403
        answer = client.options("/api/v1/models", headers=origin | {"access-control-request-method": "POST"})
        assert not [name for name in answer.headers if name.startswith("access-control")]
        assert not [n for n in client.get("/api/v1/models", headers=origin).headers if n.startswith("access-control")]
        own = {"origin": "http://127.0.0.1"}
        assert client.post("/api/v1/models", json={"name": "m"}, headers=own).status_code == 201


@pytest.mark.parametrize("path", ["/api/v1/models", "/api/v1/models/m/windows", "/login", "/alarms/1/acknowledge"])
def test_a_body_of_10_gb_is_refused_before_it_is_sent(local, path):
    with (
        serve(create_app(local, OPEN)) as port,
        socket.create_connection(("127.0.0.1", port), timeout=30) as connection,
    ):
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {10 << 30}\r\n\r\n"
        connection.sendall(head.encode())
        answer = b"".join(iter(lambda: connection.recv(4096), b""))  # ends, as the server closes the connection
    assert answer.startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("path", ["/api/v1/models/m/windows?time=2026-01-01", "/api/v1/models", "/login"])
def test_a_body_without_a_length_is_cut_off(local, fitted, path):
    local.register("m", fitted)
    chunk, sent = b"10000\r\n" + bytes(1 << 16) + b"\r\n", 0
    app = create_app(local, Settings(auth=False, max_body=1 << 18))
    with serve(app) as port, socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nTransfer-Encoding: chunked\r\n"
        connection.sendall(f"{head}Content-Type: application/vnd.apache.parquet\r\n\r\n".encode())
        with contextlib.suppress(ConnectionError):
            while not select.select([connection], [], [], 0)[0]:
                connection.sendall(chunk)
                sent += len(chunk)
        with contextlib.suppress(ConnectionError):
            assert connection.recv(4096).startswith(b"HTTP/1.1 413")
    assert sent < 50 << 20
    assert len(local.windows()) == 0


@pytest.mark.parametrize(
    "path",
    [
        "/static/../history.py",
        "/static/..%2fhistory.py",
        "/static/%2e%2e/schema.py",
        "/static//etc/passwd",
        "/static/monitor.css/../../schema.py",
        "/models/..%2f..%2fetc%2fpasswd",
    ],
)
def test_paths_lead_nowhere_else(local, path):
    with TestClient(create_app(local, OPEN), **HERE) as client:
        assert client.get(path).status_code == 404


def test_names_are_text_on_pages(local):
    evil = "<script>alert(1)</script>\"'{{7*7}}"
    name = evil.replace("/", "")
    local.register(name, rules=Rules(None, min_accuracy=0.8))
    local.add_estimate(name, estimate(0.7), "2026-01-01")
    local.add_estimate(name, estimate(0.7), "2026-01-01", segment=evil)
    with TestClient(create_app(local, OPEN), **HERE) as client:
        from urllib.parse import quote

        for path in ("/", f"/models/{quote(name, safe='')}?segment={quote(evil, safe='')}", "/alarms"):
            answer = client.get(path)
            assert answer.status_code == 200
            assert "<script>alert" not in answer.text
            assert "{{7*7}}" in answer.text
            assert (
                "script-src" in answer.headers["content-security-policy"]
                or "default-src 'self'" in (answer.headers["content-security-policy"])
            )


def test_names_of_classes_are_text_in_the_report(local):
    evil = ["<script>alert(1)</script>", "'; DROP TABLE windows; --", "{{7*7}}", '"><img src=x onerror=alert(1)>', "ok"]
    logits = np.asarray(make_outputs(600, 1.0, 1).logits)
    named = Outputs(logits=logits, labels=logits.argmax(1), class_names=evil)
    local.register("m", AccuracyEstimator().fit(named))
    (added,) = local.add("m", Outputs(logits=logits, class_names=evil), "2026-01-01")
    with TestClient(create_app(local, OPEN), **HERE) as client:
        answer = client.get(f"/windows/{added['id']}/report")
    assert answer.status_code == 200
    assert answer.text.lower().count("<script") == answer.text.lower().count("</script") == 1  # the numbers, as JSON
    assert "<img src=x" not in answer.text
    assert "{{7*7}}" in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert len(local.windows()) == 1


def test_no_secret_in_logs(local, caplog, capfd):
    token = create_token(local, "job", "write")
    caplog.set_level(logging.DEBUG)
    with TestClient(create_app(local, OPEN), **AWAY) as client:
        client.post("/api/v1/models", json={"name": "m"}, headers=bearer(token))
        client.post("/login", content=f"token={token}", headers={"content-type": "application/x-www-form-urlencoded"})
        client.get("/", headers=bearer(token + "x"))
    captured = capfd.readouterr()
    assert token not in caplog.text + captured.out + captured.err


def test_login_keeps_the_token_in_a_cookie_scripts_cannot_read(local):
    token = create_token(local, "Ada")
    with TestClient(create_app(local, OPEN), **AWAY) as client:
        html = {"accept": "text/html"}
        assert client.get("/", headers=html, follow_redirects=False).headers["location"] == "/login"
        assert client.post("/login", content="token=wrong").status_code == 401
        answer = client.post("/login", content=f"token={token}", follow_redirects=False)
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert client.get("/", headers=html).status_code == 200
        assert client.post("/alarms/1/acknowledge", content="by=x").status_code == 403


def test_acknowledging_on_the_page(client):
    client.app.state.monitor.register("m", rules=Rules(None, min_accuracy=0.8))
    client.app.state.monitor.add_estimate("m", estimate(0.5), "2026-01-01")
    alarm = client.get("/api/v1/alarms?open_only=true").json()[0]
    client.post(f"/alarms/{alarm['id']}/acknowledge", content="by=Ada+L")
    assert client.get("/api/v1/alarms").json()[0]["acknowledged_by"] == "Ada L"
    answer = client.post(f"/api/v1/alarms/{alarm['id']}/acknowledge")
    assert json.loads(answer.text)["acknowledged_by"] == "Ada L"


# -- bodies of JSON -----------------------------------------------------------------------------------------

ROWS = 5000
JSON_BODY = {"logits": [[2.0, 0.0, 0.0, 0.0, 0.0]] * ROWS, "features": [[2.0, 0.0, 0.0, 0.0, 0.0]] * ROWS}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"by": {f"c{k}": ["x" * 100_000] + ["a"] * (ROWS - 1) for k in range(4)}}, "at most 200 characters"),
        ({"by": {f"c{k}": ["a"] * ROWS for k in range(11)}}, "at most 10 items"),
        ({"by": {"country": ["a"] * (ROWS + 1)}}, "segment for each of 5000 rows, but got 5001"),
        ({"by": {"country": "a"}}, "`by.country`: Input should be a valid array"),
        ({"labels": [1.7] * ROWS}, "`labels.0`: Input should be a valid integer"),
        ({"labels": [True] * ROWS}, "`labels.0`: Input should be a valid integer"),
    ],
)
def test_json_that_is_refused_before_it_takes_memory(client, fitted, tmp_path, change, message):
    client.post("/api/v1/models", json={"name": "m"})
    fitted.save(tmp_path / "e.gdscore")
    client.put("/api/v1/models/m/estimator", content=(tmp_path / "e.gdscore").read_bytes())
    tracemalloc.start()
    answer = client.post("/api/v1/models/m/windows?time=2026-01-01", json=JSON_BODY | change)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert answer.status_code == 422
    assert message in answer.json()["error"]
    assert peak < 60 << 20


def test_rules_have_a_route_with_a_history(client):
    client.post("/api/v1/models", json={"name": "m", "rules": {"min_accuracy": 0.7}})
    answer = client.post("/api/v1/models", json={"name": "m", "version": "2", "rules": {"missing_after": 2}})
    assert answer.json()["rules"]["min_accuracy"] == 0.7
    changed = client.patch("/api/v1/models/m/rules", json={"min_accuracy": None})
    assert changed.json()["rules"]["min_accuracy"] is None
    found = client.get("/api/v1/models/m/rules").json()
    assert found["rules"]["missing_after"] == 2
    assert [(c["by"], c["version"], list(c["rules"])) for c in found["changes"]] == [
        ("localhost", "2", ["min_accuracy"]),
        ("localhost", "2", ["missing_after"]),
        ("localhost", "1", ["min_accuracy"]),
    ]
    assert client.patch("/api/v1/models/m/rules", json={"min_accuracy": 7}).status_code == 422
    assert client.patch("/api/v1/models/none/rules", json={}).status_code == 404


def test_a_route_lets_the_tests_learn_again(client):
    client.post("/api/v1/models", json={"name": "m", "reference_rows": 1000})
    client.post("/api/v1/models/m/estimates", json=NEW)
    found = client.post("/api/v1/models/m/learn", json={"since": "2026-01-01"})
    assert found.json() == {"learn_from": "2026-01-01T00:00:00+00:00"}
    changes = client.get("/api/v1/models/m/rules").json()["changes"]
    assert [(c["by"], c["rules"]) for c in changes] == [("localhost", found.json())]
    assert client.post("/api/v1/models/m/learn", json={"since": "soon"}).status_code == 422
    assert client.post("/api/v1/models/none/learn", json={}).status_code == 404


def test_pages_show_what_an_estimate_owes_to_labels(client):
    client.post("/api/v1/models", json={"name": "m"})
    client.post("/api/v1/models/m/estimates", json=NEW)
    assert client.get("/api/v1/models/m/past-estimates").json() == {"windows": 0}
    labels = {"time": "2026-01-01", "rows": 400, "correct": 240}
    client.post("/api/v1/models/m/labels", json=labels)
    added = client.post("/api/v1/models/m/estimates", json=NEW | {"time": "2026-01-02"}).json()
    assert 0.6 < added["accuracy"] < NEW["accuracy"] == added["label_free"]
    assert added["last_known"] == 0.6
    page = html.unescape(client.get(f"/windows/{added['id']}").text)
    assert "rests on labels of earlier windows" in page
    assert f"Without labels it is {NEW['accuracy']:.1%}, the last known accuracy is 60.0%" in page
    model = html.unescape(client.get("/models/m").text)
    assert "from 400 labels of 1 window, the newest 1 day old" in model
    assert ">tracked<" not in model  # which is no warning
    assert "Unchanged since the reference" in model
    assert "Last known accuracy" not in model  # nothing was known before the only window with labels
    client.post("/api/v1/models/m/labels", json=labels | {"time": "2026-01-02"})
    assert "Last known accuracy" in client.get("/models/m").text
    errors = client.get("/api/v1/models/m/past-estimates").json()["errors"]
    assert errors["last_known"] == 0 < errors["estimate"] < errors["label_free"]


def test_labels_by_the_service_raise_an_alarm(client):
    client.post("/api/v1/models", json={"name": "m", "rules": {"min_accuracy": 0.7}})
    assert client.post("/api/v1/models/m/estimates", json=NEW).status_code == 201
    labels = {"time": "2026-01-01", "rows": 400, "correct": 240}
    assert client.post("/api/v1/models/m/labels", json=labels).status_code == 204
    assert [a["rule"] for a in client.get("/api/v1/alarms").json() if a["rule"] == "labels:accuracy"]
    assert client.get("/api/v1/models").json()[0]["state"] == "alarm"


# -- found by attack ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["evil.com:", "", "user@evil.com", "127.0.0.1:80:80", "localhost.evil.com", "127.0.0.1@x"]
)
def test_a_host_that_is_not_exactly_this_machine_needs_a_token(client, host):
    assert client.get("/api/v1/models", headers={"host": host}).status_code == 401


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:8600", "[::1]:8600"])
def test_this_machine_needs_no_token(client, host):
    assert client.get("/api/v1/models", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("header", ["via", "x-forwarded-host"])
def test_a_request_that_a_proxy_passed_on_needs_a_token(client, header):
    assert client.get("/api/v1/models", headers={header: "proxy"}).status_code == 401


def test_an_origin_that_cannot_be_read_is_foreign(client):
    answer = client.post("/api/v1/models", json={"name": "m"}, headers={"origin": "http://["})
    assert answer.status_code == 403


def test_a_window_that_ends_in_the_far_future_is_refused(client):
    client.post("/api/v1/models", json={"name": "m"})
    answer = client.post("/api/v1/models/m/estimates", json=NEW | {"end": "9999-01-01"})
    assert answer.status_code == 422
    assert "ends soon" in answer.json()["error"]


def test_days_before_the_calendar_are_no_error(client):
    client.post("/api/v1/models", json={"name": "m"})
    assert client.post("/api/v1/models/m/estimates", json=NEW | {"time": "0001-01-01"}).status_code == 201
    assert client.get("/models/m?days=7", headers={"accept": "text/html"}).status_code == 200


def test_zero_characters_in_what_is_asked_for_are_no_failure_of_the_service(client):
    client.post("/api/v1/models", json={"name": "m"})
    for address in ("/api/v1/models/m/windows?segment=%00", "/api/v1/models/%00/windows", "/api/v1/alarms?model=%00"):
        assert client.get(address).status_code in (200, 404, 422)


def test_a_damaged_database_is_not_healthy(local, tmp_path):
    with TestClient(create_app(local, Settings(auth=False, check_seconds=1000)), **HERE) as client:
        assert client.get("/healthz").status_code == 200
        local.engine.dispose()
        path = tmp_path / "history.db"
        content = path.read_bytes()
        path.write_bytes(content[:100] + bytes(len(content) - 100))
        for extra in ("history.db-wal", "history.db-shm"):
            (tmp_path / extra).unlink(missing_ok=True)
        assert client.get("/healthz").status_code == 503


def test_a_folder_for_temporary_files_that_is_gone_is_503(client, monkeypatch):
    client.post("/api/v1/models", json={"name": "m"})
    monkeypatch.setattr(tempfile, "tempdir", "/nonexistent")
    answer = client.post(
        "/api/v1/models/m/windows?time=2026-01-01", content=b"{}", headers={"content-type": "text/csv"}
    )
    assert answer.status_code == 503


def test_connections_that_are_all_in_use_are_503(local):
    with TestClient(create_app(local, Settings(auth=False, check_seconds=1000)), **HERE) as client:
        local.engine.pool._timeout = 0.1
        with contextlib.ExitStack() as held:
            for _ in range(40):
                held.enter_context(local.engine.connect())
            assert client.get("/healthz").status_code == 503
        assert client.get("/healthz").status_code == 200


def test_the_cookie_is_for_tls_only_where_a_proxy_speaks_it(local):
    token = create_token(local, "ada")
    for behind in (True, False):
        with TestClient(create_app(local, Settings(auth=False, behind_tls=behind)), **HERE) as client:
            answer = client.post("/login", data={"token": token}, follow_redirects=False)
            assert ("Secure" in answer.headers["set-cookie"]) == behind


def test_the_description_of_the_api_needs_a_token_and_loads_nothing_from_elsewhere(client, remote):
    for address in ("/docs", "/openapi.json"):
        assert remote.get(address).status_code == 401
    answer = client.get("/docs")
    assert "swagger-ui-bundle.js" in answer.text
    assert set(re.findall(r'(?:src|href)="([^"]*)"', answer.text)) == {
        "/static/vendor/swagger-ui-bundle.js",
        "/static/vendor/swagger-ui.css",
        "data:,",
    }
    assert "http://" not in answer.text
    assert "https://" not in answer.text
    assert "script-src 'self' 'sha256-" in answer.headers["content-security-policy"]
    for name in ("swagger-ui-bundle.js", "swagger-ui.css", "uPlot.iife.min.js", "uPlot.LICENSE", "swagger-ui.LICENSE"):
        assert client.get(f"/static/vendor/{name}").status_code == 200


@contextlib.contextmanager
def hurried(local, seconds=0.3, connections=500):
    app = create_app(local, Settings(auth=False, request_seconds=seconds))
    with serve(app, seconds, limit_concurrency=connections) as port:
        yield port


HALF = {
    "nothing": b"",
    "half of its headers": b"POST /login HTTP/1.1\r\nHost: local",
    "no body": b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n",
    "half of a body": b"POST /api/v1/models/m/windows HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/csv\r\n"
    b"Content-Length: 900\r\n\r\nabc",
    "a second request": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nPOST /login HTTP/1.1\r\nHost: local",
}


@pytest.mark.parametrize("sent", HALF.values(), ids=HALF)
def test_a_request_that_does_not_arrive_is_cut(local, sent, caplog):
    """Forty connections that send a part of a request hold up the service no longer than its deadline."""
    with hurried(local, connections=50) as port:
        silent = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(40)]
        for opened in silent:
            opened.sendall(sent)
        with socket.create_connection(("127.0.0.1", port), timeout=20) as opened:
            opened.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert opened.recv(15) == b"HTTP/1.1 200 OK"
        for opened in silent:
            answer = b""
            with contextlib.suppress(ConnectionResetError):
                while part := opened.recv(65536):
                    answer += part
            assert b"408" in answer or "body" not in caplog.text
            opened.close()
    assert "Traceback" not in caplog.text


def test_one_connection_too_many_is_told(local):
    with hurried(local, seconds=20, connections=5) as port:
        silent = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(6)]
        with socket.create_connection(("127.0.0.1", port), timeout=20) as opened:
            opened.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert opened.recv(12) == b"HTTP/1.1 503"
        for opened in silent:
            opened.close()


def test_a_slow_answer_is_not_cut_and_a_large_body_has_its_time(local, fitted, tmp_path):
    local.register("m", fitted)
    body = parquet(make_outputs(300, 1.2, 5, labels=False), tmp_path)
    head = (
        "POST /api/v1/models/m/windows?time=2026-01-01 HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
        f"application/vnd.apache.parquet\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with hurried(local, seconds=2.0) as port, socket.create_connection(("127.0.0.1", port), timeout=30) as opened:
        for _ in range(3):  # on one connection, with pauses between that are shorter than the deadline
            opened.sendall(head.encode() + body)
            assert opened.recv(12) == b"HTTP/1.1 201"
            opened.setblocking(False)
            time.sleep(1)
            with contextlib.suppress(BlockingIOError):
                while opened.recv(65536):
                    pass
            opened.settimeout(30)


def test_a_client_that_goes_away_is_no_error(local, caplog):
    with serve(create_app(local, OPEN)) as port:
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port), timeout=5) as opened:
                opened.sendall(HALF["half of a body"])
        for _ in range(100):
            time.sleep(0.01)
    assert "Traceback" not in caplog.text
    assert caplog.records == []


def test_the_page_of_alarms_leads_to_the_older_ones(client, monitor):
    monitor.register("m", rules=Rules(None, min_accuracy=0.8))
    for n in range(60):
        monitor.add_estimate("m", estimate(0.5), "2026-01-01", segment=str(n))
    first = client.get("/alarms", headers={"accept": "text/html"}).text
    assert "after=50" in first
    second = client.get("/alarms?after=50", headers={"accept": "text/html"}).text
    assert second.count("alarm-item") == 10
    assert ">newer<" in second


# -- the description of the API -----------------------------------------------------------------------------


def binary_estimator():
    """Estimator of a model with two classes, of probabilities alone."""
    rng = np.random.default_rng(0)
    right = rng.beta(6, 1, 500)
    labels = rng.integers(0, 2, 500)
    share = np.where(rng.random(500) < right, right, 1 - right)
    one = np.where(labels == 1, share, 1 - share)
    return gdscore.AccuracyEstimator().fit(Outputs(probabilities=np.stack([1 - one, one], 1), labels=labels))


def resolved(schema, described):
    """A schema, also where the description names it elsewhere."""
    while "$ref" in schema:
        schema = described["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


ORDER = [
    *("register_model", "put_estimator", "change_rules", "add_windows", "add_estimate", "add_labels"),
    *("add_row_labels", "learn_again", "acknowledge", "snooze", "delete_window", "retire", "delete_model"),
]


def test_every_example_of_the_description_is_taken(local):
    with TestClient(create_app(local, OPEN), **HERE) as client:
        described = client.get("/openapi.json").json()
        operations = {
            operation["operationId"]: (method, path, operation)
            for path, methods in described["paths"].items()
            for method, operation in methods.items()
        }
        writes = [name for name, (method, _, _) in operations.items() if method != "get"]
        assert sorted(writes) == sorted(ORDER)
        for name in [*ORDER[:-3], *(n for n in operations if n not in writes), *ORDER[-3:]]:
            method, path, operation = operations[name]
            address = path.format(name="churn", alarm=1, window=1)
            given = {"params": {"time": "2026-01-30"}} if name == "add_windows" else {}
            content = operation.get("requestBody", {}).get("content", {})
            if "application/json" in content:
                schema = resolved(content["application/json"]["schema"], described)
                given["json"] = schema["examples"][0]
            elif content:
                given["content"] = binary_estimator().to_bytes()
            if name == "add_labels":
                local.add_estimate("churn", estimate(0.9), "2026-01-29")
            if name == "add_row_labels":
                local.set_rules("churn", {"keep_rows": "100000d"})
                local.add_estimate("churn", estimate(0.3), "2026-01-28")
                address, given["params"] = address, {"time": "2026-01-30"}
                outputs = client.post(
                    "/api/v1/models/churn/windows?time=2026-01-30&replace=true",
                    json=resolved(
                        operations["add_windows"][2]["requestBody"]["content"]["application/json"]["schema"], described
                    )["examples"][0],
                )
                assert outputs.is_success
            answer = client.request(method, address, **given)
            assert answer.is_success, (name, answer.text)
            refused = operation["responses"]["422"]["content"]["application/json"]["schema"]
            assert set(resolved(refused, described)["properties"]) == {"error", "example"}
    assert all(operation.get("description") for _, _, operation in operations.values())


@pytest.mark.parametrize(
    ("method", "path", "body", "message"),
    [
        ("POST", "models/m/labels", {"time": "2026-01-01", "correct": 3}, "the field `rows`, but it is missing"),
        ("POST", "models/m/labels", {"time": "2026-01-01", "rows": "x"}, "in `rows`: .*integer.*, but got 'x'"),
        (
            "POST",
            "models/m/labels",
            {"time": "2026-01-01", "rows": 1, "right": 2},
            "Unknown field `right`: did you mean|Unknown field `right`: valid are",
        ),
        ("POST", "models/m/labels", [1], "in the body: .*, but got .1."),
        ("POST", "models/m/labels", None, "a body, but there is none"),
        ("POST", "models/m/windows?time=2026-01-01", {"logit": [[1]]}, "Unknown field `logit`: did you mean 'logits'"),
        ("POST", "models/m/windows?time=2026-01-01", {"logits": [["a"]]}, "`logits.0.0`: .*number.*, but got 'a'"),
        ("POST", "models/m/windows?time=2026-01-01", {"logits": [[1, 2]], "ids": [1.5]}, "`ids.0.*`: .* got 1.5"),
        ("POST", "models/m/windows?time=2026-01-01", {"logits": [[1, 2]], "by": [1]}, "`by`: .*, but got .1."),
        ("POST", "models/m/row-labels", {"id": ["a"]}, "the field `label`, but it is missing"),
        ("PATCH", "models/m/rules", {"min_acuracy": 0.7}, "min_acuracy.*did you mean 'min_accuracy'"),
        ("PATCH", "models/m/rules", {"keep_rows": "x"}, "'x'"),
        ("POST", "models", {"name": 3}, "`name`: .*, but got 3"),
    ],
)
def test_errors_of_bodies_name_the_field_and_give_an_example(local, fitted, method, path, body, message):
    local.register("m", fitted)
    with TestClient(create_app(local, OPEN), **HERE) as client:
        answer = client.request(method, f"/api/v1/{path}", **({} if body is None else {"json": body}))
        assert answer.status_code == 422
        assert re.search(message, answer.json()["error"]), answer.json()["error"]
        route = {"labels": "add_labels", "windows": "add_windows", "row-labels": "add_row_labels"}
        last = path.partition("?")[0].rpartition("/")[2]
        name = route.get(last, "change_rules" if method == "PATCH" else "register_model")
        routes = {route.name: route for route in api.router.routes}
        assert answer.json()["example"] == api.example_of(routes[name]) is not None
        assert "example" not in client.get("/api/v1/models?limit=x").json()


def test_the_curl_lines_of_the_documentation_run(local, fitted, tmp_path):
    if shutil.which("curl") is None:
        pytest.skip("there is no curl")
    page = (Path(__file__).parents[2] / "docs" / "http.md").read_text()
    (script,) = re.findall(r"```sh\n(api=.*?)```", page, re.S)
    estimator = binary_estimator()
    estimator.save(tmp_path / "m.gdscore")
    rng = np.random.default_rng(1)
    share = rng.beta(6, 1, 400)
    frame = pd.DataFrame({"prob_0": share, "prob_1": 1 - share, "country": ["fr", "de"] * 200})
    frame.assign(id=[f"a{n}" for n in range(400)]).to_parquet(tmp_path / "2026-01-31.parquet")
    ids = np.array([f"b{n}" for n in range(400)])
    write_outputs(tmp_path / "2026-02-01.npz", Outputs(probabilities=np.stack([share, 1 - share], 1), ids=ids))
    (tmp_path / "labels.csv").write_text("id,label\n" + "".join(f"b{n},{n % 2}\n" for n in range(300)))
    token = create_token(local, "job", "write")
    with serve(create_app(local, Settings())) as port:
        script = script.replace("90d", "90000d")  # as the windows are of some day in the past
        script = script.replace("127.0.0.1:8600", f"127.0.0.1:{port}").replace("curl ", "curl -sS --fail-with-body ")
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            env={**os.environ, "TOKEN": token, "NO_PROXY": "127.0.0.1"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    listed = local.windows("churn", segment="").set_index("start")
    assert [f"{start:%m-%d}" for start in listed.index] == ["01-31", "02-01", "02-02", "02-03"]
    assert listed.labelled.tolist()[:2] == [400, 300]
    assert local.rules("churn") == Rules(min_accuracy=0.7, recovery=2, keep_rows="90000d")
    assert local.alarms("churn").set_index("id").acknowledged_by[1] == "job"


# -- log and metrics ----------------------------------------------------------------------------------------


def test_the_log_of_accesses_has_a_json_object_a_line(local, caplog):
    token = create_token(local, "Ada")
    with caplog.at_level(logging.INFO, "gdscore.monitor.access"):
        with TestClient(create_app(local, Settings(auth=False, access_log=True)), **AWAY) as client:
            client.get("/api/v1/models?limit=3", headers=bearer(token))
            client.post("/api/v1/models", json={"name": "m\n"}, headers=bearer(token))
            client.get(f"/login?next={token}")
        with TestClient(create_app(local, OPEN), **AWAY) as client:
            client.get("/api/v1/models", headers=bearer(token))
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "gdscore.monitor.access"]
    assert [(line["who"], line["method"], line["path"], line["status"]) for line in lines] == [
        ("Ada", "GET", "/api/v1/models", 200),
        (None, "POST", "/api/v1/models", 403),
        (None, "GET", "/login", 200),
    ]
    assert all(line["client"] == "203.0.113.9" and line["ms"] >= 0 and line["sent"] > 0 for line in lines)
    assert not any(token in record.getMessage() for record in caplog.records)


def test_metrics_of_labels(client, monitor):
    monitor.register("m")
    monitor.register("none")
    for day in range(1, 5):
        monitor.add_estimate("m", estimate(0.9), f"2026-01-0{day}")
    monitor.add_estimate("none", estimate(0.9), "2026-01-01")
    monitor.add_labels("m", "2026-01-03", correct=400, rows=800)
    for day in (1, 2):
        monitor.add_labels("m", f"2026-01-0{day}", correct=720, rows=800)
    text = client.get("/metrics").text
    for line in (
        'gdscore_labelled_accuracy{model="m",segment=""} 0.5',
        'gdscore_labelled_rows{model="m",segment=""} 800.0',
        'gdscore_past_estimates_coverage{model="m",segment=""} 0.66',
        'gdscore_past_estimates_windows{model="m",segment=""} 3.0',
    ):
        assert line in text
    assert 'gdscore_labelled_accuracy{model="none"' not in text


def test_windows_of_decided_rows(client):
    rng = np.random.default_rng(0)
    p = rng.beta(0.5, 3, 600)
    est = AccuracyEstimator().fit(Outputs(probabilities=p, labels=(rng.random(600) < p).astype(int), threshold=0.1))
    client.app.state.monitor.register("m", est, rules={"keep_rows": "36500d"})
    body = {"probabilities": np.stack([1 - p, p], axis=1)[:50].tolist(), "ids": list(range(50))}
    path = "/api/v1/models/m/windows?time=2026-01-0"
    assert client.post(f"{path}1", json=body | {"threshold": 0.1}).status_code == 201
    expected = est.estimate(Outputs(probabilities=p[:50], threshold=0.1)).accuracy
    assert client.get("/api/v1/models/m/windows").json()["windows"][0]["accuracy"] == pytest.approx(expected)
    for wrong in ({}, {"predictions": [1] * 50}, {"predictions": ["x"] * 50}, {"threshold": "x"}, {"threshold": 2}):
        answer = client.post(f"{path}2", json=body | wrong)
        assert answer.status_code == 422, wrong
        assert "decided" in answer.text or "predictions" in answer.text or "threshold" in answer.text
    text = "\n".join(["p,id", *(f"{value!r},{k}" for k, value in enumerate(p[:50].tolist()))])
    table = {"content": text, "headers": {"content-type": "text/csv"}}
    assert client.post(f"{path}3&probabilities=p&id=id&threshold=0.1", **table).status_code == 201
    assert client.post(f"{path}4&probabilities=p&id=id", **table).status_code == 422
    labels = {"id": [str(k) for k in range(50)], "label": [1] * 50}
    answer = client.post("/api/v1/models/m/row-labels?time=2026-01-01", json=labels)
    assert answer.is_success, answer.text
    assert answer.json()["windows"][0]["correct"] == (p[:50] >= 0.1).sum()
