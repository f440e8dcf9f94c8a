"""Accuracy that a change of the class mix alone would explain."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore.outputs import Outputs

__all__ = ["class_mix_accuracy", "confusion_of"]


def confusion_of(reference: Outputs) -> NDArray[Any]:
    """Share of the labelled rows of class k that are predicted as j, at [j, k]."""
    labels, predictions = arrays.to_numpy(reference.labels), arrays.to_numpy(reference.predictions)
    counts = np.zeros((int(reference.n_classes or 0),) * 2)
    np.add.at(counts, (predictions, labels), 1)
    return np.asarray(counts / np.maximum(counts.sum(axis=0), 1))


def class_mix_accuracy(confusion: NDArray[Any], predicted: NDArray[Any]) -> float | None:
    """Accuracy if p(x | y) is that of the reference and only p(y) has changed (Lipton et al., 2018).

    ``confusion[j, k]`` is the share of reference rows of class k that are predicted as j; the class mix q solves
    confusion · q = predicted. None where that cannot be solved.
    """
    if np.linalg.matrix_rank(confusion) < len(confusion):
        return None
    mix = np.clip(np.linalg.solve(confusion, predicted), 0, None)
    return float(np.diag(confusion) @ (mix / mix.sum()))
