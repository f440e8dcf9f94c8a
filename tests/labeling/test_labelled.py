"""`estimate`: coverage through the public API, labels as people give them, and what it refuses."""

import numpy as np
import pytest

import gdscore
from gdscore.labeling import choose, estimate, estimate_segments
from gdscore.labeling.labelled import interval
from tests.labeling.conftest import outputs


@pytest.fixture(scope="module")
def rows(est, target):
    return choose(est, target, 50)


@pytest.fixture(scope="module")
def labels(rows, target):
    return np.asarray(target.labels)[rows.rows]


def test_it_is_the_interval_of_the_rows_in_order(est, target, rows, labels):
    found = estimate(est, target, rows, labels)
    right = np.asarray(target.correct)[rows.rows[np.argsort(rows.ranks)]]
    assert (found.low, found.high) == interval(right, 900, 0.9)
    assert found.accuracy == right.mean()
    assert (found.labels, found.could_not_tell, found.to_label, found.n_rows) == (50, 0, 0, 900)
    assert found.effective_labels >= 50
    free = est.estimate(target)
    assert (found.label_free.value, found.label_free.low) == (free.accuracy, free.low)
    assert found.to_dict()["labels"] == 50
    assert found.method == "labels"
    assert "50 rows are labelled" in str(found)


@pytest.mark.parametrize("design", ["stratified", "random"])
def test_coverage(est, target, design):
    covered = []
    for seed in range(40):
        drawn = choose(est, target, 20, design=design, seed=seed)
        found = estimate(est, target, drawn, np.asarray(target.labels)[drawn.rows])
        covered.append(found.low <= target.accuracy <= found.high)
    assert np.mean(covered) > 0.8


def test_all_labelled_leaves_no_width(est):
    small = outputs(30, 2.0, seed=3)
    drawn = choose(est, small, 30)
    found = estimate(est, small, drawn, np.asarray(small.labels)[drawn.rows])
    assert found.low == found.high == found.accuracy == pytest.approx(small.accuracy)
    assert found.more_labels_for(0.05) == 0


def test_labels_by_position_id_and_in_batches(est, target, rows, labels, named_target):
    plain = estimate(est, target, rows, labels)
    shuffled = dict(zip(rows.rows.tolist()[::-1], labels.tolist()[::-1], strict=True))
    assert estimate(est, target, rows, shuffled) == plain
    assert estimate(est, iter([target[:300], target[300:]]), rows, labels.tolist()) == plain
    drawn = choose(est, named_target, 50)
    known = {
        name: named_target.class_names[named_target.labels[i]] for name, i in zip(drawn.ids, drawn.rows, strict=True)
    }
    by_name = estimate(est, named_target, drawn, known)
    assert by_name.labels == 50
    other_order = np.random.default_rng(0).permutation(900)
    assert estimate(est, named_target[other_order], drawn, known).low == by_name.low


def test_the_first_labels_are_a_sample_too(est, target, rows, labels):
    found = estimate(est, target, rows, labels[:20])
    assert (found.labels, found.to_label, found.could_not_tell) == (20, 30, 0)
    smaller = choose(est, target, 20)
    alone = estimate(est, target, smaller, labels[:20])
    assert (alone.low, alone.high) == (found.low, found.high)


def test_what_nobody_can_tell_counts_as_wrong_and_as_right(est, target, rows, labels):
    given = [str(label) for label in labels]
    given[3], given[10], given[20] = "?", "Could not tell", ""
    found = estimate(est, target, rows, given)
    assert (found.labels, found.could_not_tell) == (47, 3)
    assert next(w.code for w in found.warnings if w.severity == "warning") == "could_not_tell"
    right = np.asarray(target.correct)[rows.rows].copy()
    for value, end in ((False, 0), (True, 1)):
        right[[3, 10, 20]] = value
        assert (found.low, found.high)[end] == interval(right, 900, 0.9, ratio=1.0)[end]
        for between in (np.array([0, 1, 0]), np.array([1, 1, 0])):
            right[[3, 10, 20]] = between
            low, high = interval(right[np.argsort(rows.ranks)], 900, 0.9)
            assert found.low <= low
            assert high <= found.high


@pytest.mark.parametrize("written", ["dog", " Dog ", '"dog"', "'dog'", "1", "1.0", 1, 1.0, np.int64(1)])
def test_forms_of_a_label(est, named_target, written):
    drawn = choose(est, named_target, 5)
    right = int(named_target.predictions[drawn.rows[0]]) == 1
    found = estimate(est, named_target, drawn, [written])
    assert found.accuracy == float(right)


@pytest.mark.parametrize("names", [["1", "2", "3", "4"], ["1.0", "2.0", "3.0", "4.0"], ["10", "20", "30", "40"]])
def test_numbers_are_names_where_classes_are_named_by_numbers(est, names):
    target = outputs(900, 2.0, seed=2, names=names)
    drawn = choose(est, target, 60)
    named = [names[position] for position in np.asarray(target.labels)[drawn.rows]]
    expected = estimate(est, outputs(900, 2.0, seed=2), drawn, np.asarray(target.labels)[drawn.rows])
    for labels in (named, [float(x) for x in named], np.array(named, dtype=float).astype(int), [str(x) for x in named]):
        found = estimate(est, target, drawn, labels)
        assert (found.accuracy, found.low, found.high) == (expected.accuracy, expected.low, expected.high)
    with pytest.raises(gdscore.GdscoreError, match="label of row 1 of the sample to be a class, but got 0"):
        estimate(est, target, drawn, [0])


def test_odd_class_names_are_labels(est, named_target):
    drawn = choose(est, named_target, 2)
    assert estimate(est, named_target, drawn, ["=owl", "don't know"]).labels == 2


def test_labels_all_equal(est):
    easy = outputs(400, 0.3, seed=8)
    drawn = choose(est, easy, 50)
    found = estimate(est, easy, drawn, np.asarray(easy.labels)[drawn.rows])
    assert found.accuracy == found.high == 1
    assert 0.9 < found.low < 1
    assert "all_right" in {w.code for w in found.warnings}
    wrong = estimate(est, easy, drawn, (np.asarray(easy.predictions)[drawn.rows] + 1) % 4)
    assert wrong.accuracy == wrong.low == 0
    assert {"all_wrong", "label_free_missed"} <= {w.code for w in wrong.warnings}


def test_the_estimate_without_labels_is_compared_with_the_interval_of_the_labels(est, target, rows):
    free, predicted = est.estimate(target.only({"logits"})), np.asarray(target.predictions)[rows.rows]
    seen = set()
    for wrong in range(0, len(rows), 4):
        labels = np.where(np.arange(len(rows)) * 7 % len(rows) < wrong, (predicted + 1) % 4, predicted)
        e = estimate(est, target, rows, labels)
        codes = [w.code for w in e.warnings if w.code.startswith("label_free")]
        apart, outside = free.high < e.low or free.low > e.high, not e.low <= free.accuracy <= e.high
        assert codes == (["label_free_missed"] if apart else ["label_free_outside"] if outside else [])
        seen.update(codes or [""])
    assert seen == {"", "label_free_missed", "label_free_outside"}


def test_forecast(est, target, rows, labels):
    found = estimate(est, target, rows, labels)
    more = found.more_labels_for(0.05)
    larger = choose(est, target, 50 + more)
    again = estimate(est, target, larger, np.asarray(target.labels)[larger.rows])
    assert (again.high - again.low) / 2 == pytest.approx(0.05, abs=0.01)
    assert found.more_labels_for(0.5) == 0
    assert found.more_labels_for(0.0001) == 850
    with pytest.raises(gdscore.GdscoreError, match="half_width"):
        found.more_labels_for(5)


def test_segments(est, target):
    by = np.where(np.arange(900) % 3 == 0, "a", "b")
    drawn = choose(est, target, 90, by=by)
    known = np.asarray(target.labels)[drawn.rows]
    found = estimate_segments(est, target, drawn, known)
    assert set(found) == {"a", "b"}
    assert found["a"].n_rows == 300
    assert sum(e.labels for e in found.values()) == 90
    assert list(found) == sorted(found, key=lambda name: found[name].accuracy)
    for name, e in found.items():
        assert e.low - 0.03 <= target[np.flatnonzero(by == name)].accuracy <= e.high + 0.03
    with pytest.raises(gdscore.GdscoreError, match="by segment"):
        estimate_segments(est, target, choose(est, target, 5), [0])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([0] * 51, "at most 50 labels"),
        ([7], "class from 0 to 3"),
        ([-1], "class from 0 to 3"),
        ([1.5], "class from 0 to 3"),
        (["owl"], "class from 0 to 3"),
        ([True], "class from 0 to 3"),
        ([[1]], "class from 0 to 3"),
        ([], "at least one label"),
        ([None, float("nan"), "", "  "], "at least one label"),
        (["?"], "at least one label"),
        ("01", "label for each"),
        (3, "list or a dict"),
        (np.array(3), "list or a dict"),
        ({123456: 1}, "was not"),
    ],
)
def test_bad_labels(est, target, rows, given, message):
    with pytest.raises(gdscore.GdscoreError, match=message):
        estimate(est, target, rows, given)


def test_a_misspelt_class_gets_the_nearest(est, named_target):
    with pytest.raises(gdscore.GdscoreError, match="did you mean 'dog'"):
        estimate(est, named_target, choose(est, named_target, 5), ["dogg"])


def test_rows_of_another_target_are_refused(est, target, rows, labels, named_target):
    other = outputs(900, 2.0, seed=77)
    changed = gdscore.Outputs(logits=np.asarray(target.logits)[::-1].copy())
    with pytest.raises(gdscore.GdscoreError, match="leave out the column of ids"):
        gdscore.labeling.estimate(est, named_target, rows, labels)
    for wrong in (other, changed, target[:899]):
        with pytest.raises(gdscore.GdscoreError, match="another one"):
            estimate(est, wrong, rows, labels)
    with pytest.raises(gdscore.GdscoreError, match="LabelRows"):
        estimate(est, target, [1, 2], labels)
    with pytest.raises(gdscore.GdscoreError, match="AccuracyEstimator"):
        estimate(None, target, rows, labels)


def test_ids_that_name_two_rows_are_refused(est):
    twice = gdscore.Outputs(logits=np.asarray(outputs(20).logits), ids=np.array(["a", "b"] * 10))
    drawn = choose(est, twice, 2)
    with pytest.raises(gdscore.GdscoreError, match="names two"):
        estimate(est, twice, drawn, [0, 0])


def test_with_all_rows_labelled_nothing_is_left_open(est):
    few = outputs(5, 0.1, seed=4)
    drawn = choose(est, few, 5)
    found = estimate(est, few, drawn, np.asarray(few.labels)[drawn.rows])
    assert found.low == found.high == few.accuracy == 1
    assert not {"few_labels", "all_right"} & {w.code for w in found.warnings}


def test_where_all_rows_are_labelled_the_estimate_without_labels_is_not_outside():
    """An interval that is one number was said to leave the estimate without labels outside."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 900)
    out = gdscore.Outputs(logits=2 * np.eye(3)[y] + rng.normal(size=(900, 3)), labels=y)
    fitted, rest = gdscore.AccuracyEstimator().fit(out[:600]), out[600:]
    drawn = choose(fitted, rest, 300)
    found = estimate(fitted, rest, drawn, np.asarray(rest.labels)[drawn.rows])
    assert found.low == found.accuracy == found.high == pytest.approx(rest.accuracy)
    assert found.label_free.low <= found.accuracy <= found.label_free.high
    assert not found.warnings
