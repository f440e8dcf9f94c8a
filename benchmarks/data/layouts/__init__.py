"""Public folder layouts of the benchmarks' data sets; one class each, all with the same four members.

``size``: pixels to pack at unless told otherwise; ``splits(root)``: names; ``classes(root, split)``: names in the order
of their labels; ``rows(root, split)``: pairs of a file (or Pillow image) and the name of its class.
"""

from benchmarks.data.layouts.breeds import BREEDS, Breeds
from benchmarks.data.layouts.camelyon17 import Camelyon17
from benchmarks.data.layouts.digits import MnistM, Usps
from benchmarks.data.layouts.folders import ClassFolders
from benchmarks.data.layouts.imagenet import ImageNet, TinyImageNet

__all__ = ["LAYOUTS", "layout"]

LAYOUTS = {
    "mnistm": MnistM(),
    "usps": Usps(),
    "tiny": TinyImageNet(),
    "imagenet": ImageNet(),
    "office31": ClassFolders({domain: f"{domain}/images" for domain in ("amazon", "dslr", "webcam")}, size=224),
    "officehome": ClassFolders(
        {"art": "Art", "clipart": "Clipart", "product": "Product", "real_world": "Real World"}, size=224
    ),
    "camelyon17": Camelyon17(),
}


def layout(name, hierarchy=None):
    """The layout of a data set by its name; any other name is read as ``<split>/<class>/*``."""
    if name in BREEDS:
        return Breeds(name, hierarchy)
    if hierarchy is not None:
        raise ValueError(f"Expected a hierarchy only with one of {', '.join(BREEDS)}, but got one with {name!r}.")
    return LAYOUTS.get(name) or ClassFolders()
