from __future__ import annotations

import warnings

import ml_dtypes
import numpy as np
import pytest
import scipy.sparse
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
    def test_one_minus_confidence_and_entropy_keep_their_digits(self, library):
        out = gdscore.Outputs(logits=to_library(np.array([[40.0, 0.0]], dtype=np.float32), library))
        assert float(out.confidence[0]) == 1.0
        assert float(out.one_minus_confidence[0]) == pytest.approx(np.exp(-40), rel=1e-6)
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
        out = gdscore.Outputs(logits=2 * np.eye(3), labels=np.array([0, 1, 1]))
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

    @pytest.mark.parametrize(
        "rows",
        [
            *(None, "a", (0, 1), (slice(1),), slice(None, None, 0), slice("a", None), slice(0.5, 2), ..., True, 1.5),
            *([[0], [1, 2]], ["a"], [None], [10**400], {0, 1}, {"a": 1}, object(), b"a", [1.0], 10**400, -11, 1j),
        ],
        ids=range(22),
    )
    @pytest.mark.parametrize("library", LIBRARIES)
    def test_what_selects_no_rows(self, rows, library):
        with pytest.raises(gdscore.GdscoreError, match="Expected"):
            made(10, library)[rows]

    def test_empty_selection(self):
        with pytest.raises(gdscore.GdscoreError, match="selects none of 10 rows"):
            made(10)[5:5]

    @pytest.mark.parametrize("library", LIBRARIES)
    def test_selections_that_do_not_fit(self, library):
        out = made(10, library)
        for rows, message in (
            (np.array([100]), "10 rows.*index 100 is out of bounds"),
            (np.array([[0, 1], [2, 3]]), "mask of 10 rows, but got array"),
            (np.ones(4, dtype=bool), "size of axis is 10 but size of corresponding boolean axis is 4"),
            (np.array([0.5]), "of integer"),
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
        with pytest.raises(gdscore.GdscoreError, match="`logits` of all parts to have 10 columns"):
            gdscore.Outputs.concatenate([made(3), made(3, classes=4)])
        with pytest.raises(gdscore.GdscoreError, match="at least one"):
            gdscore.Outputs.concatenate([])
        with pytest.raises(gdscore.GdscoreError, match="but got ndarray"):
            gdscore.Outputs.concatenate([made(3), np.zeros((3, 5))])

    def test_concatenate_refuses_inputs_of_another_width(self):
        one, other = (gdscore.Outputs(logits=3 * np.eye(3), inputs=np.ones((3, width))) for width in (2, 4))
        with pytest.raises(gdscore.GdscoreError, match="`inputs` of all parts to have 2 columns, .* but one has 4"):
            gdscore.Outputs.concatenate([one, other])

    def test_concatenate_takes_any_iterable(self):
        out = made(10)
        again = gdscore.Outputs.concatenate(out[i : i + 4] for i in range(0, 10, 4))
        np.testing.assert_array_equal(again.logits, out.logits)

    def test_class_names_stay(self):
        names = ("cat", "dog", "fox")
        out = gdscore.Outputs(logits=np.ones((4, 3)), features=np.ones((4, 2)), class_names=np.array(names))
        parts = [out[:2], out[[2, 3]]]
        others = [out.only({"logits"}), out.to_numpy(), out.like(out), out.working_copy(), out.with_temperature(2.0)]
        for part in [out, *parts, gdscore.Outputs.concatenate(parts), *others]:
            assert part.class_names == names
        assert made(3).class_names is None
        nameless = gdscore.Outputs(logits=np.ones((4, 3)), features=np.ones((4, 2)))
        assert gdscore.Outputs.concatenate([nameless, out]).class_names == names
        other = gdscore.Outputs(logits=np.ones((4, 3)), features=np.ones((4, 2)), class_names=["dog", "cat", "fox"])
        with pytest.raises(gdscore.GdscoreError, match="same classes in the same order"):
            gdscore.Outputs.concatenate([out, nameless, other])

    def test_temperature(self):
        out = made(10)
        np.testing.assert_allclose(out.with_temperature(2.0).logits, out.logits / 2)
        np.testing.assert_array_equal(out.with_temperature(2.0).labels, out.labels)
        soft = gdscore.Outputs(probabilities=np.array([[0.9, 0.1]])).with_temperature(2.0)
        np.testing.assert_allclose(soft.probabilities, [[0.75, 0.25]])
        with pytest.raises(gdscore.GdscoreError, match="finite"):
            gdscore.Outputs(logits=np.full((1, 3), 3e38, dtype=np.float32)).with_temperature(0.5)
        for bad in (0, -1, np.nan, np.inf, "a", None, True, 10**400, 1e-31, [2.0], 1j):
            with pytest.raises(gdscore.GdscoreError, match="`temperature`"):
                out.with_temperature(bad)

    def test_repr_says_what_it_holds(self):
        text = repr(made(10, "jax", keep=("logits",)))
        assert text == "Outputs(logits (10, 10); jax float32)"


class Table:
    """What a data frame looks like from here."""

    columns = ("a", "b")

    def __len__(self):
        return 2


Z = np.random.default_rng(0).normal(size=(6, 3))
STRINGS = np.dtypes.StringDType() if hasattr(np.dtypes, "StringDType") else object
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch warns that nested tensors are a prototype
    NESTED = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
NAN, INF = Z.copy(), Z.copy()
NAN[4, 1], INF[2, 0] = np.nan, -np.inf


@pytest.mark.parametrize(
    ("given_arrays", "message"),
    [
        ({}, "at least one of `logits`, `probabilities` or `features`"),
        ({"labels": np.arange(3)}, "at least one of"),
        ({"logits": NAN}, "`logits` to be finite, but got NaN in row 4"),
        ({"logits": INF}, "`logits` to be finite, but got -Inf in row 2"),
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
        ({"logits": Z[:, 0]}, r"2 dimensions, but got shape \(6,\): for a binary model with one logit z"),
        ({"logits": scipy.special.expit(Z[:, 0])}, "look like probabilities of a binary model: pass probabilities="),
        ({"logits": scipy.special.expit(Z[:, :1])}, "look like probabilities of a binary model: pass probabilities="),
        ({"logits": scipy.sparse.csr_array(Z)}, "but got csr_array; its toarray"),
        ({"logits": Table()}, "but got Table; its to_numpy.* gdscore.from_frame reads tables"),
        ({"logits": "Z"}, "but got str$"),
        ({"logits": {"Z": Z}}, "but got dict$"),
        ({"logits": Z.astype(complex)}, "floating-point numbers, but got complex128"),
        ({"logits": Z.astype("datetime64[s]")}, "floating-point numbers"),
        ({"logits": np.zeros(6, dtype=[("a", "f8"), ("b", "f8")])}, "2 dimensions"),
        ({"logits": torch.zeros(6, 3, device="meta")}, "`logits` to hold values, but got a tensor on the device meta"),
        ({"logits": torch.zeros(6, 3).to_sparse()}, r"dense tensor, but got a sparse one: use its to_dense\(\)"),
        ({"logits": NESTED}, "dense tensor, but got a nested one"),
        ({"logits": torch.zeros(6, 3, dtype=torch.int8)}, "floating-point numbers, but got torch.int8"),
        ({"logits": Z, "labels": np.array(list("abcabc"))}, "encode the classes as 0 … K−1.*gdscore.from_frame"),
        ({"logits": Z, "labels": np.array(list("abcabc"), dtype=object)}, "encode the classes as 0 … K−1"),
        ({"logits": Z, "labels": np.array(list("abcabc"), dtype=STRINGS)}, "encode the classes as 0 … K−1"),
        ({"logits": Z, "labels": np.ones(6, dtype=bool)}, "`labels` to be integers, but got bool"),
        ({"logits": Z, "ids": np.array([b"\xff"] * 6)}, "bytes to be UTF-8 text"),
        ({"logits": Z, "ids": np.array([b"a", "b", "c", "d", "e", "f"], dtype=object)}, "integers or strings"),
        ({"logits": Z, "class_names": "abc"}, "`class_names` to be a sequence of strings, but got 'abc'"),
        ({"logits": Z, "class_names": 5}, "`class_names` to be a sequence of strings, but got 5"),
        ({"logits": Z, "class_names": ["a", "b"]}, "got 2 `class_names` for 3 classes"),
        ({"logits": Z, "class_names": ["a", "b", 3]}, "`class_names` to be strings, but got 3"),
        ({"logits": Z, "class_names": ["a", "b", "a"]}, "different `class_names`, but 'a' occurs"),
        ({"features": Z, "class_names": ["a", "b", "c"]}, "for no array with a column for each class"),
        ({"logits": Z, "check_logits": "no"}, "`check_logits` to be True or False"),
        ({"logits": Z, "features": Z[:4]}, "as many rows as `logits`, 6, but got 4"),
        ({"logits": Z, "features": Z[:, :0]}, "`features` to have columns"),
        ({"logits": Z, "features": torch.zeros(6, 2)}, "one library, but `logits` is of numpy and `features` of torch"),
        ({"logits": Z, "labels": np.arange(5)}, "as many rows"),
        ({"logits": Z, "labels": np.array([0, 1, 2, 3, 0, 0])}, "between 0 and 2.*row 3"),
        ({"logits": Z, "labels": np.array([0, 1, -1, 0, 0, 0])}, "between 0 and 2.*row 2"),
        ({"logits": Z, "labels": np.full(6, 0.5)}, "`labels` to be whole numbers, but got 0.5 in row 0"),
        ({"logits": Z, "labels": np.ones((6, 1), dtype=int)}, "one dimension"),
        ({"logits": Z, "labels": [0] * 6}, "numpy.asarray"),
        ({"logits": Z, "probabilities": np.full((6, 3), 1 / 3)}, "got both"),
        ({"logits": Z, "peer_logits": Z[:, :2]}, "shape of the logits"),
        ({"logits": Z, "batch_logits": Z[:, :2]}, "`batch_logits` to have the shape of the logits"),
        ({"logits": Z, "rotation_logits": np.zeros((6, 4, 3))}, "4 rotations shown"),
        ({"logits": Z, "rotation_logits": np.zeros((6, 4))}, "3 dimensions"),
        ({"logits": Z, "class_names": {"a", "b", "c"}}, "to be a sequence of strings"),
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


class TestProbabilitiesAsLogits:
    P = scipy.special.softmax(np.random.default_rng(0).normal(size=(40, 4)), axis=1)

    @pytest.mark.parametrize("library", LIBRARIES)
    @pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
    @pytest.mark.parametrize("rows", [2, 40])
    @pytest.mark.parametrize("name", ["logits", "peer_logits", "batch_logits"])
    def test_are_refused(self, library, dtype, rows, name):
        if library == "jax" and dtype == "float64":
            pytest.skip("JAX has no float64 by default")
        p = to_library(self.P[:rows].astype(dtype), library)
        cure = "probabilities=" if name == "logits" else "their logarithm"
        with pytest.raises(gdscore.GdscoreError, match=f"`{name}` .* look like probabilities .* rows: pass {cure}"):
            gdscore.Outputs(**{name: p})
        assert len(gdscore.Outputs(**{name: p}, check_logits=False)[:1]) == 1

    @pytest.mark.parametrize("p", [np.eye(2), np.eye(5)[[1] * 20], np.tile([0.3, 0.7], (3, 1)), P.round(2)])
    def test_one_hot_constant_and_rounded(self, p):
        with pytest.raises(gdscore.GdscoreError, match="pass probabilities="):
            gdscore.Outputs(logits=p)

    def test_logits_are_not(self):
        rng = np.random.default_rng(0)
        for _ in range(2000):  # small batches of two classes are the likeliest to look alike by chance
            gdscore.Outputs(logits=rng.normal(size=(2, 2)))
        gdscore.Outputs(logits=self.P[:1])
        gdscore.Outputs(logits=np.concatenate([self.P, [[0.5, 0.5, 0.5, 0.5]]]))
        gdscore.Outputs(logits=rng.uniform(size=(40, 4)))
        gdscore.Outputs(logits=2 * np.eye(3))
        gdscore.Outputs(logits=np.log(self.P))

    def test_on_an_accelerator_compute_refuses_them(self, monkeypatch):
        from gdscore import _arrays

        monkeypatch.setattr(_arrays, "on_host", lambda x: False)
        score = gdscore.create_score("confscore").update(gdscore.Outputs(logits=self.P))
        with pytest.raises(gdscore.GdscoreError, match="or probabilities as `logits`"):
            score.compute()
        allowed = gdscore.Outputs(logits=self.P, check_logits=False)
        assert gdscore.create_score("confscore").update(allowed).compute() > 0


class TestRoundedProbabilities:
    @pytest.mark.parametrize("library", LIBRARIES)
    def test_are_divided_by_their_sum_with_a_warning(self, library):
        p = np.array([[0.33, 0.33, 0.33], [0.5, 0.25, 0.26]], dtype=np.float32)
        with pytest.warns(gdscore.GdscoreWarning, match=r"sums to (0.99|1.01), as rounded numbers do"):
            out = gdscore.Outputs(probabilities=to_library(p, library))
        np.testing.assert_allclose(np.asarray(out.probabilities), p / p.sum(1, keepdims=True), rtol=1e-6)

    def test_farther_off_is_refused(self):
        with pytest.raises(gdscore.GdscoreError, match="they sum to 0.9 in row 0: they look rounded"):
            gdscore.Outputs(probabilities=np.array([[0.3, 0.3, 0.3]]))


@pytest.mark.filterwarnings("ignore::gdscore.GdscoreWarning")
class TestUnusualTypes:
    @pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int64])
    def test_labels_and_ids_of_torch(self, dtype):
        z = torch.randn(40, 5, generator=torch.Generator().manual_seed(0))
        y = torch.arange(40) % 5
        out = gdscore.Outputs(logits=z, labels=y.to(dtype), features=z, ids=y.to(dtype))
        twin = gdscore.Outputs(logits=z, labels=y, features=z, ids=y)
        assert out.accuracy == twin.accuracy
        assert out[3:5].labels.tolist() == [3, 4]
        for name in ("gdscore", "atc", "cot", "cott"):
            reference, again = (
                gdscore.create_score(name, **({"label_rule": "true"} if name == "gdscore" else {})) for _ in "ab"
            )
            assert reference.fit(twin).update(twin).compute() == again.fit(out).update(out).compute()

    @pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8", "i1", ">i4", ">u8"])
    def test_labels_of_numpy(self, dtype):
        out = made(300)
        other = gdscore.Outputs(**{**out.arrays, "labels": out.labels.astype(dtype)})
        for name in ("atc", "cot", "cott", "doc"):
            assert gdscore.score(name, out, reference=other) == gdscore.score(name, out, reference=out)
        assert gdscore.calibration_error(other) == gdscore.calibration_error(out)

    def test_labels_beyond_any_class(self):
        for big in (np.array([2**63], dtype=np.uint64), torch.tensor([2**63], dtype=torch.uint64)):
            z = np.zeros((1, 2)) if isinstance(big, np.ndarray) else torch.zeros(1, 2)
            with pytest.raises(gdscore.GdscoreError, match="`labels` between 0 and 1"):
                gdscore.Outputs(logits=z, labels=big)

    def test_ids_as_text(self):
        texts = [f"rów {i}" for i in range(20)]
        z = made(20).logits
        kinds = [
            np.array(texts),
            np.array(texts, dtype=object),
            np.char.encode(texts, "utf-8"),
            np.array(texts, dtype=">U9"),
        ]
        if STRINGS is not object:
            kinds.append(np.array(texts, dtype=STRINGS))
        keys = [gdscore.Outputs(logits=z, ids=ids).row_keys()[0].tolist() for ids in kinds]
        assert all(key == keys[0] for key in keys)

    def test_ids_too_long_for_memory(self):
        ids = np.array(["a"] * 99_999 + ["b" * 20_000], dtype=object)
        with pytest.raises(gdscore.GdscoreError, match="100000 of up to 20000 characters do not"):
            gdscore.Outputs(logits=np.zeros((100_000, 2)), ids=ids)


def test_missing_arrays_come_with_a_way_to_get_them():
    out = made(10, keep=("logits",))
    for name, way in (
        ("batch_logits", "batchnorm='both'"),
        ("features", "last linear layer"),
        ("peer_logits", "peer="),
    ):
        with pytest.raises(gdscore.GdscoreError, match=way):
            getattr(out, name)
    with pytest.raises(gdscore.GdscoreError, match="`selfscore` needs `batch_logits`, .* models.extract"):
        gdscore.score("selfscore", out)
    with pytest.raises(gdscore.GdscoreError, match="`frechet` needs a reference with `features`, .* last linear layer"):
        gdscore.score("frechet", out, reference=out)


class TestInputs:
    """Numbers that entered the model: kept and checked like features, never read by a score."""

    def test_they_stay_with_their_rows(self):
        inputs = np.arange(12.0).reshape(6, 2)
        out = gdscore.Outputs(logits=3 * np.eye(6), inputs=inputs)
        np.testing.assert_array_equal(out[[4, 1]].inputs, inputs[[4, 1]])
        np.testing.assert_array_equal(
            gdscore.Outputs.concatenate([out[3:], out[:3]]).inputs, inputs[[3, 4, 5, 0, 1, 2]]
        )

    def test_scores_do_not_change(self):
        rng = np.random.default_rng(0)
        given = {"logits": rng.normal(size=(256, 4)), "features": rng.normal(size=(256, 3))}
        without, beside = (gdscore.Outputs(**given, **more) for more in ({}, {"inputs": rng.normal(size=(256, 7))}))
        assert gdscore.score_all(without) == gdscore.score_all(beside)

    @pytest.mark.parametrize(
        ("inputs", "message"),
        [
            (np.ones(6), "`inputs` to have 2 dimensions"),
            (np.ones((6, 2, 2)), "a row of numbers for each input"),
            (np.ones((5, 2)), "as many rows as `logits`, 6"),
            (np.ones((6, 0)), "`inputs` to have columns"),
            (np.full((6, 2), np.nan), "`inputs` to be finite"),
            (np.ones((6, 2), dtype=int), "`inputs` to be floating-point numbers"),
        ],
    )
    def test_refused(self, inputs, message):
        with pytest.raises(gdscore.GdscoreError, match=message):
            gdscore.Outputs(logits=3 * np.eye(6), inputs=inputs)


def test_the_arguments_are_the_arrays_of_the_table():
    import inspect

    from gdscore._checks import OUTPUT_ARRAYS

    arguments = set(inspect.signature(gdscore.Outputs).parameters) - {
        "class_names",
        "check_logits",
        "threshold",
    }
    assert arguments == set(OUTPUT_ARRAYS)


def test_class_names_that_can_be_read_once():
    names = ["a", "b", "c"]
    for once in (iter(names), (name for name in names), np.array(names)):
        out = gdscore.Outputs(logits=5 * np.eye(3), labels=np.array(["c", "b", "a"]), class_names=once)
        assert out.class_names == ("a", "b", "c")
        assert out.labels.tolist() == [2, 1, 0]
    assert gdscore.Outputs(logits=5 * np.eye(3)).with_class_names(iter(names)).class_names == ("a", "b", "c")
