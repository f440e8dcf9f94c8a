from __future__ import annotations

import json

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
        assert f"{value:.6g}" in next(line for line in result.stdout.splitlines() if f" {name} " in line)
    assert "agreescore (needs peer_logits)" in result.stdout


def test_json_equals_the_python_api(gd):
    result = gd("score", "new.npz", "new.parquet", "--reference", "val.npz", "--json", "-")
    said = json.loads(result.stdout)["targets"]
    assert [t["name"] for t in said] == ["new.npz", "new.parquet"]  # their stems would be the same
    for target in said:
        table = gdscore.score_all(read_outputs(target["name"]), reference=read_outputs("val.npz"))
        assert target["scores"] == dict(table)
        assert target["skipped"] == table.skipped


def test_chosen_scores_only(gd, folder):
    result = gd("score", "new.npz", "--scores", "gdscore, entropy", "--json", "out.json", "--quiet")
    assert result.output == ""
    assert list(json.loads((folder / "out.json").read_text())["targets"][0]["scores"]) == ["gdscore", "entropy"]


def test_unknown_score(gd):
    assert "did you mean 'entropy'" in refused(gd("score", "new.npz", "--scores", "entropi"))


def test_cautions_are_said_with_the_target(gd):
    gdscore.io.write_outputs("few.npz", gdscore.Outputs(**next(read_outputs("new.npz"))[:20].arrays))
    result = gd("score", "few.npz", "new.npz", "--scores", "gdscore")
    assert "careful: gdscore: 20 rows do not fill one mini-batch" in result.stdout
    assert "(few)" in result.stdout
    assert result.stderr == ""


def test_folder_is_one_target_for_each_date(gd):
    said = json.loads(gd("score", "logs", "--json", "-").stdout)["targets"]
    assert [t["when"] for t in said] == ["2026-01-29T00:00:00", "2026-01-30T00:00:00", "2026-01-31T05:00:00"]


def test_does_not_write_over_its_input(gd, folder):
    before = (folder / "new.npz").read_bytes()
    assert "is one of them" in refused(gd("score", "new.npz", "--json", "new.npz"))
    assert (folder / "new.npz").read_bytes() == before
