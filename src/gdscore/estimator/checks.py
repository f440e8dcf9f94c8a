"""Checks: of arguments, of the reference and of a target, and whether outputs come from the model fitted for.

Logits are a linear function of the features that enter the last layer, Z = X W + b. For one random direction r, Z r is
then X w + c with w = W r, which D + 1 numbers describe. Another model's outputs do not satisfy it, even where they have
as many classes and features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore._options import choice
from gdscore._stream import stream
from gdscore.errors import GdscoreError, shown
from gdscore.estimator.estimate import EstimateWarning
from gdscore.estimator.evidence import Floats, Profile, Rows
from gdscore.estimator.settings import SETTINGS
from gdscore.outputs import Outputs, same_class_names
from gdscore.shifts.sets import ShiftedSet

__all__ = [
    "Fingerprint",
    "begin_set",
    "given_mix",
    "labelled_reference",
    "other_assumption",
    "reference_warnings",
    "segments",
    "target_warnings",
    "with_segments",
]

TOLERANCE = 0.02
"""Largest error, relative to the spread of the logits: half precision stays below it, another head far above."""
CHECKED = 200
"""Rows of each part of a stream that are looked at."""


@dataclass(frozen=True)
class Fingerprint:
    """One direction of a linear head, by least squares on the reference.

    Attributes
    ----------
    direction : array of length K
        r.
    weights : array of length D
        W r.
    offset : float
        b · r.
    spread : float
        Standard deviation of Z r on the reference.
    """

    direction: Floats
    weights: Floats
    offset: float
    spread: float

    @classmethod
    def of(cls, reference: Outputs) -> Fingerprint | None:
        """Fingerprint of the head that the reference shows; None where it shows none."""
        if not {"logits", "features"} <= reference.has:
            return None
        direction = np.random.default_rng(0).normal(size=int(reference.n_classes or 0))
        # Logits mean the same when a row's are all moved, as in the logarithms of probabilities.
        direction -= direction.mean()
        rows = 3 * (int(reference.n_features or 0) + 1)
        if len(reference) < rows:
            return None
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
            found = cls(direction, weights, float(y.mean() - centre @ weights), float(np.std(y)))
        return found if found.matches(reference) else None

    def matches(self, outputs: Outputs) -> bool:
        """Whether the first rows follow from their features by this head."""
        x, y = _seen(outputs[:CHECKED], self.direction)
        # Shifted features can be many times as large as the reference's, and with them the errors of rounding.
        with np.errstate(all="ignore"):
            error = np.abs(x @ self.weights + self.offset - y)
            return bool(np.median(error / np.maximum(np.abs(y), max(self.spread, 1e-9))) <= TOLERANCE)


def _seen(outputs: Outputs, direction: NDArray[Any]) -> tuple[Floats, Floats]:
    x = arrays.to_numpy(outputs.features).astype(np.float64)
    with np.errstate(all="ignore"):
        return x, arrays.to_numpy(outputs.logits).astype(np.float64) @ direction


def reference_warnings(rows: int, accuracy: float, mix: Floats, left_out: Floats) -> list[EstimateWarning]:
    """Warnings about what an estimator was fitted on; they apply to each of its estimates.

    ``left_out`` are the estimates of shifted sets without their family, NaN where there is no other.
    """
    found = []
    classes, present = len(mix), int((mix > 0).sum())
    if present == 1:
        found.append(
            EstimateWarning(
                "one_class",
                "critical",
                f"the reference has rows of one class only, of {classes}: nothing is known about the others, so fit on "
                "rows of all classes",
            )
        )
    if accuracy < 1 / classes:
        found.append(
            EstimateWarning(
                "below_chance",
                "critical",
                f"the model is {accuracy:.1%} accurate on the reference, less than guessing among {classes} classes: "
                "the labels are probably in another order of classes than the outputs",
            )
        )
    if rows < SETTINGS.small_reference:
        found.append(
            EstimateWarning(
                "small_reference",
                "warning",
                f"the reference has only {rows} rows; at least {SETTINGS.small_reference} give a reliable estimate",
            )
        )
    if accuracy > SETTINGS.easy_reference:
        found.append(
            EstimateWarning(
                "easy_reference",
                "info",
                f"the model makes almost no errors on the reference ({accuracy:.1%} accurate), so that little can be "
                "learned about its errors",
            )
        )
    if not len(left_out):
        found.append(
            EstimateWarning(
                "outputs_only",
                "info",
                "the estimator was fitted without shifted sets; fit_predictor, or shifted sets of your own, make it "
                "more accurate under shift",
            )
        )
    elif np.isnan(left_out).all():
        found.append(
            EstimateWarning(
                "one_family",
                "info",
                "all shifted sets are of one family, so that the interval rests on a constant; sets of other families "
                "show how far estimates are off under a new shift",
            )
        )
    return found


def target_warnings(
    *,
    rows: int,
    predicted: Floats,
    expected: Floats,
    given: bool,
    moved: Floats,
    farthest: float,
    same_model: bool,
    is_reference: bool,
) -> list[EstimateWarning]:
    """Warnings about one target: its size, its predictions, how far it is from all shifted sets.

    ``expected`` is the mix of predicted classes that is no surprise: the reference's, or the one that the user gave.
    """
    found = []
    if not same_model:
        found.append(
            EstimateWarning(
                "other_model",
                "critical",
                "these outputs seem to come from another model than the one the estimator was fitted for: their logits "
                "do not follow from their features by its last layer; fit the estimator again for this model",
            )
        )
    if is_reference:
        found.append(
            EstimateWarning(
                "is_reference",
                "info",
                "the target has exactly the confidences of the reference, whose accuracy is known: give other rows",
            )
        )
    where, whose = ("in the mix given", "the one given") if given else ("on the reference", "the reference's")
    spread, usual = _effective_classes(predicted), _effective_classes(_sampled(expected, rows))
    if spread < SETTINGS.collapse * usual:
        found.append(
            EstimateWarning(
                "collapse",
                "critical",
                f"predictions have collapsed to few classes (as many as {spread:.1f} equally frequent ones, against "
                f"{usual:.1f} {where}): either the target holds few classes or the model fails on it",
            )
        )
    distance = 0.5 * float(np.abs(predicted - expected).sum())
    noise = 0.8 * float(np.sqrt(expected * (1 - expected) / rows).sum())
    if distance > SETTINGS.far_mix + noise:
        found.append(
            EstimateWarning(
                "class_mix",
                "warning",
                f"the mix of predicted classes is far from {whose}: {distance:.0%} of the rows would have to change "
                "class",
            )
        )
    if rows < SETTINGS.few_rows:
        found.append(
            EstimateWarning(
                # Without their number, so that many small segments have one message.
                "few_rows",
                "warning",
                f"the target has few rows; collect at least {SETTINGS.few_rows} for an estimate",
            )
        )
    if farthest > 0 and float(np.abs(moved).max()) > SETTINGS.beyond * farthest + SETTINGS.noise / np.sqrt(rows):
        found.append(
            EstimateWarning(
                "beyond",
                "warning",
                "the target is farther from the reference than every shifted set the estimator was fitted on: the "
                "estimate extrapolates",
            )
        )
    return found


def other_assumption(accuracy: float, low: float) -> EstimateWarning:
    """Warning that the reference's class mix means another accuracy, below the interval if that had not been moved."""
    return EstimateWarning(
        "class_mix",
        "warning",
        f"if the target has the reference's mix of classes, accuracy is about {accuracy:.0%}; the interval "
        f"{'covers' if low <= accuracy else 'reaches towards'} that too. class_mix='stable' assumes it",
    )


def _sampled(mix: Floats, rows: int) -> Floats:
    """Class mix that so many rows of the reference show."""
    return np.asarray(np.random.default_rng(0).multinomial(rows, mix / mix.sum()) / rows)


def _effective_classes(mix: Floats) -> float:
    present = mix[mix > 0]
    return float(np.exp(-(present * np.log(present)).sum()))


def labelled_reference(reference: Outputs | Iterable[Outputs]) -> Outputs:
    """Labelled outputs as one, of a stream too; or an error."""
    parts = list(stream(reference, "reference"))
    for part in parts:
        if "labels" not in part.has:
            raise GdscoreError(
                "Expected `reference` with labels, but it has none: pass labels= to Outputs, y to sklearn_outputs, or "
                "label= to from_frame"
            )
        if "logits" not in part.has:
            raise GdscoreError("Expected `reference` with logits or probabilities, but it has neither")
    return Outputs.concatenate(parts)


def begin_set(
    shifted: Any, profile: Profile, reference: Outputs, labels: NDArray[Any]
) -> Callable[[], tuple[str, Rows, NDArray[Any]]]:
    """Begin to compute family, evidence and labels of a shifted set, or an error where it does not fit the reference.

    The function returned gives them.
    """
    if not isinstance(shifted, ShiftedSet):
        raise GdscoreError(f"Expected `shifted_sets` to hold `gdscore.ShiftedSet`, but got {type(shifted).__name__}")
    outputs = shifted.outputs
    if (outputs.n_classes, outputs.n_features) != (reference.n_classes, reference.n_features):
        raise GdscoreError(
            f"Expected shifted sets with {reference.n_classes} classes and {reference.n_features} features as the "
            f"reference has, but one of {shifted.family!r} has {outputs.n_classes} and {outputs.n_features}"
        )
    same_class_names(reference.class_names, outputs.class_names)
    own = None
    if shifted.rows is not None:
        rows = np.asarray(shifted.rows)
        if rows.dtype.kind not in "iu" or rows.min() < 0 or rows.max() >= len(labels):
            raise GdscoreError(
                f"Expected `rows` of a shifted set to be rows of the reference, 0 … {len(labels) - 1}, but they go "
                f"from {rows.min()} to {rows.max()}"
            )
        own = labels[rows]
    evidence, of_set = profile.begin(outputs, own), arrays.fetch(arrays.detached_copy(outputs.labels))
    return lambda: (shifted.family, evidence(), of_set())


def given_mix(class_mix: Any, classes: int) -> Floats | None:
    """Shares of the classes, where the caller gave them."""
    if isinstance(class_mix, str):
        choice("class_mix", class_mix, ("unknown", "stable"))
        return None
    try:
        shares = np.asarray(class_mix, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        shares = np.zeros(0)
    if shares.shape != (classes,) or not np.isfinite(shares).all() or (shares < 0).any() or shares.sum() <= 0:
        raise GdscoreError(
            f"Expected `class_mix` to be 'unknown', 'stable' or the shares of {classes} classes, but got "
            f"{shown(class_mix)}"
        )
    return np.asarray(shares / shares.sum())


def with_segments(parts: Iterable[Outputs], by: Any) -> Iterator[tuple[Outputs, Any]]:
    """Parts of a stream with their segments; one more or one fewer of them is an error."""
    if not isinstance(by, Iterable):
        raise GdscoreError(f"Expected `by` to name a segment for each row, but got {type(by).__name__}")
    names, nothing = iter(by), object()
    for part in parts:
        own = next(names, nothing)
        if own is nothing:
            raise GdscoreError("Expected `by` to have segments for every part of the stream, but it ended")
        yield part, own
    if next(names, nothing) is not nothing:
        raise GdscoreError("Expected `by` to have segments for the parts of the stream only, but it has more")


def _plain(names: NDArray[Any]) -> list[Any]:
    if names.dtype.kind == "M" and np.datetime_data(names.dtype)[0] not in ("Y", "M", "W", "D", "h", "m", "s", "ms"):
        names = names.astype("datetime64[us]")  # finer ones would be numbers of nanoseconds
    listed: list[Any] = names.tolist()
    return listed


def segments(names: Any, rows: int) -> Iterator[tuple[Any, NDArray[Any]]]:
    """Rows of each segment, in the order of their first appearance; a missing name is None."""
    if hasattr(names, "columns"):
        raise GdscoreError("Expected `by` to name a segment for each row, but got a data frame: give one column of it")
    if hasattr(names, "to_pylist"):  # scalars of Arrow are neither equal to their values nor missing
        names = names.to_pylist()
    listed = _plain(arrays.to_numpy(names)) if arrays.is_array(names) else names
    listed = list(listed) if isinstance(listed, Iterable) and not isinstance(listed, (str, bytes)) else None
    if listed is None or len(listed) != rows:
        came = "one value" if listed is None else f"{len(listed)}"
        raise GdscoreError(f"Expected `by` to name a segment for each of {rows} rows, but got {came}")
    index: dict[Any, list[int]] = {}
    try:
        for row, name in enumerate(listed):
            missing = name is None or type(name).__name__ in ("NAType", "NaTType") or name != name
            index.setdefault(None if missing else name, []).append(row)
    except (TypeError, ValueError):
        raise GdscoreError(f"Expected `by` to name segments by strings or numbers, but got {name!r:.80}") from None
    for name, found in index.items():
        yield name, np.array(found)
