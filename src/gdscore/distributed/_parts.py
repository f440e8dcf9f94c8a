"""What a dataset is, files or a Ray Dataset, and the work on one part of it: a state, and a report for the caller."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gdscore import files
from gdscore._checks import choice
from gdscore._paths import DEFAULT_LIMITS
from gdscore._stream import Bar, Batch, progress_bar
from gdscore._windows import parse_every, window_columns
from gdscore.errors import GdscoreError, NoRowsError
from gdscore.estimator import AccuracyEstimator, TargetState
from gdscore.io.arrow import RecordBatchReader, class_names_of, column_type
from gdscore.io.columns import Columns, check_types, choose_columns, make_batch
from gdscore.io.read import find_files, read_batches
from gdscore.outputs import Outputs
from gdscore.scores.base import Score
from gdscore.scores.registry import ScoreTable, missing_inputs, peek, restore_score, run_together

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "Part",
    "Report",
    "ScoreStates",
    "block_state",
    "check_columns",
    "check_on_error",
    "file_state",
    "files_or_dataset",
    "merged",
    "merged_block",
    "rows_bar",
]

_BLOCK_ROWS = 4096


def files_or_dataset(ray: Any, dataset: Any) -> list[Path] | Any:
    """Paths of local or shared files, in order; or a Ray Dataset."""
    if isinstance(dataset, ray.data.Dataset):
        return dataset
    listed = [dataset] if isinstance(dataset, str | os.PathLike) else dataset
    if not isinstance(listed, Iterable) or not all(isinstance(item, str | os.PathLike) for item in listed):
        raise GdscoreError(
            "Expected `dataset` to be a Ray Dataset, a folder, a pattern or a list of files, but got "
            f"{type(dataset).__name__}: ray.data.from_pandas, from_arrow and others make Ray Datasets"
        )
    paths = list(listed)
    if any("://" in os.fspath(path) for path in paths):
        return ray.data.read_parquet([os.fspath(path) for path in paths])
    # Workers may have another working folder.
    return [path.resolve() for path in find_files(paths)]


@contextlib.contextmanager
def rows_bar(source: list[Any] | Any, rows_of: Callable[[Any], int | None], show: bool | None) -> Iterator[Bar]:
    """Progress bar of rows; those of files are counted in the background, and those of blocks where Ray has them."""
    with progress_bar(None, show) as bar:
        if not isinstance(source, list):
            if type(source).__name__ == "MaterializedDataset":
                bar.set_total(source.count())
            yield bar
            return
        if not bar.shown:
            yield bar
            return
        ended = threading.Event()

        def count() -> None:
            known = 0
            for path in source:
                # What is wrong with a file is for the worker that reads it to tell.
                with contextlib.suppress(GdscoreError, OSError):
                    rows = None if ended.is_set() else rows_of(path)
                    if rows is None:
                        return
                    known += rows
            bar.set_total(known)

        counting = threading.Thread(target=count, daemon=True)
        counting.start()
        try:
            yield bar
        finally:
            ended.set()
            counting.join()


def check_on_error(on_error: str) -> None:
    """Refuse other words."""
    choice("on_error", on_error, ("raise", "skip"))


def check_columns(
    columns: Columns | None, by: Any, time: str | None, every: str | None
) -> tuple[Columns, timedelta | None]:
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
    return replace(columns or Columns(), **{n: v for n, v in (("by", by), ("time", time)) if v is not None}), length


def arrow_batches(table: Any, columns: Columns, where: str) -> Iterator[Batch]:
    """Outputs of a table of Arrow; Ray's tensors are columns of lists to it."""
    import pyarrow as pa

    path = Path(where)
    chosen = choose_columns(columns, list(table.column_names), where)
    types = {name: column_type(table.schema.field(name).type, pa) for name in chosen.names}
    check_types(chosen, types, where)
    names = class_names_of(table.schema.metadata, path)
    reader = RecordBatchReader(path, chosen.names, DEFAULT_LIMITS, pa)
    start = 0
    for piece in table.select(list(chosen.names)).to_batches(max_chunksize=_BLOCK_ROWS):
        for block in reader.blocks(piece) if piece.num_rows else ():
            batch = make_batch(chosen, block, where, start, names)
            start += len(batch.outputs)
            yield batch


class Report(NamedTuple):
    """What the caller learns of a part: its rows, what is wrong with it (nothing: empty), and its classes."""

    rows: int = 0
    wrong: str = ""
    class_names: tuple[str, ...] | None = None


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

        def everything() -> Iterator[Outputs]:
            yield first
            yield from stream

        run_together(list(running.values()), everything())
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
        return files.arrays_to_bytes({"skipped": json.dumps(self.skipped), **values})

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """State that `to_bytes` wrote."""
        saved: dict[str, dict[str, Any]] = {}
        values = files.read_arrays(data)
        skipped = json.loads(str(values.pop("skipped")))
        for name, value in values.items():
            score, _, key = name.partition("/")
            saved.setdefault(score, {})[key] = value
        return cls({name: restore_score(state) for name, state in saved.items()}, skipped)

    def table(self) -> ScoreTable:
        """Numbers of the scores."""
        if not self.scores:
            raise NoRowsError("Expected a target with rows, but it has none or lacks what the scores need")
        values: dict[str, float] = {}
        for name, score in self.scores.items():
            try:
                values[name] = score.compute()
            except GdscoreError as error:
                self.skipped[name] = str(error)
        return ScoreTable(values, self.skipped)


@dataclass(frozen=True)
class Part:
    """Work on one part: from batches to the bytes of a state.

    Attributes
    ----------
    target : AccuracyEstimator or ScoreStates
        What the state is for; scores are fitted and without rows.
    columns : Columns
        Which columns hold what.
    every : timedelta or None
        Length of windows, where there is a column of times.
    """

    target: AccuracyEstimator | ScoreStates
    columns: Columns
    every: timedelta | None = None

    def state(self, batches: Iterable[Batch]) -> tuple[bytes, Report]:
        """State and report."""
        rows, class_names = 0, None

        def seen() -> Iterator[Batch]:
            nonlocal rows, class_names
            for batch in batches:
                rows, class_names = rows + len(batch.outputs), batch.outputs.class_names
                yield batch

        if isinstance(self.target, ScoreStates):
            state: Any = self.target.of(batch.outputs for batch in seen())
        else:
            state = self.target.state()
            for batch in seen():
                state.update(batch.outputs, window_columns(batch.time, batch.by, self.every) or None)
        return state.to_bytes(), Report(rows, "", class_names)


def file_state(part: Part, path: str) -> tuple[bytes, Report]:
    """State of a file."""
    try:
        return part.state(read_batches(path, columns=part.columns, progress=False))
    except NoRowsError:
        return part.state([])
    except GdscoreError as error:
        return b"", Report(wrong=str(error) if path in str(error) else f"{error} (in {path!r})")


def block_state(table: Any, part: Part) -> Any:
    """State of a block of a Ray Dataset, as a table of one row."""
    wrong = []
    try:
        state, report = part.state(arrow_batches(table, part.columns, "a block of the dataset"))
    except GdscoreError as error:
        (state, report), wrong = part.state([]), [str(error)]
    return _row(state, report.rows, wrong)


def merged_block(table: Any, kind: type) -> Any:
    """Rows that `block_state` made as one."""
    wrong = [text for texts in table["wrong"].to_pylist() for text in texts]
    return _row(merged(kind, *table["state"].to_pylist()), sum(table["rows"].to_pylist()), wrong)


def merged(kind: type[TargetState] | type[ScoreStates], *states: bytes) -> bytes:
    """State of all rows of some states."""
    first, *others = (kind.from_bytes(state) for state in states)
    for other in others:
        first.merge(other)  # type: ignore[arg-type]
    return first.to_bytes()


def _row(state: bytes, rows: int, wrong: list[str]) -> Any:
    import pyarrow as pa

    texts = pa.array([wrong], pa.list_(pa.string()))
    return pa.table({"state": pa.array([state], pa.large_binary()), "rows": [rows], "wrong": texts})
