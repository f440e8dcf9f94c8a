"""`AccuracyEstimator`: calibrates scores on labelled, shifted sets and turns scores into accuracies."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore._options import integer, number
from gdscore.calibration import fit_temperature
from gdscore.errors import GdscoreError, nearest
from gdscore.estimator import cautions, storage
from gdscore.estimator.calibrated import Calibration
from gdscore.estimator.describe import RECIPE, Describer, Description, transformed
from gdscore.estimator.direct import sampling_error
from gdscore.estimator.estimate import Estimate
from gdscore.estimator.per_class import recalls
from gdscore.estimator.regress import Fit, GroupedInterval, fit_line, fit_stack
from gdscore.io.progress import progress_bar
from gdscore.metasets import MetaSet, compositions, corruptions, perturbed, resampled
from gdscore.outputs import Outputs
from gdscore.scores._rechunk import stream
from gdscore.scores.registry import create_score, list_scores

__all__ = ["AccuracyEstimator"]


class AccuracyEstimator:
    """Accuracy of a classifier on unlabelled data, with an interval.

    Scores are computed on *meta-sets*, labelled and shifted copies of the reference data, and related to their known
    accuracies. The interval rests on how far the fit is off on families of shifts it has not seen.

    Parameters
    ----------
    level : float, default 0.9
        How often intervals are meant to hold the true accuracy. With F families of meta-sets at most F/(F+1): the
        estimate says when that is less.
    scores : iterable of names or mapping of names to options, optional
        What to compute; by default COT and COTT with temperature, the nuclear norm, the Fréchet distance and soft
        disagreement, each where the reference has what it needs.
    regressor : str, default "stack"
        ``stack``: a ridge with a Gaussian-process residual on all scores. The name of a score: the straight line of
        that score alone, as in the GdScore paper.
    seed : int, default 0
        Of resampling and shifts.

    Attributes
    ----------
    reference_accuracy_, temperature_ : float
        Of the reference.
    families_ : list of str
        Kinds of shifts calibrated on.
    calibration_ : Calibration
        The meta-sets: family, accuracy, rows, scores, and what the fit without their family says.
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
        regressor: str = "stack",
        seed: int = 0,
    ) -> None:
        self.level = number("level", level, above=0, most=0.999)
        valid = [n for n in list_scores() if n != "projnorm"]
        chosen = RECIPE if scores is None else scores if isinstance(scores, dict) else {name: {} for name in scores}
        for name in chosen:
            create_score(name, **chosen[name])
        if regressor != "stack" and regressor not in valid:
            raise GdscoreError(f"Unknown `regressor` {regressor!r}: {nearest(str(regressor), ['stack', *valid])}")
        if regressor != "stack" and scores is None:
            chosen = {regressor: RECIPE.get(regressor, {})}
        self.scores = dict(chosen)
        if regressor not in ("stack", *self.scores):
            raise GdscoreError(f"Expected `regressor` {regressor!r} to be among `scores`, but it is not")
        self.regressor = regressor
        self.seed = integer("seed", seed, least=0)
        self._optional = scores is None

    # -- fitting --------------------------------------------------------------------------------------------

    def fit(
        self,
        reference: Outputs | None = None,
        *,
        head: tuple[Any, Any] | None = None,
        metasets: Iterable[MetaSet] | None = None,
    ) -> AccuracyEstimator:
        """Calibrate on meta-sets, or on what can be made of outputs alone.

        Parameters
        ----------
        reference : Outputs, optional
            Labelled validation outputs. May be left out with ``metasets``: the most accurate of them serves then.
        head : (W, b), optional
            Last layer, W of shape (D, K), b of length K or None: without meta-sets, disturbed features make some.
        metasets : iterable of MetaSet, optional
            The caller's own. Without them the reference is resampled and the head disturbed: wide intervals by
            construction, and a warning.
        """
        if metasets is None and reference is None:
            raise GdscoreError("Expected `reference` or `metasets` to calibrate on, but got neither")
        outputs_only = metasets is None
        sets = None if metasets is None else list(metasets)
        if sets is not None:
            for s in sets:
                if not isinstance(s, MetaSet):
                    raise GdscoreError(f"Expected `metasets` to hold `gdscore.MetaSet`, but got {type(s).__name__}")
            if not sets:
                raise GdscoreError("Expected `metasets` to hold sets, but it is empty")
            if reference is None:
                reference = max(sets, key=lambda s: s.accuracy).outputs
        reference = self._checked_reference(reference)
        if sets is None:
            sets = list(resampled(reference, 100, seed=self.seed))
            if head is not None:
                sets += list(perturbed(reference, head, 100, seed=self.seed))
        self._calibrate(reference, sets, outputs_only)
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
            Meta-sets by resampling in addition.
        batch_size : int
            Inputs given to ``predict`` at once.
        progress : bool, optional
            Progress bar on standard error; by default where that is a terminal.
        """
        if shifts is None:
            small = arrays.on_host(images)
            shifts = [
                *corruptions((2, 4, 6, 8) if small else range(1, 9), seed=self.seed),
                *compositions(40 if small else 100, seed=self.seed),
            ]
        shifts = list(shifts)
        labels = arrays.to_numpy(labels) if arrays.is_array(labels) else np.asarray(labels)
        if len(images) != len(labels) or not len(labels):
            raise GdscoreError(f"Expected as many labels as inputs, but got {len(labels)} for {len(images)} inputs")
        reference = self._checked_reference(_predicted(predict, images, labels, None, batch_size))
        sets = []
        with progress_bar(len(shifts) * len(labels), progress) as advance:
            for shift in shifts:
                family = str(getattr(shift, "family", getattr(shift, "__name__", type(shift).__name__)))
                sets.append(MetaSet(_predicted(predict, images, labels, shift, batch_size), family))
                advance(len(labels))
        sets += list(resampled(reference, resamples, seed=self.seed))
        self._calibrate(reference, sets, outputs_only=False)
        return self

    def _checked_reference(self, reference: Outputs | None) -> Outputs:
        if not isinstance(reference, Outputs) or "labels" not in reference.has:
            raise GdscoreError("Expected `reference` to be `gdscore.Outputs` with labels, but there are none")
        return reference

    def _calibrate(self, reference: Outputs, sets: list[MetaSet], outputs_only: bool) -> None:
        families = np.array([s.family for s in sets])
        if len(np.unique(families)) < 2:
            raise GdscoreError(
                f"Expected meta-sets of at least two families, but all are of {families[0]!r}: how far an estimate is "
                "off on a shift it has not seen cannot be told from one"
            )
        accuracy = np.array([s.accuracy for s in sets])
        if np.ptp(accuracy) < 1e-9:
            raise GdscoreError(
                f"Expected meta-sets of different accuracies, but all are {accuracy[0]:.1%} accurate: there is nothing "
                "to learn from"
            )
        temperature = fit_temperature(reference)
        scores = self._possible(reference)
        describer = Describer(scores, reference, temperature)
        found = [describer.describe(s.outputs) for s in sets]
        rows = np.array([d.rows for d in found])
        x = np.array([[transformed(n, d.scores[n], d.rows) for n in scores] for d in found])
        smooth = (accuracy * rows + 0.5) / (rows + 1)
        y = np.log(smooth / (1 - smooth))
        fit = fit_stack if self.regressor == "stack" else fit_line
        self.fit_: Fit = fit(x, y)
        self.interval_, left_out = GroupedInterval.make(x, y, families, fit)
        self.calibration_ = Calibration(
            families=[str(f) for f in families],
            accuracy=accuracy,
            rows=rows,
            scores={n: np.array([d.scores[n] for d in found]) for n in scores},
            predicted=1 / (1 + np.exp(-left_out)),
        )
        self.single_ = {name: fit_line(x[:, [i]], y) for i, name in enumerate(scores)}
        self.families_ = [str(f) for f in np.unique(families)]
        self.reference_accuracy_, self.temperature_ = reference.accuracy, temperature
        self.set_rows_ = float(np.median(rows))
        self.outputs_only_ = outputs_only
        self.describer_ = describer
        itself = describer.describe(reference, labelled=True)
        self.reference_rows_, self.reference_mix_ = itself.rows, itself.predicted_mix
        self.reference_confidence_ = itself.confidence
        labels, predicted = arrays.to_numpy(reference.labels), arrays.to_numpy(reference.predictions)
        k = int(reference.n_classes or 0)
        counts = np.zeros((k, k))
        np.add.at(counts, (predicted, labels), 1)
        self.confusion_ = counts / np.maximum(counts.sum(axis=0), 1)
        self.n_classes_, self.n_features_ = k, reference.n_features

    def _possible(self, reference: Outputs) -> dict[str, dict[str, Any]]:
        """Scores that the reference has arrays for; those asked for by name must be possible."""
        possible = {}
        for name, options in self.scores.items():
            missing = sorted(create_score(name, **options).inputs - reference.has)
            if not missing:
                possible[name] = options
            elif not self._optional:
                raise GdscoreError(f"`{name}` needs {', '.join(missing)}, but the reference does not hold it")
        return possible

    # -- estimating -----------------------------------------------------------------------------------------

    def estimate(self, outputs: Outputs | Iterable[Outputs]) -> Estimate:
        """Estimate the accuracy on the population that unlabelled rows come from, in one pass over them."""
        if not hasattr(self, "fit_"):
            raise GdscoreError("Expected a fitted estimator: call fit, fit_predictor or load first")
        found = self.describer_.describe(self._same_model(outputs))
        names = list(found.scores)
        x = np.array([transformed(n, found.scores[n], found.rows) for n in names])
        accuracy = _sigmoid(float(self.fit_.predict(x[None])[0]))
        level = min(self.level, self._reachable_level())
        low, high = (_sigmoid(b) for b in self.interval_.bounds(x, level))
        # Residuals hold the sampling noise of the meta-sets' own size; fewer rows add to it.
        rows, sets = found.rows, self.set_rows_
        extra = sampling_error(accuracy, rows, level) * math.sqrt(max(0.0, 1 - rows / sets))
        low, high = min(low, accuracy), max(high, accuracy)
        low = max(0.0, accuracy - math.hypot(accuracy - low, extra))
        high = min(1.0, accuracy + math.hypot(high - accuracy, extra))
        corrected = cautions.class_mix_accuracy(self.confusion_, found.predicted_mix)
        return Estimate(
            accuracy=accuracy,
            low=low,
            high=high,
            level=level,
            n=found.rows,
            source_accuracy=self.reference_accuracy_,
            scores=found.scores,
            per_class=recalls(found.profile, accuracy, low, high, level),
            warnings=self._warnings(found, x, corrected),
            class_mix_accuracy=corrected,
            method=self.regressor,
            confidence=found.confidence,
        )

    def _reachable_level(self) -> float:
        """F/(F+1) for F families: a family not seen yet may lie beyond all others."""
        return self.interval_.n_families / (self.interval_.n_families + 1)

    def _same_model(self, outputs: Outputs | Iterable[Outputs]) -> Iterable[Outputs]:
        for part in stream(outputs, "outputs"):
            for what, there, here in (
                ("classes", self.n_classes_, part.n_classes),
                ("features", self.n_features_, part.n_features),
            ):
                if here is not None and there is not None and here != there:
                    raise GdscoreError(
                        f"Expected outputs with {there} {what} as in calibration, but they have {here}: is this "
                        "another model's?"
                    )
            yield part

    def _warnings(self, found: Description, x: NDArray[Any], corrected: float | None) -> list[str]:
        opinions = {
            name: _sigmoid(float(line.predict(x[None, [i]])[0])) for i, (name, line) in enumerate(self.single_.items())
        }
        warnings = [
            *cautions.about_rows(found.rows),
            *cautions.about_reference(self.reference_rows_, self.reference_accuracy_),
            *cautions.about_class_mix(found.predicted_mix, self.reference_mix_, found.rows, corrected),
            *cautions.about_scores(opinions),
        ]
        if self.outputs_only_:
            warnings.append(
                "calibrated on outputs alone, without shifted inputs: errors on real shifts are likely to be larger "
                "than the interval says; fit_predictor or meta-sets of your own calibrate better"
            )
        if self.level > self._reachable_level():
            warnings.append(
                f"{self.interval_.n_families} families of meta-sets support intervals of at most "
                f"{self._reachable_level():.0%}, so the level is that and not {self.level:.0%}: add families"
            )
        return warnings

    # -- files ----------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to one file: plain arrays, no pickle, all or nothing."""
        if not hasattr(self, "fit_"):
            raise GdscoreError("Expected a fitted estimator to save: call fit or fit_predictor first")
        storage.save(self, path)

    @classmethod
    def load(cls, path: str | Path) -> AccuracyEstimator:
        """Read an estimator that `save` wrote."""
        return storage.load(cls, path)


def _predicted(predict: Callable[[Any], Outputs], images: Any, labels: NDArray[Any], shift: Any, size: int) -> Outputs:
    parts = []
    for start in range(0, len(labels), size):
        batch = images[start : start + size]
        if shift is not None:
            # Seeded shifts take the number of the first row, so that batches do not repeat each other's draws.
            batch = shift(batch, start=start) if hasattr(shift, "family") else shift(batch)
        said = predict(batch)
        if not isinstance(said, Outputs):
            raise GdscoreError(f"Expected `predict` to return `gdscore.Outputs`, but got {type(said).__name__}")
        given = {k: a for k, a in said.arrays.items() if k != "labels"}
        parts.append(Outputs(**given, labels=labels[start : start + size]))
    return Outputs.concatenate(parts)


def _sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value)) if value > -700 else 0.0
