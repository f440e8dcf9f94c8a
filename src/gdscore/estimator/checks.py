"""Checks of arguments, and the warnings about a reference and a target."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore._format import points
from gdscore.errors import GdscoreError
from gdscore.estimator.correctness import SetSummary
from gdscore.estimator.estimate import EstimateWarning
from gdscore.estimator.evidence import Evidence, Floats, Profile, effective_number
from gdscore.estimator.fitted import Fitted
from gdscore.estimator.settings import SETTINGS
from gdscore.outputs import ARGMAX, Outputs, same_class_names, same_decision
from gdscore.shifts.sets import ShiftedSet


def reference_warnings(fitted: Fitted) -> Iterator[EstimateWarning]:
    """Warnings about what an estimator was fitted on; they apply to each of its estimates."""
    accuracy, mix, left_out = fitted.reference_accuracy, fitted.correction.profile.mix, fitted.table.predicted
    classes, rows = fitted.n_classes, fitted.reference_rows
    unseen = np.flatnonzero(mix == 0)
    if 0 < len(unseen) < classes - 1:
        yield EstimateWarning(
            "unseen_class",
            "warning",
            f"the reference has no rows of {_listed(fitted, unseen)}: nothing is known of how such rows are "
            "predicted, so that a target that has them is estimated wrongly; fit on rows of all classes",
        )
    if int((mix > 0).sum()) == 1:
        yield EstimateWarning(
            "one_class",
            "critical",
            f"the reference has rows of one class only, of {classes}: nothing is known about the others, so fit on "
            "rows of all classes",
        )
    # A threshold may be chosen at the cost of accuracy.
    if accuracy < 1 / classes and fitted.decision == ARGMAX:
        yield EstimateWarning(
            "below_chance",
            "critical",
            f"the model is {accuracy:.1%} accurate on the reference, less than guessing among {classes} classes: "
            "the labels are probably in another order of classes than the outputs",
        )
    if rows < SETTINGS.small_reference:
        yield EstimateWarning(
            "small_reference",
            "warning",
            f"the reference has only {rows} rows; at least {SETTINGS.small_reference} give a reliable estimate",
        )
    scale = fitted.correction.profile.scale
    if scale[0] == 0:
        yield EstimateWarning(
            "constant_confidence",
            "warning" if scale.any() else "critical",
            "the model gives every row of the reference the same confidence, so that confidence says nothing about "
            "errors and is left out: calibrate the model, or give features or inputs",
        )
    if not scale[1:].all():
        yield EstimateWarning(
            "constant_features",
            "warning",
            "the rows of each class have the same features on the reference, so that distances say nothing about "
            "errors and are left out: give the features of the last hidden layer, or none",
        )
    if not len(left_out):
        yield EstimateWarning(
            "outputs_only",
            "info",
            "the estimator was fitted without shifted sets; fit_predictor, or shifted sets of your own, make it "
            "more accurate under shift",
        )
    elif fitted.reaction is not None and fitted.reaction < 1:  # standard deviations of rows for all of the accuracy
        yield EstimateWarning(
            "confidence_does_not_react",
            "warning",
            "the model stays as confident on shifted sets on which it loses accuracy, so that its outputs tell little "
            "about a shift: give `inputs` or features as further evidence, or label a few rows",
        )
    if len(left_out) and np.isnan(left_out).all():
        yield EstimateWarning(
            "one_family",
            "info",
            "all shifted sets are of one family, so that the interval rests on a constant; sets of other families "
            "show how far estimates are off under a new shift",
        )


def target_warnings(
    fitted: Fitted, evidence: Evidence, shift: Floats, explained: float, class_mix: str, given_mix: Floats | None
) -> Iterator[EstimateWarning]:
    """Warnings about one target: its size, its predictions, how far it is from all shifted sets.

    ``shift`` is Δ of its evidence, and ``explained`` the share of its movement that a class mix explains. ``given_mix``
    is the class mix where the user gave one: the predictions are then compared with it, not with the reference's.
    """
    rows = evidence.rows
    if not evidence.same_model:
        yield EstimateWarning(
            "other_model",
            "critical",
            "these outputs seem to come from another model than the one the estimator was fitted for: their logits "
            "do not follow from their features by its last layer; fit the estimator again for this model",
        )
    if fitted.confidence.same_rows(*evidence.confidence):
        yield EstimateWarning(
            "is_reference",
            "info",
            "the target has exactly the confidences of the reference, whose accuracy is known: give other rows",
        )
    if given_mix is None:
        expected, where, whose = fitted.correction.profile.predicted_mix, "on the reference", "the reference's"
        other = 'nothing but the mix has changed: class_mix="estimated"'
        if explained <= 0.5:
            other = 'it is the reference\'s: class_mix="stable"'
        cure = f"If it is known: est.estimate(outputs, class_mix={_example_mix(fitted)}); if {other}"
    else:
        expected, where, whose = given_mix, "in the mix given", "the one given"
        cure = "Give the shares of the target's true classes, or leave class_mix out"
    predicted = evidence.histogram.sum(axis=1) / rows
    # What so many rows of that mix show; in order of their shares, so that the order of the classes means nothing.
    sampled = np.random.default_rng(0).multinomial(rows, np.sort(expected / expected.sum())) / rows
    spread, usual = effective_number(predicted), effective_number(sampled)
    if spread < 0.5 * usual:
        yield EstimateWarning(
            "collapse",
            "critical",
            f"predictions have collapsed to few classes (as many as {spread:.1f} equally frequent ones, against "
            f"{usual:.1f} {where}): either the target holds few classes or the model fails on it",
        )
    distance = 0.5 * float(np.abs(predicted - expected).sum())
    noise = 0.8 * float(np.sqrt(expected * (1 - expected) / rows).sum())
    if distance > SETTINGS.far_mix + noise:
        mix_explains = explained > 0.5
        tells = "explains" if mix_explains else "alone does not explain"
        yield EstimateWarning(
            "class_mix",
            "info" if mix_explains else "warning",
            f"the mix of predicted classes is far from {whose}: {distance:.0%} of the rows would have to change class, "
            f"and another class mix {tells} this. {cure}{_OF_IMAGES}",
        )
    profile, far = fitted.correction.profile, float(np.abs(shift).max())
    recall = profile.recall[profile.counts > 0]
    if class_mix == "unknown" and recall.std() > SETTINGS.far_mix and far > fitted.correction.chance(rows):
        yield EstimateWarning(
            "unequal_classes",
            "warning",
            f"on the reference the model finds {recall.min():.0%} of the rows of one class and {recall.max():.0%} of "
            "another, so that accuracy depends on the class mix; rows have moved, and outputs may not show their mix. "
            f"If it is known: class_mix={_example_mix(fitted)}",
        )
    if rows < SETTINGS.few_rows:
        yield EstimateWarning(
            # Without their number, so that many small segments have one message.
            "few_rows",
            "warning",
            f"the target has few rows; collect at least {SETTINGS.few_rows} for an estimate",
        )
    apart = float(np.abs(shift[1:]).max(initial=0.0))
    if not len(fitted.table.families) and apart > SETTINGS.looks_shifted_from + SETTINGS.noise / np.sqrt(rows):
        yield EstimateWarning(
            "moved_untaught",
            "warning",
            f"the target's features or inputs are {apart:.1f} standard deviations from the reference's, and no "
            "shifted set teaches what that means for accuracy, so that the interval is wider: use fit_predictor, or "
            "give shifted_sets to fit",
        )
    if 0 < fitted.farthest < far - SETTINGS.noise / np.sqrt(rows):
        yield EstimateWarning(
            "beyond",
            "warning",
            "the target is farther from the reference than every shifted set the estimator was fitted on: the "
            "estimate extrapolates",
        )


_OF_IMAGES = ". Of images a check network tells another mix from a model that fails (gdscore.models.check)"


def unreachable_classes(fitted: Fitted, shown: Floats, wanted: Floats) -> Iterator[EstimateWarning]:
    """Warning where rows show next to nothing of a class that they should have a share of."""
    missing = np.flatnonzero(shown < 0.01 * wanted)
    if len(missing):
        yield EstimateWarning(
            "unreachable_class",
            "warning",
            f"no row shows the class {_listed(fitted, missing, wanted)}, which the class mix given has: the model does "
            "not find it, or the mix is another one",
        )


def other_assumption(accuracy: float) -> EstimateWarning:
    """Warning that the reference's class mix means another accuracy, below the interval."""
    return EstimateWarning(
        "class_mix",
        "warning",
        f"if the target has the reference's mix of classes, accuracy is about {accuracy:.0%}, which is below this "
        f'interval. If you know that it has: est.estimate(outputs, class_mix="stable"){_OF_IMAGES}',
    )


def above_reference(
    fitted: Fitted, accuracy: float, shift: Floats, explained: float, rows: int, noise: float
) -> Iterator[EstimateWarning]:
    """Warning where the estimate is above the reference's accuracy by more than ``noise``, on rows that have moved."""
    far = float(np.abs(shift).max()) > SETTINGS.looks_shifted_from + SETTINGS.noise / np.sqrt(rows)
    if far and explained <= 0.5 and accuracy > fitted.reference_accuracy + noise:
        yield EstimateWarning(
            "above_reference",
            "warning",
            f"the estimate is above the {fitted.reference_accuracy:.1%} of the reference, although the rows have moved "
            "away from it: either they are easier, or the model is confident on inputs that it does not know; a few "
            "labels show which (gdscore.labeling.choose)",
        )


def weak_evidence(fitted: Fitted, low: float, high: float) -> Iterator[EstimateWarning]:
    """Warning where shifts that were left out of the fit were missed by far more than this interval allows for."""
    error, half = fitted.table.left_out_error, (high - low) / 2
    if error is not None and error > 1.5 * half:
        yield EstimateWarning(
            "weak_evidence",
            "info",
            f"shifts left out of the fit were missed by {points(error)} on average, and this interval allows for "
            f"{points(half)}, as the target seems little shifted: a few labels show whether that is so "
            "(gdscore.labeling.choose), and of images a check network (gdscore.models.check)",
        )


def _listed(fitted: Fitted, classes: NDArray[Any], shares: Floats | None = None) -> str:
    """Names of some classes, with their shares where these are given."""
    names: Sequence[Any] = fitted.class_names or range(fitted.n_classes)
    words = [repr(names[k]) + ("" if shares is None else f" ({shares[k]:.1%})") for k in classes[:12]]
    return ", ".join(words) + (" …" if len(classes) > 12 else "")


def _example_mix(fitted: Fitted) -> str:
    """Shares of the reference's first classes as code, for a person to change."""
    names: Sequence[Any] = fitted.class_names or range(fitted.n_classes)
    first = dict(zip(names[:3], fitted.correction.profile.mix.tolist(), strict=False))
    more = ", …" if fitted.n_classes > 3 else ""
    return f"{{{', '.join(f'{name!r}: {share:.2f}' for name, share in first.items())}{more}}}"


def begin_set(shifted: Any, profile: Profile, reference: Outputs, labels: NDArray[Any]) -> Callable[[], SetSummary]:
    """Begin to sum up a shifted set; the function returned gives its summary.

    A set that does not fit the reference, whose labels are given, is an error.
    """
    if not isinstance(shifted, ShiftedSet):
        raise GdscoreError(f"Expected `shifted_sets` to hold `gdscore.ShiftedSet`, but got {type(shifted).__name__}")
    outputs = shifted.outputs
    if (outputs.n_classes, outputs.n_features) != (reference.n_classes, reference.n_features):
        raise GdscoreError(
            f"Expected shifted sets with {reference.n_classes} classes and {reference.n_features} features as the "
            f"reference has, but one of {shifted.family!r} has {outputs.n_classes} and {outputs.n_features}"
        )
    if profile.located == "inputs" and profile.centres is not None:
        width, own_width = (profile.centres.shape[1], outputs.inputs.shape[1] if "inputs" in outputs.has else None)
        if own_width != width:
            raise GdscoreError(
                f"Expected shifted sets with {width} `inputs` as the reference has, but {shifted.family!r} has "
                f"{'none' if own_width is None else own_width}"
            )
    same_class_names(reference.class_names, outputs.class_names)
    same_decision(reference.decision, outputs.decision, "the reference")
    reference_labels = None
    if shifted.rows is not None:
        rows = np.asarray(shifted.rows)
        if rows.dtype.kind not in "iu" or rows.min() < 0 or rows.max() >= len(labels):
            came = f"they go from {rows.min()} to {rows.max()}" if rows.dtype.kind in "iuf" else f"got {rows.dtype}"
            raise GdscoreError(
                f"Expected `rows` of a shifted set to be rows of the reference, 0 … {len(labels) - 1}, but {came}"
            )
        reference_labels = labels[rows]
    begun, of_set = profile.begin(outputs, reference_labels), arrays.fetch(arrays.detached_copy(outputs.labels))

    def finish() -> SetSummary:
        outputs.check_values()
        return SetSummary.of(shifted.family, *begun(), of_set(), classes=len(profile.mix))

    outputs.valid  # noqa: B018 - begun where the outputs are, and waited for when the set is finished
    return finish
