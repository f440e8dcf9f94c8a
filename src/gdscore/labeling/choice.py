"""`choose`: which rows to label, and the order of the rows of a target that they are spread over.

The order is by segment, then by predicted class, then by predicted correctness. Classes follow each other by their mean
predicted correctness. It rises within the first class, falls within the second, and so on: neighbours in the order are
alike. Rows are sorted by confidence, with which predicted correctness rises. Where the caller gives a probability for
each row, the order is by segment and by that probability alone.

Memory does not grow with rows. The first pass counts rows by segment, class and bin of the grid; in the second, a
row's rank is known from those counts and the rows of its bin before it. Rows of one bin keep the order in which they
are read.

Rows drawn are a random sequence every beginning of which is spread evenly over that order. The order is halved again
and again, down to single rows. Of the first c draws from a part of m rows, its first half of h rows gets
⌊(U + c h) / m⌋, with U drawn uniformly from 0 … m − 1 for each part: the proportional number, rounded up or down, and
c h / m in expectation. So every row has the same probability n / N of being among the first n, no row is drawn twice,
and more labels continue the sequence. Where N and n are powers of two there is one row in each of n equal strata: that
is the van der Corput sequence with Owen's nested scrambling [1]_, of which this is the form for any number of rows.

References
----------
.. [1] A. B. Owen, "Randomly permuted (t, m, s)-nets and (t, s)-sequences", 1995.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore._checks import choice, integer
from gdscore._hashing import key_as_uint64
from gdscore._stream import batches, in_order, segment_codes, segment_to_text, stream
from gdscore.errors import GdscoreError
from gdscore.estimator import AccuracyEstimator
from gdscore.estimator.core import fitted_of
from gdscore.estimator.evidence import LARGEST, Rows
from gdscore.estimator.state import check_outputs
from gdscore.labeling.rows import LabelRows
from gdscore.outputs import Outputs

TargetLike = Outputs | Iterable[Outputs] | Callable[[], Iterable[Outputs]]
"""Outputs, a list of them, or a function that opens a stream of them."""

MOST_BINS, BINS_OF_SEGMENTS, BINS_OF_CLASS = 1 << 16, 1 << 13, 1024
MOST_SEGMENTS = 1000
CHUNK = 1 << 15
_U64 = np.uint64
DRAWN_AT_ONCE = 1 << 16


def read_again(outputs: TargetLike) -> Iterator[Outputs]:
    """Outputs part by part, of a single one, a list or a function that opens a stream."""
    if callable(outputs):
        return stream(outputs(), "outputs")
    if isinstance(outputs, Iterator):
        raise GdscoreError(
            "Expected outputs that can be read twice, but got an iterator, which ends after one pass: give `Outputs`, "
            "a list of them, or a function that opens the stream"
        )
    return stream(outputs, "outputs")


def segmented_parts(outputs: TargetLike, by: Any) -> Iterator[tuple[Outputs, list[Any], NDArray[np.int64]]]:
    """Parts of at most `CHUNK` rows, segments, and the number of each row's segment; one, None, without segments."""
    values = by() if callable(by) else by
    if isinstance(values, Iterator) and values is by:
        raise GdscoreError("Expected `by` to be read twice, but got an iterator: give a list, or a function")
    names: tuple[str, ...] | None = None
    for batch in batches(outputs if isinstance(outputs, Outputs) else read_again(outputs), values):
        part, n_rows, columns = batch.outputs, len(batch.outputs), in_order(batch.by, names)
        names = tuple(columns)
        keys, codes = segment_codes(columns, n_rows) if columns else ([None], np.zeros(n_rows, dtype=np.int64))
        for start in range(0, n_rows, CHUNK):
            yield part[start : start + CHUNK], keys, codes[start : start + CHUNK]


class FingerprintSum:
    """Hash of a target: of its ids in any order, or of its logits in their order where there are no ids."""

    def __init__(self) -> None:
        self.rows = 0
        self.total = _U64(0)
        self.with_ids: bool | None = None

    def add(self, part: Outputs) -> None:
        """Take in the next rows."""
        has_ids = "ids" in part.has
        if self.with_ids not in (None, has_ids):
            raise GdscoreError("Expected all parts of the target to have ids or none, but some have and some have not")
        self.with_ids = has_ids
        keys = key_as_uint64(part.row_keys())
        if not has_ids:
            keys = keys * (np.arange(self.rows, self.rows + len(part), dtype=_U64) * _U64(2) + _U64(1))
        with np.errstate(over="ignore"):
            self.total = self.total + keys.sum(dtype=_U64)
        self.rows += len(part)

    @property
    def text(self) -> str:
        """Hexadecimal digits."""
        return f"{int(self.total):016x}"


@dataclass(frozen=True)
class Survey:
    """What the first pass finds."""

    n_rows: int  # rows of the target
    fingerprint: str  # see `FingerprintSum`
    with_ids: bool  # whether rows have ids
    # Shape (K, bins): rows by predicted class and bin of confidence, by segment. With probabilities of the caller's
    # own, rows by bin of these, shape (1, bins).
    segments: dict[Any, NDArray[np.int64]]
    evidence: NDArray[np.float64]  # mean evidence of the rows, from which predicted correctness is computed


def survey(
    est: AccuracyEstimator, outputs: TargetLike, by: Any, by_caller: NDArray[np.float64] | None = None
) -> Survey:
    """First pass over a target; ``by_caller`` are the caller's probabilities, one for each row."""
    mark, counts = FingerprintSum(), dict[Any, NDArray[np.int64]]()
    fitted = fitted_of(est)
    classes = fitted.n_classes if by_caller is None else 1
    bins = min(max((MOST_BINS if by is None else BINS_OF_SEGMENTS) // classes, 1), BINS_OF_CLASS)
    total: Any = 0.0
    for part, keys, codes in segmented_parts(outputs, by):
        mark.add(part)
        check_outputs(fitted, part)
        rows = fitted.correction.profile.rows(part)
        total = total + rows.evidence.sum(axis=0)
        if by_caller is not None and mark.rows > len(by_caller):
            break  # there are too few of them, which is an error below
        flat = _bins_of_rows(rows, bins, None if by_caller is None else by_caller[mark.rows - len(part) : mark.rows])
        for number in np.unique(codes).tolist():
            segment_counts = np.bincount(flat[codes == number], minlength=classes * bins).reshape(classes, bins)
            counts[keys[number]] = counts[keys[number]] + segment_counts if keys[number] in counts else segment_counts
        if len(counts) > MOST_SEGMENTS:
            raise GdscoreError(
                f"Expected at most {MOST_SEGMENTS} segments, but `by` has more: give coarser ones, such as countries"
            )
    check_count(by_caller, mark.rows)
    in_order = dict(sorted(counts.items(), key=lambda item: segment_to_text(item[0])))
    return Survey(mark.rows, mark.text, bool(mark.with_ids), in_order, total / mark.rows)


class Ranks:
    """Second pass: the rank of every row, given the counts of the first one."""

    def __init__(self, survey: Survey) -> None:
        total = np.sum(list(survey.segments.values()), axis=0)
        classes, self._bins = total.shape
        mean = total @ np.arange(self._bins) / np.maximum(total.sum(axis=1), 1)
        order = np.arange(classes * self._bins).reshape(total.shape)[np.argsort(mean, kind="stable")]
        order[1::2] = order[1::2, ::-1]
        sizes = np.stack([counts.ravel()[order.ravel()] for counts in survey.segments.values()])
        starts = np.zeros_like(sizes)
        starts[:, order.ravel()] = np.concatenate([[0], np.cumsum(sizes)[:-1]]).reshape(sizes.shape)
        self._next = dict(zip(survey.segments, starts, strict=True))

    def of(
        self,
        evidence: Rows,
        keys: list[Any],
        codes: NDArray[np.int64],
        by_caller: NDArray[np.float64] | None = None,
    ) -> NDArray[np.int64]:
        """Ranks of the next rows."""
        bins = _bins_of_rows(evidence, self._bins, by_caller)
        ranks = np.zeros(len(codes), dtype=np.int64)
        for number in np.unique(codes).tolist():
            if keys[number] not in self._next:
                raise GdscoreError("Expected the same rows in both passes over the target, but they differ")
            rows, following = np.flatnonzero(codes == number), self._next[keys[number]]
            order = rows[np.argsort(bins[rows], kind="stable")]
            in_order = bins[order]
            first = np.flatnonzero(np.concatenate([[True], in_order[1:] != in_order[:-1]]))
            lengths = np.diff(np.append(first, len(in_order)))
            before = np.arange(len(in_order)) - np.repeat(first, lengths)
            ranks[order] = following[in_order] + before
            following[in_order[first]] += lengths
        return ranks


def _bins_of_rows(rows: Rows, bins: int, by_caller: NDArray[np.float64] | None) -> NDArray[np.int64]:
    """Predicted class and, within it, bins of equal width of the log-odds of confidence; or of the caller's own."""
    if by_caller is not None:
        return np.minimum(by_caller * bins, bins - 1).astype(np.int64)
    bin_of_row = np.clip((rows.evidence[:, 0] + LARGEST) / (2 * LARGEST) * bins, 0, bins - 1).astype(np.int64)
    return np.asarray(rows.predicted * bins + bin_of_row)


def stratified_ranks(n_rows: int, budget: int, seeds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Ranks in the order in which they are to be labelled, one line for every seed.

    Examples
    --------
    >>> stratified_ranks(1000, 4, np.array([0, 1]))
    array([[324, 863, 170, 745],
           [801, 307, 664, 108]])
    """
    salt = _mix(seeds.astype(_U64)[:, None] + _U64(0x9E3779B97F4A7C15))
    first = np.zeros((len(seeds), budget), dtype=np.int64)
    size = np.full_like(first, n_rows)
    draw = np.tile(np.arange(1, budget + 1), (len(seeds), 1))  # number of the draw within the part that it falls in
    while size.max() > 1:
        half = size // 2
        phase = _mix(salt + _mix((first.astype(_U64) << _U64(32)) + size.astype(_U64))) % size.astype(_U64)
        into_half = (phase.astype(np.int64) + draw * half) // size
        before = (phase.astype(np.int64) + (draw - 1) * half) // size
        chosen = into_half > before
        first = np.where(chosen, first, first + half)
        draw = np.where(chosen, into_half, draw - into_half)
        size = np.where(chosen, half, size - half)
    return first


def random_ranks(n_rows: int, budget: int, seed: int) -> NDArray[np.int64]:
    """Ranks drawn uniformly without replacement; a larger budget begins with the same ones."""
    rng = np.random.default_rng(seed)
    keys, ranks = np.zeros(0), np.zeros(0, dtype=np.int64)
    for start in range(0, n_rows, DRAWN_AT_ONCE):
        rows = np.arange(start, min(start + DRAWN_AT_ONCE, n_rows))
        keys, ranks = np.concatenate([keys, rng.random(len(rows))]), np.concatenate([ranks, rows])
        first = np.argsort(keys, kind="stable")[:budget]
        keys, ranks = keys[first], ranks[first]
    return ranks


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Finaliser of SplitMix64 (S. Vigna, public domain)."""
    x = (x ^ (x >> _U64(30))) * _U64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> _U64(27))) * _U64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> _U64(31)))


DESIGNS = ("stratified", "random")


def choose(
    est: AccuracyEstimator,
    outputs: TargetLike,
    budget: int,
    *,
    design: str = "stratified",
    by: Any = None,
    right: Any = None,
    seed: int = 0,
) -> LabelRows:
    """Draw the rows of a target that are worth labelling.

    Every row has the same probability of being drawn, so that the accuracy on the labelled rows estimates that of the
    target without bias. Two passes over the target, in memory that does not grow with its rows. With the same seed, a
    larger budget begins with the same rows: labels that are there already stay useful.

    Parameters
    ----------
    est : AccuracyEstimator
        Fitted; orders the rows by predicted class and predicted correctness.
    outputs : Outputs, list of Outputs, or function that returns a stream of them
        The target.
    budget : int
        Rows to label.
    design : {"stratified", "random"}, default "stratified"
        ``stratified`` spreads the rows evenly over predicted classes and predicted correctness: narrow intervals with
        `estimate`. ``random`` draws them without regard to it: for `sequence`, to look after every label.
    by : array, column or data frame of columns, or a list of them for a list of outputs, optional
        Segment of each row, as in `AccuracyEstimator.estimate`: with ``stratified``, each gets its share of the rows.
    right : array of shape (N,), optional
        Probability that the prediction of each row is right, such as ``Check.right`` of `gdscore.models.check`. It
        takes the place of the estimator's; the better it is, the narrower the interval.
    seed : int, default 0
        Seed of the random draw.

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 3, 4000)
    >>> out = gdscore.Outputs(logits=2 * np.eye(3)[y] + rng.normal(size=(4000, 3)), labels=y)
    >>> est = gdscore.AccuracyEstimator().fit(out[:2000])
    >>> gdscore.labeling.choose(est, out[2000:], budget=50)
    LabelRows(50 of 2,000 rows, design='stratified', seed=0)
    """
    correction = fitted_of(est).correction
    integer("budget", budget, least=1)
    integer("seed", seed, least=0, most=2**63 - 1)
    choice("design", design, DESIGNS)
    probabilities = None if right is None else as_probabilities(right)
    counted = survey(est, outputs, by, probabilities)
    if budget > counted.n_rows:
        raise GdscoreError(
            f"Expected a budget of at most {counted.n_rows:,}, as the target has so many rows, but got {budget:,}"
        )
    if design == "stratified":
        ranks = stratified_ranks(counted.n_rows, budget, np.array([seed]))[0]
    else:
        ranks = random_ranks(counted.n_rows, budget, seed)
    order = np.argsort(ranks)
    ascending = ranks[order]
    row, predicted = np.full(budget, -1, dtype=np.int64), np.zeros(budget)
    ids: list[Any] = [None] * budget
    names: list[Any] = [None] * budget
    all_ranks, start, total = Ranks(counted), 0, 0.0
    for part, keys, codes in segmented_parts(outputs, by):
        evidence = correction.profile.rows(part)
        probabilities_of_part = None if probabilities is None else probabilities[start : start + len(part)]
        p = (
            correction.probability(evidence.calibrated, counted.evidence)
            if probabilities_of_part is None
            else probabilities_of_part
        )
        total += float(p.sum())
        here, index = _matches(all_ranks.of(evidence, keys, codes, probabilities_of_part), ascending)
        slots = order[index]
        row[slots], predicted[slots] = start + here, p[here]
        values = arrays.to_numpy(part.ids)[here].tolist() if counted.with_ids else [None] * len(here)
        for slot, value, number in zip(slots.tolist(), values, codes[here].tolist(), strict=True):
            ids[slot], names[slot] = value, keys[number]
        start += len(part)
    if start != counted.n_rows or (row < 0).any():
        raise GdscoreError("Expected the same rows in both passes over the target, but they differ")
    return LabelRows(
        rows=row,
        ids=np.array(ids) if counted.with_ids else None,
        ranks=ranks,
        predicted_correct=predicted,
        segments=None if by is None else tuple(names),
        n_rows=counted.n_rows,
        design=design,
        seed=seed,
        mean_predicted_correct=total / counted.n_rows,
        fingerprint=counted.fingerprint,
        segment_rows={} if by is None else {name: int(counts.sum()) for name, counts in counted.segments.items()},
    )


def as_probabilities(right: Any) -> NDArray[np.float64]:
    """The caller's probabilities, checked."""
    probabilities = np.asarray(arrays.to_numpy(right) if arrays.is_array(right) else right)
    if (
        probabilities.ndim != 1
        or probabilities.dtype.kind not in "fiub"
        or not ((probabilities >= 0) & (probabilities <= 1)).all()
    ):
        raise GdscoreError("Expected `right` to have a probability between 0 and 1 for each row, but it has others")
    return probabilities.astype(np.float64)


def check_count(by_caller: NDArray[np.float64] | None, n_rows: int) -> None:
    """Refuse probabilities of another number of rows."""
    if by_caller is not None and len(by_caller) != n_rows:
        raise GdscoreError(
            f"Expected `right` to have a probability for each row, but it has {len(by_caller):,} and the target has "
            f"{'more' if n_rows > len(by_caller) else f'{n_rows:,}'}: give those of the same target in the same order"
        )


def _matches(ranks: NDArray[np.int64], wanted: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Positions of wanted ranks, and which of them each is; ``wanted`` is sorted."""
    index = np.minimum(np.searchsorted(wanted, ranks), len(wanted) - 1)
    here = np.flatnonzero(wanted[index] == ranks)
    return here, index[here]
