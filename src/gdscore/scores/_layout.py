"""What all rows of a stream must have in common: the numbers of classes and features, and the arrays they come in."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gdscore.errors import GdscoreError
from gdscore.outputs import Outputs

__all__ = ["checked_names", "checked_shape", "counts_of"]

_COUNTED_IN = {"n_classes": "logits", "n_features": "features"}


def counts_of(names: Collection[str]) -> list[str]:
    """Which of ``n_classes`` and ``n_features`` the arrays of these names have."""
    return [what for what, name in _COUNTED_IN.items() if name in names]


def checked_shape(
    rows: Outputs, names: Collection[str], reference: Mapping[str, int | None], before: Mapping[str, int | None]
) -> dict[str, int | None]:
    """Counts of the named arrays of the rows; one that differs from the reference or the rows before is an error."""
    shape: dict[str, int | None] = {what: getattr(rows, what) for what in counts_of(names)}
    for what, there in reference.items():
        if shape[what] != there:
            kind = what.removeprefix("n_")
            raise GdscoreError(f"Expected {there} {kind} as in the reference, but the outputs have {shape[what]}")
    for what, seen in before.items():
        if shape[what] != seen:
            raise GdscoreError(f"Expected {what} to stay {seen} as in the rows before, but got {shape[what]}")
    return shape


def checked_names(rows: Outputs, names: Collection[str], before: frozenset[str] | None) -> frozenset[str]:
    """Arrays that hold what is named, ids included; other ones than in the rows before are an error."""
    came = frozenset(rows.only(names).arrays)
    if before not in (None, came):
        raise GdscoreError(
            f"Expected the arrays to stay {sorted(before or ())} as in the rows before, but got {sorted(came)}"
        )
    return came
