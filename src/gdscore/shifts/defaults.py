"""The shifts that are used where the caller names none, by the kind of input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gdscore._arrays import is_array
from gdscore.errors import GdscoreError
from gdscore.shifts.images import compositions, corruptions

__all__ = ["default_shifts"]

SEVERITIES, COMPOSITIONS = (2, 4, 6, 8), 40


def default_shifts(inputs: Any, *, time: Any = None, seed: int = 0) -> list[Any]:
    """Shifts for images, tables or texts.

    Images: the 19 corruptions at four severities and 40 compositions of them. Tables and texts: all families at four
    severities (`table_shifts`, `text_shifts`). The same on every device.

    Parameters
    ----------
    inputs : array, data frame, sparse matrix or list of texts
        Inputs of the reference; images are N×C×H×W.
    time : array of shape (N,), optional
        Time of each row of a table: periods of the reference become shifted sets too.
    seed : int
        Of random shifts.

    Examples
    --------
    >>> import numpy as np
    >>> from gdscore.shifts import default_shifts
    >>> len(default_shifts(np.zeros((10, 3, 32, 32)))), default_shifts(["a good book", "a bad one"])[0].family
    (116, 'dropout')
    """
    kind = _kind_of(inputs)
    if time is not None and kind != "table":
        raise GdscoreError(f"Expected `time` with a table only, but `inputs` are of the kind {kind}: leave it out")
    if kind == "images":
        return [*corruptions(SEVERITIES, seed=seed), *compositions(COMPOSITIONS, seed=seed)]
    if kind == "text":
        from gdscore.shifts.text import text_shifts

        return list(text_shifts(inputs, seed=seed))
    from gdscore.shifts.tables import table_shifts

    return list(table_shifts(inputs, time=time, seed=seed))


def _kind_of(inputs: Any) -> str:
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
    raise GdscoreError(
        "Expected images of shape (N, C, H, W), a table (2-D array, data frame or sparse matrix) or a list of texts, "
        f"but got {_described(inputs)}"
    )


def _described(inputs: Any) -> str:
    """What came instead, and what to do with it."""
    name = type(inputs).__name__
    if hasattr(inputs, "collect"):
        return f"{name}: call .collect() on it first"
    if isinstance(inputs, np.matrix):
        return f"{name}: give np.asarray(inputs)"
    if isinstance(inputs, str):
        return f"{name}: give [text, …]"
    if hasattr(inputs, "to_pylist"):
        return f"{name}: give inputs.to_pylist()"
    if isinstance(inputs, (list, tuple)) and len(inputs):
        name = f"{name} of {type(inputs[0]).__name__}"
        if isinstance(inputs[0], (list, tuple, np.ndarray)):
            return f"{name}: give np.array(inputs)"
    shape = tuple(inputs.shape) if hasattr(inputs, "shape") else None
    if shape is not None and len(shape) == 1:
        return f"{name} of shape {shape}: a table of one column has two dimensions, as inputs.reshape(-1, 1) gives"
    came = name if shape is None else f"{name} of shape {shape}"
    return f"{came}: for other inputs give `shifts`, callables from inputs to inputs"


def _is_text(inputs: Any) -> bool:
    """Whether there is a text among the first; `text_shifts` refuses rows that are missing or something else."""
    if isinstance(inputs, (str, bytes)):
        return False
    if isinstance(inputs, Sequence) and not hasattr(inputs, "shape"):
        first: Any = inputs[:100]
    elif hasattr(inputs, "shape") and len(inputs.shape) == 1:
        first = list(inputs.iloc[:100] if hasattr(inputs, "iloc") else inputs[:100])
    else:
        return False
    return any(isinstance(value, str) for value in first)
