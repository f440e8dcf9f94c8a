"""Estimates of a history rest on the labels of earlier windows, as those of `AccuracyTracker`."""

import dataclasses

import numpy as np
import pytest

import gdscore
from gdscore.monitor.rules import Rules
from tests.monitor.conftest import day, estimate, make_outputs

DELAY = 3


@pytest.fixture(scope="module")
def other():
    return gdscore.AccuracyEstimator().fit(make_outputs(800, 1.1, 50))


def stream(days, rows=300, start=0):
    """Labelled outputs of each day; the model gets worse in steps."""
    return [make_outputs(rows, 1.0 + 0.5 * (n // 6), 100 + start + n) for n in range(days)]


def unlabelled(outputs):
    return gdscore.Outputs(logits=outputs.logits, features=outputs.features)


def numbers(window):
    return [window["accuracy"], window["low"], window["high"], window["label_free"]]


def compare(added, e):
    free = e.accuracy if e.label_free is None else e.label_free.value
    assert numbers(added) == pytest.approx([e.accuracy, e.low, e.high, free], abs=1e-9)


def test_estimates_are_those_of_a_tracker(monitor, fitted, other):
    monitor.register("m", fitted)
    track = gdscore.AccuracyTracker(fitted)
    days = stream(20)
    for n, outputs in enumerate(days):
        if n == 12:
            monitor.register("m", other, version="2")
            track.replace_model(other)
        if n == 9:
            continue  # a gap
        [added] = monitor.add("m", unlabelled(outputs), day(n))
        compare(added, track.estimate(unlabelled(outputs), day(n)))
        late = n - DELAY
        if late >= 0 and late != 9:
            if late % 3 == 1:
                share = days[late].accuracy
                track.add_accuracy(day(late), round(share * 200) / 200, 200)
                monitor.add_labels("m", day(late), correct=round(share * 200), rows=200, version=version(late))
            else:
                track.add_labels(day(late), days[late].labels)
                monitor.add_labels("m", day(late), days[late], version=version(late))
    assert added["last_known"] == days[20 - 1 - DELAY - 1].accuracy


def version(n):
    return "2" if n >= 12 else "1"


def test_a_window_that_comes_late_rests_on_labels_before_it_only(monitor, fitted):
    monitor.register("m", fitted)
    days = stream(6)
    for n in (0, 1, 3, 4):
        monitor.add("m", unlabelled(days[n]), day(n))
        monitor.add_labels("m", day(n), days[n])
    [added] = monitor.add("m", unlabelled(days[2]), day(2))
    track = gdscore.AccuracyTracker(fitted)
    for n in (0, 1):
        track.estimate(unlabelled(days[n]), day(n))
        track.add_labels(day(n), days[n].labels)
    compare(added, track.estimate(unlabelled(days[2]), day(2)))
    assert added["last_known"] == days[1].accuracy


def test_labels_of_rows_count_by_class_and_corrected_ones_replace(monitor, fitted):
    monitor.register("m", fitted, rules={"keep_rows": "900000d"})
    track = gdscore.AccuracyTracker(fitted)
    outputs = make_outputs(300, 1.5, 1)
    ids = np.array([f"r{k}" for k in range(300)])
    monitor.add("m", gdscore.Outputs(logits=outputs.logits, features=outputs.features, ids=ids), day(0))
    track.estimate(unlabelled(outputs), day(0))
    truth = np.asarray(outputs.labels)
    monitor.add_row_labels("m", ids[:120], (truth[:120] + 1) % 5)  # wrong ones, which are then corrected
    monitor.add_row_labels("m", ids[:120], truth[:120])
    track.add_labels(day(0), truth[:120], rows=np.arange(120))
    later = unlabelled(make_outputs(300, 1.5, 2))
    [added] = monitor.add("m", gdscore.Outputs(logits=later.logits, features=later.features, ids=ids), day(1))
    compare(added, track.estimate(later, day(1)))


def test_a_segment_learns_from_the_labels_of_the_others(monitor, fitted):
    rng = np.random.default_rng(0)
    monitor.register("m", fitted)
    errors = []
    for n in range(8):
        outputs, by = make_outputs(400, 2.0, n), {"of": rng.integers(0, 2, 400)}
        added = monitor.add("m", unlabelled(outputs), day(n), by)
        one, none = (next(w for w in added if w["segment"] == f"of={k}") for k in (1, 0))
        truth = outputs[np.flatnonzero(by["of"] == 0)].accuracy
        errors.append([none["accuracy"] - truth, none["label_free"] - truth])
        monitor.add_labels("m", day(n), outputs)
        monitor.add_labels("m", day(n), outputs[np.flatnonzero(by["of"] == 1)], segment="of=1")
    assert one["last_known"] is not None
    assert none["last_known"] is None  # it has no labels of its own, but those of all rows help it
    tracked, free = np.abs(errors[2:]).mean(axis=0)
    assert tracked < 0.7 * free


def test_intervals_narrow_as_labels_come(monitor, fitted):
    monitor.register("m", fitted)
    for n in range(15):
        outputs = make_outputs(500, 1.6, n)
        monitor.add("m", unlabelled(outputs), day(n))
        monitor.add_labels("m", day(n), outputs)
    windows = monitor.windows("m")
    widths = (windows.high - windows.low).to_numpy()
    assert widths[-5:].mean() < 0.7 * widths[0]
    truth, after = windows.truth, slice(3, None)
    assert (windows.accuracy - truth)[after].abs().mean() < (windows.label_free - truth)[after].abs().mean()


def test_tracking_can_be_turned_off(monitor, fitted):
    monitor.register("m", fitted, rules=Rules(tracking=False))
    for n, outputs in enumerate(stream(3)):
        [added] = monitor.add("m", unlabelled(outputs), day(n))
        monitor.add_labels("m", day(n), outputs)
    assert added["accuracy"] == added["label_free"] == fitted.estimate(unlabelled(outputs)).accuracy
    assert added["last_known"] is None


def test_estimates_that_rest_on_labels_already_are_kept_as_they_are(monitor):
    monitor.register("m")
    monitor.add_estimate("m", estimate(0.9), day(0))
    monitor.add_labels("m", day(0), correct=600, rows=900)
    free = gdscore.estimator.Quantity(0.9, 0.87, 0.93)
    made = dataclasses.replace(estimate(0.7), method="tracked", label_free=free)
    added = monitor.add_estimate("m", made, day(1))
    assert (added["accuracy"], added["label_free"]) == (0.7, 0.9)


def test_adding_a_window_again_after_its_labels_is_no_change(monitor, fitted):
    monitor.register("m", fitted)
    days = stream(3)
    for n in (0, 1):
        monitor.add("m", unlabelled(days[n]), day(n))
        monitor.add_labels("m", day(n), days[n])
    [first] = monitor.add("m", unlabelled(days[2]), day(2))
    monitor.add_labels("m", day(1), correct=10, rows=300)
    [again] = monitor.add("m", unlabelled(days[2]), day(2))
    assert numbers(again) == numbers(first)
    assert not again["new"]


def test_the_alarm_of_the_test_says_that_it_looks_at_the_estimate_without_labels(monitor):
    monitor.register("m", reference_rows=5000)
    monitor.add_estimate("m", estimate(0.9), day(0))
    monitor.add_labels("m", day(0), correct=60, rows=100)
    monitor.add_estimate("m", estimate(0.4), day(1))
    [message] = monitor.alarms("m").query("rule == 'sequential'").message
    assert "the estimate without labels has fallen from 90.0% to 40.0%" in message
    assert f"with labels of earlier windows {monitor.windows('m').accuracy[1]:.1%}" in message


def test_an_alarm_without_labels_names_none(monitor):
    monitor.register("m", reference_rows=5000)
    for n, accuracy in enumerate((0.9, 0.4)):
        monitor.add_estimate("m", estimate(accuracy), day(n))
    [message] = monitor.alarms("m").query("rule == 'sequential'").message
    assert message.startswith("m: the estimated accuracy has fallen from 90.0% to 40.0%")
    assert "labels" not in message


def test_labels_show_whether_an_interval_held(monitor, fitted):
    from sqlalchemy import select

    from gdscore.monitor.schema import Window

    monitor.register("m", fitted)
    for n in range(4):
        outputs = make_outputs(500, 1.6, n)
        monitor.add("m", unlabelled(outputs), day(n))
        correct = 500 if n == 3 else round(500 * outputs.accuracy)
        monitor.add_labels("m", day(n), correct=correct, rows=500)
    with monitor.reading() as session:
        missed = session.scalars(select(Window.missed).order_by(Window.start)).all()
    assert missed[0] is None  # nothing was known before it
    assert missed[3] is True
    assert missed[1] is False


def test_a_sudden_drop_that_labels_show_is_an_alarm(monitor, fitted):
    monitor.register("m", fitted)
    for n in range(10):
        outputs = make_outputs(500, 1.2, n)
        [added] = monitor.add("m", unlabelled(outputs), day(n))
        monitor.add_labels("m", day(n), correct=round(500 * (outputs.accuracy - 0.4 * (n >= 8))), rows=500)
    alarms = monitor.alarms("m")
    assert "sudden_drop" in [w["code"] for w in added["warnings"]]
    assert alarms[alarms.rule == "warning:sudden_drop"].raised.tolist() == [day(9)]
