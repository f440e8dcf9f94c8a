"""Subpopulation shift: CIFAR-100's superclasses as views of the packed file, and BREEDS made of an ImageNet folder."""

import json

import numpy as np
import pytest

from benchmarks.data import images as datasets
from benchmarks.data.layouts.breeds import Hierarchy
from benchmarks.data.subpopulations import SUPERCLASSES, subpopulations
from tests.benchmarks.made_images import grey

FINE = sorted(fine for group in SUPERCLASSES.values() for fine in group)


def pack_cifar100(folder, classes=FINE):
    """Two rows of each class in `train`, one in `test`; an image says which class and split it is of."""
    for split, rows, mark in (("train", 2, 1), ("test", 1, 2)):
        labels = np.repeat(np.arange(len(classes)), rows)
        images = np.zeros((len(labels), 3, 4, 4), np.uint8)
        images[:, 0] = np.array([FINE.index(name) for name in classes])[labels][:, None, None]
        images[:, 1] = mark
        np.savez(folder / f"cifar100-{split}.npz", images=images, labels=labels, classes=classes)


def test_twenty_superclasses_of_five_in_alphabetical_order():
    assert len(SUPERCLASSES) == 20
    assert {len(group) for group in SUPERCLASSES.values()} == {5}
    assert len(set(FINE)) == 100
    assert list(SUPERCLASSES) == sorted(SUPERCLASSES)


@pytest.mark.skipif(not (datasets.PACKED / "cifar100-train.npz").exists(), reason="CIFAR-100 is not packed here")
def test_fine_classes_are_those_of_the_real_data():
    assert datasets.class_names("cifar100") == FINE
    images, labels = datasets.load("cifar100sub0", "target")
    assert images.shape == (4000, 3, 32, 32)
    assert np.bincount(labels).tolist() == [200] * 20


def test_the_seed_draws_three_source_classes_and_two_target_classes():
    for seed in range(4):
        groups = subpopulations(seed)
        assert list(groups) == list(SUPERCLASSES)
        for name, (source, target) in groups.items():
            assert (len(source), len(target)) == (3, 2)
            assert sorted(source + target) == sorted(SUPERCLASSES[name])
    assert len({str(subpopulations(seed)) for seed in range(4)}) == 4
    # Trained models depend on it: the draw of a seed must never change.
    assert [subpopulations(seed)["people"][1] for seed in range(4)] == [
        ("baby", "girl"),
        ("boy", "man"),
        ("girl", "woman"),
        ("boy", "girl"),
    ]
    assert subpopulations(0)["vehicles_2"] == (("streetcar", "tank", "tractor"), ("lawn_mower", "rocket"))


@pytest.mark.parametrize("classes", [FINE, FINE[::-1]], ids=["usual order", "another order"])
def test_views_take_their_fine_classes_and_give_superclass_labels(tmp_path, classes):
    pack_cifar100(tmp_path, classes)
    groups = subpopulations(1)
    for split, rows, mark, which in (("train", 120, 1, 0), ("test", 60, 2, 0), ("target", 40, 2, 1)):
        images, labels = datasets.load("cifar100sub1", split, folder=tmp_path)
        names = datasets.class_names("cifar100sub1", split, folder=tmp_path)
        assert len(images) == len(labels) == rows
        assert labels.dtype == np.int64
        assert names == list(SUPERCLASSES)
        assert (images[:, 1] == mark).all()
        for image, label in zip(images, labels, strict=True):
            assert FINE[image[0, 0, 0]] in groups[names[label]][which]
    (fitted, labels), (held, _) = datasets.training_parts("cifar100sub1", validation=20, folder=tmp_path)
    assert (len(fitted), len(labels), len(held)) == (100, 100, 20)
    some, labels = datasets.load("cifar100sub1", "target", rows=7, folder=tmp_path)
    assert all(FINE[image[0, 0, 0]] in groups[names[label]][1] for image, label in zip(some, labels, strict=True))


def test_views_say_what_they_lack(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"'cifar100', split 'test', is not packed .*pack cifar100"):
        datasets.load("cifar100sub0", "target", folder=tmp_path)
    pack_cifar100(tmp_path)
    with pytest.raises(ValueError, match="split of 'cifar100sub0': train, test, target, but got 'val'"):
        datasets.load("cifar100sub0", "val", folder=tmp_path)
    with pytest.raises(ValueError, match="view of cifar100"):
        datasets.pack("cifar100sub0", tmp_path, folder=tmp_path)
    pack_cifar100(tmp_path, FINE[:99])
    with pytest.raises(ValueError, match=r"got 99 that differ in \['worm'\]"):
        datasets.load("cifar100sub0", "train", folder=tmp_path)
    with pytest.raises(FileNotFoundError, match="'cifar100subs'"):
        datasets.load("cifar100subs", "train", folder=tmp_path)


@pytest.fixture
def hierarchy(tmp_path):
    """Two superclasses of living things at depth 5, with five and four classes; a third has too few; one is not living."""
    way = [("n00001740", "n00004258"), ("n00004258", "a2"), ("a2", "a3"), ("a3", "a4"), ("a4", "s1")]
    # s2 has a shorter way as well: the longest one counts.
    edges = [*way, ("a4", "s2"), ("n00004258", "s2"), ("a4", "s3"), ("n00001740", "n00021939"), ("n00021939", "b2")]
    edges += [("b2", "b3"), ("b3", "b4"), ("b4", "t1"), ("s1", "between")]
    leaves = {"between": "abc", "s1": "de", "s2": "fghi", "s3": "j", "t1": "klmn"}
    edges += [(parent, f"n{leaf}") for parent, below in leaves.items() for leaf in below]
    classes = [[k, f"n{leaf}", f"name of {leaf}"] for k, leaf in enumerate("abcdefghijklmn")]
    folder = tmp_path / "hierarchy"
    folder.mkdir()
    (folder / "class_hierarchy.txt").write_text("".join(f"{parent} {child}\n" for parent, child in edges))
    (folder / "node_names.txt").write_text("s1\tsalamander\ns2\tturtle, tortoise\nt1\tbag\n")
    (folder / "dataset_class_info.json").write_text(json.dumps(classes))
    return folder


@pytest.fixture
def imagenet(tmp_path):
    for k, leaf in enumerate("abcdefghijklmn"):
        grey(tmp_path / "imagenet" / "train" / f"n{leaf}" / "0.JPEG", 10 + k)
        grey(tmp_path / "imagenet" / "val" / f"n{leaf}" / "0.JPEG", 110 + k)
    return tmp_path / "imagenet"


def test_breeds_superclasses(hierarchy):
    read = Hierarchy(hierarchy)
    assert (read.depth("s1"), read.depth("s2"), read.depth("nf")) == (5, 5, 6)
    assert list(read.superclasses(5, "n00004258", 4)) == ["s1", "s2"]
    assert list(read.superclasses(5, "n00021939", 4)) == ["t1"]
    assert list(read.superclasses(5, None, 4)) == ["s1", "s2", "t1"]
    for node, below in (("s1", "abcde"), ("s2", "fghi")):
        source, target = read.superclasses(5, "n00004258", 4)[node]
        assert len(source) == len(target) == 2
        assert len({*source, *target}) == 4
        assert {*source, *target} <= {f"n{leaf}" for leaf in below}


def test_breeds_of_an_imagenet_folder(hierarchy, imagenet, tmp_path):
    datasets.pack("living17", imagenet, size=8, hierarchy=hierarchy, folder=tmp_path)
    groups = Hierarchy(hierarchy).superclasses(5, "n00004258", 4)
    for split, start, which in (("train", 10, 0), ("test", 110, 0), ("target", 110, 1)):
        images, labels = datasets.load("living17", split, folder=tmp_path)
        assert labels.tolist() == [0, 0, 1, 1]
        for node, label in (("s1", 0), ("s2", 1)):
            found = {f"n{'abcdefghijklmn'[image[0, 0, 0] - start]}" for image in images[labels == label]}
            assert found == set(groups[node][which])
    assert datasets.class_names("living17", folder=tmp_path) == ["salamander", "turtle, tortoise"]


def test_breeds_of_flat_validation_images(hierarchy, imagenet, tmp_path):
    wnids = sorted(folder.name for folder in (imagenet / "val").iterdir())
    for k, wnid in enumerate(wnids, start=1):
        (imagenet / "val" / wnid / "0.JPEG").rename(imagenet / "val" / f"ILSVRC2012_val_{k:08}.JPEG")
        (imagenet / "val" / wnid).rmdir()
    (imagenet / "imagenet_2012_validation_synset_labels.txt").write_text("\n".join(wnids))
    datasets.pack("nonliving26", imagenet, size=8, hierarchy=hierarchy, folder=tmp_path)
    (_, target), *_ = Hierarchy(hierarchy).superclasses(5, "n00021939", 4).values()
    images, labels = datasets.load("nonliving26", "target", folder=tmp_path)
    assert labels.tolist() == [0, 0]
    assert sorted(f"n{'abcdefghijklmn'[image[0, 0, 0] - 110]}" for image in images) == sorted(target)


def test_breeds_says_what_is_missing(hierarchy, imagenet, tmp_path):
    with pytest.raises(ValueError, match="give it as --hierarchy"):
        datasets.pack("entity13", imagenet, folder=tmp_path)
    with pytest.raises(ValueError, match="superclasses for 'entity13' .* found none"):
        datasets.pack("entity13", imagenet, hierarchy=hierarchy, folder=tmp_path)
    with pytest.raises(ValueError, match="hierarchy only with one of entity13"):
        datasets.pack("imagenet", imagenet, hierarchy=hierarchy, folder=tmp_path)
    with pytest.raises(ValueError, match="split of train, test, target, but got 'val'"):
        datasets.pack("living17", imagenet, splits=["val"], hierarchy=hierarchy, folder=tmp_path)
    gone = Hierarchy(hierarchy).superclasses(5, "n00004258", 4)["s1"][0][0]
    (imagenet / "train" / gone / "0.JPEG").unlink()
    with pytest.raises(ValueError, match=f"images in the folder .*{gone}"):
        datasets.pack("living17", imagenet, hierarchy=hierarchy, folder=tmp_path)
    (imagenet / "train" / gone).rmdir()
    with pytest.raises(ValueError, match=f"the 4 ImageNet classes of 'train' .* 1 are not there: {gone}"):
        datasets.pack("living17", imagenet, hierarchy=hierarchy, folder=tmp_path)
    (hierarchy / "node_names.txt").unlink()
    with pytest.raises(ValueError, match=r"hierarchy file node_names\.txt"):
        datasets.pack("living17", imagenet, hierarchy=hierarchy, folder=tmp_path)
