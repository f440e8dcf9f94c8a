"""`make bench-small` in a smaller size: cells, ablations, tables and figures end to end on real digits."""

import csv

import pytest

torch = pytest.importorskip("torch")

from benchmarks.models.networks import network  # noqa: E402
from benchmarks.paper import cells, small  # noqa: E402
from tests.benchmarks.small_digits import small_source  # noqa: E402

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.filterwarnings("ignore::gdscore.GdscoreWarning")]
TINY = ["--rows", "130", "--severities", "1", "5", "--corruptions", "fog", "contrast"]
TINY += ["--ablations", "labels", "order", "--jobs", "1"]


def rows_of(file):
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def test_bench_small_and_going_on_where_it_stopped(tmp_path, monkeypatch, capsys):
    small_source(tmp_path, monkeypatch)
    out = tmp_path / "out"
    small.main([*TINY, "--figures", "scatter", "choices", "--output", str(out)])

    names = ["unshifted", "fog-1", "fog-5", "contrast-1", "contrast-5"]
    for part in ("deployed", "published"):
        rows = rows_of(out / "cells" / part / "ucidigits-small.csv")
        assert [row["set"] for row in rows] == names
        command = "python -m benchmarks.paper.cells run ucidigits-small --rows 130 --severities 1 5"
        assert all(row["commit"] and row["device"] == "cpu" and row["command"] == command for row in rows)
    assert [row["set"] for row in rows_of(out / "ablations" / "labels" / "ucidigits-small.csv")] == names
    methods = {row["method"] for row in rows_of(out / "main.csv") if row["protocol"] == "deployed"}
    assert {"gdscore", "rotation", "agreescore", "nuclear", "cott", "confscore@T"} <= methods
    assert {file.name for file in (out / "figures").iterdir()} == {"results-scatter.svg", "results-choices.svg"}

    # A row that is missing is made again, with the same numbers, and no other.
    file = out / "cells" / "deployed" / "ucidigits-small.csv"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:-1]))
    done = []
    monkeypatch.setattr(
        cells.Rows, "add", lambda self, row, add=cells.Rows.add: (done.append(row["set"]), add(self, row))
    )
    small.main([*TINY, "--figures", "--output", str(out)])
    assert done == ["contrast-5"]
    assert file.read_text().splitlines(keepends=True) == lines
    assert "ucidigits-small deployed: 1 sets" in capsys.readouterr().out


def test_train_mode_changes_nothing_in_a_transformer():
    model, x = network("vit", 10), torch.rand(6, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        trained, deployed = model.train()(x), model.eval()(x)
    assert torch.equal(trained, deployed), "why there is no published part of it"
    assert not cells.has_batchnorm(model)
    assert cells.has_batchnorm(network("small", 10))


def test_rows_of_a_cell_name_what_made_them(monkeypatch, tmp_path):
    monkeypatch.setenv("GDSCORE_COMMIT", "abc1234")
    rows = cells.Rows(tmp_path / "a" / "b.csv", {"commit": cells.commit()})
    rows.add({"set": "one", "accuracy": 0.123456789})
    assert rows_of(tmp_path / "a" / "b.csv") == [{"set": "one", "accuracy": "0.1234568", "commit": "abc1234"}]
    assert cells.Rows(tmp_path / "a" / "b.csv", {}).seen == {"one"}
