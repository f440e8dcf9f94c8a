"""Shifts of tables as callables ``inputs → inputs``, to calibrate a classifier of tables on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from gdscore._options import integer
from gdscore.shifts._context import check_severities
from gdscore.shifts._dense import DENSE, families_of, shift_dense
from gdscore.shifts._sparse import SPARSE, SparseReference, shift_sparse
from gdscore.shifts._statistics import DenseReference, sampled_rows
from gdscore.shifts.subsets import Period, Subpopulation, learn_centres, order_in_time

__all__ = ["TableShift", "table_shifts"]


@dataclass(frozen=True, eq=False)
class TableShift:
    """One shift family at one severity, as a callable ``batch → batch``; made by `table_shifts`.

    Attributes
    ----------
    family : str
        Name that all severities share.
    severity : int
        1 (mild) to 4 (strong).
    seed : int
        Of the random numbers of the rows and of the set.
    """

    family: str
    severity: int
    seed: int = 0
    reference: Any = field(default=None, repr=False)

    selects_rows: ClassVar[bool] = False

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
        Of all random numbers.

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
    levels, seed = check_severities(severities), integer("seed", seed, least=0)
    sparse = hasattr(inputs, "tocsr")
    reference = SparseReference(inputs) if sparse else DenseReference(inputs)
    names = list(SPARSE) if isinstance(reference, SparseReference) else families_of(reference)
    shifts: list[TableShift | Subpopulation | Period] = [
        TableShift(name, severity, seed, reference) for name in names for severity in levels
    ]
    points = reference.embed(inputs)
    centres = learn_centres(points[sampled_rows(len(points))], seed)
    shifts += [Subpopulation(severity, seed, reference, centres) for severity in levels]
    if time is not None:
        order = order_in_time(time, len(points))
        shifts += [Period(severity, index, order) for severity in levels for index in range(severity + 1)]
    return shifts
