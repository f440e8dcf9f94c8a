"""Loaders of the public folder layouts, each on a small made folder: right images, right labels, errors that help."""

import numpy as np
import pytest

from benchmarks.data import images as datasets
from benchmarks.data import layouts
from tests.benchmarks.made_images import grey, picture, write


def packed(name, root, split, folder, **options):
    """Grey level and class name of each image of a split."""
    datasets.pack(name, root, size=8, folder=folder, **options)
    images, labels = datasets.load(name, split, folder=folder)
    assert images.shape[1:] == (3, 8, 8)
    assert images.dtype == np.uint8
    names = datasets.class_names(name, split, folder=folder)
    return [(int(image[0, 0, 0]), names[label]) for image, label in zip(images, labels, strict=True)]


@pytest.fixture
def tiny(tmp_path):
    root = tmp_path / "tiny-imagenet-200"
    for k, wnid in enumerate(["n02", "n01"]):
        grey(root / "train" / wnid / "images" / f"{wnid}_0.JPEG", 100 + k)
        (root / "train" / wnid / f"{wnid}_boxes.txt").write_text(f"{wnid}_0.JPEG\t0\t0\t8\t8\n")
    for k in range(3):
        grey(root / "val" / "images" / f"val_{k}.JPEG", 200 + k)
    lines = [f"val_{k}.JPEG\t{wnid}\t0\t0\t8\t8\n" for k, wnid in enumerate(["n02", "n01", "n02"])]
    (root / "val" / "val_annotations.txt").write_text("".join(lines))
    # Another order than that of the labels, which follow the sorted names.
    (root / "wnids.txt").write_text("n02\nn01\n")
    grey(root / "test" / "images" / "test_0.JPEG", 0)
    return root


def test_tiny_imagenet(tiny, tmp_path):
    assert packed("tiny", tiny, "train", tmp_path) == [(101, "n01"), (100, "n02")]
    assert packed("tiny", tiny, "test", tmp_path) == [(200, "n02"), (201, "n01"), (202, "n02")]
    assert datasets.class_names("tiny", folder=tmp_path) == ["n01", "n02"]
    assert layouts.layout("tiny").size == 64


def test_tiny_imagenet_whose_validation_part_was_sorted_into_folders(tiny, tmp_path):
    for wnid, k in (("n01", 1), ("n02", 2)):
        grey(tiny / "val" / wnid / "images" / f"val_{k}.JPEG", 200 + k)
    assert packed("tiny", tiny, "test", tmp_path, splits=["test"])[-2:] == [(201, "n01"), (202, "n02")]


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda val: (val / "images" / "val_1.JPEG").unlink(), r"1 that it names are not there .*val_1\.JPEG"),
        (lambda val: grey(val / "images" / "val_9.JPEG", 0), r"1 that are there it does not name .*val_9\.JPEG"),
        (lambda val: (val / "val_annotations.txt").unlink(), r"Expected the labels file .*val_annotations\.txt"),
        (lambda val: (val / "images" / "val_0.JPEG").write_bytes(b"\xff\xd8\xff"), r"decodes, but got .*val_0\.JPEG"),
        (lambda val: [file.unlink() for file in (val / "images").iterdir()], r"images in the folder .*holds none"),
    ],
)
def test_tiny_imagenet_that_is_not_complete(tiny, tmp_path, break_it, message):
    break_it(tiny / "val")
    with pytest.raises(ValueError, match=message):
        datasets.pack("tiny", tiny, folder=tmp_path, splits=["test"])
    assert not list(tmp_path.glob("tiny-test.*"))


@pytest.fixture
def imagenet(tmp_path):
    root = tmp_path / "CLS-LOC"
    for k, wnid in enumerate(["n01440764", "n01443537"]):
        grey(root / "train" / wnid / f"{wnid}_10.JPEG", 50 + k)
    for k in (1, 2, 3):
        grey(root / "val" / f"ILSVRC2012_val_{k:08}.JPEG", 100 + k)
    return root


def test_imagenet_with_folders(imagenet, tmp_path):
    for file in (imagenet / "val").iterdir():
        file.unlink()
    for k, wnid in enumerate(["n01440764", "n01443537"]):
        grey(imagenet / "val" / wnid / f"ILSVRC2012_val_{k:08}.JPEG", 80 + k)
    assert packed("imagenet", imagenet, "train", tmp_path) == [(50, "n01440764"), (51, "n01443537")]
    assert packed("imagenet", imagenet, "test", tmp_path) == [(80, "n01440764"), (81, "n01443537")]


def test_imagenet_with_flat_validation_images(imagenet, tmp_path):
    with pytest.raises(ValueError, match=r"or LOC_val_solution\.csv"):
        datasets.pack("imagenet", imagenet, folder=tmp_path)
    expected = [(101, "n01443537"), (102, "n01440764"), (103, "n01443537")]
    labels = imagenet / "val" / "imagenet_2012_validation_synset_labels.txt"
    labels.write_text("n01443537\nn01440764\nn01443537\n")
    assert packed("imagenet", imagenet, "test", tmp_path) == expected
    labels.unlink()
    solution = ["ImageId,PredictionString"]
    for level, wnid in expected:
        solution.append(f"ILSVRC2012_val_{level - 100:08},{wnid} 85 1 499 272 {wnid} 1 2 3 4 ")
    (imagenet / "LOC_val_solution.csv").write_text("\n".join(solution) + "\n")
    assert packed("imagenet", imagenet, "test", tmp_path) == expected


def test_office_31_and_office_home(tmp_path):
    for k, domain in enumerate(["amazon", "dslr", "webcam"]):
        for name in ("back_pack", "bike"):
            grey(tmp_path / "office31" / domain / "images" / name / "frame_0001.jpg", 10 * k + len(name))
    assert packed("office31", tmp_path / "office31", "webcam", tmp_path) == [(29, "back_pack"), (24, "bike")]
    for k, domain in enumerate(["Art", "Clipart", "Product", "Real World"]):
        for name in ("Alarm_Clock", "ToothBrush"):
            grey(tmp_path / "home" / domain / name / "00001.jpg", 10 * k + len(name))
    assert packed("officehome", tmp_path / "home", "real_world", tmp_path) == [(41, "Alarm_Clock"), (40, "ToothBrush")]
    assert sorted(file.stem for file in tmp_path.glob("officehome-*.npz")) == [
        "officehome-art",
        "officehome-clipart",
        "officehome-product",
        "officehome-real_world",
    ]
    with pytest.raises(ValueError, match="split of art, clipart, product, real_world, but got 'Art'"):
        datasets.pack("officehome", tmp_path / "home", splits=["Art"], folder=tmp_path)
    with pytest.raises(ValueError, match=r"Expected the folder .*Art, but it does not exist"):
        datasets.pack("officehome", tmp_path / "office31", folder=tmp_path)


@pytest.fixture
def camelyon(tmp_path):
    root, lines = tmp_path / "camelyon17_v1.0", [",patient,node,x_coord,y_coord,tumor,slide,center,split"]
    for k, (patient, node, tumor, center) in enumerate([("004", 4, 1, 0), ("020", 0, 0, 1), ("004", 4, 0, 0)]):
        place = f"patient_{patient}_node_{node}"
        grey(root / "patches" / place / f"patch_{place}_x_{k}_y_77.png", 100 + k)
        lines.append(f"{k},{patient},{node},{k},77,{tumor},0,{center},0")
    (root / "metadata.csv").write_text("\n".join(lines) + "\n")
    return root


def test_camelyon17_has_hospitals_as_splits(camelyon, tmp_path):
    assert packed("camelyon17", camelyon, "hospital0", tmp_path) == [(100, "tumor"), (102, "normal")]
    assert packed("camelyon17", camelyon, "hospital1", tmp_path) == [(101, "normal")]
    assert not (tmp_path / "camelyon17-hospital2.npz").exists()


def test_camelyon17_that_is_not_complete(camelyon, tmp_path):
    with pytest.raises(ValueError, match="split 'hospital7' .* there are none"):
        datasets.pack("camelyon17", camelyon, splits=["hospital7"], folder=tmp_path)
    next(camelyon.rglob("*_x_2_*.png")).unlink()
    with pytest.raises(ValueError, match=r"metadata\.csv names, but .*_x_2_y_77\.png does not exist"):
        datasets.pack("camelyon17", camelyon, folder=tmp_path)
    (camelyon / "metadata.csv").write_text("patient,node\n004,4\n")
    with pytest.raises(ValueError, match=r"\['x_coord', 'y_coord', 'tumor', 'center'\] are not there"):
        datasets.pack("camelyon17", camelyon, folder=tmp_path)
    (camelyon / "metadata.csv").unlink()
    with pytest.raises(ValueError, match=r"Expected the table .*metadata\.csv"):
        datasets.pack("camelyon17", camelyon, folder=tmp_path)


def test_mnist_m_whose_labels_name_a_missing_file(tmp_path):
    grey(tmp_path / "mnist_m" / "mnist_m_test" / "0.png", 5)
    (tmp_path / "mnist_m" / "mnist_m_test_labels.txt").write_text("0.png 3\n1.png 4\n")
    with pytest.raises(ValueError, match=r"1 that it names are not there .*1\.png"):
        datasets.pack("mnistm", tmp_path, splits=["test"], folder=tmp_path)


def test_an_empty_class_and_a_truncated_image(tmp_path):
    grey(tmp_path / "raw" / "train" / "ant" / "0.png", 1)
    (tmp_path / "raw" / "train" / "bee").mkdir()
    with pytest.raises(ValueError, match=r"images in the folder .*bee, but it holds none"):
        datasets.pack("made", tmp_path / "raw", folder=tmp_path)
    whole = tmp_path / "raw" / "train" / "bee" / "0.png"
    write(whole, picture((32, 32, 3)))
    whole.write_bytes(whole.read_bytes()[:400])
    with pytest.raises(ValueError, match=r"decodes, but got .*bee.0\.png: .*delete it"):
        datasets.pack("made", tmp_path / "raw", folder=tmp_path)
    assert not list(tmp_path.glob("made-*"))


def test_classes_must_be_those_packed_before(tmp_path):
    for split, names in (("train", "ab"), ("test", "ac")):
        for name in names:
            grey(tmp_path / "raw" / split / name / "0.png", 1)
    datasets.pack("made", tmp_path / "raw", splits=["train"], folder=tmp_path)
    with pytest.raises(ValueError, match=r"'train \(packed before\)' and 'test' differ in \['b', 'c'\]"):
        datasets.pack("made", tmp_path / "raw", splits=["test"], folder=tmp_path)
    # The same names in another order are other labels.
    np.savez(tmp_path / "made-train.npz", images=picture((1, 3, 8, 8)), labels=np.array([0]), classes=["c", "a"])
    with pytest.raises(ValueError, match="differ in their order"):
        datasets.pack("made", tmp_path / "raw", splits=["test"], folder=tmp_path)


def test_packed_files_are_plain_npz_and_both_kinds_of_writing_load(tmp_path):
    level = picture((5, 3, 8, 8))
    np.savez(tmp_path / "made-train.npz", images=level, labels=np.arange(5), classes=list("abcde"))
    images, labels = datasets.load("made", "train", folder=tmp_path)
    np.testing.assert_array_equal(images, level)
    images[0] = 0
    np.testing.assert_array_equal(datasets.load("made", "train", folder=tmp_path)[0], level)
    some, which = datasets.load("made", "train", rows=3, folder=tmp_path)
    np.testing.assert_array_equal(some, level[which])
    grey(tmp_path / "raw" / "train" / "a" / "0.png", 9)
    (file,) = datasets.pack("plain", tmp_path / "raw", size=8, folder=tmp_path)
    with np.load(file, allow_pickle=False) as content:
        assert (content["images"] == 9).all()
        assert content["images"].shape == (1, 3, 8, 8)
        assert content["labels"].dtype == np.int64
        assert content["classes"].tolist() == ["a"]
    np.savez_compressed(tmp_path / "made-train.npz", images=level, labels=labels, classes=list("abcde"))
    with pytest.raises(ValueError, match="compressed; pack again"):
        datasets.load("made", "train", folder=tmp_path)
