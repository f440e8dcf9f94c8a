"""Finding files and reading `Outputs` from them batch by batch.

Requirements met here:

- the kind of a file is decided by its first bytes, so that a Parquet file may have any name; only files without such a
  mark, as all text is, are recognised by the end of their name;
- times have a time zone in all files of a stream, or in none;
- memory depends on the size of a batch, never on that of a file;
- names, types and the number of rows are checked when the stream is made, values when their batch comes;
- a message names the file and the row in it, counted from 0;
- a file is open only while its rows are read, also when the stream is dropped half-way.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from gdscore._checks import integer
from gdscore._classes import list_of
from gdscore._files import DEFAULT_LIMITS, Limits, PathLike, check_path, check_readable, path_errors
from gdscore._stream import Batch, progress_bar
from gdscore.errors import GdscoreError, NoRowsError
from gdscore.io.blocks import Table, layout
from gdscore.io.columns import Chosen, Columns, TimeZone, check_types, choose_columns, make_batch
from gdscore.io.npz import open_npz
from gdscore.outputs import Outputs

_DEFAULT_COLUMNS = Columns()
_KINDS = {
    "npz": (".npz",),
    "Parquet": (".parquet", ".pq"),
    "Arrow": (".feather", ".arrow", ".ipc"),
    "CSV": (".csv", ".tsv"),
}
SUFFIXES = tuple(suffix for suffixes in _KINDS.values() for suffix in suffixes)
"""Ends of names by which files are found in folders and by patterns."""

_MARKS = {
    b"PK\3\4": "npz",
    b"PK\5\6": "npz",
    b"PAR1": "Parquet",
    b"ARROW1": "Arrow",
    b"\xff\xff\xff\xff": "Arrow",
}
_REFUSED = {
    b"\x1f\x8b": "it is compressed: unpack it first",
    b"BZh": "it is compressed: unpack it first",
    b"\xfd7zXZ": "it is compressed: unpack it first",
    b"\x28\xb5\x2f\xfd": "it is compressed: unpack it first",
    b"FEA1": "it is Feather of version 1: write it again with pyarrow or pandas",
    b"PARE": "it is encrypted",
    b"\x93NUMPY": "it is a single array: save it with numpy.savez under a name such as logits",
}
_REFUSED_NAMES = {
    (".xlsx", ".xls", ".ods"): "it is a spreadsheet: save it as CSV",
    (".zip",): "it is an archive of files: unpack it first",
    (".pkl", ".pickle", ".pt", ".pth", ".joblib"): "it is a pickle, which can run any code when it is read: write it "
    "with gdscore.io.write_outputs, or as Parquet",
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
    arguments of `Outputs`, also ``prediction``, ``label`` and ``id`` for ``predictions``, ``labels`` and ``ids``;
    others are ignored. A matrix is then a column of lists, one per row; ``rotation_logits`` are lists of 16 or 4 lists
    of 4. Rows come in the order of the files. Arrays from Parquet are Arrow's own and cannot be written to.

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
        raise GdscoreError(f"Expected `limits` to be a gdscore.io.Limits, but got {type(limits).__name__}")
    paths = find_files(source)
    return _stream(paths, _known_rows(paths, columns, limits), columns, batch_rows, progress, limits)


def _known_rows(paths: list[Path], columns: Columns, limits: Limits) -> dict[Path, int]:
    """Rows of each file that tells them before they are read; names and types of all files are checked."""
    known_rows: dict[Path, int] = {}
    first: tuple[dict[str, str], Path] | None = None
    for path in paths:
        with _open(path, limits) as table:
            chosen = _chosen(table, columns)
            rows = table.count_rows(chosen)
        if rows is not None:
            known_rows[path] = rows
        if rows != 0:
            first = first or (_names(chosen), path)
            require_same(*first, _names(chosen), path)
    if first is None:
        raise _empty(paths)
    return known_rows


def _stream(
    paths: list[Path],
    known_rows: dict[Path, int],
    columns: Columns,
    batch_rows: int | None,
    progress: bool | None,
    limits: Limits,
) -> Iterator[Batch]:
    expected: tuple[dict[str, str], Path] | None = None
    zone = TimeZone()
    total = sum(known_rows[path] for path in paths) if known_rows.keys() >= set(paths) else None
    with progress_bar(total, progress) as advance:
        for path in paths:
            with _open(path, limits) as table:
                chosen = _chosen(table, columns)
                zoned = None if chosen.time is None else table.describe(chosen.time).zoned
                start = 0
                for block in table.blocks(chosen, batch_rows):
                    stored = table.class_names, table.threshold
                    batch = make_batch(chosen, block, table.where, start, *stored, zoned=zoned, zone=zone)
                    contents = layout(batch.outputs.arrays, exact=False) | {"decision": batch.outputs.decision}
                    expected = expected or (contents, path)
                    require_same(*expected, contents, path)
                    start += len(batch.outputs)
                    yield batch
                    advance(len(batch.outputs))
                if start != known_rows.get(path, start):
                    raise GdscoreError(
                        f"Expected {known_rows[path]} rows in {table.where}, but got {start}: the file is damaged, "
                        "write it again"
                    )
    if expected is None:
        raise _empty(paths)


def _open(path: Path, limits: Limits) -> AbstractContextManager[Table, bool | None]:
    kind = _kind(path)
    if kind == "npz":
        return open_npz(path, limits)
    # Arrow is imported where it is needed: it takes as long as all of gdscore.
    from gdscore.io import arrow, csv

    if kind == "CSV":
        return csv.open_csv(path, limits)
    return arrow.open_table(path, limits, kind)


def _chosen(table: Table, columns: Columns) -> Chosen:
    chosen = choose_columns(columns, table.names, table.where)
    check_types(chosen, {name: table.describe(name) for name in chosen.names}, table.where)
    return chosen


def _names(chosen: Chosen) -> dict[str, str]:
    """What all files must have; the order of classes in it too."""
    classes = " of classes " + ", ".join(chosen.class_names) if chosen.class_names else ""
    names = {name: classes if name in ("logits", "probabilities") else "" for name in chosen.matrices}
    return names | {name: "" for name in ("prediction", "label", "id") if getattr(chosen, name) is not None}


def require_same(expected: Mapping[str, str], first: Path, contents: Mapping[str, str], path: Path) -> None:
    """Refuse a file of a target that has other arrays than the first one."""
    if contents != expected:
        raise GdscoreError(
            f"Expected all files to hold the same, but {os.fspath(first)!r} has {_worded(expected)} "
            f"and {os.fspath(path)!r} has {_worded(contents)}"
        )


def _worded(contents: Mapping[str, str]) -> str:
    return ", ".join(f"`{name}` {what}".rstrip() for name, what in sorted(contents.items()))


def _empty(paths: list[Path]) -> NoRowsError:
    more = f" and {len(paths) - 1} more files" if len(paths) > 1 else ""
    return NoRowsError(f"Expected at least one row in {os.fspath(paths[0])!r}{more}, but there is none")


# -- finding files ---------------------------------------------------------------------------------------------


def find_files(source: PathLike | Iterable[PathLike]) -> list[Path]:
    """Files that a path, a folder, a pattern or a list of them stands for, in the order they are read in.

    A folder stands for the files of one kind in and below it, by name; those whose names begin with a dot or an
    underscore, as writers leave beside their data, are left out.
    """
    if isinstance(source, str | os.PathLike):
        return _files_of(source)
    listed = list_of(source)
    if listed is None:
        raise GdscoreError(f"Expected a path, a pattern or a list of them, but got {type(source).__name__}")
    for item in listed:
        if not isinstance(item, str | os.PathLike):
            raise GdscoreError(f"Expected a list of paths or patterns, but got {type(item).__name__} in it")
    if not listed:
        raise GdscoreError("Expected at least one path, but got an empty list")
    return [path for item in listed for path in _files_of(item)]


def _kind(path: Path) -> str:
    """Kind of a file: "npz", "Parquet", "Arrow" or "CSV"."""
    check_readable(path)
    with path_errors(path), path.open("rb") as file:
        begin = file.read(8)
    for mark, reason in _REFUSED.items():
        if begin.startswith(mark):
            raise GdscoreError(f"Expected outputs in {os.fspath(path)!r}, but {reason}")
    for suffixes, reason in _REFUSED_NAMES.items():
        if path.suffix.lower() in suffixes and not begin.startswith(b"PAR1"):
            raise GdscoreError(f"Expected outputs in {os.fspath(path)!r}, but {reason}")
    for mark, kind in _MARKS.items():
        if begin.startswith(mark):
            return kind
    for kind, suffixes in _KINDS.items():
        if path.suffix.lower() in (*suffixes, *([".txt"] if kind == "CSV" else [])):
            return kind
    raise GdscoreError(
        f"Expected {os.fspath(path)!r} to be an .npz, Parquet, Arrow or CSV file, but it begins like none of them, and "
        f"its name ends in none of {', '.join(SUFFIXES)}: where it is CSV, rename it to {path.name}.csv"
    )


def _files_of(source: PathLike) -> list[Path]:
    path = check_path(source)
    with path_errors(source):
        if path.is_dir():
            return _in_folder(path)
        if not path.exists() and glob.has_magic(os.fspath(source)):
            # Path.glob takes no absolute pattern.
            matches = [Path(match) for match in sorted(glob.glob(os.fspath(source), recursive=True))]  # noqa: PTH207
            files = [match for match in matches if match.is_file() and match.suffix.lower() in SUFFIXES]
            if not files:
                raise GdscoreError(
                    f"Expected the pattern {os.fspath(source)!r} to match files that end in {', '.join(SUFFIXES)}, but "
                    f"it matches "
                    f"{f'only other things, such as {os.fspath(matches[0])!r}' if matches else 'nothing'}"
                )
            return files
    return [check_readable(source)]


def _in_folder(folder: Path) -> list[Path]:
    files = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES
        and path.is_file()
        and not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
    )
    if not files:
        raise GdscoreError(
            f"Expected files that end in {', '.join(SUFFIXES)} in the folder {os.fspath(folder)!r}, but found none"
        )
    kinds: dict[Any, Path] = {}
    for path in files:
        kinds.setdefault(next(kind for kind, suffixes in _KINDS.items() if path.suffix.lower() in suffixes), path)
    if len(kinds) > 1:
        # Outputs that were converted would be read twice.
        raise GdscoreError(
            f"Expected files of one kind in {os.fspath(folder)!r}, but it has "
            f"{' and '.join(f'{kind} files such as {os.fspath(path)!r}' for kind, path in kinds.items())}: move the "
            f"others away, or give a pattern such as {os.fspath(folder / '*.parquet')!r}"
        )
    return files
