"""Every warning: one target where it applies, one where it does not."""

from __future__ import annotations

import numpy as np
import pytest

import gdscore
from gdscore.estimator.settings import SETTINGS

from .data import CLASSES, fitted, outputs, rows, shifted, unlabelled

SAME = outputs(2000, seed=30)


def codes(estimate):
    return {w.code for w in estimate.warnings}


def severity(estimate, code):
    (found,) = [w.severity for w in estimate.warnings if w.code == code]
    return found


def test_none_where_nothing_is_wrong():
    assert fitted().estimate(SAME).warnings == []


def test_few_rows():
    est = fitted()
    assert severity(est.estimate(SAME[: SETTINGS.few_rows - 1]), "few_rows") == "warning"
    assert "few_rows" not in codes(est.estimate(SAME[: SETTINGS.few_rows]))


def test_small_reference():
    assert severity(fitted(count=SETTINGS.small_reference - 1).estimate(SAME), "small_reference") == "warning"
    assert "small_reference" not in codes(fitted(count=SETTINGS.small_reference).estimate(SAME))


def test_below_chance():
    """Labels in another order of classes than the outputs."""
    x, logits, labels = rows(1000, seed=1)
    est = gdscore.AccuracyEstimator().fit(gdscore.Outputs(logits=logits, features=x, labels=(labels + 1) % CLASSES))
    e = est.estimate(SAME)
    assert severity(e, "below_chance") == "critical"
    assert e.warnings[0].code == "below_chance"
    assert e.accuracy < 0.2
    assert "below_chance" not in codes(fitted().estimate(SAME))


def test_outputs_only():
    assert severity(fitted(sets=False).estimate(SAME), "outputs_only") == "info"
    assert "outputs_only" not in codes(fitted().estimate(SAME))


def test_class_mix_far_from_the_reference():
    """It matters little where another class mix explains the outputs, and more where rows are shifted too."""
    est, shares = fitted(), [0.5, 0.3, 0.1, 0.05, 0.05]
    assert severity(est.estimate(outputs(2000, seed=31, shares=shares)), "class_mix") == "info"
    assert severity(est.estimate(outputs(2000, 3.0, seed=31, shares=shares)), "class_mix") == "warning"
    near = outputs(2000, seed=31, shares=[0.24, 0.22, 0.2, 0.18, 0.16])
    assert "class_mix" not in codes(est.estimate(near))


def test_a_given_class_mix_is_no_surprise():
    shares = [0.5, 0.5, 0, 0, 0]
    target = outputs(2000, seed=31, shares=shares)
    assert {"collapse", "class_mix"} <= set(codes(fitted().estimate(target)))
    assert not {"collapse", "class_mix"} & set(codes(fitted(class_mix=shares).estimate(target)))
    estimate = fitted(class_mix=[0, 0, 0, 0, 1]).estimate(target)
    assert "the one given" in next(w.message for w in estimate.warnings if w.code == "class_mix")


def test_unequal_classes():
    """Classes 0 and 1 are found rarely, so that accuracy depends on the class mix, and rows have moved."""

    def hard(count, noise, seed):
        x, logits, labels = rows(count, noise, seed)
        logits[:, :2] -= 9
        return gdscore.Outputs(logits=logits, features=x, labels=labels)

    est = gdscore.AccuracyEstimator().fit(hard(800, 1.0, 1))
    moved, same = hard(2000, 1.5, 2), hard(2000, 1.0, 2)
    assert severity(est.estimate(moved), "unequal_classes") == "warning"
    assert "unequal_classes" not in codes(est.estimate(same))
    assert "unequal_classes" not in codes(est.estimate(moved, class_mix="stable"))
    assert "unequal_classes" not in codes(fitted().estimate(outputs(2000, 1.5, seed=2)))


def test_one_family():
    est = gdscore.AccuracyEstimator().fit(outputs(800, seed=1), shifted_sets=shifted(families=1), progress=False)
    assert severity(est.estimate(SAME), "one_family") == "info"
    assert "one_family" not in codes(fitted().estimate(SAME))
    assert "one_family" not in codes(fitted(sets=False).estimate(SAME))


def test_class_mix_of_few_rows_is_noise():
    est = fitted()
    warned = ["class_mix" in codes(est.estimate(SAME[i : i + 20])) for i in range(0, 2000, 20)]
    assert np.mean(warned) < 0.15


def test_class_mix_where_the_assumptions_differ():
    """Shifted rows that crowd into two classes: the interval reaches down to what a stable mix gives."""
    x, logits, _ = rows(2000, 2.2, seed=32)
    logits[:, :2] += 8
    e = fitted().estimate(gdscore.Outputs(logits=logits, features=x))
    assert "class_mix" in codes(e)
    assert sum(w.code == "class_mix" for w in e.warnings) == 1
    assert e.low <= e.assumptions["stable"] < e.accuracy
    stable = fitted(class_mix="stable").estimate(gdscore.Outputs(logits=logits, features=x))
    assert stable.accuracy == pytest.approx(e.assumptions["stable"])


def test_collapse():
    est = fitted()
    one = outputs(2000, seed=33, shares=[0.96, 0.01, 0.01, 0.01, 0.01])
    assert severity(est.estimate(one), "collapse") == "critical"
    three = outputs(2000, seed=33, shares=[0.3, 0.3, 0.3, 0.05, 0.05])
    assert "collapse" not in codes(est.estimate(three))


@pytest.mark.parametrize("count", [1, 2, 5])
def test_few_rows_are_no_collapse(count):
    assert "collapse" not in codes(fitted().estimate(SAME[:count]))


def test_other_model():
    est, rng = fitted(), np.random.default_rng(0)
    x, _, _ = rows(500, seed=34)
    other = gdscore.Outputs(logits=x @ rng.normal(size=(6, CLASSES)), features=x)
    assert severity(est.estimate(other), "other_model") == "critical"
    assert "other_model" in codes(est.estimate([SAME, other]))
    states = [est.state().update(part) for part in (SAME, other)]
    assert "other_model" in codes(est.estimate(states[0].merge(states[1])))
    for same in (SAME, outputs(500, 30.0, seed=2), outputs(500, dtype=np.float16)):
        assert "other_model" not in codes(est.estimate(same))


def test_other_model_with_probabilities():
    """Logarithms of probabilities are logits moved by a constant for each row."""
    p = np.asarray(outputs(500, 3.0, seed=35).probabilities, dtype=np.float64)
    est = fitted()
    found = est.estimate(gdscore.Outputs(probabilities=p, features=outputs(500, 3.0, seed=35).features))
    assert "other_model" not in codes(found)
    wrong = gdscore.Outputs(probabilities=p[::-1].copy(), features=outputs(500, 3.0, seed=35).features)
    assert "other_model" in codes(est.estimate(wrong))


def test_other_model_needs_features():
    assert "other_model" not in codes(fitted(features=False).estimate(outputs(500, features=False)))


def test_a_head_that_features_do_not_determine_is_not_checked():
    x, logits, labels = rows(600, seed=1)
    doubled = np.hstack([x, x])
    est = gdscore.AccuracyEstimator().fit(gdscore.Outputs(logits=logits, features=doubled, labels=labels))
    other = gdscore.Outputs(logits=logits[::-1].copy(), features=doubled)
    assert "other_model" not in codes(est.estimate(other))
    few = gdscore.AccuracyEstimator().fit(outputs(15))
    assert "other_model" not in codes(few.estimate(SAME))


def test_beyond():
    est = fitted()
    assert severity(est.estimate(outputs(2000, 12.0, seed=36)), "beyond") == "warning"
    assert "beyond" not in codes(est.estimate(outputs(2000, 1.8, seed=36)))
    assert "beyond" not in codes(fitted(sets=False).estimate(outputs(2000, 12.0, seed=36)))


def test_most_severe_first_and_once():
    e = fitted(sets=False, count=300).estimate(outputs(50, 3.0, shares=[1, 0, 0, 0, 0]))
    order = [("critical", "warning", "info").index(w.severity) for w in e.warnings]
    assert order == sorted(order)
    assert len(codes(e)) == len(e.warnings) >= 4
    for w in e.warnings:
        assert str(w) == w.message
        assert "\n" not in w.message
        assert w.message in str(e)


def test_labels_of_the_target_are_not_used():
    target = outputs(1000, 2.0, seed=37)
    lying = gdscore.Outputs(logits=target.logits, features=target.features, labels=np.zeros(1000, dtype=int))
    assert fitted().estimate(target).to_dict() == fitted().estimate(lying).to_dict()
    assert fitted().estimate(target).to_dict() == fitted().estimate(unlabelled(target)).to_dict()


def test_features_that_moved_without_shifted_sets():
    e = fitted(sets=False).estimate(outputs(1000, seed=3, offset=3.0))
    assert "moved_untaught" in codes(e)
    plain = fitted(sets=False).estimate(outputs(1000, seed=3))
    assert "moved_untaught" not in codes(plain)
    assert e.high - e.low > 1.5 * (plain.high - plain.low)


def test_confidence_that_does_not_react():
    """Labels of shifted sets are exchanged, and nothing else: the outputs do not show it."""
    reference = outputs(1000, seed=1, features=False)

    def worse(seed):
        out = outputs(500, seed=seed, features=False)
        labels = np.where(np.arange(500) % 3 == 0, (np.asarray(out.labels) + 1) % 5, out.labels)
        return gdscore.ShiftedSet(gdscore.Outputs(logits=out.logits, labels=labels), f"family {seed % 3}")

    est = gdscore.AccuracyEstimator().fit(reference, shifted_sets=[worse(k) for k in range(9)], progress=False)
    assert "confidence_does_not_react" in codes(est.estimate(outputs(500, seed=20, features=False)))
    assert "confidence_does_not_react" not in codes(fitted().estimate(outputs(500, seed=20)))


def test_weak_evidence():
    """Families left out were missed by far more than the interval of a target that has hardly moved allows for."""
    est = fitted()
    e = est.estimate(SAME)
    assert (
        e.left_out_error
        == est.left_out_error_
        == pytest.approx(np.mean(np.abs(est.shifted_sets_.predicted - est.shifted_sets_.accuracy)))
    )
    assert f"missed by {100 * e.left_out_error:.1f} points on average" in str(e)
    assert "weak_evidence" not in codes(e)
    est.shifted_sets_.predicted[:] = est.shifted_sets_.accuracy - 1.6 * (e.high - e.low) / 2
    weak = est.estimate(SAME)
    assert severity(weak, "weak_evidence") == "info"
    assert str(weak).count("missed by") == 1
    alone = fitted(sets=False).estimate(SAME)
    assert alone.left_out_error is None
    assert "missed by" not in str(alone)


def test_class_mix_says_what_to_do():
    def named(out):
        return gdscore.Outputs(**out.arrays, class_names=("cat", "dog", "fox", "owl", "pig"))

    est = gdscore.AccuracyEstimator().fit(named(outputs(800, seed=1)))
    (told,) = [
        w.message
        for w in est.estimate(named(outputs(2000, seed=31, shares=[0.4, 0.3, 0.1, 0.1, 0.1]))).warnings
        if w.code == "class_mix"
    ]
    assert "est.estimate(outputs, class_mix={'cat': 0.17, 'dog': 0.21, 'fox': 0.20, …})" in told
    assert ('class_mix="estimated"' in told) == ("another class mix explains this" in told)
    assert ('class_mix="stable"' in told) == ("another class mix alone does not explain this" in told)


def of_a_network(count, seed, head, *, width=512, dtype=np.float32, scale=1.0):
    """Features after a ReLU, and logits of a head on them."""
    rng = np.random.default_rng([seed, 3])
    labels = rng.integers(0, CLASSES, count)
    centres = np.random.default_rng(4).normal(size=(CLASSES, width))
    x = scale * np.maximum(0.5 * centres[labels] + rng.normal(size=(count, width)), 0)
    return gdscore.Outputs(logits=head(x).astype(dtype), features=x.astype(dtype), labels=labels)


def linear(seed):
    weights = np.random.default_rng([seed, 8]).normal(size=(512, CLASSES)) / 8
    return lambda x: x @ weights


def cosine(x):
    return 30 * linear(0)(x / np.linalg.norm(x, axis=1, keepdims=True))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("count", [1076, 1500])
def test_another_model_of_512_features(count, dtype):
    """It was not looked for below 1,539 rows of the reference."""
    est = gdscore.AccuracyEstimator().fit(of_a_network(count, 0, linear(0), dtype=dtype), progress=False)
    for scale in (1.0, 3.0):
        assert "other_model" not in codes(est.estimate(of_a_network(400, 1, linear(0), dtype=dtype, scale=scale)))
        other = est.estimate(of_a_network(400, 1, linear(1), dtype=dtype, scale=scale))
        assert severity(other, "other_model") == "critical"


@pytest.mark.parametrize("count", [600, 1075, 1076, 1500, 1800])
def test_a_head_that_is_not_linear_is_no_other_model(count):
    est = gdscore.AccuracyEstimator().fit(of_a_network(count, 0, cosine), progress=False)
    assert "other_model" not in codes(est.estimate(of_a_network(400, 1, cosine)))


def test_an_estimate_above_the_reference_on_rows_that_have_moved():
    est = fitted()
    x, logits, labels = rows(2000, seed=31)
    confident = gdscore.Outputs(logits=3 * logits, features=x, labels=labels)
    assert est.estimate(confident).accuracy > est.reference_accuracy_ + 0.05
    assert severity(est.estimate(confident), "above_reference") == "warning"
    for other in (SAME, outputs(2000, 0.97, seed=33), outputs(2000, 2.0, seed=32)):
        assert "above_reference" not in codes(est.estimate(other))
