"""Feather and Arrow files, as pandas, polars and Arrow write them."""

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather

from gdscore._files import Limits
from gdscore.errors import GdscoreError
from gdscore.io import Columns, read_batches, read_outputs

LOGITS = np.random.default_rng(0).normal(size=(20, 3))
TABLE = pa.table(
    {
        "logits": pa.FixedSizeListArray.from_arrays(LOGITS.ravel(), 3),
        "label": pa.array(np.arange(20) % 3),
        "day": pa.array(np.arange(20).astype("datetime64[D]")),
        "country": pa.array(["fr", "de"] * 10).dictionary_encode(),
        "beta": pa.array([True, False] * 10),
    }
)


def write(path, kind):
    if kind == "stream":
        with pa.ipc.new_stream(path, TABLE.schema) as writer:
            writer.write_table(TABLE, max_chunksize=7)
    elif kind == "file":
        with pa.ipc.new_file(path, TABLE.schema) as writer:
            writer.write_table(TABLE, max_chunksize=7)
    else:
        feather.write_feather(TABLE, path, compression=kind, chunksize=7)
    return path


@pytest.mark.parametrize("kind", ["stream", "file", "lz4", "zstd", "uncompressed"])
def test_kinds(tmp_path, kind):
    path = write(tmp_path / "x.feather", kind)
    columns = Columns(time="day", by=["country", "beta"])
    batches = list(read_batches(path, columns=columns, batch_rows=8))
    assert [len(batch.outputs) for batch in batches] == [8, 8, 4]
    np.testing.assert_array_equal(np.concatenate([b.outputs.logits for b in batches]), LOGITS)
    assert np.concatenate([b.outputs.labels for b in batches]).tolist() == (np.arange(20) % 3).tolist()
    np.testing.assert_array_equal(np.concatenate([b.time for b in batches]), np.arange(20).astype("datetime64[D]"))
    assert batches[0].by["country"][:2].tolist() == ["fr", "de"]
    assert batches[0].by["beta"][:2].tolist() == [True, False]


@pytest.mark.parametrize("kind", ["file", "stream"])
@pytest.mark.parametrize("text", ["String", "Categorical", "Enum"])
def test_text_of_polars(tmp_path, kind, text):
    pl = pytest.importorskip("polars")
    names = ["cat", "a name that is longer than 12 bytes", "dog"]
    dtype = pl.Enum(names[::-1]) if text == "Enum" else getattr(pl, text)
    labels = pl.Series([names[i % 3] for i in range(20)], dtype=dtype)
    frame = pl.DataFrame({**{f"z_{k}": LOGITS[:, i] for i, k in enumerate(names)}, "y": labels, "by": labels})
    (frame.write_ipc if kind == "file" else frame.write_ipc_stream)(tmp_path / "x.arrow")
    for rows in (None, 7):
        columns = Columns(logits="z_*", label="y", by="by")
        found = list(read_batches(tmp_path / "x.arrow", columns=columns, batch_rows=rows))
        assert np.concatenate([b.outputs.labels for b in found]).tolist() == [i % 3 for i in range(20)]
        assert np.concatenate([b.by["by"] for b in found]).tolist() == labels.to_list()
    with pytest.raises(GdscoreError, match="at most 5 characters"):
        list(read_batches(tmp_path / "x.arrow", columns=columns, limits=Limits(text=5)))


@pytest.mark.parametrize("part", [3, 8, 100, -1, -30])
def test_truncated_files(tmp_path, part):
    raw = write(tmp_path / "x.feather", "file").read_bytes()
    (tmp_path / "cut.feather").write_bytes(raw[:part])
    with pytest.raises(GdscoreError, match=r"cut\.feather.*(truncated|begins like none)"):
        list(read_outputs(tmp_path / "cut.feather"))


def test_the_first_version_of_feather(tmp_path):
    (tmp_path / "x.feather").write_bytes(b"FEA1....FEA1")
    with pytest.raises(GdscoreError, match="version 1"):
        read_outputs(tmp_path / "x.feather")


def test_times_with_a_zone_and_units(tmp_path):
    for unit in ("s", "ms", "us", "ns"):
        times = pa.array([0, 10], pa.timestamp(unit, tz="Europe/Paris"))
        feather.write_feather(pa.table({"p": [0.5, 0.5], "t": times}), tmp_path / "x.feather")
        ((_, time, _),) = read_batches(tmp_path / "x.feather", columns=Columns(probabilities="p", time="t"))
        assert time[0] == np.datetime64(0, "us")
        assert time[1] == np.datetime64(10, unit).astype("datetime64[us]")
    year = 31556952
    for far in (2**62, 8100 * year, -2000 * year):
        times = pa.array([0, far], pa.timestamp("s"))
        feather.write_feather(pa.table({"p": [0.5, 0.5], "t": times}), tmp_path / "x.feather")
        with pytest.raises(GdscoreError, match="between the years 1 and 9999 .* in column 't'.*row 1"):
            list(read_batches(tmp_path / "x.feather", columns=Columns(probabilities="p", time="t")))
    feather.write_feather(pa.table({"p": [0.5, 0.5], "t": [1, 2]}), tmp_path / "x.feather")
    with pytest.raises(GdscoreError, match="`t`.*a time per row.*int64"):
        read_batches(tmp_path / "x.feather", columns=Columns(probabilities="p", time="t"))
