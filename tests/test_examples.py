"""The notebooks of `examples/` run from top to bottom, and are stored with their outputs."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from types import ModuleType

import pytest

nbformat = pytest.importorskip("nbformat")
NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))
NEEDS = {"pytorch_images": ["torch"], "huggingface_text": ["torch", "transformers"], "table_in_production": ["pandas"]}


def code_cells(path: Path) -> list:
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path, tmp_path, monkeypatch):
    """In this process, where PyTorch is imported already; `make examples` runs them in Jupyter."""
    for package in NEEDS[path.stem]:
        pytest.importorskip(package)
    plt = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.chdir(tmp_path)
    module = ModuleType("notebook")
    monkeypatch.setitem(sys.modules, "notebook", module)
    with warnings.catch_warnings(), plt.rc_context({"backend": "agg"}):
        warnings.simplefilter("ignore")
        for cell in code_cells(path):
            exec(compile(cell.source, path.name, "exec"), vars(module))
        plt.close("all")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_notebook_is_small_and_has_its_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert path.stat().st_size < 100_000
    cells = code_cells(path)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not any(output.output_type == "error" for cell in cells for output in cell.outputs)
