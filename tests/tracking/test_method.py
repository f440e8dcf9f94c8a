"""The weighted mean against a loop that follows its description, and what it promises."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdscore.tracking.method import ANSWERS, SETTINGS, Known, answer, positions


def by_hand(known, position, label_free, raked, unchanged, prior_error, settings=SETTINGS):
    """The same one window and one answer at a time."""
    delay = max(round(position - known.position[-1]), 1)
    certain = [settings.scale**2 / (settings.scale**2 + v) for v in known.variance]

    def answers(place, label_free, raked, unchanged):
        usable = [i for i, p in enumerate(known.position) if round(place - p) >= delay]
        if not usable:
            return [raked, raked, label_free, raked, unchanged]
        latest = known.position[usable[-1]]
        weight_of = {i: settings.memory ** (latest - known.position[i]) * certain[i] for i in usable}
        error = sum(w * (known.accuracy[i] - known.raked[i]) for i, w in weight_of.items())
        error /= max(sum(weight_of.values()), 1)
        last, left = 0.0, 1.0
        for i in reversed(usable):
            last += left * certain[i] * known.accuracy[i]
            left *= 1 - certain[i]
        made = [raked, raked + error, label_free, last + left * raked, unchanged]
        return [min(max(value, 0), 1) for value in made]

    def weights(place):
        usable = [i for i, p in enumerate(known.position) if round(place - p) >= delay]
        w = np.array([delay, 1.0, 1, 1, 1])
        for since, i in enumerate(reversed(usable)):
            answers_then = np.array(answers(known.position[i], known.label_free[i], known.raked[i], known.unchanged[i]))
            error = (answers_then - known.accuracy[i]) / settings.scale
            w /= (1 + error**2) ** (settings.memory**since * certain[i])
        return w / w.sum()

    means = [
        float(weights(p) @ answers(p, f, r, u))
        for p, f, r, u in zip(known.position, known.label_free, known.raked, known.unchanged, strict=True)
    ]
    total, distance, noise, doubt = (1 + delay) / 2, (1 + delay) / 2 * prior_error, 0.0, 0.0
    for since, i in enumerate(reversed(range(len(means)))):
        count = settings.memory**since * certain[i]
        total += count
        distance += count * abs(means[i] - known.accuracy[i]) * np.sqrt(np.pi / 2)
        noise += count * known.excess[i]
        doubt += 2 * (count * known.variance[i]) ** 2
    squared = max((distance / total) ** 2 - noise / total, 0) + np.sqrt(doubt) / total
    values, w = np.array(answers(position, label_free, raked, unchanged)), weights(position)
    return values, w, float(w @ values), min(np.sqrt(squared), 1)


def known_of(place, accuracy, variance, raked):
    return Known(place, accuracy, variance, variance, raked, raked, np.full(len(place), 0.85))


def history(rng, n, step=1.0):
    accuracy = np.clip(0.7 + np.cumsum(rng.normal(scale=0.05, size=n)), 0, 1)
    place = np.cumsum(rng.uniform(0.9, 1.1, n) * step)
    label_free, raked = (np.clip(accuracy + rng.normal(scale=0.1, size=n), 0, 1) for _ in range(2))
    variance = rng.uniform(1e-4, 5e-3, n)
    return Known(place, accuracy, variance, variance, label_free, raked, rng.choice([0.7, 0.8], n))


@pytest.mark.parametrize("n", [1, 2, 3, 10, 40])
@pytest.mark.parametrize("delay", [1, 4, 10])
def test_the_mean_is_that_of_a_plain_loop(n, delay):
    known = history(np.random.default_rng(n), n)
    found = answer(known, known.position[-1] + delay, 0.5, 0.6, 0.7, 0.05)
    values, weights, accuracy, error = by_hand(known, known.position[-1] + delay, 0.5, 0.6, 0.7, 0.05)
    np.testing.assert_allclose(found.values, values, atol=1e-12)
    np.testing.assert_allclose(found.weights, weights, atol=1e-12)
    assert found.accuracy == pytest.approx(accuracy)
    assert found.error == pytest.approx(error)
    assert len(found.values) == len(ANSWERS)


def test_one_known_window_of_a_day_ago_counts_as_its_labels_are_certain():
    raked = np.array([0.8])
    known = known_of(np.array([0.0]), np.array([0.5]), np.array([0.0004]), raked)._replace(unchanged=raked)
    found = answer(known, 1.0, 0.9, 0.8, 0.8, 0.1)
    assert found.values.tolist() == pytest.approx([0.8, 0.53, 0.9, 0.53, 0.8])
    assert found.weights.tolist() == pytest.approx([1 / 5] * 5)


def test_errors_are_forgotten_by_known_windows_and_levels_by_time():
    """Where only every fifth window gets labels, as many past errors count as where all do."""
    rng = np.random.default_rng(2)
    known = history(rng, 30)._replace(position=np.arange(30.0))
    sparse = known._replace(position=known.position * 5)
    often, seldom = answer(known, 30.0, 0.6, 0.7, 0.8, 0.05), answer(sparse, 150.0, 0.6, 0.7, 0.8, 0.05)
    assert seldom.values[1] != often.values[1]
    assert answer(sparse, 146.0, 0.6, 0.7, 0.8, 0.05).error == pytest.approx(often.error, rel=0.2)


def test_late_labels_count_for_less_than_the_estimate_at_their_class_mix():
    raked = np.array([0.8])
    known = known_of(np.array([0.0]), np.array([0.5]), np.array([0.0004]), raked)._replace(unchanged=raked)
    found = answer(known, 6.0, 0.9, 0.8, 0.8, 0.1)
    assert found.weights.tolist() == pytest.approx([0.6, 0.1, 0.1, 0.1, 0.1])


def test_an_answer_that_is_always_right_gets_the_weight():
    truth = 0.7 + 0.2 * np.sin(np.arange(60))
    known = known_of(np.arange(60.0), truth, np.full(60, 1e-4), truth)
    found = answer(known, 60.0, 0.9, 0.9, 0.85, 0.05)
    assert found.weights[:3].sum() > 0.99
    assert found.accuracy == pytest.approx(0.9, abs=1e-3)
    assert found.error < 0.02


def test_after_a_sudden_drop_the_last_known_accuracy_leads_within_three_windows():
    """The label-free estimate does not see the drop."""
    accuracy = np.r_[np.full(30, 0.85), np.full(3, 0.3)]
    known = known_of(np.arange(33.0), accuracy, np.full(33, 2e-4), np.full(33, 0.86))
    assert answer(known, 33.0, 0.86, 0.86, 0.85, 0.05).accuracy < 0.4


def test_no_window_decides_alone():
    """A window in which every answer is far off says little about which of them is best."""
    rng = np.random.default_rng(3)
    calm = history(rng, 30)
    wild = calm._replace(accuracy=np.r_[calm.accuracy[:-1], 0.0])
    before, after = (answer(k, k.position[-1] + 1, 0.7, 0.7, 0.8, 0.05).weights for k in (calm, wild))
    assert (after > before / 4).all()


def test_few_labels_count_for_less():
    place, accuracy, raked = np.arange(20.0), np.full(20, 0.8), np.full(20, 0.8)
    accuracy[-1] = 0.2
    for answer_by_labels in (1, 3):
        moved = []
        for last in (2e-4, 0.08):
            known = known_of(place, accuracy, np.r_[np.full(19, 2e-4), last], raked)
            moved.append(0.8 - answer(known, 20.0, 0.8, 0.8, 0.85, 0.05).values[answer_by_labels])
        assert moved[1] < moved[0] / 5


@pytest.mark.parametrize("windows", [1, 20])
def test_one_label_hardly_moves_an_estimate(windows):
    """In the newest window the label of one row is known, and that row is wrong; so it is where rows get labels one by one."""
    accuracy, variance = np.full(windows, 0.8), np.full(windows, 2e-4)
    accuracy[-1], variance[-1] = 0.0, 0.22
    known = known_of(np.arange(float(windows)), accuracy, variance, np.full(windows, 0.82))
    assert answer(known, windows, 0.82, 0.82, 0.85, 0.05).accuracy == pytest.approx(0.81, abs=0.02)


def test_a_window_is_tried_out_with_labels_as_late_as_now():
    """With a delay of ten, answers are compared as they are ten windows late: a level that swings is not followed."""
    place = np.arange(60.0)
    truth = 0.7 + 0.2 * np.sin(place * np.pi / 10)  # half a period in ten windows: the last known is always opposite
    known = known_of(place, truth, np.full(60, 1e-4), np.full(60, 0.7))
    soon, late = answer(known, 60.0, 0.7, 0.7, 0.75, 0.05), answer(known, 69.0, 0.7, 0.7, 0.75, 0.05)
    assert soon.weights[3] > 0.15
    assert late.weights[3] < soon.weights[3] / 2
    assert late.weights[0] > soon.weights[0]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_answers_stay_between_0_and_1_and_weights_sum_to_1(data):
    n = data.draw(st.integers(1, 30))
    share = st.floats(0, 1)
    accuracy, variance, free, raked = (np.array(data.draw(st.lists(share, min_size=n, max_size=n))) for _ in range(4))
    steps = np.array(data.draw(st.lists(st.floats(1, 1000), min_size=n + 1, max_size=n + 1)))
    place = np.cumsum(steps)
    known = Known(place[:-1], accuracy, variance, variance, free, raked, free[::-1])
    found = answer(known, place[-1], *(data.draw(share) for _ in range(4)))
    assert found.weights.sum() == pytest.approx(1)
    assert ((found.values >= 0) & (found.values <= 1)).all()
    assert found.values.min() - 1e-9 <= found.accuracy <= found.values.max() + 1e-9
    assert np.isfinite(found.error)
    assert 0 <= found.error <= 1


def test_positions_count_windows_and_gaps():
    assert positions(np.array([0.0])).tolist() == [0]
    assert positions(np.array([])).tolist() == []
    assert positions(np.array([0.0, 1, 2, 3, 33, 34])).tolist() == [0, 1, 2, 3, 33, 34]
    # Windows that come closer together still count as windows.
    assert positions(np.array([0.0, 10, 11, 21, 31])).tolist() == [0, 1, 2, 3, 4]
