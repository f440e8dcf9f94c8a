"""Arrays of an ``.npz``, read without trusting it.

Requirements met here:

- nothing read is ever executed: headers are matched, not evaluated, and objects are refused;
- what a header or the archive's directory claims is compared with what the file holds, and with a limit, before
  memory is taken;
- only the compressions that NumPy writes are unpacked: the others cannot be unpacked in pieces;
- whatever is wrong with a file is one sentence that names it.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
import zipfile
from collections.abc import Iterator
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from gdscore._limits import Limits
from gdscore._paths import PathLike, check_readable, path_errors
from gdscore.errors import GdscoreError

__all__ = ["Archive", "ArrayMember", "is_plain", "open_archive"]

_PIECE = 1 << 22
_HEADER_BYTES = 10_000
_DEFLATE_RATIO = 1032
"""Bytes that one byte of deflate can stand for at most."""

_FIELD = re.compile(r"'(descr|fortran_order|shape)'\s*:\s*('[^']*'|True|False|\([\dL,\s]*\))")
_TYPE = re.compile(r"[<>|=]?(b1|\?|[iufc]\d{1,2}|[USV]\d{1,9}|O8?|[mM]8(\[\w{1,12}\])?)")


def is_plain(dtype: np.dtype[Any]) -> bool:
    """Whether a type is booleans, integers, strings or floating-point numbers of at most 64 bits."""
    return dtype.kind in "biuU" or (dtype.kind == "f" and dtype.itemsize <= 8)


class Archive:
    """An open ``.npz`` whose directory is consistent with the size of the file."""

    def __init__(self, file: IO[bytes], path: PathLike, limits: Limits) -> None:
        self.path, self.limits = path, limits
        with unpacking(path):
            size = file.seek(0, io.SEEK_END)
            self.zip = zipfile.ZipFile(file)
            entries = self.zip.infolist()
        self.names = [entry.filename.removesuffix(".npy") for entry in entries]
        if len(set(self.names)) < len(entries):
            raise damaged(path, "it has two entries of one name")
        if sum(entry.compress_size for entry in entries) > size:
            raise damaged(path, "its directory claims more bytes than the file has")
        for entry in entries:
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise GdscoreError(
                    f"Expected `{entry.filename}` in {os.fspath(path)!r} to be stored or deflated as NumPy does, but "
                    "it is compressed in another way: write it with numpy.savez or numpy.savez_compressed"
                )
            if entry.file_size > entry.compress_size * _DEFLATE_RATIO:
                raise damaged(path, f"`{entry.filename}` claims more bytes than it can hold")

    def member(self, name: str) -> ArrayMember:
        """Open the array of a name."""
        return ArrayMember(self, name)

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

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran_order: bool

    def __init__(self, archive: Archive, name: str) -> None:
        self.name, self._path = name, archive.path
        entry = f"{name}.npy"
        if entry not in archive.zip.NameToInfo:
            raise damaged(archive.path, f"the entry {name!r} in it is no array")
        with unpacking(archive.path):
            self._stream = cast(zipfile.ZipExtFile, archive.zip.open(entry))
            self._read_header()
            held = archive.zip.getinfo(entry).file_size - self._stream.tell()
        # Strings of no characters take no bytes in a file and four each in memory.
        if held != self.nbytes or (self.dtype.itemsize == 0 and math.prod(self.shape) > 1):
            raise damaged(
                archive.path, f"`{name}` of shape {self.shape} and {self.dtype} takes other than {held} bytes"
            )
        self._left = held

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
            array = np.empty(shape, self.dtype, order="F" if self.fortran_order else "C")
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
                raise damaged(self._path, f"`{self.name}` has values that {self.dtype} does not have")
        return array

    def _read_header(self) -> None:
        magic = self._stream.read(8)
        if magic[:6] != b"\x93NUMPY" or magic[6:] not in (b"\1\0", b"\2\0", b"\3\0"):
            raise damaged(self._path, f"`{self.name}` in it is no array of NumPy")
        length = int.from_bytes(self._stream.read(2 if magic[6] == 1 else 4), "little")
        if length > _HEADER_BYTES:
            raise damaged(self._path, f"the header of `{self.name}` is too long")
        text = self._stream.read(length).decode("latin1")
        found = dict(_FIELD.findall(text))
        described = found.get("descr", "''").strip("'")
        kind = _TYPE.fullmatch(described)
        if (
            len(found) != 3
            or _FIELD.sub("", text).strip(" ,{}\n\t")
            or kind is None
            or found["fortran_order"] not in ("True", "False")
        ):
            raise GdscoreError(
                f"Expected `{self.name}` in {os.fspath(self._path)!r} to be numbers or strings, but its header is "
                f"{text.strip()[:80]!r}: write it again as an array of numbers or strings"
            )
        self.dtype = np.dtype(described)
        self.fortran_order = found["fortran_order"] == "True"
        self.shape = tuple(int(part.strip("L ")) for part in found["shape"][1:-1].split(",") if part.strip())
        if self.dtype.hasobject:
            raise GdscoreError(
                f"Expected `{self.name}` in {os.fspath(self._path)!r} to be numbers or strings, but it holds pickled "
                "Python objects, which are never loaded: save it with numpy.asarray(x, dtype=float), int or str"
            )
        if not is_plain(self.dtype):
            raise GdscoreError(
                f"Expected `{self.name}` in {os.fspath(self._path)!r} to be numbers or strings, but got {self.dtype}"
            )


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
def unpacking(path: PathLike) -> Iterator[None]:
    """Word whatever reading a damaged or foreign ``.npz`` raises."""
    try:
        yield
    except GdscoreError:
        raise
    except zipfile.BadZipFile as error:
        raise damaged(path, "it is truncated, damaged or no .npz at all") from error
    except EOFError as error:
        raise damaged(path, "an array in it ends too early") from error
    # What `zipfile` raises for damaged bytes is not documented, and differs between versions.
    except Exception as error:
        raise damaged(path, f"it cannot be unpacked ({error or type(error).__name__})") from error


def damaged(path: PathLike, what: str) -> GdscoreError:
    """Error about an ``.npz`` that is not what it should be."""
    return GdscoreError(f"Expected {os.fspath(path)!r} to be an .npz of arrays, but {what}: write the file again")
