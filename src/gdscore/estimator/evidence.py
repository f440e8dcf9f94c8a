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
from gdscore.scores.base import Score

Floats = NDArray[np.float64]

LIMIT, WIDTH = 6.0, 0.125
CENTRES: Floats = np.arange(-LIMIT + WIDTH / 2, LIMIT, WIDTH)
"""Log-odds in the middle of each bin."""
GROUPS = 12
"""Groups of bins: the rows of a predicted class and a group are a cell."""
CONFIDENCE_BINS = 20
CHUNK = 4096
CONSTANT, REACH = 1e-3, 20.0
"""Evidence whose standard deviation on the reference is below the first is constant; rows count as at most so many
standard deviations from the reference's mean as the second."""
MOST_CELLS = 1_000_000
"""Numbers of a table of cells by class at most: with many classes there are fewer groups."""
FEW = 5.0
"""Rows from which on a cell or a class counts in full; one row alone must not decide."""
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


def in_steps(values: Any, grid: float = GRID) -> Floats:
    """Values as whole numbers of steps of a binary grid, whose sums are exact."""
    return np.asarray(np.round(values / grid), dtype=np.float64)


@dataclass(frozen=True)
class Rows:
    """Evidence of some rows."""

    predicted: NDArray[Any]  # shape (m,): predicted classes
    confidence: Floats  # shape (m,): probability of the predicted class, with temperature
    # Shape (m, E): log-odds of the confidence; log of the squared distance to the predicted class relative to the
    # reference's spread, where there are features
    evidence: Floats
    calibrated: Floats  # shape (m,): log-odds of being right that rows like these have on the reference


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
    # Shape (K,): log-odds of the reference's rows predicted as each class beyond those of all rows of their confidence
    class_odds: Floats
    cells: Floats  # shape (C, K): rows of the reference by cell, K × G of them, and true class
    expected: Floats  # shape (C, K): the same as their probabilities of the classes say
    # {"features", "inputs", ""}: Array that distances are measured in: inputs where the reference has them, otherwise
    # features, if any
    located: str
    units: Floats | None  # shape (D,) or None: what the columns of inputs are divided by
    centres: Floats | None  # shape (K, D) or None: its mean of each class; None without such an array
    spread: float  # mean squared distance of the reference's rows to the centre of their class

    @classmethod
    def of(cls, reference: Outputs, temperature: float) -> tuple[Profile, Rows]:
        """Profile of labelled outputs, and their evidence."""
        from sklearn.isotonic import IsotonicRegression

        classes = int(reference.n_classes or 0)
        labels, correct = arrays.to_numpy(reference.labels), arrays.to_numpy(reference.correct).astype(np.float64)
        counts = np.bincount(labels, minlength=classes).astype(np.float64)
        located = next((name for name in ("inputs", "features") if name in reference.has), "")
        units, centres, spread = None, None, 1.0
        if located:
            positions = getattr(reference, located)
            units = _units(positions) if located == "inputs" else None
            centres, spread = _centres(positions, units, labels, counts)
        predicted = np.bincount(arrays.to_numpy(reference.predictions), minlength=classes) / len(labels)
        most = np.full(1 if centres is None else 2, LARGEST)
        unset = np.zeros(0)
        plain = cls(
            temperature=temperature,
            mix=counts / len(labels),
            predicted_mix=predicted,
            knots=np.ones(1),
            levels=np.ones(1),
            class_odds=np.zeros(classes),
            mean=unset,
            scale=unset,
            lowest=-most,
            highest=most,
            class_means=unset,
            counts=counts,
            label_means=unset,
            cells=unset,
            expected=unset,
            located=located,
            units=units,
            centres=centres,
            spread=spread or 1.0,
        )
        rows, others = plain.begin(reference, labels)()
        curve = IsotonicRegression(out_of_bounds="clip").fit(
            CONFIDENCE_GRID * in_steps(rows.confidence, CONFIDENCE_GRID), correct
        )
        mean, reach = rows.evidence.mean(axis=0), REACH * rows.evidence.std(axis=0)
        lowest, highest = np.clip(GRID * in_steps(np.stack([mean - reach, mean + reach])), -most, most)
        evidence = np.clip(rows.evidence, lowest, highest)
        mean, scale = evidence.mean(axis=0), evidence.std(axis=0)
        scale = np.where(scale > CONSTANT, scale, 0.0)
        if not spread:
            scale[-1] = 0.0
        class_means = np.where(predicted[:, None] > 0, means_of_groups(evidence, rows.predicted, classes), mean)
        label_means = np.where(counts[:, None] > 0, means_of_groups(evidence, labels, classes), mean)
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
        )
        odds = profile.calibrated(rows)
        profile = replace(profile, class_odds=_class_odds(odds, correct, rows.predicted, classes))
        rows = replace(rows, evidence=evidence, calibrated=profile.calibrated(rows))
        n_cells = classes * groups_of(classes)
        cells = np.bincount(profile.cells_of(rows) * classes + labels, minlength=n_cells * classes)
        probability = expit(rows.calibrated)
        others *= (1 - probability)[:, None]
        others[np.arange(len(labels)), rows.predicted] = probability
        expected = np.zeros((n_cells, classes))
        np.add.at(expected, profile.cells_of(rows), others)
        return replace(profile, cells=cells.reshape(n_cells, classes).astype(np.float64), expected=expected), rows

    def standardised(self, difference: Floats) -> Floats:
        """Difference of evidence in standard deviations of the reference's rows; 0 where these do not vary."""
        return np.where(self.scale > 0, difference / np.where(self.scale > 0, self.scale, 1.0), 0.0)

    @property
    def recall(self) -> Floats:
        """Share of the reference's rows of each class that are predicted right; 0 for a class without rows."""
        classes = len(self.mix)
        correct = self.cells.reshape(classes, -1, classes).sum(axis=1).diagonal()
        return np.asarray(correct / np.maximum(self.counts, 1))

    @cached_property
    def of_class(self) -> Floats:
        """Share of the rows of each class that is in each cell, of shape (C, K), as far as the reference tells.

        It is what the reference's labels say together with what the probabilities of its rows say, which counts as many
        rows of each class as the constant ``smoothing``: a cell has few rows of a rare class, or none.
        """
        usual = (self.cells.sum(axis=1) + 0.5) / (self.counts.sum() + 0.5 * len(self.cells))
        # As if each class had a part of a row more, like a row of any class: no cell is impossible for a class.
        likely = (self.expected + 0.02 * usual[:, None]) / (self.expected.sum(axis=0) + 0.02)
        rows = SETTINGS.smoothing * (self.counts + 1)
        return np.asarray((self.cells + rows * likely) / (self.counts + rows))

    def posterior(self, mix: Floats) -> Floats:
        """Probabilities of the true classes in each cell where the classes have these shares, of shape (C, K)."""
        mixed = self.of_class * mix
        return np.asarray(mixed / mixed.sum(axis=1, keepdims=True))

    def correct_in(self, mix: Floats) -> Floats:
        """Probability that the predictions of each cell are right where only the mix has moved, of shape (R, C)."""
        predicted = np.repeat(np.arange(len(self.mix)), len(self.cells) // len(self.mix))
        likely = self.of_class[np.arange(len(predicted)), predicted]
        return np.asarray(mix[..., predicted] * likely / np.maximum(mix @ self.of_class.T, 1e-300))

    @property
    def usual_mix(self) -> Floats:
        """Shares of the classes in the population that the reference comes from, none of them 0."""
        return np.asarray((self.counts + 0.5) / (self.counts.sum() + 0.5 * len(self.counts)))

    @cached_property
    def tells_mix(self) -> float:
        """How far cells can tell another class mix from any other change, from 0 to 1.

        As many cells as classes are matched by some mix whatever the target is. Of cells and predicted classes the
        effective number counts, of cells and true classes those that have rows: a model may never predict some.
        """
        rows = self.cells.sum(axis=1)
        by_share = effective_number(rows / self.counts.sum()) / effective_number(self.predicted_mix)
        by_rows = np.minimum(rows / FEW, 1.0).sum() / np.minimum(self.counts / FEW, 1.0).sum()
        return float(np.clip(min(by_share, by_rows) - 1, 0.0, 1.0))

    def cells_of(self, rows: Rows) -> NDArray[Any]:
        """Cell of each row."""
        groups = groups_of(len(self.mix))
        return np.asarray(rows.predicted * groups + group_of_bin(groups)[bins_of(rows.calibrated)])

    def calibrated(self, rows: Rows) -> Floats:
        """Log-odds of being right that rows of these confidences and predicted classes have on the reference."""
        share = np.interp(CONFIDENCE_GRID * in_steps(rows.confidence, CONFIDENCE_GRID), self.knots, self.levels)
        return np.asarray(log_odds(share, SETTINGS.calibration_edge) + self.class_odds[rows.predicted])

    def rows(self, outputs: Outputs) -> Rows:
        """Evidence of rows."""
        parts = [self._measured(outputs[s : s + CHUNK])[0] for s in range(0, len(outputs), CHUNK)]
        return self._rows(arrays.to_numpy(arrays.concatenate(parts)), None)

    def begin(self, outputs: Outputs, labels: NDArray[Any] | None = None) -> Callable[[], tuple[Rows, Floats]]:
        """Begin to compute `rows`, and the shares of their other classes, on an accelerator.

        ``labels`` are those of rows that the centres were made of, or of copies of them. The function returned gives
        the result, and waits for nothing later.
        """
        parts = [self._measured(outputs[s : s + CHUNK]) for s in range(0, len(outputs), CHUNK)]
        measured = arrays.fetch(arrays.concatenate([measures for measures, _ in parts]))
        others = arrays.fetch(arrays.concatenate([shares for _, shares in parts]))

        def finish() -> tuple[Rows, Floats]:
            measures, shares = measured(), others()
            rows = self._rows(measures, labels)
            return rows, _other_shares(np.array(shares), measures[:, 2], rows.predicted)

        return finish

    def chunks(self, outputs: Outputs, brier: bool = True) -> Iterator[tuple[Rows, Floats, Floats]]:
        """Evidence of a few rows at a time, probabilities of their other classes, and Brier scores."""
        for start in range(0, len(outputs), CHUNK):
            part = outputs[start : start + CHUNK]
            measured, other_probabilities = self._measured(part)
            losses = (
                arrays.to_numpy(_losses(part, other_probabilities, measured[:, 2]))
                if brier
                else np.zeros((len(part), 2))
            )
            measures, others = arrays.to_numpy(measured), arrays.to_numpy(other_probabilities)
            rows = self._rows(measures, None)
            yield rows, _other_shares(others, measures[:, 2], rows.predicted), losses

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
            measures = [xp.astype(predicted, xp.float64), confidence, xp.sum(others, axis=1)]
            if self.centres is not None:
                gap = arrays.like(self.centres, others)[predicted]
                gap -= arrays.like(getattr(scaled, self.located), others)
                if self.units is not None:
                    gap = gap / arrays.like(self.units, others)
                measures.append(xp.vecdot(gap, gap))
            return xp.stack(measures, axis=1), others

    def _rows(self, measures: Floats, labels: NDArray[Any] | None) -> Rows:
        predicted, confidence, rest = measures[:, 0].astype(np.int64), measures[:, 1].copy(), measures[:, 2]
        evidence = [np.log(np.maximum(confidence, 1e-300)) - np.log(np.maximum(rest, 1e-30))]
        if self.centres is not None:
            evidence.append(np.log(np.maximum(self._distance(measures[:, 3], predicted, labels), 1e-12)))
        clipped = np.clip(GRID * in_steps(np.stack(evidence, axis=1)), self.lowest, self.highest)
        if not np.isfinite(clipped).all():
            raise GdscoreError(
                "Expected finite logits and features of ordinary size, but some rows give numbers that are not finite"
            )
        rows = Rows(predicted, confidence, clipped, np.zeros(len(predicted)))
        return replace(rows, calibrated=self.calibrated(rows))

    def _distance(self, squared: Floats, predicted: NDArray[Any], labels: NDArray[Any] | None) -> Floats:
        """Squared distance to the centre of the predicted class, relative to the reference's spread."""
        with np.errstate(all="ignore"):
            squared = squared / self.spread
            if labels is not None:
                # A row pulls its own class's centre towards itself: without it the distance is n/(n−1) times as large.
                # The only row of a class is its centre: it gets the distance that two rows of a class have on average.
                n = self.counts[predicted]
                corrected = np.where(n > 1, squared * (n / np.maximum(n - 1, 1)) ** 2, 2.0)
                squared = np.where(labels == predicted, corrected, squared)
            return np.asarray(squared)


def _losses(outputs: Outputs, others: Array, total: Array) -> Array:
    """Brier score of the model's own probabilities for each row if it is right and if it is wrong, of shape (m, 2).

    ``others`` are the probabilities of the classes that are not predicted, up to their sum ``total``.
    """
    xp, p = arrays.namespace(others), outputs.probabilities
    correct = arrays.wide(arrays.pick(p, arrays.like(outputs.predictions, others)))
    wrong = arrays.wide(xp.vecdot(xp.astype(others, p.dtype), p)) / xp.clip(total, 1e-300, None)
    return arrays.wide(xp.vecdot(p, p))[:, None] + 1 - 2 * xp.stack([correct, wrong], axis=1)


def _other_shares(others: Floats, total: Floats, predicted: NDArray[Any]) -> Floats:
    """Shares of the classes that are not predicted; equal where nothing is known of them."""
    rows = np.arange(len(predicted))
    certain = total <= 0
    others[certain] = 1.0
    others[rows, predicted] = 0.0
    others /= np.where(certain, others.shape[1] - 1, np.maximum(total, 1e-300))[:, None]
    return others


def _class_odds(odds: Floats, correct: Floats, predicted: NDArray[Any], classes: int) -> Floats:
    """Log-odds that rows predicted as each class have beyond these, without what they differ by chance.

    Classes differ where a model was trained with weights of classes, for instance. Their own log-odds are found by
    maximum likelihood and multiplied by the share of their variance that is not their sampling error.
    """
    beyond = np.zeros(classes)
    expected = expit(odds)
    information = np.bincount(predicted, expected * (1 - expected), classes)
    score = np.bincount(predicted, correct - expected, classes)
    present = information > 0
    spread = (np.square(score[present]) / information[present]).sum() - np.count_nonzero(present)
    variance = max(float(spread), 0.0) / max(float(information.sum()), 1e-300)
    for _ in range(20):  # Newton's steps
        expected = expit(odds + beyond[predicted])
        score = np.bincount(predicted, correct - expected, classes)
        curvature = np.bincount(predicted, expected * (1 - expected), classes)
        beyond += np.where(present, np.clip(score / np.maximum(curvature, 1e-9), -1, 1), 0.0)
    return np.asarray(np.clip(beyond, -LIMIT, LIMIT) * variance * information / (1 + variance * information))


def effective_number(shares: Floats) -> float:
    """Number of equally frequent classes, or cells, that have the same entropy."""
    present = shares[shares > 0]
    return float(np.exp(-(present * np.log(present)).sum()))


def means_of_groups(values: Floats, groups: NDArray[Any], count: int) -> Floats:
    """Mean of each column over the rows of each group."""
    sums = [np.bincount(groups, weights=column, minlength=count) for column in values.T]
    return np.asarray(np.stack(sums, axis=1) / np.maximum(np.bincount(groups, minlength=count), 1)[:, None])


def _units(positions: Array) -> Floats:
    """Standard deviation of each column of inputs, in which its distances are measured; 1 where it does not vary."""
    x = arrays.to_numpy(positions)
    with np.errstate(over="ignore", invalid="ignore"):
        spread = x.std(axis=0, dtype=np.float64)
    rounding = ROUNDING if x.dtype.itemsize > 4 else FLOAT32_ROUNDING
    return np.asarray(np.where(spread > rounding * np.abs(x).max(axis=0, initial=0.0), spread, 1.0))


def _centres(positions: Array, units: Floats | None, labels: NDArray[Any], counts: Floats) -> tuple[Floats, float]:
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
            part, centre = x[start : start + CHUNK].astype(np.float64), centres[labels[start : start + CHUNK]]
            if units is not None:
                part, centre = part / units, centre / units
            size += float(np.square(part).sum())
            apart += float(np.square(part - centre).sum())
    if not np.isfinite(apart):
        raise GdscoreError("Expected features of ordinary size, but their squares are too large to compute with")
    return centres, apart / len(x) if apart > (
        ROUNDING if x.dtype.itemsize > 4 else FLOAT32_ROUNDING
    ) ** 2 * size else 0.0


def groups_of(classes: int) -> int:
    """Groups of confidence in which the rows of a predicted class are kept."""
    return min(GROUPS, max(MOST_CELLS // classes**2, 1))


def group_of_bin(groups: int) -> NDArray[np.int64]:
    """Group of each bin of calibrated log-odds."""
    return np.arange(len(CENTRES)) * groups // len(CENTRES)


def bins_of(odds: Floats) -> NDArray[np.int64]:
    """Number of the bin that each of these log-odds falls into."""
    return np.clip(np.floor((odds + LIMIT) / WIDTH), 0, len(CENTRES) - 1).astype(np.int64)


def by_confidence(confidence: Floats, *columns: Any) -> Floats:
    """Sums of some columns over the rows of each of 20 bins of confidence."""
    level = confidence_bins(confidence, CONFIDENCE_BINS)
    return np.stack([np.bincount(level, weights=GRID * in_steps(c), minlength=CONFIDENCE_BINS) for c in columns])


@dataclass(frozen=True)
class Evidence:
    """Sums over the rows of a target: all that an estimate needs of them. `gdscore.estimator.state` adds them up."""

    rows: int
    total: Floats  # shape (E,): sum of the evidence of the rows
    histogram: Floats  # shape (K, B): rows by predicted class and calibrated log-odds
    # Shape (B,): sum of the calibrated log-odds in each bin: with their mean in place of the bin's middle, a mean
    # probability is off by less than 1e-4.
    odds: Floats
    others: Floats  # shape (C, K): shares of the other classes, by cell
    confidence: Floats  # shape (2, 20): rows, and sum of confidences, by confidence
    losses: Floats  # shape (2, B): Brier score of rows if they are right and if they are wrong, by calibrated log-odds
    columns: NDArray[np.int64]  # shape (P, 13): rows by the bins of each column of their inputs, where these were given
    same_model: bool  # whether all outputs seem to come from the model that the estimator was fitted for
    score: Score | None  # the score that has seen the rows, where the estimator's method is one

    def bins(self) -> Floats:
        """Mean log-odds of the rows in each bin."""
        counts = self.histogram.sum(axis=0)
        return np.where(counts > 0, self.odds / np.maximum(counts, 1), CENTRES)

    def by_cell(self, sums: Floats) -> Floats:
        """Sums by predicted class and bin of log-odds, such as the histogram, as sums by cell."""
        groups = groups_of(len(self.histogram))
        starts = np.searchsorted(group_of_bin(groups), np.arange(groups))
        return np.add.reduceat(sums, starts, axis=1).ravel()

    def mean(self) -> Floats:
        """Mean evidence of the rows."""
        return np.asarray(self.total / self.rows)
