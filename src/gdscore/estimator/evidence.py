"""Evidence: what an estimate reads of each row, and the sums that it is made of.

The evidence of a row is its confidence and how far its features are from the class it is predicted as, both compared
with the reference; `inputs` of models without features take their place. The state of a target is a histogram of its
rows by calibrated confidence and predicted class, and
a few sums: one pass, constant memory. The same counts of the reference, by true class, tell which class mix would
explain a target's. Sums are of numbers rounded to a binary grid, so that they are exact: batches of
any size, and parts merged in any order, give the same state bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore._arrays import Array
from gdscore.calibration import confidence_bins
from gdscore.errors import GdscoreError
from gdscore.estimator.settings import SETTINGS
from gdscore.outputs import Outputs

Floats = NDArray[np.float64]

LIMIT, WIDTH = 6.0, 0.125
CENTRES: Floats = np.arange(-LIMIT + WIDTH / 2, LIMIT, WIDTH)
"""Log-odds in the middle of each bin."""
CONFIDENCE_BINS = 20
CHUNK = 4096
MOST_CELLS = 4_000_000
FARTHEST = 1e6
GRID = 2.0**-20
CONFIDENCE_GRID = 2.0**-17
"""Confidences are calibrated on this grid, so that rows that tie stay tied in float32 and in another library."""
LARGEST = 15.0
ROUNDING, FLOAT32_ROUNDING = 1e-14, 3e-7
"""Features whose distances are a smaller share of their size than this differ by rounding only."""


def expit(x: Any) -> Any:
    """1 / (1 + e⁻ˣ), without overflow."""
    return 0.5 * (1 + np.tanh(0.5 * np.asarray(x, dtype=np.float64)))


def log_odds(share: Any, edge: float) -> Any:
    """ln(p / (1 − p)) of shares kept ``edge`` away from 0 and 1."""
    share = np.clip(share, edge, 1 - edge)
    return np.log(share / (1 - share))


def _rounded(values: Floats) -> Floats:
    """Values on a binary grid, whose sums are exact."""
    return np.asarray(np.round(values / GRID) * GRID)


def _tied(confidence: Floats) -> Floats:
    """Confidences without what rounding in single precision adds."""
    return np.asarray(np.round(confidence / CONFIDENCE_GRID) * CONFIDENCE_GRID)


@dataclass(frozen=True)
class Rows:
    """Evidence of some rows."""

    predicted: NDArray[Any]  # shape (m,): predicted classes
    confidence: Floats  # shape (m,): largest probability, with temperature
    # Shape (m, E): log-odds of the confidence; log of the squared distance to the predicted class relative to the
    # reference's spread, where there are features
    evidence: Floats
    calibrated: Floats  # shape (m,): log-odds of being right that rows of this confidence have on the reference


@dataclass(frozen=True)
class Explanation:
    """How far a class mix explains the outputs of a target, or of R targets."""

    mix: Floats  # shape (K,) or (R, K): shares of the classes
    of_cell: Floats  # shape (C,) or (R, C): P(right) of the rows of each cell if nothing but the class mix has moved
    right: Floats  # shape (K,) or (R, K): share of the rows that are predicted as each class and right, in that case
    # Number or shape (R,): how far this mix moves the reference's outputs, and how far the target is from there: both
    # squared, in standard deviations
    explained: Any
    left: Any
    chance: Any  # number or shape (R,): how far samples of these sizes are from there by chance

    def share(self, strictness: float) -> Any:
        """Share of the movement that the mix explains, from 0 to 1; what is left counts ``strictness`` times."""
        return self.explained / (self.explained + strictness * self.left + SETTINGS.doubt * self.chance + 1e-9)


@dataclass(frozen=True)
class Profile:
    """Statistics of the reference that rows are compared with."""

    temperature: float  # divides the logits
    # Shape (K,): share of each class among the reference's labels, and among its predictions
    mix: Floats
    predicted_mix: Floats
    # Confidences, and the share of rows that are right at each of them: isotonic regression, linear between knots
    knots: Floats
    levels: Floats
    # Shape (E,): mean and standard deviation of the evidence on the reference; 0 where it does not vary, which teaches
    # nothing
    mean: Floats
    scale: Floats
    # Shape (E,): between these the evidence of a row is kept, so that no row alone moves the mean far
    lowest: Floats
    highest: Floats
    # Shape (K, E): mean evidence of the reference's rows predicted as each class; the overall mean where there are none
    class_means: Floats
    counts: Floats  # shape (K,): rows of each class
    # Shape (K, E): mean evidence of the reference's rows of each class; the overall mean where there are none
    label_means: Floats
    # Shape (B,): group of each bin of calibrated log-odds, G of them. A cell is a predicted class and a group.
    groups: NDArray[Any]
    cells: Floats  # shape (C, K): rows of the reference by cell, K × G of them, and true class
    # {"features", "inputs", ""}: Array that distances are measured in: inputs where the reference has them, otherwise
    # features, if any
    located: str
    centres: Floats | None  # shape (K, D) or None: its mean of each class; None without such an array
    spread: float  # mean squared distance of the reference's rows to the centre of their class

    @classmethod
    def of(cls, reference: Outputs, temperature: float) -> tuple[Profile, Rows]:
        """Profile of labelled outputs, and their evidence."""
        from sklearn.isotonic import IsotonicRegression

        classes = int(reference.n_classes or 0)
        labels, right = arrays.to_numpy(reference.labels), arrays.to_numpy(reference.correct)
        counts = np.bincount(labels, minlength=classes).astype(np.float64)
        located = next((name for name in ("inputs", "features") if name in reference.has), "")
        centres, spread = _centres(getattr(reference, located), labels, counts) if located else (None, 1.0)
        nothing, one = np.zeros(0), np.ones(1)
        predicted = np.bincount(arrays.to_numpy(reference.predictions), minlength=classes) / len(labels)
        fixed = (temperature, counts / len(labels), predicted)
        most = np.full(1 if centres is None else 2, LARGEST)
        unset = (nothing, nothing, nothing)
        start = (*fixed, one, one, nothing, nothing, -most, most, nothing, counts, *unset)
        plain = cls(*start, located, centres, spread or 1.0)
        rows = plain.rows(reference, labels)
        curve = IsotonicRegression(out_of_bounds="clip").fit(_tied(rows.confidence), right)
        mean, reach = rows.evidence.mean(axis=0), SETTINGS.reach * rows.evidence.std(axis=0)
        lowest, highest = (np.clip(_rounded(end), -most, most) for end in (mean - reach, mean + reach))
        evidence = np.clip(rows.evidence, lowest, highest)
        mean, scale = evidence.mean(axis=0), evidence.std(axis=0)
        scale = np.where(scale > SETTINGS.constant, scale, 0.0)
        if not spread:
            scale[-1] = 0.0
        class_means, label_means = (
            np.where(there[:, None] > 0, _means(evidence, groups, classes), mean)
            for there, groups in ((predicted, rows.predicted), (counts, labels))
        )
        rows = replace(
            rows, evidence=evidence, calibrated=_calibrated(rows.confidence, curve.X_thresholds_, curve.y_thresholds_)
        )
        profile = replace(
            plain,
            knots=curve.X_thresholds_,
            levels=curve.y_thresholds_,
            mean=mean,
            scale=scale,
            lowest=lowest,
            highest=highest,
            class_means=class_means,
            label_means=label_means,
            groups=_groups(bins_of(rows.calibrated), classes),
        )
        size = classes * int(profile.groups[-1] + 1)
        cells = np.bincount(profile.cells_of(rows) * classes + labels, minlength=size * classes)
        return replace(profile, cells=cells.reshape(size, classes).astype(np.float64)), rows

    def standardised(self, difference: Floats) -> Floats:
        """Difference of evidence in standard deviations of the reference's rows; 0 where these do not vary."""
        return np.where(self.scale > 0, difference / np.where(self.scale > 0, self.scale, 1.0), 0.0)

    @property
    def recall(self) -> Floats:
        """Share of the reference's rows of each class that are predicted right; 0 for a class without rows."""
        classes = len(self.mix)
        right = self.cells.reshape(classes, -1, classes).sum(axis=1).diagonal()
        return np.asarray(right / np.maximum(self.counts, 1))

    @cached_property
    def class_odds(self) -> Floats:
        """Log-odds of the reference's rows of each predicted class beyond those of all rows of their confidence.

        Classes differ where a model was trained with weights of classes, for instance. What they differ by chance is
        left out: each class's log-odds are multiplied by the share of their variance that is not its sampling error.
        """
        classes = len(self.mix)
        cells = self.cells.reshape(classes, -1, classes)
        rows, right = cells.sum(axis=2), cells.diagonal(axis1=0, axis2=2).T
        rate = right.sum(axis=0) / np.maximum(rows.sum(axis=0), 1)
        expected, information, count = rows @ rate, rows @ (rate * (1 - rate)), rows.sum(axis=1)
        beyond = right.sum(axis=1) - expected
        known = information > 0
        spread = (np.square(beyond[known]) / information[known]).sum() - np.count_nonzero(known)
        variance = max(spread, 0.0) / max(information.sum(), 1e-300)
        share = variance * information / (1 + variance * information)
        found, pooled = (log_odds((part + 0.5) / (count + 1), 1e-9) for part in (right.sum(axis=1), expected))
        return np.asarray(share * (found - pooled))

    @property
    def exposed(self) -> float:
        """Standard deviation of the reference's accuracy over the random class mixes of `Settings`."""
        there = self.counts > 0
        return float(np.sqrt(self.recall[there].var() / (there.sum() * SETTINGS.concentration + 1)))

    def grouped(self, histogram: Floats) -> Floats:
        """Sums by cell of numbers by predicted class and bin."""
        starts = np.flatnonzero(np.diff(self.groups, prepend=-1))
        return np.asarray(np.add.reduceat(histogram, starts, axis=-1).reshape(*histogram.shape[:-2], -1))

    def cells_of(self, rows: Rows) -> NDArray[Any]:
        """Cell of each row."""
        return np.asarray(rows.predicted * (self.groups[-1] + 1) + self.groups[bins_of(rows.calibrated)])

    def explain(self, cells: Floats, mean: Floats, rows: Any, mix: Floats | None = None) -> Explanation:
        """How far a class mix explains the cells and the mean evidence of a target, or of R targets.

        Where only the class mix has moved, the share of the rows in each cell is a mixture of those of the reference's
        classes. Without ``mix`` the shares of the classes are estimated: maximum likelihood by expectation-maximisation
        (Saerens et al. 2002), as if a few rows more had been seen in the reference's mix.
        """
        total, size = self.counts.sum(), len(self.cells)
        usual = (self.cells.sum(axis=1) + 0.5) / (total + 0.5 * size)
        # As if each class had a part of a row more, like a row of any class: no cell is impossible for a class.
        likely = (self.cells + SETTINGS.smoothing * usual[:, None]) / (self.counts + SETTINGS.smoothing)
        rows = np.asarray(rows, dtype=np.float64)[..., None]
        if mix is None:
            mix = np.broadcast_to(self.mix, (*cells.shape[:-1], len(self.mix)))
            for _ in range(SETTINGS.mixture_steps):
                seen = (
                    rows * mix * ((cells / np.maximum(mix @ likely.T, 1e-300)) @ likely)
                    + SETTINGS.prior_rows * self.mix
                )
                before, mix = mix, seen / (rows + SETTINGS.prior_rows)
                if np.abs(mix - before).max() < 1e-6:
                    break
        expected, reference = np.maximum(mix @ likely.T, 1e-300), self.mix @ likely.T
        noise = expected * (1 - expected) / rows
        noise = noise + np.square(mix) / np.maximum(self.counts, 1) @ (likely * (1 - likely)).T
        scale = (cells + expected + reference) / 3
        apart, chance = ((part / scale).sum(axis=-1) for part in (np.square(cells - expected), noise))
        left = np.maximum(apart - chance, 0)
        moved = np.clip(self.standardised(mean - mix @ self.label_means), -FARTHEST, FARTHEST)
        # No more cells than classes are matched by some mix whatever the target is: nothing tells then whether only
        # the mix has moved.
        told = np.count_nonzero(self.cells.any(axis=1)) > len(self.mix)
        left = left + (np.square(moved).sum(axis=-1) if told else np.inf)
        own = np.repeat(np.arange(len(self.mix)), size // len(self.mix))
        of_cell = mix[..., own] * likely[np.arange(size), own] / expected
        right = (cells * of_cell).reshape(*cells.shape[:-1], len(self.mix), -1).sum(axis=-1)
        explained = (np.square(expected - reference) / scale).sum(axis=-1)
        return Explanation(np.asarray(mix), of_cell, right, explained, left, chance)

    def rows(self, outputs: Outputs, own: NDArray[Any] | None = None) -> Rows:
        """Evidence of rows; ``own`` are the labels of rows that the centres were made of, or of copies of them."""
        return self.begin(outputs, own)()

    def begin(self, outputs: Outputs, own: NDArray[Any] | None = None) -> Callable[[], Rows]:
        """Begin to compute `rows` on an accelerator; the function returned gives them, and waits for nothing later."""
        parts = [self._measured(outputs[s : s + CHUNK])[0] for s in range(0, len(outputs), CHUNK)]
        fetched = arrays.fetch(arrays.concatenate(parts))
        return lambda: self._rows(fetched(), own)

    def chunks(self, outputs: Outputs, brier: bool = True) -> Iterator[tuple[Rows, Floats, Floats]]:
        """Evidence of a few rows at a time, probabilities of their other classes, and Brier scores."""
        for start in range(0, len(outputs), CHUNK):
            part = outputs[start : start + CHUNK]
            measured, found = self._measured(part)
            losses = arrays.to_numpy(_losses(part, found, measured[:, 2])) if brier else np.zeros((len(part), 2))
            measures, others = arrays.to_numpy(measured), arrays.to_numpy(found)
            rows, total = self._rows(measures, None), measures[:, 2].copy()
            certain = np.flatnonzero(total <= 0)
            others[certain] = 1.0  # nothing is known of the other classes
            others[certain, rows.predicted[certain]] = 0.0
            total[certain] = others.shape[1] - 1
            others /= np.maximum(total, 1e-300)[:, None]
            yield rows, others, losses

    def _measured(self, outputs: Outputs) -> tuple[Array, Array]:
        """Predicted class, confidence, sum of the other probabilities and distance of rows; the other probabilities.

        Of shape (m, 3 or 4) and (m, K), in float64, where the outputs are.
        """
        scaled = outputs.with_temperature(self.temperature)
        with arrays.full_precision(next(iter(outputs.arrays.values()))):
            others = arrays.detached_copy(arrays.wide(scaled.probabilities))
            predicted = arrays.like(scaled.predictions, others)
            confidence = arrays.pick(others, predicted)
            others = arrays.put(others, predicted, 0.0)
            xp = arrays.namespace(others)
            found = [xp.astype(predicted, xp.float64), confidence, xp.sum(others, axis=1)]
            if self.centres is not None:
                gap = arrays.like(self.centres, others)[predicted]
                gap -= arrays.like(getattr(scaled, self.located), others)
                found.append(xp.vecdot(gap, gap))
            return xp.stack(found, axis=1), others

    def _rows(self, measures: Floats, own: NDArray[Any] | None) -> Rows:
        predicted, confidence, rest = measures[:, 0].astype(np.int64), measures[:, 1].copy(), measures[:, 2]
        evidence = [np.log(np.maximum(confidence, 1e-300)) - np.log(np.maximum(rest, 1e-30))]
        if self.centres is not None:
            evidence.append(np.log(np.maximum(self._distance(measures[:, 3], predicted, own), 1e-12)))
        found = np.clip(_rounded(np.stack(evidence, axis=1)), self.lowest, self.highest)
        if not np.isfinite(found).all():
            raise GdscoreError(
                "Expected finite logits and features of ordinary size, but some rows give numbers that are not finite"
            )
        return Rows(predicted, confidence, found, _calibrated(confidence, self.knots, self.levels))

    def _distance(self, squared: Floats, predicted: NDArray[Any], own: NDArray[Any] | None) -> Floats:
        """Squared distance to the centre of the predicted class, relative to the reference's spread."""
        with np.errstate(all="ignore"):
            squared = squared / self.spread
            if own is not None:
                # A row pulls its own class's centre towards itself: without it the distance is n/(n−1) times as large.
                # The only row of a class is its centre: it gets the distance that two rows of a class have on average.
                n = self.counts[predicted]
                corrected = np.where(n > 1, squared * (n / np.maximum(n - 1, 1)) ** 2, 2.0)
                squared = np.where(own == predicted, corrected, squared)
            return np.asarray(squared)


def _losses(outputs: Outputs, others: Array, total: Array) -> Array:
    """Brier score of the model's own probabilities for each row if it is right and if it is wrong, of shape (m, 2).

    ``others`` are the probabilities of the classes that are not predicted, up to their sum ``total``.
    """
    xp, p = arrays.namespace(others), outputs.probabilities
    right = arrays.wide(arrays.pick(p, arrays.like(outputs.predictions, others)))
    wrong = arrays.wide(xp.vecdot(xp.astype(others, p.dtype), p)) / xp.clip(total, 1e-300, None)
    return arrays.wide(xp.vecdot(p, p))[:, None] + 1 - 2 * xp.stack([right, wrong], axis=1)


def _calibrated(confidence: Floats, knots: Floats, levels: Floats) -> Floats:
    """Log-odds of being right that rows of these confidences have on the reference."""
    return np.asarray(log_odds(np.interp(_tied(confidence), knots, levels), SETTINGS.calibration_edge))


def _means(values: Floats, groups: NDArray[Any], count: int) -> Floats:
    """Mean of each column over the rows of each group."""
    sums = [np.bincount(groups, weights=column, minlength=count) for column in values.T]
    return np.asarray(np.stack(sums, axis=1) / np.maximum(np.bincount(groups, minlength=count), 1)[:, None])


def _centres(positions: Array, labels: NDArray[Any], counts: Floats) -> tuple[Floats, float]:
    """Mean features of each class, and the mean squared distance of rows to it; absent classes get the overall mean.

    The distance is 0 where rows differ from the mean of their class by rounding only.
    """
    x = arrays.to_numpy(positions)
    sums = np.zeros((len(counts), x.shape[1]))
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, len(x), CHUNK):
            np.add.at(sums, labels[start : start + CHUNK], x[start : start + CHUNK].astype(np.float64))
        centres = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], sums.sum(axis=0) / len(x))
        apart, size = 0.0, 0.0
        for start in range(0, len(x), CHUNK):
            part = x[start : start + CHUNK].astype(np.float64)
            size += float(np.square(part).sum())
            apart += float(np.square(part - centres[labels[start : start + CHUNK]]).sum())
    if not np.isfinite(apart):
        raise GdscoreError("Expected features of ordinary size, but their squares are too large to compute with")
    return centres, apart / len(x) if apart > (
        ROUNDING if x.dtype.itemsize > 4 else FLOAT32_ROUNDING
    ) ** 2 * size else 0.0


def _groups(index: NDArray[Any], classes: int) -> NDArray[np.int64]:
    """Group of each bin: as many rows of the reference in each, and no more groups than it has rows to fill."""
    most = min(len(index) / (SETTINGS.cell_rows * classes), MOST_CELLS / classes**2, SETTINGS.confidence_groups)
    below = np.cumsum(np.bincount(index, minlength=len(CENTRES))) / len(index)
    wanted = np.floor(np.concatenate([[0.0], below[:-1]]) * max(int(most), 1))
    # Above the highest bin that has rows nothing begins.
    return np.unique(np.minimum(wanted, wanted[index.max()]), return_inverse=True)[1].astype(np.int64)


def bins_of(odds: Floats) -> NDArray[np.int64]:
    """Number of the bin that each of these log-odds falls into."""
    return np.clip(np.floor((odds + LIMIT) / WIDTH), 0, len(CENTRES) - 1).astype(np.int64)


def by_confidence(confidence: Floats, *columns: Any) -> Floats:
    """Sums of some columns over the rows of each of 20 bins of confidence."""
    level = confidence_bins(confidence, CONFIDENCE_BINS)
    return np.stack([np.bincount(level, weights=_rounded(c), minlength=CONFIDENCE_BINS) for c in columns])


class Evidence:
    """Sums over the rows of a target: all that an estimate needs of them. `gdscore.estimator.state` adds them up."""

    def __init__(self, classes: int, kinds: int) -> None:
        self.rows = 0
        self.context: Floats = np.zeros(kinds)  # sum of the evidence
        self.histogram: Floats = np.zeros((classes, len(CENTRES)))  # rows by predicted class and calibrated log-odds
        # Sum of the calibrated log-odds in each bin: with their mean in place of the bin's middle, a mean probability
        # is off by less than 1e-4.
        self.odds: Floats = np.zeros(len(CENTRES))
        self.others: Floats = np.zeros((len(CENTRES), classes))  # probabilities of the other classes, by log-odds
        self.confidence: Floats = np.zeros((2, CONFIDENCE_BINS))  # rows, and sum of confidences, by confidence
        # Brier score of rows if they are right and if they are wrong, by calibrated log-odds
        self.losses: Floats = np.zeros((2, len(CENTRES)))

    def bins(self) -> Floats:
        """Mean log-odds of the rows in each bin."""
        counts = self.histogram.sum(axis=0)
        return np.where(counts > 0, self.odds / np.maximum(counts, 1), CENTRES)

    def mean(self) -> Floats:
        """Mean evidence of the rows."""
        return np.asarray(self.context / self.rows)
