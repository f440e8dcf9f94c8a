"""Real data for the benchmarks: read public folder layouts once, pack them into one file per split, load that fast.

    python benchmarks/datasets.py pack mnist --from data/raw/mnist       # {train,test}/<digit>/*.png
    python benchmarks/datasets.py pack mnistm --from data/raw/mnistm     # mnist_m/mnist_m_{train,test}, labels.txt
    python benchmarks/datasets.py pack usps --from data/raw/usps         # data/usps.h5 (needs h5py)
    python benchmarks/datasets.py pack cifar10 --from data/raw/cifar10   # {train,test}/<class>/*.png
    python benchmarks/datasets.py pack pacs --from data/raw/pacs/PACS --size 64   # <domain as split>/<class>/*.jpg

A packed file is ``data/packed/<name>-<split>.npz``, uncompressed and without pickle: ``images`` uint8 N×3×size×size
(grey repeated, Pillow's bilinear resizing, centre crop where not square), ``labels`` int64 N, ``classes`` their names.
Every name that is not ``mnistm`` or ``usps`` is read as folders of classes. Nothing of it is committed.
"""

import argparse
import time
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

__all__ = ["PACKED", "class_names", "load", "pack", "training_parts"]

PACKED = Path(__file__).resolve().parents[1] / "data" / "packed"
ENDINGS = {".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp"}
DIGITS = [str(digit) for digit in range(10)]


def subfolders(folder):
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


class ClassFolders:
    """``<root>/<split>/<class>/*``, deeper folders included: MNIST, CIFAR-10, CIFAR-100, PACS, ImageNet."""

    def splits(self, root):
        return [split.name for split in subfolders(root) if subfolders(split)]

    def classes(self, root, split):
        return [folder.name for folder in subfolders(root / split)]

    def rows(self, root, split):
        for label, folder in enumerate(subfolders(root / split)):
            files = [path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS]
            if not files:
                raise ValueError(f"Expected images in the class folder {folder}, but it holds none.")
            for file in sorted(files):
                yield file, label


class MnistM:
    """``mnist_m/mnist_m_<split>/*.png`` beside ``mnist_m_<split>_labels.txt`` with lines ``00000000.png 5``."""

    def splits(self, root):
        return ["train", "test"]

    def classes(self, root, split):
        return DIGITS

    def rows(self, root, split):
        folder = root / "mnist_m" / f"mnist_m_{split}"
        for line in (root / "mnist_m" / f"mnist_m_{split}_labels.txt").read_text().splitlines():
            file, label = line.split()
            yield folder / file, int(label)


class Usps:
    """``data/usps.h5``: ``<split>/data`` N×256 floats in [0, 1], ``<split>/target``."""

    def splits(self, root):
        return ["train", "test"]

    def classes(self, root, split):
        return DIGITS

    def rows(self, root, split):
        try:
            import h5py
        except ImportError:
            raise ImportError("USPS comes as an HDF5 file; to pack it, once: pip install h5py") from None
        with h5py.File(root / "data" / "usps.h5") as file:
            grey = np.rint(file[split]["data"][:].reshape(-1, 16, 16) * 255).astype(np.uint8)
            labels = file[split]["target"][:]
        yield from zip(map(Image.fromarray, grey), map(int, labels), strict=True)


LAYOUTS = {"mnistm": MnistM(), "usps": Usps()}


def pixels(source, size):
    """A file or a Pillow image as uint8 3×size×size."""
    try:
        image = source if isinstance(source, Image.Image) else Image.open(source)
        image = image.convert("RGB")
    except (UnidentifiedImageError, OSError) as error:
        raise ValueError(f"Expected an image that decodes, but got {source}: {error}") from error
    return np.asarray(ImageOps.fit(image, (size, size), Image.Resampling.BILINEAR)).transpose(2, 0, 1)


def pack(name, root, *, size=32, splits=None, folder=PACKED):
    """Pack the splits of the data set below `root`; returns the files written.

    All splits must have the same classes: a label means the same in each.
    """
    root, layout = Path(root), LAYOUTS.get(name, ClassFolders())
    if not root.is_dir():
        raise ValueError(f"Expected the folder of the data set {name!r}, but {root} does not exist.")
    splits = list(splits or layout.splits(root))
    if not splits:
        raise ValueError(f"Expected <split>/<class>/ folders in {root}, but found none.")
    classes = layout.classes(root, splits[0])
    for split in splits[1:]:
        if layout.classes(root, split) != classes:
            raise ValueError(
                f"Expected the same class folders in every split, but those of {split!r} and {splits[0]!r} differ in "
                f"{sorted(set(classes) ^ set(layout.classes(root, split)))[:5]}; name the splits that belong together."
            )
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for split in splits:
        images, labels = [], []
        for source, label in layout.rows(root, split):
            images.append(pixels(source, size))
            labels.append(label)
        target = folder / f"{name}-{split}.npz"
        partial = target.with_suffix(".partial")
        with partial.open("wb") as file:
            np.savez(file, images=np.stack(images), labels=np.array(labels, dtype=np.int64), classes=np.array(classes))
        partial.replace(target)
        written.append(target)
    return written


def packed_file(name, split, folder):
    file = folder / f"{name}-{split}.npz"
    if not file.exists():
        packed = ", ".join(sorted(path.stem for path in folder.glob("*.npz"))) or "none"
        raise FileNotFoundError(
            f"The data set {name!r}, split {split!r}, is not packed (packed: {packed}); "
            f"first: python benchmarks/datasets.py pack {name} --from <its folder>"
        )
    return file


def class_names(name, split="train", *, folder=PACKED):
    with np.load(packed_file(name, split, folder)) as file:
        return file["classes"].tolist()


def load(name, split, *, rows=None, seed=0, folder=PACKED):
    """Images (uint8 N×3×H×W) and labels of a packed split: all in stored order, or at most `rows` drawn by `seed`."""
    with np.load(packed_file(name, split, folder)) as file:
        images, labels = file["images"], file["labels"]
    if rows is None:
        return images, labels
    chosen = np.random.default_rng(seed).permutation(len(labels))[:rows]
    return images[chosen], labels[chosen]


def training_parts(name, split="train", *, validation=3000, folder=PACKED):
    """A split cut into ``(images, labels)`` to train on and ``(images, labels)`` held out.

    The cut is the same for every model and every caller, whatever its seed, so that held-out rows were never trained
    on: `validation` rows, at most a quarter of the split. Both parts are shuffled, as packed rows are sorted by class.
    """
    images, labels = load(name, split, folder=folder)
    order = np.random.default_rng(0).permutation(len(labels))
    held = min(validation, len(labels) // 4)
    return tuple((images[part], labels[part]) for part in (order[held:], order[:held]))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack", help="read a data set's folders and write packed files")
    packing.add_argument("name")
    packing.add_argument("--from", dest="root", type=Path, required=True, help="folder of the data set")
    packing.add_argument("--size", type=int, default=32, help="pixels of height and width")
    packing.add_argument("--splits", nargs="+", help="only these splits (default: all)")
    return parser.parse_args()


def main():
    options = arguments()
    start = time.perf_counter()
    for file in pack(options.name, options.root, size=options.size, splits=options.splits):
        with np.load(file) as packed:
            shape, classes = packed["images"].shape, len(packed["classes"])
        print(f"{file.name}: {'×'.join(map(str, shape))}, {classes} classes")
    print(f"{time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
