"""Quick roads give what they gave; `python -m tests.roads compare` compares all of them."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from tests.roads.compare import differences, same
from tests.roads.road import QUICK


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", QUICK)
def test_a_road_gives_what_it_gave(name):
    changed = [str(found) for found in differences([name]) if not found.accepted]
    assert not changed, "\n".join(["python -m tests.roads compare lists all of them:", *changed[:5]])


def test_entries_are_compared_as_promised():
    assert same([0.1, "a"], [0.1 + 1e-14, "a"], 1e-12)
    assert not same([0.1], [0.1 + 1e-14], 0.0)
    assert not same([0.1], [0.1 + 1e-11], 1e-12)
    assert not same([1, 2], [1], 1e-12)
    assert not same("a", 1.0, 1e-12)
    assert not same(True, 1, 1e-12)
