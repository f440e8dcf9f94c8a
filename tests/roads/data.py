"""Data of the roads: whole-number arithmetic, so that every processor and library makes the same bits.

Features are multiples of 1/4 and logits of 1/32, so that half precision holds them exactly.
"""

from __future__ import annotations

import numpy as np

import gdscore

FEATURES = 6


def draws(shape, end, seed):
    """Whole numbers below ``end``: SplitMix64 of the position (Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        x = (np.arange(np.prod(shape), dtype=np.uint64) + np.uint64(seed << 32)) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((x ^ (x >> np.uint64(31))) % np.uint64(end)).astype(np.int64).reshape(shape)


def noise(shape, seed):
    """Multiples of 1/16 with mean 0 and standard deviation 1, nearly normal."""
    return (draws((8, *shape), 20, seed) - 9.5).sum(axis=0) / 16


def quarters(values):
    return np.rint(values * 4) / 4


def classifier(classes=5):
    """Weights and offsets of the linear classifier that the roads share: its clusters' centres are its weights."""
    weights = quarters(1.5 * noise((classes, FEATURES), 1))
    return weights, -0.5 * np.square(weights).sum(axis=1)


def arrays(rows, level=1.0, seed=0, *, classes=5):
    """Arrays of the classifier on clusters of points; its accuracy falls as the ``level`` of noise grows."""
    weights, offsets = classifier(classes)
    labels = draws((rows,), classes, 10 * seed + 2)
    x = quarters(weights[labels] + level * noise((rows, FEATURES), 10 * seed + 3))
    logits = x @ weights.T + offsets
    return {
        "logits": logits,
        "features": x,
        "labels": labels,
        "peer_logits": quarters(logits + noise(logits.shape, 10 * seed + 4)),
        "batch_logits": quarters(0.875 * logits + 0.25 * noise(logits.shape, 10 * seed + 5)),
        "rotation_logits": quarters(np.eye(4) + noise((rows, 4, 4), 10 * seed + 6)),
    }


def outputs(rows, level=1.0, seed=0, *, names=("logits", "features", "labels"), dtype="float32"):
    """`Outputs` as an estimator takes them."""
    held = arrays(rows, level, seed)
    return gdscore.Outputs(**{n: held[n] if n == "labels" else held[n].astype(dtype) for n in names})


def target(*, names=("logits", "features"), dtype="float32"):
    """The target whose estimate every road gives."""
    return outputs(600, 1.5, 3, names=names, dtype=dtype)


def fitted(*, sets=True, names=("logits", "features"), **options):
    """An estimator, by default with nine shifted sets of three families."""
    labelled = (*names, "labels")
    levels = [(family, 1.25 + severity / 4 + family / 8) for family in range(3) for severity in range(3)]
    shifted = [
        gdscore.ShiftedSet(outputs(300, level, 10 + seed, names=labelled), f"family {family}")
        for seed, (family, level) in enumerate(levels)
    ]
    reference = outputs(800, 1.0, 1, names=labelled)
    return gdscore.AccuracyEstimator(**options).fit(reference, shifted_sets=shifted if sets else None, progress=False)


def table(rows, seed):
    """A frame of numbers, texts and booleans."""
    import pandas as pd

    kind = np.array(["red", "green", "blue"])[draws((rows,), 3, seed + 2)]
    columns = {"a": noise((rows,), seed), "b": draws((rows,), 5, seed + 1), "kind": kind}
    return pd.DataFrame({**columns, "flag": draws((rows,), 3, seed + 3) == 0})


WORDS = np.array(["good", "bad", "dull", "warm", "clever", "film", "plot", "the", "very", "slow", "end", "sound"])


def texts(rows, seed):
    lengths, words = 4 + draws((rows,), 9, seed), WORDS[draws((rows, 12), len(WORDS), seed + 1)]
    return [" ".join(row[:length]) + "." for row, length in zip(words, lengths, strict=True)]


def images(rows, seed, size=16):
    """Images of three classes: a pattern with noise, in steps of 1/256."""
    labels = draws((rows,), 3, seed)
    grid = np.arange(size) / size
    patterns = np.stack([np.outer(grid, grid), np.outer(1 - grid, grid), np.full((size, size), 0.375)])[labels]
    pixels = (
        patterns[:, None] * np.array([0.625, 0.75, 1.0])[:, None, None] + noise((rows, 3, size, size), seed + 1) / 8
    )
    return np.clip(np.rint(pixels * 256) / 256, 0, 1).astype(np.float32), labels
