"""States of scores: merged in any way, also as bytes, they give the scores of all rows at once."""

from __future__ import annotations

import pytest

import gdscore
from gdscore.distributed._parts import Part, ScoreStates, merged
from gdscore.io import Batch, Columns
from tests.data import batches, made

KEEP = ("logits", "features")


def fitted(names, reference=None):
    made = {name: gdscore.create_score(name) for name in names}
    return ScoreStates({n: s.fit(reference) if s.reference_inputs else s for n, s in made.items()}, {})


def state_of(scores, parts):
    return Part(scores, Columns()).state([Batch(part) for part in parts])[0]


def table(states):
    return ScoreStates.from_bytes(merged(ScoreStates, *states)).table()


def test_scores_of_parts():
    reference, target = made(1500, seed=1), made(128 * 20, seed=5, noise=1.4)
    one = gdscore.score_all(target, reference=reference)
    scores = fitted(one, reference)
    states = [state_of(scores, [target[a:b]]) for a, b in ((0, 128), (128, 1280), (1280, 2560))]
    states.insert(1, state_of(scores, []))
    found = table(states)
    assert found.keys() == one.keys()
    for name, value in one.items():
        assert found[name] == pytest.approx(value, rel=1e-6), name


def test_gdscore_of_uneven_parts_is_close():
    target = made(3000, keep=KEEP, seed=5)
    scores = fitted(["gdscore"])
    found = table([state_of(scores, [part]) for part in batches(target, 333)])["gdscore"]
    assert found == pytest.approx(gdscore.score("gdscore", target), rel=3e-2)


def test_scores_leave_out_what_the_target_lacks():
    found = table([state_of(fitted(["confscore", "gdscore"]), [made(300, keep=("logits",))])])
    assert list(found) == ["confscore"]
    assert found.skipped == {"gdscore": "needs features"}


def test_parts_with_other_arrays_and_without_rows():
    scores = fitted(["confscore", "gdscore"])
    states = [state_of(scores, [made(300, keep=keep)]) for keep in (KEEP, ("logits",))]
    with pytest.raises(gdscore.GdscoreError, match="only some have gdscore"):
        merged(ScoreStates, *states)
    with pytest.raises(gdscore.GdscoreError, match="none"):
        table([state_of(scores, [])])
