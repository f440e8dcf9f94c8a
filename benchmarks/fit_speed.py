"""How long does `models.estimator` take: CIFAR-10 images × every default shifted set, with ResNet-18?

    python benchmarks/fit_speed.py --device cuda                             # 10,000 images; results/fit_speed.json
    python benchmarks/fit_speed.py --images 200 --epochs 1 --output ""       # a look, on a CPU

The network is trained for a few epochs only, on the training images: how long a fit takes does not depend on how good
it is. Ends with status 1 when 10,000 images or more take over five minutes on a GPU.
"""

import argparse
import json
import platform
import sys
import time
from pathlib import Path

import torch

import gdscore
from cells import commit
from datasets import load
from gdscore import models
from train import fit, fresh, unit

RESULTS = Path(__file__).resolve().parent / "results" / "fit_speed.json"
BOUND_SECONDS = 300
SEED = 0


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--output", default=str(RESULTS), help="where to write the numbers; empty for nowhere")
    return parser


def main(given=None):
    options = arguments().parse_args(given)
    gpu = torch.device(options.device).type == "cuda"
    model = fresh("resnet18", 10, 32, SEED)
    rows = None if gpu else 10 * options.images
    fit(model, *load("cifar10", "train", rows=rows), epochs=options.epochs, seed=SEED, batch=256, device=options.device)
    images, labels = (torch.from_numpy(a) for a in load("cifar10", "test", rows=options.images))
    batches = [(unit(x), y) for x, y in zip(images.split(1000), labels.split(1000), strict=True)]
    begin = time.perf_counter()
    estimator = models.estimator(model, batches, batch_size=1000, progress=False, seed=SEED)
    seconds = time.perf_counter() - begin
    result = {
        "images": len(labels),
        "shifted_sets": len(estimator.calibration_.families),
        "seconds": round(seconds, 1),
        "reference_accuracy": round(estimator.reference_accuracy_, 4),
        "device": torch.cuda.get_device_name() if gpu else f"{platform.machine()}, {torch.get_num_threads()} threads",
        "versions": {"torch": torch.__version__, "gdscore": gdscore.__version__},
        "commit": commit(),
        "seed": SEED,
    }
    print(f"{result['shifted_sets']} shifted sets of {len(labels):,} images in {seconds:.1f} s on {result['device']}")
    if options.output:
        Path(options.output).write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(int(gpu and len(labels) >= 10_000 and seconds > BOUND_SECONDS))


if __name__ == "__main__":
    main()
