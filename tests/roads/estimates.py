"""Roads from outputs to scores and estimates."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import gdscore
from tests.roads import data
from tests.roads.road import Found, road

# -- scores ---------------------------------------------------------------------------------------------------

OPTIONS: dict[str, list[dict[str, Any]]] = {
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


def _filled(name, options, reference, target):
    score = gdscore.create_score(name, **options)
    if score.reference_inputs:
        score.fit(reference)
    for part in data.parts(target, 128):
        score.update(part)
    return score


@road("scores")
def scores() -> Found:
    names = [name for name in gdscore.list_scores() if name != "projnorm"]
    yield "names", names
    for dtype in ("float64", "float32", "float16"):
        reference, target = data.pair(dtype)
        for name in names:
            for options in OPTIONS.get(name, [{}]):
                yield f"{dtype}/{name} {json.dumps(options)}", _filled(name, options, reference, target).compute()
    reference, target = data.pair()
    for name in names:
        first, second = (_filled(name, {}, reference, half) for half in (target[:256], target[256:]))
        yield f"merged/{name}", first.merge(second).compute()
        yield f"restored/{name}", gdscore.restore_score(second.state_dict()).compute()
        yield f"one call/{name}", gdscore.score(name, target, reference=reference)
    table = gdscore.score_all(data.parts(target, 200), reference=reference)
    yield "all", [v for name in sorted(table) for v in (name, table[name])]
    without = gdscore.score_all(gdscore.Outputs(logits=target.logits))
    yield "all of logits", [v for name in sorted(without) for v in (name, without[name])]
    yield "skipped", sorted(without.skipped)


@road("scores on torch")
def scores_on_torch() -> Found:
    import torch

    reference, target = data.pair(convert=torch.from_numpy)
    for name in gdscore.list_scores():
        if name != "projnorm":
            yield name, _filled(name, {}, reference, target).compute()


@road("calibration")
def calibration() -> Found:
    out = data.outputs(700, 1.4, 8)
    yield "temperature", gdscore.fit_temperature(out)
    yield "error", [gdscore.calibration_error(out), gdscore.calibration_error(data.parts(out, 100), bins=10)]
    found = gdscore.reliability(out, bins=10)
    for name in ("counts", "confidence", "accuracy"):
        yield f"reliability/{name}", np.asarray(getattr(found, name))
    # Confidences on the edges of bins.
    top = np.repeat(np.arange(50, 101, 5) / 100, 60)
    edges = gdscore.Outputs(probabilities=np.stack([top, 1 - top], axis=1), labels=np.arange(len(top)) % 5 % 2)
    yield "edges/reliability", np.asarray(gdscore.reliability(edges, bins=20).counts)
    yield "edges/bins", gdscore.AccuracyEstimator().fit(edges).reference_confidence_.rows


# -- the estimator --------------------------------------------------------------------------------------------


@road("direct")
def direct() -> Found:
    given, new = data.arrays(700, seed=1), data.arrays(500, 1.5, 2)
    reference, target = gdscore.Outputs(**given), gdscore.Outputs(**new)
    for name in ("confscore", "doc", "atc", "cot", "cott", "agreescore"):
        for temperature in (False, True):
            e = gdscore.direct_estimate(name, target, reference=reference, temperature=temperature)
            yield f"{name} {temperature}", data.of_estimate(e)


@road("fit")
def fit() -> Found:
    cases: dict[str, dict[str, Any]] = {
        "sets": {},
        "no sets": {"sets": False},
        "no features": {"features": False},
        "neither": {"sets": False, "features": False},
        "level": {"level": 0.7, "seed": 4},
        "stable": {"class_mix": "stable"},
        "given mix": {"class_mix": data.SHARES},
    }
    for case, options in cases.items():
        est = data.fitted(**options)
        yield f"{case}/learned", data.of_fit(est)
        for target, make in data.TARGETS.items():
            e = est.estimate(make(features=options.get("features", True)))
            yield f"{case}/{target}", data.of_estimate(e, full=case == "sets" and target == "shifted")
    est = data.fitted()
    for mix, named in (("stable", "stable"), (data.SHARES, "given")):
        est.class_mix = mix
        yield f"changed mix {named}", data.of_estimate(est.estimate(data.TARGETS["other mix"]()), full=True)


@road("fit by a score")
def fit_by_a_score() -> Found:
    for method in ("gdscore", "confscore", "mano", "dispersion", "nuclear", "atc", "frechet", "entropy"):
        est = data.fitted(method=method)
        yield f"{method}/learned", data.of_fit(est)
        yield f"{method}/shifted", data.of_estimate(est.estimate(data.TARGETS["shifted"]()), full=method == "gdscore")


@road("segments")
def segments() -> Found:
    est, target = data.fitted(), data.outputs(900, 1.4, 6, labels=False)
    for kind, names in data.segments(len(target)).items():
        found = est.estimate(target, by=names)
        yield f"{kind}/order", [repr(name) for name in found]
        for name, e in found.items():
            yield f"{kind}/{name}", data.of_estimate(e)
    names = data.segments(len(target))["texts"]
    cut = [names[i : i + 250] for i in range(0, len(names), 250)]
    for name, e in est.estimate(iter(data.parts(target, 250)), by=iter(cut)).items():
        yield f"stream/{name}", data.of_estimate(e)


@road("rows")
def rows() -> Found:
    target = data.TARGETS["other mix"]()
    for case, options in {
        "unknown": {},
        "stable": {"class_mix": "stable"},
        "given": {"class_mix": data.SHARES},
    }.items():
        p = data.fitted(**options).predict_correct(target)
        yield case, [*data.digest(p), *p[:10]]


@road("state")
def state() -> Found:
    """The state of a target: fed in parts, merged, as bytes; of an estimator that was saved and loaded."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.gdscore"
        data.fitted().save(path)
        est = gdscore.AccuracyEstimator.load(path)
    yield "loaded", data.of_fit(est)
    target = data.TARGETS["shifted"]()
    merged = None
    for part in data.parts(target, 130):
        one = est.state()
        one.update(part)
        merged = one if merged is None else merged.merge(one) or merged
    yield "merged", data.of_estimate(est.estimate(merged), full=True)


def _states_as_bytes(est, batches, by):
    """Estimates of parts that travelled as bytes, by segment."""
    whole = est.state()
    for part, names in zip(batches, by, strict=True):
        whole.merge(est.state(est.state().update(part, names).to_bytes()))
    found = est.estimate(whole)
    return found if isinstance(found, dict) else {"": found}


@road("state as bytes")
def state_as_bytes() -> Found:
    target = data.outputs(900, 1.4, 6, labels=False)
    names = data.segments(len(target))["texts"]
    batches, cut = data.parts(target, 250), [names[i : i + 250] for i in range(0, len(names), 250)]
    for method in ("correctness", "gdscore"):
        est = data.fitted(method=method)
        for case, by in (("whole", [None] * len(batches)), ("by", cut)):
            for name, e in _states_as_bytes(est, batches, by).items():
                yield f"{method}/{case} {name}", data.of_estimate(e)
