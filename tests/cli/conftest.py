"""A folder with files of every kind, and a runner of commands in it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import gdscore
from gdscore.cli.commands import app
from tests.data import made

UNLABELLED = ("logits", "features")
LABELLED = (*UNLABELLED, "labels")

NETWORK = """
import numpy as np
import torch
from torch import nn


def load():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))
    return model, preprocess


def preprocess(image):
    pixels = np.asarray(image.convert("RGB").resize((16, 16)), dtype="float32") / 255
    return torch.from_numpy(pixels).permute(2, 0, 1)
"""


@pytest.fixture(scope="session")
def prepared(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    write = gdscore.io.write_outputs
    write(folder / "val.npz", made(200, keep=LABELLED))
    write(folder / "new.npz", made(160, keep=UNLABELLED, noise=1.5, seed=1))
    write(folder / "new.parquet", made(150, keep=UNLABELLED, noise=2, seed=2))
    write(folder / "other.npz", made(140, keep=UNLABELLED, noise=1.2, seed=3))
    (folder / "logs").mkdir()
    for i, date in enumerate(("2026-01-29", "2026-01-30", "2026-01-31T05")):
        write(folder / "logs" / f"log-{date}.parquet", made(230, keep=UNLABELLED, noise=1 + 0.3 * i, seed=4 + i))
    (folder / "shards").mkdir()
    for i in range(2):
        write(folder / "shards" / f"part-{i}.parquet", made(120, keep=UNLABELLED, noise=1.5, seed=7 + i))
    for i, family in enumerate(("noise", "scale", "turn")):
        (folder / "shifted" / family).mkdir(parents=True)
        for s in (1, 2, 3):
            out = made(130, keep=LABELLED, noise=1 + 0.3 * s, seed=10 * i + s)
            write(folder / "shifted" / family / f"{s}.npz", out)
    (folder / "network.py").write_text(NETWORK)
    sets = [gdscore.ShiftedSet(read(path), path.parent.name) for path in sorted((folder / "shifted").rglob("*.npz"))]
    gdscore.AccuracyEstimator(level=0.7).fit(read(folder / "val.npz"), shifted_sets=sets).save(folder / "m.gdscore")
    _photos(folder / "photos")
    return folder


def _photos(folder: Path) -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    for name in ("cat", "dog", "fox"):
        (folder / name).mkdir(parents=True)
        for i in range(12):
            pixels = rng.integers(0, 256, (20, 24, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{i:02}.png")


def read(path: Path) -> gdscore.Outputs:
    return gdscore.Outputs.concatenate(list(gdscore.io.read_outputs(path)))


@pytest.fixture
def folder(prepared, tmp_path, monkeypatch) -> Path:
    """Copy of the prepared files as the current folder."""
    here = tmp_path / "here"
    shutil.copytree(prepared, here)
    monkeypatch.chdir(here)
    return here


@pytest.fixture
def gd():
    """Run a command line in this process."""

    def run(*args: str):
        return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="gdscore")

    return run


def refused(result, code: int = 2) -> str:
    """Check that a command ended in one line on standard error, and return it."""
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("gdscore: ")
    return result.stderr


@pytest.fixture
def own_modules(monkeypatch):
    """Modules of the test's folder are found there and nowhere else."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("network", None)
