"""Noise: Gaussian, shot, impulse, speckle.

Parameters of severities 1–5 are those of CIFAR-10-C (32 px) and ImageNet-C (224 px), by D. Hendrycks and T. Dietterich,
"Benchmarking Neural Network Robustness to Common Corruptions and Perturbations", ICLR 2019; 6–8 go on from there.
"""

from __future__ import annotations

from gdscore._arrays import Array, namespace
from gdscore.shifts._families import IMAGES, Draws

__all__ = ["gaussian_noise", "impulse_noise", "shot_noise", "speckle_noise"]


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
