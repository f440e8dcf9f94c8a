"""What calibration saw: one line for every meta-set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

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
        Accuracy that the fit without the set's family gives it.
    """

    families: list[str]
    accuracy: NDArray[Any]
    rows: NDArray[Any]
    scores: dict[str, NDArray[Any]]
    predicted: NDArray[Any]
