"""What was written comes back, whatever library, type and strides it had."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdscore import Outputs
from gdscore.errors import GdscoreError
from gdscore.io import blocks, read_outputs, write_outputs

SUFFIXES = ["npz", "parquet"]


def joined(batches):
    batches = list(batches)
    return {name: np.concatenate([batch.arrays[name] for batch in batches]) for name in batches[0].arrays}


def assert_same(read, written):
    assert read.keys() == written.keys()
    for name, array in written.items():
        np.testing.assert_array_equal(read[name], array)
        assert read[name].dtype.kind == array.dtype.kind
        if array.dtype.kind != "U":
            assert read[name].dtype.itemsize == array.dtype.itemsize


@st.composite
def some_outputs(draw):
    rows, classes, width = draw(st.integers(1, 30)), draw(st.integers(2, 5)), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))

    def matrix(*shape):
        array = rng.standard_normal((rows, *shape)).astype(draw(st.sampled_from(["f2", "f4", "f8", ">f4"])))
        strides = draw(st.sampled_from(["plain", "fortran", "every second", "reversed"]))
        if strides == "fortran":
            return np.asfortranarray(array)
        if strides == "every second":
            return np.repeat(array, 2, axis=0)[::2]
        return array[::-1] if strides == "reversed" else array

    arrays = {"logits": matrix(classes)}
    if draw(st.booleans()):
        raw = np.exp(arrays.pop("logits").astype("f4"))
        arrays["probabilities"] = raw / raw.sum(axis=1, keepdims=True)
    optional = {
        "features": lambda: matrix(width),
        "inputs": lambda: matrix(width),
        "peer_logits": lambda: matrix(classes),
        "batch_logits": lambda: matrix(classes),
        "rotation_logits": lambda: matrix(4, 4),
        "labels": lambda: rng.integers(0, classes, rows).astype(draw(st.sampled_from(["i1", "i4", "u8"]))),
        "ids": lambda: np.array(draw(st.lists(st.text("aé/🙂", min_size=1), min_size=rows, max_size=rows))),
    }
    return Outputs(**arrays, **{name: make() for name, make in optional.items() if draw(st.booleans())})


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(max_examples=40, deadline=None)
@given(out=some_outputs(), batch_rows=st.one_of(st.none(), st.integers(1, 40)), cut=st.integers(1, 40))
def test_round_trip(tmp_path_factory, suffix, out, batch_rows, cut):
    path = tmp_path_factory.getbasetemp() / f"x.{suffix}"
    write_outputs(path, out)
    whole = joined(read_outputs(path, batch_rows=batch_rows))
    assert_same(whole, out.arrays)
    write_outputs(path, (out[start : start + cut] for start in range(0, len(out), cut)))
    assert_same(joined(read_outputs(path, batch_rows=batch_rows)), out.arrays)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_other_libraries(tmp_path, suffix):
    torch = pytest.importorskip("torch")
    jnp = pytest.importorskip("jax.numpy")
    logits = np.arange(12.0, dtype=np.float32).reshape(4, 3)
    for array in (
        torch.tensor(logits),
        torch.tensor(logits, dtype=torch.bfloat16),
        torch.tensor(logits.T.copy(), requires_grad=True).T,
        jnp.asarray(logits),
        jnp.asarray(logits, dtype=jnp.bfloat16),
    ):
        write_outputs(tmp_path / f"x.{suffix}", Outputs(logits=array, ids=np.arange(4)))
        got = joined(read_outputs(tmp_path / f"x.{suffix}"))
        np.testing.assert_array_equal(got["logits"], logits)
        assert got["logits"].dtype == np.float32
        np.testing.assert_array_equal(got["ids"], np.arange(4))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_loader_may_reuse_its_arrays(tmp_path, suffix):
    buffer = np.zeros((2, 3))

    def loader():
        for i in range(5):
            buffer[:] = i
            yield Outputs(logits=buffer)

    write_outputs(tmp_path / f"x.{suffix}", loader())
    got = joined(read_outputs(tmp_path / f"x.{suffix}"))["logits"]
    np.testing.assert_array_equal(got, np.arange(5.0).repeat(2)[:, None].repeat(3, axis=1))


def test_row_groups_have_a_size_of_their_own(tmp_path, monkeypatch):
    pq = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 2400)
    logits = np.random.default_rng(0).standard_normal((1000, 3))
    for cut in (1, 7, 1000):
        parts = (Outputs(logits=logits[i : i + cut]) for i in range(0, 1000, cut))
        write_outputs(tmp_path / "x.parquet", parts)
        metadata = pq.read_metadata(tmp_path / "x.parquet")
        assert 9 <= metadata.num_row_groups <= 10
        np.testing.assert_array_equal(joined(read_outputs(tmp_path / "x.parquet"))["logits"], logits)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_bad_streams_are_worded_and_leave_nothing(tmp_path, suffix):
    good = Outputs(logits=np.zeros((2, 3)))
    for stream, message in [
        ([], "stream is empty"),
        (3, "got int"),
        ({"logits": good}, "got str"),
        ([good, good.logits], "got ndarray"),
        ([good, Outputs(logits=np.zeros((2, 4)))], "batch 1 holds.*4 float64"),
        ([good, good, Outputs(logits=np.zeros((2, 3), dtype=np.float32))], "batch 2 holds.*3 float32"),
        ([good, Outputs(logits=np.zeros((2, 3)), labels=np.zeros(2, int))], "labels"),
    ]:
        with pytest.raises(GdscoreError, match=message):
            write_outputs(tmp_path / f"x.{suffix}", stream)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_interrupted_stream_leaves_what_was_there(tmp_path, suffix):
    path = tmp_path / f"x.{suffix}"
    path.write_text("before")

    def stream():
        yield Outputs(logits=np.zeros((2, 3)))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_outputs(path, stream())
    assert [p.read_text() for p in tmp_path.iterdir()] == ["before"]


@pytest.mark.parametrize("name", ["x", "x.csv", "x.npy", "x.parquet.gz"])
def test_other_suffixes(tmp_path, name):
    with pytest.raises(GdscoreError, match=rf"ends in \.npz or \.parquet.*{name}"):
        write_outputs(tmp_path / name, Outputs(logits=np.zeros((2, 3))))


def test_suffixes_in_capitals(tmp_path):
    write_outputs(tmp_path / "X.NPZ", Outputs(logits=np.zeros((2, 3))))
    assert [p.name for p in tmp_path.iterdir()] == ["X.NPZ"]
    assert sum(len(batch) for batch in read_outputs(tmp_path / "X.NPZ")) == 2


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_flipped_bit_among_the_numbers_is_noticed(tmp_path, suffix):
    path = tmp_path / f"x.{suffix}"
    logits = np.random.default_rng(0).standard_normal((50, 3))
    write_outputs(path, Outputs(logits=logits))
    raw = bytearray(path.read_bytes())
    raw[raw.index(logits[20:30].tobytes())] ^= 1
    path.write_bytes(raw)
    with pytest.raises(GdscoreError, match=rf"x\.{suffix}.*damaged"):
        list(read_outputs(path, batch_rows=7))


@pytest.mark.skipif(sys.platform == "win32", reason="no limits on the size of files")
def test_a_full_disk_is_an_error_with_its_cure_and_leaves_nothing(tmp_path):
    code = """
import resource, signal, sys
import numpy as np, gdscore
from gdscore._files import write_json
from gdscore.io import write_outputs
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
out = gdscore.Outputs(logits=np.random.default_rng(0).normal(size=(20_000, 5)))
parts = (out[i : i + 100] for i in range(0, 20_000, 100))
for write in (
    lambda: write_outputs("x.npz", out),
    lambda: write_outputs("x.parquet", parts),
    lambda: write_json("x.json", list(range(100_000))),
):
    try:
        write()
    except gdscore.GdscoreError as error:
        print(error)
"""
    told = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert [line.split(", but")[0] for line in told.splitlines()] == [
        "Expected to write 'x.npz'",
        "Expected to write 'x.parquet'",
        "Expected to write 'x.json'",
    ]
    assert told.count("free some space, or write to another disk") == 3
    assert list(tmp_path.iterdir()) == []


def test_batches_with_other_class_names_are_refused(tmp_path):
    batches = [Outputs(logits=np.zeros((2, 2)), class_names=names) for names in (("a", "b"), ("b", "a"))]
    for name in ("x.npz", "x.parquet"):
        with pytest.raises(GdscoreError, match="the same classes in the same order"):
            write_outputs(tmp_path / name, batches)
        assert not list(tmp_path.iterdir())
