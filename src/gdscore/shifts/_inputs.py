"""Labelled inputs of any kind: arrays, data frames, sparse matrices, lists of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore._arrays import is_array
from gdscore.errors import GdscoreError

__all__ = ["kind_of", "length", "taken"]


def length(inputs: Any) -> int:
    """Number of rows."""
    if hasattr(inputs, "shape"):
        return int(inputs.shape[0])
    return len(inputs)


def taken(inputs: Any, rows: slice | NDArray[Any]) -> Any:
    """Rows by slice or index array, as the same kind of inputs."""
    if hasattr(inputs, "iloc"):
        return inputs.iloc[rows]
    if isinstance(inputs, (list, tuple)) and not isinstance(rows, slice):
        return [inputs[i] for i in rows]
    return inputs[rows]


def kind_of(inputs: Any) -> str:
    """``images``, ``table`` or ``text``, whose default shifts can be used; an error for anything else."""
    if hasattr(inputs, "ndim") and hasattr(inputs, "shape") and len(inputs.shape) == 4:
        return "images"
    if _is_text(inputs):
        return "text"
    two = hasattr(inputs, "shape") and len(inputs.shape) == 2
    if two and (
        is_array(inputs) or hasattr(inputs, "columns") or hasattr(inputs, "tocsr") or hasattr(inputs, "schema")
    ):
        return "table"
    what = f"shape {tuple(inputs.shape)}" if hasattr(inputs, "shape") else type(inputs).__name__
    raise GdscoreError(
        "Expected images of shape (N, C, H, W), a table (2-D array, data frame or sparse matrix) or a list of texts, "
        f"but got {what}: for other inputs give `shifts`, callables from inputs to inputs"
    )


def _is_text(inputs: Any) -> bool:
    if isinstance(inputs, (str, bytes)):
        return False
    if isinstance(inputs, Sequence) and not hasattr(inputs, "shape"):
        return len(inputs) > 0 and all(isinstance(value, str) for value in inputs[:100])
    if hasattr(inputs, "shape") and len(inputs.shape) == 1 and inputs.shape[0]:
        first = inputs.iloc[0] if hasattr(inputs, "iloc") else inputs[0]
        return isinstance(first, (str, np.str_))
    return False
