"""Outputs of a linear classifier on Gaussian clusters: accuracy falls as the noise grows."""

from __future__ import annotations

import numpy as np

import gdscore

CLASSES, FEATURES = 5, 6
KINDS = ("plain", "steep", "saturated", "tied", "one-hot", "nearly one-hot")
ROW = 12
"""One row of n moves an estimate by at most this many times 1/n."""
CENTRES = 1.6 * np.random.default_rng(5).normal(size=(CLASSES, FEATURES))


def rows(count, noise=1.0, seed=0, *, shares=None, offset=0.0):
    """Features, logits and labels; ``shares`` of the classes, ``offset`` moves all features."""
    rng = np.random.default_rng([seed, 11])
    labels = rng.choice(CLASSES, count, p=shares)
    x = CENTRES[labels] + noise * rng.normal(size=(count, FEATURES)) + offset
    logits = 1.2 * (x @ CENTRES.T - 0.5 * np.square(CENTRES).sum(axis=1))
    return x, logits, labels


def outputs(count, noise=1.0, seed=0, *, features=True, dtype=np.float32, **options):
    x, logits, labels = rows(count, noise, seed, **options)
    extra = {"features": x.astype(dtype)} if features else {}
    return gdscore.Outputs(logits=logits.astype(dtype), labels=labels, **extra)


def unlabelled(out):
    return out.only({"logits", "features"})


def shifted(count=300, *, features=True, families=3, severities=3, names="family"):
    """Sets of several families, each at several severities."""
    return [
        gdscore.ShiftedSet(
            outputs(count, 1 + 0.3 * (s + 1), 100 + 10 * f + s, features=features, offset=0.1 * f), f"{names} {f}"
        )
        for f in range(families)
        for s in range(severities)
    ]


def fitted(sets=True, *, features=True, count=800, **options):
    reference = outputs(count, seed=1, features=features)
    given = shifted(features=features) if sets else None
    return gdscore.AccuracyEstimator(**options).fit(reference, shifted_sets=given, progress=False)


def numbers(estimate):
    """All numbers of an estimate as one flat array."""
    found = [estimate.accuracy, estimate.low, estimate.high, estimate.f1.value, estimate.f1.low, estimate.f1.high]
    found += [*estimate.assumptions.values(), *estimate.scores.values()]
    for c in estimate.per_class:
        found += [c.share, c.predicted]
        found += [v for q in (c.recall, c.precision, c.f1) for v in (q.value, q.low, q.high)]
    return np.array([*found, *estimate.confidence.rows, *estimate.confidence.confidence])


class Problem:
    """A linear classifier on Gaussian clusters, whose outputs have one of the kinds."""

    def __init__(self, seed, kind, *, classes=3, features=True, width=4):
        self.rng = np.random.default_rng([seed, 5])
        self.kind, self.classes, self.features = kind, classes, features
        self.centres = self.rng.uniform(1, 5) * self.rng.normal(size=(classes, width)) / np.sqrt(width)
        self.tilt = self.rng.normal(size=width)

    def rows(self, count, noise=1.0, offset=0.0, shares=None):
        labels = self.rng.choice(self.classes, count, p=shares)
        x = self.centres[labels] + noise * self.rng.normal(size=(count, self.centres.shape[1])) + offset * self.tilt
        return x, 1.2 * (x @ self.centres.T - 0.5 * np.square(self.centres).sum(axis=1)), labels

    def outputs(self, x, logits, labels):
        extra = {"features": x} if self.features else {}
        if self.kind in ("plain", "steep", "saturated"):
            scale = {"plain": 1, "saturated": 12, "steep": 1e4}[self.kind]
            return gdscore.Outputs(logits=scale * logits, labels=labels, **extra)
        if self.kind == "tied":
            steps = np.round(logits / 4) * 4 + 1e-3 * np.arange(self.classes)
            return gdscore.Outputs(logits=steps, labels=labels, **extra)
        p = np.eye(self.classes)[logits.argmax(axis=1)]
        if self.kind == "nearly one-hot":
            odd = np.abs(x[:, 0]) > 2.5
            p[odd] = 0.6 * p[odd] + 0.4 / self.classes
        return gdscore.Outputs(probabilities=p, labels=labels, **extra)

    def fitted(self, sets, count=300, **options):
        reference = self.outputs(*self.rows(count))
        given = [
            gdscore.ShiftedSet(
                self.outputs(*self.rows(150, 1 + 0.3 * self.rng.integers(0, 4), 0.3 * self.rng.integers(0, 4))),
                f"family {k % 3}",
            )
            for k in range(sets)
        ]
        return gdscore.AccuracyEstimator(**options).fit(reference, shifted_sets=given or None, progress=False)
