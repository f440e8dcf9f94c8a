"""What the two kinds of files have in common: the names of the arrays, and a table that gives them block by block."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from numpy.typing import NDArray

from gdscore.errors import GdscoreError

__all__ = ["BLOCK_BYTES", "MATRICES", "SUFFIXES", "Block", "Table", "default_rows", "known_names", "layout"]

Block: TypeAlias = dict[str, NDArray[Any]]
"""Some rows: arrays by the names that `Outputs` gives them."""

SUFFIXES = (".npz", ".parquet")
MATRICES = ("logits", "probabilities", "features", "peer_logits", "batch_logits", "rotation_logits")
BLOCK_BYTES = 12 << 20

_NAMES = {**{name: name for name in (*MATRICES, "labels", "ids")}, "label": "labels", "id": "ids"}


@dataclass(frozen=True)
class Table:
    """What is known of an open file before its rows are read."""

    path: Path
    names: frozenset[str]
    rows: int
    blocks: Callable[[int | None], Iterator[Block]]
    """Rows in order, in blocks of at most so many, or of about `BLOCK_BYTES`; once, while the file is open."""


def default_rows(row_bytes: int) -> int:
    """Rows that make a block of about `BLOCK_BYTES`."""
    return max(1, BLOCK_BYTES // max(row_bytes, 1))


def known_names(found: Iterable[str], path: Path) -> dict[str, str]:
    """Map the names that `Outputs` uses to those in the file; a file that offers none, or two for one, is refused."""
    names = list(found)
    known: dict[str, str] = {}
    for name in names:
        ours = _NAMES.get(name)
        if ours in known:
            raise GdscoreError(
                f"Expected one `{ours}` in {os.fspath(path)!r}, but got both {known[ours]!r} and {name!r}: drop one"
            )
        if ours is not None:
            known[ours] = name
    if not known.keys() & set(MATRICES):
        listed = ", ".join(map(repr, names[:12])) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
        raise GdscoreError(
            f"Expected at least one of {', '.join(map(repr, MATRICES))} in {os.fspath(path)!r}, "
            f"but found {listed or 'nothing'}: rename what holds them"
        )
    if "logits" in known and "probabilities" in known:
        raise GdscoreError(
            f"Expected 'logits' or 'probabilities' in {os.fspath(path)!r}, but got both: keep 'logits', they say more"
        )
    return known


def layout(block: Block, *, exact: bool) -> dict[str, str]:
    """Word what every block of a stream must have in common, ``exact`` with its types of numbers."""
    words = {}
    for name, array in block.items():
        numbers = str(array.dtype) if exact else "numbers"
        columns = " × ".join(map(str, array.shape[1:])) or "1"
        words[name] = f"{columns} {'text' if array.dtype.kind == 'U' else numbers}"
    return words
