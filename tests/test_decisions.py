"""Decisions that are not the arg-max travel with outputs: through files, frames, scores, estimators and machines.

scikit-learn is the oracle: what `FixedThresholdClassifier` and `TunedThresholdClassifierCV` predict for an imbalanced
table that drifts.
"""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as parquet
import pytest
from scipy.optimize import linprog
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.model_selection import FixedThresholdClassifier

import gdscore
from gdscore import GdscoreError, Outputs, from_frame, from_sklearn
from gdscore.distributed.estimating import Part, arrow_batches, merged
from gdscore.estimator import TargetState
from gdscore.io import Columns, read_batches, read_outputs, write_outputs
from tests.data import LIBRARIES, to_library


def table(rows: int, seed: int, drift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of which about 13 % are of class 1, more where they drift."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 4))
    x[:, 0] += drift
    odds = 1.4 * x[:, 0] - x[:, 1] + 0.6 * np.square(x[:, 1]) - 3.4
    return x, (rng.random(rows) < 1 / (1 + np.exp(-odds))).astype(int)


MODEL = LogisticRegression().fit(*table(1500, 0))
X, Y = table(1500, 1)
DRIFTED, TRUTH = table(1500, 2, drift=0.8)


def decided(threshold: float, rows: np.ndarray | None = None, labels: np.ndarray | None = None) -> Outputs:
    clf = FixedThresholdClassifier(MODEL, threshold=threshold).fit(*table(1500, 0))
    return from_sklearn(clf, X, Y) if rows is None else from_sklearn(clf, rows, labels)


# -- what is decided -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", [0.1, 0.3, 0.7])
def test_accuracy_and_confidence_are_those_of_the_decided_class(threshold):
    out = decided(threshold)
    p = MODEL.predict_proba(X)
    expected = (p[:, 1] >= threshold).astype(int)
    np.testing.assert_array_equal(out.predictions, expected)
    assert out.accuracy == accuracy_score(Y, expected)
    np.testing.assert_allclose(out.confidence, p[np.arange(len(p)), expected])
    np.testing.assert_allclose(out.one_minus_confidence, 1 - out.confidence, atol=1e-12)
    assert out.confidence.min() < 0.5
    assert (out.decision, out.threshold) == (f"threshold {threshold}", threshold)
    bins = gdscore.reliability(out, bins=10)
    assert bins.counts[:3].sum() == (out.confidence <= 0.3).sum()
    assert np.nansum(bins.accuracy * bins.counts) == pytest.approx(out.correct.sum())


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("precision", ["float32", "float64", "float16"])
def test_a_threshold_means_the_same_everywhere(library, precision):
    if library == "jax" and precision == "float64":
        pytest.skip("JAX has no float64 by default")
    p = np.linspace(0.05, 0.95, 19).round(2)  # of which the fifth is the threshold itself
    both = np.stack([1 - p, p], axis=1).astype(precision)
    expected = np.arange(19) >= 4
    forms = [{"probabilities": to_library(both, library)}, {"logits": to_library(np.log(both) + 3, library)}]
    forms.append({"probabilities": to_library(p.astype(precision), library)})
    for form in forms:
        out = Outputs(**form, threshold=0.25)
        np.testing.assert_array_equal(np.asarray(out.predictions), expected)
        np.testing.assert_allclose(np.asarray(out.confidence), np.where(expected, p, 1 - p), rtol=1e-2)
        assert out.decision == "threshold 0.25"


def test_no_digit_is_lost_where_the_decided_class_is_nearly_certain():
    z = np.array([[0.0, 60.0], [0.0, 60.0], [60.0, 0.0]])
    out = Outputs(logits=z, predictions=np.array([1, 0, 0]))
    np.testing.assert_allclose(out.one_minus_confidence, [np.exp(-60), 1.0, np.exp(-60)], rtol=1e-12)
    np.testing.assert_allclose(out.confidence, [1.0, np.exp(-60), 1.0], rtol=1e-12)


def test_a_temperature_changes_probabilities_and_not_the_decision():
    out = decided(0.1)
    for temperature in (0.2, 5.0):
        other = out.with_temperature(temperature)
        np.testing.assert_array_equal(other.predictions, out.predictions)
        assert other.decision == out.decision
        p = np.asarray(other.probabilities)
        np.testing.assert_allclose(other.confidence, p[np.arange(len(p)), out.predictions])


def test_rows_keep_their_decision():
    out = decided(0.1)
    for part in (out[5:20], out[out.predictions == 1], out[np.array([3, 2])], out.to_numpy(), out.working_copy()):
        assert part.decision == "threshold 0.1"
    np.testing.assert_array_equal(out[::-3].predictions, out.predictions[::-3])
    joined = Outputs.concatenate([out[:100], out[100:]])
    np.testing.assert_array_equal(joined.predictions, out.predictions)
    assert joined.decision == out.decision
    assert out.with_arrays(ids=np.arange(len(out))).decision == "threshold 0.1"
    assert out.with_arrays(predictions=out.predictions).decision == "given"
    assert out.with_class_names(["no", "yes"]).decision == "threshold 0.1"
    assert out.only({"logits"}).decision == "threshold 0.1"
    assert out.only({"features"}).decision == "argmax"
    assert from_sklearn(MODEL, X).decision == "argmax"
    assert from_sklearn(MODEL, X).threshold is None


def test_given_predictions_stay_given_where_they_are_the_argmax():
    plain = from_sklearn(MODEL, X, Y)
    given = plain.with_arrays(predictions=plain.predictions)
    assert given.decision == "given"
    np.testing.assert_array_equal(given.confidence, plain.confidence)
    np.testing.assert_array_equal(given.one_minus_confidence, plain.one_minus_confidence)
    for name in ("confscore", "doc", "atc", "cot", "cott", "gdscore", "entropy"):
        expected = gdscore.score(name, plain, reference=plain)
        assert gdscore.score(name, given, reference=given) == pytest.approx(expected, abs=1e-12), name


def test_parts_of_other_decisions_are_refused():
    plain, low, high = from_sklearn(MODEL, X, Y), decided(0.1), decided(0.3)
    given = plain.with_arrays(predictions=plain.predictions)
    for first, second in ((plain, low), (low, high), (given, plain), (given, low)):
        with pytest.raises(GdscoreError, match=r"decided .* --threshold"):
            Outputs.concatenate([first, second])
        with pytest.raises(GdscoreError, match="decided"):
            gdscore.score("confscore", iter([first, second]))
        with pytest.raises(GdscoreError, match="decided"):
            gdscore.score("atc", second, reference=first)
        with pytest.raises(GdscoreError, match="decided"):
            gdscore.direct_estimate("confscore", second, reference=first)
        with pytest.raises(GdscoreError, match="decided"):
            gdscore.AccuracyEstimator().fit(iter([first, second]))
        with pytest.raises(GdscoreError, match="decided"):
            gdscore.AccuracyEstimator().fit(first, shifted_sets=[gdscore.ShiftedSet(second, "fog")])
        states = [gdscore.create_score("confscore").update(part) for part in (first, second)]
        with pytest.raises(GdscoreError, match="decided"):
            states[0].merge(states[1])
        restored = gdscore.restore_score(states[1].state_dict())
        with pytest.raises(GdscoreError, match="decided"):
            restored.update(first)


# -- scores --------------------------------------------------------------------------------------------------------


def test_scores_of_confidence_read_the_decided_class():
    val, new = decided(0.1), decided(0.1, DRIFTED)
    p, q = MODEL.predict_proba(X), MODEL.predict_proba(DRIFTED)
    here, there = (np.where(s[:, 1] >= 0.1, s[:, 1], s[:, 0]) for s in (p, q))
    right = (p[:, 1] >= 0.1) == Y
    assert gdscore.score("confscore", new) == pytest.approx(there.mean())
    assert gdscore.score("doc", new, reference=val) == pytest.approx(right.mean() - here.mean() + there.mean())
    # Of two classes ATC by entropy and by confidence order rows in the same way: by the decided class.
    threshold = np.sort(here)[(~right).sum()]
    for score in ("entropy", "confidence"):
        found = gdscore.score("atc", new, reference=val, score=score)
        assert found == pytest.approx((there >= threshold).mean(), abs=0.005)
        assert gdscore.score("atc", val, reference=val, score=score) == pytest.approx(right.mean())
    assert gdscore.score("cott", val, reference=val) == pytest.approx(right.mean(), abs=2e-3)


def test_transport_costs_at_least_what_the_decided_class_leaves():
    """COT against a linear programme."""
    rng = np.random.default_rng(0)
    p, labels = rng.dirichlet([1, 1, 1], size=30), rng.integers(0, 3, 40)
    predictions = rng.integers(0, 3, 30)
    val = Outputs(probabilities=rng.dirichlet([1, 1, 1], size=40), labels=labels, predictions=labels)
    rows = np.kron(np.eye(30), np.ones(3))
    classes = np.kron(np.ones(30), np.eye(3))
    right_side = np.concatenate([np.full(30, 1 / 30), np.bincount(labels, minlength=3) / 40])
    found = linprog((1 - p).ravel(), A_eq=np.concatenate([rows, classes]), b_eq=right_side)
    plan = found.x.reshape(30, 3)
    own = p[np.arange(30), predictions]
    expected = (plan * np.maximum(1 - p, 1 - own[:, None])).sum()
    out = Outputs(probabilities=p, predictions=predictions)
    assert gdscore.score("cot", out, reference=val) == pytest.approx(expected, abs=1e-6)
    assert gdscore.functional.cot(
        probabilities=p,
        predictions=predictions,
        reference_probabilities=val.probabilities,
        reference_predictions=labels,
        reference_labels=labels,
    ) == pytest.approx(expected, abs=1e-6)


def test_equal_rows_that_were_decided_otherwise_are_two_rows():
    p = np.tile([[0.6, 0.4]], (40, 1))
    out = Outputs(probabilities=p, predictions=np.arange(40) % 2)
    val = Outputs(probabilities=p, labels=np.zeros(40, dtype=int), predictions=np.arange(40) % 2)
    halves = [gdscore.create_score("cot").fit(val).update(part) for part in (out[::2], out[1::2])]
    assert gdscore.score("cot", out, reference=val) == pytest.approx(0.5)  # 0.4 of one half, 0.6 of the other
    assert halves[0].merge(halves[1]).compute() == pytest.approx(0.5)
    assert gdscore.restore_score(halves[0].state_dict()).compute() == pytest.approx(0.5)


def test_gdscore_takes_the_decided_class_as_pseudo_label():
    out = decided(0.1)
    pseudo = gdscore.score("gdscore", out, label_rule="pseudo")
    oracle = gdscore.score("gdscore", out.with_arrays(labels=out.predictions), label_rule="true")
    assert pseudo == pytest.approx(oracle)
    assert pseudo != pytest.approx(gdscore.score("gdscore", from_sklearn(MODEL, X), label_rule="pseudo"))


def test_scores_of_probabilities_and_features_do_not_read_the_decision():
    plain, low = from_sklearn(MODEL, X, Y), decided(0.1)
    for name in ("entropy", "nuclear", "mano", "gradnorm", "frechet"):
        assert gdscore.score(name, low, reference=low) == gdscore.score(name, plain, reference=plain)


def test_scores_of_the_argmax_refuse_other_decisions():
    out = decided(0.1)
    peers = out.with_arrays(peer_logits=np.asarray(out.logits) + 1.0)
    for name in ("dispersion", "agreescore"):
        with pytest.raises(GdscoreError, match=rf"`{name}` is about the classes of largest .* \(threshold 0.1\)"):
            gdscore.score(name, peers)
        assert "predictions or threshold" in gdscore.score_all(peers).skipped[name]
    assert gdscore.score("agreescore", peers, soft=True) == pytest.approx(0)
    with pytest.raises(GdscoreError, match="decided otherwise"):
        gdscore.direct_estimate("agreescore", peers, reference=peers)


@pytest.mark.parametrize("name", ["confscore", "gdscore", "cott", "atc"])
def test_states_keep_the_decision(name):
    val, new = decided(0.1), decided(0.1, DRIFTED)
    whole = gdscore.score(name, new, reference=val)
    score = gdscore.create_score(name)
    score = score.fit(val) if score.reference_inputs else score
    restored = gdscore.restore_score(score.update(new[:700]).state_dict())
    assert restored.update(new[700:]).compute() == pytest.approx(whole)
    for decision in ("argmax", "given", "nonsense", "threshold 2", "threshold x", ""):
        state = score.update(new).state_dict()
        layout = json.dumps(json.loads(state["layout"]) | {"decision": decision})
        with pytest.raises(GdscoreError):
            gdscore.restore_score(state | {"layout": layout}).update(new)


def given_predictions() -> Outputs:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 40)
    names, predictions = ["ant", "bee", "cow"], rng.integers(0, 3, 40)
    return Outputs(probabilities=p, predictions=predictions, labels=rng.integers(0, 3, 40), class_names=names)


@pytest.mark.parametrize("suffix", ["npz", "parquet"])
@pytest.mark.parametrize("make", [given_predictions, lambda: decided(0.1), lambda: decided(0.1).with_temperature(3.0)])
def test_files_keep_the_decision(tmp_path, suffix, make):
    out = make()
    path = tmp_path / f"rows.{suffix}"
    write_outputs(path, iter([out[:15], out[15:]]))
    parts = list(read_outputs(path, batch_rows=7))
    assert {part.decision for part in parts} == {out.decision}
    found = Outputs.concatenate(parts)
    np.testing.assert_array_equal(found.predictions, out.predictions)
    np.testing.assert_allclose(found.confidence, out.confidence)
    assert found.accuracy == out.accuracy
    plain = Outputs(**{name: a for name, a in out.arrays.items() if name != "predictions"}, check_logits=False)
    with pytest.raises(GdscoreError, match="decided"):
        write_outputs(path, iter([out, plain.with_class_names(out.class_names)]))
    assert next(read_outputs(path)).decision == out.decision  # what was there stays


def test_columns_of_predictions_in_all_kinds_of_tables(tmp_path):
    out = given_predictions()
    frame = gdscore.to_frame(out)
    assert frame["prediction"].tolist() == [out.class_names[k] for k in out.predictions]
    arrow = pa.Table.from_pandas(frame, preserve_index=False)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "rows.parquet")
    feather.write_feather(arrow, tmp_path / "rows.feather")
    columns = Columns(probabilities="prob_*", prediction="prediction", label="label")
    found = [next(read_outputs(tmp_path / f"rows.{kind}", columns=columns)) for kind in ("csv", "parquet", "feather")]
    for df in (frame, arrow, gdscore.to_frame(out, backend="polars")):
        found.append(from_frame(df, probabilities="prob_*", prediction="prediction", label="label"))
    for rows in found:
        assert rows.decision == "given"
        np.testing.assert_array_equal(rows.predictions, out.predictions)
        np.testing.assert_allclose(rows.confidence, out.confidence)
    assert from_frame(frame, probabilities="prob_*").decision == "argmax"
    (batch,) = arrow_batches(arrow, columns, "a block of the dataset")
    assert batch.outputs.decision == "given"


def test_a_threshold_for_tables(tmp_path):
    p = MODEL.predict_proba(X)[:, 1]
    frame = pd.DataFrame({"p": p, "y": Y, "prediction": 0})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    np.savez(tmp_path / "rows.npz", probabilities=p, labels=Y, threshold=0.1)
    columns = Columns(probabilities="p", label="y", threshold=0.1)
    read = [from_frame(frame, probabilities="p", label="y", threshold=0.1)]
    read += [next(read_outputs(tmp_path / "rows.csv", columns=columns)), next(read_outputs(tmp_path / "rows.npz"))]
    for out in read:
        assert out.decision == "threshold 0.1"
        np.testing.assert_array_equal(out.predictions, decided(0.1).predictions)
    np.savez(tmp_path / "features.npz", features=X, prediction=Y, threshold=0.1)
    assert next(read_outputs(tmp_path / "features.npz")).has == {"features"}
    other = next(read_outputs(tmp_path / "rows.npz", columns=Columns(threshold=0.3)))
    assert other.decision == "threshold 0.3"


def test_files_that_were_decided_otherwise_are_no_target(tmp_path):
    for name, threshold in (("a", 0.1), ("b", 0.3)):
        write_outputs(tmp_path / f"{name}.npz", decided(threshold))
    with pytest.raises(GdscoreError, match=r"threshold 0\.1.*threshold 0\.3"):
        list(read_outputs(tmp_path))


@pytest.mark.parametrize("threshold", [2.0, 0.0, np.nan, [0.1, 0.2], "x", 1])
def test_a_damaged_threshold_of_a_file_is_refused(tmp_path, threshold):
    np.savez(tmp_path / "rows.npz", probabilities=np.array([0.1, 0.6]), threshold=threshold)
    with pytest.raises(GdscoreError, match="threshold"):
        list(read_outputs(tmp_path / "rows.npz"))
    rows = pa.table({"probabilities": [0.1, 0.6]}).replace_schema_metadata({"gdscore.threshold": str(threshold)})
    parquet.write_table(rows, tmp_path / "rows.parquet")
    with pytest.raises(GdscoreError, match="threshold"):
        list(read_outputs(tmp_path / "rows.parquet"))


# -- estimates -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[0.1, 0.3, 0.7])
def fitted(request):
    return request.param, gdscore.AccuracyEstimator().fit(decided(request.param))


def test_an_estimate_is_of_the_decided_class(fitted):
    threshold, est = fitted
    same, labels = table(3000, 3)
    out = decided(threshold, same)
    e = est.estimate(out)
    truth = accuracy_score(labels, MODEL.predict_proba(same)[:, 1] >= threshold)
    assert est.decision_ == f"threshold {threshold}"
    assert e.accuracy == pytest.approx(truth, abs=0.04)
    assert e.low <= truth <= e.high
    assert est.predict_correct(out).mean() == pytest.approx(e.accuracy)
    shares = [c.predicted for c in e.per_class]
    assert shares == pytest.approx(np.bincount(out.predictions, minlength=2) / len(out))
    assert not any(w.code == "below_chance" for w in e.warnings)
    drifted = est.estimate(decided(threshold, DRIFTED))
    assert drifted.low <= accuracy_score(TRUTH, MODEL.predict_proba(DRIFTED)[:, 1] >= threshold) <= drifted.high


def test_targets_decided_otherwise_are_refused(fitted, tmp_path):
    threshold, est = fitted
    plain = from_sklearn(MODEL, DRIFTED)
    others = [plain, plain.with_arrays(predictions=plain.predictions), decided(0.2, DRIFTED)]
    message = rf"the reference that the estimator was fitted on, by threshold {threshold}, but these are decided by"
    for other in others:
        for use in (est.estimate, est.predict_correct, lambda out: est.state().update(out)):
            with pytest.raises(GdscoreError, match=message):
                use(other)
        with pytest.raises(GdscoreError, match=message):
            gdscore.labeling.choose(est, other, budget=20)
    est.save(tmp_path / "m.gdscore")
    loaded = gdscore.AccuracyEstimator.load(tmp_path / "m.gdscore")
    assert loaded.decision_ == est.decision_
    target = decided(threshold, DRIFTED)
    assert loaded.estimate(target) == est.estimate(target)
    with pytest.raises(GdscoreError, match=message):
        loaded.estimate(plain)


def test_states_of_parts_and_of_other_thresholds(fitted):
    threshold, est = fitted
    target = decided(threshold, DRIFTED)
    parts = [est.state().update(part).to_bytes() for part in (target[:400], target[400:])]
    state = TargetState.from_bytes(merged(TargetState, *parts))
    assert est.estimate(state) == est.estimate(target)
    other = gdscore.AccuracyEstimator().fit(decided(0.2))
    with pytest.raises(GdscoreError, match="another one"):
        other.estimate(state)
    # The same numbers, decided by the same rule, but given: another estimator.
    ref = decided(threshold)
    given = gdscore.AccuracyEstimator().fit(ref.with_arrays(predictions=ref.predictions))
    with pytest.raises(GdscoreError, match="another one"):
        given.estimate(state)


def test_labels_are_compared_with_the_decided_class(fitted):
    threshold, est = fitted
    target = decided(threshold, DRIFTED)
    rows = gdscore.labeling.choose(est, target, budget=len(DRIFTED))
    labels = TRUTH[np.asarray(rows.rows)]
    e = gdscore.labeling.estimate(est, target, rows, labels)
    truth = accuracy_score(TRUTH, MODEL.predict_proba(DRIFTED)[:, 1] >= threshold)
    assert e.accuracy == pytest.approx(truth, abs=0.01)


def test_blocks_of_a_cluster_are_decided_as_the_estimator(fitted, tmp_path):
    threshold, est = fitted
    write_outputs(tmp_path / "rows.parquet", decided(threshold, DRIFTED))
    block = parquet.read_table(tmp_path / "rows.parquet")
    state, report = Part(est, Columns()).state(arrow_batches(block, Columns(), "a block of the dataset"))
    assert report.arrays["decision"] == f"threshold {threshold}"
    assert est.estimate(TargetState.from_bytes(state)) == est.estimate(decided(threshold, DRIFTED))
    bare = block.replace_schema_metadata(None)  # as some writers do
    with pytest.raises(GdscoreError, match=f"by threshold {threshold}, but these are decided by predictions"):
        Part(est, Columns()).state(arrow_batches(bare, Columns(), "a block of the dataset"))
    columns = Columns(threshold=threshold)
    again, _ = Part(est, columns).state(arrow_batches(bare, columns, "a block of the dataset"))
    assert again == state


def test_the_default_shifts_of_a_classifier_with_a_threshold():
    clf = FixedThresholdClassifier(MODEL, threshold=0.1).fit(*table(1500, 0))
    shifts = gdscore.shifts.default_shifts(X[:300])[::12]
    est = gdscore.AccuracyEstimator().fit_predictor(clf, X[:300], Y[:300], shifts=shifts, progress=False)
    assert est.decision_ == "threshold 0.1"
    assert est.reference_accuracy_ == accuracy_score(Y[:300], clf.predict(X[:300]))
    assert 0 <= est.estimate(from_sklearn(clf, DRIFTED)).accuracy <= 1
    function = gdscore.AccuracyEstimator().fit_predictor(
        lambda x: Outputs(probabilities=MODEL.predict_proba(x), threshold=0.1), X[:300], Y[:300], shifts=shifts
    )
    assert function.decision_ == "threshold 0.1"
    assert function.reference_accuracy_ == est.reference_accuracy_


def test_the_straight_line_of_a_score_is_of_decided_classes():
    sets = [gdscore.ShiftedSet(decided(0.1, *table(300, 5 + k, 0.3 * k)), f"drift {k % 2}") for k in range(4)]
    est = gdscore.AccuracyEstimator(method="confscore").fit(decided(0.1), shifted_sets=sets)
    assert est.estimate(decided(0.1, DRIFTED)).accuracy < est.reference_accuracy_


def test_a_report_tells_the_decision(tmp_path):
    est = gdscore.AccuracyEstimator().fit(decided(0.1))
    gdscore.report.write_report(tmp_path / "r.html", est, est.estimate(decided(0.1, DRIFTED)))
    assert "threshold 0.1: class 1 where" in (tmp_path / "r.html").read_text()


# -- hostile input -------------------------------------------------------------------------------------------------

P = np.array([[0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
WRONG = {
    "out of range": (np.array([0, 2, 1]), r"`predictions` between 0 and 1, as there are 2 classes, but got 2 in row 1"),
    "negative": (np.array([0, -1, 1]), r"got -1 in row 1: leave out the rows whose predictions are not known"),
    "from 1": (np.array([1, 2, 1]), "count classes from 1"),
    "probabilities": (np.array([0.2, 0.7, 0.4]), "look like probabilities"),
    "fractions": (np.array([0.0, 1.5, 1.0]), r"`predictions` to be whole numbers, but got 1\.5 in row 1"),
    "missing": (np.array([0.0, np.nan, 1.0]), "leave out the rows without a prediction"),
    "names without class_names": (np.array(["no", "yes", "no"]), "class_names="),
    "too few": (np.array([0, 1]), "as many rows as `probabilities`, 3, but got 2"),
    "one-hot": (np.eye(2, dtype=int)[[0, 1, 0]], r"`predictions` to have one dimension"),
    "booleans": (np.array([True, False, True]), "give 0 and 1"),
    "a list": ([0, 1, 1], "numpy.asarray"),
    "masked": (np.ma.array([0, 1, 1], mask=[0, 1, 0]), "without a mask"),
    "objects": (np.array([0, None, 1], dtype=object), "`predictions` to be integers"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_predictions_are_refused(name):
    predictions, message = WRONG[name]
    with pytest.raises(GdscoreError, match=message):
        Outputs(probabilities=P, predictions=predictions)


def test_predictions_by_name_of_the_class():
    names = ["no", "yes"]
    out = Outputs(probabilities=P, predictions=np.array(["yes", "no", "yes"]), class_names=names)
    assert out.predictions.tolist() == [1, 0, 1]
    with pytest.raises(GdscoreError, match=r"Expected predictions to be classes, but got 'maybe' in row 2"):
        Outputs(probabilities=P, predictions=np.array(["yes", "no", "maybe"]), class_names=names)
    with pytest.raises(GdscoreError, match=r"predictions\.astype\(str\)"):
        Outputs(probabilities=P, predictions=np.array([1, 0, 1]), class_names=["1", "2"])
    frame = pd.DataFrame({"prob_no": P[:, 0], "prob_yes": P[:, 1], "d": ["yes", None, "no"]})
    with pytest.raises(GdscoreError, match=r"column 'd'.* row 1"):
        from_frame(frame, probabilities="prob_*", prediction="d")
    with pytest.raises(GdscoreError, match=r"got 'x' in column 'd' in row 0"):
        from_frame(frame.assign(d="x"), probabilities="prob_*", prediction="d")
    with pytest.raises(GdscoreError, match="there is none"):
        from_frame(frame, probabilities="prob_*", prediction="e")
    with pytest.raises(GdscoreError, match="used once"):
        from_frame(frame, probabilities="prob_*", prediction="prob_yes")


@pytest.mark.parametrize("threshold", [0, 1, -0.1, 1.2, 30, np.nan, np.inf, "0.1", True, [0.1], None])
def test_thresholds_outside_of_0_to_1(threshold):
    if threshold is None:
        assert Outputs(probabilities=P, threshold=None).decision == "argmax"
        return
    for use in (
        lambda: Outputs(probabilities=P, threshold=threshold),
        lambda: Columns(probabilities="p", threshold=threshold),
        lambda: from_sklearn(MODEL, X[:3], threshold=threshold),
    ):
        with pytest.raises(GdscoreError, match="Expected `threshold` to be"):
            use()


def test_a_threshold_needs_two_classes_and_their_probabilities():
    with pytest.raises(GdscoreError, match=r"two classes with `threshold`.* but got 3 classes"):
        Outputs(probabilities=np.full((4, 3), 1 / 3), threshold=0.1)
    with pytest.raises(GdscoreError, match="no probabilities"):
        Outputs(features=np.ones((4, 3)), threshold=0.1)
    with pytest.raises(GdscoreError, match="how sure the model is"):
        Outputs(features=np.ones((4, 3)), predictions=np.zeros(4, dtype=int))
    with pytest.raises(GdscoreError, match="got both"):
        Outputs(probabilities=P, predictions=np.array([0, 1, 1]), threshold=0.1)
    with pytest.raises(GdscoreError, match="got both"):
        Columns(probabilities="p", prediction="d", threshold=0.1)


def test_one_row():
    out = Outputs(probabilities=P[:1], threshold=0.1, labels=np.array([1]))
    assert (out.predictions.tolist(), out.accuracy, out.confidence.tolist()) == ([1], 1.0, [0.2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert gdscore.score("confscore", out) == pytest.approx(0.2)
        assert 0 <= gdscore.AccuracyEstimator().fit(out).estimate(out).accuracy <= 1


def test_every_row_decided_against_the_model():
    """P(right) far below one half in every row: log-odds, bins and calibration cope."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(4), 900)
    labels = np.array([rng.choice(4, p=row) for row in p])
    out = Outputs(probabilities=p, predictions=p.argmin(axis=1), labels=labels)
    est = gdscore.AccuracyEstimator().fit(out[:600])
    e = est.estimate(out[600:])
    assert out.accuracy < 0.15
    assert e.accuracy == pytest.approx(out[600:].accuracy, abs=0.06)
    assert not any(w.code == "below_chance" for w in e.warnings)


def test_times_and_segments_beside_predictions(tmp_path):
    frame = gdscore.to_frame(given_predictions())
    frame["country"] = "fr"
    frame.to_csv(tmp_path / "rows.csv", index=False)
    columns = Columns(probabilities="prob_*", prediction="prediction", by="country")
    (batch,) = read_batches(tmp_path / "rows.csv", columns=columns)
    assert batch.outputs.decision == "given"
    assert set(batch.by["country"]) == {"fr"}
