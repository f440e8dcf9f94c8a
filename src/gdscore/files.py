"""Arrays and numbers on disk, without pickle.

Requirements met here:

- a file is there whole or not at all: it is written under a temporary name beside its place, then renamed;
- nothing read from disk is ever executed, and a header that promises more than the file holds allocates nothing;
- whatever is wrong with a file is one sentence that names it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import secrets
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from gdscore.errors import GdscoreError

__all__ = ["ArrayMember", "atomic", "open_npz", "read_arrays", "read_json", "unpacking", "write_arrays", "write_json"]

PathLike: TypeAlias = str | os.PathLike[str]
Value: TypeAlias = NDArray[Any] | int | float | str | bool

_PIECE = 1 << 22
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def atomic(path: PathLike, mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a file to write that appears at ``path`` only when the block ends without an exception.

    Parameters
    ----------
    path : path
        Where the file ends up, exactly as given; a link is followed, and only a regular file is replaced.
    mode : {"wb", "w"}
        Bytes, or text in UTF-8.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> with atomic(folder / "note.txt", "w") as file:
    ...     _ = file.write("whole or not at all")
    >>> (folder / "note.txt").read_text()
    'whole or not at all'
    """
    target = Path(path).resolve()
    if target.exists() and not target.is_file():
        raise GdscoreError(f"Expected {os.fspath(path)!r} to be a file, but it is a folder or a device: name a file")
    if not target.parent.is_dir():
        raise GdscoreError(f"Expected a folder to write {os.fspath(path)!r} into, but there is none: create it first")
    temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        # The mode "x" gives the permissions of any new file, which those of `tempfile` are not.
        with temporary.open(mode.replace("w", "x"), encoding=None if "b" in mode else "utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        # Other errors of the block are its own and pass as they are.
        if isinstance(error, OSError) and (error.errno in _DISK_FULL or error.filename == str(temporary)):
            raise GdscoreError(
                f"Expected to write {os.fspath(path)!r}, but the system refused: {error.strerror}"
            ) from error
        raise


def write_arrays(path: PathLike, values: Mapping[str, Value]) -> None:
    """Write arrays, numbers and strings by name as an uncompressed ``.npz``.

    Parameters
    ----------
    path : path
        Name of the file, kept as it is.
    values : mapping of str to array, int, float, str or bool
        What `read_arrays` gives back. NumPy arrays of numbers, booleans or strings.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "state"
    >>> write_arrays(path, {"sum": np.arange(3.0), "count": 7, "variant": "paper"})
    >>> read_arrays(path)
    {'sum': array([0., 1., 2.]), 'count': 7, 'variant': 'paper'}
    """
    arrays = {name: _storable(name, value) for name, value in values.items()}
    with atomic(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                npy.write_array(member, array, allow_pickle=False)


def read_arrays(path: PathLike) -> dict[str, Value]:
    """Read what `write_arrays` wrote; numbers and strings come back as those of Python."""
    values: dict[str, Value] = {}
    with open_npz(path) as archive:
        for name in archive.namelist():
            member = ArrayMember(archive, name, path)
            array = member.read()
            values[member.name] = array if array.ndim else array.item()
    return values


def write_json(path: PathLike, value: Any) -> None:
    """Write dicts with names as keys, lists, strings, numbers, booleans and None; NumPy's own are converted.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "result.json"
    >>> write_json(path, {"gdscore": np.float32(0.5), "rows": [1, 2]})
    >>> read_json(path)
    {'gdscore': 0.5, 'rows': [1, 2]}
    """
    text = json.dumps(_plain(value, "the value"), indent=2, allow_nan=False)
    with atomic(path, "w") as file:
        file.write(text + "\n")


def read_json(path: PathLike) -> Any:
    """Read a JSON file; NaN and Infinity, which JSON does not have, are refused."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    try:
        return json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=refuse)
    except OSError as error:
        raise _unreadable(path, error) from error
    except (ValueError, RecursionError) as error:
        raise GdscoreError(
            f"Expected {os.fspath(path)!r} to be JSON in UTF-8, but it is damaged or another kind of file ({error}): "
            "write it again"
        ) from error


# -- members of an .npz ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def unpacking(path: PathLike) -> Iterator[None]:
    """Word whatever reading a damaged or foreign ``.npz`` raises."""
    try:
        yield
    except GdscoreError:
        raise
    except FileNotFoundError as error:
        raise _unreadable(path, error) from error
    except zipfile.BadZipFile as error:
        raise _damaged(path, "it is truncated, damaged or no .npz at all") from error
    except EOFError as error:
        raise _damaged(path, "an array in it ends too early") from error
    except (PermissionError, IsADirectoryError) as error:
        raise _unreadable(path, error) from error
    # Encryption, foreign compression, headers that are none.
    except (zlib.error, OSError, ValueError, RuntimeError) as error:
        raise _damaged(path, f"it cannot be unpacked ({error})") from error


@contextlib.contextmanager
def open_npz(path: PathLike) -> Iterator[zipfile.ZipFile]:
    """Open the archive for `ArrayMember`."""
    with contextlib.ExitStack() as stack:
        with unpacking(path):
            # A ZipFile that opens the file itself keeps it open for as long as any member is.
            file = stack.enter_context(Path(path).open("rb"))
            archive = stack.enter_context(zipfile.ZipFile(file))
        yield archive


class ArrayMember:
    """One array of an open ``.npz``: its header is read at once, its values when asked for.

    Parameters
    ----------
    archive : zipfile.ZipFile
        From `open_npz`.
    entry : str
        Name in the archive, with ``.npy``.
    path : path
        Of the archive, for messages.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran_order: bool

    def __init__(self, archive: zipfile.ZipFile, entry: str, path: PathLike) -> None:
        self.name = entry.removesuffix(".npy")
        self._path = path
        if self.name == entry:
            raise _damaged(path, f"the entry {entry!r} in it is no array")
        with unpacking(path):
            self._stream = cast(zipfile.ZipExtFile, archive.open(entry))
            version = npy.read_magic(self._stream)
            header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            self.shape, self.fortran_order, self.dtype = header(self._stream)
            if self.dtype.hasobject:
                raise GdscoreError(
                    f"Expected `{self.name}` in {os.fspath(path)!r} to be numbers or strings, but it holds pickled "
                    "Python objects, which are never loaded: save it with numpy.asarray(x, dtype=float), int or str"
                )
            if not _is_plain(self.dtype):
                raise GdscoreError(
                    f"Expected `{self.name}` in {os.fspath(path)!r} to be numbers or strings, but got {self.dtype}"
                )
            held = archive.getinfo(entry).file_size - self._stream.tell()
            if min(self.shape, default=0) < 0 or held != math.prod(self.shape) * self.dtype.itemsize:
                raise _damaged(
                    path, f"`{self.name}` of shape {self.shape} and {self.dtype} takes other than {held} bytes"
                )

    def read(self, rows: int | None = None) -> NDArray[Any]:
        """Read the whole array, or the next ``rows`` of it where it is in C order, in the machine's byte order."""
        shape = self.shape if rows is None else (rows, *self.shape[1:])
        array = np.empty(shape, self.dtype, order="F" if self.fortran_order else "C")
        if array.nbytes:
            raw = array.reshape(-1, order="A").view(np.uint8).data
            with unpacking(self._path):
                for start in range(0, raw.nbytes, _PIECE):
                    piece = raw[start : start + _PIECE]
                    if self._stream.readinto(piece) != piece.nbytes:
                        raise EOFError
        return array.astype(self.dtype.newbyteorder("="), copy=False)


# -- what may be written --------------------------------------------------------------------------------------


def _is_plain(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "biuU" or (dtype.kind == "f" and dtype.itemsize <= 8)


def _storable(name: str, value: Any) -> NDArray[Any]:
    if not isinstance(value, np.ndarray | np.generic | bool | int | float | str):
        raise GdscoreError(
            f"Expected `{name}` to be a NumPy array, a number, a string or a boolean, but got "
            f"{type(value).__name__}: make an array of it with numpy.asarray"
        )
    array = np.asarray(value, order="C")
    if not _is_plain(array.dtype):
        raise GdscoreError(
            f"Expected `{name}` to be numbers of at most 64 bits or strings, but got {array.dtype}, "
            "which only pickle could store"
        )
    if isinstance(value, str) and value.endswith("\0"):
        raise GdscoreError(f"Expected `{name}` not to end in a NUL character, which NumPy would drop")
    return array


def _plain(value: Any, where: str) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise GdscoreError(f"Expected numbers that JSON has, but {where} is {value}: leave it out or give None")
        return value
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise GdscoreError(f"Expected names as keys in JSON, but {where} has the key {key!r}")
        return {key: _plain(item, f"{key!r} of {where}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, f"item {i} of {where}") for i, item in enumerate(value)]
    raise GdscoreError(f"Expected values that JSON has, but {where} is of type {type(value).__name__}")


def _unreadable(path: PathLike, error: OSError) -> GdscoreError:
    if isinstance(error, FileNotFoundError):
        return GdscoreError(f"Expected a file {os.fspath(path)!r}, but there is none: check the name and the folder")
    return GdscoreError(f"Expected to read {os.fspath(path)!r}, but the system refused: {error.strerror}")


def _damaged(path: PathLike, what: str) -> GdscoreError:
    return GdscoreError(f"Expected {os.fspath(path)!r} to be an .npz of arrays, but {what}: write the file again")
