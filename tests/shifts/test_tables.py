"""Shifts of tables: the same for any batch size, in the table's own type, stronger with severity."""

import copy
import datetime as dt
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from gdscore.errors import GdscoreError
from gdscore.shifts.tables import table_shifts

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

ROWS = 120


def values(rows=ROWS):
    rng = np.random.default_rng(0)
    return {
        "float": rng.normal(size=rows),
        "single": rng.normal(size=rows).astype(np.float32),
        "whole": rng.integers(-50, 50, rows),
        "byte": rng.integers(0, 256, rows).astype(np.uint8),
        "flag": rng.random(rows) < 0.5,
        "word": rng.choice(["a", "bb", "ccc"], rows),
        "day": [dt.datetime(2020, 1, 1 + k % 28) for k in range(rows)],
    }


def pandas_frame():
    frame = pd.DataFrame(values())
    frame["kind"] = pd.Categorical(["x", "y"] * (ROWS // 2), categories=["x", "y", "z"], ordered=True)
    frame["gaps"] = pd.array([None if k % 7 == 0 else k for k in range(ROWS)], dtype="Int64")
    frame["lost"] = np.where(np.arange(ROWS) % 5, 1.5 * np.arange(ROWS), np.nan)
    frame["mixed"] = pd.Series([None if k % 9 == 0 else f"q{k % 3}" for k in range(ROWS)], dtype=object)
    frame.index = range(1000, 1000 + ROWS)
    return frame


def polars_frame():
    return pl.DataFrame(values()).with_columns(
        pl.Series("kind", ["x", "y"] * (ROWS // 2), dtype=pl.Enum(["x", "y", "z"])),
        pl.Series("group", ["u", "v"] * (ROWS // 2), dtype=pl.Categorical),
        pl.Series("gaps", [None if k % 7 == 0 else k for k in range(ROWS)]),
        pl.Series("lost", [None if k % 5 == 0 else 1.5 * k for k in range(ROWS)]),
    )


def numpy_objects():
    rng = np.random.default_rng(1)
    table = np.empty((ROWS, 3), dtype=object)
    table[:, 0], table[:, 1] = rng.normal(size=ROWS), rng.choice(["a", "b"], ROWS)
    table[:, 2] = [None if k % 4 == 0 else k for k in range(ROWS)]
    return table


def sparse_matrix(kind=sparse.csr_array, dtype=np.float64):
    rng = np.random.default_rng(2)
    dense = np.where(rng.random((ROWS, 30)) < 0.2, rng.normal(size=(ROWS, 30)) * 10, 0)
    return kind(np.rint(dense).astype(dtype) if np.dtype(dtype).kind == "i" else dense.astype(dtype))


TABLES = {
    "float64": lambda: np.random.default_rng(0).normal(size=(ROWS, 5)),
    "float32": lambda: np.random.default_rng(0).normal(size=(ROWS, 5)).astype(np.float32),
    "integers": lambda: np.random.default_rng(0).integers(0, 100, (ROWS, 4)),
    "booleans": lambda: np.random.default_rng(0).random((ROWS, 3)) < 0.3,
    "strings": lambda: np.random.default_rng(0).choice(["a", "bbbb"], (ROWS, 2)),
    "objects": numpy_objects,
    "with NaN": lambda: np.where(
        np.arange(ROWS * 4).reshape(ROWS, 4) % 11, np.arange(ROWS * 4.0).reshape(ROWS, 4), np.nan
    ),
    "pandas": pandas_frame,
    "polars": polars_frame,
    "csr": sparse_matrix,
    "csc of float32": lambda: sparse_matrix(sparse.csc_array, np.float32),
    "old matrix of integers": lambda: sparse_matrix(sparse.csr_matrix, np.int64),
}


def cells(table):
    """Cells as a comparable matrix."""
    if sparse.issparse(table):
        return table.toarray()
    if isinstance(table, pl.DataFrame):
        table = table.to_pandas(use_pyarrow_extension_array=False)
    if isinstance(table, pd.DataFrame):
        table = table.astype(object).to_numpy()
    if table.dtype != object:
        return np.nan_to_num(table, nan=-1e9) if table.dtype.kind == "f" else table
    return np.array([["missing" if pd.isna(v) else v for v in row] for row in table], dtype=object)


def changing(table, **options):
    return [shift for shift in table_shifts(table, **options) if not shift.selects_rows]


@pytest.mark.parametrize("name", TABLES)
@settings(max_examples=6)
@given(cuts=st.lists(st.integers(0, ROWS), max_size=4), seed=st.integers(0, 3), severity=st.integers(1, 4))
def test_batches_do_not_matter(name, cuts, seed, severity):
    table = TABLES[name]()
    edges = sorted({0, ROWS, *cuts})
    for shift in changing(table, severities=[severity], seed=seed):
        whole = cells(shift(table))
        parts = [cells(shift(table[a:b], start=a)) for a, b in itertools.pairwise(edges)]
        assert (np.concatenate(parts) == whole).all(), shift


@pytest.mark.parametrize("name", TABLES)
def test_type_is_kept_and_the_input_is_not_changed(name):
    table = TABLES[name]()
    before = copy.deepcopy(table)
    for shift in changing(table):
        shifted = shift(table)
        assert type(shifted) is type(table)
        assert shifted.shape == table.shape
        if isinstance(table, pd.DataFrame):
            assert (shifted.dtypes == table.dtypes).all(), shift
            assert shifted.index.equals(table.index)
            assert list(shifted.columns) == list(table.columns)
        elif isinstance(table, pl.DataFrame):
            assert shifted.schema == table.schema
        elif sparse.issparse(table):
            assert (shifted.dtype, shifted.format) == (table.dtype, table.format)
            assert shifted.nnz <= 1.5 * table.nnz
        else:
            assert shifted.dtype.kind == table.dtype.kind
            assert table.dtype.kind == "U" or shifted.dtype == table.dtype
        assert (cells(table) == cells(before)).all(), shift


@pytest.mark.parametrize("kind", ["numbers", "categories", "sparse"])
def test_change_grows_with_severity(kind):
    rng = np.random.default_rng(0)
    table = {
        "numbers": rng.normal(size=(ROWS, 20)),
        "categories": rng.choice(list("abcdef"), (ROWS, 20)),
        "sparse": sparse_matrix(),
    }[kind]
    changes = {}
    for shift in (s for seed in range(5) for s in changing(table, seed=seed)):
        before, after = (t.toarray() if kind == "sparse" else t for t in (table, shift(table)))
        by_amount = shift.family in ("noise", "scaling", "offset", "quantile")
        change = np.abs(after - before).mean() if by_amount else (after != before).mean()
        changes.setdefault(shift.family, {}).setdefault(shift.severity, []).append(change)
    for family, by_severity in changes.items():
        means = [np.mean(by_severity[severity]) for severity in (1, 2, 3, 4)]
        assert 0 < means[0] < means[1] < means[2] < means[3], family


@pytest.mark.parametrize("name", TABLES)
def test_same_seed_same_result_and_other_seeds_differ(name):
    table = TABLES[name]()
    first, again, other = (changing(table, severities=[4], seed=seed) for seed in (5, 5, 6))
    assert [repr(s) for s in first] == [repr(s) for s in again]
    results = [[cells(shift(table)) for shift in shifts] for shifts in (first, again, other)]
    assert all((a == b).all() for a, b in zip(*results[:2], strict=True))
    assert any((a != b).any() for a, b in zip(results[0], results[2], strict=True))


def test_missing_values_only_where_the_reference_has_some():
    full, some = TABLES["float64"](), TABLES["with NaN"]()
    for table, expected in ((full, False), (some, True)):
        shifted = next(s for s in changing(table, severities=[3]) if s.family == "missing")(table)
        assert np.isnan(shifted - table).sum() - np.isnan(table).sum() > 0 or not expected
        assert np.isnan(shifted).any() == expected
    median = np.median(full, axis=0)
    lost = shifted_once(full, "missing", 4) != full
    nearest = np.take_along_axis(full, np.abs(full - median).argmin(axis=0)[None], axis=0)
    assert (shifted_once(full, "missing", 4)[lost] == np.broadcast_to(nearest, full.shape)[lost]).all()
    assert lost.mean() == pytest.approx(0.9, abs=0.05)


def shifted_once(table, family, severity):
    return next(s for s in changing(table, severities=[severity]) if s.family == family)(table)


def test_permuted_columns_keep_their_values_and_swapped_ones_exchange():
    table = TABLES["float64"]()
    permuted = shifted_once(table, "permuted", 4)
    assert all(np.isin(permuted[:, j], table[:, j]).all() for j in range(5))
    swapped = shifted_once(table, "swapped", 4)
    matches = [{k for k in range(5) if (swapped[:, j] == table[:, k]).all()} for j in range(5)]
    assert all(len(match) == 1 for match in matches)
    assert sum(match != {j} for j, match in enumerate(matches)) == 4
    assert (np.ptp(shifted_once(table, "constant", 4), axis=0) == 0).sum() == 4


def test_noise_is_in_units_of_the_spread():
    table = np.random.default_rng(0).normal(size=(4000, 2)) * [1, 1000]
    noise = shifted_once(table, "noise", 3) - table
    assert noise.std(axis=0) / table.std(axis=0) == pytest.approx([1.5, 1.5], rel=0.05)
    assert abs(np.corrcoef(noise.T)[0, 1]) < 0.05


def test_categories_are_seen_ones():
    frame = pandas_frame()
    shifted = next(s for s in changing(frame, severities=[4]) if s.family == "categories")(frame)
    assert set(shifted["word"]) == {"a", "bb", "ccc"}
    assert set(shifted["kind"]) == {"x", "y"}
    assert (shifted["mixed"].isna() == frame["mixed"].isna()).all()
    assert shifted["float"].equals(frame["float"])


def test_unseen_categories_and_dates_stay():
    frame = pandas_frame()
    other = frame.assign(word="never seen")
    for shift in changing(frame, severities=[1]):
        shifted = shift(other)
        assert shifted["day"].equals(frame["day"])
        if shift.family == "noise":
            assert (shifted["word"] == "never seen").all()


def test_subpopulations_choose_fewer_rows_as_severity_grows():
    rng = np.random.default_rng(0)
    table = np.concatenate([rng.normal(size=(100, 3)) + 8 * k for k in range(6)])
    subsets = [s for s in table_shifts(table) if s.family == "subpopulation"]
    rows = [s.rows(table) for s in subsets]
    assert all(s.selects_rows for s in subsets)
    assert [len(r) for r in rows] == sorted((len(r) for r in rows), reverse=True)
    assert all(len(np.unique(r)) == len(r) for r in rows)
    assert len(rows[3]) < 250 < len(rows[0])
    assert (rows[2] == table_shifts(table, severities=[3])[-1].rows(table)).all()


@pytest.mark.parametrize("name", ["pandas", "polars", "csr", "strings"])
def test_subpopulations_of_other_tables(name):
    table = TABLES[name]()
    for shift in table_shifts(table):
        if shift.selects_rows:
            rows = shift.rows(table)
            assert 0 < len(rows) <= ROWS


def test_periods_cut_the_reference_in_order_of_time():
    table = TABLES["float64"]()
    time = np.random.default_rng(3).permutation(ROWS)
    periods = [s for s in table_shifts(table, time=time) if s.family == "time"]
    assert len(periods) == 2 + 3 + 4 + 5
    for severity in (1, 2, 3, 4):
        parts = [s.rows(table) for s in periods if s.severity == severity]
        assert sorted(np.concatenate(parts)) == list(range(ROWS))
        assert all(time[a].max() < time[b].min() for a, b in itertools.pairwise(parts))
    dates = np.datetime64("2024-01-01") + time
    assert (table_shifts(table, time=dates)[-1].rows(table) == periods[-1].rows(table)).all()
    with_offsets = [f"{date}T00:00:00+{hour:02d}:00" for date, hour in zip(dates.tolist(), time % 12, strict=True)]
    assert (table_shifts(table, time=with_offsets)[-1].rows(table) == periods[-1].rows(table)).all()
    with pytest.raises(GdscoreError, match="a time such as 2026-01-31"):
        table_shifts(table, time=[f"{date:%d/%m/%Y}" for date in dates.tolist()])
    with pytest.raises(GdscoreError, match="120 rows of the reference, whose time is known, but got 3 rows"):
        periods[0].rows(table[:3])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.uint32, np.uint64])
def test_sparse_integers_stay_within_their_type(dtype):
    limits = np.iinfo(dtype)
    dense = np.zeros((40, 6), dtype=dtype)
    dense[::2] = np.random.default_rng(0).integers(1, 120, (20, 6))
    for shift in changing(sparse.csr_array(dense)):
        shifted = shift(sparse.csr_array(dense))
        wide = shift(sparse.csr_array(dense.astype(np.int64))).toarray()
        assert shifted.dtype == dtype
        np.testing.assert_array_equal(
            shifted.toarray().astype(np.float64), np.clip(wide, float(limits.min), float(limits.max))
        )


def test_sparse_columns_of_pandas():
    dense = pd.DataFrame({"a": np.arange(40.0) % 5, "b": np.arange(40) % 3, "c": np.arange(40) % 4 == 0})
    columns = {name: pd.arrays.SparseArray(dense[name]) for name in dense}
    table = pd.DataFrame(columns)
    for ours, theirs in zip(changing(table), changing(dense), strict=True):
        found = ours(table)
        assert found.dtypes.equals(table.dtypes)
        np.testing.assert_array_equal(cells(found), cells(theirs(dense)))


def test_a_fitted_pipeline_accepts_shifted_frames():
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    frame = pandas_frame()[["float", "whole", "byte", "flag", "word", "kind"]]
    encode = make_column_transformer(
        (OneHotEncoder(handle_unknown="error"), make_column_selector(dtype_exclude="number")),
        remainder=StandardScaler(),
    )
    model = make_pipeline(encode, LogisticRegression()).fit(frame, frame["flag"])
    for shift in changing(frame):
        assert model.predict_proba(shift(frame)).shape == (ROWS, 2)


def test_odd_tables():
    constant = np.ones((10, 2))
    empty_column = np.column_stack([np.full(10, np.nan), np.arange(10.0)])
    infinite = np.column_stack([np.full(10, np.inf), np.arange(10.0)])
    huge = np.full((5, 2), 2**62) + np.arange(10).reshape(5, 2)
    for table in (constant, empty_column, infinite, huge, np.arange(3.0).reshape(1, 3), np.arange(4.0).reshape(4, 1)):
        for shift in table_shifts(table):
            if shift.selects_rows:
                shift.rows(table)
            else:
                assert shift(table).shape == table.shape
    assert changing(constant)[0](constant[:0]).shape == (0, 2)
    untouched = shifted_once(huge, "constant", 1)
    assert ((untouched == huge).sum(axis=0) == 5).any()


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.arange(3.0), r"2-D array .* shape \(3,\): use inputs.reshape"),
        (np.ones((2, 2), dtype=complex), "complex128"),
        ([[1.0, 2.0]], "but got list: convert it with np.asarray"),
        (np.empty((0, 3)), r"rows and columns, but got shape \(0, 3\)"),
        (sparse.csr_array((0, 3)), r"rows and columns, but got shape \(0, 3\)"),
        (pl.LazyFrame({"a": [1]}), "LazyFrame: call .collect"),
        (pd.DataFrame({"day": pd.date_range("2026-01-01", periods=3)}), "all of them have other types"),
        (np.ma.masked_array(np.ones((2, 2)), mask=np.eye(2)), "masked array"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "columns of different names"),
    ],
)
def test_bad_inputs(bad, message):
    with pytest.raises(GdscoreError, match=message):
        table_shifts(bad)


def test_bad_options_and_batches():
    table = TABLES["float64"]()
    for severities in ([0], [5], [1.5], "12", 3):
        with pytest.raises(GdscoreError, match="from 1 to 4, but got"):
            table_shifts(table, severities=severities)
    with pytest.raises(GdscoreError, match="seed"):
        table_shifts(table, seed=-1)
    with pytest.raises(GdscoreError, match=r"one value for each of the 120 rows, but got shape \(3,\)"):
        table_shifts(table, time=[1, 2, 3])
    with pytest.raises(GdscoreError, match="without missing values"):
        table_shifts(table, time=np.full(ROWS, np.nan))
    shift = table_shifts(table)[0]
    with pytest.raises(GdscoreError, match="5 columns of the reference, but got 3"):
        shift(table[:, :3])
    with pytest.raises(GdscoreError, match="start"):
        shift(table, start=-1)
    frame = pandas_frame()
    with pytest.raises(GdscoreError, match="the first that differs: 'float'"):
        changing(frame)[0](frame.rename(columns={"float": "other"}))
    with pytest.raises(GdscoreError, match="Expected numbers in column 0"):
        changing(numpy_objects())[0](numpy_objects()[:, [1, 1, 2]])
    with pytest.raises(GdscoreError, match="sparse matrix of 30 columns"):
        changing(sparse_matrix())[0](table)


def test_sparse_matrices_with_missing_values():
    """One of them made all of its column missing by noise, and put all rows into one cluster."""
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(200, 5)) * (rng.random((200, 5)) < 0.5)
    dense[3, 2], dense[4, 1] = np.nan, np.inf
    table = sparse.csr_array(dense)
    shifts = {shift.family: shift for shift in table_shifts(table, severities=[3])}
    assert np.isnan(shifts["noise"](table).data).sum() == 1
    assert 0 < len(shifts["subpopulation"].rows(table)) < 200


def test_categories_with_missing_values_in_single_precision():
    """A NaN of float32 was no missing value, and its column of strings was left as it is."""
    table = np.array([["a"], [np.float32("nan")], ["b"], ["a"]] * 10, dtype=object)
    shifts = {shift.family: shift for shift in table_shifts(table, severities=[4])}
    changed = shifts["categories"](table)
    missing = np.arange(40) % 4 == 1
    assert set(changed[~missing, 0]) == {"a", "b"}
    assert (changed[~missing] != table[~missing]).any()
    assert all(value != value for value in changed[missing, 0])
