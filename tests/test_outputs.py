from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import gdscore
from tests.data import LIBRARIES, made, to_library


class TestDerived:
    @given(arrays(np.float64, (5, 4), elements=st.floats(-300, 300)))
    def test_equals_scipy(self, z):
        out = gdscore.Outputs(logits=z)
        s = scipy.special.softmax(z, axis=1)
        np.testing.assert_allclose(out.probabilities, s, rtol=1e-12, atol=1e-300)
        np.testing.assert_array_equal(out.predictions, z.argmax(1))
        np.testing.assert_allclose(out.confidence, s.max(1), rtol=1e-12)
        np.testing.assert_allclose(out.entropy, scipy.stats.entropy(s, axis=1), rtol=1e-9, atol=1e-15)
        np.testing.assert_allclose(out.logsumexp, scipy.special.logsumexp(z, axis=1), rtol=1e-12)

    @pytest.mark.parametrize("library", LIBRARIES)
    def test_doubt_and_entropy_keep_their_digits(self, library):
        out = gdscore.Outputs(logits=to_library(np.array([[40.0, 0.0]], dtype=np.float32), library))
        assert float(out.confidence[0]) == 1.0
        assert float(out.doubt[0]) == pytest.approx(np.exp(-40), rel=1e-6)
        assert float(out.entropy[0]) == pytest.approx(41 * np.exp(-40), rel=1e-6)

    def test_computed_once(self):
        out = made(10)
        assert out.probabilities is out.probabilities
        assert out.entropy is out.entropy

    @pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
    def test_precisions(self, dtype):
        z = np.random.default_rng(0).normal(size=(20, 3)).astype(dtype)
        out = gdscore.Outputs(logits=z)
        expected = scipy.special.softmax(z.astype(np.float64), axis=1)
        np.testing.assert_allclose(out.probabilities, expected, rtol=1e-6)
        assert out.probabilities.dtype == (np.float64 if dtype == np.float64 else np.float32)

    def test_accuracy_and_correct(self):
        out = gdscore.Outputs(logits=np.eye(3), labels=np.array([0, 1, 1]))
        assert out.correct.tolist() == [True, True, False]
        assert out.accuracy == pytest.approx(2 / 3)

    def test_first_of_equal_logits_is_predicted(self):
        for library in LIBRARIES:
            out = gdscore.Outputs(logits=to_library(np.zeros((3, 5), dtype=np.float32), library))
            assert np.asarray(out.predictions).tolist() == [0, 0, 0]


class TestProbabilities:
    def test_logarithm_serves_as_logits(self):
        p = np.array([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]])
        out = gdscore.Outputs(probabilities=p)
        np.testing.assert_allclose(out.probabilities, p, atol=1e-37)
        assert np.isfinite(out.logits).all()
        assert "logits" in out.has
        assert out.n_classes == 3

    @pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
    def test_single_column_is_widened(self, shape):
        out = gdscore.Outputs(probabilities=np.array([0.25, 1.0, 0.0]).reshape(shape), labels=np.array([0, 1, 0]))
        np.testing.assert_allclose(out.probabilities, [[0.75, 0.25], [0, 1], [1, 0]], atol=1e-37)
        assert out.accuracy == 1.0

    def test_float16_rounding_is_tolerated(self):
        p = scipy.special.softmax(np.random.default_rng(0).normal(size=(50, 100)), axis=1).astype(np.float16)
        assert len(gdscore.Outputs(probabilities=p)) == 50

    @pytest.mark.parametrize("p", [[[0.5, 0.6]], [[-0.1, 1.1]], [[0.0, 0.0]], [[3.0, -2.0]]])
    def test_must_be_distributions(self, p):
        with pytest.raises(gdscore.GdscoreError, match="sum to 1 in every row.* in row 0"):
            gdscore.Outputs(probabilities=np.array(p))

    def test_single_column_beyond_one(self):
        with pytest.raises(gdscore.GdscoreError, match="row 1"):
            gdscore.Outputs(probabilities=np.array([0.5, 1.5]))


class TestRows:
    def test_slices_masks_and_indices(self):
        out = made(10)
        assert len(out[2:5]) == 3
        np.testing.assert_array_equal(out[2:5].logits, out.logits[2:5])
        np.testing.assert_array_equal(out[np.arange(10) % 2 == 0].labels, out.labels[::2])
        np.testing.assert_array_equal(out[np.array([3, 3, 1])].features, out.features[[3, 3, 1]])

    @pytest.mark.parametrize("library", LIBRARIES)
    @pytest.mark.parametrize("chooser", LIBRARIES)
    def test_selection_of_another_library(self, library, chooser):
        names = np.array([f"row {i}" for i in range(10)])
        out = gdscore.Outputs(logits=made(10, library).logits, ids=names)
        picked = out[to_library(np.array([7, 2]), chooser)]
        assert picked.ids.tolist() == ["row 7", "row 2"]
        np.testing.assert_array_equal(np.asarray(picked.logits), np.asarray(out.logits)[[7, 2]])
        assert len(out[[1, 2, 3]]) == 3

    def test_empty_selection(self):
        with pytest.raises(gdscore.GdscoreError, match="selects none of 10 rows"):
            made(10)[5:5]

    @pytest.mark.parametrize("library", LIBRARIES)
    def test_selections_that_do_not_fit(self, library):
        out = made(10, library)
        for rows, message in (
            (np.array([100]), "indices of 10 rows, but got 100"),
            (np.array([[0, 1], [2, 3]]), "one dimension"),
            (np.ones(4, dtype=bool), "mask of 10 rows, but got one of 4"),
            (np.array([0.5]), "integers"),
            ([], "selects none"),
            (np.zeros(10, dtype=bool), "selects none"),
        ):
            with pytest.raises(gdscore.GdscoreError, match=message):
                out[rows]
        assert np.asarray(out[::-1].labels).tolist() == np.asarray(out.labels).tolist()[::-1]

    def test_number_is_no_selection(self):
        with pytest.raises(gdscore.GdscoreError, match=r"use out\[3:4\]"):
            made(10)[np.int64(3)]
        with pytest.raises(gdscore.GdscoreError, match=r"use out\[3:4\]"):
            made(10)[3]

    def test_concatenate_is_the_inverse_of_slicing(self):
        for library in LIBRARIES:
            out = made(10, library)
            again = gdscore.Outputs.concatenate([out[:3], out[3:4], out[4:]])
            for name in out.arrays:
                np.testing.assert_array_equal(np.asarray(again.arrays[name]), np.asarray(out.arrays[name]))

    def test_concatenate_refuses_what_differs(self):
        with pytest.raises(gdscore.GdscoreError, match="all parts to hold"):
            gdscore.Outputs.concatenate([made(3), made(3, keep=("logits",))])
        with pytest.raises(gdscore.GdscoreError, match="10 classes"):
            gdscore.Outputs.concatenate([made(3), made(3, classes=4)])
        with pytest.raises(gdscore.GdscoreError, match="at least one"):
            gdscore.Outputs.concatenate([])

    def test_temperature(self):
        out = made(10)
        np.testing.assert_allclose(out.with_temperature(2.0).logits, out.logits / 2)
        np.testing.assert_array_equal(out.with_temperature(2.0).labels, out.labels)
        soft = gdscore.Outputs(probabilities=np.array([[0.9, 0.1]])).with_temperature(2.0)
        np.testing.assert_allclose(soft.probabilities, [[0.75, 0.25]])
        for bad in (0, -1, np.nan, np.inf):
            with pytest.raises(gdscore.GdscoreError, match="`temperature`"):
                out.with_temperature(bad)

    def test_repr_says_what_it_holds(self):
        text = repr(made(10, "jax", keep=("logits",)))
        assert text == "Outputs(logits (10, 10); jax float32)"


Z = np.random.default_rng(0).normal(size=(6, 3))
NAN, INF = Z.copy(), Z.copy()
NAN[4, 1], INF[2, 0] = np.nan, -np.inf


@pytest.mark.parametrize(
    ("given_arrays", "message"),
    [
        ({}, "at least one of `logits`, `probabilities` or `features`"),
        ({"labels": np.arange(3)}, "at least one of"),
        ({"logits": NAN}, "`logits` to be finite, but got NaN or Inf in row 4"),
        ({"logits": INF}, "`logits` to be finite, but got NaN or Inf in row 2"),
        ({"logits": Z, "features": NAN}, "`features` to be finite.* row 4"),
        ({"logits": Z, "peer_logits": INF}, "`peer_logits` to be finite.* row 2"),
        ({"logits": Z[:0]}, r"at least one row, but `logits` has shape \(0, 3\)"),
        ({"logits": Z[:, :1]}, "at least 2 classes"),
        ({"logits": Z[0]}, "2 dimensions, but got shape"),
        ({"logits": Z[None]}, "2 dimensions, but got shape"),
        ({"logits": Z.astype(int)}, "floating-point numbers, but got int64"),
        ({"logits": Z.tolist()}, "NumPy, PyTorch, JAX or CuPy, but got list; numpy.asarray"),
        ({"logits": 3.0}, "but got float"),
        ({"logits": np.ma.masked_array(Z)}, "without a mask"),
        ({"logits": Z.astype(object)}, "`logits`"),
        ({"logits": Z, "features": Z[:4]}, "as many rows as `logits`, 6, but got 4"),
        ({"logits": Z, "features": Z[:, :0]}, "`features` to have columns"),
        ({"logits": Z, "features": torch.zeros(6, 2)}, "one library, but `logits` is of numpy and `features` of torch"),
        ({"logits": Z, "labels": np.arange(5)}, "as many rows"),
        ({"logits": Z, "labels": np.array([0, 1, 2, 3, 0, 0])}, "between 0 and 2.*row 3"),
        ({"logits": Z, "labels": np.array([0, 1, -1, 0, 0, 0])}, "between 0 and 2.*row 2"),
        ({"logits": Z, "labels": np.ones(6)}, "`labels` to be integers, but got float64"),
        ({"logits": Z, "labels": np.ones((6, 1), dtype=int)}, "one dimension"),
        ({"logits": Z, "labels": [0] * 6}, "numpy.asarray"),
        ({"logits": Z, "probabilities": np.full((6, 3), 1 / 3)}, "got both"),
        ({"logits": Z, "peer_logits": Z[:, :2]}, "shape of the logits"),
        ({"logits": Z, "batch_logits": Z[:, :2]}, "`batch_logits` to have the shape of the logits"),
        ({"logits": Z, "rotation_logits": np.zeros((6, 4, 3))}, "4 rotations shown"),
        ({"logits": Z, "rotation_logits": np.zeros((6, 4))}, "3 dimensions"),
        ({"logits": Z, "ids": np.ones(6)}, "`ids` to be integers"),
        ({"logits": Z, "ids": np.array([1, "a", None, 2, 3, 4], dtype=object)}, "integers or strings"),
        ({"probabilities": np.ones(4, dtype=int)}, "floating-point"),
    ],
)
def test_refused_in_words(given_arrays, message):
    with pytest.raises(gdscore.GdscoreError, match=message):
        gdscore.Outputs(**given_arrays)


def test_missing_array_is_named():
    with pytest.raises(gdscore.GdscoreError, match="Expected `Outputs` with `labels`, but these hold only logits"):
        _ = made(5, keep=("logits",)).labels


def test_large_finite_values_are_no_infinity():
    z = np.full((4, 3), 3e38, dtype=np.float32)
    assert len(gdscore.Outputs(logits=z)) == 4


def test_gradients_are_left_behind():
    z = torch.zeros(3, 2, requires_grad=True)
    assert not gdscore.Outputs(logits=z).probabilities.requires_grad
