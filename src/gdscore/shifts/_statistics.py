"""What shifts of tables learn from the reference: quantiles, spreads, frequent categories and a sample of rows."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore.shifts._cells import Cells, Layout, learn_layout
from gdscore.shifts._rows import Numbers, RowDraws

__all__ = ["DenseReference", "sampled_rows"]

_SAMPLE = 5000
_CATEGORY_DIMENSIONS = 4


def sampled_rows(rows: int) -> NDArray[np.int64]:
    """Positions of at most 5,000 rows, evenly spaced."""
    return np.unique(np.linspace(0, rows - 1, min(rows, _SAMPLE)).astype(np.int64))


class DenseReference:
    """Statistics of the columns of a NumPy array or a DataFrame.

    Attributes
    ----------
    sample : Cells
        At most 5,000 rows, evenly spaced.
    median, spread, low, high : array of length p
        Of each numeric column: median, standard deviation, 5 % and 95 % quantiles of its finite values.
    missing_numbers, missing_codes : array of bool
        Whether the column has missing values.
    """

    def __init__(self, inputs: Any) -> None:
        self.layout: Layout = learn_layout(inputs)
        cells = self.layout.split(inputs)
        rows = sampled_rows(len(cells.numbers))
        self.sample = Cells(cells.numbers[rows], cells.codes[rows])
        finite = np.where(np.isfinite(cells.numbers), cells.numbers, np.nan)
        with warnings.catch_warnings():
            # Columns without any value: their statistics become 0, and shifts leave them alone.
            warnings.simplefilter("ignore", RuntimeWarning)
            low, median, high = np.nanquantile(finite, [0.05, 0.5, 0.95], axis=0).reshape(3, -1)
            spread = np.nanstd(finite, axis=0)
        self.low, self.median, self.high, self.spread = (np.nan_to_num(v) for v in (low, median, high, spread))
        # A median between two values is none that the column holds; of 0/1 columns it would be 0.5.
        self.median = _nearest_value(finite, self.median)
        self.missing_numbers = np.isnan(cells.numbers).any(axis=0)
        self.missing_codes = (cells.codes == -1).any(axis=0)

    @property
    def categories(self) -> NDArray[np.int64]:
        """Number of categories of each categorical column."""
        return np.array([len(v) for v in self.layout.vocabularies], dtype=np.int64)

    def embed(self, inputs: Any) -> Numbers:
        """Rows as points: standardised numbers beside random directions for the categories."""
        cells = self.layout.split(inputs)
        scale = np.where(self.spread > 0, self.spread, 1)
        points = [np.clip(np.nan_to_num((cells.numbers - self.median) / scale), -5, 5)]
        for k, count in enumerate(self.categories):
            directions = RowDraws("categories", 0, rows=int(count) + 1).normal(k, _CATEGORY_DIMENSIONS)
            points.append(directions[np.where(cells.codes[:, k] < 0, count, cells.codes[:, k])])
        return np.hstack(points)


def _nearest_value(values: Numbers, targets: Numbers) -> Numbers:
    distance = np.where(np.isnan(values), np.inf, np.abs(values - targets))
    nearest = np.take_along_axis(values, distance.argmin(axis=0)[None, :], axis=0)[0]
    return np.where(np.isnan(nearest), targets, nearest)
