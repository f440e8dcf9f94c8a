"""Sources: what each is trained on and meets."""

import numpy as np
import pytest

from benchmarks.data import images as datasets
from benchmarks.data.packed import write
from benchmarks.data.subpopulations import SUPERCLASSES
from benchmarks.models.sources import SOURCES


@pytest.fixture
def packed(tmp_path, monkeypatch):
    """Folder that every function of the benchmark looks for packed data in."""
    for function in (datasets.load, datasets.training_parts, datasets.class_names):
        monkeypatch.setitem(function.__kwdefaults__, "folder", tmp_path)
    return tmp_path


def test_pretrained_networks_meet_the_three_other_domains(packed):
    rng = np.random.default_rng(0)
    for domain in ("photo", "art_painting", "cartoon", "sketch"):
        images = rng.integers(0, 255, (100, 3, 8, 8), dtype=np.uint8)
        write(packed / f"pacs128-{domain}.npz", images, (3, 8, 8), np.arange(100) % 7, list("abcdefg"))
    source = SOURCES["pacs128-photo-lite1"]
    assert [len(part[1]) for part in (source.training(), source.reference())] == [63, 37]
    assert [target.name for target in source.targets()] == ["art_painting", "cartoon", "sketch"]
    names = [name for name in SOURCES if name.startswith("pacs128")]
    assert len(names) == 8


def test_subpopulations_are_corrupted_too(packed):
    fine = sorted(name for group in SUPERCLASSES.values() for name in group)
    for split in ("train", "test"):
        images = np.arange(200, dtype=np.uint8)[:, None, None, None] * np.ones((3, 8, 8), dtype=np.uint8)
        write(packed / f"cifar100-{split}.npz", images, (3, 8, 8), np.arange(200) % 100, fine)
    sets = {target.name: target for target in SOURCES["cifar100sub0-resnet18"].targets(rows=50, severities=[1, 5])}
    assert len(sets) == 1 + 19 * 2 + 1
    np.testing.assert_array_equal(sets["fog-5"].images, sets["target"].images)
    assert not set(sets["target"].images[:, 0, 0, 0]) & set(sets["unshifted"].images[:, 0, 0, 0])
    assert (sets["fog-5"].family, sets["fog-5"].severity, sets["fog-5"].shift.severity) == ("fog", 5, 5)
