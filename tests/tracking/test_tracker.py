"""`AccuracyTracker`: what labels change and what they do not, in whatever order they come."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pandas as pd
import pytest

import gdscore
from gdscore.tracking import ANSWERS
from gdscore.tracking import tracker as module
from gdscore.tracking.windows import TrackedWindow, sudden_change
from tests.tracking.conftest import day, outputs, unlabelled


def run(track, parts, delay=1):
    """Estimates of windows that come day by day, whose labels come later."""
    estimates = []
    for number, out in enumerate(parts):
        if number >= delay:
            track.add_labels(day(number - delay), parts[number - delay].labels)
        estimates.append(track.estimate(unlabelled(out), time=day(number)))
    return estimates


def test_without_labels_it_is_the_estimator(track, est, rng):
    for number in range(4):
        out = unlabelled(outputs(300, 2.0, rng))
        assert track.estimate(out, time=day(number)) == est.estimate(out)
    by = np.array(["a", "b", "b"] * 100)
    other = gdscore.AccuracyTracker(est)
    assert other.estimate(out, time=day(9), by=by) == est.estimate(out, by=by)
    assert np.isnan(track.coverage())


def test_labels_make_a_blind_model_visible(track, rng):
    """Labels that have nothing to do with the outputs: label-free estimates stay high, tracked ones follow."""
    parts = []
    for _ in range(12):
        out = outputs(300, 1.0, rng)
        parts.append(gdscore.Outputs(logits=out.logits, labels=rng.integers(0, 3, 300)))
    estimates = run(track, parts)
    assert estimates[0].accuracy > 0.9
    assert estimates[-1].accuracy == pytest.approx(1 / 3, abs=0.1)
    assert estimates[-1].label_free.value > 0.9
    assert estimates[-1].method == "tracked"
    assert sum(estimates[-1].answers.values()) == pytest.approx(1)
    assert "rests on" in str(estimates[-1])
    assert "from 3,300 labels of 11 windows, the newest 1 day old" in str(estimates[-1])
    assert gdscore.Estimate.from_dict(estimates[-1].to_dict()) == estimates[-1]


def test_a_sudden_change_is_a_warning(track, rng):
    parts = [outputs(400, 1.5, rng) for _ in range(14)]
    shuffled = [gdscore.Outputs(logits=p.logits, labels=rng.permutation(np.asarray(p.labels))) for p in parts[10:]]
    estimates = run(track, parts[:10] + shuffled)
    assert all(not w.code.startswith("sudden") for e in estimates[:11] for w in e.warnings)
    assert any((w.code, w.severity) == ("sudden_drop", "warning") for w in estimates[11].warnings)
    window = TrackedWindow(day(0), 400, 0.8, 0.8, 0.8, 0.75, 0.85, n_labels=400)
    for right, code in ((400, "sudden_rise"), (330, None), (100, "sudden_drop")):
        change = sudden_change([replace(window, n_right=right), *[replace(window, n_right=320)] * 2])
        assert (None if change is None else change.code) == code
    assert sudden_change([replace(window, n_right=100), *[replace(window, n_right=320)] * 3]) is None  # long ago


def test_an_answer_once_given_is_kept_and_its_own_labels_are_the_truth(track, rng):
    parts = [outputs(300, 2.0, rng) for _ in range(5)]
    estimates = run(track, parts)
    track.add_labels(day(4), parts[4].labels)
    frame = track.windows("pandas")
    assert frame.accuracy.tolist() == [e.accuracy for e in estimates]
    assert frame.truth.tolist() == pytest.approx([p.accuracy for p in parts])
    assert frame.accuracy_now.tolist() == pytest.approx([p.accuracy for p in parts])
    assert ((frame.low_now < frame.truth) & (frame.truth < frame.high_now)).all()
    assert frame.unchanged.tolist() == [estimates[0].reference_accuracy] * 5
    assert frame.last_known.tolist()[1:] == pytest.approx([p.accuracy for p in parts[:-1]])
    assert np.isnan(frame.last_known[0])
    assert frame.labels.tolist() == [300] * 5
    assert frame.labels_then.tolist() == [0, 300, 600, 900, 1200]
    again = track.estimate(unlabelled(parts[4]), time=day(4))
    assert again.accuracy == pytest.approx(parts[4].accuracy)
    assert again.answers == {"labels of this window": 1.0}
    assert track.windows("pandas").accuracy.tolist() == frame.accuracy.tolist()


@pytest.mark.parametrize("order", ["forwards", "backwards", "random"])
def test_the_order_in_which_labels_come_does_not_matter(est, order):
    rng = np.random.default_rng(5)
    parts = [outputs(200, 1.0 + 0.2 * k, rng) for k in range(10)]
    results = []
    for numbers in (
        range(10),
        {"forwards": range(10), "backwards": range(9, -1, -1), "random": rng.permutation(10)}[order],
    ):
        track = gdscore.AccuracyTracker(est)
        for number, out in enumerate(parts):
            track.estimate(unlabelled(out), time=day(number))
        for number in numbers:
            track.add_labels(day(int(number)), parts[int(number)].labels)
        results.append(track.estimate(unlabelled(parts[0]), time=day(11)))
    assert results[0] == results[1]


def test_windows_may_come_in_any_order(est, rng):
    parts = [outputs(200, 1.5, rng) for _ in range(6)]
    forwards, backwards = gdscore.AccuracyTracker(est), gdscore.AccuracyTracker(est)
    for track, numbers in ((forwards, range(6)), (backwards, range(5, -1, -1))):
        for number in numbers:
            track.estimate(unlabelled(parts[number]), time=day(number))
        for number in range(6):
            track.add_labels(day(number), parts[number].labels)
    new = unlabelled(outputs(200, 1.5, rng))
    assert forwards.estimate(new, time=day(7)) == backwards.estimate(new, time=day(7))
    assert forwards.windows("pandas").time.is_monotonic_increasing
    assert backwards.windows("pandas").time.is_monotonic_increasing


def test_corrected_labels_replace(est, rng):
    """A tracker that got wrong labels first is, after the correction, the one that got the right ones."""
    parts = [outputs(200, 1.5, rng) for _ in range(4)]
    plain, corrected = gdscore.AccuracyTracker(est), gdscore.AccuracyTracker(est)
    for number, out in enumerate(parts):
        for track in (plain, corrected):
            track.estimate(unlabelled(out), time=day(number))
    for number, out in enumerate(parts):
        corrected.add_labels(day(number), rng.permutation(np.asarray(out.labels)))
        plain.add_labels(day(number), out.labels)
    for number, out in enumerate(parts):
        corrected.add_labels(day(number), out.labels, rows=np.arange(200))
    new = unlabelled(outputs(200, 1.5, rng))
    assert plain.estimate(new, time=day(5)) == corrected.estimate(new, time=day(5))
    assert plain.coverage() == corrected.coverage()


def test_labels_of_the_future_and_the_window_itself_do_not_enter_an_answer(est, rng):
    parts = [outputs(200, 1.5, rng) for _ in range(6)]
    track, without = gdscore.AccuracyTracker(est), gdscore.AccuracyTracker(est)
    for number in (0, 1, 3, 4, 5):
        track.estimate(unlabelled(parts[number]), time=day(number))
        without.estimate(unlabelled(parts[number]), time=day(number))
    for number in (0, 1, 3, 4, 5):
        track.add_labels(day(number), parts[number].labels)
        if number < 2:
            without.add_labels(day(number), parts[number].labels)
    late, other = (t.estimate(unlabelled(parts[2]), time=day(2)) for t in (track, without))
    assert late.accuracy == other.accuracy
    assert late.answers == other.answers


def test_some_rows_count_with_their_sampling_error(est, rng):
    track = gdscore.AccuracyTracker(est)
    out = outputs(1000, 2.0, rng)
    track.estimate(unlabelled(out), time=day(0))
    rows = rng.choice(1000, 50, replace=False)
    track.add_labels(day(0), out.labels[rows[:20]], rows=rows[:20])
    track.add_labels(day(0), dict(zip(rows[20:].tolist(), out.labels[rows[20:]].tolist(), strict=True)))
    window = track.windows("pandas").iloc[0]
    assert window.labels == 50
    assert window.truth == pytest.approx(out.correct[rows].mean())
    assert min(window.accuracy, window.truth) <= window.accuracy_now <= max(window.accuracy, window.truth)
    assert window.high_now - window.low_now < window.high - window.low
    again = track.estimate(unlabelled(out), time=day(0))
    assert again.accuracy == pytest.approx(window.accuracy_now)
    assert 0 < again.answers["labels of this window"] < 1
    # The more labels, the narrower, to the sampling error of the window's own rows.
    widths = []
    for count in (10, 50, 200, 1000):
        other = gdscore.AccuracyTracker(est)
        other.estimate(unlabelled(out), time=day(0))
        other.add_labels(day(0), out.labels[:count], rows=np.arange(count))
        one = other.windows("pandas").iloc[0]
        widths.append(one.high_now - one.low_now)
    assert widths == sorted(widths, reverse=True)


def test_rows_that_choose_drew_count_for_more_than_random_ones(est, rng):
    out = outputs(2000, 2.5, rng)
    target = unlabelled(out)
    rows = gdscore.labeling.choose(est, target, budget=200)
    trackers = [gdscore.AccuracyTracker(est) for _ in range(2)]
    for track in trackers:
        track.estimate(target, time=day(0))
    trackers[0].add_labels(day(0), out.labels[rows.rows], rows=rows)
    trackers[1].add_labels(day(0), out.labels[rows.rows], rows=rows.rows)
    chosen, random = (next(iter(t.items()))[2] for t in trackers)
    assert chosen.known == random.known
    assert chosen.variance < random.variance
    assert chosen.ratio < 1 == random.ratio


def test_names_missing_labels_and_question_marks(rng):
    names = ("no", "yes")
    y = rng.integers(0, 2, 1000)
    logits = 2 * np.eye(2)[y] + rng.normal(size=(1000, 2))
    est = gdscore.AccuracyEstimator().fit(gdscore.Outputs(logits=logits, labels=y, class_names=names))
    track = gdscore.AccuracyTracker(est)
    out = gdscore.Outputs(logits=logits[:6], class_names=names)
    track.estimate(out, time="2026-01-01")
    track.add_labels("2026-01-01", ["yes", None, "no", "", "?", float("nan")])
    (window,) = (w for *_, w in track.items())
    assert (window.n_labels, window.unsure) == (2, 1)
    track.add_labels("2026-01-01", pd.Series(["yes"] * 6))
    (window,) = (w for *_, w in track.items())
    assert (window.n_labels, window.classes) == (6, [0, 6])


def test_only_a_number_comes_back(track, rng):
    out = unlabelled(outputs(300, 2.0, rng))
    track.estimate(out, time=day(0))
    track.add_accuracy(day(0), 0.5, n_rows=100)
    window = track.windows("pandas").iloc[0]
    assert (window.truth, window.labels) == (0.5, 100)
    track.add_accuracy(time=day(0), accuracy=0.25)
    assert track.windows("pandas").iloc[0].labels == 300
    e = track.estimate(out, time=day(1))
    assert e.accuracy < e.label_free.value - 0.2


def test_labelled_outputs_need_no_kept_predictions(est, rng):
    parts = [outputs(200, 1.5, rng) for _ in range(4)]
    usual, history = gdscore.AccuracyTracker(est), gdscore.AccuracyTracker(est, keep=timedelta(hours=1))
    for number, out in enumerate(parts):
        usual.estimate(unlabelled(out), time=day(number))
        history.estimate(unlabelled(out), time=day(number))
    usual.add_labels(day(0), parts[0].labels)
    with pytest.raises(gdscore.GdscoreError, match="labelled outputs for the window of 2026-01-01"):
        history.add_labels(day(0), parts[0].labels)
    history.add_labels(day(0), parts[0])
    usual.add_labels(day(1), parts[1][:50])
    history.add_labels(day(1), parts[1][:50])
    new = unlabelled(outputs(200, 1.5, rng))
    assert usual.estimate(new, time=day(5)) == history.estimate(new, time=day(5))


def test_labelled_windows_from_before_are_history(est, rng):
    """Windows that were never estimated count as known, and are no answers of the tracker's."""
    parts = [outputs(300, 2.5, rng) for _ in range(5)]
    track = gdscore.AccuracyTracker(est)
    for number, out in enumerate(parts):
        track.add_labels(day(number), out)
    e = track.estimate(unlabelled(outputs(300, 2.5, rng)), time=day(5))
    assert e.accuracy == pytest.approx(np.mean([p.accuracy for p in parts]), abs=0.06)
    frame = track.windows("pandas")
    assert frame.accuracy[:5].isna().all()
    assert frame.truth[:5].notna().all()
    assert np.isnan(track.coverage())


def test_segments_share_what_their_errors_have_in_common(est, rng):
    """Labels of two segments tell something of a third one, which has few or none of its own."""
    track = gdscore.AccuracyTracker(est)
    by = np.repeat(["large", "other", "small"], [400, 400, 60])
    for number in range(6):
        out = outputs(860, 1.0, rng)
        wrong = gdscore.Outputs(
            logits=out.logits, labels=np.where(rng.random(860) < 0.4, (out.labels + 1) % 3, out.labels)
        )
        estimates = track.estimate(unlabelled(out), time=day(number), by=by)
        rows = np.flatnonzero(by != "small")
        track.add_labels(day(number), wrong.labels[rows], rows=rows)
    assert estimates["small"].accuracy < 0.72
    assert estimates["small"].label_free.value > 0.9
    assert estimates["large"].accuracy == pytest.approx(0.6, abs=0.07)
    frame = track.windows("pandas")
    assert set(frame.segment) == {"large", "other", "small"}
    assert frame[frame.segment == "small"].labels.sum() == 0


def test_segments_are_each_their_own(est, rng):
    """With many labels of each, a segment that is worse is seen as worse."""
    track = gdscore.AccuracyTracker(est)
    by = pd.DataFrame({"country": np.repeat(["fr", "de"], 400)})
    for number in range(6):
        y, bad = rng.integers(0, 3, 800), np.repeat([False, True], 400)
        logits = 3 * np.eye(3)[y] + rng.normal(size=(800, 3))
        labels = np.where(bad & (rng.random(800) < 0.6), (y + 1) % 3, y)
        estimates = track.estimate(gdscore.Outputs(logits=logits), time=day(number), by=by)
        track.add_labels(day(number), labels)
    assert list(estimates) == ["de", "fr"]
    assert estimates["de"].accuracy < 0.5 < 0.85 < estimates["fr"].accuracy
    assert "country=de" in set(track.windows("pandas").segment)
    with pytest.raises(gdscore.GdscoreError, match="outputs and segments"):
        track.estimate(gdscore.Outputs(logits=logits), time=day(5), by=by[::-1].reset_index(drop=True))
    track.add_accuracy(day(5), 0.9, by="fr")
    again = track.estimate(gdscore.Outputs(logits=logits), time=day(5), by=by)
    assert again.truth["fr"] == pytest.approx(0.9)


def test_the_last_known_accuracy_is_no_handful_of_labels(est, rng):
    track = gdscore.AccuracyTracker(est)
    parts = [outputs(100, 1.5, rng) for _ in range(3)]
    track.estimate(unlabelled(parts[0]), time=day(0))
    track.estimate(unlabelled(parts[1]), time=day(1))
    track.add_labels(day(1), parts[1].labels[:1], rows=[0])
    track.estimate(unlabelled(parts[2]), time=day(2))
    one_row = float(parts[1].correct[0])
    assert track.windows("pandas").last_known[2] == one_row  # all that is known
    track.add_labels(day(0), parts[0].labels)
    track.estimate(unlabelled(parts[2]), time=day(2))
    assert track.windows("pandas").last_known[2] == parts[0].accuracy


def test_times_in_every_form(est, rng):
    track = gdscore.AccuracyTracker(est)
    forms = ["2026-01", pd.Period("2026-02"), date(2026, 3, 1), np.datetime64("2026-04-01"), pd.Timestamp("2026-05-01")]
    for form in forms:
        track.estimate(unlabelled(outputs(100, 1.5, rng)), time=form)
    assert [t.month for t in track.windows("pandas").time] == [1, 2, 3, 4, 5]
    zoned = datetime(2026, 6, 1, 1, tzinfo=timezone(timedelta(hours=2)))
    track.estimate(unlabelled(outputs(100, 1.5, rng)), time=zoned)
    assert track.windows("pyarrow").schema.field("time").type.tz == "UTC"
    track.add_accuracy("2026-05-31T23:00Z", 0.5)


def test_gaps_and_irregular_times(est, rng):
    track = gdscore.AccuracyTracker(est)
    number = 0.0
    for _ in range(12):
        number += rng.choice([0.1, 1.0, 1.0, 1.3, 40.0])
        out = outputs(int(rng.integers(20, 400)), 2.0, rng)
        e = track.estimate(unlabelled(out), time=day(number))
        assert 0 <= e.low <= e.accuracy <= e.high <= 1
        track.add_labels(day(number), out.labels)


def test_a_new_version_starts_from_the_history_with_more_doubt(est, rng):
    parts = [outputs(400, 2.5, rng) for _ in range(8)]
    track = gdscore.AccuracyTracker(est)
    run(track, parts)
    before = track.estimate(unlabelled(parts[0]), time=day(8))
    better = gdscore.AccuracyEstimator().fit(outputs(2000, 0.8, np.random.default_rng(9)))
    track.replace_model(better)
    after = track.estimate(unlabelled(parts[0]), time=day(8))
    assert after.reference_accuracy == better.reference_accuracy_
    assert after.answers
    assert after.high - after.low >= before.high - before.low - 0.02
    track.add_labels(day(7), parts[7].labels)  # of the old version
    other = gdscore.Outputs(logits=rng.normal(size=(2000, 4)), labels=rng.integers(0, 4, 2000))
    track.replace_model(gdscore.AccuracyEstimator().fit(other))
    assert track.estimate(gdscore.Outputs(logits=rng.normal(size=(50, 4))), time=day(9)).n_rows == 50


def test_memory_of_labelled_windows_does_not_grow_with_their_rows(est, rng, monkeypatch):
    monkeypatch.setattr(module, "CORRECTABLE", 2)
    sizes = []
    for rows in (50, 2000):
        track = gdscore.AccuracyTracker(est)
        empty = len(track.to_bytes())
        for number in range(6):
            out = outputs(rows, 1.5, rng)
            track.estimate(unlabelled(out), time=day(number))
            track.add_labels(day(number), out.labels)
        kept = sum(g.predictions is not None for g in track._groups.values())
        assert kept == 2
        sizes.append(len(track.to_bytes()) - empty)
    # Two windows of one byte for a prediction and one for a label; numbers of windows may have more digits.
    assert sizes[1] - sizes[0] == pytest.approx(2 * 2 * (2000 - 50), abs=400)
    with pytest.raises(gdscore.GdscoreError, match="all labels were in"):
        track.add_labels(day(0), np.zeros(2000, dtype=int))


def test_coverage_counts_intervals_that_held(track, rng):
    parts = [outputs(300, 1.5, rng) for _ in range(8)]
    run(track, parts)
    frame = track.windows("pandas")
    seen = frame.dropna(subset=["truth"])
    held = (seen.low <= seen.truth) & (seen.truth <= seen.high)
    assert track.coverage() == pytest.approx(held.mean())
    assert ((1 - held) == seen.missed).all()


def test_merging_is_refused_with_the_reason(track, est):
    with pytest.raises(gdscore.GdscoreError, match="no one history"):
        track.merge(gdscore.AccuracyTracker(est))


def test_the_level_is_the_trackers_own(est, rng):
    out = unlabelled(outputs(300, 2.0, rng))
    narrow, wide = (gdscore.AccuracyTracker(est, level=level).estimate(out, time=day(0)) for level in (0.5, 0.95))
    assert (narrow.level, wide.level, est.level) == (0.5, 0.95, 0.9)
    assert wide.high - wide.low > narrow.high - narrow.low


def test_the_picture_has_every_window_and_the_weights(track, rng):
    run(track, [outputs(200, 1.5, rng) for _ in range(6)])
    figure = track.plot()
    above, beneath = figure.axes
    assert [len(line.get_xdata()) for line in above.lines] == [6] * 4
    assert len(beneath.collections) == len(ANSWERS)
    assert figure.axes[0].get_ylim() == (0, 1)
    with pytest.raises(gdscore.GdscoreError, match="one of the segments"):
        track.plot(segment="fr")


def test_what_a_database_keeps_gives_the_same_estimates(est, rng):
    """The functions of `gdscore.tracking` on windows as dicts, as a monitor calls them."""
    from gdscore.tracking import History, Tally, TrackedWindow, tracked

    parts = [outputs(250, 1.5 + 0.2 * k, rng) for k in range(9)]
    track, kept = gdscore.AccuracyTracker(est), {}
    mix = np.asarray(est.fitted_.correction.profile.mix)
    for number, out in enumerate(parts):
        if number >= 2:
            track.add_labels(day(number - 2), parts[number - 2].labels)
            for when, _, window in track.items():
                kept[when] = window.to_dict()
        expected = track.estimate(unlabelled(out), time=day(number))
        windows = [TrackedWindow.from_dict(facts) for _, facts in sorted(kept.items())]
        past = [w for w in windows if w.n_labels and w.time < day(number).replace(tzinfo=UTC)]
        seconds = [w.time.timestamp() for w in windows]
        state = est.state().update(unlabelled(out))
        outcomes = [w.missed for w in windows if w.error is not None and w.missed is not None]
        history = History(past, seconds, Tally(len(outcomes), sum(outcomes)), (0,), mix)

        def with_class_mix(shares, state=state):
            return est.estimate(state, class_mix=shares)

        found, window, _ = tracked(est.estimate(state), with_class_mix, history, day(number))
        assert found == expected
        kept[day(number).replace(tzinfo=UTC)] = {
            **window.to_dict(),
            "time": f"{day(number).isoformat()}+00:00",
        }
