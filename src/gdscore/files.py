"""Arrays and numbers on disk, without pickle.

Requirements met here:

- a file is complete or absent: it is written under a temporary name beside its place, then renamed;
- nothing read from disk is ever executed, and what a file claims is checked before memory is taken (`Limits`);
- whatever is wrong with a file is a `GdscoreError` of one sentence that names it.
"""

from __future__ import annotations

import io
import json
import math
import os
import zipfile
from collections.abc import Collection, Mapping
from typing import IO, Any, TypeAlias

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from gdscore._atomic import atomic
from gdscore._limits import DEFAULT_LIMITS, Limits
from gdscore._npz import is_plain, open_archive
from gdscore._paths import PathLike, check_readable, path_errors
from gdscore._records import ArraySpec, Number, OneOf, Record, RecordSchema, check_arrays, check_json
from gdscore.errors import GdscoreError

__all__ = [
    "ArraySpec",
    "Limits",
    "Number",
    "OneOf",
    "PathLike",
    "Record",
    "RecordSchema",
    "arrays_to_bytes",
    "atomic",
    "check_arrays",
    "check_json",
    "read_arrays",
    "read_json",
    "read_record",
    "write_arrays",
    "write_json",
    "write_record",
]

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


def write_record(path: PathLike, schema: RecordSchema, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Write a record that `read_record` accepts with the same schema; one that it would refuse is refused here."""
    text = _to_json({"format": schema.format, "version": schema.version, **header})
    checked = {name: np.asarray(array) for name, array in arrays.items()}
    schema.check(_from_json(text.encode(), "the header"), checked, "the record to write")
    write_arrays(path, {"header": text, **checked})


def read_record(source: PathLike | bytes, schema: RecordSchema, *, limits: Limits = DEFAULT_LIMITS) -> Record:
    """Read a record whose header and arrays are all as the schema says.

    Parameters
    ----------
    source : path or bytes
        A file that `write_record` wrote, or the bytes of one.
    schema : RecordSchema
        What must be there.
    limits : Limits
        Bounds the header and all arrays together.

    Returns
    -------
    Record
        Header (without format and version), arrays, and the sizes that the schema names.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "m"
    >>> schema = RecordSchema(
    ...     "example", 1, {"level": Number(least=0, most=1)}, {"mix": ArraySpec("f", ("classes",), least=0)}
    ... )
    >>> write_record(path, schema, {"level": 0.9}, {"mix": [0.25, 0.75]})
    >>> read_record(path, schema)
    Record(header={'level': 0.9}, arrays={'mix': array([0.25, 0.75])}, sizes={'classes': 2})
    """
    where = "bytes" if isinstance(source, bytes | bytearray | memoryview) else os.fspath(source)
    with open_archive(source, limits) as archive:
        members = {name: archive.member(name) for name in archive.names}
        archive.check_memory(list(members.values()))
        header = members.pop("header", None)
        if header is None or header.shape or header.dtype.kind != "U" or header.nbytes > 4 * limits.json:
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
