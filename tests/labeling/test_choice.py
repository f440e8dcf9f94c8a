"""`choose`: the order of rows against NumPy, streams, segments, ids, and what it refuses."""

import numpy as np
import pytest

import gdscore
from gdscore.labeling import choose, estimate
from tests.labeling.conftest import outputs


def test_ranks_follow_predicted_class_and_correctness(est, target):
    rows = choose(est, target, len(target))
    assert sorted(rows.rows.tolist()) == sorted(rows.ranks.tolist()) == list(range(len(target)))
    # Rows are ordered before anything is assumed of classes and their mix, which moves `predict_correct` a little.
    np.testing.assert_allclose(rows.predicted_correct, est.predict_correct(target)[rows.rows], atol=0.1)
    row = rows.rows[np.argsort(rows.ranks)]
    predicted, confidence = (
        np.asarray(target.predictions)[row],
        est.fitted_.correction.profile.rows(target).evidence[row, 0],
    )
    classes = list(dict.fromkeys(predicted.tolist()))
    assert predicted.tolist() == sorted(predicted.tolist(), key=classes.index)
    assert (np.diff([confidence[predicted == k].mean() for k in classes]) > -0.05).all()
    for turn, k in enumerate(classes):
        # Rows of one cell of the grid keep the order in which they are read.
        assert ((-1) ** turn * np.diff(confidence[predicted == k]) > -0.03).all()
    assert rows.mean_predicted_correct == pytest.approx(est.predict_correct(target).mean(), abs=0.01)
    assert rows.probability == 1


@pytest.mark.parametrize("design", ["stratified", "random"])
@pytest.mark.parametrize("size", [13, 100, 5000])
def test_batches_of_any_size_give_the_same_rows(est, target, design, size):
    parts = [target[i : i + size] for i in range(0, len(target), size)]
    one, many = choose(est, target, 40, design=design), choose(est, parts, 40, design=design)
    opened = choose(est, lambda: iter(parts), 40, design=design)
    for other in (many, opened):
        np.testing.assert_array_equal(one.rows, other.rows)
        np.testing.assert_array_equal(one.ranks, other.ranks)
        assert one.fingerprint == other.fingerprint
        np.testing.assert_allclose(one.predicted_correct, other.predicted_correct, rtol=1e-12)


def test_seeds_differ_and_larger_budgets_continue(est, target):
    first, more, other = choose(est, target, 20), choose(est, target, 60), choose(est, target, 20, seed=1)
    np.testing.assert_array_equal(first.rows, more.rows[:20])
    assert first.rows.tolist() != other.rows.tolist()
    assert set(choose(est, target, 50).stratum.tolist()) == set(range(1, 11))


def test_segments_get_their_share(est, target):
    by = np.array(["north", "south", "south", "west"])[np.arange(len(target)) % 4]
    rows = choose(est, target, 80, by=by)
    assert rows.segments == tuple(by[rows.rows])
    counts = {name: rows.segments.count(name) for name in ("north", "south", "west")}
    assert abs(counts["north"] - 20) <= 3
    assert abs(counts["south"] - 40) <= 3
    assert rows.segment_rows == {"north": 225, "south": 450, "west": 225}
    parts = [target[:500], target[500:]]
    np.testing.assert_array_equal(choose(est, parts, 80, by=[by[:500], by[500:]]).rows, rows.rows)


def test_ids_come_along(est, named_target):
    rows = choose(est, named_target, 10)
    np.testing.assert_array_equal(rows.ids, named_target.ids[rows.rows])


def test_torch_gives_the_same_rows(est, target):
    torch = pytest.importorskip("torch")
    there = gdscore.Outputs(logits=torch.from_numpy(np.asarray(target.arrays["logits"])))
    np.testing.assert_array_equal(choose(est, there, 30).rows, choose(est, target, 30).rows)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"budget": 0}, "budget"),
        ({"budget": 901}, "at most 900"),
        ({"budget": 5.5}, "budget"),
        ({"design": "stratifed"}, "did you mean 'stratified'"),
        ({"seed": -1}, "seed"),
        ({"seed": 10**30}, "`seed` to be an integer from 0 to"),
        ({"by": 3}, "`by` to name a segment for each of 900 rows"),
        ({"by": ["a"] * 3}, "segment for each of 900 rows"),
        ({"by": np.arange(900) % 300}, None),
    ],
)
def test_arguments(est, target, change, message):
    given = {"budget": 10} | change
    if message is None:
        assert len(choose(est, target, **given)) == 10
        return
    with pytest.raises(gdscore.GdscoreError, match=message):
        choose(est, target, **given)


def test_refused_targets(est, target):
    with pytest.raises(gdscore.GdscoreError, match="read twice"):
        choose(est, iter([target]), 10)
    with pytest.raises(gdscore.GdscoreError, match="stream is empty"):
        choose(est, [], 10)
    with pytest.raises(gdscore.GdscoreError, match="classes"):
        choose(est, gdscore.Outputs(logits=np.random.default_rng(0).normal(size=(50, 3))), 10)
    with pytest.raises(gdscore.GdscoreError, match="fitted"):
        choose(gdscore.AccuracyEstimator(), target, 10)
    with pytest.raises(gdscore.GdscoreError, match="AccuracyEstimator"):
        choose(None, target, 10)
    parts = iter([[target], [outputs(900, 3.0, seed=9)]])
    with pytest.raises(gdscore.GdscoreError, match="same rows in both passes"):
        choose(est, lambda: next(parts), 10)
    with pytest.raises(gdscore.GdscoreError, match="`by`"):
        choose(est, [target, target], 10, by=[["a"] * 900])


def test_probabilities_of_the_callers_own_give_the_order(est, target):
    """The order against NumPy's, streams, and an interval that is narrower where they are better."""
    rng = np.random.default_rng(0)
    right = np.clip(np.asarray(target.correct) * 0.6 + 0.4 * rng.random(len(target)), 0, 1)
    rows = choose(est, target, len(target), right=right)
    assert (np.diff(right[rows.rows[np.argsort(rows.ranks)]]) > -1e-3).all()
    np.testing.assert_array_equal(rows.predicted_correct, right[rows.rows])
    assert rows.mean_predicted_correct == pytest.approx(right.mean())
    parts = [target[:300], target[300:]]
    np.testing.assert_array_equal(choose(est, parts, 40, right=right.tolist()).rows, rows.rows[:40])
    drawn, plain = choose(est, target, 50, right=right), choose(est, target, 50)
    labels = np.asarray(target.labels)
    narrow = estimate(est, target, drawn, labels[drawn.rows], right=right)
    wide = estimate(est, target, plain, labels[plain.rows])
    assert narrow.high - narrow.low < 0.8 * (wide.high - wide.low)
    assert narrow.low <= target.accuracy <= narrow.high
    assert narrow.label_free.value == pytest.approx(right.mean())
    assert narrow.label_free.low is None
    by = np.where(np.arange(len(target)) % 2, "a", "b")
    assert set(choose(est, target, 30, by=by, right=right).segments) == {"a", "b"}


def test_other_probabilities_are_refused(est, target):
    right = np.full(len(target), 0.5)
    for wrong in (right[:-1], np.append(right, 0.5)):
        with pytest.raises(gdscore.GdscoreError, match=f"a probability for each row, but it has {len(wrong)}"):
            choose(est, target, 10, right=wrong)
    for wrong in (right + 1, right * np.nan, right[:, None], ["a"] * len(target)):
        with pytest.raises(gdscore.GdscoreError, match="between 0 and 1"):
            choose(est, target, 10, right=wrong)
    rows = choose(est, target, 10)
    with pytest.raises(gdscore.GdscoreError, match="`right` that rows were drawn with"):
        estimate(est, target, rows, np.asarray(target.labels)[rows.rows], right=right)


def test_segments_keep_their_type_also_in_the_file(est, target, tmp_path):
    from gdscore.labeling import estimate_segments, read_csv

    names = [1, "1", None, ("fr", 2), "fr", 2.5]
    by = [names[i % 6] for i in range(len(target))]
    rows = choose(est, target, 60, by=by)
    assert set(rows.segments) == set(names)
    rows.to_csv(tmp_path / "rows.csv")
    again, _ = read_csv(tmp_path / "rows.csv")
    assert (again.segments, again.segment_rows) == (rows.segments, rows.segment_rows)
    assert {type(key) for key in again.segments} == {int, str, type(None), tuple, float}
    labels = np.asarray(target.labels)[rows.rows]
    found = estimate_segments(est, target, again, labels)
    assert found.keys() == set(names)
    assert found == estimate_segments(est, target, rows, labels)
    with pytest.raises(gdscore.GdscoreError, match="it has more"):
        choose(est, [target], 20, by=[by, by])
