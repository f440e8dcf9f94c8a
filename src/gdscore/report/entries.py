"""Targets as a page shows them, and as the JSON it holds: what matters most where there is too much for one page."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from gdscore.estimator import ClassEstimate
from gdscore.report.calibrating import NUMBERED
from gdscore.report.target import Target
from gdscore.report.words import sentence, worst_first

__all__ = ["MISSING", "WORST", "Entry", "as_json", "entries_of", "warnings_of"]

DETAILED = NUMBERED
CLASSES = 2500
JSON_LENGTH = 450_000
MISSING = 100
WORST = 20


@dataclass(frozen=True)
class Entry:
    """A target as the page shows it."""

    number: int
    target: Target
    detailed: bool
    foremost: bool
    classes: list[ClassEstimate]

    @property
    def when(self) -> str:
        """Day, and the time of day where there is one."""
        when = self.target.when
        if when is None:
            return ""
        if when.second:
            return when.strftime("%Y-%m-%d %H:%M:%S %Z").strip()
        return when.strftime("%Y-%m-%d %H:%M %Z" if when.hour or when.minute else "%Y-%m-%d").strip()


def entries_of(targets: Sequence[Target], by_time: bool) -> list[Entry]:
    """Details go to the latest targets of a time series, otherwise to the least accurate ones."""
    if by_time:
        first = list(range(len(targets)))[::-1]
    else:
        first = sorted(range(len(targets)), key=lambda i: targets[i].estimate.accuracy)
    chosen = set(first[:DETAILED])
    most = max(WORST, CLASSES // len(chosen))
    return [
        Entry(i + 1, t, i in chosen, i == first[0], worst_first(t.estimate)[:most] if i in chosen else [])
        for i, t in enumerate(targets)
    ]


def warnings_of(entries: Sequence[Entry]) -> list[tuple[str, list[Entry]]]:
    """Each warning once, with those it is about."""
    about: dict[str, list[Entry]] = {}
    for entry in entries:
        for warning in dict.fromkeys(entry.target.estimate.warnings):
            about.setdefault(sentence(warning), []).append(entry)
    return sorted(about.items(), key=lambda item: -len(item[1]))


def as_json(entries: Sequence[Entry], min_accuracy: float | None, missing: Mapping[str, str]) -> Markup:
    """All estimates as JSON that cannot end the element it stands in; where that is long, only what is listed."""
    data: dict[str, Any] = {"format": "gdscore report", "version": 1, "min_accuracy": min_accuracy}
    data["not_estimated"] = [{"name": name, "error": why} for name, why in missing.items()]
    text = ""
    for whole in (True, False):
        data["targets"] = [_plain(entry, whole) for entry in entries]
        text = json.dumps(_finite(data), separators=(",", ":"), allow_nan=False)
        if len(text) <= JSON_LENGTH:
            break
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


def _plain(entry: Entry, whole: bool) -> dict[str, Any]:
    target, estimate = entry.target, entry.target.estimate.to_dict()
    left_out = []
    if not whole:
        listed = {c.label for c in entry.classes}
        total = len(estimate["per_class"])
        estimate["per_class"] = [c for c in estimate["per_class"] if c["label"] in listed]
        if len(estimate["per_class"]) < total:
            left_out.append(f"{total - len(estimate['per_class'])} classes")
        if not entry.detailed and estimate["confidence"] is not None:
            estimate["confidence"] = None
            left_out.append("confidence")
    return {
        "name": target.name,
        "when": None if target.when is None else target.when.isoformat(),
        "estimate": estimate,
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
