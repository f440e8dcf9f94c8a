"""`--engine ray`: commands give on a cluster what they give in one process."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time

import numpy as np
import pytest

import gdscore
from gdscore.io import read_outputs
from tests.cli.conftest import NETWORK, _photos, refused
from tests.data import made

pytest.importorskip("ray", reason="Ray is not installed: pip install 'gdscore[ray]'")
pytestmark = pytest.mark.usefixtures("cluster")

LABELLED = ("logits", "features", "labels")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path_factory.mktemp("commands")
    gdscore.AccuracyEstimator().fit(made(1500, keep=LABELLED, seed=1)).save(folder / "m.gdscore")
    (folder / "parts").mkdir()
    (folder / "days").mkdir()
    for number in range(4):
        out = made(400, keep=LABELLED, seed=10 + number, noise=1 + 0.3 * number)
        times = np.datetime64("2026-03-01T20:00") + (400 * number + np.arange(400)) * np.timedelta64(120, "s")
        columns = {
            "logits": list(out.logits),
            "features": list(out.features),
            "label": out.labels,
            "time": times,
            "country": np.random.default_rng(number).choice(["fr", "de"], 400).tolist(),
            "device": ["phone", "web"] * 200,
        }
        pq.write_table(pa.table(columns), folder / "parts" / f"{number}.parquet")
        pq.write_table(pa.table(columns), folder / "days" / f"2026-01-0{number + 1}.parquet")
    return folder


@pytest.fixture
def folder(prepared, monkeypatch):
    monkeypatch.chdir(prepared)
    return prepared


@pytest.fixture
def gd():
    from typer.testing import CliRunner

    from gdscore.cli.commands import app

    return lambda *args: CliRunner().invoke(app, [str(arg) for arg in args], prog_name="gdscore")


@pytest.mark.parametrize(
    "options",
    [
        ("parts",),
        ("parts", "--time", "time", "--every", "12h", "--by", "country", "--by", "device"),
        ("parts", "days/2026-01-01.parquet", "--by", "country"),
        ("days", "--min-accuracy", "0.95", "--html", "report.html"),
        ("days", "missing.parquet", "--max-drop", "0.5"),
    ],
)
def test_estimates_are_those_of_one_process(gd, folder, options, tmp_path):
    documents = []
    for engine in ("local", "ray"):
        path = tmp_path / f"{engine}.json"
        done = gd("estimate", "m.gdscore", *options, "--engine", engine, "--json", path)
        # Ray's own lines, of a node that another test has removed say, may stand between ours.
        shown = done.stdout.replace(str(path), "").splitlines()
        documents.append((done.exit_code, json.loads(path.read_text()), shown))
    (code, expected, lines), (found_code, found, found_lines) = documents
    assert (found_code, found) == (code, expected)
    assert set(lines) <= set(found_lines)


def test_a_file_that_cannot_be_read(gd, folder, tmp_path):
    parts = tmp_path / "some"
    parts.mkdir()
    for number in range(3):
        (parts / f"{number}.parquet").write_bytes((folder / "parts" / f"{number}.parquet").read_bytes())
    (parts / "1.parquet").write_bytes(b"PAR1 and no more")
    assert "1.parquet" in refused_target(gd("estimate", "m.gdscore", parts, "--engine", "ray"))
    done = gd("estimate", "m.gdscore", parts, "--engine", "ray", "--on-error", "skip", "--json", tmp_path / "a.json")
    assert done.exit_code == 0, done.output
    assert "left out: " in done.stdout
    (target,) = json.loads((tmp_path / "a.json").read_text())["targets"]
    assert target["n_rows"] == 800
    assert [name.count("1.parquet") for name in target["left_out"]] == [1]


def refused_target(result) -> str:
    assert result.exit_code == 1
    return result.stderr


def test_classes_in_another_order_in_one_file(gd, folder, tmp_path):
    parts = tmp_path / "some"
    parts.mkdir()
    for number, classes in enumerate(("cat,dog", "dog,cat")):
        names = ",".join(f"p_{name}" for name in classes.split(","))
        (parts / f"{number}.csv").write_text(names + "\n" + "0.9,0.1\n0.2,0.8\n" * 200)
    fitted = gdscore.Outputs(probabilities=np.tile([[0.9, 0.1], [0.2, 0.8]], (200, 1)), labels=np.tile([0, 1], 200))
    gdscore.AccuracyEstimator().fit(fitted).save(tmp_path / "two.gdscore")
    for engine in ("local", "ray"):
        done = gd("estimate", tmp_path / "two.gdscore", parts, "--probabilities", "p_*", "--engine", engine)
        assert "cat, dog" in refused_target(done)


def test_ctrl_c_ends_the_tasks(gd, folder, tmp_path, monkeypatch):
    begun, ended, caller = tmp_path / "begun", tmp_path / "ended", os.getpid()

    class Slow(gdscore.AccuracyEstimator):
        def _fitted(self):
            if os.getpid() != caller:
                begun.touch()
                for _ in range(600):
                    time.sleep(0.05)
                ended.touch()
            return super()._fitted()

    slow = Slow()
    vars(slow).update(vars(gdscore.AccuracyEstimator.load(folder / "m.gdscore")))
    monkeypatch.setattr("gdscore.cli.estimate.load_estimator", lambda name: slow)

    def interrupt():
        while not begun.exists():
            time.sleep(0.02)
        os.kill(caller, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    done = gd("estimate", "m.gdscore", "parts", "--engine", "ray", "--json", tmp_path / "a.json")
    assert done.exit_code == 130
    assert "interrupted" in done.stderr
    assert not (tmp_path / "a.json").exists()
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    # Workers are free again: had the tasks gone on, they would have to end first.
    assert gd("estimate", "m.gdscore", "parts", "--engine", "ray", "--quiet").exit_code == 0
    assert not ended.exists()


def test_progress_counts_files(gd, folder, monkeypatch):
    from contextlib import contextmanager

    from gdscore import distributed

    total, steps = [], []

    @contextmanager
    def recorded(count, show, unit):
        total.append(count)
        yield steps.append

    est = gdscore.AccuracyEstimator.load(folder / "m.gdscore")
    monkeypatch.setattr("gdscore.distributed.estimating.progress_bar", recorded)
    distributed.estimate(est, folder / "parts")
    assert total == [sum(steps)] == [len(list((folder / "parts").iterdir()))]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("estimate", "m.gdscore", "parts", "--address", "auto"), "--engine ray with --address"),
        (("estimate", "m.gdscore", "parts", "--on-error", "skip"), "--engine ray with --on-error"),
        (("estimate", "parts", "--method", "cot", "--reference", "parts", "--engine", "ray"), "--method"),
        (("extract", "network:load", "photos", "-o", "out.npz", "--engine", "ray"), "name a folder"),
        (("extract", "network:load", "photos", "-o", "o", "--peer", "a:b", "--engine", "ray"), "--peer"),
    ],
)
def test_what_cannot_be_used(gd, folder, args, message):
    if not (folder / "photos").exists():
        _photos(folder / "photos")
    assert message in refused(gd(*args))


def test_without_ray_says_what_to_install(gd, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "ray[data]" in refused(gd("estimate", "m.gdscore", "parts", "--engine", "ray"))


def test_images(gd, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "network.py").write_text(NETWORK)
    _photos(tmp_path / "photos")
    try:
        assert gd("extract", "network:load", "photos", "-o", "one.npz", "--batch-size", "20", "-q").exit_code == 0
        one = gdscore.Outputs.concatenate(list(read_outputs("one.npz")))
        # One broken image is left out, and no other of its block; the first of all and the last of a block.
        paths = sorted((tmp_path / "photos").rglob("*.png"))
        for k in (0, 19):
            paths[k].write_bytes(b"no image")
        options = ("--engine", "ray", "--batch-size", "20", "--on-error", "skip")
        for reused in (0, 2):
            done = gd("extract", "network:load", "photos", "-o", "some", *options)
            assert f"34 images of photos in 2 files, {reused} of an earlier run" in done.stdout, done.output
            assert done.stdout.count("left out:") == 2
            assert all(paths[k].name in done.stdout for k in (0, 19))
        some = gdscore.Outputs.concatenate(list(read_outputs("some")))
        rows = [k for k in range(36) if k not in (0, 19)]
        for name, array in one.arrays.items():
            np.testing.assert_array_equal(some.arrays[name], np.asarray(array)[rows])
        assert "00.png" in refused(gd("extract", "network:load", "photos", "-o", "other", *options[:4]))
        (tmp_path / "photos" / "fox").rename(tmp_path / "away")
        assert "class folders" in refused(gd("extract", "network:load", "photos", "-o", "few", *options))
    finally:
        sys.modules.pop("network", None)


def test_a_changed_image_is_another_input(tmp_path):
    from gdscore.cli.extract import _tables
    from gdscore.cli.images import find_images

    _photos(tmp_path)
    before = list(_tables(find_images(tmp_path), 8))
    photo = tmp_path / "cat" / "00.png"
    photo.write_bytes((tmp_path / "cat" / "01.png").read_bytes())
    after = list(_tables(find_images(tmp_path), 8))
    assert [a == b for a, b in zip(before, after, strict=True)] == [False, True, True, True, True]
    assert [table.num_rows for table in before] == [8, 8, 8, 8, 4]
