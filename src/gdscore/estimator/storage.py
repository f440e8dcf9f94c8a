"""A fitted estimator in one file: plain arrays and numbers, with the version of their layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gdscore import files
from gdscore.errors import GdscoreError
from gdscore.estimator.calibrated import Calibration
from gdscore.estimator.confidence import ConfidenceHistogram
from gdscore.estimator.describe import Describer
from gdscore.estimator.regress import Fit, GroupedInterval
from gdscore.scores.registry import restore_score

if TYPE_CHECKING:
    from gdscore.estimator.core import AccuracyEstimator

__all__ = ["load", "save"]

FORMAT = "gdscore estimator"
VERSION = 1
_NUMBERS = ("reference_accuracy_", "temperature_", "set_rows_", "outputs_only_", "reference_rows_", "n_classes_")
_ARRAYS = ("reference_mix_", "confusion_")
_HISTOGRAM = ("rows", "confidence", "correct")
_FIT = ("centre", "scale", "weights", "offset", "anchors", "pull", "length", "variance")


def save(estimator: AccuracyEstimator, path: str | Path) -> None:
    """Write all that was learned."""
    state: dict[str, Any] = {"format": FORMAT, "version": VERSION}
    state["options"] = json.dumps(
        {"level": estimator.level, "scores": estimator.scores, "regressor": estimator.regressor, "seed": estimator.seed}
    )
    state["families"] = json.dumps(estimator.families_)
    state["features"] = -1 if estimator.n_features_ is None else estimator.n_features_
    state |= {name: getattr(estimator, name) for name in (*_NUMBERS, *_ARRAYS)}
    state |= _flat("fit", estimator.fit_)
    distinct: list[Fit] = []
    which = []
    for fit in estimator.interval_.fits:
        if not any(fit is other for other in distinct):
            distinct.append(fit)
        which.append(next(i for i, other in enumerate(distinct) if other is fit))
    state["folds"], state["fold_of_family"] = len(distinct), np.array(which)
    for index, fit in enumerate(distinct):
        state |= _flat(f"fold{index}", fit)
    for index, residuals in enumerate(estimator.interval_.residuals):
        state[f"residuals{index}"] = residuals
    for name, line in estimator.single_.items():
        state |= _flat(f"single.{name}", line)
    for name, score in estimator.describer_.scores.items():
        state |= {f"score.{name}/{key}": value for key, value in score.reset().state_dict().items()}
    seen = estimator.calibration_
    state["seen.families"] = json.dumps(seen.families)
    state |= {f"seen.{name}": getattr(seen, name) for name in ("accuracy", "rows", "predicted")}
    state |= {f"seen.score.{name}": values for name, values in seen.scores.items()}
    histogram = estimator.reference_confidence_
    state |= {f"confidence.{name}": np.array(getattr(histogram, name)) for name in _HISTOGRAM}
    files.write_arrays(path, state)


def load(cls: type[AccuracyEstimator], path: str | Path) -> AccuracyEstimator:
    """Read it back, or say why not."""
    state = files.read_arrays(path)
    if state.get("format") != FORMAT:
        raise GdscoreError(f"Expected an estimator that gdscore saved, but {path} is something else")
    if state.get("version") != VERSION:
        raise GdscoreError(
            f"Expected version {VERSION} of the estimator's file, but {path} has version {state.get('version')}: "
            "calibrate again, or use the gdscore that wrote it"
        )
    try:
        return _restored(cls, state)
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise GdscoreError(f"Expected a whole estimator, but {path} is damaged: {error}") from None


def _restored(cls: type[AccuracyEstimator], state: dict[str, Any]) -> AccuracyEstimator:
    options = json.loads(state["options"])
    estimator = cls(options["level"], scores=options["scores"], regressor=options["regressor"], seed=options["seed"])
    estimator.families_ = json.loads(state["families"])
    estimator.n_features_ = None if state["features"] < 0 else int(state["features"])
    for name in (*_NUMBERS, *_ARRAYS):
        setattr(estimator, name, state[name])
    estimator.fit_ = _fit("fit", state)
    folds = [_fit(f"fold{index}", state) for index in range(int(state["folds"]))]
    which = np.atleast_1d(state["fold_of_family"])
    residuals = [np.atleast_1d(state[f"residuals{index}"]) for index in range(len(which))]
    estimator.interval_ = GroupedInterval([folds[int(i)] for i in which], residuals)
    scores: dict[str, dict[str, Any]] = {}
    for key, value in state.items():
        if key.startswith("score."):
            name, entry = key.removeprefix("score.").split("/", 1)
            scores.setdefault(name, {})[entry] = value
    estimator.describer_ = Describer.restored(
        {name: restore_score(entries) for name, entries in scores.items()}, float(estimator.temperature_)
    )
    estimator.calibration_ = Calibration(
        families=json.loads(state["seen.families"]),
        scores={name: state[f"seen.score.{name}"] for name in scores},
        **{name: state[f"seen.{name}"] for name in ("accuracy", "rows", "predicted")},
    )
    estimator.reference_confidence_ = ConfidenceHistogram(
        **{name: [float(v) for v in state[f"confidence.{name}"]] for name in _HISTOGRAM}
    )
    estimator.single_ = {name: _fit(f"single.{name}", state) for name in scores}
    return estimator


def _flat(prefix: str, fit: Fit) -> dict[str, Any]:
    return {f"{prefix}.{name}": getattr(fit, name) for name in _FIT}


def _fit(prefix: str, state: dict[str, Any]) -> Fit:
    values: dict[str, Any] = {name: np.atleast_1d(state[f"{prefix}.{name}"]) for name in _FIT}
    return Fit(**{**values, **{name: float(values[name][0]) for name in ("offset", "length", "variance")}})
