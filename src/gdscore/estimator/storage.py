"""A fitted estimator in one file: a JSON header and plain arrays, each checked before it is used."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gdscore import files
from gdscore.errors import GdscoreError
from gdscore.estimator.checks import Fingerprint
from gdscore.estimator.correctness import Correction, ShiftedSetTable
from gdscore.estimator.direct import ScoreLine
from gdscore.estimator.estimate import ConfidenceHistogram
from gdscore.estimator.evidence import CONFIDENCE_BINS, Profile
from gdscore.files import ArraySpec, Number, OneOf, RecordSchema
from gdscore.scores.registry import restore_score

if TYPE_CHECKING:
    from gdscore.estimator.core import AccuracyEstimator

__all__ = ["load", "save"]

_SHARE = Number(least=0, most=1)
_FINITE = float
_K, _E, _D = ("classes",), ("kinds",), ("features",)
SCHEMA = RecordSchema(
    format="gdscore estimator",
    version=4,
    header={
        "level": Number(above=0, most=0.999),
        "class_mix": OneOf("unknown", "stable", [_SHARE]),
        "method": str,
        "seed": Number(least=0, whole=True),
        "reference_accuracy": _SHARE,
        "reference_rows": Number(least=1, whole=True),
        "temperature": Number(above=0),
        "spread": Number(above=0),
        "centre": _FINITE,
        "base": _SHARE,
        "error": Number(least=0, most=1e6),
        "farthest": Number(least=0),
        "families": [str],
        "class_names": OneOf(None, [str]),
        "line": OneOf(None, {"slope": _FINITE, "intercept": _FINITE, "error": Number(least=0)}),
        "fingerprint": OneOf(None, {"offset": _FINITE, "spread": Number(least=0)}),
    },
    arrays={
        "mix": ArraySpec("f", _K, least=0, most=1),
        "predicted_mix": ArraySpec("f", _K, least=0, most=1),
        "knots": ArraySpec("f", ("knots",), least=0, most=1),
        "levels": ArraySpec("f", ("knots",), least=-50, most=50),
        "mean": ArraySpec("f", _E),
        "scale": ArraySpec("f", _E, least=1e-9),
        "counts": ArraySpec("f", _K, least=0),
        "centres": ArraySpec("f", (*_K, *_D), optional=True),
        "shift": ArraySpec("f", _E),
        "slope": ArraySpec("f", _E),
        "set_accuracy": ArraySpec("f", ("sets",), least=0, most=1),
        # −1 where a set could not be left out: files hold finite numbers only.
        "set_predicted": ArraySpec("f", ("sets",), least=-1, most=1),
        "set_rows": ArraySpec("i", ("sets",), least=1),
        "confidence": ArraySpec("f", (3, CONFIDENCE_BINS), least=0),
        "direction": ArraySpec("f", _K, optional=True),
        "weights": ArraySpec("f", _D, optional=True),
        "score": ArraySpec("i", ("bytes",), least=0, most=255, optional=True),
    },
    least_sizes={"classes": 2, "sets": 0},
)
_PROFILE_ARRAYS = ("mix", "predicted_mix", "knots", "levels", "mean", "scale", "counts")


def save(estimator: AccuracyEstimator, path: str | Path) -> None:
    """Write all that was learned."""
    correction, table, mark, line = (
        estimator.correction_,
        estimator.shifted_sets_,
        estimator.fingerprint_,
        estimator.line_,
    )
    profile, histogram = correction.profile, estimator.reference_confidence_
    mix = estimator.class_mix
    header = {
        "level": float(estimator.level),
        "class_mix": mix if isinstance(mix, str) else [float(v) for v in mix],
        "method": estimator.method,
        "seed": int(estimator.seed),
        "reference_accuracy": estimator.reference_accuracy_,
        "reference_rows": estimator.reference_rows_,
        "temperature": float(profile.temperature),
        "spread": profile.spread,
        "centre": correction.centre,
        "base": correction.base,
        "error": correction.error,
        "farthest": estimator.farthest_,
        "families": table.families,
        "class_names": None if estimator.class_names_ is None else list(estimator.class_names_),
        "line": None if line is None else {n: getattr(line, n) for n in ("slope", "intercept", "error")},
        "fingerprint": None if mark is None else {"offset": mark.offset, "spread": mark.spread},
    }
    arrays: dict[str, Any] = {name: getattr(profile, name) for name in _PROFILE_ARRAYS}
    arrays |= {"shift": correction.shift, "slope": correction.slope}
    arrays |= {"set_accuracy": table.accuracy.astype(np.float64), "set_rows": table.rows.astype(np.int64)}
    arrays["set_predicted"] = np.nan_to_num(table.predicted, nan=-1.0)
    arrays["confidence"] = np.array([getattr(histogram, f.name) for f in fields(histogram)])
    if profile.centres is not None:
        arrays["centres"] = profile.centres
    if mark is not None:
        arrays |= {"direction": mark.direction, "weights": mark.weights}
    if estimator.score_ is not None:
        arrays["score"] = np.frombuffer(files.arrays_to_bytes(estimator.score_.state_dict()), dtype=np.uint8)
    files.write_record(path, SCHEMA, header, arrays)


def load(cls: type[AccuracyEstimator], path: str | Path) -> Any:
    """Read it back, or say why not."""
    header, arrays, sizes = files.read_record(path, SCHEMA)
    classes, sets = sizes["classes"], len(arrays["set_rows"])
    _require(len(header["families"]) == sets, path, "as many families as sets")
    _require(header["class_names"] is None or len(header["class_names"]) == classes, path, "a name for each class")
    _require(bool(np.all(np.diff(arrays["knots"]) >= 0)), path, "confidences in rising order")
    _require((header["line"] is None) == ("score" not in arrays), path, "a score beside a straight line")
    marked = header["fingerprint"] is not None
    _require(marked == ("direction" in arrays) == ("weights" in arrays), path, "a fingerprint with its arrays")
    mix = header["class_mix"]
    estimator = cls(
        header["level"],
        class_mix=mix if isinstance(mix, str) else np.array(mix),
        method=header["method"],
        seed=header["seed"],
    )
    _require(isinstance(mix, str) or (len(mix) == classes and sum(mix) > 0), path, "a share of each class")
    profile = Profile(
        temperature=float(header["temperature"]),
        centres=arrays.get("centres"),
        spread=float(header["spread"]),
        **{name: arrays[name] for name in _PROFILE_ARRAYS},
    )
    estimator.correction_ = Correction(
        profile, arrays["shift"], arrays["slope"], header["centre"], header["base"], header["error"]
    )
    estimator.shifted_sets_ = ShiftedSetTable(
        header["families"],
        arrays["set_accuracy"],
        np.where(arrays["set_predicted"] < 0, np.nan, arrays["set_predicted"]),
        arrays["set_rows"],
    )
    estimator.line_ = None if header["line"] is None else ScoreLine(header["method"], **header["line"])
    estimator.score_ = None
    if "score" in arrays:
        estimator.score_ = restore_score(files.read_arrays(arrays["score"].astype(np.uint8).tobytes()))
        _require(estimator.score_.name == header["method"], path, "the score that the method names")
    estimator.fingerprint_ = None
    if marked:
        own = header["fingerprint"]
        estimator.fingerprint_ = Fingerprint(arrays["direction"], arrays["weights"], own["offset"], own["spread"])
    estimator.farthest_ = header["farthest"]
    estimator.reference_accuracy_, estimator.reference_rows_ = header["reference_accuracy"], header["reference_rows"]
    estimator.n_classes_, estimator.n_features_ = classes, sizes.get("features")
    estimator.class_names_ = None if header["class_names"] is None else tuple(header["class_names"])
    estimator.reference_confidence_ = ConfidenceHistogram(*arrays["confidence"].tolist())
    return estimator


def _require(fits: bool, path: Any, what: str) -> None:
    if not fits:
        raise GdscoreError(f"Expected {what} in {str(path)!r}, but it has others: the file is damaged")
