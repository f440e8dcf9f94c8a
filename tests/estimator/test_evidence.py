"""Cells of the reference, the class mix that explains a target beside an optimiser of its own, inputs as evidence."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, softmax
from sklearn.ensemble import RandomForestClassifier

import gdscore
from gdscore.estimator.correctness import explain, explained_share
from gdscore.estimator.evidence import CENTRES, GROUPS, LIMIT, MOST_CELLS, Profile, groups_of
from gdscore.estimator.settings import SETTINGS

from .data import CLASSES, outputs, shifted, unlabelled

MIXES = (np.array([0.6, 0.1, 0.1, 0.1, 0.1]), np.array([0.05, 0.05, 0.3, 0.3, 0.3]), np.array([0, 0, 0.5, 0.5, 0]))
EST = gdscore.AccuracyEstimator().fit(outputs(2000, seed=1), shifted_sets=shifted(), progress=False)
ALONE = gdscore.AccuracyEstimator().fit(outputs(2000, seed=1))


def explained(est, target, mix=None):
    profile = est.fitted_.correction.profile
    rows = profile.rows(target)
    cells = np.bincount(profile.cells_of(rows), minlength=len(profile.cells)) / len(target)
    return profile, cells, explain(profile, cells, rows.evidence.mean(axis=0), len(target), mix)


def test_rows_are_counted_by_predicted_class_group_of_log_odds_and_label():
    reference = outputs(2000, seed=1)
    profile, rows = Profile.of(reference, 1.3)
    counts, expected = np.zeros((CLASSES, GROUPS, CLASSES)), np.zeros((CLASSES, GROUPS, CLASSES))
    p = softmax(np.asarray(reference.logits, dtype=np.float64) / 1.3, axis=1)
    for i, label in enumerate(np.asarray(reference.labels)):
        predicted = p[i].argmax()
        a = np.clip(rows.calibrated[i], -LIMIT, LIMIT - 1e-9)
        group = int((a + LIMIT) // (2 * LIMIT / GROUPS))
        counts[predicted, group, label] += 1
        others = np.where(np.arange(CLASSES) == predicted, 0, p[i])
        right = expit(rows.calibrated[i])
        expected[predicted, group] += (1 - right) * others / others.sum()
        expected[predicted, group, predicted] += right
    np.testing.assert_array_equal(profile.cells, counts.reshape(-1, CLASSES))
    np.testing.assert_allclose(profile.expected, expected.reshape(-1, CLASSES), atol=1e-4)
    np.testing.assert_array_equal(profile.cells.sum(axis=0), np.bincount(reference.labels))
    recall = [(np.asarray(reference.predictions)[reference.labels == k] == k).mean() for k in range(CLASSES)]
    np.testing.assert_allclose(profile.recall, recall)


def test_shares_in_cells_lie_between_what_labels_and_what_probabilities_say():
    profile = ALONE.fitted_.correction.profile
    by_label = profile.cells / profile.counts
    by_probability = profile.expected / profile.expected.sum(axis=0)
    between = profile.of_class
    np.testing.assert_allclose(between.sum(axis=0), 1, atol=1e-12)
    assert (between > 0).all()
    low, high = np.minimum(by_label, by_probability), np.maximum(by_label, by_probability)
    assert (between >= low - 1e-3).all()
    assert (between <= high + 1e-3).all()
    weight = SETTINGS.smoothing / (1 + SETTINGS.smoothing)
    np.testing.assert_allclose(between, (1 - weight) * by_label + weight * by_probability, atol=2e-3)


def test_a_class_without_rows_is_where_probabilities_say():
    labels = np.asarray(outputs(2000, seed=1).labels)
    reference = outputs(2000, seed=1)[np.flatnonzero(labels != 2)]
    profile = gdscore.AccuracyEstimator().fit(reference).fitted_.correction.profile
    assert profile.counts[2] == 0
    groups = profile.of_class[:, 2].reshape(CLASSES, -1).sum(axis=1)
    assert groups.sum() == pytest.approx(1)
    assert groups.argmax() == 2
    np.testing.assert_allclose(profile.of_class.sum(axis=0), 1)


@pytest.mark.parametrize("mix", MIXES)
def test_posteriors_follow_bayes_rule(mix):
    profile = ALONE.fitted_.correction.profile
    posterior = profile.posterior(mix)
    joint = profile.of_class * mix
    np.testing.assert_allclose(posterior * joint.sum(axis=1, keepdims=True), joint, atol=1e-12)
    predicted = np.arange(len(posterior)) // GROUPS
    right = posterior[np.arange(len(posterior)), predicted]
    np.testing.assert_allclose(profile.correct_in(mix), right, atol=1e-12)
    np.testing.assert_allclose(profile.correct_in(np.stack([mix, mix])), [right, right], atol=1e-12)


def test_groups_are_as_many_as_memory_allows():
    for classes in (2, 10, 288, 500, 1000, 5000):
        groups = groups_of(classes)
        assert 1 <= groups <= GROUPS
        assert groups == 1 or classes**2 * groups <= MOST_CELLS
    assert (groups_of(2), groups_of(1000)) == (GROUPS, 1)
    assert len(CENTRES) % GROUPS == 0


@pytest.mark.parametrize("mix", MIXES)
def test_the_mix_has_the_greatest_likelihood(mix):
    target = outputs(1500, 1.2, seed=3, shares=mix)
    profile, cells, found = explained(ALONE, target)
    likely = profile.of_class

    def loss(free):
        shares = np.exp(free) / np.exp(free).sum()
        prior = SETTINGS.prior_rows * profile.mix @ np.log(shares)
        return -(len(target) * cells @ np.log(likely @ shares) + prior) / len(target)

    best = minimize(loss, np.zeros(CLASSES), method="BFGS", options={"gtol": 1e-8}).x
    np.testing.assert_allclose(found.mix, np.exp(best) / np.exp(best).sum(), atol=2e-3)
    assert found.mix.sum() == pytest.approx(1)


def test_the_references_mix_explains_no_movement():
    """With the reference's own mix, rows of a cell are right about as often as there."""
    reference = outputs(2000, seed=1)
    profile, cells, explanation = explained(ALONE, reference, ALONE.fitted_.correction.profile.mix)
    place = profile.cells_of(profile.rows(reference))
    right = np.bincount(place, weights=reference.correct, minlength=len(cells)) / np.maximum(cells * 2000, 1)
    full = cells * 2000 > 20
    np.testing.assert_allclose(profile.correct_in(profile.mix)[full], right[full], atol=0.1)
    assert profile.correct_in(profile.mix) @ cells == pytest.approx(reference.accuracy, abs=0.01)
    assert explanation.explained == pytest.approx(0, abs=1e-12)
    assert explained_share(explanation, 1.0) == pytest.approx(0, abs=1e-6)


def test_many_targets_are_explained_as_each_alone():
    targets = [outputs(900, 1.0 + 0.5 * k, seed=20 + k, shares=mix) for k, mix in enumerate(MIXES)]
    alone = [explained(ALONE, t) for t in targets]
    profile = alone[0][0]
    means = np.stack([profile.rows(t).evidence.mean(axis=0) for t in targets])
    together = explain(profile, np.stack([cells for _, cells, _ in alone]), means, 900)
    np.testing.assert_allclose(together.mix, [e.mix for *_, e in alone], atol=1e-3)
    np.testing.assert_allclose(together.left, [e.left for *_, e in alone], rtol=0.02, atol=1e-3)


@pytest.mark.parametrize("mix", MIXES)
def test_only_the_mix_has_moved(mix):
    target = outputs(3000, seed=4, shares=mix)
    e = ALONE.estimate(unlabelled(target), class_mix="estimated")
    assert e.accuracy == pytest.approx(target.accuracy, abs=0.02)
    np.testing.assert_allclose(e.class_mix_estimate, mix, atol=0.03)
    assert e.low <= target.accuracy <= e.high
    assert e.fits["estimated"] > 0.9 > e.fits["stable"]
    assert e.class_mix == "estimated"


def test_where_rows_have_moved_too_the_mix_is_not_followed():
    e = EST.estimate(unlabelled(outputs(2000, 2.5, seed=5)))
    assert e.fits["estimated"] < 0.9
    assert abs(e.accuracy - e.assumptions["estimated"]) > 0.05


@pytest.mark.parametrize("class_mix", ["unknown", "stable", "estimated", MIXES[0]])
@pytest.mark.parametrize("noise", [1.0, 1.6])
def test_the_estimate_is_the_mean_of_the_rows(class_mix, noise):
    est = gdscore.AccuracyEstimator(class_mix=class_mix)._with(EST.fitted_)
    target = unlabelled(outputs(1000, noise, seed=6, shares=MIXES[0]))
    right = est.predict_correct(target)
    assert right.mean() == pytest.approx(est.estimate(target).accuracy, abs=1e-9)
    assert right.min() >= 0
    assert right.max() <= 1


def test_one_level_of_confidence_tells_nothing():
    """A cell for each class: some mix always matches, so none is followed."""
    rng = np.random.default_rng(0)

    def made(labels):
        predicted = np.where(rng.random(len(labels)) < 0.8, labels, rng.integers(0, 3, len(labels)))
        return gdscore.Outputs(probabilities=0.7 * np.eye(3)[predicted] + 0.1, labels=labels)

    est = gdscore.AccuracyEstimator().fit(made(rng.integers(0, 3, 3000)))
    profile = est.fitted_.correction.profile
    assert np.count_nonzero(profile.cells.sum(axis=1)) <= 4
    assert profile.tells_mix < 0.1


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_no_more_cells_than_classes_tell_nothing(levels):
    """A binary model that predicts one class only: two levels of confidence are matched by some mix of two classes."""
    second = np.repeat([0.05, 0.2, 0.4][:levels], 200)
    labels = np.concatenate([np.arange(200) < 200 * p for p in np.unique(second)]).astype(int)
    reference = gdscore.Outputs(probabilities=np.stack([1 - second, second], axis=1), labels=labels)
    est = gdscore.AccuracyEstimator().fit(reference)
    profile = est.fitted_.correction.profile
    assert np.count_nonzero(profile.cells.sum(axis=1)) == levels
    assert (profile.tells_mix > 0) == (levels > 2)
    target = reference.probabilities[50 * levels : 150 * levels]
    assert est.estimate(gdscore.Outputs(probabilities=target)).accuracy == pytest.approx(target[:, 0].mean(), abs=0.01)


def test_one_row_of_the_reference_hardly_changes_what_cells_tell():
    for count in (300, 600, 2000):
        full = outputs(count, seed=1)
        told = [Profile.of(full[rows], 1.0)[0].tells_mix for rows in (slice(0, count), slice(1, count))]
        assert abs(told[0] - told[1]) < 0.1


def with_inputs(out, scale=1.0):
    return gdscore.Outputs(logits=out.logits, inputs=np.asarray(out.features) * scale, labels=out.labels)


@pytest.mark.parametrize("scale", [1.0, np.array([1e6, 1e-6, 1, 30, 1e-3, 5])])
def test_inputs_are_evidence_as_standardised_features_are(scale):
    """Each column is divided by its standard deviation on the reference, so that its unit does not matter."""
    reference = outputs(2000, seed=1)
    spread = np.asarray(reference.features, dtype=np.float64).std(axis=0)

    def standardised(out):
        return gdscore.Outputs(logits=out.logits, features=np.asarray(out.features) / spread, labels=out.labels)

    first, second = (
        gdscore.AccuracyEstimator().fit(
            made(reference),
            shifted_sets=[gdscore.ShiftedSet(made(s.outputs), s.family, s.rows) for s in shifted()],
            progress=False,
        )
        for made in (lambda out: with_inputs(out, scale), standardised)
    )
    target = outputs(1000, 1.5, seed=8)
    found, expected = first.estimate(with_inputs(target, scale)), second.estimate(standardised(target))
    assert found.accuracy == pytest.approx(expected.accuracy, abs=1e-5)
    assert found.scores["distance"] == pytest.approx(expected.scores["distance"], abs=1e-4)
    with pytest.raises(
        gdscore.GdscoreError, match="6 inputs .* but they have none: it was fitted on the model.*Outputs.prob"
    ):
        first.estimate(gdscore.Outputs(logits=target.logits))
    with pytest.raises(gdscore.GdscoreError, match="6 inputs .* but they have 3: are they of another model.$"):
        first.estimate(gdscore.Outputs(logits=target.logits, inputs=target.features[:, :3]))
    with pytest.raises(gdscore.GdscoreError, match="5 classes .* but they have 4: are they of another model.$"):
        first.estimate(gdscore.Outputs(logits=target.logits[:, :4], inputs=target.features))


def test_a_small_column_that_moves_far_counts_beside_a_large_one():
    """An income in euros, and an age in centuries that has moved by ten standard deviations."""
    rng = np.random.default_rng(0)

    def made(count, moved=0.0):
        y = rng.integers(0, 2, count)
        income, age = 50_000 + 20_000 * rng.normal(size=count), 0.4 + 0.1 * (rng.normal(size=count) + moved)
        logits = np.stack([np.zeros(count), 2 * y - 1 + rng.normal(size=count)], axis=1)
        return gdscore.Outputs(logits=logits, inputs=np.stack([income, age], axis=1), labels=y)

    est = gdscore.AccuracyEstimator().fit(made(2000))
    same, far = (est.estimate(made(1000, moved)) for moved in (0.0, 10.0))
    assert abs(same.scores["distance"]) < 0.2
    assert far.scores["distance"] > 2
    assert "moved_untaught" in {w.code for w in far.warnings}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_inputs_that_vary_by_rounding_have_no_unit(dtype):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 2)).astype(dtype)
    x[:, 1] = np.nextafter(dtype(1e4), dtype(2e4)) * np.where(rng.random(600) < 0.5, 1, 1 + np.finfo(dtype).eps)
    x = np.hstack([x, np.full((600, 1), 0.1, dtype)])
    reference = gdscore.Outputs(logits=rng.normal(size=(600, 2)), inputs=x, labels=np.arange(600) % 2)
    units = Profile.of(reference, 1.0)[0].units
    assert units[0] == pytest.approx(x[:, 0].std(), rel=1e-5)
    np.testing.assert_array_equal(units[1:], 1)


def test_inputs_are_saved(tmp_path):
    est = gdscore.AccuracyEstimator().fit(with_inputs(outputs(600, seed=1)))
    est.save(tmp_path / "m.gdscore")
    target = with_inputs(outputs(500, 1.5, seed=8))
    assert gdscore.AccuracyEstimator.load(tmp_path / "m.gdscore").estimate(target) == est.estimate(target)


def test_trees_show_noise_that_their_confidence_does_not():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 6))
    y = (x[:, :2].sum(axis=1) + 0.3 * rng.normal(size=3000) > 0).astype(int)
    forest = RandomForestClassifier(30, random_state=0).fit(x[:1000], y[:1000])
    est = gdscore.AccuracyEstimator().fit_predictor(forest, x[1000:2000], y[1000:2000], progress=False)
    assert est.fitted_.correction.profile.located == "inputs"
    target = x[2000:] + 1.5 * rng.normal(size=(1000, 6))
    e = est.estimate(gdscore.from_sklearn(forest, target))
    assert e.low <= forest.score(target, y[2000:]) <= e.high
    assert "distance" in e.scores


@pytest.mark.parametrize(("classes", "dtype"), [(2, np.float64), (4, np.float64), (4, np.float32)])
def test_brier_scores_of_rows(classes, dtype):
    """If rows are right: of the predicted class. If they are wrong: the mean over the others, by their probabilities."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(classes, 0.3), 200).astype(dtype)
    p = p / p.sum(axis=1, keepdims=True)
    out = gdscore.Outputs(probabilities=p, labels=p.argmax(axis=1))
    profile, _ = Profile.of(out, 1.0)
    found = np.concatenate([losses for *_, losses in profile.chunks(out)])
    own = np.asarray(out.probabilities, dtype=np.float64)
    brier = np.stack([np.square(own - np.eye(classes)[k]).sum(axis=1) for k in range(classes)], axis=1)
    predicted = np.eye(classes, dtype=bool)[own.argmax(axis=1)]
    np.testing.assert_allclose(found[:, 0], brier[predicted], atol=1e-5)
    others = np.where(predicted, 0, own)
    expected = (others * brier).sum(axis=1) / np.maximum(others.sum(axis=1), 1e-300)
    some = others.sum(axis=1) > 1e-5
    np.testing.assert_allclose(found[some, 1], expected[some], atol=1e-4)
    far = gdscore.Outputs(logits=np.array([[2000.0, *[0.0] * (classes - 1)]], dtype=dtype))
    ((*_, last),) = profile.chunks(far)
    np.testing.assert_allclose(last, [[0, 2]], atol=1e-6)
