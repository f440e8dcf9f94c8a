"""`AccuracyEstimator`: calibrates scores on labelled, shifted sets and turns scores into accuracies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from gdscore._options import integer, number
from gdscore._progress import progress_bar
from gdscore.errors import GdscoreError
from gdscore.estimator import cautions, storage
from gdscore.estimator.calibrated import Calibration
from gdscore.estimator.class_mix import class_mix_accuracy, confusion_of
from gdscore.estimator.describe import Describer, Description
from gdscore.estimator.estimate import Estimate
from gdscore.estimator.fingerprint import Fingerprint, SameModel
from gdscore.estimator.judge import REGRESSORS, Judge
from gdscore.estimator.per_class import recalls
from gdscore.estimator.predicting import predicted, shifted_sets
from gdscore.estimator.preparing import (
    checked_labels,
    checked_reference,
    checked_set,
    checked_shifts,
    chosen_scores,
    counted,
    default_shifts,
    possible_scores,
    temperature_of,
)
from gdscore.outputs import Outputs
from gdscore.shifts import ShiftedSet, perturbed, resampled
from gdscore.shifts.perturbed import OTHER_MODELS, checked_head

__all__ = ["AccuracyEstimator"]

ANCHORS = 40
"""Resampled sets beside shifted sets of the caller's own."""


class AccuracyEstimator:
    """Accuracy of a classifier on unlabelled data, with an interval.

    Scores are computed on *shifted sets*, labelled and shifted copies of the reference data, and related to their known
    accuracies. The interval rests on how far the fit is off on families of shifts it has not seen.

    Parameters
    ----------
    level : float, default 0.9
        How often intervals are meant to hold the true accuracy. With F families of shifted sets at most F/(F+1): the
        estimate says when that is less.
    scores : iterable of names or mapping of names to options, optional
        What to compute; by default COT, ATC and confidence with temperature, the nuclear norm, the Fréchet distance,
        soft disagreement with a second model and with the model itself, each where the data have what it needs.
    regressor : str, default "cautious"
        ``nearest``: the mean accuracy of the shifted sets whose scores are most alike. ``cautious``: the lowest of what
        that says by the scores of the population, and by confidence with each score of rows (ATC, disagreement), as
        every view overlooks other errors. ``stack``: a ridge with a Gaussian-process residual on all scores. The name
        of a score: the straight line from that score to accuracy, both as they are, as in the GdScore paper.
    seed : int, default 0
        Of resampling and shifts.

    Attributes
    ----------
    reference_accuracy_, temperature_ : float
        Of the reference.
    judge_ : Judge
        What was learned from the shifted sets.
    reference_confidence_ : ConfidenceHistogram
        How confident the model is on the reference, and how often right.

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> rng = np.random.default_rng(0)
    >>> def said(rows, noise):
    ...     y = rng.integers(0, 5, rows)
    ...     x = np.eye(5)[y] * 3 + noise * rng.normal(size=(rows, 5))
    ...     return gdscore.Outputs(logits=2 * x, features=x, labels=y)
    >>> est = gdscore.AccuracyEstimator().fit(reference=said(2000, 1.0), head=(2 * np.eye(5), None))
    >>> target = said(2000, 1.5)
    >>> e = est.estimate(target)
    >>> e.low <= target.accuracy <= e.high
    True
    """

    def __init__(
        self,
        level: float = 0.9,
        *,
        scores: Iterable[str] | dict[str, dict[str, Any]] | None = None,
        regressor: str = "cautious",
        seed: int = 0,
    ) -> None:
        self.level = number("level", level, above=0, most=0.999)
        self.scores = chosen_scores(scores, regressor)
        self.regressor = regressor
        self.seed = integer("seed", seed, least=0)
        self._optional = scores is None and regressor in REGRESSORS

    # -- fitting --------------------------------------------------------------------------------------------

    def fit(
        self,
        reference: Outputs | None = None,
        *,
        head: tuple[Any, Any] | None = None,
        shifted_sets: Iterable[ShiftedSet] | None = None,
        progress: bool | None = None,
    ) -> AccuracyEstimator:
        """Calibrate on shifted sets, or on what can be made of outputs alone.

        Parameters
        ----------
        reference : Outputs, optional
            Labelled validation outputs. May be left out with ``shifted_sets``: the most accurate of them serves then.
        head : (W, b), optional
            Last layer, W of shape (D, K), b of length K or None: without shifted sets, disturbed features make some.
        shifted_sets : iterable of ShiftedSet, optional
            The caller's own, of rows that are independent of the reference's; resampled sets of the reference are
            added. Without them the reference is resampled and the head disturbed: wide intervals by construction,
            and a warning.
        progress : bool, optional
            Progress bar on standard error; by default where that is a terminal.
        """
        if shifted_sets is None and reference is None:
            raise GdscoreError("Expected `reference` or `shifted_sets` to calibrate on, but got neither")
        if shifted_sets is None:
            reference = checked_reference(reference)
            sets, held, total = iter(resampled(reference, 100, seed=self.seed)), reference.has, 100
            if head is not None:
                sets, held = chain(sets, perturbed(reference, head, 100, seed=self.seed)), held - OTHER_MODELS
                total += 100
        else:
            kept = [checked_set(s) for s in shifted_sets]
            if not kept:
                raise GdscoreError("Expected `shifted_sets` to hold sets, but it is empty")
            Judge.check([s.family for s in kept], [s.accuracy for s in kept])
            if reference is None:
                # It is not among the sets then: it is no shift of itself.
                reference = kept.pop(max(range(len(kept)), key=lambda i: kept[i].accuracy)).outputs
            reference = checked_reference(reference)
            held = reference.has.intersection(*(s.outputs.has for s in kept))
            # Whatever the caller's sets are, unshifted data and other mixes of classes are among them.
            sets = chain(kept, resampled(reference, ANCHORS, seed=self.seed, kinds=("class", "none")))
            total = len(kept) + ANCHORS
        head = None if head is None else checked_head(head, reference)
        with progress_bar(total, progress, "sets") as advance:
            own = shifted_sets is not None
            self._calibrate(reference, counted(sets, advance), held, head=head, outputs_only=not own, fresh=own)
        return self

    def fit_predictor(
        self,
        predict: Callable[[Any], Outputs],
        images: Any,
        labels: Any,
        *,
        shifts: Iterable[Callable[[Any], Any]] | None = None,
        resamples: int = 100,
        batch_size: int = 512,
        head: tuple[Any, Any] | None = None,
        progress: bool | None = None,
    ) -> AccuracyEstimator:
        """Calibrate a classifier on shifted copies of labelled inputs.

        Parameters
        ----------
        predict : callable
            From a batch of inputs to `Outputs` (without labels).
        images : array
            Labelled inputs of the training distribution, rows first; N×C×H×W for the default shifts.
        labels : integer array
            Their classes.
        shifts : iterable of callables, optional
            From inputs to inputs; the attribute ``family`` names the kind of each. By default the 19 image corruptions
            and their compositions: eight severities and 100 compositions on an accelerator, four and 40 on the host.
        resamples : int
            Shifted sets by resampling in addition.
        batch_size : int
            Inputs given to ``predict`` at once.
        head : (W, b), optional
            Last layer, to recognise the model's outputs by; by default it is read off the reference.
        progress : bool, optional
            Progress bar on standard error; by default where that is a terminal.
        """
        shifts = default_shifts(images, self.seed) if shifts is None else checked_shifts(shifts)
        integer("batch_size", batch_size, least=1)
        labels = checked_labels(labels, images)
        reference = checked_reference(predicted(predict, images, labels, None, batch_size))
        sets = shifted_sets(predict, images, labels, shifts, batch_size=batch_size, progress=progress)
        sets = chain(sets, resampled(reference, resamples, seed=self.seed))
        self._calibrate(reference, sets, reference.has, head=head)
        return self

    def _calibrate(
        self,
        reference: Outputs,
        sets: Iterator[ShiftedSet],
        held: frozenset[str],
        *,
        head: tuple[Any, Any] | None = None,
        outputs_only: bool = False,
        fresh: bool = False,
    ) -> None:
        """Describe every shifted set as it comes, so that one at a time is held, and learn from the table of them."""
        temperature = temperature_of(reference)
        describer = Describer(possible_scores(self.scores, held, strict=not self._optional), reference, temperature)
        families, accuracy, found = [], [], []
        for s in sets:
            families.append(s.family)
            accuracy.append(s.accuracy)
            found.append(describer.describe(s.outputs))
        table = Calibration(
            families=families,
            accuracy=np.array(accuracy),
            rows=np.array([d.rows for d in found]),
            scores={n: np.array([d.scores[n] for d in found]) for n in describer.scores},
            sizes=describer.sizes(reference, self.seed),
            fresh=fresh,
        )
        judge = Judge(table, self.regressor)
        itself = describer.describe(reference, labelled=True)
        self.describer_, self.temperature_ = describer, temperature
        self.reference_accuracy_, self.reference_rows_ = reference.accuracy, len(reference)
        self.reference_mix_, self.reference_confidence_ = itself.predicted_mix, itself.confidence
        self.confusion_ = confusion_of(reference)
        self.n_classes_, self.n_features_ = len(self.confusion_), reference.n_features
        self.outputs_only_ = outputs_only
        self.fingerprint_ = Fingerprint.of(reference, head)
        self.judge_ = judge

    @property
    def calibration_(self) -> Calibration:
        """The shifted sets: family, accuracy, rows, scores, and what calibration without their family says."""
        return self.judge_.table

    @property
    def families_(self) -> list[str]:
        """Kinds of shifts calibrated on: names of families, those of compositions taken apart."""
        return self.judge_.families

    # -- estimating -----------------------------------------------------------------------------------------

    def estimate(self, outputs: Outputs | Iterable[Outputs]) -> Estimate:
        """Estimate the accuracy on the population that unlabelled rows come from, in one pass over them."""
        if not hasattr(self, "describer_"):
            raise GdscoreError("Expected a fitted estimator: call fit, fit_predictor or load first")
        model = SameModel(self.n_classes_, self.n_features_, self.fingerprint_)
        found = self.describer_.describe(model.checked(outputs))
        level = min(self.level, self.judge_.reachable_level)
        accuracy, low, high = self.judge_.judge(found.scores, found.rows, level)
        corrected = class_mix_accuracy(self.confusion_, found.predicted_mix)
        return Estimate(
            accuracy=accuracy,
            low=low,
            high=high,
            level=level,
            n=found.rows,
            reference_accuracy=self.reference_accuracy_,
            scores=found.scores,
            per_class=recalls(found.profile, accuracy, low, high, level),
            warnings=[*cautions.about_model(model.recognised), *self._warnings(found, accuracy, corrected)],
            class_mix_accuracy=corrected,
            method=self.regressor,
            confidence=found.confidence,
            lookalikes=self.judge_.lookalikes(found.scores, found.rows),
            views=self.judge_.views(found.scores, found.rows),
        )

    def _warnings(self, found: Description, accuracy: float, corrected: float | None) -> list[str]:
        opinions = self.judge_.opinions(found.scores, found.rows)
        return [
            *cautions.about_rows(found.rows),
            *cautions.about_reference(self.reference_rows_, self.reference_accuracy_),
            *cautions.about_class_mix(
                found.predicted_mix, self.reference_mix_, found.rows, self.reference_rows_, corrected
            ),
            *cautions.about_scores(opinions, self.reference_accuracy_ - accuracy),
            *cautions.about_distance(self.judge_.distance(found.scores, found.rows)),
            *cautions.about_outputs_only(self.outputs_only_),
            *cautions.about_level(self.level, self.judge_.reachable_level, self.judge_.n_kinds),
        ]

    # -- files ----------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to one file: plain arrays, no pickle, all or nothing."""
        if not hasattr(self, "describer_"):
            raise GdscoreError("Expected a fitted estimator to save: call fit or fit_predictor first")
        storage.save(self, path)

    @classmethod
    def load(cls, path: str | Path) -> AccuracyEstimator:
        """Read an estimator that `save` wrote."""
        return storage.load(cls, path)
