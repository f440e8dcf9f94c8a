"""Weather: snow, frost, fog, brightness, spatter. Sources of the parameters: see `gdscore.shifts.noise`."""

from __future__ import annotations

import math
import threading
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore._arrays import Array, like, namespace
from gdscore.shifts import _resample as resample
from gdscore.shifts._families import IMAGES, Draws

__all__ = ["brightness", "fog", "fractal", "frost", "snow", "spatter"]

_LUMINANCE = (0.299, 0.587, 0.114)


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
    low, high = (f(total, axis=(1, 2), keepdims=True) for f in (xp.min, xp.max))
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
    panes = resample.constant(_panes(height, width), x, "panes", height, width)
    of_image = draws.uniform(0, 5)
    which = (of_image[:, 0] * panes.shape[0]).astype(np.int64)
    places = []
    for axis, size in ((1, height), (2, width)):
        first = (of_image[:, axis] * (panes.shape[axis] - size + 1)).astype(np.int64)
        along = np.arange(size)
        places.append(first[:, None] + np.where(of_image[:, axis + 2, None] < 0.5, along, size - 1 - along))
    places[0] = (places[0] + which[:, None] * panes.shape[1]) * panes.shape[2]
    rows, columns = (like(place, x) for place in places)
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


def _panes(height: int, width: int) -> NDArray[np.float32]:
    # Threads that need the same panes wait for the one that makes them.
    with _PANES_LOCK:
        return _made_panes(height, width)


@lru_cache(maxsize=4)
def _made_panes(height: int, width: int) -> NDArray[np.float32]:
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
