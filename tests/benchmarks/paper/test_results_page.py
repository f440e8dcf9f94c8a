"""The page of results: what stands beside the paper, and that cells which are missing or partial leave no hole."""

import shutil

import pytest

from benchmarks import RESULTS, ROOT
from benchmarks.paper import tables
from benchmarks.paper.results_page import results_blocks
from tests.benchmarks.paper.test_tables import SETS, made, write

TRAINED = {"data": "cifar10", "split": "train", "epochs": 16, "validation_accuracy": 0.9, "seconds": 80}
LAYERS = ("block1", "block2", "block3", "last", "all")


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
    return results_blocks(rows, chosen, cells, results)


def test_without_cells(results):
    found = blocks(results)
    assert found["beside"].count("\n") == 3, "the head alone, and what was not run"
    assert "CIFAR-10, ResNet-18 (trained, 5 s an epoch); CIFAR-10, ResNet-50;" in found["beside"]
    assert found["vit"] == found["adapted"] == found["crossed"] == found["options"] == found["calibration"] == ""


def test_epochs_of_a_cell_that_was_not_run_are_expected_from_smaller_images(results):
    write(results / "training.csv", [TRAINED | {"data": "cifar100", "network": "resnet50", "seed": 0}])
    assert "Tiny-ImageNet, ResNet-50 (expected 42 s an epoch; CIFAR-100 took 5 s)" in blocks(results)["beside"]


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
        f"{published['r2'] - 0.971:+.3f} | {deployed['r2']:.3f} ({-deployed['rho']:.3f}) | "
        f"{deployed['r2'] - published['r2']:+.3f} |"
    ).replace("| -", "| −")
    assert second.startswith("| CIFAR-100, ResNet-50 | – | 15 |  | – |")
    assert third.endswith("| – |  |"), "not deployed yet"
    assert missing.startswith("Not run: CIFAR-10, ResNet-50;")
    assert "`cott` | " in found["scores_in_short"]


@pytest.mark.parametrize("parts", ["layers", "deployed", "layers deployed"])
def test_a_transformer_as_far_as_it_was_run(results, parts):
    rows = [row | {name: row["gdscore"] * (k + 1) for k, name in enumerate(LAYERS)} for row in made(SETS)]
    if "layers" in parts:
        kept = ("set", "family", "severity", "n", "accuracy", *LAYERS)
        write(results / "ablations" / "layers" / "cifar10-vit.csv", [{key: row[key] for key in kept} for row in rows])
    if "deployed" in parts:
        write(results / "cells" / "deployed" / "cifar10-vit.csv", made(SETS))
    found = blocks(results)
    assert "six blocks, width 256, trained from scratch on CIFAR-10" in found["vit"]
    assert ("16 epochs, 90.0 %" in found["vit"]) == ("deployed" not in parts), "else it is in the first table"
    assert ("| 1–2 | 3–4 | 5–6 | last layer | all |" in found["vit"]) == ("layers" in parts)
    assert (", 15 sets." in found["vit"]) == ("deployed" in parts)
    assert ("| CIFAR-10, ViT | 16, 90.0 | 15 |  | as deployed |" in found["beside"]) == ("deployed" in parts)
    assert ("CIFAR-10, ViT (trained" in found["beside"]) == ("deployed" not in parts)


def test_the_page_has_every_block_once(results):
    text = (ROOT / "docs" / "results.md").read_text()
    for name in set(blocks(results)) - {"forms"}:
        assert text.count(f"<!-- {name}:begin -->") == text.count(f"<!-- {name}:end -->") == 1, name
