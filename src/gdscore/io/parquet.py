"""Rows of a Parquet file, block by block, and back: Arrow's buffers become NumPy arrays without a loop over rows.

A matrix is a column of lists, one per row: of fixed size, or of varying size that never varies. Pages are read as
they are needed, so that memory does not grow with the size of a row group either.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore.errors import GdscoreError
from gdscore.files import PathLike, atomic
from gdscore.io.table import BLOCK_BYTES, MATRICES, Block, Table, default_rows, known_names

__all__ = ["open_parquet_table", "write_parquet"]

_READ_AHEAD = 1 << 20


@contextlib.contextmanager
def open_parquet_table(path: Path) -> Iterator[Table]:
    """Open a Parquet file with columns named as the arguments of `Outputs`; the others are not read."""
    pa, pq = _pyarrow()
    with contextlib.ExitStack() as stack:
        with _decoding(path, pa):
            handle = stack.enter_context(pa.OSFile(os.fspath(path), "rb"))
            file = pq.ParquetFile(handle, buffer_size=_READ_AHEAD, pre_buffer=False, page_checksum_verification=True)
            schema = file.schema_arrow
            known = known_names(schema.names, path)
            for name, column in known.items():
                _check_type(name, column, schema.field(column).type, path, pa)

        def batches(batch_rows: int) -> Iterator[Block]:
            widths: dict[str, list[int]] = {name: [] for name in known}
            read = file.iter_batches(batch_rows, columns=list(known.values()), use_threads=False)
            start = 0
            while True:
                with _decoding(path, pa):
                    batch = next(read, None)
                if batch is None:
                    return
                if not batch.num_rows:
                    continue
                with _decoding(path, pa):
                    block = {
                        name: _to_numpy(batch.column(c), f"`{c}` in {os.fspath(path)!r}", start, widths[name], pa)
                        for name, c in known.items()
                    }
                start += batch.num_rows
                yield block

        def blocks(batch_rows: int | None) -> Iterator[Block]:
            # Lengths of lists are known from a row only; Arrow's metadata of columns ends the process when damaged.
            first = next(batches(1), None) if batch_rows is None else None
            return batches(batch_rows or default_rows(sum(array.nbytes for array in (first or {}).values())))

        yield Table(path, frozenset(known), file.metadata.num_rows, blocks)


def write_parquet(path: PathLike, parts: Iterable[Block]) -> None:
    """Write rows as they come: matrices as lists of fixed size, in row groups of some megabytes."""
    pa, pq = _pyarrow()
    with atomic(path) as file, contextlib.ExitStack() as stack:
        writer = None
        for block in _regrouped(parts):
            batch = pa.record_batch({name: _to_arrow(array, pa) for name, array in block.items()})
            if writer is None:
                options = {"use_dictionary": False, "write_page_checksum": True}
                writer = stack.enter_context(pq.ParquetWriter(file, batch.schema, **options))
            writer.write_batch(batch)


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise GdscoreError(
            'Expected pyarrow to be installed for Parquet files, but it is not: pip install "gdscore[parquet]"'
        ) from error
    return pa, pq


@contextlib.contextmanager
def _decoding(path: Path, pa: Any) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise GdscoreError(f"Expected a file {os.fspath(path)!r}, but there is none: check the name") from error
    except (pa.ArrowException, OSError, UnicodeError) as error:
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        raise GdscoreError(
            f"Expected {os.fspath(path)!r} to be a Parquet file, but it is truncated, damaged or of another kind "
            f"({reason}): write the file again"
        ) from error


# -- Arrow to NumPy -------------------------------------------------------------------------------------------


def _unwrapped(kind: Any, pa: Any) -> Any:
    if isinstance(kind, pa.BaseExtensionType):
        return kind.storage_type
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_list(kind: Any, pa: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _check_type(name: str, column: str, kind: Any, path: Path, pa: Any) -> None:
    leaf, depth = _unwrapped(kind, pa), 0
    while _is_list(leaf, pa):
        leaf, depth = _unwrapped(leaf.value_type, pa), depth + 1
    integer, text = pa.types.is_integer(leaf), pa.types.is_string(leaf) or pa.types.is_large_string(leaf)
    if name in MATRICES:
        depths = {"probabilities": (0, 1), "rotation_logits": (1, 2)}.get(name, (1,))
        fine, wanted = pa.types.is_floating(leaf) and depth in depths, "a list of floating-point numbers per row"
    elif name == "labels":
        fine, wanted = integer and depth == 0, "an integer per row"
    else:
        fine, wanted = (integer or text) and depth == 0, "an integer or a string per row"
    if not fine:
        raise GdscoreError(f"Expected `{column}` in {os.fspath(path)!r} to be {wanted}, but its type is {kind}")


def _to_numpy(array: Any, what: str, start: int, widths: list[int], pa: Any) -> NDArray[Any]:
    """Turn a column into an array with an axis for each level of lists.

    ``widths`` has the lengths of the lists as the file's first row has them, and is filled by it.
    """
    rows, each, level = len(array), 1, 0
    while True:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        if isinstance(array, pa.DictionaryArray):
            array = array.dictionary_decode()
        if array.null_count:
            row = start + int(array.is_null().to_numpy(zero_copy_only=False).argmax()) // each
            raise GdscoreError(f"Expected a value everywhere in {what}, but row {row} has a null: fill or drop it")
        if not _is_list(array.type, pa):
            break
        if isinstance(array, pa.FixedSizeListArray):
            lengths = np.array([array.type.list_size])
        else:
            lengths = np.diff(array.offsets.to_numpy())
        if level == len(widths):
            widths.append(int(lengths[0]) if len(lengths) else 0)
        other = lengths != widths[level]
        if other.any():
            at = int(other.argmax())
            raise GdscoreError(
                f"Expected lists of one length in {what}, but row {start + at // each} has {lengths[at]} entries "
                f"where the rows before have {widths[level]}"
            )
        array = array.flatten()
        each, level = each * widths[level], level + 1
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        return np.asarray(array.to_numpy(zero_copy_only=False), dtype=np.str_)
    values: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values.reshape(rows, *widths)


# -- NumPy to Arrow -------------------------------------------------------------------------------------------


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
