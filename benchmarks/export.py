"""What trained networks say about their reference, shifted copies of it and other domains: one small file per job.

    python benchmarks/export.py --list development --out out/export --device cuda --jobs 5
    python benchmarks/export.py --list report --out out/export --device cuda --jobs 5 --only pacs128-photo
    python benchmarks/export.py --list development --out out/tiny --device cpu --tiny

Trains what is not trained yet (``train.py``) and writes ``<job>.npz``, at most 3 MiB; a file that exists is not made
again. The reference is the held-out part of the data trained on; the shifted copies are corruptions of the same rows of
it in every set, ``shifted_rows``, as many as there is room for; arrays of theirs are sets × rows. Targets are
``target_<name>_…``. For every row:

- ``logits``; ``labels`` (of a copy: those of its row in the reference); ``pca``: the features' first 32 principal
  components, those of the reference.
- ``norm`` of the features; ``own``: squared distance to the reference's mean of the class predicted; ``other``: to the
  nearest mean of another class; ``near1``, ``near10``: squared distance to the nearest row of the reference, and the
  mean of those to the ten nearest; ``agree``: the share of these ten that have the label predicted; ``mahalanobis``:
  the distance (not squared) to the nearest class mean by the covariance within classes, of which ``within_trace`` is
  the trace, with 1e-3 trace / D added to its diagonal.

A row of the reference, and a copy of one, is compared with the reference without that row: a target's rows are not in
it either. Numbers are computed in float32 or better and stored as float16 where they fit that.
"""

import argparse
import contextlib
import io
import json
import multiprocessing
import os
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from datasets import load, training_parts
from gdscore import metasets
from sources import DIGITS, DOMAINS, PACS, SUBPOPULATION
from train import CHECKPOINTS, load_model, train, unit

__all__ = ["LISTS", "Geometry", "Job", "export"]

LIMIT = 3 << 20
ROWS, SHIFTED_ROWS, COMPONENTS, NEIGHBOURS = 1000, 300, 32, 10
SEVERITIES, COMPOSITIONS = (1, 2, 4, 6, 8), 30

FINE = {"epochs": 25, "batch": 64, "rate": 1e-3, "optimizer": "adamw"}
FINE_PACS = FINE | {"augment": "crop-flip", "shift": 12, "rows": 1050, "validation": 1000}
# The same shift once the image is enlarged to 128 pixels.
FINE_DIGITS = FINE | {"augment": "crop", "shift": 3, "rows": 1000, "validation": 3000}
SHORT = SUBPOPULATION | {"epochs": 12}


@dataclass(frozen=True)
class Job:
    data: str
    network: str
    recipe: dict
    targets: tuple
    split: str = "train"
    seed: int = 0
    rows: int = ROWS
    shifted_rows: int = SHIFTED_ROWS
    families: int | None = None

    @property
    def name(self):
        part = "" if self.split == "train" else f"-{self.split}"
        return f"{self.data}{part}-{self.network}-seed{self.seed}"

    def shifts(self):
        names = metasets.corruption_names()[: self.families]
        return [
            *metasets.corruptions(SEVERITIES, names),
            *metasets.compositions(COMPOSITIONS if self.families is None else self.families),
        ]

    def tiny(self):
        recipe = self.recipe | {"epochs": 1, "rows": 64, "validation": 64, "batch": 32}
        return replace(self, recipe=recipe, rows=64, shifted_rows=16, families=2)


def pacs(data, network, recipe, seed=0):
    for domain in DOMAINS:
        others = tuple((data, other) for other in DOMAINS if other != domain)
        # There are few photos: a larger share of them would leave fewer than 1,050 to train on.
        share = {} if recipe is PACS else {"share": 0.37 if domain == "photo" else 0.48}
        yield Job(data, network, recipe | share, others, split=domain, seed=seed)


def digits(network, recipe):
    names = ("mnist", "mnistm", "usps")
    for data in names:
        others = tuple((other, "test") for other in names if other != data)
        yield Job(data, network, recipe, ((data, "test"), *others))


def subpopulations(network, recipe, splits):
    for data in (f"cifar100sub{number}" for number in splits):
        yield Job(data, network, recipe, ((data, "test"), (data, "target")))


# Those that take longest first.
LISTS = {
    "development": (
        *subpopulations("resnet18", SHORT, (8, 9)),
        *pacs("pacs128", "lite1", FINE_PACS),
        *digits("lite0", FINE_DIGITS),
        *digits("resnet18", DIGITS),
        *subpopulations("small", SHORT, (4, 5, 6, 7)),
        *pacs("pacs", "small", PACS),
    ),
    "report": tuple(job for seed in range(3) for job in pacs("pacs128", "lite0", FINE_PACS, seed)),
}


class Geometry:
    """Where features lie, seen from labelled features of the reference."""

    def __init__(self, features, labels, classes):
        self.features, self.labels = features, labels
        self.counts = torch.bincount(labels, minlength=classes).to(features.dtype)
        self.sums = features.new_zeros(classes, features.shape[1]).index_add_(0, labels, features)
        # Of a class without rows: not a number, and later infinitely far.
        self.means = self.sums / self.counts[:, None]
        self.free = max(1, len(labels) - int((self.counts > 0).sum()))
        within = (features - self.means[labels]).double()
        within = within.T @ within / self.free
        self.trace = float(within.trace())
        ridge = 1e-3 * self.trace / len(within) * torch.eye(len(within), dtype=within.dtype, device=within.device)
        inverse = torch.linalg.solve_triangular(
            torch.linalg.cholesky(within + ridge), torch.eye(len(within)).to(within), upper=False
        )
        self.whitening = inverse.T
        self.mean = features.mean(0)
        self.axes = torch.linalg.svd(features - self.mean, full_matrices=False)[2][:COMPONENTS].T

    def pca(self, features):
        return (features - self.mean) @ self.axes

    def scalars(self, features, predicted, origin=None):
        """By name, for rows with their predicted classes; `origin`: rows of the reference that they are copies of."""
        every = torch.arange(len(features), device=features.device)
        to_means = distances(features, self.means) ** 2
        white, white_means = (x.double() @ self.whitening for x in (features, self.means))
        white_to_means = distances(white, white_means)
        to_rows = distances(features, self.features) ** 2
        if origin is not None:
            label = self.labels[origin]
            mean = (self.sums[label] - self.features[origin]) / (self.counts[label] - 1)[:, None]
            to_means[every, label] = (features - mean).square().sum(1)
            white_mean = mean.double() @ self.whitening
            white_to_means[every, label] = (white - white_mean).square().sum(1).sqrt()
            # Without the row, the covariance is a product of one vector less (Sherman and Morrison): with fewer rows
            # than features, each would otherwise look far nearer than any new one.
            gap = (self.features[origin] - self.means[label]).double() @ self.whitening
            along = (white * gap).sum(1)[:, None] - gap @ white_means.T
            along[every, label] = ((white - white_mean) * gap).sum(1)
            count = self.counts[label].double()
            weight = count / (count - 1).clamp(min=1) / self.free
            more = weight[:, None] * along**2 / (1 - weight * gap.square().sum(1))[:, None]
            white_to_means = (white_to_means**2 + more).sqrt()
            to_rows[every, origin] = torch.inf
        to_means, white_to_means = (torch.nan_to_num(x, nan=torch.inf) for x in (to_means, white_to_means))
        known = len(self.labels) - (origin is not None)
        nearest, which = to_rows.topk(min(NEIGHBOURS, known), largest=False)
        return {
            "norm": features.norm(dim=1),
            "own": to_means[every, predicted],
            "other": to_means.scatter(1, predicted[:, None], torch.inf).amin(1),
            "near1": nearest[:, 0],
            "near10": nearest.mean(1),
            "agree": (self.labels[which] == predicted[:, None]).float().mean(1),
            "mahalanobis": white_to_means.amin(1).float(),
        }


def distances(a, b):
    # By way of products, close rows would lose their digits.
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")


@torch.inference_mode()
def asked(model, images, batch=500):
    """Logits of uint8 images, and what comes into the last linear layer."""
    head = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    seen, said = [], []
    hook = head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].float()))
    try:
        for part in images.split(batch):
            said.append(model(unit(part)).float())
    finally:
        hook.remove()
    return torch.cat(said), torch.cat(seen)


def described(geometry, logits, features, origin=None):
    found = {"logits": logits, "pca": geometry.pca(features)}
    found |= geometry.scalars(features, logits.argmax(1), origin)
    return {name: values.cpu().numpy() for name, values in found.items()}


def accuracy(logits, labels):
    return round(float((logits.argmax(-1) == labels).mean()), 4)


def halves(values):
    """As float16 where that can hold them."""
    finite = np.abs(values[np.isfinite(values)])
    return values.astype(np.float16) if not finite.size or finite.max() < 6e4 else values


def save(file, arrays, limit=LIMIT):
    """Write `arrays`: logits in float32 if that is small enough, else fewer rows of each shifted set if need be."""
    arrays = {k: halves(v) if v.dtype == np.float32 and not k.endswith("logits") else v for k, v in arrays.items()}
    content = compressed(arrays)
    if len(content) > limit:
        arrays = {k: halves(v) if k.endswith("logits") else v for k, v in arrays.items()}
        content, rows = compressed(arrays), len(arrays["shifted_rows"])
        while len(content) > limit:
            rows -= 5
            cut = {k: v[:, :rows] for k, v in arrays.items() if k.startswith("shifted_") and v.ndim > 1}
            content = compressed(arrays | cut | {"shifted_rows": arrays["shifted_rows"][:rows]})
    partial = file.with_suffix(".partial")
    partial.write_bytes(content)
    partial.replace(file)


def compressed(arrays):
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    return content.getvalue()


def export(job, out, device, checkpoints):
    """Write the file of a job and return its record: accuracies, and the seconds that each stage took."""
    file = out / f"{job.name}.npz"
    if file.exists():
        with np.load(file, allow_pickle=False) as found:
            return json.loads(str(found["record"]))
    seconds, start = {}, time.perf_counter()

    def lap(stage):
        nonlocal start
        if torch.device(device).type == "cuda":
            torch.cuda.synchronize()
        now = time.perf_counter()
        seconds[stage], start = round(now - start, 1), now

    # The network is in full precision here, whatever it was trained in.
    torch.backends.cudnn.allow_tf32 = False
    with contextlib.redirect_stdout(io.StringIO()):
        trained = train(
            job.data, job.network, job.seed, split=job.split, device=device, checkpoints=checkpoints, **job.recipe
        )
    model = load_model(job.data, job.network, job.seed, split=job.split, checkpoints=checkpoints).to(device)
    lap("train")
    held = {key: job.recipe[key] for key in ("validation", "share") if key in job.recipe}
    images, labels = (part[: job.rows] for part in training_parts(job.data, job.split, **held)[1])
    images, classes = torch.from_numpy(images).to(device), torch.from_numpy(labels).to(device)
    logits, features = asked(model, images)
    geometry = Geometry(features, classes, logits.shape[1])
    # By the job's seed: which rows are copied differs from seed to seed, not from set to set.
    chosen = np.random.default_rng(job.seed).permutation(len(labels))[: job.shifted_rows]
    origin = torch.from_numpy(chosen).to(device)
    arrays = {"reference_labels": labels.astype(np.uint8), "shifted_rows": chosen.astype(np.uint16)}
    every = torch.arange(len(labels), device=device)
    arrays |= {f"reference_{k}": v for k, v in described(geometry, logits, features, every).items()}
    lap("reference")

    shifts, copies = job.shifts(), []
    for shift in shifts:
        copies.append(described(geometry, *asked(model, shift(images[origin])), origin))
    arrays |= {f"shifted_{key}": np.stack([copy[key] for copy in copies]) for key in copies[0]}
    arrays["shifted_families"] = np.array([shift.family for shift in shifts])
    # What the parts of a composition are is in its name.
    arrays["shifted_names"] = np.array([str(shift) for shift in shifts])
    arrays["shifted_severities"] = np.array([getattr(shift, "severity", 0) for shift in shifts], dtype=np.uint8)
    lap("shifted")

    truth = {"reference": accuracy(arrays["reference_logits"], labels)}
    for data, split in job.targets:
        name = "unshifted" if (data, split) == (job.data, "test") else split if data == job.data else data
        found, target_labels = load(data, split, rows=job.rows)
        target = described(geometry, *asked(model, torch.from_numpy(found).to(device)))
        truth[name] = accuracy(target["logits"], target_labels)
        arrays |= {f"target_{name}_{key}": values for key, values in target.items()}
        arrays[f"target_{name}_labels"] = target_labels.astype(np.uint8)
    lap("targets")

    shifted = [accuracy(copy["logits"], labels[chosen]) for copy in copies]
    record = {"job": job.name, "recipe": trained["recipe"], "validation": round(trained["validation_accuracy"], 4)}
    record |= {"accuracy": truth, "shifted": [min(shifted), float(np.median(shifted)), max(shifted)]}
    record |= {"training_seconds": trained["seconds"], "seconds": seconds}
    arrays |= {"record": np.array(json.dumps(record)), "within_trace": np.array(geometry.trace)}
    save(file, arrays)
    lap("save")
    return record


def work(job, out, device, checkpoints, threads):
    torch.set_num_threads(threads)
    return export(job, out, device, checkpoints)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", choices=list(LISTS), required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder of the files to write")
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="TEXT", help="jobs whose name has one of these in it"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time, each in its own process")
    parser.add_argument("--tiny", action="store_true", help="64 rows, one epoch, two corruptions: to see that it runs")
    return parser.parse_args()


def main():
    options = arguments()
    jobs = [job for job in LISTS[options.list] if any(text in job.name for text in options.only)]
    jobs = [job.tiny() for job in jobs] if options.tiny else jobs
    checkpoints = CHECKPOINTS.with_name("checkpoints-tiny" if options.tiny else "checkpoints-export")
    options.out.mkdir(parents=True, exist_ok=True)
    start, records, failed = time.perf_counter(), {}, 0
    # Started, not forked: a fork cannot use CUDA.
    pool = ProcessPoolExecutor(options.jobs, mp_context=multiprocessing.get_context("spawn"))
    threads = max(1, (os.cpu_count() or 1) // options.jobs)
    with pool:
        futures = {pool.submit(work, job, options.out, options.device, checkpoints, threads): job.name for job in jobs}
        for future in as_completed(futures):
            name, at = futures[future], f"{time.perf_counter() - start:.0f} s"
            try:
                record = records[name] = future.result()
            except Exception as error:
                failed += 1
                traceback.print_exception(error)
                print(f"{at}: {name} failed: {error}", flush=True)
                continue
            stages = ", ".join(f"{stage} {spent}" for stage, spent in record["seconds"].items())
            size = (options.out / f"{name}.npz").stat().st_size / 2**20
            print(f"{at}: {name}, validation {record['validation']:.3f}; {stages} s; {size:.2f} MiB", flush=True)
    short = {name: {"validation": record["validation"], **record["accuracy"]} for name, record in records.items()}
    print(json.dumps(short))
    print(f"{len(records)} of {len(jobs)} jobs, {time.perf_counter() - start:.0f} s")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
