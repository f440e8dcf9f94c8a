"""What a person knows of the class mix: shares of some classes, and ranges of them."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize

import gdscore
from gdscore.estimator.class_mix import KnownMix, known_mix
from tests.estimator.data import CLASSES, outputs, shifted

NAMES = list("abcde")


def named(out):
    return gdscore.Outputs(**out.arrays, class_names=NAMES)


REFERENCE = named(outputs(900, seed=1))
SETS = [gdscore.ShiftedSet(named(s.outputs), s.family) for s in shifted()]
EST = gdscore.AccuracyEstimator().fit(REFERENCE, shifted_sets=SETS, progress=False)
TARGET = named(outputs(900, 1.6, seed=5, shares=[0.5, 0.2, 0.1, 0.1, 0.1]))
USUAL = EST.fitted_.correction.profile.usual_mix


def test_classes_that_are_left_out_share_the_rest_as_in_the_reference():
    rest = USUAL[1:] / USUAL[1:].sum() * 0.6
    found = EST.estimate(TARGET, class_mix={"a": 0.4})
    expected = EST.estimate(TARGET, class_mix=np.append(0.4, rest))
    assert found.accuracy == pytest.approx(expected.accuracy, abs=1e-9)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-9)
    assert EST.estimate(TARGET, class_mix={"b": 0.25, "a": 0.75}).per_class[2].share < 0.02  # they sum to all rows


@pytest.mark.parametrize("absent", [{"b": 0}, {"b": (0, 0)}, {"b": 0.0, "c": 0}])
def test_a_class_that_is_known_to_be_absent(absent, tmp_path):
    """A share of 0 alone was refused as if it were no share."""
    e = EST.estimate(TARGET, class_mix=absent)
    rest = np.where(np.isin(NAMES, list(absent)), 0.0, USUAL)
    assert e.accuracy == pytest.approx(EST.estimate(TARGET, class_mix=rest / rest.sum()).accuracy, abs=1e-9)
    est = gdscore.AccuracyEstimator(class_mix=absent).fit(REFERENCE)
    est.save(tmp_path / "m.gdscore")
    assert gdscore.AccuracyEstimator.load(tmp_path / "m.gdscore").estimate(TARGET) == est.estimate(TARGET)


@pytest.mark.parametrize("mix", [dict.fromkeys(NAMES, 0), dict.fromkeys(NAMES, (0, 0)), [0] * CLASSES, {}])
def test_no_share_at_all_is_refused(mix):
    with pytest.raises(gdscore.GdscoreError, match="Expected"):
        EST.estimate(TARGET, class_mix=mix)


@pytest.mark.parametrize("mix", [{"a": (0.2, 0.5)}, {"a": (0.1, 0.6), "b": (0.1, 0.3)}, {"e": (0.0, 0.05), "a": 0.4}])
def test_an_interval_over_ranges_reaches_over_all_mixes_within(mix):
    """Compared with a grid of the mixes within the ranges."""
    e = EST.estimate(TARGET, class_mix=mix)
    ranges = [np.linspace(*(value if isinstance(value, tuple) else (value, value)), 5) for value in mix.values()]
    inside = []
    for values in itertools.product(*ranges):
        if sum(values) <= 1:
            shares = dict(zip(mix, values, strict=True))
            inside.append(EST.estimate(TARGET, class_mix=shares))
    assert e.low <= min(x.low for x in inside) + 0.01
    assert e.high >= max(x.high for x in inside) - 0.01
    assert e.low >= min(x.low for x in inside) - 0.02  # and no farther
    assert e.high <= max(x.high for x in inside) + 0.02
    assert min(x.accuracy for x in inside) - 1e-6 <= e.accuracy <= max(x.accuracy for x in inside) + 1e-6
    for c in e.per_class:
        if c.name in mix:
            low, high = mix[c.name] if isinstance(mix[c.name], tuple) else (mix[c.name],) * 2
            assert low - 0.02 <= c.share <= high + 0.02


def test_a_range_that_tells_nothing_is_no_assumption():
    free, plain = EST.estimate(TARGET, class_mix={"a": (0.0, 1.0)}), EST.estimate(TARGET, class_mix=[1, 1, 1, 1, 1])
    assert free.low <= plain.low
    assert free.high >= plain.high


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.floats(0, 0.4), st.floats(0, 0.6)), min_size=CLASSES, max_size=CLASSES),
    st.lists(st.booleans(), min_size=CLASSES, max_size=CLASSES),
    st.integers(0, 2**32 - 1),
)
def test_nearest_and_farthest_mixes_are_those_of_solvers(ranges, named_classes, seed):
    rng = np.random.default_rng(seed)
    names = np.array(named_classes)
    low = np.where(names, [min(r[0], 0.2) for r in ranges], 0.0)
    high = np.where(names, low + [r[1] for r in ranges], 0.0)
    if names.all() and high.sum() < 1:
        high = high + 1
    high = np.minimum(high, 1.0)
    known, usual = KnownMix(low, high, names), rng.dirichlet(np.ones(CLASSES))
    mix, worth = rng.dirichlet(np.ones(CLASSES)), rng.normal(size=CLASSES)
    # Unknown: shares of the named classes, and of the others together.
    rest = np.zeros(0) if names.all() else usual[~names] / usual[~names].sum()
    bounds = [*zip(low[names], high[names], strict=True), *([(0.0, 1.0)] if len(rest) else [])]
    values = np.append(worth[names], rest @ worth[~names]) if len(rest) else worth
    best = linprog(-values, A_eq=np.ones((1, len(values))), b_eq=[1], bounds=bounds)
    farthest = known.farthest(worth, usual)
    assert farthest @ worth == pytest.approx(-best.fun, abs=1e-8)
    wanted = np.append(mix[names], mix[~names].sum()) if len(rest) else mix
    nearest = known.nearest(mix, usual)
    found = np.append(nearest[names], nearest[~names].sum()) if len(rest) else nearest
    solved = minimize(
        lambda x: np.square(x - wanted).sum(),
        np.full(len(wanted), 1 / len(wanted)),
        bounds=bounds,
        constraints={"type": "eq", "fun": lambda x: x.sum() - 1},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert np.square(found - wanted).sum() <= solved.fun + 1e-6
    for x in (farthest, nearest):
        assert x.sum() == pytest.approx(1)
        assert (x[names] >= low[names] - 1e-9).all()
        assert (x[names] <= high[names] + 1e-9).all()


@pytest.mark.parametrize(
    "mix",
    [
        {"a": (0.5, 0.2)},
        {"a": (0.6, 0.7), "b": (0.6, 0.7)},
        {"a": (0.1, 2.0)},
        dict.fromkeys(NAMES, (0.0, 0.1)),
        {"a": (0.1, float("nan"))},
        {"a": (0.1, 0.2, 0.3)},
        {"a": (-0.1, 0.2)},
        {"a": ("x", 0.2)},
    ],
)
def test_ranges_that_no_mix_is_in_are_refused(mix):
    with pytest.raises(gdscore.GdscoreError, match="Expected (ranges of shares|`class_mix` to be)"):
        EST.estimate(TARGET, class_mix=mix)


def test_a_file_keeps_ranges(tmp_path):
    est = gdscore.AccuracyEstimator(class_mix={"b": (0.1, 0.4), "a": 0.3}).fit(REFERENCE)
    est.save(tmp_path / "m.gdscore")
    again = gdscore.AccuracyEstimator.load(tmp_path / "m.gdscore")
    assert again.class_mix == {"a": 0.3, "b": (0.1, 0.4)}
    assert again.estimate(TARGET) == est.estimate(TARGET)
    assert again.predict_correct(TARGET).mean() == pytest.approx(est.estimate(TARGET).accuracy, abs=1e-12)
    assert known_mix("stable", 2, None) is None


def test_a_class_that_no_row_shows_has_a_warning():
    certain = gdscore.Outputs(probabilities=np.eye(3)[[0, 1] * 300], labels=np.array([0, 1] * 300))
    reference = gdscore.Outputs(probabilities=np.vstack([np.eye(3)[[0, 1, 2] * 200]]), labels=np.array([0, 1, 2] * 200))
    e = gdscore.AccuracyEstimator(class_mix=[0.3, 0.3, 0.4]).fit(reference).estimate(certain)
    assert "unreachable_class" in {w.code for w in e.warnings}
    assert "2 (40.0%)" in next(w.message for w in e.warnings if w.code == "unreachable_class")


def test_a_class_without_rows_in_the_reference_has_a_warning():
    some = named(outputs(900, seed=1, shares=[0.4, 0.3, 0.2, 0.1, 0.0]))
    e = gdscore.AccuracyEstimator().fit(some).estimate(TARGET)
    assert "'e'" in next(w.message for w in e.warnings if w.code == "unseen_class")
    assert "unseen_class" not in {w.code for w in EST.estimate(TARGET).warnings}
