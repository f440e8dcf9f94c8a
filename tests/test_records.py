"""Records that were edited by hand are refused before anything uses them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdscore import _files as files
from gdscore._files import arrays_to_bytes, read_arrays
from gdscore._records import ArraySpec, Number, OneOf, RecordSchema, check_json, read_record, record_to_bytes
from gdscore.errors import GdscoreError


def write_record(path, schema, header, arrays):
    path.write_bytes(record_to_bytes(schema, header, arrays))


SCHEMA = RecordSchema(
    "gdscore example",
    3,
    header={
        "level": Number(above=0, most=0.999),
        "mix": OneOf("stable", "unknown", None),
        "families": [str],
        "sizes": {str: Number(least=1, integer=True)},
        "options": {"seed": int, "scale": float, "fresh": bool},
    },
    arrays={
        "prior": ArraySpec("f", ("classes",), least=0, most=1),
        "confusion": ArraySpec("f", ("classes", "classes")),
        "counts": ArraySpec("i", ("sets",), least=0),
        "names": ArraySpec("U", ("sets",), optional=True),
        "known": ArraySpec("b"),
        "score.atc": ArraySpec("f", ("sets", 2), optional=True),
        "score.doc": ArraySpec("f", ("sets", 2), optional=True),
    },
    least_sizes={"classes": 2},
)
HEADER = {
    "level": 0.9,
    "mix": "stable",
    "families": ["fog", "é\n"],
    "sizes": {"a": 3},
    "options": {"seed": 0, "scale": 1, "fresh": True},
}
ARRAYS = {
    "prior": np.array([0.25, 0.75]),
    "confusion": np.eye(2, dtype=np.float32),
    "counts": np.array([3, 4, 5], dtype=np.uint16),
    "known": np.array(True),
    "score.atc": np.ones((3, 2)),
    "score.doc": np.zeros((3, 2)),
}


def test_there_and_back(tmp_path):
    write_record(tmp_path / "r", SCHEMA, HEADER, ARRAYS)
    record = read_record(tmp_path / "r", SCHEMA)
    assert record.header == HEADER
    assert record.sizes == {"classes": 2, "sets": 3}
    assert record.arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(record.arrays[name], array)
    assert read_record((tmp_path / "r").read_bytes(), SCHEMA).header == HEADER


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"level": 1}, "'level' of"),
        ({"level": 0.0}, "'level' of"),
        ({"level": True}, "'level' of.*True"),
        ({"level": "0.9"}, "'level' of"),
        ({"level": 10**400}, "'level' of"),
        ({"mix": "other"}, "'mix' of"),
        ({"mix": 0}, "'mix' of"),
        ({"families": "fog"}, "a list at 'families'"),
        ({"families": [1]}, "a string at item 0 of 'families'"),
        ({"sizes": {"a": 1.5}}, "'a' of 'sizes'"),
        ({"sizes": {"a": 0}}, "'a' of 'sizes'"),
        ({"options": {"seed": 0, "scale": 1.0}}, "the names"),
        ({"options": {"seed": 0, "scale": 1.0, "fresh": 1}}, "true or false at 'fresh'"),
        ({"more": 1}, "the names"),
        ({"format": "other"}, "something else"),
        ({"version": 4}, "version 3.*version 4.*make it again"),
        ({"version": True}, "version True"),
    ],
)
def test_headers_that_do_not_fit(tmp_path, change, message):
    with pytest.raises(GdscoreError, match=message):
        write_record(tmp_path / "r", SCHEMA, {**HEADER, **change}, ARRAYS)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prior": np.array([0.25, math.nan])}, "`prior`.*finite"),
        ({"prior": np.array([0.25, math.inf])}, "`prior`.*finite"),
        ({"prior": np.array([-0.1, 1.0])}, "`prior`.*at least 0 and at most 1.*-0.1"),
        ({"prior": np.array([1, 0])}, "`prior`.*floating-point.*int64"),
        ({"prior": np.array([1.0])}, "`prior`.*shape"),
        ({"prior": np.ones((2, 1))}, "`prior`.*shape"),
        ({"confusion": np.ones((2, 3))}, r"`confusion`.*\(classes = 2, classes = 2\).*\(2, 3\)"),
        ({"counts": np.array([1, -1, 1])}, "`counts`.*at least 0"),
        ({"counts": np.array([1, 2])}, "shape.*sets"),
        ({"counts": np.zeros(0, int), "score.atc": np.ones((0, 2)), "score.doc": np.ones((0, 2))}, "`counts`.*shape"),
        ({"known": np.array(1)}, "`known`.*booleans"),
        ({"names": np.array(["a"])}, "`names`.*shape"),
        ({"score.atc": np.ones((3, 3))}, "`score.atc`"),
        ({"other": np.ones(3)}, "no array `other`"),
        ({"prior": None}, "an array `prior`"),
    ],
)
def test_arrays_that_do_not_fit(tmp_path, change, message):
    arrays = {name: array for name, array in {**ARRAYS, **change}.items() if array is not None}
    header = {**HEADER, "format": SCHEMA.format, "version": SCHEMA.version}
    raw = arrays_to_bytes({"header": files.json.dumps(header), **arrays})
    with pytest.raises(GdscoreError, match=message):
        read_record(raw, SCHEMA)
    with pytest.raises(GdscoreError, match=message):
        write_record(tmp_path / "r", SCHEMA, HEADER, arrays)


def test_other_files(tmp_path):
    np.savez(tmp_path / "x.npz", logits=np.zeros(3))
    for values in ({"header": "{"}, {"header": np.zeros(3)}, {"header": "[1]"}, {"header": "\ud800"}, {}):
        with pytest.raises(GdscoreError, match="something else|damaged"):
            read_record(arrays_to_bytes(values), SCHEMA)
    with pytest.raises(GdscoreError, match=r"x\.npz.*something else"):
        read_record(tmp_path / "x.npz", SCHEMA)
    with pytest.raises(GdscoreError, match="there is none"):
        read_record(tmp_path / "missing", SCHEMA)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.just("stable")),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=2), inner, max_size=2)),
    max_leaves=4,
)


@given(st.sampled_from([*HEADER, "options.seed", "sizes.a"]), JSON)
def test_a_changed_field_is_refused_or_of_the_right_type(field, value):
    """An independent statement of what each field may be."""
    header = {**HEADER, "options": dict(HEADER["options"]), "sizes": dict(HEADER["sizes"])}
    outer, _, inner = field.partition(".")
    (header[outer] if inner else header)[inner or outer] = value
    number = type(value) in (int, float)
    fits = {
        "level": number and 0 < value < 1,
        "mix": value in ("stable", "unknown", None) and not isinstance(value, int),
        "families": type(value) is list and all(type(item) is str for item in value),
        "sizes": type(value) is dict and all(type(item) is int and item >= 1 for item in value.values()),
        "options": False,
        "options.seed": type(value) is int,
        "sizes.a": type(value) is int and value >= 1,
    }[field]
    try:
        check_json(header, dict(SCHEMA.header), "it")
    except GdscoreError:
        assert not fits
    else:
        assert fits


def test_bytes_are_what_a_file_holds(tmp_path):
    values = {"a": np.arange(3), "b": "text", "c": 2.5}
    files.write_arrays(tmp_path / "x", values)
    assert (tmp_path / "x").read_bytes() == arrays_to_bytes(values)
    for source in (arrays_to_bytes(values), bytearray(arrays_to_bytes(values)), memoryview(arrays_to_bytes(values))):
        assert list(read_arrays(source).items())[1:] == [("b", "text"), ("c", 2.5)]
    with pytest.raises(GdscoreError, match="'bytes'"):
        read_arrays(b"hello")


@pytest.mark.parametrize("source", [None, 3, np.array("x"), ["x"]])
def test_what_is_no_path_is_refused(source):
    with pytest.raises(GdscoreError, match="Expected a path, but got"):
        read_record(source, SCHEMA)
