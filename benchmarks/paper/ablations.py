"""The paper's ablations of GdScore, and ours: one row a set, one column a choice, one file an ablation.

    python -m benchmarks.paper.ablations list
    python -m benchmarks.paper.ablations run all --device cuda                     # every cheap one, from one pass a set
    python -m benchmarks.paper.ablations run labels norms --device cuda
    python -m benchmarks.paper.ablations run layers epochs runtime --device cuda   # these need the network itself
    python -m benchmarks.paper.ablations run layers --source cifar10-vit --device cuda
    python -m benchmarks.paper.ablations run projnorm --device cuda --jobs 6       # sets side by side in six processes
    python -m benchmarks.paper.ablations run released --device cuda
    python -m benchmarks.paper.ablations run labels --source mnist-small --corruptions fog contrast --rows 500
    python -m benchmarks.paper.ablations run labels losses norms thresholds seeds layers --protocol published --device cuda

Files: ``benchmarks/results/ablations/<ablation>/<source>.csv``. By default the source is CIFAR-10 ResNet-18 and the
sets are 19 corruptions × 5 severities of all test rows, in an order shuffled by a seed; the expensive ones have a
smaller grid of their own (``GRIDS`` in ``benchmarks/paper/ablations_network.py``). The model is in evaluation mode, as deployed;
``--protocol published`` does as the released code does (``benchmarks/paper/cells.py``) and writes to ``results/ablations_published``. A run
goes on where it was stopped, and each row names the commit, the seed, the device and the command.
"""

import argparse
import dataclasses
import itertools
import math
import time
import zlib
from pathlib import Path

import numpy as np
import torch

import gdscore
from benchmarks import RESULTS
from benchmarks.models.sources import SOURCES
from benchmarks.paper.ablations_network import ALONE, GRIDS, NETWORK
from benchmarks.paper.cells import PARTS, SEED, Classifier, device_name, published_outputs, shuffled_loader, trained
from benchmarks.paper.panel import Panel, options_of, published_scores
from benchmarks.processes import run_jobs
from benchmarks.row_files import Rows, commit, joined
from gdscore import shifts

FOLDERS = {"deployed": RESULTS / "ablations", "published": RESULTS / "ablations_published"}
# What can be asked of batches of 128 with BatchNorm's statistics of each.
PUBLISHED = ("labels", "losses", "norms", "thresholds", "seeds", "layers")
RULES = ("true", "uniform", "random", "pseudo", "mixed", "expected")
NORMS = (0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 3, math.inf)
OPTIONS = {
    "labels": {rule: {"label_rule": rule} for rule in RULES},
    "losses": {loss: {"loss": loss} for loss in ("cross_entropy", "entropy", "smoothing")},
    "norms": {f"p={p:g}": {"p": p} for p in NORMS},
    "thresholds": {f"tau={tau / 10:g}": {"tau": tau / 10} for tau in range(11)},
    "batches": {f"batch={size}": {"batch_size": size} for size in (32, 64, 128, 512, 2000, None)},
    "seeds": {f"seed={seed}": {"seed": seed} for seed in range(10)},
}
COUNTS = (100, 300, 1000, 3000, 10_000)
MIXED_SCORES = ("gdscore", "confscore", "entropy", "nuclear", "dispersion", "mano", "gradnorm", "atc", "doc", "cot")
MIX_ROWS = 2000


def choices(name):
    """GdScore of a set under each choice of one option."""
    return lambda outputs, **variant: {
        column: gdscore.score("gdscore", outputs, **chosen, **variant) for column, chosen in OPTIONS[name].items()
    }


def rows(outputs):
    """Of the first rows of the shuffled set, NaN where it has fewer; the accuracy stays that of all rows."""
    variants = {"": {}, ",batch=32": {"batch_size": 32}, ",whole": {"batch_size": None}}
    return {
        f"rows={count}{suffix}": gdscore.score("gdscore", outputs[:count], **chosen)
        if count <= len(outputs)
        else math.nan
        for count in COUNTS
        for suffix, chosen in variants.items()
    }


def order(outputs):
    """Shuffled, and sorted by the true class as data sets are often stored."""
    by_class = outputs[torch.argsort(outputs.labels, stable=True)]
    return {
        f"{name}{suffix}": gdscore.score("gdscore", some, **chosen)
        for name, some in (("shuffled", outputs), ("sorted", by_class))
        for suffix, chosen in (("", {}), (",whole", {"batch_size": None}))
    }


CHEAP = {name: choices(name) for name in OPTIONS} | {"rows": rows, "order": order}


def label_shift(panel, target, outputs):
    """Rows of one corrupted set with Dirichlet mixes of its classes, each set its own: weak (1), strong (0.1), none."""
    labels = outputs.labels.cpu().numpy()
    for alpha in (None, 1.0, 0.1):
        rng = np.random.default_rng([SEED, round(10 * (alpha or 0)), zlib.crc32(target.name.encode())])
        mix = np.ones(outputs.n_classes) if alpha is None else rng.dirichlet(np.full(outputs.n_classes, alpha))
        weights = mix[labels] / np.bincount(labels, minlength=outputs.n_classes)[labels].clip(1)
        chosen = rng.choice(len(labels), size=min(MIX_ROWS, len(labels)), p=weights / weights.sum())
        part = outputs[torch.from_numpy(chosen).to(outputs.labels.device)]
        facts = {"alpha": "none" if alpha is None else alpha, "n": len(part), "accuracy": part.accuracy}
        yield f"{target.name}/alpha={alpha}", facts | panel.measure(part)


class Files:
    """The CSV files of a source's ablations, or one worker's part of them."""

    def __init__(self, source, options, worker=None):
        self.fixed = {"seed": SEED, "commit": commit(), "device": device_name(options.device)}
        self.source, self.folder, self.worker = source.name, options.output or FOLDERS[options.protocol], worker
        named = {"rows": [options.rows], "severities": options.severities, "corruptions": options.corruptions}
        self.given = "".join(f" --{name} {' '.join(map(str, v))}" for name, v in named.items() if v and v[0])
        self.given += " --protocol published" if options.protocol == "published" else ""

    def path(self, ablation):
        return self.folder / ablation / f"{self.source}.csv"

    def __call__(self, ablation):
        command = {"command": f"python -m benchmarks.paper.ablations run {ablation} --source {self.source}{self.given}"}
        return Rows(self.path(ablation), self.fixed | command, self.worker)


def grid(source, options, default=None):
    """The source with the corruptions asked for, the rows and the severities: options before an ablation's default."""
    default = default or {}
    corruptions = options.corruptions or default.get("corruptions") or source.corruptions
    # A source without corruptions of its own has other domains, which are its sets.
    chosen = dataclasses.replace(
        source, corruptions=tuple(corruptions) if options.corruptions or source.corruptions else ()
    )
    severities = options.severities or default.get("severities") or (1, 2, 3, 4, 5)
    return chosen.targets(rows=options.rows or default.get("rows"), severities=severities)


def from_outputs(names, source, classifier, files, targets, options):
    """Every ablation of `names` from one extraction a set."""
    writers = {name: files(name) for name in names}
    panel = None
    if "labelshift" in names:
        images, labels = source.reference()
        reference = classifier.outputs(images[: options.rows], labels[: options.rows])
        panel = Panel(reference, scores={name: options_of(name) for name in MIXED_SCORES}, tempered=())
    for target in targets:
        missing = [name for name in names if not any(seen.split("/")[0] == target.name for seen in writers[name].seen)]
        if not missing:
            continue
        if options.protocol == "published":
            outputs, accuracy = published_outputs(classifier, shuffled_loader(classifier, target))
            variant = published_scores()["gdscore"]
        else:
            outputs = classifier.outputs(target.images, target.labels, target.shift)
            shuffle = np.random.default_rng(SEED).permutation(len(outputs))
            outputs = outputs[torch.from_numpy(shuffle).to(classifier.device)]
            accuracy, variant = outputs.accuracy, {}
        facts = {"set": target.name, "family": target.family, "severity": target.severity}
        for name in missing:
            if name == "labelshift":
                for set_name, row in label_shift(panel, target, outputs):
                    writers[name].add(facts | {"set": set_name} | row)
            else:
                writers[name].add(facts | {"n": len(outputs), "accuracy": accuracy} | CHEAP[name](outputs, **variant))


def cheap_ones(options):
    every = [*CHEAP, "labelshift"]
    return every if "all" in options.ablations else [name for name in every if name in options.ablations]


def measure(source, worker, workers, options):
    """One worker's sets of every ablation asked for."""
    classifier = Classifier(source, options.device, rotation=False, peer=False)
    files = Files(source, options, worker if workers > 1 else None)

    def own(default=None):
        return itertools.islice(grid(source, options, default), worker, None, workers)

    asked, begin = cheap_ones(options), time.perf_counter()
    if asked:
        from_outputs(asked, source, classifier, files, own(), options)
        print(f"{source.name} {' '.join(asked)}: {time.perf_counter() - begin:.1f} s", flush=True)
    for name in NETWORK:
        if name in options.ablations:
            begin = time.perf_counter()
            how = {"published": True} if options.protocol == "published" else {}
            NETWORK[name](source, classifier, files(name), own(GRIDS[name]), **how)
            print(f"{source.name} {name}: {time.perf_counter() - begin:.1f} s", flush=True)


def run(sources, options):
    """Train what is missing, then measure; what workers of an earlier run have left counts."""

    def join():
        for source in sources:
            for name in (*cheap_ones(options), *(set(NETWORK) & set(options.ablations))):
                names = [target.name for target in grid(source, options, GRIDS.get(name))]
                joined(Files(source, options).path(name), names)

    join()
    run_jobs(trained, [(source, SEED, options.device) for source in sources], options.jobs)
    workers = max(1, options.jobs // len(sources))
    jobs = [(source, worker, workers, options) for source in sources for worker in range(workers)]
    run_jobs(measure, jobs, options.jobs)
    join()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="names of the ablations")
    running = commands.add_parser("run", help="one or more ablations, or all of the cheap ones")
    running.add_argument("ablations", nargs="+", choices=["all", *CHEAP, "labelshift", *NETWORK], metavar="ABLATION")
    running.add_argument("--source", nargs="+", default=["cifar10-resnet18"], choices=list(SOURCES), metavar="SOURCE")
    running.add_argument("--device", default="cpu")
    running.add_argument("--jobs", type=int, default=1, help="sets at a time, each in its own process")
    running.add_argument("--rows", type=int, help="at most so many of each set (default: the ablation's own)")
    running.add_argument("--severities", type=int, nargs="+", help="(default: the ablation's own)")
    running.add_argument("--corruptions", nargs="+", choices=shifts.corruption_names(), metavar="NAME")
    running.add_argument("--protocol", choices=PARTS, default="deployed")
    running.add_argument("--output", type=Path, help="(default: the folder of the protocol)")
    return parser


def main(given=None):
    parser = arguments()
    options = parser.parse_args(given)
    if options.command == "list":
        print("\n".join(["all", *CHEAP, "labelshift", *NETWORK]))
        return
    if options.protocol == "published" and set(options.ablations) - set(PUBLISHED):
        parser.error(f"--protocol published is for {', '.join(PUBLISHED)}")
    if options.jobs > 1 and set(ALONE) & set(options.ablations):
        parser.error(f"{' and '.join(ALONE)} are of one set, alone on the device: leave out --jobs")
    run([SOURCES[name] for name in options.source], options)


if __name__ == "__main__":
    main()
