"""Files that are not what they should be: one line on standard error, the right exit code, nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gdscore
from tests.cli.conftest import read, refused


def not_npz(path: Path) -> str:
    path = path / "bad.npz"
    path.write_text("a,b,c\n1,2,3\n")
    return "no .npz at all"


def truncated_npz(path: Path) -> str:
    whole = Path("new.npz").read_bytes()
    (path / "bad.npz").write_bytes(whole[: len(whole) // 2])
    return "truncated"


def pickled_npz(path: Path) -> str:
    np.savez(path / "bad.npz", logits=np.array([[1.0, 2.0], None], dtype=object))
    return "pickled"


def other_npz(path: Path) -> str:
    np.savez(path / "bad.npz", scores=np.zeros((3, 2)))
    return "'scores'"


def empty_npz(path: Path) -> str:
    np.savez(path / "bad.npz", logits=np.zeros((0, 10)), features=np.zeros((0, 16)), labels=np.zeros(0, int))
    return "at least one row"


def nan_npz(path: Path) -> str:
    rows = {name: array.copy() for name, array in read(Path("val.npz")).arrays.items()}
    rows["logits"][7, 3] = np.nan
    np.savez(path / "bad.npz", **rows)
    return "row 7"


def not_parquet(path: Path) -> str:
    (path / "bad.parquet").write_bytes(b"PAR1" + bytes(100))
    return "to be a Parquet file"


def truncated_parquet(path: Path) -> str:
    whole = Path("new.parquet").read_bytes()
    (path / "bad.parquet").write_bytes(whole[: len(whole) // 2])
    return "truncated"


def parquet_without_columns(path: Path) -> str:
    pq.write_table(pa.table({"price": [1.0, 2.0]}), path / "bad.parquet")
    return "'price'"


def varying_parquet(path: Path) -> str:
    pq.write_table(pa.table({"logits": [[0.0, 1.0]] * 5 + [[0.0, 1.0, 2.0]], "label": [0] * 6}), path / "bad.parquet")
    return "bad.parquet' has 3 entries"


def nan_parquet(path: Path) -> str:
    pq.write_table(pa.table({"logits": [[0.0, 1.0], [float("nan"), 1.0]], "label": [0, 1]}), path / "bad.parquet")
    return "row 1"


def empty_parquet(path: Path) -> str:
    kind = pa.list_(pa.float32())
    pq.write_table(pa.table({"logits": pa.array([], kind), "label": pa.array([], pa.int64())}), path / "bad.parquet")
    return "at least one row"


def mixed_folder(path: Path) -> str:
    (path / "bad").mkdir()
    pq.write_table(pa.table({"logits": [[0.0, 2.0]] * 9, "label": [0] * 9}), path / "bad" / "part-0.parquet")
    pq.write_table(pa.table({"probabilities": [[0.5, 0.5]] * 9}), path / "bad" / "part-1.parquet")
    return "all files to hold the same"


HOSTILE = [
    not_npz,
    truncated_npz,
    pickled_npz,
    other_npz,
    empty_npz,
    nan_npz,
    not_parquet,
    truncated_parquet,
    parquet_without_columns,
    varying_parquet,
    nan_parquet,
    empty_parquet,
    mixed_folder,
]


@pytest.mark.parametrize("command", ["score", "estimate", "fit", "reference", "shifted_sets"])
@pytest.mark.parametrize("make", HOSTILE, ids=lambda make: make.__name__)
def test_hostile_files(gd, folder, make, command):
    (folder / "hostile").mkdir()
    message = make(folder / "hostile")
    (bad,) = (folder / "hostile").iterdir()
    bad = bad.relative_to(folder)
    before = sorted(folder.rglob("*"))
    args = {
        "score": ("score", bad, "--json", "made.json"),
        "estimate": ("estimate", "m.gdscore", bad, "--json", "made.json", "--html", "made.html"),
        "fit": ("fit", bad, "-o", "made.gdscore"),
        "reference": ("score", "new.npz", "--reference", bad, "--json", "made.json"),
        "shifted_sets": ("fit", "val.npz", "--shifted-sets", "hostile", "-o", "made.gdscore"),
    }[command]
    if (make, command) == (mixed_folder, "shifted_sets"):
        message = "Expected labels in 'hostile/bad/part-1.parquet'"  # files are sets of their own there
    of_a_target = command in ("score", "estimate")
    line = refused(gd(*args, *(["--quiet"] if of_a_target else [])), code=1 if of_a_target else 2)
    assert message in line
    assert str(bad) in line
    written = [folder / "made.json"] if of_a_target else []
    assert sorted(folder.rglob("*")) == sorted([*before, *written])


def test_damaged_estimator(gd, folder):
    whole = (folder / "m.gdscore").read_bytes()
    for content in (whole[: len(whole) // 2], b"not an estimator", b""):
        (folder / "m.gdscore").write_bytes(content)
        assert "m.gdscore" in refused(gd("estimate", "m.gdscore", "new.npz"))


@pytest.mark.parametrize("path", ["missing/made.html", "logs", "new.npz/made.html", "/proc/made.html"])
@pytest.mark.parametrize(
    "args",
    [
        ("score", "new.npz", "--json"),
        ("estimate", "m.gdscore", "new.npz", "--json"),
        ("estimate", "m.gdscore", "new.npz", "--html"),
        ("fit", "val.npz", "-o"),
        ("demo", "--output"),
    ],
    ids=lambda args: args[0] + args[-1],
)
def test_unwritable_output_is_refused_before_the_work(gd, folder, args, path, monkeypatch):
    def late(*args, **kwargs):
        raise AssertionError("the work has started")

    for name in ("gdscore.io.read_outputs", "gdscore.demo.Digits", "gdscore.estimator.AccuracyEstimator.load"):
        monkeypatch.setattr(name, late)
    if args[0] == "demo" and path in ("missing/made.html", "logs"):
        return  # folders there are made, or used
    line = refused(gd(*args, path))
    assert path in line


def _heed_interrupts():
    # A shell's background jobs ignore Ctrl-C, and hand that down: the tests may run in one.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_interrupted_halfway(folder, tmp_path):
    pytest.importorskip("torch")
    slow = "\n\ndef slow():\n    import time\n    return load()[0], lambda image: (time.sleep(0.02), preprocess(image))[1]\n"
    with (folder / "network.py").open("a") as file:
        file.write(slow)
    for copy in range(30):
        for path in list((folder / "photos" / "cat").glob("??.png")):
            path.with_name(f"{path.stem}-{copy}.png").write_bytes(path.read_bytes())
    args = ["extract", "network:slow", "photos", "--batch-size", "2", "--workers", "1", "-o"]
    message = "gdscore: interrupted: what was not finished is not written\n"
    expected = {signal.SIGINT: (130, message), signal.SIGTERM: (143, "")}
    started = {}
    for number in expected:  # side by side: both spend their time on importing PyTorch
        (tmp_path / number.name).mkdir()
        command = [sys.executable, "-m", "gdscore.cli", *args, tmp_path / number.name / "made.parquet"]
        started[number] = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=_heed_interrupts
        )
    deadline = time.monotonic() + 300
    for number, process in started.items():
        while not list((tmp_path / number.name).glob(".*.tmp")) and time.monotonic() < deadline:
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        time.sleep(0.1)
        process.send_signal(number)
    for number, process in started.items():
        out, err = process.communicate(timeout=300)
        assert (process.returncode, out, err) == (expected[number][0], "", expected[number][1])
        assert list((tmp_path / number.name).iterdir()) == []


def test_another_models_outputs(gd, folder):
    gdscore.io.write_outputs("narrow.npz", gdscore.Outputs(logits=np.zeros((30, 10)), features=np.zeros((30, 3))))
    assert "narrow" in refused(gd("estimate", "m.gdscore", "narrow.npz"), code=1)
