"""Arrays and options of scores and outputs."""

import contextlib

import numpy as np

import gdscore

from .harness import attack
from .values import odd, pick

NAMES = ("logits", "probabilities", "features", "peer_logits", "batch_logits", "rotation_logits", "labels", "ids")
TYPES = ("f2", "f4", "f8", ">f4", ">f8", "i1", "i4", "i8", "u8", ">i4", "?", "U3", "S3", "c8", "O", "M8[s]", "g")


def matrix(rng, rows, columns):
    """Numbers of a scale that is seldom an ordinary one."""
    scale = pick(rng, [0.0, 1e-300, 1e-30, 1.0, 10.0, 1e4, 1e20, 3e38, 1e154, 1e300])
    values = rng.standard_normal((rows, columns))
    with np.errstate(all="ignore"):
        values = values * scale
        if not rng.integers(6):
            values = np.round(values)
        if not rng.integers(10):
            values[int(rng.integers(rows))] = pick(rng, [np.nan, np.inf, -np.inf, 0.0, 3e38])
        return values.astype(pick(rng, ["f4", "f8", "f8", "f2", ">f8"]))


def outputs(rng, rows=None, classes=None, width=None, labelled=False):
    """Outputs of the right shapes, whose values may be anything."""
    rows = rows or int(pick(rng, [1, 2, 3, 10, 130, 300]))
    classes = classes or int(pick(rng, [2, 3, 10, 40]))
    arrays = {"logits": matrix(rng, rows, classes)}
    if not rng.integers(3):
        with np.errstate(all="ignore"):
            exp = np.exp(np.clip(arrays.pop("logits").astype("f8"), -700, 700))
            arrays["probabilities"] = exp / exp.sum(axis=1, keepdims=True)
    if rng.integers(3):
        arrays["features"] = matrix(rng, rows, width or int(pick(rng, [1, 2, 8, 60])))
    for name in ("peer_logits", "batch_logits"):
        if not rng.integers(3):
            arrays[name] = matrix(rng, rows, classes)
    if not rng.integers(4):
        arrays["rotation_logits"] = matrix(rng, rows, 16).reshape(rows, 4, 4)
    if labelled or not rng.integers(3):
        arrays["labels"] = rng.integers(0, classes, rows)
    if not rng.integers(4):
        arrays["ids"] = np.array([f"row {i}" for i in range(rows)]) if rng.integers(2) else np.arange(rows)
    return gdscore.Outputs(**arrays)


@attack
def scores(folder):
    """Every score on values of any size."""

    def case(rng):
        classes, width = int(pick(rng, [2, 3, 10])), int(pick(rng, [1, 5, 40]))
        reference = outputs(rng, 200, classes, width, labelled=True)
        target = outputs(rng, None, classes, width)
        way = int(rng.integers(3))
        if way == 0:
            return list(gdscore.score_all([target, target], reference=reference).values())
        name = pick(rng, [name for name in gdscore.list_scores() if name != "projnorm"])
        if way == 1:
            return [gdscore.score(name, target, reference=reference)]
        score = gdscore.create_score(name)
        if "reference" in score.needs:
            score.fit(reference)
        for part in (target, target[: int(rng.integers(1, len(target) + 1))]):
            score.update(part)
        return [score.compute()]

    return case


@attack
def estimates(folder):
    """Estimators fitted on values of any size, and their estimates of others."""

    def case(rng):
        classes, width = int(pick(rng, [2, 3, 10])), int(pick(rng, [0, 1, 5, 40]))

        def drawn():
            rows = int(pick(rng, [1, 2, 3, 40, 300]))
            given = {"logits": matrix(rng, rows, classes), "labels": rng.integers(0, classes, rows)}
            return gdscore.Outputs(**given, **({"features": matrix(rng, rows, width)} if width else {}))

        reference = drawn()
        sets = [gdscore.ShiftedSet(drawn(), f"family {i % 3}") for i in range(int(pick(rng, [0, 0, 1, 4, 7])))]
        method = "correctness" if rng.integers(3) else pick(rng, ["gdscore", "entropy", "frechet", "cot", "mano"])
        mix = pick(rng, ["unknown", "unknown", "stable", rng.uniform(size=classes), odd(rng)])
        estimator = gdscore.AccuracyEstimator(class_mix=mix, method=method)
        estimator.fit(reference, shifted_sets=sets or None, progress=False)
        target = drawn()
        found = estimator.estimate([target, target])
        if abs(estimator.predict_correct(target).mean() - estimator.estimate(target).accuracy) > 1e-9:
            raise AssertionError("the mean of predict_correct is not the estimate")
        try:
            estimator.save(folder / "m.gdscore")
        except gdscore.GdscoreError as error:
            raise AssertionError(f"fit took what save refuses: {error}") from error
        gdscore.AccuracyEstimator.load(folder / "m.gdscore")
        shares = [q.value for c in found.per_class for q in (c.recall, c.precision, c.f1)]
        return [found.accuracy, found.low, found.high, *shares]

    return case


@attack
def output_arrays(folder):
    """`Outputs` of any arrays, and what it computes."""

    def case(rng):
        arrays = dict(outputs(rng).arrays)
        if rng.integers(4):
            name = pick(rng, NAMES)
            shape = tuple(int(n) for n in rng.integers(0, 5, size=int(rng.integers(0, 4))))
            with np.errstate(all="ignore"):
                array = rng.standard_normal(shape) * pick(rng, [1, 1e20, 1e300])
                if name in arrays and rng.integers(2):
                    array = arrays[name]
                elif not rng.integers(4):
                    array = odd(rng)
                kind = pick(rng, TYPES)
                with contextlib.suppress(ValueError, TypeError):  # strings that are no numbers stay strings
                    array = array.astype(kind) if isinstance(array, np.ndarray) else array
                arrays[name] = array
        out = gdscore.Outputs(**arrays)
        if not rng.integers(3):
            out = out[odd(rng)]
        if not rng.integers(3):
            out = out.with_temperature(odd(rng))
        if out.n_classes is None:
            return []
        return [out.confidence, out.entropy, out.random_labels(0)]

    return case


@attack
def options(folder):
    """Options of any type and value."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 60)
    sound = gdscore.Outputs(
        logits=rng.standard_normal((60, 3)) + 2 * np.eye(3)[labels],
        features=rng.standard_normal((60, 4)),
        labels=labels,
        peer_logits=rng.standard_normal((60, 3)),
        batch_logits=rng.standard_normal((60, 3)),
        rotation_logits=rng.standard_normal((60, 4, 4)),
    )
    known = {name: gdscore.create_score(name).options for name in gdscore.list_scores() if name != "projnorm"}

    def case(rng):
        way = int(rng.integers(8))
        name = pick(rng, sorted(known))
        given = {option: odd(rng) for option in known[name] if rng.integers(2)}
        if way == 0:
            given[pick(rng, ["", "x", "seed"])] = odd(rng)
        if way == 1:
            return gdscore.score_all(sound, scores=odd(rng), reference=pick(rng, [sound, odd(rng)])).values()
        if way == 2:
            return [gdscore.score(odd(rng), sound, reference=sound)]
        if way == 3:
            gdscore.list_scores(available=odd(rng))
            return []
        if way == 4:
            gdscore.AccuracyEstimator(odd(rng)).estimate(pick(rng, [sound, odd(rng)]))
            return []
        if way == 5:
            return [
                gdscore.direct_estimate(
                    pick(rng, [name, odd(rng)]), sound, reference=pick(rng, [sound, odd(rng)])
                ).accuracy
            ]
        score = gdscore.create_score(name, **given)
        if "reference" in score.needs:
            score.fit(sound)
        return [score.update(sound).compute()]

    return case


@attack
def class_orders(folder):
    """The classes of a target in another order than the reference's, for every score: refused, never another number."""

    def case(rng):
        classes, width = int(pick(rng, [2, 3, 10])), int(pick(rng, [1, 5]))
        names = [f"class {k}" for k in range(classes)]
        reference = outputs(rng, 200, classes, width, labelled=True).with_class_names(names)
        target = outputs(rng, None, classes, width)
        order = rng.permutation(classes)
        other = bool((order != np.arange(classes)).any())
        named = target.with_class_names([names[k] for k in order])
        name = pick(rng, [name for name in gdscore.list_scores() if name != "projnorm"])
        score = gdscore.create_score(name)
        if not score.reference_inputs:
            parts = [target.with_class_names(names), named]
            found = gdscore.score_all(parts, scores=[name])
        elif rng.integers(2):
            found = gdscore.score_all(named, reference=reference, scores=[name])
        else:
            state = score.fit(reference).state_dict()
            found = {name: gdscore.restore_score(state).update(named).compute()}
        if other and name in found and "logits" in score.inputs:
            raise AssertionError(f"{name} took classes in another order")
        return list(found.values())

    return case
