"""The arithmetic of JPEG against Pillow's files."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from gdscore.shifts._jpeg import through_jpeg


def by_pillow(images: np.ndarray, quality: int) -> np.ndarray:
    out = np.empty_like(images)
    for image, result in zip(images.transpose(0, 2, 3, 1), out, strict=True):
        file = io.BytesIO()
        Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image).save(file, "JPEG", quality=quality)
        result[:] = np.asarray(Image.open(file)).reshape(image.shape).transpose(2, 0, 1)
    return out


def images(kind: str, channels: int, height: int, width: int) -> np.ndarray:
    rng = np.random.default_rng(height * 100 + width)
    noise = rng.integers(0, 256, (2, channels, height, width), dtype=np.uint8)
    ramp = np.add.outer(np.linspace(0, 150, height), np.linspace(0, 100, width))
    smooth = (ramp * rng.uniform(0.3, 1, (2, channels, 1, 1))).astype(np.uint8)
    return {"noise": noise, "smooth": smooth, "black and white": (noise > 128).astype(np.uint8) * 255}[kind]


@pytest.mark.parametrize("kind", ["noise", "smooth", "black and white"])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(8, 8), (9, 10), (17, 33), (24, 31), (32, 32)])
def test_same_bits_as_pillow(kind, channels, size):
    x = images(kind, channels, *size)
    for quality in (1, 2, 7, 25, 50, 80, 95, 100):
        expected = by_pillow(x, quality)
        np.testing.assert_array_equal(through_jpeg(x.astype(np.int32), quality), expected)
        np.testing.assert_array_equal(through_jpeg(torch.from_numpy(x.astype(np.int32)), quality).numpy(), expected)


@settings(max_examples=60, deadline=None)
@given(st.integers(8, 40), st.integers(8, 40), st.integers(1, 100), st.sampled_from([1, 3]))
def test_any_size_and_quality(height, width, quality, channels):
    x = images("noise", channels, height, width)
    np.testing.assert_array_equal(through_jpeg(x.astype(np.int32), quality), by_pillow(x, quality))
