"""Real data for the benchmarks: read public folder layouts once, pack them into one file per split, load that fast.

    python -m benchmarks.data.images pack mnist --from data/raw/mnist       # {train,test}/<digit>/*.png
    python -m benchmarks.data.images pack mnistm --from data/raw/mnistm     # mnist_m/mnist_m_{train,test}, labels.txt
    python -m benchmarks.data.images pack usps --from data/raw/usps         # data/usps.h5 (needs h5py)
    python -m benchmarks.data.images pack cifar10 --from data/raw/cifar10   # {train,test}/<class>/*.png
    python -m benchmarks.data.images pack cifar100 --from data/raw/cifar100 # the same; gives cifar100sub0, … as well
    python -m benchmarks.data.images pack pacs --from data/raw/pacs/PACS --size 64   # <domain as split>/<class>/*.jpg
    python -m benchmarks.data.images pack tiny --from data/raw/tiny/tiny-imagenet-200   # train/<wnid>/images, val/images
    python -m benchmarks.data.images pack imagenet --from ILSVRC/Data/CLS-LOC   # {train,val}/<wnid>/*.JPEG, or val flat
    python -m benchmarks.data.images pack living17 --from ILSVRC/Data/CLS-LOC --hierarchy imagenet_class_hierarchy/modified
    python -m benchmarks.data.images pack office31 --from office31          # {amazon,dslr,webcam}/images/<class>/*.jpg
    python -m benchmarks.data.images pack officehome --from OfficeHomeDataset   # {Art,Clipart,Product,Real World}/<class>
    python -m benchmarks.data.images pack camelyon17 --from camelyon17_v1.0 # metadata.csv, patches/…; hospitals are splits

A packed file is ``data/packed/<name>-<split>.npz``, uncompressed and without pickle: ``images`` uint8 N×3×size×size
(grey repeated, Pillow's bilinear resizing, centre crop where not square), ``labels`` int64 N, ``classes`` their names.
Names that ``layouts`` does not know are read as ``<split>/<class>/*``. ``cifar100sub<k>`` (splits ``train``, ``test``,
``target``; see ``benchmarks/data/subpopulations.py``) is a view of the packed CIFAR-100, with the same functions. Corrupted archives
that others published are read by ``corrupted_archive``. Nothing of the data is committed.
"""

import argparse
import time
from pathlib import Path

import numpy as np

from benchmarks import ROOT
from benchmarks.data.archives import corrupted_archive
from benchmarks.data.layouts import layout
from benchmarks.data.packed import mapped, write
from benchmarks.data.pixels import pixels
from benchmarks.data.subpopulations import SPLITS, SUPERCLASSES, subpopulation_rows, subpopulation_seed, subpopulations

__all__ = ["PACKED", "class_names", "corrupted_archive", "load", "pack", "subpopulations", "training_parts"]

PACKED = ROOT / "data" / "packed"


def pack(name, root, *, size=None, splits=None, hierarchy=None, folder=PACKED):
    """Pack the splits of the data set below `root`, `size` pixels high and wide; returns the files written.

    All splits must have the same classes, also those packed before: a label means the same in each.
    """
    if subpopulation_seed(name) is not None:
        raise ValueError(f"Expected a data set to pack, but {name!r} is a view of cifar100: pack that instead.")
    root, kind = Path(root), layout(name, hierarchy)
    if not root.is_dir():
        raise ValueError(f"Expected the folder of the data set {name!r}, but {root} does not exist.")
    splits, size = list(splits or kind.splits(root)), size or kind.size
    if not splits:
        raise ValueError(f"Expected <split>/<class>/ folders in {root}, but found none.")
    classes = kind.classes(root, splits[0])
    others = {split: kind.classes(root, split) for split in splits[1:]}
    for file in sorted(folder.glob(f"{name}-*.npz")):
        split = file.stem.removeprefix(f"{name}-")
        if split not in splits:
            others[f"{split} (packed before)"] = mapped(file)[2]
    for split, found in others.items():
        if found != classes:
            differing = sorted(set(classes) ^ set(found))[:5] or "their order"
            raise ValueError(
                f"Expected the same class folders in every split, but those of {split!r} and {splits[0]!r} differ in "
                f"{differing}; name the splits that belong together, or delete what was packed before."
            )
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / f"{name}-{split}.npz" for split in splits]
    for file, split in zip(written, splits, strict=True):
        rows = list(kind.rows(root, split))
        if not rows:
            raise ValueError(f"Expected images of the split {split!r} in {root}, but there are none.")
        number = {label: k for k, label in enumerate(classes)}
        images = (pixels(source, size) for source, _ in rows)
        write(file, images, (3, size, size), [number[label] for _, label in rows], classes)
    return written


def packed_file(name, split, folder):
    file = folder / f"{name}-{split}.npz"
    if not file.exists():
        packed = ", ".join(sorted(path.stem for path in folder.glob("*.npz"))) or "none"
        raise FileNotFoundError(
            f"The data set {name!r}, split {split!r}, is not packed (packed: {packed}); "
            f"first: python -m benchmarks.data.images pack {name} --from <its folder>"
        )
    return file


def opened(name, split, folder):
    """Images that are not read yet, which rows of them make the split, the labels of these, and the classes."""
    seed = subpopulation_seed(name)
    if seed is None:
        images, labels, classes = mapped(packed_file(name, split, folder))
        return images, np.arange(len(labels)), labels, classes
    if split not in SPLITS:
        raise ValueError(f"Expected a split of {name!r}: {', '.join(SPLITS)}, but got {split!r}.")
    images, labels, classes = mapped(packed_file("cifar100", SPLITS[split][0], folder))
    return images, *subpopulation_rows(seed, split, labels, classes), list(SUPERCLASSES)


def class_names(name, split="train", *, folder=PACKED):
    return opened(name, split, folder)[3]


def load(name, split, *, rows=None, seed=0, folder=PACKED):
    """Images (uint8 N×3×H×W) and labels of a packed split: all in stored order, or at most `rows` drawn by `seed`."""
    images, stored, labels, _ = opened(name, split, folder)
    if rows is None:
        # A plain copy is faster than picking every row.
        return (np.array(images) if len(stored) == len(images) else images[stored]), labels
    chosen = np.random.default_rng(seed).permutation(len(labels))[:rows]
    return images[stored[chosen]], labels[chosen]


def training_parts(name, split="train", *, validation=3000, share=0.25, folder=PACKED):
    """A split cut into ``(images, labels)`` to train on and ``(images, labels)`` held out.

    The cut is the same for every model and every caller, whatever its seed, so that held-out rows were never trained
    on: `validation` rows, at most a `share` of the split. Both parts are shuffled, as packed rows are sorted by class.
    """
    images, labels = load(name, split, folder=folder)
    order = np.random.default_rng(0).permutation(len(labels))
    held = min(validation, int(share * len(labels)))
    return tuple((images[part], labels[part]) for part in (order[held:], order[:held]))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack", help="read a data set's folders and write packed files")
    packing.add_argument("name")
    packing.add_argument("--from", dest="root", type=Path, required=True, help="folder of the data set")
    packing.add_argument("--size", type=int, help="pixels of height and width (default: the data set's usual size)")
    packing.add_argument("--splits", nargs="+", help="only these splits (default: all)")
    packing.add_argument("--hierarchy", type=Path, help="folder of the hierarchy files, for the BREEDS data sets")
    return parser.parse_args()


def main():
    options = arguments()
    start = time.perf_counter()
    choices = {"size": options.size, "splits": options.splits, "hierarchy": options.hierarchy}
    for file in pack(options.name, options.root, **choices):
        images, _, classes = mapped(file)
        print(f"{file.name}: {'×'.join(map(str, images.shape))}, {len(classes)} classes")
    print(f"{time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
