"""`Judge`: what a table of shifted sets says about the scores of any other set."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore.errors import GdscoreError
from gdscore.estimator.calibrated import Calibration
from gdscore.estimator.direct import sampling_error
from gdscore.estimator.estimate import Lookalike
from gdscore.estimator.interval import LeftOut
from gdscore.estimator.regress import Cautious, Line, Nearest, Regressor, Stack, sigmoid, spread
from gdscore.estimator.views import views_of
from gdscore.shifts.families import is_resampled, parts_of

__all__ = ["REGRESSORS", "Judge"]

ENOUGH = 10
"""Shifted sets of shifted inputs that single scores are judged by."""

REGRESSORS: dict[str, Callable[[Any, Any, Sequence[str]], Regressor]] = {
    "cautious": lambda x, y, scores: Cautious(x, y, views_of(scores)),
    "nearest": lambda x, y, _: Nearest(x, y),
    "stack": lambda x, y, _: Stack(x, y),
}
"""By name, of transformed scores, logits of accuracy and the scores' names."""


class Judge:
    """Accuracy with bounds from scores, learned from shifted sets alone.

    Parameters
    ----------
    table : Calibration
        The shifted sets; ``predicted`` is filled in.
    regressor : str
        ``cautious``, ``nearest``, ``stack``, or anything else for a straight line from scores to accuracy as they are.

    Attributes
    ----------
    table : Calibration
        With what calibration without its family says about every set.
    families : list of str
        Kinds of shifts, those of compositions taken apart.

    Examples
    --------
    >>> import numpy as np
    >>> from gdscore.estimator import Calibration, Judge
    >>> accuracy = np.linspace(0.5, 0.9, 9)
    >>> table = Calibration(
    ...     families=["fog", "snow", "blur"] * 3,
    ...     accuracy=accuracy,
    ...     rows=np.full(9, 1000),
    ...     scores={"confscore": accuracy + 0.05},
    ... )
    >>> said, low, high = Judge(table).judge({"confscore": 0.75}, rows=1000, level=0.7)
    >>> low < said < high, round(said, 1)
    (True, 0.7)
    """

    def __init__(self, table: Calibration, regressor: str = "cautious") -> None:
        kinds = self.check(table.families, table.accuracy)
        self.families = sorted(kinds)
        self._x, self._y, self._plain = table.x(), table.y(), regressor not in REGRESSORS
        self._fit: Regressor
        if self._plain:
            self._fit = Line(np.array(list(table.scores.values())).T, table.accuracy)
        else:
            self._fit = REGRESSORS[regressor](self._x, self._y, list(table.scores))
        # The interval is the first view's, which the others can only lower: it holds at least as often as that one.
        self._first: Regressor = self._fit
        self._columns: slice | list[int] = slice(None)
        if isinstance(self._fit, Cautious):
            self._first, self._columns = self._fit.views[0], self._fit.columns[0]
        self._left_out = LeftOut.make(self._first, table.families)
        if not self._left_out.residuals:
            raise GdscoreError(
                f"Expected families of shifted sets that can be left out, but each of {', '.join(map(repr, kinds))} "
                "leaves fewer than two sets without it: add sets or families"
            )
        told = self._left_out if self._first is self._fit else LeftOut.make(self._fit, table.families)
        self.table = replace(table, predicted=self._accuracy(told.predicted))

    @staticmethod
    def check(families: Sequence[str], accuracy: Sequence[float] | NDArray[Any]) -> frozenset[str]:
        """Kinds of shifts, or why nothing can be learned from such sets."""
        kinds = frozenset[str]().union(*map(parts_of, families))
        if len(kinds) < 2:
            raise GdscoreError(
                f"Expected shifted sets of at least two families, but all are of {next(iter(kinds), None)!r}: how "
                "far an estimate is off on a shift it has not seen cannot be told from one"
            )
        if np.ptp(accuracy) < 1e-9:
            raise GdscoreError(
                f"Expected shifted sets of different accuracies, but all are {accuracy[0]:.1%} accurate: there is "
                "nothing to learn from"
            )
        return kinds

    def _accuracy(self, value: Any) -> Any:
        """Accuracy from what the regressor predicts."""
        return np.clip(value, 0, 1) if self._plain else sigmoid(value)

    @property
    def n_kinds(self) -> int:
        """Kinds of shifts that the interval rests on."""
        return self._left_out.n_kinds

    @property
    def reachable_level(self) -> float:
        """Highest level that so many kinds of shifts support."""
        return self._left_out.reachable_level

    def judge(self, scores: dict[str, float], rows: int, level: float) -> tuple[float, float, float]:
        """Accuracy, lower and upper bound for the scores of a set of so many rows."""
        x = self.table.raw(scores) if self._plain else self.table.transformed(scores, rows)
        value, first = float(self._fit.predict(x[None])[0]), x[self._columns]
        unlowered = float(self._first.predict(first[None])[0])
        level = min(level, self.reachable_level)
        low, high = self._left_out.bounds(self._first, first, level)
        low -= unlowered - value
        accuracy, top, low, high = (float(self._accuracy(v)) for v in (value, unlowered, low, high))
        # Residuals hold the sampling noise of the shifted sets' own size; fewer rows add to it.
        usual = float(np.median(self.table.rows))
        added = math.sqrt(max(0.0, 1 - rows / usual))
        below = math.hypot(max(accuracy - low, 0.0), added * sampling_error(accuracy, rows, level))
        above = math.hypot(max(high - top, 0.0), added * sampling_error(top, rows, level))
        return accuracy, max(0.0, accuracy - below), min(1.0, top + above)

    def opinions(self, scores: dict[str, float], rows: int) -> dict[str, float]:
        """What each score would say by itself: the accuracy of the shifted sets most alike in it.

        Of sets with shifted inputs, where there are enough: a single score cannot tell another mix of classes, which
        moves some scores a lot and accuracy little, from a shift.
        """
        x = self.table.transformed(scores, rows)
        shifted = np.array([not is_resampled(family) for family in self.table.families])
        keep = shifted if shifted.sum() >= ENOUGH else None
        return {
            name: float(sigmoid(Nearest(self._x[:, [i]], self._y).predict(x[None, [i]], keep)[0]))
            for i, name in enumerate(self.table.scores)
        }

    def views(self, scores: dict[str, float], rows: int) -> dict[str, float]:
        """What each view would say by itself, by the names of its scores; nothing where there are no views."""
        if not isinstance(self._fit, Cautious) or len(self._fit.columns) < 2:
            return {}
        said = self._fit.each(self.table.transformed(scores, rows)[None])[:, 0] @ self._y
        names = list(self.table.scores)
        keys = [" + ".join(names[i] for i in own) for own in self._fit.columns]
        return dict(zip(keys, sigmoid(said).tolist(), strict=True))

    def lookalikes(self, scores: dict[str, float], rows: int, count: int = 5) -> list[Lookalike]:
        """Families of the shifted sets whose scores are most alike, by weight."""
        by = self._fit if isinstance(self._fit, Cautious) else Nearest(self._x, self._y)
        weights = by.weights(self.table.transformed(scores, rows)[None])[0]
        members: dict[str, list[int]] = {}
        for index, family in enumerate(self.table.families):
            members.setdefault(family, []).append(index)
        shares = {family: float(weights[own].sum()) for family, own in members.items()}
        most = sorted(shares, key=lambda family: -shares[family])[:count]
        return [
            Lookalike(
                family, shares[family], float(np.average(self.table.accuracy[own], weights=weights[own] + 1e-300))
            )
            for family, own in ((family, members[family]) for family in most)
        ]

    def distance(self, scores: dict[str, float], rows: int) -> float:
        """How far the scores are from the nearest shifted set, in units of how far those are from each other."""
        scale = spread(self._x)
        apart = np.sqrt(np.square((self._x[:, None] - self._x[None]) / scale).sum(axis=2))
        np.fill_diagonal(apart, np.inf)
        usual = max(float(np.quantile(apart.min(axis=1), 0.95)), 0.1)
        here = np.square((self._x - self.table.transformed(scores, rows)) / scale).sum(axis=1)
        return float(np.sqrt(here.min())) / usual
