"""Ablations that need the network itself: layers, epochs, ProjNorm, what each costs, and the released algorithm.

Each is a function of the source, its classifier, the file to fill and the sets; ``benchmarks/paper/ablations.py`` has the command.
"""

import copy
import time
from functools import partial

import numpy as np
import torch
from torch import nn

import gdscore
from benchmarks.paper.cells import BATCH, SEED, published_outputs, shuffled_loader
from benchmarks.paper.network_scores import ProjNorm, finetuned_scores, gradient_scores
from benchmarks.paper.panel import options_of, published_scores
from gdscore import models

__all__ = ["ALONE", "GRIDS", "NETWORK", "released"]

THIRD = ("gaussian_noise", "motion_blur", "snow", "fog", "contrast", "jpeg_compression")
EPOCHS = (0, 1, 2, 5, 10, 20)
STEPS = 500  # of ProjNorm, as its paper's
SOURCE_ROWS = 10_000
GRIDS = {
    "layers": {"severities": (1, 3, 5), "rows": 2000},
    "epochs": {"severities": (1, 3, 5), "rows": 1000, "corruptions": THIRD},
    "projnorm": {"severities": (1, 3, 5)},
    "runtime": {"severities": (3,), "corruptions": ("fog",)},
    "released": {"severities": (3,), "corruptions": ("fog",)},
}
# Of one set; and times are of a device without other work.
ALONE = ("runtime", "released")


def described(target, accuracy):
    return {
        "set": target.name,
        "family": target.family,
        "severity": target.severity,
        "n": len(target.labels),
        "accuracy": accuracy,
    }


def extracted(model, loader, **options):
    return gdscore.Outputs.concatenate(list(models.extract(model, loader, progress=False, **options)))


def groups_of(model):
    """Stages of a ResNet, or thirds of the layers of other networks, the last layer and everything."""
    trunk, last = "stages" if hasattr(model, "stages") else "body", "head.weight"
    if hasattr(model, "least"):
        trunk, last = "body._blocks", "body._fc.weight"
    children = model.get_submodule(trunk).named_children()
    parts = [f"{trunk}.{name}" for name, child in children if [*child.parameters()]]
    count = len(parts) if len(parts) <= 4 else 3
    size = len(parts) // count
    blocks = {f"block{k + 1}": parts[k * size : (k + 1) * size] for k in range(count)}
    return {**blocks, "last": last, "all": ""}


def layers(source, classifier, rows, targets, *, published=False):
    """GdScore of the gradient by each block, by the last layer and by all parameters."""
    for target in targets:
        if target.name not in rows.seen:
            groups = groups_of(classifier.model)
            if published:
                loader = shuffled_loader(classifier, target)
                accuracy = published_outputs(classifier, loader)[1]
            else:
                loader = shuffled_loader(classifier, target, BATCH)
                accuracy = extracted(classifier.model, loader, head=False).accuracy
            mode = "batch" if published else "eval"
            rows.add(described(target, accuracy) | gradient_scores(classifier.model, loader, groups, batchnorm=mode))


def epochs(source, classifier, rows, targets):
    """GdScore after r epochs of fine-tuning on its own labels; r = 0 is GdScore."""
    for target in targets:
        if target.name not in rows.seen:
            loader = shuffled_loader(classifier, target, BATCH)
            found = finetuned_scores(classifier.model, loader, epochs=EPOCHS)
            accuracy = extracted(classifier.model, loader, head=False).accuracy
            rows.add(described(target, accuracy) | {f"epochs={r}": value for r, value in found.items()})


def training_loader(source, classifier):
    images, labels = source.training()
    return list(classifier.batches(images[:SOURCE_ROWS], labels[:SOURCE_ROWS], None, BATCH))


def timed(work):
    begin = time.perf_counter()
    value = work()
    return value, time.perf_counter() - begin


def projnorm(source, classifier, rows, targets):
    """ProjNorm as its authors define it, against the same start trained on source labels, beside GdScore."""
    reference, measure = training_loader(source, classifier), None
    for target in targets:
        if target.name not in rows.seen:
            measure = measure or ProjNorm(
                classifier.model, *(torch.cat(part) for part in zip(*reference, strict=True)), steps=STEPS
            )
            loader = shuffled_loader(classifier, target, BATCH)
            value, seconds = timed(lambda loader=loader, measure=measure: measure(torch.cat([x for x, _ in loader])))
            outputs = extracted(classifier.model, loader)
            found = {"projnorm": value, "gdscore": gdscore.score("gdscore", outputs), "projnorm_seconds": seconds}
            rows.add(described(target, outputs.accuracy) | found)


def one_score(model, loader, fitted, **more):
    """A score that is fitted already, of a set that passes the network once."""
    fitted.reset()
    for part in models.extract(model, loader, progress=False, **more):
        fitted.update(part)
    return fitted.compute()


def works_of(source, classifier, target):
    """Name → function that makes a method's value of the target: its passes through the network, then the score."""
    model, loader = classifier.model, shuffled_loader(classifier, target, BATCH)
    known, (images, labels) = training_loader(source, classifier), source.reference()
    reference = extracted(model, list(classifier.batches(images, labels, None, BATCH)))
    # A second network costs what this one does, so this one stands for it.
    more = {"agreescore": {"peer": model}}
    more["rotation"] = {"rotation_head": models.fit_rotation_head(model, known, progress=False)}
    works = {}
    for name in [name for name in gdscore.list_scores() if name not in ("projnorm", "selfscore")]:
        score = gdscore.create_score(name, **options_of(name))
        fitted = score.fit(reference) if score.reference_inputs else score
        works[name] = partial(one_score, model, loader, fitted, **more.get(name, {}))
    works["layers"] = lambda: gradient_scores(model, loader, groups_of(model))["last"]
    works["projnorm"] = lambda: models.projnorm(model, loader, known, steps=STEPS, progress=False)
    works["projnorm-pretrained"] = lambda: models.projnorm(model, loader, start="model", steps=STEPS, progress=False)
    return {"gdscore": works.pop("gdscore"), **works}


def runtime(source, classifier, rows, targets):
    """Seconds of every method on the last set, what it needs of the network included; what is fitted once is not."""
    for target in list(targets)[-1:]:
        if rows.seen:
            return
        first = None
        for method, work in works_of(source, classifier, target).items():
            long = method == "layers" or method.startswith("projnorm")
            if not long:
                work()  # kernels are chosen and memory is taken on the first call
            repeats = [timed(work) for _ in range(1 if long else 3)]
            seconds = float(np.median([seconds for _, seconds in repeats]))
            first = first or seconds
            row = {"set": f"{target.name}/{method}", "method": method, "n": len(target.labels)}
            rows.add(row | {"value": repeats[0][0], "seconds": seconds, "times_gdscore": seconds / first})


def released(model, loader, random_labels, *, p=0.3, tau=0.5):
    """The released algorithm written directly: train mode, autograd, then the accuracy of what the pass left behind.

    `random_labels` stands for the draw of its unseeded generator, one label a row.
    """
    model, norms, start, right = copy.deepcopy(model).train(), [], 0, 0
    for x, _ in loader:
        logits = model(x)
        confidence, labels = nn.functional.softmax(logits, dim=1).max(1)
        labels = torch.where(confidence < tau, random_labels[start : start + len(x)], labels)
        model.zero_grad()
        nn.functional.cross_entropy(logits, labels).backward()
        norms.append(model.head.weight.grad.abs().pow(p).sum().pow(1 / p).item())
        start += len(x)
    with torch.no_grad():
        model.eval()
        for x, y in loader:
            right += int((model(x).argmax(1) == y).sum())
    return float(np.mean(norms)), right / start


def check_released(source, classifier, rows, targets):
    """The released algorithm against the ``published`` part of the cells, on the same order and random draw."""
    for target in list(targets)[-1:]:
        if target.name in rows.seen:
            return
        loader = shuffled_loader(classifier, target)
        outputs, after = published_outputs(classifier, loader)
        ours = gdscore.score("gdscore", outputs, **published_scores()["gdscore"])
        norm, accuracy = released(classifier.model, loader, outputs.random_labels(SEED).to(torch.int64))
        found = {"cells_gdscore": ours, "released_gdscore": norm, "relative_difference": abs(ours - norm) / norm}
        rows.add(
            described(target, after)
            | found
            | {"released_accuracy": accuracy, "accuracy_difference": abs(after - accuracy)}
        )


NETWORK = {"layers": layers, "epochs": epochs, "projnorm": projnorm, "runtime": runtime, "released": check_released}
