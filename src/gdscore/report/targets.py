"""`Target`, an estimate with the name a report shows it under, and what a page shows of several of them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeAlias

from markupsafe import Markup

from gdscore._checks import number
from gdscore._format import percent
from gdscore._windows import as_utc, time_of, time_text
from gdscore.errors import GdscoreError
from gdscore.estimator import ClassEstimate, Estimate, EstimateWarning
from gdscore.estimator.estimate import SEVERITIES
from gdscore.scores import ScoreTable

DETAILED = 12
"""Targets whose classes, confidences and scores are shown."""
CLASSES = 1500
"""Classes listed on a page, of all targets together."""
CLASSES_AT_LEAST = 20
JSON_LENGTH = 450_000
CLASS_LENGTH = 150
"""Least characters that a class takes in the JSON."""
NAMED = 6
"""Other targets named beside a warning."""


@dataclass(frozen=True)
class Target:
    """One set of unlabelled rows and its estimate.

    Attributes
    ----------
    name : str
        What the reader calls it: a file, a day, a hospital.
    estimate : Estimate
        From `AccuracyEstimator.estimate`.
    scores : ScoreTable, optional
        More scores of the same rows, from `gdscore.score_all`, to be listed beside those of the estimate.
    when : datetime, optional
        When the rows were collected. Targets that all have a time are shown as a time series.
    truth : float, optional
        True accuracy, where labels are known; shown beside the estimate.
    segment : str, optional
        Part of the rows, such as a country: a time series is drawn for each.

    Examples
    --------
    >>> from gdscore import Estimate
    >>> Target("may.parquet", Estimate(0.8, 0.7, 0.9, level=0.9, n_rows=500, reference_accuracy=0.95)).estimate.accuracy
    0.8
    """

    name: str
    estimate: Estimate
    scores: ScoreTable | None = None
    when: datetime | None = None
    truth: float | None = None
    segment: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.estimate, Estimate):
            raise GdscoreError(
                f"Expected `estimate` to be a `gdscore.Estimate`, but got {type(self.estimate).__name__}"
            )
        if not isinstance(self.when, datetime | None):
            raise GdscoreError(
                f"Expected `when` to be a datetime, but got {self.when!r}: give datetime(2026, 1, 31) for a day"
            )
        if self.truth is not None:
            number("truth", self.truth, least=0, most=1)

    @property
    def held(self) -> bool:
        """Whether the interval holds the truth."""
        return self.truth is not None and self.estimate.low <= self.truth <= self.estimate.high

    @property
    def time_text(self) -> str:
        """When, in words; empty where that is not known."""
        return "" if self.when is None else time_text(self.when)


Targets: TypeAlias = Estimate | Target | Sequence[Target] | Mapping[Any, Estimate]


def as_targets(items: Targets) -> list[Target]:
    """List of targets, whichever way they were given."""
    if isinstance(items, Estimate):
        return [Target("target", items)]
    if isinstance(items, Mapping):
        truth = getattr(items, "truth", {})
        return [replace(_named(key, estimate), truth=truth.get(key)) for key, estimate in items.items()]
    listed = list(items) if isinstance(items, Iterable) else [items]
    for target in listed:
        if not isinstance(target, Target):
            raise GdscoreError(
                "Expected an Estimate, targets or a dict of names and estimates, but got "
                f"{type(target).__name__}: give {{name: estimate}} or [Target(name, estimate), …]"
            )
    return listed


def _named(key: Any, estimate: Estimate) -> Target:
    """Target of a segment, whose name may be a day, a time, a pandas Period or a text such as 2026-09."""
    if isinstance(key, tuple):  # of several columns
        named = [_named(part, estimate) for part in key]
        of_time = next((target for target in named if target.when is not None), None)
        segment = ", ".join(target.name for target in named if target is not of_time)
        return replace(of_time or named[0], name=f"{of_time.name} {segment}" if of_time else segment, segment=segment)
    return Target(time_text(key) if isinstance(key, datetime) else str(key), estimate, when=time_of(key))


def in_order(targets: Sequence[Target]) -> tuple[list[Target], bool]:
    """Targets by time, and True, where there are several that all have one; otherwise as they are."""
    if len(targets) < 2 or any(t.when is None for t in targets):
        return list(targets), False
    return sorted(targets, key=moment), True


def moment(target: Target) -> datetime:
    """Time of a target in UTC."""
    if target.when is None:
        raise GdscoreError(f"Expected {target.name!r} to have a time: give `when` to its `Target`")
    return as_utc(target.when)


def worst_first(estimate: Estimate) -> list[ClassEstimate]:
    """Estimates by class, the lowest recall first."""
    return sorted(estimate.per_class, key=lambda c: (c.recall.value, c.label))


# -- sentences ------------------------------------------------------------------------------------------------


def compare_with_threshold(estimate: Estimate, min_accuracy: float) -> str:
    """Whether the accuracy is above a threshold, in a sentence that mentions the interval.

    Parameters
    ----------
    estimate : Estimate
        Of the target.
    min_accuracy : float
        Accuracy that is asked for, between 0 and 1.

    Examples
    --------
    >>> from gdscore import Estimate
    >>> compare_with_threshold(Estimate(0.83, 0.78, 0.88, level=0.9, n_rows=500, reference_accuracy=0.95), 0.8)
    'Probably above the threshold of 80%: the estimate is, but the interval reaches below it.'
    """
    threshold = percent(number("min_accuracy", min_accuracy, least=0, most=1), short=True)
    word = standing(estimate, min_accuracy)
    if word in ("above", "below"):
        return f"The complete interval is {word} the threshold of {threshold}."
    other = "below" if word == "probably above" else "above"
    return f"{word.capitalize()} the threshold of {threshold}: the estimate is, but the interval reaches {other} it."


def standing(estimate: Estimate, min_accuracy: float) -> str:
    """Place of an estimate relative to a threshold: above, probably above, probably below, below."""
    side = "above" if estimate.accuracy >= min_accuracy else "below"
    sure = estimate.low >= min_accuracy if side == "above" else estimate.high < min_accuracy
    return side if sure else f"probably {side}"


def critical_words(estimate: Estimate) -> str:
    """Why an estimate may be meaningless, in a few words; empty where no warning is critical."""
    words = {
        "collapse": "predictions have collapsed to few classes",
        "other_model": "the outputs are of another model",
        "one_class": "the reference has one class only",
        "below_chance": "the model is no better than chance on the reference",
        "constant_confidence": "the model gives no probabilities",
    }
    codes = [w.code for w in estimate.warnings if w.severity == "critical"]
    return " and ".join(words.get(code, code.replace("_", " ")) for code in codes)


def sentence(text: str) -> str:
    """Text with a capital and a full stop, or the question mark that it ends in.

    Examples
    --------
    >>> sentence("12 rows are few; collect more"), sentence("the mix is far. did you mean it?")
    ('12 rows are few; collect more.', 'The mix is far. did you mean it?')
    """
    text = " ".join(text.split()).rstrip(".")
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('?') else '.'}"


# -- what a page shows ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """A target as the page shows it: its classes, the worst first, where its details are shown."""

    number: int
    target: Target
    detailed: bool
    classes: list[ClassEstimate]


def entries_of(targets: Sequence[Target], by_time: bool) -> list[Entry]:
    """Entries in the order of the targets; details go to the least accurate ones and to the newest of a series."""
    first = sorted(range(len(targets)), key=lambda i: targets[i].estimate.accuracy)
    if by_time:
        first.insert(0, first.pop(first.index(len(targets) - 1)))
    chosen = set(first[:DETAILED])
    most = max(CLASSES_AT_LEAST, CLASSES // len(chosen))
    return [
        Entry(i + 1, t, i in chosen, worst_first(t.estimate)[:most] if i in chosen else [])
        for i, t in enumerate(targets)
    ]


def scale_of(targets: Sequence[Target], min_accuracy: float | None) -> tuple[float, float]:
    """Ends of the scale that bars are drawn on, in whole tenths: all that is drawn fits, and differences show."""
    drawn = [x for t in targets for x in (t.estimate.low, t.estimate.high, t.estimate.reference_accuracy, t.truth)]
    numbers = [x for x in (*drawn, min_accuracy) if x is not None]
    low, high = math.floor(10 * min(numbers)) / 10, math.ceil(10 * max(numbers)) / 10
    return (low, high) if high > low else (low - 0.1, high) if low else (0.0, 0.1)


@dataclass(frozen=True)
class Remark:
    """A warning, and the other targets it holds for."""

    warning: EstimateWarning
    also: list[str]
    more: int


def by_target(targets: Sequence[Target]) -> list[tuple[str, list[Remark]]]:
    """Warnings under the target they belong to, the most severe first, each once.

    A warning of all targets stands under an empty name; one of several stands under the first of them.
    """
    holders: dict[EstimateWarning, list[int]] = {}
    for i, target in enumerate(targets):
        for warning in dict.fromkeys(target.estimate.warnings):
            holders.setdefault(warning, []).append(i)
    everywhere: list[Remark] = []
    groups: list[list[Remark]] = [[] for _ in targets]
    for warning, (first, *others) in holders.items():
        if others and len(others) + 1 == len(targets):
            everywhere.append(Remark(warning, [], 0))
        else:
            names = [targets[i].name for i in others]
            groups[first].append(Remark(warning, names[:NAMED], max(0, len(names) - NAMED)))
    named = [("", everywhere), *((t.name, remarks) for t, remarks in zip(targets, groups, strict=True))]
    return [
        (name, sorted(remarks, key=lambda remark: SEVERITIES.index(remark.warning.severity)))
        for name, remarks in named
        if remarks
    ]


def as_json(entries: Sequence[Entry], min_accuracy: float | None, missing: Mapping[str, str]) -> Markup:
    """All estimates as JSON that cannot end the element it stands in; where that is long, only what is listed."""
    data: dict[str, Any] = {"format": "gdscore report", "version": 2, "min_accuracy": min_accuracy}
    data["not_estimated"] = [{"name": name, "error": why} for name, why in missing.items()]
    text = ""
    fits = sum(len(e.target.estimate.per_class) for e in entries) * CLASS_LENGTH <= JSON_LENGTH
    for complete in (True, False) if fits else (False,):
        data["targets"] = [_plain(entry, complete) for entry in entries]
        text = json.dumps(_finite(data), separators=(",", ":"), allow_nan=False)
        if len(text) <= JSON_LENGTH:
            break
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


def _plain(entry: Entry, complete: bool) -> dict[str, Any]:
    target, estimate = entry.target, entry.target.estimate
    left_out = []
    if not complete:
        if missing := len(estimate.per_class) - len(entry.classes):
            left_out.append(f"{missing} classes")
        if estimate.confidence is not None and not entry.detailed:
            left_out.append("confidence")
        estimate = replace(
            estimate, per_class=entry.classes, confidence=estimate.confidence if entry.detailed else None
        )
    return {
        "name": target.name,
        "when": None if target.when is None else target.when.isoformat(),
        "truth": target.truth,
        "estimate": estimate.to_dict(),
        "scores": None if target.scores is None else dict(target.scores),
        "left_out": left_out,
    }


def _finite(value: Any) -> Any:
    """Plain data whose numbers JSON has; others become null."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
