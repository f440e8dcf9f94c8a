"""Files without pickle: arrays of an ``.npz``, JSON, and records (a JSON header and named arrays).

Requirements met here:

- nothing read is ever executed: headers are matched, not evaluated, and objects are refused;
- what a header or the archive's directory claims is compared with what the file holds, and with a limit, before memory
  is taken; only the compressions that NumPy writes are unpacked, as the others cannot be unpacked in pieces;
- every number of a record is checked against its schema;
- a file is written completely or not at all.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import re
import zipfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Any, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from gdscore._paths import DEFAULT_LIMITS, Limits, PathLike, atomic, check_path, check_readable, path_errors
from gdscore._schema import ArraySpec, check_arrays, check_json
from gdscore.errors import GdscoreError

__all__ = ["Limits", "atomic", "read_arrays", "read_json", "write_arrays", "write_json"]

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
    """Give whatever reading a damaged or foreign ``.npz`` raises as one error."""
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


class Record(NamedTuple):
    """Contents of a record that fits its schema."""

    header: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    sizes: dict[str, int]


@dataclass(frozen=True)
class RecordSchema:
    """What a record must hold, and nothing else."""

    format: str  # name of the kind of file, such as ``"gdscore estimator"``
    version: int  # of the layout; files of another version are refused
    header: Mapping[str, Any] = field(default_factory=dict)  # specification of the header, see `check_json`
    arrays: Mapping[str, ArraySpec] = field(default_factory=dict)  # by name
    # Smallest values of the sizes that shapes name; 1 where nothing is given
    least_sizes: Mapping[str, int] = field(default_factory=dict)

    def check_format(self, header: Any, where: str) -> None:
        """Refuse another kind of file or another version."""
        if not isinstance(header, dict) or header.get("format") != self.format:
            raise GdscoreError(f"Expected {where!r} to be a {self.format}, but it is something else")
        version = header.get("version")
        if isinstance(version, bool) or version != self.version:
            raise GdscoreError(
                f"Expected version {self.version} of a {self.format}, but {where!r} has version {version!r}: "
                "make it again, or use the gdscore that wrote it"
            )

    def check(self, header: Any, arrays: Mapping[str, NDArray[Any]], where: str) -> Record:
        """Give the record, or say what does not fit."""
        self.check_format(header, where)
        contents = {key: value for key, value in header.items() if key not in ("format", "version")}
        check_json(contents, dict(self.header), f"the header of {where!r}")
        sizes = check_arrays(arrays, self.arrays, repr(where), self.least_sizes)
        return Record(contents, dict(arrays), sizes)


Value: TypeAlias = NDArray[Any] | int | float | str | bool


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


def read_arrays(
    source: PathLike | bytes, *, names: Collection[str] | None = None, limits: Limits = DEFAULT_LIMITS
) -> dict[str, Value]:
    """Read what `write_arrays` wrote; numbers and strings come back as those of Python.

    Parameters
    ----------
    source : path or bytes
        A file, or the bytes of one.
    names : collection of str, optional
        Read only these, of those that are there.
    limits : Limits
        Arrays that take more than ``limits.memory`` bytes together are refused.
    """
    with open_archive(source, limits) as archive:
        members = [archive.member(name) for name in archive.names if names is None or name in names]
        archive.check_memory(members)
        arrays = {member.name: member.read() for member in members}
    return {name: array if array.ndim else array.item() for name, array in arrays.items()}


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
    text = _to_json(value, indent=2)
    with atomic(path, "w") as file:
        file.write(text + "\n")


def read_json(path: PathLike, *, limits: Limits = DEFAULT_LIMITS) -> Any:
    """Read a JSON file; NaN and Infinity, which JSON does not have, are refused."""
    checked = check_readable(path)
    with path_errors(path):
        if checked.stat().st_size > limits.json:
            raise GdscoreError(
                f"Expected at most {limits.json:,} bytes of JSON in {os.fspath(path)!r}, but it has "
                f"{checked.stat().st_size:,}: raise the limit with limits=Limits(json=...) if you trust the file"
            )
        raw = checked.read_bytes()
    return _from_json(raw, os.fspath(path))


def record_to_bytes(schema: RecordSchema, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> bytes:
    """Bytes of a record that `read_record` accepts with the same schema; one that it would refuse is refused here."""
    text = _to_json({"format": schema.format, "version": schema.version, **header})
    checked = {name: np.asarray(array) for name, array in arrays.items()}
    schema.check(_from_json(text.encode(), "the header"), checked, "the record to write")
    return arrays_to_bytes({"header": text, **checked})


def read_record(source: PathLike | bytes, schema: RecordSchema) -> Record:
    """Read a record, a file or the bytes of `record_to_bytes`, whose header and arrays are all as the schema says.

    The header comes without format and version; `DEFAULT_LIMITS` bounds it and all arrays together.

    Examples
    --------
    >>> schema = RecordSchema("example", 1, {"level": float}, {"mix": ArraySpec("f", ("classes",), least=0)})
    >>> read_record(record_to_bytes(schema, {"level": 0.9}, {"mix": [0.25, 0.75]}), schema)
    Record(header={'level': 0.9}, arrays={'mix': array([0.25, 0.75])}, sizes={'classes': 2})
    """
    where = "bytes" if isinstance(source, bytes | bytearray | memoryview) else os.fspath(check_path(source))
    with open_archive(source, DEFAULT_LIMITS) as archive:
        members = {name: archive.member(name) for name in archive.names}
        archive.check_memory(list(members.values()))
        header = members.pop("header", None)
        if header is None or header.shape or header.dtype.kind != "U" or header.nbytes > 4 * DEFAULT_LIMITS.json:
            raise GdscoreError(f"Expected {where!r} to be a {schema.format}, but it is something else")
        contents = _from_json(str(header.read()).encode(errors="replace"), where)
        schema.check_format(contents, where)
        arrays = {name: member.read() for name, member in members.items()}
    return schema.check(contents, arrays, where)


# -- what may be written --------------------------------------------------------------------------------------


def _pack(file: IO[bytes], arrays: Mapping[str, NDArray[Any]]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                npy.write_array(member, array, allow_pickle=False)


def _storable(values: Mapping[str, Value]) -> dict[str, NDArray[Any]]:
    if not isinstance(values, Mapping):
        raise GdscoreError(f"Expected a dict of arrays to write, but got {type(values).__name__}")
    return {name: _storable_value(name, value) for name, value in values.items()}


def _storable_value(name: str, value: Any) -> NDArray[Any]:
    if not isinstance(name, str) or not name or "\0" in name or "\\" in name:
        raise GdscoreError(f"Expected names of arrays to be strings without backslashes, but got {name!r}")
    if not isinstance(value, np.ndarray | np.generic | bool | int | float | str):
        raise GdscoreError(
            f"Expected `{name}` to be a NumPy array, a number, a string or a boolean, but got "
            f"{type(value).__name__}: make an array of it with numpy.asarray"
        )
    array = np.asarray(value, order="C")
    if not is_plain(array.dtype):
        raise GdscoreError(
            f"Expected `{name}` to be numbers of at most 64 bits or strings, but got {array.dtype}, "
            "which only pickle could store"
        )
    if isinstance(value, str) and value.endswith("\0"):
        raise GdscoreError(f"Expected `{name}` not to end in a NUL character, which NumPy would drop")
    return array


def _to_json(value: Any, indent: int | None = None) -> str:
    try:
        return json.dumps(_plain(value, "the value"), indent=indent, allow_nan=False)
    except RecursionError:
        raise GdscoreError(
            "Expected values that JSON has, but they are nested too deeply or within themselves"
        ) from None


def _from_json(raw: bytes, where: str) -> Any:
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    try:
        return json.loads(raw.decode("utf-8-sig"), parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise GdscoreError(
            f"Expected {where!r} to be JSON in UTF-8, but it is damaged or another kind of file ({error}): "
            "write it again"
        ) from error


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
