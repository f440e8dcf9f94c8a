from __future__ import annotations

import json
import subprocess
import sys

import pytest

from benchmarks import ROOT


def test_small_sizes(tmp_path):
    pytest.importorskip("pyarrow")
    sizes = ["--rows", "3000", "--features", "8", "--classes", "3", "--reference", "100"]
    output = tmp_path / "results" / "bigfile.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.speed.bigfile", *sizes, "--folder", str(tmp_path), "--output", str(output)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(output.read_text())
    assert result["n_rows"] == result["rows"] == 3000
    assert 0 < result["peak_mb"] < result["bound_mb"]
    assert "3,000 rows" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["results"]  # the large file is gone
