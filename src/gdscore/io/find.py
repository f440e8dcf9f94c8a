"""Which files a path, a folder or a pattern stands for, and of which kind they are.

The kind of a file is decided by its first bytes, so that a Parquet file may have any name; only files without such a
mark, as all text is, are recognised by the end of their name.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gdscore._paths import PathLike, check_path, check_readable, path_errors
from gdscore.errors import GdscoreError

__all__ = ["SUFFIXES", "find_files", "kind_of"]

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


def find_files(source: PathLike | Iterable[PathLike]) -> list[Path]:
    """Files that a path, a folder, a pattern or a list of them stands for, in the order they are read in.

    A folder stands for the files of one kind in and below it, by name; those whose names begin with a dot or an
    underscore, as writers leave beside their data, are left out.
    """
    if isinstance(source, str | os.PathLike):
        return _files_of(source)
    if not isinstance(source, Iterable) or isinstance(source, bytes):
        raise GdscoreError(f"Expected a path, a pattern or a list of them, but got {type(source).__name__}")
    listed = list(source)
    for item in listed:
        if not isinstance(item, str | os.PathLike):
            raise GdscoreError(f"Expected a list of paths or patterns, but got {type(item).__name__} in it")
    if not listed:
        raise GdscoreError("Expected at least one path, but got an empty list")
    return [path for item in listed for path in _files_of(item)]


def kind_of(path: Path) -> str:
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
        if path.suffix.lower() in (*suffixes, ".txt" if kind == "CSV" else ""):
            return kind
    raise GdscoreError(
        f"Expected {os.fspath(path)!r} to be an .npz, Parquet, Arrow or CSV file, but it begins like none of them, and "
        f"its name ends in none of {', '.join(SUFFIXES)}"
    )


def _files_of(source: PathLike) -> list[Path]:
    path = check_path(source)
    with path_errors(source):
        if path.is_dir():
            return _in_folder(path)
        if not path.exists() and glob.has_magic(os.fspath(source)):
            # Path.glob takes no absolute pattern.
            matches = [Path(match) for match in sorted(glob.glob(os.fspath(source), recursive=True))]  # noqa: PTH207
            found = [match for match in matches if match.is_file() and match.suffix.lower() in SUFFIXES]
            if not found:
                raise GdscoreError(
                    f"Expected the pattern {os.fspath(source)!r} to match files that end in {', '.join(SUFFIXES)}, but "
                    f"it matches "
                    f"{f'only other things, such as {os.fspath(matches[0])!r}' if matches else 'nothing'}"
                )
            return found
    return [check_readable(source)]


def _in_folder(folder: Path) -> list[Path]:
    found = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES
        and path.is_file()
        and not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
    )
    if not found:
        raise GdscoreError(
            f"Expected files that end in {', '.join(SUFFIXES)} in the folder {os.fspath(folder)!r}, but found none"
        )
    kinds: dict[Any, Path] = {}
    for path in found:
        kinds.setdefault(next(kind for kind, suffixes in _KINDS.items() if path.suffix.lower() in suffixes), path)
    if len(kinds) > 1:
        # Outputs that were converted would be read twice.
        raise GdscoreError(
            f"Expected files of one kind in {os.fspath(folder)!r}, but it has "
            f"{' and '.join(f'{kind} files such as {os.fspath(path)!r}' for kind, path in kinds.items())}: move the "
            f"others away, or give a pattern such as {os.fspath(folder / '*.parquet')!r}"
        )
    return found
