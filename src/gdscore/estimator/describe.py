"""From outputs to the numbers the estimator reads: scores, scaled and transformed, in one pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore.errors import GdscoreError
from gdscore.estimator.confidence import ConfidenceCounter, ConfidenceHistogram
from gdscore.outputs import Outputs
from gdscore.scores._fitting import fit_together
from gdscore.scores._rechunk import stream
from gdscore.scores.base import HostStats, Score, Stats
from gdscore.scores.registry import create_score

__all__ = ["RECIPE", "Describer", "Description"]

RECIPE: dict[str, dict[str, Any]] = {
    "cot": {"k": 4000},
    "nuclear": {},
    "confscore": {},
    "frechet": {},
    "agreescore": {"soft": True},
}
"""Scores of the default recipe, each used where the reference and the meta-sets have what it needs."""

CALIBRATED = ("cot", "cott", "atc", "doc", "confscore", "entropy")
"""Scores that read probabilities as such: they get logits divided by the temperature fitted on the reference."""

BOUNDED = ("cot", "cott", "nuclear", "agreescore", "atc", "doc", "confscore", "rotation")


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

    def finish(self, stats: HostStats) -> float:
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
        Labelled outputs that scores with a source are fitted on.
    temperature : float
        Divides the logits for the scores that read probabilities as such.
    """

    def __init__(self, scores: Mapping[str, Mapping[str, Any]], reference: Outputs, temperature: float) -> None:
        self.temperature = temperature
        self.scores = {name: create_score(name, **options) for name, options in scores.items()}
        scaled = reference.with_temperature(temperature)
        for group, source in ((False, reference), (True, scaled)):
            members = [s for name, s in self.scores.items() if (name in CALIBRATED) == group]
            failures = fit_together(members, source)
            if failures:
                raise GdscoreError("; ".join(f"{name}: {why}" for name, why in failures.items()))

    def size_bias(self, reference: Outputs) -> dict[str, float]:
        """B of the scores that n rows raise by b/n: the Fréchet distance of one half of the reference to the other."""
        if "frechet" not in self.scores:
            return {}
        halves = reference[np.arange(0, len(reference), 2)], reference[np.arange(1, len(reference), 2)]
        if min(map(len, halves)) < 2:
            return {}
        score = create_score("frechet", **self.scores["frechet"].options).fit(halves[0]).update(halves[1])
        return {"frechet": score.finish(score.statistics()) / sum(1 / len(half) for half in halves)}

    @classmethod
    def restored(cls, scores: dict[str, Score], temperature: float) -> Describer:
        """Describer of scores that are fitted already."""
        describer = cls.__new__(cls)
        describer.scores, describer.temperature = scores, temperature
        return describer

    def describe(self, outputs: Outputs | Iterable[Outputs], *, labelled: bool = False) -> Description:
        """Scores and profile of a set of rows; with how often they are right by confidence where labelled."""
        profile, confidence = _Profile(), ConfidenceCounter(labelled)
        for s in self.scores.values():
            s.reset()
        for part in stream(outputs, "outputs"):
            scaled = part.with_temperature(self.temperature)
            profile.update(scaled)
            confidence.update(part)
            for name, s in self.scores.items():
                s.update(scaled if name in CALIBRATED else part)
        values = {name: s.finish(s.statistics()) for name, s in self.scores.items()}
        return Description(
            values, profile.n_rows, profile.statistics(), ConfidenceHistogram.of(confidence.statistics())
        )


def transformed(name: str, value: float, rows: int) -> float:
    """Score on the scale it is compared on: logit of bounded ones, logarithm of positive ones."""
    if name in BOUNDED:
        edge = 0.5 / max(rows, 1)
        clipped = min(max(value, edge), 1 - edge)
        return float(np.log(clipped / (1 - clipped)))
    if name in ("dispersion",):
        return value
    return float(np.log(max(value, 1e-300)))
