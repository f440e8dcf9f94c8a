"""The table of trained networks: a line a record, and the committed one has every network of the committed cells."""

import json

import pytest

from benchmarks import RESULTS

pytest.importorskip("torch")
from benchmarks.models import training_table
from benchmarks.models.sources import SOURCES
from benchmarks.row_files import read

RECIPE = {"data": "mnist", "split": "train", "network": "small", "epochs": 3, "rows": 500, "validation": 100}
RECIPE |= {"batch": 128, "rate": 0.1, "augment": "none", "size": 32}


def test_a_line_a_record(tmp_path, capsys):
    for seed, more in ((0, {}), (1, {"optimizer": "adamw", "schedule": "cosine"})):
        record = {"recipe": RECIPE | {"seed": seed} | more, "validation_accuracy": 0.98765, "seconds": 12.5}
        (tmp_path / f"mnist-small-seed{seed}.json").write_text(json.dumps(record | {"device": "cpu"}))
    (tmp_path / "other.json").write_text("{}")
    training_table.main([str(tmp_path), "--output", str(tmp_path / "training.csv")])
    assert "2 networks" in capsys.readouterr().out
    first, second = read(tmp_path / "training.csv")
    assert (first["optimizer"], first["schedule"]) == ("sgd", "onecycle"), "what records of the defaults leave out"
    assert (second["optimizer"], second["schedule"], second["seed"]) == ("adamw", "cosine", 1)
    assert (first["validation_accuracy"], first["seconds"], first["rows"]) == (0.9877, 12.5, 500)


def test_networks_of_other_folders_stay(tmp_path):
    for name, data in (("first", "mnist"), ("second", "usps"), ("again", "mnist")):
        (tmp_path / name).mkdir()
        recipe = RECIPE | {"data": data, "seed": 0, "epochs": len(name)}
        record = {"recipe": recipe, "validation_accuracy": 0.5, "seconds": 1.0, "device": "cpu"}
        (tmp_path / name / f"{data}-small-seed0.json").write_text(json.dumps(record))
        training_table.main([str(tmp_path / name), "--output", str(tmp_path / "training.csv")])
    assert [(row["data"], row["epochs"]) for row in read(tmp_path / "training.csv")] == [("mnist", 5), ("usps", 6)], (
        "the last one of a name"
    )
    assert len((tmp_path / "training.csv").read_text().splitlines()) == 3


def test_an_empty_folder_is_an_error(tmp_path, capsys):
    with pytest.raises(SystemExit):
        training_table.main([str(tmp_path), "--output", str(tmp_path / "training.csv")])
    assert "no record" in capsys.readouterr().err


@pytest.mark.skipif(not (RESULTS / "training.csv").exists(), reason="no committed table")
def test_committed_cells_have_their_networks():
    rows = {(row["data"], row["split"], row["network"], row["seed"]): row for row in read(RESULTS / "training.csv")}
    for file in (RESULTS / "cells" / "deployed").glob("*.csv"):
        source = SOURCES[file.stem]
        for seed in (0, 1):
            row = rows[source.data, source.split, source.network, seed]
            for key in ("epochs", "batch", "rate", "augment"):
                assert row[key] == source.recipe[key], (file.stem, key)
