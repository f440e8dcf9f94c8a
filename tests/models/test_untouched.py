"""The model comes back as it was, bit for bit, whatever happens."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from gdscore import GdscoreError
from gdscore.models import extract, untouched
from gdscore.models.untouched import unwrapped
from tests.models.networks import CLASSES, CNN, Backbone, images, labels, loader, seeded

HOOKS = [name for name in nn.Module().__dict__ if "hooks" in name]


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.detach().reshape(-1).view(torch.uint8)


class Snapshot:
    """Everything of a model and of torch's random state that a forward pass could change."""

    def __init__(self, model: nn.Module) -> None:
        self.state = {k: v.clone() for k, v in model.state_dict(keep_vars=True).items()}
        self.tensors = {k: id(v) for k, v in model.state_dict(keep_vars=True).items()}
        self.modes = {k: m.training for k, m in model.named_modules()}
        self.required = {k: p.requires_grad for k, p in model.named_parameters()}
        self.grads = {k: None if p.grad is None else p.grad.clone() for k, p in model.named_parameters()}
        self.grad_ids = {k: id(p.grad) for k, p in model.named_parameters()}
        self.hooks = {k: {h: dict(m.__dict__[h]) for h in HOOKS} for k, m in model.named_modules()}
        self.others = {
            k: {a: v for a, v in m.__dict__.items() if isinstance(v, (int, float, str, bool, type(None)))}
            for k, m in model.named_modules()
        }
        self.rng = torch.get_rng_state()

    def assert_same(self, model: nn.Module) -> None:
        now = Snapshot(model)
        for name in ("tensors", "modes", "required", "grad_ids", "hooks", "others"):
            assert getattr(now, name) == getattr(self, name), name
        assert torch.equal(now.rng, self.rng)
        for k, v in self.state.items():
            assert torch.equal(bits(now.state[k]), bits(v)), k
        for k, v in self.grads.items():
            assert (v is None) == (now.grads[k] is None)
            assert v is None or torch.equal(now.grads[k], v)


class Restless(nn.Module):
    """Writes to its buffers, replaces them, makes new ones and draws random numbers even in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(16))
        self.register_buffer("cache", None)

    def forward(self, x):
        self.calls += 1
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        self.cache = x.detach().mean(0)
        if "late" not in self._buffers:
            self.register_buffer("late", torch.ones(3))
        return x + 0 * torch.rand_like(x)


def network(train: bool) -> nn.Module:
    model = seeded(CNN, dropout=0.3)
    model.backbone.append(Restless())
    model.train(train)
    # A user's own mixture of modes, frozen parts, gradients and hooks.
    model.backbone[1].eval()
    model.backbone[4].train()
    model.backbone[0].weight.requires_grad_(False)
    model.fc.weight.grad = torch.randn(CLASSES, 16)
    model.fc.register_forward_hook(lambda *_: None)
    model.backbone.register_forward_pre_hook(lambda *_: None)
    return model


@pytest.fixture(params=[True, False], ids=["train", "eval"])
def model(request):
    return network(request.param)


@pytest.fixture(params=["eval", "batch"])
def batchnorm(request):
    return request.param


def test_after_every_batch_and_at_the_end(model, batchnorm):
    before = Snapshot(model)
    for _ in extract(model, loader(), batchnorm=batchnorm):
        before.assert_same(model)
    before.assert_same(model)


def test_before_the_first_batch(model, batchnorm):
    before = Snapshot(model)
    extract(model, loader(), batchnorm=batchnorm)
    before.assert_same(model)


def test_after_an_exception_halfway(model, batchnorm):
    before = Snapshot(model)
    bad = [*loader(2), (images(channels=4), labels())]
    stream = extract(model, bad, batchnorm=batchnorm)
    next(stream)
    next(stream)
    with pytest.raises(GdscoreError, match=r"batch 2, float32 of shape \(12, 4, 16, 16\)"):
        next(stream)
    before.assert_same(model)


@pytest.mark.parametrize("layer", ["backbone.5", "fc"])
def test_after_an_exception_inside_a_layer(model, batchnorm, layer):
    class Stop(BaseException):
        pass

    def stop(*_):
        raise Stop

    model.get_submodule(layer).register_forward_hook(stop)
    before = Snapshot(model)
    with pytest.raises(Stop):
        list(extract(model, loader(), batchnorm=batchnorm))
    before.assert_same(model)


def test_after_an_exception_of_the_loader(model):
    def broken():
        yield from loader(2)
        raise OSError("disk")

    before = Snapshot(model)
    stream = extract(model, broken())
    assert len([next(stream), next(stream)]) == 2
    with pytest.raises(OSError, match="disk"):
        next(stream)
    before.assert_same(model)


def test_after_closing_early(model, batchnorm):
    before = Snapshot(model)
    stream = extract(model, loader(), batchnorm=batchnorm)
    next(stream)
    stream.close()
    before.assert_same(model)


def test_what_the_caller_changes_between_batches_stays(model):
    stream = extract(model, loader(4))
    next(stream)
    model.backbone[-1].mean.fill_(7.0)
    model.backbone[-1].calls = torch.tensor(99)
    model.eval()
    changed = Snapshot(model)
    next(stream)
    changed.assert_same(model)
    model.train()
    changed = Snapshot(model)
    next(stream)
    changed.assert_same(model)


def test_the_peer_too(batchnorm):
    model, peer = network(True), network(False)
    before = Snapshot(model), Snapshot(peer)
    for out in extract(model, loader(), peer=peer, batchnorm=batchnorm):
        assert "peer_logits" in out.has
        for snapshot, net in zip(before, (model, peer), strict=True):
            snapshot.assert_same(net)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_shuffling_loader_leaves_the_random_state(workers):
    model = network(True)
    data = TensorDataset(images(24), labels(24))
    before = Snapshot(model)
    first = [out.labels.tolist() for out in extract(model, DataLoader(data, 8, shuffle=True, num_workers=workers))]
    before.assert_same(model)
    again = [out.labels.tolist() for out in extract(model, DataLoader(data, 8, shuffle=True, num_workers=workers))]
    assert first == again
    assert len({tuple(row) for row in first}) == 3


def test_random_augmentation_differs_between_batches():
    model = seeded(CNN, norm=False)

    class Noisy(TensorDataset):
        def __getitem__(self, i):
            return torch.randn(3, 16, 16)

    state = torch.get_rng_state()
    first, second = extract(model, DataLoader(Noisy(images(8)), 4))
    assert not torch.equal(first.logits, second.logits)
    assert torch.equal(torch.get_rng_state(), state)


def test_gradients_of_a_backward_pass_inside_are_taken_away(model):
    before = Snapshot(model)
    with untouched(model):
        model(images()).sum().backward()
    before.assert_same(model)


def test_evaluation_mode_inside():
    model = network(True)
    with untouched(model):
        assert not any(m.training for m in model.modules())
    with untouched(model, batchnorm="batch"):
        assert [m for m in model.modules() if m.training] == [model.backbone[1], model.backbone[5]]


def test_batch_statistics_without_touching_the_running_ones():
    model = seeded(Backbone).train()
    reference = seeded(Backbone).train()
    x = images()
    before = Snapshot(model)
    with untouched(model, batchnorm="batch"), torch.no_grad():
        z = model(x)
    before.assert_same(model)
    with torch.no_grad():
        assert torch.equal(z, reference(x))
    assert reference[1].num_batches_tracked == 1


def test_bad_arguments():
    with pytest.raises(GdscoreError, match=r"torch.nn.Module, but got function"):
        untouched(lambda x: x)
    with pytest.raises(GdscoreError, match="Unknown `batchnorm` 'train'"):
        untouched(nn.Linear(2, 2), batchnorm="train")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lazy = nn.LazyLinear(3)
    with pytest.raises(GdscoreError, match="lazy layers"):
        untouched(lazy)


def test_unwrapping():
    model = seeded(CNN)
    assert unwrapped(nn.DataParallel(model)) is model
    assert unwrapped(model) is model
