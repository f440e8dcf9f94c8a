"""MNIST-M and USPS, which do not come as folders of classes."""

import numpy as np
from PIL import Image

from benchmarks.data.layouts.folders import lines_of, listed

__all__ = ["MnistM", "Usps"]


class Digits:
    size = 32

    def splits(self, root):
        return ["train", "test"]

    def classes(self, root, split):
        return [str(digit) for digit in range(10)]


class MnistM(Digits):
    """``mnist_m/mnist_m_<split>/*.png`` beside ``mnist_m_<split>_labels.txt`` with lines ``00000000.png 5``."""

    def rows(self, root, split):
        folder = root / "mnist_m" / f"mnist_m_{split}"
        labels = folder.with_name(f"{folder.name}_labels.txt")
        pairs = [line.split() for line in lines_of(labels)]
        return listed(folder, [(folder / file, digit) for file, digit in pairs], labels)


class Usps(Digits):
    """``data/usps.h5``: ``<split>/data`` N×256 floats in [0, 1], ``<split>/target``."""

    def rows(self, root, split):
        try:
            import h5py
        except ImportError:
            raise ImportError("USPS comes as an HDF5 file; to pack it, once: pip install h5py") from None
        with h5py.File(root / "data" / "usps.h5") as file:
            grey = np.rint(file[split]["data"][:].reshape(-1, 16, 16) * 255).astype(np.uint8)
            digits = file[split]["target"][:]
        return zip(map(Image.fromarray, grey), (str(int(digit)) for digit in digits), strict=True)
