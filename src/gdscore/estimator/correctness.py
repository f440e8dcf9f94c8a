"""The probability that a row's prediction is right, and how far estimates made of it are off.

DOCSTRING
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from gdscore.estimator.estimate import quantile_of
from gdscore.estimator.evidence import (
    CENTRES,
    FARTHEST,
    Evidence,
    Floats,
    Profile,
    Rows,
    bins_of,
    expit,
    group_of_bin,
    groups_of,
)
from gdscore.estimator.settings import SETTINGS
from gdscore.estimator.table import Cells
from gdscore.shifts.sets import parts_of

MOST_OTHERS = 16
"""Other classes of which a shifted set keeps the probability; the rest counts as the reference's mix."""
MIXTURE_STEPS = 300
MOST_BLOCKS = 16
MOST_NUMBERS, MOST_PRODUCTS, MOST_RAKED = 5_000_000, 300_000_000, 200_000
"""Limits on the work of a fit: numbers by bin of all sets in all class mixes, products of one step of their mixtures,
and numbers of one set whose rows are raked. With many classes or rows there are fewer class mixes."""


@dataclass(frozen=True)
class SetSummary:
    """What is kept of a labelled, shifted set: counts and sums from which it is known in any class mix."""

    family: str  # family of shifts; parts joined by ``+`` are left out one by one
    accuracy: float  # true accuracy
    rows: int  # number of rows
    counts: Floats  # shape (K,): rows of each class
    means: Floats  # shape (K, E): mean evidence of the rows of each class; 0 where there are none
    # Shape (T,): predicted class, bin of calibrated log-odds and class, in rising order, wherever there are rows
    predicted: NDArray[Any]
    bin: NDArray[Any]
    label: NDArray[Any]
    # Shape (T,): number of those rows, and sum of their log-odds
    cell_rows: Floats
    cell_odds: Floats
    # Shape (T, up to 16): likeliest classes beside the predicted one, and their shares
    other: NDArray[Any]
    other_share: Floats

    @classmethod
    def of(cls, family: str, rows: Rows, others: Floats, labels: NDArray[Any], *, classes: int) -> SetSummary:
        """Summary of a set; ``others`` are the shares of the classes that are not predicted."""
        shape = (classes, len(CENTRES), classes)
        cells, place = np.unique(
            np.ravel_multi_index((rows.predicted, bins_of(rows.calibrated), labels), shape), return_inverse=True
        )
        counts = np.bincount(labels, minlength=classes).astype(np.float64)
        sums = [np.bincount(labels, weights=column, minlength=classes) for column in rows.evidence.T]
        predicted, index, label = np.unravel_index(cells, shape)
        cell_rows = np.bincount(place).astype(np.float64)
        order = np.argsort(place, kind="stable")
        shares = np.add.reduceat(others[order], np.searchsorted(place[order], np.arange(len(cells))), axis=0)
        shares = shares / cell_rows[:, None]
        most = min(MOST_OTHERS, classes - 1)
        other = np.argsort(-shares, axis=1, kind="stable")[:, :most]
        return cls(
            family=family,
            accuracy=float((rows.predicted == labels).mean()),
            rows=len(labels),
            counts=counts,
            means=np.stack(sums, axis=1) / np.maximum(counts, 1)[:, None],
            predicted=predicted,
            bin=index,
            label=label,
            cell_rows=cell_rows,
            cell_odds=np.asarray(np.bincount(place, weights=rows.calibrated), dtype=np.float64),
            other=other,
            other_share=np.take_along_axis(shares, other, axis=1).astype(np.float32),
        )

    @property
    def mean(self) -> Floats:
        """Mean evidence."""
        return np.asarray(self.counts @ self.means / self.rows)

    def others(self, usual: Floats) -> Floats:
        """Shares of the classes that are not predicted, of shape (T, K)."""
        rest = 1 - self.other_share.sum(axis=1, dtype=np.float64)
        shares = np.maximum(rest, 0)[:, None] * usual
        np.put_along_axis(shares, self.other, self.other_share, axis=1)
        shares[np.arange(len(shares)), self.predicted] = 0.0
        return np.asarray(shares / np.maximum(shares.sum(axis=1, keepdims=True), 1e-300))


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


def class_mixes(sets: list[SetSummary], profile: Profile) -> Floats:
    """Factors of the classes' shares in which sets are used besides their own mix, of shape (M, K).

    One class, or one block of classes of similar confidence where there are many, is made rarer and more frequent by
    each of the constants ``tilts``: nothing is drawn, so that no row and no rounding decides which mixes there are.
    """
    classes, tilts = len(profile.mix), np.array(SETTINGS.tilts)
    rows, products = sum(s.rows for s in sets), len(sets) * len(profile.cells) * classes
    entries = min(MOST_NUMBERS / rows, MOST_PRODUCTS / products)
    blocks = int(np.clip((entries - 1) / len(tilts), 1, min(classes, MOST_BLOCKS)))
    order = np.lexsort((-profile.counts, profile.label_means[:, 0]))
    block = np.empty(classes, dtype=np.int64)
    block[order] = np.arange(classes) * blocks // classes
    return np.asarray(np.exp(tilts[:, None] * (block == np.arange(blocks)[:, None, None])).reshape(-1, classes))


@dataclass(frozen=True)
class _MixedSet:
    """A set in its own class mix, the first entry, and in others: R entries."""

    summary: SetSummary
    mix: Floats  # shape (R, K): share of each class
    accuracy: Floats  # shape (R,): true accuracy
    mean: Floats  # shape (R, E): mean evidence
    # Shape (R, B): share of the rows in each bin of log-odds, share that is right, and mean log-odds
    weight: Floats
    right: Floats
    odds: Floats
    of_row: Floats  # shape (R, T): share of the rows of each count of the summary
    cells: NDArray[Any]  # shape (T,): cell of each count

    @classmethod
    def of(cls, summary: SetSummary, factors: Floats, classes: int) -> _MixedSet:
        """The set in its own mix and with these factors of its classes' shares."""
        mix = np.vstack([summary.counts, summary.counts * factors])
        mix = mix / mix.sum(axis=1, keepdims=True)
        of_row = (mix / np.maximum(summary.counts, 1))[:, summary.label] * summary.cell_rows
        groups, shape = groups_of(classes), (len(mix), len(CENTRES))
        at = np.arange(len(mix))[:, None] * len(CENTRES) + summary.bin
        weight = _summed(at, of_row, shape)
        right = _summed(at, of_row * (summary.label == summary.predicted), shape)
        total = _summed(at, of_row * (summary.cell_odds / summary.cell_rows), shape)
        return cls(
            summary=summary,
            mix=mix,
            accuracy=right.sum(axis=1),
            mean=mix @ summary.means,
            weight=weight,
            right=right,
            odds=np.where(weight > 0, total / np.maximum(weight, 1e-300), CENTRES),
            of_row=of_row,
            cells=summary.predicted * groups + group_of_bin(groups)[summary.bin],
        )

    def cell_shares(self, size: int) -> Floats:
        """Share of the rows in each cell, of shape (R, C)."""
        at = np.arange(len(self.mix))[:, None] * size + self.cells
        return _summed(at, self.of_row, (len(self.mix), size))

    def predicted_shares(self, shares: Floats) -> Floats:
        """Share of the rows that are predicted as each class, of shape (R, K)."""
        return np.asarray(shares.reshape(len(shares), self.mix.shape[1], -1).sum(axis=2))

    def in_cells(self, probability: Floats, usual: Floats, entries: Any) -> Cells:
        """Rows of some entries by cell; ``probability`` is that of being right, of shape (R, B)."""
        cells, starts = np.unique(self.cells, return_index=True)
        of_row = self.of_row[entries]
        shares = np.add.reduceat(of_row, starts, axis=1)
        filled = np.maximum(shares, 1e-300)
        p = np.add.reduceat(of_row * probability[entries][:, self.summary.bin], starts, axis=1) / filled
        classes = np.add.reduceat(of_row[:, :, None] * self.summary.others(usual), starts, axis=1)
        classes *= ((1 - p) / filled)[:, :, None]
        predicted = self.summary.predicted[starts]
        classes[:, np.arange(len(cells)), predicted] = p
        return Cells(predicted, shares, classes)


@dataclass(frozen=True)
class Explanation:
    """How far a class mix explains the outputs of a target, or of R targets."""

    mix: Floats  # shape (K,) or (R, K): shares of the classes
    # Number or shape (R,): how far this mix moves the reference's outputs, and how far the target is from there: both
    # squared, in standard deviations
    explained: Any
    left: Any
    chance: Any  # number or shape (R,): how far samples of these sizes are from there by chance

    def share(self, strictness: float) -> Any:
        """Share of the movement that the mix explains, from 0 to 1; what is left counts ``strictness`` times."""
        return self.explained / (self.explained + strictness * self.left + 1e-9)


def explain(profile: Profile, cells: Floats, mean: Floats, rows: Any, mix: Floats | None = None) -> Explanation:
    """How far a class mix explains the cells and the mean evidence of a target, or of R targets.

    Where only the class mix has moved, the share of the rows in each cell is a mixture of those of the reference's
    classes. Without ``mix`` the shares of the classes are estimated: maximum likelihood by expectation-maximisation
    (Saerens et al. 2002), as if a few rows more had been seen in the reference's mix.
    """
    likely, usual = profile.of_class, profile.mix
    rows = np.asarray(rows, dtype=np.float64)[..., None]
    if mix is None:
        mix = np.broadcast_to(usual, (*cells.shape[:-1], len(usual)))
        for _ in range(MIXTURE_STEPS):
            seen = rows * mix * ((cells / np.maximum(mix @ likely.T, 1e-300)) @ likely) + SETTINGS.prior_rows * usual
            before, mix = mix, seen / (rows + SETTINGS.prior_rows)
            if np.abs(mix - before).max() < 1e-6:
                break
    expected, reference = np.maximum(mix @ likely.T, 1e-300), usual @ likely.T
    noise = expected * (1 - expected) / rows
    noise = noise + np.square(mix) / np.maximum(profile.counts, 1) @ (likely * (1 - likely)).T
    scale = (cells + expected + reference) / 3
    apart, chance = ((part / scale).sum(axis=-1) for part in (np.square(cells - expected), noise))
    moved = np.clip(profile.standardised(mean - mix @ profile.label_means), -FARTHEST, FARTHEST)
    left = np.maximum(apart - chance, 0) + np.square(moved).sum(axis=-1)
    explained = (np.square(expected - reference) / scale).sum(axis=-1)
    return Explanation(np.asarray(mix), explained * profile.told, left, chance)


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
    # Where the class mix is not known but rows look shifted, how far the estimate goes to the one under the reference's
    # mix: from 0, not at all, to 1, all the way. 0 without shifted sets.
    lean: float = 0.0
    # What a class mix does not explain of a target's movement counts so many times against the estimate that only the
    # mix has moved
    strictness: float = SETTINGS.strictness

    @classmethod
    def fit(cls, profile: Profile, reference: Rows, sets: list[SetSummary]) -> tuple[Correction, ShiftedSetTable]:
        """Learn from shifted sets; without any, confidence as calibrated on the reference is all there is."""
        kinds = reference.evidence.shape[1]
        centre, base = float(reference.calibrated.mean()), float(expit(reference.calibrated).mean())
        # Where nothing varies no target moves the estimate, so that an interval has nothing to rest on but the errors.
        power = 1.0 if profile.scale.any() else 2.0
        error = SETTINGS.outputs_only**power
        nothing = np.zeros(kinds)
        plain = cls(profile, nothing, nothing, centre, base, error, error)
        table = ShiftedSetTable(
            [s.family for s in sets],
            np.array([s.accuracy for s in sets]),
            np.full(len(sets), np.nan),
            np.array([s.rows for s in sets], dtype=np.int64),
        )
        if not sets:
            return plain, table
        factors = class_mixes(sets, profile)
        mixed = [_MixedSet.of(s, factors, len(profile.mix)) for s in sets]
        parts = [parts_of(s.family) for s in sets]
        stacked = _Stacked.of(mixed)
        fitted = plain._with_slopes(stacked, np.ones(len(sets), dtype=bool), None)
        left_out: dict[int, _LeftOut] = {}
        for group in sorted(set(parts), key=sorted):
            others = np.array([not group & own for own in parts])
            if others.any():
                without = plain._with_slopes(stacked, others, fitted)
                left_out |= {k: without._estimates(mixed[k]) for k, own in enumerate(parts) if own == group}
        if not left_out:
            return fitted, table
        return fitted._with_errors(left_out, parts, table)

    def _estimates(self, s: _MixedSet) -> _LeftOut:
        """What each assumption about the class mix says of a set whose family was left out, by class mix."""
        profile, rows = self.profile, s.summary.rows
        p = self.probability(s.odds, s.mean)
        shown = (s.weight * p).sum(axis=1)
        shares = s.cell_shares(len(profile.cells))
        best = explain(profile, shares, s.mean, rows)
        only_mix = (shares * profile.correct_in(best.mix)).sum(axis=1)
        looks = self._leaning(s.predicted_shares(shares), s.mean, rows)
        # Raking is the work of a fit: in some of the mixes where there are many classes.
        numbers = len(np.unique(s.cells)) * len(profile.mix)
        used = np.unique(
            np.linspace(0, len(s.mix) - 1, max(min(MOST_RAKED // numbers, len(s.mix)), 2)).round().astype(int)
        )
        cells = s.in_cells(p, profile.mix, used)
        stable, raked = np.full(len(s.mix), np.nan), np.full(len(s.mix), np.nan)
        stable[used] = self.raked(
            cells, np.broadcast_to(profile.usual_mix, (len(used), len(profile.mix))), rows, stable=True
        ).accuracy
        raked[used] = self.raked(cells, s.mix[used], rows).accuracy
        return _LeftOut(s.accuracy, shown, only_mix, stable, raked, best, looks)

    def raked(self, cells: Cells, mix: Floats, rows: Any, *, stable: bool = False) -> Cells:
        """Rows where the classes have these shares; ``stable`` where they are the reference's.

        A sample does not have the mix of its population. What rows differ from it as samples do is left to them, by the
        positive-part shrinkage of James and Stein (1961), and the rest is raked.
        """
        noise = 1 / np.asarray(rows) + (1 / self.profile.counts.sum() if stable else 0.0)
        variance = mix * (1 - mix) * noise[..., None]
        shown = (cells.shares[..., None] * cells.classes).sum(axis=-2)
        apart = np.where(mix > 0, np.square(shown - mix) / np.maximum(variance, 1e-300), 0.0).sum(axis=-1)
        by_chance = np.minimum((mix > 0).sum(axis=-1) - 1, apart) / np.maximum(apart, 1e-300)
        wanted = mix + np.where(mix > 0, by_chance[..., None] * (shown - mix), 0.0)
        wanted /= wanted.sum(axis=-1, keepdims=True)
        return cells.raked(wanted, (SETTINGS.stable_slack if stable else 1.0) * variance)

    def _with_errors(
        self, left_out: dict[int, _LeftOut], parts: list[frozenset[str]], table: ShiftedSetTable
    ) -> tuple[Correction, ShiftedSetTable]:
        """How the assumptions are weighed, and how far estimates are off where a family was left out."""
        groups = [parts[k] for k in left_out]
        sets = list(left_out.values())

        def learned(used: list[_LeftOut]) -> Correction:
            def lean_at(strictness: float) -> tuple[float, float]:
                nearer = [s.unknown(strictness, 0.0) for s in used]
                pairs = [(s.looks * (s.stable - e), s.accuracy - e) for s, e in zip(used, nearer, strict=True)]
                lean = _share(pairs)
                return lean, sum(float(_halves(x) @ np.square(np.nan_to_num(y - lean * x))) for x, y in pairs)

            ends = (math.log(SETTINGS.strictness), math.log(SETTINGS.most_strictness))
            best = minimize_scalar(lambda log: lean_at(math.exp(log))[1], bounds=ends, method="bounded")
            strictness = math.exp(best.x)
            return replace(self, strictness=strictness, lean=lean_at(strictness)[0])

        unknown, known, only = [], [], []
        for own, s in zip(groups, sets, strict=True):
            others = [t for t, group in zip(sets, groups, strict=True) if not own & group]
            weights = learned(others) if others else self
            unknown.append(s.unknown(weights.strictness, weights.lean))
            known.append(s.raked)
            only.append(s.only_mix)
        table.predicted[list(left_out)] = [float(e[0]) for e in unknown]
        fitted = learned(sets)
        families = sorted(frozenset[str]().union(*groups))
        members = [np.array([family in group for group in groups], dtype=float) for family in families]
        weight = (np.array(members) / np.maximum(np.sum(members, axis=1, keepdims=True), 1)).sum(axis=0)
        power = 1.0 if self.profile.scale.any() else 2.0
        truth = [s.accuracy for s in sets]
        error, known_mix_error = (_relative_error(e, truth, self.base, weight) ** power for e in (unknown, known))
        own_mix = np.array([[e[0] - t[0] for e, t in zip(kind, truth, strict=True)] for kind in (unknown, known)])
        left_out_error, known_left_out = np.abs(own_mix).mean(axis=1).tolist()
        return replace(
            fitted, error=error, known_mix_error=known_mix_error, left_out=left_out_error, known_left_out=known_left_out
        ), table

    def _with_slopes(self, sets: _Stacked, used: NDArray[Any], start: Correction | None) -> Correction:
        """γ and δ by penalised maximum likelihood on the sets."""
        entries = used[sets.number]
        moved, offset = self.moved(sets.mean[entries])[:, None, :], sets.odds[entries]
        x = np.concatenate(np.broadcast_arrays(moved, (offset - self.centre)[:, :, None] * moved), axis=2)
        weight, right = (sets.share[entries, None] * sums[entries] for sums in (sets.weight, sets.right))
        full = weight > 0
        begin = None if start is None else np.concatenate([start.shift, start.slope])
        # δ multiplies log-odds, whose spread is about 1: where that of a − ā is far less, it is taken for 1.
        spread = np.sqrt(np.average(np.square(moved[:, 0]), axis=0, weights=sets.share[entries]))
        least = np.concatenate([np.zeros_like(spread), spread])
        coefficients = fit_logistic(
            x[full], weight[full], right[full], offset[full], penalty=SETTINGS.penalty, least=least, start=begin
        )
        shift, slope = np.split(coefficients, 2)
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

    def cells(self, evidence: Evidence) -> Cells:
        """Rows of a target by cell, before anything is assumed of its class mix."""
        classes, groups = evidence.histogram.shape[0], groups_of(evidence.histogram.shape[0])
        p = self.probability(evidence.bins(), evidence.mean())
        starts = np.searchsorted(group_of_bin(groups), np.arange(groups))
        rows, right = (
            np.add.reduceat(sums, starts, axis=1).ravel() for sums in (evidence.histogram, evidence.histogram * p)
        )
        filled = np.flatnonzero(rows)
        predicted, share = filled // groups, right[filled] / rows[filled]
        others = evidence.others[filled]
        others[np.arange(len(filled)), predicted] = 0.0
        total = others.sum(axis=1, keepdims=True)
        # Probabilities so small that nothing of them is left on the grid.
        others = np.where(total > 0, others, 1.0 / (classes - 1)) / np.where(total > 0, total, 1.0)
        table = others * (1 - share)[:, None]
        table[np.arange(len(filled)), predicted] = share
        return Cells(predicted, rows[filled] / evidence.rows, table)

    def assumptions(self, evidence: Evidence, given: Floats | None = None) -> dict[str, tuple[Cells, Explanation]]:
        """Rows of a target under each assumption about its class mix, and how far its mix explains the target."""
        profile, mean, rows = self.profile, evidence.mean(), evidence.rows
        shown = self.cells(evidence)
        groups = groups_of(len(profile.mix))
        starts = np.searchsorted(group_of_bin(groups), np.arange(groups))
        in_cells = np.add.reduceat(evidence.histogram, starts, axis=1).ravel()
        filled, shares = np.flatnonzero(in_cells), in_cells / rows
        best = explain(profile, shares, mean, rows)
        only_mix = replace(shown, classes=profile.posterior(best.mix)[filled])
        stable = self.raked(shown, profile.usual_mix, rows, stable=True)
        looks = self._leaning(evidence.histogram.sum(axis=1) / rows, mean, rows)
        found = {
            "unknown": (shown.towards(only_mix, best.share(self.strictness)).towards(stable, self.lean * looks), best),
            "estimated": (only_mix, best),
            "stable": (stable, explain(profile, shares, mean, rows, profile.mix)),
        }
        if given is not None:
            found["given"] = (self.raked(shown, given, rows), explain(profile, shares, mean, rows, given))
        return found

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


@dataclass(frozen=True)
class _Stacked:
    """Sets in their own and in other class mixes, one entry for each."""

    number: NDArray[Any]  # shape (R,): which set it is
    share: Floats  # shape (R,): what it counts: a set counts 1, half of it in its own class mix
    # Shape (R, E) or (R, B): as of a set
    mean: Floats
    weight: Floats
    right: Floats
    odds: Floats

    @classmethod
    def of(cls, sets: list[_MixedSet]) -> _Stacked:
        entries = len(sets[0].mix)
        share = np.full(entries, 0.5 / max(entries - 1, 1))
        share[0] = 0.5
        parts = {name: np.concatenate([getattr(s, name) for s in sets]) for name in ("mean", "weight", "right", "odds")}
        return cls(np.repeat(np.arange(len(sets)), entries), np.tile(share, len(sets)), **parts)


@dataclass(frozen=True)
class _LeftOut:
    """Accuracies of a set whose family was left out, by class mix, the set's own first; all of shape (R,)."""

    accuracy: Floats  # the true one
    shown: Floats  # by its rows alone
    only_mix: Floats  # if only the class mix has moved
    stable: Floats  # raked to the reference's mix; NaN where that was not computed
    raked: Floats  # raked to its own mix
    best: Explanation  # by the class mix that explains the set best
    looks: Floats  # how far its rows look shifted, from 0 to 1

    def unknown(self, strictness: float, lean: float) -> Floats:
        """Estimate where the class mix is not known."""
        nearer = self.shown + self.best.share(strictness) * (self.only_mix - self.shown)
        return np.asarray(nearer + (lean * self.looks * (self.stable - nearer) if lean else 0.0))


def _summed(place: NDArray[Any], values: Floats, shape: tuple[int, ...]) -> Floats:
    """Sums of values by their place in an array of the shape."""
    found = np.bincount(place.ravel(), weights=values.ravel(), minlength=math.prod(shape))
    return found.astype(np.float64).reshape(shape)


def _halves(values: Floats) -> Floats:
    """What each entry of a set counts: its own class mix half, and the others, where there is a number, the rest."""
    there = np.isfinite(values)
    share = np.where(there, 0.5 / max(int(there[1:].sum()), 1), 0.0)
    share[0] = 0.5
    return share


def _share(pairs: list[tuple[Floats, Floats]]) -> float:
    """The share of x that is nearest to y, by weighted least squares; near 0 where all of x is small."""
    products = squares = 0.0
    for x, y in pairs:
        weight, x = _halves(x), np.nan_to_num(x)
        products += float(weight @ (x * np.nan_to_num(y)))
        squares += float(weight @ (np.square(x) + SETTINGS.small_way**2))
    return min(max(products / squares, 0.0), 1.0)


def _relative_error(estimates: list[Floats], accuracy: list[Floats], base: float, weight: Floats) -> float:
    """√q: the root of the 90 % quantile of |error| / s, every family weighing the same."""
    relative = np.concatenate([np.abs(e - t) / _expected(e, base) for e, t in zip(estimates, accuracy, strict=True)])
    share = np.concatenate([w * _halves(e) for e, w in zip(estimates, weight, strict=True)])
    relative, share = relative[share > 0], share[share > 0]
    order = np.argsort(relative)
    index = int(np.searchsorted(np.cumsum(share[order]), 0.9 * share.sum() - 1e-9))
    return math.sqrt(relative[order][min(index, len(order) - 1)])


def _expected(accuracy: Any, base: float) -> Any:
    """s(m): how far estimates are expected to be off, up to a factor."""
    m = np.abs(accuracy - base)
    return SETTINGS.floor + SETTINGS.growth * m * (1 - m) ** 2


LEAST_SCALE = 1e-3
"""Spread of a column below which it is taken for rounding."""


def fit_logistic(
    x: Floats,
    weight: Floats,
    right: Floats,
    offset: Floats,
    *,
    penalty: float,
    least: Any = 0.0,
    start: Floats | None = None,
) -> Floats:
    """Coefficients β of P = σ(offset + x β), by Newton's method with step halving, from ``start`` or 0.

    They maximise Σ right ln P + (weight − right) ln(1 − P) less ½ ``penalty`` times the sum of squares of β, each
    multiplied by the standard deviation of its column, or by ``least`` where that is more; ``weight`` and ``right`` may
    be fractions of rows.

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
    scale = np.maximum(scale, np.maximum(least, LEAST_SCALE))
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
