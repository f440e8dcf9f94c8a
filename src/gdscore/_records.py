"""Records: files of a JSON header and named arrays, each checked against a schema before anything uses it.

A specification of a JSON value is a type, a `Number`, a `OneOf`, a list or a dict of specifications, or a value that
must be equal; that of an array is an `ArraySpec`. A file with valid checksums can still have been edited by hand, so
every number is checked once: its type, its range, that it is finite, and that sizes agree.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gdscore._files import (
    DEFAULT_LIMITS,
    ArrayMember,
    PathLike,
    arrays_to_bytes,
    check_path,
    json_from_bytes,
    json_text,
    open_archive,
)
from gdscore.errors import GdscoreError, shown

_KINDS = {"f": "floating-point numbers", "i": "integers", "b": "booleans", "U": "strings"}
_TYPES = {str: "a string", bool: "true or false", int: "a whole number", float: "a number"}


@dataclass(frozen=True)
class ArraySpec:
    """What an array of a record must be."""

    kind: str  # {"f", "i", "b", "U"}: Floating-point numbers, integers (signed or not), booleans or strings
    # Size of each axis; a name stands for one size throughout the record. ``()`` for a single value.
    shape: tuple[int | str, ...] = ()
    # Bounds of every value
    least: float = -math.inf
    most: float = math.inf
    optional: bool = False  # whether the array may be missing


@dataclass(frozen=True)
class Number:
    """A number within bounds in a JSON header, for example ``Number(above=0, most=1)``; booleans are no numbers."""

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    integer: bool = False

    def admits(self, value: Any) -> bool:
        """Whether a value is such a number."""
        if isinstance(value, bool) or not isinstance(value, int if self.integer else int | float):
            return False
        try:
            return math.isfinite(value) and self.least <= value <= self.most and self.above < value
        except OverflowError:
            return False


class OneOf:
    """One of several things in a JSON header: values such as ``"stable"`` or ``None``, or specifications of values."""

    def __init__(self, *options: Any) -> None:
        self.options = options


@dataclass(frozen=True)
class RecordSchema:
    """What a record must hold, and nothing else."""

    format: str  # name of the kind of file, such as ``"gdscore estimator"``
    version: int  # of the layout; files of another version are refused
    header: Mapping[str, Any] = field(default_factory=dict)  # specification of the header, see `check_json`
    arrays: Mapping[str, ArraySpec] = field(default_factory=dict)  # by name
    # Smallest values of the sizes that shapes name; 1 where nothing is given
    least_sizes: Mapping[str, int] = field(default_factory=dict)


class Record(NamedTuple):
    """Contents of a record that fits its schema."""

    header: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    sizes: dict[str, int]


def record_to_bytes(schema: RecordSchema, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> bytes:
    """Bytes of a record that `read_record` accepts with the same schema; one that it would refuse is refused here."""
    text = json_text({"format": schema.format, "version": schema.version, **header})
    held = {name: np.asarray(array) for name, array in arrays.items()}
    _checked(schema, json_from_bytes(text.encode(), "the header"), held, "the record to write")
    return arrays_to_bytes({"header": text, **held})


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
        members = {name: ArrayMember(archive, name) for name in archive.names}
        archive.check_memory(list(members.values()))
        text = members.pop("header", None)
        if text is None or text.shape or text.dtype.kind != "U":
            raise GdscoreError(f"Expected {where!r} to be a {schema.format}, but it is something else")
        header = json_from_bytes(str(text.read()).encode(errors="replace"), where)
        _check_format(schema, header, where)
        arrays = {name: member.read() for name, member in members.items()}
    return _checked(schema, header, arrays, where)


def _check_format(schema: RecordSchema, header: Any, where: str) -> None:
    if not isinstance(header, dict) or header.get("format") != schema.format:
        raise GdscoreError(f"Expected {where!r} to be a {schema.format}, but it is something else")
    version = header.get("version")
    if isinstance(version, bool) or version != schema.version:
        raise GdscoreError(
            f"Expected version {schema.version} of a {schema.format}, but {where!r} has version {version!r}: "
            "make it again, or use the gdscore that wrote it"
        )


def _checked(schema: RecordSchema, header: Any, arrays: Mapping[str, NDArray[Any]], where: str) -> Record:
    _check_format(schema, header, where)
    contents = {key: value for key, value in header.items() if key not in ("format", "version")}
    check_json(contents, dict(schema.header), f"the header of {where!r}")
    for name in arrays.keys() - schema.arrays.keys():
        raise GdscoreError(f"Expected no array `{name}` in {where!r}, but there is one: the file is damaged")
    sizes: dict[str, int] = {}
    for name, spec in schema.arrays.items():
        if name in arrays:
            _check_array(name, arrays[name], spec, repr(where), sizes, schema.least_sizes)
        elif not spec.optional:
            raise GdscoreError(f"Expected an array `{name}` in {where!r}, but there is none: the file is damaged")
    return Record(contents, dict(arrays), sizes)


def check_json(value: Any, spec: Any, where: str) -> None:
    """Check a JSON value against a specification, as described at the top of this file.

    A dict ``{"key": spec}`` has exactly these keys, a dict ``{str: spec}`` any keys. ``float`` is a finite number, also
    a whole one.

    Examples
    --------
    >>> check_json({"level": 0.9, "families": ["fog"]}, {"level": Number(above=0, most=1), "families": [str]}, "it")
    >>> check_json({"level": True, "families": []}, {"level": float, "families": [str]}, "it")
    Traceback (most recent call last):
    gdscore.errors.GdscoreError: Expected a number at 'level' of it, but got True
    """
    if isinstance(spec, dict):
        any_names = set(spec) == {str}
        fits = isinstance(value, dict) and (any_names or value.keys() == spec.keys())
        _require(fits, "names with values" if any_names else f"the names {sorted(spec)}", value, where)
        for key, item in value.items():
            check_json(item, spec[str if any_names else key], f"{key!r} of {where}")
    elif isinstance(spec, list):
        _require(isinstance(value, list), "a list", value, where)
        for position, item in enumerate(value):
            check_json(item, spec[0], f"item {position} of {where}")
    elif isinstance(spec, OneOf):
        _require(any(_fits(value, option) for option in spec.options), f"one of {list(spec.options)}", value, where)
    elif isinstance(spec, Number):
        _require(spec.admits(value), repr(spec), value, where)
    elif isinstance(spec, type):
        fits = Number(integer=spec is int).admits(value) if spec in (int, float) else isinstance(value, spec)
        _require(fits, _TYPES[spec], value, where)
    else:
        _require(type(value) is type(spec) and bool(value == spec), repr(spec), value, where)


def _fits(value: Any, spec: Any) -> bool:
    try:
        check_json(value, spec, "")
    except GdscoreError:
        return False
    return True


def _require(fits: bool, wanted: str, value: Any, where: str) -> None:
    if not fits:
        raise GdscoreError(f"Expected {wanted} at {where}, but got {shown(value)}")


def _check_array(
    name: str, array: NDArray[Any], spec: ArraySpec, where: str, sizes: dict[str, int], least_sizes: Mapping[str, int]
) -> None:
    """Check an array against its specification; ``sizes`` are those that shapes have named so far."""
    kind = "i" if array.dtype.kind == "u" else array.dtype.kind
    if kind != spec.kind:
        raise GdscoreError(f"Expected `{name}` in {where} to be {_KINDS[spec.kind]}, but got {array.dtype}")
    fits = array.ndim == len(spec.shape)
    for size, wanted in zip(array.shape, spec.shape, strict=False) if fits else ():
        if isinstance(wanted, str):
            fits &= sizes.setdefault(wanted, size) == size and size >= least_sizes.get(wanted, 1)
        else:
            fits &= size == wanted
    if not fits:
        expected = ", ".join(f"{w} = {sizes[w]}" if w in sizes else str(w) for w in spec.shape)
        raise GdscoreError(f"Expected `{name}` in {where} to have shape ({expected}), but got {array.shape}")
    if kind in "fi" and array.size:
        if not np.isfinite(array).all():
            raise GdscoreError(f"Expected `{name}` in {where} to be finite, but it has NaN or Inf")
        if array.min() < spec.least or array.max() > spec.most:
            raise GdscoreError(
                f"Expected `{name}` in {where} to be at least {spec.least} and at most {spec.most}, but it ranges from "
                f"{array.min()} to {array.max()}"
            )
