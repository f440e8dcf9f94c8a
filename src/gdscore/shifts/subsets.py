"""Shifts that choose rows of the reference instead of changing them: other mixes of subpopulations, and periods."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gdscore.errors import GdscoreError
from gdscore.shifts._rows import Numbers, RowDraws, set_draws

__all__ = ["Period", "Subpopulation", "learn_centres", "order_in_time"]

_MOST_CLUSTERS = 8
_ROWS_PER_CLUSTER = 25
_SKEW = (0.5, 1.5, 4.0, 10.0)
"""By severity: from the first cluster to the last, in random order, the share of rows kept falls to exp(−skew)."""


def _nearest_centre(points: Numbers, centres: Numbers) -> NDArray[np.int64]:
    return np.asarray(((centres**2).sum(axis=1) - 2 * points @ centres.T).argmin(axis=1))


def learn_centres(points: Numbers, seed: int) -> Numbers:
    """Centres of two to eight clusters by Lloyd's algorithm, from rows that the seed chooses."""
    count = int(np.clip(len(points) // _ROWS_PER_CLUSTER, 2, _MOST_CLUSTERS))
    order = np.argsort(RowDraws("centres", seed, rows=len(points)).uniform(0, 1)[:, 0])
    centres = points[order[:count]]
    for _ in range(20):
        nearest = _nearest_centre(points, centres)
        centres = np.stack(
            [points[nearest == c].mean(axis=0) if (nearest == c).any() else centres[c] for c in range(len(centres))]
        )
    return centres


@dataclass(frozen=True, eq=False)
class Subpopulation:
    """Rows of the reference in another mix of clusters: every cluster keeps a share of its rows, drawn once per set.

    It chooses rows instead of changing them, so labels have to follow: ``labels[shift.rows(inputs)]``. At least one
    cluster keeps all its rows.
    """

    severity: int
    seed: int = 0
    reference: Any = field(default=None, repr=False)
    centres: Any = field(default=None, repr=False)

    family: ClassVar[str] = "subpopulation"
    selects_rows: ClassVar[bool] = True

    def rows(self, inputs: Any) -> NDArray[np.int64]:
        """Positions, in ascending order, of the rows that belong to the shifted set."""
        cluster = _nearest_centre(self.reference.embed(inputs), self.centres)
        present = np.unique(cluster)
        rank = np.empty(len(self.centres))
        order = np.argsort(set_draws(self.family, self.severity, self.seed, 0, len(present)))
        rank[present[order]] = np.arange(len(present)) / max(1, len(present) - 1)
        share = np.exp(-_SKEW[self.severity - 1] * rank)
        name = f"{self.family}, the rows, {self.severity}"
        kept = RowDraws(name, self.seed, rows=len(cluster)).uniform(0, 1)[:, 0] < share[cluster]
        return np.flatnonzero(kept)


def order_in_time(time: Any, rows: int) -> NDArray[np.int64]:
    """Positions of the reference's rows from the earliest to the latest."""
    times = np.asarray(time)
    if times.shape != (rows,):
        raise GdscoreError(
            f"Expected `time` to have one value for each of the {rows} rows, but got shape {times.shape}"
        )
    try:
        missing = bool((times != times).any())
        order = np.argsort(times, kind="stable")
    except TypeError as error:
        raise GdscoreError(f"Expected `time` to hold numbers or dates that can be ordered, but {error}") from None
    if missing:
        raise GdscoreError("Expected `time` without missing values, but there are some: leave those rows out")
    return order


@dataclass(frozen=True, eq=False)
class Period:
    """Rows of one period of the reference: number ``index`` of ``severity + 1`` periods with equally many rows.

    Shorter periods differ more from the whole. It chooses rows instead of changing them, so labels have to follow:
    ``labels[shift.rows(inputs)]``.
    """

    severity: int
    index: int
    order: Any = field(default=None, repr=False)

    family: ClassVar[str] = "time"
    selects_rows: ClassVar[bool] = True

    def rows(self, inputs: Any) -> NDArray[np.int64]:
        """Positions, in ascending order, of the rows that belong to the shifted set."""
        count = inputs.shape[0]
        if count != len(self.order):
            raise GdscoreError(
                f"Expected the {len(self.order)} rows of the reference, whose time is known, but got {count} rows"
            )
        return np.sort(np.array_split(self.order, self.severity + 1)[self.index])
