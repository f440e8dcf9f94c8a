"""Numbers in the prose of docs/results.md against the committed files that they are read from."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from relation import read, relation_of, shifted
from tables import ablation_rows, main_rows, rises
from tables_page import SHOWN

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "results.md"
CORRUPTED = ("cifar10-resnet18", "cifar10-resnet50", "cifar10-wrn50_2", "cifar100-resnet18", "tiny-resnet18")
CIFAR10, CIFAR100, TINY, PACS, DIGITS = CORRUPTED[0], *CORRUPTED[3:], "pacs-resnet18", "digits-small"
CONFIDENCE = ("confscore", "entropy", "atc", "doc", "mano")

pytestmark = pytest.mark.skipif(not PAGE.exists() or not RESULTS.exists(), reason="no page of results")


@pytest.fixture(scope="module")
def page():
    return " ".join(PAGE.read_text().split())


@pytest.fixture(scope="module")
def main():
    rows = main_rows(RESULTS / "cells", RESULTS / "ablations")
    return {(row["benchmark"], row["protocol"], row["method"]): row for row in rows}


@pytest.fixture(scope="module")
def chosen():
    rows = ablation_rows(RESULTS / "ablations")
    return {(row["ablation"], row["source"].split("-")[1], row["alpha"], row["choice"]): row for row in rows}


def cells(part, source):
    return {row["set"]: row for row in read(RESULTS / "cells" / part / f"{source}.csv")}


def span(values, digits):
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


def test_protocols(page, main):
    published, deployed, crossed = (
        {name: main[name, protocol, "gdscore"] for name in (*CORRUPTED, PACS)}
        for protocol in ("published", "deployed", "crossed")
    )
    own = published[CIFAR10]
    assert f"gives us {own['r2']:.3f} and {-own['rho']:.3f}" in page
    assert f"CIFAR-100 gives {published[CIFAR100]['r2']:.3f}, Tiny-ImageNet {published[TINY]['r2']:.3f}" in page
    first, second, third = (f"{deployed[name]['r2']:.3f}" for name in (CIFAR10, CIFAR100, TINY))
    assert f"R² is {first}, {second} and {third}." in page
    assert f"({crossed[CIFAR100]['r2']:.3f}, {crossed[TINY]['r2']:.3f})" in page
    assert crossed[CIFAR100]["r2"] > deployed[CIFAR100]["r2"]
    assert crossed[TINY]["r2"] > deployed[TINY]["r2"]
    of = {
        protocol: [main[CIFAR10, protocol, name] for name in SHOWN if (CIFAR10, protocol, name) in main]
        for protocol in ("published", "crossed")
    }
    low, high = (pick(of["published"], key=lambda row: row["r2"]) for pick in (min, max))
    assert (len(of["published"]), low["method"], high["method"]) == (13, "gradnorm", "mano")
    assert f"R² from {low['r2']:.3f} (GradNorm) to {high['r2']:.3f} (MaNo)" in page
    assert f"plain mean confidence {main[CIFAR10, 'published', 'confscore']['r2']:.3f}" in page
    assert span([row["r2"] for row in of["crossed"]], 3).replace(" to ", " and ") in page
    claim = [f"{row['r2']:.3f} and {-row['rho']:.3f}" for row in (own, deployed[CIFAR10], crossed[CIFAR10])]
    assert f"{claim[0]} by its protocol; {claim[1]} deployed; {claim[2]} of the released score" in page
    more = span([published[name]["r2"] for name in CORRUPTED[1:]], 3)
    assert f"by its protocol {more} on four more, {published[PACS]['r2']:.3f} on PACS" in page
    names = ("ResNet-50", "WRN-50-2", "CIFAR-100", "Tiny-ImageNet")
    each = ", ".join(f"{deployed[key]['r2']:.3f} ({name})" for key, name in zip(CORRUPTED[1:], names, strict=True))
    assert f"deployed {each}, {deployed[PACS]['r2']:.3f} against" in page
    assert deployed[PACS]["sign"] == "against"


def test_ranks_by_the_published_protocol(page, main):
    ahead = {
        benchmark: sum(
            main[benchmark, "published", name]["r2"] > main[benchmark, "published", "gdscore"]["r2"]
            for name in SHOWN
            if (benchmark, "published", name) in main
        )
        for benchmark in (*CORRUPTED, PACS)
    }
    assert list(ahead.values()) == [11, 11, 11, 7, 9, 12]
    assert "11 of the 12 others have a higher R² on CIFAR-10 with each of three networks" in page
    assert "7 on CIFAR-100, 9 on Tiny-ImageNet, 12 on PACS" in page


def test_collapse(page, main):
    lowest = [
        100 * min(row["accuracy"] for name, row in cells(part, CIFAR10).items() if name != "unshifted")
        for part in ("deployed", "published")
    ]
    assert f"from {lowest[0]:.1f} % to {lowest[1]:.1f} %" in page
    tiny = cells("deployed", TINY)
    worst = min(tiny.values(), key=lambda row: row["accuracy"])
    assert worst["gdscore"] == min(row["gdscore"] for row in tiny.values())
    assert f"lowest accuracy, {100 * worst['accuracy']:.1f} %, has the lowest GdScore of all {len(tiny)}, half" in page
    assert worst["gdscore"] / tiny["unshifted"]["gdscore"] == pytest.approx(0.5, abs=0.005)
    mnist = cells("deployed", "mnist-small")
    before, after = mnist["unshifted"], mnist["mnistm"]
    assert f"from {100 * before['accuracy']:.1f} to {100 * after['accuracy']:.1f} %" in page
    assert f"to {after['gdscore'] / before['gdscore']:.2f} times" in page
    row = main[TINY, "deployed", "gdscore"]
    assert (
        f"errs by {row['mae']:.1f} points on Tiny-ImageNet; the mean of the other sets errs by {row['constant']:.1f}"
        in page
    )


def test_spread_of_predictions(page, main):
    def over(names, key="mae"):
        return [main[benchmark, "deployed", name][key] for benchmark in CORRUPTED for name in names]

    for benchmark in CORRUPTED:
        own = [main[benchmark, "deployed", name] for name in SHOWN if (benchmark, "deployed", name) in main]
        assert max(own, key=lambda row: row["r2"])["method"] == "cott"
    assert f"on all five, {span(over(['cott'], 'r2'), 3)}, with errors of {span(over(['cott']), 1)} points" in page
    assert f"COT errs by {span(over(['cot']), 1)}, the nuclear norm by {span(over(['nuclear']), 1)}" in page
    assert f"dispersion by {span(over(['dispersion']), 1)}." in page
    assert f"err by {span(over(CONFIDENCE), 1)} points, GdScore by {span(over(['gdscore']), 1)}." in page
    assert f"nuclear norm has R² {span(over(['nuclear'], 'r2'), 3)} deployed" in page
    gradnorm, gdscore = (over([name], "r2") for name in ("gradnorm", "gdscore"))
    assert f"GradNorm {min(gradnorm):.3f} (CIFAR-100) to {max(gradnorm):.3f}" in page
    assert f"GdScore {min(gdscore):.3f} (Tiny-ImageNet) to {max(gdscore):.3f}" in page
    ahead = [a > b for a, b in zip(gradnorm, gdscore, strict=True)]
    assert ahead == [True, False, True, False, True]
    published = [
        span([main[benchmark, "published", name]["r2"] for benchmark in CORRUPTED], 3)
        for name in ("nuclear", "gradnorm", "gdscore")
    ]
    assert f"Published, the ranges are {published[0]}, {published[1]} and {published[2]}." in page


def test_natural_shifts(page, main):
    pacs, digits = (
        {name: main[key, "deployed", name] for name in SHOWN if (key, "deployed", name) in main and name != "projnorm"}
        for key in (PACS, DIGITS)
    )
    best, error = max(pacs.values(), key=lambda row: row["r2"]), min(row["mae"] for row in pacs.values())
    assert f"highest is {best['r2']:.3f} ({best['method']}), the smallest error {error:.1f} points" in page
    assert f"no score at all errs by {best['constant']:.1f}, and eight of fourteen" in page
    assert [row["sign"] for row in pacs.values()].count("against") == 8
    assert len(pacs) == 14
    assert f"COT has an error of {digits['cot']['mae']:.1f} points, on six pairs" in page
    worse = span([digits[name]["mae"] for name in CONFIDENCE], 1)
    assert f"MaNo have {worse}, more than no score ({digits['cot']['constant']:.1f})" in page
    splits = [cells("deployed", f"cifar100sub{k}-resnet18") for k in range(4)]
    assert f"accuracies of {span([100 * rows['target']['accuracy'] for rows in splits], 1)} %" in page
    lost = [100 * (rows["unshifted"]["accuracy"] - rows["target"]["accuracy"]) for rows in splits]
    assert f"loses {span(lost, 1)} points" in page
    for rows in splits:
        before, after = rows["unshifted"], rows["target"]
        assert all((after[name] < before[name]) == rises(name) for name in SHOWN if name in after)


def test_label_shift(page, chosen):
    def r2(name, alpha):
        return f"{chosen['labelshift', 'resnet18', alpha, name]['r2']:.3f}"

    for said, name in (("nuclear norm falls", "nuclear"), ("COT", "cot"), ("ATC falls", "atc"), ("MaNo", "mano")):
        between = "R² " if name == "nuclear" else ""
        assert f"{said} from {between}{r2(name, 'none')} to {r2(name, 0.1)}" in page
    strong = {key[3]: row for key, row in chosen.items() if key[:3] == ("labelshift", "resnet18", 0.1)}
    assert min(strong.values(), key=lambda row: row["mae"])["choice"] == "mano"
    assert f"the smallest error, {strong['mano']['mae']:.1f} points" in page
    assert f"takes COT to {r2('cot', 1.0)} and the nuclear norm to {r2('nuclear', 1.0)}" in page


@pytest.mark.parametrize(
    ("said", "ablation", "choice"),
    [
        ("the default: {}. p = 1.5", "norms", "p=0.3"),
        ("on both networks: {}.", "norms", "p=1.5"),
        ("the default: {}. τ = 0.9", "thresholds", "tau=0.5"),
        ("τ = 0.9: {}.", "thresholds", "tau=0.9"),
        ("32 rows: {}", "batches", "batch=32"),
        ("128: {}", "batches", "batch=128"),
        ("512: {}", "batches", "batch=512"),
        ("the whole set: {}", "batches", "batch=None"),
        ("for all rows: {}.", "labels", "pseudo"),
        ("on unsure rows: {},", "labels", "mixed"),
        ("without a draw: {}.", "labels", "expected"),
        ("an oracle: {}.", "labels", "true"),
    ],
)
def test_options_of_both_networks(page, chosen, said, ablation, choice):
    large, small = (chosen[ablation, name, "", choice]["r2"] for name in ("resnet18", "small"))
    assert said.format(f"{large:.3f} ({small:.3f})") in page


def test_other_choices(page, chosen):
    def r2(ablation, choice, network="resnet18"):
        return f"{chosen[ablation, network, '', choice]['r2']:.3f}"

    def spread(network):
        return span([row["r2"] for key, row in chosen.items() if key[:2] == ("seeds", network)], 3)

    for network in ("resnet18", "small"):
        norms = {key[3]: row["r2"] for key, row in chosen.items() if key[:2] == ("norms", network)}
        assert max(norms, key=norms.get) == "p=1.5"
    assert f"by ten seeds {spread('resnet18')} ({spread('small')})" in page
    assert f"Random labels on all rows: {r2('labels', 'random')}, but" in page
    assert chosen["labels", "resnet18", "", "random"]["rho"] > 0
    sorted_, shuffled = (f"{r2('order', name)}" for name in ("sorted", "shuffled"))
    small = f"({r2('order', 'sorted', 'small')} instead of {r2('order', 'shuffled', 'small')})"
    assert f"{sorted_} instead of {shuffled} {small}" in page
    assert (
        f"100 rows: {r2('rows', 'rows=100')}; 1,000: {r2('rows', 'rows=1000')}; 10,000: {r2('rows', 'rows=10000')}."
        in page
    )
    blocks = ", ".join(r2("layers", f"block{k}") for k in (1, 2, 3, 4))
    assert f"The last one: {r2('layers', 'last')}; four blocks from first to last: {blocks}" in page
    assert f"all parameters: {r2('layers', 'all')} (57 sets" in page
    epochs = [r2("epochs", f"epochs={k}") for k in (0, 1, 10, 20)]
    assert "{} without, {} after one, {} after ten, {} after twenty".format(*epochs) in page
    assert f"{epochs[0]} without, {epochs[1]} after one epoch, on 18 sets" in page
    assert (
        f"p = 1.5 raises R² from {r2('norms', 'p=0.3')} to {r2('norms', 'p=1.5')}, τ = 0.9 to {r2('thresholds', 'tau=0.9')}"
        in page
    )
    labels = [r2("labels", name) for name in ("mixed", "pseudo", "expected")]
    assert "{} against {} for plain pseudo-labels; their expectation {}".format(*labels) in page
    layers = {key[3]: row["r2"] for key, row in chosen.items() if key[:2] == ("layers", "resnet18")}
    assert max(layers, key=layers.get) == "last"
    assert f"{layers['last']:.3f} is the highest of six groups, all parameters {layers['all']:.3f}" in page


def test_calibration_error(page, main):
    def medians(source, quantile=0.5):
        rows = cells("deployed", source).values()
        return [
            100 * np.quantile([row["ece"] for row in rows if row["severity"] == level], quantile) for level in range(6)
        ]

    own = medians(CIFAR10)
    assert f"from {own[0]:.1f} points without corruption to {own[1]:.1f} at severity 1 and {own[5]:.1f} at" in page
    assert f"a tenth of the corruptions exceed {medians(CIFAR10, 0.9)[5]:.1f}." in page
    assert "begins at {:.1f} points and ends at {:.1f}.".format(*(medians(CIFAR100)[k] for k in (0, 5))) in page
    pairs = {
        name: [
            100 * row["ece"]
            for file in (RESULTS / "cells" / "deployed").glob(f"{name}*.csv")
            for row in shifted(read(file))
        ]
        for name in ("pacs", "cifar100sub", "mnist-")
    }
    assert f"{span(pairs['pacs'], 1)} points on PACS, {span(pairs['cifar100sub'], 1)} on subpopulations" in page
    assert f"{max(pairs['mnist-']):.1f} from MNIST to MNIST-M" in page
    with_t, without = (main[CIFAR10, "deployed", name] for name in ("doc@T", "doc"))
    assert f"R² {with_t['r2']:.3f} with it and {without['r2']:.3f} without" in page
    assert f"{with_t['mae']:.1f} points with it and {without['mae']:.1f} without" in page


def test_networks(page):
    rows = {(row["data"], row["network"], row["seed"]): row for row in read(RESULTS / "training.csv")}

    def both(data, network="resnet18"):
        return " and ".join(f"{100 * rows[data, network, seed]['validation_accuracy']:.1f}" for seed in (0, 1)) + " %"

    assert f"CIFAR-10 ResNet-18 {both('cifar10')} (50 epochs" in page
    assert f"CIFAR-100 {both('cifar100')}, Tiny-ImageNet {both('tiny')}." in page
    assert (
        f"ResNet-50 ({both('cifar10', 'resnet50')}) and WRN-50-2 ({both('cifar10', 'wrn50_2')}) had 16 epochs" in page
    )
    test = f"{100 * cells('deployed', CIFAR10)['unshifted']['accuracy']:.1f} %"
    assert f"({test} on the test set)" in page
    assert f"{test} of the first on the test set" in page
    assert f"({100 * rows['cifar10', 'small', 0]['validation_accuracy']:.1f} % validation accuracy)" in page
    for source, count in zip(CORRUPTED, (10_000, 5000, 2500, 10_000, 5000), strict=True):
        assert {row["n"] for row in cells("deployed", source).values()} == {count}


def test_cost(page):
    speed = json.loads((RESULTS / "speed_gpu.json").read_text())
    times, compute = speed["ratio_to_forward"], speed["compute_seconds"]
    assert f"the forward pass alone {speed['forward_seconds']:.2f} s; with GdScore {times['gdscore']:.2f} times" in page
    assert f"with all twelve scores of outputs {times['all']:.2f} times" in page
    assert len(compute) == 12
    assert f"and {sum(compute.values()):.2f} s at the end, {compute['frechet']:.2f} of them `frechet`" in page
    assert f"the released algorithm {times['released']:.2f} times." in page
    assert f"took {speed['projnorm_seconds']:.1f} s, {speed['projnorm_over_gdscore']:.0f} times GdScore" in page
    assert f"ProjNorm takes {speed['projnorm_over_gdscore']:.0f} times as long" in page


def minus(value):
    return f"{value:.3f}".replace("-", "−")


def test_projnorm(page):
    folder = RESULTS / "ablations" / "projnorm"
    rows = read(folder / "usps-small.csv")
    assert [row["set"] for row in rows] == ["unshifted", "mnist", "mnistm"]
    first, second, third = (f"{100 * row['accuracy']:.1f}" for row in rows)
    assert f"with accuracies of {first}, {second} and {third} %" in page
    first, second, third = (f"{row['projnorm']:.2f}" for row in rows)
    assert f"ProjNorm is {first}, {second} and {third}, in the right order" in page
    second, third = (f"{row['gdscore'] / rows[0]['gdscore']:.2f}" for row in rows[1:])
    assert f"GdScore is 1, {second} and {third} times" in page
    every = [row for name in ("mnist", "mnistm", "usps") for row in read(folder / f"{name}-small.csv")]
    assert len(every) == 9
    some = relation_of(shifted(every), "projnorm")
    assert f"Over the six shifted sets R² is {some['r2']:.3f} and ρ {minus(some['rho'])};" in page
    all_nine, gdscore = (relation_of(every, name) for name in ("projnorm", "gdscore"))
    assert f"unshifted ones {all_nine['r2']:.3f} and {minus(all_nine['rho'])}" in page
    assert f"GdScore of the same rows has {gdscore['r2']:.3f} and {minus(gdscore['rho'])}" in page
    assert span([row["projnorm_seconds"] for row in every], 0) + " s a set" in page
