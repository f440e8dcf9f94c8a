"""Checks of arguments and of the arrays of `Outputs`: every error names what was expected and what came.

Options (numbers, choices, flags) are checked first, then values of arrays (finite numbers, distributions, labels in
range), then shapes, types, libraries and devices. A sum shows cheaply whether a value is NaN or infinite; the row is
looked for only where the sum is not finite. Reading a value of an accelerator's array would wait for it, so there only
shapes and types are checked on construction, and `row_checks` gives the checks of values as flags.
"""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore._arrays import Array, namespace
from gdscore._softmax import binary_probabilities
from gdscore.errors import GdscoreError, GdscoreWarning, RowError, nearest, shown


def number(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
) -> float:
    """Real number within bounds, as float."""
    real = _as_float(value)
    bounds = {"larger than": above, "at least": least, "smaller than": below, "at most": most}
    fits = real is not None and (above is None or real > above) and (least is None or real >= least)
    if real is None or not (fits and (below is None or real < below) and (most is None or real <= most)):
        expected = " and ".join(f"{words} {bound}" for words, bound in bounds.items() if bound is not None)
        raise GdscoreError(f"Expected `{name}` to be {f'a number {expected}'.rstrip()}, but got {shown(value)}")
    return real


def share(name: str, value: Any, *, most: float = 1) -> float:
    """Number above 0 and at most 1, or less; a percentage is refused with the advice to divide it."""
    real = _as_float(value)
    if real is not None and 10 <= real <= 100:
        cure = f"{real:g} % is {real / 100:g}"
        raise GdscoreError(f"Expected `{name}` to be a share of at most {most:g}, but got {shown(value)}: {cure}")
    return number(name, value, above=0, most=most)


def _as_float(value: Any) -> float | None:
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return None
    try:
        real = float(value)
    except (OverflowError, ValueError):
        return None
    return None if math.isnan(real) else real


def integer(name: str, value: Any, *, least: int, most: float = math.inf) -> int:
    """Integer from ``least`` to ``most``."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or not least <= int(value) <= most:
        expected = f"of at least {least}" if most == math.inf else f"from {least} to {most}"
        raise GdscoreError(f"Expected `{name}` to be an integer {expected}, but got {shown(value)}")
    return int(value)


def boolean(name: str, value: Any) -> bool:
    """True or False, and nothing that merely counts as one."""
    if not isinstance(value, (bool, np.bool_)):
        raise GdscoreError(f"Expected `{name}` to be True or False, but got {shown(value)}")
    return bool(value)


def choice(name: str, value: Any, valid: Collection[str]) -> str:
    """One of a few words."""
    if not isinstance(value, str) or value not in valid:
        raise GdscoreError(f"Unknown `{name}` {shown(value)}: {nearest(shown(value), valid)}")
    return value


class OutputArray(NamedTuple):
    """One array that `Outputs` can hold."""

    dimensions: int  # number of axes; the first is the rows
    column: str  # name of its column in a data frame, or for several columns the prefix before a class name or a number
    how_to_get: str  # where a caller gets it from, for messages
    per_class: bool = False  # whether the second axis is the classes
    # Levels of lists that a single column of a table may have; 0 for a number in each row
    list_levels: tuple[int, ...] = (1,)


OUTPUT_ARRAYS = {
    "logits": OutputArray(2, "logit_", "Outputs(logits=…) or Outputs(probabilities=…)", per_class=True),
    "probabilities": OutputArray(2, "prob_", "Outputs(probabilities=…)", per_class=True, list_levels=(0, 1)),
    "features": OutputArray(
        2,
        "feature_",
        "what enters the last linear layer: Outputs(features=…), or gdscore.models.extract(model, loader)",
        list_levels=(0, 1),
    ),
    "inputs": OutputArray(
        2, "input_", "the inputs of the model as numbers, encoded: Outputs(inputs=…)", list_levels=(0, 1)
    ),
    "peer_logits": OutputArray(
        2,
        "peer_logit_",
        "logits of a second model: Outputs(peer_logits=…), or models.extract(model, loader, peer=second)",
        per_class=True,
    ),
    "batch_logits": OutputArray(
        2,
        "batch_logit_",
        "logits with BatchNorm's statistics of the batch: models.extract(model, loader, batchnorm='both')",
        per_class=True,
    ),
    "rotation_logits": OutputArray(
        3,
        "rotation_logit_",
        "logits of a rotation head: models.extract(model, loader, rotation_head=head)",
        list_levels=(1, 2),
    ),
    "predictions": OutputArray(1, "prediction", "the classes that the model decided: Outputs(predictions=…)"),
    "labels": OutputArray(1, "label", "the true classes: Outputs(labels=…)"),
    "ids": OutputArray(1, "id", "names of the rows: Outputs(ids=…)"),
}
"""All arrays of `Outputs` by name, in the order in which they are checked: the one list of them."""

MATRICES = tuple(name for name, array in OUTPUT_ARRAYS.items() if array.dimensions > 1)
"""Arrays of floating-point numbers."""

PER_CLASS = tuple(name for name, array in OUTPUT_ARRAYS.items() if array.per_class)
"""Arrays with a column for each class."""

_ROUNDED = 0.02
"""How far from 1 rows of probabilities may sum: numbers written with two decimals, or float16."""

_EXACT = 1e-3
"""How far from 1 probabilities that were not rounded sum at most."""


class RowCheck(NamedTuple):
    """One thing that must hold in every row of an array: a cheap test of all rows, and what it does not hold for.

    ``broken`` is called on the host only. It gives the rows that fail as a mask, and what was expected, with its cure.
    """

    array: str
    ok: Callable[[], Array]
    broken: Callable[[], tuple[NDArray[np.bool_], str, str]]


def row_checks(held: dict[str, Array], check_logits: bool = True) -> list[RowCheck]:
    """Everything that depends on values, not on shapes: finite numbers, distributions, labels in range."""
    checks = [_finite(name, held[name]) for name in MATRICES if name in held]
    if "probabilities" in held:
        checks.append(_distribution(held["probabilities"]))
    matrix = held.get("logits", held.get("probabilities"))
    for name in ("predictions", "labels"):
        if name in held and matrix is not None:
            checks.append(_classes_in_range(name, held[name], int(matrix.shape[1])))
    if check_logits:
        # One row can look like a distribution by chance, and with it the last batch of a stream.
        names = [name for name in ("logits", "peer_logits", "batch_logits") if name in held]
        checks += [_no_probabilities(name, held[name]) for name in names if held[name].shape[0] > 1]
    return checks


def check_values(held: dict[str, Array], check_logits: bool = True) -> None:
    """Refuse the first row of arrays that cannot be used; on an accelerator this waits for their values."""
    for array, ok, broken in row_checks(held, check_logits):
        with np.errstate(all="ignore"):
            if bool(ok()):
                continue
            bad, problem, cure = broken()
        if bad.any():
            raise RowError(problem, int(bad.argmax()), cure, array, int(bad.sum()))
    if "probabilities" in held:
        _warn_if_rounded(held["probabilities"])


def _finite(name: str, x: Array) -> RowCheck:
    xp = namespace(x)
    total = xp.float64 if x.dtype == xp.float64 else xp.float32

    def broken() -> tuple[NDArray[np.bool_], str, str]:
        values = arrays.to_numpy(x)
        finite = np.isfinite(values.reshape(len(values), -1))
        first = str(values[~np.isfinite(values)][:1]).strip("[]").replace("nan", "NaN").replace("inf", "Inf")
        half = str(x.dtype) in ("float16", "torch.float16")
        cure = ": float16 ends at 65,504, so keep them in float32" if half else ": leave out or repair such rows"
        return ~finite.all(axis=1), f"Expected `{name}` to be finite, but got {first}", cure

    return RowCheck(name, lambda: xp.isfinite(xp.sum(x, dtype=total)), broken)


def _classes_in_range(name: str, numbers: Array, classes: int) -> RowCheck:
    xp = namespace(numbers)

    def broken() -> tuple[NDArray[np.bool_], str, str]:
        values = arrays.to_numpy(numbers)
        bad = (values < 0) | (values >= classes)
        cure = ": count classes from 0, in the order of the columns"
        if values.min() < 0:
            cure = f": leave out the rows whose {name} are not known"
        elif values.min() == 1 and values.max() == classes:
            cure = ": these count classes from 1, so subtract 1"
        expected = f"Expected `{name}` between 0 and {classes - 1}, as there are {classes} classes"
        return bad, f"{expected}, but got {values[bad.argmax()]}", cure

    return RowCheck(name, lambda: (xp.min(numbers) >= 0) & (xp.max(numbers) < classes), broken)


def _row_totals(p: Array) -> Array:
    xp = namespace(p)
    return xp.sum(p, axis=1, dtype=xp.float64 if p.dtype == xp.float64 else xp.float32)


def _distribution(p: Array) -> RowCheck:
    xp = namespace(p)

    def bad_rows() -> Array:
        return (xp.min(p, axis=1) < 0) | (xp.abs(_row_totals(p) - 1.0) > _ROUNDED)

    def broken() -> tuple[NDArray[np.bool_], str, str]:
        bad, values = arrays.to_numpy(bad_rows()), arrays.to_numpy(p).astype(np.float64)
        row = int(bad.argmax())
        came = f"got {values[row].min():.6g}" if values[row].min() < 0 else f"they sum to {values[row].sum():.6g}"
        expected = "Expected `probabilities` to be non-negative and to sum to 1 in every row"
        return bad, f"{expected}, but {came}", _probability_cure(values, row)

    return RowCheck("probabilities", lambda: ~xp.any(bad_rows()), broken)


def _probability_cure(p: NDArray[np.float64], at: int) -> str:
    """Likely reason why a row is no distribution: the one diagnosis for arrays, data frames and files."""
    total, row = float(p[at].sum()), p[at]
    of_class_1 = p.shape[1] == 2 and bool(np.abs(p.sum(axis=1) - 1).max() < _EXACT)
    if abs(total - 100) < 100 * _ROUNDED or (of_class_1 and p[:, 1].min() >= 0 and p[:, 1].max() <= 100):
        return ": these look like percentages, divide them by 100"
    if row.min() < 0:
        return ": these look like logits, raw scores or logarithms of probabilities, pass them as logits="
    rounded = [digits for digits in (1, 2, 3) if np.allclose(row, row.round(digits), atol=1e-9)]
    if rounded and row.max() <= 1 and abs(total - 1) <= 0.5 * 10.0 ** -rounded[0] * len(row):
        return ": they look rounded, so write more digits, or divide each row by its sum"
    if total < 1:
        return ": give the columns of all classes and no other"
    if row.max() <= 1:
        return ": divide one-versus-rest probabilities by the sum of their row; rows have one label each"
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

    def broken() -> tuple[NDArray[np.bool_], str, str]:
        looks = "these look like probabilities (between 0 and 1, with a sum of 1)"
        instead = "probabilities=" if name == "logits" else "their logarithm"
        cure = f": pass {instead}, or check_logits=False where they are logits"
        return np.ones(z.shape[0], bool), f"Expected `{name}` to be scores before the softmax, but {looks}", cure

    return RowCheck(name, ok, broken)


_MOST_ID_BYTES = 2**30
"""Memory that string ids may take: all are as wide as the longest."""


def check_outputs(arguments: dict[str, Any], check_logits: bool = True) -> dict[str, Array]:
    """Validate the arguments of `Outputs` and return those given, in one library and on one device."""
    held = {name: _checked_array(name, x) for name, x in arguments.items() if x is not None}
    if not held.keys() & set(MATRICES):
        raise GdscoreError("Expected at least one of `logits`, `probabilities` or `features`, but got none of them")
    if "predictions" in held and not held.keys() & {"logits", "probabilities"}:
        raise GdscoreError(
            "Expected `predictions` with `logits` or `probabilities`, which say how sure the model is of them, but got "
            "neither"
        )
    if "logits" in held and "probabilities" in held:
        raise GdscoreError("Expected `logits` or `probabilities`, but got both: give `logits`, which hold more digits")
    if "probabilities" in held:
        if not arrays.is_real(held["probabilities"]):
            raise GdscoreError(
                f"Expected `probabilities` to be floating-point numbers, but got {held['probabilities'].dtype}"
            )
        held["probabilities"] = binary_probabilities(held["probabilities"])
    first_name = next(name for name in held if name in MATRICES)
    first = held[first_name]
    for name in held:
        if name in MATRICES:
            _check_matrix(name, held[name])
            _check_same_place(name, held[name], first_name, first)
        else:
            held[name] = _checked_ids(held[name]) if name == "ids" else _checked_classes(name, held[name], first)
        if held[name].shape[0] != first.shape[0]:
            turned = first.shape[-1] == held[name].shape[0]
            cure = f"rows come first, so transpose `{first_name}`" if turned else "give the same rows of both"
            raise GdscoreError(
                f"Expected `{name}` to have as many rows as `{first_name}`, {first.shape[0]}, "
                f"but got {held[name].shape[0]}: {cure}"
            )
    _check_columns(held)
    if arrays.on_host(first):
        check_values(held, check_logits)
    return held


def _checked_array(name: str, x: Any) -> Array:
    if not arrays.is_array(x):
        raise GdscoreError(
            f"Expected `{name}` to be an array of NumPy, PyTorch, JAX or CuPy, but got {type(x).__name__}{_cure(x)}"
        )
    if isinstance(x, np.ma.MaskedArray):
        raise GdscoreError(f"Expected `{name}` without a mask, but got a masked array: fill or drop those rows first")
    if arrays.is_torch(x):
        if x.is_meta:
            raise GdscoreError(f"Expected `{name}` to hold values, but got a tensor on the device meta, which has none")
        if x.is_nested or str(x.layout) != "torch.strided" or x.is_quantized:
            kind = "nested" if x.is_nested else "quantized" if x.is_quantized else "sparse"
            cure = {"nested": "pad(…)", "quantized": "dequantize()", "sparse": "to_dense()"}[kind]
            raise GdscoreError(f"Expected `{name}` to be a dense tensor, but got a {kind} one: use its {cure}")
        x = x.detach()
    return arrays.native(x)


def _cure(x: Any) -> str:
    if hasattr(x, "toarray"):
        return "; its toarray() makes one of it"
    if hasattr(x, "columns") or hasattr(x, "iloc"):
        return "; its to_numpy() makes one of it, and gdscore.from_frame reads tables"
    return "; numpy.asarray makes one of it" if hasattr(x, "__len__") and not isinstance(x, str | bytes | dict) else ""


def _check_matrix(name: str, x: Array) -> None:
    dimensions = OUTPUT_ARRAYS[name].dimensions
    if x.ndim != dimensions:
        if name == "logits" and x.ndim == 1 and x.shape[0] and arrays.is_real(x):
            raise GdscoreError(f"Expected `logits` to have 2 dimensions, but got shape {tuple(x.shape)}{_single(x)}")
        raise GdscoreError(
            f"Expected `{name}` to have {dimensions} dimensions, but got shape {tuple(x.shape)}{_flat(name, x)}"
        )
    if not arrays.is_real(x):
        raise GdscoreError(
            f"Expected `{name}` to be floating-point numbers, but got {x.dtype}: convert them with astype(float)"
        )
    if x.shape[0] == 0:
        raise GdscoreError(f"Expected at least one row, but `{name}` has shape {tuple(x.shape)}")


def _flat(name: str, x: Array) -> str:
    if x.ndim == 1 and name == "logits":
        return ": these look like predicted classes; logits have a column for each class"
    if x.ndim > 2 and name in ("features", "inputs"):
        what = "what enters the last linear layer" if name == "features" else "a row of numbers for each input"
        return f": give {what}, or x.reshape(len(x), -1)"
    return ""


def _single(x: Array) -> str:
    """Cure for one column of logits, which may be the sigmoid of a binary model."""
    xp = namespace(x)
    if arrays.on_host(x) and bool((xp.min(x) >= 0) & (xp.max(x) <= 1)):
        return ": these look like probabilities of a binary model: pass probabilities="
    return ": for a binary model with one logit z give the columns (0, z)" + (
        ", and a single row of K classes as x[None, :]" if x.ndim == 1 else ""
    )


def _check_same_place(name: str, x: Array, first_name: str, first: Array) -> None:
    if namespace(x) is not namespace(first):
        raise GdscoreError(
            f"Expected all arrays to come from one library, but `{first_name}` is of "
            f"{arrays.library(first)} and `{name}` of {arrays.library(x)}"
        )
    if arrays.device(x) != arrays.device(first):
        raise GdscoreError(
            f"Expected all arrays on one device, but `{first_name}` is on {arrays.device(first)} and `{name}` on "
            f"{arrays.device(x)}"
        )


def _is_integer(x: Array) -> bool:
    try:
        return bool(namespace(x).isdtype(x.dtype, "integral"))
    except TypeError:
        return False


def _checked_classes(name: str, x: Array, first: Array) -> Array:
    if arrays.is_numpy(x) and x.dtype.kind in "USOT":
        raise GdscoreError(
            f"Expected `{name}` to be integers, but got {x.dtype}: give names with class_names=, encode the classes as "
            "0 … K−1 in the order of the columns, or use gdscore.from_frame"
        )
    if x.ndim != 1:
        one_hot = x.ndim == 2 and x.shape == first.shape
        cure = f": they look one-hot, use {name}.argmax(1)" if one_hot else ""
        raise GdscoreError(f"Expected `{name}` to have one dimension, but got shape {tuple(x.shape)}{cure}")
    if arrays.is_real(x) and arrays.on_host(x):
        x = _whole(name, x)
    if not _is_integer(x):
        cure = ": give 0 and 1" if str(x.dtype).endswith("bool") else ": give the number of the class"
        raise GdscoreError(f"Expected `{name}` to be integers, but got {x.dtype}{cure}")
    if str(x.dtype) in ("uint64", "torch.uint16", "torch.uint32", "torch.uint64") and not arrays.is_jax(x):
        # torch does not compute with these types, and NumPy does not count by them.
        x = namespace(x).astype(x, namespace(x).int64)
    return arrays.like(x, first)


def _whole(name: str, x: Array) -> Array:
    """Whole floating-point numbers, which pandas makes of integers beside missing values, as integers."""
    host = arrays.to_numpy(x).astype(np.float64)
    wrong = ~((np.abs(host) < 2**31) & (host == np.round(host)))  # NaN is not below anything
    if wrong.any():
        row = int(wrong.argmax())
        cure = ": give the number of the class"
        if np.isnan(host[row]):
            cure = f": leave out the rows without a {name.removesuffix('s')}"
        elif name == "predictions" and host.min() >= 0 and host.max() <= 1:
            cure = ": these look like probabilities; predictions are the classes that were decided"
        problem = f"Expected `{name}` to be whole numbers, but got {host[row]:g}"
        raise RowError(problem, row, cure, name, int(wrong.sum()))
    return namespace(x).astype(x, namespace(x).int32 if arrays.is_jax(x) else namespace(x).int64)


def _checked_ids(x: Array) -> Array:
    """Ids, strings as NumPy strings; they stay where they are, as JAX would cut 64-bit numbers in half."""
    if arrays.is_numpy(x) and x.dtype.kind in "USOT":
        x = _strings(x)
    elif not _is_integer(x):
        raise GdscoreError(f"Expected `ids` to be integers or strings, but got {x.dtype}")
    if x.ndim != 1:
        raise GdscoreError(f"Expected `ids` to have one dimension, but got shape {tuple(x.shape)}")
    return x


def _strings(x: Array) -> Array:
    if x.dtype.kind == "S":
        try:
            return np.char.decode(x, "utf-8")
        except UnicodeDecodeError as error:
            raise GdscoreError(f"Expected `ids` of bytes to be UTF-8 text, but they are not: {error}") from None
    if x.dtype.kind == "U":
        return x.astype(np.str_)
    texts = x.ravel().tolist()
    if not all(isinstance(text, str) for text in texts):
        raise GdscoreError("Expected `ids` to be integers or strings, but got an array of other objects")
    longest = max(map(len, texts), default=1)
    if 4 * longest * len(texts) > _MOST_ID_BYTES:
        raise GdscoreError(
            f"Expected `ids` that fit into {_MOST_ID_BYTES >> 20} MiB, but {len(texts)} of up to {longest} characters "
            "do not: give shorter ones, or integers"
        )
    return np.array(texts, dtype=np.str_).reshape(x.shape)


def _check_columns(held: dict[str, Array]) -> None:
    matrix = held.get("logits", held.get("probabilities"))
    for name in filter(held.__contains__, PER_CLASS):
        shape = tuple(held[name].shape)
        if shape[1] < 2:
            cure = _single(held[name]) if shape[1] else ""
            raise GdscoreError(
                f"Expected `{name}` to have a column for each of at least 2 classes, but got shape {shape}{cure}"
            )
        if matrix is not None and shape != tuple(matrix.shape):
            raise GdscoreError(
                f"Expected `{name}` to have the shape of the logits, {tuple(matrix.shape)}, but got {shape}"
            )
    for name in ("features", "inputs"):
        if name in held and held[name].shape[1] < 1:
            raise GdscoreError(f"Expected `{name}` to have columns, but got shape {tuple(held[name].shape)}")
    if "rotation_logits" in held and tuple(held["rotation_logits"].shape[1:]) != (4, 4):
        raise GdscoreError(
            "Expected `rotation_logits` to have shape (rows, 4 rotations shown, 4 rotations predicted), "
            f"but got {tuple(held['rotation_logits'].shape)}"
        )
