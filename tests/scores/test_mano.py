from __future__ import annotations

import numpy as np
import pytest
import scipy.special
import torch

import gdscore
from tests.data import made


def direct(z):
    z = z.astype(np.float64)
    s = scipy.special.softmax(z, axis=1)
    phi = -scipy.special.log_softmax(z, axis=1).mean()
    v = 1 + z + z**2 / 2
    q = s if phi > 5 else v / v.sum(1, keepdims=True)
    return (q**4).mean() ** 0.25, phi


@pytest.mark.parametrize("scale", [1.0, 40.0])
def test_equals_the_formula_on_both_sides_of_the_criterion(scale):
    z = scale * made(2500).logits
    expected, phi = direct(z)
    assert (phi > 5) == (scale > 1)
    assert gdscore.score("mano", gdscore.Outputs(logits=z)) == pytest.approx(expected, rel=1e-6)


def test_many_classes_always_take_the_softmax():
    z = np.random.default_rng(0).normal(size=(2000, 149)) * 0.01
    s = scipy.special.softmax(z, axis=1)
    assert gdscore.score("mano", gdscore.Outputs(logits=z)) == pytest.approx((s**4).mean() ** 0.25, rel=1e-9)


class TestPublishedVariant:
    """methods.md: Φ from one batch only; the row minimum subtracted; batches of 128, averaged alike."""

    def released(self, z):
        z = torch.tensor(z)
        batches = z.split(128)
        uniform = torch.full_like(batches[0][:1], 1 / z.shape[1])
        fifth = batches[min(4, len(batches) - 1)]
        phi = torch.nn.functional.cross_entropy(fifth, uniform.expand(len(fifth), -1))
        norms = []
        for batch in batches:
            if phi > 5:
                q = batch.softmax(1)
            else:
                q = 1 + batch + batch**2 / 2
                q = torch.nn.functional.normalize(q - q.min(1, keepdim=True).values, p=1, dim=1)
            norms.append(q.norm(p=4) / (q.numel() ** 0.25))
        return float(torch.stack(norms).mean())

    @pytest.mark.parametrize("rows", [300, 700, 2500])
    @pytest.mark.parametrize("scale", [1.0, 40.0])
    def test_equals_what_was_released(self, rows, scale):
        z = scale * made(rows, noise=1.5).logits
        published = gdscore.score("mano", gdscore.Outputs(logits=z), variant="published")
        assert published == pytest.approx(self.released(z), rel=1e-5)

    def test_one_batch_decides(self):
        z = made(2560).logits.copy()
        z *= 0.5
        z[512:640] *= 8
        published = gdscore.score("mano", gdscore.Outputs(logits=z), variant="published")
        assert published == pytest.approx(self.released(z), rel=1e-5)
        assert direct(z)[1] < 5 < direct(z[512:640])[1]
        assert abs(published / gdscore.score("mano", gdscore.Outputs(logits=z)) - 1) > 0.1

    def test_subtracting_the_minimum_matters(self):
        z = made(2560).logits
        published = gdscore.score("mano", gdscore.Outputs(logits=z), variant="published")
        assert published > 1.02 * gdscore.score("mano", gdscore.Outputs(logits=z))
