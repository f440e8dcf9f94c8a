"""`estimate` and `score_all` over files or a Ray Dataset."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from gdscore.distributed import _cluster
from gdscore.distributed._parts import (
    Part,
    ScoreStates,
    block_state,
    check_columns,
    check_on_error,
    file_state,
    files_or_dataset,
    merged,
    merged_block,
    rows_bar,
)
from gdscore.errors import GdscoreError, GdscoreWarning
from gdscore.estimator import AccuracyEstimator, Estimate, TargetState
from gdscore.io.columns import Columns
from gdscore.io.read import known_rows
from gdscore.outputs import Outputs
from gdscore.scores.base import fit_together
from gdscore.scores.registry import ScoreTable, chosen_scores, create_score, missing_inputs, peek

__all__ = ["estimate", "score_all", "state_of_files"]

_STATES_AT_ONCE = 64


def estimate(
    est: AccuracyEstimator,
    dataset: Any,
    *,
    by: str | Sequence[str] | None = None,
    time: str | None = None,
    every: str | None = None,
    class_mix: Any = None,
    columns: Columns | None = None,
    on_error: str = "raise",
    address: str | None = None,
    progress: bool | None = None,
) -> Estimate | dict[Any, Estimate]:
    """Estimate the accuracy on outputs that are stored in many files, or in a Ray Dataset.

    The number is that of `AccuracyEstimator.estimate` on one machine, bit for bit, however rows are spread.

    Parameters
    ----------
    est : AccuracyEstimator
        Fitted.
    dataset : Ray Dataset, path, or list of paths
        A folder, a pattern or files as for `gdscore.io.read_outputs`, which every worker must be able to read; each
        file is read by one worker. Addresses such as ``s3://…`` are read as Parquet by Ray Data.
    by : str or list of str, optional
        Columns that name the segment of each row: one estimate for each segment; several columns make tuples.
    time : str, optional
        Column of times: one estimate for each window, named by its start in UTC, and for each segment in it.
    every : str, optional
        Length of windows such as ``"6h"``, ``"1d"`` (default) or ``"1w"``.
    class_mix : optional
        As in `AccuracyEstimator.estimate`.
    columns : gdscore.io.Columns, optional
        Which columns hold what.
    on_error : {"raise", "skip"}
        What to do with a file or block that cannot be read: stop with its name, or leave it out with a warning.
    address : str, optional
        Of the cluster, such as ``"auto"``; by default the one that is connected, or a new one on this machine.
    progress : bool, optional
        Progress bar on standard error; by default where that is a terminal.

    Returns
    -------
    Estimate, or dict of Estimate by segment
    """
    if not isinstance(est, AccuracyEstimator):
        raise GdscoreError(f"Expected an AccuracyEstimator, but got {type(est).__name__}")
    chosen, length = check_columns(columns, by, time, every)
    state = _state(Part(est, chosen, length), dataset, on_error, address, progress)
    found: Estimate | dict[Any, Estimate] = est.estimate(TargetState.from_bytes(state), class_mix=class_mix)
    return found


def score_all(
    dataset: Any,
    *,
    reference: Outputs | Iterable[Outputs] | None = None,
    scores: Iterable[str] | Mapping[str, Mapping[str, Any]] | None = None,
    columns: Columns | None = None,
    on_error: str = "raise",
    address: str | None = None,
    progress: bool | None = None,
) -> ScoreTable:
    """All scores that stored outputs allow, in one pass over files or a Ray Dataset.

    Scores agree with `gdscore.score_all` to rounding; ``gdscore`` where files or blocks have multiples of 128 rows, its
    mini-batch.

    Parameters
    ----------
    dataset, columns, on_error, address, progress
        As in `estimate`.
    reference, scores
        As in `gdscore.score_all`. The reference is read by the caller.
    """
    chosen, _ = check_columns(columns, None, None, None)
    made = {name: create_score(name, **options) for name, options in chosen_scores(scores).items()}
    known: frozenset[str] | None = None
    if reference is not None:
        reference, known = peek(reference, "reference")
    # Which arrays the target has is found out part by part.
    skipped = {n: why for n, s in made.items() if (why := missing_inputs(s, s.inputs - {"network"}, known))}
    fitting = {name: s for name, s in made.items() if name not in skipped}
    skipped |= fit_together(fitting.values(), reference)
    fitted = ScoreStates({name: s for name, s in fitting.items() if name not in skipped}, skipped)
    if not fitted.scores:
        return ScoreTable({}, fitted.skipped)
    return ScoreStates.from_bytes(_state(Part(fitted, chosen), dataset, on_error, address, progress)).table()


def state_of_files(
    est: AccuracyEstimator,
    paths: Sequence[Path],
    *,
    columns: Columns,
    every: timedelta,
    on_error: str = "raise",
    progress: bool | None = None,
) -> tuple[TargetState, dict[str, str]]:
    """State of all files that can be read, by window and segment, and the files left out with the reason.

    Parameters are those of `estimate`; ``columns`` names the columns of times and segments.
    """
    ray, found = _cluster.connect(None), [path.resolve() for path in paths]
    state, failed = _over_files(ray, Part(est, columns, every), found, on_error, progress)
    return TargetState.from_bytes(state), failed


def _state(part: Part, dataset: Any, on_error: str, address: str | None, progress: bool | None) -> bytes:
    check_on_error(on_error)
    ray = _cluster.connect(address)
    source = files_or_dataset(ray, dataset)
    over = _over_files if isinstance(source, list) else _over_blocks
    state, failed = over(ray, part, source, on_error, progress)
    if failed:
        name, why = next(iter(failed.items()))
        warnings.warn(
            f"{len(failed)} of the files or blocks were left out, among them {name}: {why}",
            GdscoreWarning,
            stacklevel=3,
        )
    return state


def _kind(part: Part) -> type[TargetState] | type[ScoreStates]:
    return ScoreStates if isinstance(part.target, ScoreStates) else TargetState


# -- files ----------------------------------------------------------------------------------------------------


def _over_files(
    ray: Any, part: Part, paths: list[Path], on_error: str, progress: bool | None
) -> tuple[bytes, dict[str, str]]:
    shared = ray.put(part)
    read = ray.remote(file_state).options(num_returns=2, max_retries=_cluster.RETRIES)
    calls = ((repr(os.fspath(p)), partial(read.remote, shared, os.fspath(p))) for p in paths)
    states: dict[int, Any] = {}
    failed: dict[str, str] = {}
    classes: tuple[str, tuple[str, ...]] | None = None
    running = _cluster.run_all(ray, calls, 2 * _cluster.processors(ray))
    with closing(running), rows_bar(paths, partial(known_rows, columns=part.columns), progress) as advance:
        for number, name, state, report in running:
            advance(report.rows)
            if report.wrong and on_error == "raise":
                raise GdscoreError(report.wrong)
            if report.wrong:
                failed[name] = report.wrong
                continue
            states[number] = state
            if report.class_names is not None:
                classes = classes or (name, report.class_names)
                _require_same_classes(*classes, name, report.class_names)
    if not states:
        raise GdscoreError(
            f"Expected files that can be read, but none of {len(paths)} can: {next(iter(failed.values()))}"
        )
    return _cluster.merge_refs(ray, partial(merged, _kind(part)), [states[number] for number in sorted(states)]), failed


def _require_same_classes(first: str, expected: tuple[str, ...], name: str, found: tuple[str, ...]) -> None:
    if found != expected:
        raise GdscoreError(
            f"Expected all files to have the same classes in the same order, but {first} has {', '.join(expected)} and "
            f"{name} has {', '.join(found)}: write their columns in one order"
        )


# -- blocks of a Ray Dataset ----------------------------------------------------------------------------------


def _over_blocks(
    ray: Any, part: Part, dataset: Any, on_error: str, progress: bool | None
) -> tuple[bytes, dict[str, str]]:
    made = dataset.map_batches(
        partial(block_state, part=part), batch_format="pyarrow", batch_size=None, zero_copy_batch=True
    )
    kind = _kind(part)
    few = made.map_batches(partial(merged_block, kind=kind), batch_format="pyarrow", batch_size=_STATES_AT_ONCE)
    states = [part.state([])[0]]
    failed: dict[str, str] = {}
    with rows_bar(dataset, known_rows, progress) as advance:
        for row in few.iter_rows():
            for wrong in row["wrong"]:
                if on_error == "raise":
                    raise GdscoreError(wrong)
                failed[f"bad block {len(failed) + 1}"] = wrong
            states.append(row["state"])
            advance(row["rows"])
            if len(states) == _STATES_AT_ONCE:
                states = [merged(kind, *states)]
    return merged(kind, *states), failed
