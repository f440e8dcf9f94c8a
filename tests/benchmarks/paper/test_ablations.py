"""Ablations on real digits: every kind writes its rows, and the published cells equal the released algorithm."""

import csv
import shutil
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

import gdscore  # noqa: E402
from benchmarks.models.networks import network  # noqa: E402
from benchmarks.models.train import train  # noqa: E402
from benchmarks.paper import ablations, ablations_network, cells  # noqa: E402
from benchmarks.paper.network_scores import ProjNorm, gradient_scores  # noqa: E402
from benchmarks.row_files import joined  # noqa: E402
from gdscore import models  # noqa: E402
from tests.benchmarks.small_digits import small_source  # noqa: E402

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.filterwarnings("ignore::gdscore.GdscoreWarning")]
SETS = ["--source", "ucidigits-small", "--severities", "3", "--corruptions", "fog", "contrast"]


@pytest.fixture
def source(tmp_path, monkeypatch):
    return small_source(tmp_path, monkeypatch)


def run(tmp_path, *given, rows=150):
    """Run ablations; returns a function from the name of one to the rows of its file."""
    ablations.main(["run", *given, *SETS, "--rows", str(rows), "--output", str(tmp_path / "out")])

    def table(name):
        with (tmp_path / "out" / name / "ucidigits-small.csv").open(newline="") as lines:
            return list(csv.DictReader(lines))

    return table


def test_released_algorithm_equals_the_published_cells(source, tmp_path):
    for seed in (0, 1):
        train(source.data, source.network, seed, split=source.split, **source.recipe)
    classifier = cells.Classifier(source, "cpu", rotation=False)
    options = SimpleNamespace(rows=300, severities=[3])
    reference = classifier.outputs(*(part[:100] for part in source.reference()))
    rows = {name: work() for name, work in cells.published(source, classifier, reference, options)}
    for target in source.targets(rows=300, severities=[3]):
        loader = cells.shuffled_loader(classifier, target)
        draw = gdscore.Outputs.concatenate(list(models.extract(classifier.model, loader, batchnorm="batch")))
        norm, accuracy = ablations_network.released(classifier.model, loader, draw.random_labels(0).to(torch.int64))
        row = rows[target.name]
        assert row["gdscore"] == pytest.approx(norm, rel=1e-4)
        assert row["accuracy"] == pytest.approx(accuracy, abs=1e-4)
    deployed = dict(cells.deployed(source, classifier, reference, options))["fog-3"]()
    assert deployed["gdscore"] != pytest.approx(rows["fog-3"]["gdscore"], rel=0.01)

    table = run(tmp_path, "released")
    assert all(
        float(row["relative_difference"]) < 1e-4 and float(row["accuracy_difference"]) < 1e-4
        for row in table("released")
    )


def test_cheap_ones_come_from_one_pass(source, tmp_path, monkeypatch):
    passes = []
    outputs = cells.Classifier.outputs
    monkeypatch.setattr(
        cells.Classifier, "outputs", lambda self, *a, **k: (passes.append(1), outputs(self, *a, **k))[1]
    )
    table = run(tmp_path, "all")
    assert len(passes) == 3 + 1  # the sets, and the reference for label shift
    names = ["unshifted", "fog-3", "contrast-3"]
    for name in ("labels", "losses", "norms", "thresholds", "batches", "seeds", "rows", "order"):
        assert [row["set"] for row in table(name)] == names
    assert len(table("labelshift")) == 3 * 3
    for a, b, c, d in zip(table("labels"), table("norms"), table("seeds"), table("order"), strict=True):
        assert a["mixed"] == b["p=0.3"] == c["seed=0"] == d["shuffled"]
    assert table("thresholds")[0]["tau=0"] == table("labels")[0]["pseudo"]
    assert float(table("order")[1]["sorted,whole"]) == pytest.approx(
        float(table("order")[1]["shuffled,whole"]), rel=1e-4
    )
    assert table("rows")[0]["rows=100"] != "nan"
    assert table("rows")[0]["rows=300"] == "nan"
    assert "benchmarks.paper.ablations run labels --source ucidigits-small" in table("labels")[0]["command"]

    run(tmp_path, "all")
    assert len(passes) == 4 + 1, "sets that have rows are not asked again"


def test_by_the_published_protocol_they_have_the_values_of_its_cells(source, tmp_path):
    table = run(tmp_path, "norms", "thresholds", "layers", "--protocol", "published", rows=150)
    classifier = cells.Classifier(source, "cpu", rotation=False, peer=False)
    options = SimpleNamespace(rows=150, severities=[3])
    reference = classifier.outputs(*(part[:100] for part in source.reference()))
    made = {name: work() for name, work in cells.published(source, classifier, reference, options)}
    for norms, thresholds, layers in zip(table("norms"), table("thresholds"), table("layers"), strict=True):
        cell = made[norms["set"]]
        for found in (norms["p=0.3"], thresholds["tau=0.5"], layers["last"]):
            assert float(found) == pytest.approx(cell["gdscore"], rel=1e-4)
        assert float(norms["accuracy"]) == float(layers["accuracy"]) == pytest.approx(cell["accuracy"], abs=1e-6)
    assert "--protocol published" in table("norms")[0]["command"]
    with pytest.raises(SystemExit):
        run(tmp_path, "epochs", "--protocol", "published")


def test_those_that_need_the_network(source, tmp_path, monkeypatch):
    monkeypatch.setattr(ablations_network, "STEPS", 2)
    monkeypatch.setattr(ablations_network, "EPOCHS", (0, 1))
    table = run(tmp_path, "labels", "layers", "epochs", "projnorm", "runtime")
    for labels, layers, epochs in zip(table("labels"), table("layers"), table("epochs"), strict=True):
        assert float(layers["last"]) == pytest.approx(float(epochs["epochs=0"]), rel=1e-4)
        assert labels["accuracy"] == layers["accuracy"]
    assert all(float(row["projnorm"]) > 0 for row in table("projnorm"))
    methods = [row["method"] for row in table("runtime")]
    assert (methods[0], methods[-3:]) == ("gdscore", ["layers", "projnorm", "projnorm-pretrained"])
    assert {"agreescore", "rotation", "cott", "frechet"} < set(methods)
    values = {row["method"]: float(row["value"]) for row in table("runtime")}
    assert values["projnorm"] == pytest.approx(float(table("projnorm")[-1]["projnorm"]), rel=1e-4)
    assert values["layers"] == pytest.approx(values["gdscore"], rel=1e-4)


def test_sets_side_by_side_are_those_of_one_process(source, tmp_path, monkeypatch):
    def in_turn(function, jobs, workers):
        for job in jobs:
            function(*job)

    monkeypatch.setattr(ablations_network, "STEPS", 2)
    alone = run(tmp_path, "labels", "labelshift", "projnorm")
    expected = {name: alone(name) for name in ("labels", "labelshift", "projnorm")}
    shutil.rmtree(tmp_path / "out")
    monkeypatch.setattr(ablations, "run_jobs", in_turn)
    # A run of two that was stopped: its second worker had not begun.
    measure = ablations.measure
    monkeypatch.setattr(ablations, "measure", lambda source, worker, *rest: worker or measure(source, worker, *rest))
    monkeypatch.setattr(ablations, "joined", lambda *_: None)
    with pytest.raises(FileNotFoundError):
        run(tmp_path, "labels", "labelshift", "projnorm", "--jobs", "2")("labels")
    monkeypatch.setattr(ablations, "measure", measure)
    monkeypatch.setattr(ablations, "joined", joined)
    both = run(tmp_path, "labels", "labelshift", "projnorm", "--jobs", "2")
    for name, rows in expected.items():
        found = [{key: row[key] for key in row if "seconds" not in key} for row in both(name)]
        assert found == [{key: row[key] for key in row if "seconds" not in key} for row in rows]
    assert not list(tmp_path.glob("out/*/*.part"))

    with pytest.raises(SystemExit):
        run(tmp_path, "runtime", "--jobs", "2")


def test_projnorm_of_many_targets_is_the_librarys(source):
    train(source.data, source.network, 0, split=source.split, **source.recipe)
    classifier = cells.Classifier(source, "cpu", rotation=False, peer=False)
    (first, *_, last), known = source.targets(rows=150, severities=[5]), source.training()
    x, y = next(classifier.batches(known[0][:200], known[1][:200], None, 200))
    measure = ProjNorm(classifier.model, x, y, steps=4, batch_size=32)
    for target in (first, last):
        loader = list(classifier.batches(target.images, target.labels, target.shift, len(target.labels)))
        expected = models.projnorm(classifier.model, loader, [(x, y)], steps=4, batch_size=32)
        assert measure(loader[0][0]) == pytest.approx(expected, rel=1e-6)


def test_blocks_of_a_transformer():
    model = network("vit", 10).eval()
    assert list(ablations_network.groups_of(model)) == ["block1", "block2", "block3", "last", "all"]
    x = torch.rand(8, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    found = gradient_scores(model, [(x,)], ablations_network.groups_of(model), batch_size=8)
    assert found["last"] == pytest.approx(
        models.score_all(model, [x], scores={"gdscore": {"batch_size": 8}})["gdscore"], rel=1e-4
    )
    assert list(ablations_network.groups_of(network("resnet18", 10, small=True))) == [
        *(f"block{k}" for k in (1, 2, 3, 4)),
        "last",
        "all",
    ]
