"""Do all array libraries and devices give the same numbers? Every score, against NumPy on the host.

    python -m benchmarks.speed.devices                                        # the libraries that are installed here
    python -m benchmarks.speed.devices --output benchmarks/results/devices.md

Ends with status 1 when a number differs by more than 1e-5 (relative).
"""

import argparse
import importlib.util
import platform
import sys
import warnings
from pathlib import Path

import numpy as np

import gdscore

TOLERANCE = 1e-5
VARIANTS = {
    "gdscore": [
        {},
        {"p": 0.1},
        {"p": 2},
        {"batch_size": None},
        {"loss": "entropy"},
        {"loss": "smoothing"},
        {"label_rule": "expected"},
        {"label_rule": "random"},
        {"variant": "published"},
    ],
    "mano": [{}, {"variant": "published"}],
    "atc": [{}, {"score": "confidence"}],
    "frechet": [{}, {"squared": False}],
    "cot": [{}, {"k": 1000}],
}


def arrays_of(rows, seed, noise, classes=20, features=128):
    """A linear classifier on Gaussian clusters; unscaled noise of 1 leaves it about 90 % accurate."""
    centres = np.random.default_rng(99).normal(size=(classes, features)) * 0.4
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, rows)
    x = np.maximum(centres[labels] + noise * rng.normal(size=(rows, features)), 0)
    relu = np.maximum(centres, 0)
    z = x @ relu.T - 0.5 * np.square(relu).sum(1)
    peer = (z + 0.5 * rng.normal(size=z.shape)).astype(np.float32)
    return {
        "logits": z.astype(np.float32),
        "features": x.astype(np.float32),
        "peer_logits": peer,
        "batch_logits": peer,
        "rotation_logits": (np.eye(4) + rng.normal(size=(rows, 4, 4))).astype(np.float32),
        "labels": labels,
    }


def converters():
    """Name of each library and device here, and how an array gets there."""
    found = {"NumPy": np.asarray}
    if importlib.util.find_spec("torch"):
        import torch

        found["torch cpu"] = torch.from_numpy
        if torch.cuda.is_available():
            torch.backends.cuda.matmul.allow_tf32 = True  # scores must not be moved by it
            found["torch cuda"] = lambda x: torch.from_numpy(x).cuda()
    if importlib.util.find_spec("jax"):
        import jax

        found[f"jax {jax.default_backend()}"] = jax.numpy.asarray
    if importlib.util.find_spec("cupy"):
        import cupy

        found["cupy"] = cupy.asarray
    return found


def scores_on(convert, rows):
    target = gdscore.Outputs(**{k: convert(a) for k, a in arrays_of(rows, 0, 1.3).items()})
    source = gdscore.Outputs(**{k: convert(a) for k, a in arrays_of(rows // 2, 1, 1.0).items()})
    values = {}
    for name in gdscore.list_scores():
        if name == "projnorm":
            continue
        for options in VARIANTS.get(name, [{}]):
            label = name + "".join(f" {key}={value}" for key, value in options.items())
            values[label] = gdscore.score(name, target, reference=source, **options)
    return values


def device_name():
    if importlib.util.find_spec("torch"):
        import torch

        if torch.cuda.is_available():
            return torch.cuda.get_device_name()
    return platform.processor() or platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=6000)
    parser.add_argument("--output", type=Path, help="write the table as Markdown")
    options = parser.parse_args()
    warnings.simplefilter("ignore", gdscore.GdscoreWarning)
    columns = {name: scores_on(convert, options.rows) for name, convert in converters().items()}
    reference = columns["NumPy"]
    others = [name for name in columns if name != "NumPy"]
    lines = [
        f"Relative difference from NumPy, {options.rows} rows, 20 classes, 128 features, float32; {device_name()}.",
        "",
        "| score | NumPy | " + " | ".join(others) + " |",
        "|---|---|" + "---|" * len(others),
    ]
    worst = 0.0
    for label, value in reference.items():
        differences = [abs(columns[name][label] - value) / abs(value) for name in others]
        worst = max([worst, *differences])
        lines.append(f"| {label} | {value:.6g} | " + " | ".join(f"{d:.1e}" for d in differences) + " |")
    lines += ["", f"Largest: {worst:.1e}; bound {TOLERANCE:.0e}."]
    print("\n".join(lines))
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text("\n".join(lines) + "\n", encoding="utf-8")
    sys.exit(int(worst > TOLERANCE))


if __name__ == "__main__":
    main()
