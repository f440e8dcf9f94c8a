"""Every score on seeded outputs, bit for bit what it was: `python -m tests.scores.test_golden` writes the file anew.

Values are hexadecimal floats, so that a change in the last bit shows. They are compared bit for bit on the processor
that the file names, and to 1e-6 on others, whose matrix products round differently.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import gdscore

FILE = Path(__file__).with_name("golden.json")

OPTIONS = {
    "gdscore": [
        {},
        {"label_rule": "uniform"},
        {"label_rule": "expected"},
        {"label_rule": "true"},
        {"label_rule": "pseudo"},
        {"label_rule": "random", "seed": 3},
        {"loss": "entropy"},
        {"loss": "smoothing"},
        {"batch_size": None},
        {"p": 1},
        {"p": 2, "batch_size": 64},
        {"log": True, "p": 0.05},
        {"variant": "published"},
    ],
    "atc": [{}, {"score": "confidence"}],
    "frechet": [{}, {"squared": False}],
}


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def made(rows: int, classes: int, dtype: str, seed: int, noise: float) -> gdscore.Outputs:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, rows)
    features = np.abs(rng.normal(size=(classes, 24)))[labels] + noise * rng.normal(size=(rows, 24))
    weights = rng.normal(size=(24, classes))
    logits = features @ weights
    return gdscore.Outputs(
        logits=logits.astype(dtype),
        features=features.astype(dtype),
        labels=labels,
        peer_logits=(logits + rng.normal(size=logits.shape)).astype(dtype),
        batch_logits=(logits * 0.9 + 0.3 * rng.normal(size=logits.shape)).astype(dtype),
        rotation_logits=rng.normal(size=(rows, 4, 4)).astype(dtype),
    )


def cases():
    for rows, classes, dtype in [(500, 5, "float64"), (500, 5, "float32"), (700, 10, "float16"), (90, 2, "float32")]:
        reference, target = made(rows, classes, dtype, 1, 0.5), made(rows + 37, classes, dtype, 2, 1.0)
        for name in sorted(gdscore.list_scores()):
            if name == "projnorm":
                continue
            for options in OPTIONS.get(name, [{}]):
                key = f"{name} {json.dumps(options)} {rows} {classes} {dtype}"
                yield key, name, options, reference, target


def values() -> dict[str, str]:
    found = {}
    for key, name, options, reference, target in cases():
        score = gdscore.create_score(name, **options)
        found[key] = float(score.fit(reference).update(target).compute()).hex()
    return found


@pytest.mark.filterwarnings("ignore::gdscore.GdscoreWarning")
def test_scores_are_what_they_were():
    stored = json.loads(FILE.read_text())
    now = values()
    assert now.keys() >= stored["values"].keys()
    exact = stored["processor"] == processor()
    for key, value in stored["values"].items():
        was, is_ = float.fromhex(value), float.fromhex(now[key])
        same = was == is_ if exact and "frechet" not in key else math.isclose(was, is_, rel_tol=1e-6)
        assert same, f"{key}: {was!r} became {is_!r}"


if __name__ == "__main__":
    FILE.write_text(json.dumps({"processor": processor(), "values": values()}, indent=1) + "\n")
