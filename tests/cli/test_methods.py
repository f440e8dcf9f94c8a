from __future__ import annotations

import inspect
import json

import gdscore
from gdscore.scores.registry import score_class
from tests.cli.conftest import refused


def test_every_score_with_what_it_needs(gd):
    shown = gd("methods").stdout
    said = json.loads(gd("methods", "--json", "-").stdout)
    assert [m["name"] for m in said] == gdscore.list_scores()
    for method in said:
        assert method["summary"] in shown
        assert set(method["needs"]) == gdscore.create_score(method["name"]).needs


def test_one_in_full(gd):
    shown = gd("methods", "gdscore").stdout
    assert "needs features, logits; falls with accuracy" in shown
    assert (inspect.getdoc(score_class("gdscore")) or "no") in shown


def test_unknown(gd):
    assert "did you mean 'gdscore'" in refused(gd("methods", "gdskore"))
