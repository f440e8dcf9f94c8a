"""What a dataset is: files that workers read, or a Ray Dataset whose blocks are tables of Arrow."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore._checks import choice
from gdscore._paths import DEFAULT_LIMITS
from gdscore._progress import Bar, progress_bar
from gdscore._windows import Group, RowGroups, parse_every, window_starts
from gdscore.errors import GdscoreError
from gdscore.io.arrow import BatchReader, class_names_of, column_type
from gdscore.io.cells import Batch, make_batch
from gdscore.io.columns import Columns, check_types, choose_columns
from gdscore.io.find import find_files

__all__ = [
    "arrow_batches",
    "check_by",
    "check_on_error",
    "files_or_dataset",
    "group_names",
    "group_of",
    "rows_bar",
    "segment_columns",
    "segment_names",
    "window_names",
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


def check_by(by: str | None, every: str | None) -> None:
    """Refuse a column that is no name, and lengths of windows that cannot be read."""
    if by is not None and not isinstance(by, str):
        raise GdscoreError(f"Expected `by` to be the name of a column, but got {by!r}")
    if every is not None:
        parse_every(every)
        if by is None:
            raise GdscoreError("Expected `by` to name the column of times for `every`, but it is not given")


def segment_columns(columns: Columns | None, by: str | None, every: str | None) -> Columns:
    """Columns of the outputs, and that of the segments or times."""
    if columns is not None and not isinstance(columns, Columns):
        raise GdscoreError(f"Expected `columns` to be a gdscore.io.Columns, but got {type(columns).__name__}")
    check_by(by, every)
    chosen = columns or Columns()
    if by is None:
        return chosen
    return replace(chosen, time=by) if every else replace(chosen, by=by)


def segment_names(batch: Batch, by: str, every: str | None) -> NDArray[np.str_]:
    """Segment of each row: the column as text, or the start of the window that its time lies in."""
    return np.asarray(batch.by[by], dtype=np.str_) if every is None else window_names(batch.time, every)


def group_names(batch: Batch, every: timedelta) -> NDArray[np.str_]:
    """Window and segment of each row as one text, by the columns for times and segments."""
    groups = RowGroups(every)
    numbers = groups.number(batch.time, batch.by)
    names = [f"{group.start.isoformat() if group.start else ''}|{group.segment}" for group in groups.found]
    return np.array(names, dtype=np.str_)[numbers]


def group_of(name: str) -> Group:
    """Window and segment that `group_names` wrote."""
    start, _, segment = name.partition("|")
    return Group(datetime.fromisoformat(start) if start else None, segment)


def window_names(time: Any, every: str) -> NDArray[np.str_]:
    """Starts of the windows that times lie in, as in ISO 8601, in UTC."""
    times = np.asarray(time)
    if times.dtype.kind != "M":
        raise GdscoreError(f"Expected a column of times for `every`, but its values are of type {times.dtype}")
    return np.asarray(np.datetime_as_string(window_starts(times, parse_every(every)), unit="s"), dtype=np.str_)


def arrow_batches(table: Any, columns: Columns, where: str) -> Iterator[Batch]:
    """Outputs of a table of Arrow; Ray's tensors are columns of lists to it."""
    import pyarrow as pa

    path = Path(where)
    chosen = choose_columns(columns, list(table.column_names), where)
    types = {name: column_type(table.schema.field(name).type, pa) for name in chosen.names}
    check_types(chosen, types, where)
    names = class_names_of(table.schema.metadata, path)
    reader = BatchReader(path, chosen.names, DEFAULT_LIMITS, pa)
    start = 0
    for piece in table.select(list(chosen.names)).to_batches(max_chunksize=_BLOCK_ROWS):
        for block in reader.blocks(piece) if piece.num_rows else ():
            batch = make_batch(chosen, block, where, start, names)
            start += len(batch.outputs)
            yield batch
