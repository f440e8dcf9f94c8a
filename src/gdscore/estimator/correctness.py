"""The probability that a row's prediction is right, and how far estimates made of it are off.

On the reference, isotonic regression of confidence and an offset of the predicted class give the log-odds a of being
right. On a target the mean evidence differs by Δ, in standard deviations of rows. Shifted sets teach how much that
lowers the log-odds and how much less confidence counts:

    P(right) = σ( a + Δ·γ + (a − ā) Δ·δ ).

Estimates are read off the table of the target (`gdscore.estimator.table`): of the rows as they are, raked to the
reference's class mix, and of the class mix that explains the target best. How they are weighed where the mix is not
known, and how far they are off, is learned on shifted sets whose family was left out. The half-width of an interval is
√q · s(m) for an estimate that has moved by m, with s(m) = floor + growth m (1−m)² and q the 90 % quantile of
|error| / s over the sets left out: √q is the geometric mean of q, measured on this model's families, and 1, which
fitted natural shifts of development data. docs/estimator.md has all of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar
from scipy.sparse import csr_array

from gdscore.estimator.class_mix import KnownMix
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
    means_of_groups,
)
from gdscore.estimator.settings import SETTINGS
from gdscore.estimator.table import Cells
from gdscore.shifts.sets import parts_of

MOST_OTHERS = 16
"""Other classes of which a shifted set keeps the probability; the rest counts as the reference's mix."""
MIXES = ("unknown", "known", "only_mix")
MIXTURE_STEPS = 300
LEAST_SCALE = 1e-3  # what varies by less is taken for rounding
MOST_BLOCKS = 16
MOST_NUMBERS, MOST_PRODUCTS, MOST_RAKED = 5_000_000, 300_000_000, 200_000
"""Limits on the work of a fit: numbers by bin of all sets in all class mixes, products of one step of their mixtures,
and numbers of one set whose rows are raked. With many classes or rows there are fewer class mixes."""


@dataclass(frozen=True)
class SetSummary:
    """What is kept of a labelled, shifted set: counts and sums from which it is known in any class mix."""

    family: str  # family of shifts; parts joined by ``+`` are left out one by one
    accuracy: float  # true accuracy
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
        place = np.ravel_multi_index((rows.predicted, bins_of(rows.calibrated), labels), shape)
        cells, place = np.unique(place, return_inverse=True)
        predicted, bin_of_cell, label = np.unravel_index(cells, shape)
        cell_rows = np.bincount(place).astype(np.float64)
        in_cell = csr_array((np.ones(len(place)), place, np.arange(len(place) + 1)))
        shares = in_cell.T @ others / cell_rows[:, None]
        other = np.argsort(-shares, axis=1, kind="stable")[:, : min(MOST_OTHERS, classes - 1)]
        return cls(
            family=family,
            accuracy=float((rows.predicted == labels).mean()),
            counts=np.bincount(labels, minlength=classes).astype(np.float64),
            means=means_of_groups(rows.evidence, labels, classes),
            predicted=predicted,
            bin=bin_of_cell,
            label=label,
            cell_rows=cell_rows,
            cell_odds=in_cell.T @ rows.calibrated,
            other=other,
            other_share=np.take_along_axis(shares, other, axis=1).astype(np.float32),
        )

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.counts.sum())

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
    share: Floats  # shape (R,): what each entry counts: half in the set's own class mix, half in all others
    mix: Floats  # shape (R, K): share of each class
    accuracy: Floats  # shape (R,): true accuracy
    mean: Floats  # shape (R, E): mean evidence
    # Shape (R, B): share of the rows in each bin of log-odds, share that is right, and mean log-odds
    weight: Floats
    correct: Floats
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
        correct = _summed(at, of_row * (summary.label == summary.predicted), shape)
        total = _summed(at, of_row * (summary.cell_odds / summary.cell_rows), shape)
        return cls(
            summary=summary,
            share=np.append(0.5, np.full(len(factors), 0.5 / max(len(factors), 1))),
            mix=mix,
            accuracy=correct.sum(axis=1),
            mean=mix @ summary.means,
            weight=weight,
            correct=correct,
            odds=np.where(weight > 0, total / np.maximum(weight, 1e-300), CENTRES),
            of_row=of_row,
            cells=summary.predicted * groups + group_of_bin(groups)[summary.bin],
        )

    def in_cells(self, probability: Floats, usual: Floats) -> Cells:
        """Rows by cell; ``probability`` is that of being right, of shape (R, B)."""
        cells, starts = np.unique(self.cells, return_index=True)
        shares = np.add.reduceat(self.of_row, starts, axis=1)
        filled = np.maximum(shares, 1e-300)
        p = np.add.reduceat(self.of_row * probability[:, self.summary.bin], starts, axis=1) / filled
        classes = np.add.reduceat(self.of_row[:, :, None] * self.summary.others(usual), starts, axis=1)
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


def explained_share(target: Explanation | _LeftOut, strictness: float) -> Any:
    """Share of the movement that a class mix explains, from 0 to 1; what is left counts ``strictness`` times."""
    return target.explained / (target.explained + strictness * target.left + 1e-9)


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
    apart, chance = (np.square(cells - expected) / scale).sum(axis=-1), (noise / scale).sum(axis=-1)
    shift = np.clip(profile.standardised(mean - mix @ profile.label_means), -FARTHEST, FARTHEST)
    left = np.maximum(apart - chance, 0) + np.square(shift).sum(axis=-1)
    explained = (np.square(expected - reference) / scale).sum(axis=-1)
    return Explanation(np.asarray(mix), explained * profile.tells_mix, left)


@dataclass(frozen=True)
class Correction:
    """How moved evidence changes the log-odds of being right."""

    profile: Profile  # statistics of the reference
    # Shape (E,): γ and δ; zeros where there were no shifted sets
    shift: Floats
    slope: Floats
    centre: float  # ā, mean log-odds on the reference
    base: float  # expected accuracy where nothing has moved
    # √q, the error of estimates relative to s(m), and the mean absolute error on families left out (None without them):
    # where the class mix is "unknown", where it is "known", and where "only_mix" is assumed to have moved
    errors: dict[str, float]
    left_out: dict[str, float | None]
    # Where the class mix is not known but rows look shifted, how far the estimate goes to the one under the reference's
    # mix: from 0, not at all, to 1, all the way. 0 without shifted sets.
    lean: float = 0.0
    # Where the class mix is known, how far the estimate stays at what rows show without it. 0 without shifted sets.
    reserve: float = 0.0
    # What a class mix does not explain of a target's movement counts so many times against the estimate that only the
    # mix has moved
    strictness: float = SETTINGS.strictness

    @classmethod
    def fit(cls, profile: Profile, reference: Rows, sets: list[SetSummary]) -> tuple[Correction, ShiftedSetTable]:
        """Learn from shifted sets; without any, confidence as calibrated on the reference is all there is."""
        kinds = reference.evidence.shape[1]
        centre, base = float(reference.calibrated.mean()), float(expit(reference.calibrated).mean())
        relative = SETTINGS.outputs_only if profile.scale.any() else SETTINGS.outputs_only**2
        untaught = dict.fromkeys(MIXES, relative), dict[str, float | None].fromkeys(MIXES)
        plain = cls(profile, np.zeros(kinds), np.zeros(kinds), centre, base, *untaught)
        table = ShiftedSetTable(
            [s.family for s in sets],
            np.array([s.accuracy for s in sets]),
            np.full(len(sets), np.nan),
            np.array([s.rows for s in sets], dtype=np.int64),
        )
        if not sets:
            return plain, table
        factors, classes = class_mixes(sets, profile), len(profile.mix)
        mixed = [_MixedSet.of(s, factors, classes) for s in sets]
        fitted = plain._with_slopes(mixed)
        # Raking is the work of a fit: in some of the mixes where there are many classes.
        most = MOST_RAKED // (max(len(np.unique(s.cells)) for s in mixed) * classes)
        factors = factors[np.linspace(0, len(factors) - 1, min(max(most, 1), len(factors))).round().astype(int)]
        parts = [parts_of(family) for family in table.families]
        left_out: dict[int, _LeftOut] = {}
        for group in sorted(set(parts), key=sorted):
            if others := [s for s, part in zip(mixed, parts, strict=True) if not group & part]:
                without = fitted._with_slopes(others)
                for k in (k for k, part in enumerate(parts) if part == group):
                    left_out[k] = without._estimates(_MixedSet.of(sets[k], factors, classes))
        return fitted._with_errors(left_out, parts, table) if left_out else (fitted, table)

    def _estimates(self, s: _MixedSet) -> _LeftOut:
        """Estimates of a set whose family was left out, under each assumption about the class mix, in each mix."""
        profile, rows = self.profile, s.summary.rows
        p, shape = self.probability(s.odds, s.mean), (len(s.mix), len(profile.cells))
        shares = _summed(np.arange(len(s.mix))[:, None] * len(profile.cells) + s.cells, s.of_row, shape)
        best, cells = explain(profile, shares, s.mean, rows), s.in_cells(p, profile.mix)
        return _LeftOut(
            accuracy=s.accuracy,
            shown=(s.weight * p).sum(axis=1),
            only_mix=(shares * profile.correct_in(best.mix)).sum(axis=1),
            stable=self.raked(cells, np.broadcast_to(profile.usual_mix, s.mix.shape), rows, stable=True).accuracy,
            raked=self.raked(cells, s.mix, rows).accuracy,
            explained=best.explained,
            left=best.left,
            looks=self.looks_shifted(shares.reshape(*s.mix.shape, -1).sum(axis=2), s.mean, rows),
            share=s.share,
        )

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
        numbers, sets = list(left_out), _LeftOut(*map(np.stack, zip(*left_out.values(), strict=True)))
        groups = [parts[k] for k in numbers]
        unknown_mix, known_mix = np.zeros((2, *sets.accuracy.shape))
        for group in sorted(set(groups), key=sorted):
            others = np.array([not group & other for other in groups])
            weighed = sets.only(others).weights(self) if others.any() else self
            in_group = np.array([other == group for other in groups])
            unknown_mix[in_group] = sets.only(in_group).with_unknown_mix(weighed.strictness, weighed.lean)
            known_mix[in_group] = (sets.raked + weighed.reserve * (sets.shown - sets.raked))[in_group]
        table.predicted[numbers] = unknown_mix[:, 0]
        families = sorted(frozenset[str]().union(*groups))
        members = np.array([[family in group for group in groups] for family in families], dtype=np.float64)
        share = sets.share * (members / members.sum(axis=1, keepdims=True)).sum(axis=0)[:, None]
        apart = np.abs(sets.only_mix - unknown_mix)
        estimates = {"unknown": (unknown_mix, 0.0), "known": (known_mix, 0.0), "only_mix": (sets.only_mix, apart)}
        errors, mean_errors = dict[str, float](), dict[str, float | None]()
        for mix, (estimate, further) in estimates.items():
            error = np.abs(estimate - sets.accuracy)
            relative = _quantile(error / (_expected(estimate, self.base) + further), share)
            # Where nothing varies no target moves the estimate, so that an interval rests on these errors alone.
            errors[mix] = math.sqrt(relative) if self.profile.scale.any() else relative
            mean_errors[mix] = float(error[:, 0].mean())
        return replace(sets.weights(self), errors=errors, left_out=mean_errors), table

    def _with_slopes(self, sets: list[_MixedSet]) -> Correction:
        """γ and δ by penalised maximum likelihood on the sets, searched from these; a set counts 1 in all mixes."""
        share, odds = np.concatenate([s.share for s in sets]), np.concatenate([s.odds for s in sets])
        weight = np.concatenate([s.share[:, None] * s.weight for s in sets])
        correct = np.concatenate([s.share[:, None] * s.correct for s in sets])
        delta = self.shift_in_sd(np.concatenate([s.mean for s in sets]))[:, None, :]
        x = np.concatenate(np.broadcast_arrays(delta, (odds - self.centre)[:, :, None] * delta), axis=2)
        # δ multiplies log-odds, whose spread is about 1; where that of a − ā is less, it is penalised as if it were.
        spread = np.sqrt(np.average(np.square(delta[:, 0]), axis=0, weights=share))
        least, start = np.append(np.zeros_like(spread), spread), np.append(self.shift, self.slope)
        filled = weight > 0
        coefficients = fit_logistic(
            x[filled], weight[filled], correct[filled], odds[filled], penalty=SETTINGS.penalty, least=least, start=start
        )
        shift, slope = np.split(coefficients, 2)
        return replace(self, shift=shift, slope=slope)

    def shift_in_sd(self, mean: Floats) -> Floats:
        """Δ: how far mean evidence is from the reference's, in standard deviations of its rows."""
        return self.profile.standardised(mean - self.profile.mean)

    def looks_shifted(self, predicted: Floats, mean: Floats, rows: Any) -> Any:
        """From 0 to 1: how far rows are from the reference's rows of the same predicted classes.

        It is above 0 beyond the constant ``looks_shifted_from``, or the noise where that is more, and 1 at twice as
        far. Another class mix alone is no shift.
        """
        profile = self.profile
        shift = np.abs(profile.standardised(mean - predicted @ profile.class_means)).max(axis=-1)
        reference_rows = np.maximum(profile.predicted_mix * profile.counts.sum(), 1)
        noise = np.sqrt(1 / np.asarray(rows) + np.square(predicted) @ (1 / reference_rows))
        return np.clip(shift / np.maximum(SETTINGS.looks_shifted_from, SETTINGS.noise * noise) - 1, 0, 1)

    def cells(self, evidence: Evidence) -> Cells:
        """Rows of a target by cell, before anything is assumed of its class mix."""
        p = self.probability(evidence.bins(), evidence.mean())
        rows, correct = evidence.by_cell(evidence.histogram), evidence.by_cell(evidence.histogram * p)
        filled = np.flatnonzero(rows)
        predicted, share = filled * len(self.profile.mix) // len(rows), correct[filled] / rows[filled]
        # Probabilities so small that nothing of them is left on the grid.
        others = np.where(evidence.others[filled].any(axis=1, keepdims=True), evidence.others[filled], 1.0)
        others[np.arange(len(filled)), predicted] = 0.0
        table = others * ((1 - share) / others.sum(axis=1))[:, None]
        table[np.arange(len(filled)), predicted] = share
        return Cells(predicted, rows[filled] / evidence.rows, table)

    def farthest(self, shown: Cells, mix_known: KnownMix, mix: Floats, rows: int) -> list[float]:
        """Lowest and highest accuracies within the ranges of shares that are known; none where these are exact.

        From the mix of the estimate on, shares go to the classes of lowest (highest) recall, a few times over.
        """
        ends: list[float] = []
        for sign in (-1.0, 1.0) if not mix_known.exact else ():
            shares = mix
            for _ in range(5):
                cells = self.raked(shown, shares, rows).towards(shown, self.reserve)
                ends.append(float(cells.accuracy))
                shares = mix_known.farthest(sign * cells.joint().measures()[0], self.profile.usual_mix)
        return [min(ends), max(ends)] if ends else []

    def assumptions(self, evidence: Evidence, given_mix: Floats | None = None) -> dict[str, tuple[Cells, Explanation]]:
        """Rows of a target under each assumption about its class mix, and how far its mix explains the target."""
        profile, mean, rows = self.profile, evidence.mean(), evidence.rows
        shown = self.cells(evidence)
        shares = evidence.by_cell(evidence.histogram) / rows
        best = explain(profile, shares, mean, rows)
        only_mix = replace(shown, classes=profile.posterior(best.mix)[shares > 0])
        stable = self.raked(shown, profile.usual_mix, rows, stable=True)
        looks = self.looks_shifted(evidence.histogram.sum(axis=1) / rows, mean, rows)
        unknown = shown.towards(only_mix, explained_share(best, self.strictness)).towards(stable, self.lean * looks)
        assumed = {
            "unknown": (unknown, best),
            "estimated": (only_mix, best),
            "stable": (stable.towards(shown, self.reserve), explain(profile, shares, mean, rows, profile.mix)),
        }
        if given_mix is not None:
            raked = self.raked(shown, given_mix, rows).towards(shown, self.reserve)
            assumed["given"] = (raked, explain(profile, shares, mean, rows, given_mix))
        return assumed

    def probability(self, calibrated: Floats, mean: Floats) -> Floats:
        """P(right) of rows with these calibrated log-odds in a target with this mean evidence; one or many targets."""
        delta = self.shift_in_sd(mean)
        shift, slope = np.asarray(delta @ self.shift)[..., None], np.asarray(delta @ self.slope)[..., None]
        return np.asarray(expit(calibrated + shift + (calibrated - self.centre) * slope))

    def chance(self, rows: int) -> float:
        """How far mean evidence of so many rows is from the reference's by chance at most, in standard deviations."""
        return SETTINGS.noise * math.sqrt(1 / rows + 1 / self.profile.counts.sum())

    def expected_error(
        self, accuracy: float, mean: Floats, rows: int, level: float, class_mix: str, unknown: float
    ) -> float:
        """Half-width of an interval of the level, without the sampling error of the rows.

        That nothing but the class mix has moved is the less likely, the farther it is from the estimate ``unknown``.
        """
        mix = {"unknown": "unknown", "estimated": "only_mix"}.get(class_mix, "known")
        expected, left_out = float(_expected(accuracy, self.base)), self.left_out[mix]
        if mix == "only_mix":
            expected += abs(accuracy - unknown)
        beyond_chance = np.maximum(np.abs(self.shift_in_sd(mean)) - self.chance(rows), 0)
        if left_out is None:
            # Confidence that has moved is in the estimate; what distances mean for it is not known.
            further = SETTINGS.untaught * min(float(beyond_chance[1:].max(initial=0.0)), 4.0)
        else:
            further = quantile_of(0.9) * left_out * min(float(beyond_chance.max()) / SETTINGS.moved_fully, 1.0)
        half = math.hypot(self.errors[mix] * expected, further)
        return half * quantile_of(level) / quantile_of(0.9)


class _LeftOut(NamedTuple):
    """Accuracies of sets whose family was left out, by class mix, the set's own first; of shape (R,) or (S, R)."""

    accuracy: Floats  # the true one
    shown: Floats  # by the rows alone
    only_mix: Floats  # if only the class mix has moved
    stable: Floats  # raked to the reference's mix
    raked: Floats  # raked to its own mix
    # How far the class mix that explains the set best moves outputs, and how far the set is from there
    explained: Floats
    left: Floats
    looks: Floats  # how far rows look shifted, from 0 to 1
    share: Floats  # what each entry counts

    def only(self, sets: NDArray[np.bool_]) -> _LeftOut:
        """Some of the sets."""
        return _LeftOut(*(part[sets] for part in self))

    def with_unknown_mix(self, strictness: float, lean: float) -> Floats:
        """Estimate where the class mix is not known."""
        nearer = self.shown + explained_share(self, strictness) * (self.only_mix - self.shown)
        return np.asarray(nearer + lean * self.looks * (self.stable - nearer))

    def weights(self, correction: Correction) -> Correction:
        """The correction with the strictness, lean and reserve that have the least squared error on these sets."""

        def lean_at(strictness: float) -> tuple[float, float]:
            nearer = self.with_unknown_mix(strictness, 0.0)
            return _best_part(self.looks * (self.stable - nearer), self.accuracy - nearer, self.share)

        ends = (math.log(SETTINGS.strictness / 4), math.log(SETTINGS.strictness * 2))
        best = minimize_scalar(lambda logarithm: lean_at(math.exp(logarithm))[1], bounds=ends, method="bounded")
        strictness = math.exp(best.x)
        reserve, _ = _best_part(self.shown - self.raked, self.accuracy - self.raked, self.share)
        return replace(correction, strictness=strictness, lean=lean_at(strictness)[0], reserve=reserve)


def _summed(place: NDArray[Any], values: Floats, shape: tuple[int, ...]) -> Floats:
    """Sums of values by their place in an array of the shape."""
    return np.bincount(place.ravel(), values.ravel(), math.prod(shape)).astype(np.float64).reshape(shape)


def _best_part(way: Floats, missing: Floats, share: Floats) -> tuple[float, float]:
    """The part of the way, from 0 to 1, that is nearest to what is missing, and the squares that then are left."""
    # The second summand keeps ways that differ by rounding only from teaching.
    part = float((share * way * missing).sum() / (share * (np.square(way) + 1e-6)).sum())
    part = min(max(part, 0.0), 1.0)
    return part, float((share * np.square(missing - part * way)).sum())


def _quantile(values: Floats, share: Floats) -> float:
    """90 % quantile of values that count so much each."""
    order = np.argsort(values, axis=None)
    index = int(np.searchsorted(np.cumsum(share.ravel()[order]), 0.9 * share.sum() - 1e-9))
    return float(values.ravel()[order][min(index, len(order) - 1)])


def _expected(accuracy: Any, base: float) -> Any:
    """s(m): how far estimates are expected to be off, up to a factor."""
    m = np.abs(accuracy - base)
    return SETTINGS.floor + SETTINGS.growth * m * (1 - m) ** 2


def fit_logistic(
    x: Floats,
    weight: Floats,
    correct: Floats,
    offset: Floats,
    *,
    penalty: float,
    least: Any = 0.0,
    start: Any = 0.0,
) -> Floats:
    """Coefficients β of P = σ(offset + x β), by Newton's method in a trust region, from ``start``.

    They maximise Σ correct ln P + (weight − correct) ln(1 − P) less ½ ``penalty`` times the sum of squares of β, each
    multiplied by the standard deviation of its column, or by ``least`` where that is more.

    Examples
    --------
    >>> x, weight, correct = np.array([[-1.0], [1.0]]), np.array([4.0, 4.0]), np.array([1.0, 3.0])
    >>> fit_logistic(x, weight, correct, np.zeros(2), penalty=0.0).round(6).tolist()  # ln 3
    [1.098612]
    """
    share = weight / weight.sum()
    mean_square = share @ np.square(x)
    # Where a column hardly varies it is as good as constant, and its own size is its scale.
    scale = np.sqrt(np.maximum(mean_square - np.square(share @ x), 1e-4 * mean_square))
    scale = np.maximum(scale, np.maximum(least, LEAST_SCALE))
    x, begin = x / scale, np.zeros(x.shape[1]) + start * scale

    def loss(b: Floats) -> tuple[float, Floats]:
        odds = offset + x @ b
        value = weight @ np.logaddexp(0, odds) - correct @ odds + 0.5 * penalty * b @ b
        return float(value), x.T @ (weight * expit(odds) - correct) + penalty * b

    def curvature(b: Floats) -> Floats:
        p = expit(offset + x @ b)
        return np.asarray((x * (weight * p * (1 - p))[:, None]).T @ x + penalty * np.eye(len(b)))

    best = minimize(loss, begin, jac=True, hess=curvature, method="trust-exact", options={"gtol": 1e-9})
    return np.asarray(best.x / scale)
