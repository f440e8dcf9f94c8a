"""The probability that a row's prediction is right, and how far estimates made of it are off.

On the reference, a row of a given confidence is right with a known frequency: isotonic regression gives its log-odds a.
On a target, the mean evidence of all rows (confidence, distance) differs from the reference's by Δ, in standard
deviations. Shifted sets teach how much that lowers the log-odds and how much less confidence counts:

    P(right) = σ( a + Δ·γ + (a − ā) Δ·δ ).

Where nothing has moved, Δ is 0 and this is calibrated confidence, which people know as CBPE. The accuracy is the mean
of P(right) over the rows, adjusted to what is known of the class mix.

Where the class mix is known, no more rows can be right for a class than there are of it. Where it is not known but rows
look shifted, the estimate goes a part of the way to the one under the reference's mix; shifted sets, in their own class
mix and in others, teach how far.

Errors are expected to grow with the movement m of the estimate away from the reference: s(m) = floor + m (1 − m). Each
family of shifts is left out in turn; q is the 90 % quantile of |error| / s over the sets left out. The half-width of an
interval is √q · s(m): √q is the geometric mean of q, measured on this model's families, and 1, which fitted natural
shifts of development data. The sampling error of the rows is added to it (root of the sum of squares).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import gammaincinv

from gdscore._hashing import id_words, key_as_uint64, row_key
from gdscore.estimator.estimate import ClassCounts, quantile_of
from gdscore.estimator.evidence import CENTRES, Evidence, Explanation, Floats, Profile, Rows, bins_of, expit
from gdscore.estimator.settings import SETTINGS
from gdscore.shifts.sets import parts_of

MOST_NUMBERS = 5_000_000
"""Numbers by predicted class and bin that are kept of all sets in all their class mixes."""


@dataclass(frozen=True)
class SetSummary:
    """What is kept of a labelled, shifted set: counts and sums from which it is known in any class mix."""

    family: str  # family of shifts; parts joined by ``+`` are left out one by one
    accuracy: float  # true accuracy
    rows: int  # number of rows
    counts: Floats  # shape (K,): rows of each class
    means: Floats  # shape (K, E): mean evidence of the rows of each class; 0 where there are none
    # Shape (T,): class, predicted class and bin of calibrated log-odds, wherever there are rows
    label: NDArray[Any]
    predicted: NDArray[Any]
    bin: NDArray[Any]
    # Shape (T,): number of those rows, and sum of their log-odds
    cell_rows: Floats
    cell_odds: Floats

    @classmethod
    def of(cls, family: str, rows: Rows, labels: NDArray[Any], *, classes: int) -> SetSummary:
        """Summary of a set."""
        shape = (classes, classes, len(CENTRES))
        cells, place = np.unique(
            np.ravel_multi_index((labels, rows.predicted, bins_of(rows.calibrated)), shape), return_inverse=True
        )
        counts = np.bincount(labels, minlength=classes).astype(np.float64)
        sums = [np.bincount(labels, weights=column, minlength=classes) for column in rows.evidence.T]
        label, predicted, index = np.unravel_index(cells, shape)
        return cls(
            family=family,
            accuracy=float((rows.predicted == labels).mean()),
            rows=len(labels),
            counts=counts,
            means=np.stack(sums, axis=1) / np.maximum(counts, 1)[:, None],
            label=label,
            predicted=predicted,
            bin=index,
            cell_rows=np.bincount(place).astype(np.float64),
            cell_odds=np.asarray(np.bincount(place, weights=rows.calibrated), dtype=np.float64),
        )

    @property
    def mean(self) -> Floats:
        """Mean evidence."""
        return np.asarray(self.counts @ self.means / self.rows)

    def mixes(self, count: int, seed: int) -> Floats:
        """Shares of the classes in its own class mix and in ``count`` random ones, of shape (1 + count, K).

        They are drawn from a Dirichlet distribution. The numbers of a class are a hash of how its rows are predicted,
        so that its name and place mean nothing. Over the mixes they are stratified (a Latin hypercube): each class is
        rare in some mixes and frequent in others.
        """
        classes = len(self.counts)
        pairs, place = np.unique(self.label * classes + self.predicted, return_inverse=True)
        true, found = np.divmod(pairs, classes)
        rows = np.bincount(place, weights=self.cell_rows)
        sums = ((true, rows), (found, rows), (true, rows * (true == found)), (true, rows**2), (found, rows**2))
        of_class = np.stack([np.bincount(k, weights=w, minlength=classes) for k, w in sums], axis=1)
        of_set = np.stack(row_key(id_words(np.array([f"{seed} {self.family}"], dtype=np.str_))), axis=1)
        words = np.hstack([of_class.astype(np.int64).astype(np.int32), np.repeat(of_set, classes, axis=0)])

        def uniform(draw: int) -> Floats:
            draws = np.tile(np.arange(draw * count, (draw + 1) * count, dtype=np.int32), classes)
            key = row_key(np.column_stack([np.repeat(words, count, axis=0), draws]))
            return np.asarray(((key_as_uint64(key) >> np.uint64(11)) * 2.0**-53).reshape(classes, count))

        strata = uniform(0).argsort(axis=1).argsort(axis=1)
        drawn = gammaincinv(SETTINGS.concentration, (strata + uniform(1)) / max(count, 1)).T + 1e-9
        shares = np.vstack([self.counts, np.where(self.counts > 0, drawn, 0)])
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))


@dataclass(frozen=True)
class _Sets:
    """The same of many sets, one entry for each set and class mix."""

    number: NDArray[Any]  # shape (R,): which set it is
    own: NDArray[Any]  # shape (R,): whether it is in its own class mix
    share: Floats  # shape (R,): what it counts: a set counts 1, half of it in its own class mix
    # Shape (R,): rows of the set, and the true accuracy in this class mix
    rows: NDArray[Any]
    accuracy: Floats
    # Shape (R, K): share of each class among the labels and among the predictions
    mix: Floats
    predicted: Floats
    # Shape (R, E) or (R, B): as of a summary
    mean: Floats
    weight: Floats
    right: Floats
    odds: Floats
    # Shape (T,): entry × K + predicted class, and entry × B + bin, wherever there are rows
    place: NDArray[Any]
    bin: NDArray[Any]
    cell_weight: Floats  # shape (T,): share of those rows
    # By the class mix that explains the outputs best, and by the true one
    unknown: Explanation
    known: Explanation

    @classmethod
    def of(cls, sets: list[SetSummary], profile: Profile, seed: int) -> _Sets:
        """All sets, each in its own class mix and in as many others as make the number of entries enough."""
        numbers = sum(len(s.label) for s in sets)
        count = min(math.ceil(SETTINGS.mixes / len(sets)), SETTINGS.most_mixes, max(MOST_NUMBERS // numbers, 2))
        entries, classes, bins = 1 + count, len(sets[0].counts), len(CENTRES)
        mix = np.concatenate([s.mixes(count, seed) for s in sets])
        mean, weight, right, odds, place, cell, cell_weight = ([] for _ in range(7))
        for number, s in enumerate(sets):
            shares = mix[number * entries : (number + 1) * entries]
            of_row = (shares / np.maximum(s.counts, 1))[:, s.label]
            at = np.arange(entries)[:, None] * bins + s.bin
            mean.append(shares @ s.means)
            weight.append(_summed(at, of_row * s.cell_rows, (entries, bins)))
            right.append(_summed(at, of_row * s.cell_rows * (s.label == s.predicted), (entries, bins)))
            total = _summed(at, of_row * s.cell_odds, (entries, bins))
            odds.append(np.where(weight[-1] > 0, total / np.maximum(weight[-1], 1e-300), CENTRES))
            cells, inverse = np.unique(s.predicted * bins + s.bin, return_inverse=True)
            entry = np.arange(entries)[:, None]
            cell_weight.append(
                _summed(entry * len(cells) + inverse, of_row * s.cell_rows, (entries, len(cells))).ravel()
            )
            entry = entry + number * entries
            place.append((entry * classes + cells // bins).ravel())
            cell.append((entry * bins + cells % bins).ravel())
        own = np.arange(len(mix)) % entries == 0
        places, bins_at, of_cell = np.concatenate(place), np.concatenate(cell), np.concatenate(cell_weight)
        means, rows = np.concatenate(mean), np.repeat([s.rows for s in sets], entries)
        groups = len(profile.cells) // classes
        grouped = _summed(places * groups + profile.groups[bins_at % bins], of_cell, (len(mix), classes * groups))
        return cls(
            number=np.repeat(np.arange(len(sets)), entries),
            own=own,
            share=np.where(own, 1.0, 1 / max(count, 1)) / (1 + min(count, 1)),
            rows=rows,
            accuracy=np.concatenate(right).sum(axis=1),
            mix=mix,
            predicted=_summed(places, of_cell, mix.shape),
            mean=means,
            weight=np.concatenate(weight),
            right=np.concatenate(right),
            odds=np.concatenate(odds),
            place=places,
            bin=bins_at,
            cell_weight=of_cell,
            unknown=profile.explain(grouped, means, rows),
            known=profile.explain(grouped, means, rows, mix),
        )


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

    @property
    def left_out_error(self) -> float | None:
        """Mean absolute error of the estimates without the set's family; None where there are none."""
        errors = np.abs(self.predicted - self.accuracy)
        return float(np.nanmean(errors)) if np.isfinite(errors).any() else None


@dataclass(frozen=True)
class Correction:
    """How moved evidence changes the log-odds of being right."""

    profile: Profile  # statistics of the reference
    # Shape (E,): γ and δ; zeros where there were no shifted sets
    shift: Floats
    slope: Floats
    centre: float  # ā, mean log-odds on the reference
    base: float  # expected accuracy where nothing has moved
    # √q, the error of estimates relative to s(m), where the class mix is not known and where it is
    error: float
    known_mix_error: float
    # Mean absolute error on families left out, where the class mix is not known and where it is; None without them
    left_out: float | None = None
    known_left_out: float | None = None
    # Where the class mix is known, what exceeds it is not right: this share of it goes to other classes instead. 0
    # without shifted sets.
    returned: float = 0.0
    # Where the class mix is not known but rows look shifted, how far the estimate goes to the one under the reference's
    # mix: from 0, not at all, to 1, all the way. 0 without shifted sets.
    lean: float = 0.0
    # How much what a class mix does not explain of a target's movement counts against the estimate that only the mix
    # has moved
    strictness: float = 0.0

    @classmethod
    def fit(
        cls, profile: Profile, reference: Rows, sets: list[SetSummary], *, seed: int
    ) -> tuple[Correction, ShiftedSetTable]:
        """Learn from shifted sets; without any, confidence as calibrated on the reference is all there is."""
        kinds = reference.evidence.shape[1]
        centre, base = float(reference.calibrated.mean()), float(expit(reference.calibrated).mean())
        # Where nothing varies no target moves the estimate, so that an interval has nothing to rest on but the errors.
        power = 1.0 if profile.scale.any() else 2.0
        error = SETTINGS.outputs_only**power
        nothing = np.zeros(kinds)
        plain = cls(profile, nothing, nothing, centre, base, error, error, strictness=SETTINGS.strictness)
        table = ShiftedSetTable(
            [s.family for s in sets],
            np.array([s.accuracy for s in sets]),
            np.full(len(sets), np.nan),
            np.array([s.rows for s in sets], dtype=np.int64),
        )
        if not sets:
            return plain, table
        stacked = _Sets.of(sets, profile, seed)
        fitted, _ = plain._learned(stacked, np.ones(len(stacked.number), dtype=bool))
        parts = [parts_of(s.family) for s in sets]
        unknown, known = (np.full(len(stacked.number), np.nan) for _ in range(2))
        for group in sorted(set(parts), key=sorted):
            others = np.array([not group & own for own in parts])[stacked.number]
            if others.any():
                without, counts = plain._learned(stacked, others, start=fitted)
                own = np.array([own == group for own in parts])[stacked.number]
                for estimates, found in ((unknown, stacked.unknown), (known, stacked.known)):
                    assumed = without.assumed(counts, found, stacked.mean, stacked.rows, known=found is stacked.known)
                    estimates[own] = assumed.right.sum(axis=1)[own]
        table.predicted[:] = unknown[stacked.own]
        if np.isnan(unknown).all():
            return fitted, table
        families = sorted(frozenset[str]().union(*parts))
        members = np.array([[family in own for own in parts] for family in families])[:, stacked.number] * stacked.share
        error, known_mix_error = (
            _relative_error(e, stacked.accuracy, base, members) ** power for e in (unknown, known)
        )
        left_out, known_left_out = (
            float(np.nanmean(np.abs(e - stacked.accuracy)[stacked.own])) for e in (unknown, known)
        )
        errors = {"error": error, "known_mix_error": known_mix_error}
        return replace(fitted, **errors, left_out=left_out, known_left_out=known_left_out), table

    def _learned(
        self, sets: _Sets, used: NDArray[Any], start: Correction | None = None
    ) -> tuple[Correction, ClassCounts]:
        """What the used entries teach; and counts of all of them before anything is assumed of the class mix."""
        fitted = self._with_slopes(sets, used, start)
        p = fitted.probability(sets.odds, sets.mean).ravel()[sets.bin]
        right = _summed(sets.place, sets.cell_weight * p, sets.mix.shape)
        counts = ClassCounts(sets.predicted, right, right).moved(self.profile.class_odds)
        weight = sets.share[used]
        fitted = fitted._with_strictness(sets, used, right.sum(axis=1))
        known, unknown = (fitted.followed(counts, found) for found in (sets.known, sets.unknown))
        excess = known.excess(sets.mix, self._mix_noise(sets.mix, sets.rows)).sum(axis=1)
        missing = sets.accuracy - known.right.sum(axis=1) + excess
        fitted = replace(fitted, returned=_share(excess[used], missing[used], weight))
        stable = fitted._capped(unknown, self.profile.mix, sets.rows).right.sum(axis=1)
        estimate = unknown.right.sum(axis=1)
        way = self._leaning(counts.predicted, sets.mean, sets.rows) * (stable - estimate)
        return replace(fitted, lean=_share(way[used], (sets.accuracy - estimate)[used], weight)), counts

    def _with_strictness(self, sets: _Sets, used: NDArray[Any], right: Floats) -> Correction:
        """The strictness with the least squared error where the class mix is not known."""
        found, weight, right = sets.unknown, sets.share[used], right[used]
        way, missing = found.right.sum(axis=1)[used] - right, sets.accuracy[used] - right

        def error(logarithm: float) -> float:
            return float(weight @ np.square(found.share(math.exp(logarithm))[used] * way - missing))

        ends = (math.log(SETTINGS.strictness), math.log(SETTINGS.most_strictness))
        return replace(self, strictness=math.exp(minimize_scalar(error, bounds=ends, method="bounded").x))

    def _with_slopes(self, sets: _Sets, used: NDArray[Any], start: Correction | None) -> Correction:
        """γ and δ by penalised maximum likelihood on the sets."""
        moved, offset = self.moved(sets.mean[used])[:, None, :], sets.odds[used]
        x = np.concatenate(np.broadcast_arrays(moved, (offset - self.centre)[:, :, None] * moved), axis=2)
        weight, right = (sets.share[used, None] * sums[used] for sums in (sets.weight, sets.right))
        full = weight > 0
        begin = None if start is None else np.concatenate([start.shift, start.slope])
        found = fit_logistic(x[full], weight[full], right[full], offset[full], penalty=SETTINGS.penalty, start=begin)
        shift, slope = np.split(found, 2)
        return replace(self, shift=shift, slope=slope)

    def moved(self, mean: Floats) -> Floats:
        """Δ: how far mean evidence is from the reference's, in standard deviations of its rows."""
        return self.profile.standardised(mean - self.profile.mean)

    def looks_shifted(self, predicted: Floats, mean: Floats, rows: Any) -> Any:
        """How far rows are from the reference's rows of the same predicted classes, where 1 is far enough to tell.

        That is the constant ``moved``, or the noise where that is more. Another class mix alone is no shift.
        """
        profile = self.profile
        moved = np.abs(profile.standardised(mean - predicted @ profile.class_means)).max(axis=-1)
        seen = np.maximum(profile.predicted_mix * profile.counts.sum(), 1)
        noise = np.sqrt(1 / np.asarray(rows) + np.square(predicted) @ (1 / seen))
        return moved / np.maximum(SETTINGS.moved, SETTINGS.noise * noise)

    def _leaning(self, predicted: Floats, mean: Floats, rows: Any) -> Any:
        """From 0, where rows do not look shifted, to 1 at twice as far."""
        return np.clip(self.looks_shifted(predicted, mean, rows) - 1, 0, 1)

    def counts(self, evidence: Evidence) -> ClassCounts:
        """Expected shares of a target's rows by class."""
        return self.pooled(evidence).moved(self.profile.class_odds)

    def pooled(self, evidence: Evidence) -> ClassCounts:
        """The same where rows of one confidence are right as often in every class."""
        p = self.probability(evidence.bins(), evidence.mean())
        right = evidence.histogram @ p / evidence.rows
        wrong = (1 - p) @ evidence.others / evidence.rows
        return ClassCounts(evidence.histogram.sum(axis=1) / evidence.rows, right, right + wrong)

    def followed(self, counts: ClassCounts, found: Explanation) -> ClassCounts:
        """Counts on the way to those where only the class mix has moved, as far as this explains the target."""
        only_mix = ClassCounts(counts.predicted, found.right, found.mix)
        return counts.towards(only_mix, found.share(self.strictness))

    def assumed(self, counts: ClassCounts, found: Explanation, mean: Floats, rows: Any, *, known: bool) -> ClassCounts:
        """Counts of a target with this mean evidence where the class mix is known, or, with False, may be any.

        ``found`` explains the target by the mix that is known, or by the one that explains it best.
        """
        nearer = self.followed(counts, found)
        if known:
            return self._capped(nearer, found.mix, rows)
        stable = self._capped(nearer, self.profile.mix, rows)
        return nearer.towards(stable, self.lean * self._leaning(counts.predicted, mean, rows))

    def assumptions(
        self, evidence: Evidence, given: Floats | None = None
    ) -> dict[str, tuple[ClassCounts, Explanation]]:
        """Counts of a target under each assumption about its class mix, and how far its mix explains the target."""
        counts, mean, rows, profile = self.counts(evidence), evidence.mean(), evidence.rows, self.profile
        cells = profile.grouped(evidence.histogram) / rows
        best = profile.explain(cells, mean, rows)
        found = {
            "unknown": (self.assumed(counts, best, mean, rows, known=False), best),
            "estimated": (ClassCounts(counts.predicted, best.right, best.mix), best),
        }
        for name, mix in (("stable", profile.mix), ("given", given)):
            if mix is not None:
                known = profile.explain(cells, mean, rows, mix)
                found[name] = (self.assumed(counts, known, mean, rows, known=True), known)
        return found

    def _capped(self, counts: ClassCounts, mix: Floats, rows: Any) -> ClassCounts:
        """Counts where the classes have these shares: no more rows can be right for a class than there are of it."""
        return counts.with_mix(mix, self._mix_noise(mix, rows), self.returned)

    def _mix_noise(self, mix: Floats, rows: Any) -> Any:
        """How much more of some classes than their shares so many rows show by chance, on average, over all classes.

        Rows show a class mix with noise, those of the target and those of the reference that it is known from. The mean
        of the positive part of a normal variable is its standard deviation divided by √(2π).
        """
        noise = 1 / np.asarray(rows) + 1 / self.profile.counts.sum()
        return np.sqrt(mix * np.maximum(1 - mix, 0)).sum(axis=-1) * np.sqrt(noise / (2 * np.pi))

    def probability(self, calibrated: Floats, mean: Floats) -> Floats:
        """P(right) of rows with these calibrated log-odds in a target with this mean evidence; one or many targets."""
        moved = self.moved(mean)
        shift, slope = (np.asarray(moved @ c)[..., None] for c in (self.shift, self.slope))
        return np.asarray(expit(calibrated + shift + (calibrated - self.centre) * slope))

    def chance(self, rows: int) -> float:
        """How far mean evidence of so many rows is from the reference's by chance at most, in standard deviations."""
        return SETTINGS.noise * math.sqrt(1 / rows + 1 / self.profile.counts.sum())

    def expected_error(self, accuracy: float, mean: Floats, rows: int, level: float, *, known_mix: bool) -> float:
        """Half-width of an interval of the level, without the sampling error of the rows."""
        error, left_out = (self.known_mix_error, self.known_left_out) if known_mix else (self.error, self.left_out)
        moved = np.maximum(np.abs(self.moved(mean)) - self.chance(rows), 0)
        if left_out is None:
            # Confidence that has moved is in the estimate; what distances mean for it is not known.
            further = SETTINGS.untaught * min(float(moved[1:].max(initial=0.0)), 4.0)
        else:
            further = quantile_of(0.9) * left_out * min(float(moved.max()) / SETTINGS.moved_fully, 1.0)
        half = math.hypot(error * float(_expected(accuracy, self.base)), further)
        return half * quantile_of(level) / quantile_of(0.9)


def _summed(place: NDArray[Any], values: Floats, shape: tuple[int, ...]) -> Floats:
    """Sums of values by their place in an array of the shape."""
    found = np.bincount(place.ravel(), weights=values.ravel(), minlength=math.prod(shape))
    return found.astype(np.float64).reshape(shape)


def _share(x: Floats, y: Floats, weight: Floats) -> float:
    """The share of x that is nearest to y, by weighted least squares; near 0 where all of x is small."""
    squares = float(weight @ (np.square(x) + SETTINGS.small_way**2))
    return min(max(float((weight * x) @ y) / squares, 0.0), 1.0)


def _relative_error(estimates: Floats, accuracy: Floats, base: float, members: NDArray[Any]) -> float:
    """√q: the root of the 90 % quantile of |error| / s, every family weighing the same.

    ``members`` has a row for each family and a column for each estimate: what it counts, or 0. NaN is no estimate.
    """
    there = ~np.isnan(estimates)
    relative = np.abs(estimates - accuracy)[there] / _expected(estimates[there], base)
    own = members[:, there]
    share = (own / np.maximum(own.sum(axis=1, keepdims=True), 1e-9)).sum(axis=0)
    order = np.argsort(relative)
    index = int(np.searchsorted(np.cumsum(share[order]), 0.9 * share.sum() - 1e-9))
    return math.sqrt(relative[order][min(index, len(order) - 1)])


def _expected(accuracy: Any, base: float) -> Any:
    """s(m): how far estimates are expected to be off, up to a factor."""
    m = np.abs(accuracy - base)
    return SETTINGS.floor + m * (1 - m)


LEAST_SCALE = 1e-3
"""Spread of a column below which it is taken for rounding."""


def fit_logistic(
    x: Floats, weight: Floats, right: Floats, offset: Floats, *, penalty: float, start: Floats | None = None
) -> Floats:
    """Coefficients β of P = σ(offset + x β), by Newton's method with step halving, from ``start`` or 0.

    They maximise Σ right ln P + (weight − right) ln(1 − P) less ½ ``penalty`` times the sum of squares of β, each
    multiplied by the standard deviation of its column; ``weight`` and ``right`` may be fractions of rows.

    Examples
    --------
    >>> x, weight, right = np.array([[-1.0], [1.0]]), np.array([4.0, 4.0]), np.array([1.0, 3.0])
    >>> fit_logistic(x, weight, right, np.zeros(2), penalty=0.0).round(6).tolist()  # ln 3
    [1.098612]
    """
    share = weight / weight.sum()
    mean_square = share @ np.square(x)
    # Where a column hardly varies it is as good as constant, and its own size is its scale; what varies by less than
    # LEAST_SCALE in all is taken for rounding, from which nothing is learned.
    scale = np.sqrt(np.maximum(mean_square - np.square(share @ x), 1e-4 * mean_square))
    scale = np.maximum(scale, LEAST_SCALE)
    x = x / scale
    beta = np.zeros(x.shape[1]) if start is None else start * scale

    def loss(b: Floats) -> float:
        odds = offset + x @ b
        return float(weight @ np.logaddexp(0, odds) - right @ odds + 0.5 * penalty * b @ b)

    now = loss(beta)
    for _ in range(100):
        p = expit(offset + x @ beta)
        gradient = x.T @ (weight * p - right) + penalty * beta
        curvature = (x * (weight * p * (1 - p))[:, None]).T @ x + penalty * np.eye(len(beta))
        step = np.linalg.solve(curvature, gradient)
        size = 1.0
        while loss(beta - size * step) > now and size > 1e-6:
            size /= 2
        beta = beta - size * step
        before, now = now, loss(beta)
        if before - now < 1e-12:
            break
    return np.asarray(beta / scale)
