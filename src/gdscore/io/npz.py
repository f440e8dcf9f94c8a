"""Rows of an ``.npz``, block by block: only Fortran-ordered arrays are ever held whole."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from gdscore.errors import GdscoreError
from gdscore.files import ArrayMember, PathLike, open_npz, write_arrays
from gdscore.io.table import MATRICES, Block, Table, default_rows, known_names

__all__ = ["open_npz_table", "write_npz"]


@contextlib.contextmanager
def open_npz_table(path: Path) -> Iterator[Table]:
    """Open an ``.npz`` with arrays named as the arguments of `Outputs`."""
    with open_npz(path) as archive:
        known = known_names((name.removesuffix(".npy") for name in archive.namelist()), path)
        members = {name: ArrayMember(archive, f"{entry}.npy", path) for name, entry in known.items()}
        for member in members.values():
            _check_member(member, path)
        first, *others = members.values()
        for member in others:
            if member.shape[0] != first.shape[0]:
                raise GdscoreError(
                    f"Expected arrays of as many rows in {os.fspath(path)!r}, but `{first.name}` has {first.shape[0]} "
                    f"and `{member.name}` has {member.shape[0]}"
                )
        rows = first.shape[0]

        def blocks(batch_rows: int | None) -> Iterator[Block]:
            batch_rows = batch_rows or default_rows(
                sum(member.dtype.itemsize * math.prod(member.shape[1:]) for member in members.values())
            )
            whole = {name: member.read() for name, member in members.items() if member.fortran_order}
            for start in range(0, rows, batch_rows):
                stop = min(start + batch_rows, rows)
                yield {
                    name: whole[name][start:stop] if name in whole else member.read(stop - start)
                    for name, member in members.items()
                }

        yield Table(path, frozenset(members), rows, blocks)


def _check_member(member: ArrayMember, path: Path) -> None:
    matrix = member.name in MATRICES
    kinds, wanted = ("f", "floating-point numbers") if matrix else ("iu", "integers")
    if member.name in ("id", "ids"):
        kinds, wanted = "iuU", "integers or strings"
    if member.dtype.kind not in kinds or not member.shape:
        raise GdscoreError(
            f"Expected `{member.name}` in {os.fspath(path)!r} to be an array of {wanted}, one per row"
            f"{' and column' if matrix else ''}, but got {member.dtype} of shape {member.shape}"
        )


def write_npz(path: PathLike, parts: Iterable[Block]) -> None:
    """Write rows as one ``.npz``; they are held in memory, as the header of an array comes before its rows."""
    # Copied, as the caller's loader may fill the same arrays again.
    held = [{name: array.copy() for name, array in part.items()} for part in parts]
    write_arrays(path, {name: np.concatenate([part[name] for part in held]) for name in held[0]})
