from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from gdscore import GdscoreError, models
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
        shift: models.score_all(model, [images(640, shift)], val_loader=[images(640)], batchnorm="both")["selfscore"]
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
    torch.testing.assert_close(named.batch_logits, plain.batch_logits)


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
