from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gdscore
from tests.cli.conftest import read, refused

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("folder", "own_modules")


def directly(paths, network) -> gdscore.Outputs:
    from PIL import Image

    model, preprocess = network.load()
    batch = torch.stack([preprocess(Image.open(path)) for path in paths])
    (outputs,) = gdscore.models.extract(model, [batch])
    return outputs.to_numpy()


@pytest.mark.parametrize("suffix", ["npz", "parquet"])
def test_class_folders_equal_the_python_api(gd, folder, suffix):
    result = gd("extract", "network:load", "photos", "-o", f"out.{suffix}", "--batch-size", "5")
    assert result.exit_code == 0, result.output
    assert "36 images of photos" in result.stdout
    out = read(folder / f"out.{suffix}")
    import network

    paths = sorted((folder / "photos").rglob("*.png"))
    expected = directly(paths, network)
    np.testing.assert_allclose(out.logits, expected.logits, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(out.features, expected.features, rtol=1e-5, atol=1e-6)
    assert out.labels.tolist() == [0] * 12 + [1] * 12 + [2] * 12
    assert out.ids.tolist() == [path.relative_to(folder / "photos").as_posix() for path in paths]


def test_flat_folder_has_no_labels(gd, folder):
    assert gd("extract", "network:load", "photos/dog", "-o", "out.npz", "--quiet").output == ""
    assert read(folder / "out.npz").has == {"logits", "features", "ids"}


def test_second_model_with_its_own_preprocessing(gd, folder):
    with (folder / "network.py").open("a") as file:
        file.write("\n\ndef dark():\n    return load()[0], lambda image: 0.1 * preprocess(image)\n")
    gd("extract", "network:load", "photos", "-o", "out.npz", "--peer", "network:dark")
    out = read(folder / "out.npz")
    gd("extract", "network:dark", "photos", "-o", "dark.npz")
    np.testing.assert_allclose(out.peer_logits, read(folder / "dark.npz").logits, rtol=1e-6)


def test_classes_by_number_and_by_file(gd, folder):
    photos = folder / "photos"
    (photos / "dog").rename(photos / "2")
    (photos / "fox").rename(folder / "away")
    assert "Expected 3 class folders in 'photos'" in refused(gd("extract", "network:load", "photos", "-o", "out.npz"))
    (folder / "names.txt").write_text("2\nfox\ncat\n")
    gd("extract", "network:load", "photos", "-o", "out.npz", "--classes", "names.txt")
    assert sorted(set(read(folder / "out.npz").labels.tolist())) == [0, 2]
    (photos / "cat").rename(photos / "0")
    gd("extract", "network:load", "photos", "-o", "numbered.npz")
    assert read(folder / "numbered.npz").labels.tolist() == [0] * 12 + [2] * 12


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["network", "photos"], "Expected module:callable"),
        (["netwrk:load", "photos"], "No module named 'netwrk'"),
        (["network:lod", "photos"], "has no attribute 'lod'"),
        (["network:__name__", "photos"], "callable"),
        (["network:preprocess", "photos"], "failed with TypeError"),
        (["network:lonely", "photos"], "to return (model, preprocess)"),
        (["network:broken", "photos"], "failed with ZeroDivisionError"),
        (["network:ragged", "photos"], "tensors of one shape"),
        (["network:load", "nowhere"], "Expected a folder of images"),
        (["network:load", "logs"], "but found none"),
        (["network:load", "stray"], "but got both"),
        (["network:load", "damaged"], "'damaged/x.png', but it cannot be read"),
        (["network:load", "photos", "--classes", "val.npz"], "--classes"),
        (["network:load", "photos", "--device", "nowhere"], "--device"),
    ],
)
def test_what_cannot_be_used(gd, folder, args, message):
    with (folder / "network.py").open("a") as file:
        file.write("\n\ndef lonely():\n    return load()[0]\n")
        file.write("\n\ndef broken():\n    return load()[0], lambda image: 1 / 0\n")
        file.write(
            "\n\ndef ragged():\n    return load()[0], lambda image: torch.zeros(3, 9, np.random.randint(9, 99))\n"
        )
    (folder / "damaged").mkdir()
    (folder / "damaged" / "x.png").write_bytes(b"\x89PNG\r\n")
    (folder / "stray" / "cat").mkdir(parents=True)
    for name in ("stray/a.png", "stray/cat/b.png"):
        (folder / name).write_bytes((folder / "photos" / "cat" / "00.png").read_bytes())
    assert message in refused(gd("extract", *args, "-o", "out.npz"))
    assert not (folder / "out.npz").exists()


def test_without_torch_says_what_to_install():
    code = "import sys; sys.modules['torch'] = None; from gdscore.cli import main; main()"
    args = [sys.executable, "-c", code, "extract", "network:load", "photos", "-o", "out.npz"]
    done = subprocess.run(args, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "pip install torch torchmetrics" in done.stderr


def test_a_threshold_decides(gd, folder):
    with (folder / "network.py").open("a") as file:
        file.write("\n\ndef two():\n    return torch.nn.Sequential(load()[0], torch.nn.Linear(3, 1)), preprocess\n")
    result = gd("extract", "network:two", "photos/cat", "-o", "out.parquet", "--threshold", "0.4")
    assert result.exit_code == 0, result.output
    out = read(folder / "out.parquet")
    assert out.decision == "threshold 0.4"
    np.testing.assert_array_equal(out.predictions, out.probabilities[:, 1] >= 0.4)
    assert "3 classes" in refused(gd("extract", "network:load", "photos", "-o", "x.npz", "--threshold", "0.4"))
    assert not (folder / "x.npz").exists()


def test_names_of_images_are_made_once(tmp_path, monkeypatch):
    """They were made anew for every block of a cluster: of ImageNet in an hour."""
    pytest.importorskip("pyarrow")
    from gdscore.cli import extract
    from gdscore.cli.images import Images

    made = []
    relative_to = Path.relative_to
    monkeypatch.setattr(Path, "relative_to", lambda *args: made.append(1) or relative_to(*args))
    monkeypatch.setattr(extract, "_BLOCKS", 20)
    paths = [tmp_path / f"{i}.png" for i in range(100)]
    for path in paths:
        path.touch()
    tables = list(extract._tables(Images(tmp_path, paths, None, None), 4))
    assert len(tables) > 10
    assert [name for table in tables for name in table.column("id").to_pylist()] == [f"{i}.png" for i in range(100)]
    assert len(made) == 100
