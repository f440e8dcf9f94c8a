"""The shifts that are used where the caller names none, by the kind of input."""

from __future__ import annotations

from typing import Any

from gdscore.shifts._inputs import kind_of
from gdscore.shifts.composed import compositions
from gdscore.shifts.images import corruptions

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
    kind = kind_of(inputs)
    if kind == "images":
        return [*corruptions(SEVERITIES, seed=seed), *compositions(COMPOSITIONS, seed=seed)]
    if kind == "text":
        from gdscore.shifts.text import text_shifts

        return list(text_shifts(inputs, seed=seed))
    from gdscore.shifts.tables import table_shifts

    return list(table_shifts(inputs, time=time, seed=seed))
