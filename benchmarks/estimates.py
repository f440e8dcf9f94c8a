"""How good are estimates on natural shifts? Digits: each source against the two others, beside direct estimators.

    python benchmarks/train.py --data mnist --network small --seed 0 --epochs 3 --rows 20000     # and seed 1, mnistm, usps
    python benchmarks/estimates.py --output benchmarks/results/estimates-digits.json               # 6 CPU minutes a model and 1,000 rows

Calibration sees held-out source rows only (``datasets.training_parts``); the targets' labels serve for the truth alone.
The second model (``peer``) is the same network from another seed. Nothing was tuned on these pairs.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch

import gdscore
from datasets import load, training_parts
from train import load_model

DIGITS = ("mnist", "mnistm", "usps")
DIRECT = ("cot", "cott", "atc", "doc", "confscore")


def predictor(source, peer):
    """Callable from uint8 images to `Outputs` of the source's model, with the peer's logits where there is one."""
    models = [load_model(source, "small", seed).eval() for seed in ((0, 1) if peer else (0,))]

    @torch.no_grad()
    def predict(images):
        x = torch.from_numpy(np.ascontiguousarray(images)).float() / 255
        features = models[0].body(x).mean((2, 3))
        peer_logits = {"peer_logits": models[1](x)} if peer else {}
        return gdscore.Outputs(logits=models[0].head(features), features=features, **peer_logits)

    return predict


def outputs(predict, images, labels, size=500):
    parts = [predict(images[i : i + size]) for i in range(0, len(images), size)]
    said = gdscore.Outputs.concatenate(parts)
    return gdscore.Outputs(**said.arrays, labels=labels)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1000, help="of the reference and of each target")
    parser.add_argument("--output", type=Path, help="write the rows as JSON")
    parser.add_argument("--peer", choices=("without", "with", "both"), default="both", help="a second model")
    options = parser.parse_args()
    peers = {"without": (False,), "with": (True,), "both": (False, True)}[options.peer]
    rows = []
    for source in DIGITS:
        images, labels = (part[: options.rows] for part in training_parts(source)[1])
        for peer in peers:
            predict = predictor(source, peer)
            begin = time.perf_counter()
            estimator = gdscore.AccuracyEstimator().fit_predictor(predict, images, labels, progress=False)
            seconds = time.perf_counter() - begin
            reference = outputs(predict, images, labels)
            for target in DIGITS:
                said = outputs(predict, *load(target, "test", rows=options.rows, seed=0))
                e = estimator.estimate(said)
                row = {"source": source, "target": target, "peer": peer, "n": e.n, "truth": said.accuracy}
                row |= {"accuracy": e.accuracy, "low": e.low, "high": e.high, "level": e.level, "fit_seconds": seconds}
                row |= {n: gdscore.direct_estimate(n, said, source=reference).accuracy for n in DIRECT}
                rows.append(row)
                print(
                    f"{source:>6} → {target:<6} {'with peer' if peer else 'alone':9s} truth {row['truth']:6.1%}  estimate "
                    f"{e.accuracy:6.1%} ({e.low:.0%} to {e.high:.0%})  "
                    + "  ".join(f"{n} {row[n]:.0%}" for n in DIRECT),
                    flush=True,
                )
    for peer in peers:
        shifted = [r for r in rows if r["peer"] == peer and r["source"] != r["target"]]
        error = {n: np.mean([abs(r[n] - r["truth"]) for r in shifted]) * 100 for n in ("accuracy", *DIRECT)}
        held = np.mean([r["low"] <= r["truth"] <= r["high"] for r in shifted])
        width = np.mean([r["high"] - r["low"] for r in shifted]) * 100
        print(
            f"{len(shifted)} shifted pairs {'with a second model' if peer else 'without a second model'}: mean absolute "
            f"error in points: {', '.join(f'{n} {v:.1f}' for n, v in error.items())}; coverage {held:.0%}, width {width:.0f}"
        )
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
