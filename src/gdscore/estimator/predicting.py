"""What a predictor says about labelled inputs under shifts, one shifted set at a time."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from numpy.typing import NDArray

from gdscore._progress import progress_bar
from gdscore.errors import GdscoreError
from gdscore.outputs import Outputs
from gdscore.shifts import ShiftedSet

__all__ = ["predicted", "shifted_sets"]


def shifted_sets(
    predict: Callable[[Any], Outputs],
    inputs: Any,
    labels: NDArray[Any],
    shifts: Sequence[Callable[[Any], Any]],
    *,
    batch_size: int,
    progress: bool | None,
) -> Iterator[ShiftedSet]:
    """Shifted sets of the inputs under each shift; a shift's ``family`` or ``__name__`` is the family of its set."""
    with progress_bar(len(shifts) * len(labels), progress) as advance:
        for shift in shifts:
            family = family_of(shift)
            yield ShiftedSet(predicted(predict, inputs, labels, shift, batch_size), family)
            advance(len(labels))


def predicted(predict: Callable[[Any], Outputs], inputs: Any, labels: NDArray[Any], shift: Any, size: int) -> Outputs:
    """Labelled outputs of the inputs, shifted where a shift is given, asked for in batches."""
    parts = []
    for start in range(0, len(labels), size):
        batch = inputs[start : start + size]
        if shift is not None:
            # Seeded shifts take the number of the first row, so that batches do not repeat each other's draws.
            batch = shift(batch, start=start) if _takes_start(shift) else shift(batch)
        said = predict(batch)
        if not isinstance(said, Outputs):
            raise GdscoreError(f"Expected `predict` to return `gdscore.Outputs`, but got {type(said).__name__}")
        given = {k: a for k, a in said.arrays.items() if k != "labels"}
        parts.append(Outputs(**given, labels=labels[start : start + size]))
    return Outputs.concatenate(parts)


def family_of(shift: Any) -> str:
    """Kind of a shift: its ``family``, or its name, or that of the function it is a partial call of."""
    named = shift.func if isinstance(shift, partial) and not hasattr(shift, "family") else shift
    return str(getattr(named, "family", getattr(named, "__name__", type(named).__name__)))


def _takes_start(shift: Any) -> bool:
    try:
        return "start" in inspect.signature(shift).parameters
    except (TypeError, ValueError):
        return False
