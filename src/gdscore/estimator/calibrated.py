"""What calibration saw: one line for every shifted set."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore.estimator.describe import transformed
from gdscore.estimator.sizes import COPY, Drawn, SizeEffect
from gdscore.shifts.families import is_resampled

__all__ = ["Calibration"]


@dataclass(frozen=True)
class Calibration:
    """Shifted sets an estimator was fitted on.

    Attributes
    ----------
    families : list of str
        Kind of shift of each shifted set.
    accuracy, rows : array
        Their true accuracies and numbers of rows.
    scores : dict of str to array
        Each score's value on every shifted set.
    predicted : array
        Accuracy that calibration without the set's family gives it; NaN for families that cannot be left out.
    sizes : SizeEffect
        What the number of rows adds to scores.
    fresh : bool
        Whether the rows are independent of the reference, and not shifted copies of it. Sets named ``resampled-…`` are
        drawn from it in any case.
    """

    families: list[str]
    accuracy: NDArray[Any]
    rows: NDArray[Any]
    scores: dict[str, NDArray[Any]]
    predicted: NDArray[Any] = field(default_factory=lambda: np.empty(0))
    sizes: SizeEffect = field(default_factory=SizeEffect)
    fresh: bool = False

    def transformed(self, scores: dict[str, float], rows: int) -> NDArray[Any]:
        """Scores of a target, on the scales they are compared on."""
        return self._scaled(scores, self.sizes.fresh(rows))

    def raw(self, scores: dict[str, float]) -> NDArray[Any]:
        """Scores of a target as they are, in the order of the table."""
        return np.array([scores[name] for name in self.scores])

    def x(self) -> NDArray[Any]:
        """Transformed scores, sets × scores."""
        lines = zip(*self.scores.values(), strict=True)
        return np.array(
            [
                self._scaled(dict(zip(self.scores, line, strict=True)), self._drawn(family, int(rows)))
                for line, family, rows in zip(lines, self.families, self.rows, strict=True)
            ]
        )

    def y(self) -> NDArray[Any]:
        """Logits of the accuracies, half a row away from 0 and 1."""
        smooth = (self.accuracy * self.rows + 0.5) / (self.rows + 1)
        return np.asarray(np.log(smooth / (1 - smooth)))

    def _scaled(self, scores: dict[str, float], drawn: Drawn) -> NDArray[Any]:
        freed = self.sizes.freed({name: scores[name] for name in self.scores}, drawn)
        # One edge for all: where a score is saturated, sets of other sizes must not look different.
        edge = 0.5 / max(float(np.median(self.rows)), 1.0)
        return np.array([transformed(name, freed[name], edge) for name in self.scores])

    def _drawn(self, family: str, rows: int) -> Drawn:
        if is_resampled(family):
            return Drawn(1 / rows, 0.0)
        return self.sizes.fresh(rows) if self.fresh else COPY
