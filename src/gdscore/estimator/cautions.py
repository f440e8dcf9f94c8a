"""Warnings that earn their place: what a person should know before trusting an estimate."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "FEW_ROWS",
    "about_class_mix",
    "about_distance",
    "about_level",
    "about_model",
    "about_outputs_only",
    "about_reference",
    "about_rows",
    "about_scores",
]

FEW_ROWS = 200
SMALL_REFERENCE = 500
TOO_EASY = 0.995
FAR_MIX = 0.15
DISAGREEMENT = 0.3
DISAGREEMENT_IF_FALLEN = 0.2
FALLEN = 0.1
FAR = 3.0


def about_rows(rows: int) -> list[str]:
    """Too few rows to say much."""
    if rows >= FEW_ROWS:
        return []
    return [f"{rows} rows are few: an accuracy over so few rows is uncertain by itself; collect at least {FEW_ROWS}"]


def about_reference(rows: int, accuracy: float) -> list[str]:
    """A reference that is too small or too easy to calibrate on."""
    found = []
    if rows < SMALL_REFERENCE:
        found.append(
            f"the reference has only {rows} rows: calibration on fewer than {SMALL_REFERENCE} is unreliable; use more"
        )
    if accuracy > TOO_EASY:
        found.append(
            f"the model makes almost no errors on the reference ({accuracy:.1%} accurate), so there is little to learn "
            "from about its errors; a reference it finds harder would calibrate better"
        )
    return found


def about_class_mix(
    target: NDArray[Any], reference: NDArray[Any], rows: int, reference_rows: int, corrected: float | None
) -> list[str]:
    """Predicted classes that are far from the reference's, or only a few of them."""
    found = []
    # So many rows show so many of the reference's classes, no more.
    shown = np.random.default_rng(0).multinomial(rows, reference / reference.sum()) / rows
    spread, usual = _effective_classes(target), _effective_classes(shown)
    if spread < 0.5 * usual:
        found.append(
            f"predictions have collapsed to few classes (as many as {spread:.1f} equally frequent ones, against "
            f"{usual:.1f} on the reference): the model may have failed in a way scores do not show"
        )
    distance = 0.5 * float(np.abs(target - reference).sum())
    noise = 0.4 * float(np.sqrt(reference * (1 - reference) * (1 / rows + 1 / reference_rows)).sum())
    if distance > FAR_MIX + 2 * noise:
        beside = "" if corrected is None else f"; if only the mix had changed, accuracy would be {corrected:.1%}"
        found.append(
            f"the mix of predicted classes is far from the reference's ({distance:.0%} of the rows would have to "
            f"change class){beside}"
        )
    return found


def about_scores(opinions: dict[str, float], fallen: float = 0.0) -> list[str]:
    """Scores that, each by itself, say very different things; less will do where accuracy has fallen already."""
    if len(opinions) < 2:
        return []
    low, high = min(opinions, key=lambda k: opinions[k]), max(opinions, key=lambda k: opinions[k])
    if opinions[high] - opinions[low] < (DISAGREEMENT if fallen < FALLEN else DISAGREEMENT_IF_FALLEN):
        return []
    return [
        f"scores disagree: {low} alone would say {opinions[low]:.0%}, {high} alone {opinions[high]:.0%}; this shift "
        "may be unlike those calibrated on"
    ]


def about_distance(distance: float) -> list[str]:
    """Warn where scores are unlike those of every shifted set."""
    if distance <= FAR:
        return []
    return [
        f"these scores are unlike those of every calibration set ({distance:.0f} times as far from the nearest as "
        "calibration sets are from each other): the estimate rests on sets that differ from this data"
    ]


def about_model(same: bool) -> list[str]:
    """Outputs whose logits do not follow from their features by the head of the model calibrated on."""
    if same:
        return []
    return [
        "these outputs seem to come from another model than the one calibrated on: their logits do not follow from "
        "their features by its last layer; calibrate anew for this model"
    ]


def about_outputs_only(outputs_only: bool) -> list[str]:
    """Calibration without a single shifted input."""
    if not outputs_only:
        return []
    return [
        "calibrated on outputs alone, without shifted inputs: errors on real shifts are likely to be larger than the "
        "interval says; fit_predictor or shifted sets of your own calibrate better"
    ]


def about_level(asked: float, reachable: float, kinds: int) -> list[str]:
    """A level that so few kinds of shifts cannot support."""
    if asked <= reachable:
        return []
    return [
        f"{kinds} kinds of shifts support intervals of at most {reachable:.0%}, so the level is that and not "
        f"{asked:.0%}: add families"
    ]


def _effective_classes(mix: NDArray[Any]) -> float:
    present = mix[mix > 0]
    return float(np.exp(-(present * np.log(present)).sum()))
