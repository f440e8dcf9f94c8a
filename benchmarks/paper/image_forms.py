"""Why GdScore's R² differs between two CIFAR-100 networks of one recipe: the form of the images, or the seed?

    python -m benchmarks.paper.image_forms prepare                          # data/packed/cifar100jpeg-*.npz from cifar100's
    python -m benchmarks.paper.image_forms run --device cuda --jobs 6       # trains, scores every network on every form
    python -m benchmarks.paper.image_forms summary

ResNet-18 by the recipe of the tables, trained on CIFAR-100 as it is and as JPEG of quality 95 (as ``benchmarks/data/carry.py`` carries it),
from each seed, and scored on 19 corruptions × 5 severities of both forms of the test set, as deployed. Columns: accuracy,
GdScore by the published choices and by others, mean confidence, the share of rows whose confidence is above τ, and how
sparse and how long the features are, since a norm with p = 0.3 counts entries rather than sizes.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch

import gdscore
from benchmarks import RESULTS
from benchmarks.data.carry import expand, shrink
from benchmarks.data.images import PACKED
from benchmarks.models.sources import CIFAR, Source
from benchmarks.models.train import load_model
from benchmarks.paper.cells import trained
from benchmarks.paper.long_tables import forms_table
from benchmarks.processes import run_jobs
from benchmarks.row_files import Rows, commit, joined, read
from gdscore import models, shifts

FILE = RESULTS / "image_forms.csv"
FORMS, SEEDS, BATCH = ("cifar100", "cifar100jpeg"), (0, 1, 2), 1000
CHOICES = {
    "gdscore": {},
    "gdscore p=1.5": {"p": 1.5},
    "gdscore tau=0": {"tau": 0.0},
    "gdscore tau=0.9": {"tau": 0.9},
    "gdscore expected": {"label_rule": "expected"},
    "gdscore whole": {"batch_size": None},
}


def source_of(form):
    return Source(form, CIFAR, corruptions=tuple(shifts.corruption_names()))


def prepare(options):
    """The data set after a round trip through JPEG, under a name of its own."""
    folder = PACKED.parent / "carry" / "jpeg"
    shrink(["cifar100"], folder, quality=95)
    for file in folder.glob("cifar100-*.npz"):
        file.rename(file.with_name(file.name.replace("cifar100-", "cifar100jpeg-")))
    expand(folder)


def columns(outputs):
    """What is written of one network on one set."""
    z = outputs.to_numpy()
    own = {name: gdscore.score("gdscore", outputs, **chosen) for name, chosen in CHOICES.items()}
    own |= {"confscore": gdscore.score("confscore", outputs), "accuracy": outputs.accuracy}
    own |= {"over tau": float((z.confidence > 0.5).mean()), "confidence": float(z.confidence.mean())}
    size = np.abs(z.features)
    # The share of the p-norm's entries that are next to nothing, and the length of the features.
    return own | {
        "small features": float((size < 0.05).mean()),
        "feature norm": float(np.sqrt((size**2).sum(1)).mean()),
    }


def measure(form, severity, options):
    """Every network on one form of the sets of one severity."""
    device = torch.device(options.device)
    networks = {
        (data, seed): load_model(data, "resnet18", seed).to(device, memory_format=torch.channels_last)
        for data in FORMS
        for seed in options.seeds
    }
    rows = Rows(options.output, {"commit": options.commit}, worker=f"{form}-{severity}")
    for target in source_of(form).targets(severities=[severity]):
        if target.shift is None and severity > 1:
            continue
        parts = torch.from_numpy(target.images).to(device).split(BATCH)
        images = [
            (part if target.shift is None else target.shift(part, start=k * BATCH)).float() / 255
            for k, part in enumerate(parts)
        ]
        for (data, seed), network in networks.items():
            name = f"{target.name}/{data}/{seed}/{form}"
            if name in rows.seen:
                continue
            joined = gdscore.Outputs.concatenate(list(models.extract(network, images, progress=False)))
            outputs = gdscore.Outputs(**joined.arrays, labels=torch.from_numpy(target.labels).to(device))
            facts = {"set": name, "trained on": data, "seed": seed, "images": form, "family": target.family}
            rows.add(facts | columns(outputs))


def run(options):
    work = [(source_of(form), seed, options.device) for seed in options.seeds for form in FORMS]
    begin = time.perf_counter()
    run_jobs(trained, work, options.jobs)
    run_jobs(measure, [(form, s, options) for form in FORMS for s in range(1, 6)], options.jobs)
    joined(options.output, [target.name for target in source_of(FORMS[0]).targets(rows=1)])
    print(f"{time.perf_counter() - begin:.0f} s")


def summary(options):
    """R² of the scores over the corrupted sets, for each network on each form of the images."""
    print(forms_table(read(options.output), [*CHOICES, "confscore", "over tau"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("prepare", help="pack CIFAR-100 after JPEG")
    running = commands.add_parser("run", help="train and score")
    running.add_argument("--device", default="cpu")
    running.add_argument("--jobs", type=int, default=1)
    running.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    running.add_argument("--commit", default=commit())
    for command in (running, commands.add_parser("summary", help="R² and ρ of each network on each form")):
        command.add_argument("--output", type=Path, default=FILE)
    options = parser.parse_args()
    {"prepare": prepare, "run": run, "summary": summary}[options.command](options)


if __name__ == "__main__":
    main()
