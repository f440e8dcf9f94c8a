"""BREEDS (Santurkar, Tsipras and Mądry, 2021): superclasses of ImageNet whose subclasses differ in source and target.

The images are those of an ImageNet folder. Which classes belong together is read from the three files that its authors
publish (MadryLab/BREEDS-Benchmarks, ``imagenet_class_hierarchy/modified``), none of which is part of this repository:
``class_hierarchy.txt`` (a line is a parent's and a child's WordNet id), ``node_names.txt`` (id, tab, name) and
``dataset_class_info.json`` (a list of number, id, name of each ImageNet class).

A superclass is a node at a given depth, its longest way from the root, with enough ImageNet classes below it. Of these
classes an even number is drawn; the first half is the source, the second the target (the published split ``rand``).
"""

import json
from pathlib import Path

import numpy as np

from benchmarks.data.layouts.folders import images_in
from benchmarks.data.layouts.imagenet import ImageNet

__all__ = ["BREEDS", "Breeds", "Hierarchy"]

# Depth of the superclasses, the node they lie below (living thing, non-living thing), subclasses of each.
BREEDS = {
    "entity13": (3, None, 20),
    "entity30": (4, None, 8),
    "living17": (5, "n00004258", 4),
    "nonliving26": (5, "n00021939", 4),
}
ROOT = "n00001740"


class Hierarchy:
    """The part of a tree of concepts that lies above the classes of a data set."""

    def __init__(self, folder):
        for name in ("class_hierarchy.txt", "node_names.txt", "dataset_class_info.json"):
            if not (folder / name).exists():
                raise ValueError(f"Expected the BREEDS hierarchy file {name} in {folder}, but it is not there.")
        self.names = dict(line.split("\t")[:2] for line in (folder / "node_names.txt").read_text().splitlines())
        self.parents = {}
        for line in (folder / "class_hierarchy.txt").read_text().splitlines():
            parent, child = line.split()
            self.parents.setdefault(child, set()).add(parent)
        self.below = {}
        for _, wnid, _ in json.loads((folder / "dataset_class_info.json").read_text()):
            for node in self.above(wnid):
                self.below.setdefault(node, []).append(wnid)
        self.depths = {}

    def above(self, node):
        """The node, and all that it lies below."""
        found, todo = {node}, [node]
        while todo:
            new = self.parents.get(todo.pop(), set()) - found
            found |= new
            todo += new
        return found

    def depth(self, node):
        """Steps of the longest way from the root; less than nothing for a node that is not below it."""
        if node not in self.depths:
            ways = [self.depth(parent) for parent in self.parents.get(node, ())]
            self.depths[node] = 0 if node == ROOT else 1 + max(ways, default=-(10**6))
        return self.depths[node]

    def superclasses(self, depth, ancestor, subclasses):
        """Id of each superclass with the ids of its source and of its target classes."""
        rng = np.random.RandomState(2)  # the generator and the seed of the published split
        found = {}
        for node in sorted(self.below):
            if self.depth(node) != depth or len(self.below[node]) < subclasses:
                continue
            if ancestor is None or ancestor in self.above(node):
                drawn = rng.choice(sorted(self.below[node]), subclasses, replace=False).tolist()
                found[node] = drawn[: subclasses // 2], drawn[subclasses // 2 :]
        return found


class Breeds:
    """``train`` and ``test`` hold the source classes of ImageNet's two parts, ``target`` the other ones of ``val``."""

    size = 224

    def __init__(self, name, hierarchy):
        if hierarchy is None:
            raise ValueError(
                f"Expected the folder of the BREEDS hierarchy files to make {name!r} of ImageNet, but got none; "
                f"give it as --hierarchy."
            )
        self.hierarchy = Hierarchy(Path(hierarchy))
        self.superclasses = self.hierarchy.superclasses(*BREEDS[name])
        if not self.superclasses:
            raise ValueError(f"Expected superclasses for {name!r} in {hierarchy}, but found none; is it complete?")

    def splits(self, root):
        return ["train", "test", "target"]

    def classes(self, root, split):
        return [self.hierarchy.names.get(wnid, wnid) for wnid in self.superclasses]

    def rows(self, root, split):
        if split not in self.splits(root):
            raise ValueError(f"Expected a split of {', '.join(self.splits(root))}, but got {split!r}.")
        names = zip(self.classes(root, split), self.superclasses.values(), strict=True)
        superclass = {wnid: name for name, groups in names for wnid in groups[split == "target"]}
        imagenet, part = ImageNet(), "train" if split == "train" else "test"
        missing = sorted(set(superclass) - set(imagenet.classes(root, part)))
        if missing:
            raise ValueError(
                f"Expected the {len(superclass)} ImageNet classes of {split!r} in {imagenet.folder(root, part)}, but "
                f"{len(missing)} are not there: {', '.join(missing[:5])}; complete the folder."
            )
        if imagenet.flat(root, part):
            return [(file, superclass[wnid]) for file, wnid in imagenet.listing(root) if wnid in superclass]
        folder = imagenet.folder(root, part)
        return [(file, name) for wnid, name in superclass.items() for file in images_in(folder / wnid)]
