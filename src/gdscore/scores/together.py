"""Several scores in one pass: fitted on one reference, fed with one target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from gdscore import _arrays as arrays
from gdscore._arrays import Array
from gdscore._stream import CHUNK_ROWS, Rechunker, stream
from gdscore.errors import GdscoreError
from gdscore.outputs import Outputs, how_to_get, same_class_names

if TYPE_CHECKING:
    from gdscore.scores.base import Score

__all__ = ["fit_together", "run_together"]


def fit_together(scores: Iterable[Score], reference: Outputs | Iterable[Outputs] | None) -> dict[str, str]:
    """Fit all scores that need a reference in one pass over it; returns why a score could not learn from it."""
    fitting = [s for s in scores if s.reference_inputs]
    if not fitting:
        return {}
    stats: dict[int, dict[str, Array]] = {}
    shape: dict[str, int | None] = {}
    names: tuple[str, ...] | None = None
    for chunk in _reference_chunks(reference, fitting):
        here = {"n_classes": chunk.n_classes, "n_features": chunk.n_features}
        if shape and here != shape:
            raise GdscoreError(f"Expected a reference of one shape, but it has {shape} and then {here}")
        shape = here
        names = same_class_names(names, chunk.class_names)
        with arrays.full_precision(next(iter(chunk.arrays.values()))):
            for i, score in enumerate(fitting):
                part = score.measure_reference(chunk)
                stats[i] = score.combine_reference(stats[i], part) if i in stats else part
    failures: dict[str, str] = {}
    for i, score in enumerate(fitting):
        score.reset()
        try:
            with np.errstate(all="ignore"):
                score.learn({k: arrays.to_numpy(v) for k, v in stats[i].items()})
            # Infinity can be learned: it is the threshold below which all rows lie.
            if any(np.isnan(getattr(score, name)).any() for name in score.learned):
                for name in score.learned:
                    delattr(score, name)
                raise GdscoreError(score.overflow_message())
            score.reference_shape = {k: shape[k] for k in score.compared_with_reference() if shape[k] is not None}
        except GdscoreError as error:
            failures[score.name] = str(error)
    return failures


def _reference_chunks(reference: Outputs | Iterable[Outputs] | None, fitting: list[Score]) -> Iterator[Outputs]:
    cutter = Rechunker(CHUNK_ROWS)
    for outputs in stream(reference, "reference"):
        for score in fitting:
            missing = sorted(score.reference_inputs - outputs.has)
            if missing:
                raise GdscoreError(
                    f"`{score.name}` needs a reference with `{'`, `'.join(missing)}`, but it holds only "
                    f"{', '.join(outputs.arrays)}. {how_to_get(missing)}"
                )
        for chunk in cutter.push(outputs):
            yield _checked(chunk)
    rest = cutter.rest()
    if rest is not None:
        yield _checked(rest)


def _checked(chunk: Outputs) -> Outputs:
    if chunk.valid is not None and not bool(chunk.valid):
        raise GdscoreError(
            "Expected a reference of finite numbers and labels in range, but it holds NaN, Inf or others"
        )
    return chunk


def run_together(scores: list[Score], target: Iterable[Outputs]) -> None:
    """Feed all scores; those that work on chunks of one size share the chunks and what is derived from them."""
    groups = [[s for s in scores if s.chunk_rows == rows] for rows in sorted({s.chunk_rows for s in scores})]
    cutters = [Rechunker(group[0].chunk_rows) for group in groups]
    inputs = [frozenset().union(*(s.inputs for s in group)) for group in groups]
    admitted: object = None
    for part in target:
        shape = (part.has, part.n_classes, part.n_features)
        if shape != admitted:
            for s in scores:
                s.check_rows(part)
            admitted = shape
        for group, cutter, needed in zip(groups, cutters, inputs, strict=True):
            for chunk in cutter.push(part.only(needed)):
                for s in group:
                    s.add_chunk(chunk)
    for group, cutter in zip(groups, cutters, strict=True):
        for s in group:
            s.take_rest(cutter.rest())
