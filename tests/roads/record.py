"""What is recorded, and how exactly it has to come again on another processor, thread count, Python or NumPy."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np

import gdscore
from gdscore import labeling, shifts
from tests.roads import data

FILE = Path(__file__).with_name("record.json")

TOLERANCES = {
    # kind: relative and absolute, and why
    "scores": (1e-6, 1e-9),  # float64 over 500 rows rounds at 1e-12; the minimum of the temperature is known to 1e-8
    "accuracies": (0, 1e-3),  # rounding can move a row from one bin of confidence to the next: 0.1 points
    "ends": (0, 3e-3),  # of intervals, and the left-out error, which is one of few families: 0.3 points
    "classes": (0, 1e-2),  # recall and precision: a fifth of the rows
}

LABEL_RULES = [{"label_rule": rule} for rule in ("uniform", "expected", "true", "pseudo")]
SIZES = [{"batch_size": None}, {"p": 1}, {"p": 2, "batch_size": 64}, {"log": True, "p": 0.05}]
LOSSES = [{"loss": "entropy"}, {"loss": "smoothing"}, {"label_rule": "random", "seed": 3}, {"variant": "published"}]
OPTIONS = {
    "gdscore": [*LABEL_RULES, *SIZES, *LOSSES],
    "atc": [{"score": "confidence"}],
    "frechet": [{"squared": False}],
}


def scores():
    for classes, level in ((5, 1.0), (2, 2.5)):
        reference, target = (
            gdscore.Outputs(**data.arrays(500 + 37 * seed, (0.5 + seed / 2) * level, seed, classes=classes))
            for seed in (1, 2)
        )
        for name in gdscore.list_scores():
            for options in [{}, *OPTIONS.get(name, [])] if name != "projnorm" else []:
                value = gdscore.score(name, target, reference=reference, **options)
                yield "scores", f"{name} {json.dumps(options)} {classes} classes", value
    yield "scores", "temperature", gdscore.fit_temperature(reference)
    yield "scores", "calibration error", gdscore.calibration_error(reference)


def of_estimate(name, e):
    yield "accuracies", name, e.accuracy
    yield "ends", name, [e.low, e.high]


def of_fit(name, est, target):
    if np.isfinite(est.left_out_error_):
        yield "ends", f"{name}, left out", est.left_out_error_
    yield from of_estimate(name, est.estimate(target))


def estimates():
    reference, target, logits = data.outputs(800, 1.0, 1), data.target(), ("logits",)
    est = data.fitted()
    yield from of_fit("nine sets", est, target)
    for mix in ("stable", "estimated", [0.25, 0.25, 0.125, 0.25, 0.125]):
        yield from of_estimate(f"class mix {mix}", est.estimate(target, class_mix=mix))
    for quantity in est.estimate(target).per_class:
        for name in ("recall", "precision"):
            value = getattr(quantity, name)
            yield "classes", f"class {quantity.name}, {name}", [value.value, value.low, value.high]
    correct = est.predict_correct(target)
    yield "accuracies", "rows", [correct.mean(), correct.std()]
    rows = labeling.choose(est, target, 80, design="random", seed=1)
    labels = data.arrays(600, 1.5, 3)["labels"]
    yield from of_estimate("80 labels", labeling.estimate(est, target, rows, labels[rows.rows]))
    yield from of_fit("no sets", data.fitted(sets=False), target)
    yield from of_fit("no features", data.fitted(names=logits), data.target(names=logits))
    yield from of_fit("neither", data.fitted(sets=False, names=logits), data.target(names=logits))
    yield from of_fit("level and seed", data.fitted(level=0.7, seed=4), target)
    for name in ("gdscore", "confscore"):
        yield from of_fit(f"by {name}", data.fitted(method=name), target)
    for name in ("confscore", "doc", "atc", "cot", "cott"):
        yield from of_estimate(f"direct, {name}", gdscore.direct_estimate(name, target, reference=reference))


def frame_numbers(frame):
    """The columns as numbers; shifts can leave out cells."""
    kinds = {"red": 0.0, "green": 1.0, "blue": -1.0}
    columns = [frame["a"], frame["b"], frame["kind"].map(kinds), frame["flag"].map({True: 1.0, False: 0.0})]
    return np.stack([c.astype(float).fillna(0.5).to_numpy() for c in columns], axis=1)


def text_numbers(texts):
    return np.array([[*(t.lower().split().count(w) for w in data.WORDS[:6]), len(t) / 16] for t in texts])


def image_numbers(images):
    quarters = images.astype(np.float64).reshape(len(images), 3, 2, 8, 2, 8).mean(axis=(1, 3, 5))
    return 8 * quarters.reshape(len(images), 4) - 2


def predictors():
    """`fit_predictor` on each kind of input, with the shifts of that kind."""
    from scipy import sparse

    array, counts = data.noise((500, 4), 20), data.draws((450, 12), 10, 21)
    scarce = np.where(counts < 7, 0, counts - 8).astype(float)
    drift = {"time": np.arange(300) % 97}
    chosen = shifts.corruptions((2, 5), names=("gaussian_noise", "contrast", "pixelate", "fog", "gaussian_blur"))
    for name, numbers, reference, target, options in [
        ("array", np.asarray, array[:300], array[300:] * 1.5, {}),
        ("array in time", np.asarray, array[:300], array[300:] * 1.5, drift),
        ("sparse matrix", lambda m: m.toarray(), sparse.csr_array(scarce[:250]), sparse.csr_array(scarce[250:]), {}),
        ("frame", frame_numbers, data.table(250, 30), data.table(200, 40), {}),
        ("texts", text_numbers, data.texts(150, 50), data.texts(150, 60), {}),
        ("images", image_numbers, data.images(200, 70)[0], data.images(150, 80)[0], {"shifts": chosen}),
    ]:
        weights = (data.draws((numbers(reference).shape[1], 3), 9, 7) - 4) / 2

        def predict(x, numbers=numbers, weights=weights):
            return np.asarray(gdscore.Outputs(logits=numbers(x) @ weights).probabilities)

        p = predict(reference)
        labels = (p.cumsum(axis=1) < data.draws((len(p), 1), 1000, 90) / 1000).sum(axis=1).clip(0, 2)
        est = gdscore.AccuracyEstimator().fit_predictor(predict, reference, labels, progress=False, **options)
        yield from of_fit(f"predictor of {name}", est, gdscore.Outputs(probabilities=predict(target)))


GROUPS = {"scores": scores, "estimates": estimates, "predictors": predictors}


def values(group):
    """Entry, "kind: name" → numbers, of a group."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        entries = [(f"{kind}: {name}", np.atleast_1d(value)) for kind, name, value in GROUPS[group]()]
    assert len(dict(entries)) == len(entries), "two entries have one name"
    return {key: [float(f"{number:.10g}") for number in numbers] for key, numbers in entries}


def agrees(key, was, value):
    relative, absolute = TOLERANCES[key.partition(":")[0]]
    return len(was) == len(value) and np.allclose(value, was, rtol=relative, atol=absolute)


def recorded():
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def changes(groups):
    """Entries of these groups beyond their tolerance, or not recorded, as they are now."""
    before = recorded()
    now = {key: value for group in groups for key, value in values(group).items()}
    return {key: v for key, v in now.items() if key not in before or not agrees(key, before[key], v)}, now.keys()


def write():
    """Record what is beyond its tolerance anew, and forget what is gone; yields a line for each."""
    before = recorded()
    changed, names = changes(GROUPS)
    after = {key: value for key, value in (before | changed).items() if key in names}
    FILE.write_text(json.dumps(after, sort_keys=True).replace("], ", "],\n ") + "\n")
    for key in sorted(changed.keys() | before.keys() - names):
        yield f"{key}: was {before.get(key)}, is {after.get(key)}"
