"""Tables with columns of their own names, as CSV and Parquet: the same numbers as the arrays they were made of."""

from __future__ import annotations

import json

import numpy as np
import pytest

import gdscore
from tests.cli.conftest import read, refused

pytestmark = pytest.mark.usefixtures("folder")
CLASSES = [f"c{i}" for i in range(10)]
COLUMNS = ("--probabilities", "prob_*", "--label", "truth")


def write_csv(path: str, rows: gdscore.Outputs, labels=None) -> None:
    p = np.asarray(rows.probabilities, dtype=np.float64)
    header = [f"prob_{name}" for name in CLASSES] + ["truth", "price"]
    names = ["c0"] * len(p) if labels is None else [CLASSES[k] for k in labels]
    lines = [",".join([*map(repr, map(float, row)), name, "1.5"]) for row, name in zip(p, names, strict=True)]
    with open(path, "w") as file:  # noqa: PTH123
        file.write("\n".join([",".join(header), *lines]) + "\n")


@pytest.fixture
def tables(folder):
    (folder / "sets").mkdir()
    write_csv("val.csv", read("val.npz"), read("val.npz").labels)
    write_csv("new.csv", read("new.npz"))
    for path in sorted((folder / "shifted").rglob("*.npz")):
        write_csv(f"sets/{path.parent.name}-{path.stem}.csv", read(path), read(path).labels)


def test_fit_estimate_and_score_from_csv(gd, tables):
    result = gd("fit", "val.csv", "--shifted-sets", "sets", *COLUMNS, "-o", "csv.gdscore", "--level", "0.7")
    assert result.exit_code == 0, result.output
    found = json.loads(gd("estimate", "csv.gdscore", "new.csv", *COLUMNS, "--json", "-").stdout)["targets"][0]
    rows = read("new.npz")
    alone = gdscore.Outputs(probabilities=np.asarray(rows.probabilities, dtype=np.float64))
    expected = gdscore.AccuracyEstimator.load("csv.gdscore").estimate(alone)
    assert found["accuracy"] == pytest.approx(expected.accuracy, abs=1e-6)
    assert found["truth"]["accuracy"] == float((np.asarray(rows.predictions) == 0).mean())
    scores = json.loads(gd("score", "new.csv", *COLUMNS, "--scores", "entropy", "--json", "-").stdout)["targets"][0]
    assert scores["scores"]["entropy"] == pytest.approx(gdscore.score("entropy", alone), rel=1e-6)


def test_class_names_and_lists_of_columns(gd, tables):
    listed = ",".join(f"prob_{name}" for name in CLASSES)
    args = ("--probabilities", listed, "--label", "truth", "--class-names", ",".join(CLASSES), "--scores", "confscore")
    result = gd("score", "new.csv", *args, "--json", "-")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["targets"][0]["scores"]


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (("--probabilities", "nope_*"), "nope_"),
        (("--probabilities", "prob_*", "--label", "nope"), "nope"),
        (("--probabilities", "prob_*", "--class-names", "a,b"), "2"),
        (("--logits", "prob_*", "--probabilities", "prob_*"), "both"),
    ],
)
def test_what_cannot_be_used(gd, tables, args, named):
    assert named in refused(gd("score", "new.csv", *args), code=2 if named == "both" else 1)
    assert named in refused(gd("fit", "val.csv", *args, "-o", "x.gdscore"))
