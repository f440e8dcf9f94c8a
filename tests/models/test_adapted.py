"""The published protocol: batch statistics while scoring, and the model it leaves behind."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import gdscore
from gdscore import GdscoreError
from gdscore.models import adapted_copy, extract
from tests.models.networks import CNN, images, labels, loader, seeded
from tests.models.test_untouched import Snapshot

SEED, P, TAU = 3, 0.3, 0.5


def trained() -> nn.Module:
    """Network that is sure of some rows and not of others, with running statistics of its own."""
    model = seeded(CNN)
    weights = [w for name, w in model.named_parameters() if "unused" not in name]
    x, y = images(64), labels(64)
    for _ in range(20):
        slopes = torch.autograd.grad(nn.functional.cross_entropy(model(x), y), weights)
        with torch.no_grad():
            for weight, slope in zip(weights, slopes, strict=True):
                weight -= 0.5 * slope
    return model


def released(model: nn.Module, batches) -> float:
    """The released algorithm: training mode, backward through the whole network, norm of the last layer's gradient."""
    model.train()
    norms = []
    for x, _ in batches:
        logits = model(x)
        confidence, pseudo = logits.detach().softmax(1).max(1)
        drawn = gdscore.Outputs(logits=logits.detach()).random_labels(SEED)
        y = torch.where(confidence > TAU, pseudo, drawn.long())
        model.zero_grad()
        nn.functional.cross_entropy(logits, y).backward()
        norms.append(model.fc.weight.grad.abs().double().pow(P).sum().pow(1 / P).item())
    return sum(norms) / len(norms)


@pytest.fixture(scope="module")
def model():
    return trained()


def test_batch_statistics_give_the_released_score(model):
    batches = [(2.0 * images(128, seed) + 1.0, None) for seed in (11, 12, 13)]
    before = Snapshot(model)
    out = list(extract(model, batches, batchnorm="batch"))
    ours = gdscore.score("gdscore", out, p=P, tau=TAU, batch_size=128, seed=SEED)
    before.assert_same(model)
    sure = gdscore.Outputs.concatenate(out).confidence > TAU
    assert 0.1 < sure.float().mean() < 0.9
    assert ours == pytest.approx(released(copy.deepcopy(model), batches), rel=1e-4)
    evaluated = gdscore.score("gdscore", extract(model, batches), p=P, tau=TAU, batch_size=128, seed=SEED)
    assert abs(evaluated - ours) > 1e-2 * ours


@pytest.mark.parametrize("train", [True, False])
def test_statistics_that_training_mode_leaves(model, train):
    model = copy.deepcopy(model).train(train)
    batches = loader(3, rows=32)
    before = Snapshot(model)
    adapted = adapted_copy(model, batches)
    before.assert_same(model)
    reference = copy.deepcopy(model).train()
    with torch.no_grad():
        for x, _ in batches:
            reference(x)
    for name, value in reference.state_dict().items():
        assert torch.equal(adapted.state_dict()[name], value), name
    assert {m.training for m in adapted.modules()} == {train}
    assert not torch.equal(adapted.backbone[1].running_mean, model.backbone[1].running_mean)


def test_dropout_stays_off():
    model = seeded(CNN, dropout=0.5).train()
    state = torch.get_rng_state()
    first, second = adapted_copy(model, loader()), adapted_copy(model, loader())
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first.backbone[5].running_var, second.backbone[5].running_var)


def test_nothing_to_adapt():
    with pytest.raises(GdscoreError, match="BatchNorm statistics to adapt"):
        adapted_copy(seeded(CNN, norm=False), loader())
    with pytest.raises(GdscoreError, match="it yielded none"):
        adapted_copy(seeded(CNN), [])
    with pytest.raises(GdscoreError, match="on batch 1"):
        adapted_copy(seeded(CNN), [*loader(1), images(channels=4)])
