"""Shifts of tables, to calibrate a classifier of tables on: changed cells, other mixes of subpopulations, periods.

The families of NumPy arrays and data frames are in `gdscore.shifts._dense`, those of SciPy sparse matrices in
`gdscore.shifts._sparse`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gdscore._arrays import to_numpy
from gdscore._checks import integer
from gdscore._windows import as_times
from gdscore.errors import GdscoreError
from gdscore.shifts._dense import DENSE, DenseReference, families_of, sampled_rows, shift_dense
from gdscore.shifts._families import Draws, Numbers, RowShift, set_draws
from gdscore.shifts._sparse import SPARSE, SparseReference, shift_sparse

_MOST_CLUSTERS = 8
_ROWS_PER_CLUSTER = 25
_SKEW = (0.5, 1.5, 4.0, 10.0)
"""By severity: from the first cluster to the last, in random order, the share of rows kept falls to exp(−skew)."""


class TableShift(RowShift):
    """One shift family of tables at one severity, as a callable ``batch → batch``; made by `table_shifts`."""

    def __call__(self, batch: Any, *, start: int = 0) -> Any:
        """Shifted rows, in a table of the same type; ``start`` is the position of the first one in its set."""
        sparse = isinstance(self.reference, SparseReference)
        families, shift = (SPARSE, shift_sparse) if sparse else (DENSE, shift_dense)
        rows = batch.shape[0] if len(getattr(batch, "shape", ())) else 0
        context = families.context(self.family, self.severity, self.seed, start, rows)
        return shift(self.family, batch, self.reference, context)


def table_shifts(
    inputs: Any, *, time: Any = None, severities: Iterable[int] = (1, 2, 3, 4), seed: int = 0
) -> list[TableShift | Subpopulation | Period]:
    """Shifts for a table, which learn the columns' values from the reference.

    Every row has random numbers of its own, which depend on the seed, the family, the row's position in its set and the
    column: a set shifted in batches is the set shifted at once. What concerns the whole set, such as the choice of
    columns, is drawn once for each seed, family and severity.

    Parameters
    ----------
    inputs : array, DataFrame or sparse matrix of shape (n, p)
        Reference inputs: a 2-D NumPy array (numbers, strings or objects), a pandas or polars DataFrame or a SciPy
        sparse matrix. Shifted batches have the same type, columns and dtypes. Columns of dates are left as they are.
    time : array of length n, optional
        When each row was observed: numbers or dates. It adds the family ``time``.
    severities : iterable of int
        1 (accuracy hardly changes) to 4 (accuracy falls a lot).
    seed : int
        Seed of all random numbers.

    Returns
    -------
    list of shifts
        Callables with the families ``noise``, ``scaling``, ``offset``, ``missing``, ``permuted``, ``swapped``,
        ``constant``, ``quantile`` and ``categories``, as far as the table has columns for them (sparse matrices: the
        stored values, without ``offset``, ``quantile`` and ``categories``). `Subpopulation` and `Period` choose rows of
        the reference instead: they have ``selects_rows = True`` and a method ``rows(inputs)``, and labels must follow.

    Examples
    --------
    >>> import numpy as np
    >>> from gdscore.shifts.tables import table_shifts
    >>> inputs = np.arange(12.0).reshape(6, 2)
    >>> shifts = table_shifts(inputs, severities=[2])
    >>> shifts[0], [shift.family for shift in shifts]
    (TableShift(family='noise', severity=2, seed=0),
     ['noise', 'scaling', 'offset', 'missing', 'permuted', 'swapped', 'constant', 'quantile', 'subpopulation'])
    >>> shifted = shifts[0](inputs)
    >>> bool((shifts[0](inputs[4:], start=4) == shifted[4:]).all())
    True
    """
    levels, seed = DENSE.check_severities(severities), integer("seed", seed, least=0)
    sparse = hasattr(inputs, "tocsr")
    reference = SparseReference(inputs) if sparse else DenseReference(inputs)
    names = list(SPARSE) if isinstance(reference, SparseReference) else families_of(reference)
    shifts: list[TableShift | Subpopulation | Period] = [
        TableShift(name, severity, seed, reference) for name in names for severity in levels
    ]
    points = reference.embed(inputs)
    centres = _learn_centres(points[sampled_rows(len(points))], seed)
    shifts += [Subpopulation(severity, seed, reference, centres) for severity in levels]
    if time is not None:
        order = _order_in_time(time, len(points))
        # Fewer rows than periods leave the last ones empty.
        shifts += [Period(s, index, order) for s in levels for index in range(min(s + 1, len(order)))]
    return shifts


def _nearest_centre(points: Numbers, centres: Numbers) -> NDArray[np.int64]:
    return np.asarray(((centres**2).sum(axis=1) - 2 * points @ centres.T).argmin(axis=1))


def _learn_centres(points: Numbers, seed: int) -> Numbers:
    """Centres of two to eight clusters by Lloyd's algorithm, from rows that the seed chooses."""
    count = int(np.clip(len(points) // _ROWS_PER_CLUSTER, 2, _MOST_CLUSTERS))
    order = np.argsort(Draws("centres", seed, rows=len(points)).uniform(0, 1)[:, 0])
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
        kept = Draws(name, self.seed, rows=len(cluster)).uniform(0, 1)[:, 0] < share[cluster]
        return np.flatnonzero(kept)


def _order_in_time(time: Any, rows: int) -> NDArray[np.int64]:
    """Positions of the reference's rows from the earliest to the latest."""
    times = to_numpy(time)
    if isinstance(next(iter(times.flat), None), str):
        times = as_times(times)  # 02/01/2026 comes after 01/02/2027 as text
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
