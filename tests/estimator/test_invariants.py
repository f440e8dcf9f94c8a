"""What must not matter: order, batches, libraries, precision; and what always holds of an estimate."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import gdscore
from tests.data import LIBRARIES, to_library

from . import data
from .data import CLASSES, fitted, numbers, outputs, shifted

EST = {sets: fitted(sets) for sets in (True, False)}
TARGET = outputs(1200, 1.5, seed=9)
seeds = st.integers(0, 2**32 - 1)


def in_library(out, library):
    return gdscore.Outputs(**{name: to_library(np.asarray(array), library) for name, array in out.arrays.items()})


def cut(count, cuts):
    ends = sorted({0, count, *(c % count for c in cuts)})
    return [slice(a, b) for a, b in pairwise(ends)]


@given(cuts=st.lists(st.integers(0, 1199), max_size=12), seed=seeds, sets=st.booleans())
@settings(max_examples=25)
def test_batches_and_order_of_rows_change_nothing(cuts, seed, sets):
    """Sums are exact: bit for bit the same."""
    order = np.random.default_rng(seed).permutation(1200)
    expected = numbers(EST[sets].estimate(TARGET))
    for rows in (TARGET, TARGET[order]):
        found = EST[sets].estimate(rows[part] for part in cut(1200, cuts))
        np.testing.assert_array_equal(numbers(found), expected)


@given(cuts=st.lists(st.integers(0, 1199), max_size=6), data=st.data())
@settings(max_examples=25)
def test_states_merge_in_any_order(cuts, data):
    est = EST[True]
    states = [est.state().update(TARGET[part]) for part in cut(1200, cuts)]
    while len(states) > 1:
        first = states.pop(data.draw(st.integers(0, len(states) - 1)))
        second = states.pop(data.draw(st.integers(0, len(states) - 1)))
        states.append(first.merge(second))
    np.testing.assert_array_equal(numbers(est.estimate(states[0])), numbers(est.estimate(TARGET)))
    assert states[0].n_rows == 1200


@pytest.mark.parametrize("seed", range(3))
def test_order_of_the_reference_and_of_sets_changes_nothing(seed):
    rng = np.random.default_rng(seed)
    reference, sets = outputs(800, seed=1), shifted()
    order = rng.permutation(800)
    mixed = []
    for i in rng.permutation(len(sets)):
        rows = rng.permutation(len(sets[i].outputs))
        mixed.append(gdscore.ShiftedSet(sets[i].outputs[rows], sets[i].family))
    first = gdscore.AccuracyEstimator().fit(reference, shifted_sets=sets, progress=False)
    second = gdscore.AccuracyEstimator().fit(reference[order], shifted_sets=iter(mixed), progress=False)
    for noise in (1.0, 1.6, 2.5):
        target = outputs(700, noise, seed=12)
        np.testing.assert_allclose(numbers(second.estimate(target)), numbers(first.estimate(target)), atol=1e-6)


def test_order_of_the_reference_changes_nothing_for_copies_of_its_rows():
    x, order = outputs(600, 1.3, seed=1), np.random.default_rng(0).permutation(600)
    noisy = [outputs(600, 1.3 + 0.2 * k, seed=1) for k in range(4)]
    estimates = []
    for rows in (np.arange(600), order):
        sets = [gdscore.ShiftedSet(n[rows], f"noise {k % 2}", rows=np.arange(600)) for k, n in enumerate(noisy)]
        est = gdscore.AccuracyEstimator().fit(x[rows], shifted_sets=sets, progress=False)
        estimates.append(numbers(est.estimate(TARGET)))
    np.testing.assert_allclose(estimates[1], estimates[0], atol=1e-6)


def test_a_stream_is_a_reference():
    reference = outputs(800, seed=1)
    est = gdscore.AccuracyEstimator().fit((reference[i : i + 90] for i in range(0, 800, 90)), shifted_sets=shifted())
    np.testing.assert_array_equal(numbers(est.estimate(TARGET)), numbers(EST[True].estimate(TARGET)))


@pytest.mark.parametrize("library", LIBRARIES)
def test_libraries_agree(library):
    if library != "numpy":
        pytest.importorskip(library)
    target = TARGET[:400]  # one number of rows everywhere, as JAX compiles every operation for each
    few = shifted(400, families=2, severities=1)
    plain, est = (
        gdscore.AccuracyEstimator().fit(
            in_library(outputs(400, seed=1), name),
            shifted_sets=[gdscore.ShiftedSet(in_library(s.outputs, name), s.family) for s in few],
            progress=False,
        )
        for name in ("numpy", library)
    )
    expected, correct = plain.estimate(target), plain.predict_correct(target)
    there = in_library(target, library)
    for fit, rows in ((est, target), (est, there), (plain, there)):
        found = fit.estimate(rows)
        for name in ("accuracy", "low", "high"):
            assert getattr(found, name) == pytest.approx(getattr(expected, name), abs=1e-5)
        np.testing.assert_allclose(fit.predict_correct(rows), correct, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_precisions(dtype):
    target = outputs(1200, 1.5, seed=9, dtype=dtype)
    found, expected = EST[True].estimate(target), EST[True].estimate(TARGET)
    atol = 3e-3 if dtype is np.float16 else 1e-5
    np.testing.assert_allclose([found.accuracy, found.low], [expected.accuracy, expected.low], atol=atol)
    assert not {w.code for w in found.warnings} & {"other_model"}


def test_bfloat16():
    torch = pytest.importorskip("torch")
    half = {name: torch.from_numpy(np.array(a)) for name, a in TARGET.arrays.items()}
    half |= {name: half[name].bfloat16() for name in ("logits", "features")}
    found = EST[True].estimate(gdscore.Outputs(**half))
    assert found.accuracy == pytest.approx(EST[True].estimate(TARGET).accuracy, abs=0.01)


@given(
    seed=seeds,
    rows=st.sampled_from([1, 2, 7, 100]),
    scale=st.sampled_from([0.0, 1e-30, 1e-3, 1.0, 30.0, 1e4, 1e20, 3e37]),
    width=st.sampled_from([0.0, 1e-30, 1.0, 1e3, 1e20, 3e37]),
    class_mix=st.sampled_from(["unknown", "stable", (1, 0, 0, 0, 0), (5, 4, 3, 2, 1)]),
    level=st.sampled_from([0.01, 0.5, 0.9, 0.999]),
    sets=st.booleans(),
)
@settings(max_examples=80)
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_intervals_hold_their_estimate(seed, rows, scale, width, class_mix, level, sets):
    rng = np.random.default_rng(seed)
    logits = (rng.normal(size=(rows, CLASSES)) * scale).astype(np.float32)
    features = (rng.normal(size=(rows, 6)) * width).astype(np.float32)
    est = gdscore.AccuracyEstimator(level, class_mix=class_mix)._with(EST[sets].fitted_)
    e = est.estimate(gdscore.Outputs(logits=logits, features=features))
    assert 0 <= e.low <= e.accuracy <= e.high <= 1
    assert np.isfinite(numbers(e)).all()
    for c in e.per_class:
        for q in (c.recall, c.precision, c.f1):
            assert 0 <= q.low <= q.value <= q.high <= 1


@given(seed=seeds, shares=st.lists(st.floats(0.01, 1), min_size=CLASSES, max_size=CLASSES))
@settings(max_examples=20)
@example(seed=1, shares=[1.0, 0.25, 0.015625, 0.03125, 0.015625])
def test_another_mix_of_unshifted_classes_is_no_shift(seed, shares):
    """The estimate stays at the accuracy of that mix, which may differ as classes are not equally hard."""
    shares = np.array(shares) / sum(shares)
    target = outputs(4000, seed=seed, shares=shares)
    for est in EST.values():
        e = est.estimate(target)
        assert e.accuracy == pytest.approx(target.accuracy, abs=0.03)
        assert e.low <= target.accuracy <= e.high
        # After `collapse`, which a mix of few classes has too, the low end is 0.
        assert e.high - e.low < 0.25 or "collapse" in {warning.code for warning in e.warnings}


@given(seed=seeds, noise=st.floats(0.5, 6), shares=st.lists(st.floats(0.01, 1), min_size=CLASSES, max_size=CLASSES))
@settings(max_examples=20)
def test_assumptions_are_the_estimates_under_them(seed, noise, shares):
    target = outputs(300, noise, seed=seed, shares=np.array(shares) / sum(shares))
    stable = gdscore.AccuracyEstimator(class_mix="stable")._with(EST[True].fitted_).estimate(target)
    unknown = EST[True].estimate(target)
    estimated = gdscore.AccuracyEstimator(class_mix="estimated")._with(EST[True].fitted_).estimate(target)
    assert unknown.assumptions == stable.assumptions == estimated.assumptions
    for e in (unknown, stable, estimated):
        assert e.accuracy == pytest.approx(unknown.assumptions[e.class_mix], abs=1e-12)


def test_ends_move_as_smoothly_as_the_target():
    """Targets that shift little by little while predictions crowd into two classes."""
    x, logits, _ = data.rows(2000, 1.0, seed=12)
    noise = np.random.default_rng(12).normal(size=x.shape)
    ends = []
    for more in np.linspace(0, 1.2, 121):
        moved = logits + more * noise @ data.CENTRES.T * 1.2
        moved[:, :2] += 5
        e = EST[True].estimate(gdscore.Outputs(logits=moved, features=x + more * noise))
        ends.append((e.low, e.accuracy, e.high))
    assert np.abs(np.diff(ends, axis=0)).max() < 0.04
    assert "class_mix" in {w.code for w in e.warnings}
    assert e.low <= e.assumptions["stable"]


def test_one_rare_class_alone_does_not_look_shifted():
    """Means of classes with few reference rows are noisy: an unshifted target of one class is no shift."""
    rng = np.random.default_rng(13)
    centres = 2.5 * rng.normal(size=(60, 8))

    def made(labels, noise):
        x = centres[labels] + noise * rng.normal(size=(len(labels), 8))
        logits = (x @ centres.T - 0.5 * np.square(centres).sum(axis=1)).astype(np.float32)
        return gdscore.Outputs(logits=logits, features=x.astype(np.float32), labels=labels)

    est = gdscore.AccuracyEstimator().fit(made(rng.integers(0, 60, 600), 1.0))
    looks = []
    for k in range(60):
        ((_, evidence),) = est.state().update(made(np.full(300, k), 1.0)).by_segment()
        predicted = evidence.histogram.sum(axis=1) / evidence.rows
        looks.append(est.fitted_.correction.looks_shifted(predicted, evidence.mean(), evidence.rows))
    assert np.mean(np.array(looks) > 0) < 0.1


def test_sets_may_have_class_mixes_of_their_own():
    """Where the mix of each site is known and used, estimates are at least as near as where it is not."""
    rng = np.random.default_rng(14)
    sites = [
        gdscore.ShiftedSet(outputs(400, 1.2 + 0.1 * k, 600 + k, shares=rng.dirichlet(np.full(CLASSES, 0.5))), f"s{k}")
        for k in range(12)
    ]
    est = gdscore.AccuracyEstimator().fit(outputs(800, seed=1), shifted_sets=sites, progress=False)
    correction = est.fitted_.correction
    assert correction.errors["known"] <= correction.errors["unknown"] + 0.05


def test_stable_is_the_references_mix_with_slack():
    """The reference's mix given is met but for sampling error; ``stable`` goes a part of the way there."""
    mix = np.bincount(np.asarray(outputs(800, seed=1).labels), minlength=CLASSES) / 800
    target = outputs(900, 3.0, seed=8, shares=[0.6, 0.1, 0.1, 0.1, 0.1])
    off = {}
    for name, class_mix in (("given", mix), ("stable", "stable"), ("estimated", "estimated")):
        e = EST[True].estimate(target, class_mix=class_mix)
        assert e.class_mix == name
        off[name] = np.abs(np.array([c.share for c in e.per_class]) - mix).max()
    assert off["given"] < 0.02 < off["stable"] < off["estimated"]


def test_intervals_grow_with_the_level_and_shrink_with_rows():
    ends = []
    for level in (0.1, 0.5, 0.8, 0.9, 0.99, 0.999):
        e = gdscore.AccuracyEstimator(level)._with(EST[True].fitted_).estimate(TARGET)
        assert e.level == level
        ends.append((e.low, -e.high, -(e.f1.high - e.f1.low)))
    assert all(a >= b for left, right in pairwise(ends) for a, b in zip(left, right, strict=True))
    small, large = (EST[True].estimate([TARGET] * copies) for copies in (1, 20))
    assert small.high - small.low > large.high - large.low


def test_narrow_where_nothing_moved_wide_where_it_did():
    same, far = (EST[True].estimate(outputs(5000, noise, seed=77)) for noise in (1.0, 3.0))
    assert same.high - same.low < 0.1 < far.high - far.low


def test_same_seed_same_answer_other_seed_near_it():
    first, again, other = (fitted(seed=seed).estimate(TARGET) for seed in (3, 3, 4))
    np.testing.assert_array_equal(numbers(first), numbers(again))
    assert other.accuracy == pytest.approx(first.accuracy, abs=0.02)


def test_nothing_global_changes():
    state, errors = np.random.get_state, np.geterr()
    before = state()[1].copy()
    fitted().estimate(TARGET)
    np.testing.assert_array_equal(state()[1], before)
    assert np.geterr() == errors
