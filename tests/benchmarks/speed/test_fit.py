"""The benchmark of fits runs, in small, on any machine."""

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
from benchmarks.speed import fit  # noqa: E402
from gdscore import shifts  # noqa: E402

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.filterwarnings("ignore::gdscore.GdscoreWarning")]


def test_it_runs_and_keeps_what_it_measures(tmp_path):
    file = tmp_path / "fit_speed.json"
    result = fit.main(["--small", "--output", str(file)])
    assert json.loads(file.read_text()) == result
    assert set(result["corruptions"]["ms"]) == set(shifts.corruption_names())
    (row,) = result["fits"]
    assert row["shifted_sets"] == 6
    assert row["fit_seconds"] > 0


def test_committed_numbers_name_their_device():
    for path in Path(fit.RESULTS).glob("fit_speed_*.json"):
        result = json.loads(path.read_text())
        assert result["device"]
        assert all(row["ratio"] > 0 for row in result["fits"])
