"""Reading `Outputs` batch by batch, from one file or many.

Requirements met here:

- memory depends on the size of a batch, never on that of a file;
- names, types and the number of rows are checked when the stream is made, values when their batch comes;
- a message names the file and the row in it, counted from 0;
- a file is open only while its rows are read, also when the stream is dropped half-way.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast

from gdscore.errors import GdscoreError
from gdscore.files import PathLike
from gdscore.io.npz import open_npz_table
from gdscore.io.parquet import open_parquet_table
from gdscore.io.progress import progress_bar
from gdscore.io.table import SUFFIXES, Block, Table, layout
from gdscore.outputs import Outputs

__all__ = ["files_of", "read_outputs"]


def read_outputs(
    source: PathLike | Iterable[PathLike], *, batch_rows: int | None = None, progress: bool | None = None
) -> Iterator[Outputs]:
    """Stream what a classifier said from ``.npz`` or Parquet files, in constant memory.

    Arrays or columns are named as the arguments of `Outputs`, with ``label`` and ``id`` for ``labels`` and ``ids``;
    others are ignored. In Parquet a matrix is a column of lists, one per row; ``rotation_logits`` are lists of 16
    or 4 lists of 4. Rows come in the order of the files. Arrays from Parquet are Arrow's own and cannot be written to.

    Parameters
    ----------
    source : path, or list of paths
        An ``.npz`` or ``.parquet`` file; a folder, for all Parquet files in and below it by name; or a pattern such
        as ``"part-*.npz"``, for the files of both kinds that it matches.
    batch_rows : int, optional
        Rows per batch at most; by default as many as make about 12 MB.
    progress : bool, optional
        Show a bar on standard error; by default where that is a terminal.

    Returns
    -------
    iterator of Outputs
        NumPy arrays.

    Examples
    --------
    >>> import tempfile, pathlib, numpy as np
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> np.savez(folder / "a.npz", logits=np.zeros((5, 3)), label=np.arange(5) % 3)
    >>> for batch in read_outputs(folder / "*.npz", batch_rows=4):
    ...     print(batch)
    Outputs(logits (4, 3), labels (4,); numpy float64)
    Outputs(logits (1, 3), labels (1,); numpy float64)
    """
    if batch_rows is not None and (isinstance(batch_rows, bool) or not isinstance(batch_rows, int) or batch_rows < 1):
        raise GdscoreError(f"Expected `batch_rows` to be an integer of at least 1 or None, but got {batch_rows!r}")
    paths = _files(source)
    rows, first = 0, None
    for path in paths:
        with _open(path) as table:
            rows += table.rows
            if table.rows:
                first = first or table
                _require_same(dict.fromkeys(first.names, ""), first.path, dict.fromkeys(table.names, ""), path)
    if not rows:
        raise GdscoreError(f"Expected at least one row in {_shown(paths)}, but all are empty")
    return _stream(paths, batch_rows, rows, progress)


def _stream(paths: list[Path], batch_rows: int | None, rows: int, progress: bool | None) -> Iterator[Outputs]:
    expected: tuple[dict[str, str], Path] | None = None
    with progress_bar(rows, progress) as advance:
        for path in paths:
            with _open(path) as table:
                start = 0
                for block in table.blocks(batch_rows):
                    out = _outputs(block, path, start)
                    found = layout(block, exact=False)
                    expected = expected or (found, path)
                    _require_same(*expected, found, path)
                    start += len(out)
                    yield out
                    advance(len(out))
                if start != table.rows:
                    raise GdscoreError(
                        f"Expected {table.rows} rows in {os.fspath(path)!r}, but got {start}: the file is damaged, "
                        "write it again"
                    )


def _outputs(block: Block, path: Path, start: int) -> Outputs:
    rotation = block.get("rotation_logits")
    if rotation is not None and rotation.shape[1:] == (16,):
        block["rotation_logits"] = rotation.reshape(-1, 4, 4)
    try:
        return Outputs(**cast("dict[str, Any]", block))
    except GdscoreError as error:
        # Rows are numbered within the batch there, within the file here.
        said, found = re.subn(
            r"in row (\d+).*$", lambda match: f"in row {start + int(match[1])} of {os.fspath(path)!r}", str(error)
        )
        raise GdscoreError(said if found else f"{said} in {os.fspath(path)!r}") from error


def _require_same(expected: dict[str, str], first: Path, found: dict[str, str], path: Path) -> None:
    if found != expected:
        raise GdscoreError(
            f"Expected all files to hold the same, but {os.fspath(first)!r} has {_worded(expected)} "
            f"and {os.fspath(path)!r} has {_worded(found)}"
        )


def _worded(contents: dict[str, str]) -> str:
    return ", ".join(f"`{name}` {what}".rstrip() for name, what in sorted(contents.items()))


def _open(path: Path) -> AbstractContextManager[Table]:
    return open_npz_table(path) if path.suffix.lower() == ".npz" else open_parquet_table(path)


# -- which files ----------------------------------------------------------------------------------------------


def _files(source: PathLike | Iterable[PathLike]) -> list[Path]:
    if isinstance(source, str | os.PathLike):
        return files_of(source)
    if not isinstance(source, Iterable) or isinstance(source, bytes):
        raise GdscoreError(f"Expected a path, a pattern or a list of them, but got {type(source).__name__}")
    listed = list(source)
    for item in listed:
        if not isinstance(item, str | os.PathLike):
            raise GdscoreError(f"Expected a list of paths or patterns, but got {type(item).__name__} in it")
    if not listed:
        raise GdscoreError("Expected at least one path, but got an empty list")
    return [path for item in listed for path in files_of(item)]


def files_of(source: PathLike) -> list[Path]:
    """Files that a path, a folder or a pattern stands for, in the order they are read in."""
    path = Path(source)
    if path.is_dir():
        return _in_folder(path)
    if not path.exists() and glob.has_magic(os.fspath(source)):
        # Path.glob takes no absolute pattern.
        matches = [Path(match) for match in sorted(glob.glob(os.fspath(source), recursive=True))]  # noqa: PTH207
        found = [match for match in matches if match.is_file() and match.suffix.lower() in SUFFIXES]
        if not found:
            raise GdscoreError(
                f"Expected the pattern {os.fspath(source)!r} to match {' or '.join(SUFFIXES)} files, but it matches "
                f"{f'only other things, such as {os.fspath(matches[0])!r}' if matches else 'nothing'}"
            )
        return found
    if not path.exists():
        raise GdscoreError(f"Expected a file or folder {os.fspath(source)!r}, but there is none: check the name")
    if path.suffix.lower() not in SUFFIXES:
        raise GdscoreError(f"Expected a file that ends in {' or '.join(SUFFIXES)}, but got {os.fspath(source)!r}")
    return [path]


def _in_folder(folder: Path) -> list[Path]:
    # Names with a leading dot or underscore are what writers leave beside their data.
    found = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() == ".parquet"
        and path.is_file()
        and not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
    )
    if not found:
        raise GdscoreError(
            f"Expected Parquet files in the folder {os.fspath(folder)!r}, but found none"
            f" (for .npz files give the pattern {os.fspath(folder / '*.npz')!r})"
        )
    return found


def _shown(paths: list[Path]) -> str:
    return repr(os.fspath(paths[0])) + (f" and {len(paths) - 1} more files" if len(paths) > 1 else "")
