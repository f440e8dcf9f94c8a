"""`estimate` and `score_all` over files or a Ray Dataset.

Each file or block becomes the bytes of a state, on the worker that reads it, and states are merged in a tree.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Self

from gdscore._checks import choice
from gdscore._files import DEFAULT_LIMITS, arrays_to_bytes, read_arrays
from gdscore._stream import Batch, progress_bar
from gdscore._windows import Every, parse_every, window_columns
from gdscore.distributed import _cluster
from gdscore.errors import GdscoreError, GdscoreWarning, NoRowsError
from gdscore.estimator import AccuracyEstimator, Estimate, TargetState
from gdscore.io.arrow import RecordBatchReader, column_type, stored_in
from gdscore.io.blocks import layout
from gdscore.io.columns import Columns, check_types, choose_columns, make_batch
from gdscore.io.read import read_batches, require_same
from gdscore.outputs import Outputs
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

_BLOCK_ROWS = 4096


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
        Column of times: one estimate for each window, named by its start, and for each segment in it.
    every : str, optional
        Length of windows such as ``"6h"``, ``"1d"`` (default) or ``"month Europe/Paris"``, as in
        `gdscore.window_starts`.
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
    """
    if not isinstance(est, AccuracyEstimator):
        raise GdscoreError(f"Expected an AccuracyEstimator, but got {type(est).__name__}")
    chosen, length = check_columns(columns, by, time, every)
    state = _state(Part(est, chosen, length), dataset, on_error, address, progress)
    estimated: Estimate | dict[Any, Estimate] = est.estimate(TargetState.from_bytes(state), class_mix=class_mix)
    return estimated


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
    arrays: frozenset[str] | None = None
    if reference is not None:
        reference, arrays = peek(reference, "reference")
    # Which arrays the target has is found out part by part.
    skipped = {n: why for n, s in made.items() if (why := missing_inputs(s, s.inputs - {"network"}, arrays))}
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
    every: Every,
    on_error: str = "raise",
    progress: bool | None = None,
) -> tuple[TargetState, dict[str, str]]:
    """State of all files that can be read, by window and segment, and the files left out with the reason.

    Parameters are those of `estimate`; ``columns`` names the columns of times and segments.
    """
    ray, resolved = _cluster.connect(None), [path.resolve() for path in paths]
    state, failed = _merged_state(ray, Part(est, columns, every), resolved, on_error, progress)
    return TargetState.from_bytes(state), failed


def _state(part: Part, dataset: Any, on_error: str, address: str | None, progress: bool | None) -> bytes:
    choice("on_error", on_error, _cluster.ON_ERROR)
    ray = _cluster.connect(address)
    sources = _cluster.files_or_dataset(ray, dataset)
    state, failed = _merged_state(ray, part, sources, on_error, progress)
    if failed:
        name, why = next(iter(failed.items()))
        warnings.warn(
            f"{len(failed)} of the files or blocks were left out, among them {name}: {why}",
            GdscoreWarning,
            stacklevel=3,
        )
    return state


def _merged_state(
    ray: Any, part: Part, sources: list[Path] | Any, on_error: str, progress: bool | None
) -> tuple[bytes, dict[str, str]]:
    """State of all files, or blocks of a Ray Dataset, that can be read, and the others with the reason."""
    shared = ray.put(part)
    read = ray.remote(state_of_part).options(num_returns=2, max_retries=_cluster.RETRIES)
    calls = ((where, partial(read.remote, shared, source, where)) for where, source in _cluster.named_sources(sources))
    states: dict[int, Any] = {}
    failed: dict[str, str] = {}
    first: dict[str, tuple[str, Any]] = {}
    running = _cluster.run_tasks(ray, calls, 2 * _cluster.processors(ray))
    total = len(sources) if isinstance(sources, list) else None
    with closing(running), progress_bar(total, progress, "inputs") as advance:
        for number, name, state, report in running:
            advance(1)
            if report.wrong and on_error == "raise":
                raise GdscoreError(report.wrong)
            if report.wrong:
                failed[name] = report.wrong
                continue
            states[number] = state
            if report.class_names is not None:
                before, classes = first.setdefault("classes", (name, report.class_names))
                if classes != report.class_names:
                    raise GdscoreError(
                        f"Expected all files to have the same classes in the same order, but {before} has "
                        f"{', '.join(classes)} and {name} has {', '.join(report.class_names)}: write their columns in "
                        "one order"
                    )
            if report.arrays is not None:
                before, arrays = first.setdefault("arrays", (name, report.arrays))
                require_same(arrays, Path(before.strip("'")), report.arrays, Path(name.strip("'")))
    if not states and failed:
        raise GdscoreError(
            f"Expected files that can be read, but none of {len(failed)} can: {next(iter(failed.values()))}"
        )
    if not states:
        return part.state([])[0], failed
    kind = ScoreStates if isinstance(part.target, ScoreStates) else TargetState
    return _cluster.merge_refs(ray, partial(merged, kind), [states[number] for number in sorted(states)]), failed


# -- work on one part -----------------------------------------------------------------------------------------


def check_columns(
    columns: Columns | None, by: Any, time: str | None, every: str | None
) -> tuple[Columns, Every | None]:
    """Columns of the outputs with those of segments and times, and the length of windows; wrong ones are refused."""
    if columns is not None and not isinstance(columns, Columns):
        raise GdscoreError(f"Expected `columns` to be a gdscore.io.Columns, but got {type(columns).__name__}")
    for name, value in (("by", by), ("time", time)):
        listed = list(value) if name == "by" and isinstance(value, list | tuple) else [value]
        if value is not None and not all(isinstance(column, str) for column in listed):
            raise GdscoreError(f"Expected `{name}` to be the name of a column, but got {value!r}")
    if every is not None and time is None:
        raise GdscoreError("Expected `time` to name the column of times for `every`, but it is not given")
    length = None if time is None else parse_every(every or "1d")
    named: dict[str, Any] = {n: v for n, v in (("by", by), ("time", time)) if v is not None}
    return replace(columns or Columns(), **named), length


def arrow_batches(table: Any, columns: Columns, where: str) -> Iterator[Batch]:
    """Outputs of a table of Arrow; Ray's tensors are columns of lists to it."""
    chosen = choose_columns(columns, list(table.column_names), where)
    types = {name: column_type(table.schema.field(name).type) for name in chosen.names}
    check_types(chosen, types, where)
    stored = stored_in(table.schema.metadata, repr(where))
    reader = RecordBatchReader(repr(where), chosen.names, DEFAULT_LIMITS)
    start = 0
    for piece in table.select(list(chosen.names)).to_batches(max_chunksize=_BLOCK_ROWS):
        for block in reader.blocks(piece) if piece.num_rows else ():
            batch = make_batch(chosen, block, where, start, *stored)
            start += len(batch.outputs)
            yield batch


class Report(NamedTuple):
    """What the caller learns of a part: its rows, what is wrong with it (nothing: empty), its classes and arrays."""

    rows: int = 0
    wrong: str = ""
    class_names: tuple[str, ...] | None = None
    arrays: Mapping[str, str] | None = None


class ScoreStates:
    """Scores that have seen some rows, by name, and in ``skipped`` why each of the others cannot be computed."""

    def __init__(self, scores: Mapping[str, Score], skipped: Mapping[str, str]) -> None:
        self.scores, self.skipped = dict(scores), dict(skipped)

    def of(self, stream: Iterator[Outputs]) -> ScoreStates:
        """The same scores, which have seen a stream that may be empty."""
        first = next(stream, None)
        if first is None:
            return ScoreStates({}, self.skipped)
        _, has = peek([first], "outputs")
        skipped = {n: why for n, s in self.scores.items() if (why := missing_inputs(s, has, s.reference_inputs))}
        running = {name: copy(s).reset() for name, s in self.scores.items() if name not in skipped}
        run_together(list(running.values()), chain([first], stream))
        return ScoreStates(running, self.skipped | skipped)

    def merge(self, other: ScoreStates) -> Self:
        """Take in the rows of others; a score that only one of them has is an error, except where one has no rows."""
        self.skipped = other.skipped | self.skipped
        if self.scores and other.scores and self.scores.keys() != other.scores.keys():
            only = sorted(self.scores.keys() ^ other.scores.keys())
            raise GdscoreError(
                f"Expected parts with the same scores, but only some have {', '.join(only)}: the parts of the target "
                "hold different arrays"
            )
        for name, score in other.scores.items():
            self.scores[name] = self.scores[name].merge(score) if name in self.scores else score
        return self

    def to_bytes(self) -> bytes:
        """State as bytes, without rows where a score can do without."""
        # Rows that fill no chunk become part of the sums: what merging would do anyway.
        states = {name: copy(score).reset().merge(score).state_dict() for name, score in self.scores.items()}
        values = {f"{name}/{key}": value for name, state in states.items() for key, value in state.items()}
        return arrays_to_bytes({"skipped": json.dumps(self.skipped), **values})

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """State that `to_bytes` wrote."""
        saved: dict[str, dict[str, Any]] = {}
        values = read_arrays(data)
        skipped = json.loads(str(values.pop("skipped")))
        for name, value in values.items():
            score, _, key = name.partition("/")
            saved.setdefault(score, {})[key] = value
        return cls({name: restore_score(state) for name, state in saved.items()}, skipped)

    def table(self) -> ScoreTable:
        """Numbers of the scores."""
        if not self.scores:
            raise NoRowsError("Expected a target with rows, but it has none or lacks what the scores need")
        return ScoreTable.of(self.scores, self.skipped)


@dataclass(frozen=True)
class Part:
    """Work on one part: from batches to the bytes of a state."""

    target: AccuracyEstimator | ScoreStates  # what the state is for; scores are fitted and without rows
    columns: Columns  # which columns hold what
    every: Every | None = None  # length of windows, where there is a column of times

    def state(self, batches: Iterable[Batch]) -> tuple[bytes, Report]:
        """State and report."""
        rows, class_names, arrays = 0, None, None

        def seen() -> Iterator[Batch]:
            nonlocal rows, class_names, arrays
            for batch in batches:
                rows, class_names = rows + len(batch.outputs), batch.outputs.class_names
                arrays = layout(batch.outputs.arrays, exact=False) | {"decision": batch.outputs.decision}
                yield batch

        if isinstance(self.target, ScoreStates):
            state: Any = self.target.of(batch.outputs for batch in seen())
        else:
            state = self.target.state()
            for batch in seen():
                state.update(batch.outputs, window_columns(batch.time, batch.by, self.every) or None)
        return state.to_bytes(), Report(rows, "", class_names, arrays)


def state_of_part(part: Part, source: Any, where: str) -> tuple[bytes, Report]:
    """State of a file, named by its path, or of a block of a Ray Dataset."""
    try:
        if isinstance(source, str):
            return part.state(read_batches(source, columns=part.columns, progress=False))
        from ray.data.block import BlockAccessor

        return part.state(arrow_batches(BlockAccessor.for_block(source).to_arrow(), part.columns, where))
    except NoRowsError:
        return part.state([])
    except GdscoreError as error:
        return b"", Report(wrong=str(error) if where in str(error) else f"{error} (in {where})")


def merged(kind: type[TargetState] | type[ScoreStates], *states: bytes) -> bytes:
    """State of all rows of some states."""
    first, *others = [kind.from_bytes(state) for state in states]
    for other in others:
        first.merge(other)  # type: ignore[arg-type]
    return first.to_bytes()
