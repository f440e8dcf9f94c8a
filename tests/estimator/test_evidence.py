"""The class mix that explains a target, beside an optimiser of its own; and inputs as evidence."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.ensemble import RandomForestClassifier

import gdscore
from gdscore.estimator.evidence import Profile
from gdscore.estimator.settings import SETTINGS

from .data import CLASSES, outputs, shifted, unlabelled

MIXES = (np.array([0.6, 0.1, 0.1, 0.1, 0.1]), np.array([0.05, 0.05, 0.3, 0.3, 0.3]), np.array([0, 0, 0.5, 0.5, 0]))
EST = gdscore.AccuracyEstimator().fit(outputs(2000, seed=1), shifted_sets=shifted(), progress=False)
ALONE = gdscore.AccuracyEstimator().fit(outputs(2000, seed=1))


def explained(est, target, mix=None):
    profile = est.fitted_.correction.profile
    rows = profile.rows(target)
    cells = np.bincount(profile.cells_of(rows), minlength=len(profile.cells)) / len(target)
    return profile, cells, profile.explain(cells, rows.evidence.mean(axis=0), len(target), mix)


@pytest.mark.parametrize("mix", MIXES)
def test_the_mix_has_the_greatest_likelihood(mix):
    target = outputs(1500, 1.2, seed=3, shares=mix)
    profile, cells, found = explained(ALONE, target)
    usual = (profile.cells.sum(axis=1) + 0.5) / (profile.counts.sum() + 0.5 * len(cells))
    likely = (profile.cells + SETTINGS.smoothing * usual[:, None]) / (profile.counts + SETTINGS.smoothing)

    def loss(free):
        shares = np.exp(free) / np.exp(free).sum()
        prior = SETTINGS.prior_rows * profile.mix @ np.log(shares)
        return -(len(target) * cells @ np.log(likely @ shares) + prior) / len(target)

    best = minimize(loss, np.zeros(CLASSES), method="BFGS", options={"gtol": 1e-8}).x
    np.testing.assert_allclose(found.mix, np.exp(best) / np.exp(best).sum(), atol=2e-3)
    assert found.mix.sum() == pytest.approx(1)


def test_probabilities_of_cells_follow_bayes_rule():
    """With the reference's own mix, rows of a cell are right as often as there."""
    reference = outputs(2000, seed=1)
    profile, cells, found = explained(ALONE, reference, ALONE.fitted_.correction.profile.mix)
    place = profile.cells_of(profile.rows(reference))
    right = np.bincount(place, weights=reference.correct) / np.maximum(np.bincount(place), 1)
    full = np.bincount(place, minlength=len(cells))[: len(right)] > 20
    np.testing.assert_allclose(found.of_cell[: len(right)][full], right[full], atol=5e-3)
    assert found.explained == pytest.approx(0, abs=1e-12)
    assert found.share(1.0) == pytest.approx(0, abs=1e-6)


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


def test_one_group_tells_nothing():
    """A reference with few rows of each class has one cell for each: some mix always matches, so none is followed."""
    small = gdscore.AccuracyEstimator().fit(outputs(100, seed=1))
    assert small.fitted_.correction.profile.groups.max() == 0
    e = small.estimate(unlabelled(outputs(1000, seed=7, shares=MIXES[0])))
    assert e.fits["estimated"] == 0


@pytest.mark.parametrize("levels", [2, 3])
def test_no_more_cells_than_classes_tell_nothing(levels):
    """A binary model that predicts one class only: two levels of confidence are matched by some mix of two classes."""
    second = np.repeat([0.05, 0.2, 0.4][:levels], 200)
    labels = np.concatenate([np.arange(200) < 200 * p for p in np.unique(second)]).astype(int)
    reference = gdscore.Outputs(probabilities=np.stack([1 - second, second], axis=1), labels=labels)
    est = gdscore.AccuracyEstimator().fit(reference)
    profile = est.fitted_.correction.profile
    assert (profile.groups.max() + 1, np.count_nonzero(profile.cells.sum(axis=1))) == (levels, levels)
    e = est.estimate(gdscore.Outputs(probabilities=reference.probabilities[150:350]))
    assert (e.fits["estimated"] > 0) == (levels > 2)


def with_inputs(out):
    return gdscore.Outputs(logits=out.logits, inputs=out.features, labels=out.labels)


def test_inputs_are_evidence_as_features_are():
    sets = [gdscore.ShiftedSet(with_inputs(s.outputs), s.family, s.rows) for s in shifted()]
    est = gdscore.AccuracyEstimator().fit(with_inputs(outputs(2000, seed=1)), shifted_sets=sets, progress=False)
    target = outputs(1000, 1.5, seed=8)
    assert est.estimate(with_inputs(target)).accuracy == EST.estimate(target).accuracy
    with pytest.raises(
        gdscore.GdscoreError, match="6 inputs .* but they have none: it was fitted on the model.*Outputs.prob"
    ):
        est.estimate(gdscore.Outputs(logits=target.logits))
    with pytest.raises(gdscore.GdscoreError, match="6 inputs .* but they have 3: are they of another model.$"):
        est.estimate(gdscore.Outputs(logits=target.logits, inputs=target.features[:, :3]))
    with pytest.raises(gdscore.GdscoreError, match="5 classes .* but they have 4: are they of another model.$"):
        est.estimate(gdscore.Outputs(logits=target.logits[:, :4], inputs=target.features))


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
