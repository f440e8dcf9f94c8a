"""The notebooks of `examples/` run from top to bottom, and are stored with their outputs."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")
NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))
NEEDS = {"pytorch_images": ["torch"], "huggingface_text": ["torch", "transformers"], "table_in_production": ["pandas"]}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path, tmp_path, monkeypatch):
    for package in NEEDS[path.stem]:
        pytest.importorskip(package)
    # The kernel is this interpreter with this gdscore, whatever kernels are installed, and leaves nothing at home.
    monkeypatch.setenv("PYTHONPATH", ":".join(entry for entry in sys.path if entry))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = nbformat.read(path, as_version=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Jupyter's event loop
        nbclient.NotebookClient(
            notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
        ).execute()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_notebook_is_small_and_has_its_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert path.stat().st_size < 100_000
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not any(output.output_type == "error" for cell in cells for output in cell.outputs)
