"""Whether outputs come from the model that was calibrated on: its last layer, seen in one direction.

Logits are a linear function of the features that enter the last layer, Z = X W + b. For one random direction r, Z r is
then X w + c with w = W r, which D + 1 numbers describe. Another model's outputs do not satisfy it, even where they have
as many classes and features.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore._stream import stream
from gdscore.errors import GdscoreError
from gdscore.outputs import Outputs

__all__ = ["Fingerprint", "SameModel"]

TOLERANCE = 0.02
"""Largest error, relative to the spread of the logits: half precision stays below it, another head far above."""
CHECKED = 200
"""Rows of each part of a stream that are looked at."""


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
    spread : float
        Standard deviation of Z r on the reference.
    """

    direction: NDArray[Any]
    weights: NDArray[Any]
    offset: float
    spread: float

    @classmethod
    def of(cls, reference: Outputs, head: tuple[Any, Any] | None = None) -> Fingerprint | None:
        """Fingerprint of the head given, or of the one that the reference shows; None where it shows none."""
        if not {"logits", "features"} <= reference.has:
            return None
        direction = np.random.default_rng(0).normal(size=int(reference.n_classes or 0))
        # Logits mean the same when a row's are all moved, as in the logarithms of probabilities.
        direction -= direction.mean()
        if head is not None:
            w, b = (None if part is None else arrays.to_numpy(_array(part)).astype(np.float64) for part in head)
            if w is None or w.shape != (reference.n_features, reference.n_classes):
                raise GdscoreError(
                    f"Expected W of `head` to have shape ({reference.n_features}, {reference.n_classes}), but got "
                    f"{None if w is None else w.shape}"
                )
            _, y = _seen(reference[:CHECKED], direction)
            found = cls(direction, w @ direction, 0.0 if b is None else float(b @ direction), float(np.std(y)))
            return found if found.matches(reference) else None
        return cls._shown(reference, direction)

    @classmethod
    def _shown(cls, reference: Outputs, direction: NDArray[Any]) -> Fingerprint | None:
        """By least squares, where there are rows enough and no feature that is silent on the reference."""
        rows = 3 * (int(reference.n_features or 0) + 1)
        x, y = _seen(reference[:rows], direction)
        if len(x) < rows:
            return None
        centre = x.mean(axis=0)
        values, vectors = np.linalg.eigh((x - centre).T @ (x - centre))
        if values[0] <= 1e-10 * values[-1]:
            return None
        weights = vectors @ ((vectors.T @ ((x - centre).T @ (y - y.mean()))) / values)
        found = cls(direction, weights, float(y.mean() - centre @ weights), float(np.std(y)))
        return found if found.matches(reference) else None

    def matches(self, outputs: Outputs) -> bool:
        """Whether the first rows follow from their features by this head."""
        x, y = _seen(outputs[:CHECKED], self.direction)
        error = np.abs(x @ self.weights + self.offset - y)
        # Shifted features can be many times as large as the reference's, and with them the errors of rounding.
        return bool(np.median(error / np.maximum(np.abs(y), max(self.spread, 1e-9))) <= TOLERANCE)


def _array(part: Any) -> Any:
    return part if arrays.is_array(part) else np.asarray(part)


def _seen(outputs: Outputs, direction: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    x = arrays.to_numpy(outputs.features).astype(np.float64)
    return x, arrays.to_numpy(outputs.logits).astype(np.float64) @ direction


@dataclass
class SameModel:
    """Looks at rows on their way to being described; ``recognised`` afterwards says whether their head was known."""

    n_classes: int
    n_features: int | None
    fingerprint: Fingerprint | None
    recognised: bool = True

    def checked(self, outputs: Outputs | Iterable[Outputs]) -> Iterator[Outputs]:
        """Pass rows on and refuse those of other shapes."""
        for part in stream(outputs, "outputs"):
            for what, there, here in (
                ("classes", self.n_classes, part.n_classes),
                ("features", self.n_features, part.n_features),
            ):
                if here is not None and there is not None and here != there:
                    raise GdscoreError(
                        f"Expected outputs with {there} {what} as in calibration, but they have {here}: is this "
                        "another model's?"
                    )
            if self.recognised and self.fingerprint is not None and {"logits", "features"} <= part.has:
                self.recognised = self.fingerprint.matches(part)
            yield part
