"""Each corruption of images against what it promises, computed independently."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from matplotlib.colors import hsv_to_rgb, rgb_to_hsv
from PIL import Image
from scipy import ndimage

from gdscore import shifts
from gdscore.shifts import _resample as resample
from gdscore.shifts._corruptions import _panes, fractal, smooth_field
from gdscore.shifts._families import IMAGES, Draws
from gdscore.shifts._resample import through_jpeg

HALF = np.full((60, 3, 32, 32), 0.5, dtype=np.float32)


@pytest.mark.parametrize(("severity", "scale"), [(1, 0.04), (3, 0.08), (5, 0.10)])
def test_gaussian_noise(severity, scale):
    noise = shifts.Corruption("gaussian_noise", severity)(HALF) - 0.5
    assert noise.std() == pytest.approx(scale, rel=0.01)
    assert abs(noise.mean()) < 1e-3


@pytest.mark.parametrize(("severity", "photons"), [(1, 500), (3, 100), (5, 50)])
def test_shot_noise(severity, photons):
    for level in (0.02, 0.25, 0.5):
        noisy = shifts.Corruption("shot_noise", severity)(np.full_like(HALF, level))
        assert noisy.mean() == pytest.approx(level, rel=0.01)
        assert noisy.std() == pytest.approx(np.sqrt(level / photons), rel=0.02)
        assert np.abs(noisy * photons - np.round(noisy * photons)).max() < 1e-3


@pytest.mark.parametrize(("severity", "share"), [(1, 0.01), (3, 0.03), (5, 0.07)])
def test_impulse_noise(severity, share):
    noisy = shifts.Corruption("impulse_noise", severity)(HALF)
    assert set(np.unique(noisy)) == {0.0, 0.5, 1.0}
    for value in (0, 1):
        assert (noisy == value).mean() == pytest.approx(share / 2, rel=0.06)


@pytest.mark.parametrize(("severity", "scale"), [(1, 0.06), (3, 0.12), (5, 0.2)])
def test_speckle_noise(severity, scale):
    noisy = shifts.Corruption("speckle_noise", severity)(HALF)
    assert noisy.std() == pytest.approx(0.5 * scale, rel=0.01)
    assert not shifts.Corruption("speckle_noise", severity)(0 * HALF).any()


def test_large_images_get_more_noise():
    large = np.full((2, 1, 224, 224), 0.5, dtype=np.float32)
    assert (shifts.Corruption("gaussian_noise", 1)(large) - 0.5).std() == pytest.approx(0.08, rel=0.02)


BLURS = [name for name in IMAGES if name.endswith("_blur")]


@pytest.mark.parametrize("size", [8, 32, 96])
@pytest.mark.parametrize("severity", [1, 5, 8])
def test_gaussian_blur_is_scipys(photos, size, severity):
    x = photos(size, 2)
    (sigma,) = IMAGES["gaussian_blur"].parameters(severity, size, size)
    expected = ndimage.gaussian_filter(x.astype(float), (0, 0, sigma, sigma), mode="nearest", truncate=4)
    np.testing.assert_allclose(shifts.Corruption("gaussian_blur", severity)(x), expected, atol=1e-6)


@pytest.mark.parametrize("radius", [0.3, 1, 1.5, 2.5, 3, 8, 10])
def test_disk_is_a_disk(radius):
    x = np.random.default_rng(0).random((2, 1, 20, 24), dtype=np.float32)
    reach = np.arange(-int(radius), int(radius) + 1)
    kernel = (reach[:, None] ** 2 + reach**2 <= radius**2).astype(float)
    expected = ndimage.correlate(x.astype(float), (kernel / kernel.sum())[None, None], mode="mirror")
    np.testing.assert_allclose(resample.disk(x, radius, resample.mirror), expected, atol=1e-6)


@pytest.mark.parametrize("factor", [1.0, 1.07, 1.5])
def test_zoom_is_about_the_centre(photos, factor):
    x = photos(33, 1)
    grid = (np.arange(33) - 16) / factor + 16
    for c in range(3):
        expected = ndimage.map_coordinates(x[0, c].astype(float), np.meshgrid(grid, grid, indexing="ij"), order=1)
        np.testing.assert_allclose(next(resample.zooms(x, [factor]))[0, c], expected, atol=1e-6)


def test_bilinear_is_scipys():
    rng = np.random.default_rng(0)
    x = rng.random((2, 3, 17, 12), dtype=np.float32)
    rows, columns = rng.uniform(-9, 25, (2, 17, 12)), rng.uniform(-9, 20, (2, 17, 12))
    got = resample.bilinear(x, rows.astype(np.float32), columns.astype(np.float32))
    for n in range(2):
        for c in range(3):
            expected = ndimage.map_coordinates(x[n, c].astype(float), [rows[n], columns[n]], order=1, mode="mirror")
            np.testing.assert_allclose(got[n, c], expected, atol=1e-5)


def test_motion_blur_draws_a_point_out_to_one_side():
    x = np.zeros((200, 1, 33, 33), dtype=np.float32)
    x[:, :, 16, 16] = 1
    trail = shifts.Corruption("motion_blur", 5)(x)[:, 0]
    np.testing.assert_allclose(trail.sum(axis=(1, 2)), 1, atol=1e-5)
    down, right = (np.tensordot(trail, g - 16, 2) for g in np.mgrid[:33, :33])
    assert (np.abs(right) > 0.7 * np.abs(down)).all()
    angle = np.degrees(np.arctan(down / right))
    assert -45 <= angle.min() < -38
    assert 38 < angle.max() <= 45
    assert np.unique(np.sign(right)).size == 1


def test_glass_blur_copies_near_pixels():
    x = np.arange(400, dtype=np.float32).reshape(1, 1, 20, 20) / 400
    got = np.round(shifts.Corruption("glass_blur", 1)(x) * 400).astype(int)[0, 0]
    rows, columns = np.divmod(got, 20)
    for moved, here in zip((rows, columns), np.mgrid[:20, :20], strict=True):
        assert set(np.unique(moved - here)) == {-1, 0}
        assert 0.4 < (moved == here).mean() < 0.6


@pytest.mark.parametrize("name", BLURS)
def test_blurs_leave_an_even_image_alone(name):
    even = np.full((2, 3, 16, 16), 0.3, dtype=np.float32)
    for severity in range(1, 9):
        np.testing.assert_allclose(shifts.Corruption(name, severity)(even), even, atol=1e-5)


EVEN = np.full((40, 3, 32, 32), 0.5, dtype=np.float32)


@pytest.mark.parametrize(("severity", "more"), [(1, 0.05), (3, 0.15), (5, 0.3)])
def test_brightness_is_added_to_the_value_of_hsv(photos, severity, more):
    x = photos(32)
    x[0, :, :4] = 0
    hsv = rgb_to_hsv(x.transpose(0, 2, 3, 1))
    hsv[..., 2] = np.minimum(hsv[..., 2] + more, 1)
    expected = hsv_to_rgb(hsv).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(shifts.Corruption("brightness", severity)(x), expected, atol=1e-5)


def test_fog_keeps_the_brightest_value_and_veils_the_rest(photos):
    x = photos(32)
    previous = np.inf
    for severity, density in ((1, 0.2), (3, 0.75), (5, 1.5)):
        foggy = shifts.Corruption("fog", severity)(x)
        assert foggy.max() <= x.max() + 1e-6
        most = x.max(axis=(1, 2, 3), keepdims=True)
        veil = foggy * (most + density) / most - x
        assert np.ptp(veil, axis=1).max() < 1e-5, "the veil has no colour"
        np.testing.assert_allclose(veil.min(axis=(1, 2, 3)), 0, atol=1e-5)
        np.testing.assert_allclose(veil.max(axis=(1, 2, 3)), density, atol=1e-5)
        assert foggy.std() < previous
        previous = foggy.std()


def test_fog_of_a_black_image_is_black():
    assert not shifts.Corruption("fog", 5)(0 * EVEN[:1]).any()


@pytest.mark.parametrize("size", [8, 32, 100])
def test_fractal_gets_rougher_as_it_decays_less(size):
    x = np.empty((20, 1, size, size), dtype=np.float32)
    fields = [fractal(Draws("test", 0, rows=len(x)), 0, x, decay) for decay in (3, 2, 1.4)]
    assert all(f.min() == 0 and f.max() == 1 and f.shape == x.shape for f in fields)
    rough = [np.abs(np.diff(f, n=2, axis=-1)).mean() for f in fields]
    assert rough == sorted(rough)


@pytest.mark.parametrize("sigma", [1.0, 3.0, 9.0])
def test_smooth_field_has_the_deviation_of_blurred_noise(sigma):
    x = np.empty((200, 1, 64, 64), dtype=np.float32)
    field = smooth_field(Draws("test", 0, rows=len(x)), 0, x, sigma, 2.0)[:, 16:48, 16:48]
    assert field.std() == pytest.approx(2 * np.sqrt(1 / 3) / (2 * np.sqrt(np.pi) * sigma), rel=0.1)


def test_snow_only_brightens_and_falls():
    dark = np.full((40, 3, 32, 32), 0.1, dtype=np.float32)
    snowy = shifts.Corruption("snow", 3)(dark)
    assert (snowy >= dark - 1e-6).all()
    assert np.abs(np.diff(snowy, axis=2)).mean() < 0.7 * np.abs(np.diff(snowy, axis=3)).mean(), "flakes are upright"


def test_frost_is_bluish_and_different_on_every_pane():
    frosty = shifts.Corruption("frost", 5)(EVEN)
    red, _, blue = frosty.mean(axis=(0, 2, 3))
    assert blue > red
    texture = (frosty[:, 2] - 0.75 * 0.5) / 0.45
    assert -1e-5 <= texture.min() < 0.15
    assert 0.9 < texture.max() <= 1 + 1e-5
    assert 0.25 < texture.mean() < 0.65
    assert np.abs(np.corrcoef(texture.reshape(40, -1)) - np.eye(40)).mean() < 0.3


def test_frost_is_a_piece_of_one_of_the_panes_perhaps_mirrored():
    black = np.zeros((6, 1, 12, 16), dtype=np.float32)
    pieces = shifts.Corruption("frost", 5)(black)[:, 0]
    colour = np.dot((0.82, 0.92, 1.0), (0.299, 0.587, 0.114))
    panes = (_panes(12, 16) * np.float32(colour)) * np.float32(0.45)
    windows = np.lib.stride_tricks.sliding_window_view(panes, (12, 16), axis=(1, 2))
    for piece in pieces:
        turned = [piece[::down, ::right] for down in (1, -1) for right in (1, -1)]
        assert any(np.abs(windows - view).max(axis=(-2, -1)).min() < 1e-5 for view in turned)


def test_spatter_is_water_then_mud():
    water, mud = shifts.Corruption("spatter", 2)(EVEN), shifts.Corruption("spatter", 5)(EVEN)
    assert water.min() == 0.5
    assert 0.01 < (water > 0.5).mean() < 0.4
    wet = water[:, 2] > 0.55
    assert water[:, 2][wet].mean() > water[:, 0][wet].mean(), "water is turquoise"
    assert mud.max() == 0.5
    assert 0.02 < (mud < 0.5).mean() < 0.4
    darkest = mud.min(axis=(0, 2, 3))
    np.testing.assert_allclose(darkest, np.array([63, 42, 20]) / 255, atol=0.02)


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
    x = np.round(photos(32, 250)[:, :channels] * 255).astype(np.uint8)
    expected = by_pillow(x, quality).astype(float)
    got = through_jpeg(torch.from_numpy(x.astype(np.float32)), quality).numpy()
    assert set(np.unique(got)) <= set(range(256))
    assert abs(got.mean() - expected.mean()) < 0.02
    assert abs(got.std() - expected.std()) < 0.02
    lost, loss = got - x, expected - x
    assert lost.std() == pytest.approx(loss.std(), rel=0.01)
    assert (np.abs(got - expected) <= 2).mean() > 0.9


@pytest.mark.parametrize("size", [(8, 8), (9, 10), (17, 33), (24, 31), (40, 16)])
@pytest.mark.parametrize("channels", [1, 3])
def test_jpeg_without_a_codec_of_any_size(size, channels):
    height, width = size
    ramp = np.add.outer(np.linspace(0, 150, height), np.linspace(0, 100, width))
    x = (ramp * np.random.default_rng(0).uniform(0.3, 1, (2, channels, 1, 1))).astype(np.uint8)
    for quality in (10, 50, 95):
        got = through_jpeg(torch.from_numpy(x.astype(np.float32)), quality).numpy()
        assert np.abs(got - by_pillow(x, quality)).mean() < 1
        one = through_jpeg(torch.from_numpy(x[1:].astype(np.float32)), quality).numpy()
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
