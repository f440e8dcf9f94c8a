"""`choose`: which rows to label."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore._checks import choice, integer
from gdscore.errors import GdscoreError
from gdscore.estimator import AccuracyEstimator
from gdscore.labeling.rows import LabelRows
from gdscore.labeling.sampling import random_ranks, stratified_ranks
from gdscore.labeling.target import Ranks, TargetLike, segmented_parts, survey

__all__ = ["choose"]

DESIGNS = ("stratified", "random")


def choose(
    est: AccuracyEstimator,
    outputs: TargetLike,
    budget: int,
    *,
    design: str = "stratified",
    by: Any = None,
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
    by : sequence, or list of sequences for a list of outputs, optional
        Segment of each row, such as a country: with ``stratified``, each gets its share of the rows.
    seed : int, default 0
        Of the draw.

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
    if not isinstance(est, AccuracyEstimator):
        raise GdscoreError(f"Expected a fitted `AccuracyEstimator`, but got {type(est).__name__}")
    correction = est._fitted().correction
    integer("budget", budget, least=1)
    integer("seed", seed, least=0)
    choice("design", design, DESIGNS)
    found = survey(est, outputs, by)
    if budget > found.n_rows:
        raise GdscoreError(
            f"Expected a budget of at most {found.n_rows:,}, as the target has so many rows, but got {budget:,}"
        )
    if design == "stratified":
        ranks = stratified_ranks(found.n_rows, budget, np.array([seed]))[0]
    else:
        ranks = random_ranks(found.n_rows, budget, seed)
    order = np.argsort(ranks)
    ascending = ranks[order]
    row, predicted = np.full(budget, -1, dtype=np.int64), np.zeros(budget)
    ids: list[Any] = [None] * budget
    names: list[str] = [""] * budget
    all_ranks, start, total = Ranks(found), 0, 0.0
    for part, segments in segmented_parts(outputs, by):
        evidence = correction.profile.rows(part)
        p = correction.probability(evidence.calibrated, found.evidence)
        total += float(p.sum())
        own = all_ranks.of(evidence, segments)
        here, index = _matches(own, ascending)
        slots = order[index]
        row[slots], predicted[slots] = start + here, p[here]
        values = arrays.to_numpy(part.ids)[here].tolist() if found.with_ids else [None] * len(here)
        for slot, value, segment in zip(slots.tolist(), values, segments[here].tolist(), strict=True):
            ids[slot], names[slot] = value, segment
        start += len(part)
    if start != found.n_rows or (row < 0).any():
        raise GdscoreError("Expected the same rows in both passes over the target, but they differ")
    return LabelRows(
        rows=row,
        ids=np.array(ids) if found.with_ids else None,
        ranks=ranks,
        predicted_correct=predicted,
        segments=None if by is None else tuple(names),
        n_rows=found.n_rows,
        design=design,
        seed=seed,
        mean_predicted_correct=total / found.n_rows,
        fingerprint=found.fingerprint,
        segment_rows={} if by is None else {name: int(counts.sum()) for name, counts in found.segments.items()},
    )


def _matches(ranks: NDArray[np.int64], wanted: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Positions of wanted ranks, and which of them each is; ``wanted`` is sorted."""
    index = np.minimum(np.searchsorted(wanted, ranks), len(wanted) - 1)
    here = np.flatnonzero(wanted[index] == ranks)
    return here, index[here]
