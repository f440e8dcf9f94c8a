"""All that an estimator has learned: one object that nobody changes, and one file.

The file has a JSON header and plain arrays; each of them is checked before it is used. The fingerprint of the model's
last layer shows whether outputs come from that model: logits are a linear function of the features that enter it,
Z = X W + b. For one random direction r, Z r is then X w + c with w = W r, which D + 1 numbers describe. Another model's
outputs do not satisfy it, even where they have as many classes and features.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import exceptions

from gdscore import _arrays as arrays
from gdscore._drift import BINS, TableProfile
from gdscore._files import PathLike, arrays_to_bytes, check_path, read_arrays
from gdscore._records import ArraySpec, Number, OneOf, RecordSchema, read_record, record_to_bytes
from gdscore.errors import GdscoreError
from gdscore.estimator.class_mix import ASSUMPTIONS, known_mix
from gdscore.estimator.correctness import MIXES, Correction, ShiftedSetTable
from gdscore.estimator.direct import ScoreLine
from gdscore.estimator.estimate import ConfidenceHistogram
from gdscore.estimator.evidence import CONFIDENCE_BINS, LARGEST, LIMIT, Profile, groups_of
from gdscore.outputs import Outputs, is_decision
from gdscore.scores.base import Score
from gdscore.scores.registry import restore_score

TOLERANCE = 0.02
"""Largest error, relative to the spread of the logits: half precision stays below it, another head far above."""
CHECKED = 200
"""Rows of each part of a stream that are looked at."""
HELD_OUT = 50
"""Rows of the reference that show whether the head that was found holds for others."""


@dataclass(frozen=True)
class Fingerprint:
    """One direction of a linear head, by least squares on the reference."""

    direction: NDArray[np.float64]  # shape (K,): r
    weights: NDArray[np.float64]  # shape (D,): W r
    offset: float  # b · r
    spread: float  # standard deviation of Z r on the reference

    @classmethod
    def of(cls, reference: Outputs) -> Fingerprint | None:
        """Fingerprint of the head that the reference shows; None where it shows none."""
        if not {"logits", "features"} <= reference.has:
            return None
        direction = np.random.default_rng(0).normal(size=int(reference.n_classes or 0))
        # Logits mean the same when a row's are all moved, as in the logarithms of probabilities.
        direction -= direction.mean()
        unknowns = int(reference.n_features or 0) + 1
        if len(reference) < 2 * unknowns + HELD_OUT:
            return None
        rows = min(3 * unknowns, len(reference) - HELD_OUT)
        x, y = _seen(reference[:rows], direction)
        centre = x.mean(axis=0)
        with np.errstate(all="ignore"):
            spread = (x - centre).T @ (x - centre)
            if not (np.isfinite(spread).all() and np.isfinite(y).all()):
                return None
            values, vectors = np.linalg.eigh(spread)
            if values[0] <= 1e-10 * values[-1]:
                return None
            weights = vectors @ ((vectors.T @ ((x - centre).T @ (y - y.mean()))) / values)
            fingerprint = cls(direction, weights, float(y.mean() - centre @ weights), float(np.std(y)))
        usable = np.isfinite([*weights, fingerprint.offset, fingerprint.spread]).all()
        # On other rows than it was fitted to: so many weights describe any head on a few rows.
        held_out = reference[len(reference) - HELD_OUT :]
        return fingerprint if usable and np.median(fingerprint._errors(held_out)) <= TOLERANCE else None

    def differs(self, outputs: Outputs, codes: NDArray[np.int64], segments: int) -> NDArray[np.bool_]:
        """Whether the first rows of each segment do not follow from their features; ``codes`` number the segments."""
        order = np.argsort(codes, kind="stable")
        starts = np.searchsorted(codes[order], np.arange(segments))
        chosen = order[np.arange(len(order)) - starts[codes[order]] < CHECKED]
        ends = np.searchsorted(codes[chosen], np.arange(1, segments))
        return np.array([not np.median(part) <= TOLERANCE for part in np.split(self._errors(outputs[chosen]), ends)])

    def _errors(self, outputs: Outputs) -> NDArray[np.float64]:
        x, y = _seen(outputs, self.direction)
        # Shifted features can be many times as large as the reference's, and with them the errors of rounding.
        with np.errstate(all="ignore"):
            error = np.abs(x @ self.weights + self.offset - y)
            return np.asarray(error / np.maximum(np.abs(y), max(self.spread, 1e-9)))


def _seen(outputs: Outputs, direction: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    x = arrays.to_numpy(outputs.features).astype(np.float64)
    with np.errstate(all="ignore"):
        return x, arrays.to_numpy(outputs.logits).astype(np.float64) @ direction


CORRECTNESS = "correctness"


class NotFittedError(GdscoreError, exceptions.NotFittedError):  # type: ignore[misc]
    """An estimator was used before it was fitted; scikit-learn's error of that name, too."""


@dataclass(frozen=True)
class Fitted:
    """What `AccuracyEstimator.fit` learns."""

    method: str
    correction: Correction
    table: ShiftedSetTable
    # The straight line and the fitted score, where the method is a score
    line: ScoreLine | None
    score: Score | None
    # Largest distance of a shifted set's mean evidence from the reference's, in standard deviations of rows
    farthest: float
    # How far confidence falls or distance moves for the accuracy that shifted sets lose, in standard deviations of rows
    # for all of it; None where they lose none
    reaction: float | None
    reference_accuracy: float
    reference_rows: int
    n_features: int | None
    class_names: tuple[str, ...] | None
    fingerprint: Fingerprint | None
    confidence: ConfidenceHistogram  # confidences of the reference
    decision: str  # how the reference's rows were decided, and all others must be
    table_profile: TableProfile | None = None  # columns of the reference's inputs, where they are a table

    @property
    def n_classes(self) -> int:
        """Classes of the model."""
        return len(self.correction.profile.mix)

    @cached_property
    def digest(self) -> str:
        """Digest of all that the state of a target depends on; equal for equal fits, whatever ``level`` is."""
        profile, mark = self.correction.profile, self.fingerprint
        learned: dict[str, Any] = {"method": self.method, "decision": self.decision, "shift": self.correction.shift}
        if self.table_profile is not None:
            # Rows are counted by these columns and bins, so that states of others must not merge.
            learned["columns"] = json.dumps([self.table_profile.names, self.table_profile.values])
            learned["edges"] = self.table_profile.edges
        for part, owner in (("profile", profile), ("fingerprint", mark)):
            values = {} if owner is None else {f.name: getattr(owner, f.name) for f in fields(owner)}
            learned |= {f"{part}.{name}": value for name, value in values.items() if value is not None}
        if self.score is not None:
            learned |= {f"score.{name}": value for name, value in self.score.state_dict().items()}
        plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in learned.items()}
        return hashlib.sha256(arrays_to_bytes(plain)).hexdigest()


_SHARE = Number(least=0, most=1)
_K, _E, _D = ("classes",), ("kinds",), ("features",)
SCHEMA = RecordSchema(
    format="gdscore estimator",
    version=11,
    header={
        "level": Number(above=0, most=0.999),
        "class_mix": OneOf(*ASSUMPTIONS, {"low": [_SHARE], "high": [_SHARE], "named": [Number(least=0, most=1)]}),
        "method": str,
        "seed": Number(least=0, integer=True),
        "reference_accuracy": _SHARE,
        "reference_rows": Number(least=1, integer=True),
        "located": OneOf("features", "inputs", ""),
        "n_features": OneOf(None, Number(least=1, integer=True)),
        "temperature": Number(least=1e-30, most=1e30),
        "spread": Number(least=1e-300, most=1e300),
        "centre": Number(least=-50, most=50),
        "base": _SHARE,
        "errors": dict.fromkeys(MIXES, Number(least=0, most=1e6)),
        "left_out": dict.fromkeys(MIXES, OneOf(None, _SHARE)),
        "lean": _SHARE,
        "reserve": _SHARE,
        "strictness": Number(above=0, most=1e9),
        "farthest": Number(least=0, most=1e9),
        "reaction": OneOf(None, Number(least=-1e9, most=1e9)),
        "families": [str],
        "class_names": OneOf(None, [str]),
        "decision": str,
        "line": OneOf(None, {"slope": float, "intercept": float, "error": Number(least=0)}),
        "fingerprint": OneOf(None, {"offset": float, "spread": Number(least=0)}),
        "columns": [{"name": str, "values": OneOf(None, [str])}],
    },
    arrays={
        "mix": ArraySpec("f", _K, least=0, most=1),
        "predicted_mix": ArraySpec("f", _K, least=0, most=1),
        "knots": ArraySpec("f", ("knots",), least=0, most=1),
        "levels": ArraySpec("f", ("knots",), least=0, most=1),
        "mean": ArraySpec("f", _E, least=-LARGEST, most=LARGEST),
        "scale": ArraySpec("f", _E, least=0, most=2 * LARGEST),
        "lowest": ArraySpec("f", _E, least=-LARGEST, most=LARGEST),
        "highest": ArraySpec("f", _E, least=-LARGEST, most=LARGEST),
        "class_means": ArraySpec("f", (*_K, *_E), least=-LARGEST, most=LARGEST),
        "counts": ArraySpec("f", _K, least=0, most=1e15),
        "label_means": ArraySpec("f", (*_K, *_E), least=-LARGEST, most=LARGEST),
        "class_odds": ArraySpec("f", _K, least=-2 * LIMIT, most=2 * LIMIT),
        "cells": ArraySpec("f", ("cells", *_K), least=0, most=1e15),
        "expected": ArraySpec("f", ("cells", *_K), least=0, most=1e15),
        "units": ArraySpec("f", ("places",), least=1e-300, optional=True),
        "centres": ArraySpec("f", (*_K, "places"), optional=True),
        "shift": ArraySpec("f", _E, least=-1e9, most=1e9),
        "slope": ArraySpec("f", _E, least=-1e9, most=1e9),
        "set_accuracy": ArraySpec("f", ("sets",), least=0, most=1),
        # −1 where a set could not be left out: files hold finite numbers only.
        "set_predicted": ArraySpec("f", ("sets",), least=-1, most=1),
        "set_rows": ArraySpec("i", ("sets",), least=1),
        "confidence": ArraySpec("f", (3, CONFIDENCE_BINS), least=0),
        "direction": ArraySpec("f", _K, optional=True),
        "weights": ArraySpec("f", _D, optional=True),
        "score": ArraySpec("i", ("bytes",), least=0, most=255, optional=True),
        "column_edges": ArraySpec("f", ("columns", 11), least=-1e300, most=1e300, optional=True),
        "column_counts": ArraySpec("i", ("columns", BINS), least=0, optional=True),
    },
    least_sizes={"classes": 2, "sets": 0},
)
_TRANSLATED = {"class_names", "confidence", "fingerprint", "line", "score"}
_SAVED = {
    part: [f.name for f in fields(part) if f.name in {*SCHEMA.header, *SCHEMA.arrays} - _TRANSLATED]
    for part in (Fitted, Profile, Correction)
}
"""Fields that a file has under their own names."""


def to_bytes(fitted: Fitted, params: dict[str, Any]) -> bytes:
    """Bytes of the file of an estimator: what was learned, and its parameters."""
    table, mark, seen = fitted.table, fitted.fingerprint, fitted.table_profile
    parts = (fitted, fitted.correction.profile, fitted.correction)
    saved = {name: getattr(part, name) for part in parts for name in _SAVED[type(part)]}
    mix = known_mix(params["class_mix"], fitted.n_classes, fitted.class_names)
    header = {name: value for name, value in saved.items() if name in SCHEMA.header} | {
        "level": float(params["level"]),
        "class_mix": params["class_mix"]
        if mix is None
        else {name: np.asarray(values, dtype=np.float64).tolist() for name, values in vars(mix).items()},
        "seed": int(params["seed"]),
        "families": table.families,
        "class_names": None if fitted.class_names is None else list(fitted.class_names),
        "line": None if fitted.line is None else asdict(fitted.line),
        "fingerprint": None if mark is None else {"offset": mark.offset, "spread": mark.spread},
        "columns": [{"name": n, "values": v} for n, v in zip(seen.names, seen.values, strict=True)] if seen else [],
    }
    arrays = {name: value for name, value in saved.items() if name in SCHEMA.arrays and value is not None} | {
        "set_accuracy": table.accuracy,
        "set_rows": table.rows,
        "set_predicted": np.nan_to_num(table.predicted, nan=-1.0),
        "confidence": np.array(list(asdict(fitted.confidence).values())),
    }
    if mark is not None:
        arrays |= {"direction": mark.direction, "weights": mark.weights}
    if seen is not None:
        arrays |= {"column_edges": seen.edges, "column_counts": seen.counts}
    if fitted.score is not None:
        arrays["score"] = np.frombuffer(arrays_to_bytes(fitted.score.state_dict()), dtype=np.uint8)
    return record_to_bytes(SCHEMA, header, arrays)


def _table_profile(columns: list[dict[str, Any]], arrays: dict[str, Any]) -> TableProfile | None:
    if not columns:
        return None
    names, values = tuple(c["name"] for c in columns), [c["values"] for c in columns]
    return TableProfile(names, arrays["column_edges"], values, arrays["column_counts"])


def load(source: PathLike | bytes) -> tuple[dict[str, Any], Fitted]:
    """Parameters and what was learned, or an error where the file or its bytes do not hold them."""
    where = "the bytes" if isinstance(source, bytes | bytearray | memoryview) else repr(os.fspath(check_path(source)))
    try:
        header, arrays, sizes = read_record(source, SCHEMA)
    except GdscoreError as error:
        raise GdscoreError(
            f"{error} (an estimator is a file that `AccuracyEstimator.save` or `gdscore fit` wrote)"
        ) from error
    classes, sets, mix, mark = sizes["classes"], sizes["sets"], header["class_mix"], header["fingerprint"]
    for fits, what in (
        (len(header["families"]) == sets and all(header["families"]), "a family for each set"),
        (header["class_names"] is None or len(header["class_names"]) == classes, "a name for each class"),
        (is_decision(header["decision"], classes), "a decision of rows"),
        (bool(np.all(np.diff(arrays["knots"]) >= 0)), "confidences in rising order"),
        (bool(np.all(arrays["lowest"] <= arrays["highest"])), "a range of evidence"),
        (arrays["predicted_mix"].sum() > 0, "predictions of some class"),
        (arrays["counts"].sum() >= 1, "rows of some class"),
        (np.allclose(arrays["mix"] * arrays["counts"].sum(), arrays["counts"]), "the shares of these rows"),
        (np.array_equal(arrays["cells"].sum(axis=0), arrays["counts"]), "each row of the reference in a cell"),
        (len(arrays["cells"]) == classes * groups_of(classes), "a cell for each class and group"),
        ((header["method"] == CORRECTNESS) == (header["line"] is None) == ("score" not in arrays), "one method"),
        ((mark is not None) == ("direction" in arrays) == ("weights" in arrays), "a fingerprint with its arrays"),
        (sizes["kinds"] == (2 if "centres" in arrays else 1), "evidence of features where there are features"),
        (bool(header["located"]) == ("centres" in arrays), "centres of classes where there are features or inputs"),
        ((header["located"] == "inputs") == ("units" in arrays), "a unit for each column of inputs"),
        (mark is None or len(arrays.get("weights", ())) == header["n_features"], "a fingerprint of its features"),
        (header["located"] != "features" or header["n_features"] == sizes.get("places"), "centres of features"),
        (isinstance(mix, str) or _is_mix(mix, classes), "a share of each class"),
        (len(header["columns"]) == sizes.get("columns", 0), "bins of each column"),
        (("column_edges" in arrays) == ("column_counts" in arrays), "bins of columns with their rows"),
        (bool(np.all(np.diff(arrays.get("column_edges", np.zeros((1, 1)))) >= 0)), "bins in rising order"),
    ):
        if not fits:
            raise GdscoreError(f"Expected {what} in {where}, but it has others: the file is damaged")
    values: dict[str, Any] = header | arrays
    saved: dict[type[Any], dict[str, Any]] = {
        part: {name: values.get(name) for name in names} for part, names in _SAVED.items()
    }
    score = None
    if "score" in arrays:
        score = restore_score(read_arrays(arrays["score"].astype(np.uint8).tobytes())).reset()
        if score.name != header["method"]:
            raise GdscoreError(f"Expected the score {header['method']!r} in {where}, but it has {score.name!r}")
    predicted = np.where(arrays["set_predicted"] < 0, np.nan, arrays["set_predicted"])
    fitted = Fitted(
        **saved[Fitted],
        correction=Correction(profile=Profile(**saved[Profile]), **saved[Correction]),
        table=ShiftedSetTable(header["families"], arrays["set_accuracy"], predicted, arrays["set_rows"]),
        line=None if header["line"] is None else ScoreLine(**header["line"]),
        score=score,
        class_names=None if header["class_names"] is None else tuple(header["class_names"]),
        fingerprint=None if mark is None else Fingerprint(arrays["direction"], arrays["weights"], **mark),
        confidence=ConfidenceHistogram(*arrays["confidence"].tolist()),
        table_profile=_table_profile(header["columns"], arrays),
    )
    params = {"level": header["level"], "method": header["method"], "seed": header["seed"]}
    return {**params, "class_mix": mix if isinstance(mix, str) else _as_argument(mix, fitted.class_names)}, fitted


def _is_mix(mix: dict[str, list[float]], classes: int) -> bool:
    """Whether these are lowest and highest shares of the classes, and which of them are named."""
    low, high, named = np.array(mix["low"]), np.array(mix["high"]), np.array(mix["named"])
    if not len(low) == len(high) == len(named) == classes or (low > high).any():
        return False
    return bool(low.sum() <= 1 + 1e-9 and (high.sum() >= 1 - 1e-9 or (named == 0).any()))


def _as_argument(mix: dict[str, list[float]], names: tuple[str, ...] | None) -> Any:
    """The argument ``class_mix`` that means these shares."""
    if all(mix["named"]) and mix["low"] == mix["high"]:
        return np.array(mix["low"])
    of_class = zip(names or range(len(mix["named"])), mix["low"], mix["high"], mix["named"], strict=True)
    return {name: low if low == high else (low, high) for name, low, high, named in of_class if named}
