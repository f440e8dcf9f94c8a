from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits, load_sample_images


@pytest.fixture(scope="session")
def photos():
    """Function size, count → crops of scikit-learn's two photographs, float32 N×3×size×size."""
    images = load_sample_images().images

    def crops(size: int, count: int = 16) -> np.ndarray:
        rng = np.random.default_rng(0)
        made = []
        for i in range(count):
            side = int(rng.integers(150, 400))
            top, left = rng.integers(0, 427 - side), rng.integers(0, 640 - side)
            crop = Image.fromarray(images[i % 2][top : top + side, left : left + side])
            made.append(np.asarray(crop.resize((size, size), Image.Resampling.LANCZOS)))
        return (np.stack(made).transpose(0, 3, 1, 2) / 255).astype(np.float32)

    return crops


@pytest.fixture(scope="session")
def digits():
    """Handwritten digits of 28×28 pixels, float32 N×1×28×28."""
    small = (load_digits().images[:32] / 16).astype(np.float32)
    return np.stack([np.asarray(Image.fromarray(d).resize((28, 28), Image.Resampling.BILINEAR)) for d in small])[
        :, None
    ]
