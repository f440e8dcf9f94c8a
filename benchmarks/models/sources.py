"""Every trained classifier of the benchmark, and the sets it meets: what a cell of a table is made of.

A source is a packed data set, a network and a recipe. Its reference is the held-out part of what it was trained on
(``benchmarks.data.images.training_parts``); its targets are corruptions of its test set (synthetic shift), other domains (natural
shift), or other subpopulations and corruptions of those. Seed 0 is the classifier in question, seed 1 its second model.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.data.images import load, training_parts
from gdscore import shifts

__all__ = ["SOURCES", "Source", "TargetSet"]

CIFAR = {"epochs": 50, "batch": 512, "rate": 0.4, "augment": "crop-flip", "validation": 5000}
# An epoch of these takes several times as long; 16 end below ResNet-18 (90 to 91 % on CIFAR-10 instead of 94 %).
DEEP = CIFAR | {"epochs": 16, "rate": 0.2}
VIT = CIFAR | {"epochs": 60, "rate": 1e-3, "optimizer": "adamw"}
SUBPOPULATION = CIFAR | {"epochs": 25, "validation": 3000}
TINY = {"epochs": 16, "batch": 256, "rate": 0.2, "augment": "crop-flip", "validation": 5000}
TINY_LONG = TINY | {"epochs": 30}
# Fine-tuned as in estimates.py, so that one checkpoint serves both.
PRETRAINED = {"epochs": 25, "batch": 64, "rate": 1e-3, "optimizer": "adamw", "augment": "crop-flip", "shift": 12}
PRETRAINED |= {"rows": 1050, "validation": 1000}
PACS = {"epochs": 80, "batch": 64, "rate": 0.05, "augment": "crop-flip", "validation": 1000}
DIGITS = {"epochs": 6, "batch": 128, "rate": 0.1, "augment": "crop", "validation": 3000, "rows": 20000}
# What two CPU cores train in 15 minutes.
CIFAR_SMALL = {"epochs": 8, "batch": 128, "rate": 0.1, "augment": "crop-flip", "validation": 5000}
UCIDIGITS = {"epochs": 8, "batch": 64, "rate": 0.1, "augment": "none", "validation": 300}
DOMAINS = ("photo", "art_painting", "cartoon", "sketch")
# Tiny-ImageNet-C has 15 corruptions: these four are not among them.
EXTRA = ("speckle_noise", "gaussian_blur", "spatter", "saturate")


@dataclass(frozen=True)
class TargetSet:
    """Labelled images a source meets; the labels serve for the truth alone."""

    name: str
    family: str
    severity: int
    images: np.ndarray
    labels: np.ndarray
    shift: shifts.Corruption | None = None


@dataclass(frozen=True)
class Source:
    data: str
    recipe: dict
    split: str = "train"
    natural: tuple[tuple[str, str], ...] = ()
    corruptions: tuple[str, ...] = ()
    network: str = "resnet18"
    unshifted: str | None = "test"
    corrupted: str = "test"  # the split whose images are corrupted

    @property
    def name(self):
        return f"{self.data if self.split == 'train' else f'{self.data}-{self.split}'}-{self.network}"

    def training(self):
        """Images and labels to train on."""
        return self._parts()[0]

    def reference(self):
        """Held-out images and labels of the data trained on."""
        return self._parts()[1]

    def _parts(self):
        kept = {key: self.recipe[key] for key in ("validation", "share") if key in self.recipe}
        return training_parts(self.data, self.split, **kept)

    def targets(self, *, rows=None, severities=range(1, 6)) -> Iterator[TargetSet]:
        """The unshifted test set first, then every shifted one, shuffled; at most `rows` of each."""
        # Packed rows are sorted by class, which scores of mini-batches would see.
        rows = rows or 10**9
        if self.unshifted:
            yield TargetSet("unshifted", "unshifted", 0, *load(self.data, self.unshifted, rows=rows))
        clean = load(self.data, self.corrupted, rows=rows) if self.corruptions else ()
        for name in self.corruptions:
            for severity in severities:
                shift = shifts.Corruption(name, severity, 2026)
                yield TargetSet(f"{name}-{severity}", name, severity, *clean, shift)
        for data, split in self.natural:
            name = split if data == self.data else data
            yield TargetSet(name, name, 0, *load(data, split, rows=rows))


def _all():
    every = tuple(shifts.corruption_names())
    for network in ("resnet18", "resnet50", "wrn50_2"):
        first, fifteen = network == "resnet18", tuple(name for name in every if name not in EXTRA)
        yield Source("cifar10", CIFAR if first else DEEP, corruptions=every, network=network)
        yield Source("cifar100", CIFAR if first else DEEP, corruptions=every, network=network)
        yield Source("tiny", TINY if first else TINY_LONG, corruptions=fifteen, network=network)
    yield Source("cifar10", VIT, corruptions=every, network="vit")
    yield Source("cifar10", CIFAR_SMALL, corruptions=every, network="small")
    yield from _pacs("pacs", "resnet18")
    for network in ("lite0", "lite1"):
        yield from _pacs("pacs128", network)
    yield from _digits("small")
    few = ("gaussian_noise", "defocus_blur", "fog", "contrast", "pixelate")
    yield Source("ucidigits", UCIDIGITS, corruptions=few, network="small")
    yield from _subpopulations("resnet18", range(4), every)


def _pacs(data, network):
    for domain in DOMAINS:
        others = tuple((data, other) for other in DOMAINS if other != domain)
        # Fewer photographs are held out: enough of them have to be left to train on.
        recipe = PACS if data == "pacs" else PRETRAINED | {"share": 0.37 if domain == "photo" else 0.48}
        yield Source(data, recipe, split=domain, natural=others, unshifted=None, network=network)


def _digits(network):
    for data in ("mnist", "mnistm", "usps"):
        others = tuple((other, "test") for other in ("mnist", "mnistm", "usps") if other != data)
        yield Source(data, DIGITS, natural=others, network=network)


def _subpopulations(network, splits, corruptions):
    for number in splits:
        data = f"cifar100sub{number}"
        others = {"natural": ((data, "target"),), "corruptions": corruptions, "corrupted": "target"}
        yield Source(data, SUBPOPULATION, **others, network=network)


SOURCES = {source.name: source for source in _all()}
