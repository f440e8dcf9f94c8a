"""States of scores: each score in its saved form, without rows where the score can do without."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from gdscore import files
from gdscore.errors import GdscoreError
from gdscore.files import ArraySpec, Number, RecordSchema
from gdscore.outputs import Outputs
from gdscore.partial._frame import pack, unpack
from gdscore.scores.base import Score, fit_together
from gdscore.scores.registry import (
    ScoreTable,
    chosen_scores,
    create_score,
    missing_inputs,
    peek,
    restore_score,
    run_together,
)

__all__ = ["SCHEMA", "FittedScores", "compact", "fit_scores", "merge_scores", "score_bytes", "score_table", "scores_of"]

SCHEMA = RecordSchema(
    format="gdscore score states",
    version=2,
    header={"sizes": {str: Number(least=1, integer=True)}, "skipped": {str: str}},
    arrays={"scores": ArraySpec("i", ("bytes",), least=0, most=255)},
    least_sizes={"bytes": 0},
)


class FittedScores(dict[str, Score]):
    """Scores by name, fitted and without rows; in ``skipped`` why each of the others cannot be computed."""

    def __init__(self, scores: Mapping[str, Score], skipped: Mapping[str, str] | None = None) -> None:
        super().__init__(scores)
        self.skipped = dict(skipped or {})


def fit_scores(
    *,
    reference: Outputs | Iterable[Outputs] | None = None,
    scores: Iterable[str] | Mapping[str, Mapping[str, Any]] | None = None,
) -> FittedScores:
    """Scores ready for `partial_state`, fitted in one pass over the reference.

    Parameters
    ----------
    reference, scores
        As in `gdscore.score_all`.

    Examples
    --------
    >>> from gdscore import partial
    >>> fitted = partial.fit_scores(scores=["confscore", "atc"])
    >>> list(fitted), fitted.skipped
    (['confscore'], {'atc': 'needs labelled reference data'})
    """
    made = {name: create_score(name, **chosen) for name, chosen in chosen_scores(scores).items()}
    known: frozenset[str] | None = None
    if reference is not None:
        reference, known = peek(reference, "reference")
    # Which arrays the target has is found out part by part.
    skipped = {n: why for n, s in made.items() if (why := missing_inputs(s, s.inputs - {"network"}, known))}
    fitting = {name: s for name, s in made.items() if name not in skipped}
    skipped |= fit_together(fitting.values(), reference)
    return FittedScores({name: s for name, s in fitting.items() if name not in skipped}, skipped)


def scores_of(fitted: FittedScores, parts: Iterable[Outputs]) -> bytes:
    """State of the rows of a stream, which may be empty."""
    stream = iter(parts)
    first = next(stream, None)
    if first is None:
        return _packed({}, fitted.skipped)
    target, has = peek([first], "outputs")
    skipped = {n: why for n, s in fitted.items() if (why := missing_inputs(s, has, s.reference_inputs))}
    running = {name: copy(s).reset() for name, s in fitted.items() if name not in skipped}

    def everything() -> Iterable[Outputs]:
        yield from target
        yield from stream

    run_together(list(running.values()), everything())
    return _packed({n: score_bytes(compact(s)) for n, s in running.items()}, fitted.skipped | skipped)


def merge_scores(states: Sequence[bytes]) -> bytes:
    """State of all rows; a score that one of the states lacks is an error, except where that has no rows."""
    merged: dict[str, Score] = {}
    skipped: dict[str, str] = {}
    for state in states:
        found, why = _unpacked(state)
        skipped = why | skipped
        if found and merged and found.keys() != merged.keys():
            only = sorted(found.keys() ^ merged.keys())
            raise GdscoreError(
                f"Expected states of the same scores to merge, but only some have {', '.join(only)}: the parts of the "
                "target hold different arrays"
            )
        for name, score in found.items():
            merged[name] = merged[name].merge(score) if name in merged else score
    return _packed({name: score_bytes(score) for name, score in merged.items()}, skipped)


def score_table(state: bytes) -> ScoreTable:
    """Numbers of the scores in a state."""
    found, skipped = _unpacked(state)
    if not found:
        raise GdscoreError("Expected a target with rows, but the state has seen none or lacks what the scores need")
    values: dict[str, float] = {}
    for name, score in found.items():
        try:
            values[name] = score.compute()
        except GdscoreError as error:
            skipped[name] = str(error)
    return ScoreTable(values, skipped)


def compact(score: Score) -> Score:
    """Same score, whose rows that fill no chunk are part of its sums: what merging would do anyway."""
    return copy(score).reset().merge(score)


def score_bytes(score: Score) -> bytes:
    """Saved form of a score."""
    return files.arrays_to_bytes(score.state_dict())


def _packed(scores: Mapping[str, bytes], skipped: Mapping[str, str]) -> bytes:
    header = {"sizes": {name: len(raw) for name, raw in scores.items()}, "skipped": dict(skipped)}
    return pack(SCHEMA, header, {"scores": np.frombuffer(b"".join(scores.values()), dtype=np.uint8)})


def _unpacked(state: bytes) -> tuple[dict[str, Score], dict[str, str]]:
    header, arrays, _ = unpack(state, SCHEMA)
    raw, sizes = arrays["scores"].astype(np.uint8).tobytes(), header["sizes"]
    if sum(sizes.values()) != len(raw):
        raise GdscoreError("Expected score states of the sizes in their header, but they have others: make them again")
    ends = [0, *accumulate(sizes.values())]
    saved = {name: raw[a:b] for name, (a, b) in zip(sizes, pairwise(ends), strict=True)}
    return {name: restore_score(files.read_arrays(own)) for name, own in saved.items()}, dict(header["skipped"])
