from __future__ import annotations

import numpy as np
import pytest
import scipy.special

import gdscore
from tests.data import made


@pytest.mark.filterwarnings("ignore::gdscore.GdscoreWarning")
@pytest.mark.parametrize(("rows", "classes"), [(3000, 10), (2500, 200), (50, 100), (1, 5), (1500, 2)])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_equals_the_singular_values(rows, classes, library):
    out = made(rows, library, classes=classes, features=24, noise=1.5)
    s = scipy.special.softmax(np.asarray(out.arrays["logits"]).astype(np.float64), axis=1)
    expected = np.linalg.svd(s, compute_uv=False).sum() / np.sqrt(rows * min(rows, classes))
    assert gdscore.score("nuclear", out) == pytest.approx(expected, rel=1e-6)


def test_ill_conditioned():
    rng = np.random.default_rng(0)
    s = scipy.special.softmax(rng.normal(size=(2000, 60)) * np.logspace(0, -6, 60), axis=1)
    expected = np.linalg.svd(s, compute_uv=False).sum() / np.sqrt(2000 * 60)
    assert gdscore.score("nuclear", gdscore.Outputs(probabilities=s)) == pytest.approx(expected, rel=1e-6)


def test_at_most_one():
    assert gdscore.score("nuclear", gdscore.Outputs(logits=99.0 * np.tile(np.eye(7), (20, 1)))) == pytest.approx(1)


def test_few_rows_are_warned_of():
    with pytest.warns(gdscore.GdscoreWarning, match="99 rows are few for 10 classes"):
        gdscore.score("nuclear", made(99))
