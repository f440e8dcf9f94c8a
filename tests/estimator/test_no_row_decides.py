"""What must decide nothing: one row, the order of classes, the seed of class mixes, rounding; and what does not vary."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

import gdscore

from .data import KINDS, ROW, Problem, fitted, numbers, outputs, shifted

problems = {
    "seed": st.integers(0, 2**32 - 1),
    "kind": st.sampled_from(KINDS),
    "classes": st.sampled_from([2, 3, 6]),
    "features": st.booleans(),
    "width": st.sampled_from([1, 4, 200]),
}


@given(
    sets=st.sampled_from([0, 3, 9]),
    class_mix=st.sampled_from(["unknown", "stable", "estimated", "given"]),
    size=st.sampled_from([0.0, 1.0, 30.0, 1e4]),
    count=st.sampled_from([100, 400]),
    **problems,
)
@settings(max_examples=40, deadline=None)
def test_no_row_decides(seed, kind, classes, features, width, sets, class_mix, size, count):
    problem = Problem(seed, kind, classes=classes, features=features, width=width)
    rng = problem.rng
    mix = rng.dirichlet(np.ones(classes)) if class_mix == "given" else class_mix
    est = problem.fitted(sets, class_mix=mix)
    x, logits, labels = problem.rows(count, rng.uniform(1, 2), rng.uniform(0, 1), rng.dirichlet(np.full(classes, 2.0)))
    before = est.estimate(problem.outputs(x, logits, labels))
    row = int(rng.integers(count))
    x[row], logits[row] = size * rng.normal(size=x.shape[1]), size * rng.normal(size=classes)
    after = est.estimate(problem.outputs(x, logits, labels))
    assert abs(after.accuracy - before.accuracy) <= ROW / count


@pytest.mark.parametrize(("count", "features"), [(600, True), (600, False), (300, False)])
def test_no_row_of_the_reference_decides(count, features):
    """599 rows as 600: nothing is counted, rounded or grouped by their number."""
    reference, target = (
        outputs(count, seed=1, features=features),
        outputs(2000, 2.0, seed=2, shares=[0.5, 0.3, 0.1, 0.05, 0.05], features=features),
    )
    sets = shifted(200, features=features)
    for given_sets in (None, sets):
        before, *others = (
            gdscore.AccuracyEstimator().fit(reference[rows], shifted_sets=given_sets, progress=False)
            for rows in (slice(0, count), slice(1, count), slice(0, count - 1), slice(0, count - 2))
        )
        for class_mix in ("unknown", "stable", "estimated", [0.4, 0.3, 0.1, 0.1, 0.1]):
            first = before.estimate(target, class_mix=class_mix)
            for other in others:
                second = other.estimate(target, class_mix=class_mix)
                assert abs(second.accuracy - first.accuracy) <= ROW / count
                assert abs(second.low - first.low) <= 2 * ROW / count
                assert abs(second.high - first.high) <= 2 * ROW / count


@given(
    sets=st.sampled_from([0, 1, 4]),
    class_mix=st.sampled_from(["unknown", "stable", "estimated", "given"]),
    method=st.sampled_from(["correctness", "correctness", "confscore"]),
    count=st.sampled_from([1, 7, 300]),
    **problems,
)
@settings(max_examples=40, deadline=None)
def test_the_mean_of_predict_correct_is_the_estimate(
    seed, kind, classes, features, width, sets, class_mix, method, count
):
    problem = Problem(seed, kind, classes=classes, features=features, width=width)
    mix = problem.rng.dirichlet(np.ones(classes)) if class_mix == "given" else class_mix
    method = method if sets == 4 and kind in ("plain", "tied") else "correctness"
    est = problem.fitted(sets, class_mix=mix, method=method)
    target = problem.outputs(*problem.rows(count, problem.rng.uniform(1, 3), problem.rng.uniform(0, 2)))
    p = est.predict_correct(target)
    assert ((p >= 0) & (p <= 1)).all()
    assert p.mean() == pytest.approx(est.estimate(target).accuracy, abs=1e-9)


@given(
    sets=st.sampled_from([0, 3, 9]), class_mix=st.sampled_from(["unknown", "stable", "estimated", "given"]), **problems
)
@settings(max_examples=20, deadline=None)
def test_the_order_of_classes_changes_nothing(seed, kind, classes, features, width, sets, class_mix):
    if kind == "tied":  # the class that is predicted then depends on the order
        kind = "plain"
    problem = Problem(seed, kind, classes=classes, features=features, width=width)
    order = np.random.default_rng(seed).permutation(classes)
    mix = np.random.default_rng(seed).dirichlet(np.ones(classes)) if class_mix == "given" else class_mix
    drawn = [problem.outputs(*problem.rows(300))]
    drawn += [problem.outputs(*problem.rows(150, 1 + 0.2 * k, 0.3 * (k % 3))) for k in range(sets)]
    target = problem.outputs(*problem.rows(300, 1.5, 0.5))

    def estimate(renamed, mix):
        sets = [gdscore.ShiftedSet(renamed(out), f"f{k % 3}") for k, out in enumerate(drawn[1:])]
        est = gdscore.AccuracyEstimator(class_mix=mix).fit(renamed(drawn[0]), shifted_sets=sets or None, progress=False)
        return est.estimate(renamed(target))

    def renamed(out):
        name = "probabilities" if "hot" in kind else "logits"
        arrays = {name: np.asarray(getattr(out, name))[:, order], "labels": np.argsort(order)[out.labels]}
        return gdscore.Outputs(**arrays, **({"features": out.features} if features else {}))

    first = estimate(lambda out: out, mix)
    second = estimate(renamed, mix if isinstance(mix, str) else mix[order])
    np.testing.assert_allclose(
        [second.accuracy, second.low, second.high], [first.accuracy, first.low, first.high], atol=1e-6
    )
    assert {w.code for w in second.warnings} == {w.code for w in first.warnings}
    for k, c in enumerate(second.per_class):
        assert c.recall.value == pytest.approx(first.per_class[order[k]].recall.value, abs=1e-6)


@pytest.mark.parametrize("features", [True, False])
def test_another_seed_changes_less_than_a_point(features):
    target = outputs(1200, 1.6, seed=9, features=features)
    found = [fitted(features=features, seed=seed).estimate(target).accuracy for seed in range(6)]
    assert np.ptp(found) < 0.01


def tree_and_rows(classifier):
    """Fully grown trees and nearest neighbours give one-hot outputs, but for one leaf that the reference does not reach."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(4000, 5))
    y = (x[:, 0] + 0.3 * rng.normal(size=4000) > 0).astype(int)
    x[:2], y[:2] = 9, (0, 1)
    return classifier.fit(x[:1500], y[:1500]), x, y


@pytest.mark.parametrize("classifier", [DecisionTreeClassifier(random_state=0), KNeighborsClassifier(1)])
def test_constant_confidence_teaches_nothing(classifier):
    classifier, x, y = tree_and_rows(classifier)
    est = gdscore.AccuracyEstimator().fit_predictor(classifier, x[1500:2500], y[1500:2500], progress=False)
    target = x[2500:].copy()
    before = est.estimate(gdscore.from_sklearn(classifier, target))
    target[0] = 9
    after = est.estimate(gdscore.from_sklearn(classifier, target))
    assert after.accuracy == pytest.approx(before.accuracy, abs=2 / 1500)
    assert before.low <= (classifier.predict(x[2500:]) == y[2500:]).mean() <= before.high
    for e in (before, after):
        assert (e.warnings[0].code, e.warnings[0].severity) == ("constant_confidence", "critical")
    # The interval is as wide as the shifted sets show it must be: nothing else tells a shift.
    table = est.shifted_sets_
    covered = (before.low <= table.accuracy) & (table.accuracy <= before.high)
    assert covered.mean() > 0.85


def test_constant_confidence_beside_features_is_left_out_alone():
    problem = Problem(3, "one-hot", classes=3, width=4)
    est = problem.fitted(9)
    e = est.estimate(problem.outputs(*problem.rows(400, 1.5)))
    assert ("constant_confidence", "warning") in [(w.code, w.severity) for w in e.warnings]
    assert e.scores["confidence"] == 0
    assert e.scores["distance"] > 0.1
    assert est.fitted_.correction.shift[1] < 0


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("value", [0.0, 0.1, 1e4])
def test_constant_features_are_left_out(value, dtype):
    plain, same = outputs(400, seed=1), np.full((400, 6), value, dtype=dtype)
    reference = gdscore.Outputs(logits=plain.logits, features=same, labels=plain.labels)
    e = gdscore.AccuracyEstimator().fit(reference).estimate(outputs(300, seed=2))
    assert "constant_features" in {w.code for w in e.warnings}
    assert e.scores["distance"] == 0


def test_a_reference_that_is_all_right_and_certain():
    """The calibration curve is constant: what differs from it by rounding teaches nothing."""
    rng = np.random.default_rng(0)
    centres = np.eye(4) * 8

    def made(count, noise):
        y = rng.integers(0, 4, count)
        h = centres[y] + noise * rng.normal(size=(count, 4))
        return gdscore.Outputs(logits=12 * h, labels=y)

    sets = [gdscore.ShiftedSet(made(300, 2 + k), f"family {k % 3}") for k in range(6)]
    est = gdscore.AccuracyEstimator().fit(made(600, 0.8), shifted_sets=sets, progress=False)
    assert est.reference_accuracy_ == 1
    target = made(2000, 5.0)
    e = est.estimate(target)
    assert e.low <= target.accuracy <= e.high
    assert est.predict_correct(target).mean() == pytest.approx(e.accuracy, abs=1e-9)
    assert np.abs(est.fitted_.correction.slope).max() < 100


@pytest.mark.parametrize("scale", [1e-4, 1e3, 1e4, 1e6])
def test_the_scale_of_logits_changes_nothing(scale):
    def scaled(out):
        logits = np.asarray(out.logits, dtype=np.float64) * scale
        return gdscore.Outputs(logits=logits, features=out.features, labels=out.labels)

    sets = [gdscore.ShiftedSet(scaled(s.outputs), s.family) for s in shifted()]
    est = gdscore.AccuracyEstimator().fit(scaled(outputs(800, seed=1)), shifted_sets=sets, progress=False)
    target = outputs(900, 1.5, seed=4)
    found, expected = est.estimate(scaled(target)), fitted().estimate(target)
    np.testing.assert_allclose(numbers(found), numbers(expected), atol=1e-5)


def test_far_rows_count_as_far_as_is_allowed_and_no_farther():
    target = outputs(1000, 1.2, seed=4)
    est = fitted()
    x = np.asarray(target.features).copy()
    x[:3] *= 1e6
    far = gdscore.Outputs(logits=target.logits, features=x)
    assert est.estimate(far).accuracy == pytest.approx(est.estimate(target).accuracy, abs=3 * ROW / 1000)


def test_ties_stay_ties_in_another_precision():
    """Equal confidences that differ by rounding have one calibrated value, on whichever side of each other they are."""
    rng = np.random.default_rng(0)
    p = np.repeat([0.85, 0.6], 300) + rng.choice([-3e-8, 3e-8], 600)
    right = rng.random(600) < np.where(p > 0.85, 0.9, 0.5)
    est = gdscore.AccuracyEstimator().fit(gdscore.Outputs(probabilities=p, labels=right.astype(int)))
    found = [est.estimate(gdscore.Outputs(probabilities=np.full(200, 0.85 + d))).accuracy for d in (-4e-8, 0, 4e-8)]
    assert np.ptp(found) < 1e-3
    single = np.full(200, 0.85).astype(np.float32)
    assert est.estimate(gdscore.Outputs(probabilities=single)).accuracy == pytest.approx(found[1], abs=1e-3)
