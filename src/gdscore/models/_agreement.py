"""From the agreement of a check network with a model to an estimate, combined with that of an `AccuracyEstimator`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore.estimator import AccuracyEstimator, Estimate, EstimateWarning
from gdscore.estimator.estimate import class_estimates, most_severe_first, quantile_of, sampling_error
from gdscore.estimator.table import Joint, scaled_to
from gdscore.outputs import Outputs

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CheckSettings:
    """Constants of `check`; ``benchmarks/estimates/check.py compare`` compares others on development targets."""

    # Families and severities of the shifted sets that the same adaptation is run on, and most rows of each
    shifts: tuple[tuple[str, int], ...] = (("snow", 6), ("elastic_transform", 8), ("glass_blur", 7), ("frost", 8))
    shifted_rows: int = 600
    concentration: float = 0.5  # of the Dirichlet distribution of the class mix of every second one
    floor: float = 0.012  # expected error of an agreement of 1, in shares
    error: float = 0.10  # expected error of the agreement relative to the share of rows without it
    # The expected error is multiplied by √(1 + mix (d / far_mix)²), where d is the distance of the check network's
    # predicted class mix from that of the labelled rows
    mix: float = 1.0
    far_mix: float = 0.2
    sets: float = 4.0  # shifted sets that the expected error counts as, against those of this model
    power: float = 4.0  # estimates are weighted by their half-widths to minus this power
    # Share of the check's half-width by which the agreement may be below the estimator's interval: an adaptation that
    # went wrong loses agreement. Above, the check network was right where it was measured.
    below: float = 0.5
    kept: float = 0.85  # accuracy on labelled rows, relative to the model's, that the check network must keep
    # What agreement is off by on labelled rows is taken off in proportion to this power of the target's agreement
    fading: float = 2.0
    # Difference of a model's accuracies on labelled rows that tells it is another one
    other_accuracy: float = 0.03
    edge: float = 1e-6  # added to the probabilities of the other classes, of which a sure check network leaves nothing


CHECK = CheckSettings()


@dataclass(frozen=True)
class Agreement:
    """How a check network that was adapted to a set of rows agrees with the model there.

    Attributes
    ----------
    family : str
        Shift family of a shifted set; empty for the target.
    rows : int
        Rows of the set.
    agreement : float
        Mean probability that the check network gives to the model's predictions.
    confidence : float
        Mean probability that it gives to its own predictions.
    stability : float
        Share of rows for which it predicts the same class under strong augmentation.
    moved : float
        Share of rows for which it predicts another class than before the adaptation.
    mix_distance : float
        Share of rows that would have to change class for its predictions to have the mix of the labelled rows.
    reference_accuracy : float
        Its accuracy on the labelled rows that shifted sets are made of.
    reference_agreement : float
        Mean probability that it gives to the model's predictions there.
    model_accuracy : float
        The model's accuracy there.
    accuracy : float or None
        True accuracy of the model, where labels are known.
    check_accuracy : float or None
        True accuracy of the check network, where labels are known.
    """

    family: str
    rows: int
    agreement: float
    confidence: float
    stability: float
    moved: float
    mix_distance: float
    reference_accuracy: float
    reference_agreement: float
    model_accuracy: float
    accuracy: float | None = None
    check_accuracy: float | None = None


def combine(
    est: AccuracyEstimator,
    outputs: Outputs,
    probabilities: Floats,
    agreement: Agreement,
    calibration: Sequence[Agreement],
) -> tuple[Estimate, Floats]:
    """Estimate from both networks' outputs on the target and the estimator, and P(right) of each row.

    ``probabilities`` are of the adapted check network, ``calibration`` of shifted sets.
    """
    free, without = est.estimate(outputs), est.predict_correct(outputs)
    predicted = np.asarray(arrays.to_numpy(outputs.predictions))
    rows, level = len(predicted), free.level
    agreed = probabilities[np.arange(rows), predicted]
    by_check = scaled_to(_corrected(agreement), agreed, np.full(rows, 1 / rows))
    half = quantile_of(level) * _expected_error(agreement) * _model_factor(calibration)
    half_without, lower = 0.5 * (free.high - free.low), free.accuracy - float(by_check.mean())
    scores = {name: getattr(agreement, name) for name in ("agreement", "confidence", "stability", "mix_distance")}
    below = float(by_check.mean()) if lower > half_without + CHECK.below * half else None
    reason = _why_unused(agreement, calibration, est.reference_accuracy_, below)
    if reason is not None:
        warning = EstimateWarning("check_unused", "warning", reason)
        warnings = most_severe_first([*free.warnings, warning])
        return replace(free, method="check", warnings=warnings, scores=scores | {"weight": 0.0}), without
    weight = 1 / (1 + (half / max(half_without, 1e-9)) ** CHECK.power)
    correct = weight * by_check + (1 - weight) * without
    accuracy = min(max(float(correct.mean()), 0.0), 1.0)
    # Probabilities of a check network that is not sure of its classes say less than the classes do.
    gap = quantile_of(level) * float((probabilities.argmax(axis=1) == predicted).mean() - agreed.mean())
    combined = math.hypot(weight * half, weight * gap, (1 - weight) * half_without) * max(
        1.0, abs(lower) / math.hypot(half, half_without)
    )
    half = math.hypot(combined, float(sampling_error(accuracy, rows, level)))
    low, high = max(accuracy - half, 0.0), min(accuracy + half, 1.0)
    joint = _joint(correct, probabilities, predicted)
    per_class, f1 = class_estimates(joint, rows, low, high, level, est.class_names_)
    missed = [abs(_corrected(a) - a.accuracy) for a in calibration if a.accuracy is not None]
    other_mix = list(_other_mix(agreement)) if free.class_mix != "given" else []
    dropped = _OF_OUTPUTS_ALONE if other_mix else (*_OF_OUTPUTS_ALONE, *_OF_CLASS_MIX)
    own_warnings = [*other_mix, *_other_calibration(agreement, calibration)]
    warnings = most_severe_first([*(w for w in free.warnings if w.code not in dropped), *own_warnings])
    return (
        replace(
            free,
            accuracy=accuracy,
            low=low,
            high=high,
            method="check",
            # What `free` has of these is about the outputs alone.
            assumptions={},
            fits={},
            brier=None,
            class_mix_estimate=joint.mix.tolist(),
            left_out_error=math.fsum(missed) / len(missed) if missed else None,
            per_class=per_class,
            f1=f1,
            warnings=warnings,
            scores=scores | {"weight": weight},
        ),
        correct,
    )


_OF_CLASS_MIX = ("collapse", "class_mix", "unequal_classes")
"""Warnings about the class mix, dropped where the check network's classes have the mix of the labelled rows."""
_OF_OUTPUTS_ALONE = (
    "beyond",
    "outputs_only",
    "one_family",
    "weak_evidence",
    "moved_untaught",
    "confidence_does_not_react",
)
"""Warnings that are about an estimate from outputs alone."""


def _other_mix(a: Agreement) -> Iterator[EstimateWarning]:
    """Warning where the check network cannot tell another class mix from a failure of its own."""
    if a.mix_distance > CHECK.far_mix:
        yield EstimateWarning(
            "check_mix",
            "warning",
            f"the check network's classes are far from the mix of the labelled rows: {a.mix_distance:.0%} of the rows "
            "would have to change class. Either the target has another mix (where it is known, give class_mix=), or "
            "the check network fails on it too",
        )


def _other_calibration(a: Agreement, calibration: Sequence[Agreement]) -> Iterator[EstimateWarning]:
    """Warning where the calibration seems to be of another model."""
    before = [s.model_accuracy for s in calibration]
    if before and abs(before[0] - a.model_accuracy) > CHECK.other_accuracy:
        yield EstimateWarning(
            "other_calibration",
            "warning",
            f"the calibration is of a model that was {before[0]:.0%} right on labelled rows, and this one is "
            f"{a.model_accuracy:.0%} right there: leave `calibration` out after the model has changed",
        )


def _corrected(a: Agreement) -> float:
    """Agreement less what it is off by on labelled rows, where the model's accuracy is known.

    A check network that lost some of its accuracy there disagrees with right predictions. That is a difference about
    rows that both networks know, and fades with the share of them. It raises no agreement above the model's accuracy
    there.
    """
    agreement_there = max(a.reference_agreement, 1e-9)
    share = math.pow(min(a.agreement / agreement_there, 1.0), CHECK.fading)
    return min(a.agreement + share * (a.model_accuracy - agreement_there), max(a.agreement, a.model_accuracy))


def _expected_error(a: Agreement) -> float:
    """How far the agreement is expected to be off, on the development pairs of PACS."""
    wider = math.sqrt(1 + CHECK.mix * (a.mix_distance / CHECK.far_mix) ** 2)
    return math.hypot(CHECK.floor, CHECK.error * (1 - a.agreement) * wider)


def _model_factor(calibration: Sequence[Agreement]) -> float:
    """How much larger than expected errors are on the shifted sets of this model; 1 where they are smaller."""
    errors = [(_corrected(a) - a.accuracy) / _expected_error(a) for a in calibration if a.accuracy is not None]
    return math.sqrt(max((CHECK.sets + math.fsum(e * e for e in errors)) / (CHECK.sets + len(errors)), 1.0))


def _why_unused(a: Agreement, calibration: Sequence[Agreement], accuracy: float, below: float | None) -> str | None:
    """Why the check network is not used, or None; ``below`` is its estimate of the accuracy where that is too low."""
    sets = [(s.check_accuracy, s.accuracy) for s in calibration if s.accuracy is not None]
    reason = None
    if a.reference_accuracy < CHECK.kept * accuracy:
        reason = f"its accuracy on labelled rows fell to {a.reference_accuracy:.0%}"
    elif sets and sum(checked or 0.0 for checked, _ in sets) <= sum(model for _, model in sets):
        reason = "it is no more accurate than the model on shifted sets"
    elif below is not None:
        reason = f"the accuracy by its agreement, {below:.0%}, is far below the interval from outputs alone"
    return reason and f"the check network was not used: {reason}; the estimate is from outputs alone"


def _joint(correct: Floats, probabilities: Floats, predicted: NDArray[Any]) -> Joint:
    """Table of the rows: right where the prediction is, otherwise what the check network gives the other classes."""
    rows, classes = probabilities.shape
    others = probabilities + CHECK.edge
    others[np.arange(rows), predicted] = 0
    others *= ((1 - correct) / others.sum(axis=1))[:, None]
    others[np.arange(rows), predicted] = correct
    table = np.zeros((classes, classes))
    np.add.at(table, predicted, others / rows)
    return Joint(table)
