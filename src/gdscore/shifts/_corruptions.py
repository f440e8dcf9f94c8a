"""The corruptions of images: noise, blur, weather, digital. Each is a function with its parameters by severity.

Parameters of severities 1–5 are those of CIFAR-10-C (32 px) and ImageNet-C (224 px), by D. Hendrycks and T. Dietterich,
"Benchmarking Neural Network Robustness to Common Corruptions and Perturbations", ICLR 2019; 6–8 go on from there.
"""

from __future__ import annotations

import io
import math
import threading
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore._arrays import Array, is_numpy, like, namespace
from gdscore.shifts import _resample as resample
from gdscore.shifts._families import IMAGES, Draws

_LUMINANCE = (0.299, 0.587, 0.114)
_MISPRINT = 244 / 224
"""ImageNet-C scales its elastic parameters by 244 instead of 224 pixels."""

# -- noise ----------------------------------------------------------------------------------------------------


@IMAGES.family(
    (0.04, 0.06, 0.08, 0.09, 0.10, 0.13, 0.17, 0.22),
    px224=(0.08, 0.12, 0.18, 0.26, 0.38, 0.50, 0.65, 0.85),
)
def gaussian_noise(x: Array, draws: Draws, scale: float) -> Array:
    """Add normal noise of standard deviation ``scale`` to every value, as in low light."""
    return x + draws.normal_field(0, tuple(x.shape[1:])) * scale


@IMAGES.family(
    (500, 250, 100, 75, 50, 30, 18, 10),
    px224=(60, 25, 12, 5, 3, 2, 1.3, 0.8),
)
def shot_noise(x: Array, draws: Draws, photons: float) -> Array:
    """Replace every value by a Poisson count of mean ``photons`` · value, divided by ``photons``."""
    return draws.poisson_field(0, x * photons, photons) * (1 / photons)


@IMAGES.family(
    (0.01, 0.02, 0.03, 0.05, 0.07, 0.10, 0.15, 0.20),
    px224=(0.03, 0.06, 0.09, 0.17, 0.27, 0.37, 0.48, 0.60),
)
def impulse_noise(x: Array, draws: Draws, share: float) -> Array:
    """Set a ``share`` of all values to 0 or 1, salt and pepper of equal parts, each channel for itself."""
    xp = namespace(x)
    u = draws.uniform_field(0, tuple(x.shape[1:]))
    x = xp.where(u < share / 2, xp.zeros_like(x), x)
    return xp.where(u >= 1 - share / 2, xp.ones_like(x), x)


@IMAGES.family(
    (0.06, 0.10, 0.12, 0.16, 0.20, 0.26, 0.33, 0.42),
    px224=(0.15, 0.20, 0.35, 0.45, 0.60, 0.80, 1.05, 1.40),
)
def speckle_noise(x: Array, draws: Draws, scale: float) -> Array:
    """Multiply every value by 1 + normal noise of standard deviation ``scale``."""
    return x + x * draws.normal_field(0, tuple(x.shape[1:])) * scale


# -- blur -----------------------------------------------------------------------------------------------------


@IMAGES.family(
    ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1), (2, 0.3), (2.5, 0.3), (3, 0.4)),
    px224=((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5), (13, 0.5), (16, 0.5), (20, 0.5)),
)
def defocus_blur(x: Array, draws: Draws, radius: float, smooth: float) -> Array:
    """Average over a disk of ``radius`` pixels, its rim softened by a small Gaussian of ``smooth`` pixels."""
    rim = 1 if radius <= 8 else 2
    return resample.gaussian(resample.disk(x, radius, resample.mirror), smooth, resample.mirror, radius=rim)


@IMAGES.family(
    ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2), (0.4, 2, 2), (0.5, 2, 3), (0.5, 3, 3)),
    px224=((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2), (1.8, 5, 2), (2.1, 6, 3), (2.5, 8, 3)),
)
def glass_blur(x: Array, draws: Draws, sigma: float, reach: float, rounds: float) -> Array:
    """Shuffle near pixels, ``rounds`` times within ``reach`` pixels, between two Gaussian blurs of ``sigma``.

    The original walks over the pixels one by one and copies each from a near one; here all are copied at once, and
    the pixels at the rim take part.
    """
    height, width = x.shape[-2:]
    reach = round(reach)
    x = resample.gaussian(x, sigma, resample.edge)
    grid = [resample.constant(np.arange(size, dtype=np.int32), x) for size in (height, width)]
    for turn in range(round(rounds)):
        bits = draws.bits(turn, (height, width))
        steps = [(((bits >> shift) & 0x7FFF) * (2 * reach) >> 15) - reach for shift in (0, 16)]
        rows = (steps[0] + grid[0][:, None]).clip(0, height - 1)
        columns = (steps[1] + grid[1][None, :]).clip(0, width - 1)
        x = resample.pick(x, rows * width + columns)
    return resample.gaussian(x, sigma, resample.edge)


@IMAGES.family(
    ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5), (11, 3.2), (13, 4), (16, 5)),
    px224=((10, 3), (15, 5), (15, 8), (15, 12), (20, 15), (25, 19), (31, 24), (38, 30)),
)
def motion_blur(x: Array, draws: Draws, radius: float, sigma: float) -> Array:
    """Draw every pixel out into a half-Gaussian trail of ``sigma`` pixels, cut at 2 · ``radius``.

    Each image has its own direction, within 45° of the horizontal.
    """
    return resample.motion(x, (draws.uniform(0, 1)[:, 0] - 0.5) * (np.pi / 2), radius, sigma)


@IMAGES.family(
    ((0.06, 7), (0.11, 12), (0.15, 16), (0.20, 21), (0.25, 26), (0.32, 26), (0.41, 26), (0.52, 26)),
    px224=((0.11, 12), (0.15, 16), (0.20, 11), (0.24, 13), (0.30, 11), (0.37, 13), (0.46, 15), (0.57, 17)),
)
def zoom_blur(x: Array, draws: Draws, most: float, steps: float) -> Array:
    """Average the image and its enlargements by 1 … 1 + ``most`` in ``steps`` even steps.

    Enlarged about the exact centre; the original rounds its crops to whole pixels.
    """
    total = x + x
    for enlarged in resample.zooms(x, np.linspace(1, 1 + most, round(steps))[1:].tolist()):
        total += enlarged
    total *= 1 / (round(steps) + 1)
    return total


@IMAGES.family(
    (0.4, 0.6, 0.7, 0.8, 1, 1.25, 1.6, 2),
    px224=(1, 2, 3, 4, 6, 8, 10.5, 14),
)
def gaussian_blur(x: Array, draws: Draws, sigma: float) -> Array:
    """Blur with a Gaussian of ``sigma`` pixels."""
    return resample.gaussian(x, sigma, resample.edge)


# -- weather --------------------------------------------------------------------------------------------------


def _colour(rgb: tuple[float, float, float], x: Array) -> Array:
    """Colour as 1×C×1×1: its luminance where the images have one channel."""
    values: NDArray[Any] = np.array(rgb if x.shape[1] == 3 else [np.dot(rgb, _LUMINANCE)], dtype=np.float32)
    return resample.constant(values.reshape(1, -1, 1, 1), x)


def fractal(draws: Draws, layer: int, x: Array, decay: float) -> Array:
    """Cloudy field N×1×H×W from 0 to 1 in each image: noise on ever finer grids, each ``decay``² times fainter."""
    xp = namespace(x)
    height, width = x.shape[-2:]
    spacing = 1 << (max(height, width) - 1).bit_length() - 1
    total, octave = None, 0
    while spacing >= 1:
        shape = (math.ceil((height - 1) / spacing) + 1, math.ceil((width - 1) / spacing) + 1)
        noise = (draws.uniform_field(layer + octave, shape) * 2.0 - 1.0) * decay ** (-2 * octave)
        noise = noise if spacing == 1 else resample.upsample(noise, spacing, height, width)
        total = noise if total is None else total + noise
        spacing, octave = spacing // 2, octave + 1
    low, high = xp.min(total, axis=(1, 2), keepdims=True), xp.max(total, axis=(1, 2), keepdims=True)
    return ((total - low) / (high - low))[:, None, :, :]


@IMAGES.family(
    (
        *((0.1, 0.2, 1, 0.6, 8, 3, 0.95), (0.1, 0.2, 1, 0.5, 10, 4, 0.9), (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9)),
        *((0.25, 0.3, 2.25, 0.6, 12, 6, 0.85), (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8)),
        *(
            (0.34, 0.3, 1.25, 0.65, 14, 12, 0.76),
            (0.38, 0.3, 1.25, 0.65, 14, 12, 0.72),
            (0.43, 0.3, 1.25, 0.65, 14, 12, 0.68),
        ),
    ),
    px224=(
        *((0.1, 0.3, 3, 0.5, 10, 4, 0.8), (0.2, 0.3, 2, 0.5, 12, 4, 0.7), (0.55, 0.3, 4, 0.9, 12, 8, 0.7)),
        *((0.55, 0.3, 4.5, 0.85, 12, 8, 0.65), (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55)),
        *(
            (0.58, 0.3, 2.5, 0.85, 12, 12, 0.5),
            (0.61, 0.3, 2.5, 0.85, 12, 12, 0.46),
            (0.65, 0.3, 2.5, 0.85, 12, 12, 0.42),
        ),
    ),
)
def snow(
    x: Array,
    draws: Draws,
    mean: float,
    scale: float,
    flake: float,
    least: float,
    radius: float,
    sigma: float,
    keep: float,
) -> Array:
    """Whiten the image, all but a share ``keep``, and add falling flakes.

    Flakes are normal noise (``mean``, ``scale``) enlarged ``flake`` times, cut off below ``least`` and drawn out
    downwards by a motion blur (``radius``, ``sigma``) in a direction of each image's own; they are added once as they
    are and once turned by 180°.
    """
    xp = namespace(x)
    height, width = x.shape[-2:]
    shape = (1, math.ceil(height / flake) + 1, math.ceil(width / flake) + 1)
    layer = resample.upsample(draws.normal_field(0, shape) * scale + mean, flake, height, width)
    layer = xp.where(layer < least, xp.zeros_like(layer), layer).clip(0.0, 1.0)
    layer = resample.motion(layer, (draws.uniform(1, 1)[:, 0] + 0.5) * (-np.pi / 2), radius, sigma)
    grey = x if x.shape[1] == 1 else sum(x[:, c : c + 1] * w for c, w in enumerate(_LUMINANCE))
    x = x * keep + xp.maximum(x, grey * 1.5 + 0.5) * (1 - keep)
    return x + layer + xp.flip(layer, axis=(-2, -1))


@IMAGES.family(
    ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45), (0.68, 0.52), (0.6, 0.6), (0.5, 0.68)),
    px224=((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75), (0.52, 0.8), (0.44, 0.85), (0.36, 0.9)),
)
def frost(x: Array, draws: Draws, keep: float, ice: float) -> Array:
    """A share ``keep`` of the image behind a share ``ice`` of frost on the pane.

    As in the original every image gets a random piece of one of a few frosted panes, here also mirrored at random. The
    original's panes are photographs; here they are generated, once for each image size.
    """
    n, _, height, width = x.shape
    with _PANES_LOCK:  # threads that need the same panes wait for the one that makes them
        made = _panes(height, width)
    panes = resample.constant(made, x, "panes", height, width)
    of_image = draws.uniform(0, 5)
    which = (of_image[:, 0] * panes.shape[0]).astype(np.int64)
    places = []
    for axis, size in ((1, height), (2, width)):
        first = (of_image[:, axis] * (panes.shape[axis] - size + 1)).astype(np.int64)
        along = np.arange(size)
        places.append(first[:, None] + np.where(of_image[:, axis + 2, None] < 0.5, along, size - 1 - along))
    places[0] = (places[0] + which[:, None] * panes.shape[1]) * panes.shape[2]
    rows, columns = like(places[0], x), like(places[1], x)
    xp = namespace(x)
    index = xp.reshape(rows[:, :, None] + columns[:, None, :], (-1,))
    texture = xp.reshape(xp.take(xp.reshape(panes, (-1,)), index, axis=0), (n, 1, height, width))
    frosted = texture * _colour((0.82, 0.92, 1.0), x)
    frosted *= ice
    frosted += x * keep
    return frosted


_PANES, _PANE_SIZE = 6, 1.5
"""Frosted panes for images of one size, and their size in images."""

_PANES_LOCK = threading.Lock()


@lru_cache(maxsize=4)
def _panes(height: int, width: int) -> NDArray[np.float32]:
    """Frost in [0, 1] on panes larger than the images: needles in three directions 60° apart, on a film of ice.

    The directions are each pane's own, and needles grow where a cloudy field is dense.
    """
    unit = (height * width) ** 0.5 / 32
    tall, wide = math.ceil(_PANE_SIZE * height), math.ceil(_PANE_SIZE * width)
    panes = np.empty((_PANES, 1, tall, wide), dtype=np.float32)
    draws = Draws("frost", 0, rows=_PANES, like=panes)
    cover = fractal(draws, 16, panes, 1.6)
    spacing = max(1.5, 0.6 * unit)
    shape = (1, math.ceil(tall / spacing) + 1, math.ceil(wide / spacing) + 1)
    turn = draws.uniform(8, 1)[:, 0]
    needles = np.zeros_like(cover)
    for k in range(3):
        seeds = resample.upsample(draws.normal_field(k, shape), spacing, tall, wide)
        seeds = (seeds + cover * 2.0 - 1.7).clip(0.0, None)
        for side in (0.0, 1.0):
            trail = resample.motion(seeds, (turn + k / 3 + side) * np.pi, 4 * unit, 2.2 * unit)
            np.maximum(needles, trail, out=needles)
    made: NDArray[np.float32] = (cover * 0.45 + needles * 1.1).clip(None, 1.0)[:, 0]
    return made


@IMAGES.family(
    ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75), (2, 1.6), (2.6, 1.5), (3.4, 1.4)),
    px224=((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4), (3.6, 1.35), (4.3, 1.3), (5.2, 1.25)),
)
def fog(x: Array, draws: Draws, density: float, decay: float) -> Array:
    """Add ``density`` times a cloudy field and scale back to the image's own maximum.

    The field is noise on ever finer grids, each ``decay``² times fainter, interpolated and added up; the original's
    diamond-square algorithm makes the same spectrum point by point.
    """
    most = namespace(x).max(x, axis=(1, 2, 3), keepdims=True)
    return (x + fractal(draws, 0, x, decay) * density) * (most / (most + density))


@IMAGES.family(
    (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6),
    px224=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8),
)
def brightness(x: Array, draws: Draws, more: float) -> Array:
    """Add ``more`` to the value V of HSV, at most 1: hue and saturation stay."""
    xp = namespace(x)
    value = xp.max(x, axis=1, keepdims=True)
    brighter = (value + more).clip(None, 1.0)
    black = value == 0
    return xp.where(black, brighter, x * (brighter / xp.where(black, xp.ones_like(value), value)))


@IMAGES.family(
    (
        *((0.62, 0.1, 0.7, 0.7, 0.5, 0), (0.65, 0.1, 0.8, 0.7, 0.5, 0), (0.65, 0.3, 1, 0.69, 0.5, 0)),
        *((0.65, 0.1, 0.7, 0.69, 0.6, 1), (0.65, 0.1, 0.5, 0.68, 0.6, 1)),
        *((0.67, 0.1, 0.5, 0.68, 0.6, 1), (0.69, 0.1, 0.5, 0.68, 0.6, 1), (0.71, 0.1, 0.5, 0.68, 0.6, 1)),
    ),
    px224=(
        *((0.65, 0.3, 4, 0.69, 0.6, 0), (0.65, 0.3, 3, 0.68, 0.6, 0), (0.65, 0.3, 2, 0.68, 0.5, 0)),
        *((0.65, 0.3, 1, 0.65, 1.5, 1), (0.67, 0.4, 1, 0.65, 1.5, 1)),
        *((0.69, 0.4, 1, 0.65, 1.5, 1), (0.71, 0.4, 1, 0.65, 1.5, 1), (0.73, 0.4, 1, 0.65, 1.5, 1)),
    ),
)
def spatter(
    x: Array, draws: Draws, mean: float, scale: float, sigma: float, least: float, strength: float, mud: float
) -> Array:
    """Splash drops onto the image: pale water at severities 1–3, brown mud from 4 on.

    Drops are where normal noise (``mean``, ``scale``), blurred by ``sigma`` pixels, exceeds ``least``. Mud covers what
    a blur of the drops by ``strength`` leaves above 0.8. Water brightens by up to ``strength``; its light comes from a
    relief of the drops, where the original goes through an edge detector and a distance transform.
    """
    xp = namespace(x)
    layer = resample.gaussian(draws.normal_field(0, (1, *x.shape[-2:])) * scale + mean, sigma, resample.edge)
    drops = layer > least
    if mud:
        cover = resample.gaussian(xp.astype(drops, xp.float32), strength, resample.edge)
        cover = xp.where(cover < 0.8, xp.zeros_like(cover), cover)
        return x * (1.0 - cover) + _colour((63 / 255, 42 / 255, 20 / 255), x) * cover
    soft = resample.gaussian(xp.astype(drops, xp.float32), max(0.5, sigma / 2), resample.edge)
    relief = soft - xp.roll(soft, (1, 1), axis=(-2, -1))
    light = xp.where(drops, (0.5 + relief).clip(0.0, 1.0), xp.zeros_like(soft)) * soft
    return x + light * strength * _colour((175 / 255, 238 / 255, 238 / 255), x)


# -- digital --------------------------------------------------------------------------------------------------


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
    new_corners = corners + (2 * draws.uniform(0, 6).reshape(n, 3, 2) - 1) * affine * size
    maps = np.linalg.solve(np.column_stack([corners, np.ones(3)])[None], new_corners)
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
        return resample.through_jpeg(pixels, round(quality)) * (1 / 255)
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
