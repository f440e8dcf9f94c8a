"""The outer form of a state: a line that names its kind, a checksum, a header in JSON, and the bytes of arrays.

Requirements met here:

- the checksum covers every byte, so that a state that changed on its way is always refused;
- nothing is allocated that the bytes do not hold, and types other than integers, floats and text are refused;
- reading one is quick, as merging reads thousands: a zip file, as estimators are saved in, would take three times as
  long.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore._paths import DEFAULT_LIMITS
from gdscore.errors import GdscoreError
from gdscore.files import Record, RecordSchema

__all__ = ["pack", "unpack"]

_DIGEST = 32
_LENGTH = 8
_TYPES = {f"<{kind}{size}": np.dtype(f"<{kind}{size}") for kind in "iuf" for size in (4, 8)} | {"|u1": np.dtype("|u1")}


def pack(schema: RecordSchema, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> bytes:
    """Bytes of a state."""
    contents = {"format": schema.format, "version": schema.version, **header}
    stored = {name: _little(np.asarray(array)) for name, array in arrays.items()}
    schema.check(contents, stored, "the state to write")
    described = [[name, array.dtype.str, list(array.shape)] for name, array in stored.items()]
    text = json.dumps([contents, described], allow_nan=False).encode()
    body = b"".join([len(text).to_bytes(_LENGTH, "little"), text, *(array.tobytes() for array in stored.values())])
    return _line(schema) + hashlib.sha256(body).digest() + body


def unpack(state: Any, schema: RecordSchema) -> Record:
    """Contents of a state, or an error where it is another kind of bytes or has changed."""
    if not isinstance(state, bytes | bytearray | memoryview):
        raise GdscoreError(f"Expected the bytes of a {schema.format}, but got {type(state).__name__}")
    data, line = bytes(state), _line(schema)
    if not data.startswith(line):
        raise GdscoreError(
            f"Expected the bytes of a {schema.format} of version {schema.version}, but they begin with "
            f"{data[: len(line)]!r}"
        )
    digest, body = data[len(line) : len(line) + _DIGEST], memoryview(data)[len(line) + _DIGEST :]
    if hashlib.sha256(body).digest() != digest:
        raise GdscoreError(
            f"Expected the bytes of a {schema.format} as they were made, but their checksum is another: they were "
            "truncated or changed on the way, make the state again"
        )
    try:
        header, arrays = _contents(body)
    except (ValueError, TypeError, RecursionError) as error:
        raise GdscoreError(
            f"Expected the bytes of a {schema.format}, but what they hold is something else ({error}): make the state "
            "again"
        ) from error
    return schema.check(header, arrays, "the state")


def _contents(body: memoryview) -> tuple[Any, dict[str, NDArray[Any]]]:
    start = _LENGTH + int.from_bytes(body[:_LENGTH], "little")
    if not len(body) >= _LENGTH or start > min(len(body), DEFAULT_LIMITS.json):
        raise ValueError("its header is longer than it may be")
    header, described = json.loads(bytes(body[_LENGTH:start]))
    found = dict(_arrays(body, start, described))
    if len(found) != len(described):
        raise ValueError("an array is there twice")
    return header, found


def _arrays(body: memoryview, start: int, described: Any) -> Iterator[tuple[str, NDArray[Any]]]:
    for name, kind, shape in described:
        text = isinstance(kind, str) and kind.startswith("<U") and kind[2:].isascii() and kind[2:].isdigit()
        dtype = np.dtype(f"<U{int(kind[2:9])}") if text else _TYPES.get(str(kind))
        sizes = [size for size in shape if type(size) is int and size >= 0]
        if not isinstance(name, str) or dtype is None or not dtype.itemsize or len(sizes) != len(shape):
            raise ValueError(f"an array of type {kind!s:.40}")
        count = math.prod(sizes)
        end = start + count * dtype.itemsize
        if end > len(body):
            raise ValueError("its arrays end before their end")
        if text and np.frombuffer(body[start:end], np.uint32).max(initial=0) > 0x10FFFF:
            raise ValueError("text of characters that are none")
        yield name, np.frombuffer(body[start:end], dtype).reshape(sizes).astype(dtype.newbyteorder("="), copy=False)
        start = end
    if start != len(body):
        raise ValueError("there is something behind its arrays")


def _little(array: NDArray[Any]) -> NDArray[Any]:
    """Array in little-endian byte order and of at least one character, as it is stored."""
    if array.dtype.kind == "U" and not array.dtype.itemsize:
        array = array.astype("<U1")
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))


def _line(schema: RecordSchema) -> bytes:
    return f"{schema.format}, version {schema.version}\n".encode()
