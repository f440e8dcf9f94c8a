"""What images must be, said at the door."""

from __future__ import annotations

import numbers
from typing import Any

from gdscore._arrays import Array, full_precision, is_array, namespace
from gdscore.errors import GdscoreError, nearest
from gdscore.shifts._registry import FAMILIES, SEVERITIES, Family

__all__ = ["check_images", "check_severity", "family_of"]

_LEAST_PIXELS = 8
_TOLERANCE = 1e-3


def check_images(images: Array) -> None:
    """Refuse what is no batch of images N×C×H×W in [0, 1] or uint8."""
    if not is_array(images):
        raise GdscoreError(
            f"Expected images as an array of NumPy, PyTorch, JAX or CuPy, but got {type(images).__name__}"
        )
    shape = tuple(images.shape)
    if len(shape) != 4:
        hint = "; add the batch axis with images[None]" if len(shape) == 3 else ""
        raise GdscoreError(f"Expected images of shape (N, C, H, W), but got shape {shape}{hint}")
    if shape[1] not in (1, 3):
        hint = ""
        if shape[3] in (1, 3):
            hint = "; it looks like channels last: transpose to (N, C, H, W) with axes (0, 3, 1, 2)"
        raise GdscoreError(f"Expected images of 1 or 3 channels, (N, C, H, W), but got shape {shape}{hint}")
    if not shape[0]:
        raise GdscoreError(f"Expected at least one image, but got an empty batch of shape {shape}")
    if min(shape[2:]) < _LEAST_PIXELS:
        raise GdscoreError(f"Expected images of at least 8×8 pixels, but got {shape[2]}×{shape[3]}")
    xp = namespace(images)
    if images.dtype != xp.uint8:
        if not xp.isdtype(images.dtype, "real floating"):
            raise GdscoreError(f"Expected images of floats in [0, 1] or of uint8, but got {images.dtype}")
        with full_precision(images):
            _check_range(images)


def _check_range(images: Array) -> None:
    xp = namespace(images)
    low, high = float(xp.min(images)), float(xp.max(images))
    if low != low or high != high:
        bad = xp.any(xp.reshape(images != images, (images.shape[0], -1)), axis=1)
        raise GdscoreError(
            f"Expected images without NaN, but image {int(xp.argmax(xp.astype(bad, xp.int32)))} has some"
        )
    if low < -_TOLERANCE or high > 1 + _TOLERANCE:
        hint = "undo the normalisation first, corrupt, then normalise" if low < 0 else "divide by 255 or pass uint8"
        raise GdscoreError(f"Expected values in [0, 1], but they go from {low:.4g} to {high:.4g}: {hint}")


def check_severity(severity: Any) -> int:
    """Severity as an integer from 1 to 8."""
    whole = isinstance(severity, numbers.Integral) and not isinstance(severity, bool)
    if not (whole and 1 <= severity <= SEVERITIES):
        raise GdscoreError(f"Expected `severity` to be an integer from 1 to {SEVERITIES}, but got {severity!r}")
    return int(severity)


def family_of(name: Any) -> Family:
    """Registered corruption of this name."""
    if not isinstance(name, str) or name not in FAMILIES:
        raise GdscoreError(f"Unknown corruption {name!r}: {nearest(str(name), FAMILIES)}")
    return FAMILIES[name]
