"""Rows of an ``.npz``, block by block: only Fortran-ordered arrays are ever held completely."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from gdscore._files import Archive, ArrayMember, Limits, PathLike, open_archive, write_arrays
from gdscore.errors import GdscoreError
from gdscore.io.blocks import Block, default_rows
from gdscore.io.columns import Chosen, ColumnType, check_row_bytes, too_long
from gdscore.outputs import checked_threshold

_CLASS_NAMES, _THRESHOLD = "class_names", "threshold"


class NpzTable:
    """Arrays of an ``.npz`` as columns; their first axis is the rows."""

    def __init__(self, path: Path, archive: Archive, limits: Limits) -> None:
        self.path, self._archive, self._limits = path, archive, limits
        self.names = [name for name in archive.names if name not in (_CLASS_NAMES, _THRESHOLD)]
        self._members: dict[str, ArrayMember] = {}
        self.class_names: tuple[str, ...] | None = None
        if _CLASS_NAMES in archive.names:
            names = ArrayMember(archive, _CLASS_NAMES)
            archive.check_memory([names])
            if names.dtype.kind != "U" or len(names.shape) != 1:
                raise GdscoreError(
                    f"Expected `{_CLASS_NAMES}` in {os.fspath(path)!r} to be a list of strings, but got {names.dtype} "
                    f"of shape {names.shape}"
                )
            self.class_names = tuple(names.read().tolist())
        self.threshold: float | None = None
        if _THRESHOLD in archive.names:
            threshold = ArrayMember(archive, _THRESHOLD)
            if threshold.dtype.kind != "f" or threshold.shape not in ((), (1,)):
                raise GdscoreError(
                    f"Expected `{_THRESHOLD}` in {os.fspath(path)!r} to be one number, but got {threshold.dtype} of "
                    f"shape {threshold.shape}"
                )
            self.threshold = checked_threshold(float(threshold.read().reshape(())))

    def describe(self, name: str) -> ColumnType:
        """Type of an array, from its header."""
        member = self._member(name)
        kind = "i" if member.dtype.kind == "u" else member.dtype.kind
        return ColumnType(
            kind if member.shape else "other", len(member.shape) - 1, f"{member.dtype} of shape {member.shape}"
        )

    def count_rows(self, chosen: Chosen) -> int:
        """Rows, the same in all chosen arrays."""
        members = [self._member(name) for name in chosen.names]
        first = members[0]
        for member in members:
            if member.shape[0] != first.shape[0]:
                raise GdscoreError(
                    f"Expected arrays of as many rows in {os.fspath(self.path)!r}, but `{first.name}` has "
                    f"{first.shape[0]} and `{member.name}` has {member.shape[0]}"
                )
        for member in members:
            if member.dtype.kind == "U" and member.dtype.itemsize > 4 * self._limits.text:
                raise too_long(member.name, member.dtype.itemsize // 4, repr(os.fspath(self.path)), self._limits)
        check_row_bytes(sum(member.row_bytes for member in members), repr(os.fspath(self.path)), self._limits)
        return first.shape[0]

    def blocks(self, chosen: Chosen, batch_rows: int | None) -> Iterator[Block]:
        """Rows in order."""
        rows = self.count_rows(chosen)
        members = {name: self._member(name) for name in chosen.names}
        batch_rows = batch_rows or default_rows(sum(member.row_bytes for member in members.values()))
        held = {name: member for name, member in members.items() if member.fortran_order}
        self._archive.check_memory(list(held.values()))
        columns = {name: member.read() for name, member in held.items()}
        for start in range(0, rows, batch_rows):
            stop = min(start + batch_rows, rows)
            yield {
                name: columns[name][start:stop] if name in columns else member.read(stop - start)
                for name, member in members.items()
            }

    def _member(self, name: str) -> ArrayMember:
        if name not in self._members:
            self._members[name] = ArrayMember(self._archive, name)
        return self._members[name]


@contextlib.contextmanager
def open_npz(path: Path, limits: Limits) -> Iterator[NpzTable]:
    """Open an ``.npz``."""
    with open_archive(path, limits) as archive:
        yield NpzTable(path, archive, limits)


def write_npz(
    path: PathLike,
    parts: Iterable[Block],
    class_names: tuple[str, ...] | None = None,
    threshold: float | None = None,
) -> None:
    """Write rows as one ``.npz``; they are held in memory, as the header of an array comes before its rows."""
    # Copied, as the caller's loader may fill the same arrays again.
    held = [{name: array.copy() for name, array in part.items()} for part in parts]
    arrays = {name: np.concatenate([part[name] for part in held]) for name in held[0]}
    arrays |= {} if class_names is None else {_CLASS_NAMES: np.array(class_names)}
    write_arrays(path, arrays | ({} if threshold is None else {_THRESHOLD: np.array(threshold)}))
