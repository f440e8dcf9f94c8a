"""ImageNet and Tiny-ImageNet: folders named by WordNet ids to train on, and a validation part that may lie flat.

The validation part is the split ``test``, as the test images of both were published without labels. Labels follow the
sorted ids, as everywhere: the order of ``wnids.txt`` or of the challenge's own numbers is not used.
"""

import csv

from benchmarks.data.layouts.folders import ClassFolders, lines_of, listed, subfolders

__all__ = ["ImageNet", "TinyImageNet"]


class FlatValidation(ClassFolders):
    """``train/<wnid>/…`` and ``val/``, of folders as well or, by `listing`, flat with a labels file."""

    def __init__(self, *, size):
        super().__init__({"train": "train", "test": "val"}, size=size)

    def flat(self, root, split):
        return split == "test" and not [folder for folder in subfolders(root / "val") if folder.name != "images"]

    def classes(self, root, split):
        if self.flat(root, split):
            return sorted({wnid for _, wnid in self.listing(root)})
        return super().classes(root, split)

    def rows(self, root, split):
        return self.listing(root) if self.flat(root, split) else super().rows(root, split)


class TinyImageNet(FlatValidation):
    """``train/<wnid>/images/*.JPEG``, ``val/images/*.JPEG`` and ``val/val_annotations.txt``: file, wnid, box."""

    def __init__(self):
        super().__init__(size=64)

    def listing(self, root):
        folder, labels = root / "val" / "images", root / "val" / "val_annotations.txt"
        pairs = [line.split("\t")[:2] for line in lines_of(labels)]
        return listed(folder, [(folder / file, wnid) for file, wnid in pairs], labels)


class ImageNet(FlatValidation):
    """``train/<wnid>/*.JPEG`` and ``val/<wnid>/*.JPEG``, or ``val/ILSVRC2012_val_00000001.JPEG`` … with a labels file.

    That is ``LOC_val_solution.csv`` (``ImageId,PredictionString``, whose first word is the wnid) or
    ``imagenet_2012_validation_synset_labels.txt`` (the wnid of image k in line k), beside the folder or in it.
    """

    def __init__(self):
        super().__init__(size=224)

    def listing(self, root):
        folder = root / "val"
        for file, read in (("LOC_val_solution.csv", solution), ("imagenet_2012_validation_synset_labels.txt", synsets)):
            for labels in (root / file, folder / file):
                if labels.exists():
                    return listed(folder, [(folder / f"{name}.JPEG", wnid) for name, wnid in read(labels)], labels)
        raise ValueError(
            f"Expected class folders in {folder}, or LOC_val_solution.csv or "
            f"imagenet_2012_validation_synset_labels.txt in {root}, but found neither; the flat images have no labels."
        )


def solution(file):
    with file.open(newline="") as lines:
        return [(row["ImageId"], row["PredictionString"].split()[0]) for row in csv.DictReader(lines)]


def synsets(file):
    return [(f"ILSVRC2012_val_{k:08}", wnid) for k, wnid in enumerate(file.read_text().split(), start=1)]
