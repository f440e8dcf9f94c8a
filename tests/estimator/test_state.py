"""The state of a target: parts merged in any way, also as bytes, give the estimate of all rows at once."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gdscore
from gdscore._files import arrays_to_bytes, read_arrays
from gdscore.estimator import TargetState
from tests.data import batches, made

KEEP = ("logits", "features")


@pytest.fixture(scope="module")
def est():
    sets = [
        gdscore.ShiftedSet(made(600, keep=(*KEEP, "labels"), seed=9 + k, noise=1 + 0.3 * k), f"noise {k % 3}")
        for k in range(6)
    ]
    return gdscore.AccuracyEstimator().fit(made(1500, keep=(*KEEP, "labels"), seed=1), shifted_sets=sets)


def state_of(est, parts, by=None):
    """Bytes of a state that has seen outputs, or a stream of them."""
    state = est.state()
    for part in [parts] if isinstance(parts, gdscore.Outputs) else parts:
        state.update(part, by)
    return state.to_bytes()


def merge(states):
    first, *others = map(TargetState.from_bytes, states)
    for other in others:
        first.merge(other)
    return first.to_bytes()


def finish(est, data):
    return est.estimate(TargetState.from_bytes(data))


@pytest.fixture(scope="module")
def target():
    return made(3001, keep=KEEP, seed=5, noise=1.4)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_the_state_gives_the_estimate_of_one_machine(est, library):
    target = made(2000, library, keep=KEEP, seed=5, noise=1.4)
    assert finish(est, state_of(est, target)) == est.estimate(target)


@given(cuts=st.lists(st.integers(0, 3001), max_size=8), order=st.randoms(use_true_random=False))
def test_any_parts_in_any_order_give_the_same_bytes(est, target, cuts, order):
    edges = [0, *sorted(cuts), len(target)]
    parts = [[target[a:b]] if a < b else [] for a, b in pairwise(edges)]
    states = [state_of(est, part) for part in parts]
    order.shuffle(states)
    middle = len(states) // 2
    left = [merge(states[:middle])] if middle else []
    assert merge([*left, *states[middle:]]) == state_of(est, target)


def test_segments_give_the_estimates_of_one_machine(est, target):
    by = np.random.default_rng(0).choice(["fr", "de", "a rather long name", "é"], len(target), p=[0.7, 0.2, 0.09, 0.01])
    names = [by[i : i + 400] for i in range(0, len(by), 400)]
    states = [state_of(est, part, by=own) for part, own in zip(batches(target, 400), names, strict=True)]
    found = finish(est, merge(states[::-1]))
    assert found == est.estimate(target, by=by.tolist())
    assert list(found) == list(est.estimate(batches(target, 400), by=names))


def test_a_part_with_one_class_or_one_row(est, target):
    alone = [target[np.flatnonzero(target.predictions == k)] for k in range(10)]
    states = [state_of(est, part) for part in alone]
    assert merge(states) == state_of(est, target)
    rows = [state_of(est, target[i : i + 1]) for i in range(100)]
    assert merge(rows) == state_of(est, target[:100])


def test_ten_thousand_segments_travel_sparsely(est):
    target = made(20_000, keep=KEEP, seed=6)
    by = np.arange(20_000) // 2
    state = merge([state_of(est, target[i : i + 5000], by=by[i : i + 5000]) for i in range(0, 20_000, 5000)])
    dense = 10_000 * 8 * 2 * 96 * 10
    assert len(state) < dense / 20
    some = finish(est, state_of(est, target[:10], by=by[:10]))
    assert some[3] == est.estimate(target[6:8])


def test_an_estimator_by_a_score(target):
    sets = [gdscore.ShiftedSet(made(500, keep=(*KEEP, "labels"), seed=k, noise=1 + 0.3 * k), f"n{k}") for k in range(5)]
    est = gdscore.AccuracyEstimator(method="atc").fit(made(1000, keep=(*KEEP, "labels")), shifted_sets=sets)
    states = [state_of(est, part) for part in batches(target, 700)]
    found, one = (
        finish(est, merge([*states, state_of(est, [])])),
        est.estimate(target),
    )
    assert found.accuracy == pytest.approx(one.accuracy, abs=1e-9)
    by = ["even", "odd"] * 1500 + ["odd"]
    grouped = finish(est, state_of(est, target, by=by))
    assert grouped["odd"].accuracy == pytest.approx(est.estimate(target, by=by)["odd"].accuracy, abs=1e-9)


@pytest.mark.parametrize("kind", ["target", "segments"])
def test_a_flipped_byte_is_refused_or_means_nothing(est, target, kind):
    owner, state = est, state_of(est, target[:50], by=["a", "b"] * 25 if kind == "segments" else None)
    refused = 0
    for at in [*range(120), *range(120, len(state), max(1, len(state) // 150)), len(state) - 1]:
        damaged = bytearray(state)
        damaged[at] ^= 1 << at % 8
        try:
            assert TargetState.from_bytes(bytes(damaged)).to_bytes() == state  # a date in the archive's directory
        except gdscore.GdscoreError:
            refused += 1
    assert refused > 100
    for cut in (state[:-1], state[:100], state[5:]):
        with pytest.raises(gdscore.GdscoreError, match="make the state again"):
            finish(owner, cut)


@pytest.mark.parametrize(
    "changed",
    [
        {"format": "gdscore target state, version 6"},
        {"classes": 1},
        {"classes": True},
        {"slots": np.zeros(2)},
        {"slots": np.zeros((2, 1, 1), dtype=int)},
        {"slots": np.array([[0, 0], [1, 1]])},
        {"slots": np.array([[0.5], [1.0]])},
        {"slots": np.array([[0], [-1]])},
        {"slots": np.array([[10**9], [1]])},
        {"slots": None},
        {"slots": "text"},
        {"by": ["country"], "segments": "[[[["},
        {"by": ["country"], "segments": "{}"},
        {"by": ["country"], "segments": "[1,1]"},
        {"by": ["country"], "segments": "[{}]"},
        {"by": ["country"], "segments": '[{"os": 1}'},
        {"by": ["country"], "segments": '[{"os": 1}]'},
        {"by": ["country"], "segments": "[" * 10000},
        {"by": ["country"], "segments": None},
        {"scores": [3]},
        {"more": 1},
        {"by": [1]},
        {"by": True},
    ],
)
def test_forged_states_are_refused(est, changed):
    """The checksums are right, what they cover is not."""
    contents = read_arrays(state_of(est, []))
    assert TargetState.from_bytes(arrays_to_bytes(contents)).n_rows == 0
    header = json.loads(contents["header"].tobytes())
    for name, value in changed.items():
        if name not in contents or name == "scores":
            header[name] = value
        elif value is None:
            del contents[name]
        else:
            contents[name] = np.frombuffer(value.encode(), np.uint8) if isinstance(value, str) else value
    contents["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    with pytest.raises(gdscore.GdscoreError, match="target state"):
        TargetState.from_bytes(arrays_to_bytes(contents))


def test_states_of_another_estimator_are_refused(est, target):
    other = gdscore.AccuracyEstimator().fit(made(1500, keep=(*KEEP, "labels"), seed=2))
    with pytest.raises(gdscore.GdscoreError, match="another one"):
        finish(other, state_of(est, target))
    with pytest.raises(gdscore.GdscoreError, match="another one"):
        merge([state_of(e, target) for e in (est, other)])
    with pytest.raises(gdscore.GdscoreError, match="segments"):
        merge([state_of(est, target), state_of(est, target[:2], by=["a", "b"])])


def test_a_saved_estimator_and_another_level_take_the_state(est, target, tmp_path):
    state = state_of(est, target)
    est.save(tmp_path / "m.gdscore")
    loaded = gdscore.AccuracyEstimator.load(tmp_path / "m.gdscore")
    assert finish(loaded, state) == est.estimate(target)
    loaded.set_params(level=0.5)
    assert finish(loaded, state).level == 0.5


def test_edited_contents_with_a_right_checksum_are_refused(est, target):
    state = est.state().update(target)
    cells, (at, values) = state._layout, state._summed()
    for edited in ((at, -values), (at + cells.width, values)):
        state._held = [edited]
        with pytest.raises(gdscore.GdscoreError, match="target state"):
            finish(est, state.to_bytes())


KEYS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(), st.floats(allow_nan=False), st.dates(), st.datetimes().map(lambda time: time.replace(fold=0)),
    st.timedeltas(),
)  # fmt: skip


@given(keys=st.lists(st.one_of(KEYS, st.tuples(KEYS, KEYS)), min_size=1, max_size=6))
def test_segments_keep_their_type_in_bytes(est, target, keys):
    by = [keys[i % len(keys)] for i in range(12)]
    state = est.state().update(target[:12], by)
    back = TargetState.from_bytes(state.to_bytes())
    assert set(back.segments) == set(state.segments) == set(by)
    assert {repr(key) for key in back.segments} == {repr(key) for key in state.segments}
    assert back.to_bytes() == state.to_bytes()


def test_missing_segments_are_none_and_1_stays_1(est, target):
    pd = pytest.importorskip("pandas")
    for by in ([1, None, 1], np.array([1.0, np.nan, 1]), pd.Series([1, None, 1], dtype="Int64")):
        assert set(finish(est, state_of(est, target[:3], by))) == {1, None}
    with pytest.raises(gdscore.GdscoreError, match="name segments by text"):
        est.state().update(target[:2], by=list(pd.interval_range(0, 2))).to_bytes()


def test_several_columns_make_tuples(est, target):
    pd = pytest.importorskip("pandas")
    country, device = ["fr", "de", None] * 20, [1, 2] * 30
    expected = est.estimate(target[:60], by=list(zip(country, device, strict=True)))
    frame = pd.DataFrame({"country": country, "device": device})
    for by in ({"country": country, "device": np.array(device)}, frame):
        assert est.estimate(target[:60], by=by) == expected
    assert set(est.estimate(target[:60], by=frame[["country"]])) == {"fr", "de", None}


def test_columns_of_segments_go_by_their_names(est, target):
    """Parts whose columns are in another order; other columns; states that were merged."""
    by = {"from": ["fr", "de"] * 30, "to": ["de", "fr", "it"] * 20}
    turned, fewer = {"to": by["to"], "from": by["from"]}, {"to": by["to"]}
    parts, expected = [target[:60], target[60:120]], est.estimate(target[:120], by={k: v * 2 for k, v in by.items()})
    found = est.estimate(parts, by=[by, turned])
    assert found == expected
    assert found.names == expected.names == ("from", "to")
    state = est.state().update(parts[0], by)
    assert est.estimate(state.update(parts[1], turned)) == expected
    assert est.estimate(TargetState.from_bytes(state.to_bytes())).names == ("from", "to")
    for other in (fewer, {**by, "device": by["to"]}, by["to"]):
        with pytest.raises(gdscore.GdscoreError, match="before have, 'from', 'to', but got"):
            est.estimate(parts, by=[by, other])
        with pytest.raises(gdscore.GdscoreError, match="before have, 'from', 'to', but got"):
            gdscore.labeling.choose(est, parts, budget=5, by=[by, other])
    for other in (turned, fewer):
        for there in (est.state().update(parts[1], other), est.state(est.state().update(parts[1], other).to_bytes())):
            with pytest.raises(gdscore.GdscoreError, match="segments by the same columns"):
                est.state().update(parts[0], by).merge(there)
    rows = [gdscore.labeling.choose(est, parts, budget=40, by=given) for given in ([by, by], [by, turned])]
    assert rows[0].segments == rows[1].segments
    with pytest.raises(gdscore.GdscoreError, match="columns of different names in `by`"):
        est.estimate(parts[0], by={1: by["from"], "1": by["to"]})


def test_batches_bring_their_segments(est, target):
    from gdscore.io import Batch

    by = np.arange(len(target)) % 3
    parts = [Batch(target[i : i + 700], None, {"site": by[i : i + 700]}) for i in range(0, len(target), 700)]
    assert est.estimate(iter(parts)) == est.estimate(target, by=by)
    with pytest.raises(gdscore.GdscoreError, match="both"):
        est.state().update(parts[0], by=by[:700])
    with pytest.raises(gdscore.GdscoreError, match="of their own"):
        est.estimate(parts, by=[by[:700]] * len(parts))


def test_a_state_counts_labels_and_does_not_use_them(est, target):
    labelled = made(3001, keep=(*KEEP, "labels"), seed=5, noise=1.4)
    by = np.arange(3001) % 2
    state = est.state().update(labelled[:2000], by[:2000])
    state = TargetState.from_bytes(state.merge(est.state().update(labelled[2000:], by[2000:])).to_bytes())
    assert {k: t.accuracy for k, t in state.truth().items()} == {k: labelled[by == k].accuracy for k in (0, 1)}
    assert est.estimate(state) == est.estimate(target, by=by)
    assert est.state().update(target).truth()[None].accuracy is None


def test_outputs_of_another_model_are_told_of_their_segment_only(est, target):
    other = gdscore.Outputs(logits=target.logits[::-1], features=target.features)
    both = gdscore.Outputs.concatenate([target, other])
    found = est.estimate(both, by=np.arange(len(both)) // len(target))
    assert ["other_model" in {w.code for w in found[k].warnings} for k in (0, 1)] == [False, True]
    shuffled = np.random.default_rng(0).permutation(len(both))
    again = est.estimate(both[shuffled], by=shuffled // len(target))
    assert again[1] == found[1]


def test_wrong_arguments(est, target):
    with pytest.raises(gdscore.GdscoreError, match="rows"):
        finish(est, state_of(est, []))
    with pytest.raises(gdscore.GdscoreError, match="by"):
        state_of(est, target, by=["a"])
    with pytest.raises(gdscore.GdscoreError, match="Outputs"):
        state_of(est, [1])
    with pytest.raises(gdscore.GdscoreError, match="before have, none, but got one without a name"):
        est.state().update(target).update(target[:1], by=["a"])
    with pytest.raises(gdscore.GdscoreError, match="read from bytes"):
        TargetState.from_bytes(state_of(est, target)).update(target)
    with pytest.raises(gdscore.GdscoreError, match="has its segments"):
        est.estimate(est.state().update(target), by=["a"])


@pytest.mark.parametrize("data", [None, "text", 3, b"", b"one state", b"PK"])
def test_what_is_no_state_is_refused(data):
    with pytest.raises(gdscore.GdscoreError, match="state"):
        TargetState.from_bytes(data)


@pytest.mark.parametrize("method", ["correctness", "atc"])
def test_the_state_of_a_segment_gives_its_estimate(target, method):
    sets = [
        gdscore.ShiftedSet(made(300, keep=(*KEEP, "labels"), seed=9 + k, noise=1 + 0.3 * k), f"noise {k % 3}")
        for k in range(6)
    ]
    est = gdscore.AccuracyEstimator(method=method).fit(made(1500, keep=(*KEEP, "labels"), seed=1), shifted_sets=sets)
    by = {"of": np.arange(len(target)) % 3, "place": np.where(np.arange(len(target)) < 1000, "a", "b")}
    state = est.state().update(target, by)
    for key, expected in est.estimate(state).items():
        assert est.estimate(state.of_segment(key)) == expected
    rows = (by["of"] == 2) & (by["place"] == "b")
    assert state.of_segment((2, "b")).to_bytes() == est.state().update(target[np.flatnonzero(rows)]).to_bytes()
    with pytest.raises(KeyError):
        state.of_segment((3, "a"))
