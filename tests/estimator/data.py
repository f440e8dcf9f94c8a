"""Outputs of a linear classifier on Gaussian clusters: accuracy falls as the noise grows."""

from __future__ import annotations

import numpy as np

import gdscore

CLASSES, FEATURES = 5, 6
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
