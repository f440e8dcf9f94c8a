"""The probability that a row's prediction is right, and how far estimates made of it are off.

On the reference, a row of a given confidence is right with a known frequency: isotonic regression gives its log-odds a.
On a target, the mean evidence of all rows (confidence, distance) differs from the reference's by Δ, in standard
deviations. Shifted sets teach how much that lowers the log-odds and how much less confidence tells:

    P(right) = σ( a + Δ·γ + (a − ā) Δ·δ ).

Where nothing has moved, Δ is 0 and this is calibrated confidence, which people know as CBPE. The accuracy is the mean
of P(right) over the rows.

Errors are expected to grow with the movement m of the estimate away from the reference: s(m) = floor + m (1 − m). Each
family of shifts is left out in turn; q is the quantile of |error| / s over the sets left out. The half-width of an
interval is √q · s(m), half-way between what this model's own families show and s itself, which natural shift was found
to need, with the sampling error of the rows beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore.estimator.estimate import ClassEstimate, Quantity
from gdscore.estimator.evidence import Evidence, Floats, Profile, Rows, expit
from gdscore.estimator.settings import SETTINGS
from gdscore.shifts.sets import parts_of

__all__ = ["ClassCounts", "Correction", "SetRows", "ShiftedSetTable", "quantile_of", "sampling_error"]


@dataclass(frozen=True)
class SetRows:
    """Evidence of a labelled, shifted set.

    Attributes
    ----------
    family : str
        Family of shifts; parts joined by ``+`` are left out one by one.
    rows : Rows
        Evidence of its rows.
    labels : integer array
        Their classes.
    """

    family: str
    rows: Rows
    labels: NDArray[Any]

    @property
    def right(self) -> NDArray[np.bool_]:
        """Whether each row is predicted right."""
        return np.asarray(self.rows.predicted == self.labels)


@dataclass(frozen=True)
class ShiftedSetTable:
    """The shifted sets that an estimator was fitted on.

    Attributes
    ----------
    families : list of str
        Family of each set.
    accuracy : array
        True accuracy of each set.
    predicted : array
        Its estimate when its family was left out; NaN where no other family was there.
    rows : array
        Number of rows.
    """

    families: list[str]
    accuracy: Floats
    predicted: Floats
    rows: NDArray[Any]


@dataclass(frozen=True)
class Correction:
    """How moved evidence changes the log-odds of being right.

    Attributes
    ----------
    profile : Profile
        Statistics of the reference.
    shift, slope : array of shape (E,)
        γ and δ; zeros where there were no shifted sets.
    centre : float
        ā, mean log-odds on the reference.
    base : float
        Expected accuracy where nothing has moved.
    error : float
        √q, the error of estimates relative to s(m).
    """

    profile: Profile
    shift: Floats
    slope: Floats
    centre: float
    base: float
    error: float

    @classmethod
    def fit(
        cls, profile: Profile, reference: Rows, sets: Iterable[SetRows], seed: int
    ) -> tuple[Correction, ShiftedSetTable]:
        """Learn from shifted sets; without any, confidence as calibrated on the reference is all there is."""
        kinds = reference.evidence.shape[1]
        centre, base = float(reference.calibrated.mean()), float(expit(reference.calibrated).mean())
        plain = cls(profile, np.zeros(kinds), np.zeros(kinds), centre, base, SETTINGS.outputs_only)
        kept = list(sets)
        accuracy = np.array([s.right.mean() for s in kept])
        sizes = np.array([len(s.labels) for s in kept], dtype=np.int64)
        families = [s.family for s in kept]
        predicted = np.full(len(kept), np.nan)
        table = ShiftedSetTable(families, accuracy, predicted, sizes)
        if not kept:
            return plain, table
        data = _Learning.of(plain, kept, seed)
        everything = np.ones(len(kept), dtype=bool)
        fitted = data.solved(plain, everything)
        parts = [parts_of(family) for family in families]
        for group in sorted(set(parts), key=sorted):
            without = np.array([not (group & other) for other in parts])
            if without.any():
                other = data.solved(plain, without, start=fitted)
                for i in np.flatnonzero([own == group for own in parts]):
                    predicted[i] = other.accuracy_of(kept[i].rows)
        return fitted._with_error(_quantile(fitted, table, parts)), table

    def _with_error(self, q: float | None) -> Correction:
        error = SETTINGS.outputs_only if q is None else math.sqrt(q)
        return Correction(self.profile, self.shift, self.slope, self.centre, self.base, error)

    def moved(self, mean: Floats) -> Floats:
        """Δ: how far mean evidence is from the reference's, in standard deviations of its rows."""
        return np.asarray((mean - self.profile.mean) / self.profile.scale)

    def probability(self, calibrated: Floats, mean: Floats, change: float = 0.0) -> Floats:
        """P(right) of rows with these calibrated log-odds in a target with this mean evidence."""
        moved = self.moved(mean)
        odds = calibrated + moved @ self.shift + (calibrated - self.centre) * (moved @ self.slope)
        return np.asarray(expit(odds + change))

    def accuracy_of(self, rows: Rows) -> float:
        """Mean P(right) of rows that are a target by themselves."""
        return float(self.probability(rows.calibrated, rows.evidence.mean(axis=0)).mean())

    def bins(self, state: Evidence, change: float = 0.0) -> Floats:
        """P(right) of each bin of a target's histogram; ``change`` is added to all log-odds."""
        return self.probability(state.bins(), state.mean(), change)

    def expected_error(self, accuracy: float, level: float) -> float:
        """Half-width of an interval of the level, without the sampling error of the rows."""
        m = abs(accuracy - self.base)
        return self.error * (SETTINGS.floor + m * (1 - m)) * quantile_of(level) / quantile_of(0.9)


def quantile_of(level: float) -> float:
    """Standard normal quantile of a two-sided interval."""
    return NormalDist().inv_cdf(0.5 + min(level, 1 - 1e-9) / 2)


def sampling_error(share: float, rows: float, level: float) -> float:
    """Half-width of a normal interval for a share observed on so many rows; never 0, as no share is certain."""
    shrunk = (share * rows + 1) / (rows + 2)
    return quantile_of(level) * math.sqrt(shrunk * (1 - shrunk) / max(rows, 1e-9))


@dataclass(frozen=True)
class _Learning:
    """Rows of all sets, each in its own class mix and in others, as a logistic regression sees them."""

    x: Floats
    offset: Floats
    right: Floats
    weight: Floats
    which: NDArray[Any]
    scale: Floats

    @classmethod
    def of(cls, plain: Correction, sets: list[SetRows], seed: int) -> _Learning:
        rng = np.random.default_rng(seed)
        x, offset, right, weight, which = [], [], [], [], []
        for number, s in enumerate(sets):
            chosen = np.sort(rng.permutation(len(s.labels))[: SETTINGS.rows_per_set])
            for k in range(SETTINGS.mixes + 1):
                shares = np.full(len(s.labels), 1 / len(s.labels)) if k == 0 else _other_mix(s.labels, rng)
                moved = plain.moved(shares @ s.rows.evidence)
                a = s.rows.calibrated[chosen]
                x.append(np.hstack([np.tile(moved, (len(a), 1)), (a - plain.centre)[:, None] * moved]))
                offset.append(a)
                right.append(s.right[chosen])
                weight.append(shares[chosen] / shares[chosen].sum() / (SETTINGS.mixes + 1))
                which.append(np.full(len(a), number))
        columns = np.concatenate(x)
        return cls(
            columns,
            np.concatenate(offset),
            np.concatenate(right).astype(np.float64),
            np.concatenate(weight),
            np.concatenate(which),
            columns.std(axis=0) + 1e-9,
        )

    def solved(self, plain: Correction, keep: NDArray[np.bool_], start: Correction | None = None) -> Correction:
        """Correction by penalised maximum likelihood on the sets kept: Newton's method with step halving."""
        rows = keep[self.which]
        x, offset, right, weight = self.x[rows] / self.scale, self.offset[rows], self.right[rows], self.weight[rows]
        beta = np.zeros(x.shape[1]) if start is None else np.concatenate([start.shift, start.slope]) * self.scale

        def loss(b: Floats) -> float:
            odds = offset + x @ b
            return float(weight @ (np.logaddexp(0, odds) - right * odds) + 0.5 * SETTINGS.penalty * b @ b)

        now = loss(beta)
        for _ in range(100):
            p = expit(offset + x @ beta)
            gradient = x.T @ (weight * (p - right)) + SETTINGS.penalty * beta
            curvature = (x * (weight * p * (1 - p))[:, None]).T @ x + SETTINGS.penalty * np.eye(len(beta))
            step = np.linalg.solve(curvature, gradient)
            size = 1.0
            while loss(beta - size * step) > now and size > 1e-6:
                size /= 2
            beta = beta - size * step
            before, now = now, loss(beta)
            if before - now < 1e-9:
                break
        half = len(beta) // 2
        found = beta / self.scale
        return Correction(plain.profile, found[:half], found[half:], plain.centre, plain.base, plain.error)


def _other_mix(labels: NDArray[Any], rng: np.random.Generator) -> Floats:
    """Weights of rows that give the classes shares drawn from a Dirichlet distribution."""
    present, index, counts = np.unique(labels, return_inverse=True, return_counts=True)
    shares = rng.dirichlet(np.full(len(present), SETTINGS.concentration)) + 1e-9
    weights = (shares / counts)[index]
    return np.asarray(weights / weights.sum())


def _quantile(fitted: Correction, table: ShiftedSetTable, parts: list[frozenset[str]]) -> float | None:
    """The 90 % quantile of |error| / s over the sets left out, every family weighing the same; None without any."""
    known = ~np.isnan(table.predicted)
    if not known.any():
        return None
    m = np.abs(table.predicted - fitted.base)
    relative = np.abs(table.predicted - table.accuracy) / (SETTINGS.floor + m * (1 - m))
    values, weights = [], []
    for family in sorted(frozenset[str]().union(*parts)):
        own = known & np.array([family in other for other in parts])
        values.append(relative[own])
        weights.append(np.full(own.sum(), 1 / max(own.sum(), 1)))
    flat, share = np.concatenate(values), np.concatenate(weights)
    order = np.argsort(flat)
    index = int(np.searchsorted(np.cumsum(share[order]), 0.9 * share.sum() - 1e-9))
    return float(flat[order][min(index, len(flat) - 1)])


class ClassCounts:
    """Expected shares of rows by class: predicted, right, and truly of the class."""

    def __init__(self, predicted: Floats, right: Floats, share: Floats) -> None:
        self.predicted, self.right, self.share = predicted, right, share

    @classmethod
    def of(cls, correction: Correction, evidence: Evidence, change: float = 0.0) -> ClassCounts:
        """Shares that the histogram of a target gives."""
        p = correction.bins(evidence, change)
        right = evidence.histogram @ p / evidence.rows
        wrong = (1 - p) @ evidence.others / evidence.rows
        return cls(evidence.histogram.sum(axis=1) / evidence.rows, right, right + wrong)

    @property
    def accuracy(self) -> float:
        """Share of rows that are right."""
        return float(self.right.sum())

    def capped(self, mix: Floats) -> ClassCounts:
        """The same where the classes have these shares: no more rows can be right for a class than there are of it."""
        return ClassCounts(self.predicted, np.minimum(self.right, mix), mix)

    def measures(self) -> tuple[Floats, Floats, Floats]:
        """Recall, precision and F1 of each class."""
        recall = self.right / np.maximum(self.share, 1e-12)
        precision = self.right / np.maximum(self.predicted, 1e-12)
        f1 = 2 * self.right / np.maximum(self.share + self.predicted, 1e-12)
        return np.clip(recall, 0, 1), np.clip(precision, 0, 1), np.clip(f1, 0, 1)

    def scaled(self, accuracy: float) -> ClassCounts:
        """The same with the log-odds of all classes moved until the accuracy is this one."""
        down, up = -30.0, 30.0
        part = self.right / np.maximum(self.predicted, 1e-12)
        odds = np.log(np.clip(part, 1e-9, 1 - 1e-9) / (1 - np.clip(part, 1e-9, 1 - 1e-9)))
        right = self.right
        for _ in range(60):
            middle = 0.5 * (down + up)
            right = self.predicted / (1 + np.exp(-(odds + middle)))
            down, up = (middle, up) if right.sum() < accuracy else (down, middle)
        return ClassCounts(self.predicted, np.minimum(right, self.predicted), np.maximum(self.share, right))

    def per_class(
        self,
        correction: Correction,
        evidence: Evidence,
        low: float,
        high: float,
        level: float,
        names: tuple[str, ...] | None,
    ) -> tuple[list[ClassEstimate], Quantity]:
        """Estimates of each class; their intervals move with the accuracy's and hold the class's sampling error."""
        values, lows, highs = (counts.measures() for counts in (self, self.scaled(low), self.scaled(high)))
        sizes = (
            self.share * evidence.rows,
            self.predicted * evidence.rows,
            (self.share + self.predicted) * evidence.rows,
        )
        found = []
        for k in range(len(self.share)):
            quantities = []
            for value, lower, upper, size in zip(values, lows, highs, sizes, strict=True):
                noise = sampling_error(float(value[k]), max(float(size[k]), 1.0), level)
                below = math.hypot(max(float(value[k] - lower[k]), 0.0), noise)
                above = math.hypot(max(float(upper[k] - value[k]), 0.0), noise)
                quantities.append(
                    Quantity(float(value[k]), max(0.0, float(value[k]) - below), min(1.0, float(value[k]) + above))
                )
            name = str(k) if names is None else names[k]
            found.append(ClassEstimate(k, name, float(self.share[k]), float(self.predicted[k]), *quantities))
        macro = [float(np.mean(part[2])) for part in (values, lows, highs)]
        return found, Quantity(macro[0], min(macro[:2]), max(macro[0], macro[2]))
