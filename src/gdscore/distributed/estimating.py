"""`estimate` and `score_all` over files or a Ray Dataset."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from gdscore._cells import Batch
from gdscore._columns import Columns
from gdscore._progress import progress_bar
from gdscore.distributed import _cluster, _inputs
from gdscore.errors import GdscoreError, GdscoreWarning, NoRowsError
from gdscore.estimator import AccuracyEstimator, Estimate
from gdscore.io.read import read_batches
from gdscore.outputs import Outputs
from gdscore.partial import FittedScores, finish_state, fit_scores, merge_states, partial_state
from gdscore.scores.compute import ScoreTable

__all__ = ["estimate", "score_all"]

Report: TypeAlias = tuple[int, str]
"""Rows of a part, and what is wrong with it, which is empty where nothing is."""

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
    work = partial(_batches_state, by=by, every=every)
    source = _inputs.files_or_dataset(ray, dataset)
    over = _over_files if isinstance(source, list) else _over_blocks
    state, failed = over(ray, target, source, chosen, work, on_error, progress)
    if failed:
        first = next(iter(failed.items()))
        warnings.warn(
            f"{len(failed)} of the files or blocks were left out, among them {first[0]}: {first[1]}",
            GdscoreWarning,
            stacklevel=3,
        )
    return state


def _batches_state(target: Any, batches: Iterable[Batch], by: str | None, every: str | None) -> tuple[bytes, int]:
    """State of batches, and how many rows they have."""
    rows, segments = 0, []

    def outputs() -> Iterator[Outputs]:
        nonlocal rows
        for batch in batches:
            rows += len(batch.outputs)
            if by is not None:
                segments.append(_inputs.segment_names(batch, by, every))
            yield batch.outputs

    def names() -> Iterator[Any]:
        while segments:
            yield segments.pop(0)

    state = partial_state(target, outputs(), by=None if by is None else names())
    return state, rows


# -- files ----------------------------------------------------------------------------------------------------


def _over_files(
    ray: Any,
    target: Any,
    paths: list[Path],
    columns: Columns,
    work: Callable[..., tuple[bytes, int]],
    on_error: str,
    progress: bool | None,
) -> tuple[bytes, dict[str, str]]:
    shared = ray.put(target)
    read = ray.remote(_file_state).options(num_returns=2, max_retries=_cluster.RETRIES)
    calls = ((repr(os.fspath(p)), partial(read.remote, shared, os.fspath(p), columns, work)) for p in paths)
    states: dict[int, Any] = {}
    failed: dict[str, str] = {}
    running = _cluster.run_all(ray, calls, 2 * _cluster.processors(ray))
    with closing(running), progress_bar(len(paths), progress, "files") as advance:
        for number, name, state, (_, wrong) in running:
            if wrong and on_error == "raise":
                raise GdscoreError(wrong)
            if wrong:
                failed[name] = wrong
            else:
                states[number] = state
            advance(1)
    if not states:
        raise GdscoreError(
            f"Expected files that can be read, but none of {len(paths)} can: {next(iter(failed.values()))}"
        )
    return _cluster.merge_refs(ray, [states[number] for number in sorted(states)]), failed


def _file_state(
    target: Any, path: str, columns: Columns, work: Callable[..., tuple[bytes, int]]
) -> tuple[bytes, Report]:
    try:
        state, rows = work(target, read_batches(path, columns=columns, progress=False))
    except NoRowsError:
        return work(target, [])[0], (0, "")
    except GdscoreError as error:
        named = str(error) if path in str(error) else f"{error} (in {path!r})"
        return b"", (0, named)
    return state, (rows, "")


# -- blocks of a Ray Dataset ----------------------------------------------------------------------------------


def _over_blocks(
    ray: Any,
    target: Any,
    dataset: Any,
    columns: Columns,
    work: Callable[..., tuple[bytes, int]],
    on_error: str,
    progress: bool | None,
) -> tuple[bytes, dict[str, str]]:
    made = dataset.map_batches(
        partial(_block_state, target=target, columns=columns, work=work),
        batch_format="pyarrow",
        batch_size=None,
        zero_copy_batch=True,
    )
    merged = made.map_batches(_merged_block, batch_format="pyarrow", batch_size=_STATES_AT_ONCE)
    states = [work(target, [])[0]]
    failed: dict[str, str] = {}
    with progress_bar(None, progress) as advance:
        for row in merged.iter_rows():
            for wrong in row["wrong"]:
                if on_error == "raise":
                    raise GdscoreError(wrong)
                failed[f"bad block {len(failed) + 1}"] = wrong
            states.append(row["state"])
            advance(row["rows"])
            if len(states) == _STATES_AT_ONCE:
                states = [merge_states(states)]
    return merge_states(states), failed


def _block_state(table: Any, target: Any, columns: Columns, work: Callable[..., tuple[bytes, int]]) -> Any:
    import pyarrow as pa

    wrong = []
    try:
        state, rows = work(target, _inputs.arrow_batches(table, columns, "a block of the dataset"))
    except GdscoreError as error:
        (state, rows), wrong = work(target, []), [str(error)]
    return pa.table({"state": pa.array([state], pa.large_binary()), "rows": [rows], "wrong": _texts([wrong])})


def _merged_block(table: Any) -> Any:
    import pyarrow as pa

    state = merge_states(table["state"].to_pylist())
    wrong = [text for texts in table["wrong"].to_pylist() for text in texts]
    rows = sum(table["rows"].to_pylist())
    return pa.table({"state": pa.array([state], pa.large_binary()), "rows": [rows], "wrong": _texts([wrong])})


def _texts(lists: list[list[str]]) -> Any:
    import pyarrow as pa

    return pa.array(lists, pa.list_(pa.string()))
