"""A day that cannot be estimated is listed with its reason, and does not keep the others from being written."""

from __future__ import annotations

import json

import numpy as np
import pytest

import gdscore
from tests.cli.conftest import refused

FULL = ["2026-01-29", "2026-01-30", "2026-01-31T05:00"]
ARGS = ("estimate", "m.gdscore", "logs", "--json", "out.json", "--html", "report.html")


@pytest.fixture
def logs(folder):
    """Three whole days, an empty one, and one of another model."""
    np.savez(folder / "empty.npz", logits=np.zeros((0, 10)), features=np.zeros((0, 16)))
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    kind = pa.list_(pa.float32())
    pq.write_table(
        pa.table({"logits": pa.array([], kind), "features": pa.array([], kind)}), folder / "logs" / "2026-02-01.parquet"
    )
    other = gdscore.Outputs(logits=np.zeros((30, 10)), features=np.zeros((30, 3)))
    gdscore.io.write_outputs(folder / "logs" / "2026-02-02.parquet", other)
    return folder


def read(folder) -> dict:
    return json.loads((folder / "out.json").read_text())


def test_the_others_are_written(gd, logs):
    result = gd(*ARGS)
    assert result.exit_code == 2
    said = read(logs)
    assert said["not_estimated"] == ["2026-02-01", "2026-02-02"]
    assert [t["name"] for t in said["targets"]] == [*FULL, *said["not_estimated"]]
    assert all(0 <= t["accuracy"] <= 1 for t in said["targets"][:3])
    empty, other = said["targets"][3:]
    assert empty.keys() == other.keys() == {"name", "when", "error"}
    assert empty["when"] == "2026-02-01T00:00:00"
    assert "at least one row" in empty["error"]
    assert "16 features as in calibration, but they have 3" in other["error"]
    for day in said["not_estimated"]:
        assert "not estimated" in next(line for line in result.stdout.splitlines() if day in line)
    assert f"not estimated: {empty['error']} (2026-02-01)" in result.stdout
    page = (logs / "report.html").read_text(encoding="utf-8")
    assert "2 targets could not be estimated" in page
    assert "but they have 3" in page


def test_one_line_on_standard_error(gd, logs):
    line = refused(gd(*ARGS, "--quiet"))
    assert line.startswith("gdscore: 2 of 5 targets are not estimated: Expected at least one row")
    assert "(2026-02-01)" in line


def test_below_the_threshold_wins(gd, logs):
    result = gd(*ARGS, "--min-accuracy", "0.999", "--quiet")
    assert "2 of 5 targets are not estimated" in refused(result, code=3)
    assert read(logs)["below"] == FULL
    assert gd(*ARGS, "--min-accuracy", "0", "--quiet").exit_code == 2


def test_one_row_is_estimated_or_listed(gd, folder):
    rows = gdscore.Outputs(**next(gdscore.io.read_outputs("new.npz"))[:1].arrays)
    gdscore.io.write_outputs("logs/2026-02-03.parquet", rows)
    result = gd(*ARGS)
    assert (folder / "report.html").exists()
    *others, last = read(folder)["targets"]
    assert [t["name"] for t in others] == FULL
    assert ("error" in last, result.exit_code) in ((True, 2), (False, 0))


def test_nothing_could_be_estimated(gd, logs):
    args = ("estimate", "m.gdscore", "logs/2026-02-01.parquet", "empty.npz", "--json", "out.json", "--html", "r.html")
    result = gd(*args)
    assert result.exit_code == 2
    assert result.stderr.startswith("gdscore: none of 2 targets is estimated, and there is no report: ")
    assert [list(t) for t in read(logs)["targets"]] == [["name", "when", "error"]] * 2
    assert not (logs / "r.html").exists()


def test_many_reasons_stay_one_readable_line(gd, folder):
    for day in range(1, 8):
        np.savez(f"2026-02-0{day}.npz", logits=np.zeros((9, 3)), features=np.zeros((9, day)))
    line = refused(gd("estimate", "m.gdscore", *(f"2026-02-0{day}.npz" for day in range(1, 8)), "new.npz", "-q"))
    assert "7 of 8 targets are not estimated" in line
    assert len(line) < 1500


def test_a_single_target_is_a_plain_error(gd, logs):
    assert refused(gd("estimate", "m.gdscore", "empty.npz", "--json", "out.json")).startswith(
        "gdscore: Expected at least one row in 'empty.npz'"
    )
    assert not (logs / "out.json").exists()


def test_a_bug_stays_a_bug(gd, logs, monkeypatch):
    def broken(*args):
        raise ZeroDivisionError

    monkeypatch.setattr(gdscore.AccuracyEstimator, "estimate", broken)
    refused(gd(*ARGS, "--quiet"), code=1)
