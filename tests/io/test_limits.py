"""Files that ask for more memory than they should: refused, or read in pieces, within the stated limits."""

import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gdscore._files import Limits
from gdscore.errors import GdscoreError
from gdscore.io import Columns, read_outputs

READ = """
import resource, sys

resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
import numpy, pyarrow.parquet, pyarrow.compute, pyarrow.csv
from gdscore.errors import GdscoreError
from gdscore.io import read_outputs
from gdscore._files import Limits

def peak():
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) // 1024

before = peak()
try:
    rows = sum(len(batch) for batch in read_outputs(sys.argv[1], limits=eval(sys.argv[2])))
    print(f"{rows} rows")
except GdscoreError as error:
    print(error)
print(peak() - before)
"""


def read_apart(path, limits="Limits()"):
    """What reading gives in a process of its own, and the megabytes it took."""
    if not Path("/proc/self/status").exists():
        pytest.skip("needs /proc")
    done = subprocess.run(
        [sys.executable, "-c", READ, str(path), limits], check=True, stdout=subprocess.PIPE, text=True
    )
    answer, megabytes = done.stdout.splitlines()
    return answer, int(megabytes)


def parquet_with_ids(path, ids, **options):
    rows = len(ids)
    probabilities = pa.array(np.full(rows, 0.5, dtype=np.float32))
    pq.write_table(pa.table({"probabilities": probabilities, "id": ids}), path, **options)
    return path


def test_one_long_id_among_many_rows(tmp_path):
    ids = ["a"] * 100_000
    ids[99_000] = "x" * 20_000
    path = parquet_with_ids(tmp_path / "x.parquet", pa.array(ids))
    answer, megabytes = read_apart(path)
    assert "at most 1,024 characters in column 'id', but got 20,000" in answer
    assert megabytes < 100
    # A caller that allows it gets the rows, still piece by piece.
    answer, megabytes = read_apart(path, "Limits(text=20_000)")
    assert answer == "100000 rows"
    assert megabytes < 300


def test_one_long_id_in_every_row(tmp_path):
    ids = pa.DictionaryArray.from_arrays(np.zeros(100_000, np.int32), ["x" * 1_000_000])
    path = parquet_with_ids(tmp_path / "x.parquet", ids)
    answer, megabytes = read_apart(path)
    assert "1,000,000" in answer
    assert megabytes < 100


def test_long_lists_after_a_short_one(tmp_path):
    lengths = np.full(400_000, 1000)
    lengths[0] = 2
    path = tmp_path / "x.parquet"
    offsets = np.concatenate([[0], np.cumsum(lengths[:2000])])
    part = pa.ListArray.from_arrays(offsets, np.zeros(offsets[-1]))
    later = pa.ListArray.from_arrays(np.arange(0, 2_000_001, 1000), np.zeros(2_000_000))
    with pq.ParquetWriter(path, pa.schema({"logits": part.type})) as writer:
        writer.write_table(pa.table({"logits": pa.chunked_array([part, *[later] * 20])}))
    assert path.stat().st_size < 200_000
    answer, megabytes = read_apart(path)
    assert "lists of one length in column 'logits'" in answer
    assert megabytes < 100


def test_a_small_npz_that_unpacks_to_much(tmp_path):
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("logits.npy", "w") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (2_500_000, 10)})
        for _ in range(25):
            file.write(bytes(4_000_000))
    assert path.stat().st_size < 300_000
    answer, megabytes = read_apart(path)
    assert answer == "2500000 rows"
    assert megabytes < 100


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_small_arrow_file_that_unpacks_to_much(tmp_path, codec):
    path = tmp_path / "x.feather"
    batch = pa.record_batch({"probabilities": pa.array(np.zeros(20_000_000))})
    with pa.ipc.new_file(path, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(batch)
    assert path.stat().st_size < 2_000_000
    with pytest.raises(GdscoreError, match=r"record batches of at most 1,000,000 bytes.*160,000,000"):
        list(read_outputs(path, limits=Limits(memory=1_000_000)))


def test_a_long_row(tmp_path):
    np.savez(tmp_path / "x.npz", features=np.zeros((2, 1000)))
    pq.write_table(pa.table({"features": [[0.0] * 1000] * 2}), tmp_path / "x.parquet")
    for name in ("x.npz", "x.parquet"):
        with pytest.raises(GdscoreError, match=r"at most 4,000 bytes.*8,000.*Limits\(row="):
            list(read_outputs(tmp_path / name, limits=Limits(row=4000)))
        assert sum(len(batch) for batch in read_outputs(tmp_path / name)) == 2


def test_a_long_id_of_an_npz(tmp_path):
    np.savez(tmp_path / "x.npz", logits=np.zeros((2, 3)), id=np.array(["x" * 2000, "y"]))
    with pytest.raises(GdscoreError, match=r"1,024 characters in column 'id', but got 2,000"):
        read_outputs(tmp_path / "x.npz")
    assert len(next(read_outputs(tmp_path / "x.npz", limits=Limits(text=2000)))) == 2


def test_a_long_first_line_of_a_csv_file(tmp_path):
    (tmp_path / "x.csv").write_text("a," * 600_000 + "\n1\n")
    with pytest.raises(GdscoreError, match="first line of at most"):
        read_outputs(tmp_path / "x.csv", columns=Columns(logits="a*"))


def test_limits_are_checked():
    with pytest.raises(GdscoreError, match="limits"):
        read_outputs("x.npz", limits=10)
    with pytest.raises(GdscoreError, match="columns"):
        read_outputs("x.npz", columns={"logits": "z"})
