"""Labels, times and files that cannot be: each is an error that says so, and leaves the tracker as it was."""

import threading
from datetime import timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gdscore
from gdscore import _files as files
from gdscore.tracking import TrackedWindow
from tests.tracking.conftest import day, outputs, unlabelled

N = 20


@pytest.fixture
def labelled(track, rng):
    """A tracker of three windows of which the first has labels."""
    track.parts = [outputs(N, 1.5, rng) for _ in range(3)]
    for number, out in enumerate(track.parts):
        track.estimate(unlabelled(out), time=day(number))
    track.add_labels(day(0), track.parts[0].labels)
    return track


ZEROS = np.zeros(N, dtype=int)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t.add_labels(day(9), ZEROS), r"but got 2026-01-10: the nearest is 2026-01-03"),
        (lambda t: t.add_labels("2030-01-01", ZEROS), "the time of a window that was estimated"),
        (lambda t: t.add_labels(day(1), ZEROS[:5]), r"a label for each of the 20 rows .* but got 5"),
        (lambda t: t.add_labels(day(1), np.zeros(25, dtype=int)), "but got 25"),
        (lambda t: t.add_labels(day(1), ZEROS[:2], rows=[3, 20]), "rows from 0 to 19"),
        (lambda t: t.add_labels(day(1), ZEROS[:2], rows=[-1, 2]), "rows from 0 to 19"),
        (lambda t: t.add_labels(day(1), ZEROS[:2], rows=[3, 3]), "every row once"),
        (lambda t: t.add_labels(day(1), ZEROS[:2], rows=[0.5, 2]), "row numbers"),
        (lambda t: t.add_labels(day(1), ZEROS[:2], rows=[1, 2, 3]), "a label for 3 rows"),
        (lambda t: t.add_labels(day(1), {3: 0, 99: 1}), "rows from 0 to 19"),
        (lambda t: t.add_labels(day(1), {"a": 0}), "row numbers"),
        (lambda t: t.add_labels(day(1), ZEROS + 3), "classes from 0 to 2"),
        (lambda t: t.add_labels(day(1), ZEROS - 1), "classes from 0 to 2"),
        (lambda t: t.add_labels(day(1), [0.5] * N), "to be a class"),
        (lambda t: t.add_labels(day(1), ["cat"] * N), "to be a class"),
        (lambda t: t.add_labels(day(1), [[0]] * N), "but got 20 × 1"),
        (lambda t: t.add_labels(day(1), pd.DataFrame({"y": ZEROS})), "but got 20 × 1"),
        (lambda t: t.add_labels(day(1), "0" * N), "a label for each"),
        (lambda t: t.add_labels(day(1), 3), "a label for each"),
        (lambda t: t.add_labels(day(1), None), "a label for each"),
        (lambda t: t.add_labels(day(1), np.zeros((N, 3))), "but got 20 × 3"),
        (lambda t: t.add_labels(day(1), unlabelled(t.parts[1])), "the outputs have none"),
        (lambda t: t.add_labels(day(1), t.parts[2]), r"20 other rows: is the time right\?"),
        (lambda t: t.add_labels(day(1), t.parts[1], rows=[1]), "labelled outputs without `rows`"),
        (lambda t: t.add_labels(day(1), ZEROS, by=["a"] * N), "`by` with labelled outputs only"),
        (lambda t: t.add_labels("not a time", ZEROS), "a time such as 2026-01-31"),
        (lambda t: t.add_labels(3.5, ZEROS), "a time such as 2026-01-31"),
        (lambda t: t.add_accuracy(day(9), 0.5), "the nearest is"),
        (lambda t: t.add_accuracy(day(1), 81), "give 0.81"),
        (lambda t: t.add_accuracy(day(1), -0.1), "`accuracy`"),
        (lambda t: t.add_accuracy(day(1), float("nan")), "`accuracy`"),
        (lambda t: t.add_accuracy(day(1), 0.5, n_rows=21), "at most 20 rows"),
        (lambda t: t.add_accuracy(day(1), 0.5, n_rows=0), "`n_rows`"),
        (lambda t: t.add_accuracy(day(1), 0.5, by="fr"), "no segment of the window"),
        (lambda t: t.estimate(unlabelled(t.parts[0]), time=day(1)), "replace=True"),
        (lambda t: t.estimate(unlabelled(t.parts[0]), time=None), "a time such as"),
        (lambda t: t.estimate(unlabelled(t.parts[0]), time=day(5), by=["a"] * N), "columns of segments"),
        (lambda t: t.estimate(gdscore.Outputs(logits=np.zeros((5, 4))), time=day(5)), "class"),
        (lambda t: t.estimate([], time=day(5)), "rows"),
        (lambda t: t.estimate(np.zeros((5, 3)), time=day(5)), "Outputs"),
        (lambda t: t.replace_model("est"), "AccuracyEstimator"),
        (lambda t: t.replace_model(gdscore.AccuracyEstimator()), "fitted"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(labelled, call, message):
    before = labelled.to_bytes()
    with pytest.raises(gdscore.GdscoreError, match=message):
        call(labelled)
    assert labelled.to_bytes() == before


def test_a_zone_in_a_refused_call_does_not_change_the_times(labelled):
    for call in (labelled.add_accuracy, labelled.add_labels):
        with pytest.raises(gdscore.GdscoreError):
            call("2030-01-01T00:00Z", 0.5)
    assert labelled.windows("pandas").time.dt.tz is None


def test_rows_drawn_from_other_outputs_are_refused(labelled, est):
    rows = gdscore.labeling.choose(est, unlabelled(labelled.parts[2]), budget=5)
    with pytest.raises(gdscore.GdscoreError, match="drawn from others"):
        labelled.add_labels(day(1), np.zeros(5, dtype=int), rows=rows)


@pytest.mark.parametrize(
    "make", [lambda e: gdscore.AccuracyTracker("est"), lambda e: gdscore.AccuracyTracker(e, level=90)]
)
def test_what_a_tracker_cannot_be_made_of(est, make):
    with pytest.raises(gdscore.GdscoreError):
        make(est)


@pytest.mark.parametrize("keep", [3, timedelta(0), "30d"])
def test_keep_is_a_length_of_time(est, keep):
    with pytest.raises(gdscore.GdscoreError, match="timedelta"):
        gdscore.AccuracyTracker(est, keep=keep)


def test_labels_twice_are_labels_once(labelled, rng):
    for _ in range(3):
        labelled.add_labels(day(0), labelled.parts[0].labels)
        labelled.add_labels(day(1), labelled.parts[1].labels[:7], rows=np.arange(7))
    frame = labelled.windows("pandas")
    assert frame.labels.tolist() == [N, 7, 0]
    assert labelled.coverage() in (0.0, 0.5, 1.0)


def test_labels_are_taken_back_as_missing(labelled):
    labelled.add_labels(day(0), [None] * N)
    assert labelled.windows("pandas").labels.tolist() == [0, 0, 0]
    fresh = labelled.estimate(unlabelled(labelled.parts[2]), time=day(2))
    assert fresh == labelled.estimator.estimate(unlabelled(labelled.parts[2]))


def test_other_outputs_with_replace_drop_the_labels(labelled, rng):
    out = outputs(33, 1.5, rng)
    labelled.estimate(unlabelled(out), time=day(0), replace=True)
    frame = labelled.windows("pandas")
    assert frame.n_rows.tolist() == [33, N, N]
    assert frame.labels.sum() == 0
    assert len(labelled) == 3


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_small_windows_of_few_bits(est, rows, dtype):
    track = gdscore.AccuracyTracker(est)
    for number in range(6):
        logits = np.array([[3, 0, 0], [0, 2, 0]], dtype=dtype)[:rows]
        e = track.estimate(gdscore.Outputs(logits=logits), time=day(number))
        assert 0 <= e.low <= e.accuracy <= e.high <= 1
        track.add_labels(day(number), [number % 3] * rows)
    assert 0 <= track.coverage() <= 1


def test_one_class_is_ever_seen(est):
    track = gdscore.AccuracyTracker(est)
    out = gdscore.Outputs(logits=np.tile([4.0, 0, 0], (50, 1)))
    for number in range(5):
        e = track.estimate(out, time=day(number))
        track.add_labels(day(number), np.zeros(50, dtype=int))
    assert e.accuracy > 0.9


def test_rows_for_which_nobody_can_tell_are_no_labels(est, labelled):
    """A window of unsure rows teaches nothing; one sure row among them hardly anything."""
    new = unlabelled(labelled.parts[1])
    plain = gdscore.AccuracyTracker(est)
    labelled.add_labels(day(0), ["?"] * N)
    plain.estimate(unlabelled(labelled.parts[0]), time=day(0))
    assert labelled.estimate(new, time=day(4)) == plain.estimate(new, time=day(4)) == est.estimate(new)
    assert np.isnan(labelled.coverage())
    labelled.add_labels(day(0), ["?"] * (N - 1) + [0])
    ((*_, window),) = [item for item in labelled.items() if item[0].day == 1]
    assert (window.n_labels, window.unsure) == (1, N - 1)
    assert window.variance > 0.25  # more than of a share that is not known at all


def test_late_labels_after_keep_has_passed(est, rng):
    """The predictions are gone: labelled outputs or a number still tell."""
    track = gdscore.AccuracyTracker(est, keep=timedelta(days=2))
    parts = [outputs(N, 1.5, rng) for _ in range(5)]
    for number, out in enumerate(parts):
        track.estimate(unlabelled(out), time=day(number))
    with pytest.raises(gdscore.GdscoreError, match="`keep` has passed"):
        track.add_labels(day(0), parts[0].labels)
    track.add_labels(day(0), parts[0])
    track.add_accuracy(day(1), 0.7)
    track.add_labels(day(2), parts[2].labels)
    frame = track.windows("pandas")
    assert frame.labels.tolist() == [N, N, N, 0, 0]
    assert frame.truth[:3].tolist() == pytest.approx([parts[0].accuracy, 0.7, parts[2].accuracy])


def test_labels_of_an_older_version_after_keep_has_passed(est, rng):
    """Labelled outputs would be those of the new model: only the accuracy is left to give."""
    track = gdscore.AccuracyTracker(est, keep=timedelta(days=2))
    out = outputs(N, 1.5, rng)
    for number in (0, 5):
        track.estimate(unlabelled(out), time=day(number))
        track.replace_model(est)
    with pytest.raises(gdscore.GdscoreError, match=r"its accuracy .* add_accuracy"):
        track.add_labels(day(0), out.labels)
    track.add_accuracy(day(0), out.accuracy)


def test_a_stream_of_labelled_outputs_is_one_window(track, rng):
    parts = [outputs(N, 1.5, rng) for _ in range(2)]
    track.add_labels(day(0), iter(parts))
    track.estimate(unlabelled(parts[0]), time=day(1))
    track.add_labels(day(1), (label for label in parts[0].labels.tolist()))
    assert track.windows("pandas").labels.tolist() == [2 * N, N]


def test_segments_come_and_go(est, rng):
    track = gdscore.AccuracyTracker(est)
    for number, segments in enumerate((["a", "b"], ["a"], ["b", "c"], ["c"], ["a", "d"])):
        out, by = outputs(N * len(segments), 1.5, rng), np.repeat(segments, N)
        estimates = track.estimate(unlabelled(out), time=day(number), by=by)
        assert set(estimates) == set(segments)
        track.add_labels(day(number), out.labels)
    assert estimates["a"].answers
    assert not estimates["d"].answers  # a new one begins with its estimate without labels
    assert len(track.windows("pandas")) == 8
    assert gdscore.AccuracyTracker.load(track.to_bytes()).to_bytes() == track.to_bytes()


@pytest.mark.parametrize("level", [0.5, 0.99, 0.999])
def test_levels_far_from_the_default(est, rng, level):
    track = gdscore.AccuracyTracker(est, level=level)
    for number in range(40):
        out = outputs(60, 1.5, rng)
        e = track.estimate(unlabelled(out), time=day(number))
        assert 0 <= e.low <= e.accuracy <= e.high <= 1
        track.add_labels(day(number), out.labels)
    assert track.coverage() == pytest.approx(level, abs=0.2)


def test_labels_of_an_older_version_come_after_the_new_one(est, rng):
    """In whatever order labels of both versions come, the tracker ends the same."""
    better = gdscore.AccuracyEstimator().fit(outputs(2000, 0.8, np.random.default_rng(9)))
    parts, states = [outputs(N, 1.5, rng) for _ in range(5)], []
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        track = gdscore.AccuracyTracker(est)
        for number in range(4):
            if number == 2:
                track.replace_model(better)
            track.estimate(unlabelled(parts[number]), time=day(number))
        for number in order:
            track.add_labels(day(number), parts[number].labels)
        track.estimate(unlabelled(parts[4]), time=day(4))
        states.append(track.to_bytes())
    assert states[0] == states[1]


def test_ties_of_probabilities(est):
    """The first of the classes is predicted, in the window and for its labels."""
    track = gdscore.AccuracyTracker(est)
    for number in range(4):
        e = track.estimate(gdscore.Outputs(probabilities=np.full((N, 3), 1 / 3)), time=day(number))
        track.add_labels(day(number), ZEROS)
    assert e.accuracy > 0.5
    assert track.windows("pandas").truth.tolist() == [1.0] * 4


def test_labels_of_an_index_and_of_other_libraries(labelled):
    labelled.add_labels(day(1), pd.Series([0, 1], index=[4, 5]).to_dict())
    labelled.add_labels(day(2), pd.Series(np.zeros(N, dtype=int), index=np.arange(N)[::-1]))
    assert labelled.windows("pandas").labels.tolist() == [N, 2, N]
    shuffled = np.random.default_rng(0).permutation(N)
    labelled.add_labels(day(2), pd.Series(labelled.parts[2].labels[shuffled], index=shuffled))
    assert labelled.windows("pandas").truth[2] == labelled.parts[2].accuracy


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.sampled_from(["estimate", "all", "some", "number", "none", "save"])),
        max_size=12,
    )
)
def test_any_sequence_of_calls_leaves_a_tracker_that_can_be_saved(est, calls):
    rng = np.random.default_rng(7)
    parts = [outputs(30, 2.0, rng) for _ in range(5)]
    track, seen = gdscore.AccuracyTracker(est), set()
    for number, call in calls:
        out = parts[number]
        if call == "estimate":
            e = track.estimate(unlabelled(out), time=day(number))
            assert 0 <= e.low <= e.accuracy <= e.high <= 1
            seen.add(number)
        elif call == "save":
            track = gdscore.AccuracyTracker.load(track.to_bytes())
        elif number in seen:
            if call == "number":
                track.add_accuracy(day(number), 0.5, n_rows=10)
            else:
                rows = {"all": np.arange(30), "some": np.arange(0, 30, 7), "none": np.arange(0)}[call]
                track.add_labels(day(number), out.labels[rows], rows=rows)
    assert len(track) == len(seen)
    again = gdscore.AccuracyTracker.load(track.to_bytes())
    assert again.to_bytes() == track.to_bytes()
    new = unlabelled(parts[0])
    assert again.estimate(new, time=day(9)) == track.estimate(new, time=day(9))


def test_a_saved_tracker_goes_on_as_if_it_had_never_stopped(est, tmp_path, rng):
    parts = [outputs(60, 2.0, rng) for _ in range(8)]
    by = np.repeat(["a", "b"], 30)
    whole, resumed = (gdscore.AccuracyTracker(est, level=0.8, keep=timedelta(days=30)) for _ in range(2))
    for number, out in enumerate(parts):
        for track in (whole, resumed):
            track.estimate(unlabelled(out), time=day(number), by=by)
            if number:
                track.add_labels(day(number - 1), parts[number - 1].labels[:40], rows=np.arange(40))
        resumed.save(tmp_path / "m.track")
        resumed = gdscore.AccuracyTracker.load(tmp_path / "m.track")
    assert whole.to_bytes() == resumed.to_bytes()
    assert (resumed.level, resumed.keep, len(resumed)) == (0.8, timedelta(days=30), 8)
    assert resumed.windows("pandas").equals(whole.windows("pandas"))


def test_an_interrupted_save_leaves_the_file_that_was_there(labelled, tmp_path, monkeypatch):
    file = tmp_path / "m.track"
    labelled.save(file)
    before = file.read_bytes()
    labelled.add_labels(day(1), labelled.parts[1].labels)

    def fails(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr(files.os, "replace", fails)
    monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises((OSError, gdscore.GdscoreError)):
        labelled.save(file)
    assert file.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["m.track"]
    assert len(gdscore.AccuracyTracker.load(file)) == 3


def test_damaged_files_are_refused(labelled):
    raw = labelled.to_bytes()
    rng = np.random.default_rng(0)
    for _ in range(60):
        at = int(rng.integers(len(raw)))
        changed = bytearray(raw)
        changed[at] ^= 1 << int(rng.integers(8))
        try:
            again = gdscore.AccuracyTracker.load(bytes(changed))
        except gdscore.GdscoreError:
            continue
        assert len(again) == 3  # a byte of a zip's directory that means nothing
    for cut in (0, 10, len(raw) // 2, len(raw) - 5):
        with pytest.raises(gdscore.GdscoreError):
            gdscore.AccuracyTracker.load(raw[:cut])
    with pytest.raises(gdscore.GdscoreError, match="gdscore tracker"):
        gdscore.AccuracyTracker.load(labelled.estimator.to_bytes())


@pytest.mark.parametrize("change", [{"n_rows": 0}, {"low": 2.0}, {"time": "never"}, {"classes": [-1]}, {"more": 1}])
def test_a_window_of_wrong_facts_is_refused(change):
    facts = TrackedWindow(day(0), 10, 0.5, 0.5).to_dict()
    with pytest.raises(gdscore.GdscoreError):
        TrackedWindow.from_dict({**facts, **change})


def test_readers_in_other_threads_see_whole_windows(labelled):
    """The table can be read while labels come in."""
    stop, problems = threading.Event(), []

    def read():
        while not stop.is_set():
            try:
                frame = labelled.windows("pandas")
                assert set(frame.labels) <= {0, N}
            except Exception as error:
                problems.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(20):
        for number in range(3):
            labelled.add_labels(day(number), labelled.parts[number].labels)
    stop.set()
    reader.join()
    assert not problems
