"""The outer form of a state: a line that names its kind, a checksum, and a record of `gdscore.files`.

Zip files have bytes that no checksum of theirs covers. The checksum here covers every byte, so that a state that
changed on its way is always refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from gdscore import files
from gdscore.errors import GdscoreError
from gdscore.files import Record, RecordSchema

__all__ = ["pack", "unpack"]

_DIGEST = 32


def pack(schema: RecordSchema, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> bytes:
    """Bytes of a state."""
    record = files.record_to_bytes(schema, header, arrays)
    return _line(schema) + hashlib.sha256(record).digest() + record


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
    digest, record = data[len(line) : len(line) + _DIGEST], data[len(line) + _DIGEST :]
    if hashlib.sha256(record).digest() != digest:
        raise GdscoreError(
            f"Expected the bytes of a {schema.format} as they were made, but their checksum is another: they were "
            "truncated or changed on the way, make the state again"
        )
    return files.read_record(record, schema)


def _line(schema: RecordSchema) -> bytes:
    return f"{schema.format}, version {schema.version}\n".encode()
