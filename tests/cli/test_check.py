"""``gdscore check`` against `gdscore.models.check`, on small photos and on npz files of images."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

import gdscore
from tests.cli.conftest import refused

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("folder", "own_modules", "one_thread")
QUICK = ("--steps", "2", "--batch-size", "8")


def test_it_is_the_python_api(gd, folder):
    result = gd("check", "network:load", "photos", "photos/dog", *QUICK, "--json", "c.json", "--rows", "right.csv")
    assert result.exit_code == 0, result.output
    assert "accurate, between" in result.stdout
    import network

    model, preprocess = network.load()
    from PIL import Image

    def loaded(paths):
        return torch.stack([preprocess(Image.open(path)) for path in sorted(paths)])

    x = loaded((folder / "photos").rglob("*.png"))
    y = torch.arange(3).repeat_interleave(12)
    target = loaded((folder / "photos" / "dog").glob("*.png"))
    c = gdscore.models.check(model, [(x, y)], [target], steps=2, batch_size=8, progress=False)
    found = json.loads((folder / "c.json").read_text())
    assert found["estimate"]["accuracy"] == pytest.approx(c.estimate.accuracy, abs=1e-5)
    assert found["estimate"]["method"] == "check"
    with (folder / "right.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == [f"{i:02}.png" for i in range(12)]
    np.testing.assert_allclose([float(row["right"]) for row in rows], c.right, atol=1e-5)


def test_classes_have_their_names_and_a_mix_and_a_report(gd, folder):
    args = ("check", "network:load", "photos", "photos/dog", *QUICK, "--html", "r.html", "--json", "c.json")
    result = gd(*args, "--class-mix", "0.1,0.8,0.1")
    assert result.exit_code == 0, result.output
    names = sorted(path.name for path in (folder / "photos").iterdir())
    found = json.loads((folder / "c.json").read_text())["estimate"]
    assert [entry["name"] for entry in found["per_class"]] == names
    assert found["class_mix"] == "given"
    page = (folder / "r.html").read_text()
    assert all(name in page for name in ("check network", *names))


def test_arrays_and_a_kept_calibration(gd, folder):
    rng = np.random.default_rng(0)
    np.savez(
        folder / "train.npz", images=rng.integers(0, 256, (40, 16, 16, 3), dtype=np.uint8), labels=np.arange(40) % 3
    )
    np.savez(folder / "new.npz", images=rng.integers(0, 256, (20, 3, 16, 16), dtype=np.uint8))
    args = ("check", "network:load", "train.npz", "new.npz", *QUICK, "--calibration", "kept.json", "--json")
    first = gd(*args, "first.json")
    assert first.exit_code == 0, first.output
    kept = json.loads((folder / "kept.json").read_text())
    assert [entry["family"] for entry in kept] == ["snow", "elastic_transform", "glass_blur", "frost"]
    (folder / "kept.json").write_text(json.dumps(kept[:2]))
    assert gd(*args, "second.json").exit_code == 0
    assert json.loads((folder / "second.json").read_text())["calibration"] == kept[:2]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("photos/dog", "photos/cat"), "batch 0 has no labels"),
        (("photos", "missing"), "Expected a folder of images, but 'missing' is none"),
        (("photos", "val.npz"), "Expected `images` of 8 bits"),
        (("photos", "photos/cat", "--normalize", "a", "1"), "numbers joined by commas, but got 'a'"),
        (("photos", "photos/cat", "--calibration", "network.py"), "Expected what --calibration wrote in 'network.py'"),
        (("photos", "photos/cat", "--json", "a", "--rows", "a"), "Expected different files for --rows and --json"),
        (("photos", "photos/cat", "--html", "a.txt"), "Expected an output that ends in .html"),
        (
            ("photos", "photos/cat", "--class-mix", "0.5,x"),
            "Expected shares such as 0.2,0.8 or fraud=0.01:0.03 as --class-mix",
        ),
        (("photos", "photos/cat", "--class-mix", "0.5,0.5"), "Expected `class_mix`"),
    ],
)
def test_mistakes_are_one_line(gd, folder, args, message):
    before = sorted(path.name for path in folder.iterdir())
    assert message in refused(gd("check", "network:load", *args, *QUICK))
    assert sorted(path.name for path in folder.iterdir() if path.name != "__pycache__") == [
        name for name in before if name != "__pycache__"
    ]


@pytest.mark.parametrize("how", ["cut", "flipped", "npy", "labels"])
def test_damaged_arrays_are_one_line(gd, folder, how):
    images = np.zeros((30, 16, 16, 3), dtype=np.uint8)
    np.savez(folder / "x.npz", images=images, labels=np.arange(40 if how == "labels" else 30) % 3)
    raw = bytearray((folder / "x.npz").read_bytes())
    if how == "cut":
        raw = raw[:-100]
    elif how == "flipped":
        raw[500] ^= 255
    (folder / "x.npz").write_bytes(raw)
    if how == "npy":
        np.save(folder / "x.npy", images)
        (folder / "x.npy").replace(folder / "x.npz")
    message = "a label for each of the 30 images" if how == "labels" else "Expected 'x.npz' to be an .npz of arrays"
    assert message in refused(gd("check", "network:load", "x.npz", "photos/cat", *QUICK))
