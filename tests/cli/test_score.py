from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import gdscore
from gdscore.io import read_outputs
from tests.cli.conftest import refused

pytestmark = pytest.mark.usefixtures("folder")


def test_table_of_all_scores(gd):
    result = gd("score", "new.npz", "--reference", "val.npz")
    assert result.exit_code == 0
    table = gdscore.score_all(read_outputs("new.npz"), reference=read_outputs("val.npz"))
    for name, value in table.items():
        assert f"{value:.6g}" in next(line for line in result.stdout.splitlines() if line.split()[:1] == [name])
    assert "agreescore (needs peer_logits)" in result.stdout


def test_json_equals_the_python_api(gd):
    result = gd("score", "new.npz", "new.parquet", "--reference", "val.npz", "--json", "-")
    found = json.loads(result.stdout)["targets"]
    assert [t["name"] for t in found] == ["new.npz", "new.parquet"]  # their stems would be the same
    for target in found:
        table = gdscore.score_all(read_outputs(target["name"]), reference=read_outputs("val.npz"))
        assert target["scores"] == dict(table)
        assert target["skipped"] == table.skipped


def test_chosen_scores_only(gd, folder):
    result = gd("score", "new.npz", "--scores", "gdscore, entropy", "--json", "out.json", "--quiet")
    assert result.output == ""
    assert list(json.loads((folder / "out.json").read_text())["targets"][0]["scores"]) == ["gdscore", "entropy"]


def test_unknown_score(gd):
    assert "did you mean 'entropy'" in refused(gd("score", "new.npz", "--scores", "entropi"))


def test_warnings_go_with_the_target(gd):
    gdscore.io.write_outputs("few.npz", gdscore.Outputs(**next(read_outputs("new.npz"))[:20].arrays))
    result = gd("score", "few.npz", "new.npz", "--scores", "gdscore", "--json", "-")
    few, new = json.loads(result.stdout)["targets"]
    assert (len(few["warnings"]), new["warnings"]) == (1, [])
    assert few["warnings"][0] in gd("score", "few.npz", "--scores", "gdscore").stdout
    assert result.stderr == ""


def test_one_bad_file_discards_no_other(gd, folder):
    np.savez("bad.npz", logits=np.full((5, 10), np.nan))
    Path("worse.npz").write_bytes(b"no npz")
    result = gd("score", "new.npz", "bad.npz", "worse.npz", "missing.npz", "--json", "out.json")
    line = refused(result, code=1)
    assert all(name in line for name in ("bad", "worse", "missing"))
    new, *failed = json.loads((folder / "out.json").read_text())["targets"]
    assert new["scores"] == dict(gdscore.score_all(read_outputs("new.npz")))
    assert [set(t) for t in failed] == [{"name", "when", "error"}] * 3


def test_a_failing_score_discards_no_other_target(gd, monkeypatch):
    def broken(stream, real=gdscore.scores.score_all, **options):
        if len(rows := gdscore.Outputs.concatenate(list(stream))) == 140:
            raise np.linalg.LinAlgError("SVD did not converge")
        return real(rows, **options)

    monkeypatch.setattr("gdscore.scores.score_all", broken)
    result = gd("score", "other.npz", "new.npz", "--json", "-")
    assert result.exit_code == 1
    other, new = json.loads(result.stdout)["targets"]
    assert "LinAlgError" in other["error"]
    assert new["scores"]


@pytest.mark.parametrize("args", [("",), ("new.npz", "--scores", ""), ("new.npz", "--scores", " , "), ("new.npz", "")])
def test_empty_names_are_refused(gd, args):
    refused(gd("score", *args))


def test_folder_is_one_target_for_each_date(gd):
    found = json.loads(gd("score", "logs", "--json", "-").stdout)["targets"]
    assert [t["when"] for t in found] == ["2026-01-29T00:00:00", "2026-01-30T00:00:00", "2026-01-31T05:00:00"]


def test_does_not_write_over_its_input(gd, folder):
    before = (folder / "new.npz").read_bytes()
    assert "is one of them" in refused(gd("score", "new.npz", "--json", "new.npz"))
    assert (folder / "new.npz").read_bytes() == before
