"""The probability that a row is right, against independent implementations."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq, minimize
from scipy.special import expit, log_expit, logit, softmax
from scipy.stats import norm
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import precision_recall_fscore_support, recall_score

import gdscore
from gdscore.estimator import correctness
from gdscore.estimator.evidence import Profile
from gdscore.estimator.settings import SETTINGS

from .data import CLASSES, fitted, outputs, shifted, unlabelled


def test_without_shifted_sets_it_is_isotonic_regression_of_confidence():
    """CBPE, and what predicted classes have beyond it: isotonic regression on the largest probability, and its mean."""
    reference, target = outputs(3000, seed=1), outputs(2000, 1.4, seed=2)
    est = gdscore.AccuracyEstimator().fit(reference)
    temperature = gdscore.fit_temperature(reference)

    def confidence(out):
        largest = softmax(np.asarray(out.logits, dtype=np.float64) / temperature, axis=1).max(axis=1)
        return np.round(largest * 2**17) / 2**17  # ties in single precision stay ties

    oracle = IsotonicRegression(out_of_bounds="clip").fit(confidence(reference), reference.correct)
    share = oracle.predict(confidence(target)).clip(SETTINGS.calibration_edge, 1 - SETTINGS.calibration_edge)
    expected = expit(logit(share) + est.fitted_.correction.profile.class_odds[target.predictions])
    evidence = est.state().update(target).by_segment()
    ((_, state),) = evidence
    assert est.fitted_.correction.cells(state.evidence).accuracy == pytest.approx(expected.mean(), abs=1e-4)
    # The mix of the sample differs from the reference's by chance, and explains a little of the movement.
    e, right = est.estimate(unlabelled(target)), est.predict_correct(target)
    assert e.accuracy == pytest.approx(expected.mean(), abs=2e-3)
    np.testing.assert_allclose(right, expected, atol=0.05)
    assert np.abs(right - expected).mean() < 5e-3


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
    assert e.accuracy == pytest.approx(target.accuracy, abs=0.015)
    assert rows.mean() == pytest.approx(e.accuracy, abs=1e-9)
    precision, recall, f1, counts = precision_recall_fscore_support(target.labels, target.predictions)
    for c in e.per_class:
        assert c.share == pytest.approx(counts[c.label] / 3000, abs=0.02)
        assert c.precision.value == pytest.approx(precision[c.label], abs=0.08)
        assert rows[target.predictions == c.label].mean() == pytest.approx(precision[c.label], abs=0.08)
        assert c.recall.value == pytest.approx(recall[c.label], abs=0.1)
        assert c.recall.low <= recall[c.label] <= c.recall.high
        assert c.precision.low <= precision[c.label] <= c.precision.high
    assert e.f1.value == pytest.approx(f1.mean(), abs=0.05)


def test_what_classes_differ_by_chance_is_left_out():
    rng, classes = np.random.default_rng(0), 40
    z = 2 * rng.normal(size=(1200, classes))
    labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)  # drawn from softmax(z)
    odds = Profile.of(gdscore.Outputs(logits=z, labels=labels), 1.0)[0].class_odds
    assert np.abs(odds).mean() < 0.1  # of 30 rows each by chance 0.3
    other = z + np.where(np.arange(classes) < 10, 2.0, 0.0)  # ten classes are predicted far too often
    found = Profile.of(gdscore.Outputs(logits=other, labels=labels), 1.0)[0].class_odds
    assert found[:10].max() < -0.1 < 0.1 < np.median(found[10:])


@pytest.mark.parametrize("seed", range(3))
def test_log_odds_of_classes_are_shrunk_maximum_likelihood(seed):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(4000, 4))
    labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    reference = gdscore.Outputs(logits=z + np.array([1.5, 0, 0, -0.5]), labels=labels)
    profile, rows = Profile.of(reference, 1.0)
    odds = rows.calibrated - profile.class_odds[rows.predicted]
    for k in range(4):
        of_class = rows.predicted == k
        right = np.asarray(reference.correct)[of_class].sum()

        def missing(change, a=odds[of_class], right=right):
            return expit(a + change).sum() - right

        best = brentq(missing, -6, 6)
        assert 0 <= profile.class_odds[k] / best <= 1
        assert profile.class_odds[k] == pytest.approx(best, rel=0.1)  # many rows: hardly anything is chance


@pytest.mark.parametrize("covariates", [False, True])
def test_an_imbalanced_table_with_balanced_weights(covariates):
    """Rows predicted as the rare class are right far more rarely than others of their confidence."""
    errors = []
    for seed in range(6):
        rng = np.random.default_rng([seed, 38])
        y = (rng.random(24_000) < 0.06).astype(int)
        x = rng.normal(size=(24_000, 4)) + np.array([1.0, 0.8, 0, 0]) * y[:, None]
        train, reference, target = np.split(np.arange(24_000), 3)
        if covariates:  # rows are drawn by a column: what is right at each x stays
            target = target[rng.random(8000) < expit(x[target, 0])]
        classifier = LogisticRegression(class_weight="balanced").fit(x[train], y[train])
        est = gdscore.AccuracyEstimator().fit(gdscore.from_sklearn(classifier, x[reference], y[reference]))
        e = est.estimate(gdscore.from_sklearn(classifier, x[target]))
        truth = classifier.score(x[target], y[target])
        errors.append(e.accuracy - truth)
        assert e.low <= truth <= e.high
    assert np.abs(errors).mean() <= 0.01


def test_on_the_reference_it_is_the_accuracy():
    for sets in (False, True):
        est, reference = fitted(sets), outputs(800, seed=1)
        # Isotonic regression keeps the mean; the edges move it a little.
        assert est.estimate(reference).accuracy == pytest.approx(reference.accuracy, abs=0.006)


def in_class_mixes(labels):
    """Weights of rows in their own class mix, which counts half, and with one class rarer and more frequent."""
    factors = [np.ones(CLASSES), *(np.exp(t * np.eye(CLASSES)[k]) for k in range(CLASSES) for t in SETTINGS.tilts)]
    counts = np.bincount(labels, minlength=CLASSES)
    for i, factor in enumerate(factors):
        weight = factor[labels] / (counts @ factor)
        yield weight, 0.5 if i == 0 else 0.5 / (len(factors) - 1)


def logistic_regression(est, sets):
    """γ and δ by a general optimiser on all rows of the sets, in each class mix."""
    correction = est.fitted_.correction
    profile = correction.profile
    columns, offsets, right, weights = [], [], [], []
    for s in sets:
        rows = profile.rows(s.outputs)
        a = rows.calibrated
        for weight, counts in in_class_mixes(s.outputs.labels):
            moved = (weight @ rows.evidence - profile.mean) / profile.scale
            columns.append(np.hstack([np.tile(moved, (len(a), 1)), (a - correction.centre)[:, None] * moved]))
            offsets.append(a)
            right.append(rows.predicted == s.outputs.labels)
            weights.append(weight * counts)
    x, a, y, w = (np.concatenate(part) for part in (columns, offsets, right, weights))
    scale = np.sqrt(np.average(np.square(x - np.average(x, axis=0, weights=w)), axis=0, weights=w))
    # δ is multiplied by log-odds: their spread is taken for 1 at least.
    scale[len(scale) // 2 :] = np.maximum(scale, np.sqrt(w @ np.square(x) / w.sum()))[: len(scale) // 2].clip(
        scale[len(scale) // 2 :]
    )
    x = x / scale

    def loss(beta):
        odds = a + x @ beta
        value = -(w @ np.where(y, log_expit(odds), log_expit(-odds))) + 0.5 * SETTINGS.penalty * beta @ beta
        return value, x.T @ (w * (expit(odds) - y)) + SETTINGS.penalty * beta

    found = minimize(loss, np.zeros(x.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-8}).x / scale
    return np.split(found, 2)


@pytest.mark.parametrize("features", [True, False])
def test_the_correction_is_a_logistic_regression(features):
    """The sums over bins are off by less than a thousandth; the probabilities of a target by less than 1e-4."""
    sets = shifted(500, features=features)
    est = gdscore.AccuracyEstimator().fit(outputs(800, seed=1, features=features), shifted_sets=sets, progress=False)
    shift, slope = logistic_regression(est, sets)
    correction = est.fitted_.correction
    np.testing.assert_allclose(correction.shift, shift, atol=3e-3)
    np.testing.assert_allclose(correction.slope, slope, atol=3e-3)
    target = outputs(2000, 1.7, seed=50, features=features)
    rows = correction.profile.rows(target)
    moved = (rows.evidence.mean(axis=0) - correction.profile.mean) / correction.profile.scale
    odds = rows.calibrated + moved @ shift + (rows.calibrated - correction.centre) * (moved @ slope)
    ((_, state),) = est.state().update(target).by_segment()
    assert correction.cells(state.evidence).accuracy == pytest.approx(expit(odds).mean(), abs=3e-4)


def test_one_class_after_the_other_is_rarer_and_more_frequent():
    est, sets = fitted(), shifted()
    profile = est.fitted_.correction.profile
    labels = [np.asarray(s.outputs.labels) for s in sets]
    summaries = [
        correctness.SetSummary.of("f", rows, np.full((len(y), CLASSES), 0.2), y, classes=CLASSES)
        for rows, y in ((profile.rows(s.outputs), y) for s, y in zip(sets, labels, strict=True))
    ]
    factors = correctness.class_mixes(summaries, profile)
    expected = [np.exp(t * np.eye(CLASSES)[k]) for k in range(CLASSES) for t in SETTINGS.tilts]
    np.testing.assert_allclose(np.unique(factors, axis=0), np.unique(expected, axis=0))


def test_many_classes_are_moved_in_blocks():
    rng = np.random.default_rng(0)
    labels = np.arange(2000) % 100
    z = rng.normal(size=(2000, 100)) + 6 * np.eye(100)[labels]
    out = gdscore.Outputs(logits=z, labels=labels)
    profile, rows = Profile.of(out, 1.0)
    summary = correctness.SetSummary.of("f", rows, np.full((2000, 100), 0.01), labels, classes=100)
    factors = correctness.class_mixes([summary], profile)
    assert 1 < len(factors) <= correctness.MOST_BLOCKS * len(SETTINGS.tilts)
    moved = factors != 1
    np.testing.assert_array_equal(moved.sum(axis=0), len(SETTINGS.tilts))  # each class by each tilt, once
    assert np.ptp(moved.sum(axis=1)) <= 1  # blocks of one size


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


def in_their_own_mixes_alone(monkeypatch):
    """Shifted sets are used in no other class mix."""
    monkeypatch.setattr(correctness, "class_mixes", lambda sets, profile: np.ones((0, len(profile.mix))))


def least_squares(x, y):
    """Slope through the origin between 0 and 1, with a ridge of the constant ``small_way`` for each point."""
    x, y = np.append(x, SETTINGS.small_way * np.sqrt(len(x))), np.append(y, 0)
    return np.clip(np.linalg.lstsq(x[:, None], y)[0][0], 0, 1)


def looks_shifted(est, target):
    """How far the mean evidence is from that of the reference's rows of the same predicted classes: 0 to 1."""
    profile = est.fitted_.correction.profile
    rows = profile.rows(target)
    far = np.abs((rows.evidence - profile.class_means[rows.predicted]).mean(axis=0)) / profile.scale
    # Standard error of the difference: each row's own, and that of the class mean it is compared with.
    variance = 1 / len(rows.predicted)
    for k, count in zip(*np.unique(rows.predicted, return_counts=True), strict=True):
        variance += (count / len(rows.predicted)) ** 2 / (profile.predicted_mix[k] * profile.counts.sum())
    return np.clip(far.max() / max(SETTINGS.moved, SETTINGS.noise * np.sqrt(variance)) - 1, 0, 1)


class LeftOut:
    """What the public estimates of an estimator say of a set, and how they are put together."""

    def __init__(self, est, s):
        ((_, state),) = est.state().update(s.outputs).by_segment()
        best = est.fitted_.correction.assumptions(state.evidence)["estimated"][1]
        self.explained, self.left = float(best.explained), float(best.left)
        self.shown = est.fitted_.correction.cells(state.evidence).accuracy
        e = est.estimate(s.outputs)
        self.stable, self.only_mix = e.assumptions["stable"], e.assumptions["estimated"]
        self.looks, self.accuracy = looks_shifted(est, s.outputs), s.accuracy

    def unknown(self, strictness, lean):
        share = self.explained / (self.explained + strictness * self.left + 1e-9)
        nearer = self.shown + share * (self.only_mix - self.shown)
        return nearer + lean * self.looks * (self.stable - nearer)


def learned(used):
    """Strictness and lean with the least squared error on these sets, on a grid."""
    best = (np.inf, 0, 0)
    for strictness in np.geomspace(SETTINGS.strictness / 4, 2 * SETTINGS.strictness, 400):
        nearer = np.array([u.unknown(strictness, 0) for u in used])
        way = np.array([u.looks * u.stable for u in used]) - np.array([u.looks for u in used]) * nearer
        off = np.array([u.accuracy for u in used]) - nearer
        lean = least_squares(way, off)
        best = min(best, (np.square(off - lean * way).sum(), strictness, lean))
    return best[1:]


def crowded(seed, noise=1.8, push=4.0, family=None):
    """A shifted set that crowds into two classes, as models under shift do."""
    plain = outputs(600, noise, seed)
    logits = np.asarray(plain.logits) + push * np.eye(CLASSES)[:2].sum(axis=0)
    out = gdscore.Outputs(logits=logits, features=plain.features, labels=plain.labels)
    return gdscore.ShiftedSet(out, family or f"f{seed}")


def collapsing():
    """Sets that crowd more and less, so that movement alone does not tell how many rows are right."""
    return [crowded(seed, 1 + 0.2 * seed, 4.0 * (seed % 2)) for seed in range(8)]


def in_other_mixes():
    """Sets with predictions like those, whose rows do have another class mix."""
    shares = [0.4, 0.4, 0.08, 0.06, 0.06]
    return [gdscore.ShiftedSet(outputs(600, 1 + 0.2 * k, 50 + k, shares=shares), f"g{k}") for k in range(1, 8, 2)]


def quantile_of_families(relative, families):
    """90 % quantile of numbers, those of each family weighing one together."""
    values, weights = [], []
    for family in sorted({part for f in families for part in f.split("+")}):
        of_family = [r for r, f in zip(relative, families, strict=True) if family in f.split("+")]
        values += of_family
        weights += [1 / len(of_family)] * len(of_family)
    order = np.argsort(values)
    reached = np.cumsum(np.array(weights)[order]) / sum(weights)
    return np.array(values)[order][np.argmax(reached >= 0.9 - 1e-9)]


def expected_error(accuracy, base):
    """s(m)."""
    m = abs(accuracy - base)
    return SETTINGS.floor + SETTINGS.growth * m * (1 - m) ** 2


@pytest.mark.parametrize("kind", ["collapsing", "family"])
def test_what_is_learned_of_families_left_out(monkeypatch, kind):
    """Estimates by refits without each family; how assumptions are weighed; errors of intervals; all recomputed."""
    in_their_own_mixes_alone(monkeypatch)
    both = crowded(9, family="f0+family 1" if kind == "collapsing" else "family 0+family 1")
    sets = [*(collapsing() + in_other_mixes() if kind == "collapsing" else shifted()), both]
    reference = outputs(800, seed=1)
    est = gdscore.AccuracyEstimator().fit(reference, shifted_sets=sets, progress=False)
    parts = [set(s.family.split("+")) for s in sets]
    refits = {}
    for own in parts:
        others = [s for s, part in zip(sets, parts, strict=True) if not own & part]
        key = frozenset(own)
        if key not in refits:
            refits[key] = gdscore.AccuracyEstimator().fit(reference, shifted_sets=others, progress=False)
    left_out = [LeftOut(refits[frozenset(own)], s) for own, s in zip(parts, sets, strict=True)]
    correction, table = est.fitted_.correction, est.shifted_sets_
    _, lean = learned(left_out)
    assert correction.lean == pytest.approx(lean, abs=5e-3)
    unknown = []
    for own, one in zip(parts, left_out, strict=True):
        weights = learned([other for part, other in zip(parts, left_out, strict=True) if not own & part])
        unknown.append(one.unknown(*weights))
    np.testing.assert_allclose(table.predicted, unknown, atol=1e-3)
    np.testing.assert_array_equal(table.accuracy, [s.accuracy for s in sets])
    np.testing.assert_array_equal(table.rows, [len(s.outputs) for s in sets])
    assert est.left_out_error_ == pytest.approx(np.abs(table.predicted - table.accuracy).mean())
    assert est.n_families_ == len(set().union(*parts))
    known = []
    for own, s in zip(parts, sets, strict=True):
        mix = np.bincount(s.outputs.labels, minlength=CLASSES)
        known.append(refits[frozenset(own)].estimate(s.outputs, class_mix=mix).accuracy)
    assert correction.known_left_out == pytest.approx(np.abs(known - table.accuracy).mean(), abs=1e-4)
    for estimates, error, atol in (
        (table.predicted, correction.error, 1e-9),
        (known, correction.known_mix_error, 1e-3),
    ):
        relative = [
            abs(e - t) / expected_error(e, correction.base) for e, t in zip(estimates, table.accuracy, strict=True)
        ]
        assert error == pytest.approx(np.sqrt(quantile_of_families(relative, table.families)), abs=atol)
    if kind == "collapsing":
        assert correction.lean > 0.05
        target = crowded(77, 1.7).outputs
        one = LeftOut(est, gdscore.ShiftedSet(target, "t"))
        found = est.estimate(unlabelled(target)).accuracy
        assert found == pytest.approx(one.unknown(correction.strictness, correction.lean), abs=1e-9)


@pytest.mark.parametrize("class_mix", ["unknown", "stable", "estimated", (0.4, 0.3, 0.2, 0.1, 0.0)])
@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("sets", [True, False])
def test_the_width_is_of_errors_left_out_of_movement_and_of_sampling(class_mix, level, sets):
    est, target = fitted(sets, level=level, class_mix=class_mix), outputs(700, 1.3, seed=71)
    e, correction = est.estimate(unlabelled(target)), est.fitted_.correction
    rows = correction.profile.rows(target)
    moved = np.abs((rows.evidence.mean(axis=0) - correction.profile.mean) / correction.profile.scale)
    moved = np.maximum(moved - SETTINGS.noise * np.sqrt(1 / 700 + 1 / 800), 0)
    if sets:
        kind = {"unknown": "", "estimated": "only_mix_"}.get(class_mix if isinstance(class_mix, str) else "", "known_")
        error = getattr(correction, {"": "error", "only_mix_": "only_mix_error"}.get(kind, "known_mix_error"))
        left_out = getattr(correction, f"{kind}left_out")
        further = norm.ppf(0.95) * left_out * min(moved.max() / SETTINGS.moved_fully, 1)
    else:
        error, further = SETTINGS.outputs_only, SETTINGS.untaught * min(moved[1], 4)
    apart = abs(e.accuracy - e.assumptions["unknown"]) if e.class_mix == "estimated" else 0
    of_fit = np.hypot(error * (expected_error(e.accuracy, correction.base) + apart), further) / norm.ppf(0.95)
    shares = (
        (e.accuracy * n + 1) / (n + 2) if n == 700 else (correct * n + 1) / (n + 2)
        for n, correct in ((700, None), (800, est.reference_accuracy_))
    )
    sampling = [np.sqrt(s * (1 - s) / n) for s, n in zip(shares, (700, 800), strict=True)]
    half = norm.ppf(0.5 + level / 2) * np.sqrt(of_fit**2 + np.square(sampling).sum())
    assert e.low == pytest.approx(max(e.accuracy - half, 0), abs=1e-6)
    assert e.high == pytest.approx(min(e.accuracy + half, 1), abs=1e-6)


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


def test_a_model_that_predicts_one_class_is_right_for_its_share():
    """It cannot be right more often than that class appears, where its share is known."""
    x = outputs(1000, 1.0, seed=6)
    logits = np.zeros((1000, CLASSES), dtype=np.float32)
    logits[:, 2] = 20
    target = gdscore.Outputs(logits=logits, features=x.features)
    for share in (0.1, 0.5, 0.9):
        mix = np.where(np.arange(CLASSES) == 2, share, (1 - share) / 4)
        assert fitted().estimate(target, class_mix=mix).accuracy == pytest.approx(share, abs=0.02)
    # The reference's mix has slack, as probabilities are wrong beyond sampling: far below what the rows show.
    stable, unknown = (fitted().estimate(target, class_mix=m).accuracy for m in ("stable", "unknown"))
    assert stable < 0.55 < unknown
    assert fitted(class_mix=[0, 0, 1, 0, 0]).estimate(target).accuracy > 0.98
    assert fitted(class_mix=[1, 1, 0, 1, 1]).estimate(target).accuracy == 0


@pytest.mark.parametrize("sets", [True, False])
@pytest.mark.parametrize("noise", [1.0, 1.8])
def test_a_known_class_mix_is_met_but_for_sampling_error(sets, noise):
    rng = np.random.default_rng(7)
    est = fitted(sets)
    for seed in range(6):
        mix = rng.dirichlet(np.full(CLASSES, 2.0))
        target = outputs(1500, noise, seed=seed, shares=mix)
        e = est.estimate(target, class_mix=mix)
        off = np.array([c.share for c in e.per_class]) - mix
        assert (np.abs(off) <= 3 * np.sqrt(mix * (1 - mix) / 1500)).all()


def certain(labels, classes, rng):
    """Outputs of a model that is right on every row."""
    x = 10 * np.eye(classes, dtype=np.float32)[labels]
    return gdscore.Outputs(logits=x, features=x + 0.1 * rng.normal(size=x.shape).astype(np.float32), labels=labels)


@pytest.mark.parametrize("class_mix", ["unknown", "stable", "estimated", "given"])
@pytest.mark.parametrize(("classes", "reference", "rows"), [(300, 3000, 300), (100, 1000, 1000), (10, 1000, 20)])
def test_few_rows_of_many_classes_are_no_collapse(classes, reference, rows, class_mix):
    """A sample does not show the class mix exactly; what it shows too much of a class can be right all the same."""
    rng = np.random.default_rng(8)
    mix = np.ones(classes) if class_mix == "given" else class_mix  # of the population, not of these rows
    est = gdscore.AccuracyEstimator(class_mix=mix).fit(certain(rng.integers(0, classes, reference), classes, rng))
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


def test_collapse_teaches_to_lean_and_other_mixes_teach_not_to():
    lean, less = (
        gdscore.AccuracyEstimator().fit(outputs(800, seed=1), shifted_sets=sets, progress=False).fitted_.correction.lean
        for sets in (collapsing(), collapsing() + in_other_mixes())
    )
    assert lean > less


@pytest.mark.parametrize("noise", [1.0, 1.6, 3.0])
def test_unknown_leans_to_the_references_mix_as_far_as_rows_look_shifted(noise):
    est = gdscore.AccuracyEstimator().fit(outputs(800, seed=1), shifted_sets=collapsing(), progress=False)
    target = outputs(4000, noise, seed=5, shares=[0.6, 0.1, 0.1, 0.1, 0.1])
    correction, one = est.fitted_.correction, LeftOut(est, gdscore.ShiftedSet(target, "t"))
    assert est.estimate(target).accuracy == pytest.approx(one.unknown(correction.strictness, correction.lean), abs=1e-9)
    assert (one.looks > 0) == (noise > 1)


def world(seed, count=3000):
    """Exact posteriors of Gaussian classes; the last has 4 % of the reference and 40 % of the target."""
    rng = np.random.default_rng(seed)
    classes = int(rng.integers(3, 8))
    centres = rng.normal(size=(classes, 5)) * rng.uniform(0.7, 1.6)
    mix = np.append(rng.dirichlet(np.full(classes - 1, 5.0)) * 0.96, 0.04)
    other = np.append(0.6 * mix[:-1] / mix[:-1].sum(), 0.4)

    def draw(shares):
        labels = rng.choice(classes, count, p=shares)
        x = centres[labels] + rng.normal(size=(count, 5))
        logits = -0.5 * np.square(x[:, None] - centres).sum(axis=-1) + np.log(mix)
        return gdscore.Outputs(logits=logits, labels=labels)

    return draw(mix), draw(other)


def test_pure_label_shift():
    """Nothing but the class mix has moved: by far, to a class that the reference has few rows of."""
    bias, covered, recalls = {}, {}, []
    for reference, target in map(world, range(25)):
        est = gdscore.AccuracyEstimator().fit(reference)
        counts = np.bincount(target.labels)
        for name, class_mix in (("unknown", "unknown"), ("estimated", "estimated"), ("given", counts / counts.sum())):
            e = est.estimate(unlabelled(target), class_mix=class_mix)
            bias.setdefault(name, []).append(e.accuracy - target.accuracy)
            covered.setdefault(name, []).append(e.low <= target.accuracy <= e.high)
        recall = recall_score(target.labels, target.predictions, average=None)
        recalls += [c.recall.low <= recall[c.label] <= c.recall.high for c in e.per_class]
    assert abs(np.mean(bias["given"])) <= 0.006
    assert abs(np.mean(bias["estimated"])) <= 0.015
    assert abs(np.mean(bias["unknown"])) <= 0.02
    for name, hits in covered.items():
        assert np.mean(hits) >= 0.85, name
    assert np.mean(recalls) >= 0.85


def test_intervals_hold_the_sampling_error_of_a_small_reference():
    held = []
    for seed in range(40):
        est = gdscore.AccuracyEstimator().fit(outputs(60, 2.0, seed=seed))
        target = outputs(2000, 2.0, seed=900 + seed)
        e = est.estimate(unlabelled(target))
        held.append(e.low <= target.accuracy <= e.high)
    assert np.mean(held) > 0.85
