"""Rows of an ``.npz``, block by block: only Fortran-ordered arrays are ever held completely."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore._files import Archive, ArrayMember, Limits, PathLike, open_archive, write_arrays
from gdscore.errors import GdscoreError
from gdscore.io.blocks import Block, Table, default_rows
from gdscore.io.columns import Chosen, ColumnType, check_row_bytes, too_long
from gdscore.outputs import checked_threshold

_CLASS_NAMES, _THRESHOLD = "class_names", "threshold"


class NpzTable(Table):
    """Arrays of an ``.npz`` as columns; their first axis is the rows."""

    def __init__(self, path: Path, archive: Archive, limits: Limits) -> None:
        super().__init__(path, [name for name in archive.names if name not in (_CLASS_NAMES, _THRESHOLD)], limits)
        self._archive, self._members = archive, dict[str, ArrayMember]()
        names = self._beside(_CLASS_NAMES, "U", 1, "a list of strings")
        self.class_names = None if names is None else tuple(names.tolist())
        threshold = self._beside(_THRESHOLD, "f", 0, "one number")
        try:
            self.threshold = None if threshold is None else checked_threshold(float(threshold))
        except GdscoreError as error:
            raise GdscoreError(f"{error} in {self.where}") from error

    def _beside(self, name: str, kind: str, dimensions: int, wanted: str) -> NDArray[Any] | None:
        """Array that is beside the rows, None where there is none."""
        if name not in self._archive.names:
            return None
        array = self._member(name)
        self._archive.check_memory([array])
        if array.dtype.kind != kind or len(array.shape) != dimensions:
            raise GdscoreError(
                f"Expected `{name}` in {self.where} to be {wanted}, but got {array.dtype} of shape {array.shape}"
            )
        return array.read()

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
                    f"Expected arrays of as many rows in {self.where}, but `{first.name}` has "
                    f"{first.shape[0]} and `{member.name}` has {member.shape[0]}"
                )
        for member in members:
            if member.dtype.kind == "U" and member.dtype.itemsize > 4 * self.limits.text:
                raise too_long(member.name, member.dtype.itemsize // 4, self.where, self.limits)
        check_row_bytes(sum(member.row_bytes for member in members), self.where, self.limits)
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
