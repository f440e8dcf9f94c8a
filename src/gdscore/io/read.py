"""Reading `Outputs` batch by batch, from one file or many.

Requirements met here:

- memory depends on the size of a batch, never on that of a file;
- names, types and the number of rows are checked when the stream is made, values when their batch comes;
- a message names the file and the row in it, counted from 0;
- a file is open only while its rows are read, also when the stream is dropped half-way.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from gdscore._checks import integer
from gdscore._paths import DEFAULT_LIMITS, Limits, PathLike
from gdscore._progress import progress_bar
from gdscore._stream import Batch
from gdscore.errors import GdscoreError, NoRowsError
from gdscore.io.arrow import open_arrow
from gdscore.io.cells import make_batch
from gdscore.io.columns import Chosen, Columns, check_types, choose_columns
from gdscore.io.csv import open_csv
from gdscore.io.find import find_files, kind_of
from gdscore.io.npz import open_npz
from gdscore.io.parquet import open_parquet
from gdscore.io.table import Table, layout
from gdscore.outputs import Outputs

__all__ = ["known_rows", "read_batches", "read_outputs"]

_DEFAULT_COLUMNS = Columns()
_OPENERS: dict[str, Callable[[Path, Limits], AbstractContextManager[Table]]] = {
    "npz": open_npz,
    "Parquet": open_parquet,
    "Arrow": open_arrow,
    "CSV": open_csv,
}


def read_outputs(
    source: PathLike | Iterable[PathLike],
    *,
    columns: Columns = _DEFAULT_COLUMNS,
    batch_rows: int | None = None,
    progress: bool | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Iterator[Outputs]:
    r"""Stream the outputs of a classifier from files, in constant memory.

    Reads ``.npz``, Parquet, Feather and Arrow files and CSV. Without ``columns``, arrays or columns are named as the
    arguments of `Outputs`, with ``label`` and ``id`` for ``labels`` and ``ids``; others are ignored. A matrix is then a
    column of lists, one per row; ``rotation_logits`` are lists of 16 or 4 lists of 4. Rows come in the order of the
    files. Arrays from Parquet are Arrow's own and cannot be written to.

    Parameters
    ----------
    source : path, or list of paths
        A file; a folder, for all files of one kind in and below it by name; or a pattern such as ``"part-*.npz"``.
    columns : Columns, optional
        Which columns hold what, for example ``Columns(probabilities="prob_*", label="y")``.
    batch_rows : int, optional
        Rows per batch at most; by default as many as make about 12 MB.
    progress : bool, optional
        Show a bar on standard error; by default where that is a terminal.
    limits : Limits, optional
        How much memory a file may ask for.

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
    >>> _ = (folder / "b.csv").write_text("p_cat,p_dog,animal\n0.9,0.1,cat\n0.2,0.8,cat\n")
    >>> next(read_outputs(folder / "b.csv", columns=Columns(probabilities="p_*", label="animal"))).accuracy
    0.5
    """
    batches = read_batches(source, columns=columns, batch_rows=batch_rows, progress=progress, limits=limits)
    return (batch.outputs for batch in batches)


def read_batches(
    source: PathLike | Iterable[PathLike],
    *,
    columns: Columns = _DEFAULT_COLUMNS,
    batch_rows: int | None = None,
    progress: bool | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Iterator[Batch]:
    r"""Stream outputs together with the time and the segments of each row.

    Parameters are those of `read_outputs`.

    Returns
    -------
    iterator of Batch
        Tuples ``(outputs, time, by)``: ``time`` is an array of ``datetime64[us]`` in UTC, or None where
        ``columns.time`` is; ``by`` has an array for each of ``columns.by``.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "log.csv"
    >>> _ = path.write_text("p_0,p_1,ts,country\n0.9,0.1,2026-01-31T05:00:00,fr\n0.2,0.8,2026-02-01,de\n")
    >>> outputs, time, by = next(read_batches(path, columns=Columns(probabilities="p_*", time="ts", by="country")))
    >>> time.astype("datetime64[D]").tolist(), by["country"].tolist()
    ([datetime.date(2026, 1, 31), datetime.date(2026, 2, 1)], ['fr', 'de'])
    """
    if batch_rows is not None:
        batch_rows = integer("batch_rows", batch_rows, least=1)
    if not isinstance(columns, Columns):
        raise GdscoreError(f"Expected `columns` to be a gdscore.io.Columns, but got {type(columns).__name__}")
    if not isinstance(limits, Limits):
        raise GdscoreError(f"Expected `limits` to be a gdscore.files.Limits, but got {type(limits).__name__}")
    paths = find_files(source)
    plan = _plan(paths, columns, limits)
    return _stream(paths, plan, columns, batch_rows, progress, limits)


def known_rows(path: Path, columns: Columns = _DEFAULT_COLUMNS) -> int | None:
    """Rows of a file, or None where only reading them all would tell."""
    with _open(path, DEFAULT_LIMITS) as table:
        return table.count_rows(_chosen(table, columns))


@dataclass(frozen=True)
class _Plan:
    """What is known before rows are read."""

    rows: int | None
    exact_rows: dict[Path, int]


def _plan(paths: list[Path], columns: Columns, limits: Limits) -> _Plan:
    """Check names, types and numbers of rows of all files."""
    exact: dict[Path, int] = {}
    first: tuple[Chosen, Path] | None = None
    for path in paths:
        with _open(path, limits) as table:
            chosen = _chosen(table, columns)
            rows = table.count_rows(chosen)
        if rows is not None:
            exact[path] = rows
        if rows != 0:
            first = first or (chosen, path)
            _require_same(_names(first[0]), first[1], _names(chosen), path)
    if first is None:
        raise _empty(paths)
    known = len(exact) == len(set(paths))
    return _Plan(sum(exact[path] for path in paths) if known else None, exact)


def _stream(
    paths: list[Path],
    plan: _Plan,
    columns: Columns,
    batch_rows: int | None,
    progress: bool | None,
    limits: Limits,
) -> Iterator[Batch]:
    expected: tuple[dict[str, str], Path] | None = None
    with progress_bar(plan.rows, progress) as advance:
        for path in paths:
            with _open(path, limits) as table:
                chosen = _chosen(table, columns)
                start = 0
                for block in table.blocks(chosen, batch_rows):
                    batch = make_batch(chosen, block, repr(os.fspath(path)), start, table.class_names)
                    found = layout(batch.outputs.arrays, exact=False)
                    expected = expected or (found, path)
                    _require_same(*expected, found, path)
                    start += len(batch.outputs)
                    yield batch
                    advance(len(batch.outputs))
                if start != plan.exact_rows.get(path, start):
                    raise GdscoreError(
                        f"Expected {plan.exact_rows[path]} rows in {os.fspath(path)!r}, but got {start}: the file is "
                        "damaged, write it again"
                    )
    if expected is None:
        raise _empty(paths)


def _open(path: Path, limits: Limits) -> AbstractContextManager[Table]:
    return _OPENERS[kind_of(path)](path, limits)


def _chosen(table: Table, columns: Columns) -> Chosen:
    where = repr(os.fspath(table.path))
    chosen = choose_columns(columns, table.names, where)
    check_types(chosen, {name: table.describe(name) for name in chosen.names}, where)
    return chosen


def _names(chosen: Chosen) -> dict[str, str]:
    """What all files must have; the order of classes in it too."""
    classes = " of classes " + ", ".join(chosen.class_names) if chosen.class_names else ""
    names = {name: classes if name in ("logits", "probabilities") else "" for name in chosen.matrices}
    return names | {name: "" for name in ("label", "id") if getattr(chosen, name) is not None}


def _require_same(expected: dict[str, str], first: Path, found: dict[str, str], path: Path) -> None:
    if found != expected:
        raise GdscoreError(
            f"Expected all files to hold the same, but {os.fspath(first)!r} has {_worded(expected)} "
            f"and {os.fspath(path)!r} has {_worded(found)}"
        )


def _worded(contents: dict[str, str]) -> str:
    return ", ".join(f"`{name}` {what}".rstrip() for name, what in sorted(contents.items()))


def _empty(paths: list[Path]) -> NoRowsError:
    more = f" and {len(paths) - 1} more files" if len(paths) > 1 else ""
    return NoRowsError(f"Expected at least one row in {os.fspath(paths[0])!r}{more}, but there is none")
