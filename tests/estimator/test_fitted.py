"""A saved estimator: the same answers, and every edit of the file is refused or harmless."""

from __future__ import annotations

import json
import stat

import numpy as np
import pytest

import gdscore
from gdscore._files import write_arrays
from gdscore._records import read_record
from gdscore.estimator import fitted as storage
from gdscore.estimator.correctness import MIXES
from tests.data import made

from .data import CLASSES, fitted, numbers, outputs, shifted

TARGET = outputs(500, 1.5, seed=9)


def reloaded(est, folder):
    est.save(folder / "m.gdscore")
    return gdscore.AccuracyEstimator.load(folder / "m.gdscore")


@pytest.mark.parametrize("sets", [True, False])
@pytest.mark.parametrize("features", [True, False])
@pytest.mark.parametrize("class_mix", ["unknown", "stable", (50, 20, 10, 10, 10), np.full(CLASSES, 0.2)])
def test_round_trip(tmp_path, sets, features, class_mix):
    est = fitted(sets, features=features, class_mix=class_mix, level=0.8, seed=5)
    again = reloaded(est, tmp_path)
    for noise in (1.0, 2.0, 9.0):
        target = outputs(300, noise, seed=6, features=features)
        first, second = est.estimate(target), again.estimate(target)
        np.testing.assert_array_equal(numbers(first), numbers(second))
        assert first.to_dict() == second.to_dict()
        np.testing.assert_array_equal(est.predict_correct(target), again.predict_correct(target))
    assert (again.level, again.method, again.seed) == (0.8, "correctness", 5)
    shares = class_mix if isinstance(class_mix, str) else np.array(class_mix) / np.sum(class_mix)
    if isinstance(class_mix, str):
        assert again.class_mix == shares
    else:
        np.testing.assert_allclose(again.class_mix, shares)
    for name in ("reference_accuracy_", "reference_rows_", "n_classes_", "n_features_", "class_names_", "n_families_"):
        assert getattr(again, name) == getattr(est, name)
    assert again.reference_confidence_ == est.reference_confidence_
    np.testing.assert_equal(vars(again.shifted_sets_), vars(est.shifted_sets_))
    np.testing.assert_equal(again.left_out_error_, est.left_out_error_)
    # A file of a loaded estimator is the same file.
    before = (tmp_path / "m.gdscore").read_bytes()
    again.save(tmp_path / "again.gdscore")
    assert (tmp_path / "again.gdscore").read_bytes() == before


METHODS = [name for name in gdscore.list_scores() if name != "projnorm"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.filterwarnings("ignore::gdscore.GdscoreWarning")
def test_round_trip_of_every_score(tmp_path, method):
    sets = [gdscore.ShiftedSet(made(200, seed=10 + k, noise=1 + 0.4 * k), f"family {k % 3}") for k in range(9)]
    est = gdscore.AccuracyEstimator(method=method).fit(made(400, seed=1), shifted_sets=sets, progress=False)
    target = made(300, seed=2, noise=2.0)
    first, second = est.estimate(target), reloaded(est, tmp_path).estimate(target)
    assert first.method == method
    assert set(first.scores) == {method}
    assert first.to_dict() == second.to_dict()
    # The line is the one that NumPy fits to the sets.
    values = [gdscore.score(method, s.outputs, reference=made(400, seed=1)) for s in sets]
    slope, intercept = np.polyfit(values, [s.accuracy for s in sets], 1)
    expected = np.clip(intercept + slope * first.scores[method], 0, 1)
    assert first.accuracy == pytest.approx(expected, abs=1e-6)
    assert first.scores[method] == pytest.approx(gdscore.score(method, target, reference=made(400, seed=1)))


def test_projnorm_is_refused():
    with pytest.raises(gdscore.GdscoreError, match="projnorm"):
        gdscore.AccuracyEstimator(method="projnorm").fit(outputs(300), shifted_sets=shifted(), progress=False)


@pytest.mark.parametrize("sets", [None, shifted(families=1), shifted(families=2, severities=1)[:1]])
def test_a_line_needs_sets_of_two_families(sets):
    with pytest.raises(gdscore.GdscoreError, match="at least two families"):
        gdscore.AccuracyEstimator(method="entropy").fit(outputs(300), shifted_sets=sets, progress=False)


def test_class_names_round_trip(tmp_path):
    x = outputs(600, seed=1)
    named = gdscore.Outputs(logits=x.logits, labels=x.labels, class_names=("ä", "b", "", "d\n", "\x1b"))
    again = reloaded(gdscore.AccuracyEstimator().fit(named), tmp_path)
    assert again.class_names_ == named.class_names


def test_a_file_is_written_as_a_whole_or_not_at_all(tmp_path):
    est, path = fitted(), tmp_path / "m.gdscore"
    est.save(path)
    path.chmod(0o600)
    before = path.read_bytes()
    with pytest.raises(gdscore.GdscoreError):
        est.set_params(class_mix="nonsense").save(path)
    assert path.read_bytes() == before
    est.set_params(class_mix="stable").save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises((gdscore.GdscoreError, OSError)):
        est.save(tmp_path / "no" / "folder" / "m.gdscore")
    assert [p.name for p in tmp_path.iterdir()] == ["m.gdscore"]


EDITS = {
    "level": [0, 1.5, "x", None, True, -1],
    "class_mix": ["x", None, [], [0.5] * 4, [0.0] * 5, [-1.0, 1, 1, 1, 1], [[1]]],
    "method": ["x", "gdscore", None, 3],
    "seed": [-1, 0.5, None, "x"],
    "reference_accuracy": [-0.1, 1.1, None],
    "reference_rows": [0, -5, 0.5],
    "temperature": [0, -1, 1e-40, 1e40, None],
    "spread": [0, -1, 1e-310],
    "centre": [1e300, None],
    "base": [-0.1, 2],
    "errors": [{}, None, *(dict.fromkeys(MIXES, e) for e in (-1, 1e300, None))],
    "left_out": [{}, None, *(dict.fromkeys(MIXES, e) for e in (-0.1, 1.1, "x"))],
    "reserve": [-0.1, 1.1, None],
    "lean": [-0.1, 1.1, None, "x"],
    "strictness": [0, -1, 1e300, None],
    "located": ["inputs", "", None, "x"],
    "n_features": [0, None, 99, "x"],
    "farthest": [-1, 1e300],
    "reaction": [1e300, "x"],
    "families": [[], ["a"], [""] * 9, [3] * 9, None],
    "class_names": [[], ["a"], [1, 2, 3, 4, 5], "abcde"],
    "decision": ["x", "threshold", "threshold 0.1", "threshold nan", None, 0.1],
    "line": [{}, {"slope": 1.0, "intercept": 0.0, "error": 0.1}, {"slope": None, "intercept": 0.0, "error": 0.1}],
    "fingerprint": [None, {}, {"offset": 1.0}, {"offset": 1.0, "spread": -1}],
    "columns": [None, [{"name": "a", "values": None}], [{"name": "a"}], ["a"]],
}


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "m.gdscore"
    fitted().save(path)
    header, arrays, _ = read_record(path, storage.SCHEMA)
    return path, header, arrays


def answer_of(path, header, arrays):
    """Answer of an edited file, written without checks; None where it is refused."""
    mark = {"format": storage.SCHEMA.format, "version": storage.SCHEMA.version}
    write_arrays(path, {"header": json.dumps({**mark, **header}), **arrays})
    try:
        found = gdscore.AccuracyEstimator.load(path).estimate(TARGET)
    except gdscore.GdscoreError:
        return None
    assert np.isfinite(numbers(found)).all()
    return found


@pytest.mark.parametrize(("field", "value"), [(name, value) for name, values in EDITS.items() for value in values])
def test_edited_headers_are_refused(record, tmp_path, field, value):
    _, header, arrays = record
    assert answer_of(tmp_path / "edited", {**header, field: value}, arrays) is None


def test_every_header_field_is_needed(record, tmp_path):
    _, header, arrays = record
    assert set(EDITS) == set(header)
    for name in header:
        assert answer_of(tmp_path / "edited", {k: v for k, v in header.items() if k != name}, arrays) is None
    assert answer_of(tmp_path / "edited", {**header, "more": 1}, arrays) is None
    assert answer_of(tmp_path / "edited", header, arrays).accuracy == fitted().estimate(TARGET).accuracy


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_edited_arrays_are_refused_or_harmless(record, tmp_path):
    _, header, arrays = record
    for name, array in arrays.items():
        damaged = [array[:-1], array[None], array.ravel()[:1], array.astype("U8"), array.astype(bool), array[:0]]
        if array.dtype.kind == "f":
            damaged += [
                np.where(np.arange(array.size).reshape(array.shape) == 0, odd, array) for odd in (np.nan, np.inf)
            ]
        for changed in damaged:
            if changed.shape != array.shape or changed.dtype != array.dtype or not np.array_equal(changed, array):
                assert answer_of(tmp_path / "edited", header, {**arrays, name: changed}) is None
        without = {k: v for k, v in arrays.items() if k != name}
        assert answer_of(tmp_path / "edited", header, without) is None
        for factor in (0, -1, 1e-200, 1e200, 1e308):
            with np.errstate(all="ignore"):
                scaled = (array.astype(float) * factor).clip(-1.7e308, 1.7e308)
            if array.dtype.kind == "f":
                answer_of(tmp_path / "edited", header, {**arrays, name: scaled})
    assert answer_of(tmp_path / "edited", header, {**arrays, "more": np.zeros(3)}) is None
    assert answer_of(tmp_path / "edited", header, {**arrays, "knots": arrays["knots"][::-1].copy()}) is None


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "m.gdscore"
    with pytest.raises((gdscore.GdscoreError, FileNotFoundError)):
        gdscore.AccuracyEstimator.load(path)
    for content in (b"", b"x" * 50, json.dumps({"format": "gdscore estimator"}).encode()):
        path.write_bytes(content)
        with pytest.raises(gdscore.GdscoreError):
            gdscore.AccuracyEstimator.load(path)
    np.savez(tmp_path / "plain.npz", a=np.zeros(3))
    with pytest.raises(gdscore.GdscoreError):
        gdscore.AccuracyEstimator.load(tmp_path / "plain.npz")
    with pytest.raises((gdscore.GdscoreError, OSError)):
        gdscore.AccuracyEstimator.load(tmp_path)


def test_the_score_of_another_method_is_refused(tmp_path, record):
    path = tmp_path / "m.gdscore"
    fitted(method="entropy").save(path)
    header, arrays, _ = read_record(path, storage.SCHEMA)
    assert answer_of(path, {**header, "method": "mano"}, arrays) is None
    assert answer_of(path, {**header, "method": "correctness"}, arrays) is None
    assert answer_of(path, {**header, "line": None}, arrays) is None
    assert answer_of(path, header, {**arrays, "score": arrays["score"][:-9]}) is None
    assert (
        answer_of(path, {**header, "line": {"slope": 1e300, "intercept": -1e300, "error": 1e300}}, arrays) is not None
    )


def test_what_fit_takes_save_takes(tmp_path):
    """Logits so large that their standard deviation overflows: nothing is known of the last layer."""
    reference = outputs(400, seed=1, dtype=np.float64)
    huge = gdscore.Outputs(logits=1e300 * reference.logits, features=reference.features, labels=reference.labels)
    est = gdscore.AccuracyEstimator(class_mix=[1e308] * CLASSES).fit(huge)
    est.save(tmp_path / "m.gdscore")
    again = gdscore.AccuracyEstimator.load(tmp_path / "m.gdscore")
    np.testing.assert_array_equal(numbers(again.estimate(huge)), numbers(est.estimate(huge)))


def test_states_of_tables_with_other_columns_or_categories_do_not_merge():
    """Rows are counted by column and category, so that the digest has to hold these."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    numbers, codes = rng.normal(size=300), rng.integers(0, 3, 300)

    def fitted_on(column="colour", values=("red", "green", "blue")):
        table = pd.DataFrame({"x": numbers, column: np.array(values)[codes]})

        def predict(given):
            z = given["x"].to_numpy()
            return gdscore.Outputs(logits=np.stack([z, -z], axis=1))

        labels = (numbers < 0).astype(int)
        shifts = [lambda given: given.assign(x=given["x"] + 0.5)]
        est = gdscore.AccuracyEstimator().fit_predictor(predict, table, labels, shifts=shifts, progress=False)
        return est, est.state().update(predict(table), inputs=table)

    est, state = fitted_on()
    assert est.estimate(state.merge(fitted_on()[1])).n_rows == 600
    for other in (fitted_on(values=("red", "green", "violet")), fitted_on(column="paint")):
        with pytest.raises(gdscore.GdscoreError, match="made by another one"):
            est.state().merge(other[1])
        with pytest.raises(gdscore.GdscoreError, match="made by another one"):
            est.state(other[1].to_bytes())
