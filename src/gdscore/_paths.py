"""Paths that a caller gives: what cannot be a file is refused before it is opened.

Requirements met here:

- an empty name, a name that the system cannot hold and a loop of links are worded like any other mistake;
- a pipe, a socket or a device is never opened for reading, as reading could wait for ever or never end.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from gdscore.errors import GdscoreError

__all__ = ["PathLike", "check_path", "check_readable", "path_errors"]

PathLike: TypeAlias = str | os.PathLike[str]
_LOOKED_AT = 1000
"""Names of a folder that are compared with one that is not there."""


def check_path(path: Any) -> Path:
    """Path of a non-empty name without NUL characters."""
    name = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(name, str):
        raise GdscoreError(f"Expected a path, but got {type(path).__name__}: give a string or a pathlib.Path")
    if not name or "\0" in name:
        raise GdscoreError(f"Expected the path of a file, but got {name!r}: name a file")
    return Path(path)


@contextlib.contextmanager
def path_errors(path: PathLike) -> Iterator[None]:
    """Word what the system or `pathlib` raises about a path."""
    try:
        yield
    except GdscoreError:
        raise
    except FileNotFoundError as error:
        raise GdscoreError(f"Expected a file {os.fspath(path)!r}, but there is none: {_other_names(path)}") from error
    except OSError as error:
        raise GdscoreError(
            f"Expected to use {os.fspath(path)!r}, but the system refused: {error.strerror or error}"
        ) from error
    # Before Python 3.13 pathlib raises RuntimeError for a loop of links; names may have no encoding.
    except (RuntimeError, ValueError) as error:
        raise GdscoreError(f"Expected to use {os.fspath(path)!r}, but it cannot be a file ({error})") from error


def _other_names(path: PathLike) -> str:
    """Word which files of the same folder have nearly the same name."""
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        names = [entry.name for entry in islice(os.scandir(Path(path).parent), _LOOKED_AT)]
        if close := difflib.get_close_matches(Path(path).name, sorted(names), n=2):
            return f"did you mean {' or '.join(repr(os.fspath(Path(path).with_name(name))) for name in close)}?"
    return "check the name and the folder"


def check_readable(path: PathLike) -> Path:
    """Path of a regular file that exists; everything else is refused."""
    checked = check_path(path)
    with path_errors(path):
        mode = checked.stat().st_mode
    if stat.S_ISDIR(mode):
        raise GdscoreError(f"Expected {os.fspath(path)!r} to be a file, but it is a folder: name a file in it")
    if not stat.S_ISREG(mode):
        raise GdscoreError(
            f"Expected {os.fspath(path)!r} to be a file, but it is a pipe, a socket or a device: "
            "copy its contents into a file first"
        )
    return checked
