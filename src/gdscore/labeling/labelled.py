"""`estimate`: the accuracy of a target from labels of a few of its rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore._checks import number
from gdscore._stream import stream
from gdscore.errors import GdscoreError
from gdscore.estimator import AccuracyEstimator, Estimate, EstimateWarning, Quantity
from gdscore.estimator.estimate import most_severe_first
from gdscore.labeling.interval import interval, labels_for, variance_ratio
from gdscore.labeling.labels import NOT_LABELLED, as_classes
from gdscore.labeling.rows import LabelRows
from gdscore.labeling.target import FingerprintSum, TargetLike
from gdscore.outputs import Outputs, same_class_names

__all__ = ["Labelled", "LabelledEstimate", "estimate", "estimate_segments", "labelled_rows"]

FEW_LABELS = 10


@dataclass(frozen=True)
class LabelledEstimate(Estimate):
    """Accuracy on the very rows of a target, from labels of some of them.

    Attributes
    ----------
    labels : int
        Rows with a label.
    could_not_tell : int
        Rows without one that come before the last labelled one. The low end of the interval counts them as wrong, the
        high end as right.
    to_label : int
        Rows that were drawn and come after the last labelled one.
    effective_labels : float
        Labels of random rows that would be worth as much.
    label_free : Quantity or None
        The estimate without labels.
    variance_ratio : float
        Variance relative to that of random rows.
    """

    labels: int = 0
    could_not_tell: int = 0
    to_label: int = 0
    effective_labels: float = 0.0
    label_free: Quantity | None = None
    variance_ratio: float = 1.0

    def __str__(self) -> str:
        first, *warnings = super().__str__().split("\n")
        return "\n".join([f"{first}; {self.labels} rows are labelled", *warnings])

    def more_labels_for(self, half_width: float) -> int:
        """Forecast how many more labels the interval needs to be ± ``half_width`` wide; 0 where it is.

        Parameters
        ----------
        half_width : float
            0.05 is ± 5 points.
        """
        number("half_width", half_width, above=0, most=0.5)
        if self.high - self.low <= 2 * half_width:
            return 0
        known = self.labels + self.could_not_tell
        needed = labels_for(half_width, self.accuracy, self.variance_ratio, self.n, self.level)
        return min(max(needed - known, 1), self.n - known)


def estimate(est: AccuracyEstimator, outputs: TargetLike, rows: LabelRows, labels: Any) -> LabelledEstimate:
    """Estimate the accuracy on the rows of a target from labels of the rows that `choose` drew.

    The interval is valid because the rows were drawn at random, whatever has shifted. Its width depends on how well
    right and wrong predictions are told apart by the estimator; its coverage does not.

    Parameters
    ----------
    est : AccuracyEstimator
        Fitted.
    outputs : Outputs, stream of Outputs, or function that returns one
        The target that the rows were drawn from.
    rows : LabelRows
        What was drawn.
    labels : sequence, or mapping from id or position to label
        Class numbers or names, in the order of the rows. Missing labels (None, NaN, empty) after the last labelled row
        are labels to come; those before it, and "?", count as wrong at the low end and as right at the high end.

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 3, 4000)
    >>> out = gdscore.Outputs(logits=2 * np.eye(3)[y] + rng.normal(size=(4000, 3)), labels=y)
    >>> est, target = gdscore.AccuracyEstimator().fit(out[:2000]), out[2000:]
    >>> rows = gdscore.labeling.choose(est, target, budget=50)
    >>> e = gdscore.labeling.estimate(est, target, rows, y[2000:][rows.rows])
    >>> e.low <= target.accuracy <= e.high, e.labels
    (True, 50)
    """
    found = labelled_rows(est, outputs, rows, labels)
    return found.estimate(est, found.everything, rows.n_rows)


def estimate_segments(
    est: AccuracyEstimator, outputs: TargetLike, rows: LabelRows, labels: Any
) -> dict[str, LabelledEstimate]:
    """Estimate the accuracy in each segment that has labels, worst first; rows were drawn with ``by``.

    Parameters are those of `estimate`. Each interval is valid by itself; that all of them hold at once is less likely.
    """
    if rows.segments is None:
        raise GdscoreError("Expected rows that were drawn by segment, but these were not: use choose(…, by=segments)")
    found = labelled_rows(est, outputs, rows, labels)
    names = np.array(rows.segments)[: found.count]
    made = {
        name: found.estimate(est, np.flatnonzero(names == name), rows.segment_rows[name], all_rows=False)
        for name in dict.fromkeys(names.tolist())
        if found.known[names == name].any()
    }
    return dict(sorted(made.items(), key=lambda item: item[1].accuracy))


@dataclass(frozen=True)
class Labelled:
    """Drawn rows up to the last labelled one, in the order of drawing.

    Attributes
    ----------
    rows : LabelRows
        All drawn rows.
    right, known : boolean array of shape (t,)
        Whether the label equals the prediction, and whether there is a label.
    label_free : Estimate
        The estimate without labels.
    """

    rows: LabelRows
    right: NDArray[np.bool_]
    known: NDArray[np.bool_]
    label_free: Estimate

    @property
    def count(self) -> int:
        """Rows up to the last labelled one."""
        return len(self.right)

    @property
    def everything(self) -> NDArray[np.int64]:
        """All of them."""
        return np.arange(self.count)

    def estimate(
        self, est: AccuracyEstimator, chosen: NDArray[np.int64], n_rows: int, all_rows: bool = True
    ) -> LabelledEstimate:
        """Estimate of the ``n_rows`` rows that the chosen ones were drawn from."""
        chosen = chosen[np.argsort(self.rows.ranks[chosen])]
        right, known = self.right[chosen], self.known[chosen]
        labels, unknown = int(known.sum()), int((~known).sum())
        # Random rows gain nothing from the order; with unknown ones the gain cannot be known.
        plain = unknown > 0 or self.rows.design != "stratified"
        ratio = 1.0 if plain else float(variance_ratio(right))
        low = float(interval(right & known, n_rows, float(est.level), ratio)[0])
        high = float(interval(right | ~known, n_rows, float(est.level), ratio)[1])
        accuracy = min(max(float(right[known].mean()), low), high)
        free = self.label_free
        return LabelledEstimate(
            accuracy=accuracy,
            low=low,
            high=high,
            level=float(est.level),
            n=n_rows,
            reference_accuracy=est.reference_accuracy_,
            class_mix=free.class_mix,
            method="labels",
            labels=labels,
            could_not_tell=unknown,
            to_label=len(self.rows) - self.count if all_rows else 0,
            effective_labels=float(min(labels / max(ratio, 1e-9), n_rows)),
            label_free=Quantity(free.accuracy, free.low, free.high) if all_rows else None,
            variance_ratio=ratio,
            warnings=most_severe_first(
                _warnings(labels, unknown, right[known], (low, high), free if all_rows else None)
            ),
        )


def labelled_rows(est: AccuracyEstimator, outputs: TargetLike, rows: LabelRows, labels: Any) -> Labelled:
    """Compare labels with predictions, in one pass over the target; another target is refused."""
    if not isinstance(est, AccuracyEstimator):
        raise GdscoreError(f"Expected a fitted `AccuracyEstimator`, but got {type(est).__name__}")
    if not isinstance(rows, LabelRows):
        raise GdscoreError(f"Expected the `LabelRows` that `choose` returned, but got {type(rows).__name__}")
    predicted, names, free = _predictions(est, stream(outputs() if callable(outputs) else outputs, "outputs"), rows)
    classes = as_classes(labels, rows, est.n_classes_, same_class_names(names, est.class_names_))
    used = np.flatnonzero(classes != NOT_LABELLED)
    if not (classes >= 0).any():
        raise GdscoreError(f"Expected at least one label for the {len(rows)} rows that were drawn, but there is none")
    classes, predicted = classes[: used[-1] + 1], predicted[: used[-1] + 1]
    return Labelled(rows, classes == predicted, classes >= 0, free)


def _predictions(
    est: AccuracyEstimator, parts: Iterable[Outputs], rows: LabelRows
) -> tuple[NDArray[np.int64], tuple[str, ...] | None, Estimate]:
    """Predicted classes of the drawn rows, names of the classes, and the estimate without labels."""
    mark, state, names = FingerprintSum(), est.state(), None
    found = np.full(len(rows), -1, dtype=np.int64)
    place = None if rows.ids is None else {str(key): i for i, key in enumerate(rows.ids.tolist())}
    by_row = np.argsort(rows.rows)
    for part in parts:
        start = mark.rows
        mark.add(part)
        state.update(part)
        names = same_class_names(names, part.class_names)
        predictions = arrays.to_numpy(part.predictions)
        if place is None:
            first, last = np.searchsorted(rows.rows[by_row], [start, start + len(part)])
            slots = by_row[first:last]
            found[slots] = predictions[rows.rows[slots] - start]
        elif mark.with_ids:
            ids = arrays.to_numpy(part.ids).astype(np.str_)
            for i in np.flatnonzero(np.isin(ids, list(place))).tolist():
                slot = place[ids[i]]
                if found[slot] >= 0:
                    raise GdscoreError(f"Expected ids that name one row each, but {ids[i]!r} names two")
                found[slot] = predictions[i]
    same = mark.rows == rows.n_rows and mark.text == rows.fingerprint
    if not same or (place is not None) != mark.with_ids or (found < 0).any():
        raise GdscoreError(
            f"Expected the {rows.n_rows:,} rows of the target that were drawn from, but these are {mark.rows:,} rows "
            "of another one (other ids, or other logits or their order where there are no ids): give the same outputs"
        )
    return found, names, est.estimate_state(state)


def _warnings(
    labels: int, unknown: int, right: NDArray[np.bool_], ends: tuple[float, float], free: Estimate | None
) -> list[EstimateWarning]:
    found = []
    open_rows = ends[0] < ends[1]  # where all rows are labelled, nothing is left to estimate
    if open_rows and labels < FEW_LABELS:
        count = f"{labels} labels give" if labels > 1 else "1 label gives"
        found.append(EstimateWarning("few_labels", "info", f"{count} a wide interval: label 20 or more"))
    if open_rows and (right.all() or not right.any()):
        word = "right" if right.all() else "wrong"
        found.append(
            EstimateWarning(
                f"all_{word}",
                "info",
                f"all {labels} labelled rows are predicted {word}; the interval covers what the others may be",
            )
        )
    if unknown:
        found.append(
            EstimateWarning(
                "could_not_tell",
                "warning",
                f"{unknown} rows before the last labelled one have no label: the low end of the interval counts them "
                "as wrong, the high end as right. Labelling them narrows it",
            )
        )
    if free is not None and (free.high < ends[0] or free.low > ends[1]):
        found.append(
            EstimateWarning(
                "label_free_missed",
                "warning",
                f"without labels the estimate was {free.accuracy:.1%} ({free.low:.1%} to {free.high:.1%}), which the "
                "labels contradict: do not rely on it for data like this",
            )
        )
    return found
