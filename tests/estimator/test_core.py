"""A scikit-learn estimator: parameters, fitting, refitting, threads, interrupts."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import threading

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import brier_score_loss
from sklearn.utils.validation import check_is_fitted

import gdscore

from .data import CLASSES, fitted, numbers, outputs, shifted

TARGET = outputs(500, 1.5, seed=9)
PARAMS = {"level": 0.8, "class_mix": np.full(CLASSES, 0.2), "method": "atc", "seed": 3}


def test_the_constructor_only_stores():
    odd = {"level": object(), "class_mix": object(), "method": object(), "seed": object()}
    est = gdscore.AccuracyEstimator(**odd)
    assert vars(est) == odd
    assert all(est.get_params()[name] is value for name, value in odd.items())
    with pytest.raises(gdscore.GdscoreError):
        est.fit(outputs(300))


def test_clone_and_params():
    est = gdscore.AccuracyEstimator(**PARAMS)
    copied = clone(est)
    assert copied is not est
    assert copied.get_params().keys() == PARAMS.keys()
    assert (copied.level, copied.method, copied.seed) == (0.8, "atc", 3)
    np.testing.assert_array_equal(copied.class_mix, est.class_mix)
    assert copied.set_params(level=0.5, method="correctness") is copied
    assert (copied.level, est.level) == (0.5, 0.8)
    with pytest.raises(ValueError, match="nonsense"):
        copied.set_params(nonsense=1)


def test_repr():
    assert repr(gdscore.AccuracyEstimator()) == "AccuracyEstimator()"
    assert (
        repr(gdscore.AccuracyEstimator(0.8, class_mix="stable")) == "AccuracyEstimator(class_mix='stable', level=0.8)"
    )
    assert "AccuracyEstimator" in repr(fitted())


def test_clone_of_a_fitted_one_is_unfitted():
    est = fitted()
    check_is_fitted(est)
    copied = clone(est)
    with pytest.raises(NotFittedError):
        check_is_fitted(copied)
    for call in (copied.estimate, copied.predict_correct, copied.save):
        with pytest.raises(gdscore.GdscoreError, match="fitted"):
            call(TARGET)
    with pytest.raises(gdscore.GdscoreError, match="fitted"):
        copied.state()
    with pytest.raises(gdscore.GdscoreError, match="fitted"):
        copied.estimate(est.state().update(TARGET))
    with pytest.raises(NotFittedError):
        copied.estimate(TARGET)
    with pytest.raises(AttributeError):  # as scikit-learn's error is, too
        copied.state()


def test_fit_returns_itself_and_changes_no_argument():
    est, reference, sets = gdscore.AccuracyEstimator(), outputs(400, seed=1), shifted()
    before = copy.deepcopy([reference.arrays, [s.outputs.arrays for s in sets]])
    params = dict(vars(est))
    assert est.fit(reference, shifted_sets=sets, progress=False) is est
    assert {name: vars(est)[name] for name in params} == params
    after = [reference.arrays, [s.outputs.arrays for s in sets]]
    for old, new in zip([before[0], *before[1]], [after[0], *after[1]], strict=True):
        for name in old:
            np.testing.assert_array_equal(old[name], new[name])
    est.estimate(TARGET)
    np.testing.assert_array_equal(np.asarray(TARGET.logits), np.asarray(outputs(500, 1.5, seed=9).logits))


def test_a_refit_forgets():
    est = fitted(method="entropy")
    est.set_params(method="correctness").fit(outputs(600, seed=2, features=False))
    fresh = gdscore.AccuracyEstimator().fit(outputs(600, seed=2, features=False))
    target = outputs(500, 1.5, seed=9, features=False)
    np.testing.assert_array_equal(numbers(est.estimate(target)), numbers(fresh.estimate(target)))
    learned = {name for name in vars(fresh) if name.endswith("_")}
    assert {name for name in vars(est) if name.endswith("_")} == learned
    assert est.n_features_ is None
    assert not est.shifted_sets_.families


def test_fitted_attributes():
    est, reference = fitted(), outputs(800, seed=1)
    assert est.reference_accuracy_ == reference.accuracy
    assert (est.reference_rows_, est.n_classes_, est.n_features_, est.class_names_) == (800, CLASSES, 6, None)
    histogram = est.reference_confidence_
    assert sum(histogram.rows) == 800
    assert sum(histogram.correct) == pytest.approx(800 * reference.accuracy)
    scaled = reference.with_temperature(gdscore.fit_temperature(reference))
    assert sum(histogram.confidence) == pytest.approx(np.asarray(scaled.confidence, dtype=float).sum(), rel=1e-5)
    np.testing.assert_array_equal(histogram.rows, np.histogram(scaled.confidence, histogram.edges)[0])


def test_parameters_set_after_fit():
    """Level and class mix are used when estimating."""
    est = fitted()
    wide, narrow = est.set_params(level=0.99).estimate(TARGET), est.set_params(level=0.5).estimate(TARGET)
    assert wide.high - wide.low > narrow.high - narrow.low
    assert est.set_params(class_mix="stable").estimate(TARGET).class_mix == "stable"
    for params in ({"level": 7}, {"level": float("nan")}, {"class_mix": "x"}, {"class_mix": [1, 2]}, {"seed": -1}):
        changed = fitted().set_params(**params)
        for call in (changed.estimate, changed.predict_correct, lambda _, c=changed: c.save("never.gdscore")):
            with pytest.raises(gdscore.GdscoreError, match=next(iter(params))):
                call(TARGET)


@pytest.mark.parametrize("name", ["level", "class_mix", "method", "seed"])
@pytest.mark.parametrize(
    "value",
    [
        None,
        -1,
        1.5,
        "nonsense",
        "",
        [],
        [1, 2],
        object(),
        float("nan"),
        {},
        np.zeros(CLASSES),
        pytest.param(10**400, id="huge"),
        True,
    ],
)
def test_bad_parameters(name, value):
    with pytest.raises(gdscore.GdscoreError, match=name) as raised:
        gdscore.AccuracyEstimator(**{name: value}).fit(outputs(300))
    assert "\n" not in str(raised.value)


def test_class_names_travel():
    x = outputs(600, seed=1)
    names = ("ant", "bee", "cat", "dog", "eel")
    named = gdscore.Outputs(logits=x.logits, labels=x.labels, class_names=names)
    est = gdscore.AccuracyEstimator().fit(named)
    assert est.class_names_ == names
    assert [c.name for c in est.estimate(named).per_class] == list(names)
    with pytest.raises(gdscore.GdscoreError, match="class names"):
        est.estimate(gdscore.Outputs(logits=x.logits, class_names=names[::-1]))
    assert [c.name for c in fitted().estimate(TARGET).per_class] == list("01234")


class InterruptError(Exception):
    pass


@pytest.mark.parametrize("error", [KeyboardInterrupt, InterruptError])
def test_an_interrupt_leaves_the_estimator_as_before(error):
    def sets():
        yield from shifted()[:5]
        raise error

    fresh = gdscore.AccuracyEstimator()
    with pytest.raises(error):
        fresh.fit(outputs(400), shifted_sets=sets(), progress=False)
    assert set(vars(fresh)) == {"level", "class_mix", "method", "seed"}
    est = fitted()
    before, expected = dict(vars(est)), numbers(est.estimate(TARGET))
    with pytest.raises(error):
        est.fit(outputs(400, seed=8), shifted_sets=sets(), progress=False)
    assert vars(est) == before
    np.testing.assert_array_equal(numbers(est.estimate(TARGET)), expected)


def test_an_interrupt_of_a_predictor_leaves_it_as_before():
    calls = []

    def predict(x):
        calls.append(len(x))
        if len(calls) > 7:
            raise KeyboardInterrupt
        return gdscore.Outputs(logits=x)

    est = gdscore.AccuracyEstimator()
    x, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 3
    with pytest.raises(KeyboardInterrupt):
        est.fit_predictor(predict, x, y, progress=False)
    assert set(vars(est)) == {"level", "class_mix", "method", "seed"}


def test_threads():
    """One thread fits again and again, others estimate: every answer is that of one of the fits."""
    references = [outputs(400, seed=1), outputs(500, 1.3, seed=2, features=True)]
    sets = shifted(100, families=2, severities=2)
    est = gdscore.AccuracyEstimator()
    valid = {tuple(numbers(est.fit(r, shifted_sets=sets, progress=False).estimate(TARGET))) for r in references}
    stop, faults, answers = threading.Event(), [], set()

    def estimating():
        try:
            while not stop.is_set():
                answers.add(tuple(numbers(est.estimate(TARGET))))
                est.predict_correct(TARGET)
        except Exception as error:
            faults.append(error)

    threads = [threading.Thread(target=estimating) for _ in range(3)]
    for thread in threads:
        thread.start()
    for turn in range(8):
        est.fit(references[turn % 2], shifted_sets=sets, progress=False)
    stop.set()
    for thread in threads:
        thread.join()
    assert not faults
    assert answers <= valid


def test_states_of_other_fits_are_refused():
    est, other = fitted(), fitted(count=600)
    state = est.state().update(TARGET)
    with pytest.raises(gdscore.GdscoreError, match="another one, or before the last fit"):
        other.estimate(state)
    with pytest.raises(gdscore.GdscoreError, match="another one"):
        other.state().merge(state)
    with pytest.raises(gdscore.GdscoreError, match="count twice"):
        state.merge(state)
    for odd in (None, 3, est, gdscore.create_score("atc")):
        with pytest.raises(gdscore.GdscoreError):
            state.merge(odd)
        with pytest.raises(gdscore.GdscoreError):
            est.estimate(odd)
    with pytest.raises(gdscore.GdscoreError, match="seen none"):
        est.estimate(est.state())
    est.fit(outputs(400, seed=6))
    with pytest.raises(gdscore.GdscoreError, match="before the last fit"):
        est.estimate(state)


def test_states_of_a_copy_are_taken():
    """A state comes back from another process with a copy of what was learned."""
    est = fitted(method="entropy")
    copied = copy.deepcopy(est)
    state = est.state().update(TARGET[:200]).merge(copied.state().update(TARGET[200:]))
    assert est.estimate(state).accuracy == pytest.approx(est.estimate(TARGET).accuracy, abs=1e-9)


@pytest.mark.parametrize("method", ["correctness", "entropy"])
def test_a_refused_part_does_not_count(method):
    est = fitted(method=method)
    state = est.state().update(TARGET)
    before = numbers(est.estimate(state))
    for bad in (outputs(50, features=False), gdscore.Outputs(logits=np.zeros((5, 3))), None, np.zeros((5, 5))):
        with pytest.raises(gdscore.GdscoreError):
            state.update(bad)
    np.testing.assert_array_equal(numbers(est.estimate(state)), before)


def test_estimates_show_themselves():
    e = fitted().estimate(TARGET)
    assert f"{e.accuracy:.1%}" in str(e)
    assert f"{e.accuracy:.1%}" in e._repr_html_()
    assert f"accuracy={e.accuracy:.4f}" in repr(e)
    assert all(warning.code in repr(e) for warning in e.warnings)
    assert len(repr(e)) < 200
    assert e.to_dict()["accuracy"] == e.accuracy
    assert f"{len(TARGET):,} rows)" in str(e)
    assert "1 row)" in str(fitted().estimate(TARGET[:1]))


def test_estimates_as_dicts_and_back():
    for e in (
        fitted().estimate(TARGET),
        fitted(method="entropy").estimate(TARGET[:20]),
        gdscore.Estimate(1, 1, 1, 0.9, 5, 1),
    ):
        facts = json.loads(json.dumps(e.to_dict()))
        assert gdscore.Estimate.from_dict(facts) == e
        assert gdscore.Estimate.from_dict(facts).to_dict() == e.to_dict()
    for wrong in ({}, {"accuracy": 1}, e.to_dict() | {"colour": 1}, e.to_dict() | {"warnings": [3]}, None):
        with pytest.raises(gdscore.GdscoreError, match="to_dict"):
            gdscore.Estimate.from_dict(wrong)


def test_estimates_draw_themselves(tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib.figure import Figure

    est = fitted()
    e = est.estimate(TARGET)
    ax = Figure().subplots()
    assert e.plot(ax) is ax
    band, point, reference = (line.get_xdata() for line in ax.lines)
    assert (list(band), list(point), reference[0]) == ([e.low, e.high], [e.accuracy], e.reference_accuracy)
    own = e.plot()
    assert own.figure is not ax.figure
    from matplotlib import pyplot as plt

    plt.close(own.figure)
    e.to_html(tmp_path / "alone.html", model_name="a & b")
    e.to_html(tmp_path / "with.html", est, min_accuracy=0.5)
    assert "a &amp; b" in (tmp_path / "alone.html").read_text()
    assert (tmp_path / "with.html").stat().st_size > (tmp_path / "alone.html").stat().st_size


@pytest.mark.parametrize(
    "ends", [(0.6, 0.5, 0.7), (0.1, 0.5, 0.4), (-0.1, 0.5, 0.7), (0.1, 0.5, 1.2), (0.1, np.nan, 1)]
)
def test_an_estimate_outside_its_interval_cannot_be_made(ends):
    low, accuracy, high = ends
    with pytest.raises(gdscore.GdscoreError, match="low ≤ accuracy ≤ high"):
        gdscore.Estimate(accuracy, low, high, 0.9, 100, 0.8)


def test_import_stays_light():
    code = "import sys, gdscore; gdscore.Outputs; print('sklearn' in sys.modules, 'scipy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


NAMED = gdscore.AccuracyEstimator().fit(
    gdscore.Outputs(logits=outputs(600, seed=1).logits, labels=outputs(600, seed=1).labels, class_names=list("abcde"))
)


@pytest.mark.parametrize(
    "mix",
    [
        {"c": 0.1, "a": 0.3, "b": 0.2, "e": 0.4, "d": 0},
        {"e": 40, "a": 30, "b": 20, "c": 10},
        pd.Series([0.4, 0.3, 0.2, 0.1], index=["e", "a", "b", "c"]),
        pd.Series(list("eeeeaaabbc")).value_counts(normalize=True),
        [3e307, 2e307, 1e307, 0, 4e307],
        pl.Series([0.3, 0.2, 0.1, 0.0, 0.4]),
    ],
)
def test_a_class_mix_by_name(tmp_path, mix):
    target = outputs(500, 1.5, seed=3, features=False)
    expected = NAMED.estimate(target, class_mix=[0.3, 0.2, 0.1, 0.0, 0.4])
    np.testing.assert_allclose(numbers(NAMED.estimate(target, class_mix=mix)), numbers(expected), atol=1e-12)
    est = gdscore.AccuracyEstimator(class_mix=mix).fit(
        gdscore.Outputs(logits=target.logits, labels=target.labels, class_names=list("abcde"))
    )
    est.save(tmp_path / "m.gdscore")
    again = gdscore.AccuracyEstimator.load(tmp_path / "m.gdscore")
    np.testing.assert_array_equal(numbers(again.estimate(target)), numbers(est.estimate(target)))


@pytest.mark.parametrize(
    ("mix", "message"),
    [
        ({"a": 0.5, "f": 0.5}, "got 'f': the classes are 'a', 'b', 'c', 'd', 'e'"),
        ({"a": 0.5, 0: 0.5}, "'a' is there twice"),
        ({"a": -1.0, "b": 2.0}, "the shares of 5 classes"),
        ({}, "the shares of 5 classes"),
        (pd.Series([0.5, 0.5], index=["a", "a"]), "every class once"),
        (pd.DataFrame({"a": [1.0]}), "the shares of 5 classes"),
    ],
)
def test_a_class_mix_of_other_classes_is_refused(mix, message):
    with pytest.raises(gdscore.GdscoreError, match=message):
        NAMED.estimate(outputs(50, features=False), class_mix=mix)


@pytest.mark.parametrize("source", [None, 3, [], object()])
def test_what_is_no_file_is_refused(source):
    with pytest.raises(gdscore.GdscoreError, match="Expected"):
        gdscore.AccuracyEstimator.load(source)


@pytest.mark.parametrize("classes", [2, 5])
def test_the_brier_score_follows_from_the_rows(classes):
    """Each row is right with its probability, moved to the accuracy: the sums over rows, and the truth if that holds."""
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(4000, classes))
    p = softmax(logits, axis=1)
    labels = (rng.random((4000, 1)) > np.cumsum(p, axis=1)).sum(axis=1)  # calibrated: the estimate is the truth
    out = gdscore.Outputs(logits=logits, labels=labels)
    est = gdscore.AccuracyEstimator().fit(out[:2000])
    target = out[2000:]
    e = est.estimate(target.only({"logits"}))
    rows = est.fitted_.correction.profile.rows(target)
    right = expit(rows.calibrated)
    own = p[2000:]
    others = np.where(np.arange(classes) == rows.predicted[:, None], 0, own)
    chance = (1 - right)[:, None] * others / others.sum(axis=1, keepdims=True)
    chance[np.arange(2000), rows.predicted] = right
    brier = (chance * (np.square(own).sum(axis=1, keepdims=True) + 1 - 2 * own)).sum(axis=1).mean()
    scale = 0.5 if classes == 2 else 1.0
    assert e.brier.value == pytest.approx(scale * brier, abs=2e-3)
    truth = brier_score_loss(labels[2000:], own[:, 1] if classes == 2 else own, labels=list(range(classes)))
    assert e.brier.low < truth < e.brier.high
    assert e.brier.value == pytest.approx(truth, abs=0.03)
    assert gdscore.Estimate.from_dict(e.to_dict()) == e


def test_a_method_that_was_not_fitted_is_refused():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 600)
    out = gdscore.Outputs(logits=3 * np.eye(3)[y] + rng.normal(size=(600, 3)), labels=y)
    est = gdscore.AccuracyEstimator().fit(out).set_params(method="confscore")
    for call in (lambda: est.estimate(out), lambda: est.predict_correct(out), est.to_bytes):
        with pytest.raises(gdscore.GdscoreError, match="'correctness', but it is 'confscore' now: fit again"):
            call()


@pytest.mark.parametrize("method", ["confscore", "atc", "gdscore"])
def test_shares_of_classes_sum_to_1_with_a_score(method):
    rng = np.random.default_rng(0)

    def outputs(rows, noise):
        y = rng.integers(0, 2, rows)
        x = np.eye(2)[y] + noise * rng.normal(size=(rows, 2))
        return gdscore.Outputs(logits=x, features=x, labels=y)

    sets = [gdscore.ShiftedSet(outputs(300, noise), f"{noise}") for noise in (1.5, 2.0, 3.0)]
    est = gdscore.AccuracyEstimator(method=method).fit(outputs(600, 1.0), shifted_sets=sets)
    x = np.tile([2.0, 0.0], (200, 1)) + 0.1 * rng.normal(size=(200, 2))
    e = est.estimate(gdscore.Outputs(logits=x, features=x))
    assert sum(c.share for c in e.per_class) == pytest.approx(1)


def test_inputs_of_another_width_are_refused():
    rng = np.random.default_rng(0)

    def outputs(width):
        y = rng.integers(0, 3, 300)
        return gdscore.Outputs(logits=3 * np.eye(3)[y], labels=y, inputs=rng.normal(size=(300, width)))

    for width in (1, 3):
        with pytest.raises(gdscore.GdscoreError, match=f"with 4 `inputs` as the reference has, but 'a' has {width}"):
            gdscore.AccuracyEstimator().fit(outputs(4), shifted_sets=[gdscore.ShiftedSet(outputs(width), "a")])


def test_what_is_no_estimate_and_no_outputs_is_explained():
    e = fitted().estimate(TARGET)
    with pytest.raises(gdscore.GdscoreError, match="what `Estimate.to_dict` gives"):
        gdscore.Estimate.from_dict(json.dumps(e.to_dict()))
    with pytest.raises(gdscore.GdscoreError, match=r"Expected `gdscore.Outputs`, but got"):
        fitted().predict_correct(gdscore.io.Batch(TARGET, None, None))
    for rows in (["a", "b"], [0, None]):
        with pytest.raises(gdscore.GdscoreError, match="`rows` of a shifted set to be rows of the reference"):
            gdscore.AccuracyEstimator().fit(outputs(300), shifted_sets=[gdscore.ShiftedSet(outputs(2), "a", rows=rows)])
