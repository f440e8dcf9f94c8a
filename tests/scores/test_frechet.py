from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st

import gdscore
from gdscore.scores.frechet import contrasts, covariance_root, cross_trace
from tests.data import LIBRARIES, batches, made, to_library


def oracle(x, y, squared=True):
    a, b = np.cov(x.T.astype(np.float64)), np.cov(y.T.astype(np.float64))
    between = np.square(x.mean(0, dtype=np.float64) - y.mean(0, dtype=np.float64)).sum()
    root = scipy.linalg.sqrtm(a @ b)
    return (between if squared else np.sqrt(between)) + np.trace(a + b - 2 * np.real(root))


def oracle_of_few_rows(x, y):
    """The same by singular values of the product of centred rows, which `sqrtm` of a singular matrix is too coarse for."""
    x, y = (z - z.mean(0) for z in (x.astype(np.float64), y.astype(np.float64)))
    within = np.square(x).sum() / (len(x) - 1) + np.square(y).sum() / (len(y) - 1)
    return within - 2 * scipy.linalg.svdvals(x @ y.T).sum() / np.sqrt((len(x) - 1) * (len(y) - 1))


def features_of_a_network(rows, width, seed, shift=0.0):
    """Rectified features whose covariance has eigenvalues over six orders of magnitude, in float32."""
    mixing = np.random.default_rng(7).normal(size=(width, width)) * np.exp(-7 * np.arange(width) / width)
    x = np.random.default_rng(seed).normal(size=(rows, width)) @ mixing
    return np.maximum(x + shift, 0).astype(np.float32)


def score_of(x, y, library="numpy", **options):
    reference, target = (gdscore.Outputs(features=to_library(z, library)) for z in (x, y))
    return gdscore.score("frechet", target, reference=reference, **options)


@pytest.mark.parametrize("squared", [True, False])
@pytest.mark.parametrize("library", LIBRARIES)
def test_equals_scipy(squared, library):
    reference, target = made(1500, library, seed=1), made(2100, library, noise=2.0)
    expected = oracle(np.asarray(reference.features), np.asarray(target.features), squared)
    assert gdscore.score("frechet", target, reference=reference, squared=squared) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("reference_rows", "rows"), [(400, 300), (150, 300), (400, 64), (64, 400), (90, 64), (64, 90)])
def test_float32_features_of_ill_conditioned_covariance(library, reference_rows, rows):
    x, y = features_of_a_network(reference_rows, 128, 1), features_of_a_network(rows, 128, 2, 0.3)
    expected = np.square(x.mean(0, dtype=float) - y.mean(0, dtype=float)).sum() + oracle_of_few_rows(x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gdscore.GdscoreWarning)
        assert score_of(x, y, library) == pytest.approx(expected, rel=1e-10)
    if min(reference_rows, rows) > 128:
        assert expected == pytest.approx(oracle(x, y), rel=1e-6)


@pytest.mark.filterwarnings("ignore::gdscore.GdscoreWarning")
def test_fewer_rows_than_features_in_float32():
    x, y = features_of_a_network(900, 512, 1), features_of_a_network(200, 512, 2)
    expected = np.square(x.mean(0, dtype=float) - y.mean(0, dtype=float)).sum() + oracle_of_few_rows(x, y)
    assert score_of(x, y) == pytest.approx(expected, rel=1e-9)


@pytest.mark.filterwarnings("ignore::gdscore.GdscoreWarning")
@pytest.mark.parametrize("sizes", [(30, 30), (40, 100), (100, 40), (100, 100, 100), (1, 1, 30, 1)])
def test_few_rows_merge_as_many(sizes):
    """Kept rows and moments add up in any combination."""
    y = features_of_a_network(sum(sizes), 64, 2)
    score = gdscore.create_score("frechet").fit(gdscore.Outputs(features=features_of_a_network(90, 64, 1)))
    expected = score.update(gdscore.Outputs(features=y)).compute()
    parts = [gdscore.Outputs(features=part) for part in np.split(y, np.cumsum(sizes)[:-1])]
    for order in (parts, parts[::-1]):
        shards = [gdscore.restore_score(score.reset().update(part).state_dict()) for part in order]
        for shard in shards[1:]:
            shards[0].merge(shard)
        assert shards[0].compute() == pytest.approx(expected, rel=1e-8)


@pytest.mark.filterwarnings("ignore::gdscore.GdscoreWarning")
def test_features_that_are_always_zero():
    rng = np.random.default_rng(0)
    x, y = (np.hstack([z, np.zeros((len(z), 40))]) for z in (rng.normal(size=(300, 5)), 2 * rng.normal(size=(200, 5))))
    assert score_of(x, y) == pytest.approx(oracle(x[:, :5], y[:, :5]), rel=1e-7)
    assert score_of(x, y[:30]) == pytest.approx(oracle(x[:, :5], y[:30, :5]), rel=1e-7)


@pytest.mark.parametrize("squared", [True, False])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_every_precision_equals_scipy(dtype, squared):
    x, y = (
        made(rows, noise=noise, keep=("features",)).features.astype(dtype) for rows, noise in ((500, 0.5), (537, 1.0))
    )
    value = gdscore.score(
        "frechet", gdscore.Outputs(features=y), reference=gdscore.Outputs(features=x), squared=squared
    )
    assert value == pytest.approx(oracle(x, y, squared), rel=1e-9)


def test_mean_and_root_are_all_that_is_used_of_the_reference():
    fitted, target = gdscore.create_score("frechet").fit(made(300)), made(200, noise=2.0)
    score = gdscore.create_score("frechet")
    score.reference_mean_, score.reference_root_ = fitted.reference_mean_, fitted.reference_root_
    assert score.update(target).compute() == fitted.update(target).compute()


@given(st.integers(0, 1000), st.integers(1, 6), st.integers(1, 9))
def test_parts(seed, width, rows):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, width))
    root = covariance_root(x.T @ x)
    np.testing.assert_allclose(root @ root.T, x.T @ x, atol=1e-10)
    centred = x - x.mean(axis=0)
    np.testing.assert_allclose(contrasts(centred).T @ contrasts(centred), centred.T @ centred, atol=1e-10)
    assert cross_trace(x) == pytest.approx(scipy.linalg.svdvals(x).sum(), rel=1e-7)


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
