from __future__ import annotations

import numpy as np
import pytest
from matplotlib.colors import hsv_to_rgb, rgb_to_hsv

from gdscore import shifts
from gdscore.shifts._families import Draws
from gdscore.shifts.digital import smooth_field
from gdscore.shifts.weather import _made_panes, fractal

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
    panes = (_made_panes(12, 16) * np.float32(colour)) * np.float32(0.45)
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
