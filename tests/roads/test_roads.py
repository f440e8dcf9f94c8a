"""All public roads lead to one score and one estimate, and these are what they were."""

from __future__ import annotations

import numpy as np
import pytest

import gdscore
from tests.roads import data, record

pytest.importorskip("torch")

from tests.roads import roads

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("group", record.GROUPS)
def test_values_are_what_they_were(group):
    before = record.recorded()
    lines = [f"{key}: was {before.get(key)}, is {value}" for key, value in record.changes([group])[0].items()]
    assert not lines, "\n".join(["if it is meant, `python -m tests.roads` writes these entries anew", *lines])


def test_scores_of_all_roads_agree():
    reference, target = (gdscore.Outputs(**data.arrays(512 + 128 * s, 0.5 + s / 2, s)) for s in (1, 2))
    expected = {name: gdscore.score(name, target, reference=reference) for name in roads.NAMES}
    for road, values in roads.score_roads(reference, target):
        assert set(values) >= {"atc", "cot", "cott", "gdscore"}, road
        for name, value in values.items():
            # Single precision rounds at 1e-7, and GdScore sums a root of each gradient.
            assert value == pytest.approx(expected[name], rel=1e-5, abs=1e-7), f"{road}, {name}"


def test_estimates_of_all_roads_agree():
    est, target = data.fitted(), data.target()
    e = est.estimate(target)
    for road, values in roads.estimate_roads(est, data.outputs(800, 1.0, 1), target):
        assert values == pytest.approx([e.accuracy, e.low, e.high], abs=1e-6), road


def test_entries_are_compared_as_promised():
    assert record.agrees("scores: a", [2.0], [2.0 + 1e-6])
    assert not record.agrees("scores: a", [2.0], [2.0 + 1e-5])
    assert not record.agrees("scores: a", [2.0], [2.0, 2.0])
    assert not record.agrees("accuracies: a", [0.9], [0.902])
    assert not record.agrees("ends: a", [0.8, 0.9], [0.8, np.nan])


def test_only_what_differs_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "FILE", tmp_path / "record.json")
    entries = [("accuracies", "a", 0.9), ("ends", "b", [0.1, 0.2])]
    monkeypatch.setattr(record, "GROUPS", {"some": lambda: iter(entries)})
    assert len(list(record.write())) == 2
    entries[:] = [("accuracies", "a", 0.9004), ("ends", "b", [0.1, 0.3]), ("scores", "c", 7)]
    assert list(record.write()) == ["ends: b: was [0.1, 0.2], is [0.1, 0.3]", "scores: c: was None, is [7.0]"]
    entries.pop()
    assert list(record.write()) == ["scores: c: was [7.0], is None"]
    assert record.recorded() == {"accuracies: a": [0.9], "ends: b": [0.1, 0.3]}
