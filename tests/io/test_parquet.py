"""Parquet columns as other tools write them."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gdscore.errors import GdscoreError
from gdscore.io import Columns, read_batches, read_outputs
from tests.data import growth

RNG = np.random.default_rng(0)
LOGITS = RNG.standard_normal((10, 3))


def lists(matrix, kind=None):
    return pa.array(matrix.tolist(), kind or pa.list_(pa.float64()))


def fixed(matrix):
    return pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), matrix.shape[1])


def save(path, columns, **options):
    pq.write_table(pa.table(columns), path, **options)
    return path


def read(path, **options):
    batches = list(read_outputs(path, **options))
    return {name: np.concatenate([batch.arrays[name] for batch in batches]) for name in batches[0].arrays}


@pytest.mark.parametrize("kind", ["f2", "f4", "f8"])
@pytest.mark.parametrize("wrap", ["list", "large_list", "fixed", "tensor"])
@pytest.mark.parametrize("group", [3, 100])
def test_matrix_columns(tmp_path, kind, wrap, group):
    logits = LOGITS.astype(kind)
    leaf = pa.from_numpy_dtype(kind)
    column = {
        "list": lambda: lists(logits, pa.list_(leaf)),
        "large_list": lambda: lists(logits, pa.large_list(leaf)),
        "fixed": lambda: fixed(logits),
        "tensor": lambda: pa.FixedShapeTensorArray.from_numpy_ndarray(logits),
    }[wrap]()
    got = read(save(tmp_path / "x.parquet", {"logits": column}, row_group_size=group), batch_rows=4)["logits"]
    np.testing.assert_array_equal(got, logits)
    assert got.dtype == logits.dtype


def test_all_columns_and_no_others(tmp_path):
    rotation = RNG.standard_normal((10, 4, 4))
    columns = {
        "unknown": pa.array([None] * 10, pa.int32()),
        "features": fixed(LOGITS.astype(np.float32)),
        "peer_logits": fixed(LOGITS),
        "logits": fixed(LOGITS),
        "rotation_logits": pa.array(rotation.tolist()),
        "label": pa.array(np.arange(10) % 3, pa.uint8()),
        "id": pa.array([f"é{i}" for i in range(10)]),
    }
    got = read(save(tmp_path / "x.parquet", columns), batch_rows=3)
    assert got.keys() == {"logits", "features", "peer_logits", "rotation_logits", "labels", "ids"}
    np.testing.assert_array_equal(got["rotation_logits"], rotation)
    np.testing.assert_array_equal(got["labels"], np.arange(10) % 3)
    assert got["ids"].tolist() == [f"é{i}" for i in range(10)]
    flat = read(save(tmp_path / "y.parquet", {"rotation_logits": fixed(rotation.reshape(10, 16))}))
    np.testing.assert_array_equal(flat["rotation_logits"], rotation)


def test_text_ids_may_be_encoded_as_a_dictionary(tmp_path):
    ids = pa.array(["b", "a", "b"] * 3).dictionary_encode()
    got = read(save(tmp_path / "x.parquet", {"logits": fixed(LOGITS[:9]), "ids": ids}), batch_rows=2)
    assert got["ids"].tolist() == ["b", "a", "b"] * 3


def test_a_plain_column_of_probabilities_is_a_binary_models(tmp_path):
    p = np.array([0.0, 0.25, 1.0])
    got = read(save(tmp_path / "x.parquet", {"probabilities": pa.array(p)}))
    np.testing.assert_allclose(got["probabilities"], np.stack([1 - p, p], axis=1))


def test_empty_row_groups_and_files_are_skipped(tmp_path):
    schema = pa.schema({"logits": pa.list_(pa.float64(), 3)})
    empty = pa.table({"logits": pa.array([], schema.field(0).type)})
    pq.write_table(empty, tmp_path / "a.parquet")
    with pq.ParquetWriter(tmp_path / "b.parquet", schema) as writer:
        for table in (empty, pa.table({"logits": fixed(LOGITS)}), empty, pa.table({"logits": fixed(LOGITS)}), empty):
            writer.write_table(table)
    np.testing.assert_array_equal(read(tmp_path)["logits"], np.concatenate([LOGITS, LOGITS]))
    with pytest.raises(GdscoreError, match=r"at least one row in '.*a\.parquet'"):
        read_outputs(tmp_path / "a.parquet")


def with_null(row, at):
    rows = LOGITS.tolist()
    if at is None:
        rows[row] = None
    else:
        rows[row][at] = None
    return rows


@pytest.mark.parametrize("kind", [pa.list_(pa.float64()), pa.list_(pa.float64(), 3)])
@pytest.mark.parametrize("at", [None, 2])
@pytest.mark.parametrize("row", [0, 5, 9])
def test_nulls_are_refused_with_their_row(tmp_path, kind, at, row):
    if at is None and pa.types.is_fixed_size_list(kind) and int(pa.__version__.partition(".")[0]) < 25:
        pytest.skip("PyArrow before 25 neither writes nor reads lists of a fixed size where one is null")
    path = save(tmp_path / "x.parquet", {"logits": pa.array(with_null(row, at), kind)}, row_group_size=4)
    with pytest.raises(GdscoreError, match=rf"'logits', but got none in row {row} of '.*x\.parquet'"):
        list(read_outputs(path, batch_rows=3))


def test_nulls_among_labels_and_nested_lists(tmp_path):
    labels = pa.array([0, 1, 2, 0, 1, None, 0, 1, 2, 0])
    path = save(tmp_path / "x.parquet", {"logits": fixed(LOGITS), "label": labels})
    with pytest.raises(GdscoreError, match="'label'.*none in row 5"):
        list(read_outputs(path, batch_rows=3))
    rotation = np.zeros((10, 4, 4)).tolist()
    rotation[7][2][3] = None
    path = save(tmp_path / "x.parquet", {"rotation_logits": pa.array(rotation)})
    with pytest.raises(GdscoreError, match="'rotation_logits'.*none in row 7"):
        list(read_outputs(path, batch_rows=3))


@pytest.mark.parametrize("row", [1, 3, 9])
@pytest.mark.parametrize("length", [0, 2, 4])
def test_lists_of_other_length_are_refused_with_their_row(tmp_path, row, length):
    rows = LOGITS.tolist()
    rows[row] = [0.5] * length
    path = save(tmp_path / "x.parquet", {"logits": pa.array(rows)})
    with pytest.raises(GdscoreError, match=rf"row {row} of .*x\.parquet. has {length} entries.*have 3"):
        list(read_outputs(path, batch_rows=3))


def test_inner_lists_of_other_length_are_refused_with_their_row(tmp_path):
    rotation = np.zeros((10, 4, 4)).tolist()
    rotation[6][1] = [0.0] * 5
    path = save(tmp_path / "x.parquet", {"rotation_logits": pa.array(rotation)})
    with pytest.raises(GdscoreError, match="row 6 of .* has 5 entries"):
        list(read_outputs(path, batch_rows=3))


def test_lists_that_are_all_empty(tmp_path):
    path = save(tmp_path / "x.parquet", {"features": pa.array([[]] * 3, pa.list_(pa.float32()))})
    with pytest.raises(GdscoreError, match=r"`features` to have columns.*x\.parquet"):
        list(read_outputs(path))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"logit_0": pa.array([0.5]), "logit_1": pa.array([0.5])}, "found 'logit_0', 'logit_1'"),
        ({"logits": pa.array([0.5])}, "`logits`.*a list of floating-point numbers per row.*double"),
        ({"logits": pa.array([[1, 2]])}, "list<.*int64>"),
        ({"logits": pa.array([[["a"]]])}, "string"),
        ({"logits": pa.array([b"raw"])}, "binary"),
        ({"logits": pa.array([{"a": 1.0}])}, "struct"),
        ({"logits": fixed(LOGITS), "labels": pa.array([b"a"] * 10)}, "`labels`.*an integer.*binary"),
        ({"logits": fixed(LOGITS), "label": pa.array([[0]] * 10)}, "`label`.*an integer.*list"),
        ({"logits": fixed(LOGITS), "ids": pa.array([b"a"] * 10)}, "`ids`.*an integer or a string.*binary"),
        ({"logits": fixed(LOGITS), "id": pa.array([0] * 10), "ids": pa.array([0] * 10)}, "'id' and 'ids'"),
        ({"logits": fixed(LOGITS), "probabilities": fixed(LOGITS)}, "both"),
    ],
)
def test_unfit_columns_are_worded_at_once(tmp_path, columns, message):
    path = save(tmp_path / "bad.parquet", columns)
    with pytest.raises(GdscoreError, match=message) as raised:
        read_outputs(path)
    assert "bad.parquet" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_column_named_twice(tmp_path):
    pq.write_table(pa.Table.from_arrays([fixed(LOGITS), fixed(LOGITS)], ["logits", "logits"]), tmp_path / "x.parquet")
    with pytest.raises(GdscoreError, match="one `logits`"):
        read_outputs(tmp_path / "x.parquet")


def test_damage_within_a_page_is_worded(tmp_path):
    path = tmp_path / "x.parquet"
    save(path, {"logits": fixed(RNG.standard_normal((1000, 3)))})
    raw = bytearray(path.read_bytes())
    raw[4:400] = b"\xff" * 396
    path.write_bytes(raw)
    with pytest.raises(GdscoreError, match=r"x\.parquet.*damaged") as raised:
        list(read_outputs(path))
    assert "\n" not in str(raised.value)


def test_many_columns(tmp_path):
    for count in (1000, 4000):
        columns = {f"p_{i}": np.full(3, 1 / count) for i in range(count)}
        save(tmp_path / f"{count}.parquet", columns | {"y": [7, 8, 9]})

    def read(count):
        (out,) = read_outputs(tmp_path / f"{count}.parquet", columns=Columns(probabilities="p_*", label="y"))
        assert out.labels.tolist() == [7, 8, 9]

    assert growth(read, 1000, 4000) < 10  # 4 in proportion, 16 by the square


def test_lists_in_a_column_with_dots_in_its_name(tmp_path):
    path = save(tmp_path / "x.parquet", {"a.b": fixed(LOGITS), "a": lists(LOGITS + 1)})
    (out,) = read_outputs(path, columns=Columns(logits="a.b", features="a"))
    np.testing.assert_array_equal(out.logits, LOGITS)
    np.testing.assert_array_equal(out.features, LOGITS + 1)


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
@pytest.mark.parametrize("years", [8100, -2000])
def test_times_outside_the_calendar(tmp_path, unit, years):
    far = years * 31_556_952 * {"s": 1, "ms": 10**3, "us": 10**6}[unit]
    path = save(tmp_path / "x.parquet", {"p": [0.5, 0.5], "t": pa.array([0, far], pa.timestamp(unit))})
    with pytest.raises(GdscoreError, match="between the years 1 and 9999 in UTC in column 't', but got .* in row 1 of"):
        list(read_batches(path, columns=Columns(probabilities="p", time="t")))


def test_times_with_a_zone_in_one_file_and_without_in_another(tmp_path):
    for name, zone in (("a", "UTC"), ("b", None)):
        save(tmp_path / f"{name}.parquet", {"p": [0.5], "t": pa.array([0], pa.timestamp("us", tz=zone))})
    with pytest.raises(GdscoreError, match=r"a time zone for all times .* without a zone in row 0 of '.*b\.parquet'"):
        list(read_batches(tmp_path, columns=Columns(probabilities="p", time="t")))
    (tmp_path / "c.csv").write_text("p,t\n0.5,2026-01-31T00:00:00\n")
    files = [tmp_path / "a.parquet", tmp_path / "c.csv"]
    with pytest.raises(GdscoreError, match=r"a time zone for all times .* in row 0 of '.*c\.csv', after a time"):
        list(read_batches(files, columns=Columns(probabilities="p", time="t")))
