"""How far an estimate is off on kinds of shifts it has not seen: CV+ with kinds of shifts as the unit.

For a new set x the bounds are quantiles of f₋ₖ(x) ± rₖ, with f₋ₖ learned without kind k and rₖ the residuals of the
sets it has part in, every kind weighing the same (jackknife+ of Barber et al., 2021, with groups). A family may have
parts, joined by ``+``: a composition of fog and blur counts for fog and for blur, and is predicted without either. With
F kinds no level above F/(F+1) can be had.

Sets made of the reference's outputs (resampled, or with a disturbed head) teach, but are no kind of shift where there
are two others: what is not known in advance is a shift of the inputs, and how badly a mix of classes is taken for one
says nothing about that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gdscore.estimator.regress import Floats, Mask, Regressor
from gdscore.shifts.families import is_made_of_outputs, parts_of

__all__ = ["LeftOut"]


@dataclass(frozen=True)
class LeftOut:
    """Residuals of every kind of shift, predicted from the sets that share no part with theirs.

    Attributes
    ----------
    keep : list of masks
        Sets without a kind.
    residuals : list of arrays
        Absolute errors on the sets that it has part in.
    predicted : array
        What is predicted of each set without its family; NaN where that cannot be.
    """

    keep: list[Mask]
    residuals: list[Floats]
    predicted: Floats

    @classmethod
    def make(cls, regressor: Regressor, families: Sequence[str]) -> LeftOut:
        """Predict every family from its strangers; kinds without two strangers have no say."""
        parts = [parts_of(family) for family in families]
        predicted = np.full(len(regressor.y), np.nan)
        for group in sorted(set(parts), key=sorted):
            strangers = np.array([not (group & other) for other in parts])
            if strangers.sum() >= 2:
                members = np.array([other == group for other in parts])
                predicted[members] = regressor.predict(regressor.x[members], strangers)
        errors = np.abs(regressor.y - predicted)
        units = {}
        for kind in _kinds(families):
            has = np.array([kind in other for other in parts])
            told = has & ~np.isnan(errors)
            if told.any() and (~has).sum() >= 2:
                # Kinds that only come together are one.
                units[has.tobytes()] = (~has, errors[told])
        return cls([keep for keep, _ in units.values()], [own for _, own in units.values()], predicted)

    @property
    def n_kinds(self) -> int:
        """F, the kinds of shifts that could be left out."""
        return len(self.residuals)

    @property
    def reachable_level(self) -> float:
        """F/(F+1): a kind not seen yet may lie beyond all others."""
        return self.n_kinds / (self.n_kinds + 1)

    def bounds(self, regressor: Regressor, query: Floats, level: float) -> tuple[float, float]:
        """Lower and upper bound for one row of scores, as the regressor predicts."""
        values = [float(regressor.predict(query[None], keep)[0]) for keep in self.keep]
        lows = np.concatenate([value - error for value, error in zip(values, self.residuals, strict=True)])
        highs = np.concatenate([value + error for value, error in zip(values, self.residuals, strict=True)])
        each = np.concatenate([np.full(len(e), 1 / len(e)) for e in self.residuals])
        each = each / len(self.residuals) * self.reachable_level
        return -_quantile(-lows, each, level), _quantile(highs, each, level)


def _quantile(values: Floats, weights: Floats, level: float) -> float:
    """Weighted quantile; what the weights lack to 1 is the kind not seen yet, which may lie beyond all others."""
    order = np.argsort(values)
    index = int(np.searchsorted(np.cumsum(weights[order]), level - 1e-9))
    return float(values[order][min(index, len(values) - 1)])


def _kinds(families: Sequence[str]) -> list[str]:
    """Kinds of shifts; of sets made of outputs only where there are not two others."""
    shifted = [family for family in families if not is_made_of_outputs(family)]
    kinds = frozenset[str]().union(*map(parts_of, shifted))
    return sorted(kinds if len(kinds) >= 2 else frozenset[str]().union(*map(parts_of, families)))
