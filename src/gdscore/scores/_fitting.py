"""Fitting several scores in one pass over a reference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gdscore import _arrays as arrays
from gdscore._arrays import Array
from gdscore.errors import GdscoreError
from gdscore.outputs import Outputs
from gdscore.scores._rechunk import CHUNK_ROWS, Rechunker, stream

if TYPE_CHECKING:
    from gdscore.scores.base import Score

__all__ = ["fit_together"]


def fit_together(scores: Iterable[Score], reference: Outputs | Iterable[Outputs] | None) -> dict[str, str]:
    """Fit all scores that need a reference in one pass over it; returns why a score could not learn from it."""
    fitting = [s for s in scores if s.reference_inputs]
    if not fitting:
        return {}
    stats: dict[int, dict[str, Array]] = {}
    shape: dict[str, int | None] = {}
    for chunk in _reference_chunks(reference, fitting):
        here = {"n_classes": chunk.n_classes, "n_features": chunk.n_features}
        if shape and here != shape:
            raise GdscoreError(f"Expected a reference of one shape, but it has {shape} and then {here}")
        shape = here
        with arrays.full_precision(next(iter(chunk.arrays.values()))):
            for i, score in enumerate(fitting):
                part = score.measure_reference(chunk)
                stats[i] = score.combine_reference(stats[i], part) if i in stats else part
    failures: dict[str, str] = {}
    for i, score in enumerate(fitting):
        score.reset()
        score._shape = {k: v for k, v in shape.items() if v is not None}
        try:
            score.learn({k: arrays.to_numpy(v) for k, v in stats[i].items()})
            score.reference_shape = {k: shape[k] for k in score.compared_with_reference() if shape[k] is not None}
        except GdscoreError as error:
            failures[score.name] = str(error)
        score._shape = {}
    return failures


def _reference_chunks(reference: Outputs | Iterable[Outputs] | None, fitting: list[Score]) -> Iterator[Outputs]:
    cutter = Rechunker(CHUNK_ROWS)
    for outputs in stream(reference, "reference"):
        for score in fitting:
            missing = sorted(score.reference_inputs - outputs.has)
            if missing:
                raise GdscoreError(
                    f"`{score.name}` needs a reference with `{'`, `'.join(missing)}`, but it holds only "
                    f"{', '.join(outputs.arrays)}"
                )
        for chunk in cutter.push(outputs):
            yield _sound(chunk)
    rest = cutter.rest()
    if rest is not None:
        yield _sound(rest)


def _sound(chunk: Outputs) -> Outputs:
    if chunk.sound is not None and not bool(chunk.sound):
        raise GdscoreError(
            "Expected a reference of finite numbers and labels in range, but it holds NaN, Inf or others"
        )
    return chunk
