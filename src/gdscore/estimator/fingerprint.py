"""Whether outputs come from the model that was calibrated on: its last layer, seen in one direction.

Logits are a linear function of the features that enter the last layer, Z = X W + b. For one random direction r, Z r is
then X w + c with w = W r, which D + 1 numbers describe. Another model's outputs do not satisfy it, even where they have
as many classes and features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore.outputs import Outputs

__all__ = ["Fingerprint"]

TOLERANCE = 0.02
"""Largest error, relative to the spread of the logits: half precision stays below it, another head far above."""
ROWS = 2000


@dataclass(frozen=True)
class Fingerprint:
    """One direction of a linear head.

    Attributes
    ----------
    direction : array of length K
        r.
    weights : array of length D
        W r.
    offset : float
        b · r.
    """

    direction: NDArray[Any]
    weights: NDArray[Any]
    offset: float

    @classmethod
    def of(cls, reference: Outputs, head: tuple[Any, Any] | None = None) -> Fingerprint | None:
        """Fingerprint of the head given, or of the one that the reference shows; None where it shows none."""
        if not {"logits", "features"} <= reference.has:
            return None
        direction = np.random.default_rng(0).normal(size=int(reference.n_classes or 0))
        if head is not None:
            w, b = (None if part is None else arrays.to_numpy(part).astype(np.float64) for part in map(_array, head))
            assert w is not None
            found = cls(direction, w @ direction, 0.0 if b is None else float(b @ direction))
        else:
            x, y = _seen(reference, direction)
            if len(x) < 2 * (x.shape[1] + 1):
                return None
            fit = np.linalg.lstsq(np.c_[x, np.ones(len(x))], y, rcond=None)[0]
            found = cls(direction, fit[:-1], float(fit[-1]))
        return found if found.matches(reference) else None

    def matches(self, outputs: Outputs) -> bool:
        """Whether the first rows follow from their features by this head."""
        x, y = _seen(outputs, self.direction)
        error = np.abs(x @ self.weights + self.offset - y)
        return float(np.median(error)) <= TOLERANCE * max(float(np.std(y)), 1e-9)


def _array(part: Any) -> Any:
    return part if part is None or arrays.is_array(part) else np.asarray(part)


def _seen(outputs: Outputs, direction: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    rows = outputs[:ROWS]
    x = arrays.to_numpy(rows.features).astype(np.float64)
    return x, arrays.to_numpy(rows.logits).astype(np.float64) @ direction
