"""Blocks of rows of Parquet, Feather and Arrow files.

Record batches of Arrow become NumPy arrays without a loop over rows, and back.

A matrix is a column of lists of one length, whether the type of the column fixes the length or not. Pages of a Parquet
file are read as they are needed, so that memory does not grow with the size of a row group either. How many values the
lists of a row group hold is known from its metadata: it is compared with the first row before more rows are read.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from gdscore._files import DEFAULT_LIMITS, Limits, PathLike, atomic
from gdscore.errors import GdscoreError
from gdscore.io.blocks import BLOCK_BYTES, Block, Table, default_rows, guarded, joined_blocks, rebatched
from gdscore.io.columns import Chosen, ColumnType, check_row_bytes, missing, too_long
from gdscore.outputs import checked_threshold

_READ_AHEAD = 1 << 20


def open_file(path: Path) -> Any:
    """Open a file by its name as the system has it, which need not be UTF-8."""
    return pa.OSFile(os.fsencode(path), "rb")


@contextlib.contextmanager
def decoding(path: Path, kind: str) -> Iterator[None]:
    """Give what Arrow raises about a damaged or foreign file as one error."""
    try:
        yield
    except GdscoreError:
        raise
    except FileNotFoundError as error:
        raise GdscoreError(f"Expected a file {os.fspath(path)!r}, but there is none: check the name") from error
    # What Arrow's Python layer raises for damaged bytes is not documented: KeyError and MemoryError are among it.
    except Exception as error:
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        raise GdscoreError(
            f"Expected {os.fspath(path)!r} to be {kind}, but it is truncated, damaged or of another kind "
            f"({reason[:200]}): write the file again"
        ) from error


def column_type(kind: Any) -> ColumnType:
    """Type of a column of Arrow."""
    leaf, depth = _unwrapped(kind), 0
    while _is_list(leaf):
        leaf, depth = _unwrapped(leaf.value_type), depth + 1
    kinds = {
        "f": pa.types.is_floating(leaf) or pa.types.is_decimal(leaf),
        "i": pa.types.is_integer(leaf),
        "b": pa.types.is_boolean(leaf),
        "U": _is_text(leaf),
        "t": pa.types.is_timestamp(leaf) or pa.types.is_date(leaf),
    }
    zoned = leaf.tz is not None if pa.types.is_timestamp(leaf) else None
    return ColumnType(next((name for name, fits in kinds.items() if fits), "other"), depth, str(kind), zoned)


def stored_in(metadata: Any, where: str) -> tuple[tuple[str, ...] | None, float | None]:
    """Names of classes and threshold that `write_outputs` put into the schema, None where it has none."""
    metadata = metadata or {}
    try:
        names = json.loads(metadata.get(b"gdscore.class_names", "null"))
        threshold = json.loads(metadata.get(b"gdscore.threshold", "null"))
        if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
            raise ValueError("other than names")
        threshold = None if threshold is None else checked_threshold(threshold)
        return None if names is None else tuple(names), threshold
    except (ValueError, RecursionError) as error:
        raise GdscoreError(
            f"Expected names of classes and a threshold in the schema of {where}, but they are damaged"
        ) from error


class RecordBatchReader:
    """Turns the record batches of one table, in order, into blocks; ``where`` names the table in messages."""

    def __init__(self, where: str, names: Sequence[str], limits: Limits, start: int = 0) -> None:
        self.rows = start
        self._names, self._limits, self._where = names, limits, where
        self._widths: dict[str, list[int]] = {name: [] for name in names}

    def blocks(self, batch: Any) -> Iterator[Block]:
        """Columns of a batch; several blocks where text would take much more memory than in Arrow."""
        columns = {name: _without_views(batch.column(name)) for name in self._names}
        longest = sum(self._longest(name, column) for name, column in columns.items())
        step = max(1, BLOCK_BYTES // (4 * longest)) if longest else batch.num_rows
        for start in range(0, batch.num_rows, step):
            yield {name: self._array(name, column.slice(start, step)) for name, column in columns.items()}
            self.rows += min(step, batch.num_rows - start)

    def row(self, position: Any) -> str:
        """Name a row of the batch that is read."""
        return f"row {self.rows + int(position)} of {self._where}"

    def _longest(self, name: str, array: Any) -> int:
        """Characters of the longest text in a column, 0 for a column of something else."""
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        text = array.dictionary if isinstance(array, pa.DictionaryArray) else array
        if not _is_text(text.type) or not len(text):
            return 0
        import pyarrow.compute as pc

        longest = pc.max(pc.utf8_length(text)).as_py() or 0
        if longest > self._limits.text:
            raise too_long(name, longest, self._where, self._limits)
        return int(longest)

    def _array(self, name: str, array: Any) -> NDArray[Any]:
        """Turn a column into an array with an axis for each level of lists, all as long as in the first row."""
        widths = self._widths[name]
        rows, each, level = len(array), 1, 0
        while True:
            if isinstance(array, pa.ExtensionArray):
                array = array.storage
            if isinstance(array, pa.DictionaryArray):
                array = array.dictionary_decode()
            if array.null_count:
                raise missing(name, self.row(array.is_null().to_numpy(zero_copy_only=False).argmax() // each))
            if not _is_list(array.type):
                break
            fixed = isinstance(array, pa.FixedSizeListArray)
            lengths = np.array([array.type.list_size]) if fixed else np.diff(array.offsets.to_numpy())
            if level == len(widths):
                widths.append(int(lengths[0]) if len(lengths) else 0)
            other = lengths != widths[level]
            if other.any():
                at = int(other.argmax())
                raise GdscoreError(
                    f"Expected lists of one length in column {name!r}, but {self.row(at // each)} has {lengths[at]} "
                    f"entries where the rows before have {widths[level]}"
                )
            array = array.flatten()
            each, level = each * widths[level], level + 1
        if pa.types.is_decimal(array.type):
            array = array.cast(pa.float64())
        if _is_text(array.type):
            return np.asarray(array.to_numpy(zero_copy_only=False), dtype=np.str_)
        values: NDArray[Any] = array.to_numpy(zero_copy_only=False)
        return values.reshape(rows, *widths)


def columns_of_batch(arrays: Mapping[str, Any], where: str) -> Block:
    """NumPy arrays of columns of Arrow."""
    reader = RecordBatchReader(where, list(arrays), DEFAULT_LIMITS)
    return joined_blocks(list(reader.blocks(pa.record_batch(dict(arrays)))))


class SchemaTable(Table):
    """Columns of a file with a schema of Arrow."""

    def __init__(self, path: Path, schema: Any, limits: Limits, kind: str) -> None:
        super().__init__(path, list(schema.names), limits)
        self._schema, self._kind = schema, kind
        self.class_names, self.threshold = stored_in(schema.metadata, self.where)

    def describe(self, name: str) -> ColumnType:
        """Type of a column."""
        return column_type(self._schema.field(name).type)

    def blocks(self, chosen: Chosen, batch_rows: int | None) -> Iterator[Block]:
        """Rows in order."""
        pieces = self._pieces(chosen, batch_rows)
        return rebatched(guarded(pieces, lambda: decoding(self.path, self._kind)), batch_rows)

    def _pieces(self, chosen: Chosen, batch_rows: int | None) -> Iterator[Block]:
        raise NotImplementedError


class ArrowTable(SchemaTable):
    """Record batches of a Feather or Arrow file, each held while its rows are read."""

    def __init__(self, path: Path, handle: Any, limits: Limits) -> None:
        stream = handle.read(6) != b"ARROW1"
        handle.seek(0)
        self._reader = (pa.ipc.open_stream if stream else pa.ipc.open_file)(handle)
        super().__init__(path, self._reader.schema, limits, "an Arrow file")

    def _pieces(self, chosen: Chosen, batch_rows: int | None) -> Iterator[Block]:
        reader = RecordBatchReader(self.where, chosen.names, self.limits)
        read = self._reader
        numbers = range(read.num_record_batches) if hasattr(read, "num_record_batches") else None
        for batch in read if numbers is None else map(read.get_batch, numbers):
            # Offsets of a damaged file may point outside of it, where reading ends the process.
            batch.validate(full=True)
            size = batch.get_total_buffer_size()
            if size > self.limits.memory:
                raise GdscoreError(
                    f"Expected record batches of at most {self.limits.memory:,} bytes in {self.where}, "
                    f"but one has {size:,}: write smaller ones, or raise the limit with "
                    "limits=Limits(memory=...)"
                )
            yield from reader.blocks(batch)


class ParquetTable(SchemaTable):
    """Columns of a Parquet file."""

    def __init__(self, path: Path, handle: Any, limits: Limits) -> None:
        self._handle = handle
        self._file = self._opened([])
        super().__init__(path, self._file.schema_arrow, limits, "a Parquet file")

    def count_rows(self, chosen: Chosen) -> int:
        """Rows of the file, by its metadata."""
        return int(self._file.metadata.num_rows)

    def _opened(self, text: list[str]) -> Any:
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
        reader = RecordBatchReader(self.where, chosen.names, self.limits)
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
        block = next(RecordBatchReader(self.where, chosen.names, self.limits, start).blocks(first))
        row_bytes = sum(array.nbytes for array in block.values())
        check_row_bytes(row_bytes, self.where, self.limits)
        metadata = file.metadata.row_group(group)
        lists = {name for name, array in block.items() if array.ndim > 1}
        for number in range(len(file.schema)) if lists else ():
            path = file.schema.column(number).path
            # Names may have dots themselves.
            name = next((path[:end] for end, sign in enumerate(path) if sign == "." and path[:end] in lists), None)
            if name is None:
                continue
            column = metadata.column(number)
            expected = metadata.num_rows * max(1, math.prod(block[name].shape[1:]))
            # A small difference is left to reading, which names the row.
            if column.num_values - expected > BLOCK_BYTES // 8:
                raise GdscoreError(
                    f"Expected lists of one length in column {name!r} of {self.where}, but the "
                    f"{metadata.num_rows} rows of row group {group} hold {column.num_values} numbers where the first "
                    f"has {math.prod(block[name].shape[1:])}: write the file again"
                )
        return batch_rows or default_rows(row_bytes)


@contextlib.contextmanager
def open_table(path: Path, limits: Limits, kind: str) -> Iterator[SchemaTable]:
    """Open a file of the kind "Parquet", or "Arrow" for Feather files, Arrow files and streams."""
    with contextlib.ExitStack() as stack:
        with decoding(path, "a Parquet file" if kind == "Parquet" else "an Arrow file"):
            handle = stack.enter_context(open_file(path))
            table = (ParquetTable if kind == "Parquet" else ArrowTable)(path, handle, limits)
        yield table


def write_parquet(
    path: PathLike,
    parts: Iterable[Block],
    class_names: tuple[str, ...] | None = None,
    threshold: float | None = None,
) -> None:
    """Write rows as they come: matrices as lists of fixed size, in row groups of some megabytes."""
    metadata = {} if class_names is None else {"gdscore.class_names": json.dumps(class_names)}
    metadata |= {} if threshold is None else {"gdscore.threshold": repr(threshold)}
    with atomic(path) as file, contextlib.ExitStack() as stack:
        writer = None
        for block in rebatched(_copies(parts), None):
            columns = {name: pa.array(array.reshape(-1)) for name, array in block.items()}
            lists = {
                n: pa.FixedSizeListArray.from_arrays(columns[n], a[0].size) for n, a in block.items() if a.ndim > 1
            }
            batch = pa.record_batch(columns | lists)
            if metadata:
                batch = batch.replace_schema_metadata(metadata)
            if writer is None:
                options = {"use_dictionary": False, "write_page_checksum": True}
                writer = stack.enter_context(pq.ParquetWriter(file, batch.schema, **options))
            writer.write_batch(batch)


def _copies(parts: Iterable[Block]) -> Iterator[Block]:
    """Parts in pieces of about `BLOCK_BYTES`, copied, as a loader may fill the same arrays again."""
    for part in parts:
        rows = len(next(iter(part.values())))
        step = default_rows(sum(array.nbytes for array in part.values()) // rows)
        for start in range(0, rows, step):
            yield {name: array[start : start + step].copy() for name, array in part.items()}


def _unwrapped(kind: Any) -> Any:
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_text(kind: Any) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _without_views(array: Any) -> Any:
    """Text as most functions of Arrow take it: polars writes views, of which they take none."""
    if isinstance(array, pa.DictionaryArray) and pa.types.is_string_view(array.type.value_type):
        return pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(pa.large_string()))
    return array.cast(pa.large_string()) if pa.types.is_string_view(array.type) else array
