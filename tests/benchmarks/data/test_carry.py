"""Packed data sets shrunk and expanded again."""

import numpy as np
import pytest

from benchmarks.data import carry
from benchmarks.data import images as datasets
from benchmarks.data.packed import write


def smooth(n, size, seed=0, *, grey=False):
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (n, 1 if grey else 3, size // 8, size // 8), dtype=np.uint8)
    images = coarse.repeat(8, axis=2).repeat(8, axis=3)
    return np.broadcast_to(images, (n, 3, size, size)).copy()


def packed(folder, name, images):
    folder.mkdir(exist_ok=True)
    write(folder / f"{name}.npz", images, images.shape[1:], np.arange(len(images)) % 3, ["a", "b", "c"])


@pytest.mark.parametrize("grey", [False, True])
def test_expanded_is_what_was_shrunk(tmp_path, grey):
    # More than one strip, the last not full.
    images = smooth(100, 32, grey=grey)
    packed(tmp_path / "here", "made-train", images)
    (file,) = carry.shrink(["made"], tmp_path / "carried", folder=tmp_path / "here")
    assert file.stat().st_size < images.nbytes / 4
    (back,) = carry.expand(tmp_path / "carried", to=tmp_path / "there")
    assert back.name == "made-train.npz"
    found, labels = datasets.load("made", "train", folder=tmp_path / "there")
    assert labels.tolist() == (np.arange(100) % 3).tolist()
    assert datasets.class_names("made", folder=tmp_path / "there") == ["a", "b", "c"]
    assert np.abs(found.astype(int) - images).max() <= 6


def test_png_where_smaller_is_exact(tmp_path):
    images = np.zeros((70, 3, 32, 32), dtype=np.uint8)
    images[np.arange(70), :, np.arange(70) % 32, 5] = 255
    packed(tmp_path / "here", "made-test", images)
    carry.shrink(["made"], tmp_path / "carried", folder=tmp_path / "here")
    carry.expand(tmp_path / "carried", to=tmp_path / "there")
    np.testing.assert_array_equal(datasets.load("made", "test", folder=tmp_path / "there")[0], images)


def test_rows_and_splits_are_chosen(tmp_path):
    for split in ("train", "test", "other"):
        packed(tmp_path / "here", f"made-{split}", smooth(30, 16))
    given = {"rows": {"train": 12}, "splits": ["train", "test"]}
    carry.shrink(["made"], tmp_path / "carried", folder=tmp_path / "here", **given)
    files = carry.expand(tmp_path / "carried", to=tmp_path / "there")
    assert [file.name for file in files] == ["made-test.npz", "made-train.npz"]
    rows = [len(datasets.load("made", split, folder=tmp_path / "there")[1]) for split in ("train", "test")]
    assert rows == [12, 30]


def test_pacs_is_made_at_half_the_size(tmp_path):
    packed(tmp_path / "here", "pacs128-photo", smooth(5, 128))
    carry.shrink(["pacs128"], tmp_path / "carried", folder=tmp_path / "here")
    carry.expand(tmp_path / "carried", to=tmp_path / "there")
    large, _ = datasets.load("pacs128", "photo", folder=tmp_path / "there")
    small, _ = datasets.load("pacs", "photo", folder=tmp_path / "there")
    assert small.shape == (5, 3, 64, 64)
    mean = large.reshape(5, 3, 64, 2, 64, 2).mean(axis=(3, 5))
    assert np.abs(small - mean).max() <= 0.5


def test_what_is_missing_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="packed splits of 'made'"):
        carry.shrink(["made"], tmp_path / "carried", folder=tmp_path)
    with pytest.raises(FileNotFoundError, match="`shrink` wrote"):
        carry.expand(tmp_path / "nothing", to=tmp_path / "there")
    packed(tmp_path / "here", "made-train", np.zeros((2, 3, 12, 12), dtype=np.uint8))
    with pytest.raises(ValueError, match="multiple of 8"):
        carry.shrink(["made"], tmp_path / "carried", folder=tmp_path / "here")
