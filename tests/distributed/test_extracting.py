"""Models on a cluster: parts that are complete and go on where a run was killed, and estimates without rows."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import signal
import threading
import time

import numpy as np
import pytest

import gdscore
from gdscore import distributed, models
from gdscore._files import write_json
from gdscore.distributed.extracting import Extracting, ModelOptions, _unfinished
from gdscore.io import read_outputs

pytest.importorskip("ray", reason="Ray is not installed: pip install 'gdscore[ray]'")
torch = pytest.importorskip("torch")

ROWS = (150, 40, 0, 210)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    layers = torch.nn.Flatten(), torch.nn.Linear(192, 12), torch.nn.ReLU(), torch.nn.Linear(12, 4)
    return torch.nn.Sequential(*layers).eval()


@pytest.fixture(scope="module")
def images():
    return torch.rand(sum(ROWS), 3, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def labels(model, images):
    with torch.no_grad():
        return model(images + 0.3 * torch.randn(images.shape, generator=torch.Generator().manual_seed(2))).argmax(1)


@pytest.fixture(scope="module")
def table(images, labels):
    import pyarrow as pa

    country = np.array(["fr", "de"])[np.arange(len(images)) % 2]
    return pa.table({"image": list(images.flatten(1).numpy()), "y": labels.numpy(), "country": country.tolist()})


@pytest.fixture(scope="module")
def inputs(table, tmp_path_factory):
    import pyarrow.parquet as pq

    folder = tmp_path_factory.mktemp("inputs")
    for number, (a, b) in enumerate(itertools.pairwise(np.cumsum([0, *ROWS]))):
        pq.write_table(table.slice(a, b - a), folder / f"{number}.parquet")
    return folder


OPTIONS = {"shape": (3, 8, 8), "label": "y", "keep": ["country"], "batch_size": 32, "num_actors": 1}


@pytest.fixture(scope="module")
def one_run(cluster, model, inputs, tmp_path_factory):
    """Outputs of a run that nothing has disturbed."""
    output = tmp_path_factory.mktemp("extracted") / "new"
    done = distributed.extract(model, inputs, output, **OPTIONS | {"num_actors": 2})
    assert (done.n_rows, done.parts, done.reused, done.skipped) == (400, 3, 0, {})
    return output


def outputs_of(folder):
    return gdscore.Outputs.concatenate(list(read_outputs(folder)))


def parts_of(folder):
    return {path.name: path.read_bytes() for path in folder.glob("*.parquet")}


def test_outputs_are_those_of_one_machine(model, images, labels, one_run):
    found, one = outputs_of(one_run), next(models.extract(model, [(images, labels)]))
    np.testing.assert_allclose(found.logits, one.logits, atol=1e-6)
    np.testing.assert_allclose(found.features, one.features, atol=1e-6)
    assert found.labels.tolist() == labels.tolist()
    est = gdscore.AccuracyEstimator().fit(one)
    assert set(distributed.estimate(est, one_run, by="country")) == {"fr", "de"}


def test_a_run_goes_on_where_another_ended(model, inputs, one_run, tmp_path):
    """The first run cannot read one input; a second one was killed within a part, before the note about it."""
    output, copied = tmp_path / "out", tmp_path / "inputs"
    shutil.copytree(inputs, copied)
    (copied / "3.parquet").write_bytes(b"PAR1 and no more")
    with pytest.warns(gdscore.GdscoreWarning, match=r"3\.parquet"):
        done = distributed.extract(model, copied, output, **OPTIONS, on_error="skip")
    assert (done.n_rows, list(done.skipped)) == (190, [repr(str(copied / "3.parquet"))])
    shutil.copy(inputs / "3.parquet", copied)
    (output / "part-000001.parquet").write_bytes(b"PAR1 of a killed process")
    (output / "_parts" / "part-000001.json").unlink()
    done = distributed.extract(model, copied, output, **OPTIONS)
    assert (done.n_rows, done.reused) == (400, 2)
    assert parts_of(output) == parts_of(one_run)


def test_parts_are_kept_for_the_same_inputs_model_and_options_only(model, table, inputs, tmp_path):
    """The actor's work without a cluster: its reports are (rows, whether the part was there, what is wrong)."""
    unfinished = tmp_path / "_parts" / "run"
    unfinished.mkdir(parents=True)
    other = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4))
    columns = {"inputs": "image", "shape": (3, 8, 8), "label": "y", "keep": ("country",)}

    def report(source=str(inputs / "0.parquet"), model=model, batch_size=32, columns=columns):
        actor = Extracting(ModelOptions(model, **columns, batch_size=batch_size), 0)
        return actor.write(0, source, "it", str(tmp_path), str(unfinished))[1]

    assert report() == (150, False, {})
    assert report() == (150, True, {})
    for changed in ({"model": other}, {"batch_size": 16}, {"source": str(inputs / "1.parquet")}, {"source": table}):
        assert report(**changed)[1:] == (False, {})
        assert report(**changed)[1:] == (True, {})
        assert len(outputs_of(tmp_path)) == report(**changed)[0]
    assert report(source=table.slice(0, 0)) == (0, False, {})
    assert not parts_of(tmp_path)
    assert "'photo'" in report(columns={"inputs": "photo"})[2]["it"]
    assert not parts_of(tmp_path)
    assert not list(unfinished.iterdir())
    unfinished.rmdir()  # as it is for an actor that was killed and has not ended yet
    assert "there is none" in report()[2]["it"]
    assert not parts_of(tmp_path)


def test_actors_that_still_write_when_a_run_ends_leave_nothing(tmp_path):
    """A thread that is not stopped stands for an actor in the moment between being killed and its end."""
    left, stop = tmp_path / "_parts" / "run-of-a-killed-caller", threading.Event()
    left.mkdir(parents=True)
    (left / ".0-f.tmp").touch()

    def write(folder):
        while not stop.is_set():
            with contextlib.suppress(gdscore.GdscoreError, OSError):
                write_json(folder / "part-000000.json", {"rows": 1})

    with _unfinished(tmp_path) as folder:
        assert list((tmp_path / "_parts").iterdir()) == [folder]
        threads = [threading.Thread(target=write, args=[folder]) for _ in range(4)]
        for thread in threads:
            thread.start()
        while not (folder / "part-000000.json").exists():
            time.sleep(0.001)
    time.sleep(0.02)
    stop.set()
    for thread in threads:
        thread.join()
    assert not list((tmp_path / "_parts").iterdir())


@pytest.mark.slow
def test_an_actor_killed_during_the_run(model, inputs, one_run, tmp_path):
    marker = tmp_path / "killed"

    def killed_once(batch):
        if batch.num_rows < 32 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.tensor(batch.column("image").to_pylist()).reshape(-1, 3, 8, 8)

    done = distributed.extract(model, inputs, tmp_path / "out", **OPTIONS, preprocess=killed_once)
    assert marker.exists()
    assert done.n_rows == 400
    assert parts_of(tmp_path / "out") == parts_of(one_run)


def complete(folder):
    """Whether nothing in a folder of outputs is half-written: parts with notes that can be read, and nothing else."""
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    parts = {name for name in files if name.endswith(".parquet")}
    notes = {f"_parts/{name.removesuffix('.parquet')}.json" for name in parts}
    for name in parts:
        outputs_of(folder / name)
    return {name for name in files - parts - notes if "part-" not in name} <= {"_parts/done.json"}


@pytest.mark.slow
def test_an_actor_out_of_memory(model, inputs, one_run, tmp_path):
    """The second file asks for more than there is: the error names it, and the first one's part stays for the next run."""

    def greedy(batch):
        if batch.num_rows == 8:  # the last batch of the second file
            np.ones(1 << 46)
        return torch.tensor(batch.column("image").to_pylist()).reshape(-1, 3, 8, 8)

    with pytest.raises(gdscore.GdscoreError, match=r"1\.parquet.*smaller batch_size"):
        distributed.extract(model, inputs, tmp_path / "out", **OPTIONS, preprocess=greedy)
    assert complete(tmp_path / "out")
    assert "done.json" not in {path.name for path in (tmp_path / "out" / "_parts").iterdir()}
    assert parts_of(tmp_path / "out").items() <= parts_of(one_run).items()


@pytest.mark.slow
def test_a_node_removed_during_the_run(cluster, model, inputs, one_run, tmp_path):
    node = cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
    begun = tmp_path / node.node_id

    def slow(batch):
        import ray

        (tmp_path / ray.get_runtime_context().get_node_id()).touch()
        for _ in range(600):  # until the actor on that node works, which may be ready last
            if begun.exists():
                break
            time.sleep(0.1)
        time.sleep(0.3)
        return torch.tensor(batch.column("image").to_pylist()).reshape(-1, 3, 8, 8)

    def remove():
        while not begun.exists():
            time.sleep(0.02)
        cluster.remove_node(node, allow_graceful=False)

    removing = threading.Thread(target=remove, daemon=True)
    removing.start()
    thrice = tmp_path / "thrice"  # so that there is work for each of four actors
    thrice.mkdir()
    for number, path in itertools.product(range(3), inputs.glob("*.parquet")):
        shutil.copy(path, thrice / f"{number}-{path.name}")
    done = distributed.extract(model, thrice, tmp_path / "out", **OPTIONS | {"num_actors": 4}, preprocess=slow)
    removing.join(timeout=60)
    assert not removing.is_alive()
    assert done.n_rows == 1200
    assert complete(tmp_path / "out")
    found, one = parts_of(tmp_path / "out"), parts_of(one_run)
    assert {name: found[f"part-{number:06d}.parquet"] for name in one for number in [int(name[5:11]) + 4]} == one
    assert len(found) == 9


@pytest.mark.slow
def test_a_ray_dataset(one_run, model, images, table, tmp_path):
    import ray

    dataset = ray.data.from_arrow([table.slice(0, 100), table.slice(100)])
    output = tmp_path / "out"
    shutil.copytree(one_run, output)
    done = distributed.extract(model, dataset, output, **OPTIONS)
    assert (done.n_rows, done.reused) == (400, 0)
    assert set(parts_of(output)) == {"part-000000.parquet", "part-000001.parquet"}
    with torch.no_grad():
        np.testing.assert_allclose(outputs_of(output).logits, model(images), atol=1e-6)


@pytest.mark.slow
def test_straight_into_an_estimate(cluster, model, images, labels, inputs):
    one = next(models.extract(model, [(images, labels)]))
    est = gdscore.AccuracyEstimator().fit(one)
    options = {"shape": (3, 8, 8), "num_actors": 1, "batch_size": 32}
    by = (np.array(["fr", "de"])[np.arange(400) % 2]).tolist()
    found = distributed.extract_estimate(est, lambda: model, inputs, by="country", **options)
    for name, estimate in est.estimate(one, by=by).items():
        assert found[name].accuracy == pytest.approx(estimate.accuracy, abs=1e-6)


def test_wrong_arguments(cluster, model, inputs, tmp_path):
    with pytest.raises(gdscore.GdscoreError, match="GPUs"):
        distributed.extract(model, inputs, tmp_path / "out", **OPTIONS, num_gpus=64)
    with pytest.raises(gdscore.GdscoreError, match="batch_size"):
        distributed.extract(model, inputs, tmp_path / "out", batch_size=0)


def test_parts_keep_a_threshold(tmp_path):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    inputs = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    pa = pytest.importorskip("pyarrow")
    rows = pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(inputs.ravel()), 4)})
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "_parts").mkdir()
    actor = Extracting(ModelOptions(model, "x", batch_size=16, extract={"threshold": 0.4}), 0)
    _, (count, _, wrong) = actor.write(0, rows, "table 0", str(tmp_path), str(tmp_path / "unfinished"))
    assert (count, wrong) == (50, {})
    out = gdscore.Outputs.concatenate(list(gdscore.io.read_outputs(tmp_path)))
    assert out.decision == "threshold 0.4"
    np.testing.assert_array_equal(out.predictions, out.probabilities[:, 1] >= 0.4)


def report_of(tmp_path, preprocess, on_error="skip"):
    """Report of an actor's work on ten inputs in batches of four."""
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"path": [f"{i}.png" for i in range(10)], "country": ["fr"] * 10})
    unfinished = tmp_path / "_parts" / "run"
    unfinished.mkdir(parents=True)
    options = ModelOptions(
        torch.nn.Linear(4, 3), "", keep=("country",), preprocess=preprocess, batch_size=4, on_error=on_error
    )
    return Extracting(options, 0).write(0, table, "table 0", str(tmp_path), str(unfinished))[1]


def test_whatever_preprocess_raises_leaves_out_only_its_row(tmp_path):
    """Only errors of gdscore's own did; an `OSError` of Pillow ended the run."""

    def opened(batch):
        if "5.png" in batch.column("path").to_pylist():
            raise OSError("cannot identify image file")
        return torch.zeros(batch.num_rows, 4)

    reason = {"row 5 of table 0": "OSError: cannot identify image file"}
    assert report_of(tmp_path / "skip", opened) == (9, False, reason)
    with pytest.raises(OSError, match="cannot identify"):
        report_of(tmp_path / "raise", opened, "raise")


@pytest.mark.parametrize(
    ("returned", "described"),
    [
        (lambda batch: None, "NoneType"),  # was an empty part without a word
        (lambda batch: torch.zeros(batch.num_rows // 2, 4), "shape .2, 4"),
        (lambda batch: np.zeros((batch.num_rows, 4)), "ndarray"),
    ],
)
def test_what_preprocess_may_not_return(tmp_path, returned, described):
    (reason,) = report_of(tmp_path, returned, "raise")[2].values()
    assert re.search(f"`preprocess` to return .* each of 4 inputs, but got .*{described}", reason)
