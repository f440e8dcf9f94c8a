from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import gdscore
from gdscore import GdscoreError, models, shifts
from gdscore.models import extract


def network(seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 3)
        )
        # Statistics of data like these, as if it had been trained on them.
        for _ in range(30):
            model(torch.randn(64, 1, 8, 8))
    return model.eval()


def images(rows, shift=0.0, seed=1):
    return shift + torch.randn(rows, 1, 8, 8, generator=torch.Generator().manual_seed(seed))


def expected(model, pieces):
    """The same by torch's own training mode, on a copy."""
    twin = copy.deepcopy(model)
    for layer in twin.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.train()
    with torch.no_grad():
        return torch.cat([twin(piece) for piece in pieces])


@pytest.mark.parametrize(("rows", "sizes"), [(1, [1]), (90, [90]), (191, [191]), (192, [96, 96]), (500, [125] * 4)])
def test_the_model_with_the_statistics_of_about_128_rows(rows, sizes):
    model, x = network(), images(rows, 0.5)
    before = copy.deepcopy(model.state_dict())
    (out,) = extract(model, [x], batchnorm="both")
    torch.testing.assert_close(out.batch_logits, expected(model, x.split(sizes)))
    with torch.no_grad():
        torch.testing.assert_close(out.logits, model(x))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module.training for module in model.modules())


def test_it_disagrees_where_the_data_changed():
    model = network()
    score = {
        shift: models.score(model, [images(640, shift)], reference=[images(640)], batchnorm="both")["selfscore"]
        for shift in (0.0, 3.0)
    }
    assert score[3.0] > score[0.0] + 0.05


def test_wrapped_models_and_dicts_of_inputs():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = network()

        def forward(self, pixels):
            return self.body(pixels)

    x = images(300)
    plain = next(iter(extract(network(), [x], batchnorm="both")))
    parallel = next(iter(extract(nn.DataParallel(network()), [x], batchnorm="both")))
    torch.testing.assert_close(parallel.batch_logits, plain.batch_logits)
    named = next(iter(extract(Named(), [{"pixels": x}], batchnorm="both")))
    torch.testing.assert_close(named.batch_logits, expected(network(), [x]))


def test_errors():
    x = [images(8)]
    plain = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    free = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64, track_running_stats=False), nn.Linear(64, 3))
    for without in (plain, free):
        with pytest.raises(GdscoreError, match="Expected a model with BatchNorm and stored statistics.*it has none"):
            extract(without, x, batchnorm="both")
    with pytest.raises(GdscoreError, match="to be a torch.nn.Module, but got function"):
        extract(lambda x: x, x, batchnorm="both")
    with pytest.raises(GdscoreError, match="Unknown `batchnorm` 'Both': did you mean 'both'"):
        extract(network(), x, batchnorm="Both")
    with pytest.raises(GdscoreError, match='`peer` to be a torch.nn.Module, or batchnorm="both" for .*, but got str'):
        extract(network(), x, peer="batchnorm")
    with pytest.raises(GdscoreError, match="to be a torch.nn.Module, but got int"):
        extract(network(), x, peer=3)


def test_beside_a_second_model():
    x = images(300)
    (out,) = extract(network(), [x], peer=network(seed=3), batchnorm="both")
    with torch.no_grad():
        torch.testing.assert_close(out.peer_logits, network(seed=3)(x))
    torch.testing.assert_close(out.batch_logits, expected(network(), [x[:150], x[150:]]))


class TestEstimator:
    @staticmethod
    def data():
        x = images(600).sigmoid()
        with torch.no_grad():
            y = (network()(x) + 0.5 * torch.randn(600, 3, generator=torch.Generator().manual_seed(5))).argmax(1)
        return x, y

    def fitted(self, x, y, **options):
        chosen = shifts.corruptions((3, 6), names=("gaussian_noise", "contrast", "pixelate", "fog", "gaussian_blur"))
        return models.estimator(
            network(), [(x, y)], batchnorm="both", shifts=chosen, resamples=20, level=0.8, **options
        )

    def test_calibrates_on_it_and_needs_it_afterwards(self, tmp_path):
        x, y = self.data()
        est = self.fitted(x, y)
        assert list(est.calibration_.scores) == ["cot", "nuclear", "confscore", "frechet", "atc", "selfscore"]
        est.save(tmp_path / "m.gdscore")
        kept = gdscore.AccuracyEstimator.load(tmp_path / "m.gdscore")
        out = list(extract(network(), DataLoader(TensorDataset(x), 128), batchnorm="both"))
        e = kept.estimate(out)
        assert e.low < float((network()(x).argmax(1) == y).float().mean()) < e.high
        with pytest.raises(GdscoreError, match="batch_logits"):
            kept.estimate(extract(network(), [x]))

    def test_batches_are_even(self):
        """One row more than a batch: BatchNorm1d has no statistics of one row."""
        flat = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 3)).eval()
        x, y = self.data()
        chosen = shifts.corruptions((3, 6), names=("gaussian_noise", "contrast"))
        est = models.estimator(flat, [(x[:501], y[:501])], batchnorm="both", shifts=chosen, resamples=20, level=0.6)
        assert est.estimate(extract(flat, [x], batchnorm="both")).n == 600

    def test_beside_a_second_model(self):
        x, y = self.data()
        est = self.fitted(x, y, peer=network(seed=3))
        assert list(est.calibration_.scores) == [
            "cot",
            "nuclear",
            "confscore",
            "frechet",
            "atc",
            "selfscore",
            "agreescore",
        ]
        e = est.estimate(extract(network(), [x], peer=network(seed=3), batchnorm="both"))
        assert e.low < float((network()(x).argmax(1) == y).float().mean()) < e.high
        with pytest.raises(GdscoreError, match="peer_logits"):
            est.estimate(extract(network(), [x], batchnorm="both"))

    def test_the_order_of_the_validation_data_means_little(self):
        """Batches of one class have statistics of their own; calibration must not take those for the usual."""
        y = torch.arange(600) % 3
        x = (images(600) + 2 * (y - 1)[:, None, None, None]).sigmoid()
        by_class = torch.argsort(y, stable=True)
        tables = [self.fitted(x[order], y[order]).calibration_ for order in (by_class, torch.arange(len(y)))]
        none = [np.array([f == "resampled-none" for f in table.families]) for table in tables]
        sorted_, given = (table.scores["selfscore"][own].mean() for table, own in zip(tables, none, strict=True))
        assert sorted_ == pytest.approx(given, rel=0.1)
