from __future__ import annotations

import json
import re

import pytest

import gdscore
from tests.cli.conftest import refused


def test_every_score_with_what_it_needs(gd):
    shown = gd("methods").stdout
    found = json.loads(gd("methods", "--json", "-").stdout)
    assert [m["name"] for m in found] == gdscore.list_scores()
    for method in found:
        assert method["summary"] in shown
        assert set(method["needs"]) == gdscore.create_score(method["name"]).needs


@pytest.mark.parametrize("name", gdscore.list_scores())
def test_one_in_full_without_markup(gd, name):
    shown = gd("methods", name).stdout
    assert gdscore.create_score(name).needs <= set(re.findall(r"\w+", shown)) | {"reference_labels"}
    assert not re.search(r"^ *\.\. |:math:|``", shown, re.MULTILINE)


def test_unknown(gd):
    assert "did you mean 'gdscore'" in refused(gd("methods", "gdskore"))
