"""`AccuracyEstimator`: fitted on a labelled reference and shifted copies of it, estimates accuracy without labels."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence, Sized
from dataclasses import replace
from typing import Any, Self, overload

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from gdscore import _arrays as arrays
from gdscore._checks import choice, integer, number, share
from gdscore._drift import TableProfile
from gdscore._files import PathLike, atomic
from gdscore._stream import Batch, batches, labelled_reference, progress_bar
from gdscore.calibration import find_temperature
from gdscore.errors import GdscoreError, NoRowsError
from gdscore.estimator import fitted as learned
from gdscore.estimator.checks import (
    above_reference,
    begin_set,
    other_assumption,
    reference_warnings,
    target_warnings,
    unreachable_classes,
    weak_evidence,
)
from gdscore.estimator.class_mix import KnownMix, known_mix
from gdscore.estimator.correctness import Correction, SetSummary, explained_share
from gdscore.estimator.direct import ScoreLine
from gdscore.estimator.estimate import (
    ConfidenceHistogram,
    Estimate,
    Estimates,
    class_estimates,
    expected_brier,
    most_severe_first,
    sampling_error,
)
from gdscore.estimator.evidence import Evidence, Floats, Profile, by_confidence
from gdscore.estimator.fitted import CORRECTNESS, Fingerprint, Fitted, NotFittedError
from gdscore.estimator.settings import SETTINGS
from gdscore.estimator.state import TargetState, check_outputs
from gdscore.estimator.table import scaled_to, with_means
from gdscore.outputs import Outputs
from gdscore.scores.registry import create_score, list_scores
from gdscore.shifts.sets import (
    InputRows,
    Predictions,
    ShiftedSet,
    ShiftPasses,
    as_predictor,
    checked_shifts,
    default_shifts,
    parts_of,
)


class AccuracyEstimator(BaseEstimator):  # type: ignore[misc]
    """Accuracy of a classifier on unlabelled data, with an interval.

    Every row gets a probability that its prediction is right: confidence as calibrated on the reference, corrected by
    how far the target's mean confidence and mean distance to the predicted classes have moved. Shifted copies of the
    reference teach the correction. The accuracy is the mean of that probability. docs/estimator.md has it in full.

    Parameters
    ----------
    level : float, default 0.9
        Share of intervals that are meant to hold the true accuracy.
    class_mix : {"unknown", "stable", "estimated"}, array of shape (K,), dict or pandas Series, default "unknown"
        What is known of the target's mix of classes. ``unknown``: nothing; the estimate goes towards ``estimated`` as
        far as a class mix explains the outputs and, where rows look shifted, a learned part of the way to ``stable``.
        ``stable``: it is about the reference's. ``estimated``: nothing but the mix has moved. An array: the shares of
        the classes, in the order of the columns. A dict or a Series, such as ``y.value_counts()``: shares by the name
        of the class. A dict may leave classes out, which then share the rest as in the reference, and may hold ranges:
        ``{"fraud": (0.01, 0.03)}`` gives an interval over all of them.
    method : str, default "correctness"
        `"correctness"`, which is described above, or the name of a score, for the straight line of the GdScore paper.
    seed : int, default 0
        Seed of the default shifts.

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
    reference_confidence_ : ConfidenceHistogram
        Confidences of the reference, by bins.
    reference_rows_, n_classes_, n_features_, class_names_
        Size of the reference; features and names of classes are None where there are none.
    decision_ : str
        How its rows were decided, as `Outputs.decision`; rows of targets must be decided in the same way.

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
        class_names: Sequence[str] | None = None,
        batch_size: int = 512,
        progress: bool | None = None,
    ) -> Self:
        """Learn from a classifier and labelled inputs, which are shifted in many ways.

        The classifier is run once on the inputs and once for every shift; by default that is 116 times for images, 36
        to 54 times for tables and 36 times for texts. Fewer ``shifts`` or fewer inputs make it cheaper.

        Parameters
        ----------
        predict : callable or fitted scikit-learn classifier
            From a batch of inputs to `Outputs`, to probabilities of shape (m, K) or to a Hugging Face output.
        inputs : array, data frame, sparse matrix or list of texts
            Labelled inputs of the training distribution, rows first; images are N×C×H×W.
        labels : array of shape (N,)
            Their classes: 0 … K−1, as the scikit-learn classifier names them, or among ``class_names``.
        shifts : iterable of callables, optional
            From inputs to inputs; the attribute ``family`` names the family of each. By default those of
            `gdscore.shifts.default_shifts`.
        time : array of shape (N,), optional
            Time of each row of a table: periods of the reference become shifted sets too.
        class_names : sequence of K str, optional
            Names of the classes in the order of what a function returns; a scikit-learn classifier knows its own.
        batch_size : int
            Inputs given to ``predict`` at once.
        progress : bool, optional
            Progress bar on standard error; by default where that is a terminal.
        """
        integer("batch_size", batch_size, least=1)
        if shifts is not None and time is not None:
            raise GdscoreError(
                "Expected `time` without `shifts`, as it adds periods to the default shifts, but got both: give "
                "shifts=[*gdscore.shifts.table_shifts(inputs, time=time), …]"
            )
        chosen = default_shifts(inputs, time=time, seed=self.seed) if shifts is None else checked_shifts(shifts)
        function, classes = as_predictor(predict, inputs, labels, class_names)
        passes = ShiftPasses(InputRows(inputs), Predictions(function, classes), chosen, batch_size)
        reference = labelled_reference(passes.reference())
        profile = TableProfile.of(inputs)
        with progress_bar(len(chosen) * len(passes.inputs), progress) as advance:
            self._fit(reference, passes.shifted_sets(advance), progress=False)
        return self._with(replace(self.fitted_, table_profile=profile))

    def _fit(self, reference: Outputs, sets: Iterable[ShiftedSet] | None, progress: bool | None) -> Self:
        self._check_params(int(reference.n_classes or 0), reference.class_names)
        if sets is not None and (isinstance(sets, (Outputs, str)) or not isinstance(sets, Iterable)):
            raise GdscoreError(f"Expected `shifted_sets` to be a list of sets, but got {type(sets).__name__}")
        choice("method", self.method, (CORRECTNESS, *list_scores()))
        score = None if self.method == CORRECTNESS else create_score(self.method)
        if score is not None and score.reference_inputs:
            score.fit(reference)
        temperature = find_temperature(reference)
        profile, reference_evidence = Profile.of(reference, temperature.value if temperature.determined else 1.0)
        labels = arrays.to_numpy(reference.labels)
        kept: list[SetSummary] = []
        begun: deque[Callable[[], SetSummary]] = deque()
        values: list[float] = []
        total = len(sets) if isinstance(sets, Sized) else None
        with progress_bar(total, False if sets is None else progress, "sets") as advance:
            for shifted in sets or ():
                begun.append(begin_set(shifted, profile, reference, labels))
                if score is not None:
                    values.append(score.reset().update(shifted.outputs).compute())
                # One set behind: an accelerator has the next set to work on while this one is summed up here.
                if len(begun) > 1:
                    kept.append(begun.popleft()())
                advance(1)
            kept.extend(finish() for finish in begun)
        if sets is not None and not kept:
            raise GdscoreError("Expected `shifted_sets` to hold sets, but it is empty: leave it out or give some")
        correction, table = Correction.fit(profile, reference_evidence, kept)
        line = None
        if score is not None:
            line, table = ScoreLine.fit(self.method, np.array(values), table)
        sums = by_confidence(
            reference_evidence.confidence,
            np.ones(len(labels)),
            reference_evidence.confidence,
            reference_evidence.predicted == labels,
        )
        fitted = Fitted(
            method=self.method,
            correction=correction,
            table=table,
            line=line,
            score=None if score is None else score.reset(),
            farthest=max((float(np.abs(correction.shift_in_sd(s.mean)).max()) for s in kept), default=0.0),
            reaction=_reaction(correction, kept, reference.accuracy),
            reference_accuracy=reference.accuracy,
            reference_rows=len(reference),
            n_features=reference.n_features,
            class_names=reference.class_names,
            fingerprint=Fingerprint.of(reference),
            confidence=ConfidenceHistogram(*sums.tolist()),
            decision=reference.decision,
        )
        return self._with(fitted)

    def _with(self, fitted: Fitted) -> Self:
        # The one object that estimates are made of: other threads and an interrupt see all of a fit or nothing of it.
        self.fitted_ = fitted
        self.reference_accuracy_ = fitted.reference_accuracy
        self.reference_rows_ = fitted.reference_rows
        self.reference_confidence_ = fitted.confidence
        self.shifted_sets_ = fitted.table
        self.left_out_error_ = math.nan if fitted.table.left_out_error is None else fitted.table.left_out_error
        self.n_families_ = len(frozenset[str]().union(*map(parts_of, fitted.table.families)))
        self.n_classes_ = fitted.n_classes
        self.n_features_ = fitted.n_features
        self.class_names_ = fitted.class_names
        self.decision_ = fitted.decision
        return self

    # -- estimating -----------------------------------------------------------------------------------------

    @overload
    def estimate(
        self, outputs: Outputs | Iterable[Outputs], by: None = None, *, class_mix: Any = None, inputs: Any = None
    ) -> Estimate: ...
    @overload
    def estimate(
        self, outputs: Outputs | Iterable[Outputs], by: Any, *, class_mix: Any = None, inputs: Any = None
    ) -> Estimates: ...
    @overload
    def estimate(self, outputs: TargetState | Batch | Iterable[Batch], *, class_mix: Any = None) -> Any: ...
    def estimate(
        self, outputs: Any, by: Any = None, *, class_mix: Any = None, inputs: Any = None
    ) -> Estimate | Estimates:
        """Estimate the accuracy on the population that unlabelled rows come from, in one pass over them.

        Parameters
        ----------
        outputs : Outputs, iterable of Outputs, or TargetState
            Outputs of the target; or the batches of `gdscore.io.read_batches`, which have segments; or a state of
            `state` that has seen them.
        by : array, column or data frame of columns, optional
            Segment of each row, such as a country or a day: one estimate for each, worst first, in a dict with
            ``to_frame()``. Several columns, in a data frame or a dict, make tuples. Missing values are the segment
            None. For a stream of outputs, an iterable with the segments of each part.
        class_mix : str or shares of the classes, optional
            What is known of this target's mix of classes; by default what the estimator was made with.
        inputs : data frame or matrix, optional
            Inputs of the same rows, where `fit_predictor` was given a table: ``Estimate.drift`` then names the columns
            that moved most. Of a stream, give the parts to `state` instead.
        """
        fitted = self._fitted()
        assumed = self._assumption(fitted, class_mix)
        if isinstance(outputs, TargetState):
            if by is not None or inputs is not None:
                raise GdscoreError("Expected a state alone, as it has its segments and inputs, but got more with it")
            outputs.check_like(TargetState(fitted))
            state = outputs
        elif inputs is not None:
            if not isinstance(outputs, Outputs):
                raise GdscoreError(
                    "Expected `inputs` with `Outputs` of the same rows, but got a stream: est.state().update(part, "
                    "inputs=…) takes both part by part"
                )
            state = TargetState(fitted).update(outputs, by, inputs)
        else:
            state = TargetState(fitted)
            for batch in batches(outputs, by):
                state.update(batch)
        estimates: dict[Any, Estimate] = {}
        for name, evidence in state.by_segment():
            try:
                estimates[name] = self._estimate(fitted, evidence, *assumed)
            except GdscoreError as error:  # of a score that needs more rows
                raise error if state.segments is None else GdscoreError(f"segment {name!r}: {error}") from error
        if not estimates:
            raise NoRowsError("Expected a target with rows, but the state has seen none")
        if state.segments is None:
            return estimates[None]
        truth = {name: seen.accuracy for name, seen in state.truth().items()}
        return Estimates(dict(sorted(estimates.items(), key=lambda item: item[1].accuracy)), truth, state.by or ())

    def state(self, data: bytes | None = None) -> TargetState:
        """State of a target, empty or of the bytes of one: `update` it with outputs, `merge` it, `estimate` it."""
        state = TargetState(self._fitted())
        return state if data is None else state.merge(TargetState.from_bytes(data))

    def _estimate(
        self, fitted: Fitted, evidence: Evidence, level: float, class_mix: str, mix_known: KnownMix | None
    ) -> Estimate:
        correction, mean, rows = fitted.correction, evidence.mean(), evidence.rows
        shift, shown = correction.shift_in_sd(mean), correction.cells(evidence)
        mix = _given_mix(correction, evidence, mix_known)
        assumed = correction.assumptions(evidence, mix)
        cells, best = assumed[class_mix]
        explained = float(explained_share(best, SETTINGS.strictness))
        warnings = [
            *reference_warnings(fitted),
            *target_warnings(fitted, evidence, shift, explained, class_mix, mix),
        ]
        joint = cells.joint()
        if fitted.line is not None and evidence.score is not None:
            value = evidence.score.compute()
            scores, accuracy = {fitted.method: value}, fitted.line.accuracy(value)
            half = fitted.line.half_width(accuracy, rows, level)
            joint = shown.joint().scaled(accuracy)
            low, high = max(accuracy - half, 0.0), min(accuracy + half, 1.0)
        else:
            scores, accuracy = dict(zip(("confidence", "distance"), shift.tolist(), strict=False)), joint.accuracy
            possible, unknown = [accuracy], float(assumed["unknown"][0].accuracy)
            if mix_known is not None and mix is not None:
                warnings.extend(unreachable_classes(fitted, shown.joint().mix, mix))
                possible += correction.farthest(shown, mix_known, mix, rows)
            ends = [
                math.hypot(
                    correction.expected_error(value, mean, rows, level, class_mix, unknown),
                    sampling_error(value, rows, level),
                    sampling_error(fitted.reference_accuracy, fitted.reference_rows, level),
                )
                for value in possible
            ]
            low = max(min(value - half for value, half in zip(possible, ends, strict=True)), 0.0)
            high = min(max(value + half for value, half in zip(possible, ends, strict=True)), 1.0)
            stable = float(assumed["stable"][0].accuracy)
            shifted = correction.looks_shifted(joint.predicted, mean, rows) > 0
            if class_mix == "unknown" and shifted and stable < low:
                warnings.append(other_assumption(stable))
        if any(w.code == "collapse" for w in warnings):
            # Predictions that crowd into few classes bound the accuracy from above only.
            low = 0.0
        warnings.extend(weak_evidence(fitted, low, high))
        noise = math.hypot(
            *(sampling_error(fitted.reference_accuracy, n, level) for n in (rows, fitted.reference_rows))
        )
        warnings.extend(above_reference(fitted, accuracy, shift, explained, rows, noise))
        per_class, f1 = class_estimates(joint, rows, low, high, level, fitted.class_names)
        brier = None
        if fitted.score is None:
            probability = correction.probability(evidence.bins(), mean)
            brier = expected_brier(evidence, probability, accuracy, low, high, level)
        return Estimate(
            accuracy=accuracy,
            low=low,
            high=high,
            level=level,
            n_rows=rows,
            reference_accuracy=fitted.reference_accuracy,
            class_mix=class_mix,
            method=fitted.method,
            assumptions={name: float(assumed[name][0].accuracy) for name in ("unknown", "stable", "estimated")},
            fits={name: float(1 / (1 + assumed[name][1].left)) for name in ("stable", "estimated")},
            class_mix_estimate=assumed["estimated"][1].mix.tolist(),
            per_class=per_class,
            f1=f1,
            warnings=most_severe_first({w.code: w for w in warnings}.values()),
            scores=scores,
            confidence=ConfidenceHistogram(*evidence.confidence.tolist()),
            left_out_error=fitted.table.left_out_error,
            brier=brier,
            drift=[] if fitted.table_profile is None else fitted.table_profile.moved(evidence.columns),
        )

    def predict_correct(self, outputs: Outputs) -> NDArray[np.float64]:
        """Probability that each row's prediction is right, given all rows; its mean is the estimated accuracy."""
        fitted = self._fitted()
        check_outputs(fitted, outputs)
        _, class_mix, mix_known = self._assumption(fitted, None)
        ((_, evidence),) = TargetState(fitted).update(outputs).by_segment()
        correction = fitted.correction
        rows = correction.profile.rows(outputs)
        p = correction.probability(rows.calibrated, evidence.mean())
        if fitted.line is not None and evidence.score is not None:
            return scaled_to(fitted.line.accuracy(evidence.score.compute()), p, np.full(len(p), 1 / len(p)))
        _, cell_of_row = np.unique(correction.profile.cells_of(rows), return_inverse=True)
        cells = correction.assumptions(evidence, _given_mix(correction, evidence, mix_known))[class_mix][0]
        return with_means(p, cell_of_row, cells.correct)

    def _fitted(self) -> Fitted:
        if not hasattr(self, "fitted_"):
            raise NotFittedError("Expected a fitted estimator: call fit, fit_predictor or load first")
        return self.fitted_

    def _check_params(self, classes: int, names: tuple[str, ...] | None) -> float:
        """Level, where it and the other parameters can be used."""
        number("seed", integer("seed", self.seed, least=0), most=2**53)
        known_mix(self.class_mix, classes, names)
        return share("level", self.level, most=0.999)

    def _assumption(self, fitted: Fitted, class_mix: Any) -> tuple[float, str, KnownMix | None]:
        """Level, assumption about the class mix, and what is known of it where shares are given."""
        level = self._check_params(fitted.n_classes, fitted.class_names)
        if self.method != fitted.method:
            raise GdscoreError(
                f"Expected `method` to be what the estimator was fitted with, {fitted.method!r}, but it is "
                f"{self.method!r} now: fit again"
            )
        assumed = self.class_mix if class_mix is None else class_mix
        mix_known = known_mix(assumed, fitted.n_classes, fitted.class_names)
        return level, assumed if mix_known is None else "given", mix_known

    # -- files ----------------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """Fitted estimator as bytes, as `save` writes them; `load` takes them."""
        fitted = self._fitted()
        self._assumption(fitted, None)
        return learned.to_bytes(fitted, self.get_params())

    def save(self, path: PathLike) -> None:
        """Write the fitted estimator to one file: plain arrays, no pickle, all or nothing."""
        raw = self.to_bytes()
        with atomic(path) as file:
            file.write(raw)

    @classmethod
    def load(cls, source: PathLike | bytes) -> Self:
        """Read an estimator from a file that `save` wrote, or from its bytes."""
        params, fitted = learned.load(source)
        return cls(**params)._with(fitted)


def fitted_of(est: Any) -> Fitted:
    """What an estimator has learned."""
    if not isinstance(est, AccuracyEstimator):
        raise GdscoreError(f"Expected a fitted `AccuracyEstimator`, but got {type(est).__name__}")
    return est._fitted()


def known_shares(est: AccuracyEstimator, outputs: Outputs) -> Floats | None:
    """Shares of the classes of a target where ``class_mix`` of the estimator tells them; None where it does not."""
    fitted = est._fitted()
    mix_known = est._assumption(fitted, None)[2]
    ((_, evidence),) = TargetState(fitted).update(outputs).by_segment()
    return _given_mix(fitted.correction, evidence, mix_known)


def _given_mix(correction: Correction, evidence: Evidence, mix_known: KnownMix | None) -> Floats | None:
    """Shares of the classes that the user knows: within ranges, those nearest to what the rows show."""
    if mix_known is None:
        return None
    return mix_known.nearest(correction.cells(evidence).joint().mix, correction.profile.usual_mix)


def _reaction(correction: Correction, sets: list[SetSummary], accuracy: float) -> float | None:
    """How far the evidence moves for the accuracy that sets lose: the slope through the origin, by least squares."""
    lost = np.array([max(accuracy - s.accuracy, 0.0) for s in sets])
    if lost.max(initial=0.0) < SETTINGS.floor:
        return None
    shifts = np.array([correction.shift_in_sd(s.mean) for s in sets])
    # Confidence that rises as accuracy falls is no sign of it; distances count in both directions.
    shifts = np.concatenate([-shifts[:, :1], np.abs(shifts[:, 1:])], axis=1).max(axis=1)
    return float(lost @ shifts / (lost @ lost))
