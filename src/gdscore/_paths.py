"""Paths that a caller gives, limits on what a file may ask for, and files that are complete or absent.

Requirements met here:

- an empty name, a name that the system cannot hold and a loop of links give an error like any other mistake;
- a pipe, a socket or a device is never opened for reading, as reading could wait for ever or never end;
- a file is written under a temporary name beside its place, then renamed, so that no reader ever sees half of it;
- a file that is replaced keeps its permissions, and its new contents never have wider ones;
- what a killed writer left behind is removed by the next writer of the same file, and only if no process holds it.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import hashlib
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeAlias

from gdscore._checks import integer
from gdscore.errors import GdscoreError


@dataclass(frozen=True)
class Limits:
    """Limits on what a file may hold, checked before its values are read.

    The defaults are far above what outputs of classifiers need. Raise one where your files are larger:
    ``read_outputs(path, limits=Limits(text=10_000))``.

    Parameters
    ----------
    memory : int
        Bytes of arrays that are read as a whole: all arrays of `read_arrays` and `read_record` together, arrays of an
        ``.npz`` in Fortran order, or a record batch of an Arrow file. 1 GiB by default.
    row : int
        Bytes of one row of outputs. 16 MiB by default, which is 4 million float32 features.
    text : int
        Characters of one id, label or segment name. 1,024 by default.
    json : int
        Bytes of a JSON file or header. 64 MiB by default.
    columns : int
        Columns of a table. 100,000 by default.
    """

    memory: int = 1 << 30
    row: int = 16 << 20
    text: int = 1024
    json: int = 64 << 20
    columns: int = 100_000

    def __post_init__(self) -> None:
        for field in fields(self):
            integer(field.name, getattr(self, field.name), least=1)


DEFAULT_LIMITS = Limits()


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
    """Raise what the system or `pathlib` raises about a path as `GdscoreError`."""
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
    """Suggest files of the same folder that have nearly the same name."""
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        if Path(path).is_symlink():
            return f"it is a link to {os.fspath(Path(path).readlink())!r}, which is not there"
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


def check_writable(
    path: str | Path | None, *, inputs: Iterable[str | Path] = (), suffixes: tuple[str, ...] = ()
) -> None:
    """Refuse a path that cannot be written, is one of the input files or has another suffix; None and - are fine."""
    if path is None or os.fspath(path) == "-":
        return
    shown, target = os.fspath(path), Path(path)
    if not shown or shown == ".":
        raise GdscoreError("Expected the name of a file to write, but it is empty: name one")
    if suffixes and target.suffix.lower() not in suffixes:
        cure = f"name it {os.fspath(target.with_suffix(suffixes[0]))!r}"
        raise GdscoreError(f"Expected an output that ends in {' or '.join(suffixes)}, but got {shown!r}: {cure}")
    try:
        folder = target.resolve().parent
    except (OSError, RuntimeError) as error:
        raise GdscoreError(f"Expected a path that can be written, but {shown!r} is a loop of links") from error
    if target.exists() and not target.is_file():
        raise GdscoreError(f"Expected {shown!r} to be a file, but it is a folder or a device: name a file")
    for given in inputs if target.exists() else ():
        if Path(given).exists() and target.samefile(given):
            raise GdscoreError(f"Expected an output beside the inputs, but {shown!r} is one of them: name another file")
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


def check_different(first: str | Path | None, second: str | Path | None, names: str) -> None:
    """Refuse one file for two outputs."""
    if first is not None and second is not None and Path(first).resolve() == Path(second).resolve():
        raise GdscoreError(f"Expected different files for {names}, but both are {os.fspath(first)!r}: name another")


_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_STALE_SECONDS = 60
"""Younger temporary files are left alone: their writer may not have locked them yet."""


@contextlib.contextmanager
def atomic(path: PathLike, mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a file to write that appears at ``path`` only when the block ends without an exception.

    Parameters
    ----------
    path : path
        Where the file ends up, exactly as given; a link is followed, and only a regular file is replaced, whose
        permissions are kept.
    mode : {"wb", "w"}
        Bytes, or text in UTF-8.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> with atomic(folder / "note.txt", "w") as file:
    ...     _ = file.write("complete or absent")
    >>> (folder / "note.txt").read_text()
    'complete or absent'
    """
    if mode not in ("wb", "w"):
        raise GdscoreError(f"Expected `mode` to be 'wb' or 'w', but got {mode!r}")
    target, permissions = _replaceable(path)
    temporary, descriptor = _temporary(path, target, permissions)
    try:
        with os.fdopen(descriptor, mode, encoding=None if mode == "wb" else "utf-8") as file:
            _lock(file.fileno())
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.utime(temporary)  # not stale in the moment without a lock
        temporary.replace(target)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        # Other errors of the block are its own and pass as they are.
        if isinstance(error, OSError) and (error.errno in _DISK_FULL or error.filename == str(temporary)):
            cure = ": free some space, or write to another disk" if error.errno in _DISK_FULL else ""
            raise GdscoreError(
                f"Expected to write {os.fspath(path)!r}, but the system refused: {error.strerror}{cure}"
            ) from error
        raise


def _replaceable(path: PathLike) -> tuple[Path, int | None]:
    """Where the file ends up, and the permissions of the file that is there already."""
    checked = check_path(path)
    with path_errors(path):
        target = checked.resolve()
        folder = target.parent.is_dir()
        try:
            before = target.stat().st_mode
        except FileNotFoundError:
            before = None
    if before is not None and not stat.S_ISREG(before):
        raise GdscoreError(f"Expected {os.fspath(path)!r} to be a file, but it is a folder or a device: name a file")
    if not folder:
        raise GdscoreError(f"Expected a folder to write {os.fspath(path)!r} into, but there is none: create it first")
    return target, None if before is None else stat.S_IMODE(before)


def _temporary(path: PathLike, target: Path, permissions: int | None) -> tuple[Path, int]:
    """Create a temporary file beside the target, after those that killed writers of this target have left."""
    # A hash instead of the name: the name may already be as long as the system allows.
    prefix = f".{hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]}-"
    temporary = target.with_name(f"{prefix}{secrets.token_hex(8)}.tmp")
    with path_errors(path):
        # Nobody may read contents that are replaced under tighter permissions, not even while they are written.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        descriptor = os.open(temporary, flags, 0o666 if permissions is None else 0o600)
    if permissions is not None:
        with contextlib.suppress(OSError):
            temporary.chmod(permissions)
    with contextlib.suppress(OSError):
        for other in target.parent.glob(f"{prefix}*.tmp"):
            _remove_if_abandoned(other)
    return temporary, descriptor


def _remove_if_abandoned(temporary: Path) -> None:
    """Remove a temporary file that is not young and that no living process holds the lock of."""
    with contextlib.suppress(OSError):
        if time.time() - temporary.stat().st_mtime < _STALE_SECONDS:
            return
        descriptor = os.open(temporary, os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0))
        try:
            if _lock(descriptor):
                temporary.unlink()
        finally:
            os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Lock a file for as long as it is open; False where another process has it, or where the system has no locks."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True
