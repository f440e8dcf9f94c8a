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
    ((_, evidence),) = est.state().update(target).by_segment()
    assert est.fitted_.correction.cells(evidence).accuracy == pytest.approx(expected.mean(), abs=1e-4)
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
    ((_, evidence),) = est.state().update(target).by_segment()
    assert correction.cells(evidence).accuracy == pytest.approx(expit(odds).mean(), abs=3e-4)


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


def fit(sets, **options):
    return gdscore.AccuracyEstimator(**options).fit(outputs(800, seed=1), shifted_sets=sets, progress=False)


@pytest.mark.parametrize("kind", ["collapsing", "families"])
def test_what_is_left_out_is_estimated_as_by_a_refit_without_it(kind):
    """The table of an estimator has what an estimator says that has never seen the family, parts of it included."""
    first, other = ("f0", "f1") if kind == "collapsing" else ("family 0", "family 1")
    sets = [
        *(collapsing() + in_other_mixes() if kind == "collapsing" else shifted()),
        crowded(9, family=f"{first}+{other}"),
    ]
    est = fit(sets)
    table = est.shifted_sets_
    np.testing.assert_array_equal(table.accuracy, [s.accuracy for s in sets])
    np.testing.assert_array_equal(table.rows, [len(s.outputs) for s in sets])
    assert est.left_out_error_ == pytest.approx(np.abs(table.predicted - table.accuracy).mean())
    parts = [set(s.family.split("+")) for s in sets]
    assert est.n_families_ == len(set().union(*parts))
    for k in (0, 2, len(sets) - 1):
        refit = fit([s for s, part in zip(sets, parts, strict=True) if not parts[k] & part])
        e = refit.estimate(sets[k].outputs)
        # The refit weighs its assumptions on sets that it left out itself: one family less than the table's weights.
        assert table.predicted[k] == pytest.approx(e.accuracy, abs=0.06)
        assert min(e.assumptions.values()) - 0.01 <= table.predicted[k] <= max(e.assumptions.values()) + 0.01


def test_intervals_hold_the_errors_of_families_left_out():
    sets, covered = shifted(600, families=6), []
    for family in sorted({s.family for s in sets}):
        refit = fit([s for s in sets if s.family != family])
        covered += [
            e.low <= s.accuracy <= e.high for s in sets if s.family == family for e in [refit.estimate(s.outputs)]
        ]
    assert np.mean(covered) >= 0.85


@pytest.mark.parametrize("class_mix", ["unknown", "stable", "estimated", (0.4, 0.3, 0.2, 0.1, 0.0)])
@pytest.mark.parametrize("sets", [True, False])
def test_intervals_widen_with_the_level_with_fewer_rows_and_with_movement(class_mix, sets):
    target = unlabelled(outputs(1400, 1.3, seed=71))

    def interval(rows, level=0.9):
        e = fitted(sets, level=level, class_mix=class_mix).estimate(rows)
        assert e.low < e.accuracy < e.high
        return e

    low, usual, high = (interval(target, level) for level in (0.5, 0.9, 0.99))
    assert low.accuracy == usual.accuracy == high.accuracy
    for narrow, wide in ((low, usual), (usual, high)):
        assert wide.low <= narrow.low
        assert narrow.high <= wide.high
    # Below the ends 0 and 1 the interval is symmetric and grows as the quantiles of a normal distribution do.
    assert (usual.accuracy - usual.low) / (low.accuracy - low.low) == pytest.approx(
        norm.ppf(0.95) / norm.ppf(0.75), abs=1e-2
    )
    still = unlabelled(outputs(1400, 1.0, seed=71))
    halves = [e.accuracy - e.low for e in map(interval, (still, still[:60], target))]
    assert halves[0] < min(halves[1:])


def test_the_interval_of_a_mix_alone_is_wider_the_farther_it_is_from_the_estimate():
    target = unlabelled(outputs(3000, 1.8, seed=72, shares=[0.7, 0.2, 0.05, 0.03, 0.02]))
    unknown, only_mix = (fitted(class_mix=mix).estimate(target) for mix in ("unknown", "estimated"))
    apart = abs(only_mix.accuracy - unknown.accuracy)
    assert only_mix.high - only_mix.low >= apart


def test_nothing_can_be_left_out_of_one_family():
    est = fit(shifted(families=1))
    assert np.isnan(est.shifted_sets_.predicted).all()
    assert np.isnan(est.left_out_error_)
    assert any(w.code == "one_family" for w in est.estimate(outputs(800, seed=2)).warnings)


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


@pytest.mark.parametrize(("classes", "reference", "rows"), [(300, 3000, 300), (100, 1000, 1000), (10, 1000, 20)])
def test_few_rows_of_many_classes_are_no_collapse(classes, reference, rows):
    """A sample does not show the class mix exactly; what it shows too much of a class can be right all the same."""
    rng = np.random.default_rng(8)
    est = gdscore.AccuracyEstimator().fit(certain(rng.integers(0, classes, reference), classes, rng))
    target = certain(rng.integers(0, classes, rows), classes, rng)
    for class_mix in ("unknown", "stable", "estimated", np.ones(classes)):  # of the population, not of these rows
        e = est.estimate(target, class_mix=class_mix)
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
    lean, less = (fit(sets).fitted_.correction.lean for sets in (collapsing(), collapsing() + in_other_mixes()))
    assert lean > less


def test_unknown_leans_to_the_references_mix_where_rows_look_shifted():
    est, ways = fit(collapsing()), []
    for noise in (1.0, 3.0):
        e = est.estimate(unlabelled(outputs(4000, noise, seed=5, shares=[0.6, 0.1, 0.1, 0.1, 0.1])))
        mixture, stable = e.assumptions["estimated"], e.assumptions["stable"]
        ways.append((e.accuracy - mixture) / (stable - mixture))
    assert ways[0] < 0.5 < ways[1] <= 1


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
