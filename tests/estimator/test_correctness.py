"""The probability that a row is right, against independent implementations."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_expit, logit, softmax
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import precision_recall_fscore_support

import gdscore
from gdscore.estimator.estimate import ClassCounts
from gdscore.estimator.evidence import Profile
from gdscore.estimator.settings import SETTINGS

from .data import CLASSES, fitted, outputs, shifted, unlabelled


def test_without_shifted_sets_it_is_isotonic_regression_of_confidence():
    """CBPE: isotonic regression on the largest probability, whatever the temperature, and its mean."""
    reference, target = outputs(3000, seed=1), outputs(2000, 1.4, seed=2)
    est = gdscore.AccuracyEstimator().fit(reference)
    temperature = gdscore.fit_temperature(reference)

    def confidence(out):
        largest = softmax(np.asarray(out.logits, dtype=np.float64) / temperature, axis=1).max(axis=1)
        return np.round(largest * 2**17) / 2**17  # ties in single precision stay ties

    oracle = IsotonicRegression(out_of_bounds="clip").fit(confidence(reference), reference.correct)
    expected = oracle.predict(confidence(target)).clip(SETTINGS.calibration_edge, 1 - SETTINGS.calibration_edge)
    # The mix of the sample differs from the reference's by chance, and explains a little of the movement.
    found, odds = est.predict_correct(target), est.fitted_.correction.profile.class_odds
    alike = np.abs(odds) < 0.02  # classes that are right as often as all rows of their confidence
    assert alike.any()
    np.testing.assert_allclose(found[alike[target.predictions]], expected[alike[target.predictions]], atol=5e-3)
    assert est.estimate(unlabelled(target)).accuracy == pytest.approx(expected.mean(), abs=1e-3)


@pytest.mark.parametrize("class_mix", ["unknown", "stable", "estimated", [0.93, 0.07]])
def test_classes_that_are_right_more_rarely_than_others_of_their_confidence(class_mix):
    """A classifier trained with weights of classes finds the rare class too often; its confidence does not show it."""
    rng = np.random.default_rng(0)
    y = (rng.random(9000) < 0.07).astype(int)
    x = rng.normal(size=(9000, 3)) + 1.2 * y[:, None]
    classifier = LogisticRegression(class_weight="balanced").fit(x[:3000], y[:3000])
    reference, target = (gdscore.from_sklearn(classifier, x[i : i + 3000], y[i : i + 3000]) for i in (3000, 6000))
    est = gdscore.AccuracyEstimator(class_mix=class_mix).fit(reference)
    e, rows = est.estimate(unlabelled(target)), est.predict_correct(target)
    assert e.accuracy == pytest.approx(target.accuracy, abs=0.02)
    assert rows.mean() == pytest.approx(e.accuracy, abs=1e-9)
    precision, recall, f1, counts = precision_recall_fscore_support(target.labels, target.predictions)
    for c in e.per_class:
        assert c.share == pytest.approx(counts[c.label] / 3000, abs=0.02)
        assert c.precision.value == pytest.approx(precision[c.label], abs=0.08)
        assert rows[target.predictions == c.label].mean() == pytest.approx(precision[c.label], abs=0.08)
        # Where the mix is known, a class has no more rows than its share, so that its recall is nearly known too.
        assert c.recall.value == pytest.approx(recall[c.label], abs=0.16)
        assert c.precision.low <= precision[c.label] <= c.precision.high
    assert e.f1.value == pytest.approx(f1.mean(), abs=0.05)


def test_what_classes_differ_by_chance_is_left_out():
    rng, classes = np.random.default_rng(0), 40
    z = 2 * rng.normal(size=(1200, classes))
    labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)  # drawn from softmax(z)
    odds = Profile.of(gdscore.Outputs(logits=z, labels=labels), 1.0)[0].class_odds
    assert np.abs(odds).mean() < 0.05
    other = z + np.where(np.arange(classes) < 10, 2.0, 0.0)  # ten classes are predicted far too often
    found = Profile.of(gdscore.Outputs(logits=other, labels=labels), 1.0)[0].class_odds
    assert found[:10].max() < -0.1 < 0.1 < np.median(found[10:])


def test_log_odds_of_classes_are_moved_and_the_accuracy_stays():
    rng = np.random.default_rng(0)
    for classes in (2, 7):
        predicted, odds = rng.dirichlet(np.ones(classes), size=5), rng.normal(scale=2, size=classes)
        right = predicted * rng.random((5, classes))
        wrong = (1 - right.sum(axis=1, keepdims=True)) * rng.dirichlet(np.ones(classes), size=5)
        if classes == 2:  # what is wrong is of the other class
            wrong = (predicted - right)[:, ::-1]
        counts = ClassCounts(predicted, right, right + wrong)
        moved = counts.moved(odds)
        np.testing.assert_allclose(moved.right.sum(axis=1), right.sum(axis=1), atol=1e-11)
        np.testing.assert_allclose(moved.share.sum(axis=1), 1, atol=1e-9)
        change = logit(moved.right / predicted) - logit(right / predicted) - odds
        np.testing.assert_allclose(change, np.repeat(change[:, :1], classes, axis=1), atol=1e-6)
        if classes == 2:
            np.testing.assert_allclose(moved.share - moved.right, (predicted - moved.right)[:, ::-1], atol=1e-9)
        one = ClassCounts(predicted[0], right[0], (right + wrong)[0]).moved(odds)
        np.testing.assert_allclose(one.share, moved.share[0], atol=1e-9)
        assert counts.moved(np.zeros(classes)) is counts


def test_on_the_reference_it_is_the_accuracy():
    for sets in (False, True):
        est, reference = fitted(sets), outputs(800, seed=1)
        # Isotonic regression keeps the mean; the edges move it a little.
        assert est.estimate(reference).accuracy == pytest.approx(reference.accuracy, abs=0.006)


def logistic_regression(est, sets):
    """γ and δ by a general optimiser on all rows of the sets, in the class mix that each set has."""
    correction = est.fitted_.correction
    profile = correction.profile
    columns, offsets, right, weights = [], [], [], []
    for s in sets:
        rows = profile.rows(s.outputs)
        moved = (rows.evidence.mean(axis=0) - profile.mean) / profile.scale
        a = rows.calibrated
        columns.append(np.hstack([np.tile(moved, (len(a), 1)), (a - correction.centre)[:, None] * moved]))
        offsets.append(a)
        right.append(rows.predicted == s.outputs.labels)
        weights.append(np.full(len(a), 1 / len(a)))
    x, a, y, w = (np.concatenate(part) for part in (columns, offsets, right, weights))
    scale = np.sqrt(np.average(np.square(x - np.average(x, axis=0, weights=w)), axis=0, weights=w))
    x = x / scale

    def loss(beta):
        odds = a + x @ beta
        value = -(w @ np.where(y, log_expit(odds), log_expit(-odds))) + 0.5 * SETTINGS.penalty * beta @ beta
        return value, x.T @ (w * (expit(odds) - y)) + SETTINGS.penalty * beta

    found = minimize(loss, np.zeros(x.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-8}).x / scale
    return np.split(found, 2)


@pytest.mark.parametrize("features", [True, False])
def test_the_correction_is_a_logistic_regression(monkeypatch, features):
    """The sums over bins are off by less than a thousandth; the probabilities of a target by less than 1e-4."""
    monkeypatch.setitem(SETTINGS.__dict__, "mixes", 0)
    sets = shifted(500, features=features)
    est = gdscore.AccuracyEstimator().fit(outputs(800, seed=1, features=features), shifted_sets=sets, progress=False)
    shift, slope = logistic_regression(est, sets)
    correction = est.fitted_.correction
    np.testing.assert_allclose(correction.shift, shift, atol=2e-3)
    np.testing.assert_allclose(correction.slope, slope, atol=2e-3)
    target = outputs(2000, 1.7, seed=50, features=features)
    rows = correction.profile.rows(target)
    moved = (rows.evidence.mean(axis=0) - correction.profile.mean) / correction.profile.scale
    odds = rows.calibrated + moved @ shift + (rows.calibrated - correction.centre) * (moved @ slope)
    assert est.estimate(target).accuracy == pytest.approx(expit(odds).mean(), abs=1e-4)


def test_shifted_sets_teach():
    """Sets of the target's own kind bring the estimate to the truth where confidence alone does not."""
    target = outputs(4000, 1.8, seed=70)
    without, with_sets = (fitted(sets).estimate(unlabelled(target)) for sets in (False, True))
    assert abs(with_sets.accuracy - target.accuracy) < 0.04
    assert abs(with_sets.accuracy - target.accuracy) < abs(without.accuracy - target.accuracy)
    assert with_sets.low <= target.accuracy <= with_sets.high


@pytest.mark.parametrize("class_mix", ["unknown", "stable", (0.4, 0.3, 0.2, 0.1, 0.0)])
@pytest.mark.parametrize("noise", [1.0, 1.8, 4.0])
def test_the_estimate_is_the_mean_probability(class_mix, noise):
    est = fitted(class_mix=class_mix)
    target = outputs(3000, noise, seed=3, shares=[0.5, 0.2, 0.1, 0.1, 0.1])
    p = est.predict_correct(target)
    assert p.shape == (3000,)
    assert ((p >= 0) & (p <= 1)).all()
    assert est.estimate(target).accuracy == pytest.approx(p.mean(), abs=1e-12)


def test_left_out_estimates_equal_refits(monkeypatch):
    monkeypatch.setitem(SETTINGS.__dict__, "most_mixes", 5)  # the same number with fewer sets
    sets = [*shifted(), gdscore.ShiftedSet(outputs(300, 1.5, 500), "family 0+family 1")]
    reference = outputs(800, seed=1)
    table = gdscore.AccuracyEstimator().fit(reference, shifted_sets=sets, progress=False).shifted_sets_
    for i, s in enumerate(sets):
        own = set(s.family.split("+"))
        others = [other for other in sets if not own & set(other.family.split("+"))]
        refit = gdscore.AccuracyEstimator().fit(reference, shifted_sets=others, progress=False)
        assert table.predicted[i] == pytest.approx(refit.estimate(s.outputs).accuracy, abs=1e-6)
        assert table.accuracy[i] == s.accuracy
        assert table.rows[i] == len(s.outputs)
    est = gdscore.AccuracyEstimator().fit(reference, shifted_sets=sets, progress=False)
    assert est.left_out_error_ == pytest.approx(np.abs(table.predicted - table.accuracy).mean())
    assert est.n_families_ == 3


def test_nothing_can_be_left_out_of_one_family():
    est = gdscore.AccuracyEstimator().fit(outputs(800, seed=1), shifted_sets=shifted(families=1), progress=False)
    assert np.isnan(est.shifted_sets_.predicted).all()
    assert np.isnan(est.left_out_error_)
    assert est.fitted_.correction.error == SETTINGS.outputs_only


@pytest.mark.parametrize("class_mix", ["unknown", "stable", (0.4, 0.3, 0.2, 0.1, 0.0)])
@pytest.mark.parametrize("method", ["correctness", "confscore"])
def test_classes_add_up_to_the_accuracy(class_mix, method):
    est = fitted(class_mix=class_mix, method=method)
    e = est.estimate(outputs(2000, 1.8, seed=4, shares=[0.5, 0.2, 0.1, 0.1, 0.1]))
    assert sum(c.predicted for c in e.per_class) == pytest.approx(1)
    assert sum(c.share for c in e.per_class) == pytest.approx(1, abs=2e-3)
    assert sum(c.predicted * c.precision.value for c in e.per_class) == pytest.approx(e.accuracy, abs=1e-6)
    assert sum(c.share * c.recall.value for c in e.per_class) == pytest.approx(e.accuracy, abs=1e-6)
    for c in e.per_class:
        both = c.recall.value + c.precision.value
        harmonic = 2 * c.recall.value * c.precision.value / both if both else 0.0
        assert c.f1.value == pytest.approx(harmonic, abs=1e-6)
        for q in (c.recall, c.precision, c.f1):
            assert 0 <= q.low <= q.value <= q.high <= 1
    assert e.f1.value == pytest.approx(np.mean([c.f1.value for c in e.per_class]))
    assert e.f1.low <= e.f1.value <= e.f1.high


def test_shares_add_up_where_the_model_is_certain():
    """Probabilities of the other classes underflow: what is wrong is spread over them evenly."""
    target = gdscore.Outputs(logits=1e6 * np.eye(CLASSES, dtype=np.float32), features=outputs(CLASSES).features)
    e = fitted().estimate(target)
    assert sum(c.share for c in e.per_class) == pytest.approx(1, abs=1e-5)


def test_classes_against_the_truth():
    target = outputs(20_000, 1.6, seed=5)
    e = fitted(count=4000).estimate(unlabelled(target))
    predicted = np.asarray(target.predictions)
    for c in e.per_class:
        truly = np.asarray(target.labels) == c.label
        right = (truly & (predicted == c.label)).sum()
        assert c.share == pytest.approx(truly.mean(), abs=0.03)
        assert c.predicted == pytest.approx((predicted == c.label).mean())
        assert c.recall.value == pytest.approx(right / truly.sum(), abs=0.1)
        assert c.precision.value == pytest.approx(right / (predicted == c.label).sum(), abs=0.1)


def chance(mix, rows, reference):
    """How much a sample exceeds the shares of a population known from another, in classes where it does, on average."""
    rng = np.random.default_rng(0)
    draws = [rng.multinomial(count, mix, size=4000) / count for count in (rows, reference)]
    return np.maximum(draws[0] - draws[1], 0).sum(axis=1).mean()


@pytest.mark.parametrize(("classes", "rows", "reference"), [(2, 500, 500), (7, 2000, 1000), (50, 3000, 5000)])
def test_the_noise_of_a_class_mix_is_that_of_samples(classes, rows, reference):
    rng = np.random.default_rng(classes)
    mix = rng.dirichlet(np.full(classes, 3.0))
    labels = np.repeat(np.arange(classes), np.round(mix * reference).astype(int))
    correction = gdscore.AccuracyEstimator().fit(certain(labels, classes, rng)).fitted_.correction
    found = correction._mix_noise(correction.profile.mix, rows)
    assert found == pytest.approx(chance(correction.profile.mix, rows, len(labels)), rel=0.05)


def test_stable_caps_a_class_at_its_share():
    """A model that predicts one class for all rows cannot be right more often than that class appears."""
    x = outputs(1000, 1.0, seed=6)
    logits = np.zeros((1000, CLASSES), dtype=np.float32)
    logits[:, 2] = 20
    target = gdscore.Outputs(logits=logits, features=x.features)
    share = (np.asarray(outputs(800, seed=1).labels) == 2).mean()
    stable = fitted(class_mix="stable").estimate(target)
    mix = np.bincount(outputs(800, seed=1).labels, minlength=CLASSES) / 800
    assert stable.accuracy <= share + 1.05 * chance(mix, 1000, 800)
    assert fitted(class_mix=[0, 0, 1, 0, 0]).estimate(target).accuracy > share
    assert fitted(class_mix=[1, 1, 0, 1, 1]).estimate(target).accuracy == 0


def certain(labels, classes, rng):
    """Outputs of a model that is right on every row."""
    x = 10 * np.eye(classes, dtype=np.float32)[labels]
    return gdscore.Outputs(logits=x, features=x + 0.1 * rng.normal(size=x.shape).astype(np.float32), labels=labels)


@pytest.mark.parametrize(("classes", "reference", "rows"), [(300, 3000, 300), (100, 1000, 1000), (10, 1000, 20)])
def test_few_rows_of_many_classes_are_no_collapse(classes, reference, rows):
    """A sample does not show the class mix exactly; what it shows too much of a class can be right all the same."""
    rng = np.random.default_rng(8)
    est = gdscore.AccuracyEstimator(class_mix="stable").fit(certain(rng.integers(0, classes, reference), classes, rng))
    e = est.estimate(certain(rng.integers(0, classes, rows), classes, rng))
    assert e.accuracy > 0.94
    assert sum(c.share for c in e.per_class) == pytest.approx(1)


def test_the_only_row_of_a_class_is_not_at_distance_zero():
    """Half of the classes have one row each: unshifted rows of all classes do not look shifted."""
    rng = np.random.default_rng(9)
    labels = np.concatenate([np.arange(50), rng.integers(0, 25, 750)])
    est = gdscore.AccuracyEstimator().fit(certain(labels, 50, rng))
    e = est.estimate(certain(rng.integers(0, 50, 2000), 50, rng))
    assert e.accuracy > 0.98
    assert e.low > 0.8  # wider for the distance of classes with one row, which no shifted set explains
    assert np.abs(list(e.scores.values())).max() < 2


def only_lean(monkeypatch):
    """The estimate never follows a class mix that explains the target."""
    for name in ("strictness", "most_strictness"):
        monkeypatch.setitem(SETTINGS.__dict__, name, 1e9)


def crowded(seed, noise=1.8, push=4.0):
    """A shifted set that crowds into two classes, as models under shift do."""
    plain = outputs(600, noise, seed)
    logits = np.asarray(plain.logits) + push * np.eye(CLASSES)[:2].sum(axis=0)
    return gdscore.ShiftedSet(gdscore.Outputs(logits=logits, features=plain.features, labels=plain.labels), f"f{seed}")


def collapsing():
    """Sets that crowd more and less, so that movement alone does not tell how many rows are right."""
    return [crowded(seed, 1 + 0.2 * seed, 4.0 * (seed % 2)) for seed in range(8)]


def in_other_mixes():
    """Sets with predictions like those, whose rows do have another class mix."""
    shares = [0.4, 0.4, 0.08, 0.06, 0.06]
    return [gdscore.ShiftedSet(outputs(600, 1 + 0.2 * k, 50 + k, shares=shares), f"g{k}") for k in range(1, 8, 2)]


def least_squares(x, y):
    """Slope through the origin, with a ridge of a hundredth for each point."""
    x, y = np.append(x, 0.01 * np.sqrt(len(x))), np.append(y, 0)
    return np.clip(np.linalg.lstsq(x[:, None], y)[0][0], 0, 1)


def without_assumption(est, target):
    """Probability of each row before anything is assumed of the class mix, and the rows' evidence."""
    correction = est.fitted_.correction
    rows = correction.profile.rows(target)
    moved = (rows.evidence.mean(axis=0) - correction.profile.mean) / correction.profile.scale
    a = rows.calibrated
    return expit(a + moved @ correction.shift + (a - correction.centre) * (moved @ correction.slope)), rows


def looks_shifted(est, rows):
    """How far the mean evidence is from that of the reference's rows of the same predicted classes: 0 to 1."""
    profile = est.fitted_.correction.profile
    far = np.abs((rows.evidence - profile.class_means[rows.predicted]).mean(axis=0)) / profile.scale
    # Standard error of the difference: each row's own, and that of the class mean it is compared with.
    variance = 1 / len(rows.predicted)
    for k, count in zip(*np.unique(rows.predicted, return_counts=True), strict=True):
        variance += (count / len(rows.predicted)) ** 2 / (profile.predicted_mix[k] * profile.counts.sum())
    return np.clip(far.max() / max(SETTINGS.moved, SETTINGS.noise * np.sqrt(variance)) - 1, 0, 1)


def test_the_share_given_back_and_the_lean_are_least_squares_fits(monkeypatch):
    """From probabilities of rows: the excess over the class mix, and the way to the estimate under it."""
    monkeypatch.setitem(SETTINGS.__dict__, "mixes", 0)
    only_lean(monkeypatch)
    sets = collapsing() + in_other_mixes()
    reference = outputs(800, seed=1)
    est = gdscore.AccuracyEstimator().fit(reference, shifted_sets=sets, progress=False)
    correction = est.fitted_.correction
    excess, missing, way, off = [], [], [], []
    for s in sets:
        mix = np.bincount(s.outputs.labels, minlength=CLASSES) / len(s.outputs)
        p, rows = without_assumption(est, s.outputs)
        right = np.bincount(rows.predicted, p, minlength=CLASSES) / len(p)
        noise = correction._mix_noise(mix, len(p))
        excess.append(max(np.maximum(right - mix, 0).sum() - noise, 0))
        missing.append(s.accuracy - (right.sum() - excess[-1]))
        stable = gdscore.AccuracyEstimator(class_mix="stable")._with(est.fitted_).estimate(s.outputs)
        way.append(looks_shifted(est, rows) * (stable.accuracy - p.mean()))
        off.append(s.accuracy - p.mean())
    assert correction.returned == pytest.approx(least_squares(excess, missing), abs=1e-3)
    assert correction.lean == pytest.approx(least_squares(way, off), abs=2e-3)
    assert 0.05 < correction.lean < 0.95


@pytest.mark.parametrize("noise", [1.0, 1.3, 1.6, 2.0, 3.0])
def test_unknown_leans_to_the_references_mix_as_far_as_rows_look_shifted(monkeypatch, noise):
    monkeypatch.setitem(SETTINGS.__dict__, "mixes", 0)
    only_lean(monkeypatch)
    est = gdscore.AccuracyEstimator().fit(outputs(800, seed=1), shifted_sets=collapsing(), progress=False)
    target = outputs(4000, noise, seed=5, shares=[0.6, 0.1, 0.1, 0.1, 0.1])
    e = est.estimate(target)
    p, rows = without_assumption(est, target)
    part = looks_shifted(est, rows) * est.fitted_.correction.lean
    assert e.accuracy == pytest.approx((1 - part) * p.mean() + part * e.assumptions["stable"], abs=1e-4)
    assert (part > 0) == (noise > 1)


def test_collapse_teaches_to_lean_and_other_mixes_teach_not_to(monkeypatch):
    monkeypatch.setitem(SETTINGS.__dict__, "mixes", 0)
    lean, less = (
        gdscore.AccuracyEstimator().fit(outputs(800, seed=1), shifted_sets=sets, progress=False).fitted_.correction.lean
        for sets in (collapsing(), collapsing() + in_other_mixes())
    )
    assert lean > less


def quantile_of_families(relative, families):
    """90 % quantile of numbers, those of each family weighing one together."""
    values, weights = [], []
    for family in sorted({part for f in families for part in f.split("+")}):
        own = [r for r, f in zip(relative, families, strict=True) if family in f.split("+")]
        values += own
        weights += [1 / len(own)] * len(own)
    order = np.argsort(values)
    reached = np.cumsum(np.array(weights)[order]) / sum(weights)
    return np.array(values)[order][np.argmax(reached >= 0.9 - 1e-9)]


@pytest.mark.parametrize("class_mix", ["unknown", "stable"])
def test_the_width_is_that_of_errors_on_families_left_out(monkeypatch, class_mix):
    monkeypatch.setitem(SETTINGS.__dict__, "mixes", 0)
    both = gdscore.ShiftedSet(crowded(9).outputs, "f0+family 1")
    sets = [*(crowded(seed, 1 + 0.3 * seed) for seed in range(5)), *shifted(), both]
    reference = outputs(800, seed=1)
    est = gdscore.AccuracyEstimator(class_mix=class_mix).fit(reference, shifted_sets=sets, progress=False)
    correction, relative = est.fitted_.correction, []
    for s in sets:
        own = set(s.family.split("+"))
        others = [other for other in sets if not own & set(other.family.split("+"))]
        refit = gdscore.AccuracyEstimator().fit(reference, shifted_sets=others, progress=False)
        mix = np.bincount(s.outputs.labels, minlength=CLASSES)
        found = refit.set_params(class_mix="unknown" if class_mix == "unknown" else mix).estimate(s.outputs).accuracy
        m = abs(found - correction.base)
        relative.append(abs(found - s.accuracy) / (SETTINGS.floor + m * (1 - m)))
    error = correction.error if class_mix == "unknown" else correction.known_mix_error
    assert error == pytest.approx(np.sqrt(quantile_of_families(relative, [s.family for s in sets])), abs=1e-5)


@pytest.mark.parametrize("returned", [0.0, 0.3, 1.0])
def test_a_known_class_mix_is_never_exceeded(returned):
    rng = np.random.default_rng(7)
    for _ in range(200):
        predicted, mix = rng.dirichlet(np.full(CLASSES, 0.3)), rng.dirichlet(np.full(CLASSES, 0.5))
        counts = ClassCounts(predicted, predicted * rng.uniform(size=CLASSES), predicted)
        known = counts.with_mix(mix, 0.02, returned)
        beyond = np.maximum(counts.right - mix, 0).sum()
        taken = max(beyond - 0.02, 0)
        assert (known.right <= counts.predicted + 1e-12).all()
        assert np.maximum(known.right - mix, 0).sum() == pytest.approx(min(beyond, 0.02))
        left = counts.right - np.maximum(counts.right - mix, 0) * (taken / beyond if beyond else 0)
        room = np.maximum(np.minimum(predicted, mix) - left, 0).sum()
        assert known.accuracy == pytest.approx(counts.accuracy - taken + min(returned * taken, room))
        assert known.accuracy <= counts.accuracy + 1e-12
        assert known.share.sum() == pytest.approx(1)
        assert (known.share >= known.right - 1e-12).all()
        few = known.right <= mix
        np.testing.assert_allclose(known.share[~few], known.right[~few])
        if few.all():
            np.testing.assert_allclose(known.share, mix)


def test_intervals_hold_the_sampling_error_of_a_small_reference():
    held = []
    for seed in range(40):
        est = gdscore.AccuracyEstimator().fit(outputs(60, 2.0, seed=seed))
        target = outputs(2000, 2.0, seed=900 + seed)
        e = est.estimate(unlabelled(target))
        held.append(e.low <= target.accuracy <= e.high)
    assert np.mean(held) > 0.85
