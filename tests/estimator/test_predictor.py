"""`fit_predictor`: classifiers and inputs of any kind."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse
from sklearn.ensemble import VotingClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline

import gdscore
from gdscore.report import write_report

from .data import numbers, outputs, rows

X, _, Y = rows(700, 1.2, seed=1)
CLASSIFIER = LogisticRegression(max_iter=300).fit(*rows(400, 1.2, seed=2)[::2])


def noise(x):
    return x + np.random.default_rng(3).normal(size=np.shape(x))


def offset(x):
    return x + 1.0


def fit(predict=CLASSIFIER, x=X, y=Y, used=(noise, offset), **options):
    return gdscore.AccuracyEstimator().fit_predictor(predict, x, y, shifts=used, progress=False, **options)


def target(x):
    return gdscore.from_sklearn(CLASSIFIER, x)


def test_equals_fit_on_the_same_sets():
    est = fit()
    sets = [
        gdscore.ShiftedSet(gdscore.from_sklearn(CLASSIFIER, shift(X), Y), name, rows=np.arange(700))
        for shift, name in ((noise, "noise"), (offset, "offset"))
    ]
    by_hand = gdscore.AccuracyEstimator().fit(gdscore.from_sklearn(CLASSIFIER, X, Y), shifted_sets=sets, progress=False)
    out = target(rows(500, 1.6, seed=5)[0])
    np.testing.assert_allclose(numbers(fit(batch_size=700).estimate(out)), numbers(by_hand.estimate(out)), atol=1e-9)
    assert est.shifted_sets_.families == ["noise", "offset"]
    assert est.reference_accuracy_ == pytest.approx(CLASSIFIER.score(X, Y))


def test_a_predictor_that_reuses_its_memory():
    """As runtimes with fixed outputs do: all batches had the numbers of the last."""
    memory = np.empty((100, 5), dtype=np.float32)

    def reusing(x):
        memory[: len(x)] = CLASSIFIER.decision_function(x)
        return gdscore.Outputs(logits=memory[: len(x)])

    def plain(x):
        return gdscore.Outputs(logits=CLASSIFIER.decision_function(x).astype(np.float32))

    out = gdscore.Outputs(logits=CLASSIFIER.decision_function(rows(300, 1.6, seed=5)[0]))
    for size in (100, 64):
        expected, est = fit(plain, batch_size=size), fit(reusing, batch_size=size)
        assert est.reference_accuracy_ == expected.reference_accuracy_
        np.testing.assert_array_equal(numbers(est.estimate(out)), numbers(expected.estimate(out)))


def test_a_reference_whose_parts_share_their_memory():
    out = outputs(600, seed=1)

    def parts():
        buffers = {name: np.empty_like(array[:100]) for name, array in out.arrays.items()}
        for start in range(0, 600, 100):
            for name, buffer in buffers.items():
                buffer[:] = out.arrays[name][start : start + 100]
            yield gdscore.Outputs(**buffers)

    def sets():
        for part, family in zip(parts(), "aabbcc", strict=True):
            yield gdscore.ShiftedSet(part, family)

    given = [
        gdscore.ShiftedSet(out[i : i + 100], family) for i, family in zip(range(0, 600, 100), "aabbcc", strict=True)
    ]
    expected = gdscore.AccuracyEstimator().fit(out, shifted_sets=given)
    est = gdscore.AccuracyEstimator().fit(parts(), shifted_sets=sets())
    np.testing.assert_array_equal(numbers(est.estimate(parts())), numbers(expected.estimate(out)))


@pytest.mark.parametrize("make", [np.array, lambda x: pytest.importorskip("pandas").DataFrame(x)])
def test_a_shift_that_changes_its_inputs_changes_no_other_set(make):
    def in_place(inputs):
        inputs += 1.0
        return inputs

    def with_start(inputs, *, start=0):
        return in_place(inputs)

    inputs = make(X)
    found = fit(GaussianNB().fit(X, Y), inputs, used=[in_place, with_start, offset])
    assert len(set(found.shifted_sets_.accuracy.tolist())) == 1
    np.testing.assert_array_equal(inputs, X)


def test_a_predictor_that_scales_its_inputs_in_place():
    def predict(x, in_place):
        if in_place:
            x /= 2.0
        return CLASSIFIER.predict_proba(x if in_place else x / 2.0)

    inputs = X.copy()
    found, expected = (fit(lambda x, k=k: predict(x, k), inputs) for k in (True, False))
    np.testing.assert_array_equal(inputs, X)
    assert found.to_bytes() == expected.to_bytes()


def test_predict_may_return_outputs_probabilities_or_be_a_classifier():
    def to_outputs(x):
        return gdscore.from_sklearn(CLASSIFIER, x)

    plain = [fit(p, used=[offset]).reference_accuracy_ for p in (CLASSIFIER, to_outputs, CLASSIFIER.predict_proba)]
    assert plain == [pytest.approx(CLASSIFIER.score(X, Y))] * 3


def test_batches_change_nothing():
    out = target(rows(300, 1.6, seed=5)[0])
    first, second = (fit(used=[offset], batch_size=size).estimate(out) for size in (64, 1000))
    np.testing.assert_allclose(numbers(first), numbers(second), atol=1e-6)


def test_default_shifts_of_tables():
    est = gdscore.AccuracyEstimator().fit_predictor(CLASSIFIER, X[:300], Y[:300], progress=False)
    assert est.n_families_ >= 5
    assert np.isfinite(est.left_out_error_)
    x, _, y = rows(2000, 1.8, seed=8)
    e = est.estimate(target(x))
    assert e.low <= CLASSIFIER.score(x, y) <= e.high


def test_class_labels_of_the_classifier():
    names = np.array(["ant", "bee", "cat", "dog", "eel"])
    named = LogisticRegression(max_iter=300).fit(X, names[Y])
    est = fit(named, y=names[Y])
    assert est.reference_accuracy_ == pytest.approx(named.score(X, names[Y]))
    assert est.class_names_ == tuple(names)
    e = est.estimate(gdscore.from_sklearn(named, X))
    assert [found.name for found in e.per_class] == names.tolist()
    with pytest.raises(gdscore.GdscoreError):
        fit(named, y=np.where(Y == 0, "fox", names[Y]))


def test_data_frames():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=list("abcdef"))
    clf = LogisticRegression(max_iter=300).fit(frame, Y)
    est = gdscore.AccuracyEstimator().fit_predictor(clf, frame, pd.Series(Y), progress=False)
    assert est.reference_accuracy_ == pytest.approx(clf.score(frame, Y))
    assert est.n_families_ >= 5


def test_sparse_matrices():
    sparse = scipy.sparse.csr_matrix(np.maximum(X, 0))
    clf = LogisticRegression(max_iter=300).fit(sparse, Y)
    est = gdscore.AccuracyEstimator().fit_predictor(clf, sparse, Y, progress=False)
    assert est.reference_accuracy_ == pytest.approx(clf.score(sparse, Y))


@pytest.mark.parametrize("make", [scipy.sparse.csr_matrix, scipy.sparse.csr_array])
def test_every_sparse_format(make):
    first = make(np.maximum(X[:200], 0))
    clf = LogisticRegression(max_iter=300).fit(first, Y[:200])
    out = gdscore.from_sklearn(clf, make(np.maximum(X[200:], 0)))

    def estimate(inputs):
        return gdscore.AccuracyEstimator().fit_predictor(clf, inputs, Y[:200], progress=False).estimate(out)

    expected = numbers(estimate(first))
    for kind in ("csc", "coo", "lil", "dok", "bsr"):
        np.testing.assert_allclose(numbers(estimate(first.asformat(kind))), expected, atol=1e-12)


def test_arrow_tables():
    pa = pytest.importorskip("pyarrow")
    table = pa.table({str(j): column for j, column in enumerate(X.T)})

    def predict(part):
        return CLASSIFIER.predict_proba(np.column_stack([column.to_numpy() for column in part.columns]))

    est = gdscore.AccuracyEstimator().fit_predictor(predict, table, pa.chunked_array([Y]), progress=False)
    by_hand = gdscore.AccuracyEstimator().fit_predictor(CLASSIFIER.predict_proba, X, Y, progress=False)
    assert est.shifted_sets_.families == by_hand.shifted_sets_.families
    np.testing.assert_allclose(est.shifted_sets_.accuracy, by_hand.shifted_sets_.accuracy)


def test_a_classifier_that_decides_by_a_rule_of_its_own_is_asked_for_its_decisions():
    class Contrary(GaussianNB):
        def predict(self, X):
            return (super().predict(X) + 1) % 5

    est = fit(Contrary().fit(X, Y), batch_size=100)
    assert est.decision_ == "given"
    assert est.reference_accuracy_ == pytest.approx((Contrary().fit(X, Y).predict(X) == Y).mean())


def test_a_model_that_refuses_shifted_inputs():
    positive = np.abs(X)

    def predict(x):
        if (x < 0).any():
            raise ValueError("numbers below 0")
        return CLASSIFIER.predict_proba(x)

    with pytest.raises(gdscore.GdscoreError, match=r"shift 'noise' of severity 1 it failed: ValueError: .* `shifts`"):
        gdscore.AccuracyEstimator().fit_predictor(predict, positive, Y, progress=False)
    with pytest.raises(gdscore.GdscoreError, match=r"shift 'offset' it failed: .* as many rows as it gets"):
        fit(predict, x=positive, used=[lambda x: x, offset_below])


def offset_below(x):
    return x - 1e3


offset_below.family = "offset"  # type: ignore[attr-defined]


@pytest.mark.parametrize("clf", [RidgeClassifier(), VotingClassifier([("a", GaussianNB())])])
def test_a_classifier_without_probabilities(clf):
    with pytest.raises(gdscore.GdscoreError, match="`predict_proba`.* wrap it in sklearn.calibration"):
        fit(clf.fit(X, Y))


def test_three_rows_with_times():
    est = gdscore.AccuracyEstimator().fit_predictor(CLASSIFIER, X[:3], Y[:3], time=[3, 1, 2], progress=False)
    assert "time" in est.shifted_sets_.families
    assert est.shifted_sets_.rows.min() >= 1


def test_time_is_not_ignored():
    with pytest.raises(gdscore.GdscoreError, match="`time` without `shifts`"):
        fit(time=np.arange(700))
    with pytest.raises(gdscore.GdscoreError, match="`time` with a table only"):
        gdscore.shifts.default_shifts(["a text"], time=[1])


def test_a_data_frame_for_a_model_of_texts():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"text": ["good film", "bad film"] * 50})
    clf = make_pipeline(CountVectorizer(), LogisticRegression()).fit(frame["text"], [0, 1] * 50)
    with pytest.raises(gdscore.GdscoreError, match="each of 100 inputs, but got 1: for a model of texts"):
        gdscore.AccuracyEstimator().fit_predictor(clf, frame, [0, 1] * 50)


def test_texts():
    rng = np.random.default_rng(0)
    words = np.array([["good", "fine", "great"], ["bad", "poor", "awful"]])
    y = rng.integers(0, 2, 200)
    texts = [" ".join(rng.choice([*words[k], "book", "film", words[1 - k][0]], size=6)) for k in y]
    clf = make_pipeline(CountVectorizer(), LogisticRegression()).fit(texts, y)
    est = gdscore.AccuracyEstimator().fit_predictor(clf, texts, y, progress=False)
    assert est.reference_accuracy_ == pytest.approx(clf.score(texts, y))
    assert est.n_families_ >= 4


def test_lists_of_numbers():
    found = fit(x=X.tolist(), used=[offset_of_lists])
    assert found.reference_accuracy_ == pytest.approx(CLASSIFIER.score(X, Y))


def offset_of_lists(x):
    return (np.asarray(x) + 1).tolist()


def test_functions_without_a_name_are_numbered():
    assert fit(used=[lambda x: x + 1, lambda x: x * 2]).shifted_sets_.families == ["shift 1", "shift 2"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"predict": 3}, "scikit-learn classifier"),
        ({"predict": None}, "scikit-learn classifier"),
        ({"predict": lambda x: [1, 2]}, "list"),
        ({"predict": lambda x: None}, "NoneType"),
        ({"predict": lambda x: np.zeros(3)}, "row for each of 512 inputs, but got 3"),
        ({"predict": CLASSIFIER.predict}, "predict_proba"),
        ({"y": Y[:-1]}, "one label for each of 700"),
        ({"y": np.zeros((700, 2))}, "one label"),
        ({"y": None}, "one label"),
        ({"y": Y[:, None]}, r"np.ravel\(labels\)"),
        ({"y": Y > 1}, "give 0 and 1"),
        ({"y": Y + 0.5}, None),
        ({"y": Y + 100}, None),
        ({"used": []}, "empty"),
        ({"used": [3]}, "callables"),
        ({"used": 3}, "shifts"),
        ({"used": [lambda x: x[:5]]}, None),
        ({"used": [lambda x: None]}, None),
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 1.5}, "batch_size"),
    ],
)
def test_bad_arguments(options, message):
    predict = options.get("predict", gdscore_outputs)
    with pytest.raises(gdscore.GdscoreError, match=message):
        fit(**{**options, "predict": predict})


def gdscore_outputs(x):
    if x is None:
        raise gdscore.GdscoreError("nothing to predict")
    return gdscore.Outputs(probabilities=CLASSIFIER.predict_proba(x))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (X.tolist(), r"list of list: give np.array\(inputs\)"),
        (X[:, 0], r"inputs.reshape\(-1, 1\)"),
        ([None, *["text"] * 699], "row 0 is NoneType"),
        (np.ma.masked_array(X, mask=X > 1), r"inputs.filled\(np.nan\)"),
        ({"text": ["a"]}, "dict: for other inputs give `shifts`"),
        ([b"text"] * 700, "list of bytes"),
        ("text", r"give \[text"),
    ],
)
def test_inputs_without_default_shifts(inputs, message):
    with pytest.raises(gdscore.GdscoreError, match=message):
        gdscore.AccuracyEstimator().fit_predictor(CLASSIFIER, inputs, Y, progress=False)


@pytest.mark.parametrize("inputs", [None, 3, "text", [], np.zeros((0, 6)), np.float64(3)])
def test_bad_inputs(inputs):
    with pytest.raises(gdscore.GdscoreError):
        gdscore.AccuracyEstimator().fit_predictor(CLASSIFIER, inputs, Y, progress=False)


def test_an_error_of_the_predictor_comes_through():
    def broken(x):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fit(broken)


def test_columns_of_inputs_that_moved_stand_beside_the_estimate(tmp_path):
    """In one pass, in parts, as bytes and after saving: the same; no number depends on them."""
    rng = np.random.default_rng(0)

    def made(rows, moved):
        x = rng.normal(size=(rows, 3)) + np.array([moved, 0, 0])
        return x, (x[:, 0] + x[:, 1] + rng.normal(size=rows) > 0).astype(int)

    clf = LogisticRegression().fit(*made(600, 0.0))
    est = gdscore.AccuracyEstimator().fit_predictor(clf, *made(800, 0.0), progress=False)
    x, _ = made(1000, 0.7)
    out = gdscore.from_sklearn(clf, x)
    plain, e = est.estimate(out), est.estimate(out, inputs=x)
    assert plain.drift == []
    assert [d.name for d in e.drift] == ["0"]
    assert dataclasses.replace(e, drift=[]) == plain
    assert gdscore.Estimate.from_dict(e.to_dict()) == e
    parts = [est.state().update(out[part], inputs=x[part]).to_bytes() for part in (slice(0, 300), slice(300, 1000))]
    assert est.estimate(est.state(parts[0]).merge(est.state(parts[1]))) == e
    est.save(tmp_path / "m.gdscore")
    assert gdscore.AccuracyEstimator.load(tmp_path / "m.gdscore").estimate(out, inputs=x) == e
    side = np.arange(1000) % 2
    halves = est.estimate(out, by=side, inputs=x)
    assert halves[1] == est.estimate(out[side == 1], inputs=x[side == 1])
    write_report(tmp_path / "r.html", est, e)
    assert "Inputs that moved most" in (tmp_path / "r.html").read_text()
    with pytest.raises(gdscore.GdscoreError, match="same 1000 rows, but got 5"):
        est.estimate(out, inputs=x[:5])
    with pytest.raises(gdscore.GdscoreError, match=r"est.state\(\).update\(part, inputs=…\)"):
        est.estimate([out], inputs=x)
    with pytest.raises(gdscore.GdscoreError, match="fit_predictor has fitted on a table"):
        gdscore.AccuracyEstimator().fit(gdscore.from_sklearn(clf, *made(600, 0.0))).estimate(out, inputs=x)


@pytest.mark.parametrize("form", ["object", "dict", "tensors"])
def test_functions_that_return_hugging_face_outputs(form):
    torch = pytest.importorskip("torch")

    def predict(x):
        z = CLASSIFIER.decision_function(x)
        if form == "tensors":
            return SimpleNamespace(logits=torch.from_numpy(z).requires_grad_(), hidden_states=None)
        return {"logits": z, "loss": None} if form == "dict" else SimpleNamespace(logits=z)

    expected = fit(lambda x: gdscore.Outputs(logits=CLASSIFIER.decision_function(x)))
    out = gdscore.Outputs(logits=CLASSIFIER.decision_function(rows(300, 1.6, seed=5)[0]))
    np.testing.assert_allclose(numbers(fit(predict).estimate(out)), numbers(expected.estimate(out)), atol=1e-6)


def test_labels_by_name():
    names = ["ant", "bee", "cat", "dog", "eel"]

    def predict(x):
        return CLASSIFIER.predict_proba(x)

    by_name = np.array(names)[Y]
    expected = fit(predict)
    for given in (by_name, by_name.astype(object), by_name.tolist()):
        est = fit(predict, y=given, class_names=iter(names))
        assert est.class_names_ == tuple(names)
        assert est.reference_accuracy_ == expected.reference_accuracy_
    assert fit(predict, class_names=names).class_names_ == tuple(names)
    assert [c.name for c in est.estimate(gdscore.Outputs(probabilities=predict(X))).per_class] == names
    with pytest.raises(gdscore.GdscoreError, match="got '(ant|bee|cat|dog|eel)': pass class_names="):
        fit(predict, y=by_name)
    with pytest.raises(gdscore.GdscoreError, match="got 'eel' in row"):
        fit(predict, y=by_name, class_names=[*names[:4], "fox"])
    with pytest.raises(gdscore.GdscoreError, match="a name for each class"):
        fit(predict, y=by_name, class_names=[*names, "fox"])
    with pytest.raises(gdscore.GdscoreError, match="names its classes itself"):
        fit(class_names=names)
