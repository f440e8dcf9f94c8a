"""Blocks of rows, which all kinds of files are read in: joined, cut, and described."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from gdscore._files import Limits
from gdscore.io.columns import Chosen, ColumnType

Block: TypeAlias = dict[str, NDArray[Any]]
"""Some rows: arrays by the names of the columns."""

BLOCK_BYTES = 12 << 20
T = TypeVar("T")


class Table:
    """An open file of rows, which are read once, while it is open."""

    class_names: tuple[str, ...] | None = None  # where the file has them beside its rows
    threshold: float | None = None  # what the rows were decided by, where the file has it

    def __init__(self, path: Path, names: list[str], limits: Limits) -> None:
        self.names, self.limits = names, limits  # names of all columns, in order; one may be there twice
        self.path, self.where = path, repr(os.fspath(path))

    def describe(self, name: str) -> ColumnType:
        """Type of a column."""
        raise NotImplementedError

    def count_rows(self, chosen: Chosen) -> int | None:
        """Rows, or None where only reading them all would tell."""

    def blocks(self, chosen: Chosen, batch_rows: int | None) -> Iterator[Block]:
        """Chosen columns, in blocks of at most so many rows, or of about `BLOCK_BYTES`."""
        raise NotImplementedError


def default_rows(row_bytes: int) -> int:
    """Rows that make a block of about `BLOCK_BYTES`."""
    return max(1, BLOCK_BYTES // max(row_bytes, 1))


def rebatched(pieces: Iterable[Block], batch_rows: int | None) -> Iterator[Block]:
    """Join and cut pieces to blocks of ``batch_rows`` rows, or to the default of the first piece.

    A block is cut earlier where its text would take more than a few blocks' memory: NumPy gives every string of an
    array the space of the longest.
    """
    held: list[Block] = []
    for piece in pieces:
        rows = _count(piece)
        if not rows:
            continue
        batch_rows = batch_rows or default_rows(sum(array.nbytes for array in piece.values()) // rows)
        start = 0
        while start < rows:
            waiting = sum(map(_count, held))
            stop = min(rows, start + batch_rows - waiting)
            part = {name: array[start:stop] for name, array in piece.items()}
            if held and _text_bytes([*held, part]) > 4 * BLOCK_BYTES:
                yield joined_blocks(held)
                held = []
                continue
            held.append(part)
            start = stop
            if waiting + _count(part) == batch_rows:
                yield joined_blocks(held)
                held = []
    if held:
        yield joined_blocks(held)


def guarded(blocks: Iterator[T], context: Callable[[], AbstractContextManager[None]]) -> Iterator[T]:
    """Make each block within a context of its own, which does not see what the caller does with the block."""
    while True:
        with context():
            block = next(blocks, None)
        if block is None:
            return
        yield block


def joined_blocks(held: list[Block]) -> Block:
    """Rows of all blocks, one after the other."""
    if len(held) == 1:
        return held[0]
    return {name: np.concatenate([block[name] for block in held]) for name in held[0]}


def layout(arrays: Mapping[str, NDArray[Any]], *, exact: bool) -> dict[str, str]:
    """What every batch of a stream must have in common, by array, ``exact`` with its types of numbers."""
    words = {}
    for name, array in arrays.items():
        numbers = str(array.dtype) if exact else "numbers"
        columns = " × ".join(map(str, array.shape[1:])) or "1"
        words[name] = f"{columns} {'text' if array.dtype.kind == 'U' else numbers}"
    return words


def _count(block: Block) -> int:
    return len(next(iter(block.values())))


def _text_bytes(held: list[Block]) -> int:
    rows = sum(map(_count, held))
    return rows * sum(
        max(block[name].dtype.itemsize for block in held) for name, array in held[0].items() if array.dtype.kind == "U"
    )
