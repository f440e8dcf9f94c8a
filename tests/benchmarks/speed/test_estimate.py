"""The benchmark of estimates beside reading runs, in small, on any machine."""

import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("pyarrow")
from benchmarks.speed import estimate


def test_it_runs_and_keeps_what_it_measures(tmp_path):
    file = tmp_path / "estimate_speed.json"
    result = estimate.main(["--rows", "5000", "--repeats", "1", "--output", str(file)])
    assert json.loads(file.read_text()) == result
    assert result["rows"] == 5000
    assert min(result["read_seconds"], result["ratio"], result["cpu_ratio"]) > 0
