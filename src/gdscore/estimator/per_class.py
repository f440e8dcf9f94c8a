"""Recall of each class, made to agree with the estimated accuracy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore.estimator.direct import sampling_error
from gdscore.estimator.estimate import ClassEstimate
from gdscore.scores.base import HostStats

__all__ = ["recalls"]


def recalls(profile: HostStats, accuracy: float, low: float, high: float, level: float) -> list[ClassEstimate]:
    """Recall by calibrated probabilities, moved in logit space until their mean is the estimated accuracy."""
    mass, right = profile["mass"], profile["right"]
    recall = np.clip(right / np.maximum(mass, 1e-12), 1e-4, 1 - 1e-4)
    share = mass / mass.sum()
    logits = np.log(recall / (1 - recall))
    values = {b: _moved(logits, share, b) for b in (accuracy, low, high)}
    rows = np.maximum(mass, 1.0)
    estimates = []
    for k in range(len(share)):
        value = float(values[accuracy][k])
        noise = sampling_error(value, int(max(rows[k], 1)), level)
        down = math.hypot(value - float(values[low][k]), noise)
        up = math.hypot(float(values[high][k]) - value, noise)
        estimates.append(ClassEstimate(k, value, max(0.0, value - down), min(1.0, value + up), float(share[k])))
    return estimates


def _moved(logits: NDArray[Any], share: NDArray[Any], goal: float) -> NDArray[Any]:
    """Probabilities whose logits are moved by one number until their weighted mean is the goal."""
    low, high = -40.0, 40.0
    for _ in range(80):
        middle = 0.5 * (low + high)
        if float(share @ (1 / (1 + np.exp(-(logits + middle))))) < goal:
            low = middle
        else:
            high = middle
    return np.asarray(1 / (1 + np.exp(-(logits + 0.5 * (low + high)))))
