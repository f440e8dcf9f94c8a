"""Seeded data of the roads, and what is recorded of estimates and arrays; nothing here depends on other tests."""

from __future__ import annotations

import math
import zlib

import numpy as np

import gdscore

CLASSES, FEATURES = 5, 6
CENTRES = 1.6 * np.random.default_rng(5).normal(size=(CLASSES, FEATURES))
EXTRA = ("peer_logits", "batch_logits", "rotation_logits")


def arrays(count, noise=1.0, seed=0, *, dtype="float32", shares=None, offset=0.0):
    """Arrays of a linear classifier on Gaussian clusters."""
    rng = np.random.default_rng([seed, 11])
    labels = rng.choice(CLASSES, count, p=shares)
    x = CENTRES[labels] + noise * rng.normal(size=(count, FEATURES)) + offset
    logits = 1.2 * (x @ CENTRES.T - 0.5 * np.square(CENTRES).sum(axis=1))
    return {
        "logits": logits.astype(dtype),
        "features": x.astype(dtype),
        "labels": labels,
        "peer_logits": (logits + rng.normal(size=logits.shape)).astype(dtype),
        "batch_logits": (0.9 * logits + 0.3 * rng.normal(size=logits.shape)).astype(dtype),
        "rotation_logits": (np.eye(4)[None] + rng.normal(size=(count, 4, 4))).astype(dtype),
    }


def outputs(count, noise=1.0, seed=0, *, features=True, labels=True, **options):
    """`Outputs` as an estimator takes them."""
    given = arrays(count, noise, seed, **options)
    left_out = {*EXTRA, *(() if features else ("features",)), *(() if labels else ("labels",))}
    return gdscore.Outputs(**{name: array for name, array in given.items() if name not in left_out})


def parts(out, size):
    return [out[i : i + size] for i in range(0, len(out), size)]


def shifted(count=300, *, features=True):
    """Nine sets of three families."""
    return [
        gdscore.ShiftedSet(
            outputs(count, 1 + 0.3 * (s + 1), 100 + 10 * f + s, features=features, offset=0.1 * f), f"family {f}"
        )
        for f in range(3)
        for s in range(3)
    ]


def fitted(sets=True, *, features=True, count=800, **options):
    given = shifted(features=features) if sets else None
    reference = outputs(count, seed=1, features=features)
    return gdscore.AccuracyEstimator(**options).fit(reference, shifted_sets=given, progress=False)


TARGETS = {
    "unshifted": lambda **o: outputs(500, 1.0, 2, labels=False, **o),
    "shifted": lambda **o: outputs(600, 1.7, 3, labels=False, **o),
    "other mix": lambda **o: outputs(450, 1.3, 4, labels=False, shares=[0.5, 0.3, 0.1, 0.05, 0.05], **o),
    "few": lambda **o: outputs(37, 1.3, 5, labels=False, **o),
}
SHARES = [0.3, 0.3, 0.2, 0.1, 0.1]


WORDS = [
    "good",
    "bad",
    "dull",
    "warm",
    "clever",
    "film",
    "plot",
    "scene",
    "actor",
    "the",
    "a",
    "of",
    "and",
    "very",
    "quite",
    "slow",
    "quick",
    "end",
    "start",
    "sound",
]


def pair(dtype="float32", convert=lambda x: x):
    made = [arrays(384, 1.0, 1, dtype=dtype), arrays(512, 1.6, 2, dtype=dtype)]
    return [gdscore.Outputs(**{k: convert(v) for k, v in given.items()}) for given in made]


def segments(count):
    rng = np.random.default_rng(7)
    return {
        "texts": rng.choice(["fr", "de", "it"], count, p=[0.6, 0.3, 0.1]).tolist(),
        "numbers": rng.integers(0, 3, count).tolist(),
        "missing": [None if v > 0.8 else "a" if v > 0.4 else "b" for v in rng.random(count)],
    }


def frame(count, seed=0):
    import pandas as pd

    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "a": rng.normal(size=count),
            "b": rng.integers(0, 5, count),
            "kind": rng.choice(["red", "green", "blue"], count),
            "flag": rng.random(count) < 0.3,
        }
    )


def texts(count, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(4, 14))) + "." for _ in range(count)]


def images(count, channels=3, size=16, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, count)
    grid = np.linspace(0, 1, size)
    base = np.stack([np.outer(grid, grid), np.outer(1 - grid, grid), np.full((size, size), 0.4)])[y]
    x = np.clip(
        base[:, None] * np.linspace(0.6, 1, channels)[:, None, None]
        + 0.15 * rng.normal(size=(count, channels, size, size)),
        0,
        1,
    )
    return (np.rint(x * 255) / 255).astype(np.float32), y


# -- what is recorded -----------------------------------------------------------------------------------------


def plain(value):
    """A number, text or list of them, as JSON keeps it exactly; NaN and infinities as text."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


def of_estimate(e, *, full=False):
    """Numbers of an estimate and the codes of its warnings; words may change. ``full`` adds classes and bins."""
    found = {
        "accuracy": [e.accuracy, e.low, e.high, e.level, e.reference_accuracy],
        "rows": e.n_rows,
        "how": [e.class_mix, e.method],
        "assumptions": [e.assumptions[k] for k in sorted(e.assumptions)],
        "scores": [v for k in sorted(e.scores) for v in (k, e.scores[k])],
        "warnings": [f"{w.code} {w.severity}" for w in e.warnings],
    }
    if e.f1 is not None:
        found["f1"] = _quantity(e.f1)
    if full:
        for c in e.per_class:
            found[f"class {c.name}"] = [c.share, c.predicted, *_quantity(c.recall), *_quantity(c.precision)]
            found[f"class {c.name} f1"] = _quantity(c.f1)
        if e.confidence is not None:
            found["bins rows"], found["bins confidence"] = e.confidence.rows, e.confidence.confidence
    return found


def _quantity(q):
    return [q.value, q.low, q.high]


def of_fit(est):
    """What an estimator learned."""
    table = est.shifted_sets_
    return {
        "reference": [est.reference_accuracy_, est.reference_rows_, est.n_classes_, est.n_features_],
        "left out": [est.left_out_error_, est.n_families_, len(table.families)],
        "sets accuracy": _short(table.accuracy),
        "sets predicted": _short(table.predicted),
        "bins rows": est.reference_confidence_.rows,
        "bins confidence": est.reference_confidence_.confidence,
    }


def _short(values):
    """All of a few numbers, the digest of many."""
    return np.asarray(values) if len(values) <= 12 else [len(values), *digest(values)]


def digest(array):
    """Mean, standard deviation and a weighted sum, which sees the order; over what is not missing."""
    flat = np.asarray(array, dtype=np.float64).ravel()
    known = np.isfinite(flat)
    flat = flat[known]
    if not len(flat):
        return [0, 0, 0, 0]
    return [int(known.sum()), flat.mean(), flat.std(), float((flat * np.cos(np.arange(len(flat)))).mean())]


def checksum(value):
    """Of texts and cells of any kind."""
    return zlib.crc32(repr(value).encode())
