"""Published archives of corrupted images: the arrays of CIFAR-*-C and the folders of (Tiny-)ImageNet-C."""

import numpy as np
import pytest

from benchmarks.data.images import corrupted_archive
from tests.benchmarks.made_images import grey, picture


@pytest.fixture
def cifar(tmp_path):
    """Three images at five severities."""
    np.save(tmp_path / "fog.npy", picture((15, 4, 4, 3)))
    np.save(tmp_path / "labels.npy", np.tile(np.array([7, 0, 2], dtype=np.uint8), 5))
    return tmp_path


def test_arrays(cifar):
    for severity in range(1, 6):
        images, labels = corrupted_archive(cifar, "fog", severity)
        assert images.shape == (3, 3, 4, 4)
        assert images.dtype == np.uint8
        assert images.flags.c_contiguous
        assert labels.dtype == np.int64
        assert labels.tolist() == [7, 0, 2]
        np.testing.assert_array_equal(images[1].transpose(1, 2, 0), picture((15, 4, 4, 3))[3 * severity - 2])
    images[:] = 0
    np.testing.assert_array_equal(np.load(cifar / "fog.npy"), picture((15, 4, 4, 3)))


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("fog", np.zeros((14, 4, 4, 3), np.uint8), r"5n×H×W×3 in fog\.npy.*uint8 of \(14, 4, 4, 3\)"),
        ("fog", np.zeros((15, 3, 4, 4), np.uint8), r"of \(15, 3, 4, 4\)"),
        ("fog", np.zeros((15, 4, 4, 3)), "but got float64"),
        ("labels", np.zeros(10, np.uint8), r"Expected 15 labels .* shape \(10,\)"),
        ("fog", np.array([{}], dtype=object), "Python objects"),
    ],
)
def test_arrays_that_are_not_the_archive_s(cifar, name, values, message):
    np.save(cifar / f"{name}.npy", values, allow_pickle=True)
    with pytest.raises(ValueError, match=message):
        corrupted_archive(cifar, "fog", 1)


def test_what_is_not_there(cifar):
    for severity in (0, 6, "3"):
        with pytest.raises(ValueError, match=f"severity of 1 to 5, but got {severity!r}"):
            corrupted_archive(cifar, "fog", severity)
    with pytest.raises(FileNotFoundError, match=r"Expected snow\.npy or a folder snow .*\(there: fog\)"):
        corrupted_archive(cifar, "snow", 1)
    (cifar / "labels.npy").unlink()
    with pytest.raises(FileNotFoundError, match=r"labels\.npy beside fog\.npy"):
        corrupted_archive(cifar, "fog", 1)
    with pytest.raises(FileNotFoundError, match="there: nothing"):
        corrupted_archive(cifar / "nowhere", "fog", 1)


@pytest.mark.parametrize("place", ["", "weather"])
def test_folders(tmp_path, place):
    for severity in (1, 2):
        for k, wnid in enumerate(["n02", "n01"]):
            grey(tmp_path / place / "fog" / str(severity) / wnid / f"val_{k}.JPEG", 100 * severity + k, size=10)
    images, labels = corrupted_archive(tmp_path, "fog", 2)
    assert images.shape == (2, 3, 10, 10)
    assert images[:, 0, 0, 0].tolist() == [201, 200]
    assert labels.tolist() == [0, 1]
    # Labels follow the classes of the data set, whatever order those are in.
    images, labels = corrupted_archive(tmp_path, "fog", 1, classes=["n02", "n01"], size=6)
    assert images.shape == (2, 3, 6, 6)
    assert dict(zip(images[:, 0, 0, 0].tolist(), labels.tolist(), strict=True)) == {100: 0, 101: 1}
    with pytest.raises(ValueError, match=r"each of the 2 classes .* differ in \['n02', 'n03'\]"):
        corrupted_archive(tmp_path, "fog", 1, classes=["n01", "n03"])
    with pytest.raises(ValueError, match=r"Expected the folder .*3, but it does not exist"):
        corrupted_archive(tmp_path, "fog", 3)
    (tmp_path / place / "fog" / "1" / "n01" / "val_1.JPEG").unlink()
    with pytest.raises(ValueError, match="n01, but it holds none"):
        corrupted_archive(tmp_path, "fog", 1)
    (tmp_path / place / "fog" / "2" / "n01" / "val_1.JPEG").write_bytes(b"")
    with pytest.raises(ValueError, match=r"decodes, but got .*val_1\.JPEG"):
        corrupted_archive(tmp_path, "fog", 2)
