"""An image file as an array."""

import numpy as np
from PIL import Image, ImageOps

__all__ = ["pixels"]


def pixels(source, size=None):
    """A file or a Pillow image as uint8 3×size×size (its shorter side by default): colour, centre crop, bilinear."""
    try:
        with source if isinstance(source, Image.Image) else Image.open(source) as image:
            colour = image.convert("RGB")
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(
            f"Expected an image that decodes, but got {source}: {error}; fetch it again, or delete it."
        ) from error
    size = size or min(colour.size)
    return np.asarray(ImageOps.fit(colour, (size, size), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
