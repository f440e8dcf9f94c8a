"""`estimate` and `score_all` over files or a Ray Dataset."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from gdscore._windows import Group
from gdscore.distributed import _cluster, _inputs
from gdscore.distributed._parts import Truth, Work, block_state, file_state, merged_block
from gdscore.errors import GdscoreError, GdscoreWarning, NoRowsError
from gdscore.estimator import AccuracyEstimator, Estimate
from gdscore.io.columns import Columns
from gdscore.io.read import known_rows
from gdscore.outputs import Outputs
from gdscore.partial import FittedScores, finish_state, fit_scores, merge_states
from gdscore.scores.registry import ScoreTable

__all__ = ["GroupEstimate", "estimate", "estimate_groups", "score_all"]

_STATES_AT_ONCE = 64


def estimate(
    est: AccuracyEstimator,
    dataset: Any,
    *,
    by: str | None = None,
    every: str | None = None,
    columns: Columns | None = None,
    on_error: str = "raise",
    address: str | None = None,
    progress: bool | None = None,
) -> Estimate | dict[str, Estimate]:
    """Estimate the accuracy on outputs that are stored in many files, or in a Ray Dataset.

    The number is that of `AccuracyEstimator.estimate` on one machine, bit for bit, however rows are spread.

    Parameters
    ----------
    est : AccuracyEstimator
        Fitted.
    dataset : Ray Dataset, path, or list of paths
        A folder, a pattern or files as for `gdscore.io.read_outputs`, which every worker must be able to read; each
        file is read by one worker. Addresses such as ``s3://…`` are read as Parquet by Ray Data.
    by : str, optional
        Column that names the segment of each row: one estimate for each segment.
    every : str, optional
        Length of windows such as ``"6h"``, ``"1d"`` or ``"1w"``, where ``by`` is a column of times: one estimate for
        each window, named by its start such as ``2026-01-31T00:00:00``, in UTC.
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
    Estimate, or dict of str to Estimate
    """
    if not isinstance(est, AccuracyEstimator):
        raise GdscoreError(f"Expected an AccuracyEstimator, but got {type(est).__name__}")
    state = _state(est, dataset, by, every, columns, on_error, address, progress)
    found = finish_state(est, state)
    if by is not None and not found:
        raise NoRowsError("Expected a target with rows, but the dataset has none")
    assert not isinstance(found, ScoreTable)
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
    fitted = fit_scores(reference=reference, scores=scores)
    if not fitted:
        return ScoreTable({}, fitted.skipped)
    found = finish_state(fitted, _state(fitted, dataset, None, None, columns, on_error, address, progress))
    assert isinstance(found, ScoreTable)
    return found


def estimate_groups(
    est: AccuracyEstimator,
    paths: Sequence[Path],
    *,
    every: timedelta,
    columns: Columns,
    on_error: str = "raise",
    address: str | None = None,
    progress: bool | None = None,
) -> tuple[list[GroupEstimate], dict[str, str]]:
    """Estimate each window and segment of files, and compare with the labels where there are any.

    Parameters
    ----------
    est, on_error, address, progress
        As in `estimate`.
    paths : list of paths
        Files, which every worker must be able to read.
    every : timedelta
        Length of the windows, where ``columns`` has a column of times.
    columns : gdscore.io.Columns
        Columns for times and segments make the groups; without either, all rows are one.

    Returns
    -------
    list of GroupEstimate, dict of str
        Groups in no order, and the files that were left out with the reason.
    """
    grouped = columns.time is not None or columns.by is not None
    work = Work(partial(_inputs.group_names, every=every) if grouped else None, compared=True)
    ray = _cluster.connect(address)
    merged = _over_files(ray, est, [path.resolve() for path in paths], columns, work, on_error, progress)
    found = finish_state(est, merged.state)
    assert not isinstance(found, ScoreTable)
    named = {"|": found} if isinstance(found, Estimate) else found
    if not named:
        raise NoRowsError("Expected a target with rows, but its files have none")
    truths = {name: merged.truths.get(name if grouped else "", Truth()).accuracy for name in named}
    return [GroupEstimate(_inputs.group_of(name), e, truths[name]) for name, e in named.items()], merged.failed


@dataclass(frozen=True)
class GroupEstimate:
    """Estimate of a window and segment, and the accuracy by its labels where it has any."""

    group: Group
    estimate: Estimate
    truth: float | None


@dataclass
class _Merged:
    """State of all parts that could be read, and what was found on the way."""

    state: bytes
    failed: dict[str, str]
    truths: dict[str, Truth]


def _state(
    target: AccuracyEstimator | FittedScores,
    dataset: Any,
    by: str | None,
    every: str | None,
    columns: Columns | None,
    on_error: str,
    address: str | None,
    progress: bool | None,
) -> bytes:
    _inputs.check_on_error(on_error)
    chosen = _inputs.segment_columns(columns, by, every)
    ray = _cluster.connect(address)
    work = Work(None if by is None else partial(_inputs.segment_names, by=by, every=every))
    source = _inputs.files_or_dataset(ray, dataset)
    over = _over_files if isinstance(source, list) else _over_blocks
    merged = over(ray, target, source, chosen, work, on_error, progress)
    if merged.failed:
        name, why = next(iter(merged.failed.items()))
        warnings.warn(
            f"{len(merged.failed)} of the files or blocks were left out, among them {name}: {why}",
            GdscoreWarning,
            stacklevel=3,
        )
    return merged.state


# -- files ----------------------------------------------------------------------------------------------------


def _over_files(
    ray: Any, target: Any, paths: list[Path], columns: Columns, work: Work, on_error: str, progress: bool | None
) -> _Merged:
    shared = ray.put(target)
    read = ray.remote(file_state).options(num_returns=2, max_retries=_cluster.RETRIES)
    calls = ((repr(os.fspath(p)), partial(read.remote, shared, os.fspath(p), columns, work)) for p in paths)
    states: dict[int, Any] = {}
    failed: dict[str, str] = {}
    truths: dict[str, Truth] = {}
    classes: tuple[str, tuple[str, ...]] | None = None
    running = _cluster.run_all(ray, calls, 2 * _cluster.processors(ray))
    with closing(running), _inputs.rows_bar(paths, partial(known_rows, columns=columns), progress) as advance:
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
            for segment, (rows, correct) in report.truths.items():
                before = truths.get(segment, Truth())
                truths[segment] = Truth(before.rows + rows, before.correct + correct)
    if not states:
        raise GdscoreError(
            f"Expected files that can be read, but none of {len(paths)} can: {next(iter(failed.values()))}"
        )
    merged = _cluster.merge_refs(ray, [states[number] for number in sorted(states)])
    return _Merged(merged, failed, truths)


def _require_same_classes(first: str, expected: tuple[str, ...], name: str, found: tuple[str, ...]) -> None:
    if found != expected:
        raise GdscoreError(
            f"Expected all files to have the same classes in the same order, but {first} has {', '.join(expected)} and "
            f"{name} has {', '.join(found)}: write their columns in one order"
        )


# -- blocks of a Ray Dataset ----------------------------------------------------------------------------------


def _over_blocks(
    ray: Any, target: Any, dataset: Any, columns: Columns, work: Work, on_error: str, progress: bool | None
) -> _Merged:
    made = dataset.map_batches(
        partial(block_state, target=target, columns=columns, work=work),
        batch_format="pyarrow",
        batch_size=None,
        zero_copy_batch=True,
    )
    merged = made.map_batches(merged_block, batch_format="pyarrow", batch_size=_STATES_AT_ONCE)
    states = [work(target, [])[0]]
    failed: dict[str, str] = {}
    with _inputs.rows_bar(dataset, known_rows, progress) as advance:
        for row in merged.iter_rows():
            for wrong in row["wrong"]:
                if on_error == "raise":
                    raise GdscoreError(wrong)
                failed[f"bad block {len(failed) + 1}"] = wrong
            states.append(row["state"])
            advance(row["rows"])
            if len(states) == _STATES_AT_ONCE:
                states = [merge_states(states)]
    return _Merged(merge_states(states), failed, {})
