"""Blurring, resizing and moving pixels, and JPEG on accelerators, in products and sums of whole arrays.

Matrix products and library reductions are left out on purpose: they may round differently from one batch size to the
next. ``total += part`` works in place where the library can, and the order of additions is part of the result.

The lossy steps of JPEG are written out here, at the end, for the speed of fitting on a GPU: a copy to the host, or a
codec that takes one image after the other, would make it wait. On the host Pillow writes and reads the file.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gdscore._arrays import Array, is_numpy, like, namespace

Border: TypeAlias = Callable[[NDArray[Any], int], NDArray[Any]]


_CONSTANTS: dict[tuple[Any, ...], Array] = {}


def constant(values: NDArray[Any], x: Array, *name: Any) -> Array:
    """Host array as ``x`` is: on the host, or a tensor kept on its device, as a copy to an accelerator waits for it.

    It is known again by its ``name``, or by its content.
    """
    if is_numpy(x):
        return values
    place = (*(name or (values.tobytes(), values.dtype.str, values.shape)), str(x.device))
    if place not in _CONSTANTS:
        if len(_CONSTANTS) >= 4096:
            _CONSTANTS.clear()
        # Not by `like`, which does not wait: another stream may be the next to ask.
        _CONSTANTS[place] = namespace(x).asarray(values, device=x.device)
    return _CONSTANTS[place]


def edge(position: NDArray[Any], size: int) -> NDArray[Any]:
    """Index of the nearest pixel: … a a a b c c c …"""
    clipped: NDArray[Any] = np.clip(position, 0, size - 1)
    return clipped


def mirror(position: NDArray[Any], size: int) -> NDArray[Any]:
    """Index of the pixel mirrored at the outermost one: … c b a b c b a …"""
    last = max(size - 1, 1)
    return edge(last - np.abs(position % (2 * last) - last), size)


def _cut(x: Array, begin: int, length: int, axis: int) -> Array:
    return x[..., begin : begin + length] if axis == -1 else x[..., begin : begin + length, :]


def _along(x: Array, index: NDArray[Any], weight: NDArray[Any], axis: int) -> Array:
    """Σ_t weight[:, t] · x[index[:, t]] along the rows (−2) or columns (−1)."""
    shape = (-1,) if axis == -1 else (-1, 1)

    def term(t: int) -> Array:
        taken = namespace(x).take(x, constant(np.ascontiguousarray(index[:, t]), x), axis=axis)
        taken *= constant(weight[:, t].astype(np.float32), x).reshape(shape)
        return taken

    total = term(0)
    for t in range(1, index.shape[1]):
        total += term(t)
    return total


def _padded(x: Array, by: int, axis: int, border: Border) -> Array:
    index = border(np.arange(-by, x.shape[axis] + by), x.shape[axis])
    return namespace(x).take(x, constant(index, x), axis=axis) if by else x


def _turned(x: NDArray[Any]) -> NDArray[Any]:
    """Rows as columns: NumPy works on whole rows several times faster than along each of them."""
    return np.ascontiguousarray(x.swapaxes(-1, -2))


def _symmetric(x: Array, half: NDArray[Any], axis: int, border: Border) -> Array:
    if axis == -1 and is_numpy(x):
        return _turned(_symmetric(_turned(x), half, -2, border))
    size, radius = x.shape[axis], len(half) - 1
    padded = _padded(x, radius, axis, border)
    total = x * float(half[0])
    memory = {"out": np.empty_like(total)} if is_numpy(x) else {}
    for k in range(1, radius + 1):
        before, after = _cut(padded, radius - k, size, axis), _cut(padded, radius + k, size, axis)
        pair = namespace(x).add(before, after, **memory)
        pair *= float(half[k])
        total += pair
    return total


def gaussian(x: Array, sigma: float, border: Border, *, radius: int | None = None) -> Array:
    """Gaussian blur, cut at four standard deviations unless a radius is given."""
    radius = int(4 * sigma + 0.5) if radius is None else radius
    if radius == 0:
        return x
    half = np.exp(-0.5 * (np.arange(radius + 1) / sigma) ** 2)
    half /= half[0] + 2 * half[1:].sum()
    return _symmetric(_symmetric(x, half, -1, border), half, -2, border)


def disk(x: Array, radius: float, border: Border) -> Array:
    """Mean over all pixels within a distance: horizontal boxes that grow row by row, so the cost is linear in it."""
    height, width = x.shape[-2:]
    reach = int(radius)
    padded = _padded(_padded(x, reach, -1, border), reach, -2, border)
    widths = [int(math.sqrt(radius**2 - dy**2)) for dy in range(reach + 1)]
    boxes = _cut(padded, reach, width, -1)
    total = namespace(x).zeros_like(x)
    for half in range(reach + 1):
        if half:
            boxes = boxes + _cut(padded, reach - half, width, -1)
            boxes += _cut(padded, reach + half, width, -1)
        for dy in (d for d, w in enumerate(widths) if w == half):
            for row in {reach - dy, reach + dy}:
                total += _cut(boxes, row, height, -2)
    pixels = sum((2 * w + 1) * (2 if dy else 1) for dy, w in enumerate(widths))
    total *= 1 / pixels
    return total


def _linear(size: int, position: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    left = np.clip(np.floor(position).astype(np.int64), 0, max(size - 2, 0))
    fraction = np.clip(position - left, 0, 1)
    return np.stack([left, edge(left + 1, size)], axis=1), np.stack([1 - fraction, fraction], axis=1)


@lru_cache(maxsize=256)
def _enlarging(size: int, factor: float) -> tuple[NDArray[Any], NDArray[Any]]:
    middle = (size - 1) / 2
    return _linear(size, (np.arange(size) - middle) / factor + middle)


def zooms(x: Array, factors: Iterable[float]) -> Iterator[Array]:
    """Images enlarged about the centre by each factor and cut to the old size, bilinear."""
    turned = _turned(x) if is_numpy(x) else None
    for factor in factors:
        across, down = _enlarging(x.shape[-1], factor), _enlarging(x.shape[-2], factor)
        wide = _along(x, *across, -1) if turned is None else _turned(_along(turned, *across, -2))
        yield _along(wide, *down, -2)


def upsample(lattice: Array, spacing: float, height: int, width: int) -> Array:
    """Bilinear field from its values at multiples of ``spacing`` pixels."""
    for axis, size in ((-1, width), (-2, height)):
        lattice = _along(lattice, *_linear(lattice.shape[axis], np.arange(size) / spacing), axis)
    return lattice


def double(x: Array) -> Array:
    """Images of twice the size: each way a new pixel is 3/4 of the nearest old one and 1/4 of the next."""
    for axis in (-1, -2):
        size = x.shape[axis]
        x = _along(x, *_linear(size, (np.arange(2 * size) + 0.5) / 2 - 0.5), axis)
    return x


def box(x: Array, height: int, width: int) -> Array:
    """Resize, each new pixel being the mean of the old pixels whose centres it covers (nearest when enlarging)."""
    for axis, new in ((-1, width), (-2, height)):
        old = x.shape[axis]
        centre, reach = (np.arange(new) + 0.5) * old / new, max(old / new, 1) / 2
        first, last = np.floor(centre - reach + 0.5), np.floor(centre + reach + 0.5)
        index = first[:, None] + np.arange(int((last - first).max()))
        weight = (index < last[:, None]) / (last - first)[:, None]
        x = _along(x, edge(index.astype(np.int64), old), weight, axis)
    return x


def mean(x: Array) -> Array:
    """Mean of each image's channel, N×C×1×1, added up in an order that is the same for every batch size."""
    pixels = x.shape[-1] * x.shape[-2]
    for axis in (-1, -2):
        while (size := x.shape[axis]) > 1:
            half = size // 2
            folded = _cut(x, 0, half, axis) + _cut(x, half, half, axis)
            x = namespace(x).concat([folded, _cut(x, 2 * half, 1, axis)], axis=axis) if size % 2 else folded
    return x * (1 / pixels)


def pick(x: Array, index: Array) -> Array:
    """Pixel number ``index[n]`` (row · width + column, N×H×W) of each channel of image n."""
    planes = x.reshape(*x.shape[:2], -1)
    if not is_numpy(x):
        return planes.gather(2, index.reshape(len(x), 1, -1).long().expand(planes.shape)).reshape(x.shape)
    taken = np.empty(planes.shape, x.dtype)
    pixels_of_images = index.astype(np.intp, copy=False).reshape(len(x), -1)
    for plane, pixels, result in zip(planes, pixels_of_images, taken, strict=True):
        np.take(plane, pixels, axis=1, mode="clip", out=result)
    return taken.reshape(x.shape)


def bilinear(x: Array, rows: Array, columns: Array) -> Array:
    """Values at real positions, N×H×W each, mirrored at the border."""
    xp = namespace(x)
    corners = []
    for position, size in ((rows, x.shape[-2]), (columns, x.shape[-1])):
        folded = ((size - 1) - abs((size - 1) - abs(position))).clip(0.0, None)
        low = xp.floor(folded).clip(None, float(size - 2))
        folded -= low
        corners.append((xp.astype(low, xp.int32), folded[:, None, :, :]))
    (top, down), (left, right) = corners
    width = x.shape[-1]
    index = top * width + left
    over, across = 1.0 - down, 1.0 - right

    def line(first: Array) -> Array:
        value, after = pick(x, first), pick(x, first + 1)
        value *= across
        after *= right
        value += after
        return value

    upper, lower = line(index), line(index + width)
    upper *= over
    lower *= down
    upper += lower
    return upper


def motion(x: Array, angle: NDArray[Any], radius: float, sigma: float) -> Array:
    """Half-Gaussian trail of 2·radius + 1 pixels in a direction of each image's own (radians); edges repeat."""
    weights = np.exp(-0.5 * (np.arange(2 * round(radius) + 1) / sigma) ** 2)
    weights = weights[weights > 1e-4 * weights.sum()]
    weights /= weights.sum()
    steps = np.arange(len(weights))[:, None]
    down = np.ceil(steps * np.sin(angle) - 0.5).astype(np.int32)
    right = np.ceil(steps * np.cos(angle) - 0.5).astype(np.int32)
    total = x * float(weights[0])
    if is_numpy(x):
        for image, result, rows, columns in zip(x, total, down.T, right.T, strict=True):
            _add_trail(image, result, rows, columns, weights)
        return total
    height, width = x.shape[-2:]
    grid = [constant(np.arange(size, dtype=np.int32), x) for size in (height, width)]
    offsets = [like(np.ascontiguousarray(offset[:, :, None]), x) for offset in (down, right)]
    for k in range(1, len(weights)):
        rows = (grid[0] + offsets[0][k]).clip(0, height - 1)
        columns = (grid[1] + offsets[1][k]).clip(0, width - 1)
        part = pick(x, rows[:, :, None] * width + columns[:, None, :])
        part *= float(weights[k])
        total += part
    return total


def _add_trail(
    image: NDArray[Any], total: NDArray[Any], down: NDArray[Any], right: NDArray[Any], weights: NDArray[Any]
) -> None:
    """Add the moved copies of one image: slices of a padded copy, which cost less than looking pixels up."""
    height, width = image.shape[-2:]
    above, left = int(np.abs(down).max()), int(np.abs(right).max())
    padded = _padded(_padded(image, left, -1, edge), above, -2, edge)
    part = np.empty_like(image)
    for row, column, weight in zip(down[1:] + above, right[1:] + left, weights[1:], strict=True):
        np.multiply(padded[:, row : row + height, column : column + width], float(weight), out=part)
        total += part


_TO_YCC = ((0.299, 0.587, 0.114), (-0.168736, -0.331264, 0.5), (0.5, -0.418688, -0.081312))
_FROM_YCC = ((0.0, 1.402), (-0.344136, -0.714136), (1.772, 0.0))


def through_jpeg(pixels: Array, quality: int) -> Array:
    """What a JPEG file keeps of whole values 0 … 255, N×C×H×W.

    Colours become luminance and chrominance, the latter at half the size; both are quantised and the way back follows.
    Entropy coding loses nothing, so it is left out.
    """
    xp = namespace(pixels)
    height, width = pixels.shape[-2:]
    for_luminance, for_chrominance = _quantisation_tables(quality)
    if pixels.shape[1] == 1:
        return _quantised(pixels - 128.0, for_luminance)
    y, blue, red = [sum(pixels[:, c : c + 1] * w for c, w in enumerate(row)) for row in _TO_YCC]
    y = _quantised(xp.floor(y + 0.5) - 128.0, for_luminance)
    colours = xp.floor(xp.concat([blue, red], axis=1) + 0.5)
    colours = _extended(_extended(colours, height % 2, -2), -width % 16, -1)
    colours = box(colours, colours.shape[-2] // 2, colours.shape[-1] // 2)
    colours = _quantised(colours, for_chrominance)[..., : (height + 1) // 2, : (width + 1) // 2] - 128.0
    colours = double(colours)[..., :height, :width]
    changes = [sum(colours[:, c : c + 1] * w for c, w in enumerate(row)) for row in _FROM_YCC]
    return xp.floor((y + xp.concat(changes, axis=1)).clip(0.0, 255.0) + 0.5)


@lru_cache(maxsize=64)
def _quantisation_tables(quality: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Tables of luminance and chrominance, 8×8, which Pillow writes into its files."""
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "JPEG", quality=quality)
    tables = Image.open(file).quantization  # type: ignore[attr-defined]
    return np.array(tables[0], dtype=np.float32).reshape(8, 8), np.array(tables[1], dtype=np.float32).reshape(8, 8)


_COSINES = np.cos(np.outer(np.arange(8), 2 * np.arange(8) + 1) * (np.pi / 16)) / 2
_COSINES[0] /= math.sqrt(2)


def _quantised(x: Array, table: NDArray[np.float32]) -> Array:
    """Values 0 … 255 of images in ±128 after the cosine transform of 8×8 pixels, quantisation and the way back."""
    xp = namespace(x)
    height, width = x.shape[-2:]
    x = _extended(_extended(x, -height % 8, -2), -width % 8, -1)
    x = _transformed(_transformed(x, _COSINES, -1), _COSINES, -2)
    blocks = xp.reshape(x, (*x.shape[:-2], x.shape[-2] // 8, 8, x.shape[-1] // 8, 8))
    steps = constant(np.ascontiguousarray(table[:, None, :]), x)
    # Halves go away from zero, as in Pillow's files; rounded sums can fall just short of them.
    levels = xp.floor(abs(blocks) / steps + 0.5001) * steps
    x = xp.reshape(xp.where(blocks < 0, -levels, levels), x.shape)
    x = _transformed(_transformed(x, _COSINES.T, -2), _COSINES.T, -1)
    return xp.floor(x + 128.5).clip(0.0, 255.0)[..., :height, :width]


def _transformed(x: Array, matrix: NDArray[np.float64], axis: int) -> Array:
    """Matrix times every eight values along rows (−2) or columns (−1)."""
    shape = (8,) if axis == -1 else (8, 1)
    eights = x.reshape((-1, 8) if axis == -1 else (-1, 8, x.shape[-1]))

    def term(k: int) -> Array:
        return eights[:, k : k + 1] * constant(matrix[:, k].astype(np.float32).reshape(shape), x)

    # Not a matrix product: its sums are added in an order that can depend on the number of images.
    total = term(0)
    for k in range(1, 8):
        total += term(k)
    return total.reshape(x.shape)


def _extended(x: Array, by: int, axis: int) -> Array:
    """Images with the last row (−2) or column (−1) repeated."""
    if not by:
        return x
    size = x.shape[axis]
    return namespace(x).take(x, constant(np.minimum(np.arange(size + by), size - 1), x), axis=axis)
