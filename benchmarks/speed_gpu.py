"""What do scores cost beside the bare forward pass of a real network? Ratios of medians, interleaved in one run.

    python benchmarks/speed_gpu.py --output benchmarks/results/speed_gpu.json      # ResNet-50 at 224 px on a GPU
    python benchmarks/speed_gpu.py --small                                         # a quick try on any machine

ResNet-50 with random weights, batches of 128 in channels_last, bfloat16 forward pass, data already on the device:

- ``extract``: logits and features of every batch, and nothing else;
- ``gdscore``: ``gdscore.models.score`` with GdScore alone;
- ``all``: every output-based score at once (`update`; `compute` is timed apart);
- ``released``: the released algorithm, forward and backward through the whole network in train mode, at the same
  precision;
- ``projnorm``: 500 steps of retraining on pseudo-labels, once.
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
from gdscore import models
from gdscore.models.scoring import kept_casts
from gdscore.scores.together import fit_together, run_together
from networks import network

BOUNDS = {"gdscore": 1.03, "all": 1.10}
LEAST = {"released": 3.0}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="ResNet-18 at 32 px, 2 batches of 32, 2 ProjNorm steps")
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--steps", type=int, default=500, help="of ProjNorm")
    parser.add_argument("--output", type=Path, help="write the numbers as JSON")
    return parser.parse_args()


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


def main():
    options = arguments()
    warnings.simplefilter("ignore", gdscore.GdscoreWarning)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    name, side, classes, rows = ("resnet18", 32, 10, 32) if options.small else ("resnet50", 224, 1000, 128)
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
    source = list(models.extract(model, [(x, labels) for x in distinct], autocast=autocast, progress=False))
    chosen = [n for n in gdscore.list_scores() if n not in ("projnorm", "rotation", "agreescore")]
    scores = {n: gdscore.create_score(n) for n in chosen}
    fit_together(scores.values(), source)

    def update(names):
        stream = models.extract(model, batches, autocast=autocast, progress=False)
        with kept_casts(model, autocast):
            run_together([scores[n].reset() for n in names], stream)

    def extract_only():
        with kept_casts(model, autocast):
            for _ in models.extract(model, batches, autocast=autocast, progress=False):
                pass

    tasks = {
        "forward": forward,
        "extract": extract_only,
        "gdscore": lambda: models.score(model, batches, scores=["gdscore"], autocast=autocast, progress=False),
        "all": lambda: update(chosen),
        "released": lambda: released(model, batches, precision),
    }
    times = {n: [] for n in tasks}
    for task in tasks.values():
        task()  # compilation of kernels and cudnn's choice of algorithms
    for _ in range(options.repeats):
        for n, task in tasks.items():
            times[n].append(seconds(task, device))
    median = {n: statistics.median(t) for n, t in times.items()}
    ratios = {n: median[n] / median["forward"] for n in tasks if n != "forward"}
    compute = {n: seconds(s.compute, device) for n, s in scores.items()}
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
        "compute_seconds": compute,
        "projnorm_seconds": retraining,
        "projnorm_steps": steps,
        "projnorm_over_gdscore": retraining / median["gdscore"],
    }
    print(json.dumps(result, indent=1))
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(result, indent=1) + "\n")
    if not options.small:
        slow = [n for n, bound in BOUNDS.items() if ratios[n] > bound]
        slow += ["released"] if result["released_over_gdscore"] < LEAST["released"] else []
        print("out of bounds: " + (", ".join(slow) or "none"))
        sys.exit(bool(slow))


if __name__ == "__main__":
    main()
