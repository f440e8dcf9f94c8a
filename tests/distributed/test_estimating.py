"""Estimates and scores over a cluster are those of one machine."""

from __future__ import annotations

import os
import signal
import threading
import time
from itertools import pairwise

import numpy as np
import pytest

import gdscore
from gdscore import distributed
from gdscore.distributed.estimating import Part, ScoreStates, merged
from gdscore.io import Batch, Columns, write_outputs
from tests.data import batches, made

pytest.importorskip("ray", reason="Ray is not installed: pip install 'gdscore[ray]'")

KEEP = ("logits", "features")
SIZES = (1280, 128, 3840, 256)


@pytest.fixture(scope="module")
def est():
    return gdscore.AccuracyEstimator().fit(made(1500, keep=(*KEEP, "labels"), seed=1))


@pytest.fixture(scope="module")
def target():
    return made(sum(SIZES), keep=KEEP, seed=5, noise=1.4)


@pytest.fixture(scope="module")
def by(target):
    return np.random.default_rng(0).choice(["fr", "de", "it"], len(target), p=[0.6, 0.3, 0.1])


@pytest.fixture(scope="module")
def table(target, by):
    import pyarrow as pa

    times = np.datetime64("2026-03-01T22:00") + np.arange(len(target)) * np.timedelta64(60, "s")
    columns = {name: list(array) for name, array in target.arrays.items()}
    return pa.table({**columns, "country": by.tolist(), "time": times})


@pytest.fixture(scope="module")
def folder(table, tmp_path_factory):
    """Files of very different sizes, one of them empty."""
    import pyarrow.parquet as pq

    path = tmp_path_factory.mktemp("outputs")
    start = 0
    for number, rows in enumerate((*SIZES[:2], 0, *SIZES[2:])):
        pq.write_table(table.slice(start, rows), path / f"part-{number}.parquet")
        start += rows
    return path


def test_files_give_the_estimate_of_one_machine(cluster, est, target, folder, by):
    assert distributed.estimate(est, folder) == est.estimate(target)
    found = distributed.estimate(est, sorted(folder.glob("*.parquet")), by="country")
    assert found == est.estimate(target, by=by.tolist())


def test_time_windows(cluster, est, target, table, folder, by):
    days = table["time"].to_numpy().astype("datetime64[D]").astype("datetime64[us]")
    assert distributed.estimate(est, folder, time="time") == est.estimate(target, by=days)
    found = distributed.estimate(est, folder, by=["country"], time="time", every="1d")
    assert found == est.estimate(target, by={"day": days, "country": by})


@pytest.mark.slow
def test_a_ray_dataset_gives_the_estimate_of_one_machine(cluster, est, target, table, by):
    import ray

    edges = np.cumsum([0, *SIZES])
    blocks = [table.slice(a, b - a) for a, b in pairwise(edges)]
    dataset = ray.data.from_arrow([*blocks, table.slice(0, 0)])
    assert distributed.estimate(est, dataset) == est.estimate(target)
    assert distributed.estimate(est, dataset, by="country") == est.estimate(target, by=by.tolist())


def test_tensors_of_ray_and_torch(cluster, est):
    import ray

    target = made(1000, "torch", keep=KEEP, seed=7)
    tensors = {name: array.numpy() for name, array in target.arrays.items()}
    rows = [{name: array[i] for name, array in tensors.items()} for i in range(len(target))]
    dataset = ray.data.from_items(rows, override_num_blocks=3)
    found, one = distributed.estimate(est, dataset), est.estimate(target)
    assert found.accuracy == pytest.approx(one.accuracy, abs=1e-6)
    assert (found.low, found.high) == pytest.approx((one.low, one.high), abs=1e-6)


def test_a_class_is_missing_in_each_block(cluster, est, target, tmp_path):
    order = np.argsort(target.predictions, kind="stable")
    for number, rows in enumerate(np.array_split(order, 4)):
        write_outputs(tmp_path / f"{number}.parquet", target[rows])
    assert distributed.estimate(est, tmp_path) == est.estimate(target[order])


def test_scores_are_those_of_one_machine(cluster, target, folder):
    reference = made(1500, keep=(*KEEP, "labels"), seed=1)
    found, one = distributed.score_all(folder, reference=reference), gdscore.score_all(target, reference=reference)
    assert found.keys() == one.keys()
    assert found.skipped.keys() == one.skipped.keys()
    for name, value in one.items():
        assert found[name] == pytest.approx(value, rel=1e-6), name


def test_scores_of_a_ray_dataset(cluster, target, table):
    import ray

    dataset = ray.data.from_arrow([table.slice(0, 1000), table.slice(1000)])
    found = distributed.score_all(dataset, scores=["confscore", "gdscore"])
    assert found["confscore"] == pytest.approx(gdscore.score("confscore", target), rel=1e-6)
    assert found["gdscore"] == pytest.approx(gdscore.score("gdscore", target), rel=3e-2)


def test_a_damaged_file_among_many(cluster, est, target, folder, tmp_path):
    for number in range(20):
        write_outputs(tmp_path / f"{number:02d}.parquet", target[100 * number : 100 * number + 100])
    damaged = tmp_path / "13.parquet"
    raw = bytearray(damaged.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    damaged.write_bytes(raw)
    with pytest.raises(gdscore.GdscoreError, match="13.parquet"):
        distributed.estimate(est, tmp_path)
    with pytest.warns(gdscore.GdscoreWarning, match="13.parquet"):
        found = distributed.estimate(est, tmp_path, on_error="skip")
    assert found == est.estimate([target[:1300], target[1400:2000]])


@pytest.mark.slow
def test_a_damaged_file_among_a_thousand(cluster, est, target, tmp_path):
    write_outputs(tmp_path / "000.parquet", target[:100])
    for number in range(1, 1000):
        (tmp_path / f"{number:03d}.parquet").hardlink_to(tmp_path / "000.parquet")
    (tmp_path / "613.parquet").unlink()
    (tmp_path / "613.parquet").write_bytes((tmp_path / "000.parquet").read_bytes()[:-20])
    with pytest.raises(gdscore.GdscoreError, match=r"613\.parquet"):
        distributed.estimate(est, tmp_path)
    with pytest.warns(gdscore.GdscoreWarning, match=r"1 of the files .*613\.parquet"):
        found = distributed.estimate(est, tmp_path, on_error="skip")
    assert found == est.estimate([target[:100]] * 999)


def test_a_bad_block_of_a_dataset(cluster, est, target, table):
    import pyarrow as pa
    import ray

    bad = table.slice(0, 10).set_column(0, "logits", pa.array([[float("nan")] * 10] * 10))
    dataset = ray.data.from_arrow([table, bad])
    with pytest.raises(gdscore.GdscoreError, match="finite"):
        distributed.estimate(est, dataset)
    with pytest.warns(gdscore.GdscoreWarning, match="finite"):
        assert distributed.estimate(est, dataset, on_error="skip") == est.estimate(target)


@pytest.mark.slow
def test_a_worker_killed_during_the_run(cluster, est, target, tmp_path):
    for number in range(8):
        write_outputs(tmp_path / f"{number}.parquet", target[500 * number : 500 * number + 500])
    marker, caller = tmp_path / "killed", os.getpid()

    # A class within a function travels by value: workers need not have the tests.
    class KilledOnce(gdscore.AccuracyEstimator):
        def _fitted(self):
            if os.getpid() != caller and not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return super()._fitted()

    killed = KilledOnce()
    vars(killed).update(vars(est))
    assert distributed.estimate(killed, tmp_path) == est.estimate(target[:4000])
    assert marker.exists()


@pytest.mark.slow
def test_a_node_removed_during_the_run(cluster, est, target, tmp_path):
    import ray

    for number in range(12):
        write_outputs(tmp_path / f"{number:02d}.parquet", target[400 * number : 400 * number + 400])
    node = cluster.add_node(num_cpus=1, object_store_memory=80 << 20)

    class Slow(gdscore.AccuracyEstimator):
        def _fitted(self):
            (tmp_path / "begun").touch()
            time.sleep(0.2)
            return super()._fitted()

    def remove():
        while not (tmp_path / "begun").exists():
            time.sleep(0.01)
        cluster.remove_node(node, allow_graceful=False)

    slow = Slow()
    vars(slow).update(vars(est))
    removing = threading.Thread(target=remove)
    removing.start()
    assert distributed.estimate(slow, tmp_path) == est.estimate(target[:4800])
    removing.join()
    assert ray.is_initialized()


def test_a_worker_that_always_dies_is_an_error_with_the_file(cluster, est, target, tmp_path, monkeypatch):
    monkeypatch.setattr("gdscore.distributed._cluster.RETRIES", 0)
    write_outputs(tmp_path / "a.parquet", target[:500])
    caller = os.getpid()

    class Dying(gdscore.AccuracyEstimator):
        def _fitted(self):
            if os.getpid() != caller:
                os.kill(os.getpid(), signal.SIGKILL)
            return super()._fitted()

    dying = Dying()
    vars(dying).update(vars(est))
    with pytest.raises(gdscore.GdscoreError, match=r"a\.parquet.*1 workers died"):
        distributed.estimate(dying, tmp_path)


def test_wrong_arguments(cluster, est, tmp_path):
    for arguments, match in (
        ({"on_error": "ignore"}, "on_error"),
        ({"every": "1d"}, "time"),
        ({"time": "time", "every": "1m"}, "windows"),
        ({"by": 3}, "by"),
        ({"by": ["country", 3]}, "by"),
        ({"columns": "prob_*"}, "columns"),
    ):
        with pytest.raises(gdscore.GdscoreError, match=match):
            distributed.estimate(est, tmp_path, **arguments)
    with pytest.raises(gdscore.GdscoreError, match="Ray Dataset"):
        distributed.estimate(est, [1, 2])
    with pytest.raises(gdscore.GdscoreError, match="AccuracyEstimator"):
        distributed.estimate("m.gdscore", tmp_path)


def test_other_columns(cluster, est, target, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = {f"z_{k}": target.logits[:, k] for k in range(10)}
    pq.write_table(pa.table({**names, "x": list(target.features)}), tmp_path / "a.parquet")
    assert distributed.estimate(est, tmp_path, columns=Columns(logits="z_*", features="x")).accuracy == pytest.approx(
        est.estimate(target).accuracy, abs=1e-6
    )


# -- states of scores, without a cluster ------------------------------------------------------------------------


def fitted(names, reference=None):
    made = {name: gdscore.create_score(name) for name in names}
    return ScoreStates({n: s.fit(reference) if s.reference_inputs else s for n, s in made.items()}, {})


def state_of(scores, parts):
    return Part(scores, Columns()).state([Batch(part) for part in parts])[0]


def numbers_of(states):
    return ScoreStates.from_bytes(merged(ScoreStates, *states)).table()


def test_scores_of_parts():
    reference, target = made(1500, seed=1), made(128 * 20, seed=5, noise=1.4)
    one = gdscore.score_all(target, reference=reference)
    scores = fitted(one, reference)
    states = [state_of(scores, [target[a:b]]) for a, b in ((0, 128), (128, 1280), (1280, 2560))]
    states.insert(1, state_of(scores, []))
    found = numbers_of(states)
    assert found.keys() == one.keys()
    for name, value in one.items():
        assert found[name] == pytest.approx(value, rel=1e-6), name


def test_gdscore_of_uneven_parts_is_close():
    target = made(3000, keep=KEEP, seed=5)
    scores = fitted(["gdscore"])
    found = numbers_of([state_of(scores, [part]) for part in batches(target, 333)])["gdscore"]
    assert found == pytest.approx(gdscore.score("gdscore", target), rel=3e-2)


def test_scores_leave_out_what_the_target_lacks():
    found = numbers_of([state_of(fitted(["confscore", "gdscore"]), [made(300, keep=("logits",))])])
    assert list(found) == ["confscore"]
    assert found.skipped == {"gdscore": "needs features"}


def test_parts_with_other_arrays_and_without_rows():
    scores = fitted(["confscore", "gdscore"])
    states = [state_of(scores, [made(300, keep=keep)]) for keep in (KEEP, ("logits",))]
    with pytest.raises(gdscore.GdscoreError, match="only some have gdscore"):
        merged(ScoreStates, *states)
    with pytest.raises(gdscore.GdscoreError, match="none"):
        numbers_of([state_of(scores, [])])


def test_files_of_which_some_have_labels_are_refused(cluster, est, tmp_path):
    for number, labelled in enumerate((True, False)):
        out = made(200, keep=("logits", "features", *(["labels"] if labelled else [])), seed=number)
        write_outputs(tmp_path / f"{number}.parquet", out)
    with pytest.raises(gdscore.GdscoreError, match=r"all files to hold the same.*`labels`"):
        distributed.estimate(est, tmp_path)
