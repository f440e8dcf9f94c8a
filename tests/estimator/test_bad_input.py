"""Odd references, sets and targets: an error that explains itself, or a finite estimate."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import gdscore

from .data import CLASSES, fitted, numbers, outputs, rows, shifted

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")
TARGET = outputs(300, 1.5, seed=9)


def scaled(array, factor, dtype=np.float32):
    """Numbers of any size that the precision can hold."""
    largest = 3e38 if dtype is np.float32 else 3e300
    return (np.asarray(array, dtype=np.float64) * factor).clip(-largest, largest).astype(dtype)


def check(estimate):
    assert 0 <= estimate.low <= estimate.accuracy <= estimate.high <= 1
    assert np.isfinite(numbers(estimate)).all()


def fit(reference, sets=None):
    return gdscore.AccuracyEstimator().fit(reference, shifted_sets=sets, progress=False)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (gdscore.Outputs(logits=np.eye(3) * 2), "labels"),
        ([TARGET, gdscore.Outputs(logits=TARGET.logits, features=TARGET.features)], "labels"),
        (gdscore.Outputs(features=np.eye(3), labels=np.arange(3)), "logits or probabilities"),
        ([], "empty"),
        (iter(()), "empty"),
        (None, "Outputs"),
        (np.zeros((5, 5)), "Outputs"),
        ("reference.npz", "Outputs"),
        ([np.zeros((5, 5))], "Outputs"),
        ([TARGET, outputs(20, features=False)], "all parts"),
    ],
)
def test_bad_references(reference, message):
    with pytest.raises(gdscore.GdscoreError, match=message):
        fit(reference)


def test_probabilities_as_logits_are_refused():
    with pytest.raises(gdscore.GdscoreError, match="probabilities="):
        gdscore.Outputs(logits=np.asarray(TARGET.probabilities), labels=TARGET.labels)


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        ([], "empty"),
        ([TARGET], "ShiftedSet"),
        ([None], "ShiftedSet"),
        ([gdscore.ShiftedSet(outputs(50, features=False), "a")], "features"),
        ([gdscore.ShiftedSet(gdscore.Outputs(logits=2 * np.eye(3), labels=np.arange(3)), "a")], "classes"),
        ([gdscore.ShiftedSet(TARGET, "a", rows=np.arange(1, 301) * 3)], "rows of the reference"),
        ([gdscore.ShiftedSet(TARGET, "a", rows=-np.arange(300))], "rows of the reference"),
        ([gdscore.ShiftedSet(TARGET, "a", rows=np.linspace(0, 1, 300))], "rows of the reference"),
    ],
)
def test_bad_shifted_sets(sets, message):
    with pytest.raises(gdscore.GdscoreError, match=message):
        fit(outputs(400), sets)


@pytest.mark.parametrize("sets", [5, TARGET, "sets", gdscore.ShiftedSet(TARGET, "a")])
def test_sets_that_are_no_sets(sets):
    with pytest.raises(gdscore.GdscoreError, match="shifted_sets"):
        fit(outputs(400), sets)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (outputs(50, features=False), "features"),
        (gdscore.Outputs(logits=np.eye(3) * 2, features=np.zeros((3, 6))), "classes"),
        (gdscore.Outputs(logits=np.eye(5) * 2, features=np.zeros((5, 7))), "features"),
        (gdscore.Outputs(features=np.zeros((5, 6))), "logits or probabilities"),
        ([], "empty"),
        (None, "Outputs"),
        (np.zeros((5, 5)), "Outputs"),
        ({"logits": np.zeros((5, 5))}, "Outputs"),
        ([TARGET, None], "Outputs"),
    ],
)
def test_bad_targets(target, message):
    est = fitted()
    with pytest.raises(gdscore.GdscoreError, match=message):
        est.estimate(target)
    if not isinstance(target, list):
        with pytest.raises(gdscore.GdscoreError):
            est.predict_correct(target)


def test_features_that_the_reference_lacks_are_not_used():
    with_features, without = outputs(200, seed=3), outputs(200, seed=3, features=False)
    est = fitted(features=False)
    assert est.estimate(with_features).to_dict() == est.estimate(without).to_dict()


@pytest.mark.parametrize("sets", [True, False])
@pytest.mark.parametrize("features", [True, False])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_references_of_a_few_rows(count, features, sets):
    est = fit(outputs(count, features=features), shifted(features=features) if sets else None)
    check(est.estimate(outputs(50, features=features)))
    check(est.estimate(outputs(1, features=features)))


@pytest.mark.parametrize("sets", [True, False])
@pytest.mark.parametrize("features", [True, False])
@pytest.mark.parametrize("case", ["one class", "all right", "all wrong", "two classes, one predicted"])
def test_one_sided_references(case, features, sets):
    x, logits, labels = rows(400, seed=1)
    if case == "one class":
        labels = np.zeros(400, dtype=int)
    elif case == "all right":
        labels = logits.argmax(axis=1)
    elif case == "all wrong":
        labels = (logits.argmax(axis=1) + 1) % CLASSES
    else:
        logits = logits - 50 * (np.arange(CLASSES) != 2)
        labels = labels % 2
    extra = {"features": x} if features else {}
    est = fit(gdscore.Outputs(logits=logits, labels=labels, **extra), shifted(features=features) if sets else None)
    for noise in (1.0, 3.0):
        e = est.estimate(outputs(200, noise, features=features))
        check(e)
        if case == "all right" and not sets:
            assert e.accuracy > 0.9
        if case == "all wrong":
            assert "below_chance" in {w.code for w in e.warnings}
            assert e.accuracy < 0.2 or sets


def test_one_set_of_one_class():
    one = outputs(300, 1.5, seed=3, shares=[1, 0, 0, 0, 0])
    for reference in (outputs(400), one):
        check(fit(reference, [gdscore.ShiftedSet(one, "a")]).estimate(TARGET))
        check(fit(reference, [gdscore.ShiftedSet(one[:1], "a"), gdscore.ShiftedSet(one[1:2], "b")]).estimate(TARGET))
        check(fit(reference, [gdscore.ShiftedSet(reference, "same")]).estimate(TARGET))


def test_two_classes():
    x, logits, labels = rows(600, seed=1)
    two = gdscore.Outputs(logits=logits[:, :2], labels=labels % 2, features=x)
    check(fit(two, [gdscore.ShiftedSet(two[:200], "a"), gdscore.ShiftedSet(two[200:], "b")]).estimate(two))
    binary = gdscore.Outputs(probabilities=np.random.default_rng(0).uniform(size=300), labels=labels[:300] % 2)
    check(fit(binary).estimate(binary))


@pytest.mark.parametrize("scale", [1e-30, 1e4, 1e20, 3e37])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logits_of_any_size(scale, dtype):
    """In the reference, in a shifted set, in the target: an error or a finite estimate."""
    huge = gdscore.Outputs(
        logits=scaled(TARGET.logits, scale, dtype),
        features=TARGET.features,
        labels=TARGET.labels,
    )
    check(fitted().estimate(huge))
    check(fit(huge).estimate(TARGET))
    check(fit(outputs(400), [*shifted(), gdscore.ShiftedSet(huge, "huge")]).estimate(TARGET))


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e10, 1e20, 3e37, 1e200])
def test_features_of_any_size(scale):
    dtype = np.float64 if scale > 1e38 else np.float32
    odd = gdscore.Outputs(logits=TARGET.logits, features=scaled(TARGET.features, scale, dtype), labels=TARGET.labels)
    check(fitted().estimate(odd))
    check(fit(outputs(400), [*shifted(), gdscore.ShiftedSet(odd, "huge")]).estimate(TARGET))
    if scale > 1e100:
        with pytest.raises(gdscore.GdscoreError, match="ordinary size"):
            fit(odd)
    else:
        check(fit(odd).estimate(TARGET))
        check(fit(odd).estimate(odd))


def test_the_largest_features():
    x = np.full((300, 6), 3e38, dtype=np.float32) * np.sign(np.asarray(TARGET.features))
    check(fitted().estimate(gdscore.Outputs(logits=TARGET.logits, features=x)))


@pytest.mark.parametrize("method", ["gdscore", "mano", "frechet", "dispersion", "entropy", "nuclear"])
@pytest.mark.filterwarnings("ignore::gdscore.GdscoreWarning")
def test_scores_of_huge_numbers_give_no_nan(method):
    est = fitted(method=method)
    for logits, features in ((1e20, 1.0), (1.0, 3e37), (3e37, 3e37)):
        target = gdscore.Outputs(logits=scaled(TARGET.logits, logits), features=scaled(TARGET.features, features))
        try:
            found = est.estimate(target)
        except gdscore.GdscoreError:
            continue
        check(found)


def test_constant_outputs():
    same = gdscore.Outputs(logits=np.ones((50, CLASSES)), features=np.ones((50, 6)), labels=np.arange(50) % CLASSES)
    check(fitted().estimate(same))
    check(fit(same).estimate(TARGET))
    check(fit(same, [gdscore.ShiftedSet(same, "a"), gdscore.ShiftedSet(TARGET, "b")]).estimate(TARGET))


def test_many_classes_few_rows():
    rng = np.random.default_rng(0)
    many = gdscore.Outputs(logits=rng.normal(size=(60, 300)) * 3, labels=rng.integers(0, 300, 60))
    check(fit(many).estimate(many))


def test_what_is_under_a_mask_never_counts():
    est, half = fitted(), np.arange(len(TARGET)) % 2 == 0
    drawn = gdscore.labeling.choose(est, TARGET, budget=20)
    classifier = LogisticRegression().fit(np.eye(2), [0, 1])
    for use in (
        lambda: est.estimate(TARGET, by=np.ma.masked_array(half, mask=half)),
        lambda: est.estimate(TARGET, class_mix=np.ma.masked_array(np.ones(CLASSES), mask=np.arange(CLASSES) == 0)),
        lambda: gdscore.labeling.estimate(est, TARGET, drawn, np.ma.masked_array(np.zeros(20, int), mask=half[:20])),
        lambda: gdscore.from_sklearn(classifier, np.eye(2), np.ma.masked_array([0, 1], mask=[False, True])),
        lambda: gdscore.shifts.table_shifts(np.eye(40), time=np.ma.masked_array(np.arange(40), mask=half[:40])),
    ):
        with pytest.raises(gdscore.GdscoreError, match="mask"):
            use()


class TestValuesOnAnAccelerator:
    """Construction does not wait for the device, so that values are checked where they are read."""

    @pytest.fixture(autouse=True)
    def no_value_is_on_the_host(self, monkeypatch):
        self.est = fitted()
        self.reference = outputs(400, seed=1)
        monkeypatch.setattr("gdscore._arrays.on_host", lambda x: False)

    def attacks(self, out):
        """Every way of giving these outputs to an estimator."""
        sets = [gdscore.ShiftedSet(part, "a") for part in (self.reference, out, self.reference)]
        return [
            lambda: self.est.estimate(out),
            lambda: self.est.estimate([self.reference, out]),
            lambda: self.est.estimate(out, by=np.zeros(len(out))),
            lambda: self.est.state().update(out),
            lambda: self.est.predict_correct(out),
            lambda: gdscore.labeling.choose(self.est, out, budget=5),
            lambda: gdscore.direct_estimate("doc", out, reference=self.reference),
            lambda: gdscore.direct_estimate("doc", out, reference=self.reference, temperature=False),
            lambda: fit(out),
            lambda: fit([self.reference, out]),
            lambda: fit(self.reference, sets),
            lambda: gdscore.direct_estimate("doc", self.reference, reference=out, temperature=False),
        ]

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda given: given | {"logits": np.asarray(TARGET.probabilities)}, "probabilities="),
            (lambda given: given | {"logits": np.where(np.arange(5) == 2, np.nan, given["logits"])}, "finite"),
            (lambda given: given | {"features": given["features"] * np.inf}, "finite"),
            (lambda given: given | {"labels": given["labels"] + 3}, "between 0 and 4"),
        ],
        ids=["probabilities", "nan", "inf", "labels"],
    )
    def test_values_that_cannot_be_used(self, change, message):
        out = gdscore.Outputs(**change(dict(TARGET.arrays)))
        for attack in self.attacks(out):
            with pytest.raises(gdscore.GdscoreError, match=message):
                attack()

    def test_sound_values(self):
        for attack in self.attacks(TARGET):
            attack()
