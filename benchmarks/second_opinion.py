"""Does the model itself, with BatchNorm's statistics of each batch, help as a second model? From images to estimates.

    python benchmarks/second_opinion.py usps-small mnist-small mnistm-small             # 3 to 7 CPU minutes a source
    python benchmarks/second_opinion.py pacs-photo-resnet18 --device cuda --rows 5000

Unlike ``estimates.py``, which reads scores that ``cells.py`` measured, this goes the way of a user: trains the network if
it is missing, calls ``models.estimator(model, validation, peer="batchnorm")`` and estimates every set that the source
meets. Beside it stands what the same calibration says without the second opinion. One row a set in
``benchmarks/results/second-opinion.csv``; sets that have a row are passed over.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path

import torch

import gdscore
from cells import Rows, commit
from gdscore import models
from gdscore.estimator import Judge
from relation import read, shifted
from sources import SOURCES
from train import load_model, train, unit

RESULTS = Path(__file__).resolve().parent / "results" / "second-opinion.csv"
BATCH = 128
SEED = 0


def batches(images, labels):
    return [(unit(x), y) for x, y in zip(*(torch.from_numpy(a).split(BATCH) for a in (images, labels)), strict=True)]


def without_second_opinion(estimator):
    """What the same meta-sets teach without the disagreement of the two."""
    table = estimator.calibration_
    return Judge(replace(table, scores={name: v for name, v in table.scores.items() if name != "agreescore"}))


def run(source, options, rows):
    targets = [
        t for t in source.targets(rows=options.rows, severities=[]) if f"{source.name}/{t.name}" not in rows.seen
    ]
    if not targets:
        return
    train(source.data, source.network, SEED, split=source.split, device=options.device, **source.recipe)
    model = load_model(source.data, source.network, SEED, split=source.split).to(options.device)
    images, labels = source.reference()
    begin = time.perf_counter()
    estimator = models.estimator(
        model, batches(images[: options.rows], labels[: options.rows]), peer="batchnorm", progress=False
    )
    seconds, alone = time.perf_counter() - begin, without_second_opinion(estimator)
    for target in targets:
        said = list(models.extract(model, batches(target.images, target.labels), peer="batchnorm", progress=False))
        e = estimator.estimate(said)
        accuracy, low, high = alone.judge({name: e.scores[name] for name in alone.table.scores}, e.n, e.level)
        rows.add(
            {"set": f"{source.name}/{target.name}", "family": target.family, "n": e.n}
            | {"truth": gdscore.Outputs.concatenate(said).accuracy}
            | {"alone": accuracy, "alone_low": low, "alone_high": high}
            | {"batchnorm": e.accuracy, "batchnorm_low": e.low, "batchnorm_high": e.high}
            | {"metasets": len(estimator.calibration_.families), "fit_seconds": seconds}
            | {"command": f"benchmarks/second_opinion.py {source.name} --rows {options.rows}"}
        )


def summary(rows):
    """Mean absolute error, coverage and mean width of both, on the shifted sets."""
    members = shifted(rows)
    for way in ("alone", "batchnorm") if members else ():
        off = [abs(row[way] - row["truth"]) for row in members]
        held = [row[f"{way}_low"] <= row["truth"] <= row[f"{way}_high"] for row in members]
        width = [row[f"{way}_high"] - row[f"{way}_low"] for row in members]
        mean = {name: 100 * sum(v) / len(v) for name, v in (("off", off), ("held", held), ("width", width))}
        yield way, len(members), mean


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", choices=list(SOURCES), metavar="SOURCE")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rows", type=int, default=600, help="at most so many of the reference and of each set")
    parser.add_argument("--output", type=Path, default=RESULTS)
    return parser


def main(given=None):
    options = arguments().parse_args(given)
    device = torch.cuda.get_device_name() if torch.device(options.device).type == "cuda" else "cpu"
    rows = Rows(options.output, {"seed": SEED, "commit": commit(), "device": device})
    for name in options.sources:
        run(SOURCES[name], options, rows)
    for way, sets, mean in summary(read(options.output)):
        print(
            f"{way:>9}: {sets} shifted sets, off by {mean['off']:.1f}, {mean['held']:.0f} % covered, width {mean['width']:.0f}"
        )


if __name__ == "__main__":
    main()
