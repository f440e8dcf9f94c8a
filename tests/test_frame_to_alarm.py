"""A data frame of a service's log to daily estimates, report and alarm: in three lines of Python and in one command."""

from __future__ import annotations

import json

import numpy as np
import pytest

import gdscore
from tests.data import made

pd = pytest.importorskip("pandas")

DAYS = ("2026-01-29", "2026-01-30", "2026-01-31")


def log(rows: int, noise: float, seed: int, days=DAYS) -> pd.DataFrame:
    """What a service logs: probabilities of ten classes, the prediction, the label that comes later, and the time."""
    out = made(rows, keep=("logits", "labels"), noise=noise, seed=seed)
    p = np.asarray(out.probabilities, dtype=np.float64)
    df = pd.DataFrame(p / p.sum(1, keepdims=True), columns=[f"prob_{k}" for k in range(10)])
    times = pd.to_datetime(np.repeat(days, rows // len(days))) + pd.to_timedelta(np.arange(rows) % 86_400, unit="s")
    return df.assign(prediction=p.argmax(1), label=np.asarray(out.labels), timestamp=times)


@pytest.fixture(scope="module")
def tables():
    """A reference, and a log whose last day is worse."""
    return log(1500, 1.0, 0), pd.concat([log(800, 1.0, 1, DAYS[:2]), log(400, 2.0, 2, DAYS[2:])])


def test_three_lines_of_python(tables, tmp_path, monkeypatch):
    reference, df = tables
    monkeypatch.chdir(tmp_path)
    import gdscore.report

    est = gdscore.AccuracyEstimator().fit(gdscore.from_frame(reference, probabilities="prob_*", label="label"))
    days = est.estimate(gdscore.from_frame(df, probabilities="prob_*"), by=df["timestamp"].dt.date)
    gdscore.report.write_report("report.html", est, days, min_accuracy=0.92)

    assert [str(day) for day, e in days.items() if e.accuracy < 0.92] == ["2026-01-31"]
    text = (tmp_path / "report.html").read_text()
    assert all(day in text for day in DAYS)


def test_one_command(tables, tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from gdscore.cli.commands import app

    reference, df = tables
    monkeypatch.chdir(tmp_path)
    reference.to_parquet("reference.parquet")
    df.to_parquet("log.parquet")
    run = CliRunner()
    columns = ["--probabilities", "prob_*", "--label", "label"]
    assert run.invoke(app, ["fit", "reference.parquet", *columns, "-o", "m.gdscore"]).exit_code == 0

    command = "estimate m.gdscore log.parquet --time timestamp --min-accuracy 0.92 --html report.html --json out.json"
    done = run.invoke(app, [*command.split(), *columns])

    assert done.exit_code == 3
    found = json.loads((tmp_path / "out.json").read_text())
    assert [target["name"] for target in found["targets"]] == list(DAYS)
    assert found["alarms"] == ["2026-01-31"]
    assert "2026-01-31" in done.stderr
    est = gdscore.AccuracyEstimator.load("m.gdscore")
    days = est.estimate(gdscore.from_frame(df, probabilities="prob_*"), by=df["timestamp"].dt.date)
    expected = {str(day): e.accuracy for day, e in days.items()}
    assert {target["name"]: target["accuracy"] for target in found["targets"]} == pytest.approx(expected, abs=1e-9)
