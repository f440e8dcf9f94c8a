"""CIFAR-100's superclasses under subpopulation shift: trained on some of their fine classes, tested on the others.

The data set ``cifar100sub<k>`` is a view of the packed CIFAR-100, so nothing is stored twice. Its 20 labels are the
superclasses in alphabetical order; the seed k draws which three of the five fine classes of each are the source.
``train``: the source classes in CIFAR-100's training part; ``test``: those in its test part; ``target``: the other two
fine classes in the test part.
"""

import re

import numpy as np

__all__ = ["SPLITS", "SUPERCLASSES", "subpopulation_rows", "subpopulation_seed", "subpopulations"]

SUPERCLASSES = {
    "aquatic_mammals": ("beaver", "dolphin", "otter", "seal", "whale"),
    "fish": ("aquarium_fish", "flatfish", "ray", "shark", "trout"),
    "flowers": ("orchid", "poppy", "rose", "sunflower", "tulip"),
    "food_containers": ("bottle", "bowl", "can", "cup", "plate"),
    "fruit_and_vegetables": ("apple", "mushroom", "orange", "pear", "sweet_pepper"),
    "household_electrical_devices": ("clock", "keyboard", "lamp", "telephone", "television"),
    "household_furniture": ("bed", "chair", "couch", "table", "wardrobe"),
    "insects": ("bee", "beetle", "butterfly", "caterpillar", "cockroach"),
    "large_carnivores": ("bear", "leopard", "lion", "tiger", "wolf"),
    "large_man-made_outdoor_things": ("bridge", "castle", "house", "road", "skyscraper"),
    "large_natural_outdoor_scenes": ("cloud", "forest", "mountain", "plain", "sea"),
    "large_omnivores_and_herbivores": ("camel", "cattle", "chimpanzee", "elephant", "kangaroo"),
    "medium_mammals": ("fox", "porcupine", "possum", "raccoon", "skunk"),
    "non-insect_invertebrates": ("crab", "lobster", "snail", "spider", "worm"),
    "people": ("baby", "boy", "girl", "man", "woman"),
    "reptiles": ("crocodile", "dinosaur", "lizard", "snake", "turtle"),
    "small_mammals": ("hamster", "mouse", "rabbit", "shrew", "squirrel"),
    "trees": ("maple_tree", "oak_tree", "palm_tree", "pine_tree", "willow_tree"),
    "vehicles_1": ("bicycle", "bus", "motorcycle", "pickup_truck", "train"),
    "vehicles_2": ("lawn_mower", "rocket", "streetcar", "tank", "tractor"),
}
# Split of the view: split of CIFAR-100, and which of the two groups of fine classes.
SPLITS = {"train": ("train", 0), "test": ("test", 0), "target": ("test", 1)}
SOURCE = 3


def subpopulations(split_seed):
    """Superclass -> (fine classes of the source, fine classes of the target), drawn by the seed."""
    rng = np.random.default_rng(split_seed)
    drawn = {name: rng.permutation(fine).tolist() for name, fine in SUPERCLASSES.items()}
    return {name: (tuple(sorted(fine[:SOURCE])), tuple(sorted(fine[SOURCE:]))) for name, fine in drawn.items()}


def subpopulation_seed(name):
    """The seed in a name such as ``cifar100sub0``; None for the name of another data set."""
    match = re.fullmatch(r"cifar100sub(\d+)", name)
    return int(match[1]) if match else None


def subpopulation_rows(seed, split, fine_labels, fine_classes):
    """Which rows of CIFAR-100's split belong to the view's, and their superclass labels."""
    if set(fine_classes) != {fine for group in SUPERCLASSES.values() for fine in group}:
        raise ValueError(
            f"Expected the 100 classes of CIFAR-100 under their usual names, but got {len(fine_classes)} that differ "
            f"in {sorted(set(fine_classes) ^ set(sum(SUPERCLASSES.values(), ())))[:5]}; pack cifar100 from its folders."
        )
    chosen = {
        fine: label for label, groups in enumerate(subpopulations(seed).values()) for fine in groups[SPLITS[split][1]]
    }
    superclass = np.array([chosen.get(fine, -1) for fine in fine_classes], dtype=np.int64)[fine_labels]
    rows = np.flatnonzero(superclass >= 0)
    return rows, superclass[rows]
