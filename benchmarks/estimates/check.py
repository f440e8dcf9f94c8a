"""Accuracy estimates by a check network adapted to the target (`gdscore.models.check`), beside those from outputs alone.

    python -m benchmarks.estimates.check run pacs --check copy lite2 --device cuda --jobs 8     # one row an estimate
    python -m benchmarks.estimates.check arms --device cuda --jobs 8                            # what settings were chosen on
    python -m benchmarks.estimates.check arms --suite development-light --check copy --only base weight-3 --jobs 2   # on a CPU
    python -m benchmarks.estimates.check run --small                                            # small digits, to see that it runs
    python -m benchmarks.estimates.check again --arrays out/check                               # rows by today's combination
    python -m benchmarks.estimates.check labels --arrays out/check                              # 50 labels, 400 draws
    python -m benchmarks.estimates.check compare --arrays out/check                             # constants, on development targets
    python -m benchmarks.estimates.check summary                                                # tables of docs/check.md

Jobs (networks, references and targets) are those of ``benchmarks/estimates/run.py``, one seed; CIFAR-10's targets are corruptions of
severities 3 and 5, each estimated without the shifted sets of its family. The check network is a copy of the model
(``copy``), or another pretrained network fine-tuned on the same rows by the same recipe. Labelled rows are the model's
training rows; shifted sets are made of the reference. Rows are appended to ``results/check/<suite>.<source>.<check>.csv``,
and targets that have a row are passed over. With ``--arrays`` the row probabilities are written too: ``again`` combines them
anew with the estimator's, without training, and ``labels`` draws 50 rows to label by them.

Arms are variations of the adaptation on development pairs, without combination and calibration: the mean probability
that the check network gives to the model's predictions (``soft``), and the share of rows where the two agree (``hard``).
"""

import argparse
import contextlib
import csv
import functools
import importlib
import json
import math
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import gdscore
from benchmarks import RESULTS
from benchmarks.estimates import run as estimates
from benchmarks.estimates.few_labels import wilson
from benchmarks.markdown import markdown
from benchmarks.processes import run_jobs
from benchmarks.row_files import Rows, commit
from gdscore import models, shifts
from gdscore.labeling.choice import stratified_ranks
from gdscore.labeling.labelled import interval
from gdscore.models import _adaptation, _agreement
from gdscore.models._agreement import combine

FOLDER = RESULTS / "check"
VARIANTS = ("as-is", "mixed-1")
ROWS = 4000  # labelled rows at most
SEVERITIES = (3, 5)  # of the corruptions of CIFAR-10
DIRECT = ("cot", "cott", "atc")
PAIRS = (
    *(("photo", "cartoon"), ("photo", "sketch"), ("art_painting", "sketch")),
    *(("cartoon", "photo"), ("sketch", "art_painting"), ("cartoon", "art_painting")),
)
CHECK = importlib.import_module("gdscore.models.check")


# -- arms -----------------------------------------------------------------------------------------------------


class Plain(_adaptation.Adaptation):
    """Target rows drawn alike."""

    def weights(self):
        return torch.ones(len(self.target), device=self.device)


class Shared(_adaptation.Adaptation):
    """Labelled and target images in one batch."""

    def loss(self, labelled, labels, weak, strong, rows):
        self.network.train()
        own, certain, other = self.forward(torch.cat([labelled, weak, strong])).split(len(labelled))
        value, classes = self.remember(certain.detach(), rows).max(dim=1)
        each = functional.cross_entropy(other, classes, reduction="none")
        return functional.cross_entropy(own, labels) + (each * (value >= _adaptation.ADAPTATION.threshold)).mean()


class Frozen(_adaptation.Adaptation):
    """BatchNorm with the statistics that the network came with."""

    def loss(self, labelled, labels, weak, strong, rows):
        self.network.train()
        for layer in self.batchnorm:
            layer.eval()
        with torch.no_grad():
            certain, classes = self.remember(self.forward(weak), rows).max(dim=1)
        each = functional.cross_entropy(self.forward(strong), classes, reduction="none")
        own = functional.cross_entropy(self.forward(labelled), labels)
        return own + (each * (certain >= _adaptation.ADAPTATION.threshold)).mean()

    def set_statistics(self):
        pass


class Entropy(_adaptation.Adaptation):
    """Entropy of the target's predictions in place of FixMatch."""

    def loss(self, labelled, labels, weak, strong, rows):
        self.network.train()
        own = functional.cross_entropy(self.forward(labelled), labels)
        z = self.forward(weak)
        self.remember(z.detach(), rows)
        return own - (z.softmax(1) * z.log_softmax(1)).sum(1).mean()


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


class Adversarial(_adaptation.Adaptation):
    """A domain classifier on the features, whose gradient is reversed, beside FixMatch."""

    def __init__(self, network, *args, **options):
        head = next(m for m in reversed(list(network.modules())) if isinstance(m, nn.Linear))
        head.register_forward_pre_hook(lambda _, inputs: self.seen.append(inputs[0].float()))
        self.seen = []
        super().__init__(network, *args, **options)
        self.domain = nn.Sequential(nn.Linear(head.in_features, 128), nn.ReLU(), nn.Linear(128, 2)).to(self.device)
        self.optimiser.add_param_group({"params": list(self.domain.parameters())})

    def loss(self, labelled, labels, weak, strong, rows):
        self.seen.clear()
        found = super().loss(labelled, labels, weak, strong, rows)
        features = torch.cat(self.seen[1:])
        which = torch.arange(2, device=self.device).repeat_interleave(len(labels))
        self.seen.clear()
        return found + 0.3 * functional.cross_entropy(self.domain(Reversed.apply(features)), which)


ARMS = {
    "base": {},
    "plain-sampling": {"kind": Plain},
    "shared-batches": {"kind": Shared},
    "frozen-batchnorm": {"kind": Frozen},
    "entropy": {"kind": Entropy},
    "adversarial": {"kind": Adversarial},
    "steps-100": {"steps": 100},
    "steps-400": {"steps": 400},
    "threshold-0.7": {"settings": {"threshold": 0.7}},
    "threshold-0.97": {"settings": {"threshold": 0.97}},
    "weight-3": {"settings": {"weight": 3.0}},
    "rate-1e-3": {"settings": {"rate": 1e-3}},
    "seed-1": {"seed": 1},
    "seed-2": {"seed": 2},
    "warm-50": {"warm": True},
}
WITH_OTHER = ("base", "plain-sampling", "frozen-batchnorm", "steps-400", "seed-1", "adversarial")
MIXED = ("base", "plain-sampling", "shared-batches", "steps-400", "weight-3")


@contextlib.contextmanager
def changed(kind=_adaptation.Adaptation, settings=None):
    """Context in which the adaptation is another one."""
    before = CHECK.Adaptation, _adaptation.ADAPTATION
    CHECK.Adaptation, _adaptation.ADAPTATION = kind, replace(_adaptation.ADAPTATION, **settings or {})
    try:
        yield
    finally:
        CHECK.Adaptation, _adaptation.ADAPTATION = before


# -- one job --------------------------------------------------------------------------------------------------


class Prepared:
    """A model of a job, the rows it was trained on, its reference, its targets, and a check network to start from."""

    def __init__(self, job, check, device):
        from benchmarks.data.images import load, training_parts
        from benchmarks.models.train import load_model, train

        made = job.make
        self.device = device
        self.model, (self.images, self.labels), unshifted = estimates.trained(job, device)
        kept = {key: made["recipe"][key] for key in ("validation", "share") if key in made["recipe"]}
        training = training_parts(made["data"], made["split"], **kept)[0]
        self.training = tuple(part[: made["recipe"].get("rows")][:ROWS] for part in training)
        self.network = None
        if check != "copy":
            own = made["recipe"]
            fine = (
                {}
                if "optimizer" in own
                else {key: estimates.FINE[key] for key in ("epochs", "batch", "rate", "optimizer")}
            )
            recipe = own | fine | {"rows": min(own.get("rows", ROWS), ROWS)}
            with contextlib.redirect_stdout(None):
                train(made["data"], check, 0, split=made["split"], device=device, **recipe)
            self.network = load_model(made["data"], check, 0, split=made["split"]).to(device)
        self.targets = {"unshifted": unshifted}
        for data, split in made["targets"]:
            own = (data, split) == (made["data"], "test")
            name = "unshifted" if own else split if data == made["data"] else data
            self.targets[name] = load(data, split, rows=estimates.ROWS)
        if job.kind == "left-out":
            clean, truth = load(made["data"], "test", rows=estimates.ROWS)
            for family in shifts.corruption_names():
                for severity in SEVERITIES:
                    images = shifts.Corruption(family, severity, 2026)(torch.from_numpy(clean).to(device)).cpu().numpy()
                    self.targets[f"{family}-{severity}"] = images, truth

    def estimators(self):
        """Function from a shift family to the estimator that `models.check` fits by default, without that family."""
        inputs = estimates.tensors(self.images).to(self.device)
        predict, reference = estimates.predictor(self.model), estimates.extracted(self.model, self.images, self.labels)
        sets = list(shifts.shifted_sets(predict, inputs, self.labels, shifts.corruptions((3, 6), seed=0)))

        @functools.cache
        def without(family):
            kept = [s for s in sets if family not in s.family.split("+")]
            return gdscore.AccuracyEstimator().fit(reference, shifted_sets=kept)

        return without

    def outputs(self, images, labels):
        found = estimates.extracted(self.model, images, labels)
        return gdscore.Outputs(**found.arrays, ids=np.arange(len(labels)))

    def accuracy(self, network, images, labels):
        return float(estimates.extracted(network, images, labels).accuracy)

    def check(self, images, **options):
        labels = torch.from_numpy(self.training[1])
        return models.check(
            self.model,
            list(estimates.batches(self.training[0], labels)),
            list(estimates.batches(images)),
            network=options.pop("network", self.network),
            val_loader=self.reference(),
            autocast=torch.bfloat16 if self.device == "cuda" else None,
            progress=False,
            **options,
        )

    def reference(self):
        return list(estimates.batches(self.images, torch.from_numpy(self.labels)))


def shifted_targets(job):
    """Names of the job's targets from other data sets or domains."""
    made = job.make
    own = ((data, split) for data, split in made["targets"] if (data, split) != (made["data"], "test"))
    return [split if data == made["data"] else data for data, split in own]


def family_of(target):
    """Shift family of a target that is a corruption of some severity; nothing for other targets."""
    return target.rpartition("-")[0]


def of_other_families(calibration, target):
    return [a for a in calibration if a.family != family_of(target)]


def numbers(values):
    return {key: f"{value:.5f}" for key, value in values.items()}


def seed_of(job, name):
    return [job.seed, *name.encode()]


def measure(job, check, options):
    """All targets of a job by one kind of check network."""
    ready = Prepared(job, check, options.device)
    fixed = {"suite": job.suite, "source": job.source, "seed": job.seed, "check": check, "device": options.device}
    rows = Rows(options.output / f"{job.suite}.{job.source}.{check}.csv", fixed | {"commit": options.commit})
    reference = estimates.extracted(ready.model, ready.images, ready.labels)
    mix = np.bincount(reference.labels, minlength=reference.n_classes) / len(reference)
    options.output.mkdir(parents=True, exist_ok=True)
    begin, est, without = time.perf_counter(), None, ready.estimators() if job.kind == "left-out" else None
    kept = options.output / f"{job.suite}.{job.source}.{check}.json"
    calibration = [models.Agreement(**a) for a in json.loads(kept.read_text())] if kept.exists() else None
    for name, (images, labels) in ready.targets.items():
        outputs, rng = ready.outputs(images, labels), np.random.default_rng(seed_of(job, name))
        for variant in options.variants:
            chosen = estimates.in_variant(outputs, variant, mix, rng)
            if f"{name}/{variant}" in rows.seen:
                continue
            own, truth = images[chosen.ids], labels[chosen.ids]
            if without is not None:
                est = without(family_of(name))
            known = calibration and of_other_families(calibration, name)
            c = ready.check(own, est=est, calibration=known, steps=options.steps)
            est = c.est
            if calibration is None:
                calibration = c.calibration
                kept.write_text(json.dumps([asdict(a) for a in calibration], indent=1) + "\n")
            rows.add(row_of(ready, f"{name}/{variant}", own, truth, chosen, c, reference))
            if options.arrays:
                save(options.arrays, f"{job.suite}.{job.source}.{check}.{name}.{variant}", truth, chosen, c)
    print(f"{job.name} {check}: {time.perf_counter() - begin:.0f} s", flush=True)


def row_of(ready, name, images, labels, outputs, c, reference):
    """One row: the estimate, how the check network did, and what others say of the same rows."""
    target = gdscore.Outputs(**{k: v for k, v in outputs.arrays.items() if k not in ("labels", "ids")})
    e, free = c.estimate, c.est.estimate(target)
    start = ready.model if ready.network is None else ready.network
    found = {"truth": outputs.accuracy, "accuracy": e.accuracy, "low": e.low, "high": e.high}
    found |= {"agreement": c.agreement.agreement, "confidence": c.agreement.confidence}
    found |= {"stability": c.agreement.stability, "moved": c.agreement.moved, "mix_distance": c.agreement.mix_distance}
    found |= {"check_reference": c.agreement.reference_accuracy, "model_reference": reference.accuracy}
    found |= {"check_before": ready.accuracy(start, images, labels)}
    found |= {"check_after": float((c.probabilities.argmax(1) == labels).mean())}
    found |= {"estimator": free.accuracy, "estimator_low": free.low, "estimator_high": free.high}
    found |= {method: gdscore.direct_estimate(method, target, reference=reference).accuracy for method in DIRECT}
    found |= {"seconds": c.seconds}
    codes = " ".join(w.code for w in e.warnings)
    return {"set": name, "rows": len(outputs)} | numbers(found) | {"warnings": codes}


def save(folder, name, labels, outputs, c):
    folder.mkdir(parents=True, exist_ok=True)
    calibration = np.array([[getattr(a, key) for key in SIGNALS] for a in c.calibration], dtype=float)
    np.savez_compressed(
        folder / f"{name}.npz",
        labels=labels.astype(np.int16),
        predictions=np.asarray(outputs.predictions, dtype=np.int16),
        probabilities=c.probabilities.astype(np.float16),
        right=c.right.astype(np.float32),
        correct=c.est.predict_correct(outputs).astype(np.float32),
        estimator=[getattr(c.est.estimate(outputs), key) for key in ("accuracy", "low", "high")],
        signals=[getattr(c.agreement, key) for key in SIGNALS[:9]],
        calibration=calibration,
    )


SIGNALS = (
    *("rows", "agreement", "confidence", "stability", "moved", "mix_distance", "reference_accuracy"),
    *("reference_agreement", "model_accuracy", "accuracy", "check_accuracy"),
)


def arm(job, target, check, names, options):
    """Arms on one development pair."""
    ready = Prepared(job, check, options.device)
    fixed = {"source": job.source, "check": check, "device": options.device, "commit": options.commit}
    rows = Rows(options.output / f"arms.{job.source}.{target}.{check}.csv", fixed)
    reference = estimates.extracted(ready.model, ready.images, ready.labels)
    mix = np.bincount(reference.labels, minlength=reference.n_classes) / len(reference)
    est = gdscore.AccuracyEstimator().fit(reference)
    images, labels = ready.targets[target]
    outputs, rng = ready.outputs(images, labels), np.random.default_rng(seed_of(job, target))
    parts = {variant: estimates.in_variant(outputs, variant, mix, rng) for variant in VARIANTS}
    for name in names:
        changes = dict(ARMS[name])
        steps, seed, warm = changes.pop("steps", options.steps), changes.pop("seed", 0), changes.pop("warm", False)
        for variant in VARIANTS[target == "unshifted" :] if name in MIXED else VARIANTS[:1]:
            if f"{target}/{variant}/{name}" in rows.seen:
                continue
            chosen = parts[variant]
            own, truth = images[chosen.ids], labels[chosen.ids]
            with changed(**changes):
                shared = {"est": est, "calibration": (), "seed": seed}
                if warm:
                    cut = len(own) // 2
                    first = ready.check(own[:cut], steps=steps, **shared)
                    own, truth, chosen = own[cut:], truth[cut:], chosen[cut:]
                    c = ready.check(own, steps=50, **shared | {"network": first.network})
                else:
                    c = ready.check(own, steps=steps, **shared)
            predicted = c.probabilities.argmax(1)
            start = ready.model if ready.network is None else ready.network
            found = {"truth": chosen.accuracy, "soft": c.agreement.agreement}
            found |= {"hard": float((predicted == chosen.predictions).mean())}
            found |= {
                "check_before": ready.accuracy(start, own, truth),
                "check_after": float((predicted == truth).mean()),
            }
            found |= {"confidence": c.agreement.confidence, "stability": c.agreement.stability}
            rows.add({"set": f"{target}/{variant}/{name}"} | numbers(found | {"seconds": c.seconds}))
            if options.arrays:
                save(options.arrays, f"arms.{job.source}.{check}.{target}.{variant}.{name}", truth, chosen, c)


# -- of saved arrays ------------------------------------------------------------------------------------------


class Kept:
    """An estimator's answers about one target, as they were saved."""

    def __init__(self, saved, reference_accuracy):
        self._saved, self.reference_accuracy_, self.class_names_ = saved, reference_accuracy, None

    def estimate(self, outputs):
        return gdscore.Estimate(*self._saved["estimator"].tolist(), 0.9, len(outputs), self.reference_accuracy_)

    def predict_correct(self, outputs):
        return self._saved["correct"].astype(float)


def saved_rows(options, suite=""):
    """Every row of the results, with what was saved of it, and its estimate and probabilities by `combine`."""
    for file in result_files(options.output):
        if not file.name.startswith(suite):
            continue
        found, rows = [], read_rows(file)
        # Where agreement on labelled rows was not measured yet, that on the unshifted target stands in.
        unshifted = next(row for row in rows if row["set"] == "unshifted/as-is")
        known = dict(zip(SIGNALS[7:9], (float(unshifted[key]) for key in ("agreement", "truth")), strict=True))
        calibration = [models.Agreement(**known | a) for a in json.loads(file.with_suffix(".json").read_text())]
        for row in rows:
            target, variant = row["set"].split("/")
            saved = np.load(options.arrays / f"{row['suite']}.{row['source']}.{row['check']}.{target}.{variant}.npz")
            p = saved["probabilities"].astype(float)
            outputs = gdscore.Outputs(probabilities=np.eye(p.shape[1])[saved["predictions"]])
            signals = dict(zip(SIGNALS, saved["signals"].tolist(), strict=False))
            same = dict.fromkeys(SIGNALS[7:9], float(row["model_reference"]))
            own = models.Agreement("", **(same if row is unshifted else known) | signals)
            kept = Kept(saved, float(row["model_reference"]))
            found.append((row, saved, *combine(kept, outputs, p, own, of_other_families(calibration, target))))
        yield file, found


def result_files(folder):
    return [f for f in sorted(folder.glob("*.csv")) if not f.name.startswith(("arms", "labels"))]


def read_rows(file):
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def write_rows(file, rows):
    with file.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def again(options):
    """Rows anew: accuracy, interval and warnings by `combine`, from what was saved."""
    for file, found in saved_rows(options):
        for row, _, e, _ in found:
            row |= numbers({"accuracy": e.accuracy, "low": e.low, "high": e.high})
            row |= {"warnings": " ".join(w.code for w in e.warnings), "commit": options.commit}
        write_rows(file, [row for row, *_ in found])


COMPARED = (
    *({}, {"mix": 2.0}, {"mix": 0.5}, {"fading": 1.0}, {"fading": 3.0}, {"fading": math.inf}),
    *({"power": 2.0}, {"power": 8.0}, {"below": 0.0}, {"below": 9.0}, {"error": 0.07}, {"error": 0.14}),
)


def compare(options):
    """Error / coverage / width on development targets by today's constants and by others, one at a time."""
    kept, lines, heads = _agreement.CHECK, [], []
    for changes in COMPARED:
        _agreement.CHECK = replace(kept, **changes)
        found = {}
        for _, rows in saved_rows(options, "development"):
            for row, _, e, _ in rows:
                moved = "unshifted" if row["set"].startswith("unshifted") else "shifted"
                mixed = ", other mixes" if row["set"].endswith("mixed-1") else ""
                truth = float(row["truth"])
                own = abs(e.accuracy - truth), e.low <= truth <= e.high, e.high - e.low
                found.setdefault(f"{row['suite'].removeprefix('development-')}, {moved}{mixed}", []).append(own)
        means = [100 * np.mean(found[key], axis=0) for key in sorted(found)]
        heads = ["changed", *sorted(found)]
        name = ", ".join(f"{key} {value}" for key, value in changes.items()) or "as it is"
        lines.append([name, *(f"{m[0]:.1f} / {m[1]:.0f} / {m[2]:.0f}" for m in means)])
    _agreement.CHECK = kept
    print(markdown(heads, lines))


def labels(options, n=50, draws=400):
    """Width and coverage at 50 labels: Wilson's interval, rows ordered by the estimator, rows ordered by the check."""
    found = []
    for _, rows in saved_rows(options):
        for row, saved, _, p in rows:
            if row["set"].startswith("unshifted"):
                continue
            right = (saved["labels"] == saved["predictions"]).astype(float)
            ranks, truth = stratified_ranks(len(right), n, np.arange(draws)), right.mean()
            rng = np.random.default_rng(0)
            ends = {"wilson": wilson(np.stack([rng.permutation(right)[:n].sum() for _ in range(draws)]), n)}
            orders = {"estimator": by_class(saved["predictions"], saved["correct"]), "check": np.argsort(p)}
            for key, order in orders.items():
                ends[key] = interval(right[order][np.sort(ranks, axis=1)], len(right), 0.9)
            made = {key: row[key] for key in ("suite", "source", "check", "set", "rows", "truth")}
            for key, (low, high) in ends.items():
                made |= {f"{key}_width": f"{np.mean(high - low):.4f}"}
                made |= {f"{key}_coverage": f"{np.mean((low <= truth) & (truth <= high)):.4f}"}
            found.append(made)
    write_rows(options.output / "labels.csv", found)


def by_class(predicted, right):
    """Nearly the order of `labeling.choose` without ``right``, which orders classes by confidence."""
    classes = np.unique(predicted)
    means = [right[predicted == k].mean() for k in classes]
    parts = []
    for turn, k in enumerate(classes[np.argsort(means, kind="stable")]):
        rows = np.flatnonzero(predicted == k)
        parts.append(rows[np.argsort((-1) ** turn * right[rows], kind="stable")])
    return np.concatenate(parts)


GROUPS = {
    "shifted": ("as-is", False),
    "shifted, other class mixes": ("mixed-1", False),
    "unshifted": ("as-is", True),
    "unshifted, other class mixes": ("mixed-1", True),
}
# Those of docs/check.md.
SHOWN = ("shifted", "shifted, other class mixes", "unshifted")


def summary(options):
    """Tables in Markdown: estimates beside those from outputs alone, 50 labels, arms."""
    heads = (
        "",
        "rows",
        "check: error, bias",
        "coverage",
        "width",
        "its accuracy",
        "agreement alone",
        "estimator, width",
    )
    lines = []
    for (suite, check, name), column in columns(options.output).items():
        error, before, after = (100 * column[key] for key in ("accuracy", "check_before", "check_after"))
        error = error - 100 * column["truth"]
        cells = [f"{suite}, check = {check}, {name}", str(len(error))]
        cells += [f"{np.abs(error).mean():.1f}, {error.mean():+.1f}", f"{covered(column):.0f} %"]
        cells += [f"{width(column):.0f}", f"{before.mean():.0f} → {after.mean():.0f}"]
        cells += [f"{off(column, 'agreement'):.1f}"]
        cells += [f"{off(column, 'estimator'):.1f}, {width(column, 'estimator_'):.0f}"]
        lines.append(cells + [f"{off(column, key):.1f}" for key in DIRECT])
    print(markdown((*heads, *(key.upper() for key in DIRECT)), lines))
    if (options.output / "labels.csv").exists():
        print(f"\n{label_table(options.output)}")
    for block, sources in DEVELOPED_ON.items():
        print(f"\n{block}\n\n{arm_table(options.output, sources)}")


def columns(folder):
    """Numbers of each suite, kind of check network and group of targets, as arrays."""
    rows = [row for file in result_files(folder) for row in read_rows(file)]
    found = {}
    for suite, check in sorted({(row["suite"], row["check"]) for row in rows}):
        for name, (variant, unshifted) in GROUPS.items():
            own = [r for r in rows if (r["suite"], r["check"]) == (suite, check) and r["set"].endswith(variant)]
            own = [r for r in own if r["set"].startswith("unshifted") == unshifted]
            if own:
                found[suite, check, name] = {key: np.array([float(r[key]) for r in own]) for key in NUMBERS}
    return found


def off(column, key="accuracy"):
    return 100 * np.abs(column[key] - column["truth"]).mean()


def covered(column):
    return 100 * ((column["low"] <= column["truth"]) & (column["truth"] <= column["high"])).mean()


def width(column, prefix=""):
    return 100 * (column[f"{prefix}high"] - column[f"{prefix}low"]).mean()


def label_table(folder):
    found = read_rows(folder / "labels.csv")
    lines = []
    for key in sorted({(r["suite"], r["check"], r["set"].split("/")[1]) for r in found}):
        own = [r for r in found if (r["suite"], r["check"], r["set"].split("/")[1]) == key]
        mean = {k: np.mean([float(r[k]) for r in own]) for k in own[0] if k.endswith(("width", "coverage"))}
        widths = (f"{mean[f'{k}_width'] / mean['wilson_width']:.2f}" for k in ("estimator", "check"))
        shares = (f"{100 * mean[f'{k}_coverage']:.0f} %" for k in ("estimator", "check"))
        lines.append((", ".join(key), str(len(own)), *widths, *shares))
    heads = ("50 labels", "pairs", "width / Wilson's: estimator", "check", "coverage: estimator", "check")
    return markdown(heads, lines)


DEVELOPED_ON = {
    "check_arms": ("pacs128",),
    "check_arms_scratch": ("pacs32",),
    "check_arms_digits": ("mnist", "mnistm", "usps"),
}


def arm_table(folder, sources):
    """Arms on these data sets; targets that have not shifted apart, as they are in other class mixes alone."""
    found = [row for file in sorted(folder.glob("arms*.csv")) for row in read_rows(file)]
    found = [row for row in found if row["source"].partition("-")[0] in sources]
    lines = []
    for unshifted, name in sorted({arm_of(r) for r in found}):
        own = [r for r in found if arm_of(r) == (unshifted, name)]
        e = {key: [100 * (float(r[key]) - float(r["truth"])) for r in own] for key in ("soft", "hard")}
        before, after = (100 * np.mean([float(r[key]) for r in own]) for key in ("check_before", "check_after"))
        errors = (f"{np.abs(e[key]).mean():.1f}, {np.mean(e[key]):+.1f}" for key in e)
        variant, _, arm_name = name.partition("/")
        mixed = f"{', unshifted' if unshifted else ''}, other class mixes" if variant == "mixed-1" else ""
        lines.append((f"{arm_name}{mixed}", str(len(own)), *errors, f"{before:.0f} → {after:.0f}"))
    return markdown(("arm", "pairs", "soft agreement: error, bias", "hard", "its accuracy"), lines)


def arm_of(row):
    target, name = row["set"].split("/", 1)
    return target == "unshifted", name


REPORTED = {
    "pacs": "PACS, EfficientNet-Lite0",
    "scratch-pacs": "PACS at 64 px, ResNet-18 from scratch",
    "scratch-digits": "digits, small network from scratch",
    "scratch-subclasses": "new subclasses of CIFAR-100, ResNet-18 from scratch",
    "cifar10": "corruptions of CIFAR-10, ResNet-18 from scratch",
}


def blocks():
    """Blocks of docs/check.md, research/tables.md and the lab notebook."""
    found, lines = columns(FOLDER), []
    for suite, title in REPORTED.items():
        for check in sorted({c for s, c, _ in found if s == suite}):
            parts = [found.get((suite, check, name)) for name in GROUPS]
            cells = ["" if c is None else f"{off(c):.1f} / {covered(c):.0f} / {width(c):.0f}" for c in parts]
            c = parts[0]
            alone = f"{off(c, 'agreement'):.1f}", f"{off(c, 'estimator'):.1f} / {width(c, 'estimator_'):.0f}"
            accuracy = f"{100 * c['check_before'].mean():.0f} → {100 * c['check_after'].mean():.0f}"
            first = f"{title}; {'copy' if check == 'copy' else check.capitalize()}"
            others = [f"{off(c, name):.1f}" for name in ("cot", "model_reference")]
            lines.append((first, str(len(c["truth"])), *cells, *alone, *others, accuracy))
    heads = ("model; check", "targets", *GROUPS, "agreement alone", "estimator alone")
    heads += ("COT", "unchanged", "accuracy of the check")
    shown = [heads.index(head) for head in ("model; check", *SHOWN, "estimator alone", "COT", "unchanged")]
    short_lines = [[line[column] for column in shown] for line in lines]
    c = found["pacs", "copy", "shifted"]
    short = (
        f"on PACS {off(c):.1f} points off with an interval of {width(c):.0f}, instead of {off(c, 'estimator'):.1f} and "
    )
    short += f"{width(c, 'estimator_'):.0f}"
    arms = {block: arm_table(FOLDER, sources) for block, sources in DEVELOPED_ON.items()}
    tables = {
        "check": markdown([heads[column] for column in shown], short_lines),
        "check_complete": markdown(heads, lines),
    }
    return tables | {"check_short": short} | arms


NUMBERS = (
    *("truth", "accuracy", "low", "high", "agreement", "estimator", "estimator_low", "estimator_high", *DIRECT),
    *("model_reference", "check_before", "check_after"),
)


# -- the command ----------------------------------------------------------------------------------------------


def small_job():
    """A job on the digits of scikit-learn, drawn as images, which runs in a minute."""
    from sklearn.datasets import load_digits

    from benchmarks.data.images import PACKED
    from benchmarks.data.packed import write

    digits = load_digits()
    images = np.repeat(np.repeat(np.repeat((digits.images * 15.9).astype(np.uint8)[:, None], 3, 1), 2, 2), 2, 3)
    PACKED.mkdir(parents=True, exist_ok=True)
    names = [str(k) for k in range(10)]
    write(PACKED / "smalldigits-train.npz", images[:1200], (3, 16, 16), digits.target[:1200], names)
    turned = np.rot90(images[1200:], axes=(2, 3))
    write(PACKED / "smalldigits-turned.npz", turned, (3, 16, 16), digits.target[1200:], names)
    recipe = {"epochs": 10, "batch": 64, "rate": 0.1, "validation": 400, "share": 0.4}
    made = {"data": "smalldigits", "split": "train", "network": "small", "recipe": recipe}
    return estimates.Job("small", "smalldigits", 0, "image", made | {"targets": (("smalldigits", "turned"),)})


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="adapt and estimate")
    running.add_argument("suites", nargs="*", help="names of suites of estimates.py")
    running.add_argument("--check", nargs="+", default=["copy"], help="copy, or names of networks")
    running.add_argument("--only", nargs="+", default=[""], metavar="TEXT", help="jobs with one of these in their name")
    running.add_argument("--variants", nargs="+", default=list(VARIANTS))
    running.add_argument("--small", action="store_true", help="small digits only")
    arms = commands.add_parser("arms", help="variations on six development pairs")
    arms.add_argument("--only", nargs="+", default=list(ARMS), help="names of arms")
    arms.add_argument(
        "--suite", default="development-pacs", choices=["development-pacs", "development-light"], help="of estimates.py"
    )
    arms.add_argument(
        "--check", nargs="+", default=["copy", "lite2"], help="copy, or names of networks, with fewer arms"
    )
    anew = commands.add_parser("again", help="rows of saved arrays by today's combination")
    drawing = commands.add_parser("labels", help="50 labels of saved arrays")
    comparing = commands.add_parser("compare", help="constants on development targets")
    for command in (anew, drawing, comparing):
        command.add_argument("--arrays", type=Path, required=True, help="folder of row probabilities")
        command.add_argument("--commit", default=commit())
    for command in (anew, drawing, comparing, commands.add_parser("summary", help="tables")):
        command.add_argument("--output", type=Path, default=FOLDER)
    for command in (running, arms):
        command.add_argument("--device", default="cpu")
        command.add_argument("--jobs", type=int, default=1, help="how many at a time, each in its own process")
        command.add_argument("--steps", type=int, default=200)
        command.add_argument("--output", type=Path, default=FOLDER)
        command.add_argument("--arrays", type=Path, help="folder for row probabilities")
        command.add_argument("--commit", default=commit())
    return parser.parse_args()


def main():
    options = arguments()
    of_results = {"again": again, "labels": labels, "compare": compare, "summary": summary}
    if options.command in of_results:
        of_results[options.command](options)
        return
    known = estimates.suites()
    if options.command == "run":
        jobs = [small_job()] if options.small else [job for name in options.suites for job in known[name]()]
        jobs = [job for job in jobs if job.seed == 0 and any(text in job.name for text in options.only)]
        run_jobs(measure, [(job, check, options) for check in options.check for job in jobs], options.jobs)
    else:
        fewer = [name for name in options.only if name in WITH_OTHER]
        names = {check: options.only if check == "copy" else fewer for check in options.check}
        pairs = [(job, target) for job in known[options.suite]() for target in ("unshifted", *shifted_targets(job))]
        # The first six were looked at when the training was chosen; the lighter suite shows the others.
        first = options.suite == "development-pacs"
        pairs = [(job, target) for job, target in pairs if ((job.make["split"], target) in PAIRS) == first]
        run_jobs(arm, [(job, b, c, own, options) for c, own in names.items() for job, b in pairs], options.jobs)


if __name__ == "__main__":
    main()
