"""The views of a cautious estimate are those the library takes, chosen on networks that are not reported on."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

from gdscore.estimator.preparing import chosen_scores, possible_scores
from gdscore.estimator.regress import NEIGHBOURS, VAGUE
from gdscore.estimator.views import views_of

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import choosing
import estimates
from sources import DEVELOPMENT, SOURCES
from subpopulations import subpopulation_seed, subpopulations

PAGE = choosing.ROOT / "docs" / "estimator.md"
COMMITTED = choosing.RESULTS / "choosing.csv"
NAMES = sorted(file.stem for file in (choosing.CELLS / "shifted_sets").glob("*.csv"))
HELD = {
    "without a second opinion": (),
    "with the model itself": ("batch_logits",),
    "with a second model": ("peer_logits",),
    "with both": ("batch_logits", "peer_logits"),
}

pytestmark = pytest.mark.skipif(not COMMITTED.exists() or not PAGE.exists(), reason="no results")


@pytest.fixture(scope="module")
def lines():
    def value(key, text):
        return (
            text
            if key in ("views", "vague") or not text
            else int(text)
            if key in ("neighbours", "pairs")
            else float(text)
        )

    with COMMITTED.open(newline="") as file:
        return [{key: value(key, text) for key, text in row.items()} for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def tables():
    return [choosing.Table(choosing.CELLS, name) for name in NAMES]


@pytest.fixture(scope="module")
def page():
    return " ".join(PAGE.read_text().split())


@pytest.mark.parametrize(
    ("candidate", "neighbours"), [("", 7), ("mano", 7), ("+peer", 7), ("itself | peer", 7), ("atc", 3)]
)
def test_committed_lines(lines, tables, candidate, neighbours):
    usual = lines[0]["vague"]
    (there,) = (
        line for line in lines if (line["views"], line["neighbours"], line["vague"]) == (candidate, neighbours, usual)
    )
    assert choosing.judged(tables, candidate, neighbours) == pytest.approx(there, abs=2e-3)


def test_every_candidate_is_committed(lines):
    asked = [(name, NEIGHBOURS) for name in choosing.CANDIDATES] + [("atc", number) for number in (3, 5, 10, 15)]
    limits = [views for limit in choosing.LIMITS[:-1] for views in choosing.CHOSEN.values()]
    assert choosing.LIMITS[-1] == VAGUE
    assert [(line["views"], line["neighbours"]) for line in lines] == asked + [(views, NEIGHBOURS) for views in limits]


def test_table_of_the_page(lines):
    for name, table in (("choosing", choosing.page_table(lines)), ("limits", choosing.limits_table(lines))):
        assert f"<!-- table {name} -->\n{table}\n<!-- end -->" in PAGE.read_text()


@pytest.mark.parametrize("why", choosing.CHOSEN)
def test_library_takes_the_chosen_views(why):
    held = frozenset({"logits", "features", *HELD[why]})
    scores = list(possible_scores(chosen_scores(None, "cautious"), held, strict=False))
    views = [[choosing.SCORES[name][0] for name in view] for view in choosing.views_of(choosing.CHOSEN[why])]
    assert [[scores[i] for i in view] for view in views_of(scores)] == views


@pytest.mark.parametrize("opinion", estimates.OPINIONS)
def test_columns_are_those_of_the_estimates(opinion):
    columns = dict(choosing.SCORES.values())
    own = estimates.OWN[f"cautious{opinion}"][1]
    assert {name: columns[name] for name in own} == own


@pytest.mark.parametrize("why", choosing.CHOSEN)
def test_chosen_views_are_the_best_but_for_mano(lines, why):
    missing = {"batch_logits": "itself", "peer_logits": "peer"}
    unseen = [name for array, name in missing.items() if array not in HELD[why]] + ["mano"]
    usable = [line for line in lines if (line["neighbours"], line["vague"]) == (NEIGHBOURS, lines[0]["vague"])]
    usable = [line for line in usable if not any(name in line["views"] for name in unseen)]
    assert min(usable, key=lambda line: line["natural"])["views"] == choosing.CHOSEN[why]


def test_what_would_be_better_is_said(lines, page):
    usual = {line["views"]: line["natural"] for line in lines if line["vague"] == lines[0]["vague"]}
    usual |= {line["views"]: line["natural"] for line in lines[: len(choosing.CANDIDATES)]}
    gain = f"{usual['atc'] - usual['mano']:.1f}"
    assert f"MaNo in place of ATC would be better still on these, by {gain} points on the natural pairs" in page
    sharp = {line["views"]: line["natural"] for line in lines if line["vague"] == "0.175"}
    assert all(sharp[views] < usual[views] for views in choosing.CHOSEN.values())
    assert "and so would a sharp limit of 0.175." in page
    others = {line["vague"] for line in lines} - {"0.175", lines[0]["vague"]}
    for vague in others:
        found = [line["natural"] for line in lines if line["vague"] == vague]
        assert sum(found) > sum(usual[views] for views in choosing.CHOSEN.values())


def test_development_is_apart_from_what_is_reported():
    assert sorted(DEVELOPMENT) == NAMES
    reported, own = ({(s.data, s.network) for s in group.values()} for group in (SOURCES, DEVELOPMENT))
    assert not reported & own
    assert not set(DEVELOPMENT) & {file.stem for file in (choosing.RESULTS / "cells" / "shifted_sets").glob("*.csv")}


def test_development_splits_of_cifar100_are_others():
    reported, own = (
        {seed for s in group.values() if (seed := subpopulation_seed(s.data)) is not None}
        for group in (SOURCES, DEVELOPMENT)
    )
    assert (len(reported), len(own)) == (4, 6)
    assert not reported & own
    assert not any(subpopulations(seed) == subpopulations(other) for seed in own for other in reported)


def test_what_the_page_says_of_development(lines, page):
    meta = [estimates.read(choosing.CELLS / "shifted_sets" / f"{name}.csv") for name in NAMES]
    (pairs,), (sets,) = {line["pairs"] for line in lines}, {len(rows) for rows in meta}
    most = max(int(row["n"]) for rows in meta for row in rows)
    assert f"(`results/development`, {pairs} pairs, {sets} shifted sets of {most:,} rows or less)" in page
    assert "PACS with a small CNN instead of ResNet-18 and digits with ResNet-18 instead of the small CNN" in page
    for data, development, reported in (("pacs", "small", "resnet18"), ("usps", "resnet18", "small")):
        assert {s.network for s in DEVELOPMENT.values() if s.data == data} == {development}
        assert {s.network for s in SOURCES.values() if s.data == data} == {reported}
    assert "six other splits of CIFAR-100" in page
