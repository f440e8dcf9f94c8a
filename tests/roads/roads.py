"""The public roads that lead to one score and to one estimate, by name."""

from __future__ import annotations

import json
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import gdscore
from gdscore import functional
from tests.roads import data

NAMES = [name for name in gdscore.list_scores() if name != "projnorm"]


def parts(out, size=130):
    return [out[start : start + size] for start in range(0, len(out), size)]


@contextmanager
def files(reference, target, estimator=None):
    """A folder with both as npz, Parquet and CSV, and the estimator."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for title, out in (("reference", reference), ("target", target)):
            for suffix in ("npz", "parquet"):
                gdscore.io.write_outputs(folder / f"{title}.{suffix}", out)
            gdscore.to_frame(out).to_csv(folder / f"{title}.csv", index=False)
        if estimator is not None:
            estimator.save(folder / "m.gdscore")
        yield folder


COLUMNS = {"csv": ["--logits", "logit_*", "--features", "feature_*"], "npz": [], "parquet": []}


def command(folder, *arguments):
    """What the command line writes as JSON, of its only target."""
    from typer.testing import CliRunner

    from gdscore.cli.commands import app

    done = CliRunner().invoke(app, [*map(str, arguments), "--json", str(folder / "out.json"), "--quiet"])
    assert done.exit_code == 0, done.output
    (target,) = json.loads((folder / "out.json").read_text())["targets"]
    return target


# -- scores ---------------------------------------------------------------------------------------------------


def score_roads(reference, target):
    """Road → name of the score → its value."""
    import torch

    from gdscore import models

    def filled(name, outputs=target, labelled=reference):
        score = gdscore.create_score(name)
        score = score.fit(labelled) if score.reference_inputs else score
        for part in parts(outputs):
            score.update(part)
        return score

    def converted(convert):
        both = [gdscore.Outputs(**{n: convert(a) for n, a in out.arrays.items()}) for out in (target, reference)]
        return lambda name: filled(name, *both).compute()

    def called(name):
        score = gdscore.create_score(name)
        labelled = {f"reference_{n}": reference.arrays[n] for n in score.reference_inputs}
        return getattr(functional, name)(**{n: target.arrays[n] for n in score.inputs}, **labelled)

    def metric(name):
        made = models.ScoreMetric(name, reference=reference)
        for part in parts(target):
            made.update(part)
        return made.compute().item()

    roads = {
        "batches": lambda name: filled(name).compute(),
        # GdScore: shards are whole mini-batches.
        "merged": lambda name: filled(name, target[:256]).merge(filled(name, target[256:])).compute(),
        "restored": lambda name: gdscore.restore_score(filled(name).state_dict()).compute(),
        "functional": called,
        "torch": converted(torch.from_numpy),
        "torchmetrics": metric,
        "single precision": converted(lambda a: a if a.dtype.kind == "i" else a.astype(np.float32)),
        "half precision": converted(lambda a: a if a.dtype.kind == "i" else a.astype(np.float16)),
    }
    yield from ((road, {name: value(name) for name in NAMES}) for road, value in roads.items())
    yield "score_all", gdscore.score_all(parts(target), reference=reference)
    names = ("logits", "features", "labels")
    with files(*(gdscore.Outputs(**{n: out.arrays[n] for n in names}) for out in (reference, target))) as folder:
        for suffix, columns in COLUMNS.items():
            options = ["--reference", folder / f"reference.{suffix}", *columns]
            options += ["--label", "label"] if suffix == "csv" else []
            document = command(folder, "score", folder / f"target.{suffix}", *options)
            yield f"command line, {suffix}", document["scores"]


# -- estimates ------------------------------------------------------------------------------------------------


def estimate_roads(est, reference, target):
    """Road → accuracy and ends of the interval."""
    import torch
    from starlette.testclient import TestClient

    from gdscore import models
    from gdscore.monitor import Monitor
    from gdscore.monitor.app import create_app
    from gdscore.monitor.settings import Settings

    def ends(e):
        return [e.accuracy, e.low, e.high]

    def window(document):
        return [document[name] for name in ("accuracy", "low", "high")]

    def shards():
        state = est.state()
        for part in reversed(parts(target)):
            state.merge(est.state(est.state().update(part).to_bytes()))
        return ends(est.estimate(state))

    def network():
        model = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Linear(data.FEATURES, 5)).eval()
        weights, offsets = (torch.from_numpy(a).float() for a in data.classifier())
        model[1].load_state_dict({"weight": weights, "bias": offsets})
        return models.extract(model, list(torch.from_numpy(target.features).split(64)))

    yield "batches", ends(est.estimate(iter(parts(target))))
    yield "a segment", ends(est.estimate(target, by=["all"] * len(target))["all"])
    yield "merged bytes", shards()
    framed = gdscore.from_frame(gdscore.to_frame(target), logits="logit_*", features="feature_*")
    yield "frame", ends(est.estimate(framed))
    yield "torch", ends(est.estimate(gdscore.Outputs(**{n: torch.from_numpy(a) for n, a in target.arrays.items()})))
    yield "network", ends(est.estimate(network()))
    with files(reference, target, est) as folder:
        yield "loaded", ends(gdscore.AccuracyEstimator.load(folder / "m.gdscore").estimate(target))
        for suffix, columns in COLUMNS.items():
            document = command(folder, "estimate", folder / "m.gdscore", folder / f"target.{suffix}", *columns)
            yield f"command line, {suffix}", window(document)
        monitor = Monitor(f"sqlite:///{folder}/history.db")
        monitor.register("m", est, every="1d")
        monitor.add("m", target, time="2026-01-01")
        yield "monitor", window(monitor.windows("m").iloc[0])
        app = create_app(monitor, Settings(auth=False))
        with TestClient(app, client=("127.0.0.1", 50000), base_url="http://127.0.0.1") as client:
            answer = client.post(
                "/api/v1/models/m/windows?time=2026-01-02",
                content=(folder / "target.parquet").read_bytes(),
                headers={"content-type": "application/vnd.apache.parquet"},
            )
            yield "service", window(answer.json()[0])
        monitor.close()
