"""What values must be: the one schema language of records, score states and saved target states.

A specification of a JSON value is a type, a `Number`, a `OneOf`, a list or a dict of specifications, or a value that
must be equal; that of an array is an `ArraySpec`. A file with valid checksums can still have been edited by hand, so
every number is checked once: its type, its range, that it is finite, and that sizes agree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore.errors import GdscoreError, shown

_KINDS = {"f": "floating-point numbers", "i": "integers", "b": "booleans", "U": "strings"}


@dataclass(frozen=True)
class ArraySpec:
    """What an array of a record must be."""

    kind: str  # {"f", "i", "b", "U"}: Floating-point numbers, integers (signed or not), booleans or strings
    # Size of each axis; a name stands for one size throughout the record. ``()`` for a single value.
    shape: tuple[int | str, ...] = ()
    # Bounds of every value
    least: float | None = None
    most: float | None = None
    optional: bool = False  # whether the array may be missing
    finite: bool = True  # whether NaN and infinite numbers are refused


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
            finite = math.isfinite(value)
        except OverflowError:
            return False
        return finite and self.least <= value <= self.most and self.above < value


@dataclass(frozen=True)
class OneOf:
    """One of several things in a JSON header: values such as ``"stable"`` or ``None``, or specifications of values."""

    options: tuple[Any, ...]

    def __init__(self, *options: Any) -> None:
        object.__setattr__(self, "options", options)


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
    if isinstance(spec, dict) and set(spec) == {str}:
        _require(isinstance(value, dict), "names with values", value, where)
        for key, item in value.items():
            check_json(item, spec[str], f"{key!r} of {where}")
    elif isinstance(spec, dict):
        _require(isinstance(value, dict) and value.keys() == spec.keys(), f"the names {sorted(spec)}", value, where)
        for key, inner in spec.items():
            check_json(value[key], inner, f"{key!r} of {where}")
    elif isinstance(spec, list):
        _require(isinstance(value, list), "a list", value, where)
        for position, item in enumerate(value):
            check_json(item, spec[0], f"item {position} of {where}")
    elif isinstance(spec, OneOf):
        _require(any(_fits(value, option) for option in spec.options), f"one of {list(spec.options)}", value, where)
    else:
        wanted = {str: "a string", bool: "true or false", int: "a whole number", float: "a number"}
        name = wanted.get(spec) if isinstance(spec, type) else f"{spec!r}"
        _require(_fits_leaf(value, spec), str(name), value, where)


def check_arrays(
    arrays: Mapping[str, Any],
    specs: Mapping[str, ArraySpec],
    where: str,
    least_sizes: Mapping[str, int] | None = None,
    sizes: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """Check named arrays against their specifications; gives the sizes that shapes name, of which some may be known.

    Examples
    --------
    >>> specs = {"mix": ArraySpec("f", ("classes",), least=0), "confusion": ArraySpec("f", ("classes", "classes"))}
    >>> check_arrays({"mix": np.ones(3), "confusion": np.ones((3, 3))}, specs, "it")
    {'classes': 3}
    >>> check_arrays({"mix": np.ones(3), "confusion": np.ones((3, 2))}, specs, "it")
    Traceback (most recent call last):
    gdscore.errors.GdscoreError: Expected `confusion` in it to have shape (classes = 3, classes = 3), but got (3, 2)
    """
    found_sizes = dict(sizes or {})
    for name, spec in specs.items():
        if not spec.optional and name not in arrays:
            raise GdscoreError(f"Expected an array `{name}` in {where}, but there is none: the file is damaged")
    for name, array in arrays.items():
        if name not in specs:
            raise GdscoreError(f"Expected no array `{name}` in {where}, but there is one: the file is damaged")
        _check_array(name, np.asarray(array), specs[name], where, found_sizes, least_sizes or {})
    return found_sizes


def _check_array(
    name: str, array: NDArray[Any], spec: ArraySpec, where: str, sizes: dict[str, int], least_sizes: Mapping[str, int]
) -> None:
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
        if spec.finite and not np.isfinite(array).all():
            raise GdscoreError(f"Expected `{name}` in {where} to be finite, but it has NaN or Inf")
        if (spec.least is not None and array.min() < spec.least) or (spec.most is not None and array.max() > spec.most):
            bounds = [f"at least {spec.least}"] if spec.least is not None else []
            bounds += [f"at most {spec.most}"] if spec.most is not None else []
            raise GdscoreError(
                f"Expected `{name}` in {where} to be {' and '.join(bounds)}, but it ranges from {array.min()} to "
                f"{array.max()}"
            )


def _fits(value: Any, spec: Any) -> bool:
    try:
        check_json(value, spec, "")
    except GdscoreError:
        return False
    return True


def _fits_leaf(value: Any, spec: Any) -> bool:
    if isinstance(spec, Number):
        return spec.admits(value)
    if spec is int or spec is float:
        return Number(integer=spec is int).admits(value)
    if isinstance(spec, type):
        return isinstance(value, spec)
    return type(value) is type(spec) and bool(value == spec)


def _require(fits: bool, wanted: str, value: Any, where: str) -> None:
    if not fits:
        raise GdscoreError(f"Expected {wanted} at {where}, but got {shown(value)}")
