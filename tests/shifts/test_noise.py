from __future__ import annotations

import numpy as np
import pytest

from gdscore import shifts

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
