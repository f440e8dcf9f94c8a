"""Published archives of corrupted images, where somebody has them: CIFAR-10-C, CIFAR-100-C, Tiny-ImageNet-C, ImageNet-C.

    images, labels = corrupted_archive("CIFAR-10-C", "fog", 3)
    images, labels = corrupted_archive("Tiny-ImageNet-C", "fog", 3, classes=class_names("tiny"), size=64)

Both CIFAR archives are ``<corruption>.npy`` (uint8, five severities of the test set one after the other, N×H×W×3) and
``labels.npy``; the other two ``<corruption>/<severity>/<wnid>/*.JPEG``, or the same one folder deeper, as ImageNet-C's
downloads unpack (``noise/gaussian_noise/…``).
"""

from pathlib import Path

import numpy as np

from benchmarks.data.layouts.folders import images_in, subfolders
from benchmarks.data.pixels import pixels

__all__ = ["corrupted_archive"]

SEVERITIES = range(1, 6)


def corrupted_archive(root, corruption, severity, *, classes=None, size=None):
    """Images (uint8 N×3×H×W) and labels of one corruption at one severity.

    Folders named by classes are labelled by the order of `classes` (default: sorted) and resized to `size` (default: as
    the first one is); the arrays of CIFAR come with labels of their own, the alphabetical order of the class names.
    """
    root = Path(root)
    if severity not in SEVERITIES:
        raise ValueError(f"Expected a severity of 1 to 5, but got {severity!r}.")
    if (root / f"{corruption}.npy").is_file():
        return from_arrays(root, corruption, severity)
    for folder in (root / corruption, *root.glob(f"*/{corruption}")):
        if folder.is_dir():
            return from_folders(folder / str(severity), classes, size)
    found = {path.stem for path in root.glob("*.npy")} - {"labels"} or {path.name for path in root.glob("*")}
    raise FileNotFoundError(
        f"Expected {corruption}.npy or a folder {corruption} in {root}, but there is neither "
        f"(there: {', '.join(sorted(found)) or 'nothing'})."
    )


def from_arrays(root, corruption, severity):
    if not (root / "labels.npy").is_file():
        raise FileNotFoundError(f"Expected labels.npy beside {corruption}.npy in {root}, but it is not there.")
    images = np.load(root / f"{corruption}.npy", mmap_mode="r", allow_pickle=False)
    labels = np.load(root / "labels.npy", allow_pickle=False)
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3 or len(images) % len(SEVERITIES):
        raise ValueError(
            f"Expected uint8 of 5n×H×W×3 in {corruption}.npy, n images at each of five severities, "
            f"but got {images.dtype} of {images.shape}."
        )
    if labels.shape != images.shape[:1]:
        raise ValueError(f"Expected {len(images)} labels in labels.npy of {root}, but got shape {labels.shape}.")
    n = len(images) // len(SEVERITIES)
    part = slice((severity - 1) * n, severity * n)
    return np.ascontiguousarray(images[part].transpose(0, 3, 1, 2)), labels[part].astype(np.int64)


def from_folders(folder, classes, size):
    names = [path.name for path in subfolders(folder)]
    classes = list(names if classes is None else classes)
    if sorted(names) != sorted(classes):
        raise ValueError(
            f"Expected a folder for each of the {len(classes)} classes in {folder}, but they differ in "
            f"{sorted(set(names) ^ set(classes))[:5]}; give `classes` of the data set this archive was made of."
        )
    rows = [(file, label) for label, name in enumerate(classes) for file in images_in(folder / name)]
    if not rows:
        raise ValueError(f"Expected class folders with images in {folder}, but it holds none.")
    first = pixels(rows[0][0], size)
    images = np.empty((len(rows), *first.shape), dtype=np.uint8)
    for row, (file, _) in enumerate(rows):
        images[row] = pixels(file, first.shape[-1])
    return images, np.array([label for _, label in rows], dtype=np.int64)
