"""The page of results: what stands beside the paper, and that cells which are missing or partial leave no hole."""

import shutil

import pytest

from benchmarks import RESULTS, ROOT
from benchmarks.paper import tables
from benchmarks.paper.results_page import results_blocks
from tests.benchmarks.paper.test_tables import SETS, made, write

TRAINED = {"data": "cifar10", "split": "train", "epochs": 16, "validation_accuracy": 0.9, "seconds": 80}


@pytest.fixture
def results(tmp_path):
    """A folder of results with no cells yet."""
    for name in ("image_forms.csv", "speed_gpu.json"):
        shutil.copyfile(RESULTS / name, tmp_path / name)
    networks = [TRAINED | {"network": name, "seed": seed} for name in ("resnet18", "vit") for seed in (0, 1)]
    write(tmp_path / "training.csv", networks)
    return tmp_path


def blocks(results):
    cells, ablations = results / "cells", results / "ablations"
    rows, chosen = list(tables.main_rows(cells, ablations)), list(tables.ablation_rows(ablations))
    return results_blocks(rows, chosen, [], cells, results)


def test_without_cells(results):
    found = blocks(results)
    assert found["beside"].count("\n") == 3, "the head alone, and what was not run"
    assert "CIFAR-10, ResNet-18 (trained, 5 s an epoch); CIFAR-10, ResNet-50;" in found["beside"]
    assert found["adapted"] == found["crossed"] == found["options"] == ""


def test_epochs_of_a_cell_that_was_not_run_are_expected_from_smaller_images(results):
    write(results / "training.csv", [TRAINED | {"data": "cifar100", "network": "resnet50", "seed": 0}])
    assert "Tiny-ImageNet, ResNet-50 (about 42 s an epoch)" in blocks(results)["beside"]


def test_beside_the_paper(results):
    for protocol, count in (("deployed", 10), ("published", 15)):
        write(results / "cells" / protocol / "cifar10-resnet18.csv", made(SETS[:count]))
    for source, protocol in (("tiny-resnet18", "published"), ("cifar100-resnet50", "deployed")):
        write(results / "cells" / protocol / f"{source}.csv", made(SETS))
    found = blocks(results)
    main = {
        row["protocol"]: row
        for row in tables.main_rows(results / "cells", results)
        if row["method"] == "gdscore" and row["benchmark"] == "cifar10-resnet18"
    }
    published, deployed = main["published"], main["deployed"]
    _, _, first, second, third, _, missing = found["beside"].splitlines()
    assert first == (
        f"| CIFAR-10, ResNet-18 | 16, 90.0 | 15, 10 | 0.971 (0.994) | {published['r2']:.3f} ({-published['rho']:.3f}) | "
        f"{published['r2'] - 0.971:+.3f} | {deployed['r2']:.3f} ({-deployed['rho']:.3f}) | {deployed['r2'] - 0.971:+.3f} |"
    ).replace("| -", "| −")
    assert second.startswith("| CIFAR-100, ResNet-50 | – | 15 | 0.991 (0.997) | – |  |")
    assert third.endswith("| – |  |"), "not deployed yet"
    assert missing.startswith("Not run: CIFAR-10, ResNet-50;")
    assert "`cott` | " in found["scores_in_short"]


def test_a_transformer_stands_once(results):
    write(results / "cells" / "deployed" / "cifar10-vit.csv", made(SETS))
    found = blocks(results)
    assert "| CIFAR-10, ViT | 16, 90.0 | 15 |  | as deployed |  |" in found["beside"]
    assert "CIFAR-10, ViT (trained" not in found["beside"]


def test_choices_stand_beside_the_papers(results):
    taus = {"tau=0.4": 2.0, "tau=0.5": 1.0}
    rows = [row | {name: row["gdscore"] + k * row["severity"] for name, k in taus.items()} for row in made(SETS)]
    kept = ("set", "family", "severity", "n", "accuracy", *taus)
    file = results / "ablations" / "thresholds" / "cifar10-resnet18.csv"
    write(file, [{key: row[key] for key in kept} for row in rows])
    head, _, *lines = blocks(results)["thresholds"].splitlines()
    assert head.startswith("| τ | paper, CIFAR-10 | paper, Office-31 | CIFAR-10, published |")
    assert lines[5].startswith("| 0.5 | **0.972** | 0.667 | – | ")
    assert lines[4].startswith("| 0.4 | 0.971 | **0.685** | – | ")


def test_every_block_stands_once(results):
    text = "".join((ROOT / page).read_text(encoding="utf-8") for page in ("docs/results.md", "research/tables.md"))
    for name in blocks(results):
        assert text.count(f"<!-- {name}:begin -->") == text.count(f"<!-- {name}:end -->") == 1, name
