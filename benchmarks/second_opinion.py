"""Does the model itself, with BatchNorm's statistics of each batch, help as a second model? From images to estimates.

    python benchmarks/second_opinion.py usps-small mnist-small mnistm-small             # 3 to 7 CPU minutes a source
    python benchmarks/second_opinion.py pacs-photo-resnet18 --device cuda --rows 5000

Unlike ``estimates.py``, which reads scores that ``cells.py`` measured, this goes the way of a user: trains the network if
it is missing, fits ``AccuracyEstimator.fit_predictor`` on ``models.extract(..., batchnorm="both")`` and estimates every set that the source
meets, and its unshifted test set with ten other mixes of classes, which the statistics of a batch depend on. Beside it
stands what the same calibration says without the second opinion. One row a set in
``benchmarks/results/second-opinion.csv``; sets that have a row are passed over. ``--page`` fills the table of
``docs/estimator.md``.
"""

import argparse
import math
import time
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import torch

import gdscore
from cells import Rows, class_mixes, commit
from gdscore import models
from gdscore.estimator import Judge
from relation import read
from sources import SOURCES, TargetSet
from tables_page import fill, markdown
from train import load_model, train, unit

RESULTS = Path(__file__).resolve().parent / "results" / "second-opinion.csv"
BATCH = 128
SEED = 0


def batches(images, labels):
    return [(unit(x), y) for x, y in zip(*(torch.from_numpy(a).split(BATCH) for a in (images, labels)), strict=True)]


def without_second_opinion(estimator):
    """What the same shifted sets teach without what the model says by batch statistics."""
    table = estimator.calibration_
    return Judge(replace(table, scores={name: v for name, v in table.scores.items() if name != "selfscore"}))


def met(source, rows):
    """The sets that a source meets, and other mixes of the classes of its unshifted one."""
    for target in source.targets(rows=rows, severities=[]):
        yield target
        if target.family == "unshifted":
            for name, chosen in class_mixes(target.labels, int(target.labels.max()) + 1):
                yield TargetSet(name, "label-shift", 0, target.images[chosen], target.labels[chosen])


def run(source, options, rows):
    targets = [t for t in met(source, options.rows) if f"{source.name}/{t.name}" not in rows.seen]
    if not targets:
        return
    train(source.data, source.network, SEED, split=source.split, device=options.device, **source.recipe)
    model = load_model(source.data, source.network, SEED, split=source.split).to(options.device)
    images, labels = (part[: options.rows] for part in source.reference())
    # Statistics of batches of one class would be of their own, and of a short last batch.
    order = np.random.default_rng(SEED).permutation(len(labels))
    images, labels = unit(torch.from_numpy(images[order])), torch.from_numpy(labels[order])
    size = math.ceil(len(labels) / math.ceil(len(labels) / 500))

    def predict(x):
        return next(models.extract(model, [x.to(options.device)], batchnorm="both", progress=False))

    begin = time.perf_counter()
    head = models.head_of(model, images[:2])
    estimator = gdscore.AccuracyEstimator().fit_predictor(
        predict, images, labels, batch_size=size, head=head, progress=False
    )
    seconds, alone = time.perf_counter() - begin, without_second_opinion(estimator)
    for target in targets:
        said = list(models.extract(model, batches(target.images, target.labels), batchnorm="both", progress=False))
        e = estimator.estimate(said)
        accuracy, low, high = alone.judge({name: e.scores[name] for name in alone.table.scores}, e.n, e.level)
        rows.add(
            {"set": f"{source.name}/{target.name}", "family": target.family, "n": e.n}
            | {"truth": gdscore.Outputs.concatenate(said).accuracy}
            | {"alone": accuracy, "alone_low": low, "alone_high": high}
            | {"batchnorm": e.accuracy, "batchnorm_low": e.low, "batchnorm_high": e.high}
            | {"shifted_sets": len(estimator.calibration_.families), "fit_seconds": seconds}
            | {"command": f"benchmarks/second_opinion.py {source.name} --rows {options.rows}"}
        )


def summary(rows):
    """Mean absolute error, coverage and mean width of both, by kind of shift."""
    kinds = {}
    for row in rows:
        kind = row["family"] if row["family"] in ("unshifted", "label-shift") else "shifted"
        kinds.setdefault(kind, []).append(row)
    for kind, way in product(kinds, ("alone", "batchnorm")):
        members = kinds[kind]
        off = [abs(row[way] - row["truth"]) for row in members]
        held = [row[f"{way}_low"] <= row["truth"] <= row[f"{way}_high"] for row in members]
        width = [row[f"{way}_high"] - row[f"{way}_low"] for row in members]
        mean = {name: 100 * sum(v) / len(v) for name, v in (("off", off), ("held", held), ("width", width))}
        yield kind, way, len(members), mean


def page_table(rows):
    """Error, coverage and width by kind of shift, without and with the second opinion, as Markdown."""
    cells = {}
    for kind, _, sets, mean in summary(rows):
        covered = f"{mean['held'] * sets / 100:.0f} of {sets}"
        cells.setdefault((kind, sets), []).append(f"{mean['off']:.1f} / {covered} / {mean['width']:.1f}")
    names = {"shifted": "{} natural shifts", "label-shift": "{} class mixes", "unshifted": "{} unshifted test sets"}
    lines = [
        [names[kind].format(sets), *cells[kind, sets]]
        for kind, sets in sorted(cells, key=lambda k: list(names).index(k[0]))
    ]
    return markdown(["error / covered / width", "alone", "with itself"], lines)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", choices=list(SOURCES), metavar="SOURCE")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rows", type=int, default=600, help="at most so many of the reference and of each set")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--page", default="", help="page to fill, docs/estimator.md")
    return parser


def main(given=None):
    options = arguments().parse_args(given)
    device = torch.cuda.get_device_name() if torch.device(options.device).type == "cuda" else "cpu"
    rows = Rows(options.output, {"seed": SEED, "commit": commit(), "device": device})
    for name in options.sources:
        run(SOURCES[name], options, rows)
    if options.page:
        fill(Path(options.page), {"opinion": page_table(read(options.output))})
    for kind, way, sets, mean in summary(read(options.output)):
        print(
            f"{kind:>11}, {way:>9}: {sets:>2} sets, off by {mean['off']:.1f}, {mean['held']:.0f} % covered, "
            f"width {mean['width']:.0f}"
        )


if __name__ == "__main__":
    main()
