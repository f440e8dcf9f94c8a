"""Digital: contrast, elastic transform, pixelate, JPEG, saturate; JPEG on accelerators without a codec, for its speed.

Sources of the parameters: see `gdscore.shifts.noise`. On the host Pillow writes and reads the JPEG. Elsewhere the lossy
steps of the standard run on whole arrays: a copy to the host, or a codec that takes one image after the other, would
make an accelerator wait.
"""

from __future__ import annotations

import io
import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore._arrays import Array, is_numpy, like, namespace
from gdscore.shifts import _resample as resample
from gdscore.shifts._families import IMAGES, Draws

__all__ = ["contrast", "elastic_transform", "jpeg_compression", "pixelate", "saturate", "smooth_field"]

_MISPRINT = 244 / 224
"""ImageNet-C scales its elastic parameters by 244 instead of 224 pixels."""


def smooth_field(draws: Draws, layer: int, x: Array, sigma: float, strength: float) -> Array:
    """Uniform noise in ±1, blurred by ``sigma`` pixels, times ``strength``: N×H×W.

    Wide blurs are made on a coarser grid, whose noise has the deviation that the mean over its cells would have.
    """
    height, width = x.shape[-2:]
    spacing = max(1, int(sigma / 3))
    shape = (math.ceil((height - 1) / spacing) + 1, math.ceil((width - 1) / spacing) + 1)
    if spacing == 1:
        noise = draws.uniform_field(layer, shape) * 2.0 - 1.0
    else:
        noise = draws.normal_field(layer, shape) * (math.sqrt(1 / 3) / spacing)
    blurred = resample.gaussian(noise * strength, sigma / spacing, resample.mirror) if sigma else noise * strength
    return blurred if spacing == 1 else resample.upsample(blurred, spacing, height, width)


@IMAGES.family(
    (0.75, 0.5, 0.4, 0.3, 0.15, 0.11, 0.08, 0.055),
    px224=(0.4, 0.3, 0.2, 0.1, 0.05, 0.037, 0.027, 0.02),
)
def contrast(x: Array, draws: Draws, factor: float) -> Array:
    """Pull every value towards the mean of its image and channel: what is left of the distance is ``factor``."""
    means = resample.mean(x)
    return (x - means) * factor + means


@IMAGES.family(
    (
        *((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
        *((0.13, 0.03, 0.03), (0.17, 0.03, 0.03), (0.22, 0.03, 0.03)),
    ),
    px224=tuple(
        (strength * _MISPRINT, sigma * _MISPRINT, affine * _MISPRINT)
        for strength, sigma, affine in (
            *((2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02)),
            *((0.17, 0.01, 0.02), (0.23, 0.01, 0.02), (0.3, 0.01, 0.02)),
        )
    ),
)
def elastic_transform(x: Array, draws: Draws, strength: float, sigma: float, affine: float) -> Array:
    """Tilt and stretch the image, then push pixels about by a smooth random field.

    All parameters are shares of the image size: ``affine`` bounds the random moves of three corners, and the field is
    uniform noise in ±1, blurred by ``sigma``, times ``strength``. The original interpolates twice, once for each step;
    here positions are composed and interpolated once.
    """
    n, _, height, width = x.shape
    size = (height * width) ** 0.5
    middle, arm = np.array([height // 2, width // 2]), min(height, width) // 3
    corners = np.array([middle + arm, middle + np.array([arm, -arm]), middle - arm], dtype=np.float64)
    moved = corners + (2 * draws.uniform(0, 6).reshape(n, 3, 2) - 1) * affine * size
    maps = np.linalg.solve(np.column_stack([corners, np.ones(3)])[None], moved)
    rows = resample.constant(np.arange(height, dtype=np.float32)[:, None], x) + smooth_field(
        draws, 1, x, sigma * size, strength * size
    )
    columns = resample.constant(np.arange(width, dtype=np.float32), x) + smooth_field(
        draws, 2, x, sigma * size, strength * size
    )
    m = like(maps.astype(np.float32)[..., None, None], x)
    positions = (rows * m[:, 0, k] + columns * m[:, 1, k] + m[:, 2, k] for k in (0, 1))
    return resample.bilinear(x, *positions)


@IMAGES.family(
    (0.95, 0.9, 0.85, 0.75, 0.65, 0.55, 0.45, 0.35),
    px224=(0.6, 0.5, 0.4, 0.3, 0.25, 0.2, 0.16, 0.12),
)
def pixelate(x: Array, draws: Draws, share: float) -> Array:
    """Shrink to a ``share`` of the size and enlarge again, both without interpolation (Pillow's BOX)."""
    height, width = x.shape[-2:]
    return resample.box(resample.box(x, int(height * share), int(width * share)), height, width)


@IMAGES.family(
    (80, 65, 58, 50, 40, 30, 20, 12),
    px224=(25, 18, 15, 10, 7, 5, 3, 2),
)
def jpeg_compression(x: Array, draws: Draws, quality: float) -> Array:
    """Encode as JPEG of this ``quality`` and decode."""
    xp = namespace(x)
    pixels = xp.floor(x * 255.0 + 0.5)
    if not is_numpy(x):
        return _lossy_steps(pixels, round(quality)) * (1 / 255)
    images = pixels.astype(np.uint8).transpose(0, 2, 3, 1)
    out = np.empty(images.shape, dtype=np.uint8)
    _by_pillow(images, out, round(quality))
    return np.ascontiguousarray(out.transpose(0, 3, 1, 2)).astype(np.float32) * (1 / 255)


def _by_pillow(images: NDArray[Any], out: NDArray[Any], quality: int) -> None:
    from PIL import Image

    for image, target in zip(images, out, strict=True):
        file = io.BytesIO()
        Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image).save(file, "JPEG", quality=quality)
        target[:] = np.asarray(Image.open(file)).reshape(target.shape)


_TO_YCC = ((0.299, 0.587, 0.114), (-0.168736, -0.331264, 0.5), (0.5, -0.418688, -0.081312))
_FROM_YCC = ((0.0, 1.402), (-0.344136, -0.714136), (1.772, 0.0))


def _lossy_steps(pixels: Array, quality: int) -> Array:
    """What a JPEG file keeps of whole values 0 … 255, N×C×H×W.

    Colours become luminance and chrominance, the latter at half the size; both are quantised and the way back follows.
    Entropy coding loses nothing, so it is left out.
    """
    xp = namespace(pixels)
    height, width = pixels.shape[-2:]
    for_luminance, for_chrominance = _quantisation_tables(quality)
    if pixels.shape[1] == 1:
        return _quantised(pixels - 128.0, for_luminance)
    y, blue, red = (sum(pixels[:, c : c + 1] * w for c, w in enumerate(row)) for row in _TO_YCC)
    y = _quantised(xp.floor(y + 0.5) - 128.0, for_luminance)
    colours = xp.floor(xp.concat([blue, red], axis=1) + 0.5)
    colours = _extended(_extended(colours, height % 2, -2), -width % 16, -1)
    colours = resample.box(colours, colours.shape[-2] // 2, colours.shape[-1] // 2)
    colours = _quantised(colours, for_chrominance)[..., : (height + 1) // 2, : (width + 1) // 2] - 128.0
    colours = resample.double(colours)[..., :height, :width]
    changes = [sum(colours[:, c : c + 1] * w for c, w in enumerate(row)) for row in _FROM_YCC]
    return xp.floor((y + xp.concat(changes, axis=1)).clip(0.0, 255.0) + 0.5)


@lru_cache(maxsize=64)
def _quantisation_tables(quality: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Tables of luminance and chrominance, 8×8, which Pillow writes into its files."""
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "JPEG", quality=quality)
    found = Image.open(file).quantization  # type: ignore[attr-defined]
    luminance, chrominance = (np.array(found[i], dtype=np.float32).reshape(8, 8) for i in (0, 1))
    return luminance, chrominance


_COSINES = np.cos(np.outer(np.arange(8), 2 * np.arange(8) + 1) * (np.pi / 16)) / 2
_COSINES[0] /= math.sqrt(2)


def _quantised(x: Array, table: NDArray[np.float32]) -> Array:
    """Values 0 … 255 of images in ±128 after the cosine transform of 8×8 pixels, quantisation and the way back."""
    xp = namespace(x)
    height, width = x.shape[-2:]
    x = _extended(_extended(x, -height % 8, -2), -width % 8, -1)
    x = _transformed(_transformed(x, _COSINES, -1), _COSINES, -2)
    blocks = xp.reshape(x, (*x.shape[:-2], x.shape[-2] // 8, 8, x.shape[-1] // 8, 8))
    steps = resample.constant(np.ascontiguousarray(table[:, None, :]), x)
    # Halves go away from zero, as in Pillow's files; rounded sums can fall just short of them.
    levels = xp.floor(abs(blocks) / steps + 0.5001) * steps
    x = xp.reshape(xp.where(blocks < 0, -levels, levels), x.shape)
    x = _transformed(_transformed(x, _COSINES.T, -2), _COSINES.T, -1)
    return xp.floor(x + 128.5).clip(0.0, 255.0)[..., :height, :width]


def _transformed(x: Array, matrix: NDArray[np.float64], axis: int) -> Array:
    """Matrix times every eight values along rows (−2) or columns (−1)."""
    xp = namespace(x)
    size, column = x.shape[-1], (8,) if axis == -1 else (8, 1)
    eights = xp.reshape(x, (-1, 8) if axis == -1 else (-1, 8, size))
    # Not a matrix product: its sums are added in an order that can depend on the number of images.
    total = None
    for k in range(8):
        weights = resample.constant(matrix[:, k].astype(np.float32).reshape(column), x)
        part = (eights[:, k : k + 1] if axis == -1 else eights[:, k : k + 1, :]) * weights
        if total is None:
            total = part
        else:
            total += part
    return xp.reshape(total, x.shape)


def _extended(x: Array, by: int, axis: int) -> Array:
    """Images with the last row (−2) or column (−1) repeated."""
    if not by:
        return x
    size = x.shape[axis]
    return namespace(x).take(x, resample.constant(np.minimum(np.arange(size + by), size - 1), x), axis=axis)


@IMAGES.family(
    ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2), (3.5, 0.3), (5, 0.4), (8, 0.5)),
    px224=((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2), (40, 0.3), (80, 0.4), (160, 0.5)),
)
def saturate(x: Array, draws: Draws, factor: float, offset: float) -> Array:
    """Change the saturation S of HSV to ``factor`` · S + ``offset``, at most 1.

    Grey pixels turn red when there is an offset, as in the original. The first two severities take colour away, the
    others add it, so that severity 3 is milder than 2. An image of one channel gets the luminance of what its RGB copy
    would become: severities 1–3 leave it as it is.
    """
    xp = namespace(x)
    if x.shape[1] == 1:
        return x * (1.0 - 0.701 * offset)
    value, least = xp.max(x, axis=1, keepdims=True), xp.min(x, axis=1, keepdims=True)
    spread = value - least
    grey = spread == 0
    old = xp.where(grey, xp.ones_like(value), spread) / xp.where(value == 0, xp.ones_like(value), value)
    new = (xp.where(grey, xp.zeros_like(old), old) * factor + offset).clip(None, 1.0)
    red = resample.constant(np.array([0, 1, 1], dtype=np.float32).reshape(1, 3, 1, 1), x)
    return value - xp.where(grey, value * red * new, (value - x) * (new / old))
