"""Files that are complete or absent.

Requirements met here:

- a file is written under a temporary name beside its place, then renamed, so that no reader ever sees half of it;
- a file that is replaced keeps its permissions, and its new contents never have wider ones;
- what a killed writer left behind is removed by the next writer of the same file, and only if no process holds it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from gdscore._paths import PathLike, check_path, path_errors
from gdscore.errors import GdscoreError

__all__ = ["atomic"]

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
