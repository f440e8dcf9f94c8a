"""Families of shifts for NumPy arrays and DataFrames, each a function on the matrices of numbers and category codes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore.shifts._cells import Cells, DenseReference
from gdscore.shifts._rows import Context, Families, Numbers, chosen, pairs_to_swap, signs

__all__ = ["DENSE", "families_of", "shift_dense"]

DENSE = Families()


def shift_dense(family: str, batch: Any, reference: DenseReference, context: Context) -> Any:
    """Batch of the same type after the shift."""
    before = reference.layout.split(batch)
    after = DENSE.function(family)(before, reference, context)
    return reference.layout.join(batch, before, after)


def families_of(reference: DenseReference) -> list[str]:
    """Names of the families that change a table with these columns."""
    numeric, categorical = len(reference.layout.numeric), len(reference.layout.categorical)
    need = {
        "categories": bool(categorical),
        "missing": True,
        "permuted": True,
        "constant": True,
        "swapped": numeric > 1,
    }
    return [name for name in DENSE if need.get(name, numeric > 0)]


@DENSE.family(0.2, 0.6, 1.5, 4.0)
def noise(cells: Cells, reference: DenseReference, context: Context) -> Cells:
    """Normal noise on the numbers, in units of each column's standard deviation."""
    normal = context.rows.normal(0, cells.numbers.shape[1])
    return Cells(cells.numbers + context.level * reference.spread * normal, cells.codes)


@DENSE.family(0.15, 0.5, 1.2, 2.8)
def scaling(cells: Cells, reference: DenseReference, context: Context) -> Cells:
    """Multiply each numeric column about its median by exp(± level), as a change of units or of gain would."""
    factor = np.exp(context.level * signs(context, cells.numbers.shape[1]))
    return Cells(reference.median + factor * (cells.numbers - reference.median), cells.codes)


@DENSE.family(0.3, 0.8, 1.6, 3.0)
def offset(cells: Cells, reference: DenseReference, context: Context) -> Cells:
    """Add to each numeric column up to ± level standard deviations, as a badly calibrated sensor would."""
    amount = 2 * context.of_set(0, cells.numbers.shape[1]) - 1
    return Cells(cells.numbers + context.level * reference.spread * amount, cells.codes)


@DENSE.family(0.1, 0.3, 0.6, 0.9)
def missing(cells: Cells, reference: DenseReference, context: Context) -> Cells:
    """Lose a share of all cells: missing where the reference's column has missing values, else imputed.

    The imputed value is the column's median or most frequent category: many models refuse missing values they have
    not been trained on.
    """
    lost = context.rows.uniform(0, cells.numbers.shape[1]) < context.level
    numbers = np.where(lost, np.where(reference.missing_numbers, np.nan, reference.median), cells.numbers)
    lost = context.rows.uniform(1, cells.codes.shape[1]) < context.level
    codes = np.where(lost, np.where(reference.missing_codes | (reference.categories == 0), -1, 0), cells.codes)
    return Cells(numbers, codes)


@DENSE.family(0.1, 0.3, 0.6, 1.0)
def permuted(cells: Cells, reference: DenseReference, context: Context) -> Cells:
    """Shuffle a share of the columns: every cell of them takes the value of a random row of the reference."""
    numeric, categorical = _chosen_columns(cells, context)
    other = context.rows.integers(0, cells.numbers.shape[1], len(reference.sample.numbers))
    numbers = np.where(numeric, np.take_along_axis(reference.sample.numbers, other, axis=0), cells.numbers)
    other = context.rows.integers(1, cells.codes.shape[1], len(reference.sample.codes))
    codes = np.where(categorical, np.take_along_axis(reference.sample.codes, other, axis=0), cells.codes)
    return Cells(numbers, codes)


@DENSE.family(0.05, 0.2, 0.5, 1.0)
def swapped(cells: Cells, reference: DenseReference, context: Context) -> Cells:
    """Exchange a share of the numeric columns with their neighbour in size, as a wrong column order would."""
    size = np.abs(reference.median) + reference.spread
    numbers = cells.numbers[:, pairs_to_swap(size, context)]
    refused = np.isnan(numbers) & ~np.isnan(cells.numbers) & ~reference.missing_numbers
    return Cells(np.where(refused, reference.median, numbers), cells.codes)


@DENSE.family(0.05, 0.2, 0.5, 0.85)
def constant(cells: Cells, reference: DenseReference, context: Context) -> Cells:
    """Give a share of the columns one value of the reference in all rows, as a sensor that is stuck would."""
    numeric, categorical = _chosen_columns(cells, context)
    numbers = np.where(numeric, _one_value(reference.sample.numbers, context, 1), cells.numbers)
    codes = np.where(categorical, _one_value(reference.sample.codes, context, 2), cells.codes)
    return Cells(numbers, codes)


@DENSE.family(0.1, 0.25, 0.45, 0.75)
def quantile(cells: Cells, reference: DenseReference, context: Context) -> Cells:
    """Move the numbers of each column by a share of the way to its 5 % or 95 % quantile."""
    goal = np.where(signs(context, cells.numbers.shape[1]) > 0, reference.high, reference.low)
    return Cells((1 - context.level) * cells.numbers + context.level * goal, cells.codes)


@DENSE.family(0.1, 0.3, 0.6, 1.0)
def categories(cells: Cells, reference: DenseReference, context: Context) -> Cells:
    """Replace a share of all categories by random ones that the reference has in the same column."""
    count = cells.codes.shape[1]
    hit = (context.rows.uniform(0, count) < context.level) & (reference.categories > 0) & (cells.codes != -1)
    other = (context.rows.uniform(1, count) * reference.categories).astype(np.int64)
    return Cells(cells.numbers, np.where(hit, other, cells.codes))


def _chosen_columns(cells: Cells, context: Context) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    numeric = cells.numbers.shape[1]
    which = chosen(context, numeric + cells.codes.shape[1])
    return which[:numeric], which[numeric:]


def _one_value(sample: NDArray[Any], context: Context, layer: int) -> NDArray[Any] | Numbers:
    row = (context.of_set(layer, sample.shape[1]) * len(sample)).astype(np.int64)
    return np.asarray(sample[row, np.arange(sample.shape[1])])
