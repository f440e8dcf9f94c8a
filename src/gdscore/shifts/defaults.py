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
