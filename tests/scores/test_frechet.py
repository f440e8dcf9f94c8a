from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st

import gdscore
from tests.data import batches, made


def oracle(x, y, squared=True):
    a, b = np.cov(x.T.astype(np.float64)), np.cov(y.T.astype(np.float64))
    between = np.square(x.mean(0, dtype=np.float64) - y.mean(0, dtype=np.float64)).sum()
    root = scipy.linalg.sqrtm(a @ b)
    return (between if squared else np.sqrt(between)) + np.trace(a + b - 2 * np.real(root))


@pytest.mark.parametrize("squared", [True, False])
@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
def test_equals_scipy(squared, library):
    reference, target = made(1500, library, seed=1), made(2100, library, noise=2.0)
    expected = oracle(np.asarray(reference.features), np.asarray(target.features), squared)
    assert gdscore.score("frechet", target, reference=reference, squared=squared) == pytest.approx(expected, rel=1e-4)


@given(st.integers(0, 1000), st.integers(2, 6), st.floats(0.1, 10))
def test_equals_scipy_in_float64(seed, width, scale):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(30, width)), scale * rng.normal(size=(40, width)) @ rng.normal(size=(width, width)) + 1
    value = gdscore.score("frechet", gdscore.Outputs(features=y), reference=gdscore.Outputs(features=x))
    assert value == pytest.approx(oracle(x, y), rel=1e-6, abs=1e-8)


def test_far_from_zero_nothing_cancels():
    rng = np.random.default_rng(0)
    x = (1e4 + 0.1 * rng.normal(size=(5000, 4))).astype(np.float32)
    y = (1e4 + 0.2 * rng.normal(size=(5000, 4))).astype(np.float32)
    score = gdscore.create_score("frechet").fit(gdscore.Outputs(features=x))
    for part in batches(gdscore.Outputs(features=y), 600):
        score.update(part)
    assert score.compute() == pytest.approx(oracle(x, y), rel=1e-3)


def test_reference_itself_is_near_zero():
    reference = made(1500)
    assert gdscore.score("frechet", reference, reference=reference) == pytest.approx(0, abs=1e-4)


def test_few_rows():
    reference = made(200)
    with pytest.warns(gdscore.GdscoreWarning, match="16 rows give a covariance of 16 features"):
        gdscore.score("frechet", made(16), reference=reference)
    with pytest.raises(gdscore.GdscoreError, match="at least 2 rows of target"):
        gdscore.score("frechet", made(1), reference=reference)
    with pytest.raises(gdscore.GdscoreError, match="at least 2 rows of reference"):
        gdscore.score("frechet", made(100), reference=made(1))


def test_wide_features_use_only_one_triangle():
    rng = np.random.default_rng(0)
    torch = pytest.importorskip("torch")
    x, y = rng.normal(size=(900, 700)), 1.3 * rng.normal(size=(900, 700))
    value = gdscore.score(
        "frechet",
        gdscore.Outputs(features=torch.from_numpy(y)),
        reference=gdscore.Outputs(features=torch.from_numpy(x)),
    )
    assert value == pytest.approx(oracle(x, y), rel=1e-6)
