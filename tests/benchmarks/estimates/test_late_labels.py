"""benchmarks/estimates/late_labels.py: replays agree with the tracker, scores are what they say, and simulated intervals hold."""

import numpy as np
import pytest

import gdscore
from benchmarks.data.streams import STREAMS, Run, numbers, one_hot
from benchmarks.estimates import late_labels
from gdscore.tracking.method import SETTINGS
from tests.tracking.conftest import outputs


@pytest.fixture(scope="module")
def run():
    rng = np.random.default_rng(0)
    noises = [1.5, 1.6, 1.8, 2.5, 2.4, 2.0, 1.5, 1.4, 1.6, 3.0, 2.8, 2.5, 1.2, 1.0]
    return Run("made", "made", outputs(1000, 1.2, rng), [], [outputs(120, noise, rng) for noise in noises])


@pytest.mark.parametrize("labels", late_labels.LABELS)
@pytest.mark.parametrize("delay", [1, 3])
def test_a_replay_of_what_a_tracker_kept_gives_its_answers(run, labels, delay):
    est = gdscore.AccuracyEstimator().fit(run.reference)
    windows = late_labels.play(est, run, labels, delay)
    again = late_labels.replayed(windows, delay, SETTINGS)
    for name in ("accuracy", "low", "high"):
        both = (late_labels.columns(part, name)[0] for part in (windows, again))
        np.testing.assert_allclose(*both, atol=1e-9)


def test_naive_answers_know_only_labels_that_are_old_enough(run):
    found = late_labels.naive_answers(run, "all", 3)
    truth = [window.accuracy for window in run.windows]
    assert found["last known"][:3] == [run.reference.accuracy] * 3
    assert found["last known"][3:] == truth[:-3]
    np.testing.assert_allclose(
        found["exponential mean"][4], (truth[1] * 0.7**3 + truth[0] * 0.7**4) / (0.7**3 + 0.7**4)
    )


def test_scores():
    truth = np.array([0.5, 0.6, 0.7])
    row = late_labels.scored(truth, [0.0, 0.6, 0.6], [0, 0.5, 0.5], [1, 0.7, 0.65], first=1)
    assert row == {
        "windows": 2,
        "error": pytest.approx(5),
        "coverage": 50,
        "width": pytest.approx(17.5),
        "worst_coverage": 50,
    }


@pytest.mark.parametrize("kind", ["independent", "autocorrelated", "seasonal", "sudden drop", "slow drift"])
@pytest.mark.parametrize("delay", [1, 10])
def test_simulated_intervals_hold_as_often_as_promised(kind, delay):
    """The share of misses over 6 runs of 120 windows; the bound of each run is looser."""
    rng = np.random.default_rng(1)
    held = np.array([late_labels.simulated_run(kind, delay, 120, rng)[0] for _ in range(6)])
    assert 0.8 <= held.mean() <= 0.985
    reach = np.log(SETTINGS.most_factor / SETTINGS.least_factor)
    tested = 120 - delay
    assert (
        abs(held.mean(axis=1) - 0.9).max()
        <= (reach + SETTINGS.rate * delay) / (SETTINGS.rate * tested) + delay / tested
    )


def test_streams_are_for_development_or_for_the_report():
    files = [stream.file for stream in STREAMS.values()]
    assert len(files) == len(set(files))
    assert {stream.split for stream in STREAMS.values()} == {"development", "report"}
    assert numbers([{"a": "1"}, {"a": "NA"}, {"a": ""}], "a").tolist() == [[1], [0], [0]]
    assert one_hot(["b", "a"]).tolist() == [[0, 1], [1, 0]]
