"""Histogram of confidences, of the reference and of a target: what a report draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore.calibration import sums_by_confidence
from gdscore.outputs import Outputs
from gdscore.scores.base import HostStats, Score, Stats

__all__ = ["ConfidenceCounter", "ConfidenceHistogram"]

BINS = 20


@dataclass(frozen=True)
class ConfidenceHistogram:
    """Rows by the probability of their predicted class, in bins of equal width.

    Attributes
    ----------
    rows, confidence : list of float
        Number of rows, and sum of their confidences, by bin.
    correct : list of float or None
        Rows predicted right by bin, where labels are known.
    """

    rows: list[float]
    confidence: list[float]
    correct: list[float] | None = None

    @property
    def edges(self) -> NDArray[Any]:
        """Bounds of the bins, one more than there are bins."""
        return np.linspace(0.0, 1.0, len(self.rows) + 1)

    @classmethod
    def of(cls, stats: HostStats) -> ConfidenceHistogram:
        """Histogram from what a `ConfidenceCounter` counted."""
        return cls(**{name: [float(v) for v in values] for name, values in stats.items()})


class ConfidenceCounter(Score):
    """Counts rows, confidence and, for labelled rows, right predictions by bins of confidence."""

    name = "confidence"

    def __init__(self, labelled: bool = False) -> None:
        self.inputs = frozenset({"logits", "labels"} if labelled else {"logits"})
        super().__init__()

    def measure(self, chunk: Outputs) -> Stats:
        """Sums by bin."""
        labelled = "labels" in chunk.has
        sums = sums_by_confidence(chunk.confidence, chunk.correct if labelled else None, BINS)
        return dict(zip(("rows", "confidence", "correct"), sums, strict=False))

    def result(self, stats: HostStats) -> float:
        """Mean confidence; the histogram itself is what is wanted."""
        return float(stats["confidence"].sum() / self.n_rows)
