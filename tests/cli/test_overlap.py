"""An output that is one of the inputs, however it was named, is refused before anything is written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.conftest import refused


@pytest.mark.parametrize(
    "args",
    [
        ("estimate", "m.gdscore", "logs", "--json", "logs/log-2026-01-29.parquet"),
        ("estimate", "m.gdscore", "new.npz", "--html", "link.html"),
        ("estimate", "new.npz", "--method", "atc", "--reference", "val.npz", "--json", "val.npz"),
        ("estimate", "m.gdscore", "*.npz", "--json", "new.npz"),
        ("estimate", "m.gdscore", "new.npz", "--json", "link.npz"),
        ("fit", "val.npz", "--shifted-sets", "shifted", "-o", "shifted/noise/1.npz"),
        ("fit", "va*.npz", "-o", "val.npz"),
        ("score", "logs", "--json", "logs/log-2026-01-29.parquet"),
        ("score", "ne*.npz", "--json", "new.npz"),
        ("score", "new.npz", "--reference", "va*.npz", "--json", "val.npz"),
        ("extract", "network:load", "photos", "-o", "image.npz"),
        ("extract", "network:load", "photos", "--classes", "classes.npz", "-o", "classes.npz"),
    ],
    ids=" ".join,
)
def test_no_output_is_an_input(gd, folder, args):
    Path("classes.npz").write_text("cat\ndog\nfox\n")
    os.link("new.npz", "link.npz")
    os.link("new.npz", "link.html")
    Path("image.npz").symlink_to("photos/cat/00.png")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert "is one of them" in refused(gd(*args))
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
