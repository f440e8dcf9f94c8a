"""Shift families of NumPy arrays and data frames, each a function on the matrices of numbers and category codes.

A table is read as these two matrices, and what a family changed is written back: cells that it leaves alone keep their
value exactly, changed values come in the column's own dtype (integers are rounded). Frames of pandas, polars and Arrow
are read through narwhals.
"""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from gdscore.errors import GdscoreError
from gdscore.frames import is_missing
from gdscore.shifts._families import Context, Draws, Families, Numbers

DENSE = Families(severities=4)

_MISSING, _UNSEEN = -1, -2
_SAMPLE = 5000
_CATEGORY_DIMENSIONS = 4


@dataclass(frozen=True)
class TableValues:
    """Numbers (NaN where missing) and category codes (−1 where missing, −2 where the reference has no such value)."""

    numbers: Numbers
    codes: NDArray[np.int64]


def _kind_of_objects(values: list[Any]) -> str:
    present = [value for value in values if not is_missing(value)]
    numbers = (int, float, np.integer, np.floating)
    if present and all(isinstance(value, numbers) and not isinstance(value, bool) for value in present):
        return "number"
    return "category" if all(isinstance(v, (str, bytes, bool, np.bool_, int, float)) for v in present) else "other"


def _opened(table: Any) -> Any:
    """NumPy matrix or narwhals frame; an error for anything else."""
    if isinstance(table, np.ndarray):
        if table.ndim != 2 or table.dtype.kind not in "fiubOUS":
            hint = ": use inputs.reshape(-1, 1) for a single column" if table.ndim == 1 else ""
            raise GdscoreError(
                "Expected `inputs` to be a 2-D array of numbers, booleans, strings or objects, "
                f"but got {table.dtype} of shape {table.shape}{hint}"
            )
        if isinstance(table, np.ma.MaskedArray):
            raise GdscoreError("Expected `inputs` without a mask, but got a masked array: use inputs.filled(np.nan)")
        return table
    try:
        frame = nw.from_native(table, eager_only=True)
        _ = frame.columns
    except TypeError:
        lazy = hasattr(table, "collect")
        raise GdscoreError(
            "Expected `inputs` to be a 2-D NumPy array, a pandas or polars DataFrame or a SciPy sparse matrix, but got "
            f"{type(table).__name__}: {'call .collect() first' if lazy else 'convert it with np.asarray first'}"
        ) from None
    except Exception as error:
        reason = " ".join(str(error).split())
        raise GdscoreError(
            f"Expected `inputs` to have columns of different names, but got a table ({reason})"
        ) from None
    return frame


def _values(table: Any, column: int) -> list[Any]:
    values: list[Any] = table[:, column].tolist() if isinstance(table, np.ndarray) else _series(table, column).to_list()
    return values


def _series(table: Any, column: int) -> Any:
    return table.get_column(table.columns[column])


def _kind(table: Any, column: int) -> str:
    if isinstance(table, np.ndarray):
        if table.dtype.kind != "O":
            return "number" if table.dtype.kind in "fiu" else "category"
        return _kind_of_objects(_values(table, column))
    series = _series(table, column)
    dtype = series.dtype
    if dtype == nw.Object:
        return _kind_of_objects(series.to_list())
    subtype = _sparse_subtype(series)
    if subtype is not None:
        return "number" if subtype.kind in "fiu" else "category" if subtype.kind == "b" else "other"
    if dtype in (nw.Boolean, nw.String, nw.Categorical, nw.Enum):
        return "category"
    return "number" if dtype.is_numeric() and dtype not in (nw.Decimal, nw.Int128, nw.UInt128) else "other"


def _numbers(table: Any, column: int) -> Numbers:
    if isinstance(table, np.ndarray):
        values = table[:, column]
    else:
        series = _series(table, column)
        if _sparse_subtype(series) is not None:
            return np.asarray(series.to_native(), dtype=np.float64)
        if series.dtype != nw.Object:
            return np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64)
        values = series.to_list()
    present = [np.nan if is_missing(value) else value for value in values]
    try:
        return np.array(present, dtype=np.float64)
    except (TypeError, ValueError):
        name = column if isinstance(table, np.ndarray) else repr(table.columns[column])
        raise GdscoreError(
            f"Expected numbers in column {name}, as in the reference, but got others: give it the same dtype"
        ) from None


def _sparse_subtype(series: Any) -> Any:
    """Type of the values of a sparse column of pandas; None for other columns."""
    dtype: Any = series.to_native().dtype if series.implementation.is_pandas_like() else None
    return dtype.subtype if type(dtype).__name__ == "SparseDtype" else None


class TableLayout:
    """Columns of the reference: which hold numbers, which categories, and which categories there are."""

    def __init__(self, names: list[Any], kinds: list[str], vocabularies: list[list[Any]]) -> None:
        self.names = names
        self.numeric = [j for j, kind in enumerate(kinds) if kind == "number"]
        self.categorical = [j for j, kind in enumerate(kinds) if kind == "category"]
        self.vocabularies = vocabularies

    def split(self, batch: Any) -> TableValues:
        """Matrices of a batch that has the columns of the reference."""
        table = _opened(batch)
        names = _names(table)
        if names != self.names:
            differing = [name for name in self.names if name not in names] or names
            raise GdscoreError(
                f"Expected the {len(self.names)} columns of the reference, but got {len(names)} "
                f"(the first that differs: {differing[0]!r}): give columns of the same names in the same order"
            )
        rows = table.shape[0]
        if isinstance(table, np.ndarray) and table.dtype.kind in "fiu":
            return TableValues(table.astype(np.float64), np.empty((rows, 0), dtype=np.int64))
        numbers = np.empty((rows, len(self.numeric)))
        for k, j in enumerate(self.numeric):
            numbers[:, k] = _numbers(table, j)
        codes = np.empty((rows, len(self.categorical)), dtype=np.int64)
        for k, j in enumerate(self.categorical):
            code_of = {value: code for code, value in enumerate(self.vocabularies[k])}
            codes[:, k] = [_MISSING if is_missing(v) else code_of.get(v, _UNSEEN) for v in _values(table, j)]
        return TableValues(numbers, codes)

    def join(self, batch: Any, before: TableValues, after: TableValues) -> Any:
        """Copy of the batch in which the cells that differ between ``before`` and ``after`` have their new values."""
        differs = (before.numbers != after.numbers) & ~(np.isnan(before.numbers) & np.isnan(after.numbers))
        table = _opened(batch)
        if isinstance(table, np.ndarray) and table.dtype.kind in "fiu":
            if table.dtype.kind != "f":
                # Integers cannot be missing: such cells keep their value.
                differs &= ~np.isnan(after.numbers)
            result = table.copy()
            result[differs] = as_dtype(after.numbers[differs], table.dtype)
            return result
        changed = {j: (differs[:, k], after.numbers[:, k]) for k, j in enumerate(self.numeric) if differs[:, k].any()}
        for k, j in enumerate(self.categorical):
            where = before.codes[:, k] != after.codes[:, k]
            if where.any():
                words = np.array([*self.vocabularies[k], None], dtype=object)
                changed[j] = where, words[after.codes[:, k]]
        return _written(table, changed)


def _names(table: Any) -> list[Any]:
    return list(range(table.shape[1])) if isinstance(table, np.ndarray) else list(table.columns)


def _learn_layout(inputs: Any) -> TableLayout:
    """TableLayout of the reference inputs; categories come in order of how frequent they are."""
    table = _opened(inputs)
    names = _names(table)
    if not len(names) or not table.shape[0]:
        raise GdscoreError(f"Expected `inputs` to have rows and columns, but got shape {tuple(table.shape)}")
    kinds = [_kind(table, j) for j in range(len(names))]
    if set(kinds) == {"other"}:
        raise GdscoreError(
            "Expected `inputs` to have columns of numbers, booleans, strings or categories, but all of them have other "
            "types, which are left as they are: convert them, decimal numbers to float, or give `shifts` of your own"
        )
    vocabularies = [
        [value for value, _ in Counter(v for v in _values(table, j) if not is_missing(v)).most_common()]
        for j, kind in enumerate(kinds)
        if kind == "category"
    ]
    return TableLayout(names, kinds, vocabularies)


def as_dtype(values: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """Values in a column's dtype; integers are rounded, and kept within the limits of their type."""
    if dtype.kind not in "iu":
        return values.astype(dtype)
    limits = np.iinfo(dtype)
    # The largest 64-bit integers have no float64 of their own: stay below them.
    most = float(limits.max) if limits.bits < 64 else np.nextafter(float(limits.max), 0)
    return np.asarray(np.clip(np.rint(np.nan_to_num(values)), float(limits.min), most), dtype=dtype)


def _written(table: Any, changed: dict[int, tuple[NDArray[Any], NDArray[Any]]]) -> Any:
    if isinstance(table, np.ndarray):
        # Text of a fixed width would cut longer categories off.
        fixed = table.dtype.kind in "US"
        result = table.astype(object) if fixed else table.copy()
        for j, (where, values) in changed.items():
            result[where, j] = values[where]
        return result.astype(table.dtype.kind) if fixed else result
    columns = [_new_series(_series(table, j), where, values) for j, (where, values) in changed.items()]
    return table.with_columns(*columns).to_native() if columns else table.clone().to_native()


def _new_series(series: Any, where: NDArray[Any], values: NDArray[Any]) -> Any:
    native, pandas = series.to_native(), series.implementation.is_pandas_like()
    if _sparse_subtype(series) is not None:
        dense = nw.from_native(native.sparse.to_dense(), series_only=True)
        changed = _new_series(dense, where, values).to_native().astype(native.dtype)
        return nw.from_native(changed, series_only=True)
    missing = np.array([is_missing(value) for value in values]) if values.dtype == object else np.isnan(values)
    new: Any = values
    if values.dtype == object or missing.any() or not series.dtype.is_float():
        if pandas and isinstance(native.dtype, np.dtype) and native.dtype.kind in "iub":
            # A column that cannot hold missing values keeps its own.
            where = where & ~missing
        if series.dtype.is_integer():
            values = as_dtype(values, np.dtype(str(series.dtype).lower()))
        new = series.to_list()
        for i in np.flatnonzero(where):
            new[i] = None if missing[i] else values[i]
    if pandas:
        changed = type(native)(new, index=native.index, name=native.name, dtype=native.dtype)
        return nw.from_native(changed, series_only=True)
    return nw.new_series(series.name, new, series.dtype, backend=series.implementation)


def sampled_rows(rows: int) -> NDArray[np.int64]:
    """Positions of at most 5,000 rows, evenly spaced."""
    return np.unique(np.linspace(0, rows - 1, min(rows, _SAMPLE)).astype(np.int64))


class DenseReference:
    """Statistics of the columns of a NumPy array or a DataFrame.

    ``sample`` has at most 5,000 rows, evenly spaced. ``median``, ``spread``, ``low`` and ``high`` are the median,
    standard deviation, 5 % and 95 % quantiles of the finite values of each numeric column.
    """

    def __init__(self, inputs: Any) -> None:
        self.layout: TableLayout = _learn_layout(inputs)
        values = self.layout.split(inputs)
        rows = sampled_rows(len(values.numbers))
        self.sample = TableValues(values.numbers[rows], values.codes[rows])
        finite = np.where(np.isfinite(values.numbers), values.numbers, np.nan)
        with warnings.catch_warnings():
            # Columns without any value: their statistics become 0, and shifts leave them alone.
            warnings.simplefilter("ignore", RuntimeWarning)
            low, median, high = np.nanquantile(finite, [0.05, 0.5, 0.95], axis=0).reshape(3, -1)
            self.spread = np.nan_to_num(np.nanstd(finite, axis=0))
        self.low, self.high, self.median = np.nan_to_num(low), np.nan_to_num(high), np.nan_to_num(median)
        # A median between two values is none that the column holds; of 0/1 columns it would be 0.5.
        self.median = _nearest_value(finite, self.median)
        self.missing_numbers = np.isnan(values.numbers).any(axis=0)
        self.missing_codes = (values.codes == -1).any(axis=0)

    @property
    def categories(self) -> NDArray[np.int64]:
        """Number of categories of each categorical column."""
        return np.array([len(v) for v in self.layout.vocabularies], dtype=np.int64)

    def embed(self, inputs: Any) -> Numbers:
        """Rows as points: standardised numbers beside random directions for the categories."""
        values = self.layout.split(inputs)
        scale = np.where(self.spread > 0, self.spread, 1)
        points = [np.clip(np.nan_to_num((values.numbers - self.median) / scale), -5, 5)]
        for k, count in enumerate(self.categories):
            directions = Draws("categories", 0, rows=int(count) + 1).normal(k, _CATEGORY_DIMENSIONS)
            points.append(directions[np.where(values.codes[:, k] < 0, count, values.codes[:, k])])
        return np.hstack(points)


def _nearest_value(values: Numbers, targets: Numbers) -> Numbers:
    distance = np.where(np.isnan(values), np.inf, np.abs(values - targets))
    nearest = np.take_along_axis(values, distance.argmin(axis=0)[None, :], axis=0)[0]
    return np.where(np.isnan(nearest), targets, nearest)


def shift_dense(family: str, batch: Any, reference: DenseReference, context: Context) -> Any:
    """Batch of the same type after the shift."""
    before = reference.layout.split(batch)
    after = DENSE[family].function(before, reference, context)
    return reference.layout.join(batch, before, after)


def families_of(reference: DenseReference) -> list[str]:
    """Names of the families that change a table with these columns."""
    numeric, categorical = len(reference.layout.numeric), len(reference.layout.categorical)
    need = {
        "categories": bool(categorical),
        "missing": True,
        "permuted": True,
        "constant": True,
        "swapped": numeric > 1,
    }
    return [name for name in DENSE if need.get(name, numeric > 0)]


@DENSE.family((0.2, 0.6, 1.5, 4.0))
def noise(values: TableValues, reference: DenseReference, context: Context) -> TableValues:
    """Normal noise on the numbers, in units of each column's standard deviation."""
    normal = context.rows.normal(0, values.numbers.shape[1])
    return TableValues(values.numbers + context.level * reference.spread * normal, values.codes)


@DENSE.family((0.15, 0.5, 1.2, 2.8))
def scaling(values: TableValues, reference: DenseReference, context: Context) -> TableValues:
    """Multiply each numeric column about its median by exp(± level), as a change of units or of gain would."""
    factor = np.exp(context.level * signs(context, values.numbers.shape[1]))
    return TableValues(reference.median + factor * (values.numbers - reference.median), values.codes)


@DENSE.family((0.3, 0.8, 1.6, 3.0))
def offset(values: TableValues, reference: DenseReference, context: Context) -> TableValues:
    """Add to each numeric column up to ± level standard deviations, as a badly calibrated sensor would."""
    amount = 2 * context.of_set(0, values.numbers.shape[1]) - 1
    return TableValues(values.numbers + context.level * reference.spread * amount, values.codes)


@DENSE.family((0.1, 0.3, 0.6, 0.9))
def missing(values: TableValues, reference: DenseReference, context: Context) -> TableValues:
    """Lose a share of all values: missing where the reference's column has missing values, else imputed.

    The imputed value is the column's median or most frequent category: many models refuse missing values they have
    not been trained on.
    """
    lost = context.rows.uniform(0, values.numbers.shape[1]) < context.level
    numbers = np.where(lost, np.where(reference.missing_numbers, np.nan, reference.median), values.numbers)
    lost = context.rows.uniform(1, values.codes.shape[1]) < context.level
    codes = np.where(lost, np.where(reference.missing_codes | (reference.categories == 0), -1, 0), values.codes)
    return TableValues(numbers, codes)


@DENSE.family((0.1, 0.3, 0.6, 1.0))
def permuted(values: TableValues, reference: DenseReference, context: Context) -> TableValues:
    """Shuffle a share of the columns: every cell of them takes the value of a random row of the reference."""
    numeric, categorical = _chosen_columns(values, context)
    other = context.rows.integers(0, values.numbers.shape[1], len(reference.sample.numbers))
    numbers = np.where(numeric, np.take_along_axis(reference.sample.numbers, other, axis=0), values.numbers)
    other = context.rows.integers(1, values.codes.shape[1], len(reference.sample.codes))
    codes = np.where(categorical, np.take_along_axis(reference.sample.codes, other, axis=0), values.codes)
    return TableValues(numbers, codes)


@DENSE.family((0.05, 0.2, 0.5, 1.0))
def swapped(values: TableValues, reference: DenseReference, context: Context) -> TableValues:
    """Exchange a share of the numeric columns with their neighbour in size, as a wrong column order would."""
    size = np.abs(reference.median) + reference.spread
    numbers = values.numbers[:, pairs_to_swap(size, context)]
    refused = np.isnan(numbers) & ~np.isnan(values.numbers) & ~reference.missing_numbers
    return TableValues(np.where(refused, reference.median, numbers), values.codes)


@DENSE.family((0.05, 0.2, 0.5, 0.85))
def constant(values: TableValues, reference: DenseReference, context: Context) -> TableValues:
    """Give a share of the columns one value of the reference in all rows, as a sensor that is stuck would."""
    numeric, categorical = _chosen_columns(values, context)
    numbers = np.where(numeric, _one_value(reference.sample.numbers, context, 1), values.numbers)
    codes = np.where(categorical, _one_value(reference.sample.codes, context, 2), values.codes)
    return TableValues(numbers, codes)


@DENSE.family((0.1, 0.25, 0.45, 0.75))
def quantile(values: TableValues, reference: DenseReference, context: Context) -> TableValues:
    """Move the numbers of each column by a share of the way to its 5 % or 95 % quantile."""
    goal = np.where(signs(context, values.numbers.shape[1]) > 0, reference.high, reference.low)
    return TableValues((1 - context.level) * values.numbers + context.level * goal, values.codes)


@DENSE.family((0.1, 0.3, 0.6, 1.0))
def categories(values: TableValues, reference: DenseReference, context: Context) -> TableValues:
    """Replace a share of all categories by random ones that the reference has in the same column."""
    count = values.codes.shape[1]
    hit = (context.rows.uniform(0, count) < context.level) & (reference.categories > 0) & (values.codes != -1)
    other = (context.rows.uniform(1, count) * reference.categories).astype(np.int64)
    return TableValues(values.numbers, np.where(hit, other, values.codes))


def _chosen_columns(values: TableValues, context: Context) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    numeric = values.numbers.shape[1]
    which = chosen(context, numeric + values.codes.shape[1])
    return which[:numeric], which[numeric:]


def _one_value(sample: NDArray[Any], context: Context, layer: int) -> NDArray[Any] | Numbers:
    row = (context.of_set(layer, sample.shape[1]) * len(sample)).astype(np.int64)
    return np.asarray(sample[row, np.arange(sample.shape[1])])


def signs(context: Context, count: int) -> Numbers:
    """−1 or 1 for each column, the same for the whole set."""
    return np.where(context.of_set(0, count) < 0.5, -1.0, 1.0)


def chosen(context: Context, count: int) -> NDArray[np.bool_]:
    """Choose a share ``level`` of the columns, and at least one, for the whole set."""
    number = max(1, round(context.level * count))
    which = np.zeros(count, dtype=np.bool_)
    which[np.argsort(context.of_set(0, count))[:number]] = True
    return which


def pairs_to_swap(size: Numbers, context: Context) -> NDArray[np.int64]:
    """Order of the columns after a share ``level`` of the pairs of columns of similar size have exchanged places."""
    by_size = np.argsort(size, kind="stable")
    pairs = by_size[: len(size) // 2 * 2].reshape(-1, 2)
    if len(size) % 2 and context.of_set(1, 1)[0] < 0.5:
        pairs = by_size[1:].reshape(-1, 2)
    pairs = pairs[chosen(context, len(pairs))]
    order = np.arange(len(size))
    order[pairs] = pairs[:, ::-1]
    return order
