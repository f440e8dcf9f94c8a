from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from gdscore import shifts
from gdscore.shifts import _resample as resample
from gdscore.shifts._families import IMAGES

BLURS = [name for name in IMAGES if IMAGES[name].function.__module__ == "gdscore.shifts.blur"]


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
