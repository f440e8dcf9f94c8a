"""Scores freed of what the mere number of rows adds to them.

Two samples of one distribution are not equal, and some scores take the difference for a shift. Calibration knows both
kinds of shifted sets: shifted copies of the reference's rows, which differ from it by the shift alone, and rows drawn
anew. Scores of both, and of targets, are compared as if they had infinitely many rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["COPY", "Drawn", "SizeEffect"]


@dataclass(frozen=True)
class Drawn:
    """How a set's rows relate to the reference's.

    Attributes
    ----------
    own : float
        1/n for rows drawn by chance, 0 for the reference's own rows.
    other : float
        1/m, with m rows of the reference, where the rows are independent of it, 0 where they are a part of it.
    """

    own: float
    other: float


COPY = Drawn(0.0, 0.0)
"""The reference's own rows, shifted or not."""


@dataclass(frozen=True)
class SizeEffect:
    """What sampling adds to scores of unshifted data: b·(1/n + 1/m) for n rows and a reference of m.

    Attributes
    ----------
    frechet : float
        b of the Fréchet distance, from the distance between the halves of the reference.
    cot : float
        b of COT, from samples of the reference: their mix of classes is not quite its own.
    cot_floor : float
        COT of the reference itself, where no sampling adds to it.
    reference_rows : int
        m.
    """

    frechet: float = 0.0
    cot: float = 0.0
    cot_floor: float = 0.0
    reference_rows: int = 1

    def fresh(self, rows: int) -> Drawn:
        """Of rows that have nothing to do with the reference's."""
        return Drawn(1 / rows, 1 / self.reference_rows)

    def freed(self, scores: Mapping[str, float], drawn: Drawn) -> dict[str, float]:
        """Scores of a set as if it had infinitely many rows."""
        values, noise = dict(scores), drawn.own + drawn.other
        if "frechet" in values:
            # What is left of an unshifted set is noise of about this size: below it nothing can be told.
            smallest = self.frechet / self.reference_rows
            values["frechet"] = max(values["frechet"] - self.frechet * noise, 0.0) + smallest
        if "cot" in values and values["cot"] > self.cot_floor:
            # The farther from the reference, the less its own mix counts: the two add up like lengths at a right angle.
            beyond, added = values["cot"] - self.cot_floor, self.cot * noise
            values["cot"] = self.cot_floor + math.sqrt(max(beyond**2 - added**2, 0.0))
        return values
