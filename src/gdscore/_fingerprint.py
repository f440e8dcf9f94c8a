"""Fingerprint of a model's last layer, to see whether outputs come from that model.

Logits are a linear function of the features that enter the last layer, Z = X W + b. For one random direction r, Z r is
then X w + c with w = W r, which D + 1 numbers describe. Another model's outputs do not satisfy it, even where they have
as many classes and features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore.outputs import Outputs

__all__ = ["Fingerprint"]

TOLERANCE = 0.02
"""Largest error, relative to the spread of the logits: half precision stays below it, another head far above."""
CHECKED = 200
"""Rows of each part of a stream that are looked at."""


@dataclass(frozen=True)
class Fingerprint:
    """One direction of a linear head, by least squares on the reference.

    Attributes
    ----------
    direction : array of length K
        r.
    weights : array of length D
        W r.
    offset : float
        b · r.
    spread : float
        Standard deviation of Z r on the reference.
    """

    direction: NDArray[np.float64]
    weights: NDArray[np.float64]
    offset: float
    spread: float

    @classmethod
    def of(cls, reference: Outputs) -> Fingerprint | None:
        """Fingerprint of the head that the reference shows; None where it shows none."""
        if not {"logits", "features"} <= reference.has:
            return None
        direction = np.random.default_rng(0).normal(size=int(reference.n_classes or 0))
        # Logits mean the same when a row's are all moved, as in the logarithms of probabilities.
        direction -= direction.mean()
        rows = 3 * (int(reference.n_features or 0) + 1)
        if len(reference) < rows:
            return None
        x, y = _seen(reference[:rows], direction)
        centre = x.mean(axis=0)
        with np.errstate(all="ignore"):
            spread = (x - centre).T @ (x - centre)
            if not (np.isfinite(spread).all() and np.isfinite(y).all()):
                return None
            values, vectors = np.linalg.eigh(spread)
            if values[0] <= 1e-10 * values[-1]:
                return None
            weights = vectors @ ((vectors.T @ ((x - centre).T @ (y - y.mean()))) / values)
            found = cls(direction, weights, float(y.mean() - centre @ weights), float(np.std(y)))
        return found if found.matches(reference) else None

    def matches(self, outputs: Outputs) -> bool:
        """Whether the first rows follow from their features by this head."""
        x, y = _seen(outputs[:CHECKED], self.direction)
        # Shifted features can be many times as large as the reference's, and with them the errors of rounding.
        with np.errstate(all="ignore"):
            error = np.abs(x @ self.weights + self.offset - y)
            return bool(np.median(error / np.maximum(np.abs(y), max(self.spread, 1e-9))) <= TOLERANCE)


def _seen(outputs: Outputs, direction: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    x = arrays.to_numpy(outputs.features).astype(np.float64)
    with np.errstate(all="ignore"):
        return x, arrays.to_numpy(outputs.logits).astype(np.float64) @ direction
