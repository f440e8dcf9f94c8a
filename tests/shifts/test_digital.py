from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from matplotlib.colors import hsv_to_rgb, rgb_to_hsv
from PIL import Image

from gdscore import shifts
from gdscore.shifts._families import IMAGES
from gdscore.shifts.digital import _lossy_steps


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
        share = IMAGES["pixelate"].parameters(severity, height, width)[0]
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


def by_pillow(images: np.ndarray, quality: int) -> np.ndarray:
    out = np.empty_like(images)
    for image, result in zip(images.transpose(0, 2, 3, 1), out, strict=True):
        file = io.BytesIO()
        Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image).save(file, "JPEG", quality=quality)
        result[:] = np.asarray(Image.open(file)).reshape(image.shape).transpose(2, 0, 1)
    return out


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("quality", [12, 40, 80])
def test_jpeg_without_a_codec_has_the_moments_of_pillows(photos, channels, quality):
    x = np.round(photos(32, 1000)[:, :channels] * 255).astype(np.uint8)
    expected = by_pillow(x, quality).astype(float)
    got = _lossy_steps(torch.from_numpy(x.astype(np.float32)), quality).numpy()
    assert set(np.unique(got)) <= set(range(256))
    assert abs(got.mean() - expected.mean()) < 0.02
    assert abs(got.std() - expected.std()) < 0.02
    lost, loss = got - x, expected - x
    assert lost.std() == pytest.approx(loss.std(), rel=0.005)
    assert (np.abs(got - expected) <= 2).mean() > 0.9


@pytest.mark.parametrize("size", [(8, 8), (9, 10), (17, 33), (24, 31), (40, 16)])
@pytest.mark.parametrize("channels", [1, 3])
def test_jpeg_without_a_codec_of_any_size(size, channels):
    height, width = size
    ramp = np.add.outer(np.linspace(0, 150, height), np.linspace(0, 100, width))
    x = (ramp * np.random.default_rng(0).uniform(0.3, 1, (2, channels, 1, 1))).astype(np.uint8)
    for quality in (10, 50, 95):
        got = _lossy_steps(torch.from_numpy(x.astype(np.float32)), quality).numpy()
        assert np.abs(got - by_pillow(x, quality)).mean() < 1
        one = _lossy_steps(torch.from_numpy(x[1:].astype(np.float32)), quality).numpy()
        np.testing.assert_array_equal(one, got[1:])


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
