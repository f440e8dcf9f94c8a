"""Roads from classifiers of any kind to estimates, and the shifts on the way."""

from __future__ import annotations

import numpy as np

import gdscore
from tests.roads import data
from tests.roads.road import Found, road

# -- classifiers: scikit-learn, any function, frames ----------------------------------------------------------


def _linear(columns, seed=3):
    """A fixed classifier of numbers, three classes."""
    weights = np.random.default_rng(seed).normal(size=(columns, 3))

    def predict(x):
        z = np.asarray(x, dtype=np.float64) @ weights
        e = np.exp(z - z.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    return predict


def _labels_of(predict, x, seed=0):
    """Labels that follow the classifier's probabilities."""
    p = predict(x)
    return (p.cumsum(axis=1) < np.random.default_rng(seed).random((len(p), 1))).sum(axis=1).clip(0, 2)


def _as_numbers(frame):
    """A frame of numbers, texts and booleans as the numbers that the fixed classifier takes."""
    kinds = {"red": 0.0, "green": 1.0, "blue": -1.0}
    columns = [
        frame["a"].astype(float).fillna(0.0),
        frame["b"].astype(float).fillna(0.0),
        frame["kind"].map(kinds).astype(float).fillna(2.0),
        frame["flag"].map({True: 1.0, False: 0.0}).astype(float).fillna(0.5),
    ]
    return np.stack([np.asarray(c) for c in columns], axis=1)


def _text_numbers(texts):
    """Counts of six words and the length."""
    return np.array([[*(t.lower().split().count(w) for w in data.WORDS[:6]), len(t) / 20] for t in texts], dtype=float)


def _image_features(x):
    x = np.asarray(x, dtype=np.float64)
    half = x.shape[-1] // 2
    tiles = [
        x[:, :, a, b].mean(axis=(1, 2, 3))
        for a in (slice(half), slice(half, None))
        for b in (slice(half), slice(half, None))
    ]
    return 8 * np.stack(tiles, axis=1) - 2


def _fit_predictor(predict, inputs, labels, **options):
    return gdscore.AccuracyEstimator().fit_predictor(predict, inputs, labels, progress=False, **options)


def _fitted_on(predict, inputs, target, **options):
    est = _fit_predictor(predict, inputs, _labels_of(predict, inputs), **options)
    yield "learned", data.of_fit(est)
    yield "target", data.of_estimate(est.estimate(gdscore.Outputs(probabilities=predict(target))))


@road("predictor of an array")
def predictor_of_an_array() -> Found:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(500, 4))
    yield from _fitted_on(_linear(4), x[:300], x[300:] * 1.4)


@road("predictor of an array in time")
def predictor_in_time() -> Found:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(500, 4))
    yield from _fitted_on(_linear(4), x[:300], x[300:], time=np.arange(300) % 97)


@road("predictor of a frame")
def predictor_of_a_frame() -> Found:
    inner = _linear(4)
    yield from _fitted_on(lambda frame: inner(_as_numbers(frame)), data.frame(250), data.frame(200, 1))


@road("predictor of a sparse matrix")
def predictor_of_a_sparse_matrix() -> Found:
    from scipy import sparse

    rng = np.random.default_rng(2)
    x = np.where(rng.random((450, 12)) < 0.3, rng.normal(size=(450, 12)), 0)
    inner = _linear(12)
    yield from _fitted_on(lambda m: inner(m.toarray()), sparse.csr_array(x[:250]), sparse.csr_array(x[250:]))


@road("predictor of texts")
def predictor_of_texts() -> Found:
    inner = _linear(7)
    yield from _fitted_on(lambda texts: inner(_text_numbers(texts)), data.texts(150), data.texts(150, 1))


@road("predictor of images")
def predictor_of_images() -> Found:
    from gdscore import shifts

    inner = _linear(4)
    chosen = shifts.corruptions((2, 5), names=("gaussian_noise", "contrast", "pixelate", "fog", "gaussian_blur"))
    yield from _fitted_on(
        lambda x: inner(_image_features(x)), data.images(200)[0], data.images(150, seed=1)[0], shifts=chosen
    )


@road("predictor of images, all default shifts", quick=False)
def predictor_of_images_by_default() -> Found:
    inner = _linear(4)
    yield from _fitted_on(lambda x: inner(_image_features(x)), data.images(120)[0], data.images(150, seed=1)[0])


@road("scikit-learn")
def scikit_learn() -> Found:
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression

    given, new = data.arrays(600, 1.2, 1, dtype="float64"), data.arrays(300, 1.5, 2, dtype="float64")
    x, names = given["features"], np.array(["a", "b", "c", "d", "e"])[given["labels"]]
    binary = names > "b"
    for case, clf, y in (
        ("logistic", LogisticRegression(max_iter=500), names),
        ("forest", RandomForestClassifier(20, random_state=0), names),
        ("binary", LogisticRegression(max_iter=500), binary),
    ):
        clf.fit(x[:300], y[:300])
        est = gdscore.AccuracyEstimator().fit(gdscore.from_sklearn(clf, x[300:], y[300:]))
        yield case, data.of_estimate(est.estimate(gdscore.from_sklearn(clf, new["features"])))
    est = _fit_predictor(LogisticRegression(max_iter=500).fit(x[:300], names[:300]), x[300:450], names[300:450])
    yield "predictor/learned", data.of_fit(est)


def log(count, noise, seed):
    """What a service logs: probabilities, label, country, time."""
    import pandas as pd

    given = data.arrays(count, noise, seed, dtype="float64")
    z = given["logits"]
    e = np.exp(z - z.max(axis=1, keepdims=True))
    frame = pd.DataFrame(e / e.sum(axis=1, keepdims=True), columns=[f"prob_{k}" for k in "abcde"])
    days = pd.to_datetime("2026-01-29") + pd.to_timedelta(np.arange(count) * 3 // count, unit="D")
    return frame.assign(
        label=np.array(list("abcde"))[given["labels"]], country=data.segments(count)["texts"], time=days
    )


@road("frames")
def frames() -> Found:
    known, new = log(700, 1.0, 1), log(600, 1.5, 2)
    est = gdscore.AccuracyEstimator().fit(gdscore.from_frame(known, probabilities="prob_*", label="label"))
    out = gdscore.from_frame(new, probabilities="prob_*")
    yield "estimate", data.of_estimate(est.estimate(out), full=True)
    for name, e in est.estimate(out, by=new["country"]).items():
        yield f"country {name}", data.of_estimate(e)
    for name, e in est.estimate(out, by=new["time"].dt.date).items():
        yield f"day {name}", data.of_estimate(e)
    back = gdscore.from_frame(
        gdscore.to_frame(data.outputs(200, 1.2, 3)), logits="logit_*", features="feature_*", label="label"
    )
    yield "and back", [*data.digest(back.logits), *data.digest(back.features), *data.digest(back.labels)]


# -- torch ----------------------------------------------------------------------------------------------------


def network():
    """A small trained network."""
    import torch
    from torch import nn

    class Small(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6)
            self.drop, self.fc = nn.Dropout(0.2), nn.Linear(6 * 4, 3)

        def forward(self, x):
            h = torch.relu(self.norm(self.conv(x)))
            return self.fc(self.drop(nn.functional.adaptive_avg_pool2d(h, 2).flatten(1)))

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Small()
    # Trained by a few plain steps, so that it is right more often than not.
    x, y = (torch.from_numpy(a) for a in data.images(200, seed=5))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        weights = list(model.parameters())
        for _ in range(25):
            gradients = torch.autograd.grad(nn.functional.cross_entropy(model(x), y), weights)
            with torch.no_grad():
                for weight, gradient in zip(weights, gradients, strict=True):
                    weight -= 0.3 * gradient
    return model.eval()


def loader(count, seed, *, labels=True, normal=False):
    """Batches of 64 images."""
    import torch

    x, y = (torch.from_numpy(a) for a in data.images(count, seed=seed))
    x = (x - 0.5) / 0.25 if normal else x
    return [((x[i : i + 64], y[i : i + 64]) if labels else x[i : i + 64]) for i in range(0, count, 64)]


@road("torch")
def torch_models() -> Found:
    from gdscore import models, shifts

    model = network()
    chosen = shifts.corruptions((3, 6), names=("gaussian_noise", "contrast", "fog", "jpeg_compression"))
    est = models.estimator(model, loader(200, 0), shifts=chosen, progress=False)
    yield "learned", data.of_fit(est)
    out = gdscore.Outputs.concatenate(list(models.extract(model, loader(150, 1, labels=False))))
    yield "extracted", [*data.digest(out.logits), *data.digest(out.features)]
    yield "target", data.of_estimate(est.estimate(out), full=True)
    own = models.estimator(model, loader(200, 0), shifts=[lambda x: x * 0.8, lambda x: x.flip(3)], progress=False)
    yield "own shifts", data.of_fit(own)
    table = models.score_all(model, loader(150, 1, labels=False), reference=loader(200, 0))
    yield "scores", [v for name in sorted(table) for v in (name, table[name])]


@road("torchmetrics", quick=False)
def torchmetrics() -> Found:
    from gdscore import models

    reference, target = data.pair()
    for name in ("gdscore", "mano", "atc", "frechet"):
        metric = models.ScoreMetric(name, reference=reference)
        for part in data.parts(target, 128):
            metric.update(part)
        yield name, metric.compute().item()


@road("torch, normalised images and all default shifts", quick=False)
def torch_by_default() -> Found:
    from gdscore import models

    est = models.estimator(network(), loader(150, 0, normal=True), normalize=([0.5] * 3, [0.25] * 3), progress=False)
    yield "learned", data.of_fit(est)


@road("scores of the network", quick=False)
def scores_of_the_network() -> Found:
    from gdscore import models

    model = network()
    head = models.fit_rotation_head(model, loader(100, 0), progress=False)
    out = gdscore.Outputs.concatenate(list(models.extract(model, loader(100, 1, labels=False), rotation_head=head)))
    yield "rotation", gdscore.score("rotation", out)
    yield "projnorm", models.projnorm(model, loader(100, 1, labels=False), loader(100, 0), steps=4)


# -- shifts ---------------------------------------------------------------------------------------------------


def _shifted_images(severities, convert, names=None):
    from gdscore import shifts

    for channels, size in ((3, 32), (1, 16)):
        x = convert(data.images(8, channels, size, seed=9)[0])
        for shift in shifts.corruptions(severities, names):
            yield f"{channels}x{size}/{shift.name} {shift.severity}", data.digest(shift(x))


@road("image shifts")
def image_shifts() -> Found:
    from gdscore import shifts

    yield "names", shifts.corruption_names()
    yield from _shifted_images((2, 5), lambda x: x)
    x = data.images(8, seed=9)[0]
    for number, shift in enumerate(shifts.default_shifts(x)[76:116:8]):
        yield f"default {number} {shift.family}", data.digest(shift(x))
    yield "default families", [s.family for s in shifts.default_shifts(x)]


@road("image shifts on torch")
def image_shifts_on_torch() -> Found:
    import torch

    yield from _shifted_images((4,), torch.from_numpy)


def _shifted_table(shift, table):
    if getattr(shift, "selects_rows", False):
        return [len(shift.rows(table)), data.checksum(shift.rows(table).tolist())]
    return _cells(shift(table))


def _cells(table):
    """Digest of the numbers, and a checksum of all that is not a number."""
    if hasattr(table, "toarray"):
        return data.digest(table.toarray())
    if not hasattr(table, "columns"):
        return data.digest(table)
    found = []
    for name in table.columns:
        values = table[name].tolist()
        numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)
        found += data.digest(values) if numbers else [data.checksum([str(v) for v in values])]
    return found


@road("table shifts")
def table_shifts() -> Found:
    from scipy import sparse

    from gdscore import shifts

    rng = np.random.default_rng(4)
    dense = rng.normal(size=(120, 5))
    tables = {
        "array": dense,
        "frame": data.frame(120, 3),
        "sparse": sparse.csr_array(np.where(rng.random((120, 20)) < 0.2, rng.normal(size=(120, 20)), 0)),
    }
    for kind, table in tables.items():
        for shift in shifts.table_shifts(table, severities=[2, 4]):
            yield f"{kind}/{shift.family} {getattr(shift, 'severity', '')}", _shifted_table(shift, table)
    for number, shift in enumerate(shifts.table_shifts(dense, severities=[3], time=np.arange(120) % 31)):
        yield f"time/{number} {shift.family}", _shifted_table(shift, dense)


@road("text shifts")
def text_shifts() -> Found:
    from gdscore import shifts

    texts = data.texts(40, 3)
    for shift in shifts.text_shifts(texts):
        changed = shift(texts)
        yield f"{shift.family} {shift.severity}", [np.mean([len(t) for t in changed]), data.checksum(changed)]
