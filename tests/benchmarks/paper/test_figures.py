"""Figures: each from its files by one command, the same bytes each time, and small."""

import pytest

from benchmarks import ROOT
from benchmarks.paper import figures, tables
from tests.benchmarks.paper.test_tables import SETS, made, write

PAGE = ROOT / "docs" / "results.md"


@pytest.fixture
def folders(tmp_path):
    rows = [row | {"confscore": row["accuracy"], "cott": row["accuracy"], "gradnorm": 1.0} for row in made(SETS)]
    for row, severity in zip(rows[1:], [1, 2, 3, 4, 5] * 3, strict=True):
        row["severity"] = severity
    for protocol in ("deployed", "published"):
        write(tmp_path / "cells" / protocol / "cifar10-resnet18.csv", rows)
        write(tmp_path / "cells" / protocol / "cifar100sub0-resnet18.csv", [*rows, rows[1] | {"severity": 0}])
        for domain, others in (("photo", "sketch cartoon"), ("sketch", "photo cartoon")):
            pairs = made([(name, name) for name in others.split()])[1:]
            own = [row | {"cot": row["accuracy"], "severity": 0} for row in pairs]
            write(tmp_path / "cells" / protocol / f"pacs128-{domain}-lite0.csv", own)
        write(tmp_path / "cells" / protocol / "mnist-small.csv", made([("usps", "usps"), ("mnistm", "mnistm")]))
    values = {
        "labels": ["mixed", "pseudo"],
        "losses": ["entropy"],
        "norms": ["p=0.3", "p=inf"],
        "thresholds": ["tau=0.5"],
        "batches": ["batch=128", "batch=None"],
        "rows": ["rows=100", "rows=100,whole"],
        "order": ["shuffled", "sorted"],
        "layers": ["block1", "last"],
    }
    for name, columns in values.items():
        write(
            tmp_path / "ablations" / name / "cifar10-resnet18.csv",
            [row | {column: row["gdscore"] + k for k, column in enumerate(columns)} for row in made(SETS)],
        )
    more = [row | {"p=0.3": row["accuracy"], "p=inf": row["gdscore"]} for row in made(SETS)]
    write(tmp_path / "ablations" / "norms" / "cifar100-resnet18.csv", more)
    mixed = [row | {"alpha": alpha} for alpha in ("none", 1, 0.1) for row in made(SETS)]
    write(tmp_path / "ablations" / "labelshift" / "cifar10-resnet18.csv", mixed)
    given = ["--cells", str(tmp_path / "cells"), "--ablations", str(tmp_path / "ablations")]
    tables.main([*given, "--output", str(tmp_path), "--pages"])
    return [*given, "--tables", str(tmp_path)]


def test_all_of_them_twice_the_same(folders, tmp_path):
    for name in ("one", "two"):
        figures.main([*folders, "--output", str(tmp_path / name)])
    first, second = ({file.name: file.read_bytes() for file in (tmp_path / name).iterdir()} for name in ("one", "two"))
    assert set(first) == {f"results-{name}.svg" for name in figures.FIGURES}
    assert first == second


def test_an_unknown_figure_names_those_there_are(folders, capsys):
    with pytest.raises(SystemExit):
        figures.main(["scater", *folders])
    assert "scatter" in capsys.readouterr().err


def test_committed_figures_are_small():
    for name in figures.FIGURES:
        assert (ROOT / "docs" / "images" / f"results-{name}.svg").stat().st_size < 160 * 1024
