"""Calibration error against torchmetrics, temperature against a generic minimiser of the likelihood."""

import tracemalloc
import warnings

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from torchmetrics.functional.classification import multiclass_calibration_error

from gdscore.calibration import (
    calibration_error,
    confidence_bins,
    find_temperature,
    fit_temperature,
    reliability,
)
from gdscore.errors import GdscoreError, GdscoreWarning
from gdscore.outputs import Outputs


def simulated(m=3000, K=5, temperature=1.0, scale=2.0):
    """Logits whose labels are drawn from softmax(logits / temperature)."""
    rng = np.random.default_rng(0)
    Z = rng.normal(scale=scale, size=(m, K))
    return Z, np.argmax(Z / temperature + rng.gumbel(size=(m, K)), axis=1)


def likelihood_loss(Z, labels, temperature):
    return -log_softmax(Z / temperature, axis=1)[np.arange(len(Z)), labels].mean()


def parts_of(out, size):
    return (out[i : i + size] for i in range(0, len(out), size))


@pytest.mark.parametrize("K", [2, 3, 50])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("bins", [1, 10, 15, 100])
def test_calibration_error_is_that_of_torchmetrics(bins, temperature, K):
    # float64, as torchmetrics gives confidences that round to 1 a bin of their own.
    Z, labels = simulated(K=K, temperature=temperature)
    expected = multiclass_calibration_error(
        torch.softmax(torch.from_numpy(Z), dim=1), torch.from_numpy(labels), num_classes=K, n_bins=bins, norm="l1"
    )
    assert calibration_error(Outputs(logits=Z, labels=labels), bins=bins) == pytest.approx(float(expected), abs=1e-6)


def test_calibration_error_by_hand():
    p = np.array([[0.55, 0.45], [0.4, 0.6], [0.05, 0.95], [0.97, 0.03], [0.99, 0.01]])
    out = Outputs(probabilities=p, labels=np.array([0, 0, 1, 0, 1]))
    r = reliability(out, bins=5)
    assert r.counts.tolist() == [0, 0, 2, 0, 3]
    np.testing.assert_allclose(r.confidence, [np.nan, np.nan, 0.575, np.nan, 0.97])
    np.testing.assert_allclose(r.accuracy, [np.nan, np.nan, 0.5, np.nan, 2 / 3])
    assert calibration_error(out, bins=5) == pytest.approx((2 * 0.075 + 3 * (0.97 - 2 / 3)) / 5)


def test_bins_hold_their_upper_edge():
    p = np.array([0.5, 0.75, 0.25, 1.0])
    assert reliability(Outputs(probabilities=p, labels=np.ones(4, int)), bins=4).counts.tolist() == [0, 1, 2, 1]


def test_calibrated_and_overconfident():
    Z, labels = simulated(m=10000)
    assert calibration_error(Outputs(logits=Z, labels=labels)) < 0.02
    assert calibration_error(Outputs(logits=10 * Z, labels=labels)) > 0.1
    always_right = Outputs(logits=np.eye(3) * 1e4, labels=np.arange(3))
    assert calibration_error(always_right) == 0.0


@pytest.mark.parametrize("make", [np.asarray, torch.from_numpy, jnp.asarray], ids=["numpy", "torch", "jax"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_any_library_and_precision(make, dtype):
    Z, labels = simulated(m=2000, temperature=2.0)
    Z = Z.astype(dtype)
    reference = Outputs(logits=Z.astype(np.float64), labels=labels)
    out = Outputs(logits=make(Z), labels=make(labels.astype(np.int32)))
    assert calibration_error(out) == pytest.approx(calibration_error(reference), abs=1e-5)
    assert fit_temperature(out) == pytest.approx(fit_temperature(reference), rel=1e-6)
    assert fit_temperature(parts_of(out, 1000)) == pytest.approx(fit_temperature(reference), rel=1e-6)


@pytest.mark.parametrize("size", [1, 999, 5000])
def test_streams_answer_as_the_whole(size):
    Z, labels = simulated(m=5000 if size > 1 else 200, temperature=1.5)
    out = Outputs(logits=Z, labels=labels)
    assert calibration_error(parts_of(out, size)) == pytest.approx(calibration_error(out), abs=1e-12)
    assert fit_temperature(parts_of(out, size)) == pytest.approx(fit_temperature(out), rel=1e-8)


def test_a_stream_may_reuse_its_buffers():
    Z, labels = simulated(m=600, temperature=1.5)

    def stream():
        z, y = np.empty((200, 5)), np.empty(200, dtype=int)
        for start in (0, 200, 400):
            z[:], y[:] = Z[start : start + 200], labels[start : start + 200]
            yield Outputs(logits=z, labels=y, features=z)

    assert fit_temperature(stream()) == pytest.approx(fit_temperature(Outputs(logits=Z, labels=labels)), rel=1e-8)


def test_no_copy_of_all_rows_is_made():
    Z, labels = simulated(m=40000, K=40)
    out = Outputs(logits=Z, labels=labels)
    for function in (calibration_error, fit_temperature):
        function(out[:10000])
        tracemalloc.start()
        function(out)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < Z.nbytes / 2


@pytest.mark.parametrize("K", [2, 10])
@pytest.mark.parametrize("temperature", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("scale", [0.5, 4.0])
def test_temperature_is_the_minimiser(K, temperature, scale):
    Z, labels = simulated(m=800, K=K, temperature=temperature * scale, scale=scale)
    oracle = minimize_scalar(
        lambda log_t: likelihood_loss(Z, labels, np.exp(log_t)),
        bounds=(np.log(0.01), np.log(100)),
        method="bounded",
        options={"xatol": 1e-10},
    )
    fit = fit_temperature(Outputs(logits=Z, labels=labels))
    # A minimum is found to the square root of the precision at best, its slope's zero to the precision itself.
    assert fit == pytest.approx(np.exp(oracle.x), rel=1e-5)
    assert likelihood_loss(Z, labels, fit) <= oracle.fun + 1e-12


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
def test_a_known_temperature_is_recovered(temperature):
    Z, labels = simulated(m=20000, temperature=temperature, scale=3.0 * temperature)
    out = Outputs(logits=Z, labels=labels)
    fit = fit_temperature(out)
    assert fit == pytest.approx(temperature, rel=0.03)
    assert fit_temperature(out.with_temperature(fit)) == pytest.approx(1.0, rel=1e-8)
    assert calibration_error(out.with_temperature(fit)) < 0.015


@settings(deadline=None, max_examples=60)
@given(data=st.data(), m=st.integers(1, 12), K=st.integers(2, 3), c=st.sampled_from([0.5, 3.0]))
def test_temperature_of_drawn_rows(data, m, K, c):
    Z = data.draw(hnp.arrays(np.int64, (m, K), elements=st.integers(-16, 16))) / 4
    labels = data.draw(hnp.arrays(np.int64, m, elements=st.integers(0, K - 1)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GdscoreWarning)
        fit = fit_temperature(Outputs(logits=Z, labels=labels, check_logits=False))
        scaled = fit_temperature(Outputs(logits=c * Z + 7.0, labels=labels))
    best = likelihood_loss(Z, labels, fit)
    for other in (0.01, fit / 1.01, fit * 1.01, 1.0, 100.0):
        assert best <= likelihood_loss(Z, labels, np.clip(other, 0.01, 100)) + 1e-12
    if 0.1 < fit < 10 and np.ptp(Z, axis=1).any():
        assert scaled == pytest.approx(c * fit, rel=1e-6)


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1e-3, 1e3, 1e4, 1e8, 1e25])
def test_logits_of_any_scale_have_a_temperature(scale):
    Z, labels = simulated(m=800, temperature=1.5)
    expected, found = (find_temperature(Outputs(logits=c * Z, labels=labels)) for c in (1.0, scale))
    assert found.determined
    assert found.value == pytest.approx(scale * expected.value, rel=1e-6)
    Z[0, labels[0]] = 1e29  # one row alone does not make logits large
    assert find_temperature(Outputs(logits=Z, labels=labels)).value < 100


def test_what_determines_no_temperature():
    right = Outputs(logits=np.array([[4.0, 0.0], [0.0, 90.0]]), labels=np.array([0, 1]))
    with pytest.warns(GdscoreWarning, match=r"not determined by the 2 labelled rows: .* at the bound 0\.01, which"):
        assert fit_temperature(right) == 0.01
    wrong = Outputs(logits=np.array([[4.0, 0.0]]), labels=np.array([1]))
    with pytest.warns(GdscoreWarning, match=r"at the bound 100\.0"):
        assert fit_temperature(wrong) == 100.0
    assert fit_temperature(Outputs(logits=np.full((3, 4), 2.5), labels=np.arange(3))) == 1.0


def test_whether_a_temperature_is_determined_is_returned_without_a_warning():
    Z, labels = simulated(m=500)
    out = Outputs(logits=Z, labels=labels)
    assert find_temperature(out) == (fit_temperature(out), True, 500)
    right = Outputs(logits=np.array([[4.0, 0.0], [0.0, 90.0]]), labels=np.array([0, 1]))
    assert find_temperature(right) == (0.01, False, 2)
    assert find_temperature(iter([right, right])) == (0.01, False, 4)
    assert find_temperature(Outputs(logits=np.full((3, 4), 2.5), labels=np.arange(3))) == (1.0, True, 3)


@pytest.mark.parametrize(("dtype", "size"), [("float32", 3e38), ("float64", 1e308)])
def test_huge_logits(dtype, size):
    Z, labels = simulated(m=200)
    huge = (size * (Z / np.abs(Z).max())).astype(dtype)
    found = find_temperature(Outputs(logits=huge, labels=labels))
    assert (found.value, found.determined) == (100.0, False)
    assert 0 <= calibration_error(Outputs(logits=huge, labels=labels)) <= 1


@pytest.mark.parametrize("bins", [1, 4, 15, 20])
def test_every_confidence_lies_in_the_bin_below_its_upper_edge(bins):
    rng = np.random.default_rng(0)
    edges = np.linspace(0, 1, bins + 1)
    c = np.concatenate([rng.uniform(0.1, 1, 500), edges])
    expected = [max(b for b in range(bins) if b == 0 or edges[b] < x) for x in c]
    assert confidence_bins(c, bins).tolist() == expected


@pytest.mark.parametrize("bins", [4, 10, 15, 20])
def test_an_edge_is_in_the_bin_below_in_every_precision(bins):
    edges = np.arange(1, bins + 1) / bins
    assert confidence_bins(edges.astype(np.float32).astype(np.float64), bins).tolist() == list(range(bins))


def test_the_estimator_has_the_same_bins():
    p = np.array([0.5, 0.55, 0.75, 0.95, 1.0, 0.6, 0.65, 0.7, 0.85, 0.9])
    out = Outputs(probabilities=np.stack([p, 1 - p], axis=1), labels=np.zeros(10, dtype=int))
    counts = reliability(out, bins=20).counts
    assert counts.tolist() == [0] * 9 + [1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1]
    from gdscore.estimator.evidence import by_confidence

    np.testing.assert_array_equal(by_confidence(out.confidence, np.ones(10))[0], counts)


LABELLED = Outputs(logits=2 * np.eye(2), labels=np.arange(2))


@pytest.mark.parametrize("function", [calibration_error, reliability, fit_temperature])
@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (Outputs(logits=2 * np.eye(2)), "and with `labels`, but these hold only logits"),
        (Outputs(features=np.eye(2), labels=np.arange(2)), "but these hold only features, labels"),
        ([LABELLED, Outputs(logits=2 * np.eye(2))], "but these hold only logits"),
        ([], "Expected `outputs` to have rows, but the stream is empty"),
        (iter(()), "the stream is empty"),
        (3, "Expected `outputs` to be `gdscore.Outputs` or a stream of them, but got int"),
        (np.eye(2), r"but got ndarray: give gdscore\.Outputs\(logits=…\)"),
        ([LABELLED, None], "but it yielded nothing"),
    ],
)
def test_what_cannot_be_used_is_refused_in_words(function, outputs, message):
    # Lists rather than iterators: each case is read by three tests.
    with pytest.raises(GdscoreError, match=message):
        function(outputs)


@pytest.mark.parametrize("bins", [0, -1, 2.0, "15", None, True])
def test_bins_are_a_positive_integer(bins):
    for function in (calibration_error, reliability):
        with pytest.raises(GdscoreError, match="Expected `bins` to be an integer of at least 1, but got"):
            function(LABELLED, bins=bins)


@pytest.mark.parametrize("function", [calibration_error, fit_temperature])
def test_invalid_values_found_by_the_device_are_named(function, monkeypatch):
    monkeypatch.setattr(Outputs, "valid", np.bool_(False))
    invalid = LABELLED._holding({"logits": np.array([[0.0, 1.0], [np.nan, 1.0]]), "labels": np.arange(2)})
    with pytest.raises(GdscoreError, match="Expected `logits` to be finite, but got (NaN|Inf) in row 1"):
        function(invalid)
