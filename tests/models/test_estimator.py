from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import gdscore
from gdscore import models, shifts

SHIFTS = shifts.corruptions((2, 5), names=("gaussian_noise", "contrast", "pixelate", "fog", "gaussian_blur"))


def digits():
    data = load_digits()
    x = torch.from_numpy(data.images[:, None] / 16).float()
    return x, torch.from_numpy(data.target)


def trained(seed):
    x, y = digits()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10)
        )
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        for step in range(120):
            rows = slice(step % 4 * 200, step % 4 * 200 + 200)
            loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model.eval()


@pytest.fixture(scope="module")
def model():
    return trained(0)


def loader(start, stop, mean=0.0, std=1.0):
    x, y = digits()
    return DataLoader(TensorDataset((x[start:stop] - mean) / std, y[start:stop]), batch_size=128)


def test_near_the_truth_and_the_model_is_as_before(model):
    model.train()
    before = copy.deepcopy(model.state_dict())
    est = models.estimator(model, loader(800, 1300), shifts=SHIFTS, level=0.8)
    assert model.training
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    model.eval()
    x, y = digits()
    (shot_noise,) = shifts.corruptions((3,), names=("shot_noise",))
    shifted = shot_noise(x[1300:])
    target = gdscore.Outputs.concatenate(list(models.extract(model, [(shifted, y[1300:])])))
    e = est.estimate(target)
    assert e.low <= target.accuracy <= e.high
    assert e.accuracy == pytest.approx(target.accuracy, abs=0.1)
    assert set(e.scores) == {"confidence", "distance"}
    assert not {w.code for w in e.warnings} & {"other_model", "outputs_only"}


def test_normalised_images(model):
    class Normalised(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x * 0.25 + 0.5)

    plain = models.estimator(model, loader(800, 1100), shifts=SHIFTS, level=0.8)
    moved = models.estimator(
        Normalised(model),
        loader(800, 1100, 0.5, 0.25),
        normalize=([0.5], [0.25]),
        shifts=SHIFTS,
        level=0.8,
    )
    np.testing.assert_allclose(plain.shifted_sets_.accuracy, moved.shifted_sets_.accuracy, atol=0.01)
    np.testing.assert_allclose(plain.shifted_sets_.predicted, moved.shifted_sets_.predicted, atol=0.01)


def test_equals_fit_predictor(model):
    x, y = digits()

    def predict(batch):
        return next(iter(models.extract(model, [batch])))

    by_hand = gdscore.AccuracyEstimator(level=0.8).fit_predictor(predict, x[800:1100], y[800:1100], shifts=SHIFTS)
    est = models.estimator(model, loader(800, 1100), shifts=SHIFTS, level=0.8)
    np.testing.assert_array_equal(est.shifted_sets_.accuracy, by_hand.shifted_sets_.accuracy)
    np.testing.assert_allclose(est.shifted_sets_.predicted, by_hand.shifted_sets_.predicted, atol=1e-4)
    assert est.shifted_sets_.families == by_hand.shifted_sets_.families


@pytest.mark.parametrize(
    ("batches", "options", "message"),
    [
        ([torch.rand(8, 1, 8, 8)], {}, "batch 0 has no labels"),
        ([(torch.rand(8, 64), torch.zeros(8))], {}, r"shape \(m, C, H, W\)"),
        ([(torch.zeros(8, 1, 8, 8, dtype=torch.uint8), torch.zeros(8).long())], {}, "float images"),
        ([(torch.rand(8, 1, 8, 8) * 9, torch.zeros(8).long())], {}, "normalize=\\(mean, std\\)"),
        ([(torch.rand(8, 1, 8, 8), torch.zeros(8).long())], {"normalize": 3}, "pair \\(mean, std\\)"),
        ([(torch.rand(8, 1, 8, 8), torch.zeros(8).long())], {"normalize": ([0, 0], [1, 1])}, "1 numbers in the mean"),
        ([(torch.rand(8, 1, 8, 8), torch.zeros(8).long())], {"normalize": ([0], [0])}, "positive std"),
        ([], {}, "yielded none"),
        (torch.rand(8, 1, 8, 8), {}, "list of one batch"),
    ],
)
def test_bad_input(model, batches, options, message):
    with pytest.raises(gdscore.GdscoreError, match=message):
        models.estimator(model, batches, **options)
