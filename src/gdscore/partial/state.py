"""`partial_state`, `merge_states`, `finish_state`: a target in parts, for an estimator or for scores."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore import files
from gdscore._stream import kind_of
from gdscore.errors import GdscoreError
from gdscore.estimator import AccuracyEstimator, Estimate
from gdscore.estimator.fitted import Fitted
from gdscore.outputs import Outputs
from gdscore.partial import scores as score_states
from gdscore.partial.scores import FittedScores
from gdscore.partial.target import SCHEMA, CellLayout, TargetCells
from gdscore.scores.base import Score
from gdscore.scores.registry import ScoreTable, restore_score

__all__ = ["finish_state", "merge_states", "partial_state"]

_FAN_IN = 64
"""States that are merged at once: one sort for all of them."""
_HELD_CELLS = 1 << 20


def partial_state(
    target: AccuracyEstimator | FittedScores, stream: Outputs | Iterable[Outputs], *, by: Any = None
) -> bytes:
    """State of one part of a target, as bytes that any engine can carry.

    Parameters
    ----------
    target : AccuracyEstimator or FittedScores
        What the target is for: a fitted estimator, or scores from `fit_scores`.
    stream : Outputs or iterable of Outputs
        Outputs of the part; an empty iterable is a part without rows.
    by : sequence, or iterable of sequences for a stream, optional
        Segment of each row, for an estimator only. Segments are named by text: 3 becomes ``"3"``.

    Returns
    -------
    bytes
        A checksum and plain arrays, no pickle. Only filled cells of the sums are in it.

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> from gdscore import partial
    >>> rng = np.random.default_rng(0)
    >>> z = 3 * np.eye(4)[rng.integers(0, 4, 3000)] + rng.normal(size=(3000, 4))
    >>> labels = (z + rng.normal(size=z.shape)).argmax(1)
    >>> est = gdscore.AccuracyEstimator().fit(gdscore.Outputs(logits=z, labels=labels))
    >>> parts = [gdscore.Outputs(logits=z[i : i + 1000]) for i in (0, 1000, 2000)]
    >>> state = partial.merge_states([partial.partial_state(est, part) for part in parts])
    >>> partial.finish_state(est, state) == est.estimate(parts)
    True
    """
    parts = [stream] if isinstance(stream, Outputs) else stream
    if isinstance(target, FittedScores):
        if by is not None:
            raise GdscoreError("Expected `by` with an estimator only, but `target` is scores: leave `by` out")
        return score_states.scores_of(target, _checked(parts))
    if not isinstance(target, AccuracyEstimator):
        raise GdscoreError(
            "Expected `target` to be an AccuracyEstimator, or scores from gdscore.partial.fit_scores, but got "
            f"{type(target).__name__}"
        )
    segments = None if by is None else iter([by] if isinstance(stream, Outputs) else by)
    return _target_state(target, _checked(parts), segments)


def merge_states(states: Iterable[bytes]) -> bytes:
    """State of all rows of many parts, merged in a tree.

    States of an estimator are merged exactly: in any order, and in any number of steps, the bytes are the same.
    Those of scores agree to rounding; GdScore's where parts are multiples of its mini-batch.
    """
    if isinstance(states, str | bytes | bytearray | memoryview) or not isinstance(states, Iterable):
        raise GdscoreError(f"Expected a list of states to merge, but got {type(states).__name__}")
    tree: list[list[bytes]] = [[]]
    merge: Any = None
    for number, state in enumerate(states):
        if not isinstance(state, bytes | bytearray | memoryview):
            raise GdscoreError(f"Expected states to be bytes, but state {number} is {type(state).__name__}")
        if merge is None:
            merge = (
                _merge_targets if bytes(state[:20]).startswith(SCHEMA.format.encode()) else score_states.merge_scores
            )
        tree[0].append(state)
        for level in range(len(tree)):
            if len(tree[level]) < _FAN_IN:
                break
            if level + 1 == len(tree):
                tree.append([])
            first = number + 1 - _FAN_IN ** (level + 1)
            tree[level + 1].append(_named(merge, tree[level], f"one of the states {first} to {number}"))
            tree[level] = []
    left = [state for level in reversed(tree) for state in level]
    if not left:
        raise GdscoreError("Expected at least one state to merge, but got none")
    return _named(merge, left, "one of the states")


def finish_state(target: AccuracyEstimator | FittedScores, state: bytes) -> Estimate | dict[str, Estimate] | ScoreTable:
    """Estimate of all rows of a state, one for each segment where it has segments, worst first; or its scores.

    Parameters
    ----------
    target : AccuracyEstimator or FittedScores
        The same as in `partial_state`. ``level`` and ``class_mix`` of an estimator may differ.
    state : bytes
        From `partial_state` or `merge_states`.
    """
    if isinstance(target, FittedScores):
        return score_states.score_table(state)
    cells, digest, saved = TargetCells.from_bytes(state)
    if digest != _digest(target._fitted()):
        raise GdscoreError(
            "Expected a state that this estimator made, but it is of another estimator: use the file that the workers "
            "used"
        )
    found = []
    for number, (evidence, same_model) in enumerate(cells.evidence()):
        filled = target.state()
        filled.evidence, filled.same_model = evidence, same_model
        if saved:
            filled.score = _restored(saved[number])
        found.append(target.estimate_state(filled))
    if cells.segments is None:
        return found[0]
    named = dict(zip(cells.segments.tolist(), found, strict=True))
    return dict(sorted(named.items(), key=lambda item: item[1].accuracy))


# -- states of an estimator -----------------------------------------------------------------------------------


def _target_state(est: AccuracyEstimator, parts: Iterable[Outputs], segments: Iterator[Any] | None) -> bytes:
    fitted = est._fitted()
    profile, mark = fitted.correction.profile, fitted.fingerprint
    layout = CellLayout(len(profile.mix), len(profile.mean))
    held = [TargetCells.empty(layout, segments is not None)]
    scores: dict[str, Score] = {}
    for part in parts:
        fitted.check_outputs(part)
        names = None if segments is None else _segment_names(next(segments, None), len(part))
        same_model = mark is None or mark.matches(part)
        start = 0
        for rows, others in profile.chunks(part):
            own = None if names is None else names[start : start + len(others)]
            held.append(TargetCells.of(layout, rows, others, same_model, own))
            start += len(others)
        if fitted.score is not None:
            for name in [""] if names is None else np.unique(names).tolist():
                score = scores.setdefault(name, score_states.compact(fitted.score))
                score.update(part if names is None else part[np.flatnonzero(names == name)])
        if sum(len(cells.at) for cells in held) > _HELD_CELLS:
            held = [TargetCells.merged(held)]
    merged = TargetCells.merged(held)
    saved = [score_states.score_bytes(score_states.compact(scores[name])) for name in sorted(scores)]
    return merged.to_bytes(_digest(fitted), None if fitted.score is None else saved)


def _merge_targets(states: list[bytes]) -> bytes:
    found = [TargetCells.from_bytes(state) for state in states]
    first, digest, scored = found[0]
    for cells, other, _ in found:
        if (other, cells.layout, cells.segments is None) != (digest, first.layout, first.segments is None):
            what = "of one estimator" if other != digest else "that all have segments, or none"
            raise GdscoreError(f"Expected states {what} to merge, but they differ")
    merged = TargetCells.merged([cells for cells, _, _ in found])
    if scored is None:
        return merged.to_bytes(digest, None)
    scores: dict[str, Score] = {}
    for cells, _, saved in found:
        names = [""] if cells.segments is None else cells.segments.tolist()
        for name, raw in zip(names, saved or (), strict=False):
            scores[name] = scores[name].merge(_restored(raw)) if name in scores else _restored(raw)
    return merged.to_bytes(digest, [score_states.score_bytes(scores[name]) for name in sorted(scores)])


def _digest(fitted: Fitted) -> str:
    """Digest of what was learned that a state depends on; equal for equal fits, whatever ``level`` is."""
    profile, mark = fitted.correction.profile, fitted.fingerprint
    learned: dict[str, Any] = {"method": fitted.method, "shift": fitted.correction.shift}
    for part, owner in (("profile", profile), ("fingerprint", mark)):
        values: Mapping[str, Any] = {} if owner is None else {f.name: getattr(owner, f.name) for f in fields(owner)}
        learned |= {f"{part}.{name}": value for name, value in values.items() if value is not None}
    if fitted.score is not None:
        learned |= {f"score.{name}": value for name, value in fitted.score.state_dict().items()}
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in learned.items()}
    return hashlib.sha256(files.arrays_to_bytes(plain)).hexdigest()


# -- helpers --------------------------------------------------------------------------------------------------


def _checked(parts: Any) -> Iterator[Outputs]:
    if isinstance(parts, str | bytes | dict) or arrays.is_array(parts) or not isinstance(parts, Iterable):
        raise GdscoreError(f"Expected `stream` to be `gdscore.Outputs` or a stream of them, but got {kind_of(parts)}")
    for part in parts:
        if not isinstance(part, Outputs):
            raise GdscoreError(f"Expected `stream` to yield `gdscore.Outputs`, but it yielded {kind_of(part)}")
        yield part


def _segment_names(names: Any, rows: int) -> NDArray[np.str_]:
    listed = np.asarray(arrays.to_numpy(names) if arrays.is_array(names) else names)
    if listed.shape != (rows,):
        raise GdscoreError(f"Expected `by` to name a segment for each of {rows} rows, but its shape is {listed.shape}")
    return listed.astype(np.str_)


def _restored(raw: bytes) -> Score:
    return restore_score(files.read_arrays(raw))


def _named(merge: Any, states: list[bytes], which: str) -> bytes:
    try:
        merged: bytes = merge(states)
    except GdscoreError as error:
        raise GdscoreError(f"{error} (in {which} to merge)") from error
    return merged
