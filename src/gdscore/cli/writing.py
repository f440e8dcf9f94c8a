"""Files that commands write: refused before the work starts, whole or not at all after it."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer

from gdscore.errors import GdscoreError

__all__ = ["check_apart", "check_writable", "write_json"]


def check_writable(
    path: str | Path | None, *, inputs: Iterable[str | Path] = (), suffixes: tuple[str, ...] = ()
) -> None:
    """Refuse a path that cannot be written, is one of the input files or has another suffix; None and - are fine."""
    if path is None or os.fspath(path) == "-":
        return
    shown, target = os.fspath(path), Path(path)
    if suffixes and target.suffix.lower() not in suffixes:
        raise GdscoreError(f"Expected an output that ends in {' or '.join(suffixes)}, but got {shown!r}")
    if target.exists() and not target.is_file():
        raise GdscoreError(f"Expected {shown!r} to be a file, but it is a folder or a device: name a file")
    for given in inputs if target.exists() else ():
        if Path(given).exists() and target.samefile(given):
            raise GdscoreError(f"Expected an output beside the inputs, but {shown!r} is one of them: name another file")
    folder = target.resolve().parent
    if not folder.is_dir():
        raise GdscoreError(f"Expected a folder to write {shown!r} into, but there is none: create it first")
    try:
        # Tried and not asked: permissions, quotas and read-only disks differ too much.
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise GdscoreError(
            f"Expected to write {shown!r}, but the system refused: {error.strerror}: name a folder that is yours"
        ) from error


def check_apart(first: str | Path | None, second: str | Path | None, names: str) -> None:
    """Refuse one file for two outputs."""
    if first is not None and second is not None and Path(first).resolve() == Path(second).resolve():
        raise GdscoreError(f"Expected different files for {names}, but both are {os.fspath(first)!r}: name another")


def write_json(path: str, value: Any) -> None:
    """Write to a file, or for - to standard output."""
    if path == "-":
        typer.echo(
            json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False, default=lambda array: array.tolist())
        )
        return
    from gdscore import files

    files.write_json(path, value)
