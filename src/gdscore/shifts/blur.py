"""Blurs: defocus, glass, motion, zoom, Gaussian. Sources of the parameters: see `gdscore.shifts.noise`."""

from __future__ import annotations

import numpy as np

from gdscore._arrays import Array
from gdscore.shifts import _resample as resample
from gdscore.shifts._families import IMAGES, Draws

__all__ = ["defocus_blur", "gaussian_blur", "glass_blur", "motion_blur", "zoom_blur"]


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
