"""The door of `Outputs`: every array is checked here once, and refused in words.

A sum tells cheaply whether anything is NaN or infinite; only when it is not finite is the row looked for. Host
arrays are checked at once. Reading a value of an accelerator's array would wait for it, so there only shapes and
types are checked here; `row_checks` gives the rest as flags on the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gdscore import _arrays as arrays
from gdscore._arrays import Array, namespace
from gdscore.errors import GdscoreError

__all__ = ["RowCheck", "check_outputs", "check_rows", "row_checks"]

_DIMENSIONS = {
    "logits": 2,
    "probabilities": 2,
    "features": 2,
    "peer_logits": 2,
    "batch_logits": 2,
    "rotation_logits": 3,
}


class RowCheck(NamedTuple):
    """One thing that must hold in every row: a cheap verdict, and the row to name when it does not."""

    ok: Callable[[], Array]
    bad_rows: Callable[[], Array]
    complaint: str


def _finite(name: str, x: Array) -> RowCheck:
    xp = namespace(x)
    total = xp.float64 if x.dtype == xp.float64 else xp.float32

    def bad_rows() -> Array:
        return ~xp.all(xp.reshape(xp.isfinite(x), (x.shape[0], -1)), axis=1)

    return RowCheck(
        lambda: xp.isfinite(xp.sum(x, dtype=total)),
        bad_rows,
        f"Expected `{name}` to be finite, but got NaN or Inf",
    )


def _labels_in_range(labels: Array, classes: int) -> RowCheck:
    xp = namespace(labels)

    def bad_rows() -> Array:
        return (labels < 0) | (labels >= classes)

    return RowCheck(
        lambda: (xp.min(labels) >= 0) & (xp.max(labels) < classes),
        bad_rows,
        f"Expected `labels` between 0 and {classes - 1}, as there are {classes} classes (leave `labels` out "
        "where they are not known), but got another number",
    )


def _distribution(p: Array) -> RowCheck:
    xp = namespace(p)
    half = xp.finfo(p.dtype).bits < 32
    tolerance = 0.02 if half else 1e-3

    def bad_rows() -> Array:
        total = xp.sum(xp.astype(p, xp.float64 if p.dtype == xp.float64 else xp.float32), axis=1)
        return (xp.min(p, axis=1) < 0) | (xp.abs(total - 1.0) > tolerance)

    return RowCheck(
        lambda: ~xp.any(bad_rows()),
        bad_rows,
        "Expected `probabilities` to be non-negative and to sum to 1 in every row, but they are not "
        "(raw scores belong into `logits`)",
    )


def row_checks(given: dict[str, Array]) -> list[RowCheck]:
    """Everything that depends on values, not on shapes: finite numbers, distributions, labels in range."""
    checks = [_finite(name, given[name]) for name in _DIMENSIONS if name in given]
    if "probabilities" in given:
        checks.append(_distribution(given["probabilities"]))
    matrix = given.get("logits", given.get("probabilities"))
    if "labels" in given and matrix is not None:
        checks.append(_labels_in_range(given["labels"], int(matrix.shape[1])))
    return checks


def check_outputs(arguments: dict[str, Any]) -> dict[str, Array]:
    """Validate the arguments of `Outputs` and return those given, in one library and on one device."""
    given = {name: x for name, x in arguments.items() if x is not None}
    if not given.keys() & _DIMENSIONS.keys():
        raise GdscoreError("Expected at least one of `logits`, `probabilities` or `features`, but got none of them")
    if "logits" in given and "probabilities" in given:
        raise GdscoreError("Expected `logits` or `probabilities`, but got both: give `logits`, they say more")
    for name, x in given.items():
        if not arrays.is_array(x):
            raise GdscoreError(
                f"Expected `{name}` to be an array of NumPy, PyTorch, JAX or CuPy, but got {type(x).__name__}"
                + ("; numpy.asarray makes one of it" if name in ("labels", "ids") or hasattr(x, "__len__") else "")
            )
        if isinstance(x, np.ma.MaskedArray):
            raise GdscoreError(
                f"Expected `{name}` without a mask, but got a masked array: fill or drop those rows first"
            )
        if arrays.is_torch(x):
            given[name] = x.detach()
        elif arrays.is_numpy(x) and x.dtype.name == "bfloat16":
            # NumPy knows bfloat16 only through ml_dtypes and cannot compute with it.
            given[name] = x.astype(np.float32)
    if "probabilities" in given:
        given["probabilities"] = _widened(given["probabilities"])
    reference_name = next(name for name in given if name in _DIMENSIONS)
    reference = given[reference_name]
    for name in given:
        if name in _DIMENSIONS:
            _check_matrix(name, given[name])
            _check_same_place(name, given[name], reference_name, reference)
        else:
            given[name] = _checked_row_names(name, given[name], reference)
        if given[name].shape[0] != reference.shape[0]:
            raise GdscoreError(
                f"Expected `{name}` to have as many rows as `{reference_name}`, {reference.shape[0]}, "
                f"but got {given[name].shape[0]}"
            )
    _check_columns(given)
    for check in row_checks(given):
        _require(check, reference)
    return given


def check_rows(rows: Any, length: int) -> Array:
    """Index array or mask of rows as a one-dimensional array that fits; anything else is refused."""
    given = rows if arrays.is_array(rows) else np.asarray(rows)
    if given.ndim == 0:
        raise GdscoreError(
            f"Expected a slice, an index array or a mask of rows, but got a number: use out[{rows}:{rows + 1}]"
        )
    if given.ndim != 1:
        raise GdscoreError(f"Expected indices or a mask of one dimension, but got shape {tuple(given.shape)}")
    host = arrays.to_numpy(given)
    if host.size == 0 or host.dtype == bool:
        if host.dtype == bool and len(host) != length:
            raise GdscoreError(f"Expected a mask of {length} rows, but got one of {len(host)}")
        return np.flatnonzero(host) if host.dtype == bool else host.astype(np.int64)
    if host.dtype.kind not in "iu":
        raise GdscoreError(f"Expected indices to be integers, but got {host.dtype}")
    if host.min() < -length or host.max() >= length:
        raise GdscoreError(
            f"Expected indices of {length} rows, but got {host.max() if host.max() >= length else host.min()}"
        )
    return given


def _check_matrix(name: str, x: Array) -> None:
    dimensions = _DIMENSIONS[name]
    if x.ndim != dimensions:
        raise GdscoreError(
            f"Expected `{name}` to have {dimensions} dimensions, but got shape {tuple(x.shape)}"
            + (", a single row is written x[None, :]" if x.ndim == 1 else "")
        )
    if not namespace(x).isdtype(x.dtype, "real floating"):
        raise GdscoreError(f"Expected `{name}` to be floating-point numbers, but got {x.dtype}")
    if x.shape[0] == 0:
        raise GdscoreError(f"Expected at least one row, but `{name}` has shape {tuple(x.shape)}")


def _check_same_place(name: str, x: Array, reference_name: str, reference: Array) -> None:
    if namespace(x) is not namespace(reference):
        raise GdscoreError(
            f"Expected all arrays to come from one library, but `{reference_name}` is of "
            f"{arrays.library(reference)} and `{name}` of {arrays.library(x)}"
        )
    here, there = arrays.device(x), arrays.device(reference)
    if here != there:
        raise GdscoreError(
            f"Expected all arrays on one device, but `{reference_name}` is on {there} and `{name}` on {here}"
        )


def _checked_row_names(name: str, x: Array, reference: Array) -> Array:
    xp = namespace(x)
    if name == "ids" and arrays.is_numpy(x) and x.dtype.kind in "USO":
        if x.dtype.kind == "O" and not all(isinstance(i, str) for i in x.ravel()):
            raise GdscoreError("Expected `ids` to be integers or strings, but got an array of other objects")
        x = x.astype(np.str_)
    elif not xp.isdtype(x.dtype, "integral"):
        raise GdscoreError(f"Expected `{name}` to be integers, but got {x.dtype}")
    if x.ndim != 1:
        raise GdscoreError(f"Expected `{name}` to have one dimension, but got shape {tuple(x.shape)}")
    # Ids stay where they are: JAX would cut 64-bit numbers in half, and strings have no other place.
    return x if name == "ids" else arrays.like(x, reference)


def _check_columns(given: dict[str, Array]) -> None:
    for name in ("logits", "probabilities", "peer_logits", "batch_logits"):
        if name in given and given[name].shape[1] < 2:
            raise GdscoreError(
                f"Expected `{name}` to have a column for each of at least 2 classes, but got shape "
                f"{tuple(given[name].shape)}; for a binary model with one logit z give the columns (0, z)"
            )
    if "features" in given and given["features"].shape[1] < 1:
        raise GdscoreError(f"Expected `features` to have columns, but got shape {tuple(given['features'].shape)}")
    matrix = given.get("logits", given.get("probabilities"))
    for name in ("peer_logits", "batch_logits"):
        if matrix is not None and name in given and given[name].shape != matrix.shape:
            raise GdscoreError(
                f"Expected `{name}` to have the shape of the logits, {tuple(matrix.shape)}, "
                f"but got {tuple(given[name].shape)}"
            )
    if "rotation_logits" in given and tuple(given["rotation_logits"].shape[1:]) != (4, 4):
        raise GdscoreError(
            "Expected `rotation_logits` to have shape (rows, 4 rotations shown, 4 rotations predicted), "
            f"but got {tuple(given['rotation_logits'].shape)}"
        )


def _widened(p: Array) -> Array:
    """Two columns (1 − p, p) of the single column of a binary model."""
    xp = namespace(p)
    if not xp.isdtype(p.dtype, "real floating"):
        raise GdscoreError(f"Expected `probabilities` to be floating-point numbers, but got {p.dtype}")
    if p.ndim == 1 or (p.ndim == 2 and p.shape[1] == 1):
        column = xp.reshape(p, (-1,))
        return xp.stack([1.0 - column, column], axis=1)
    return p


def _require(check: RowCheck, reference: Array) -> None:
    if not arrays.on_host(reference):
        return
    with np.errstate(over="ignore", invalid="ignore"):
        if bool(check.ok()):
            return
        bad = arrays.to_numpy(check.bad_rows())
    if bad.any():
        more = f", the first of {int(bad.sum())} such rows" if bad.sum() > 1 else ""
        raise GdscoreError(f"{check.complaint} in row {int(bad.argmax())}{more}")
