"""Accuracy estimates on real data under real shift, through the public API alone, beside the estimators in use today.

    python -m benchmarks.estimates.run run pacs --device cuda --jobs 6     # trains, fits, estimates: one row an estimate
    python -m benchmarks.estimates.run run tables text --jobs 2            # minutes on two cores
    python -m benchmarks.estimates.run run --small                         # generated data, seconds: to see that it runs
    python -m benchmarks.estimates.run list
    python -m benchmarks.estimates.summary                             # tables and figure from the rows

A job is a classifier trained from a seed, its labelled reference (rows held out from training), and its targets. Networks
are fitted by `gdscore.models.estimator`, scikit-learn classifiers by `AccuracyEstimator.fit_predictor`, both with their
default shifts; CIFAR-10's by `fit`, without the family of the corruption that is estimated. Every target is estimated

- ``as-is``;
- ``drawn``: its rows drawn with the reference's class mix;
- ``mixed``: three times (once for shifted tables and texts, of which there are many), its rows drawn with a class mix from
  a Dirichlet distribution with concentration 0.5;

by `AccuracyEstimator` with ``class_mix`` ``unknown``, ``stable``, ``estimated`` and the target's true mix (``given``), by the
same fitted on the reference's outputs alone, by COT, COTT, ATC, DoC and mean confidence with temperature
(`direct_estimate`), and by CBPE: the mean of the maximum probability after isotonic calibration. Rows whose estimator is ``recall``, ``precision`` or ``f1`` are of one class under
``class_mix="unknown"`` (its number is in ``class``; classes with at least 20 rows and 20 predictions, ``as-is`` and ``mixed-1`` only); those of
``macro-f1`` and ``brier`` are of all classes. Jobs whose suite begins with ``development`` are what constants were chosen on.
"""

import argparse
import contextlib
import io
import multiprocessing
import subprocess
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import gdscore
from benchmarks.estimates.rows import FOLDER, write_rows

ROWS, CONCENTRATION = 2000, 0.5
# Of each kind of job; fewer where there are many targets, so that the files of rows stay small.
VARIANTS = {
    "image": ("as-is", "drawn", "mixed-1", "mixed-2", "mixed-3"),
    "table": ("as-is", "drawn", "mixed-1"),
    "text": ("as-is", "drawn", "mixed-1"),
    "left-out": ("as-is",),
}
CLASS_ROWS, CLASS_VARIANTS = 20, ("as-is", "mixed-1")
DIRECT = ("cot", "cott", "atc", "doc", "confscore")
DOMAINS = ("photo", "art_painting", "cartoon", "sketch")

FINE = {"epochs": 25, "batch": 64, "rate": 1e-3, "optimizer": "adamw", "augment": "crop-flip", "shift": 12}
FINE |= {"rows": 1050, "validation": 1000}
FINE_DIGITS = FINE | {"augment": "crop", "shift": 3, "rows": 1000, "epochs": 15}
SCRATCH_PACS = {"epochs": 80, "batch": 64, "rate": 0.05, "augment": "crop-flip", "validation": 1000}
SCRATCH_DIGITS = {"epochs": 6, "batch": 128, "rate": 0.1, "augment": "crop", "validation": 3000, "rows": 17000}
SUBCLASSES = {"epochs": 25, "batch": 512, "rate": 0.4, "augment": "crop-flip", "validation": 3000}
CIFAR = {"epochs": 30, "batch": 512, "rate": 0.4, "augment": "crop-flip", "validation": 5000}


@dataclass(frozen=True)
class Job:
    """A classifier and its targets; ``kind`` is image, left-out, table or text."""

    suite: str
    source: str
    seed: int
    kind: str
    make: dict = field(default_factory=dict)

    @property
    def name(self):
        return f"{self.suite}-{self.source}-seed{self.seed}"


def _pacs(suite, data, network, recipe, seeds):
    for seed in seeds:
        for domain in DOMAINS:
            share = {} if "share" in recipe or network == "resnet18" else {"share": 0.37 if domain == "photo" else 0.48}
            targets = tuple((data, other) for other in DOMAINS if other != domain)
            made = {"data": data, "split": domain, "network": network, "recipe": recipe | share, "targets": targets}
            yield Job(suite, f"{data}-{domain}-{network}", seed, "image", made)


def _digits(suite, network, recipe, seeds):
    names = ("mnist", "mnistm", "usps")
    for seed in seeds:
        for data in names:
            targets = ((data, "test"), *((other, "test") for other in names if other != data))
            made = {"data": data, "split": "train", "network": network, "recipe": recipe, "targets": targets}
            yield Job(suite, f"{data}-{network}", seed, "image", made)


def _subclasses(suite, network, recipe, splits, seeds):
    for seed in seeds:
        for data in (f"cifar100sub{number}" for number in splits):
            targets = ((data, "test"), (data, "target"))
            made = {"data": data, "split": "train", "network": network, "recipe": recipe, "targets": targets}
            yield Job(suite, f"{data}-{network}", seed, "image", made)


def _tabular(suite, kind, split, seeds):
    from benchmarks.data.tables import tasks

    for seed in seeds:
        for task in tasks(split):
            if task.kind == kind:
                for model in task.models:
                    yield Job(suite, f"{task.name}-{model}", seed, kind, {"task": task, "model": model})


def suites():
    """Jobs of every suite, by name; made when asked for."""
    three = range(3)
    cifar = {"data": "cifar10", "split": "train", "network": "resnet18", "recipe": CIFAR, "targets": ()}
    return {
        "pacs": lambda: _pacs("pacs", "pacs128", "lite0", FINE, three),
        "scratch-pacs": lambda: _pacs("scratch-pacs", "pacs", "resnet18", SCRATCH_PACS, three),
        "scratch-digits": lambda: _digits("scratch-digits", "small", SCRATCH_DIGITS, three),
        "scratch-subclasses": lambda: _subclasses("scratch-subclasses", "resnet18", SUBCLASSES, range(4), three),
        "cifar10": lambda: [Job("cifar10", "cifar10-resnet18", 0, "left-out", cifar)],
        "tables": lambda: _tabular("tables", "table", "report", three),
        "text": lambda: _tabular("text", "text", "report", three),
        "development-pacs": lambda: _pacs("development-pacs", "pacs128", "lite1", FINE, (0,)),
        "development-digits": lambda: _digits("development-digits", "lite0", FINE_DIGITS, (0,)),
        "development-subclasses": lambda: _subclasses(
            "development-subclasses",
            "lite0",
            FINE | {"epochs": 10, "batch": 128, "shift": 4, "rows": 13000},
            (4, 5, 6),
            (0,),
        ),
        "development-scratch": lambda: (
            *_pacs("development-scratch", "pacs", "small", SCRATCH_PACS, (0,)),
            *_digits("development-scratch", "resnet18", SCRATCH_DIGITS, (0,)),
            *_subclasses("development-scratch", "resnet18", SUBCLASSES, (8, 9), (0,)),
        ),
        # What two CPU cores adapt a check network for in minutes.
        "development-light": lambda: (
            *_pacs("development-light", "pacs32", "smaller", SCRATCH_PACS | {"epochs": 40}, (0,)),
            *_digits("development-light", "smaller", SCRATCH_DIGITS, (0,)),
        ),
        "development-tables": lambda: _tabular("development-tables", "table", "development", (0,)),
        "development-text": lambda: _tabular("development-text", "text", "development", (0,)),
    }


# -- one job --------------------------------------------------------------------------------------------------


@dataclass
class Fitted:
    """What estimates are made with: the estimator, the reference's outputs, and labelled outputs of the targets."""

    estimator: gdscore.AccuracyEstimator
    reference: gdscore.Outputs
    targets: dict


def tensors(images):
    import torch

    return torch.from_numpy(images).float().div(255)


def batches(images, labels=None, size=250):
    for start in range(0, len(images), size):
        x = tensors(images[start : start + size])
        yield x if labels is None else (x, labels[start : start + size])


def extracted(model, images, labels):
    from gdscore import models

    parts = [part.to_numpy() for part in models.extract(model, batches(images))]
    joined = gdscore.Outputs.concatenate(parts)
    return gdscore.Outputs(**joined.arrays, labels=labels)


def predictor(model):
    """Function from a batch of tensors to the outputs of the model, in NumPy."""
    from gdscore import models

    return lambda batch: gdscore.Outputs.concatenate([part.to_numpy() for part in models.extract(model, [batch])])


def trained(job, device):
    """Network of the job, its reference, and rows like the reference's that nothing was fitted on."""
    import torch

    from benchmarks.data.images import training_parts
    from benchmarks.models.train import load_model, train

    made = job.make
    # The network is in full precision, whatever it was trained in.
    torch.backends.cudnn.allow_tf32 = False
    with contextlib.redirect_stdout(io.StringIO()):
        train(made["data"], made["network"], job.seed, split=made["split"], device=device, **made["recipe"])
    model = load_model(made["data"], made["network"], job.seed, split=made["split"]).to(device)
    kept = {key: made["recipe"][key] for key in ("validation", "share") if key in made["recipe"]}
    images, labels = training_parts(made["data"], made["split"], **kept)[1]
    cut = min(1000, len(labels) * 6 // 10)
    return model, (images[:cut], labels[:cut]), (images[cut:], labels[cut:])


def image_job(job, device):
    import torch

    from benchmarks.data.images import load
    from gdscore import models

    model, (images, labels), unshifted = trained(job, device)
    estimator = models.estimator(model, list(batches(images, torch.from_numpy(labels))), device=device, progress=False)
    targets = {"unshifted": extracted(model, *unshifted)}
    for data, split in job.make["targets"]:
        own = (data, split) == (job.make["data"], "test")
        name = "unshifted" if own else split if data == job.make["data"] else data
        targets[name] = extracted(model, *load(data, split, rows=ROWS))
    return Fitted(estimator, extracted(model, images, labels), targets)


def tabular_job(job, device):
    from benchmarks.data.tables import fitted

    task = job.make["task"]
    classifier = fitted(task, job.make["model"], job.seed)
    estimator = gdscore.AccuracyEstimator().fit_predictor(classifier, *task.reference, time=task.time, progress=False)
    targets = {}
    for number, (name, inputs, labels) in enumerate(task.targets):
        targets["unshifted" if number == 0 else name] = gdscore.from_sklearn(classifier, inputs, labels)
    return Fitted(estimator, gdscore.from_sklearn(classifier, *task.reference), targets)


def left_out_rows(job, device):
    """Estimates of CIFAR-10's corruptions, each by an estimator that has not seen its family."""
    from benchmarks.data.images import load
    from gdscore import shifts

    model, (images, labels), _ = trained(job, device)
    predict, reference = predictor(model), extracted(model, images, labels)
    inputs = tensors(images).to(device)
    sets = list(shifts.shifted_sets(predict, inputs, labels, shifts.default_shifts(inputs), batch_size=500))
    test_images, test_labels = load("cifar10", "test", rows=ROWS)
    for family in shifts.corruption_names():
        others = [s for s in sets if family not in s.family.split("+")]
        estimator = gdscore.AccuracyEstimator().fit(reference, shifted_sets=others)
        targets = {}
        for severity in range(1, 6):
            shift = shifts.Corruption(family, severity, 2026)
            found = predict(shift(tensors(test_images).to(device)))
            targets[f"{family}-{severity}"] = gdscore.Outputs(**found.arrays, labels=test_labels)
        yield from estimated(Fitted(estimator, reference, targets), job.seed, VARIANTS[job.kind])


def drawn(outputs, shares, rng):
    """Rows of a target in another class mix, as many as it has of the scarcest class asked for, at least 200."""
    counts = np.bincount(outputs.labels, minlength=len(shares))
    shares = np.where(counts > 0, shares, 0)
    shares = shares / shares.sum()
    wanted = shares > 0.5 / len(outputs)
    total = int(max(min(counts[wanted] / shares[wanted]).item(), 200))
    chosen = []
    for label, number in enumerate(rng.multinomial(total, shares)):
        rows = np.flatnonzero(outputs.labels == label)
        if number:
            chosen.append(rng.choice(rows, size=number, replace=number > len(rows)))
    return outputs[np.sort(np.concatenate(chosen))]


def cbpe(reference, outputs):
    from sklearn.isotonic import IsotonicRegression

    curve = IsotonicRegression(out_of_bounds="clip").fit(reference.confidence, reference.correct)
    return float(curve.predict(outputs.confidence).mean())


def class_rows(e, rows):
    """Estimates of each class and of the mean F1, beside their truth."""
    from sklearn.metrics import precision_recall_fscore_support

    classes = len(e.per_class)
    precision, recall, f1, size = precision_recall_fscore_support(
        rows.labels, rows.predictions, labels=range(classes), zero_division=0.0
    )
    predicted = np.bincount(rows.predictions, minlength=classes)
    for c in e.per_class:
        if min(size[c.label], predicted[c.label]) >= CLASS_ROWS:
            truths = (("recall", recall), ("precision", precision), ("f1", f1))
            yield from ((name, c.label, getattr(c, name), truth[c.label]) for name, truth in truths)
    # A class that is neither there nor predicted has no F1.
    some = (size > 0) | (predicted > 0)
    if some.all():
        yield "macro-f1", "", e.f1, f1.mean()


def brier_row(e, rows):
    """Brier score beside its truth."""
    from sklearn.metrics import brier_score_loss

    classes, p = list(range(rows.n_classes)), np.asarray(rows.probabilities)
    truth = brier_score_loss(rows.labels, p[:, 1] if len(classes) == 2 else p, labels=classes)
    return "brier", "", e.brier, truth


def in_variant(outputs, variant, mix, rng):
    """Rows of a target in a variant; variants share the generator, in their order."""
    if variant == "as-is":
        return outputs
    shares = mix if variant == "drawn" else rng.dirichlet(np.full(len(mix), CONCENTRATION))
    return drawn(outputs, shares, rng)


def mix_of(outputs):
    return np.bincount(outputs.labels, minlength=outputs.n_classes) / len(outputs)


def estimated(found, seed, variants):
    """One row for each target, variant and estimator."""
    reference = found.reference
    mix = mix_of(reference)
    alone = gdscore.AccuracyEstimator().fit(reference)
    for name, outputs in found.targets.items():
        rng = np.random.default_rng([seed, *name.encode()])
        for variant in VARIANTS["image"] if name == "unshifted" else variants:
            rows = in_variant(outputs, variant, mix, rng)
            target = gdscore.Outputs(**{key: array for key, array in rows.arrays.items() if key != "labels"})
            estimates = {
                "unknown": found.estimator.set_params(class_mix="unknown").estimate(target),
                "stable": found.estimator.set_params(class_mix="stable").estimate(target),
                "estimated": found.estimator.set_params(class_mix="estimated").estimate(target),
                "given": found.estimator.set_params(class_mix=mix_of(rows)).estimate(target),
                "outputs-only": alone.estimate(target),
            }
            estimates |= {method: gdscore.direct_estimate(method, target, reference=reference) for method in DIRECT}
            shared = {"target": name, "variant": variant, "rows": len(rows), "truth": f"{rows.accuracy:.5f}"}
            shared |= {"reference_accuracy": f"{reference.accuracy:.5f}", "reference_rows": len(reference)}
            if variant in CLASS_VARIANTS:
                for measure, label, quantity, truth in (
                    *class_rows(estimates["unknown"], rows),
                    brier_row(estimates["unknown"], rows),
                ):
                    numbers = {"accuracy": quantity.value, "low": quantity.low, "high": quantity.high, "truth": truth}
                    texts = {key: f"{value:.4f}" for key, value in numbers.items()}
                    yield shared | {"estimator": measure, "class": label} | texts
            for method, e in estimates.items():
                numbers = {"accuracy": f"{e.accuracy:.5f}", "low": f"{e.low:.5f}", "high": f"{e.high:.5f}"}
                codes = " ".join(w.code for w in e.warnings if w.severity != "info")
                yield shared | {"estimator": method, "warnings": codes} | numbers
            yield shared | {"estimator": "cbpe", "accuracy": f"{cbpe(reference, target):.5f}", "low": "", "high": ""}


def exported(job, folder):
    """What `benchmarks/estimates/constants.py export` wrote of a job, fitted on its shifted sets; None where it wrote nothing."""
    from benchmarks.estimates.constants import export_file, read_export

    file = export_file(job, folder)
    if not file.is_file():
        return None
    reference, sets, targets = read_export(file)
    return Fitted(
        gdscore.AccuracyEstimator().fit(reference, shifted_sets=sets, progress=False), reference, dict(targets)
    )


def rows_of(job, device, commit, exports=None):
    """All rows of a job."""
    # Estimators warn through their estimates; what scores warn of beside is known here.
    import warnings

    warnings.simplefilter("ignore", gdscore.GdscoreWarning)
    if job.kind == "left-out":
        found = left_out_rows(job, device)
    else:
        fitted = None if exports is None else exported(job, exports)
        if fitted is None:
            fitted = (image_job if job.kind == "image" else tabular_job)(job, device)
        found = estimated(fitted, job.seed, VARIANTS[job.kind])
    fixed = {"suite": job.suite, "source": job.source, "seed": job.seed, "device": device, "commit": commit}
    return [fixed | row for row in found]


# -- the command ----------------------------------------------------------------------------------------------


def small_job():
    """A job on generated data, which runs in seconds."""
    from benchmarks.data.tables import Task

    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 3000)
    inputs = np.eye(3)[labels] * 2 + rng.normal(size=(3000, 3))
    train, reference, unshifted, moved = np.split(np.arange(3000), [600, 1200, 2100])
    both = [(inputs[p], labels[p]) for p in (train, reference)]
    targets = [("unshifted", inputs[unshifted], labels[unshifted]), ("moved", inputs[moved] + 0.5, labels[moved])]
    task = Task("generated", "generated", "table", "report", *both, targets)
    return Job("small", "generated-logistic", 0, "table", {"task": task, "model": "logistic"})


def commit_of():
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def worker(job, device, commit, threads, exports):
    with contextlib.suppress(ImportError):
        import torch

        torch.set_num_threads(threads)
    return rows_of(job, device, commit, exports)


def run(jobs, device, workers, output, commit, exports=None):
    """Run the jobs and write a file for each suite; jobs that fail are named and the others are kept."""
    start, found, failed = time.perf_counter(), {}, 0
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(worker, job, device, commit, 2, exports): job for job in jobs}
        for done in as_completed(futures):
            job = futures[done]
            try:
                rows = done.result()
            except Exception:
                failed += 1
                print(f"{job.name} failed:\n{traceback.format_exc()}", flush=True)
                continue
            found.setdefault(job.suite, []).extend(rows)
            own = [
                r
                for r in rows
                if r["estimator"] == "unknown" and r["variant"] == "as-is" and r["target"] != "unshifted"
            ]
            error = np.mean([abs(float(r["accuracy"]) - float(r["truth"])) for r in own]) if own else np.nan
            print(f"{time.perf_counter() - start:6.0f} s  {job.name}: error {100 * error:.1f}", flush=True)
            # Written after every job: what is done stays, whatever happens to the others.
            ordered = sorted(found[job.suite], key=lambda r: (r["source"], r["seed"], r["target"], r["variant"]))
            write_rows(output / f"{job.suite}.parquet", ordered)
    return failed


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="name the suites and their jobs")
    running = commands.add_parser("run", help="train, fit and estimate")
    running.add_argument("suites", nargs="*", help="names of suites (see list)")
    running.add_argument("--only", nargs="+", default=[""], metavar="TEXT", help="jobs with one of these in their name")
    running.add_argument("--device", default="cpu")
    running.add_argument("--jobs", type=int, default=1, help="how many at a time, each in its own process")
    running.add_argument("--output", type=Path, default=FOLDER)
    running.add_argument("--commit", help="name of the commit, where there is no git")
    running.add_argument(
        "--exports",
        type=Path,
        help="folder of `benchmarks/estimates/constants.py export`, whose outputs are used if there",
    )
    running.add_argument("--small", action="store_true", help="generated data only")
    return parser.parse_args()


def main():
    options = arguments()
    if options.command == "list":
        for name, jobs in suites().items():
            print(name)
            for job in jobs():
                print(f"  {job.name}")
        return
    if options.small:
        write_rows(options.output / "small.parquet", rows_of(small_job(), "cpu", commit_of()))
        return
    known = suites()
    jobs = [job for name in options.suites for job in known[name]()]
    jobs = [job for job in jobs if any(text in job.name for text in options.only)]
    sys.exit(
        min(run(jobs, options.device, options.jobs, options.output, options.commit or commit_of(), options.exports), 1)
    )


if __name__ == "__main__":
    main()
