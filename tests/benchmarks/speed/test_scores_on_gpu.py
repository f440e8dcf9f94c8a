"""The benchmark of real networks runs, in small, on any machine."""

import json

import pytest

torch = pytest.importorskip("torch")
from benchmarks.speed import scores_on_gpu  # noqa: E402

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.filterwarnings("ignore::gdscore.GdscoreWarning")]


def test_it_runs_and_keeps_what_it_measures(tmp_path, capsys):
    file = tmp_path / "made" / "speed.json"
    scores_on_gpu.main(["--small", "--repeats", "1", "--output", str(file)])
    result = json.loads(file.read_text())
    assert json.loads(capsys.readouterr().out) == result
    assert set(result["ratio_to_forward"]) == {"extract", "gdscore", "all", "released"}
    assert min(result["forward_seconds"], result["projnorm_seconds"], result["ratio_to_forward"]["gdscore"]) > 0
    assert {"gdscore", "frechet", "nuclear", "cot", "atc"} <= set(result["scores"])
