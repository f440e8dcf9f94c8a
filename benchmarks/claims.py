"""Sentences of docs/results.md that name measured numbers, made of the committed results.

``pages.py --check`` looks for each of them in the page. A claim without a number that is printed, such as which method
is best, is an ``assert`` beside its sentence.
"""

import json
from pathlib import Path

import numpy as np

from relation import read, relation_of, shifted
from tables import ablation_rows, main_rows, rises
from tables_page import SHOWN

__all__ = ["CLAIMS", "claims"]

RESULTS = Path(__file__).resolve().parent / "results"
CORRUPTED = ("cifar10-resnet18", "cifar10-resnet50", "cifar10-wrn50_2", "cifar100-resnet18", "tiny-resnet18")
CIFAR10, CIFAR100, TINY, PACS, DIGITS = CORRUPTED[0], *CORRUPTED[3:], "pacs-resnet18", "digits-small"
CONFIDENCE = ("confscore", "entropy", "atc", "doc", "mano")


def cells(part, source):
    return {row["set"]: row for row in read(RESULTS / "cells" / part / f"{source}.csv")}


def span(values, digits):
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


def protocols(main, _chosen):
    published, deployed, crossed = (
        {name: main[name, protocol, "gdscore"] for name in (*CORRUPTED, PACS)}
        for protocol in ("published", "deployed", "crossed")
    )
    own = published[CIFAR10]
    yield f"gives us {own['r2']:.3f} and {-own['rho']:.3f}"
    yield f"CIFAR-100 gives {published[CIFAR100]['r2']:.3f}, Tiny-ImageNet {published[TINY]['r2']:.3f}"
    first, second, third = (f"{deployed[name]['r2']:.3f}" for name in (CIFAR10, CIFAR100, TINY))
    yield f"R² is {first}, {second} and {third}."
    yield f"({crossed[CIFAR100]['r2']:.3f}, {crossed[TINY]['r2']:.3f})"
    assert crossed[CIFAR100]["r2"] > deployed[CIFAR100]["r2"]
    assert crossed[TINY]["r2"] > deployed[TINY]["r2"]
    of = {
        protocol: [main[CIFAR10, protocol, name] for name in SHOWN if (CIFAR10, protocol, name) in main]
        for protocol in ("published", "crossed")
    }
    low, high = (pick(of["published"], key=lambda row: row["r2"]) for pick in (min, max))
    assert (len(of["published"]), low["method"], high["method"]) == (13, "gradnorm", "mano")
    yield f"R² from {low['r2']:.3f} (GradNorm) to {high['r2']:.3f} (MaNo)"
    yield f"plain mean confidence {main[CIFAR10, 'published', 'confscore']['r2']:.3f}"
    yield span([row["r2"] for row in of["crossed"]], 3).replace(" to ", " and ")
    claim = [f"{row['r2']:.3f} and {-row['rho']:.3f}" for row in (own, deployed[CIFAR10], crossed[CIFAR10])]
    yield f"{claim[0]} by its protocol; {claim[1]} deployed; {claim[2]} of the released score"
    more = span([published[name]["r2"] for name in CORRUPTED[1:]], 3)
    yield f"by its protocol {more} on four more, {published[PACS]['r2']:.3f} on PACS"
    names = ("ResNet-50", "WRN-50-2", "CIFAR-100", "Tiny-ImageNet")
    each = ", ".join((f"{deployed[key]['r2']:.3f} ({name})" for key, name in zip(CORRUPTED[1:], names, strict=True)))
    yield f"deployed {each}, {deployed[PACS]['r2']:.3f} against"
    assert deployed[PACS]["sign"] == "against"


def ranks_by_the_published_protocol(main, _chosen):
    ahead = {
        benchmark: sum(
            main[benchmark, "published", name]["r2"] > main[benchmark, "published", "gdscore"]["r2"]
            for name in SHOWN
            if (benchmark, "published", name) in main
        )
        for benchmark in (*CORRUPTED, PACS)
    }
    assert list(ahead.values()) == [11, 11, 11, 7, 9, 12]
    yield "11 of the 12 others have a higher R² on CIFAR-10 with each of three networks"
    yield "7 on CIFAR-100, 9 on Tiny-ImageNet, 12 on PACS"


def collapse(main, _chosen):
    lowest = [
        100 * min((row["accuracy"] for name, row in cells(part, CIFAR10).items() if name != "unshifted"))
        for part in ("deployed", "published")
    ]
    yield f"from {lowest[0]:.1f} % to {lowest[1]:.1f} %"
    tiny = cells("deployed", TINY)
    worst = min(tiny.values(), key=lambda row: row["accuracy"])
    assert worst["gdscore"] == min(row["gdscore"] for row in tiny.values())
    yield f"lowest accuracy, {100 * worst['accuracy']:.1f} %, has the lowest GdScore of all {len(tiny)}, half"
    assert abs(worst["gdscore"] / tiny["unshifted"]["gdscore"] - 0.5) < 0.005
    mnist = cells("deployed", "mnist-small")
    before, after = (mnist["unshifted"], mnist["mnistm"])
    yield f"from {100 * before['accuracy']:.1f} to {100 * after['accuracy']:.1f} %"
    yield f"to {after['gdscore'] / before['gdscore']:.2f} times"
    row = main[TINY, "deployed", "gdscore"]
    yield f"errs by {row['mae']:.1f} points on Tiny-ImageNet; the mean of the other sets errs by {row['constant']:.1f}"


def spread_of_predictions(main, _chosen):

    def over(names, key="mae"):
        return [main[benchmark, "deployed", name][key] for benchmark in CORRUPTED for name in names]

    for benchmark in CORRUPTED:
        own = [main[benchmark, "deployed", name] for name in SHOWN if (benchmark, "deployed", name) in main]
        assert max(own, key=lambda row: row["r2"])["method"] == "cott"
    yield f"on all five, {span(over(['cott'], 'r2'), 3)}, with errors of {span(over(['cott']), 1)} points"
    yield f"COT errs by {span(over(['cot']), 1)}, the nuclear norm by {span(over(['nuclear']), 1)}"
    yield f"dispersion by {span(over(['dispersion']), 1)}."
    yield f"err by {span(over(CONFIDENCE), 1)} points, GdScore by {span(over(['gdscore']), 1)}."
    yield f"nuclear norm has R² {span(over(['nuclear'], 'r2'), 3)} deployed"
    gradnorm, gdscore = (over([name], "r2") for name in ("gradnorm", "gdscore"))
    yield f"GradNorm {min(gradnorm):.3f} (CIFAR-100) to {max(gradnorm):.3f}"
    yield f"GdScore {min(gdscore):.3f} (Tiny-ImageNet) to {max(gdscore):.3f}"
    ahead = [a > b for a, b in zip(gradnorm, gdscore, strict=True)]
    assert ahead == [True, False, True, False, True]
    published = [
        span([main[benchmark, "published", name]["r2"] for benchmark in CORRUPTED], 3)
        for name in ("nuclear", "gradnorm", "gdscore")
    ]
    yield f"Published, the ranges are {published[0]}, {published[1]} and {published[2]}."


def natural_shifts(main, _chosen):
    pacs, digits = (
        {name: main[key, "deployed", name] for name in SHOWN if (key, "deployed", name) in main and name != "projnorm"}
        for key in (PACS, DIGITS)
    )
    best, error = (max(pacs.values(), key=lambda row: row["r2"]), min(row["mae"] for row in pacs.values()))
    yield f"highest is {best['r2']:.3f} ({best['method']}), the smallest error {error:.1f} points"
    yield f"no score at all errs by {best['constant']:.1f}, and eight of fourteen"
    assert [row["sign"] for row in pacs.values()].count("against") == 8
    assert len(pacs) == 14
    yield f"COT has an error of {digits['cot']['mae']:.1f} points, on six pairs"
    worse = span([digits[name]["mae"] for name in CONFIDENCE], 1)
    yield f"MaNo have {worse}, more than no score ({digits['cot']['constant']:.1f})"
    splits = [cells("deployed", f"cifar100sub{k}-resnet18") for k in range(4)]
    yield f"accuracies of {span([100 * rows['target']['accuracy'] for rows in splits], 1)} %"
    lost = [100 * (rows["unshifted"]["accuracy"] - rows["target"]["accuracy"]) for rows in splits]
    yield f"loses {span(lost, 1)} points"
    for rows in splits:
        before, after = (rows["unshifted"], rows["target"])
        assert all((after[name] < before[name]) == rises(name) for name in SHOWN if name in after)


def label_shift(_main, chosen):

    def r2(name, alpha):
        return f"{chosen['labelshift', 'resnet18', alpha, name]['r2']:.3f}"

    for sentence, name in (("nuclear norm falls", "nuclear"), ("COT", "cot"), ("ATC falls", "atc"), ("MaNo", "mano")):
        between = "R² " if name == "nuclear" else ""
        yield f"{sentence} from {between}{r2(name, 'none')} to {r2(name, 0.1)}"
    strong = {key[3]: row for key, row in chosen.items() if key[:3] == ("labelshift", "resnet18", 0.1)}
    assert min(strong.values(), key=lambda row: row["mae"])["choice"] == "mano"
    yield f"the smallest error, {strong['mano']['mae']:.1f} points"
    yield f"takes COT to {r2('cot', 1.0)} and the nuclear norm to {r2('nuclear', 1.0)}"


def options_of_both_networks(_main, chosen):
    for sentence, ablation, choice in [
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
    ]:
        large, small = (chosen[ablation, name, "", choice]["r2"] for name in ("resnet18", "small"))
        yield sentence.format(f"{large:.3f} ({small:.3f})")


def other_choices(_main, chosen):

    def r2(ablation, choice, network="resnet18"):
        return f"{chosen[ablation, network, '', choice]['r2']:.3f}"

    def spread(network):
        return span([row["r2"] for key, row in chosen.items() if key[:2] == ("seeds", network)], 3)

    for network in ("resnet18", "small"):
        norms = {key[3]: row["r2"] for key, row in chosen.items() if key[:2] == ("norms", network)}
        assert max(norms, key=norms.get) == "p=1.5"
    yield f"by ten seeds {spread('resnet18')} ({spread('small')})"
    yield f"Random labels on all rows: {r2('labels', 'random')}, but"
    assert chosen["labels", "resnet18", "", "random"]["rho"] > 0
    sorted_, shuffled = (f"{r2('order', name)}" for name in ("sorted", "shuffled"))
    small = f"({r2('order', 'sorted', 'small')} instead of {r2('order', 'shuffled', 'small')})"
    yield f"{sorted_} instead of {shuffled} {small}"
    yield f"100 rows: {r2('rows', 'rows=100')}; 1,000: {r2('rows', 'rows=1000')}; 10,000: {r2('rows', 'rows=10000')}."
    blocks = ", ".join(r2("layers", f"block{k}") for k in (1, 2, 3, 4))
    yield f"The last one: {r2('layers', 'last')}; four blocks from first to last: {blocks}"
    yield f"all parameters: {r2('layers', 'all')} (57 sets"
    epochs = [r2("epochs", f"epochs={k}") for k in (0, 1, 10, 20)]
    yield "{} without, {} after one, {} after ten, {} after twenty".format(*epochs)
    yield f"{epochs[0]} without, {epochs[1]} after one epoch, on 18 sets"
    yield f"p = 1.5 raises R² from {r2('norms', 'p=0.3')} to {r2('norms', 'p=1.5')}, τ = 0.9 to {r2('thresholds', 'tau=0.9')}"
    labels = [r2("labels", name) for name in ("mixed", "pseudo", "expected")]
    yield "{} against {} for plain pseudo-labels; their expectation {}".format(*labels)
    layers = {key[3]: row["r2"] for key, row in chosen.items() if key[:2] == ("layers", "resnet18")}
    assert max(layers, key=layers.get) == "last"
    yield f"{layers['last']:.3f} is the highest of six groups, all parameters {layers['all']:.3f}"


def calibration_error(main, _chosen):

    def medians(source, quantile=0.5):
        rows = cells("deployed", source).values()
        return [
            100 * np.quantile([row["ece"] for row in rows if row["severity"] == level], quantile) for level in range(6)
        ]

    own = medians(CIFAR10)
    yield f"from {own[0]:.1f} points without corruption to {own[1]:.1f} at severity 1 and {own[5]:.1f} at"
    yield f"a tenth of the corruptions exceed {medians(CIFAR10, 0.9)[5]:.1f}."
    yield "begins at {:.1f} points and ends at {:.1f}.".format(*(medians(CIFAR100)[k] for k in (0, 5)))
    pairs = {
        name: [
            100 * row["ece"]
            for file in (RESULTS / "cells" / "deployed").glob(f"{name}*.csv")
            for row in shifted(read(file))
        ]
        for name in ("pacs", "cifar100sub", "mnist-")
    }
    yield f"{span(pairs['pacs'], 1)} points on PACS, {span(pairs['cifar100sub'], 1)} on subpopulations"
    yield f"{max(pairs['mnist-']):.1f} from MNIST to MNIST-M"
    with_t, without = (main[CIFAR10, "deployed", name] for name in ("doc@T", "doc"))
    yield f"R² {with_t['r2']:.3f} with it and {without['r2']:.3f} without"
    yield f"{with_t['mae']:.1f} points with it and {without['mae']:.1f} without"


def networks(_main, _chosen):
    rows = {(row["data"], row["network"], row["seed"]): row for row in read(RESULTS / "training.csv")}

    def both(data, network="resnet18"):
        return " and ".join(f"{100 * rows[data, network, seed]['validation_accuracy']:.1f}" for seed in (0, 1)) + " %"

    yield f"CIFAR-10 ResNet-18 {both('cifar10')} (50 epochs"
    yield f"CIFAR-100 {both('cifar100')}, Tiny-ImageNet {both('tiny')}."
    yield f"ResNet-50 ({both('cifar10', 'resnet50')}) and WRN-50-2 ({both('cifar10', 'wrn50_2')}) had 16 epochs"
    test = f"{100 * cells('deployed', CIFAR10)['unshifted']['accuracy']:.1f} %"
    yield f"({test} on the test set)"
    yield f"{test} of the first on the test set"
    yield f"({100 * rows['cifar10', 'small', 0]['validation_accuracy']:.1f} % validation accuracy)"
    for source, count in zip(CORRUPTED, (10000, 5000, 2500, 10000, 5000), strict=True):
        assert {row["n"] for row in cells("deployed", source).values()} == {count}


def cost(_main, _chosen):
    speed = json.loads((RESULTS / "speed_gpu.json").read_text())
    times, compute = (speed["ratio_to_forward"], speed["compute_seconds"])
    yield f"the forward pass alone {speed['forward_seconds']:.2f} s; with GdScore {times['gdscore']:.2f} times"
    yield f"with all twelve scores of outputs {times['all']:.2f} times"
    assert len(compute) == 12
    yield f"and {sum(compute.values()):.2f} s at the end, {compute['frechet']:.2f} of them `frechet`"
    yield f"the released algorithm {times['released']:.2f} times."
    yield f"took {speed['projnorm_seconds']:.1f} s, {speed['projnorm_over_gdscore']:.0f} times GdScore"
    yield f"ProjNorm takes {speed['projnorm_over_gdscore']:.0f} times as long"


def minus(value):
    return f"{value:.3f}".replace("-", "−")


def projnorm(_main, _chosen):
    folder = RESULTS / "ablations" / "projnorm"
    rows = read(folder / "usps-small.csv")
    assert [row["set"] for row in rows] == ["unshifted", "mnist", "mnistm"]
    first, second, third = (f"{100 * row['accuracy']:.1f}" for row in rows)
    yield f"with accuracies of {first}, {second} and {third} %"
    first, second, third = (f"{row['projnorm']:.2f}" for row in rows)
    yield f"ProjNorm is {first}, {second} and {third}, in the right order"
    second, third = (f"{row['gdscore'] / rows[0]['gdscore']:.2f}" for row in rows[1:])
    yield f"GdScore is 1, {second} and {third} times"
    every = [row for name in ("mnist", "mnistm", "usps") for row in read(folder / f"{name}-small.csv")]
    assert len(every) == 9
    some = relation_of(shifted(every), "projnorm")
    yield f"Over the six shifted sets R² is {some['r2']:.3f} and ρ {minus(some['rho'])};"
    all_nine, gdscore = (relation_of(every, name) for name in ("projnorm", "gdscore"))
    yield f"unshifted ones {all_nine['r2']:.3f} and {minus(all_nine['rho'])}"
    yield f"GdScore of the same rows has {gdscore['r2']:.3f} and {minus(gdscore['rho'])}"
    yield (span([row["projnorm_seconds"] for row in every], 0) + " s a set")


CLAIMS = (
    protocols,
    ranks_by_the_published_protocol,
    collapse,
    spread_of_predictions,
    natural_shifts,
    label_shift,
    options_of_both_networks,
    other_choices,
    calibration_error,
    networks,
    cost,
    projnorm,
)


def claims():
    """Every sentence, with the part of the page that it belongs to."""
    rows = main_rows(RESULTS / "cells", RESULTS / "ablations")
    main = {(row["benchmark"], row["protocol"], row["method"]): row for row in rows}
    rows = ablation_rows(RESULTS / "ablations")
    chosen = {(row["ablation"], row["source"].split("-")[1], row["alpha"], row["choice"]): row for row in rows}
    for part in CLAIMS:
        try:
            for sentence in part(main, chosen):
                yield part.__name__, sentence
        except AssertionError as error:
            raise SystemExit(f"docs/results.md: a claim of {part.__name__} does not hold any more") from error
