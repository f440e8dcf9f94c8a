"""The benchmarks' data and training: made folders of each public layout, packed and read back; one epoch of training."""

import math

import numpy as np
import pytest

from tests.benchmarks.made_images import picture, write

torch = pytest.importorskip("torch")

from benchmarks.data import images as datasets  # noqa: E402
from benchmarks.models import train  # noqa: E402
from benchmarks.models.networks import network  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


def stripes(folder):
    """Two classes a network learns at once: bright above, bright below."""
    rng = np.random.default_rng(0)
    for row in range(64):
        image = rng.integers(0, 60, (32, 32, 3), dtype=np.uint8)
        image[:16] += np.uint8(150 * (row % 2))
        image[16:] += np.uint8(150 * (1 - row % 2))
        write(folder / "train" / ("above" if row % 2 else "below") / f"{row:03}.png", image)


def test_class_folders_round_trip(tmp_path):
    written = {
        (split, label, k): write(tmp_path / "raw" / split / name / f"{k}.png", picture((32, 32, 3), 7 * label + k))
        for split in ("train", "test")
        for label, name in enumerate(["ant", "bee", "cat"])
        for k in range(3)
    }
    (tmp_path / "raw" / ".git").mkdir()
    files = datasets.pack("made", tmp_path / "raw", folder=tmp_path)
    assert [file.name for file in files] == ["made-test.npz", "made-train.npz"]
    images, labels = datasets.load("made", "train", folder=tmp_path)
    assert images.shape == (9, 3, 32, 32)
    assert images.dtype == np.uint8
    assert labels.dtype == np.int64
    assert labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    for row in range(9):
        np.testing.assert_array_equal(images[row].transpose(1, 2, 0), written["train", row // 3, row % 3])
    assert datasets.class_names("made", folder=tmp_path) == ["ant", "bee", "cat"]
    assert not list(tmp_path.glob("*.partial"))


def test_domains_are_splits_and_images_are_resized_and_made_colour(tmp_path):
    for domain in ("photo", "sketch"):
        write(tmp_path / "PACS" / domain / "dog" / "pic_001.jpg", picture((40, 40, 3)))
        write(tmp_path / "PACS" / domain / "horse" / "n02" / "wide.JPEG", np.full((20, 60), 90, np.uint8))
    datasets.pack("pacs", tmp_path / "PACS", size=24, folder=tmp_path)
    images, labels = datasets.load("pacs", "sketch", folder=tmp_path)
    assert images.shape == (2, 3, 24, 24)
    assert labels.tolist() == [0, 1]
    assert (images[1] == 90).all()


def test_mnist_m_layout(tmp_path):
    for split in ("train", "test"):
        lines = []
        for k, label in enumerate([7, 2, 7]):
            write(tmp_path / "mnist_m" / f"mnist_m_{split}" / f"{k:08}.png", picture((32, 32, 3), k))
            lines.append(f"{k:08}.png {label}")
        (tmp_path / "mnist_m" / f"mnist_m_{split}_labels.txt").write_text("\n".join(lines) + "\n")
    datasets.pack("mnistm", tmp_path, folder=tmp_path)
    images, labels = datasets.load("mnistm", "test", folder=tmp_path)
    assert labels.tolist() == [7, 2, 7]
    np.testing.assert_array_equal(images[1].transpose(1, 2, 0), picture((32, 32, 3), 1))
    assert len(datasets.class_names("mnistm", "test", folder=tmp_path)) == 10


def test_usps_layout(tmp_path):
    h5py = pytest.importorskip("h5py")
    (tmp_path / "data").mkdir()
    with h5py.File(tmp_path / "data" / "usps.h5", "w") as file:
        for split in ("train", "test"):
            file[f"{split}/data"] = np.repeat([[0.0], [1.0]], 256, axis=1).astype(np.float32)
            file[f"{split}/target"] = np.array([6, 5], dtype=np.int32)
    datasets.pack("usps", tmp_path, folder=tmp_path)
    images, labels = datasets.load("usps", "train", folder=tmp_path)
    assert images.shape == (2, 3, 32, 32)
    assert labels.tolist() == [6, 5]
    assert (images[0] == 0).all()
    assert (images[1] == 255).all()


def test_rows_are_drawn_by_seed_and_parts_do_not_overlap(tmp_path):
    stripes(tmp_path / "raw")
    datasets.pack("stripes", tmp_path / "raw", folder=tmp_path)
    some, other = (datasets.load("stripes", "train", rows=10, seed=seed, folder=tmp_path) for seed in (0, 1))
    again = datasets.load("stripes", "train", rows=10, folder=tmp_path)
    np.testing.assert_array_equal(some[0], again[0])
    assert (some[0] != other[0]).any()
    (fitted, labels), (held, _) = datasets.training_parts("stripes", validation=10, folder=tmp_path)
    assert (len(fitted), len(held)) == (54, 10)
    assert set(labels) == {0, 1}
    assert len({image.tobytes() for image in np.concatenate([fitted, held])}) == 64
    assert len(datasets.training_parts("stripes", folder=tmp_path)[1][1]) == 16


def test_what_cannot_be_packed_or_loaded_says_why(tmp_path):
    with pytest.raises(FileNotFoundError, match="not packed .*benchmarks.data.images pack nothing"):
        datasets.load("nothing", "train", folder=tmp_path)
    with pytest.raises(ValueError, match="does not exist"):
        datasets.pack("made", tmp_path / "raw", folder=tmp_path)
    write(tmp_path / "raw" / "train" / "ant" / "0.png", picture((8, 8)))
    write(tmp_path / "raw" / "val" / "images" / "0.png", picture((8, 8)))
    with pytest.raises(ValueError, match=r"'val' and 'train' differ in \['ant', 'images'\]"):
        datasets.pack("made", tmp_path / "raw", folder=tmp_path)
    (tmp_path / "raw" / "train" / "ant" / "1.png").write_bytes(b"version https://git-lfs.github.com/spec/v1")
    with pytest.raises(ValueError, match=r"1\.png"):
        datasets.pack("made", tmp_path / "raw", splits=["train"], folder=tmp_path)
    assert not list(tmp_path.glob("*.npz"))


def test_small_network_trains_is_kept_and_is_the_same_again(tmp_path):
    stripes(tmp_path / "raw")
    datasets.pack("stripes", tmp_path / "raw", folder=tmp_path)
    state = torch.get_rng_state()
    options = {"epochs": 1, "batch": 8, "validation": 16, "folder": tmp_path}
    records = [train.train("stripes", checkpoints=tmp_path / name, **options) for name in ("a", "b")]
    assert torch.equal(torch.get_rng_state(), state)
    models = [train.load_model("stripes", checkpoints=tmp_path / name, folder=tmp_path) for name in ("a", "b")]
    for first, second in zip(*(model.state_dict().values() for model in models), strict=True):
        assert torch.equal(first, second)
    _, (images, labels) = datasets.training_parts("stripes", validation=16, folder=tmp_path)
    assert train.accuracy(models[0], images, labels) == records[0]["validation_accuracy"]
    # Found, not trained anew.
    assert train.train("stripes", checkpoints=tmp_path / "a", **options) == records[0]
    with pytest.raises(ValueError, match="was trained with {'epochs': 1}"):
        train.train("stripes", checkpoints=tmp_path / "a", **(options | {"epochs": 2}))
    with pytest.raises(FileNotFoundError, match="No checkpoint stripes-small-seed5"):
        train.load_model("stripes", seed=5, checkpoints=tmp_path / "a", folder=tmp_path)


def test_training_lowers_the_loss_under_augmentation(tmp_path):
    stripes(tmp_path / "raw")
    datasets.pack("stripes", tmp_path / "raw", folder=tmp_path)
    images, labels = datasets.load("stripes", "train", folder=tmp_path)
    model = train.fresh("small", 2, 32, seed=0)
    losses = train.fit(model, images, labels, epochs=3, seed=0, batch=8, augment="crop-flip")
    assert losses[-1] < losses[0]
    assert not model.training


def test_cropping_only_moves_pixels():
    images = torch.arange(1, 2 * 3 * 8 * 8 + 1).reshape(2, 3, 8, 8)
    moved = train.cropped(images, 0, torch.Generator().manual_seed(0))
    assert torch.equal(moved, images)
    for before, after in zip(images, train.cropped(images, 2, torch.Generator().manual_seed(1)), strict=True):
        padded = torch.nn.functional.pad(before, (2, 2, 2, 2))
        shifts = [(y, x) for y in range(5) for x in range(5) if torch.equal(padded[:, y : y + 8, x : x + 8], after)]
        assert len(shifts) == 1


def test_small_network_is_small_and_takes_any_size():
    model = network("small", 10).eval()
    assert 150_000 < sum(parameter.numel() for parameter in model.parameters()) < 250_000
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    assert network("small", 7, channels=1).eval()(torch.zeros(1, 1, 28, 28)).shape == (1, 7)


def test_the_papers_recipe(tmp_path):
    stripes(tmp_path / "raw")
    datasets.pack("stripes", tmp_path / "raw", folder=tmp_path)
    options = {"optimizer": "plain", "schedule": "cosine", "rate": 1e-3, "batch": 8, "epochs": 2, "validation": 16}
    record = train.train("stripes", checkpoints=tmp_path, folder=tmp_path, **options)
    assert {key: record["recipe"][key] for key in options if key != "validation"} == {
        key: value for key, value in options.items() if key != "validation"
    }
    plain = train.OPTIMIZERS["plain"]([torch.nn.Parameter(torch.zeros(1))], lr=1e-3)
    assert plain.defaults["weight_decay"] == 0
    assert not plain.defaults["nesterov"]
    pace = train.SCHEDULES["cosine"](plain, 1e-3, 10)
    rates = []
    for _ in range(10):
        rates.append(plain.param_groups[0]["lr"])
        plain.step()
        pace.step()
    assert rates == pytest.approx([5e-4 * (1 + math.cos(math.pi * step / 10)) for step in range(10)])
