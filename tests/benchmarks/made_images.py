"""Small images in folders, for the tests of the benchmarks' data sets."""

import numpy as np
from PIL import Image


def picture(shape=(8, 8, 3), seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def write(file, pixels):
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(file)
    return pixels


def grey(file, level, size=8):
    """An image of one grey, by which it is known again, also after JPEG and resizing."""
    write(file, np.full((size, size), level, np.uint8))
