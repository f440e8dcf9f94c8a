"""`Estimate`: an accuracy with an interval, and what to be careful about."""

from __future__ import annotations

import html
from dataclasses import asdict, dataclass, field
from typing import Any

from gdscore.estimator.confidence import ConfidenceHistogram

__all__ = ["ClassEstimate", "Estimate", "Lookalike"]


@dataclass(frozen=True)
class ClassEstimate:
    """Estimated recall of one class: the share of its rows that are predicted as it."""

    label: int
    recall: float
    low: float
    high: float
    share: float
    """Estimated share of the class among the rows."""


@dataclass(frozen=True)
class Lookalike:
    """Kind of calibration sets whose scores are like those of the rows in question."""

    family: str
    weight: float
    """How like they are, of 1 in all; the default estimate rests on them to this share."""
    accuracy: float
    """True accuracy of those sets."""


@dataclass(frozen=True)
class Estimate:
    """Accuracy on the population the rows come from.

    Attributes
    ----------
    accuracy, low, high : float
        Estimate and interval, in [0, 1].
    level : float
        How often such intervals are meant to hold the true accuracy.
    n : int
        Rows seen.
    reference_accuracy : float
        Accuracy on the reference data.
    scores : dict of str to float
        The numbers the estimate was made of.
    per_class : list of ClassEstimate
        Recall by class.
    warnings : list of str
        What to be careful about, in plain words.
    class_mix_accuracy : float or None
        What the accuracy would be if nothing but the mix of classes had changed.
    method : str
        How it was computed.
    confidence : ConfidenceHistogram or None
        How confident the model was, by bins.
    lookalikes : list of Lookalike
        Kinds of calibration sets that look most like the rows, and how accurate the model is on them.
    views : dict of str to float
        What each view says by itself, of which a cautious estimate believes the lowest.
    """

    accuracy: float
    low: float
    high: float
    level: float
    n: int
    reference_accuracy: float
    scores: dict[str, float] = field(default_factory=dict)
    per_class: list[ClassEstimate] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    class_mix_accuracy: float | None = None
    method: str = "cautious"
    confidence: ConfidenceHistogram | None = None
    lookalikes: list[Lookalike] = field(default_factory=list)
    views: dict[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers, strings, lists and dicts."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [
            f"about {self.accuracy:.1%} accurate, between {self.low:.1%} and {self.high:.1%} "
            f"({_share(self.level)} interval, {self.n:,} rows); "
            f"it was {self.reference_accuracy:.1%} on the reference data"
        ]
        return "\n".join(lines + [f"careful: {warning}" for warning in self.warnings])

    def _repr_html_(self) -> str:
        bar = "position:absolute;top:0;height:12px;"
        width = max(self.high - self.low, 0.004)
        careful = "".join(f"<li>{html.escape(w)}</li>" for w in self.warnings)
        return (
            f"<div><b>{self.accuracy:.1%}</b> accurate, {self.low:.1%} to {self.high:.1%} "
            f"({_share(self.level)} interval, {self.n:,} rows); reference {self.reference_accuracy:.1%}"
            '<div style="position:relative;height:12px;width:320px;max-width:100%;background:rgba(128,128,128,.15)">'
            f'<div style="{bar}left:{self.low:.1%};width:{width:.1%};background:rgba(178,60,23,.35)"></div>'
            f'<div style="{bar}left:{self.accuracy:.1%};width:3px;background:#b23c17"></div>'
            f'<div style="{bar}left:{self.reference_accuracy:.1%};border-left:2px dashed currentColor"></div></div>'
            f"{f'<ul>{careful}</ul>' if careful else ''}</div>"
        )


def _share(value: float) -> str:
    """Percentage without decimals it does not have."""
    return f"{100 * value:.1f}".removesuffix(".0") + "%"
