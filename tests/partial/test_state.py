"""States of parts: merged in any way they give the estimate and the scores of all rows at once."""

from __future__ import annotations

import hashlib
import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gdscore
from gdscore import partial
from tests.data import batches, made

KEEP = ("logits", "features")


@pytest.fixture(scope="module")
def est():
    sets = [
        gdscore.ShiftedSet(made(600, keep=(*KEEP, "labels"), seed=9 + k, noise=1 + 0.3 * k), f"noise {k % 3}")
        for k in range(6)
    ]
    return gdscore.AccuracyEstimator().fit(made(1500, keep=(*KEEP, "labels"), seed=1), shifted_sets=sets)


@pytest.fixture(scope="module")
def target():
    return made(3001, keep=KEEP, seed=5, noise=1.4)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_the_state_gives_the_estimate_of_one_machine(est, library):
    target = made(2000, library, keep=KEEP, seed=5, noise=1.4)
    assert partial.finish_state(est, partial.partial_state(est, target)) == est.estimate(target)


@given(cuts=st.lists(st.integers(0, 3001), max_size=8), order=st.randoms(use_true_random=False))
def test_any_parts_in_any_order_give_the_same_bytes(est, target, cuts, order):
    edges = [0, *sorted(cuts), len(target)]
    parts = [[target[a:b]] if a < b else [] for a, b in pairwise(edges)]
    states = [partial.partial_state(est, part) for part in parts]
    order.shuffle(states)
    middle = len(states) // 2
    left = [partial.merge_states(states[:middle])] if middle else []
    assert partial.merge_states([*left, *states[middle:]]) == partial.partial_state(est, target)


def test_segments_give_the_estimates_of_one_machine(est, target):
    by = np.random.default_rng(0).choice(["fr", "de", "a rather long name", "é"], len(target), p=[0.7, 0.2, 0.09, 0.01])
    names = [by[i : i + 400] for i in range(0, len(by), 400)]
    states = [partial.partial_state(est, part, by=own) for part, own in zip(batches(target, 400), names, strict=True)]
    found = partial.finish_state(est, partial.merge_states(states[::-1]))
    assert found == est.estimate(target, by=by.tolist())
    assert list(found) == list(est.estimate(batches(target, 400), by=names))


def test_a_part_with_one_class_or_one_row(est, target):
    alone = [target[np.flatnonzero(target.predictions == k)] for k in range(10)]
    states = [partial.partial_state(est, part) for part in alone]
    assert partial.merge_states(states) == partial.partial_state(est, target)
    rows = [partial.partial_state(est, target[i : i + 1]) for i in range(100)]
    assert partial.merge_states(rows) == partial.partial_state(est, target[:100])


def test_ten_thousand_segments_travel_sparsely(est):
    target = made(20_000, keep=KEEP, seed=6)
    by = np.arange(20_000) // 2
    state = partial.merge_states(
        [partial.partial_state(est, target[i : i + 5000], by=by[i : i + 5000]) for i in range(0, 20_000, 5000)]
    )
    dense = 10_000 * 8 * 2 * 96 * 10
    assert len(state) < dense / 20
    some = partial.finish_state(est, partial.partial_state(est, target[:10], by=by[:10]))
    assert some["3"] == est.estimate(target[6:8])


def test_an_estimator_by_a_score(target):
    sets = [gdscore.ShiftedSet(made(500, keep=(*KEEP, "labels"), seed=k, noise=1 + 0.3 * k), f"n{k}") for k in range(5)]
    est = gdscore.AccuracyEstimator(method="atc").fit(made(1000, keep=(*KEEP, "labels")), shifted_sets=sets)
    states = [partial.partial_state(est, part) for part in batches(target, 700)]
    found, one = (
        partial.finish_state(est, partial.merge_states([*states, partial.partial_state(est, [])])),
        est.estimate(target),
    )
    assert found.accuracy == pytest.approx(one.accuracy, abs=1e-9)
    by = ["even", "odd"] * 1500 + ["odd"]
    grouped = partial.finish_state(est, partial.partial_state(est, target, by=by))
    assert grouped["odd"].accuracy == pytest.approx(est.estimate(target, by=by)["odd"].accuracy, abs=1e-9)


def test_scores_of_parts():
    reference, target = made(1500, seed=1), made(128 * 20, seed=5, noise=1.4)
    fitted = partial.fit_scores(reference=reference)
    states = [partial.partial_state(fitted, target[a:b]) for a, b in ((0, 128), (128, 1280), (1280, 2560))]
    states.insert(1, partial.partial_state(fitted, []))
    found = partial.finish_state(fitted, partial.merge_states(states))
    one = gdscore.score_all(target, reference=reference)
    assert found.keys() == one.keys()
    assert found.skipped == one.skipped
    for name, value in one.items():
        assert found[name] == pytest.approx(value, rel=1e-6), name


def test_gdscore_of_uneven_parts_is_close():
    target = made(3000, keep=KEEP, seed=5)
    fitted = partial.fit_scores(scores=["gdscore"])
    states = [partial.partial_state(fitted, part) for part in batches(target, 333)]
    found = partial.finish_state(fitted, partial.merge_states(states))["gdscore"]
    assert found == pytest.approx(gdscore.score("gdscore", target), rel=3e-2)


def test_scores_leave_out_what_the_target_lacks():
    fitted = partial.fit_scores()
    found = partial.finish_state(fitted, partial.partial_state(fitted, made(300, keep=("logits",))))
    one = gdscore.score_all(made(300, keep=("logits",)))
    assert dict(found) == pytest.approx(dict(one))
    assert found.skipped.keys() == one.skipped.keys()


@pytest.mark.parametrize("kind", ["target", "segments", "scores"])
def test_every_flipped_byte_is_refused(est, target, kind):
    if kind == "scores":
        owner = partial.fit_scores(scores=["confscore", "gdscore"])
        state = partial.partial_state(owner, target[:50])
    else:
        owner = est
        state = partial.partial_state(est, target[:50], by=["a", "b"] * 25 if kind == "segments" else None)
    for at in [*range(120), *range(120, len(state), max(1, len(state) // 150)), len(state) - 1]:
        damaged = bytearray(state)
        damaged[at] ^= 1 << at % 8
        with pytest.raises(gdscore.GdscoreError):
            partial.finish_state(owner, partial.merge_states([state, bytes(damaged)]))
    with pytest.raises(gdscore.GdscoreError):
        partial.finish_state(owner, state[:-1])


@pytest.mark.parametrize(
    ("described", "rest"),
    [
        ([["cells", "<i4", [2, 1 << 60]]], b""),
        ([["cells", "<i4", [2, -1]]], b""),
        ([["cells", "<i4", [True, 2]]], bytes(8)),
        ([["cells", "|O", [2, 1]]], bytes(16)),
        ([["cells", "<U4", [2, 1]]], b"\xff" * 32),
        ([["cells", "<i4", [2, 1]]] * 2, bytes(16)),
        ([["cells", "<i4", [2, 1]]], bytes(9)),
        ([[["cells"], "<i4", [2, 1]]], bytes(8)),
        ([["cells", "<i4"]], bytes(8)),
        (None, b""),
    ],
)
def test_forged_states_are_refused(est, described, rest):
    """The checksum is right, what it covers is not."""
    header = {"format": "gdscore target state", "version": 2, "estimator": "", "classes": 10, "evidence": 2}
    text = json.dumps([header | {"segmented": False}, described]).encode()
    body = len(text).to_bytes(8, "little") + text + rest
    line = partial.partial_state(est, []).split(b"\n")[0] + b"\n"
    with pytest.raises(gdscore.GdscoreError):
        partial.merge_states([line + hashlib.sha256(body).digest() + body])


def test_states_of_another_estimator_are_refused(est, target):
    other = gdscore.AccuracyEstimator().fit(made(1500, keep=(*KEEP, "labels"), seed=2))
    with pytest.raises(gdscore.GdscoreError, match="another estimator"):
        partial.finish_state(other, partial.partial_state(est, target))
    with pytest.raises(gdscore.GdscoreError, match="one estimator"):
        partial.merge_states([partial.partial_state(e, target) for e in (est, other)])
    with pytest.raises(gdscore.GdscoreError, match="segments"):
        partial.merge_states(
            [partial.partial_state(est, target), partial.partial_state(est, target[:2], by=["a", "b"])]
        )


def test_a_saved_estimator_and_another_level_take_the_state(est, target, tmp_path):
    state = partial.partial_state(est, target)
    est.save(tmp_path / "m.gdscore")
    loaded = gdscore.AccuracyEstimator.load(tmp_path / "m.gdscore")
    assert partial.finish_state(loaded, state) == est.estimate(target)
    loaded.set_params(level=0.5)
    assert partial.finish_state(loaded, state).level == 0.5


def test_edited_contents_with_a_right_checksum_are_refused(est, target):
    from gdscore.partial.target import TargetCells

    cells, digest, _ = TargetCells.from_bytes(partial.partial_state(est, target))
    for at, values in ((cells.at, -cells.values), (cells.at + cells.layout.width, cells.values)):
        edited = TargetCells(cells.layout, None, at, values).to_bytes(digest, None)
        with pytest.raises(gdscore.GdscoreError, match="target state"):
            partial.finish_state(est, edited)


def test_wrong_arguments(est, target):
    with pytest.raises(gdscore.GdscoreError, match="at least one state"):
        partial.merge_states([])
    with pytest.raises(gdscore.GdscoreError, match="rows"):
        partial.finish_state(est, partial.partial_state(est, []))
    with pytest.raises(gdscore.GdscoreError, match="AccuracyEstimator"):
        partial.partial_state("est", target)
    with pytest.raises(gdscore.GdscoreError, match="shape"):
        partial.partial_state(est, target, by=["a"])
    with pytest.raises(gdscore.GdscoreError, match="yielded"):
        partial.partial_state(est, [1])
    with pytest.raises(gdscore.GdscoreError, match="by"):
        partial.partial_state(partial.fit_scores(), target, by=["a"])


@pytest.mark.parametrize("states", [None, "text", b"one state", [b"", "text"], [3]])
def test_what_is_no_list_of_states_is_refused(states):
    with pytest.raises(gdscore.GdscoreError):
        partial.merge_states(states)
