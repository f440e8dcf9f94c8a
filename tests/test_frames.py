"""Data frames as people have them, in three libraries."""

import datetime as dt
import decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gdscore
from gdscore import Outputs, from_frame, to_frame
from gdscore.errors import GdscoreError
from tests.data import growth

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

MAKERS = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}
P = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.25, 0.25, 0.5]])


@pytest.fixture(params=list(MAKERS))
def frame(request):
    return MAKERS[request.param]


def columns(matrix, stars, prefix="prob_"):
    return {f"{prefix}{star}": matrix[:, at].tolist() for at, star in enumerate(stars)}


def test_the_frame_of_the_guide(frame):
    df = frame(columns(P, range(3)) | {"prediction": [0, 1, 2], "label": [0, 2, 2], "timestamp": ["x"] * 3})
    out = from_frame(df, probabilities="prob_*", label="label")
    np.testing.assert_array_equal(out.probabilities, Outputs(probabilities=P).probabilities)
    assert out.labels.tolist() == [0, 2, 2]
    assert set(out.arrays) == {"probabilities", "labels"}


def test_number_parts_are_put_in_order_and_others_keep_theirs(frame):
    order = [10, 2, 1, 0, 9]
    matrix = np.arange(10.0).reshape(2, 5)
    out = from_frame(frame(columns(matrix, order, "logit_")), logits="logit_*")
    np.testing.assert_array_equal(out.logits, matrix[:, [3, 2, 1, 4, 0]])
    out = from_frame(frame(columns(matrix, "zyabc", "logit_")), logits="logit_*")
    np.testing.assert_array_equal(out.logits, matrix)


def test_class_names_put_columns_in_order(frame):
    df = frame(columns(P, ["dog", "cat", "eel"]) | {"y": ["cat", "dog", "eel"]})
    assert from_frame(df, probabilities="prob_*", label="y").labels.tolist() == [1, 0, 2]
    out = from_frame(df, probabilities="prob_*", label="y", class_names=["cat", "dog", "eel"])
    assert out.labels.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(out.arrays["probabilities"], P[:, [1, 0, 2]])


@pytest.mark.parametrize(
    ("stars", "labels", "names", "expected"),
    [
        ([0, 1, 2], [2, 0, 1], None, [2, 0, 1]),
        ([1, 2, 3], [3, 1, 2], None, [2, 0, 1]),
        ([1, 2, 3], ["3", "1", "2"], None, [2, 0, 1]),
        (["a", "b", "c"], [2, 0, 1], None, [2, 0, 1]),
        (["a", "b", "c"], ["2", "0", "1"], None, [2, 0, 1]),
        (["a", "b", "c"], [2.0, 0.0, 1.0], None, [2, 0, 1]),
        ([0, 1, 2], ["x", "z", "y"], ["x", "y", "z"], [0, 2, 1]),
        (["1.0", "2.0", "3.0"], [3, 1, 2], None, [2, 0, 1]),
        (["1.0", "2.0", "3.0"], [3.0, 1.0, 2.0], None, [2, 0, 1]),
        (["1.0", "2.0", "3.0"], ["3", "1", "2.0"], None, [2, 0, 1]),
        ([10.0, 2.0, 1.0], [10, 1, 2], None, [2, 0, 1]),  # columns in the order of the numbers
        ([0, 1, 2], [3.0, 1.0, 2.0], ["1", "2", "3"], [2, 0, 1]),
        (["no", "yes"], [True, False, True], None, [1, 0, 1]),
        (["True", "False"], [True, False, True], None, [0, 1, 0]),
        (["no", "yes"], ["yes", "no", "no"], None, [1, 0, 0]),
    ],
)
def test_labels(frame, stars, labels, names, expected):
    matrix = P if len(stars) == 3 else np.stack([P[:, 0], 1 - P[:, 0]], axis=1)
    df = frame(columns(matrix, stars) | {"y": labels})
    assert from_frame(df, probabilities="prob_*", label="y", class_names=names).labels.tolist() == expected


def test_list_columns_features_and_ids(frame):
    df = frame({"z": (3 * P).tolist(), "f_0": [1.0, 2.0, 3.0], "f_1": [4, 5, 6], "name": ["a", "é", "🙂"]})
    out = from_frame(df, logits="z", features="f_*", id="name")
    np.testing.assert_array_equal(out.logits, 3 * P)
    np.testing.assert_array_equal(out.features, [[1, 4], [2, 5], [3, 6]])
    assert out.ids.tolist() == ["a", "é", "🙂"]
    np.testing.assert_array_equal(from_frame(df, logits="z", features="f_1").features, [[4], [5], [6]])
    np.testing.assert_array_equal(from_frame(df, logits="z", features=["f_1", "f_0"]).features[0], [4, 1])


def test_a_wrong_label_is_not_blamed_on_rounded_probabilities(frame):
    df = frame(columns(P * 0.995, range(3)) | {"y": [0, 1, 7]})
    with pytest.raises(GdscoreError) as raised:
        from_frame(df, probabilities="prob_*", label="y", class_names=["a", "b", "c"])
    assert str(raised.value).startswith("Expected `labels` between 0 and 2")
    assert "in column 'y' in row 2 of the data frame" in str(raised.value)


def test_numbers_that_can_be_names_or_positions_are_refused(frame):
    df = frame(columns(P, ["1", "2", "other"]) | {"y": [1, 2, 1]})
    with pytest.raises(GdscoreError, match="1, which can be a name or a position.*data frame"):
        from_frame(df, probabilities="prob_*", label="y")


def test_many_columns_take_time_in_proportion():
    def read(count):
        names = [f"prob_{i}" for i in range(count)]
        df = pd.DataFrame(np.full((3, count), 1 / count), columns=names).assign(y=1)
        assert from_frame(df, probabilities="prob_*", label="y").n_classes == count
        with pytest.raises(GdscoreError, match=f"'z'.*and {count - 29} more"):
            from_frame(df, probabilities="prob_*", label="z")

    assert growth(read, 1000, 4000) < 10  # 4 in proportion, 16 by the square


def test_inputs_by_pattern_and_back(frame):
    inputs = np.array([[1.0, 20.0], [2.0, 30.0], [3.0, 40.0]])
    out = from_frame(
        frame(columns(P, range(3)) | columns(inputs, ["age", "height"], "input_")),
        probabilities="prob_*",
        inputs="input_*",
    )
    np.testing.assert_array_equal(out.inputs, inputs)
    assert out.class_names == ("0", "1", "2")
    again = from_frame(to_frame(out), probabilities="prob_*", inputs="input_*")
    np.testing.assert_array_equal(again.inputs, inputs)
    single = from_frame(frame(columns(P, range(3)) | {"age": [1.0, 2.0, 3.0]}), probabilities="prob_*", inputs="age")
    assert single.inputs.shape == (3, 1)


def test_columns_named_as_the_arguments_need_no_options(frame):
    out = from_frame(frame({"logits": (3 * P).tolist(), "label": [0, 1, 2], "ids": [5, 6, 7], "other": [None] * 3}))
    assert set(out.arrays) == {"logits", "labels", "ids"}


def test_rounded_probabilities_are_divided_by_their_sum_with_a_warning(frame):
    df = frame(columns(np.tile([0.333, 0.333, 0.33], (2, 1)), range(3)))
    with pytest.warns(gdscore.GdscoreWarning, match="divided by its sum"):
        out = from_frame(df, probabilities=list(df.columns) if not hasattr(df, "column_names") else df.column_names)
    np.testing.assert_allclose(out.probabilities.sum(axis=1), 1, atol=1e-12)


def test_binary_probability(frame):
    out = from_frame(frame({"p": [0.2, 0.9], "y": [False, True]}), probabilities="p", label="y")
    np.testing.assert_allclose(out.arrays["probabilities"], [[0.8, 0.2], [0.1, 0.9]])
    assert out.accuracy == 1.0


def test_types_of_pandas():
    df = pd.DataFrame(P.astype(np.float32))
    assert from_frame(df, probabilities=[0, 1, 2]).arrays["probabilities"].dtype == np.float32
    df = pd.DataFrame(columns(P, "abc")).convert_dtypes()
    df["y"] = pd.Series(["a", "b", "c"], dtype="category")
    df["i"] = pd.Series([2, 1, 0], dtype="Int16")
    df["b"] = pd.Series([True, False, True], dtype="boolean")
    assert from_frame(df, probabilities="prob_*", label="y").labels.tolist() == [0, 1, 2]
    assert from_frame(df, probabilities="prob_*", label="i").labels.tolist() == [2, 1, 0]
    df["z"] = [np.float32([1, 2]), [1.5, 2], (3.0, 4)]
    assert from_frame(df, logits="z", label="b").labels.tolist() == [1, 0, 1]
    df["q"] = [np.float32([[0.25, 0.75], [1, 0]])[i] for i in (0, 1, 0)]
    assert from_frame(df, probabilities="q").arrays["probabilities"].tolist() == [[0.25, 0.75], [1, 0], [0.25, 0.75]]
    df["r"] = [np.eye(4)] * 3
    assert from_frame(df.rename(columns={"r": "rotation_logits"})[["rotation_logits"]]).rotation_logits.shape == (
        3,
        4,
        4,
    )
    turned = pd.DataFrame({"p": np.array([0.25, 0.5], dtype=">f8"), "y": np.array([1, 0], dtype=">i4")})
    assert from_frame(turned, probabilities="p", label="y").labels.tolist() == [1, 0]
    decimals = pa.table({"p": pa.array([decimal.Decimal("0.25"), decimal.Decimal("0.75")])})
    assert from_frame(decimals, probabilities="p").arrays["probabilities"][:, 1].tolist() == [0.25, 0.75]


def swapped(at, name, value):
    values = columns(P, range(3)) | {"y": [0, 1, 2], "id": ["a", "b", "c"]}
    values[name][at] = value
    return values


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        (swapped(1, "prob_2", None), {}, r"column 'prob_2'.*row 1 of"),
        (swapped(1, "prob_2", float("inf")), {}, r"finite.*Inf in column 'prob_2' in row 1"),
        (swapped(2, "y", None), {}, r"column 'y'.*row 2"),
        (swapped(2, "y", 3), {}, r"3 in column 'y' in row 2.*classes are '0', '1', '2'"),
        (swapped(0, "id", "x" * 2000), {"id": "id"}, r"1,024 characters in column 'id'.*2,000 in the data"),
        (swapped(0, "id", "x"), {"label": "id"}, r"'x' in column 'id' in row 0.*classes are"),
        (swapped(0, "id", "x"), {"label": "labl"}, r"'labl'.*none"),
        (swapped(0, "id", "x"), {"probabilities": "p_*"}, r"match 'p_\*'.*'prob_0'"),
        (swapped(0, "id", "x"), {"probabilities": "prob_?"}, r"did you mean 'prob_\d'"),
        (swapped(0, "id", "x"), {"probabilities": "*_*"}, "one `\\*`"),
        (swapped(0, "id", "x"), {"probabilities": ["prob_0", "id", "prob_2"]}, "`id`.*a number per row"),
        (swapped(0, "id", "x"), {"probabilities": ["prob_0", "prob_0"]}, "once"),
        (swapped(0, "id", "x"), {"probabilities": None, "logits": "y", "label": None}, "`y`.*list of floating-point"),
        (swapped(0, "id", "x"), {"probabilities": None}, r"probabilities='prob_\*'"),
        (swapped(0, "id", "x"), {"class_names": ["a", "b"]}, "3 columns.*got 2"),
        (swapped(0, "id", "x"), {"class_names": "abc"}, "list of names"),
        (swapped(0, "id", "x"), {"label": "prob_1"}, "used once"),
        (swapped(0, "prob_0", 0.9), {}, "sum to 1.2 in columns 'prob_0' to 'prob_2' in row 0"),
        (swapped(0, "prob_0", -0.7), {}, "non-negative.*-0.7 in columns 'prob_0' to 'prob_2' in row 0.*logits"),
        (columns(100 * P, range(3)) | {"y": [0] * 3}, {}, "percentages, divide them by 100"),
        ({"p": [20.0, 90.0], "y": [0, 1]}, {"probabilities": "p"}, "percentages"),
        (columns(P[:0], range(3)) | {"y": []}, {"label": None}, "empty|its type is"),
        ({"z": [[1.0, 2.0], [1.0]], "y": [0, 1]}, {"probabilities": None, "logits": "z"}, "one length.*row 1"),
        ({"z": [[1.0, 2.0], [1.0, None]], "y": [0, 1]}, {"probabilities": None, "logits": "z"}, "row 1|finite"),
    ],
)
def test_mistakes_are_named_with_row_and_column(frame, values, options, message):
    with pytest.raises(GdscoreError, match=message) as raised:
        from_frame(frame(values), **({"probabilities": "prob_*", "label": "y"} | options))
    assert "\n" not in str(raised.value)


def test_mixed_objects_and_other_types():
    df = pd.DataFrame(columns(P, range(3)))
    for values, message in [
        ([1, "a", 2], "one type in column 'y'"),
        ([dt.date(2026, 1, 1)] * 3, "date"),
        ([0.5, 1, 2], r"0\.5 in column 'y' in row 0"),
        ([{"a": 1}] * 3, "dict|truct"),
    ]:
        with pytest.raises(GdscoreError, match=message):
            from_frame(df.assign(y=pd.Series(values, dtype=object)), probabilities="prob_*", label="y")
    for thing in (3, None, [1, 2], {"a": 1}, np.zeros((2, 2)), pd.Series([1.0])):
        with pytest.raises(GdscoreError, match="DataFrame of pandas or polars"):
            from_frame(thing, probabilities="prob_*")
    with pytest.raises(GdscoreError, match="collect"):
        from_frame(pl.LazyFrame({"a": [1]}), probabilities="a")
    twice = pd.DataFrame(P, columns=["a", "a", "b"])
    with pytest.raises(GdscoreError, match="'a' 2 times|are 2"):
        from_frame(twice, probabilities=["a", "b"])


@settings(max_examples=30)
@given(
    rows=st.integers(1, 6),
    classes=st.integers(2, 12),
    seed=st.integers(0, 99),
    backend=st.sampled_from(list(MAKERS)),
    kind=st.sampled_from(["f4", "f8"]),
)
def test_there_and_back(rows, classes, seed, backend, kind):
    rng = np.random.default_rng(seed)
    out = Outputs(
        logits=rng.normal(size=(rows, classes)).astype(kind),
        features=rng.normal(size=(rows, 11)),
        labels=rng.integers(0, classes, rows),
        ids=np.array([f"row {i}" for i in range(rows)]),
    )
    back = from_frame(to_frame(out, backend), logits="logit_*", features="feature_*", label="label", id="id")
    assert back.arrays.keys() == out.arrays.keys()
    for name, array in out.arrays.items():
        np.testing.assert_array_equal(back.arrays[name], array)
        assert back.arrays[name].dtype.kind == array.dtype.kind


def test_bad_arguments_of_to_frame():
    with pytest.raises(GdscoreError, match="did you mean 'pandas'"):
        to_frame(Outputs(logits=3 * P), "panda")
    with pytest.raises(GdscoreError, match="ndarray"):
        to_frame(P)
    assert "from_frame" in dir(gdscore)
