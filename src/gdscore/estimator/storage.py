"""A fitted estimator in one file: plain arrays and numbers, with the version of their layout."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gdscore import files
from gdscore.errors import GdscoreError
from gdscore.estimator.calibrated import Calibration
from gdscore.estimator.confidence import ConfidenceHistogram
from gdscore.estimator.describe import Describer
from gdscore.estimator.fingerprint import Fingerprint
from gdscore.estimator.judge import Judge
from gdscore.estimator.sizes import SizeEffect
from gdscore.scores.registry import restore_score

if TYPE_CHECKING:
    from gdscore.estimator.core import AccuracyEstimator

__all__ = ["load", "save"]

FORMAT = "gdscore estimator"
VERSION = 3
_NUMBERS = ("reference_accuracy_", "temperature_", "outputs_only_", "reference_rows_", "n_classes_")
_ARRAYS = ("reference_mix_", "confusion_")
_SEEN = ("accuracy", "rows", "predicted")
_MARK = ("direction", "weights", "offset", "spread")
_HISTOGRAM = ("rows", "confidence", "correct")


def save(estimator: AccuracyEstimator, path: str | Path) -> None:
    """Write all that was learned."""
    state: dict[str, Any] = {"format": FORMAT, "version": VERSION}
    state["options"] = json.dumps(
        {
            "level": estimator.level,
            "scores": None if estimator._optional else estimator.scores,
            "regressor": estimator.regressor,
            "seed": estimator.seed,
        }
    )
    state["features"] = -1 if estimator.n_features_ is None else estimator.n_features_
    state |= {name: getattr(estimator, name) for name in (*_NUMBERS, *_ARRAYS)}
    for name, score in estimator.describer_.scores.items():
        state |= {f"score.{name}/{key}": value for key, value in score.reset().state_dict().items()}
    seen = estimator.calibration_
    state["seen.families"], state["seen.sizes"] = json.dumps(seen.families), json.dumps(asdict(seen.sizes))
    state["seen.fresh"] = seen.fresh
    state |= {f"seen.{name}": getattr(seen, name) for name in _SEEN}
    state |= {f"seen.score.{name}": values for name, values in seen.scores.items()}
    histogram = estimator.reference_confidence_
    state |= {f"confidence.{name}": np.array(getattr(histogram, name)) for name in _HISTOGRAM}
    mark = estimator.fingerprint_
    state["marked"] = mark is not None
    if mark is not None:
        state |= {f"mark.{name}": getattr(mark, name) for name in _MARK}
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
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise GdscoreError(f"Expected a whole estimator, but {path} is damaged: {error}") from None


def _restored(cls: type[AccuracyEstimator], state: dict[str, Any]) -> AccuracyEstimator:
    options = json.loads(state["options"])
    estimator = cls(options["level"], scores=options["scores"], regressor=options["regressor"], seed=options["seed"])
    estimator.n_features_ = None if state["features"] < 0 else int(state["features"])
    for name in (*_NUMBERS, *_ARRAYS):
        setattr(estimator, name, state[name])
    scores: dict[str, dict[str, Any]] = {}
    for key, value in state.items():
        if key.startswith("score."):
            name, entry = key.removeprefix("score.").split("/", 1)
            scores.setdefault(name, {})[entry] = value
    estimator.describer_ = Describer.restored(
        {name: restore_score(entries) for name, entries in scores.items()}, float(estimator.temperature_)
    )
    estimator.reference_confidence_ = ConfidenceHistogram(
        **{name: [float(v) for v in state[f"confidence.{name}"]] for name in _HISTOGRAM}
    )
    table = Calibration(
        families=json.loads(state["seen.families"]),
        scores={name: state[f"seen.score.{name}"] for name in scores},
        sizes=SizeEffect(**json.loads(state["seen.sizes"])),
        fresh=bool(state["seen.fresh"]),
        **{name: state[f"seen.{name}"] for name in _SEEN},
    )
    marks = {name: state[f"mark.{name}"] for name in _MARK} if state["marked"] else None
    estimator.fingerprint_ = (
        None
        if marks is None
        else Fingerprint(marks["direction"], marks["weights"], float(marks["offset"]), float(marks["spread"]))
    )
    estimator.judge_ = Judge(table, estimator.regressor)
    return estimator
