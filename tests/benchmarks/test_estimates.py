"""The committed estimates are what the command makes of the committed cells, and docs/estimator.md says what they say."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
import pytest

import gdscore
from gdscore.estimator.regress import Nearest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import estimates

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "estimator.md"
SPLITS = [f"cifar100sub{k}-resnet18" for k in range(4)]
BENCHMARKS = ("pacs", "digits", "cifar100sub")
ALONE, PEER = estimates.OWN

pytestmark = pytest.mark.skipif(not RESULTS.exists() or not PAGE.exists(), reason="no results")


def read(name):
    def value(key, text):
        if key in ("source", "kind", "set", "benchmark", "estimator"):
            return text
        return text == "True" if key == "peer" else int(text) if key in ("n", "sets", "chosen on") else float(text)

    with (RESULTS / name).open(newline="") as lines:
        return [{key: value(key, text) for key, text in row.items()} for row in csv.DictReader(lines)]


@pytest.fixture(scope="module")
def rows():
    return read("estimates.csv")


@pytest.fixture(scope="module")
def found():
    lines = read("estimates-summary.csv")
    return {(line["benchmark"], line["kind"], line["estimator"]): line for line in lines}


@pytest.fixture(scope="module")
def page():
    return " ".join(PAGE.read_text().split())


def span(values, digits):
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


@pytest.mark.parametrize(("source", "peer"), [("cifar100sub0-resnet18", True), ("mnist-small", False)])
def test_committed_rows(rows, source, peer):
    committed = [row for row in rows if (row["source"], row["peer"]) == (source, peer)]
    made = list(estimates.estimates(RESULTS / "cells", source, peer))
    assert len(made) == len(committed) > 2
    for row, there in zip(made, committed, strict=True):
        assert row["set"] == there["set"]
        for column in ("truth", "accuracy", "low", "high", "cot@T"):
            assert row[column] == pytest.approx(there[column], abs=1e-4)


def test_committed_summary(rows, found):
    made = list(estimates.summary(rows))
    assert len(made) == len(found) == 11 * 8
    for line, there in zip(made, found.values(), strict=True):
        assert line == pytest.approx(there, abs=2e-3, nan_ok=True)


def test_summary():
    row = {"source": "mnist-small", "kind": "natural", "peer": False, "n": 1000}
    row |= {"truth": 0.5, "accuracy": 0.6, "low": 0.55, "high": 0.8, "disagree": 1.0}
    row |= dict.fromkeys(estimates.TEMPERED.values(), 0.4) | {"atc@T": 0.51}
    rows = [row, row | {"accuracy": 0.4, "low": 0.3, "disagree": 0.0}]
    lines = list(estimates.summary([*rows, *(row | {"peer": True, "accuracy": 0.7} for row in rows)]))
    found = {(line["benchmark"], line["kind"], line["estimator"]): line for line in lines}
    assert {key[:2] for key in found} == {("digits", "natural"), ("all", "natural")}
    alone = found["digits", "natural", ALONE]
    assert (alone["mae"], alone["bias"], alone["coverage"], alone["width"]) == (10.0, 0.0, 50.0, 37.5)
    assert (alone["sets"], alone["chosen on"], alone["disagree"]) == (2, 2, 50.0)
    assert found["digits", "natural", PEER]["bias"] == 20.0
    doc, atc = (found["all", "natural", name] for name in ("doc@T", "atc@T"))
    assert (doc["mae"], doc["bias"], doc["coverage"]) == (10.0, -10.0, 0.0)
    assert (atc["mae"], atc["coverage"], atc["width"]) == (1.0, 100.0, pytest.approx(5.2, abs=0.01))


@pytest.mark.parametrize("name", estimates.DIRECT)
@pytest.mark.filterwarnings("ignore::gdscore.GdscoreWarning")
def test_direct_intervals_are_the_librarys(name):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(800, 4))
    said = gdscore.Outputs(
        logits=z, peer_logits=z + rng.normal(size=z.shape), labels=(z + rng.gumbel(size=z.shape)).argmax(1)
    )
    e = gdscore.direct_estimate(name, said[400:], source=said[:400], level=estimates.LEVEL)
    column = estimates.TEMPERED[name]
    accuracy = estimates.direct(name, {column: str(e.scores[name])})
    assert estimates.sampled(column, {column: accuracy, "n": e.n}) == pytest.approx((e.accuracy, e.low, e.high))


def test_transport_scores_of_cells_know_a_sample():
    assert f"\nTRANSPORT_ROWS = {estimates.TRANSPORT_ROWS}\n" in (ROOT / "benchmarks" / "panel.py").read_text()
    few, many = (estimates.sampled("cot@T", {"cot@T": 0.5, "n": n}) for n in (4000, 10_000))
    assert few == many
    assert estimates.sampled("atc@T", {"atc@T": 0.5, "n": 10_000}) > few


def test_tables_of_the_page(found):
    text = PAGE.read_text()
    for name, table in estimates.page_tables(list(found.values())).items():
        assert f"<!-- table {name} -->\n{table}\n<!-- end -->" in text


def test_aims(page, found, rows):
    def numbers(kind, estimator, key, benchmarks=("cifar10", "digits", "cifar100sub")):
        return [found[benchmark, kind, estimator][key] for benchmark in benchmarks]

    def row(aim, alone, peer, verdict):
        assert f"| {aim} | {alone} | {peer} | {verdict} |" in page

    (alone,), (peer,) = (numbers("corruption", name, "mae", ["cifar10"]) for name in (ALONE, PEER))
    row("CIFAR-10, families left out: error at most 1.0", f"{alone:.1f}", f"{peer:.2f}", "missed")
    assert min(alone, peer) > 1.0
    (alone,), (peer,) = (numbers("corruption", name, "coverage", ["cifar10"]) for name in (ALONE, PEER))
    row("the same: 85 to 97 % covered", f"{alone:.0f} %", f"{peer:.0f} %", "missed: too wide")
    assert min(alone, peer) > 97
    for aim, key, verdict, limits in (
        ("error at most 6.5 alone, 5.0 with a second model", "mae", "missed; digits alone 5.3", (6.5, 5.0)),
        ("mean width at most 22", "width", "missed", (22, 22)),
    ):
        both = [found["all", "natural", name][key] for name in (ALONE, PEER)]
        row(f"natural pairs: {aim}", *(f"{value:.1f}" for value in both), verdict)
        assert all(value > limit for value, limit in zip(both, limits, strict=True))
    assert f"{found['digits', 'natural', ALONE]['mae']:.1f}" == "5.3"
    alone, peer = (numbers("natural", name, "coverage", BENCHMARKS) for name in (ALONE, PEER))
    row(
        "natural pairs: at least 85 % covered on every benchmark",
        "PACS {:.0f} %, digits {:.0f} %, CIFAR-100 {:.0f} %".format(*alone),
        "{:.0f} %, {:.0f} %, {:.0f} %".format(*peer),
        "missed on two of three",
    )
    assert [value < 85 for value in alone] == [value < 85 for value in peer] == [False, True, True]
    alone, peer = (numbers("label-shift", name, "mae") for name in (ALONE, PEER))
    row("other class mixes: error at most 3.5", span(alone, 1), span(peer, 1), "met")
    unshifted = [
        [
            (100 * abs(r["accuracy"] - r["truth"]), r["source"])
            for r in rows
            if r["kind"] == "unshifted" and r["peer"] == p
        ]
        for p in (False, True)
    ]
    within = [f"{sum(error <= 1 for error, _ in part)} of {len(part)} sets" for part in unshifted]
    (alone, first), (peer, second) = map(max, unshifted)
    assert first == second == "usps-small"
    row("unshifted: within 1 point", *within, f"missed: USPS is off by {alone:.1f} and {peer:.1f} points")
    alone, peer = (numbers("unshifted", name, "width") for name in (ALONE, PEER))
    verdict = "met alone, missed on CIFAR-100 with a second model"
    row("unshifted: mean width at most 10", span(alone, 1), span(peer, 1), verdict)
    assert [value > 10 for value in alone + peer] == [False] * 5 + [True]


def test_estimators_in_the_prose(page, found, rows):
    natural = [row for row in rows if row["kind"] == "natural" and not row["peer"]]
    errors = {name: found[name, "natural", ALONE]["mae"] for name in BENCHMARKS}
    corrupted = found["cifar10", "corruption", ALONE]
    assert f"is off by {corrupted['mae']:.1f} points on a corruption" in page
    assert f"and by {span(errors.values(), 1)} on natural shifts" in page
    others = [row for row in natural if estimates.benchmark_of(row["source"]) != "digits"]
    above = sum(row["accuracy"] > row["truth"] for row in others)
    assert f"too optimistic ({above} of {len(others)} targets)" in page
    assert (corrupted["coverage"], corrupted["sets"]) == (100.0, 95)
    missed = [row for row in natural if not row["low"] <= row["truth"] <= row["high"]]
    assert [(row["source"], row["set"]) for row in missed] == [
        *((name, "target") for name in SPLITS),
        ("mnistm-small", "mnist"),
    ]
    assert f"Of {len(natural)} natural pairs {len(natural) - len(missed)} are" in page
    assert f"all of PACS, at a width of {found['pacs', 'natural', ALONE]['width']:.1f};" in page
    assert f"lie {span([100 * (row['low'] - row['truth']) for row in missed[:-1]], 1)} points below them" in page
    best = {
        key: min(found[(*key, column)]["mae"] for column in estimates.TEMPERED.values())
        for key in (*((name, "natural") for name in BENCHMARKS), ("cifar10", "corruption"))
    }
    own = f"({errors['pacs']:.1f}, {errors['digits']:.1f}, {corrupted['mae']:.1f} points; the best direct ones "
    own += f"{best['pacs', 'natural']:.1f}, {best['digits', 'natural']:.1f}, {best['cifar10', 'corruption']:.1f})"
    assert own in page
    assert f"({errors['cifar100sub']:.1f}; `atc` {found['cifar100sub', 'natural', 'atc@T']['mae']:.1f})" in page
    assert best["cifar100sub", "natural"] == found["cifar100sub", "natural", "atc@T"]["mae"]
    assert "`doc` is as good to 0.1 points, or better by up to 0.5." in page
    ahead = [
        found[name, kind, ALONE]["mae"] - found[name, kind, "doc@T"]["mae"]
        for name in ("cifar10", "digits", "cifar100sub")
        for kind in ("label-shift", "unshifted")
    ]
    assert min(ahead) > -0.1
    assert max(ahead) == pytest.approx(0.5, abs=0.05)


def test_scores_that_disagree_in_the_prose(page, found):
    share = {key[:2]: found[(*key, ALONE)] for key in ((b, k) for b, k, e in found if e == ALONE)}

    def count(*key):
        return round(share[key]["disagree"] * share[key]["sets"] / 100)

    warned = [count("cifar100sub", "natural"), count("digits", "natural"), count("pacs", "natural")]
    assert (
        f"on {warned[0]} of 4 splits of CIFAR-100, {warned[1]} of 6 pairs of digits and {warned[2]} of 12 of PACS"
        in page
    )
    assert f"on {count('cifar10', 'corruption')} of 95 corrupted sets and none of 8 unshifted ones" in page
    assert sum(count(name, "unshifted") for name in ("cifar10", "digits", "cifar100sub")) == 0


def test_direct_intervals_in_the_prose(page, found):
    columns = estimates.TEMPERED.items()
    natural = {name: found["all", "natural", column] for name, column in columns}
    assert f"They are {span([line['width'] for line in natural.values()], 1)} points wide in the mean" in page
    covered = {name: round(line["coverage"] * line["sets"] / 100) for name, line in natural.items()}
    assert [name for name in covered if covered[name] == 0] == ["confscore", "doc", "agreescore"]
    assert max(covered, key=covered.get) == "cott"
    assert f"(`confscore`, `doc`, `agreescore`) and {covered['cott']} (`cott`) of 22 pairs" in page
    unshifted = {
        name: sum(
            round(
                found[benchmark, "unshifted", column]["coverage"] * found[benchmark, "unshifted", column]["sets"] / 100
            )
            for benchmark in ("cifar10", "digits", "cifar100sub")
        )
        for name, column in columns
    }
    least, most = min(unshifted.values()), max(unshifted.values())
    assert [name for name in unshifted if unshifted[name] == least] == ["cott", "agreescore"]
    assert [name for name in unshifted if unshifted[name] == most] == ["doc"]
    assert f"Of 8 unshifted test sets they cover {least} (`cott`, `agreescore`) to {most} (`doc`)." in page


def test_second_model_in_the_prose(page, found, rows):
    alone, peer = (found["all", "natural", name]["mae"] for name in (ALONE, PEER))
    assert f"{peer:.1f} points against {alone:.1f}." in page
    cells = [target_of(source) for source in SPLITS]
    right = span([100 * float(row["accuracy"]) for row in cells], 0)
    agree = span([100 * (1 - float(row["agreescore"])) for row in cells], 0)
    assert f"agree on {agree} % of the rows of CIFAR-100's unseen subclasses, where {right} % are right" in page
    before, after = (row for row in rows if (row["source"], row["set"]) == ("pacs-photo-resnet18", "sketch"))
    said = f"({100 * before['truth']:.1f} % right) the second model takes the estimate from"
    assert f"{said} {100 * before['accuracy']:.1f} to {100 * after['accuracy']:.1f} %" in page
    alone, peer = (found["cifar10", "corruption", name]["mae"] for name in (ALONE, PEER))
    assert f"On corruptions it helps by {alone - peer:.1f} points." in page


def target_of(source):
    rows = estimates.read(RESULTS / "cells" / "deployed" / f"{source}.csv")
    return next(row for row in rows if row["set"] == "target")


def test_subpopulations_lie_among_the_metasets(page):
    ranks, nearest, alike = [], [], []
    for source in SPLITS:
        target = target_of(source)
        meta = estimates.read(RESULTS / "cells" / "metasets" / f"{source}.csv")
        assert len(meta) == 352
        table = estimates.fitted(meta, list(estimates.ALONE)).table
        x = table.transformed({name: float(target[estimates.COLUMNS[name]]) for name in estimates.ALONE}, 4000)
        ranks += list(100 * np.mean(table.x() < x, axis=0))
        weights = Nearest(table.x(), table.y()).weights(x[None])[0]
        nearest.append(100 * table.accuracy[np.argsort(-weights)[:10]])
        shifted = [row for row in meta if not row["family"].startswith("resampled")]
        shifted.sort(key=lambda row: abs(float(row["confscore@T"]) - float(target["confscore@T"])))
        alike += [100 * float(row["accuracy"]) for row in shifted[:10]]
    low, high = f"{min(ranks):.0f}", f"{max(ranks):.0f}"
    assert f"between the {low}th and the {high}th percentile of the meta-sets" in page
    each = span(np.concatenate(nearest), 0)
    assert f"are {each} % right, {span([part.mean() for part in nearest], 0)} % in the mean" in page
    assert f"with the confidence of these targets are {span(alike, 0)} % right" in page
