"""Shift families of SciPy sparse matrices: they change stored values only, so that the result stays sparse."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from gdscore.errors import GdscoreError
from gdscore.shifts._dense import as_dtype, chosen, pairs_to_swap, sampled_rows, signs
from gdscore.shifts._families import Context, Draws, Families, Numbers

SPARSE = Families(severities=4)

_DIMENSIONS = 16
"""Of the points that rows become."""


class SparseReference:
    """Statistics of the columns of a SciPy sparse matrix.

    ``sample`` has at most 5,000 rows, evenly spaced. ``typical`` and ``size`` are the root mean square of the stored
    values of each column, and of all its values.
    """

    def __init__(self, inputs: Any) -> None:
        if 0 in inputs.shape or len(inputs.shape) != 2:
            raise GdscoreError(f"Expected `inputs` to have rows and columns, but got shape {tuple(inputs.shape)}")
        if inputs.dtype.kind not in "fiub":
            raise GdscoreError(f"Expected a sparse matrix of real numbers, but got {inputs.dtype}")
        csr = inputs.tocsr()
        self.columns = csr.shape[1]
        self.sample = csr[sampled_rows(csr.shape[0])]
        count = np.bincount(csr.indices, minlength=self.columns)
        squares = np.bincount(csr.indices, weights=_finite(csr.data) ** 2, minlength=self.columns)
        self.typical: Numbers = np.sqrt(squares / np.maximum(count, 1))
        self.size: Numbers = np.sqrt(squares / csr.shape[0])

    def embed(self, inputs: Any) -> Numbers:
        """Rows as points of 16 dimensions, by a random projection."""
        directions = Draws("projection", 0, rows=self.columns).normal(0, _DIMENSIONS)
        csr = _checked_sparse(inputs, self)
        csr.data = _finite(csr.data)
        return np.asarray(csr @ directions)


def _finite(values: NDArray[Any]) -> Numbers:
    """Values with 0 in the place of those that are missing or infinite."""
    return np.where(np.isfinite(values), values, 0).astype(np.float64)


def _checked_sparse(batch: Any, reference: SparseReference) -> Any:
    if not hasattr(batch, "tocsr") or len(batch.shape) != 2 or batch.shape[1] != reference.columns:
        got = f"{type(batch).__name__} of shape {tuple(getattr(batch, 'shape', ()))}"
        raise GdscoreError(f"Expected a sparse matrix of {reference.columns} columns, as the reference, but got {got}")
    return batch.tocsr(copy=True)


def shift_sparse(family: str, batch: Any, reference: SparseReference, context: Context) -> Any:
    """Batch of the same sparse format and dtype after the shift."""
    csr = _checked_sparse(batch, reference)
    csr.sum_duplicates()
    shifted = SPARSE[family].function(csr, reference, context)
    if shifted.dtype != batch.dtype:
        shifted.data = as_dtype(shifted.data, batch.dtype)
    return shifted.asformat(batch.format)


def _stored_rows(csr: Any) -> NDArray[np.int64]:
    return np.repeat(np.arange(csr.shape[0]), np.diff(csr.indptr))


def _with_values(csr: Any, values: Numbers) -> Any:
    whole = csr.dtype.kind in "iub"
    # In float64, as SciPy has no sparse matrices of the half precision that 8-bit integers are rounded in.
    rounded = np.rint(values, dtype=np.float64) if whole else values
    return type(csr)((rounded, csr.indices, csr.indptr), shape=csr.shape)


@SPARSE.family((0.2, 0.6, 1.5, 4.0))
def noise(csr: Any, reference: SparseReference, context: Context) -> Any:
    """Normal noise on the stored values, in units of the root mean square of the column's stored values."""
    normal = ndtri(context.rows.uniform_at(0, _stored_rows(csr), csr.indices))
    return _with_values(csr, csr.data + context.level * reference.typical[csr.indices] * normal)


@SPARSE.family((0.3, 0.8, 1.6, 3.0))
def scaling(csr: Any, reference: SparseReference, context: Context) -> Any:
    """Multiply each column by exp(± level)."""
    factor = np.exp(context.level * signs(context, csr.shape[1]))
    return _with_values(csr, csr.data * factor[csr.indices])


@SPARSE.family((0.1, 0.4, 0.7, 0.92))
def missing(csr: Any, reference: SparseReference, context: Context) -> Any:
    """Lose a share of the stored values: they become 0."""
    lost = context.rows.uniform_at(0, _stored_rows(csr), csr.indices) < context.level
    result = _with_values(csr, np.where(lost, 0, csr.data))
    result.eliminate_zeros()
    return result


@SPARSE.family((0.1, 0.3, 0.6, 0.9))
def permuted(csr: Any, reference: SparseReference, context: Context) -> Any:
    """Take a share of the columns of each row from another row, a random one of the reference."""
    which = chosen(context, csr.shape[1])
    row = context.rows.integers(0, 1, reference.sample.shape[0])[:, 0]
    other = type(csr)(reference.sample[row])
    mixed = _with_values(csr, np.where(which[csr.indices], 0, csr.data)) + _with_values(
        other, np.where(which[other.indices], other.data, 0)
    )
    mixed.eliminate_zeros()
    return mixed


@SPARSE.family((0.1, 0.3, 0.6, 1.0))
def swapped(csr: Any, reference: SparseReference, context: Context) -> Any:
    """Exchange a share of the columns with their neighbour in size."""
    return csr[:, pairs_to_swap(reference.size, context)]


@SPARSE.family((0.1, 0.4, 0.7, 0.92))
def constant(csr: Any, reference: SparseReference, context: Context) -> Any:
    """Set a share of the columns to 0."""
    result = _with_values(csr, np.where(chosen(context, csr.shape[1])[csr.indices], 0, csr.data))
    result.eliminate_zeros()
    return result
