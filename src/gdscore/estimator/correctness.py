"""The probability that a row's prediction is right, and how far estimates made of it are off.

On the reference, a row of a given confidence is right with a known frequency: isotonic regression gives its log-odds a.
On a target, the mean evidence of all rows (confidence, distance) differs from the reference's by Δ, in standard
deviations. Shifted sets teach how much that lowers the log-odds and how much less confidence tells:

    P(right) = σ( a + Δ·γ + (a − ā) Δ·δ ).

Where nothing has moved, Δ is 0 and this is calibrated confidence, which people know as CBPE. The accuracy is the mean
of P(right) over the rows.

Errors are expected to grow with the movement m of the estimate away from the reference: s(m) = floor + m (1 − m). Each
family of shifts is left out in turn; q is the quantile of |error| / s over the sets left out. The half-width of an
interval is √q · s(m): √q is the geometric mean of q, measured on this model's families, and 1, which fitted natural
shifts of development data. The sampling error of the rows is added to it (root of the sum of squares).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from gdscore.estimator.estimate import ClassEstimate, Quantity
from gdscore.estimator.evidence import CENTRES, Evidence, Floats, Profile, Rows, bins_of, expit, log_odds
from gdscore.estimator.settings import SETTINGS
from gdscore.shifts.sets import parts_of

__all__ = ["ClassCounts", "Correction", "SetSummary", "ShiftedSetTable", "quantile_of", "sampling_error"]


@dataclass(frozen=True)
class SetSummary:
    """What is kept of a labelled, shifted set: sums over bins of log-odds, in its own class mix and in M − 1 others.

    Attributes
    ----------
    family : str
        Family of shifts; parts joined by ``+`` are left out one by one.
    accuracy : float
        True accuracy.
    rows : int
        Number of rows.
    mean : array of shape (M, E)
        Mean evidence.
    weight, right, odds : array of shape (M, B)
        Share of the rows in each bin of calibrated log-odds, share of those predicted right, and mean log-odds.
    cells, counts : integer array of shape (C,)
        Predicted class × B + bin, wherever there are rows, and how many.
    """

    family: str
    accuracy: float
    rows: int
    mean: Floats
    weight: Floats
    right: Floats
    odds: Floats
    cells: NDArray[Any]
    counts: NDArray[Any]

    @classmethod
    def of(cls, family: str, rows: Rows, labels: NDArray[Any], seed: int) -> SetSummary:
        """Summary of a set; its class mixes depend on the family and the set alone, not on their order."""
        right = np.asarray(rows.predicted == labels)
        rng = np.random.default_rng(
            [seed, *family.encode(errors="surrogatepass"), *np.bincount(labels), *np.bincount(rows.predicted)]
        )
        even = np.full(len(labels), 1 / len(labels))
        shares = np.stack([even, *(_other_mix(labels, rng) for _ in range(SETTINGS.mixes))])
        index = bins_of(rows.calibrated)

        def sums(column: Any) -> Floats:
            return np.array([np.bincount(index, weights=w * column, minlength=len(CENTRES)) for w in shares])

        weight, correct, odds = sums(1.0), sums(right), sums(rows.calibrated)
        odds = np.where(weight > 0, odds / np.maximum(weight, 1e-300), CENTRES)
        cells, counts = np.unique(rows.predicted * len(CENTRES) + index, return_counts=True)
        mean = shares @ rows.evidence
        return cls(family, float(right.mean()), len(labels), mean, weight, correct, odds, cells, counts)


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
    returned : float
        Where the class mix is known, what exceeds it is not right: this share of it goes to other classes instead. 0
        without shifted sets.
    """

    profile: Profile
    shift: Floats
    slope: Floats
    centre: float
    base: float
    error: float
    returned: float = 0.0

    @classmethod
    def fit(cls, profile: Profile, reference: Rows, sets: list[SetSummary]) -> tuple[Correction, ShiftedSetTable]:
        """Learn from shifted sets; without any, confidence as calibrated on the reference is all there is."""
        kinds = reference.evidence.shape[1]
        centre, base = float(reference.calibrated.mean()), float(expit(reference.calibrated).mean())
        plain = cls(profile, np.zeros(kinds), np.zeros(kinds), centre, base, SETTINGS.outputs_only)
        table = ShiftedSetTable(
            [s.family for s in sets],
            np.array([s.accuracy for s in sets]),
            np.full(len(sets), np.nan),
            np.array([s.rows for s in sets], dtype=np.int64),
        )
        if not sets:
            return plain, table
        fitted = plain._learned(sets)
        fitted = replace(fitted, returned=fitted._returned(sets))
        parts = [parts_of(s.family) for s in sets]
        for group in sorted(set(parts), key=sorted):
            others = [s for s, own in zip(sets, parts, strict=True) if not group & own]
            if others:
                without = plain._learned(others, start=fitted)
                for i in (i for i, own in enumerate(parts) if own == group):
                    p = without.probability(sets[i].odds[0], sets[i].mean[0])
                    table.predicted[i] = p @ sets[i].weight[0]
        q = _quantile(fitted, table, parts)
        return fitted if q is None else replace(fitted, error=math.sqrt(q)), table

    def _learned(self, sets: list[SetSummary], start: Correction | None = None) -> Correction:
        """γ and δ by penalised maximum likelihood on the sets: Newton's method with step halving."""
        moved = np.stack([self.moved(mean) for s in sets for mean in s.mean])[:, None, :]
        offset = np.concatenate([s.odds for s in sets])
        x = np.concatenate(np.broadcast_arrays(moved, (offset - self.centre)[:, :, None] * moved), axis=2)
        weight = np.concatenate([s.weight / len(s.weight) for s in sets])
        right = np.concatenate([s.right / len(s.right) for s in sets])
        full = weight > 0
        x, offset, weight, right = x[full], offset[full], weight[full], right[full]
        share = weight / weight.sum()
        mean_square = share @ np.square(x)
        # Where a column hardly varies it is as good as constant, and its own size is its scale.
        scale = np.sqrt(np.maximum(mean_square - np.square(share @ x), 1e-4 * mean_square)) + 1e-9
        x = x / scale
        beta = np.zeros(x.shape[1]) if start is None else np.concatenate([start.shift, start.slope]) * scale

        def loss(b: Floats) -> float:
            odds = offset + x @ b
            return float(weight @ np.logaddexp(0, odds) - right @ odds + 0.5 * SETTINGS.penalty * b @ b)

        now = loss(beta)
        for _ in range(100):
            p = expit(offset + x @ beta)
            gradient = x.T @ (weight * p - right) + SETTINGS.penalty * beta
            curvature = (x * (weight * p * (1 - p))[:, None]).T @ x + SETTINGS.penalty * np.eye(len(beta))
            step = np.linalg.solve(curvature, gradient)
            size = 1.0
            while loss(beta - size * step) > now and size > 1e-6:
                size /= 2
            beta = beta - size * step
            before, now = now, loss(beta)
            if before - now < 1e-12:
                break
        shift, slope = np.split(beta / scale, 2)
        return replace(self, shift=shift, slope=slope)

    def _returned(self, sets: list[SetSummary]) -> float:
        """By least squares: the share of what exceeds the class mix that brings the sets' estimates to the truth."""
        product, square = 0.0, 1e-6  # without any excess, nothing goes back
        for s in sets:
            expected = self.probability(s.odds[0], s.mean[0])[s.cells % len(CENTRES)] * s.counts / s.rows
            right = np.bincount(s.cells // len(CENTRES), weights=expected, minlength=len(self.profile.mix))
            within = np.minimum(right, self.profile.mix)
            excess = float((right - within).sum())
            product += excess * (s.accuracy - float(within.sum()))
            square += excess**2
        return min(max(product / square, 0.0), 1.0)

    def moved(self, mean: Floats) -> Floats:
        """Δ: how far mean evidence is from the reference's, in standard deviations of its rows."""
        return np.asarray((mean - self.profile.mean) / self.profile.scale)

    def moved_within_classes(self, evidence: Evidence) -> Floats:
        """As `moved`, from the reference's rows of the same predicted classes: another class mix alone is no move."""
        usual = evidence.histogram.sum(axis=1) @ self.profile.class_means / evidence.rows
        return np.asarray((evidence.mean() - usual) / self.profile.scale)

    def probability(self, calibrated: Floats, mean: Floats) -> Floats:
        """P(right) of rows with these calibrated log-odds in a target with this mean evidence."""
        moved = self.moved(mean)
        odds = calibrated + moved @ self.shift + (calibrated - self.centre) * (moved @ self.slope)
        return np.asarray(expit(odds))

    def expected_error(self, accuracy: float, level: float) -> float:
        """Half-width of an interval of the level, without the sampling error of the rows."""
        m = abs(accuracy - self.base)
        return self.error * (SETTINGS.floor + m * (1 - m)) * quantile_of(level) / quantile_of(0.9)


def quantile_of(level: float) -> float:
    """Standard normal quantile of a two-sided interval."""
    return NormalDist().inv_cdf(0.5 + min(level, 1 - 1e-9) / 2)


def sampling_error(share: Any, rows: Any, level: float) -> Any:
    """Half-width of a normal interval for a share observed on so many rows; never 0, as no share is certain."""
    shrunk = (share * rows + 1) / (rows + 2)
    return quantile_of(level) * np.sqrt(shrunk * (1 - shrunk) / rows)


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


@dataclass(frozen=True)
class ClassCounts:
    """Expected shares of rows by class: predicted, right, and truly of the class."""

    predicted: Floats
    right: Floats
    share: Floats

    @classmethod
    def of(cls, correction: Correction, evidence: Evidence) -> ClassCounts:
        """Shares that the histogram of a target gives."""
        p = correction.probability(evidence.bins(), evidence.mean())
        right = evidence.histogram @ p / evidence.rows
        wrong = (1 - p) @ evidence.others / evidence.rows
        return cls(evidence.histogram.sum(axis=1) / evidence.rows, right, right + wrong)

    @property
    def accuracy(self) -> float:
        """Share of rows that are right."""
        return min(float(self.right.sum()), 1.0)

    def with_mix(self, mix: Floats, returned: float) -> ClassCounts:
        """The same where the classes have these shares: no more rows can be right for a class than there are of it.

        Of what exceeds them, the share ``returned`` goes to the other classes as far as they have room.
        """
        right = np.minimum(self.right, mix)
        room = np.minimum(self.predicted, mix) - right
        back = min(returned * float((self.right - right).sum()), float(room.sum()))
        return ClassCounts(self.predicted, right + back * room / max(float(room.sum()), 1e-300), mix)

    def scaled(self, accuracy: float) -> ClassCounts:
        """The same with the log-odds of all classes moved until the accuracy is this one."""
        odds = log_odds(self.right / np.maximum(self.predicted, 1e-12), 1e-9)

        def missing(change: float) -> float:
            return float((self.predicted * expit(odds + change)).sum()) - accuracy

        down, up = -45.0, 45.0
        if missing(down) >= 0 or missing(up) <= 0:
            change = down if missing(down) >= 0 else up
        else:
            change = float(brentq(missing, down, up, xtol=1e-9))
        right = self.predicted * expit(odds + change)
        return ClassCounts(self.predicted, right, np.maximum(self.share, right))

    def measures(self) -> Floats:
        """Recall, precision and F1 of each class, shape (3, K)."""
        sizes = np.stack([self.share, self.predicted, 0.5 * (self.share + self.predicted)])
        return np.clip(self.right / np.maximum(sizes, 1e-12), 0, 1)

    def per_class(
        self, rows: int, low: float, high: float, level: float, names: tuple[str, ...] | None
    ) -> tuple[list[ClassEstimate], Quantity]:
        """Estimates of each class; their intervals move with one that is wider than the accuracy's by a constant."""
        a = self.accuracy
        wider = (max(a - SETTINGS.class_width * (a - low), 0.0), min(a + SETTINGS.class_width * (high - a), 1.0))
        value, lower, upper = (counts.measures() for counts in (self, *map(self.scaled, wider)))
        sizes = np.stack([self.share, self.predicted, self.share + self.predicted]) * rows
        noise = sampling_error(value, np.maximum(sizes, 1), level)
        lowest = np.maximum(value - np.hypot(np.maximum(value - lower, 0), noise), 0)
        highest = np.minimum(value + np.hypot(np.maximum(upper - value, 0), noise), 1)
        columns = np.stack([value, lowest, highest], axis=2).tolist()
        shares = zip(self.share.tolist(), self.predicted.tolist(), strict=True)
        found = [
            ClassEstimate(k, str(k) if names is None else names[k], *both, *(Quantity(*c[k]) for c in columns))
            for k, both in enumerate(shares)
        ]
        f1, below, above = (float(part[2].mean()) for part in (value, lower, upper))
        return found, Quantity(f1, min(f1, below), max(f1, above))
