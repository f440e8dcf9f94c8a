"""What a person knows of a target's mix of classes: an assumption, shares, or ranges of shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore._checks import choice
from gdscore._classes import ClassLabels
from gdscore.errors import GdscoreError, shown
from gdscore.estimator.evidence import Floats

ASSUMPTIONS = ("unknown", "stable", "estimated")


@dataclass(frozen=True)
class KnownMix:
    """Lowest and highest shares of the classes; those that are not named share the rest in a usual proportion.

    Examples
    --------
    >>> known = KnownMix(np.array([0.1, 0.0, 0.0]), np.array([0.3, 0.0, 0.0]), np.array([True, False, False]))
    >>> usual = np.array([0.5, 0.3, 0.2])
    >>> known.nearest(np.array([0.4, 0.4, 0.2]), usual).round(2).tolist()
    [0.3, 0.42, 0.28]
    >>> known.farthest(np.array([0.0, 1.0, 1.0]), usual).round(2).tolist()
    [0.1, 0.54, 0.36]
    """

    low: Floats  # shape (K,)
    high: Floats
    named: NDArray[np.bool_]

    @property
    def exact(self) -> bool:
        """Whether there is one such mix only."""
        return bool((self.low == self.high).all())

    def nearest(self, mix: Floats, usual: Floats) -> Floats:
        """The mix within the ranges that is nearest to this one; ``usual`` is the proportion of the others."""
        low, high = self._bounds()
        wanted = mix if self.named.all() else np.append(mix[self.named], mix[~self.named].sum())
        # Shares between their bounds move by one number; it is found by bisection.
        least, most = -2.0, 2.0
        for _ in range(60):
            change = 0.5 * (least + most)
            above = np.clip(wanted + change, low, high).sum() > 1
            least, most = (least, change) if above else (change, most)
        return self._spread(np.clip(wanted + 0.5 * (least + most), low, high), usual)

    def farthest(self, worth: Floats, usual: Floats) -> Floats:
        """The mix within the ranges whose classes are worth most in all."""
        low, high = self._bounds()
        rest = self._proportion(usual)
        values = np.append(worth[self.named], rest @ worth[~self.named] if len(rest) else 0.0)[: len(low)]
        shares, left = low.copy(), 1 - low.sum()
        for k in np.argsort(-values, kind="stable"):
            shares[k] += min(high[k] - low[k], max(left, 0.0))
            left = 1 - shares.sum()
        return self._spread(shares, usual)

    def _bounds(self) -> tuple[Floats, Floats]:
        """Bounds of the named classes, and of all others together where there are any."""
        if self.named.all():
            return self.low, self.high
        return np.append(self.low[self.named], 0.0), np.append(self.high[self.named], 1.0)

    def _proportion(self, usual: Floats) -> Floats:
        others = usual[~self.named]
        return others / others.sum() if others.any() else np.full(len(others), 1 / max(len(others), 1))

    def _spread(self, shares: Floats, usual: Floats) -> Floats:
        mix = np.empty(len(self.named))
        mix[self.named] = shares[: np.count_nonzero(self.named)]
        if not self.named.all():
            mix[~self.named] = shares[-1] * self._proportion(usual)
        return np.asarray(mix / mix.sum())


def known_mix(class_mix: Any, classes: int, names: tuple[str, ...] | None) -> KnownMix | None:
    """What the caller knows of the shares of the classes; None for the name of an assumption.

    Shares come in the order of the classes, or by name in a dict or a pandas Series. A dict may leave classes out and
    may hold ranges, ``{"fraud": (0.01, 0.03)}``. Numbers that sum to more than 1, such as counts, are divided by their
    sum, and classes that are left out beside them have none.
    """
    if isinstance(class_mix, str):
        choice("class_mix", class_mix, ASSUMPTIONS)
        return None
    by_name = class_mix if isinstance(class_mix, Mapping) else _indexed(class_mix)
    low, high = _ends(class_mix if by_name is None else list(by_name.values()), by_name is not None, class_mix, classes)
    ranges = bool((low < high).any())
    if by_name is None:
        return _exact(low)
    positions = _positions(list(by_name), classes, names)
    named = np.zeros(classes, dtype=bool)
    named[positions] = True
    if not ranges and (named.all() or low.sum() >= 1 - 1e-6):
        # Every class has a share, or those that are left out have none.
        shares = np.zeros(classes)
        shares[positions] = low
        return _exact(shares)
    if low.sum() > 1 or (named.all() and high.sum() < 1) or high.max() > 1:
        raise GdscoreError(
            f"Expected ranges of shares between 0 and 1 that shares with the sum 1 are in, but got {shown(class_mix)}"
        )
    least, most = np.zeros(classes), np.zeros(classes)
    least[positions], most[positions] = low, high
    return KnownMix(least, most, named)


def _exact(shares: Floats) -> KnownMix:
    """Shares of all classes; divided by their sum, where that is not 1 up to rounding."""
    total = shares.sum()
    shares = shares if abs(total - 1) < 1e-12 else shares / total
    return KnownMix(shares, shares, np.ones(len(shares), dtype=bool))


def _ends(values: Any, by_name: bool, class_mix: Any, classes: int) -> tuple[Floats, Floats]:
    """Lowest and highest shares, scaled so that the sum of large counts is a number."""
    try:
        if by_name and any(isinstance(value, tuple) for value in values):
            pairs = [value if isinstance(value, tuple) else (value, value) for value in values]
            ends = np.array(pairs, dtype=np.float64).reshape(len(pairs), 2)
        else:
            shares = np.asarray(arrays.to_numpy(values), dtype=np.float64)
            ends = np.stack([shares, shares], axis=-1)
    except (TypeError, ValueError, OverflowError):
        ends = np.zeros((0, 2))
    fits: Any = ends.ndim == 2 and len(ends) > 0 and np.isfinite(ends).all() and (ends >= 0).all()
    # A dict may say of some classes that they are absent; shares of all classes cannot all be 0.
    fits = fits and (ends.any() or (by_name and len(ends) < classes))
    if not fits or (ends[:, 0] > ends[:, 1]).any() or (not by_name and len(ends) != classes):
        raise GdscoreError(
            f"Expected `class_mix` to be {', '.join(map(repr, ASSUMPTIONS))}, the shares of {classes} classes, or a "
            f"dict of shares and ranges of them such as {{'fraud': (0.01, 0.03)}}, but got {shown(class_mix)}"
        )
    largest = max(float(ends.max()), 1.0) if (ends[:, 0] == ends[:, 1]).all() else 1.0
    return ends[:, 0] / largest, ends[:, 1] / largest


def _indexed(values: Any) -> dict[Any, Any] | None:
    """Values of a pandas Series by its index; None for anything else."""
    if not hasattr(values, "index") or not hasattr(values, "to_dict") or getattr(values, "ndim", 0) != 1:
        return None
    if len(set(values.index)) < len(values):
        raise GdscoreError("Expected `class_mix` to name every class once, but its index repeats some")
    by_name: dict[Any, Any] = values.to_dict()
    return by_name


def _positions(keys: list[Any], classes: int, names: tuple[str, ...] | None) -> list[int]:
    """Numbers of the classes that these keys name."""
    rule, positions = ClassLabels(names, classes), list[int]()
    labels = [str(k) for k in range(classes)] if names is None else list(names)
    for key in keys:
        position = rule.find(key)
        if position is None:
            listed = ", ".join(map(repr, labels[:12])) + (" …" if classes > 12 else "")
            raise GdscoreError(f"Expected `class_mix` to name classes, but got {shown(key)}: the classes are {listed}")
        if position in positions:
            raise GdscoreError(
                f"Expected `class_mix` to name every class once, but {shown(labels[position])} is there twice"
            )
        positions.append(position)
    return positions
