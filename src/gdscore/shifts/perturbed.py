"""Shifted sets by disturbing the last layer: for those who have nothing but outputs and the head."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore._options import integer
from gdscore.errors import GdscoreError
from gdscore.outputs import Outputs
from gdscore.shifts.families import DISTURBED
from gdscore.shifts.sets import ShiftedSet

__all__ = ["OTHER_MODELS", "checked_head", "perturbed"]

_KINDS = ("noise", "dropout", "shrink", "swap", "turn", "drift")

OTHER_MODELS = frozenset({"peer_logits", "batch_logits", "rotation_logits"})
"""What other heads say, and a disturbed head knows nothing of."""


def perturbed(reference: Outputs, head: tuple[Any, Any], count: int = 100, *, seed: int = 0) -> Iterator[ShiftedSet]:
    """Shifted sets whose features were disturbed before the last layer, with the labels as they are.

    Parameters
    ----------
    reference : Outputs
        Labelled validation outputs with features.
    head : (W, b)
        Last layer, W of shape (D, K), b of length K or None: features @ W + b are the logits.
    count : int
        Number of shifted sets; the kinds take turns, with growing strength.
    seed : int
        Of the disturbances.

    Yields
    ------
    ShiftedSet
        Of the families ``head-noise`` (Gaussian noise on the features), ``head-dropout`` (features set to 0),
        ``head-shrink`` (features moved towards their mean), ``head-swap`` (features taken from another row),
        ``head-turn`` (a random rotation of the feature space) and ``head-drift`` (one direction added to all rows).
    """
    features = arrays.to_numpy(reference.features).astype(np.float64)
    weights, bias = checked_head(head, reference)
    rng = np.random.default_rng(seed)
    spread, centre = features.std(axis=0) + 1e-12, features.mean(axis=0)
    for index in range(integer("count", count, least=0)):
        kind = _KINDS[index % len(_KINDS)]
        strength = (1 + index // len(_KINDS)) / max(1, -(-count // len(_KINDS)))
        if kind == "noise":
            x = features + 3 * strength * spread * rng.normal(size=features.shape)
        elif kind == "dropout":
            x = np.where(rng.random(features.shape) < 0.95 * strength, 0.0, features)
        elif kind == "shrink":
            x = centre + (1 - 0.95 * strength) * (features - centre) + 0.3 * spread * rng.normal(size=features.shape)
        elif kind == "turn":
            basis, _ = np.linalg.qr(rng.normal(size=(features.shape[1],) * 2))
            x = centre + (features - centre) @ ((1 - strength) * np.eye(len(basis)) + strength * basis)
        elif kind == "drift":
            x = features + 4 * strength * spread * rng.normal(size=features.shape[1])
        else:
            other = features[rng.permutation(len(features))]
            x = np.where(rng.random(features.shape) < 0.5 * strength, other, features)
        yield ShiftedSet(
            Outputs(logits=x @ weights + bias, features=x, labels=arrays.to_numpy(reference.labels)),
            f"{DISTURBED}{kind}",
        )


def checked_head(head: tuple[Any, Any], reference: Outputs) -> tuple[NDArray[Any], NDArray[Any]]:
    """Weights and bias as NumPy arrays; an error where they do not make the reference's logits."""
    try:
        weights, bias = head
    except (TypeError, ValueError):
        raise GdscoreError(f"Expected `head` to be a pair (W, b), but got {type(head).__name__}") from None
    w = arrays.to_numpy(weights).astype(np.float64) if arrays.is_array(weights) else np.asarray(weights, dtype=float)
    classes, features = reference.n_classes or 0, reference.n_features or 0
    if w.shape != (features, classes):
        raise GdscoreError(f"Expected W of `head` to have shape ({features}, {classes}), but got {w.shape}")
    b = np.zeros(classes) if bias is None else arrays.to_numpy(bias) if arrays.is_array(bias) else np.asarray(bias)
    if b.shape != (classes,):
        raise GdscoreError(f"Expected b of `head` to have length {classes}, but got shape {b.shape}")
    few = reference[: min(100, len(reference))]
    made, given = arrays.to_numpy(few.features) @ w + b, arrays.to_numpy(few.logits)
    # Logits may differ by a constant of the row: the softmax does not see it.
    difference = (made - made.mean(1, keepdims=True)) - (given - given.mean(1, keepdims=True))
    if np.abs(difference).max() > 1e-2 * (1 + np.abs(given).max()):
        raise GdscoreError("Expected features @ W + b to be the logits, but they differ: is this head another model's?")
    return w, b.astype(np.float64)
