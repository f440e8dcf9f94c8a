from __future__ import annotations

import numpy as np
import pytest

import gdscore
from tests.data import made


def direct(out, published=False):
    x, predicted = np.asarray(out.arrays["features"]).astype(np.float64), np.asarray(out.predictions)
    mean = x.mean(0)
    classes = np.unique(predicted)
    between = sum((predicted == k).sum() * np.square(x[predicted == k].mean(0) - mean).sum() for k in classes)
    if published:
        return np.log(between / (len(classes) - 1))
    return np.log(between / (len(x) * (out.n_classes - 1)))


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("published", [False, True])
def test_equals_the_formula(library, published):
    out = made(1500, library, noise=2.0)
    value = gdscore.score("dispersion", out, variant="published" if published else "default")
    assert value == pytest.approx(direct(out, published), rel=1e-6)


def test_released_code_grows_with_rows_and_with_collapse():
    small, large = made(1000, noise=1.5), made(8000, noise=1.5)
    grown = [gdscore.score("dispersion", o, variant="published") for o in (small, large)]
    assert grown[1] - grown[0] == pytest.approx(np.log(8), abs=0.15)
    two = small[np.isin(small.predictions, small.predictions[:1]) | np.isin(small.predictions, [3])]
    assert gdscore.score("dispersion", two, variant="published") == pytest.approx(direct(two, published=True), rel=1e-6)


def test_offset_features_do_not_cancel():
    out = made(3000, noise=2.0)
    moved = gdscore.Outputs(logits=out.logits, features=out.features.astype(np.float64) + 1e6)
    assert gdscore.score("dispersion", moved) == pytest.approx(gdscore.score("dispersion", out), abs=1e-5)


@pytest.mark.parametrize("variant", ["default", "published"])
def test_one_predicted_class(variant):
    out = gdscore.Outputs(
        logits=np.tile([0.0, 2.0, 0.0], (40, 1)), features=np.random.default_rng(0).normal(size=(40, 2))
    )
    with pytest.raises(gdscore.GdscoreError, match="at least two predicted classes, but all 40 rows .* class 1"):
        gdscore.score("dispersion", out, variant=variant)


def test_equal_features():
    with pytest.raises(gdscore.GdscoreError, match="features that differ"):
        gdscore.score("dispersion", gdscore.Outputs(logits=2 * np.tile(np.eye(2), (20, 1)), features=np.ones((40, 2))))
