from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import gdscore
from tests.cli.conftest import refused

DOCS = Path(__file__).parents[2] / "docs"


def test_every_score_with_what_it_needs(gd):
    shown = gd("methods").stdout
    said = json.loads(gd("methods", "--json", "-").stdout)
    assert [m["name"] for m in said] == gdscore.list_scores()
    for method in said:
        assert method["summary"] in shown
        assert set(method["needs"]) == gdscore.create_score(method["name"]).needs


@pytest.mark.parametrize("name", gdscore.list_scores())
def test_one_in_full_without_markup(gd, name):
    shown = gd("methods", name).stdout
    assert gdscore.create_score(name).needs <= set(re.findall(r"\w+", shown)) | {"reference_labels"}
    assert not re.search(r"^ *\.\. |:math:|``", shown, re.MULTILINE)


def test_unknown(gd):
    assert "did you mean 'gdscore'" in refused(gd("methods", "gdskore"))


def table(page: str, columns: int) -> dict[str, list[str]]:
    """Cells that follow the name of a score in a page's tables of so many columns."""
    rows = [line.strip("| \n").split("|") for line in (DOCS / page).read_text(encoding="utf-8").splitlines()]
    return {
        name[1]: [cell.strip() for cell in cells]
        for first, *cells in rows
        if len(cells) + 1 >= columns - 1 and (name := re.fullmatch(r"`(\w+)` *", first))
    }


def test_page_of_choosing_has_what_every_score_needs():
    found = table("choosing.md", 4)
    assert sorted(found) == gdscore.list_scores()
    for name, (needs, *_) in found.items():
        assert needs == ", ".join(sorted(gdscore.create_score(name).needs))


def test_properties_follow_from_what_scores_need():
    found = table("properties.md", 6)
    assert sorted(found) == gdscore.list_scores()
    for name, cells in found.items():
        needs = gdscore.create_score(name).needs
        trained = bool(needs & {"network", "peer_logits", "rotation_logits"})
        expected = [
            "network" in needs,
            not trained,
            not trained and "reference" not in needs,
            not needs & {"rotation_logits", "batch_logits"},
        ]
        assert cells[:4] == ["yes" if holds else "no" for holds in expected], name
