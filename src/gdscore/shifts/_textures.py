"""Random fields that fog, frost and elastic deformation are made of."""

from __future__ import annotations

import math

from gdscore._arrays import Array, namespace
from gdscore.shifts import _resample as resample
from gdscore.shifts._random import Draws

__all__ = ["fractal", "smooth_field"]


def smooth_field(draws: Draws, layer: int, x: Array, sigma: float, strength: float) -> Array:
    """Uniform noise in ±1, blurred by ``sigma`` pixels, times ``strength``: N×H×W.

    Wide blurs are made on a coarser grid, whose noise has the deviation that the mean over its cells would have.
    """
    height, width = x.shape[-2:]
    spacing = max(1, int(sigma / 3))
    shape = (math.ceil((height - 1) / spacing) + 1, math.ceil((width - 1) / spacing) + 1)
    if spacing == 1:
        noise = draws.uniform(layer, shape) * 2.0 - 1.0
    else:
        noise = draws.normal(layer, shape) * (math.sqrt(1 / 3) / spacing)
    blurred = resample.gaussian(noise * strength, sigma / spacing, resample.mirror) if sigma else noise * strength
    return blurred if spacing == 1 else resample.upsample(blurred, spacing, height, width)


def fractal(draws: Draws, layer: int, x: Array, decay: float) -> Array:
    """Cloudy field N×1×H×W from 0 to 1 in each image: noise on ever finer grids, each ``decay``² times fainter."""
    xp = namespace(x)
    height, width = x.shape[-2:]
    spacing = 1 << (max(height, width) - 1).bit_length() - 1
    total, octave = None, 0
    while spacing >= 1:
        shape = (math.ceil((height - 1) / spacing) + 1, math.ceil((width - 1) / spacing) + 1)
        noise = (draws.uniform(layer + octave, shape) * 2.0 - 1.0) * decay ** (-2 * octave)
        noise = noise if spacing == 1 else resample.upsample(noise, spacing, height, width)
        total = noise if total is None else total + noise
        spacing, octave = spacing // 2, octave + 1
    low, high = (f(total, axis=(1, 2), keepdims=True) for f in (xp.min, xp.max))
    return ((total - low) / (high - low))[:, None, :, :]
