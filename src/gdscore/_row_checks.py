"""What must hold of the values of `Outputs`: finite numbers, distributions, labels in range, logits that are logits.

A sum tells cheaply whether anything is NaN or infinite; only when it is not finite is the row looked for. Host arrays
are checked at once by `check_values`; `row_checks` gives the same checks as flags on an accelerator.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore._arrays import Array, namespace
from gdscore.errors import GdscoreError, GdscoreWarning

__all__ = ["MATRICES", "RowCheck", "check_values", "row_checks"]

MATRICES = ("logits", "probabilities", "features", "peer_logits", "batch_logits", "rotation_logits")
"""Arrays of numbers that a row can have, in the order in which they are checked."""

_ROUNDED = 0.02
"""How far from 1 rows of probabilities may sum: numbers written with two decimals, or float16."""

_EXACT = 1e-3
"""How far from 1 probabilities that were not rounded sum at most."""


class RowCheck(NamedTuple):
    """One thing that must hold in every row: a cheap test of all, the rows to name when it fails, and the likely cause.

    ``cure`` is called on the host only, where something is wrong.
    """

    ok: Callable[[], Array]
    bad_rows: Callable[[], Array]
    complaint: str
    cure: Callable[[], str] = str


def row_checks(given: dict[str, Array], check_logits: bool = True) -> list[RowCheck]:
    """Everything that depends on values, not on shapes: finite numbers, distributions, labels in range."""
    checks = [_finite(name, given[name]) for name in MATRICES if name in given]
    if "probabilities" in given:
        checks.append(_distribution(given["probabilities"]))
    matrix = given.get("logits", given.get("probabilities"))
    if "labels" in given and matrix is not None:
        checks.append(_labels_in_range(given["labels"], int(matrix.shape[1])))
    if check_logits:
        # One row can look like a distribution by chance, and with it the last batch of a stream.
        names = [name for name in ("logits", "peer_logits", "batch_logits") if name in given]
        checks += [_no_probabilities(name, given[name]) for name in names if given[name].shape[0] > 1]
    return checks


def check_values(given: dict[str, Array], check_logits: bool = True) -> None:
    """Refuse the first row of host arrays that cannot be used."""
    for check in row_checks(given, check_logits):
        _require(check)
    if "probabilities" in given:
        _warn_if_rounded(given["probabilities"])


def _finite(name: str, x: Array) -> RowCheck:
    xp = namespace(x)
    total = xp.float64 if x.dtype == xp.float64 else xp.float32

    def bad_rows() -> Array:
        return ~xp.all(xp.reshape(xp.isfinite(x), (x.shape[0], -1)), axis=1)

    return RowCheck(
        lambda: xp.isfinite(xp.sum(x, dtype=total)),
        bad_rows,
        f"Expected `{name}` to be finite, but got NaN or Inf",
        lambda: (
            ": float16 ends at 65,504, so keep them in float32"
            if str(x.dtype) in ("float16", "torch.float16")
            else ": leave out or repair such rows"
        ),
    )


def _labels_in_range(labels: Array, classes: int) -> RowCheck:
    xp = namespace(labels)

    def bad_rows() -> Array:
        return (labels < 0) | (labels >= classes)

    return RowCheck(
        lambda: (xp.min(labels) >= 0) & (xp.max(labels) < classes),
        bad_rows,
        f"Expected `labels` between 0 and {classes - 1}, as there are {classes} classes, but got another number",
        lambda: _label_cure(int(xp.min(labels)), int(xp.max(labels)), classes),
    )


def _label_cure(lowest: int, highest: int, classes: int) -> str:
    if lowest < 0:
        return ": leave out the rows whose labels are not known"
    if lowest == 1 and highest == classes:
        return ": these count classes from 1, so subtract 1"
    return ": count classes from 0, in the order of the columns"


def _row_totals(p: Array) -> Array:
    xp = namespace(p)
    return xp.sum(p, axis=1, dtype=xp.float64 if p.dtype == xp.float64 else xp.float32)


def _distribution(p: Array) -> RowCheck:
    xp = namespace(p)

    def bad_rows() -> Array:
        return (xp.min(p, axis=1) < 0) | (xp.abs(_row_totals(p) - 1.0) > _ROUNDED)

    return RowCheck(
        lambda: ~xp.any(bad_rows()),
        bad_rows,
        "Expected `probabilities` to be non-negative and to sum to 1 in every row, but they are not",
        lambda: _probability_cure(arrays.to_numpy(p).astype(np.float64)),
    )


def _probability_cure(p: NDArray[np.float64]) -> str:
    totals = p.sum(axis=1)
    if (p < 0).any():
        return ": raw scores and logarithms of probabilities belong into logits="
    if np.abs(totals - 100).max() < 100 * _ROUNDED:
        return ": these are percentages, divide them by 100"
    if totals.max() <= 1 + _ROUNDED:
        return ": give the columns of all classes, or divide coarsely rounded ones by the sum of their row"
    if p.max() <= 1:
        return ": divide one-versus-rest or coarsely rounded ones by the sum of their row; rows have one label each"
    return ": raw scores belong into logits="


def _warn_if_rounded(p: Array) -> None:
    totals = arrays.to_numpy(_row_totals(p))
    farthest = float(totals[np.argmax(np.abs(totals - 1.0))])
    if abs(farthest - 1.0) > _EXACT and namespace(p).finfo(p.dtype).bits >= 32:
        warnings.warn(
            f"a row of `probabilities` sums to {farthest:.4g}, as rounded numbers do: every row is divided by its sum",
            GdscoreWarning,
            stacklevel=4,
        )


def _no_probabilities(name: str, z: Array) -> RowCheck:
    """Logits of which every row could be a distribution are not logits, but for a few rows by chance."""
    xp = namespace(z)
    tolerance = _ROUNDED if z.shape[0] >= 8 or xp.finfo(z.dtype).bits < 32 else _EXACT

    def alike(part: Array) -> Array:
        return (xp.min(part) >= 0) & (xp.max(part) <= 1) & xp.all(xp.abs(_row_totals(part) - 1.0) <= tolerance)

    def ok() -> Array:
        # The first rows settle almost every case; asking them waits for an accelerator.
        few = arrays.on_host(z) and not bool(alike(z[:8]))
        return xp.asarray(True) if few else ~alike(z)

    instead = "probabilities=" if name == "logits" else "their logarithm"
    return RowCheck(
        ok,
        lambda: xp.ones_like(z[:, 0]) > 0,
        f"Expected `{name}` to be scores before the softmax, but these look like probabilities: pass {instead}, or "
        "check_logits=False where they are logits. Numbers are between 0 and 1 and sum to 1",
    )


def _require(check: RowCheck) -> None:
    with np.errstate(all="ignore"):
        if bool(check.ok()):
            return
        bad = arrays.to_numpy(check.bad_rows())
    if bad.any():
        more = f", the first of {int(bad.sum())} such rows" if bad.sum() > 1 else ""
        raise GdscoreError(f"{check.complaint} in row {int(bad.argmax())}{more}{check.cure()}")
