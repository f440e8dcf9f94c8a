"""What calibration saw: one line for every meta-set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore.estimator.describe import transformed

__all__ = ["Calibration"]


@dataclass(frozen=True)
class Calibration:
    """Meta-sets an estimator was fitted on.

    Attributes
    ----------
    families : list of str
        Kind of shift of each meta-set.
    accuracy, rows : array
        Their true accuracies and numbers of rows.
    scores : dict of str to array
        Each score's value on every meta-set.
    predicted : array
        Accuracy that calibration without the set's family gives it.
    reference_rows : int
        Rows of the reference, which the meta-sets are made of.
    size_bias : dict of str to float
        Scores that a set of n rows raises by b/n, and their b.
    """

    families: list[str]
    accuracy: NDArray[Any]
    rows: NDArray[Any]
    scores: dict[str, NDArray[Any]]
    predicted: NDArray[Any]
    reference_rows: int
    size_bias: dict[str, float]

    def transformed(self, scores: dict[str, float], rows: int) -> NDArray[Any]:
        """Scores of one set, on the scales they are compared on and as if it had the reference's rows."""
        values = []
        for name in self.scores:
            value = scores[name]
            if name in self.size_bias:
                moved = value + self.size_bias[name] * (1 / self.reference_rows - 1 / rows)
                value = max(moved, 0.1 * value)
            values.append(transformed(name, value, rows))
        return np.array(values)

    def x(self) -> NDArray[Any]:
        """Transformed scores, sets × scores."""
        lines = zip(*self.scores.values(), strict=True)
        return np.array(
            [
                self.transformed(dict(zip(self.scores, line, strict=True)), int(rows))
                for line, rows in zip(lines, self.rows, strict=True)
            ]
        )

    def y(self) -> NDArray[Any]:
        """Logits of the accuracies, half a row away from 0 and 1."""
        smooth = (self.accuracy * self.rows + 0.5) / (self.rows + 1)
        return np.asarray(np.log(smooth / (1 - smooth)))
