"""What rounding or one row changes: hardly anything. Digits, a table and texts, each with shifted sets made once."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

import gdscore

ASSUMPTIONS = ("unknown", "stable", "estimated")
MOST_ACCURACY, MOST_OTHERS = 0.001, 0.003
"""How far an estimate, and the ends of its interval and the error on families left out, may move."""


def outputs(classifier, x, y):
    """Log-odds in float64 and, of few columns, features."""
    logits = classifier.decision_function(x)
    logits = np.stack([np.zeros(len(y)), logits], axis=1) if logits.ndim == 1 else logits
    features = {} if x.shape[1] > 100 else {"features": np.asarray(x, dtype=np.float64)}
    return gdscore.Outputs(logits=logits, labels=np.asarray(y), **features)


def problem(classifier, x, y, shifts, rng):
    """Reference, shifted sets and targets of a classifier, which is trained on the first third."""
    train, reference, rest = np.array_split(rng.permutation(len(y)), 3)
    classifier.fit(x[train], y[train])
    sets = [
        gdscore.ShiftedSet(outputs(classifier, shift(x[reference], level), y[reference]), name)
        for name, shift in shifts.items()
        for level in (1, 2)
    ]
    targets = [
        outputs(classifier, x[rest], y[rest]),
        *(outputs(classifier, shift(x[rest], 1.5), y[rest]) for shift in shifts.values()),
    ]
    return outputs(classifier, x[reference], y[reference]), sets, targets


@cache
def digits():
    x, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    dark, noise = rng.random(64) < 0.3, rng.normal(size=x.shape)
    shifts = {
        "noise": lambda x, s: x + 3 * s * noise[: len(x)],
        "contrast": lambda x, s: x * (1 - 0.35 * s),
        "dark": lambda x, s: np.where(dark & (np.arange(64) % 3 < s), 0, x),
        "moved": lambda x, s: x + s * 0.5 * (np.roll(x, 1, axis=1) - x),
    }
    return problem(LogisticRegression(max_iter=300), x, y, shifts, rng)


@cache
def table():
    rng = np.random.default_rng(1)
    y = rng.choice(3, 3600, p=[0.6, 0.3, 0.1])
    x = rng.normal(size=(3600, 8)) + 1.5 * rng.normal(size=(3, 8))[y] * rng.uniform(0.2, 1, 8)
    direction = rng.normal(size=8)
    shifts = {
        "noise": lambda x, s: x + s * np.random.default_rng(2).normal(size=x.shape),
        "offset": lambda x, s: x + 0.4 * s * direction,
        "scale": lambda x, s: x * (1 - 0.4 * s),
    }
    return problem(LogisticRegression(max_iter=300), x, y, shifts, rng)


@cache
def texts():
    """Words of two topics and of none; words get lost, are replaced, or are said twice."""
    rng = np.random.default_rng(3)
    y = rng.integers(0, 2, 1800)
    words = rng.integers(0, 60, (1800, 14)) + 60 * (rng.random((1800, 14)) < 0.25) * (1 + y[:, None])
    lost, other = rng.random((1800, 14)), rng.integers(0, 180, (1800, 14))

    def counts(words):
        return counter.transform([" ".join(f"w{w}" for w in row if w >= 0) for row in words]).toarray()

    counter = CountVectorizer().fit([" ".join(f"w{k}" for k in range(180))])
    classifier = LogisticRegression(max_iter=300)

    class OfWords:
        def fit(self, words, y):
            classifier.fit(counts(words), y)

        def decision_function(self, words):
            return classifier.decision_function(counts(words))

    shifts = {
        "lost": lambda w, s: np.where(lost[: len(w)] < 0.3 * s, -1, w),
        "replaced": lambda w, s: np.where(lost[: len(w)] > 1 - 0.3 * s, other[: len(w)], w),
        "short": lambda w, s: np.where(np.arange(14) > 14 - 4 * s, -1, w),
    }
    return problem(OfWords(), words, y, shifts, rng)


def answers(reference, sets, targets, seed=0):
    """Accuracy and ends of every target under every assumption, and the error on families left out."""
    est = gdscore.AccuracyEstimator(seed=seed).fit(reference, shifted_sets=sets, progress=False)
    estimates = [est.estimate(t, class_mix=mix) for t in targets for mix in ASSUMPTIONS]
    ends = [(e.low, e.high) for e in estimates]
    return np.array([e.accuracy for e in estimates]), np.append(np.ravel(ends), est.left_out_error_)


def changed(out, **arrays):
    return gdscore.Outputs(**{**out.arrays, **arrays})


def everywhere(change):
    """The same change of the outputs of the reference, of all sets and of all targets."""

    def perturb(reference, sets, targets):
        return (
            change(reference),
            [gdscore.ShiftedSet(change(s.outputs), s.family) for s in sets],
            [change(t) for t in targets],
        )

    return perturb


def flipped(which):
    def perturb(reference, sets, targets):
        at = which * 3 % len(sets)
        logits = np.array(sets[at].outputs.logits)
        row = which * 37 % len(logits)
        first, second = np.argsort(-logits[row])[:2]
        logits[row, [first, second]] = logits[row, [second, first]]
        other = gdscore.ShiftedSet(changed(sets[at].outputs, logits=logits), sets[at].family)
        return reference, [*sets[:at], other, *sets[at + 1 :]], targets

    return perturb


def permuted(out):
    return out[np.random.default_rng(len(out)).permutation(len(out))]


def renamed(out):
    order = np.random.default_rng(0).permutation(out.n_classes)
    order = order[::-1] if (order == np.arange(out.n_classes)).all() else order
    return changed(out, logits=np.asarray(out.logits)[:, order], labels=np.argsort(order)[out.labels])


def single(out):
    return changed(out, **{k: np.asarray(a, np.float32) for k, a in out.arrays.items() if k in ("logits", "features")})


PERTURBATIONS = {
    **{f"flip {k}": flipped(k) for k in range(3)},
    "rows permuted": everywhere(permuted),
    "classes renamed": everywhere(renamed),
    "float32": everywhere(single),
    "another seed": lambda *parts: parts,
    "one thread": lambda *parts: parts,
}
PROBLEMS = {"digits": digits, "table": table, "texts": texts}


@cache
def before(name):
    return answers(*PROBLEMS[name]())


def moved(name, perturbation):
    """Largest change of accuracies, and of ends and the error on families left out."""
    parts = PERTURBATIONS[perturbation](*PROBLEMS[name]())
    with threadpool_limits(1 if perturbation == "one thread" else 2):
        after = answers(*parts, seed=5 if perturbation == "another seed" else 0)
    return tuple(float(np.abs(a - b).max()) for a, b in zip(after, before(name), strict=True))


@pytest.mark.parametrize("perturbation", PERTURBATIONS)
@pytest.mark.parametrize("name", PROBLEMS)
def test_what_must_not_matter_hardly_does(name, perturbation):
    accuracy, others = moved(name, perturbation)
    assert accuracy <= MOST_ACCURACY
    assert others <= MOST_OTHERS
