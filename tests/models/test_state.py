# ruff: noqa: NPY002 - the global generator is what is tested
"""The model comes back as it was, bit for bit, whatever happens."""

from __future__ import annotations

import contextlib
import random
import time
import warnings
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import gdscore
from gdscore import GdscoreError, models
from gdscore.models import extract
from gdscore.models._state import Unchanged, unwrapped
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
        self.other_rng = (random.getstate(), np.random.get_state()[1].tolist(), np.random.get_state()[2])

    def assert_same(self, model: nn.Module) -> None:
        now = Snapshot(model)
        for name in ("tensors", "modes", "required", "grad_ids", "hooks", "others", "other_rng"):
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
    with Unchanged(model):
        model(images()).sum().backward()
    before.assert_same(model)


def test_evaluation_mode_inside():
    model = network(True)
    with Unchanged(model):
        assert not any(m.training for m in model.modules())
    with Unchanged(model, batchnorm="batch"):
        assert [m for m in model.modules() if m.training] == [model.backbone[1], model.backbone[5]]


def test_batch_statistics_without_touching_the_running_ones():
    model = seeded(Backbone).train()
    reference = seeded(Backbone).train()
    x = images()
    before = Snapshot(model)
    with Unchanged(model, batchnorm="batch"), torch.no_grad():
        z = model(x)
    before.assert_same(model)
    with torch.no_grad():
        assert torch.equal(z, reference(x))
    assert reference[1].num_batches_tracked == 1


def test_bad_arguments():
    with pytest.raises(GdscoreError, match=r"torch.nn.Module, but got function"):
        Unchanged(lambda x: x)
    with pytest.raises(GdscoreError, match="Unknown `batchnorm` 'train'"):
        Unchanged(nn.Linear(2, 2), batchnorm="train")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lazy = nn.LazyLinear(3)
    with pytest.raises(GdscoreError, match="lazy layers"):
        Unchanged(lazy)


def test_unwrapping():
    model = seeded(CNN)
    assert unwrapped(nn.DataParallel(model)) is model
    assert unwrapped(model) is model


# -- forward passes that change what they run in --------------------------------------------------------------


class EvalWriter(nn.BatchNorm1d):
    """Moves its running statistics in evaluation mode too."""

    def forward(self, x):
        with torch.no_grad():
            self.running_mean += x.mean(0)
            self.num_batches_tracked += 1
        return super().forward(x)


def train_mode(net, x):
    net.train()


def train_mode_of_a_part(net, x):
    net.norm.train()
    net.norm(x)


def buffer_in_place(net, x):
    net.count.add_(1)


def buffer_through_data(net, x):
    net.count.data.add_(1)
    net.norm.running_var.data.mul_(2)


def buffer_given_other_data(net, x):
    net.count.data = net.count.data + 1


def buffer_resized(net, x):
    net.norm.running_mean.data = torch.zeros(9)


def buffer_through_numpy(net, x):
    net.norm.running_mean.numpy()[:] += 1


def buffer_replaced(net, x):
    net.norm.running_mean = x.mean(0)


def buffer_removed(net, x):
    del net.count


def buffer_made(net, x):
    net.register_buffer("late", x.mean(0))


def tensor_attribute_written(net, x):
    net.memory[:1] = x[0, 0]


def tensor_attribute_replaced(net, x):
    net.memory = x


def attribute_counted(net, x):
    net.calls += 1
    net.fresh = "new"


def attribute_removed(net, x):
    del net.calls


def containers_filled(net, x):
    net.history.append(x)
    net.table["x"] = x
    net.table.pop("kept", None)
    net.names.add("x")


def hook_added(net, x):
    net.fc.register_forward_hook(lambda *_: None)
    net.register_forward_pre_hook(lambda *_: None)
    net.norm.register_full_backward_hook(lambda *_: None)


def hook_removed(net, x):
    net.fc._forward_pre_hooks.clear()


def hook_on_a_weight(net, x):
    net.fc.weight.requires_grad_(True)
    net.fc.weight.register_hook(lambda g: g)


def layer_added(net, x):
    net.extra = nn.Linear(2, 2)


def layer_replaced(net, x):
    net.norm = nn.BatchNorm1d(4)


def weight_required(net, x):
    net.fc.weight.requires_grad_(not net.fc.weight.requires_grad)
    net.fc.bias.requires_grad_(True)


def gradient_made(net, x):
    with torch.enable_grad():
        net.fc(x).sum().backward()


def gradient_removed(net, x):
    net.fc.weight.grad = None


def weight_given_other_data(net, x):
    net.norm.weight.data = net.norm.weight.data * 2


def weight_replaced(net, x):
    net.norm.bias = nn.Parameter(torch.ones(4))


def random_numbers(net, x):
    torch.rand(3)
    random.random()
    np.random.rand(2)


def random_seeds(net, x):
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)


CHANGES = [
    value
    for name, value in list(globals().items())
    if getattr(value, "__code__", None) and value.__code__.co_varnames[:2] == ("net", "x")
]


class Changing(nn.Module):
    """Changes something, then fails if it is asked to, then computes what it would have computed anyway."""

    def __init__(self, change):
        super().__init__()
        self.norm, self.fc, self.odd = nn.BatchNorm1d(4), nn.Linear(4, CLASSES), EvalWriter(4)
        self.register_buffer("count", torch.zeros(()))
        self.memory, self.calls, self.history, self.table, self.names = torch.zeros(3), 0, [], {"kept": 1}, set()
        self.fc.register_forward_pre_hook(lambda *_: None)
        self.fc.weight.grad = torch.ones(CLASSES, 4)
        self.change = change

    def forward(self, x):
        z = self.fc(x)
        self.change(self, x)
        if x[0, 0] > 90:
            raise KeyError("asked for")
        self.odd(x)
        return z


def everything(net):
    held = {name: m.__dict__.copy() for name, m in net.named_modules()}
    held |= {f"{name} content": [*net.history, *net.table.items(), *net.names] for name in ("containers",)}
    held |= {"memory": net.memory.tolist(), "weight hooks": [bool(p._backward_hooks) for p in net.parameters()]}
    return held


@pytest.mark.parametrize("train", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_whatever_forward_changes_is_put_back(change, train):
    net = seeded(Changing, change).train(train)
    net.odd.eval()
    x = images(8).flatten(1)[:, :4]
    expected = net.fc(x).detach()
    before, attributes = Snapshot(net), everything(net)

    def check():
        before.assert_same(net)
        assert everything(net) == attributes

    for out in extract(net, [x, x, x], head=False):
        check()
        assert torch.equal(out.logits, expected)
    stream = extract(net, [x, x + 100, x], head=False)
    next(stream)
    with pytest.raises(GdscoreError, match="batch 1.*KeyError"):
        next(stream)
    check()
    stream = extract(net, [x, x], head=False)
    next(stream)
    del stream
    check()


def test_embeddings_that_torch_renormalises():
    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.fc = nn.Embedding(9, 4, max_norm=0.1), nn.Linear(4, 3)

        def forward(self, ids):
            return self.fc(self.words(ids).mean(1))

    net = seeded(Words)
    before = Snapshot(net)
    list(extract(net, [torch.arange(8).reshape(2, 4)] * 2))
    before.assert_same(net)


def test_an_open_graph_of_the_caller_stays_usable():
    """Writing buffers back must not look like a change to what autograd has saved."""
    net = seeded(Changing, buffer_through_data).eval()
    x = images(8).flatten(1)[:, :4].requires_grad_()
    loss = net.norm(x).square().sum()
    list(extract(net, [x.detach()]))
    loss.backward()
    assert torch.isfinite(x.grad).all()


def test_buffers_of_any_layout():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 3)
            self.register_buffer("expanded", torch.ones(1).expand(5))
            self.register_buffer("part", torch.arange(20.0).reshape(4, 5).t()[1:3])
            self.register_buffer("empty", torch.zeros(0))
            self.register_buffer("flags", torch.tensor([True, False]))
            self.register_buffer("sparse", torch.eye(3).to_sparse())
            self.register_buffer("same", self.part)
            self.register_buffer("short", torch.ones(3, dtype=torch.bfloat16))

        def forward(self, x):
            for buffer in (self.part, self.flags, self.short):
                buffer.data.zero_()
            return self.fc(x)

    net = Odd()
    before = {name: b.to_dense().clone() for name, b in net.named_buffers()}
    list(extract(net, [torch.randn(4, 4)] * 2))
    for name, b in net.named_buffers():
        assert torch.equal(b.to_dense(), before[name]), name


def test_models_made_in_inference_mode():
    class Scaled(nn.Linear):
        def forward(self, x):
            self.scale.data.mul_(2)
            return super().forward(x)

    with torch.inference_mode():
        net = Scaled(4, 3)
        net.register_buffer("scale", torch.ones(2))
        list(extract(net, [torch.randn(8, 4)] * 2))
    outside = extract(nn.Sequential(nn.BatchNorm1d(4), net), [torch.randn(8, 4)] * 2, batchnorm="batch", head=False)
    with torch.inference_mode():
        list(outside)
    assert net.scale.tolist() == [1.0, 1.0]


class Stochastic(nn.Module):
    """Draws in evaluation mode, from whatever generator."""

    def __init__(self, draw):
        super().__init__()
        self.fc, self.draw = nn.Linear(4, 3), draw

    def forward(self, x):
        return self.fc(x * (1 + self.draw(x)))


DRAWS = {
    "dropout": lambda x: nn.functional.dropout(torch.ones_like(x), 0.5, training=True),
    "rand": torch.rand_like,
    "numpy": lambda x: torch.from_numpy(np.random.rand(*x.shape)).to(x),
    "python": lambda x: random.random(),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_stochastic_models_draw_anew_for_every_batch_and_can_be_repeated(draw):
    net, x = seeded(Stochastic, draw), torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    before = Snapshot(net)
    runs = []
    for _ in range(2):
        runs.append([])
        for out in extract(net, [x] * 3, head=False):
            before.assert_same(net)
            runs[-1].append(out.logits)
    for first, again in zip(*runs, strict=True):
        assert torch.equal(first, again)
    assert not torch.equal(runs[0][0], runs[0][1])
    assert not torch.equal(runs[0][1], runs[0][2])
    with torch.random.fork_rng(devices=[]):
        torch.rand(1), random.random(), np.random.rand()
        other = [out.logits for out in extract(net, [x], head=False)]
    assert not torch.equal(other[0], runs[0][0])


def test_a_stochastic_model_does_not_repeat_the_draws_of_its_loader():
    net = seeded(Stochastic, torch.rand_like)
    seen = []
    net.draw = lambda x: seen.append(torch.rand_like(x)) or seen[-1]

    class Noise(TensorDataset):
        def __getitems__(self, rows):
            drawn.append(torch.rand(len(rows), 4))
            return [(row,) for row in drawn[-1]]

    drawn = []
    list(extract(net, DataLoader(Noise(torch.zeros(8, 4)), 8), head=False))
    assert not torch.equal(seen[0], drawn[0])


def test_threads_that_use_one_model_take_turns():
    class Slow(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.fc = nn.BatchNorm1d(6), nn.Linear(6, 3)

        def forward(self, x):
            entered.append(self)
            time.sleep(0.002)  # lets the other threads run
            most.append(len(entered))
            logits = self.fc(self.norm(x)).clone()
            entered.pop()
            return logits

    entered: list[nn.Module] = []
    most: list[int] = []
    model = seeded(Slow).train()
    rng = torch.Generator().manual_seed(0)
    loaders = [[torch.randn(8, 6, generator=rng) for _ in range(5)] for _ in range(4)]

    def run(batches):
        return gdscore.Outputs.concatenate(extract(model, batches))

    expected = list(map(run, loaders))
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(run, loaders))
    for out, alone in zip(found, expected, strict=True):
        assert torch.equal(out.logits, alone.logits)
        assert torch.equal(out.features, alone.features)
    assert max(most) == 1
    assert all(module.training for module in model.modules())
    assert not model.fc._forward_hooks


# -- odd modules -----------------------------------------------------------------------------------------------


class Stubborn:
    """Cannot be compared: what keeps it has to be compared by identity."""

    __hash__ = object.__hash__

    def __eq__(self, other):
        raise RuntimeError("compared")


def keyed_by_parameters(net):
    net.table = {net.fc.weight: torch.ones(5), net.fc.bias: "bias", Stubborn(): 1}


def keyed_in_order(net):
    net.table = OrderedDict([(net.fc.bias, 1), (net.fc.weight, 2)])


def set_of_parameters(net):
    net.names = {net.fc.weight, net.fc.bias, Stubborn()}


def list_of_parameters(net):
    net.history = [net.fc.weight, Stubborn(), np.ones(3), torch.ones(2, 2)]


def conjugate_buffer(net):
    net.register_buffer("odd", torch.randn(3, 4, dtype=torch.complex64).conj())


def negated_buffer(net):
    net.register_buffer("odd", torch.randn(3, 4, dtype=torch.complex128).conj().imag)


def complex_attribute(net):
    net.spare = torch.randn(6, dtype=torch.complex64).conj()[::2]


def expanded_buffer(net):
    net.register_buffer("odd", torch.ones(1).expand(5))


def transposed_buffer(net):
    net.register_buffer("odd", torch.arange(20.0).reshape(4, 5).t()[1:3])


def overlapping_buffers(net):
    memory = torch.arange(10.0)
    net.register_buffer("odd", memory[:7])
    net.register_buffer("odder", memory[3:], persistent=False)


def buffer_that_is_a_weight(net):
    net.register_buffer("odd", net.fc.weight.detach()[:2])


def not_a_number(net):
    net.register_buffer("odd", torch.tensor([float("nan"), -0.0, float("inf")]))


def narrow_buffers(net):
    net.register_buffer("odd", torch.ones(3, dtype=torch.bfloat16))
    net.register_buffer("odder", torch.ones(3).to(torch.float8_e4m3fn))
    net.register_buffer("flags", torch.tensor([True, False]))


def empty_and_scalar_buffers(net):
    net.register_buffer("odd", torch.zeros(0, 3))
    net.register_buffer("odder", torch.tensor(3))
    net.register_buffer("none", None)


def made_in_inference_mode(net):
    with torch.inference_mode():
        net.register_buffer("odd", torch.arange(4.0))


def tied_weights(net):
    net.twin = nn.Linear(4, CLASSES)
    net.twin.weight = net.fc.weight


def frozen_and_graded(net):
    net.fc.weight.requires_grad_(False)
    net.fc.bias.grad = torch.full((CLASSES,), 2.0)
    net.norm.weight.register_hook(lambda g: 2 * g)


def parametrised(net):
    nn.utils.parametrizations.weight_norm(net.norm)
    nn.utils.parametrizations.spectral_norm(net.fc)


def recurrent(net):
    net.rnn = nn.LSTM(4, 3)


def containers_of_modules(net):
    net.parts = nn.ModuleDict({"a": nn.ParameterList([nn.Parameter(torch.ones(2))]), "b": nn.ModuleList([nn.ReLU()])})


def one_module_twice(net):
    net.again = net.norm


def hooks_that_raise(net):
    def stop(*_):
        raise RuntimeError("hook")

    net.norm.register_forward_hook(stop)
    net.norm.register_full_backward_pre_hook(stop)


def scripted_part(net):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net.scripted = torch.jit.script(nn.BatchNorm1d(4))


def statistics_of_batches_only(net):
    net.plain = nn.BatchNorm1d(4, track_running_stats=False, momentum=None)


def cycle_of_containers(net):
    net.history = [net.__dict__, net]
    net.history.append(net.history)


ODD = (
    keyed_by_parameters,
    keyed_in_order,
    set_of_parameters,
    list_of_parameters,
    conjugate_buffer,
    negated_buffer,
    complex_attribute,
    expanded_buffer,
    transposed_buffer,
    overlapping_buffers,
    buffer_that_is_a_weight,
    not_a_number,
    narrow_buffers,
    empty_and_scalar_buffers,
    made_in_inference_mode,
    tied_weights,
    frozen_and_graded,
    parametrised,
    recurrent,
    containers_of_modules,
    one_module_twice,
    hooks_that_raise,
    scripted_part,
    statistics_of_batches_only,
    cycle_of_containers,
)


class Odd(nn.Module):
    """Changes all it can reach of itself, then fails in the way it is asked to."""

    def __init__(self, odd):
        super().__init__()
        self.norm, self.fc = nn.BatchNorm1d(4), nn.Linear(4, CLASSES)
        self.table, self.history, self.names, self.fails = {"kept": 1}, [], set(), None
        self.fc.weight.grad = torch.ones(CLASSES, 4)
        odd(self)

    def forward(self, x):
        z = nn.functional.linear(x, self.fc.weight, self.fc.bias)
        if self.fails is not None:
            self.disturb(x)
            if self.fails == "raises":
                raise KeyError("asked for")
            if self.fails == "stops":
                raise KeyboardInterrupt
        return (x, z) if self.fails == "two matrices" else z[:-1] if self.fails == "rows lost" else z

    def disturb(self, x):
        self.train()
        for kept in (self.table, self.names, self.history):
            kept.clear()
        self.table["new"] = x
        for module in list(self.modules()):
            if not isinstance(module, torch.jit.ScriptModule):
                module.fresh = x
                module.register_forward_hook(lambda *_: None)
        for b in self.buffers():
            b.data.zero_()
        for p in self.parameters():
            p.grad = torch.ones_like(p)
            p.requires_grad_(False)
        self.fc.bias = nn.Parameter(torch.zeros(CLASSES))
        self.norm.running_mean = None
        torch.rand(3)


def whole_state(net):
    """All values bit for bit, and the identity of all that modules, containers and parameters hold."""

    def values(t):
        t = t.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
        return t.reshape(-1).view(torch.uint8).tolist() if t.numel() else []

    tensors = dict([*net.named_parameters(), *net.named_buffers()])
    held = {n: {k: id(v) for k, v in m.__dict__.items()} for n, m in net.named_modules()}
    hooks = {n: {k: list(v) for k, v in m.__dict__.items() if "hooks" in k} for n, m in net.named_modules()}
    return {
        "values": {n: values(t) for n, t in tensors.items()},
        "identities": {n: id(t) for n, t in tensors.items()},
        "gradients": {
            n: (id(p.grad), p.requires_grad, len(p._backward_hooks or ())) for n, p in net.named_parameters()
        },
        "attributes": held,
        "order": {n: list(m.__dict__) for n, m in net.named_modules()},
        "hooks": hooks,
        "modes": {n: m.training for n, m in net.named_modules()},
        "containers": [
            [(id(k), id(v)) for k, v in net.table.items()],
            list(map(id, net.history)),
            sorted(map(id, net.names)),
        ],
        "random": torch.get_rng_state().tolist(),
    }


def test_there_are_twenty_odd_modules():
    assert len(ODD) > 20


@pytest.mark.parametrize("batchnorm", ["eval", "batch"])
@pytest.mark.parametrize("odd", ODD, ids=lambda odd: odd.__name__)
def test_odd_modules_are_bit_equal_after_every_failure(odd, batchnorm):
    net = seeded(Odd, odd).train()
    if batchnorm == "batch" and odd is scripted_part:
        with pytest.raises(GdscoreError, match="scripted"):
            extract(net, [torch.ones(8, 4)], batchnorm=batchnorm)
        return
    x = torch.rand(8, 4, generator=torch.Generator().manual_seed(0))
    before = whole_state(net)
    batches = [(x, torch.arange(8) % CLASSES)]

    def unchanged():
        net.fails = None
        after = whole_state(net)
        for part, value in before.items():
            assert after[part] == value, part

    for fails in (None, "nothing", "two matrices", "rows lost", "raises", "stops"):
        fine = contextlib.nullcontext()
        expected = {None: fine, "nothing": fine, "stops": pytest.raises(KeyboardInterrupt)}
        net.fails = fails
        with expected.get(fails, pytest.raises(GdscoreError)):
            list(extract(net, batches, head=False, batchnorm=batchnorm))
        unchanged()
    net.fails = "nothing"
    with pytest.raises(GdscoreError, match="head"):  # features × weights + bias are no layer's output
        list(extract(net, batches, batchnorm=batchnorm))
    unchanged()
    net.fails = "nothing"
    with pytest.raises(GdscoreError, match="8 rows"):
        models.estimator(net, batches, shifts=[lambda x: x[1:]], head=False)
    unchanged()


def test_a_part_that_cannot_be_put_back_does_not_stop_the_others():
    class Picky(nn.Module):
        locked = False

        @property
        def training(self):
            return self.__dict__["mode"]

        @training.setter
        def training(self, mode):
            if self.locked:
                raise RuntimeError("the mode is locked")
            self.__dict__["mode"] = mode

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.picky, self.inner = Picky(), Odd(lambda net: None)

        def forward(self, x):
            self.inner.fails = "disturbed"
            z = self.inner(x)
            self.picky.locked = True
            return z

    net = seeded(Both).train()
    before = whole_state(net.inner)
    with pytest.raises(RuntimeError, match="mode is locked"):
        list(extract(net, [torch.ones(8, 4)], head=False))
    assert whole_state(net.inner) == before
