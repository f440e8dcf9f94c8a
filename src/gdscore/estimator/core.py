"""`AccuracyEstimator`: fitted on a labelled reference and shifted copies of it, estimates accuracy without labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from gdscore import _arrays as arrays
from gdscore._options import choice, integer, number
from gdscore._progress import progress_bar
from gdscore._stream import stream
from gdscore.calibration import find_temperature
from gdscore.errors import GdscoreError
from gdscore.estimator import storage
from gdscore.estimator.checks import (
    Fingerprint,
    given_mix,
    labelled_reference,
    reference_warnings,
    set_rows,
    target_warnings,
)
from gdscore.estimator.correctness import ClassCounts, Correction, SetRows, ShiftedSetTable, sampling_error
from gdscore.estimator.direct import ScoreLine
from gdscore.estimator.estimate import (
    ConfidenceHistogram,
    Estimate,
    EstimateWarning,
    most_severe_first,
)
from gdscore.estimator.evidence import Evidence, Floats, Profile, Rows
from gdscore.estimator.settings import SETTINGS
from gdscore.outputs import Outputs
from gdscore.scores.base import Score
from gdscore.scores.registry import create_score, list_scores
from gdscore.shifts.defaults import default_shifts
from gdscore.shifts.sets import ShiftedSet, as_predictor, checked_shifts, parts_of, predicted, shifted_sets

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["AccuracyEstimator"]

CORRECTNESS = "correctness"


class AccuracyEstimator(BaseEstimator):  # type: ignore[misc]
    """Accuracy of a classifier on unlabelled data, with an interval.

    Every row gets a probability that its prediction is right: confidence as calibrated on the reference, corrected by
    how far the target's mean confidence and mean distance to the predicted classes have moved. Shifted copies of the
    reference teach the correction. The accuracy is the mean of that probability. docs/estimator.md tells it in full.

    Parameters
    ----------
    level : float, default 0.9
        Share of intervals that are meant to hold the true accuracy.
    class_mix : {"unknown", "stable"} or array of shape (K,), default "unknown"
        What is known of the target's mix of classes. ``unknown``: nothing. ``stable``: it is the reference's, so that
        no more rows can be right for a class than the reference has of it. An array: the shares of the classes.
    method : str, default "correctness"
        As above; or the name of a score, for the straight line from that score to accuracy as in the GdScore paper.
    seed : int, default 0
        Of class mixes and default shifts.

    Attributes
    ----------
    reference_accuracy_ : float
        Accuracy on the reference.
    shifted_sets_ : ShiftedSetTable
        The shifted sets: family, accuracy, and the estimate without the family.
    left_out_error_ : float
        Mean absolute error of those estimates; NaN without shifted sets.
    n_families_ : int
        Families of shifts, those of compositions counted one by one.

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> rng = np.random.default_rng(0)
    >>> def outputs(rows, noise):
    ...     y = rng.integers(0, 5, rows)
    ...     x = np.eye(5)[y] * 3 + noise * rng.normal(size=(rows, 5))
    ...     return gdscore.Outputs(logits=2 * x, features=x, labels=y)
    >>> sets = [gdscore.ShiftedSet(outputs(1000, 1 + 0.2 * k), f"noise {k % 3}") for k in range(9)]
    >>> est = gdscore.AccuracyEstimator().fit(outputs(2000, 1.0), shifted_sets=sets)
    >>> target = outputs(2000, 1.7)
    >>> e = est.estimate(target)
    >>> e.low <= target.accuracy <= e.high
    True
    """

    def __init__(
        self, level: float = 0.9, *, class_mix: Any = "unknown", method: str = CORRECTNESS, seed: int = 0
    ) -> None:
        self.level = level
        self.class_mix = class_mix
        self.method = method
        self.seed = seed

    # -- fitting --------------------------------------------------------------------------------------------

    def fit(
        self,
        reference: Outputs | Iterable[Outputs],
        *,
        shifted_sets: Iterable[ShiftedSet] | None = None,
        progress: bool | None = None,
    ) -> Self:
        """Learn from labelled outputs of the reference and, if given, of shifted sets.

        Parameters
        ----------
        reference : Outputs or iterable of Outputs
            Labelled, of the training distribution, not used in training.
        shifted_sets : iterable of ShiftedSet, optional
            Labelled outputs under shifts. Without them confidence is calibrated on the reference alone.
        progress : bool, optional
            Progress bar on standard error; by default where that is a terminal.
        """
        return self._fit(labelled_reference(reference), shifted_sets, progress)

    def fit_predictor(
        self,
        predict: Any,
        inputs: Any,
        labels: Any,
        *,
        shifts: Iterable[Callable[[Any], Any]] | None = None,
        time: Any = None,
        batch_size: int = 512,
        progress: bool | None = None,
    ) -> Self:
        """Learn from a classifier and labelled inputs, which are shifted in many ways.

        The classifier is run once on the inputs and once for every shift; by default that is 116 times for images, 50
        times for tables and 36 times for texts. Fewer ``shifts`` or fewer inputs make it cheaper.

        Parameters
        ----------
        predict : callable or fitted scikit-learn classifier
            From a batch of inputs to `Outputs` or to probabilities of shape (m, K).
        inputs : array, data frame, sparse matrix or list of texts
            Labelled inputs of the training distribution, rows first; images are N×C×H×W.
        labels : array of shape (N,)
            Their classes: 0 … K−1, or as the scikit-learn classifier names them.
        shifts : iterable of callables, optional
            From inputs to inputs; the attribute ``family`` names the family of each. By default those of
            `gdscore.shifts.default_shifts`.
        time : array of shape (N,), optional
            Time of each row of a table: periods of the reference become shifted sets too.
        batch_size : int
            Inputs given to ``predict`` at once.
        progress : bool, optional
            Progress bar on standard error; by default where that is a terminal.
        """
        integer("batch_size", batch_size, least=1)
        chosen = default_shifts(inputs, time=time, seed=self.seed) if shifts is None else checked_shifts(shifts)
        function, classes = as_predictor(predict, inputs, labels)
        reference = labelled_reference(predicted(function, inputs, classes, None, batch_size))
        sets = shifted_sets(function, inputs, classes, chosen, batch_size=batch_size, progress=progress)
        return self._fit(reference, sets, progress=False)

    def _fit(self, reference: Outputs, sets: Iterable[ShiftedSet] | None, progress: bool | None) -> Self:
        number("level", self.level, above=0, most=0.999)
        integer("seed", self.seed, least=0)
        if self.method != CORRECTNESS:
            choice("method", self.method, (CORRECTNESS, *list_scores()))
        given_mix(self.class_mix, int(reference.n_classes or 0))
        score = None if self.method == CORRECTNESS else _fitted_score(self.method, reference)
        temperature = find_temperature(reference)
        profile, own = Profile.of(reference, temperature.value if temperature.determined else 1.0)
        labels = arrays.to_numpy(reference.labels)
        kept: list[SetRows] = []
        scores: list[float] = []
        with progress_bar(0, False if sets is None else progress, "sets") as advance:
            for shifted in sets or ():
                kept.append(set_rows(shifted, profile, reference, labels))
                if score is not None:
                    scores.append(score.reset().update(shifted.outputs).compute())
                advance(1)
        if sets is not None and not kept:
            raise GdscoreError("Expected `shifted_sets` to hold sets, but it is empty: leave it out or give some")
        correction, table = Correction.fit(profile, own, kept, self.seed)
        line = None
        if score is not None:
            line, table = ScoreLine.fit(
                self.method, np.array(scores), [s.family for s in kept], table.accuracy, table.rows.astype(float)
            )
        self.correction_, self.line_, self.score_ = correction, line, None if score is None else score.reset()
        self.shifted_sets_: ShiftedSetTable = table
        self.farthest_ = max(
            (float(np.abs(correction.moved(s.rows.evidence.mean(axis=0))).max()) for s in kept), default=0.0
        )
        self.reference_accuracy_, self.reference_rows_ = reference.accuracy, len(reference)
        self.n_classes_, self.n_features_ = len(profile.mix), reference.n_features
        self.class_names_ = reference.class_names
        self.fingerprint_ = Fingerprint.of(reference)
        self.reference_confidence_ = _histogram(Evidence(self.n_classes_, own.evidence.shape[1]).add(own), own, labels)
        return self

    @property
    def left_out_error_(self) -> float:
        """Mean absolute error on shifted sets whose family was left out."""
        errors = np.abs(self.shifted_sets_.predicted - self.shifted_sets_.accuracy)
        return float(np.nanmean(errors)) if np.isfinite(errors).any() else math.nan

    @property
    def n_families_(self) -> int:
        """Families of shifts that the estimator was fitted on."""
        return len(frozenset[str]().union(*map(parts_of, self.shifted_sets_.families)))

    # -- estimating -----------------------------------------------------------------------------------------

    @overload
    def estimate(self, outputs: Outputs | Iterable[Outputs], by: None = None) -> Estimate: ...
    @overload
    def estimate(self, outputs: Outputs | Iterable[Outputs], by: Any) -> dict[Any, Estimate]: ...
    def estimate(self, outputs: Outputs | Iterable[Outputs], by: Any = None) -> Estimate | dict[Any, Estimate]:
        """Estimate the accuracy on the population that unlabelled rows come from, in one pass over them.

        Parameters
        ----------
        outputs : Outputs or iterable of Outputs
            Outputs of the target.
        by : sequence, or iterable of sequences for a stream, optional
            Segment of each row, such as a country or a day: one estimate for each, worst first.
        """
        self._check_fitted()
        if by is None:
            state = self.state()
            for part in stream(outputs, "outputs"):
                state.update(part)
            return self.estimate_state(state)
        states: dict[Any, TargetState] = {}
        parts = list(stream(outputs, "outputs")) if isinstance(outputs, Outputs) else stream(outputs, "outputs")
        segments = [by] if isinstance(outputs, Outputs) else by
        for part, names in _zipped(parts, segments):
            for name, rows in _groups(names, len(part)):
                states.setdefault(name, self.state()).update(part[rows])
        found = {name: self.estimate_state(state) for name, state in states.items()}
        return dict(sorted(found.items(), key=lambda item: item[1].accuracy))

    def state(self) -> TargetState:
        """Empty state of a target: `update` it with outputs, `merge` it with others, give it to `estimate_state`."""
        self._check_fitted()
        return TargetState(self)

    def estimate_state(self, state: TargetState) -> Estimate:
        """Estimate of the rows that a state has seen."""
        if not state.rows:
            raise GdscoreError("Expected a target with rows, but the state has seen none")
        evidence, correction = state.evidence, self.correction_
        counts = ClassCounts.of(correction, evidence)
        given = given_mix(self.class_mix, self.n_classes_)
        mix = correction.profile.mix if given is None else given
        assumptions = {"unknown": counts.accuracy, "stable": counts.capped(correction.profile.mix).accuracy}
        moved = correction.moved(evidence.mean())
        shifted = float(np.abs(moved).max()) > max(SETTINGS.moved, 3 / math.sqrt(evidence.rows))
        capped = isinstance(self.class_mix, str) and self.class_mix == "unknown"
        used = counts if capped else counts.capped(mix)
        warnings = self._warnings(evidence, moved, state.same_model)
        scores = dict(zip(("confidence", "distance"), moved.tolist(), strict=False))
        if self.line_ is not None and state.score is not None:
            value = state.score.compute()
            accuracy = self.line_.accuracy(value)
            half = self.line_.half_width(accuracy, evidence.rows, self.level)
            low, high = max(0.0, accuracy - half), min(1.0, accuracy + half)
            scores = {self.method: value}
        else:
            accuracy = min(max(used.accuracy, 0.0), 1.0)
            half = math.hypot(
                correction.expected_error(accuracy, self.level), sampling_error(accuracy, evidence.rows, self.level)
            )
            low, high = max(0.0, accuracy - half), min(1.0, accuracy + half)
            if capped and shifted and assumptions["stable"] < low:
                warnings.append(
                    EstimateWarning(
                        "class_mix",
                        "warning",
                        f"if the target has the reference's mix of classes, accuracy is about "
                        f"{assumptions['stable']:.0%}; the interval covers that too. class_mix='stable' assumes it",
                    )
                )
            if capped and shifted:
                low = min(low, assumptions["stable"])
        per_class, f1 = used.per_class(correction, evidence, low, high, self.level, self.class_names_)
        return Estimate(
            accuracy=accuracy,
            low=low,
            high=high,
            level=float(self.level),
            n=evidence.rows,
            reference_accuracy=self.reference_accuracy_,
            class_mix=self.class_mix if isinstance(self.class_mix, str) else "given",
            method=self.method,
            assumptions=assumptions,
            per_class=per_class,
            f1=f1,
            warnings=most_severe_first(_distinct(warnings)),
            scores=scores,
            confidence=ConfidenceHistogram(evidence.confidence[0].tolist(), evidence.confidence[1].tolist()),
        )

    def predict_correct(self, outputs: Outputs) -> NDArray[np.float64]:
        """Probability that each row's prediction is right, given all rows; its mean is the estimated accuracy."""
        self._check_fitted()
        if not isinstance(outputs, Outputs):
            raise GdscoreError(f"Expected `gdscore.Outputs`, but got {type(outputs).__name__}")
        self._check_shape(outputs)
        rows = self.correction_.profile.rows(outputs)
        found = self.correction_.probability(rows.calibrated, rows.evidence.mean(axis=0))
        if isinstance(self.class_mix, str) and self.class_mix == "unknown":
            return found
        given = given_mix(self.class_mix, self.n_classes_)
        mix = self.correction_.profile.mix if given is None else given
        expected = np.bincount(rows.predicted, weights=found, minlength=self.n_classes_) / len(found)
        return np.asarray(found * np.minimum(1, mix / np.maximum(expected, 1e-300))[rows.predicted])

    def _warnings(self, evidence: Evidence, moved: Floats, same_model: bool) -> list[EstimateWarning]:
        return [
            *reference_warnings(
                self.reference_rows_, self.reference_accuracy_, self.n_classes_, len(self.shifted_sets_.families)
            ),
            *target_warnings(
                rows=evidence.rows,
                predicted=evidence.histogram.sum(axis=1) / evidence.rows,
                reference_mix=self.correction_.profile.predicted_mix,
                moved=moved,
                farthest=self.farthest_,
                same_model=same_model,
            ),
        ]

    def _check_fitted(self) -> None:
        if not hasattr(self, "correction_"):
            raise GdscoreError("Expected a fitted estimator: call fit, fit_predictor or load first")

    def _check_shape(self, outputs: Outputs) -> None:
        for what, there, here in (
            ("classes", self.n_classes_, outputs.n_classes),
            ("features", self.n_features_, outputs.n_features),
        ):
            if there is not None and here != there:
                came = "none" if here is None else here
                raise GdscoreError(
                    f"Expected outputs with {there} {what} as the reference has, but they have {came}: are they of "
                    "another model, or extracted without features?"
                )

    # -- files ----------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to one file: plain arrays, no pickle, all or nothing."""
        self._check_fitted()
        storage.save(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read an estimator that `save` wrote."""
        estimator: Self = storage.load(cls, path)
        return estimator


class TargetState:
    """What an estimate needs of a target: sums over its rows, which merge in any order.

    Attributes
    ----------
    rows : int
        Rows seen.
    """

    def __init__(self, estimator: AccuracyEstimator) -> None:
        self._estimator = estimator
        profile = estimator.correction_.profile
        self.evidence = Evidence(len(profile.mix), len(profile.mean))
        self.same_model = True
        # A copy of its own, so that several states can be filled at once.
        self.score: Score | None = None if estimator.score_ is None else _copied(estimator.score_)

    @property
    def rows(self) -> int:
        """Rows seen."""
        return self.evidence.rows

    def update(self, outputs: Outputs) -> Self:
        """Take in more rows."""
        self._estimator._check_shape(outputs)
        self.evidence.add(self._estimator.correction_.profile.rows(outputs))
        mark = self._estimator.fingerprint_
        if self.same_model and mark is not None:
            self.same_model = mark.matches(outputs)
        if self.score is not None:
            self.score.update(outputs)
        return self

    def merge(self, other: TargetState) -> Self:
        """Take in the rows of another state of the same estimator."""
        self.evidence.merge(other.evidence)
        self.same_model = self.same_model and other.same_model
        if self.score is not None and other.score is not None:
            self.score.merge(other.score)
        return self


def _fitted_score(name: str, reference: Outputs) -> Score:
    score = create_score(name)
    return score.fit(reference) if score.reference_inputs else score


def _copied(score: Score) -> Score:
    from copy import copy

    return copy(score).reset()


def _histogram(evidence: Evidence, rows: Rows, labels: NDArray[Any]) -> ConfidenceHistogram:
    bins = evidence.confidence.shape[1]
    level = np.minimum((rows.confidence * bins).astype(np.int64), bins - 1)
    right = np.bincount(level, weights=rows.predicted == labels, minlength=bins)
    return ConfidenceHistogram(evidence.confidence[0].tolist(), evidence.confidence[1].tolist(), right.tolist())


def _zipped(parts: Iterable[Outputs], segments: Iterable[Any]) -> Iterator[tuple[Outputs, Any]]:
    names = iter(segments)
    for part in parts:
        try:
            yield part, next(names)
        except StopIteration:
            raise GdscoreError("Expected `by` to have segments for every part of the stream, but it ended") from None


def _groups(names: Any, rows: int) -> Iterator[tuple[Any, NDArray[Any]]]:
    """Rows of each segment, in the order of their first appearance."""
    listed = arrays.to_numpy(names) if arrays.is_array(names) else np.asarray(names, dtype=object)
    if listed.shape != (rows,):
        raise GdscoreError(f"Expected `by` to name a segment for each of {rows} rows, but its shape is {listed.shape}")
    index: dict[Any, list[int]] = {}
    for row, name in enumerate(listed.tolist()):
        index.setdefault(name, []).append(row)
    for name, found in index.items():
        yield name, np.array(found)


def _distinct(warnings: Iterable[EstimateWarning]) -> list[EstimateWarning]:
    """Warnings with one of a code, the last one."""
    return list({w.code: w for w in warnings}.values())
