"""Tables: their numbers against SciPy and scikit-learn, pooling, refused sets and signs, and what is committed."""

import csv
import re

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import LeaveOneGroupOut, cross_val_predict

from benchmarks import RESULTS
from benchmarks.paper import tables
from benchmarks.paper.relation import constant_error, group_of, preferred, relation
from benchmarks.row_files import read

FEW = {"seed": 0, "commit": "abc", "device": "cpu", "command": "x"}


def write(file, rows):
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def made(sets, *, seed=0, sign=-1.0):
    """Rows whose gdscore falls with accuracy in a noisy line, and whose nuclear norm is refused once."""
    rng = np.random.default_rng(seed)
    rows = [{"set": "unshifted", "family": "unshifted", "severity": 0, "n": 10, "accuracy": 0.99, "gdscore": 5.0}]
    rows[0] |= {"nuclear": 0.1, "cott": 1.0, "ece": 0.1} | FEW
    for index, (name, family) in enumerate(sets):
        accuracy = rng.uniform(0.2, 0.9)
        row = {"set": name, "family": family, "severity": 1, "n": 10, "accuracy": accuracy}
        row |= {"gdscore": 1e9 * (2 + sign * accuracy + 0.1 * rng.normal())}
        rows.append(row | {"nuclear": "nan" if index == 1 else accuracy, "cott": accuracy**2, "ece": 0.2} | FEW)
    return rows


SETS = [(f"{family}-{k}", family) for family in ("fog", "blur", "noise") for k in range(5)]


def test_against_other_libraries():
    rows = [row for row in made(SETS) if row["family"] != "unshifted"]
    x, y, families = (np.array([row[key] for row in rows]) for key in ("gdscore", "accuracy", "family"))
    found = relation(x, y, families)
    assert found["r2"] == pytest.approx(pearsonr(x, y)[0] ** 2)
    assert found["rho"] == pytest.approx(spearmanr(x, y)[0])
    line = cross_val_predict(LinearRegression(), x[:, None] / 1e9, y, groups=families, cv=LeaveOneGroupOut())
    assert found["mae"] == pytest.approx(100 * np.abs(line - y).mean())
    assert (found["sets"], found["refused"]) == (15, 0)


def test_too_few_or_constant_sets_have_no_number():
    assert np.isnan(relation([1, 2], [0.1, 0.2], ["a", "b"])["r2"])
    assert np.isnan(relation([1, 1, 1, 1], [0.1, 0.2, 0.3, 0.4], list("abcd"))["rho"])
    three = relation([1, 2, 4], [0.1, 0.2, 0.3], list("abc"))
    assert three["r2"] == pytest.approx(pearsonr([1, 2, 4], [0.1, 0.2, 0.3])[0] ** 2)
    assert np.isnan(three["mae"]), "a line through the two others would say nothing"


def test_error_without_a_score():
    rows = [{"accuracy": a, "family": f} for a, f in ((0.2, "fog"), (0.4, "fog"), (0.9, "blur"), (0.7, "noise"))]
    expected = 100 * np.mean([0.8 - 0.2, 0.8 - 0.4, 0.9 - 1.3 / 3, 0.7 - 0.5])
    assert constant_error(rows) == pytest.approx(expected)
    assert np.isnan(constant_error(rows[:2])), "there is no other family"


def test_the_larger_network_is_told_of():
    assert preferred({"cifar10-small", "cifar10-resnet18", "a"}) == "cifar10-resnet18"
    assert preferred({"cifar10-small", "a"}) == "cifar10-small"
    assert preferred({"b", "a"}) == "a"


def test_rows_and_markdown(tmp_path, capsys):
    for protocol in ("deployed", "published"):
        write(
            tmp_path / "cells" / protocol / "cifar10-resnet18.csv", made(SETS, sign=-1 if protocol == "deployed" else 1)
        )
        for seed, domain in enumerate(("photo", "sketch")):
            others = [(name, name) for name in ("photo", "sketch", "cartoon") if name != domain]
            write(tmp_path / "cells" / protocol / f"pacs-{domain}-resnet18.csv", made(others, seed=seed)[1:])
    ablation = [row | {"pseudo": row["gdscore"], "mixed": row["accuracy"]} for row in made(SETS)]
    for source in ("cifar10-resnet18", "cifar10-small"):
        write(tmp_path / "ablations" / "labels" / f"{source}.csv", ablation)
        mixed = [row | {"alpha": alpha} for alpha in ("none", 1, 0.1) for row in made(SETS, seed=len(source))]
        write(tmp_path / "ablations" / "labelshift" / f"{source}.csv", mixed)
    rows = [row | {"rows=100": row["gdscore"], "rows=100,whole": row["accuracy"]} for row in made(SETS)]
    write(tmp_path / "ablations" / "rows" / "cifar10-small.csv", rows)
    write(
        tmp_path / "ablations" / "projnorm" / "cifar10-resnet18.csv",
        [row | {"projnorm": 1 - row["accuracy"], "projnorm_seconds": 3.0} for row in made(SETS[:10])],
    )
    page = tmp_path / "page.md"
    names = ("protocols", "halves", "deployed_natural", "ablations_cifar10-small", "labelshift")
    empty = "".join(f"<!-- {name}:begin -->\n<!-- {name}:end -->\n" for name in names)
    page.write_text(f"before\n<!-- deployed:begin -->\nold\n<!-- deployed:end -->\n{empty}after\n")
    folders = ["--cells", str(tmp_path / "cells"), "--ablations", str(tmp_path / "ablations")]
    tables.main([*folders, "--output", str(tmp_path), "--pages", str(page)])

    rows = {(row["benchmark"], row["protocol"], row["method"]): row for row in read(tmp_path / "main.csv")}
    synthetic = rows["cifar10-resnet18", "deployed", "gdscore"]
    assert (synthetic["sets"], synthetic["models"], synthetic["sign"]) == (15, 1, "as documented")
    assert rows["cifar10-resnet18", "published", "gdscore"]["sign"] == "against"
    refused = rows["cifar10-resnet18", "deployed", "nuclear"]
    assert (refused["sets"], refused["refused"], refused["r2"]) == (14, 1, 1)
    pooled = rows["pacs-resnet18", "deployed", "gdscore"]
    assert (pooled["shift"], pooled["sets"], pooled["models"]) == ("natural", 4, 2)
    assert rows["cifar10-resnet18", "deployed", "projnorm"]["sets"] == 10
    crossed = rows["cifar10-resnet18", "crossed", "gdscore"]
    assert crossed["r2"] == rows["cifar10-resnet18", "published", "gdscore"]["r2"], "made with the same accuracies"
    choices = {row["choice"]: row for row in read(tmp_path / "ablations.csv") if row["ablation"] == "labels"}
    assert choices["mixed"]["r2"] == 1

    text = page.read_text()
    assert text.startswith("before\n<!-- deployed:begin -->\n| method | cifar10-resnet18, 15 |\n")
    assert text.endswith("\n<!-- labelshift:end -->\nafter\n")
    assert "<!-- deployed:end -->\n<!-- protocols:begin -->\n| benchmark |" in text
    assert "**1.000** / 1.000 / 0.0 (14 sets)" in text
    assert f"| no score | – / – / {synthetic['constant']:.1f} |" in text
    assert "<!-- deployed_natural:begin -->\n| method | pacs-resnet18, 4† |" in text
    halves = re.search(r"^\| cifar10-resnet18 \| (\d+) sets: .* \| (\d+) sets: .* %, × [\d.]+ \|$", text, re.MULTILINE)
    assert int(halves[1]) + int(halves[2]) == 15
    assert "| rows, whole | 15 | **100** 1.000 / 1.000 |" in text
    assert "<!-- labelshift:begin -->\n| cifar10-resnet18 | as corrupted, 15 |" in text
    assert "‡" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("source", "group"),
    [
        ("cifar10-resnet18", ("cifar10-resnet18", "synthetic")),
        ("cifar100sub3-resnet18", ("cifar100sub-resnet18", "subpopulation")),
        ("pacs-art_painting-resnet18", ("pacs-resnet18", "natural")),
        ("pacs128-art_painting-lite1", ("pacs128-lite1", "natural")),
        ("mnistm-small", ("digits-small", "natural")),
        ("ucidigits-small", ("ucidigits-small", "synthetic")),
    ],
)
def test_sources_with_few_targets_are_pooled(source, group):
    assert group_of(source) == group


@pytest.mark.skipif(not (RESULTS / "main.csv").exists() or not any(RESULTS.glob("cells/*/*.csv")), reason="no results")
def test_committed_tables_are_those_of_the_committed_rows(tmp_path):
    tables.main(["--output", str(tmp_path), "--pages"])
    for name in ("main.csv", "ablations.csv"):
        assert (tmp_path / name).read_text() == (RESULTS / name).read_text(), name
