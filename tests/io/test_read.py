"""Which files are read, in which order, and what is said when they do not fit together."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gdscore import Outputs
from gdscore.errors import GdscoreError
from gdscore.io import Columns, read, read_outputs, write_outputs


def outputs(rows, start=0, **more):
    return Outputs(logits=np.arange(start, start + 3.0 * rows, dtype=np.float32).reshape(rows, 3), **more)


def firsts(stream):
    return [float(value) for batch in stream for value in batch.logits[:, 0]]


def open_files():
    listed = Path("/proc/self/fd")
    if not listed.exists():
        pytest.skip("needs /proc")
    links = [entry.readlink().name for entry in listed.iterdir() if entry.is_symlink()]
    return [link for link in links if link.endswith((".npz", ".parquet", ".tmp"))]


@pytest.fixture(params=["npz", "parquet"])
def suffix(request):
    return request.param


def test_folder_is_read_by_name_and_below(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "_temporary").mkdir()
    for name, start in {"b": 0, "a": 100, "sub/z": 200, "_temporary/x": 300, ".hidden": 400}.items():
        write_outputs(tmp_path / f"{name}.parquet", outputs(1, start))
    (tmp_path / "_SUCCESS").touch()
    assert firsts(read_outputs(tmp_path)) == [100, 0, 200]
    assert firsts(read_outputs(str(tmp_path))) == [100, 0, 200]


def test_patterns_and_lists(tmp_path):
    write_outputs(tmp_path / "p-2.parquet", outputs(1, 20))
    write_outputs(tmp_path / "p-1.npz", outputs(1, 10))
    write_outputs(tmp_path / "q.npz", outputs(1, 30))
    (tmp_path / "p-0.txt").touch()
    assert firsts(read_outputs(tmp_path / "p-*")) == [10, 20]
    assert firsts(read_outputs(str(tmp_path / "**" / "*.npz"))) == [10, 30]
    (tmp_path / "sub").mkdir()
    write_outputs(tmp_path / "sub" / "r.parquet", outputs(1, 50))
    assert firsts(read_outputs([tmp_path / "q.npz", str(tmp_path / "p*.npz"), tmp_path / "sub"])) == [30, 10, 50]
    write_outputs(tmp_path / "odd[1].npz", outputs(1, 40))
    assert firsts(read_outputs(tmp_path / "odd[1].npz")) == [40]


def test_bad_sources_are_worded(tmp_path):
    (tmp_path / "x.md").write_text("hello")
    (tmp_path / "x.csv").touch()
    (tmp_path / "x.csv.gz").write_bytes(b"\x1f\x8b1234")
    (tmp_path / "empty").mkdir()
    (tmp_path / "mixed").mkdir()
    (tmp_path / "mixed" / "a.npz").touch()
    (tmp_path / "mixed" / "b.csv").touch()
    np.save(tmp_path / "one.npy", np.zeros(3))
    os.mkfifo(tmp_path / "pipe.npz")
    (tmp_path / "loop.npz").symlink_to(tmp_path / "loop.npz")
    for source, message in [
        (tmp_path / "missing.npz", r"missing\.npz.*there is none"),
        (tmp_path / "missing.parquet", r"missing\.parquet.*there is none"),
        (tmp_path / "*.parquet", "matches nothing"),
        (tmp_path / "*.md", "only other things"),
        (tmp_path / "x.md", "begins like none of them"),
        (tmp_path / "x.csv", "the file is empty"),
        (tmp_path / "x.csv.gz", "unpack it first"),
        (tmp_path / "empty", "in the folder.*empty.*found none"),
        (tmp_path / "mixed", r"npz files such as .*a\.npz.*CSV files such as"),
        (tmp_path / "one.npy", "single array"),
        (tmp_path / "pipe.npz", "is a pipe"),
        (tmp_path / "loop.npz", "system refused|cannot be a file"),
        (tmp_path / ("x" * 300), "system refused"),
        ("", "name a file"),
        ("a\0b", "name a file"),
        ("\ud800.npz", "cannot be a file"),
        ([], "empty list"),
        (3, "int"),
        (b"x.npz", "bytes"),
        ([np.zeros(3)], "ndarray"),
        (outputs(2), "Outputs"),
    ]:
        with pytest.raises(GdscoreError, match=message):
            read_outputs(source)


@pytest.mark.parametrize("rows", [0, -1, 2.0, True, "many"])
def test_bad_batch_rows(tmp_path, rows):
    with pytest.raises(GdscoreError, match="batch_rows"):
        read_outputs(tmp_path, batch_rows=rows)


def test_batches_are_of_the_asked_size(tmp_path, suffix):
    write_outputs(tmp_path / f"x.{suffix}", outputs(10))
    assert [len(batch) for batch in read_outputs(tmp_path / f"x.{suffix}", batch_rows=4)] == [4, 4, 2]
    assert [len(batch) for batch in read_outputs(tmp_path / f"x.{suffix}")] == [10]
    assert firsts(read_outputs(tmp_path / f"x.{suffix}", batch_rows=3)) == [3.0 * i for i in range(10)]


def test_default_batches_hold_some_megabytes(tmp_path, suffix):
    features = np.zeros((20_000, 512), dtype=np.float16)
    write_outputs(tmp_path / f"x.{suffix}", Outputs(features=features, labels=np.zeros(20_000, dtype=np.int64)))
    largest = max(len(batch) for batch in read_outputs(tmp_path / f"x.{suffix}"))
    assert 8e6 < largest * 1032 < 16e6


def test_files_must_agree(tmp_path, suffix):
    write_outputs(tmp_path / f"a.{suffix}", outputs(2))
    for name, other in {
        "names": outputs(2, labels=np.array([0, 1])),
        "widths": Outputs(logits=np.zeros((2, 4))),
    }.items():
        write_outputs(tmp_path / f"{name}.{suffix}", other)
        with pytest.raises(GdscoreError, match=rf"a\.{suffix}.*`logits`.*{name}\.{suffix}.*`logits`"):
            list(read_outputs([tmp_path / f"a.{suffix}", tmp_path / f"{name}.{suffix}"]))
    write_outputs(tmp_path / f"number.{suffix}", outputs(2, ids=np.array([1, 2])))
    write_outputs(tmp_path / f"text.{suffix}", outputs(2, ids=np.array(["1", "2"])))
    with pytest.raises(GdscoreError, match=r"`ids` 1 numbers.*`ids` 1 text"):
        list(read_outputs([tmp_path / f"number.{suffix}", tmp_path / f"text.{suffix}"]))


def test_names_are_checked_before_the_first_row(tmp_path, suffix):
    write_outputs(tmp_path / f"a.{suffix}", outputs(2))
    write_outputs(tmp_path / f"b.{suffix}", outputs(2, labels=np.array([0, 1])))
    with pytest.raises(GdscoreError, match="same"):
        read_outputs([tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}"])


def test_unsound_rows_are_named_as_the_file_counts_them(tmp_path, suffix):
    logits = np.zeros((50, 3))
    write_outputs(tmp_path / f"fine.{suffix}", Outputs(logits=logits))
    out = Outputs(logits=logits)
    out.arrays["logits"][[37, 38], 1] = np.nan
    write_outputs(tmp_path / f"bad.{suffix}", out)
    stream = read_outputs([tmp_path / f"fine.{suffix}", tmp_path / f"bad.{suffix}"], batch_rows=10)
    with pytest.raises(
        GdscoreError, match=rf"`logits` to be finite.*NaN in column 'logits' in row 37 of '.*bad\.{suffix}'"
    ):
        list(stream)
    assert not open_files()


def test_unsound_labels_are_named(tmp_path, suffix):
    out = outputs(50, labels=np.zeros(50, dtype=np.int32))
    out.arrays["labels"][41] = 3
    write_outputs(tmp_path / f"bad.{suffix}", out)
    with pytest.raises(GdscoreError, match=r"between 0 and 2.*in row 41 of"):
        list(read_outputs(tmp_path / f"bad.{suffix}", batch_rows=7))


def test_errors_without_a_row_name_the_file(tmp_path):
    np.savez(tmp_path / "one.npz", logits=np.zeros((3, 1)))
    with pytest.raises(GdscoreError, match=r"at least 2 classes.*in '.*one\.npz'"):
        list(read_outputs(tmp_path / "one.npz"))


def test_files_are_closed_when_the_stream_is_dropped(tmp_path, suffix):
    write_outputs(tmp_path / f"x.{suffix}", outputs(10))
    stream = read_outputs(tmp_path / f"x.{suffix}", batch_rows=2)
    assert not open_files()
    next(stream)
    assert len(open_files()) == 1
    stream.close()
    assert not open_files()
    list(read_outputs(tmp_path / f"x.{suffix}", batch_rows=2))
    assert not open_files()


@pytest.mark.parametrize("part", [0, 3, 4, 100, -1, -8, -200])
def test_truncated_files_are_worded_and_closed(tmp_path, suffix, part):
    write_outputs(tmp_path / f"whole.{suffix}", outputs(100, labels=np.arange(100) % 3))
    (tmp_path / f"cut.{suffix}").write_bytes((tmp_path / f"whole.{suffix}").read_bytes()[:part])
    with pytest.raises(GdscoreError, match=rf"cut\.{suffix}.*truncated") as raised:
        list(read_outputs(tmp_path / f"cut.{suffix}"))
    assert "\n" not in str(raised.value)
    assert not open_files()


def test_a_file_that_gives_fewer_rows_than_it_says(tmp_path, monkeypatch):
    write_outputs(tmp_path / "x.parquet", outputs(10))
    opened = read._open

    @contextlib.contextmanager
    def boasting(path, limits):
        with opened(path, limits) as table:
            count = table.count_rows
            table.count_rows = lambda chosen: count(chosen) + 1
            yield table

    monkeypatch.setattr(read, "_open", boasting)
    with pytest.raises(GdscoreError, match=r"Expected 11 rows in '.*x\.parquet', but got 10"):
        list(read_outputs(tmp_path / "x.parquet"))


def test_contents_decide_the_kind_of_a_file(tmp_path):
    write_outputs(tmp_path / "x.npz", outputs(3))
    write_outputs(tmp_path / "y.parquet", outputs(3))
    (tmp_path / "x.npz").rename(tmp_path / "x.parquet")
    (tmp_path / "y.parquet").rename(tmp_path / "y")
    for name in ("x.parquet", "y"):
        assert firsts(read_outputs(tmp_path / name)) == [0, 3, 6]
    (tmp_path / "z.parquet").write_text("hello")
    with pytest.raises(GdscoreError, match=r"z\.parquet.*truncated"):
        read_outputs(tmp_path / "z.parquet")


def test_nothing_is_printed_without_a_terminal(tmp_path, suffix, capfd):
    write_outputs(tmp_path / f"x.{suffix}", outputs(10))
    list(read_outputs(tmp_path / f"x.{suffix}"))
    list(read_outputs(tmp_path / f"x.{suffix}", progress=False))
    assert capfd.readouterr() == ("", "")


def test_progress_on_request_goes_to_standard_error(tmp_path, capfd):
    write_outputs(tmp_path / "x.npz", outputs(10))
    before = sys.stdout, sys.stderr
    stream = read_outputs(tmp_path / "x.npz", batch_rows=5, progress=True)
    next(stream)
    assert (sys.stdout, sys.stderr) == before
    list(stream)
    out, err = capfd.readouterr()
    assert out == ""
    assert "/10" in err


def test_progress_where_a_terminal_is_attached(tmp_path, capfd, monkeypatch):
    write_outputs(tmp_path / "x.npz", outputs(10))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    next(read_outputs(tmp_path / "x.npz", progress=False))
    assert capfd.readouterr().err == ""
    stream = read_outputs(tmp_path / "x.npz", batch_rows=5)
    next(stream)
    stream.close()
    assert "rows" in capfd.readouterr().err


PEAK = """
import sys
from pathlib import Path
from gdscore.io import read_outputs

def peak():
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])

stream = read_outputs(sys.argv[1], batch_rows=1024)
for _ in range(8):
    next(stream)
early = peak()
assert sum(len(batch) for batch in stream) == 200_000 - 8 * 1024
print(peak() - early)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_memory_does_not_grow_with_rows(tmp_path, suffix):
    path = tmp_path / f"big.{suffix}"
    features = np.random.default_rng(0).standard_normal((200_000, 64), dtype=np.float32)
    if suffix == "npz":
        np.savez(path, features=features)
    else:
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        column = pa.FixedSizeListArray.from_arrays(pa.array(features.ravel()), 64)
        pq.write_table(pa.table({"features": column}), path, row_group_size=len(features))
    assert path.stat().st_size > 45e6
    done = subprocess.run([sys.executable, "-c", PEAK, str(path)], check=True, stdout=subprocess.PIPE, text=True)
    assert int(done.stdout) < 16_000


def test_a_link_to_nothing_does_not_suggest_itself(tmp_path):
    (tmp_path / "day.npz").symlink_to(tmp_path / "gone.npz")
    with pytest.raises(GdscoreError, match=r"it is a link to '.*gone\.npz', which is not there$"):
        read_outputs(tmp_path / "day.npz")


@pytest.mark.parametrize("source", [np.array("x.npz"), np.array(3), 3, {"x.npz": 1}])
def test_a_single_value_is_no_path(source):
    with pytest.raises(GdscoreError, match="a path, a pattern or a list of them"):
        read_outputs(source)


@pytest.mark.parametrize("value", [np.array("p_*"), np.array(3), 3, {"a": 1}])
def test_a_single_value_is_no_column(value):
    for name in ("logits", "by", "class_names", "label", "time"):
        with pytest.raises(GdscoreError, match=f"`{name}` to be"):
            Columns(**{name: value})


def test_a_csv_file_without_a_suffix(tmp_path):
    """It was said to be a damaged .npz."""
    path = tmp_path / "data"
    path.write_text("p_a,p_b\n0.5,0.5\n")
    with pytest.raises(GdscoreError, match="begins like none of them.*where it is CSV, rename it to data.csv"):
        next(read_outputs(path))
