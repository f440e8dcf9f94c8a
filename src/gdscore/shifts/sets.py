"""`ShiftedSet`: labelled outputs under one shift, to calibrate on."""

from __future__ import annotations

from dataclasses import dataclass

from gdscore.errors import GdscoreError
from gdscore.outputs import Outputs

__all__ = ["ShiftedSet"]


@dataclass(frozen=True)
class ShiftedSet:
    """What the classifier said about labelled rows under one shift.

    Attributes
    ----------
    outputs : Outputs
        With labels.
    family : str
        Kind of shift. Sets of one family are alike, so they are left out together when intervals are made; names of
        several kinds joined by ``+`` are left out with each of them.

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> out = gdscore.Outputs(logits=2 * np.eye(3), labels=np.arange(3))
    >>> gdscore.ShiftedSet(out, family="fog").accuracy
    1.0
    """

    outputs: Outputs
    family: str

    def __post_init__(self) -> None:
        if not isinstance(self.outputs, Outputs) or "labels" not in self.outputs.has:
            raise GdscoreError("Expected a `ShiftedSet` of `gdscore.Outputs` with labels, but there are none")
        if not isinstance(self.family, str) or not self.family:
            raise GdscoreError(f"Expected `family` to be a name, but got {self.family!r}")

    @property
    def accuracy(self) -> float:
        """True accuracy of the set."""
        return self.outputs.accuracy
