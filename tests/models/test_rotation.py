from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import gdscore
from gdscore import GdscoreError
from gdscore.models import extract, fit_rotation_head


class Net(nn.Module):
    def __init__(self, pooled=False, channels=16):
        super().__init__()
        self.conv = nn.Conv2d(1, channels, 3)
        self.norm = nn.BatchNorm2d(channels)
        self.drop = nn.Dropout(0.3)
        self.pool = nn.AdaptiveAvgPool2d(1) if pooled else nn.AvgPool2d(2)
        self.fc = nn.Linear(channels if pooled else channels * 9, 10)

    def features(self, x):
        return self.drop(self.pool(torch.relu(self.norm(self.conv(x)))).flatten(1))

    def forward(self, x):
        return self.fc(self.features(x))


@pytest.fixture(scope="module")
def images():
    digits = torch.tensor(load_digits().images[:, None] / 16, dtype=torch.float32)
    return digits[:400], digits[400:600]


@pytest.fixture
def net():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Net()


def error_of(model, rotation_head, x):
    return gdscore.score("rotation", next(extract(model, [x], rotation_head=rotation_head)))


def test_it_learns_rotations_and_notices_a_shift(net, images):
    train, test = images
    head = fit_rotation_head(net, DataLoader(TensorDataset(train), 64))
    assert error_of(net, head, train) < 0.15
    assert error_of(net, head, test) < 0.25
    noise = torch.randn(test.shape, generator=torch.Generator().manual_seed(0))
    assert error_of(net, head, test + noise) > error_of(net, head, test) + 0.1


def test_it_solves_the_convex_problem(net, images):
    x, _ = images
    turned = torch.cat([torch.rot90(x, r, (2, 3)) for r in range(4)])
    features = torch.cat([out.features for out in extract(net, [turned])]).numpy()
    shown = np.repeat(np.arange(4), len(x))
    l2 = 0.05
    scaled = (features - features.mean(0)) / np.where(features.std(0) > 0, features.std(0), 1)
    peer = LogisticRegression(C=1 / (l2 * len(scaled)), tol=1e-8, max_iter=5000).fit(scaled, shown)
    head = fit_rotation_head(net, [x], l2=l2)
    ours = head(torch.from_numpy(features)).softmax(1).numpy()
    np.testing.assert_allclose(ours, peer.predict_proba(scaled), atol=2e-3)


def test_same_data_same_head_whatever_the_batches(net, images):
    x, _ = images
    first, again = (fit_rotation_head(net, [x], l2=0.05).linear for _ in range(2))
    assert torch.equal(first.weight, again.weight)
    cut = fit_rotation_head(net, DataLoader(TensorDataset(x, torch.zeros(len(x))), 33), l2=0.05).linear
    torch.testing.assert_close(cut.weight, first.weight, rtol=0, atol=2e-2 * float(first.weight.abs().max()))


def test_features_that_never_vary_do_no_harm(net, images):
    with torch.no_grad():
        net.conv.weight[3] = 0
        net.conv.bias[3] = 0.1
    head = fit_rotation_head(net, [images[0]])
    assert torch.isfinite(head.linear.weight).all()
    assert float(head.linear.weight[:, 27:36].abs().max()) < 1e-3


def test_the_model_and_the_random_state_stay(net, images):
    net.train()
    state, rng = {k: v.clone() for k, v in net.state_dict().items()}, torch.get_rng_state()
    loader = DataLoader(TensorDataset(images[0]), 100, shuffle=True)
    with torch.inference_mode():
        fit_rotation_head(net, loader)

    def breaks():
        yield images[0]
        raise OSError("disk gone")

    with pytest.raises(OSError, match="disk gone"):
        fit_rotation_head(net, breaks())
    assert all(torch.equal(v, state[k]) for k, v in net.state_dict().items())
    assert all(m.training for m in net.modules())
    assert all(q.grad is None and q.requires_grad for q in net.parameters())
    assert torch.equal(torch.get_rng_state(), rng)


def test_oblong_images_need_a_model_that_takes_them(net, images):
    oblong = images[0][:, :, :, 1:7]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        pooled, flat = Net(pooled=True), nn.Sequential(nn.Conv2d(1, 4, (3, 1)), nn.Flatten(), nn.Linear(144, 10))
    head = fit_rotation_head(pooled, [oblong])
    assert error_of(pooled, head, oblong) < 0.7
    with pytest.raises(GdscoreError, match="Expected square images"):
        fit_rotation_head(flat, [oblong])


@pytest.mark.parametrize(
    ("loader", "options", "words"),
    [
        ([], {}, "yielded none"),
        ([torch.zeros(4, 8)], {}, "images of shape"),
        ([{"pixels": torch.zeros(4, 1, 8, 8)}], {}, "images of shape"),
        ([torch.zeros(4, 1, 8, 8)], {"l2": 0}, "`l2`"),
        ([torch.zeros(4, 1, 8, 8)], {"iterations": 0}, "`iterations`"),
        ([torch.zeros(4, 1, 8, 8)], {"head": "cf"}, "Unknown layer"),
        ([torch.zeros(4, 3, 8, 8)], {}, "to take the loader's batches"),
        (torch.zeros(4, 1, 8, 8), {}, "a single Tensor"),
    ],
)
def test_bad_input_is_told(net, loader, options, words):
    with pytest.raises(GdscoreError, match=words):
        fit_rotation_head(net, loader, **options)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu(net, images):
    head = fit_rotation_head(net.cuda(), DataLoader(TensorDataset(images[0]), 64))
    assert head.linear.weight.is_cuda
    assert error_of(net, head, images[0]) < 0.15
