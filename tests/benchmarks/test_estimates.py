"""The committed estimates are what the command makes of the committed cells, and docs/estimator.md says what they say."""

from __future__ import annotations

import csv
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import gdscore
from gdscore.estimator import cautions
from gdscore.estimator.describe import CALIBRATED, RECIPE
from gdscore.estimator.preparing import chosen_scores, possible_scores
from gdscore.estimator.regress import NEIGHBOURS, Nearest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import estimates

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
CELLS = RESULTS / "cells"
PAGE = ROOT / "docs" / "estimator.md"
SPLITS = [f"cifar100sub{k}-resnet18" for k in range(4)]
BENCHMARKS = ("pacs", "digits", "cifar100sub")
TESTED = ("cifar10", "digits", "cifar100sub")
HELD = {"": (), " + itself": ("batch_logits",), " + peer": ("peer_logits",), " + both": ("batch_logits", "peer_logits")}
COLUMNS = ["source", "kind", "set", "n", "estimator", "truth", "accuracy", "low", "high", "disagree"]

pytestmark = pytest.mark.skipif(not RESULTS.exists() or not PAGE.exists(), reason="no results")


def read(file):
    def value(key, text):
        if key in ("source", "kind", "set", "benchmark", "estimator") or not text:
            return text
        return int(text) if key in ("n", "sets") else float(text)

    with file.open(newline="") as lines:
        return [{key: value(key, text) for key, text in row.items()} for row in csv.DictReader(lines)]


@pytest.fixture(scope="module")
def rows():
    return read(RESULTS / "estimates.csv")


@pytest.fixture(scope="module")
def found():
    lines = read(RESULTS / "estimates-summary.csv")
    return {(line["benchmark"], line["kind"], line["estimator"]): line for line in lines}


@pytest.fixture(scope="module")
def page():
    return " ".join(PAGE.read_text().split())


def span(values, digits):
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


def count(line, key):
    return round(line[key] * line["sets"] / 100)


def same(made, committed):
    assert len(made) == len(committed) > 0
    for row, there in zip(made, committed, strict=True):
        assert list(row) == list(there) == COLUMNS
        assert row == pytest.approx(there, abs=1e-4)


@pytest.mark.parametrize("source", ["mnist-small", "pacs-photo-resnet18", "cifar100sub3-resnet18"])
def test_committed_rows(rows, source):
    same(list(estimates.estimates(CELLS, source)), [row for row in rows if row["source"] == source])


def test_command_leaves_a_corruption_out(rows, tmp_path, capsys):
    name = "cifar10-resnet18.csv"
    (tmp_path / "shifted_sets").mkdir()
    shutil.copy(CELLS / "shifted_sets" / name, tmp_path / "shifted_sets" / name)
    fog = [row for row in estimates.read(CELLS / "deployed" / name) if row["family"] == "fog"]
    estimates.write(tmp_path / "deployed" / name, fog)
    estimates.main(["--cells", str(tmp_path), "--output", str(tmp_path / "out"), "--page", ""])
    made = read(tmp_path / "out" / "estimates.csv")
    same(made, [row for row in rows if row["kind"] == "corruption" and row["set"].startswith("fog-")])
    assert len(made) == 5 * (len(estimates.OWN) + len(estimates.DIRECT))
    assert len(read(tmp_path / "out" / "estimates-summary.csv")) == len(made) / 5
    assert "cifar10 corruption         5 sets" in capsys.readouterr().out


def test_every_source_is_committed(rows):
    assert {row["source"] for row in rows} == {file.stem for file in (CELLS / "shifted_sets").glob("*.csv")}


def test_committed_summary(rows, found):
    made = list(estimates.summary(rows))
    every = len(estimates.OWN) + len(estimates.DIRECT)
    assert len(made) == len(found) == 11 * every - 3 * len(estimates.REGRESSORS) * 2
    for line, there in zip(made, found.values(), strict=True):
        assert line == pytest.approx(there, abs=2e-3, nan_ok=True)


def test_summary():
    row = {"source": "mnist-small", "kind": "natural", "n": 1000, "estimator": "cautious"}
    row |= {"truth": 0.5, "accuracy": 0.6, "low": 0.55, "high": 0.8, "disagree": 1.0}
    rows = [row, row | {"accuracy": 0.4, "low": 0.3, "disagree": 0.0}]
    rows += [row | {"estimator": "nearest + peer", "accuracy": 0.7}]
    rows += [row | {"estimator": "doc@T", "accuracy": 0.4, "low": 0.38, "high": 0.42, "disagree": ""}]
    rows += [row | {"source": "cifar100sub2-resnet18", "kind": "label-shift"}]
    found = {(line["benchmark"], line["kind"], line["estimator"]): line for line in estimates.summary(rows)}
    own = [(name, "natural", by) for name in ("digits", "all") for by in ("cautious", "nearest + peer", "doc@T")]
    assert set(found) == {*own, ("cifar100sub", "label-shift", "cautious")}
    alone = found["digits", "natural", "cautious"]
    assert (alone["mae"], alone["bias"], alone["coverage"], alone["width"]) == (10.0, 0.0, 50.0, 37.5)
    assert (alone["sets"], alone["disagree"]) == (2, 50.0)
    assert found["digits", "natural", "nearest + peer"]["bias"] == 20.0
    doc = found["all", "natural", "doc@T"]
    assert (doc["mae"], doc["bias"], doc["coverage"], doc["width"]) == (10.0, -10.0, 0.0, 4.0)
    assert np.isnan(doc["disagree"])


@pytest.mark.parametrize("name", estimates.OWN)
def test_scores_are_those_the_library_chooses(name):
    regressor, columns = estimates.OWN[name]
    held = frozenset({"logits", "features", *HELD[name.removeprefix(regressor)]})
    assert list(possible_scores(chosen_scores(None, regressor), held, strict=False)) == list(columns)
    for score, column in columns.items():
        soft = RECIPE[score].get("soft", False)
        assert column == ("soft" if soft else f"{score}@T" if score in CALIBRATED else score)


@pytest.mark.parametrize("name", estimates.DIRECT)
@pytest.mark.filterwarnings("ignore::gdscore.GdscoreWarning")
def test_direct_intervals_are_the_librarys(name):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(800, 4))
    said = gdscore.Outputs(
        logits=z, peer_logits=z + rng.normal(size=z.shape), labels=(z + rng.gumbel(size=z.shape)).argmax(1)
    )
    e = gdscore.direct_estimate(name, said[400:], reference=said[:400], level=estimates.LEVEL)
    made = estimates.direct(name, {estimates.TEMPERED[name]: str(e.scores[name]), "n": str(e.n)})
    assert made == pytest.approx({"accuracy": e.accuracy, "low": e.low, "high": e.high})


def test_transport_scores_of_cells_know_a_sample():
    assert f"\nTRANSPORT_ROWS = {estimates.TRANSPORT_ROWS}\n" in (ROOT / "benchmarks" / "panel.py").read_text()
    few, many = (estimates.direct("cot", {"cot@T": "0.5", "n": n}) for n in (4000, 10_000))
    assert few == many
    assert estimates.direct("atc", {"atc@T": "0.5", "n": 10_000})["low"] > few["low"]


def test_tables_of_the_page(found):
    text = PAGE.read_text()
    tables = estimates.page_tables(list(found.values()))
    assert list(tables) == ["cautious", "nearest", "direct"]
    for name, table in tables.items():
        assert f"<!-- table {name} -->\n{table}\n<!-- end -->" in text


def test_aims_on_corruptions(page, found):
    def numbers(regressor, key):
        return [found["cifar10", "corruption", f"{regressor}{opinion}"][key] for opinion in estimates.OPINIONS]

    errors, default, covered = numbers("nearest", "mae"), numbers("cautious", "mae"), numbers("cautious", "coverage")
    said = "{:.1f}, itself {:.1f} ({:.1f}, {:.1f})".format(*errors[:2], *default[:2])
    said += " | {:.1f}, both {:.2f} ({:.1f}, {:.1f})".format(*errors[2:], *default[2:])
    verdict = "met with both opinions, not by the default"
    assert f"| CIFAR-10, families left out: error at most 1.0 | {said} | {verdict} |" in page
    assert [error <= 1.0 for error in errors + default] == [False] * 3 + [True] + [False] * 4
    said = "{:.0f} %, itself {:.0f} % | {:.0f} %, both {:.0f} % | missed by a point: too wide |".format(*covered)
    assert f"| the same: 85 to 97 % covered | {said}" in page
    assert 97 < min(covered) <= max(covered) <= 98


def test_aims_on_natural_pairs(page, found):
    def numbers(key):
        return [found["all", "natural", f"cautious{opinion}"][key] for opinion in estimates.OPINIONS]

    cells = "{:.1f}, itself {:.1f} | {:.1f}, both {:.1f}"
    errors, widths = numbers("mae"), numbers("width")
    aim = "natural pairs: error at most 6.5, 5.0 with a second model"
    assert f"| {aim} | {cells.format(*errors)} | met without; met with both opinions |" in page
    assert max(errors[:2]) <= 6.5
    assert [error <= 5.0 for error in errors[2:]] == [False, True]
    assert f"| natural pairs: mean width at most 22 | {cells.format(*widths)} | missed |" in page
    assert min(widths) > 22
    alone, itself, peer, both = (
        [found[name, "natural", f"cautious{opinion}"]["coverage"] for name in BENCHMARKS]
        for opinion in estimates.OPINIONS
    )
    assert (alone, peer) == (itself, both)
    said = "PACS {:.0f} %, digits {:.0f} %, CIFAR-100 {:.0f} % | {:.0f} %, {:.0f} %, {:.0f} %".format(*alone, *peer)
    verdict = "missed: digits 5 of 6"
    assert f"| natural pairs: at least 85 % covered on every benchmark | {said} | {verdict} |" in page
    assert count(found["digits", "natural", "cautious"], "coverage") == 5
    assert [value >= 85 for value in alone + peer] == [True, False, True] * 2


def test_aims_without_a_shift_of_inputs(page, found, rows):
    def numbers(kind, key):
        return [[found[name, kind, by][key] for name in TESTED] for by in ("cautious", "cautious + peer")]

    alone, peer = numbers("label-shift", "mae")
    assert f"| other class mixes: error at most 3.5 | {span(alone, 1)} | {span(peer, 1)} | met |" in page
    assert max(alone + peer) <= 3.5
    alone, peer = numbers("unshifted", "width")
    assert f"| unshifted: mean width at most 10 | {span(alone, 1)} | {span(peer, 1)} | met |" in page
    assert max(alone + peer) <= 10
    errors = [
        {
            row["source"]: 100 * abs(row["accuracy"] - row["truth"])
            for row in rows
            if (row["kind"], row["estimator"]) == ("unshifted", by)
        }
        for by in ("cautious", "cautious + peer")
    ]
    within = [f"{sum(error <= 1 for error in part.values())} of {len(part)} sets" for part in errors]
    assert [max(part, key=part.get) for part in errors] == ["usps-small"] * 2
    (usps,) = {f"{part['usps-small']:.1f}" for part in errors}
    split = f"a split of CIFAR-100 by {sorted(errors[0].values())[-2]:.1f}"
    verdict = f"missed: USPS is off by {usps}, {split}"
    assert f"| unshifted: within 1 point | {within[0]} | {within[1]} | {verdict} |" in page


def test_lowest_of_the_views_in_the_prose(page, found):
    lowest, joint = (found["all", "natural", by] for by in estimates.REGRESSORS)
    assert f"off by {lowest['mae']:.1f} points instead of {joint['mae']:.1f} on {lowest['sets']} pairs" in page
    assert f"a bias of {lowest['bias']:+.1f} instead of {joint['bias']:+.1f}, and" in page
    held = [count(line, "coverage") for line in (lowest, joint)]
    assert "and {} instead of {} of the intervals hold the truth".format(*held) in page
    lowest, joint = ({name: found[name, "natural", by] for name in BENCHMARKS} for by in estimates.REGRESSORS)
    new = [part["cifar100sub"] for part in (joint, lowest)]
    errors, held = [line["mae"] for line in new], [count(line, "coverage") for line in new]
    assert "({:.1f} → {:.1f}, {} → {} of 4 covered)".format(*errors, *held) in page
    gain = {name: joint[name]["mae"] - lowest[name]["mae"] for name in BENCHMARKS}
    assert f"PACS gains {gain['pacs']:.1f} points, the digits nothing" in page
    assert abs(gain["digits"]) < 0.1
    corrupted, exact = (found["cifar10", "corruption", by] for by in estimates.REGRESSORS)
    assert f"It costs {corrupted['mae'] - exact['mae']:.1f} points on corruptions" in page
    assert f"estimated too low by {-corrupted['bias']:.1f}:" in page


def test_opinions_and_widths_in_the_prose(page, found, rows):
    pacs, itself, peer = (found["pacs", "natural", f"cautious{name}"] for name in ("", " + itself", " + peer"))
    assert f"takes PACS from {pacs['mae']:.1f} to {itself['mae']:.1f} points and changes nothing elsewhere" in page
    assert f"a second model of the same recipe takes it to {peer['mae']:.1f}." in page
    for name, kind in (("digits", "natural"), ("cifar100sub", "natural"), ("cifar10", "corruption")):
        alone, more = (found[name, kind, f"cautious{opinion}"]["mae"] for opinion in ("", " + itself"))
        assert more == pytest.approx(alone, abs=0.05)
    assert f"PACS are {pacs['width']:.1f} points wide, for an error of {pacs['mae']:.1f}." in page
    natural = [row for row in rows if (row["kind"], row["estimator"]) == ("natural", "cautious")]
    missed = [row for row in natural if not row["low"] <= row["truth"] <= row["high"]]
    pairs = [("mnistm-small", "mnist"), ("pacs-art_painting-resnet18", "sketch")]
    assert [(row["source"], row["set"]) for row in missed] == pairs
    assert "They miss MNIST-M to MNIST" in page
    assert "and art to sketches by a point" in page
    assert round(100 * (missed[1]["truth"] - missed[1]["high"])) == 1


def test_direct_estimates_in_the_prose(page, found):
    assert "**Direct intervals do not cover natural shifts.**" in page
    assert max(found["all", "natural", column]["coverage"] for column in estimates.TEMPERED.values()) < 20
    ahead = [
        found[name, kind, "cautious"]["mae"] - found[name, kind, "doc@T"]["mae"]
        for name in TESTED
        for kind in ("label-shift", "unshifted")
    ]
    assert "On class mixes and unshifted sets `doc` is as good" in page
    assert f"`doc` is as good to 0.1 points, or better by up to {max(ahead):.1f}." in page
    assert round(min(ahead), 1) >= -0.1


def test_scores_that_disagree_in_the_prose(page, found):
    limits = (cautions.DISAGREEMENT, cautions.DISAGREEMENT_IF_FALLEN, cautions.FALLEN)
    said = (
        "would say {:.0f} points more than another, or {:.0f} where the estimate is {:.0f} points below the reference"
    )
    assert said.format(*(100 * limit for limit in limits)) in page

    def warned(benchmark, kind):
        line = found[benchmark, kind, "cautious"]
        return f"{count(line, 'disagree')} of {line['sets']}"

    natural = [warned(name, "natural") for name in ("cifar100sub", "digits", "pacs")]
    assert "on {} splits of CIFAR-100, {} pairs of digits and {} of PACS".format(*natural) in page
    assert f"on {warned('cifar10', 'corruption')} corrupted sets and none of 8 unshifted ones" in page
    assert [warned(name, "unshifted") for name in TESTED] == ["0 of 1", "0 of 3", "0 of 4"]
    assert min(found[name, "label-shift", "cautious"]["disagree"] for name in TESTED) > 50


def test_subpopulations_lie_among_the_shifted_sets(page):
    columns = estimates.POPULATION
    ranks, right, truth = [], [], []
    for source in SPLITS:
        meta = estimates.read(CELLS / "shifted_sets" / f"{source}.csv")
        assert len(meta) == 352
        (target,) = (row for row in estimates.read(CELLS / "deployed" / f"{source}.csv") if row["set"] == "target")
        table = estimates.fitted(meta, columns, "nearest").table
        scores = {name: float(target[column]) for name, column in columns.items()}
        x = table.transformed(scores, int(target["n"]))
        ranks += list(100 * np.mean(table.x() < x, axis=0))
        weights = Nearest(table.x(), table.y()).weights(x[None])[0]
        right.append(100 * table.accuracy[np.argsort(-weights)[:NEIGHBOURS]].mean())
        truth.append(100 * float(target["accuracy"]))
    assert 20 < min(ranks) < max(ranks) < 60
    assert "each lies among the shifted sets" in page
    assert f"{span(right, 0)} % accurate on the seven nearest sets, and {span(truth, 0)} % on these targets" in page


@pytest.mark.parametrize(
    ("title", "key", "estimator"),
    [
        ("CIFAR-10, corruption family left out", ("cifar10", "corruption"), "cautious"),
        ('the same, `regressor="nearest"`', ("cifar10", "corruption"), "nearest"),
        ("CIFAR-10, other class mixes", ("cifar10", "label-shift"), "cautious"),
        ("digits: MNIST, MNIST-M, USPS", ("digits", "natural"), "cautious"),
        ("PACS, trained from scratch", ("pacs", "natural"), "cautious"),
        ("CIFAR-100, unseen subclasses", ("cifar100sub", "natural"), "cautious"),
    ],
)
def test_table_of_the_readme(found, title, key, estimator):
    own = found[(*key, estimator)]
    (row,) = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith(f"| {title} |")]
    cells = [cell.strip(" *") for cell in row.strip("|").split("|")]
    assert cells[1:4] == [str(own["sets"]), f"{own['mae']:.1f}", f"{own['coverage']:.0f} % ({own['width']:.0f})"]
    if estimator == "cautious":
        others = [found[(*key, f"{name}@T")]["mae"] for name in ("cot", "cott", "atc", "doc", "confscore")]
        assert cells[4:] == [f"{error:.1f}" for error in others]


def test_errors_in_the_prose_of_the_readme(found):
    text = " ".join((ROOT / "README.md").read_text().split())

    def error(*key):
        return f"{found[key]['mae']:.1f}"

    corrupted, natural = (
        [error(*key, name) for name in ("cautious", "cot@T", "atc@T")]
        for key in (("cifar10", "corruption"), ("all", "natural"))
    )
    assert "off by {} points on average, COT by {}, ATC by {}.".format(*corrupted) in text
    assert "off by {}, COT by {}, ATC by {}.".format(*natural) in text
    alone, itself = (error("pacs", "natural", by) for by in ("cautious", "cautious + itself"))
    assert f"(PACS: off by {itself} points instead of {alone})" in text
