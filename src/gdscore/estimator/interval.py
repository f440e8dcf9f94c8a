"""How far an estimate is off on families of shifts it has not seen: CV+ with families as the unit.

For a new set x the bounds are quantiles of f₋ₖ(x) ± rₖ, with f₋ₖ learned without family k and rₖ its residuals there,
every family weighing the same (jackknife+ of Barber et al., 2021, with groups). A family may have parts, joined by
``+``: a composition of fog and blur is left out with fog, and with it everything that has fog or blur. With F parts no
level above F/(F+1) can be had.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gdscore.estimator.regress import Floats, Mask, Regressor

__all__ = ["LeftOut", "parts_of"]


def parts_of(family: str) -> frozenset[str]:
    """Kinds of shift that a family is made of.

    Examples
    --------
    >>> sorted(parts_of("fog+gaussian_blur"))
    ['fog', 'gaussian_blur']
    """
    return frozenset(part for part in family.split("+") if part) or frozenset({family})


@dataclass(frozen=True)
class LeftOut:
    """Residuals of every family, predicted from the sets that share no part with it.

    Attributes
    ----------
    keep : list of masks
        Sets that a family is predicted from.
    residuals : list of arrays
        Absolute errors on its sets, in logits of accuracy.
    predicted : array
        What is predicted of each set without its family; NaN for families that cannot be left out.
    n_parts : int
        F, the kinds of shifts, or the families that could be left out where those are fewer.
    """

    keep: list[Mask]
    residuals: list[Floats]
    predicted: Floats
    n_parts: int

    @classmethod
    def make(cls, regressor: Regressor, families: Sequence[str]) -> LeftOut:
        """Predict every family from its strangers; families without two strangers have no say."""
        parts = [parts_of(family) for family in families]
        predicted = np.full(len(regressor.y), np.nan)
        kept, residuals = [], []
        for group in sorted(set(parts), key=sorted):
            keep = np.array([not (group & other) for other in parts])
            if keep.sum() < 2:
                continue
            members = np.array([other == group for other in parts])
            predicted[members] = regressor.predict(regressor.x[members], keep)
            kept.append(keep)
            residuals.append(np.abs(regressor.y[members] - predicted[members]))
        return cls(kept, residuals, predicted, min(len(frozenset().union(*parts)), len(residuals)))

    @property
    def reachable_level(self) -> float:
        """F/(F+1): a family not seen yet may lie beyond all others."""
        return self.n_parts / (self.n_parts + 1)

    def bounds(self, regressor: Regressor, query: Floats, level: float) -> tuple[float, float]:
        """Lower and upper bound of the logit of accuracy for one row of transformed scores."""
        values = [float(regressor.predict(query[None], keep)[0]) for keep in self.keep]
        lows = np.concatenate([value - error for value, error in zip(values, self.residuals, strict=True)])
        highs = np.concatenate([value + error for value, error in zip(values, self.residuals, strict=True)])
        each = np.concatenate([np.full(len(e), 1 / len(e)) for e in self.residuals])
        each = each / len(self.residuals) * self.reachable_level
        return -_quantile(-lows, each, level), _quantile(highs, each, level)


def _quantile(values: Floats, weights: Floats, level: float) -> float:
    """Weighted quantile; what the weights lack to 1 is the family not seen yet, which may lie beyond all others."""
    order = np.argsort(values)
    index = int(np.searchsorted(np.cumsum(weights[order]), level - 1e-9))
    return float(values[order][min(index, len(values) - 1)])
