"""Numbers in words: verdicts, sentences and what each score says."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gdscore._options import number
from gdscore.estimator.estimate import ClassEstimate, Estimate
from gdscore.scores.registry import create_score, score_class

if TYPE_CHECKING:
    from gdscore.estimator import AccuracyEstimator
    from gdscore.report.target import Target

__all__ = ["ScoreRow", "percent", "plain", "score_rows", "score_sentence", "sentence", "verdict", "worst_first"]


def percent(value: float) -> str:
    """Percentage with a decimal where it has one.

    Examples
    --------
    >>> percent(0.8), percent(0.825)
    ('80%', '82.5%')
    """
    return f"{100 * value:.1f}".removesuffix(".0") + "%"


def plain(value: float) -> str:
    """Number with four digits, without an exponent where that is readable.

    Examples
    --------
    >>> plain(0.123456), plain(58556.3), plain(0.0000123)
    ('0.1235', '58,556', '1.23e-05')
    """
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.4g}"


def verdict(estimate: Estimate, min_accuracy: float) -> str:
    """Whether the accuracy is above a threshold, in words that keep the interval in sight.

    Parameters
    ----------
    estimate : Estimate
        What was estimated.
    min_accuracy : float
        Accuracy that is asked for, between 0 and 1.

    Examples
    --------
    >>> from gdscore import Estimate
    >>> verdict(Estimate(0.83, 0.78, 0.88, level=0.9, n=500, reference_accuracy=0.95), 0.8)
    'Probably above the threshold of 80%: the estimate is, but the interval reaches below it.'
    """
    threshold = percent(number("min_accuracy", min_accuracy, least=0, most=1))
    word = standing(estimate, min_accuracy)
    if word in ("above", "below"):
        return f"{word.capitalize()} the threshold of {threshold}, and so is the whole interval."
    other = "below" if word == "probably above" else "above"
    return f"{word.capitalize()} the threshold of {threshold}: the estimate is, but the interval reaches {other} it."


def standing(estimate: Estimate, min_accuracy: float) -> str:
    """Where an estimate stands to a threshold: above, probably above, probably below, below."""
    side = "above" if estimate.accuracy >= min_accuracy else "below"
    sure = estimate.low >= min_accuracy if side == "above" else estimate.high < min_accuracy
    return side if sure else f"probably {side}"


def sentence(text: str) -> str:
    """Text with a capital and a full stop.

    Examples
    --------
    >>> sentence("12 rows are few; collect more"), sentence("the mix is far")
    ('12 rows are few; collect more.', 'The mix is far.')
    """
    text = " ".join(text.split()).rstrip(".")
    return f"{text[:1].upper()}{text[1:]}."


def worst_first(estimate: Estimate) -> list[ClassEstimate]:
    """Estimates by class, the lowest recall first."""
    return sorted(estimate.per_class, key=lambda c: (c.recall, c.label))


def score_sentence(name: str) -> str:
    """What a score is and how it goes with accuracy, from its docstring and its registered facts.

    Examples
    --------
    >>> score_sentence("dispersion")
    'Logarithm of the between-class variance of the features, by predicted class (Xie et al., NeurIPS 2023). Rises
    with accuracy.'
    """
    text = sentence((inspect.getdoc(score_class(name)) or name).split("\n\n")[0])
    if any(told in text for told in ("accuracy", "error rate")):
        return text
    return f"{text} {'Rises' if create_score(name).higher_is_better else 'Falls'} with accuracy."


class ScoreRow(NamedTuple):
    """One score in the table of all: its value for each target, what it alone would say, what calibration saw."""

    name: str
    sentence: str
    used: bool
    values: list[float | None]
    alone: list[float | None]
    seen: tuple[float, float] | None


def score_rows(estimator: AccuracyEstimator, targets: list[Target]) -> list[ScoreRow]:
    """Scores of the estimates, then those that were computed beside them."""
    seen = estimator.calibration_.scores
    used = [name for name in seen if any(name in t.estimate.scores for t in targets)]
    beside = sorted({name for t in targets for name in t.scores or {}} - set(used))
    opinions = [
        estimator.judge_.opinions(t.estimate.scores, t.estimate.n) if set(seen) <= set(t.estimate.scores) else {}
        for t in targets
    ]
    rows = []
    for name in used:
        values = [t.estimate.scores.get(name) for t in targets]
        alone = [said.get(name) for said in opinions]
        span = (float(np.min(seen[name])), float(np.max(seen[name])))
        rows.append(ScoreRow(name, score_sentence(name), True, values, alone, span))
    for name in beside:
        values = [None if t.scores is None else t.scores.get(name) for t in targets]
        rows.append(ScoreRow(name, score_sentence(name), False, values, [None] * len(targets), None))
    return rows
