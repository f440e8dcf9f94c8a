"""Images that the corruptions are made for, and errors for all others."""

from __future__ import annotations

from gdscore._arrays import Array, full_precision, is_array, is_torch, namespace, on_host, to_numpy
from gdscore.errors import GdscoreError

__all__ = ["check_image_shape", "check_images"]

_LEAST_PIXELS = 8
_TOLERANCE = 1e-3


def check_images(images: Array) -> None:
    """Refuse what is not a batch of images N×C×H×W in [0, 1] or uint8."""
    if not is_array(images):
        raise GdscoreError(
            f"Expected images as an array of NumPy, PyTorch, JAX or CuPy, but got {type(images).__name__}"
        )
    shape = tuple(images.shape)
    check_image_shape(shape)
    if not shape[0]:
        raise GdscoreError(f"Expected at least one image, but got an empty batch of shape {shape}")
    xp = namespace(images)
    if images.dtype != xp.uint8:
        if not xp.isdtype(images.dtype, "real floating"):
            raise GdscoreError(f"Expected images of floats in [0, 1] or of uint8, but got {images.dtype}")
        # Threads of torch that wait for each other cost more than they save here.
        host = to_numpy(images) if is_torch(images) and on_host(images) else images
        with full_precision(host):
            _check_range(host)


def check_image_shape(shape: tuple[int, ...]) -> None:
    """Refuse shapes that the corruptions are not made for."""
    if len(shape) != 4:
        hint = "; add the batch axis with images[None]" if len(shape) == 3 else ""
        raise GdscoreError(f"Expected images of shape (N, C, H, W), but got shape {shape}{hint}")
    if shape[1] not in (1, 3):
        hint = ""
        if shape[3] in (1, 3):
            hint = "; it looks like channels last: transpose to (N, C, H, W) with axes (0, 3, 1, 2)"
        raise GdscoreError(f"Expected images of 1 or 3 channels, (N, C, H, W), but got shape {shape}{hint}")
    if min(shape[2:]) < _LEAST_PIXELS:
        raise GdscoreError(f"Expected images of at least 8×8 pixels, but got {shape[2]}×{shape[3]}")


def _check_range(images: Array) -> None:
    xp = namespace(images)
    # One copy to the host, for which an accelerator is waited for once.
    low, high = (float(v) for v in to_numpy(xp.stack([xp.min(images), xp.max(images)])))
    if low != low or high != high:
        bad = xp.any(xp.reshape(images != images, (images.shape[0], -1)), axis=1)
        raise GdscoreError(
            f"Expected images without NaN, but image {int(xp.argmax(xp.astype(bad, xp.int32)))} has some"
        )
    if low < -_TOLERANCE or high > 1 + _TOLERANCE:
        hint = "undo the normalisation first, corrupt, then normalise" if low < 0 else "divide by 255 or pass uint8"
        raise GdscoreError(f"Expected values in [0, 1], but they go from {low:.4g} to {high:.4g}: {hint}")
