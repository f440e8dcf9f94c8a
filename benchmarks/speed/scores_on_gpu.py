"""What do scores cost beside the bare forward pass of a real network? Ratios of medians, interleaved in one run.

    python -m benchmarks.speed.scores_on_gpu --output benchmarks/results/speed_gpu.json      # ResNet-50 at 224 px on a GPU
    python -m benchmarks.speed.scores_on_gpu --small                                         # a quick try on any machine

ResNet-50 with random weights, batches of 128 in channels_last, bfloat16 forward pass, data already on the device:

- ``extract``: logits and features of every batch, and nothing else;
- ``gdscore``: ``gdscore.models.score_all`` with GdScore alone;
- ``all``: every score that one pass allows, by ``gdscore.models.score_all`` with a reference. What is done once, the
  pass over the reference, learning from it and the final computation, is measured on a single batch and taken off, so
  that the ratio is that of every further batch;
- ``released``: the released algorithm, forward and backward through the whole network in train mode, at the same
  precision;
- ``projnorm``: 500 steps of retraining on pseudo-labels, once.

Ends with status 1 where the ratios on a GPU are above their bounds.
"""

import argparse
import json
import statistics
import sys
import time
import warnings
from pathlib import Path

import torch

import gdscore
from benchmarks.models.networks import network
from gdscore import models

BOUNDS = {"gdscore": 1.03, "all": 1.10}
LEAST = {"released": 3.0}
MORE_PASSES = ("projnorm", "rotation", "agreescore", "selfscore")


def arguments(given):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--small", action="store_true", help="a small network at 32 px, 2 batches of 32 rows, 2 ProjNorm steps"
    )
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--steps", type=int, default=500, help="of ProjNorm")
    parser.add_argument("--output", type=Path, help="write the numbers as JSON")
    return parser.parse_args(given)


def finished(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def seconds(task, device):
    finished(device)
    begin = time.perf_counter()
    task()
    finished(device)
    return time.perf_counter() - begin


def released(model, batches, precision, p=0.3, tau=0.5):
    """The published algorithm: train mode, cross-entropy on pseudo-labels, backward through the whole network."""
    model.train()
    norms = []
    for x in batches:
        with precision():
            z = model(x)
        confidence, labels = z.detach().float().softmax(1).max(1)
        labels = torch.where(confidence < tau, torch.randint_like(labels, z.shape[1]), labels)
        model.zero_grad()
        torch.nn.functional.cross_entropy(z.float(), labels).backward()
        norms.append(model.head.weight.grad.abs().pow(p).sum().pow(1 / p))
    model.zero_grad()
    model.eval()
    return float(torch.stack(norms).mean())


def main(given=None):
    options = arguments(given)
    warnings.simplefilter("ignore", gdscore.GdscoreWarning)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    name, side, classes, rows = ("small", 32, 10, 32) if options.small else ("resnet50", 224, 1000, 128)
    count, steps = (2, 2) if options.small else (options.batches, options.steps)
    autocast = torch.bfloat16 if device.type == "cuda" else None

    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    model = network(name, classes).to(device, memory_format=torch.channels_last).eval()
    distinct = [torch.randn(rows, 3, side, side, device=device).to(memory_format=torch.channels_last) for _ in range(4)]
    batches = [distinct[i % 4] for i in range(count)]

    def precision():
        return torch.autocast(device.type, dtype=autocast, enabled=autocast is not None)

    def forward():
        with torch.no_grad(), precision():
            for x in batches:
                model(x)

    labels = torch.arange(rows, device=device) % classes
    reference = [(x, labels) for x in distinct]
    chosen = [n for n in gdscore.list_scores() if n not in MORE_PASSES]

    def all_scores(loader):
        models.score_all(model, loader, val_loader=reference, scores=chosen, autocast=autocast, progress=False)

    def extract_only():
        for _ in models.extract(model, batches, autocast=autocast, progress=False):
            pass

    tasks = {
        "forward": forward,
        "extract": extract_only,
        "gdscore": lambda: models.score_all(model, batches, scores=["gdscore"], autocast=autocast, progress=False),
        "all": lambda: all_scores(batches),
        "all, one batch": lambda: all_scores(batches[:1]),
        "released": lambda: released(model, batches, precision),
    }
    times = {n: [] for n in tasks}
    for task in tasks.values():
        task()  # compilation of kernels and cudnn's choice of algorithms
    for _ in range(options.repeats):
        for n, task in tasks.items():
            times[n].append(seconds(task, device))
    median = {n: statistics.median(t) for n, t in times.items()}
    ratios = {n: median[n] / median["forward"] for n in ("extract", "gdscore", "released")}
    further = (median["all"] - median["all, one batch"]) / (count - 1)
    ratios["all"] = further / (median["forward"] / count)
    retraining = seconds(
        lambda: models.projnorm(model, batches[:8], start="model", steps=steps, batch_size=rows, progress=False),
        device,
    )

    result = {
        "network": f"{name}, {side} px, {classes} classes",
        "batches": f"{count} of {rows} rows, {options.repeats} repeats",
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "precision": str(autocast or torch.float32),
        "torch": torch.__version__,
        "forward_seconds": median["forward"],
        "rows_per_second": rows * count / median["forward"],
        "ratio_to_forward": ratios,
        "released_over_gdscore": median["released"] / median["gdscore"],
        "scores": chosen,
        "all_once_seconds": median["all, one batch"],
        "projnorm_seconds": retraining,
        "projnorm_steps": steps,
        "projnorm_over_gdscore": retraining / median["gdscore"],
    }
    print(json.dumps(result, indent=1))
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(result, indent=1) + "\n")
    if device.type == "cuda" and not options.small:
        slow = [n for n, bound in BOUNDS.items() if ratios[n] > bound]
        slow += ["released"] if result["released_over_gdscore"] < LEAST["released"] else []
        print("out of bounds: " + (", ".join(slow) or "none"))
        sys.exit(bool(slow))


if __name__ == "__main__":
    main()
