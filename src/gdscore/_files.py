"""Files that are complete or absent, and without pickle: arrays of an ``.npz``, and JSON.

Requirements met here:

- a name that is empty or that the system cannot hold is an error like any other mistake, and a pipe, a socket or a
  device is never opened for reading, as reading could wait for ever or never end;
- a file is written under a temporary name beside its place, then renamed: no reader ever sees half of it, and one that
  is replaced keeps its permissions;
- nothing read is ever executed, and arrays of objects are refused;
- what a header claims is compared with a limit before memory is taken; only the compressions that NumPy writes are
  unpacked, as the others cannot be unpacked in pieces;
- the checksum of each array in an ``.npz`` is compared when it is read.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import io
import json
import math
import os
import secrets
import stat
import tempfile
import threading
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias, cast

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from gdscore._checks import integer
from gdscore.errors import GdscoreError, shown

PathLike: TypeAlias = str | os.PathLike[str]
Value: TypeAlias = NDArray[Any] | int | float | str | bool

_NAMES_COMPARED = 1000
"""Names of a folder that are compared with one that is not there."""
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_PIECE = 1 << 22
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_PARSING = threading.Lock()
"""NumPy parses headers with `ast`, which fails in Python 3.11 where garbage is collected while two threads parse."""


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
    """

    memory: int = 1 << 30
    row: int = 16 << 20
    text: int = 1024

    def __post_init__(self) -> None:
        for limit in fields(self):
            integer(limit.name, getattr(self, limit.name), least=1)


DEFAULT_LIMITS = Limits()


# -- paths ----------------------------------------------------------------------------------------------------


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
        names = [entry.name for entry in islice(os.scandir(Path(path).parent), _NAMES_COMPARED)]
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
    name, target = os.fspath(path), Path(path)
    if not name or name == ".":
        raise GdscoreError("Expected the name of a file to write, but it is empty: name one")
    if suffixes and target.suffix.lower() not in suffixes:
        cure = f"name it {os.fspath(target.with_suffix(suffixes[0]))!r}"
        raise GdscoreError(f"Expected an output that ends in {' or '.join(suffixes)}, but got {name!r}: {cure}")
    place, permissions = _replaceable(path)
    for source in inputs if permissions is not None else ():
        if Path(source).exists() and place.samefile(source):
            raise GdscoreError(f"Expected an output beside the inputs, but {name!r} is one of them: name another file")
    try:
        # Tried and not asked: permissions, quotas and read-only disks differ too much.
        with tempfile.TemporaryFile(dir=place.parent):
            pass
    except OSError as error:
        raise GdscoreError(
            f"Expected to write {name!r}, but the system refused: {error.strerror}: name a folder that is yours"
        ) from error


@contextlib.contextmanager
def atomic(path: PathLike, mode: Literal["wb", "w"] = "wb") -> Iterator[IO[Any]]:
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
    target, permissions = _replaceable(path)
    # Not the name of the file in it, which may already be as long as the system allows.
    temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
    with path_errors(path):
        # Nobody may read contents that are replaced under tighter permissions, not even while they are written.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        descriptor = os.open(temporary, flags, 0o666 if permissions is None else 0o600)
    try:
        with os.fdopen(descriptor, mode, encoding=None if mode == "wb" else "utf-8") as file:
            if permissions is not None:
                with contextlib.suppress(OSError):
                    temporary.chmod(permissions)
            yield file
            file.flush()
            os.fsync(file.fileno())
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
    """Where a file to write ends up, and the permissions of the file that is there already."""
    checked = check_path(path)
    with path_errors(path):
        target = checked.resolve()
        if target.is_symlink():  # from Python 3.13 on, a loop of links resolves to itself
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        folder = target.parent.is_dir()
        before = target.stat().st_mode if target.exists() else None
    if before is not None and not stat.S_ISREG(before):
        raise GdscoreError(f"Expected {os.fspath(path)!r} to be a file, but it is a folder or a device: name a file")
    if not folder:
        raise GdscoreError(f"Expected a folder to write {os.fspath(path)!r} into, but there is none: create it first")
    return target, None if before is None else stat.S_IMODE(before)


# -- arrays ---------------------------------------------------------------------------------------------------


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
    arrays = _storable(values)
    with atomic(path) as file:
        _pack(file, arrays)


def arrays_to_bytes(values: Mapping[str, Value]) -> bytes:
    """Give what `write_arrays` would write; `read_arrays` takes it."""
    buffer = io.BytesIO()
    _pack(buffer, _storable(values))
    return buffer.getvalue()


def read_arrays(source: PathLike | bytes, *, limits: Limits = DEFAULT_LIMITS) -> dict[str, Value]:
    """Read what `write_arrays` wrote, from a file or its bytes; numbers and strings come back as those of Python."""
    with open_archive(source, limits) as archive:
        members = [ArrayMember(archive, name) for name in archive.names]
        archive.check_memory(members)
        arrays = {member.name: member.read() for member in members}
    return {name: array if array.ndim else array.item() for name, array in arrays.items()}


def _pack(file: IO[bytes], arrays: Mapping[str, NDArray[Any]]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                npy.write_array(member, array, allow_pickle=False)


def _storable(values: Mapping[str, Value]) -> dict[str, NDArray[Any]]:
    """Values as arrays that need no pickle, or an error that names the one that does."""
    arrays = {name: np.asarray(value, order="C") for name, value in values.items()}
    for name, array in arrays.items():
        if not _is_plain(array.dtype):
            raise GdscoreError(
                f"Expected `{name}` to be numbers of at most 64 bits or strings, but got {array.dtype}, which only "
                "pickle could store"
            )
    return arrays


def _is_plain(dtype: np.dtype[Any]) -> bool:
    """Whether a type is booleans, integers, strings or floating-point numbers of at most 64 bits."""
    return dtype.kind in "biuU" or (dtype.kind == "f" and dtype.itemsize <= 8)


class Archive:
    """An open ``.npz``."""

    def __init__(self, file: IO[bytes], path: PathLike, limits: Limits) -> None:
        self.path, self.limits = path, limits
        with unpacking(path):
            self.zip = zipfile.ZipFile(file)
            entries = self.zip.infolist()
        self.names = [entry.filename.removesuffix(".npy") for entry in entries]
        if len(set(self.names)) < len(entries):
            raise _damaged(path, "it has two entries of one name")
        for entry in entries:
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise GdscoreError(
                    f"Expected `{entry.filename}` in {os.fspath(path)!r} to be stored or deflated as NumPy does, but "
                    "it is compressed in another way: write it with numpy.savez or numpy.savez_compressed"
                )

    def check_memory(self, members: list[ArrayMember]) -> None:
        """Refuse arrays that together would take more than the limit."""
        total = sum(member.nbytes for member in members)
        if total > self.limits.memory:
            raise GdscoreError(
                f"Expected arrays of at most {self.limits.memory:,} bytes in {os.fspath(self.path)!r}, but they take "
                f"{total:,}: raise the limit with limits=Limits(memory=...) if you trust the file"
            )


class ArrayMember:
    """One array of an archive: its header is read at once, its values when asked for."""

    def __init__(self, archive: Archive, name: str) -> None:
        self.name, self._path = name, archive.path
        entry = f"{name}.npy"
        if entry not in archive.zip.NameToInfo:
            raise _damaged(archive.path, f"the entry {name!r} in it is no array")
        with unpacking(archive.path, f"`{name}` in it is no array of NumPy"):
            self._stream = cast(zipfile.ZipExtFile, archive.zip.open(entry))
            read_header = _HEADERS[npy.read_magic(self._stream)]
            with _PARSING:
                self.shape, self.fortran_order, self.dtype = read_header(self._stream)
            if not _is_plain(self.dtype):
                what = "pickled Python objects, which are never loaded" if self.dtype.hasobject else str(self.dtype)
                raise GdscoreError(
                    f"Expected `{name}` in {os.fspath(self._path)!r} to be numbers or strings, but it holds {what}: "
                    "save it with numpy.asarray(x, dtype=float), int or str"
                )
            self._left = archive.zip.getinfo(entry).file_size - self._stream.tell()
        # Strings of no characters take no bytes in a file and four each in memory.
        if self._left != self.nbytes or (self.dtype.itemsize == 0 and math.prod(self.shape) > 1):
            raise _damaged(
                archive.path, f"`{name}` of shape {self.shape} and {self.dtype} takes other than {self._left} bytes"
            )

    @property
    def nbytes(self) -> int:
        """Bytes that all values take."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def row_bytes(self) -> int:
        """Bytes that one entry of the first axis takes."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    def read(self, rows: int | None = None) -> NDArray[Any]:
        """Read the whole array, or the next ``rows`` of it where it is in C order, in the machine's byte order."""
        shape = self.shape if rows is None else (rows, *self.shape[1:])
        with unpacking(self._path):
            array: NDArray[Any] = np.empty(shape, self.dtype, order="F" if self.fortran_order else "C")
            if self.nbytes:
                raw = array.reshape(-1, order="A").view(np.uint8).data
                for start in range(0, raw.nbytes, _PIECE):
                    piece = raw[start : start + _PIECE]
                    if self._stream.readinto(piece) != piece.nbytes:
                        raise EOFError
                self._left -= array.nbytes
            # The checksum of a member is compared when its end is reached.
            if self._left == 0 and self._stream.read(1):
                raise EOFError
        array = array.astype(self.dtype.newbyteorder("="), copy=False)
        if self.nbytes and self.dtype.kind in "Ub":
            points = array.reshape(-1, order="A").view(np.uint32 if self.dtype.kind == "U" else np.uint8)
            if points.max(initial=0) > (0x10FFFF if self.dtype.kind == "U" else 1):
                raise _damaged(self._path, f"`{self.name}` has values that {self.dtype} does not have")
        return array


@contextlib.contextmanager
def open_archive(source: PathLike | bytes, limits: Limits) -> Iterator[Archive]:
    """Open an ``.npz`` from a path or from its bytes."""
    with contextlib.ExitStack() as stack:
        if isinstance(source, bytes | bytearray | memoryview):
            path: PathLike = "bytes"
            file: IO[bytes] = io.BytesIO(source)
        else:
            path = source
            checked = check_readable(source)
            with path_errors(source):
                # A ZipFile that opens the file itself keeps it open for as long as any member is.
                file = stack.enter_context(checked.open("rb"))
        archive = Archive(file, path, limits)
        stack.callback(archive.zip.close)
        yield archive


@contextlib.contextmanager
def unpacking(path: PathLike, what: str = "it cannot be unpacked") -> Iterator[None]:
    """Give whatever reading a damaged or foreign ``.npz`` raises as one error."""
    try:
        yield
    except GdscoreError:
        raise
    except zipfile.BadZipFile as error:
        raise _damaged(path, "it is truncated, damaged or no .npz at all") from error
    except EOFError as error:
        raise _damaged(path, "an array in it ends too early") from error
    # What `zipfile` and NumPy raise for damaged bytes is not documented, and differs between versions.
    except Exception as error:
        raise _damaged(path, f"{what} ({shown(error)})") from error


def _damaged(path: PathLike, what: str) -> GdscoreError:
    return GdscoreError(f"Expected {os.fspath(path)!r} to be an .npz of arrays, but {what}: write the file again")


# -- JSON -----------------------------------------------------------------------------------------------------


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
    text = json_text(value, indent=2)
    with atomic(path, "w") as file:
        file.write(text + "\n")


def read_json(path: PathLike) -> Any:
    """Read a JSON file; NaN and Infinity, which JSON does not have, are refused."""
    checked = check_readable(path)
    with path_errors(path):
        raw = checked.read_bytes()
    return json_from_bytes(raw, os.fspath(path))


def json_text(value: Any, indent: int | None = None) -> str:
    """Text of a value that JSON has."""
    try:
        return json.dumps(value, indent=indent, allow_nan=False, default=_of_numpy)
    except (TypeError, ValueError, RecursionError) as error:
        raise GdscoreError(f"Expected values that JSON has, but got others: {error}") from None


def _of_numpy(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"{shown(value)} is of type {type(value).__name__}")


def json_from_bytes(raw: bytes, where: str) -> Any:
    """Value of a JSON text in UTF-8."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    try:
        return json.loads(raw.decode("utf-8-sig"), parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise GdscoreError(
            f"Expected {where!r} to be JSON in UTF-8, but it is damaged or another kind of file ({error}): "
            "write it again"
        ) from error
