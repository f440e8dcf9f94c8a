"""Constants of the estimator, compared on development data, which no reported figure is measured on.

    python -m benchmarks.estimates.constants export --device cuda --jobs 6    # outputs of every development job, once; or, after
                                                                   # `export`, of the suites named
    python -m benchmarks.estimates.constants compare --jobs 2                 # every alternative: results/choosing.csv
    python -m benchmarks.estimates.constants few --jobs 2                     # three families of three sets: results/few_sets.csv

Jobs are those of the suites of `benchmarks/estimates/run.py` whose names begin with ``development``: other networks than the reported
ones on PACS and digits, other subclasses of CIFAR-100, other tables, other products. `export` writes for each of them the
outputs of the reference, of its shifted sets and of its targets. `compare` fits `AccuracyEstimator` on them, once with
the constants as they are and once for every alternative of one constant, and estimates each target as it is, drawn with
the reference's class mix (``class_mix="stable"``) and in three other class mixes.

`few` fits on three families with three sets each, drawn five times, and stands beside all shifted sets, COT, and mean
confidence calibrated on the reference (CBPE).

Features are exported in few numbers that keep distances to the centres of classes: coordinates in the space of the
centres and of the leading principal components, and the length of what is left, with alternating sign. Logits and
features are rounded to 16 bits.
"""

import argparse
import contextlib
import csv
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np

import gdscore
from benchmarks import RESULTS, ROOT
from benchmarks.estimates.run import (
    ROWS,
    VARIANTS,
    class_rows,
    extracted,
    in_variant,
    predictor,
    suites,
    tensors,
    trained,
)
from gdscore.estimator.settings import SETTINGS

EXPORTS = ROOT / "data" / "development"
COORDINATES, SET_ROWS = 32, 300
FEW_FAMILIES, FEW_SETS, DRAWS = 3, 3, 5
ALTERNATIVES = {
    "calibration_edge": (0.001, 0.02),
    "tilts": ((), (-3.0, 3.0), (-1.5, 1.5)),
    "penalty": (0.3, 1.0, 5.0, 20.0),
    "floor": (0.02, 0.05),
    "growth": (0.8, 1.6),
    "class_width": (1.0, 1.5, 3.0),
    "outputs_only": (1.0, 2.0),
    "looks_shifted_from": (0.25, 1.0, 1e9),
    "noise": (1.0, 5.0),
    "strictness": (4.0, 64.0),
    "stable_slack": (1.0, 10.0, 30.0),
    "smoothing": (0.02, 0.5, 1.0),
    "prior_rows": (2.0, 20.0),
    "moved_fully": (0.5, 1e9),
    "untaught": (0.0, 0.2),
}
KINDS = {"image": "images", "table": "tables", "text": "text"}
FIELDS = ("setting", "value", "data", "case", "estimates", "error", "bias", "coverage", "width")


def mapped(function, jobs, workers):
    """Results of the jobs in their order; with one worker they are done in this process."""
    if workers == 1:
        yield from (function(*job) for job in jobs)
        return
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(function, *zip(*jobs, strict=True))


# -- exports --------------------------------------------------------------------------------------------------


class Coordinates:
    """From features, or inputs, to few numbers with nearly the same distances to the centres of classes."""

    def __init__(self, reference):
        self.name = "inputs" if "inputs" in reference.has else "features"
        x, labels = np.asarray(getattr(reference, self.name), dtype=np.float64), reference.labels
        centres = np.stack([x[labels == k].mean(axis=0) for k in np.unique(labels)])
        self.origin = centres.mean(axis=0)
        leading = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)[2][:COORDINATES]
        self.basis = np.linalg.qr(np.concatenate([centres - self.origin, leading]).T)[0][:, :COORDINATES]

    def __call__(self, outputs):
        x = np.asarray(getattr(outputs, self.name), dtype=np.float64) - self.origin
        inside = x @ self.basis
        outside = np.sqrt(np.maximum(np.square(x).sum(axis=1) - np.square(inside).sum(axis=1), 0))
        sign = np.where(np.arange(len(x)) % 2, 1, -1)
        return np.column_stack([inside, sign * outside])


def image_outputs(job, device, set_rows=SET_ROWS):
    from benchmarks.data.images import load
    from gdscore import shifts

    model, (images, labels), unshifted = trained(job, device)
    inputs = tensors(images[:set_rows]).to(device)
    sets = shifts.shifted_sets(
        predictor(model), inputs, labels[:set_rows], shifts.default_shifts(inputs), batch_size=500
    )
    targets = {"unshifted": extracted(model, *unshifted)}
    for data, split in job.make["targets"]:
        if (data, split) != (job.make["data"], "test"):
            name = split if data == job.make["data"] else data
            targets[name] = extracted(model, *load(data, split, rows=ROWS))
    return extracted(model, images, labels), list(sets), targets


def tabular_outputs(job, _device, _set_rows=SET_ROWS):
    from benchmarks.data.tables import fitted
    from gdscore import shifts

    task = job.make["task"]
    classifier = fitted(task, job.make["model"], job.seed)
    inputs, labels = task.reference
    chosen = shifts.default_shifts(inputs, time=task.time)
    sets = shifts.shifted_sets(lambda x: gdscore.from_sklearn(classifier, x), inputs, labels, chosen)
    targets = {
        "unshifted" if number == 0 else name: gdscore.from_sklearn(classifier, x, y)
        for number, (name, x, y) in enumerate(task.targets)
    }
    return gdscore.from_sklearn(classifier, inputs, labels), list(sets), targets


def export_file(job, folder):
    """Where the outputs of a job are kept."""
    return folder / f"{job.kind}-{job.name}.npz"


def export(job, device, folder, epochs=None, set_rows=SET_ROWS):
    """Write the outputs of a job to one file; one that is there already is left alone."""
    file = export_file(job, folder)
    if file.is_file():
        return file
    if epochs is not None and job.kind == "image":
        job = replace(job, make=job.make | {"recipe": job.make["recipe"] | {"epochs": epochs}})
    reference, sets, targets = (image_outputs if job.kind == "image" else tabular_outputs)(job, device, set_rows)
    located = next((name for name in ("inputs", "features") if name in reference.has), None)
    reduce = None
    if located is not None:
        wide = reference.arrays[located].shape[1] > COORDINATES
        reduce = Coordinates(reference) if wide else lambda outputs: np.asarray(getattr(outputs, located))
    arrays = {}
    named = {f"shift/{s.family}/{number}": s.outputs for number, s in enumerate(sets)}
    for name, outputs in ({"reference": reference} | named | {f"target/{n}": o for n, o in targets.items()}).items():
        arrays[f"{name}/logits"] = np.asarray(outputs.logits, dtype=np.float16)
        arrays[f"{name}/labels"] = np.asarray(outputs.labels)
        if reduce is not None:
            arrays[f"{name}/{located}"] = reduce(outputs).astype(np.float16)
    arrays |= {f"shift/{s.family}/{k}/rows": s.rows for k, s in enumerate(sets) if s.rows is not None}
    folder.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".partial.npz")
    np.savez_compressed(partial, **arrays)
    partial.replace(file)
    return file


def read_export(file):
    """Reference, shifted sets and targets of an exported job."""
    with np.load(file, allow_pickle=False) as packed:
        parts = {}
        for key in packed.files:
            name, _, array = key.rpartition("/")
            parts.setdefault(name, {})[array] = packed[key]
    rows = {name: part.pop("rows", None) for name, part in parts.items()}
    outputs = {
        name: gdscore.Outputs(**{k: v if k == "labels" else v.astype(np.float32) for k, v in part.items()})
        for name, part in parts.items()
    }
    sets = [gdscore.ShiftedSet(o, n.split("/")[1], rows[n]) for n, o in outputs.items() if n.startswith("shift/")]
    targets = {n.split("/", 1)[1]: o for n, o in outputs.items() if n.startswith("target/")}
    return outputs["reference"], sets, targets


# -- comparison -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def changed(setting, value):
    """The estimator with another value of a constant."""
    before = getattr(SETTINGS, setting)
    object.__setattr__(SETTINGS, setting, value)
    try:
        yield
    finally:
        object.__setattr__(SETTINGS, setting, before)


def cases(name, target, reference):
    """The target as it is, drawn with the reference's class mix, and in other class mixes, not known and given."""
    rng = np.random.default_rng([0, *name.encode()])
    mix = np.bincount(reference.labels, minlength=int(reference.n_classes)) / len(reference)
    shifted = "unshifted" if name == "unshifted" else "shifted"
    for variant in VARIANTS["image"]:
        rows = in_variant(target, variant, mix, rng)
        if variant == "as-is":
            yield shifted, "unknown", rows
        elif variant == "drawn":
            yield f"{shifted}, reference's class mix", "stable", rows
        else:
            yield f"{shifted}, other class mixes", "unknown", rows
            yield f"{shifted}, other class mixes, estimated", "estimated", rows
            yield f"{shifted}, other class mixes, given", np.bincount(rows.labels, minlength=len(mix)), rows


def estimates_of(file, setting, value):
    """(data, case, truth, estimate) of every target of an exported job."""
    reference, sets, targets = read_export(file)
    data = KINDS[file.name.split("-")[0]]
    found = []
    with changed(setting, value):
        est = gdscore.AccuracyEstimator().fit(reference, shifted_sets=sets, progress=False)
        alone = gdscore.AccuracyEstimator().fit(reference)
        for name, target in targets.items():
            for case, class_mix, rows in cases(name, target, reference):
                e = est.set_params(class_mix=class_mix).estimate(rows)
                found.append((data, case, rows.accuracy, (e.accuracy, e.low, e.high)))
                if isinstance(class_mix, str) and class_mix == "unknown":
                    found += [
                        (data, f"{case}: {measure}", t, (q.value, q.low, q.high))
                        for measure, _, q, t in class_rows(e, rows)
                    ]
                if case == "shifted":
                    e = alone.estimate(rows)
                    found.append((data, "shifted, outputs only", rows.accuracy, (e.accuracy, e.low, e.high)))
    table = est.shifted_sets_
    known = np.isfinite(table.predicted)
    for truth, estimate in zip(table.accuracy[known], table.predicted[known], strict=True):
        found.append((data, "shifted sets, family left out", truth, (estimate, np.nan, np.nan)))
    return found


def summary(setting, value, found):
    """Error, bias, coverage and width of each kind of data and case, in points."""
    for data, case in sorted({f[:2] for f in found}):
        truth = np.array([t for d, c, t, _ in found if (d, c) == (data, case)])
        accuracy, low, high = np.array([e for d, c, _, e in found if (d, c) == (data, case)]).T
        off, with_interval = 100 * (accuracy - truth), np.isfinite(low).all()
        row = {"setting": setting, "value": value, "data": data, "case": case, "estimates": len(truth)}
        row |= {"error": f"{np.abs(off).mean():.2f}", "bias": f"{off.mean():+.2f}"}
        row["coverage"] = f"{100 * ((low <= truth) & (truth <= high)).mean():.1f}" if with_interval else ""
        yield row | {"width": f"{100 * (high - low).mean():.1f}" if with_interval else ""}


def compare(files, workers, output):
    """A row for each constant as it is and each alternative, kind of data and case."""
    alternatives = [("present", ""), *((name, v) for name, values in ALTERNATIVES.items() for v in values)]
    present = ("penalty", SETTINGS.penalty)
    jobs = [(f, *(present if name == "present" else (name, v))) for name, v in alternatives for f in files]
    parts, rows = mapped(estimates_of, jobs, workers), []
    for name, value in alternatives:
        found = list(summary(name, value, [f for _ in files for f in next(parts)]))
        rows += found
        errors = [f"{r['data']} {r['error']}" for r in found if r["case"] == "shifted"]
        print(f"{name} {value}: {', '.join(errors)}", flush=True)
    write(output, rows)


def few_estimates_of(file):
    """(data, case, truth, estimates by estimator) of every target, with few shifted sets and with all."""
    reference, sets, targets = read_export(file)
    families = {}
    for s in sets:
        families.setdefault(s.family, []).append(s)
    single = sorted(name for name, own in families.items() if "+" not in name and len(own) >= FEW_SETS)
    if len(single) < FEW_FAMILIES:
        return []
    estimators = {"all": gdscore.AccuracyEstimator().fit(reference, shifted_sets=sets, progress=False)}
    rng = np.random.default_rng([1, *file.name.encode()])
    for draw in range(DRAWS):
        chosen = [
            families[name][k]
            for name in rng.choice(single, FEW_FAMILIES, replace=False)
            for k in sorted(rng.choice(len(families[name]), FEW_SETS, replace=False))
        ]
        estimators[f"few {draw}"] = gdscore.AccuracyEstimator().fit(reference, shifted_sets=chosen, progress=False)
    estimators["outputs only"] = gdscore.AccuracyEstimator().fit(reference)
    found = []
    for name, target in targets.items():
        for case, class_mix, rows in cases(name, target, reference):
            cot = gdscore.direct_estimate("cot", rows, reference=reference)
            estimates = {n: est.set_params(class_mix=class_mix).estimate(rows) for n, est in estimators.items()} | {
                "cot": cot
            }
            found += [
                (KINDS[file.name.split("-")[0]], case, n.split()[0], rows.accuracy, (e.accuracy, e.low, e.high))
                for n, e in estimates.items()
            ]
    return found


def few(files, workers, output):
    """A row for each kind of data, case and way of fitting."""
    found = [f for part in mapped(few_estimates_of, [(file,) for file in files], workers) for f in part]
    rows = []
    for way in ("few", "all", "outputs", "cot"):
        own = [(data, case, truth, e) for data, case, name, truth, e in found if name == way]
        rows += summary(
            {"few": "3 families of 3 sets", "all": "all sets", "outputs": "CBPE", "cot": "COT"}[way], "", own
        )
    write(output, rows)


def write(output, rows):
    with output.open("w", newline="") as opened:
        writer = csv.DictWriter(opened, FIELDS)
        writer.writeheader()
        writer.writerows(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("export", "compare", "few"))
    parser.add_argument("suites", nargs="*", help="of jobs to export (default: all of development)")
    parser.add_argument("--only", nargs="+", default=[""], metavar="TEXT", help="jobs with one of these in their name")
    parser.add_argument("--exports", type=Path, default=EXPORTS)
    parser.add_argument("--output", type=Path, help="by default results/choosing.csv and results/few_sets.csv")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--epochs", type=int, help="of networks, instead of their recipe's: 8 where there is no GPU")
    parser.add_argument("--set-rows", type=int, default=SET_ROWS, help="images of each shifted set (default: 300)")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time, each in its own process")
    options = parser.parse_args()
    if options.command == "export":
        found = suites()
        chosen = options.suites or [name for name in found if name.startswith("development")]
        jobs = [j for name in chosen for j in found[name]()]
        jobs = [j for j in jobs if any(text in j.name for text in options.only)]
        work = [(j, options.device, options.exports, options.epochs, options.set_rows) for j in jobs]
        for file in mapped(export, work, options.jobs):
            print(file.name, flush=True)
    else:
        files = sorted(f for f in options.exports.glob("*.npz") if any(text in f.name for text in options.only))
        if options.command == "few":
            few(files, options.jobs, options.output or RESULTS / "few_sets.csv")
        else:
            compare(files, options.jobs, options.output or RESULTS / "choosing.csv")


if __name__ == "__main__":
    main()
