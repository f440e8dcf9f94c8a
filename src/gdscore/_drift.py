"""Which columns of a table have moved: bins of the reference, and how far the rows of a target are from them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore.errors import GdscoreError, nearest
from gdscore.frames import is_missing

_EDGES, BINS = 11, 13
_MOST_COLUMNS, _MOST_NAMED = 300, 20
_CHANCE = 0.001
"""Share of columns that are named although nothing has moved."""


@dataclass(frozen=True)
class ColumnDrift:
    """How far a column of inputs is from that of the reference.

    Attributes
    ----------
    name : str
        Of the column, or its number.
    statistic : float
        Cramér's V between reference and target over the bins of the column: 0 where they are alike, 1 where they
        share no value.
    """

    name: str
    statistic: float


@dataclass(frozen=True)
class TableProfile:
    """Bins of the columns of a table, and its rows in them: all that later tables are compared with.

    Numbers have a bin for each tenth of the rows, one below and one above them all; other columns one for each of
    their eleven most frequent values and one for all others. The last bin has the missing values.
    """

    names: tuple[str, ...]  # of the columns
    # Shape (P, 11): upper ends of the bins of numbers, the last one repeated where there are fewer
    edges: NDArray[np.float64]
    values: list[list[str] | None]  # most frequent values of columns that are no numbers
    counts: NDArray[np.int64]  # shape (P, 13): rows in each bin

    @classmethod
    def of(cls, table: Any) -> TableProfile | None:
        """Profile of a data frame or matrix; None of other inputs, and of more than 300 columns."""
        columns = _plain_columns(table)
        if columns is None or not 0 < len(columns) <= _MOST_COLUMNS:
            return None
        edges, values = np.zeros((len(columns), _EDGES)), list[list[str] | None]()
        for place, column in enumerate(columns.values()):
            present = column[~_absent(column)]
            if column.dtype.kind == "f":
                tenths = np.linspace(0, 1, _EDGES)
                ends = np.unique(np.quantile(present, tenths, method="higher")) if len(present) else np.zeros(1)
                # What is below all numbers has a bin of its own; few values have one each.
                below = np.nextafter(ends[0], -np.inf)
                ends = np.concatenate([[below], ends[1:] if len(ends) == _EDGES else ends])
                edges[place] = np.pad(ends, (0, _EDGES - len(ends)), mode="edge")
                values.append(None)
            else:
                texts, rows = np.unique(present.astype(str), return_counts=True)
                values.append(texts[np.argsort(-rows, kind="stable")][:_EDGES].tolist())
        empty = np.zeros((len(columns), BINS), dtype=np.int64)
        profile = cls(tuple(columns), np.clip(edges, -1e300, 1e300), values, empty)
        return replace(profile, counts=profile.count(profile.bins(table)))

    def bins(self, table: Any) -> NDArray[np.int64]:
        """Bin of each row in each column, of shape (m, P), of a table with the same columns."""
        columns = _plain_columns(table) or {}
        if absent := [name for name in self.names if name not in columns]:
            raise GdscoreError(
                f"Expected `inputs` with the columns that the estimator was fitted on, but {absent[0]!r} is missing: "
                f"{nearest(absent[0], list(columns)) if columns else 'give the data frame or matrix of the inputs'}"
            )
        bins = []
        for place, name in enumerate(self.names):
            column, values = columns[name], self.values[place]
            if values is None:
                if column.dtype.kind != "f":
                    raise GdscoreError(f"Expected numbers in column {name!r} of `inputs` as before, but got text")
                of_row = np.searchsorted(self.edges[place], np.clip(column, -1e300, 1e300))
            elif column.dtype.kind == "f" and not _absent(column).all():
                raise GdscoreError(f"Expected text in column {name!r} of `inputs` as before, but got numbers")
            else:
                text = column.astype(str)
                position = {value: number for number, value in enumerate(values)}
                of_row = np.array([position.get(value, _EDGES) for value in text.tolist()], dtype=np.int64)
            bins.append(np.where(_absent(column), BINS - 1, of_row))
        return np.stack(bins, axis=1).astype(np.int64)

    def count(self, bins: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows in each bin of each column, of shape (P, 13)."""
        place = np.arange(len(self.names)) * BINS
        return np.bincount((bins + place).ravel(), minlength=len(place) * BINS).reshape(-1, BINS)

    def moved(self, counts: NDArray[np.int64]) -> list[ColumnDrift]:
        """Columns that are farther from the reference than samples of this size are by chance, the farthest first."""
        from scipy.stats import chi2
        from scipy.stats.contingency import association

        drifts = []
        for name, reference, target in zip(self.names, self.counts, counts, strict=True):
            both = np.stack([reference, target])
            both = both[:, both.sum(axis=0) > 0]
            if both.shape[1] < 2 or not both.sum(axis=1).all():
                continue
            statistic = float(association(both, method="cramer"))
            if chi2.sf(statistic**2 * both.sum(), both.shape[1] - 1) < _CHANCE:
                drifts.append(ColumnDrift(name, statistic))
        return sorted(drifts, key=lambda drift: -drift.statistic)[:_MOST_NAMED]


def _plain_columns(table: Any) -> dict[str, NDArray[Any]] | None:
    """Columns of a data frame or matrix by name or number: of float64, or of objects."""
    import narwhals as nw

    if isinstance(table, np.ndarray):
        return {str(k): _plain(column) for k, column in enumerate(table.T)} if table.ndim == 2 else None
    if not hasattr(table, "columns") or hasattr(table, "tocsr"):
        return None
    frame = nw.from_native(table, eager_only=True)
    columns = {name: frame.get_column(name) for name in frame.columns}
    # With missing values, nullable booleans are objects in some libraries.
    columns = {name: c.cast(nw.Float64) if c.dtype == nw.Boolean else c for name, c in columns.items()}
    plain = {str(name): _plain(column.to_numpy()) for name, column in columns.items() if not column.dtype.is_nested()}
    nested = (list, tuple, dict, np.ndarray)
    return {n: c for n, c in plain.items() if c.dtype.kind == "f" or not any(isinstance(v, nested) for v in c.tolist())}


def _plain(column: NDArray[Any]) -> NDArray[Any]:
    if column.dtype.kind in "mM":
        # One unit, whatever that of the column is.
        return np.where(np.isnat(column), np.nan, column.astype(f"{column.dtype.kind}8[us]").astype(np.float64))
    if column.dtype.kind == "O" and all(is_missing(v) or isinstance(v, _NUMBERS) for v in column.tolist()):
        # Where a value is missing, some libraries make objects of booleans and whole numbers.
        column = np.array([np.nan if is_missing(value) else float(value) for value in column.tolist()])
    return np.asarray(column, dtype=np.float64 if column.dtype.kind in "biuf" else object)


_NUMBERS = (bool, int, float, np.bool_, np.number)


def _absent(column: NDArray[Any]) -> NDArray[np.bool_]:
    if column.dtype.kind == "f":
        return np.asarray(np.isnan(column))
    return np.array([is_missing(value) for value in column.tolist()], dtype=bool)
