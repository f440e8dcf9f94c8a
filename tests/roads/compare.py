"""Run roads, keep what they yield, and compare it with the record."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tests.roads.data import plain
from tests.roads.road import ROADS
from tests.scores.test_golden import processor

RECORD = Path(__file__).with_name("record.json")
ACCEPTED = Path(__file__).with_name("accepted.json")
EXACT = ("scores",)
GONE = "(gone)"


def run(names: Iterable[str]) -> dict[str, Any]:
    """All entries of roads, by name; with one thread, as sums of several threads depend on their number."""
    import torch
    from threadpoolctl import threadpool_limits

    found: dict[str, Any] = {}
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name in names:
                for key, value in ROADS[name]():
                    _add(found, f"{name}/{key}", value)
    finally:
        torch.set_num_threads(before)
    return found


def _add(found: dict[str, Any], key: str, value: Any) -> None:
    if isinstance(value, dict):
        for name, part in value.items():
            _add(found, f"{key}/{name}", part)
        return
    assert key not in found, f"two entries {key}"
    found[key] = plain(value)


def record(names: Iterable[str]) -> int:
    """Write the record of these roads; others stay as they are."""
    stored = json.loads(RECORD.read_text()) if RECORD.exists() else {"entries": {}}
    names = list(names)
    kept = {k: v for k, v in stored["entries"].items() if k.partition("/")[0] not in names}
    entries = kept | run(names)
    lines = ",\n".join(f"  {json.dumps(k)}: {json.dumps(entries[k], separators=(',', ':'))}" for k in sorted(entries))
    RECORD.write_text(f'{{\n "processor": {json.dumps(processor())},\n "entries": {{\n{lines}\n }}\n}}\n')
    return len(entries)


@dataclass(frozen=True)
class Difference:
    """An entry that is not what the record says."""

    key: str
    old: Any
    new: Any
    accepted: str | None

    def __str__(self) -> str:
        first = f"{self.key}\n    was {json.dumps(self.old)}\n    is  {json.dumps(self.new)}"
        return first if self.accepted is None else f"{first}\n    on purpose: {self.accepted}"


def differences(names: Iterable[str]) -> list[Difference]:
    """Entries of these roads that differ; those with their accepted new value name the reason."""
    names = list(names)
    stored = json.loads(RECORD.read_text())
    same_processor = stored["processor"] == processor()
    changes = json.loads(ACCEPTED.read_text())
    old = {k: v for k, v in stored["entries"].items() if k.partition("/")[0] in names}
    new = run(names)
    found = []
    for key in sorted(old.keys() | new.keys()):
        was, is_ = old.get(key, GONE), new.get(key, GONE)
        tolerance = (0.0 if _exact(key) else 1e-12) if same_processor else 1e-6
        meant = changes.get(key)
        if meant is not None and same(meant["new"], is_, tolerance):
            found.append(Difference(key, was, is_, meant["reason"]))
        elif meant is not None or not same(was, is_, tolerance):
            found.append(Difference(key, was, is_, None))
    return found


def _exact(key: str) -> bool:
    # The eigenvalues of the Fréchet distance come from LAPACK, which does not round alike in every process.
    return key.partition("/")[0] in EXACT and "frechet" not in key


def same(was: Any, is_: Any, tolerance: float) -> bool:
    """Whether two entries agree: texts and whole numbers exactly, others to a tolerance, 0 for bit for bit."""
    if isinstance(was, list) and isinstance(is_, list):
        return len(was) == len(is_) and all(same(a, b, tolerance) for a, b in zip(was, is_, strict=True))
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (was, is_))
    if not numbers:
        return type(was) is type(is_) and was == is_
    if not tolerance:
        return bool(was == is_)
    return math.isclose(was, is_, rel_tol=tolerance, abs_tol=tolerance)


def accept(found: Iterable[Difference], pattern: str, reason: str) -> int:
    """Note that entries were changed on purpose."""
    changes = json.loads(ACCEPTED.read_text())
    chosen = [d for d in found if d.accepted is None and fnmatchcase(d.key, pattern)]
    changes |= {d.key: {"reason": reason, "old": d.old, "new": d.new} for d in chosen}
    ACCEPTED.write_text(json.dumps(dict(sorted(changes.items())), indent=1, ensure_ascii=False) + "\n")
    return len(chosen)
