"""One cell of the tables: train a source's networks, show them every set, append one row a set.

    python -m benchmarks.paper.cells list
    python -m benchmarks.paper.cells run cifar10-resnet18 --device cuda            # all parts; minutes on one GPU
    python -m benchmarks.paper.cells run mnist-small --parts deployed                 # a part of it, on the CPU
    python -m benchmarks.paper.cells run pacs128-{photo,art_painting,cartoon,sketch}-lite{0,1} --device cuda --jobs 8

Parts, each a file ``benchmarks/results/cells/<part>/<source>.csv``:

- ``deployed``: the model as it is, in evaluation mode, on every target set; the accuracy is that of the model as it is.
- ``published``: as the released code does it: BatchNorm with the statistics of each mini-batch of 128, and the
  accuracy of the model whose running statistics were moved by that pass. Not of a network without BatchNorm (the ViT):
  train mode changes nothing in it, so that its deployed sets are those of both protocols.

With ``--jobs`` networks are trained, and parts of sources measured, in so many processes at a time.

A run ends where it is stopped and goes on from there: sets that have a row are passed over. Every row names the commit,
the seed, the device and the command. The same command gives the same numbers to about 1e-3 on another GPU: training
is seeded, and sums on a GPU differ in their last bits.
"""

import argparse
import contextlib
import io
import time
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import nn

import gdscore
from benchmarks import RESULTS
from benchmarks.models.sources import SOURCES
from benchmarks.models.train import load_model, train
from benchmarks.paper.network_scores import adapted_copy
from benchmarks.paper.panel import Panel, published_scores
from benchmarks.processes import run_jobs
from benchmarks.row_files import Rows, commit
from gdscore import models

FOLDER = RESULTS / "cells"
PARTS = ("deployed", "published")
SEVERITIES = [1, 2, 3, 4, 5]
BATCH = 1000
PUBLISHED_BATCH = 128
SEED = 0


class Classifier:
    """A source's network and its second model on a device, asked about uint8 images."""

    def __init__(self, source, device, *, rotation=True, peer=True):
        self.device = torch.device(device)
        self.model, self.peer = (
            load_model(source.data, source.network, seed, split=source.split).to(
                self.device, memory_format=torch.channels_last
            )
            if wanted
            else None
            for seed, wanted in ((SEED, True), (SEED + 1, peer))
        )
        self.rotation = None
        if rotation:
            images = source.training()[0][:10_000]
            self.rotation = models.fit_rotation_head(
                self.model, list(self.batches(images, None, None, BATCH)), progress=False
            )

    def batches(self, images, labels, shift, size):
        bounds = [*range(0, len(images), size), len(images)]
        for start, stop in pairwise(bounds):
            x = torch.from_numpy(images[start:stop]).to(self.device)
            if shift is not None:
                x = shift(x, start=start)
            x = x.to(torch.float32) / 255
            yield x if labels is None else (x, torch.from_numpy(labels[start:stop]).to(self.device))

    def outputs(self, images, labels, shift=None, *, rotation=False):
        """Outputs of the model in evaluation mode, and of its second model, as one `Outputs`."""
        parts = models.extract(
            self.model,
            self.batches(images, labels, shift, BATCH),
            peer=self.peer,
            rotation_head=self.rotation if rotation else None,
            progress=False,
        )
        return gdscore.Outputs.concatenate(list(parts))


def has_batchnorm(model):
    return any(isinstance(module, nn.BatchNorm2d) for module in model.modules())


def measured(panel, outputs, **facts):
    """A row: what the set is, its size and true accuracy, then every column of the panel."""
    return facts | {"n": len(outputs), "accuracy": outputs.accuracy} | panel.measure(outputs)


def deployed(source, classifier, reference, options):
    """Every target set, the model as it is."""
    panel = Panel(reference)

    def work(target):
        rotation = classifier.rotation is not None
        outputs = classifier.outputs(target.images, target.labels, target.shift, rotation=rotation)
        facts = {"set": target.name, "family": target.family, "severity": target.severity}
        return measured(panel, outputs, **facts) | {"ece": gdscore.calibration_error(outputs), "order": "shuffled"}

    for target in source.targets(rows=options.rows, severities=options.severities):
        yield target.name, partial(work, target)


def shuffled_loader(classifier, target, size=PUBLISHED_BATCH):
    """Batches of a set on the device, in an order by the seed."""
    # Corruptions number images by their place in the set, so they come before the shuffling.
    x, y = next(classifier.batches(target.images, target.labels, target.shift, len(target.labels)))
    index = torch.from_numpy(np.random.default_rng(SEED).permutation(len(y))).to(x.device)
    return list(zip(x[index].split(size), y[index].split(size), strict=True))


def published_outputs(classifier, loader):
    """Outputs with the statistics of each batch, and the accuracy of the model whose statistics this pass has moved."""
    outputs = models.extract(classifier.model, loader, peer=classifier.peer, batchnorm="batch", progress=False)
    outputs = gdscore.Outputs.concatenate(list(outputs))
    moved = adapted_copy(classifier.model, loader)
    after = gdscore.Outputs.concatenate(list(models.extract(moved, loader, head=False, progress=False)))
    return outputs, after.accuracy


def published(source, classifier, reference, options):
    """The same by the released protocol: train-mode BatchNorm, batches of 128 in a seeded random order."""
    if not has_batchnorm(classifier.model):
        return  # nothing that train mode would change
    panel = Panel(reference, scores=published_scores(), tempered=())

    def work(target):
        outputs, accuracy = published_outputs(classifier, shuffled_loader(classifier, target))
        facts = {"set": target.name, "family": target.family, "severity": target.severity}
        return measured(panel, outputs, **facts) | {"accuracy": accuracy}

    for target in source.targets(rows=options.rows, severities=options.severities):
        yield target.name, partial(work, target)


MAKERS = {"deployed": deployed, "published": published}


def trained(source, seed, device):
    """Train a network of the source if that is missing."""
    with contextlib.redirect_stdout(io.StringIO()):
        record = train(source.data, source.network, seed, split=source.split, device=device, **source.recipe)
    reached = f"validation accuracy {record['validation_accuracy']:.4f}, trained in {record['seconds']} s"
    print(f"{source.name} seed {seed}: {reached}", flush=True)


def device_name(device):
    return torch.cuda.get_device_name() if torch.device(device).type == "cuda" else "cpu"


def measure(source, part, options):
    """One part of a source: every set that has no row yet."""
    classifier = Classifier(source, options.device, rotation=part == "deployed")
    images, labels = source.reference()
    reference = classifier.outputs(images[: options.rows], labels[: options.rows])
    command = f"python -m benchmarks.paper.cells run {source.name}" + (
        f" --rows {options.rows}" if options.rows else ""
    )
    if list(options.severities) != SEVERITIES:
        command += f" --severities {' '.join(map(str, options.severities))}"
    fixed = {"seed": SEED, "commit": commit(), "device": device_name(options.device), "command": command}
    rows, begin, made = Rows(options.output / part / f"{source.name}.csv", fixed), time.perf_counter(), 0
    for name, work in MAKERS[part](source, classifier, reference, options):
        if name not in rows.seen:
            rows.add(work())
            made += 1
    print(f"{source.name} {part}: {made} sets in {time.perf_counter() - begin:.1f} s", flush=True)


def run(sources, options):
    """Train what is missing, then every part asked for."""
    networks = [(source, seed, options.device) for seed in (SEED, SEED + 1) for source in sources]
    run_jobs(trained, networks, options.jobs)
    run_jobs(measure, [(source, part, options) for source in sources for part in options.parts], options.jobs)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="names of the sources")
    running = commands.add_parser("run", help="the cells of one or more sources")
    running.add_argument("sources", nargs="+", choices=list(SOURCES), metavar="SOURCE")
    running.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    running.add_argument("--device", default="cpu")
    running.add_argument("--jobs", type=int, default=1, help="how many at a time, each in its own process")
    running.add_argument("--rows", type=int, help="at most so many of each set (default: all)")
    running.add_argument("--severities", type=int, nargs="+", default=SEVERITIES, help="of the target sets")
    running.add_argument("--output", type=Path, default=FOLDER)
    return parser.parse_args()


def main():
    options = arguments()
    if options.command == "list":
        print("\n".join(SOURCES))
        return
    run([SOURCES[name] for name in options.sources], options)


if __name__ == "__main__":
    main()
