"""What each of the two processes of test_metric.py does; it writes what it found to RANK.json."""

from __future__ import annotations

import json
import math
import warnings
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset
from torchmetrics import MetricCollection

import gdscore
from gdscore.models import ScoreMetric
from tests.data import TARGET_SCORES, arrays_of, batches, made

WORLD = 2
WHOLE = 2560
UNEVEN = (700, 1100)
STEPS = [made(90, "torch", seed=step, noise=2.0) for step in range(6)]


class Net(torch.nn.Module):
    """A network with BatchNorm that carries its metric, as a LightningModule does."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = torch.nn.Sequential(torch.nn.Linear(16, 12), torch.nn.BatchNorm1d(12), torch.nn.ReLU())
        self.head = torch.nn.Linear(12, 10)
        self.metric = ScoreMetric("gdscore")

    def forward(self, x):
        features = self.body(x)
        return self.head(features), features


def inputs():
    given = arrays_of(1000, seed=3)
    return TensorDataset(torch.from_numpy(given["features"]), torch.from_numpy(given["labels"]))


def shard(data):
    """Consecutive rows of this process, as docs/distributed.md makes them."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    step = 128 * math.ceil(len(data) / (128 * ranks))
    return range(len(data))[rank * step : (rank + 1) * step]


def collection():
    reference = made(600, "torch", seed=5)
    return MetricCollection({name: ScoreMetric(name, reference=reference) for name in TARGET_SCORES})


def numbers(values):
    return {name: value.item() for name, value in values.items()}


def shards(rank):
    """All scores on consecutive rows: multiples of 128, uneven leftovers, and one process without rows."""
    metrics = collection()
    out = made(WHOLE, "torch", noise=2.0)
    for part in batches(out[torch.tensor(shard(out))], 100):
        metrics.update(part)
    whole = numbers(metrics.compute())
    metrics.reset()
    out = made(sum(UNEVEN), "torch", noise=2.0)
    for part in batches(out[: UNEVEN[0]] if rank == 0 else out[UNEVEN[0] :], 100):
        metrics.update(**part.arrays)
    uneven = numbers(metrics.compute())
    empty = {}
    for holder in range(WORLD):
        metrics.reset()
        if rank == holder:
            metrics.update(out)
        empty[holder] = numbers(metrics.compute())
    return {"whole": whole, "uneven": uneven, "empty": empty}


def interleaved(rank):
    """The gradient of the whole set does not depend on who holds which row."""
    given = arrays_of(1000, noise=2.0)
    values = {}
    for name, extra in {"ids": {"ids": torch.arange(1000)}, "logits": {}}.items():
        out = gdscore.Outputs(**{k: torch.from_numpy(a) for k, a in given.items()}, **extra)
        rows = list(DistributedSampler(out, num_replicas=WORLD, rank=rank, shuffle=True))
        metric = ScoreMetric("gdscore", batch_size=None)
        metric.update(out[torch.tensor(rows)])
        values[name] = metric.compute().item()
    return values


def refusals(rank):
    """Errors come on all processes, and each goes on with its own rows."""
    metric = ScoreMetric("confscore")
    words = []
    try:
        metric.compute()
    except gdscore.GdscoreError as error:
        words.append(str(error))
    metric.update(STEPS[rank])
    after = metric.compute().item()
    other = ScoreMetric("gdscore", p=1 + rank)
    other.update(STEPS[rank])
    try:
        other.compute()
    except gdscore.GdscoreError as error:
        words.append(str(error))
    return {"words": words, "after": after, "rows": other._score.n_rows}


def steps(rank):
    """Values of single steps, a look in between, and synchronisation as the caller sets it."""
    metric = ScoreMetric("gdscore")
    mine = STEPS[rank::WORLD]
    local, between = [], []
    for part in mine:
        local.append(metric(part).item())
        between.append(metric.compute().item())
    alone = ScoreMetric("gdscore", sync_on_compute=False)
    every = ScoreMetric("confscore", dist_sync_on_step=True)
    together = []
    for part in mine:
        alone.update(part)
        together.append(every(part).item())
    metric.sync()
    synced = metric._score.n_rows
    metric.unsync()
    return {
        "local": local,
        "between": between,
        "alone": alone.compute().item(),
        "together": together,
        "rows": [synced, metric._score.n_rows],
    }


def network(rank):
    """Two epochs under DistributedDataParallel, then the rows of all in order."""
    model = DistributedDataParallel(Net())
    metric = model.module.metric
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    epochs = []
    for _ in range(2):
        sampler = DistributedSampler(inputs(), shuffle=False)
        for x, y in DataLoader(inputs(), batch_size=64, sampler=sampler):
            logits, features = model(x)
            metric.update(logits, features)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(logits, y).backward()
            optimizer.step()
        epochs.append(metric.compute().item())
        metric.reset()
    model.eval()
    with torch.no_grad():
        # The wrapper gives all processes the running statistics of the first one at its first pass without gradients.
        for x, _ in DataLoader(Subset(inputs(), shard(inputs())), batch_size=50):
            metric.update(*model(x))
        everything = model.module(inputs().tensors[0])
    single = gdscore.score("gdscore", gdscore.Outputs(logits=everything[0], features=everything[1]))
    return {"epochs": epochs, "evaluated": metric.compute().item(), "single": single}


def main(rank: int, folder: Path) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    meeting = (folder / "meeting").as_uri()
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=WORLD, timeout=timedelta(seconds=600))
    results = {case.__name__: case(rank) for case in (shards, interleaved, refusals, steps, network)}
    (folder / f"{rank}.json").write_text(json.dumps(results))
    dist.destroy_process_group()
