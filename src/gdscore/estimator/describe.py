"""From outputs to the numbers the estimator reads: scores, scaled and transformed, in one pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore._stream import stream
from gdscore.errors import GdscoreError
from gdscore.estimator.confidence import ConfidenceCounter, ConfidenceHistogram
from gdscore.estimator.sizes import SizeEffect
from gdscore.outputs import Outputs
from gdscore.scores.base import HostStats, Score, Stats
from gdscore.scores.registry import create_score
from gdscore.scores.together import fit_together

__all__ = ["RECIPE", "Describer", "Description"]

RECIPE: dict[str, dict[str, Any]] = {
    "cot": {"k": 4000},
    "nuclear": {},
    "confscore": {},
    "frechet": {},
    "atc": {},
    "selfscore": {},
    "agreescore": {"soft": True},
}
"""Scores of the default recipe, each used where the reference and the shifted sets have what it needs."""

CALIBRATED = ("cot", "cott", "atc", "doc", "confscore", "entropy")
"""Scores that read probabilities as such: they get logits divided by the temperature fitted on the reference."""

DRAWS = 8
"""Samples of the reference that show what sampling adds to COT."""

BOUNDED = ("cot", "cott", "nuclear", "agreescore", "selfscore", "atc", "doc", "confscore", "rotation")


class _Profile(Score):
    """How often each class is predicted, and how much probability it gets with and without the prediction."""

    name = "profile"

    def measure(self, chunk: Outputs) -> Stats:
        """Sums over the rows, by class."""
        s = chunk.probabilities
        xp = arrays.namespace(s)
        chosen = xp.astype(chunk.predictions[:, None] == arrays.columns(s)[None, :], s.dtype)
        sums = {"predicted": chosen, "mass": s, "right": s * chosen, "square": (s * chosen) ** 2}
        return {name: arrays.wide(xp.sum(value, axis=0)) for name, value in sums.items()}

    def result(self, stats: HostStats) -> float:
        """Mean confidence; the sums themselves are what is wanted."""
        return float(stats["right"].sum() / self.n_rows)


@dataclass(frozen=True)
class Description:
    """Scores of one set of rows, and its profile by class."""

    scores: dict[str, float]
    rows: int
    profile: HostStats
    confidence: ConfidenceHistogram

    @property
    def predicted_mix(self) -> NDArray[Any]:
        """Share of each class among the predictions."""
        return np.asarray(self.profile["predicted"] / self.rows)


class Describer:
    """Computes the chosen scores of any set in one pass, against one reference.

    Parameters
    ----------
    scores : mapping of names to options
        What to compute.
    reference : Outputs
        Labelled outputs that scores with a reference are fitted on.
    temperature : float
        Divides the logits for the scores that read probabilities as such.
    """

    def __init__(self, scores: Mapping[str, Mapping[str, Any]], reference: Outputs, temperature: float) -> None:
        self.temperature = temperature
        self.scores = {name: create_score(name, **options) for name, options in scores.items()}
        scaled = reference.with_temperature(temperature)
        for group, fitted_on in ((False, reference), (True, scaled)):
            members = [s for name, s in self.scores.items() if (name in CALIBRATED) == group]
            failures = fit_together(members, fitted_on)
            if failures:
                raise GdscoreError("; ".join(f"{name}: {why}" for name, why in failures.items()))

    def sizes(self, reference: Outputs, seed: int = 0) -> SizeEffect:
        """What the number of rows adds to the scores, measured on the reference."""
        rows = len(reference)
        if rows < 4:
            return SizeEffect(reference_rows=rows)
        frechet = cot = floor = 0.0
        if "frechet" in self.scores:
            halves = reference[np.arange(0, rows, 2)], reference[np.arange(1, rows, 2)]
            score = create_score("frechet", **self.scores["frechet"].options).fit(halves[0]).update(halves[1])
            frechet = score.finish(score.statistics()) / sum(1 / len(half) for half in halves)
        if "cot" in self.scores:
            floor = self.describe(reference).scores["cot"]
            rng = np.random.default_rng(seed)
            few = max(rows // 4, 2)
            drawn = [reference[np.sort(rng.integers(0, rows, few))] for _ in range(DRAWS)]
            cot = max(float(np.mean([self.describe(part).scores["cot"] for part in drawn])) - floor, 0.0) * few
        return SizeEffect(frechet, cot, floor, rows)

    @classmethod
    def restored(cls, scores: dict[str, Score], temperature: float) -> Describer:
        """Describer of scores that are fitted already."""
        describer = cls.__new__(cls)
        describer.scores, describer.temperature = scores, temperature
        return describer

    def describe(self, outputs: Outputs | Iterable[Outputs], *, labelled: bool = False) -> Description:
        """Scores and profile of a set of rows; with how often they are right by confidence where labelled."""
        profile, confidence = _Profile(), ConfidenceCounter(labelled)
        # Copies share what was learned and count for themselves, so that several threads can describe at once.
        scores = {name: copy(score).reset() for name, score in self.scores.items()}
        for part in stream(outputs, "outputs"):
            scaled = part.with_temperature(self.temperature)
            profile.update(scaled)
            confidence.update(part)
            for name, s in scores.items():
                s.update(scaled if name in CALIBRATED else part)
        values = {name: s.finish(s.statistics()) for name, s in scores.items()}
        return Description(
            values, profile.n_rows, profile.statistics(), ConfidenceHistogram.of(confidence.statistics())
        )


def transformed(name: str, value: float, edge: float) -> float:
    """Score on the scale it is compared on: logit of bounded ones, kept ``edge`` from 0 and 1, logarithm of others."""
    if name in BOUNDED:
        clipped = min(max(value, edge), 1 - edge)
        return float(np.log(clipped / (1 - clipped)))
    if name in ("dispersion",):
        return value
    return float(np.log(max(value, 1e-300)))
