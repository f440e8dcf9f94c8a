"""Roads to people: labels, the monitor, the command line, Ray."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np

import gdscore
from tests.roads import data
from tests.roads.road import Found, road

# -- labels, monitor, command line ----------------------------------------------------------------------------


def _of_labelled(e):
    return {**data.of_estimate(e), "labels": [e.labels, e.could_not_tell, e.variance_ratio, e.more_labels_for(0.02)]}


@road("labels")
def labels() -> Found:
    from gdscore import labeling

    est, known = data.fitted(), data.outputs(900, 1.4, 6)
    target, y = data.outputs(900, 1.4, 6, labels=False), np.asarray(known.labels)
    drawn = labeling.choose(est, target, 80)
    yield "rows", drawn.rows
    yield "predicted", drawn.predicted_correct[:10]
    found = labeling.estimate(est, target, drawn, y[drawn.rows])
    yield "estimate", _of_labelled(found)
    by = labeling.choose(est, target, 90, by=data.segments(900)["texts"], seed=2)
    yield "rows by segment", by.rows
    for name, e in labeling.estimate_segments(est, target, by, y[by.rows]).items():
        yield f"segment {name}", _of_labelled(e)
    ordered = labeling.choose(est, target, 60, design="random", seed=1)
    steps = labeling.sequence(est, target, ordered, y[ordered.rows])
    yield (
        "sequence",
        [*data.digest(steps.low), *data.digest(steps.high), steps.accuracy[-1], steps.low[-1], steps.high[-1]],
    )
    later = est.estimate(data.TARGETS["shifted"]())
    yield "recalibrated", data.of_estimate(labeling.recalibrate(found).apply(later, age=2))
    past = labeling.past_errors([found])
    yield "past errors", [past.windows, past.bias, past.mean_absolute_error, past.missed]


START = datetime(2026, 1, 1, tzinfo=timezone.utc)
NOISES = [1.0] * 6 + [1.05, 1.0, 2.2, 2.4, 2.4, 2.5, 2.4, 2.4] + [1.0] * 6


def _day_outputs(day):
    return data.outputs(300, NOISES[day], 50 + day, labels=False)


def _of_windows(frame):
    for _, w in frame.iterrows():
        key = f"{w['start']:%m-%d} {w['segment']}"
        yield key, [w["accuracy"], w["low"], w["high"], w["rows"], w["truth"], *(x["code"] for x in w["warnings"])]


@road("monitor")
def monitor() -> Found:
    from gdscore.monitor import Monitor, Rules

    with tempfile.TemporaryDirectory() as folder:
        made = Monitor(f"sqlite:///{folder}/history.db")
        made.register("m", data.fitted(), every="1d", rules=Rules(min_accuracy=0.6, false_alarms_per_year=1.0))
        for day in range(len(NOISES)):
            made.add("m", _day_outputs(day), time=START + timedelta(days=day))
        made.add_labels("m", START, correct=280, rows=300)
        made.add("m", _day_outputs(3), time=START + timedelta(days=40), by={"country": data.segments(300)["texts"]})
        yield from _of_windows(made.windows("m"))
        alarms = made.alarms("m").sort_values(["began", "rule"])
        for number, (_, a) in enumerate(alarms.iterrows()):
            yield f"alarm {number}", [a["rule"], a["segment"], str(a["began"]), str(a["ended"]), bool(a["withdrawn"])]
        made.close()


@contextmanager
def served(folder):
    """A client of the HTTP service, with an estimator registered as `m`."""
    from starlette.testclient import TestClient

    from gdscore.monitor import Monitor
    from gdscore.monitor.app import create_app
    from gdscore.monitor.settings import Settings

    made = Monitor(f"sqlite:///{folder}/service.db")
    path = Path(folder) / "m.gdscore"
    data.fitted().save(path)
    with TestClient(create_app(made, Settings(auth=False)), client=("127.0.0.1", 50000), base_url="http://127.0.0.1") as client:
        assert client.post("/api/v1/models", json={"name": "m", "rules": {"min_accuracy": 0.6}}).status_code == 201
        answer = client.put("/api/v1/models/m/estimator", content=path.read_bytes())
        assert answer.status_code == 204, answer.text
        yield client
    made.close()


def parquet(folder, outputs):
    """Outputs as the body of a request."""
    from gdscore.io import write_outputs

    path = Path(folder) / "body.parquet"
    write_outputs(path, outputs)
    return path.read_bytes()


def post_day(client, day, body):
    """Post the outputs of a day as Parquet; its windows."""
    answer = client.post(
        f"/api/v1/models/m/windows?time={START + timedelta(days=day):%Y-%m-%d}",
        content=body,
        headers={"content-type": "application/vnd.apache.parquet"},
    )
    assert answer.status_code == 201, answer.text
    return answer.json()


@road("service")
def service() -> Found:
    with tempfile.TemporaryDirectory() as folder, served(folder) as client:
        for day in range(0, 12, 3):
            for w in post_day(client, day, parquet(folder, _day_outputs(day))):
                yield f"day {day}", [w["accuracy"], w["low"], w["high"], w["rows"], *(x["code"] for x in w["warnings"])]
        body = {
            "logits": np.asarray(_day_outputs(1).logits[:60]).tolist(),
            "features": np.asarray(_day_outputs(1).features[:60]).tolist(),
            "by": {"country": ["fr", "de"] * 30},
        }
        for w in client.post("/api/v1/models/m/windows?time=2026-03-01", json=body).json():
            yield f"json {w['segment']}", [w["accuracy"], w["low"], w["high"], w["rows"]]
        found = client.get("/api/v1/alarms").json()
        yield "alarms", [v for a in sorted(found, key=lambda a: a["began"]) for v in (a["rule"], a["began"])]


def _command(*arguments):
    from typer.testing import CliRunner

    from gdscore.cli import app

    return CliRunner().invoke(app, [str(a) for a in arguments])


def _write_files(folder):
    """Reference, target and shifted sets as npz, Parquet and CSV."""
    import pandas as pd

    reference, target = data.outputs(600, seed=1), data.outputs(400, 1.6, 2, labels=False)
    for name, out in (("reference", reference), ("target", target)):
        for suffix in ("npz", "parquet"):
            gdscore.io.write_outputs(folder / f"{name}.{suffix}", out)
        columns = {f"logit_{k}": np.asarray(out.logits)[:, k].astype(float) for k in range(data.CLASSES)}
        columns |= {f"feature_{k}": np.asarray(out.features)[:, k].astype(float) for k in range(data.FEATURES)}
        columns |= {"label": np.asarray(out.labels)} if "labels" in out.has else {}
        columns |= {"country": data.segments(len(out))["texts"]}
        columns |= {"time": pd.to_datetime("2026-01-29") + pd.to_timedelta(np.arange(len(out)) // 150, unit="D")}
        pd.DataFrame(columns).to_csv(folder / f"{name}.csv", index=False)
    for number, shifted in enumerate(data.shifted(150)):
        path = folder / "shifted" / shifted.family.replace(" ", "_") / f"{number}.npz"
        path.parent.mkdir(parents=True, exist_ok=True)
        gdscore.io.write_outputs(path, shifted.outputs)


def _of_document(path):
    for number, t in enumerate(json.loads(path.read_text())["targets"]):
        codes = [w["code"] for w in t["warnings"]]
        yield f"{number} {t.get('segment') or t['when']}", [t["accuracy"], t["low"], t["high"], t["n_rows"], *codes]


CSV = ["--logits", "logit_*", "--features", "feature_*"]


@road("command line")
def command_line() -> Found:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_files(folder)
        estimator, result = folder / "m.gdscore", folder / "out.json"
        for suffix in ("npz", "parquet", "csv"):
            columns = CSV if suffix == "csv" else []
            labelled = [*columns, "--label", "label"] if suffix == "csv" else []
            sets = ["--shifted-sets", folder / "shifted"] if suffix == "npz" else []
            done = _command("fit", folder / f"reference.{suffix}", *labelled, *sets, "-o", estimator, "--quiet")
            yield f"{suffix}/fit", done.exit_code
            alarm = ["--min-accuracy", "0.9", "--json", result, "--quiet"]
            done = _command("estimate", estimator, folder / f"target.{suffix}", *columns, *alarm)
            yield f"{suffix}/estimate", done.exit_code
            for key, value in _of_document(result):
                yield f"{suffix}/estimate/{key}", value
            reference = ["--reference", folder / f"reference.{suffix}"]
            done = _command("score", folder / f"target.{suffix}", *reference, *columns, "--json", result, "--quiet")
            yield f"{suffix}/score", done.exit_code
            table = json.loads(result.read_text())["targets"][0]["scores"]
            yield f"{suffix}/scores", [v for score in sorted(table) for v in (score, table[score])]
        for case, options in (("country", ["--by", "country"]), ("days", ["--time", "time"])):
            done = _command("estimate", estimator, folder / "target.csv", *CSV, *options, "--json", result, "--quiet")
            yield f"{case}/estimate", done.exit_code
            for key, value in _of_document(result):
                yield f"{case}/estimate/{key}", value
        reference = ["--reference", folder / "reference.npz"]
        done = _command("estimate", "--method", "atc", *reference, folder / "target.npz", "--json", result, "--quiet")
        yield "atc/estimate", done.exit_code
        for key, value in _of_document(result):
            yield f"atc/estimate/{key}", value


@road("command line, labels")
def command_line_labels() -> Found:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_files(folder)
        estimator, table = folder / "m.gdscore", folder / "todo.csv"
        _command("fit", folder / "reference.npz", "-o", estimator, "--quiet")
        done = _command("label", "choose", estimator, folder / "target.npz", "--budget", "30", "-o", table, "--quiet")
        yield "choose", done.exit_code
        header, *lines = table.read_text().splitlines()
        place = header.lstrip("\ufeff").split(",").index("row")
        yield "rows", [int(line.split(",")[place]) for line in lines if line.split(",")[place].isdecimal()]


# -- Ray ------------------------------------------------------------------------------------------------------

RAY = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DATA_DISABLE_PROGRESS_BARS": "1", "RAY_enable_metrics_collection": "0"}


def write_parts(folder):
    """A target in three Parquet files, with a column of countries."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    target = data.outputs(900, 1.4, 6, labels=False)
    names = data.segments(len(target))["texts"]
    for number, start in enumerate(range(0, 900, 300)):
        columns = {k: list(np.asarray(v)[start : start + 300]) for k, v in target.arrays.items()}
        table = pa.table({**columns, "country": names[start : start + 300]})
        pq.write_table(table, Path(folder) / f"part-{number}.parquet")


@contextmanager
def cluster(**options):
    """A cluster of one processor on this machine."""
    import warnings

    os.environ |= RAY
    import ray

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="error", **options)
        try:
            yield
        finally:
            ray.shutdown()


@road("ray", optional=True)
def on_ray() -> Found:
    from gdscore import distributed

    est = data.fitted()
    with tempfile.TemporaryDirectory() as folder, cluster():
        write_parts(folder)
        yield "estimate", data.of_estimate(distributed.estimate(est, folder, progress=False))
        for name, e in distributed.estimate(est, folder, by="country", progress=False).items():
            yield f"country {name}", data.of_estimate(e)
