"""`estimate`: the accuracy of a target from labels of a few of its rows.

The interval is that of Agresti and Coull for an effective number of labels.

Labels of rows that are spread over the order by predicted class and predicted correctness tell more than labels of
random rows, by as much as right and wrong predictions are apart in that order. With right and wrong of the n labelled
rows in order, y₁ … yₙ, half the mean squared successive difference estimates the variance that is left [1]_; where the
order tells nothing it is that of random rows, and where accuracy changes along the order it errs to the wide side. The
effective number of labels is [2]_

    n / ( ratio · (1 − ratio (n − 1)/(N − 1)) ),     ratio = 1 − (1 − v/s²) n/(n + 15),

where v is that half mean, s² the variance of y and the ratio at most 1: below 15 labels it counts for less than half.
The second factor is for the n of N rows that are known: for random rows (ratio 1) it is (N − n)/(N − 1), as for every
sample without replacement. Where the order tells right from wrong, the variance that is left comes from the few rows at
which right becomes wrong, and knowing the others does not lower it. The interval of a share with so many labels is
Agresti and Coull's [3]_, which covers near 0 and 1 too; its ends are rounded outwards to multiples of 1/N.

References
----------
.. [1] K. M. Wolter, "Introduction to Variance Estimation", 2007, chapter 8: systematic sampling.
.. [2] E. L. Korn, B. I. Graubard, "Confidence intervals for proportions with small expected number of positive counts
   estimated from survey data", Survey Methodology 1998.
.. [3] A. Agresti, B. A. Coull, "Approximate is better than exact for interval estimation of binomial proportions",
   The American Statistician 1998.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore._checks import number
from gdscore._stream import segment_codes, stream
from gdscore.errors import GdscoreError
from gdscore.estimator import AccuracyEstimator, Estimate, EstimateWarning, Quantity
from gdscore.estimator.core import fitted_of
from gdscore.estimator.estimate import most_severe_first, quantile_of
from gdscore.labeling.choice import FingerprintSum, TargetLike, as_probabilities, check_count
from gdscore.labeling.rows import NOT_LABELLED, LabelRows, as_classes
from gdscore.outputs import Outputs, same_class_names

Floats = NDArray[np.float64]
PRIOR_LABELS = 15
"""Labels that the variance of random rows counts as; ``benchmarks/estimates/few_labels.py`` compares others with it."""


def variance_ratio(correct: NDArray[Any]) -> Floats:
    """Variance relative to that of random rows; for ``correct`` see `interval`.

    Examples
    --------
    >>> float(variance_ratio(np.array([0] * 25 + [1] * 75)).round(3)), float(variance_ratio(np.array([0, 1] * 50)))
    (0.154, 1.0)
    """
    y = np.asarray(correct, dtype=np.float64)
    n = y.shape[-1]
    if n < 3:
        return np.ones(y.shape[:-1])
    variance = y.var(axis=-1, ddof=1)
    successive = np.square(np.diff(y, axis=-1)).sum(axis=-1) / (2 * (n - 1))
    plain = np.where(variance > 0, np.minimum(successive / np.maximum(variance, 1e-12), 1.0), 1.0)
    return np.asarray(1 - (1 - plain) * n / (n + PRIOR_LABELS))


def interval(correct: NDArray[Any], n_rows: int, level: float, ratio: Any = None) -> tuple[Floats, Floats]:
    """Low and high end of the interval for the accuracy on the N = ``n_rows`` rows of the target.

    ``correct``, shape (…, n), tells whether the labelled rows are predicted right, in the order of their predicted
    correctness. ``ratio`` is the variance relative to that of random rows, by default `variance_ratio`.

    Examples
    --------
    >>> low, high = interval(np.array([0] * 10 + [1] * 40), 1000, 0.9)
    >>> print(f"{low:.3f} {high:.3f}")
    0.746 0.845
    """
    n = correct.shape[-1]
    count = np.asarray(correct, dtype=np.float64).sum(axis=-1)
    share = count / n
    low, high = _agresti_coull(share, _effective(n, n_rows, variance_ratio(correct) if ratio is None else ratio), level)
    # The labelled rows are known: the others can make no more than all of them right or wrong.
    low, high = np.floor(low * n_rows + 1e-9) / n_rows, np.ceil(high * n_rows - 1e-9) / n_rows
    return np.maximum(low, count / n_rows), np.minimum(high, (count + n_rows - n) / n_rows)


def _effective(labels: int, n_rows: int, ratio: Any) -> Any:
    """Effective number of labels."""
    left = 1 - ratio * (labels - 1) / max(n_rows - 1, 1)
    return labels / np.maximum(ratio * left, 1e-9)


def _agresti_coull(share: Any, labels: Any, level: float) -> tuple[Floats, Floats]:
    z2 = quantile_of(level) ** 2
    centre = (share * labels + z2 / 2) / (labels + z2)
    half = np.sqrt(z2 * centre * (1 - centre) / (labels + z2))
    return np.maximum(centre - half, 0.0), np.minimum(centre + half, 1.0)


def labels_for(half_width: float, share: float, ratio: float, n_rows: int, level: float) -> int:
    """Labels after which the interval is expected to reach no further than ``half_width`` to each side on average.

    Examples
    --------
    >>> labels_for(0.05, 0.8, 1.0, 100_000, 0.9)
    174
    """
    fewest, most = 1, n_rows
    while fewest < most:
        n = (fewest + most) // 2
        low, high = _agresti_coull(share, _effective(n, n_rows, ratio), level)
        fewest, most = (fewest, n) if high - low <= 2 * half_width else (n + 1, most)
    return fewest


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
    variance_ratio : float
        Variance relative to that of random rows.
    """

    labels: int = 0
    could_not_tell: int = 0
    to_label: int = 0
    effective_labels: float = 0.0
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
        looked_at = self.labels + self.could_not_tell
        needed = labels_for(half_width, self.accuracy, self.variance_ratio, self.n_rows, self.level)
        return min(max(needed - looked_at, 1), self.n_rows - looked_at)


def estimate(
    est: AccuracyEstimator, outputs: TargetLike, rows: LabelRows, labels: Any, *, right: Any = None
) -> LabelledEstimate:
    """Estimate the accuracy on the rows of a target from labels of the rows that `choose` drew.

    Rows drawn at random make the interval cover at about its level, whatever has shifted. Its width depends on how well
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
    right : array of shape (N,), optional
        The probabilities that `choose` was given. Their mean is then the estimate without labels, ``label_free``; the
        interval from the labels needs the drawn rows alone.

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
    labelled = labelled_rows(est, outputs, rows, labels)
    made = labelled.estimate(est, np.arange(labelled.count), rows.n_rows)
    if right is None:
        return made
    probabilities = as_probabilities(right)
    check_count(probabilities, rows.n_rows)
    if not np.allclose(probabilities[rows.rows], rows.predicted_correct, atol=1e-6):
        raise GdscoreError("Expected the `right` that rows were drawn with, but it differs: give it to `choose` too")
    others = [warning for warning in made.warnings if not warning.code.startswith("label_free_")]
    return replace(made, label_free=Quantity(float(probabilities.mean())), warnings=others)


def estimate_segments(
    est: AccuracyEstimator, outputs: TargetLike, rows: LabelRows, labels: Any
) -> dict[Any, LabelledEstimate]:
    """Estimate the accuracy in each segment that has labels, worst first; rows were drawn with ``by``.

    Parameters are those of `estimate`. Each interval is valid by itself; that all of them hold at once is less likely.
    """
    if rows.segments is None:
        raise GdscoreError("Expected rows that were drawn by segment, but these were not: use choose(…, by=segments)")
    labelled = labelled_rows(est, outputs, rows, labels)
    keys, codes = segment_codes({"": rows.segments[: labelled.count]}, labelled.count)
    made = {
        key: labelled.estimate(est, np.flatnonzero(codes == number), rows.segment_rows[key], all_rows=False)
        for number, key in enumerate(keys)
        if labelled.has_label[codes == number].any()
    }
    return dict(sorted(made.items(), key=lambda item: item[1].accuracy))


@dataclass(frozen=True)
class Labelled:
    """Drawn rows up to the last labelled one, in the order of drawing."""

    rows: LabelRows  # all drawn rows
    # Shape (t,): whether the label equals the prediction, and whether there is a label
    correct: NDArray[np.bool_]
    has_label: NDArray[np.bool_]
    label_free: Estimate  # the estimate without labels

    @property
    def count(self) -> int:
        """Rows up to the last labelled one."""
        return len(self.correct)

    def estimate(
        self, est: AccuracyEstimator, chosen: NDArray[np.int64], n_rows: int, all_rows: bool = True
    ) -> LabelledEstimate:
        """Estimate of the ``n_rows`` rows that the chosen ones were drawn from."""
        chosen = chosen[np.argsort(self.rows.ranks[chosen])]
        correct, has_label = self.correct[chosen], self.has_label[chosen]
        labels, without_label = int(has_label.sum()), int((~has_label).sum())
        # Random rows gain nothing from the order; with unknown ones the gain cannot be known.
        plain = without_label > 0 or self.rows.design != "stratified"
        ratio = 1.0 if plain else float(variance_ratio(correct))
        low = float(interval(correct & has_label, n_rows, float(est.level), ratio)[0])
        high = float(interval(correct | ~has_label, n_rows, float(est.level), ratio)[1])
        accuracy = min(max(float(correct[has_label].mean()), low), high)
        free = self.label_free
        return LabelledEstimate(
            accuracy=accuracy,
            low=low,
            high=high,
            level=float(est.level),
            n_rows=n_rows,
            reference_accuracy=est.reference_accuracy_,
            class_mix=free.class_mix,
            method="labels",
            labels=labels,
            could_not_tell=without_label,
            to_label=len(self.rows) - self.count if all_rows else 0,
            effective_labels=float(min(labels / max(ratio, 1e-9), n_rows)),
            label_free=Quantity(free.accuracy, free.low, free.high) if all_rows else None,
            variance_ratio=ratio,
            warnings=most_severe_first(
                _warnings(labels, without_label, correct[has_label], (low, high), free if all_rows else None)
            ),
        )


def labelled_rows(est: AccuracyEstimator, outputs: TargetLike, rows: LabelRows, labels: Any) -> Labelled:
    """Compare labels with predictions, in one pass over the target; another target is refused."""
    fitted_of(est)
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
    predicted = np.full(len(rows), -1, dtype=np.int64)
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
            predicted[slots] = predictions[rows.rows[slots] - start]
        elif mark.with_ids:
            ids = arrays.to_numpy(part.ids).astype(np.str_)
            for i in np.flatnonzero(np.isin(ids, list(place))).tolist():
                slot = place[ids[i]]
                if predicted[slot] >= 0:
                    raise GdscoreError(f"Expected ids that name one row each, but {ids[i]!r} names two")
                predicted[slot] = predictions[i]
    if (place is not None) != mark.with_ids:
        forgotten = "these outputs have none: name their column as before (--id COLUMN, id=)"
        added = "these are: leave out the column of ids (--id, id=)"
        raise GdscoreError(
            "Expected the target that rows were drawn from: its rows were "
            + (f"named by ids, and {forgotten}" if place is not None else f"not named by ids, and {added}")
        )
    same = mark.rows == rows.n_rows and mark.text == rows.fingerprint
    if not same or (predicted < 0).any():
        raise GdscoreError(
            f"Expected the {rows.n_rows:,} rows of the target that were drawn from, but these are {mark.rows:,} rows "
            "of another one (other ids, or other logits or their order where there are no ids): give the same outputs"
        )
    return predicted, names, est.estimate(state)


def _warnings(
    labels: int, unknown: int, correct: NDArray[np.bool_], ends: tuple[float, float], free: Estimate | None
) -> Iterator[EstimateWarning]:
    open_rows = ends[0] < ends[1]  # where all rows are labelled, nothing is left to estimate
    if open_rows and labels < FEW_LABELS:
        count = f"{labels} labels give" if labels > 1 else "1 label gives"
        yield EstimateWarning("few_labels", "info", f"{count} a wide interval: label 20 or more")
    if open_rows and (correct.all() or not correct.any()):
        word = "right" if correct.all() else "wrong"
        message = f"all {labels} labelled rows are predicted {word}; the interval covers what the others may be"
        yield EstimateWarning(f"all_{word}", "info", message)
    if unknown:
        yield EstimateWarning(
            "could_not_tell",
            "warning",
            f"{unknown} rows before the last labelled one have no label: the low end of the interval counts them "
            "as wrong, the high end as right. Labelling them narrows it",
        )
    if free is None:
        return
    was = f"without labels the estimate was {free.accuracy:.1%} ({free.low:.1%} to {free.high:.1%}), "
    if free.high < ends[0] or free.low > ends[1]:
        message = f"{was}which the labels contradict: do not rely on it for data like this"
        yield EstimateWarning("label_free_missed", "warning", message)
    elif open_rows and not ends[0] <= free.accuracy <= ends[1]:
        message = f"{was}outside the interval of the labels, which its own interval meets: use the labelled estimate"
        yield EstimateWarning("label_free_outside", "info", message)
