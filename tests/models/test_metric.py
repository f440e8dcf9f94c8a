"""Scores as torchmetrics: one process here, two of `ddp_worker` over gloo."""

from __future__ import annotations

import functools
import io
import json
import multiprocessing
import pickle

import numpy as np
import pytest
import torch
from torchmetrics import Metric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy
from torchmetrics.utilities.exceptions import TorchMetricsUserError

import gdscore
from gdscore.models import ScoreCollection, ScoreMetric
from tests.data import TARGET_SCORES, batches, made, ready
from tests.models import ddp_worker

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore::gdscore.GdscoreWarning"),
    pytest.mark.filterwarnings("ignore:The ``compute`` method of metric ScoreMetric was called before:UserWarning"),
]

REFERENCE = made(600, "torch", seed=5)
OUT = made(1300, "torch", noise=2.0)
every_score = pytest.mark.parametrize("name", TARGET_SCORES)
every_kind = pytest.mark.parametrize("name", ["gdscore", "frechet", "cott", "atc", "mano"])


def filled(name, out=OUT, size=170, **options):
    metric = ScoreMetric(name, reference=REFERENCE, **options)
    for part in batches(out, size):
        metric.update(**part.arrays)
    return metric


@every_score
def test_equals_the_score(name):
    expected = gdscore.score(name, OUT, reference=REFERENCE)
    metric = filled(name)
    value = metric.compute()
    assert value.item() == expected
    assert (value.ndim, value.dtype, value.device) == (0, torch.float64, metric.device)
    assert metric.higher_is_better == ready(name, REFERENCE).higher_is_better
    metric.reset()
    metric.update(OUT)
    assert metric.compute().item() == expected


@every_score
def test_forward_gives_the_batch_and_takes_it_in(name):
    metric = ScoreMetric(name, reference=REFERENCE)
    for part in batches(OUT, 300):
        assert metric(**part.arrays).item() == gdscore.score(name, part, reference=REFERENCE)
    assert metric.compute().item() == gdscore.score(name, OUT, reference=REFERENCE)
    assert metric.update_count == 5


@every_kind
def test_copies_go_their_own_way(name):
    metric = filled(name, OUT[:700])
    copies = [metric.clone(), pickle.loads(pickle.dumps(metric))]  # noqa: S301
    metric.update(OUT[700:])
    for copy in copies:
        assert copy.compute().item() == gdscore.score(name, OUT[:700], reference=REFERENCE)
        copy.update(OUT[700:])
        assert copy.compute() == metric.compute()


@every_score
def test_checkpoint_goes_on_bit_for_bit(name):
    metric = filled(name, OUT[:700])
    assert not metric.state_dict()
    metric.persistent(True)
    file = io.BytesIO()
    torch.save(torch.nn.ModuleDict({"metric": metric}).state_dict(), file)
    file.seek(0)
    again = ScoreMetric(name)
    torch.nn.ModuleDict({"metric": again}).load_state_dict(torch.load(file, weights_only=True))
    assert again.compute() == metric.compute()
    for part in batches(OUT[700:], 170):
        again.update(part)
        metric.update(part)
    assert again.compute() == metric.compute()


@pytest.mark.skipif(not hasattr(Metric, "merge_state"), reason="torchmetrics has it since 1.6")
@every_kind
def test_states_merge(name):
    first, second, third = (filled(name, OUT[rows]) for rows in (slice(0, 700), slice(700, 900), slice(900, None)))
    second.merge_state(third)
    first.merge_state(second)
    assert first._score.n_rows == len(OUT)
    parts = [ready(name, REFERENCE).update(OUT[rows]) for rows in (slice(900, None), slice(700, 900), slice(0, 700))]
    expected = functools.reduce(lambda a, b: a.merge(b), parts).compute()
    assert first.compute().item() == pytest.approx(expected, rel=1e-6)
    with pytest.raises(gdscore.GdscoreError, match="Expected a state of"):
        filled("gdscore", p=2).merge_state(first)


def test_collection_beside_metrics_of_others():
    scores = {name: ScoreMetric(name, reference=REFERENCE) for name in TARGET_SCORES}
    twin = ScoreMetric("gdscore")
    metrics = MetricCollection({**scores, "twin": twin, "p": ScoreMetric("gdscore", p=1), "accuracy": _accuracy()})
    for part in batches(OUT, 256):
        metrics.update(**part.arrays, preds=part.logits, target=part.labels)
    values = {name: value.item() for name, value in metrics.compute().items()}
    expected = gdscore.score_all(OUT, reference=REFERENCE)
    assert {name: values[name] for name in TARGET_SCORES} == dict(expected)
    assert values["twin"] == values["gdscore"]
    assert values["p"] == gdscore.score("gdscore", OUT, p=1)
    assert values["accuracy"] == pytest.approx(OUT.accuracy)
    assert ["gdscore", "twin"] in metrics.compute_groups.values()
    batch = metrics(**OUT[:200].arrays, preds=OUT[:200].logits, target=OUT[:200].labels)
    assert batch["gdscore"].item() == gdscore.score("gdscore", OUT[:200])
    metrics.reset()
    metrics.update(**OUT.arrays, preds=OUT.logits, target=OUT.labels)
    assert metrics.compute()["twin"].item() == expected["gdscore"]


def _accuracy():
    return MulticlassAccuracy(num_classes=10, average="micro")


def test_training_loop_as_lightning_runs_it():
    model = ddp_worker.Net()
    assert dict(model.named_modules())["metric"] is model.metric
    for epoch in range(2):
        seen = []
        for x, y in torch.utils.data.DataLoader(ddp_worker.inputs(), batch_size=64):
            logits, features = model.train()(x)
            model.metric(logits, features)
            assert model.metric._forward_cache.item() > 0
            torch.nn.functional.cross_entropy(logits, y).backward()
            seen.append(gdscore.Outputs(logits=logits.detach(), features=features.detach()))
        assert model.metric.compute().item() == gdscore.score("gdscore", seen), epoch
        assert model.metric.compute() is model.metric.compute()
        model.metric.reset()
        assert not model.metric.update_called


def test_moving_and_casting_leave_the_number():
    metric = filled("gdscore", OUT[:700])
    before = metric.compute().item()
    for move in (lambda m: m.to("cpu"), lambda m: m.half(), lambda m: m.set_dtype(torch.bfloat16)):
        metric = move(metric)
        metric._computed = None
        assert metric.compute().item() == before
    assert "700 rows" in repr(metric)
    assert ScoreMetric("confscore").to("meta").device.type == "meta"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu():
    metric = ScoreMetric("gdscore").to("cuda")
    for part in batches(OUT, 170):
        metric.update(**{name: array.cuda() for name, array in part.arrays.items()})
    value = metric.compute()
    assert value.device.type == "cuda"
    assert value.item() == pytest.approx(gdscore.score("gdscore", OUT), rel=1e-5)
    metric.score_state = metric.score_state
    assert metric._score._pending.rest().logits.device.type == "cuda"
    assert metric.compute() == value


def test_only_what_the_score_needs_is_kept():
    out = gdscore.Outputs(**OUT[:10].arrays, ids=np.array([f"row {i}" for i in range(10)]))
    metric = ScoreMetric("gdscore")
    metric.update(out)
    kept = {key for key in metric._score.state_dict() if key.startswith("pending.")}
    assert kept == {"pending.logits", "pending.features", "pending.ids"}
    again = metric.clone()
    again.score_state = metric.score_state
    assert again.compute() == metric.compute()
    binary = ScoreMetric("confscore")
    binary.update(probabilities=torch.tensor([0.9, 0.2]))
    assert binary.compute().item() == pytest.approx(0.85)


class TestBadInput:
    def test_no_rows(self):
        with pytest.raises(gdscore.GdscoreError, match="`confscore` has seen no rows"):
            ScoreMetric("confscore").compute()

    def test_unknown_names(self):
        with pytest.raises(gdscore.GdscoreError, match="Unknown score 'gdscor'"):
            ScoreMetric("gdscor")
        with pytest.raises(gdscore.GdscoreError, match="Unknown option 'power' of `gdscore`"):
            ScoreMetric("gdscore", power=1)

    def test_missing_arrays_and_reference(self):
        with pytest.raises(gdscore.GdscoreError, match="`gdscore` needs `features`, but the outputs hold only logits"):
            ScoreMetric("gdscore").update(OUT.logits)
        with pytest.raises(gdscore.GdscoreError, match="`atc` needs labelled reference data"):
            ScoreMetric("atc").update(OUT)
        with pytest.raises(gdscore.GdscoreError, match="gdscore.models.projnorm"):
            ScoreMetric("projnorm").update(OUT)
        with pytest.raises(gdscore.GdscoreError, match="alone or arrays by name, but got both"):
            ScoreMetric("gdscore").update(OUT, OUT.features)

    def test_damaged_and_foreign_checkpoints(self):
        metric = filled("confscore", OUT[:100])
        with pytest.raises(gdscore.GdscoreError, match="score_state.* truncated, damaged"):
            metric.score_state = [metric.score_state[0][:-40]]
        with pytest.raises(gdscore.GdscoreError, match="state of `entropy`, but got one of `confscore`"):
            ScoreMetric("entropy").score_state = metric.score_state
        assert metric._score.n_rows == 100

    def test_forward_while_synced(self):
        metric = filled("confscore", distributed_available_fn=lambda: True, dist_sync_fn=lambda x, group: [x, x])
        metric.sync(dist_sync_fn=metric.dist_sync_fn)
        assert metric._score.n_rows == 2 * len(OUT)
        with pytest.raises(TorchMetricsUserError, match="unsync first"):
            metric(OUT)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """What each of two processes over gloo found."""
    folder = tmp_path_factory.mktemp("ddp")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([ddp_worker.__name__])  # both processes share its imports
    workers = [context.Process(target=ddp_worker.main, args=(rank, folder)) for rank in range(ddp_worker.WORLD)]
    for worker in workers:
        worker.start()
    try:
        for worker in workers:
            worker.join(timeout=600)
            assert worker.exitcode == 0, "see the process's standard error"
    finally:
        for worker in workers:
            worker.kill()
            worker.join()
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(ddp_worker.WORLD)]


class TestTwoProcesses:
    def test_same_on_both(self, ranks):
        for case in ("shards", "interleaved", "network"):
            assert ranks[0][case] == ranks[1][case]

    @every_score
    def test_shards_of_whole_mini_batches_equal_one_process(self, ranks, name):
        expected = gdscore.score(name, made(ddp_worker.WHOLE, "torch", noise=2.0), reference=REFERENCE)
        assert ranks[0]["shards"]["whole"][name] == pytest.approx(expected, rel=1e-6)

    @every_score
    def test_leftover_rows_merge_as_scores_do(self, ranks, name):
        out = made(sum(ddp_worker.UNEVEN), "torch", noise=2.0)
        cut = ddp_worker.UNEVEN[0]
        expected = ready(name, REFERENCE).update(out[:cut]).merge(ready(name, REFERENCE).update(out[cut:])).compute()
        assert ranks[0]["shards"]["uneven"][name] == pytest.approx(expected, rel=1e-9)

    @every_score
    def test_a_process_without_rows(self, ranks, name):
        expected = gdscore.score(name, made(sum(ddp_worker.UNEVEN), "torch", noise=2.0), reference=REFERENCE)
        for holder in ("0", "1"):
            assert ranks[0]["shards"]["empty"][holder][name] == pytest.approx(expected, rel=1e-6)

    def test_whole_gradient_does_not_depend_on_who_holds_a_row(self, ranks):
        plain = made(1000, noise=2.0, keep=("logits", "features"))
        named = gdscore.Outputs(**plain.arrays, ids=np.arange(1000))
        for key, out in {"logits": plain, "ids": named}.items():
            expected = gdscore.score("gdscore", out, batch_size=None)
            assert ranks[0]["interleaved"][key] == pytest.approx(expected, rel=1e-6)

    def test_errors_reach_all_and_leave_the_rows(self, ranks):
        both = gdscore.score("confscore", ddp_worker.STEPS[:2])
        for rank in ranks:
            assert "`confscore` has seen no rows" in rank["refusals"]["words"][0]
            assert "Expected a state of `gdscore` with options" in rank["refusals"]["words"][1]
            assert rank["refusals"]["after"] == pytest.approx(both, rel=1e-6)
            assert rank["refusals"]["rows"] == 90

    def test_steps_looks_and_switches(self, ranks):
        for number, rank in enumerate(ranks):
            mine = ddp_worker.STEPS[number :: ddp_worker.WORLD]
            assert rank["steps"]["local"] == pytest.approx([gdscore.score("gdscore", part) for part in mine], rel=1e-6)
            assert rank["steps"]["alone"] == pytest.approx(gdscore.score("gdscore", mine), rel=1e-6)
            assert rank["steps"]["rows"] == [540, 270]
            expected = [gdscore.score("confscore", ddp_worker.STEPS[i : i + 2]) for i in (0, 2, 4)]
            assert rank["steps"]["together"] == pytest.approx(expected, rel=1e-6)
        for step in (1, 2, 3):
            scores = [gdscore.create_score("gdscore") for _ in range(2)]
            for score, start in zip(scores, (0, 1), strict=True):
                for part in ddp_worker.STEPS[start::2][:step]:
                    score.update(part)
            expected = scores[0].merge(scores[1]).compute()
            assert [r["steps"]["between"][step - 1] for r in ranks] == pytest.approx([expected] * 2, rel=1e-9)

    def test_network_under_ddp(self, ranks):
        found = ranks[0]["network"]
        assert found["evaluated"] == pytest.approx(found["single"], rel=1e-6)
        assert found["epochs"][0] != found["epochs"][1]


NAMES = ["gdscore", "atc", "nuclear", "cot"]


def test_a_collection_gives_what_each_score_gives():
    scores = ScoreCollection(NAMES, reference=iter(batches(REFERENCE, 200)), prefix="val_")
    for part in batches(OUT, 170):
        given = dict(part.arrays)
        scores.update(given.pop("logits"), **given)
    expected = {f"val_{name}": gdscore.score(name, OUT, reference=REFERENCE) for name in NAMES}
    assert {name: value.item() for name, value in scores.compute().items()} == expected
    again = scores.clone(prefix="test_")
    assert {name: value.item() for name, value in again.compute().items()} == {
        name.replace("val_", "test_"): value for name, value in expected.items()
    }
    scores.reset()
    scores.update(OUT)
    assert {name: value.item() for name, value in scores.compute().items()} == expected


def test_a_collection_gives_the_numbers_of_a_batch():
    scores = ScoreCollection({"gdscore": {"p": 0.5}, "entropy": {}})
    for part in batches(OUT, 300):
        found = scores(**part.arrays)
        assert found["gdscore"].item() == gdscore.score("gdscore", part, p=0.5)
        assert found["entropy"].item() == gdscore.score("entropy", part)
    assert scores.compute()["gdscore"].item() == gdscore.score("gdscore", OUT, p=0.5)


def test_a_collection_is_restored_from_its_state():
    first, second = (ScoreCollection(NAMES, reference=REFERENCE) for _ in range(2))
    first.persistent(True)
    first.update(OUT)
    second.load_state_dict(first.state_dict())
    assert second.compute() == first.compute()


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: ScoreCollection("gdscore"), "a list of names"),
        (lambda: ScoreCollection(["gdscor"]), "gdscore"),
        (lambda: ScoreCollection(["gdscore"], p=0.5), "options of a score are given"),
        (lambda: ScoreCollection(["atc"], reference=OUT.only({"logits"})), "atc.*labels"),
        (lambda: ScoreCollection(["entropy"]).update(OUT, features=OUT.features), "but got both"),
    ],
)
def test_what_a_collection_refuses(made, message):
    with pytest.raises(gdscore.GdscoreError, match=message):
        made()
