"""Rows of a Parquet file, block by block, and back.

Pages are read as they are needed, so that memory does not grow with the size of a row group either. How many values the
lists of a row group hold is known from its metadata: it is compared with the first row before more rows are read.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore._atomic import atomic
from gdscore._paths import Limits, PathLike
from gdscore.errors import GdscoreError
from gdscore.io.arrow import BatchReader, class_names_of, column_type, decoding, pyarrow
from gdscore.io.columns import Chosen, ColumnType
from gdscore.io.table import BLOCK_BYTES, Block, default_rows, guarded, rebatched

__all__ = ["ParquetTable", "open_parquet", "write_parquet"]

_READ_AHEAD = 1 << 20


class ParquetTable:
    """Columns of a Parquet file."""

    def __init__(self, path: Path, handle: Any, limits: Limits) -> None:
        self.path, self._handle, self._limits = path, handle, limits
        self._pa = pyarrow("Parquet")
        self._file = self._opened([])
        self._schema = self._file.schema_arrow
        self.names = list(self._schema.names)
        self.class_names = class_names_of(self._schema.metadata, path)

    def describe(self, name: str) -> ColumnType:
        """Type of a column."""
        return column_type(self._schema.field(name).type, self._pa)

    def count_rows(self, chosen: Chosen) -> int:
        """Rows of the file, by its metadata."""
        return int(self._file.metadata.num_rows)

    def blocks(self, chosen: Chosen, batch_rows: int | None) -> Iterator[Block]:
        """Rows in order."""
        pieces = self._pieces(chosen, batch_rows)
        return rebatched(guarded(pieces, lambda: decoding(self.path, "a Parquet file")), batch_rows)

    def _opened(self, text: list[str]) -> Any:
        import pyarrow.parquet as pq

        # Text is kept as a dictionary until its length is checked: a long string may stand in every row.
        return pq.ParquetFile(
            self._handle,
            read_dictionary=text,
            buffer_size=_READ_AHEAD,
            pre_buffer=False,
            page_checksum_verification=True,
        )

    def _pieces(self, chosen: Chosen, batch_rows: int | None) -> Iterator[Block]:
        file = self._opened([name for name in chosen.names if self.describe(name).kind == "U"])
        reader = BatchReader(self.path, chosen.names, self._limits, self._pa)
        for group in range(file.metadata.num_row_groups):
            rows = self._group_rows(file, group, chosen, batch_rows, reader.rows)
            for batch in file.iter_batches(rows, row_groups=[group], columns=chosen.names, use_threads=False):
                yield from reader.blocks(batch)

    def _group_rows(self, file: Any, group: int, chosen: Chosen, batch_rows: int | None, start: int) -> int:
        """Rows to read at a time from a row group, by its first row, which tells how long all lists must be."""
        # Arrow's metadata of a column ends the process when it is damaged, unless a read of it has failed before.
        first = next(file.iter_batches(1, row_groups=[group], columns=chosen.names, use_threads=False), None)
        if first is None or not first.num_rows:
            return 1
        block = next(BatchReader(self.path, chosen.names, self._limits, self._pa, start).blocks(first))
        row_bytes = sum(array.nbytes for array in block.values())
        if row_bytes > self._limits.row:
            raise GdscoreError(
                f"Expected rows of at most {self._limits.row:,} bytes in {os.fspath(self.path)!r}, but they take "
                f"{row_bytes:,}: raise the limit with limits=Limits(row=...) if you trust the file"
            )
        metadata = file.metadata.row_group(group)
        for number in range(len(file.schema)):
            path = file.schema.column(number).path
            name = next((n for n in block if path.startswith(f"{n}.")), None)
            if name is None:
                continue
            column = metadata.column(number)
            expected = metadata.num_rows * max(1, math.prod(block[name].shape[1:]))
            # A small difference is left to reading, which names the row.
            if column.num_values - expected > BLOCK_BYTES // 8:
                raise GdscoreError(
                    f"Expected lists of one length in column {name!r} of {os.fspath(self.path)!r}, but the "
                    f"{metadata.num_rows} rows of row group {group} hold {column.num_values} numbers where the first "
                    f"has {math.prod(block[name].shape[1:])}: write the file again"
                )
        return batch_rows or default_rows(row_bytes)


@contextlib.contextmanager
def open_parquet(path: Path, limits: Limits) -> Iterator[ParquetTable]:
    """Open a Parquet file."""
    pa = pyarrow("Parquet")
    with contextlib.ExitStack() as stack:
        with decoding(path, "a Parquet file"):
            handle = stack.enter_context(pa.OSFile(os.fspath(path), "rb"))
            table = ParquetTable(path, handle, limits)
        yield table


def write_parquet(path: PathLike, parts: Iterable[Block], class_names: tuple[str, ...] | None) -> None:
    """Write rows as they come: matrices as lists of fixed size, in row groups of some megabytes."""
    pa = pyarrow("Parquet")
    import pyarrow.parquet as pq

    with atomic(path) as file, contextlib.ExitStack() as stack:
        writer = None
        for block in _regrouped(parts):
            batch = pa.record_batch({name: _to_arrow(array, pa) for name, array in block.items()})
            if class_names is not None:
                batch = batch.replace_schema_metadata({"gdscore.class_names": json.dumps(class_names)})
            if writer is None:
                options = {"use_dictionary": False, "write_page_checksum": True}
                writer = stack.enter_context(pq.ParquetWriter(file, batch.schema, **options))
            writer.write_batch(batch)


def _regrouped(parts: Iterable[Block]) -> Iterator[Block]:
    """Cut and join parts to blocks of about `BLOCK_BYTES`, copied, as a loader may fill the same arrays again."""
    held: list[Block] = []
    size = 0
    for part in parts:
        rows = len(next(iter(part.values())))
        step = max(1, BLOCK_BYTES * rows // sum(array.nbytes for array in part.values()))
        for start in range(0, rows, step):
            held.append({name: array[start : start + step].copy() for name, array in part.items()})
            size += sum(array.nbytes for array in held[-1].values())
            if size >= BLOCK_BYTES:
                yield _joined(held)
                held, size = [], 0
    if held:
        yield _joined(held)


def _joined(held: list[Block]) -> Block:
    return {name: np.concatenate([block[name] for block in held]) for name in held[0]}


def _to_arrow(array: NDArray[Any], pa: Any) -> Any:
    if array.ndim == 1:
        return pa.array(array)
    return pa.FixedSizeListArray.from_arrays(pa.array(array.reshape(-1)), array[0].size)
