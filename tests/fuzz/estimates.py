"""What must not matter to an estimate: one row, the order of classes, precision, and a file in between."""

import numpy as np

import gdscore
from tests.estimator.data import KINDS, ROW, Problem

from .harness import attack
from .values import pick


def renamed(out, order):
    """The same outputs with the classes in another order."""
    name = "probabilities" if "probabilities" in out.arrays else "logits"
    arrays = dict(out.arrays) | {name: np.asarray(out.arrays[name])[:, order]}
    return gdscore.Outputs(**arrays | {"labels": np.argsort(order)[out.labels]})


def rounded(out, dtype):
    """The same outputs in another precision."""
    matrices = {name: np.asarray(a).astype(dtype) for name, a in out.arrays.items() if name != "labels"}
    return gdscore.Outputs(**matrices, labels=out.labels)


def near(found, expected, most, what):
    apart = max(abs(getattr(found, name) - getattr(expected, name)) for name in ("accuracy", "low", "high"))
    if apart > most:
        raise AssertionError(f"{what} changed an estimate by {apart:.2g}, more than {most:.2g}")


@attack
def estimates_of_kinds(folder):
    """Estimators of constant, saturated, tied, one-hot and ordinary confidences."""

    def case(rng):
        kind, classes, features = pick(rng, KINDS), int(pick(rng, [2, 3, 6])), bool(rng.integers(2))
        problem = Problem(
            int(rng.integers(2**32)), kind, classes=classes, features=features, width=int(pick(rng, [1, 4, 200]))
        )
        reference, count = problem.outputs(*problem.rows(int(pick(rng, [60, 300])))), int(pick(rng, [5, 100, 400]))
        sets = [
            gdscore.ShiftedSet(
                problem.outputs(*problem.rows(150, rng.uniform(0.8, 2.5), rng.uniform(0, 1))), f"f{k % 3}"
            )
            for k in range(int(pick(rng, [0, 1, 3, 9])))
        ]
        shares = rng.dirichlet(np.full(classes, 2.0))
        x, logits, labels = problem.rows(count, rng.uniform(1, 2.5), rng.uniform(0, 1.5), shares)
        target = problem.outputs(x, logits, labels)
        mix = pick(rng, ["unknown", "unknown", "stable", shares])

        def fit(change=lambda out: out, mix=mix):
            given = [gdscore.ShiftedSet(change(s.outputs), s.family) for s in sets] or None
            estimator = gdscore.AccuracyEstimator(class_mix=mix)
            return estimator.fit(change(reference), shifted_sets=given, progress=False)

        est = fit()
        found = est.estimate(target)
        mean = float(est.predict_correct(target).mean())
        if abs(mean - found.accuracy) > 1e-9:
            raise AssertionError(f"the mean of predict_correct is {mean}, the estimate {found.accuracy}")
        est.save(folder / "m.gdscore")
        near(gdscore.AccuracyEstimator.load(folder / "m.gdscore").estimate(target), found, 0, "saving")
        if kind != "tied":  # the class that is predicted then depends on the order
            order = rng.permutation(classes)
            other = fit(lambda out: renamed(out, order), mix if isinstance(mix, str) else mix[order])
            near(other.estimate(renamed(target, order)), found, 1e-6, "the order of classes")
        near(est.estimate(rounded(target, np.float32)), found, 0.01, "float32 in the target")
        near(fit(lambda out: rounded(out, np.float32)).estimate(target), found, 0.02, "float32 in the reference")
        row, size = int(rng.integers(count)), pick(rng, [0.0, 1.0, 30.0, 1e4])
        x[row], logits[row] = size * rng.normal(size=x.shape[1]), size * rng.normal(size=classes)
        changed = est.estimate(problem.outputs(x, logits, labels)).accuracy
        if abs(changed - found.accuracy) > ROW / count:
            raise AssertionError(f"one row of {count} changed an estimate by {abs(changed - found.accuracy):.2g}")
        return [found.accuracy, found.low, found.high]

    return case


@attack
def segments(folder):
    """Segments in any parts and order: the same estimates bit for bit, each with all of its rows."""

    def case(rng):
        kind, classes = pick(rng, KINDS), int(pick(rng, [2, 3, 6]))
        problem = Problem(int(rng.integers(2**32)), kind, classes=classes, features=bool(rng.integers(2)))
        est = problem.fitted(int(pick(rng, [0, 3, 6])))
        count = int(pick(rng, [1, 5, 200]))
        target = problem.outputs(*problem.rows(count, rng.uniform(1, 2), rng.uniform(0, 1)))
        values = [np.arange(count), rng.integers(0, 3, count), np.array([None, "a", "é", ""], dtype=object)]
        by = pick(rng, [values[0], values[1], values[2][rng.integers(0, 4, count)], np.zeros(count)])
        whole = est.estimate(target, by=by)
        cuts = np.sort(rng.integers(0, count + 1, 2))
        parts = [slice(a, b) for a, b in zip([0, *cuts], [*cuts, count], strict=True) if a < b]
        state = est.state()
        for k in rng.permutation(len(parts)):
            state = state.merge(est.state(est.state().update(target[parts[k]], by[parts[k]]).to_bytes()))
        merged = est.estimate(state)
        if whole.keys() != merged.keys() or sum(e.n_rows for e in whole.values()) != count:
            raise AssertionError("segments lost rows")
        for key, e in whole.items():
            near(merged[key], e, 0, "the parts that a segment came in")
        return [value for e in whole.values() for value in (e.accuracy, e.low, e.high)]

    return case
