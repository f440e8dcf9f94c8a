import contextlib
import errno
import gc
import io
import os
import stat
import struct
import sys
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gdscore import _files as files
from gdscore._files import Limits, atomic, read_arrays, read_json, write_arrays, write_json
from gdscore.errors import GdscoreError

STATE = {"sum": np.arange(12.0).reshape(3, 4), "count": 7, "tau": 0.5, "variant": "paper", "seen": True}

DTYPES = st.sampled_from(["f2", "f4", "f8", "i1", "i8", "u8", "?", "U3", ">f4", ">i2"])
ARRAYS = hnp.arrays(DTYPES, hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4))
TEXT = st.text().filter(lambda text: not text.endswith("\0"))
SCALARS = st.one_of(st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), TEXT)
NAMES = st.text("abc./_ é", min_size=1, max_size=6)


def assert_same(read, written):
    if isinstance(written, np.ndarray):
        assert read.dtype == written.dtype.newbyteorder("=")
        np.testing.assert_array_equal(read, written)
    else:
        assert type(read) is type(written)
        assert read == written or read != read


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(NAMES, st.one_of(ARRAYS, ARRAYS.map(np.transpose), SCALARS), max_size=4))
def test_arrays_round_trip(tmp_path_factory, values):
    path = tmp_path_factory.getbasetemp() / "state"
    write_arrays(path, values)
    read = read_arrays(path)
    assert list(read) == list(values)
    for name, value in values.items():
        assert_same(read[name], value)


def test_arrays_are_an_ordinary_npz(tmp_path):
    write_arrays(tmp_path / "m.gdscore", STATE)
    assert [p.name for p in tmp_path.iterdir()] == ["m.gdscore"]
    with np.load(tmp_path / "m.gdscore", allow_pickle=False) as loaded:
        np.testing.assert_array_equal(loaded["sum"], STATE["sum"])
        assert str(loaded["variant"]) == "paper"
    np.savez_compressed(tmp_path / "c.npz", **STATE, fortran=np.asfortranarray(STATE["sum"]))
    read = read_arrays(tmp_path / "c.npz")
    np.testing.assert_array_equal(read.pop("fortran"), STATE["sum"])
    for name, value in STATE.items():
        assert_same(read[name], value)


def test_same_values_give_the_same_bytes(tmp_path):
    write_arrays(tmp_path / "a", STATE)
    write_arrays(tmp_path / "b", STATE)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "object"),
        (2**70, "object"),
        (np.array(["a", None], dtype=object), "object"),
        (np.array([(1, 2.0)], dtype="i4,f4"), "pickle"),
        (np.array([1j]), "complex"),
    ],
)
def test_unstorable_values_are_refused_before_anything_is_written(tmp_path, value, message):
    with pytest.raises(GdscoreError, match=f"`bad`.*{message}"):
        write_arrays(tmp_path / "state", {"good": 1, "bad": value})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_nothing_half_written_stays(tmp_path, error):
    path = tmp_path / "result"
    path.write_text("before")
    with pytest.raises(error), atomic(path) as file:
        file.write(b"half")
        raise error
    assert [p.read_text() for p in tmp_path.iterdir()] == ["before"]


def test_full_disk_is_worded_and_leaves_nothing(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(GdscoreError, match=r"state.*No space left"):
        write_arrays(tmp_path / "state", STATE)
    assert not list(tmp_path.iterdir())


def test_errors_of_the_block_pass_as_they_are(tmp_path):
    with pytest.raises(FileNotFoundError), atomic(tmp_path / "x"):
        (tmp_path / "missing").read_bytes()
    assert not list(tmp_path.iterdir())


def test_permissions_are_those_of_any_new_file_and_links_are_followed(tmp_path):
    real, link, plain = tmp_path / "real", tmp_path / "link", tmp_path / "plain"
    plain.touch()
    real.touch()
    link.symlink_to(real)
    write_json(link, [1])
    assert link.is_symlink()
    assert read_json(real) == [1]
    assert stat.S_IMODE(real.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_bad_targets_are_worded(tmp_path):
    with pytest.raises(GdscoreError, match="folder or a device"):
        write_arrays(tmp_path, STATE)
    with pytest.raises(GdscoreError, match="folder or a device"):
        write_arrays(os.devnull, STATE)
    with pytest.raises(GdscoreError, match="create it first"):
        write_arrays(tmp_path / "missing" / "state", STATE)


def bytes_of(tmp_path) -> bytes:
    write_arrays(tmp_path / "whole", STATE)
    return (tmp_path / "whole").read_bytes()


@pytest.mark.parametrize("part", [0, 1, 30, 200, -1, -60, -400])
def test_truncated_arrays_are_worded(tmp_path, part):
    (tmp_path / "cut.npz").write_bytes(bytes_of(tmp_path)[:part])
    with pytest.raises(GdscoreError, match=r"cut\.npz.*truncated.*write the file again"):
        read_arrays(tmp_path / "cut.npz")


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_bytes_are_worded_or_harmless(tmp_path_factory, data):
    folder = tmp_path_factory.getbasetemp()
    raw = bytearray(bytes_of(folder))
    position = data.draw(st.integers(0, len(raw) - 1))
    raw[position] ^= 1 << data.draw(st.integers(0, 7))
    (folder / "flipped.npz").write_bytes(raw)
    read = {}
    with contextlib.suppress(GdscoreError):
        read = read_arrays(folder / "flipped.npz")
    for name in read.keys() & STATE.keys():
        assert_same(read[name], STATE[name])


def test_foreign_files_are_worded(tmp_path):
    np.save(tmp_path / "single.npy", np.zeros(3))
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("readme.txt", "hello")
    (tmp_path / "text.npz").write_text("hello")
    for name, message in {"single.npy": "no .npz", "other.zip": "readme.txt", "text.npz": "no .npz"}.items():
        with pytest.raises(GdscoreError, match=message) as raised:
            read_arrays(tmp_path / name)
        assert name in str(raised.value)
    with pytest.raises(GdscoreError, match="there is none"):
        read_arrays(tmp_path / "missing.npz")
    with pytest.raises(GdscoreError, match="is a folder"):
        read_arrays(tmp_path)


class Bomb:
    def __reduce__(self):
        return (Path.touch, (Path("exploded"),))


def test_pickles_are_never_loaded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("bomb.npz", x=np.array([Bomb()], dtype=object))
    with pytest.raises(GdscoreError, match=r"`x` in 'bomb\.npz'.*pickled"):
        read_arrays("bomb.npz")
    np.savez("fields.npz", x=np.zeros(2, "i4,f4"))
    with pytest.raises(GdscoreError, match=r"`x` in 'fields\.npz'"):
        read_arrays("fields.npz")
    assert not Path("exploded").exists()


def test_a_header_that_promises_too_much_allocates_nothing(tmp_path):
    for shape in ("(10000000000000,)", "(7,)", "(2,)", "(0,)", "(8, 0)"):
        header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
        with zipfile.ZipFile(tmp_path / "liar.npz", "w") as archive:
            archive.writestr("x.npy", b"\x93NUMPY\x01\x00\x76\x00" + header.encode() + bytes(64))
        with pytest.raises(GdscoreError, match="takes other than 64 bytes"):
            read_arrays(tmp_path / "liar.npz")


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(JSON)
def test_json_round_trip(tmp_path_factory, value):
    path = tmp_path_factory.getbasetemp() / "x.json"
    write_json(path, value)
    assert read_json(path) == value


def test_json_takes_numpy_and_refuses_what_it_has_not(tmp_path):
    path = tmp_path / "x.json"
    write_json(path, {"a": np.float32(0.5), "b": np.arange(2), "c": (np.True_, np.int64(3))})
    assert read_json(path) == {"a": 0.5, "b": [0, 1], "c": [True, 3]}
    before = path.read_bytes()
    for value, message in [
        ({"atc": [1.0, float("nan")]}, "Out of range float"),
        (np.array([np.inf]), "Out of range float"),
        ({(1, 2): 2}, "keys must be"),
        ({"x": {1, 2}}, "of type set"),
    ]:
        with pytest.raises(GdscoreError, match=message):
            write_json(path, value)
    assert path.read_bytes() == before


@pytest.mark.parametrize("text", ["", '{"a": ', '{"a": NaN}', "[-Infinity]", "[" * 100_000])
def test_damaged_json_is_worded(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(GdscoreError, match=r"x\.json.*damaged"):
        read_json(tmp_path / "x.json")


def test_unreadable_json_is_worded(tmp_path):
    (tmp_path / "x.json").write_bytes(b"\xff\xfe")
    with pytest.raises(GdscoreError, match="UTF-8"):
        read_json(tmp_path / "x.json")
    with pytest.raises(GdscoreError, match="there is none"):
        read_json(tmp_path / "missing.json")


# -- hostile files --------------------------------------------------------------------------------------------


def npz_of(header: bytes, body: bytes = b"", **options) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", **options) as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + body)
    return raw.getvalue()


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{",
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (1,",
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (1,), 'more': 1}",
        b"{'descr': '<f8', 'fortran_order': False}",
        b"{'descr': '<f8', 'fortran_order': 1, 'shape': (1,)}",
        b"{'descr': '<f7', 'fortran_order': False, 'shape': (1,)}",
        b"{'descr': '<i4,<f4', 'fortran_order': False, 'shape': (1,)}",
        b"{'descr': '(1000000000,)<f8', 'fortran_order': False, 'shape': (1,)}",
        b"{'descr': 'os.system', 'fortran_order': False, 'shape': (1,)}",
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (__import__('os').abort(),)}",
        b"{'descr': '<f8', 'fortran_order': False, 'shape': " + b"(" * 3000 + b"}",
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (" + b"9" * 5000 + b",)}",
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (0, " + b"9" * 50 + b")}",
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (" + b"0, " * 100 + b")}",
        b"{'descr': '<U0', 'fortran_order': False, 'shape': (100000000000,)}",
        b"{'descr': '<U999999999', 'fortran_order': False, 'shape': (0,)}",
        b"\xff\xfe\0",
    ],
)
def test_headers_that_are_none(header):
    with pytest.raises(GdscoreError, match="bytes") as raised:
        read_arrays(npz_of(header))
    assert "\n" not in str(raised.value)


def test_headers_of_other_libraries():
    for header in (
        b"{'descr': '<f8', 'fortran_order': True, 'shape': (2,1,), }",
        b"{'shape':(2, 1),'fortran_order':True,'descr':'=f8'}   \n",
    ):
        np.testing.assert_array_equal(read_arrays(npz_of(header, np.arange(2.0).tobytes()))["x"], [[0.0], [1.0]])


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_compressions_that_numpy_does_not_write_are_refused_before_unpacking(method):
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000,)}"
    raw = npz_of(header, bytes(8_000_000), compression=method)
    assert len(raw) < 20_000
    with pytest.raises(GdscoreError, match="compressed in another way.*savez"):
        read_arrays(raw)


def with_claim(raw: bytes, size: int) -> bytes:
    """Let the directory of an archive of one member claim another size."""
    changed = bytearray(raw)
    at = changed.index(b"PK\x01\x02")
    changed[at + 20 : at + 28] = struct.pack("<II", size, size)
    return bytes(changed)


def test_claims_are_compared_with_the_file_and_with_the_limit():
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (4000000000,)}"
    with pytest.raises(GdscoreError, match=r"at most 1,073,741,824 bytes.*4,000,000,000"):
        read_arrays(with_claim(npz_of(header), 4_000_000_000 + 10 + len(header)))
    zeros = npz_of(
        b"{'descr': '|u1', 'fortran_order': False, 'shape': (50000000,)}",
        bytes(50_000_000),
        compression=zipfile.ZIP_DEFLATED,
    )
    with pytest.raises(GdscoreError, match=r"at most 1,000,000 bytes.*50,000,000.*Limits\(memory="):
        read_arrays(zeros, limits=Limits(memory=1_000_000))
    with pytest.raises(GdscoreError, match="`memory` to be an integer"):
        Limits(memory=0)


def test_values_that_their_type_does_not_have():
    with pytest.raises(GdscoreError, match="values that"):
        read_arrays(npz_of(b"{'descr': '<U1', 'fortran_order': False, 'shape': (1,)}", b"\xff\xff\xff\xff"))
    with pytest.raises(GdscoreError, match="values that"):
        read_arrays(npz_of(b"{'descr': '|b1', 'fortran_order': False, 'shape': (2,)}", b"\x01\x02"))


def test_entries_of_one_name(tmp_path):
    with zipfile.ZipFile(tmp_path / "x", "w") as archive:
        archive.writestr("x.npy", "")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("x.npy", "")
    with pytest.raises(GdscoreError, match="two entries of one name"):
        read_arrays(tmp_path / "x")


# -- places ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444])
def test_a_replaced_file_keeps_its_permissions(tmp_path, mode):
    path = tmp_path / "x.json"
    path.touch()
    path.chmod(mode)
    write_json(path, [1])
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert read_json(path) == [1]


def test_contents_are_never_readable_by_more_than_before(tmp_path):
    path = tmp_path / "x"
    path.touch()
    path.chmod(0o600)
    with atomic(path) as file:
        (temporary,) = (p for p in tmp_path.iterdir() if p != path)
        assert stat.S_IMODE(temporary.stat().st_mode) == 0o600
        file.write(b"x")


def test_places_that_are_none(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path in ("", "a\0b", tmp_path / ("n" * 300), tmp_path / "loop", tmp_path / "pipe", 3, None, b"x", "\ud800"):
        for use in (
            read_arrays,
            read_json,
            lambda path: write_arrays(path, STATE),
            lambda path: write_json(path, 1),
            lambda path: atomic(path).__enter__(),
        ):
            if isinstance(path, bytes) and use is read_arrays:
                continue
            with pytest.raises(GdscoreError):
                use(path)
    longest = tmp_path / ("n" * 255)
    write_json(longest, 1)
    assert read_json(longest) == 1


def test_json_that_holds_itself(tmp_path):
    nested = []
    nested.append(nested)
    with pytest.raises(GdscoreError, match="Circular reference"):
        write_json(tmp_path / "x", nested)
    assert not list(tmp_path.iterdir())


def test_threads_read_arrays_at_once_also_where_garbage_is_collected():
    """Python 3.11 answers two that parse a header at once with a SystemError (found by the monitor's tests)."""
    data = files.arrays_to_bytes({f"a{k}": np.arange(3.0) for k in range(10)})

    def another_thread_goes_on(*_):
        time.sleep(0)

    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    gc.callbacks.append(another_thread_goes_on)
    try:
        sys.setswitchinterval(1e-6)
        gc.set_threshold(50)
        with ThreadPoolExecutor(8) as threads:
            sizes = list(threads.map(lambda _: len(read_arrays(data)), range(160)))
    finally:
        sys.setswitchinterval(interval)
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(another_thread_goes_on)
    assert sizes == [10] * 160
