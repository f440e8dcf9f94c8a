"""Runs cases of an attack and counts what comes out."""

import json
import math
import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gdscore import GdscoreError

ATTACKS = {}


def attack(setup):
    """Register an attack.

    ``setup(folder)`` gives a function ``case(rng)`` that attacks once and returns the numbers it got as answers.
    """
    ATTACKS[setup.__name__] = setup
    return setup


@dataclass
class Outcome:
    name: str
    answered: int = 0
    refused: int = 0
    raw: Counter = field(default_factory=Counter)
    first: dict = field(default_factory=dict)
    megabytes: int = 0

    @property
    def failed(self):
        return bool(self.raw)

    def add(self, kind, case):
        self.raw[kind] += 1
        self.first.setdefault(kind, case)

    def lines(self, seed):
        total = self.answered + self.refused + sum(self.raw.values())
        yield (
            f"{self.name:<16}{total:>8} cases{self.refused:>8} refused{self.answered:>8} answered"
            f"{sum(self.raw.values()):>6} wrong{self.megabytes:>7} MB"
        )
        for kind, count in self.raw.most_common():
            yield f"    {count:>5} × {kind}\n            --only {self.name} --seed {seed} --case {self.first[kind]}"

    def to_json(self):
        return json.dumps(vars(self))

    @classmethod
    def from_json(cls, text):
        values = json.loads(text)
        return cls(**{**values, "raw": Counter(values["raw"])})


def run(name, folder, *, seed=0, cases=None, seconds=None, only=None, on_case=lambda case: None):
    """Attack until the cases or the seconds are over; ``only`` runs one case and lets its exception through."""
    outcome = Outcome(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # What NumPy warns of in our computations would reach the user.
        warnings.simplefilter("error", RuntimeWarning)
        one = ATTACKS[name](Path(folder))
        end = math.inf if seconds is None else time.monotonic() + seconds
        numbers = [only] if only is not None else range(cases or 10**9)
        for number in numbers:
            if time.monotonic() > end:
                break
            on_case(number)
            rng = np.random.default_rng([seed, number])
            try:
                answers = one(rng)
            except GdscoreError as error:
                outcome.refused += 1
                if "\n" in str(error) or not str(error):
                    outcome.add(f"message of several lines or none: {str(error)[:80]!r}", number)
                if only is not None:
                    print(f"refused: {error}")  # noqa: T201
            except Exception as error:
                if only is not None:
                    traceback.print_exc()
                outcome.add(_worded(error), number)
            else:
                outcome.answered += 1
                if not all(np.isfinite(value).all() for value in answers or ()):
                    outcome.add("an answer that is not finite", number)
    outcome.megabytes = _peak()
    return outcome


def _worded(error):
    place = traceback.extract_tb(error.__traceback__)[-1]
    ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "gdscore" in frame.filename]
    place = ours[-1] if ours else place
    text = (str(error).splitlines() or [""])[0][:100]
    return f"{type(error).__name__} in {Path(place.filename).name}:{place.lineno} ({text})"


def _peak():
    status = Path("/proc/self/status")
    return int(status.read_text().split("VmHWM:")[1].split()[0]) // 1024 if status.exists() else 0
