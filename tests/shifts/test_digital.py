from __future__ import annotations

import io

import numpy as np
import pytest
from matplotlib.colors import hsv_to_rgb, rgb_to_hsv
from PIL import Image

from gdscore import shifts


@pytest.mark.parametrize(("severity", "factor"), [(1, 0.75), (3, 0.4), (5, 0.15)])
@pytest.mark.parametrize("size", [31, 32])
def test_contrast(photos, severity, factor, size):
    x = photos(size)
    means = x.astype(float).mean(axis=(2, 3), keepdims=True)
    np.testing.assert_allclose(shifts.Corruption("contrast", severity)(x), (x - means) * factor + means, atol=1e-6)


@pytest.mark.parametrize(("severity", "factor", "offset"), [(1, 0.3, 0), (2, 0.1, 0), (3, 1.5, 0), (5, 2.5, 0.2)])
def test_saturate_changes_the_saturation_of_hsv(photos, severity, factor, offset):
    x = photos(32)
    x[0, :, :4] = 0.4
    x[0, :, 4:6] = 0
    hsv = rgb_to_hsv(x.transpose(0, 2, 3, 1))
    hsv[..., 1] = np.clip(hsv[..., 1] * factor + offset, 0, 1)
    expected = hsv_to_rgb(hsv).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(shifts.Corruption("saturate", severity)(x), expected, atol=1e-5)


def test_saturate_of_one_channel_is_the_luminance(digits):
    rgb = np.repeat(digits, 3, axis=1)
    for severity in (3, 5, 8):
        expected = np.tensordot([0.299, 0.587, 0.114], shifts.Corruption("saturate", severity)(rgb), (0, 1))
        np.testing.assert_allclose(shifts.Corruption("saturate", severity)(digits)[:, 0], expected, atol=1e-5)


@pytest.mark.parametrize("size", [(8, 8), (32, 32), (28, 45)])
@pytest.mark.parametrize(("severity", "share"), [(1, 0.95), (3, 0.85), (5, 0.65)])
def test_pixelate_is_pillows_box(size, severity, share):
    height, width = size
    x = np.random.default_rng(0).random((2, 3, height, width), dtype=np.float32)
    if size == (28, 45):
        share = shifts._corruption.FAMILIES["pixelate"].parameters(severity, height, width)[0]
    got = shifts.Corruption("pixelate", severity)(x)
    for n in range(2):
        for c in range(3):
            small = Image.fromarray(x[n, c]).resize((int(width * share), int(height * share)), Image.Resampling.BOX)
            expected = np.asarray(small.resize((width, height), Image.Resampling.BOX))
            np.testing.assert_allclose(got[n, c], expected, atol=1e-6)


@pytest.mark.parametrize(("severity", "quality"), [(1, 80), (5, 40)])
@pytest.mark.parametrize("channels", [1, 3])
def test_jpeg_is_pillows(photos, severity, quality, channels):
    x = np.round(photos(32, 130) * 255).astype(np.uint8)[:, :channels]
    got = shifts.Corruption("jpeg_compression", severity)(x)
    for i in (0, 63, 64, 129):
        file = io.BytesIO()
        image = x[i].transpose(1, 2, 0)
        Image.fromarray(image[:, :, 0] if channels == 1 else image).save(file, "JPEG", quality=quality)
        expected = np.asarray(Image.open(file)).reshape(32, 32, channels).transpose(2, 0, 1)
        np.testing.assert_array_equal(got[i], expected)


def test_elastic_moves_pixels_and_keeps_their_values(photos):
    even = np.full((3, 3, 32, 32), 0.3, dtype=np.float32)
    for severity in range(1, 9):
        np.testing.assert_allclose(shifts.Corruption("elastic_transform", severity)(even), even, atol=1e-6)
    x = photos(32)
    moved = shifts.Corruption("elastic_transform", 5)(x)
    assert (moved.max(axis=(2, 3)) <= x.max(axis=(2, 3)) + 1e-6).all()
    assert np.abs(moved.mean(axis=(2, 3)) - x.mean(axis=(2, 3))).max() < 0.05


def test_mildest_elastic_is_affine():
    ramp = np.tile(np.linspace(0.3, 0.7, 32, dtype=np.float32), (5, 1, 32, 1))
    bent = shifts.Corruption("elastic_transform", 1)(ramp)[:, 0, 8:24, 8:24].astype(float)
    for axis in (1, 2):
        assert np.abs(np.diff(bent, n=2, axis=axis)).max() < 1e-5
