from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from gdscore import GdscoreError
from gdscore.models import projnorm
from gdscore.models._inputs import collected


class Net(nn.Module):
    """Small network with everything that has a state: BatchNorm, dropout, a frozen layer."""

    def __init__(self, dropout: float = 0.3):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.drop = nn.Dropout(dropout)
        self.fc = nn.Linear(6, 3)
        self.conv.weight.requires_grad_(False)

    def forward(self, x):
        return self.fc(self.drop(torch.relu(self.norm(self.conv(x))).mean((2, 3))))


def rows(n: int, seed: int, shift: float = 0.0):
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(3, (n,), generator=generator)
    x = torch.randn(n, 1, 8, 8, generator=generator) + y[:, None, None, None] + shift
    return x, y


@pytest.fixture
def net():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = Net()
    model.train()
    model.fc.eval()
    model.norm.running_mean.fill_(0.1)
    model.fc.weight.grad = torch.ones_like(model.fc.weight)
    return model


REFERENCE, TARGET = rows(70, 0), rows(45, 1, shift=1.0)
OPTIONS = {"steps": 7, "lr": 0.05, "batch_size": 16}


def test_rows_of_a_loader_that_reuses_its_memory():
    def reusing():
        memory = torch.empty_like(REFERENCE[0][:10]), torch.empty_like(REFERENCE[1][:10])
        for start in range(0, 70, 10):
            for part, whole in zip(memory, REFERENCE, strict=True):
                part.copy_(whole[start : start + 10])
            yield memory

    collected_rows = collected(reusing(), 0, torch.device("cpu"), labelled=True, name="val_loader")
    assert torch.equal(collected_rows.inputs, REFERENCE[0])
    assert torch.equal(collected_rows.labels, REFERENCE[1])


def by_hand(start: nn.Module, x, y, steps, lr, batch_size, seed=0, momentum=0.9):
    """Train by the published recipe, written out: heavy-ball SGD, cosine, training mode, all parameters."""
    model = copy.deepcopy(start).train()
    parameters = [p.requires_grad_(True) for p in model.parameters()]
    velocity = [torch.zeros_like(p) for p in parameters]
    generator = torch.Generator().manual_seed(seed)
    batches = []
    while len(batches) < steps:
        order = torch.randperm(len(x), generator=generator)
        batches += [order[i : i + batch_size] for i in range(0, len(x) - batch_size + 1, batch_size)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for t, index in enumerate(batches[:steps]):
            loss = nn.functional.cross_entropy(model(x[index]), y[index])
            gradients = torch.autograd.grad(loss, parameters)
            rate = lr * (1 + math.cos(math.pi * t / steps)) / 2
            with torch.no_grad():
                for p, v, g in zip(parameters, velocity, gradients, strict=True):
                    v.mul_(momentum).add_(g)
                    p.sub_(rate * v)
    return torch.cat([p.detach().flatten() for p in parameters])


def pseudo(model, x):
    with torch.no_grad():
        return copy.deepcopy(model).eval()(x).argmax(1)


def test_equals_the_recipe_written_out(net):
    reference = by_hand(net, *REFERENCE, **OPTIONS)
    tuned = by_hand(net, TARGET[0], pseudo(net, TARGET[0]), **OPTIONS)
    value = projnorm(net, [TARGET[0]], [REFERENCE], **OPTIONS)
    assert value == pytest.approx(float((reference - tuned).norm()), rel=1e-4)
    assert value > 0.01


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_trained_in_full(net, dtype):
    """Steps that half precision rounds away count: the distance is that of the same weights in full precision."""
    half, full = copy.deepcopy(net).to(dtype), copy.deepcopy(net).to(dtype).float()
    x, options = TARGET[0].to(dtype), OPTIONS | {"start": "model", "lr": 0.001}
    found, expected = projnorm(half, [x], **options), projnorm(full, [x.float()], **options)
    assert found == pytest.approx(expected, rel=1e-3)


def test_start_model_measures_from_the_model_itself(net):
    start = torch.cat([p.detach().flatten() for p in net.parameters()])
    tuned = by_hand(net, TARGET[0], pseudo(net, TARGET[0]), **OPTIONS)
    value = projnorm(net, [TARGET], start="model", **OPTIONS)
    assert value == pytest.approx(float((start - tuned).norm()), rel=1e-4)


def test_init_is_one_start_for_both(net):
    made = []

    def init():
        made.append(Net())
        return made[-1]

    value = projnorm(net, [TARGET[0]], [REFERENCE], init=init, **OPTIONS)
    assert len(made) == 1
    reference = by_hand(made[0], *REFERENCE, **OPTIONS)
    tuned = by_hand(made[0], TARGET[0], pseudo(net, TARGET[0]), **OPTIONS)
    assert value == pytest.approx(float((reference - tuned).norm()), rel=1e-4)
    assert projnorm(net, [TARGET[0]], [REFERENCE], init=Net, **OPTIONS) == value


def test_equal_data_give_zero(net):
    x = REFERENCE[0]
    assert projnorm(net, [x], [(x, pseudo(net, x))], **OPTIONS) == 0.0


def test_seed_decides_and_the_loader_does_not(net):
    first = projnorm(net, [TARGET[0]], [REFERENCE], **OPTIONS)
    reference, target = TensorDataset(*REFERENCE), TensorDataset(*TARGET)
    again = projnorm(net, DataLoader(target, 9), (b for b in DataLoader(reference, 32)), **OPTIONS)
    assert again == first
    assert projnorm(net, [TARGET[0]], [REFERENCE], seed=1, **OPTIONS) != first
    shuffling = [projnorm(net, DataLoader(target, 9, shuffle=True), [REFERENCE], **OPTIONS) for _ in range(2)]
    assert shuffling[0] == shuffling[1]


def test_dicts_and_picked_logits(net):
    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = copy.deepcopy(net)

        def forward(self, pixels, scale=1.0):
            return {"score": self.net(pixels * scale), "other": pixels}

    target = [{"pixels": part, "scale": 1.0} for part in TARGET[0].split(20)]
    reference = [{"pixels": REFERENCE[0], "scale": 1.0, "labels": REFERENCE[1]}]
    value = projnorm(Wrapped(), target, reference, logits="score", **OPTIONS)
    assert value == projnorm(net, [TARGET[0]], [REFERENCE], **OPTIONS)


def frozen_state(model):
    return (
        {k: v.clone() for k, v in model.state_dict().items()},
        [m.training for m in model.modules()],
        [p.requires_grad for p in model.parameters()],
        [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        torch.get_rng_state(),
    )


def assert_same_state(before, after):
    for a, b in zip(before, after, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_the_model_and_the_random_state_stay(net):
    before = frozen_state(net)
    projnorm(net, DataLoader(TensorDataset(*TARGET), 9, shuffle=True), [REFERENCE], init=Net, **OPTIONS)
    with torch.inference_mode():
        projnorm(net, [TARGET], start="model", **OPTIONS)
    assert_same_state(before, frozen_state(net))

    def breaks():
        yield TARGET
        raise OSError("disk gone")

    with pytest.raises(OSError, match="disk gone"):
        projnorm(net, breaks(), [REFERENCE], **OPTIONS)
    with pytest.raises(OSError, match="disk gone"):
        projnorm(net, [TARGET], breaks(), **OPTIONS)
    assert_same_state(before, frozen_state(net))


def test_fewer_rows_than_a_batch(net):
    assert projnorm(net, [TARGET[0][:5]], [REFERENCE], **OPTIONS) > 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"steps": 0}, "`steps` to be an integer of at least 1, but got 0"),
        ({"lr": 0}, "`lr`"),
        ({"momentum": 2}, "`momentum`"),
        ({"batch_size": 1.5}, "`batch_size`"),
        ({"start": "modle"}, "did you mean 'model'"),
        ({"val_loader": None}, "needs `val_loader`"),
        ({"val_loader": [REFERENCE[0]]}, "labelled batches .x, y. from `val_loader`"),
        ({"val_loader": [(REFERENCE[0], REFERENCE[1] + 0.5)]}, "labels to be classes"),
        ({"val_loader": [(REFERENCE[0], REFERENCE[1] + 1)]}, r"labels 0 … 2, but row \d+ has label 3"),
        ({"val_loader": []}, "`val_loader` to yield rows"),
        ({"val_loader": [(torch.zeros(4, 2, 8, 8), torch.zeros(4, dtype=int))]}, "to take the loader's batches"),
        ({"target_loader": TARGET[0]}, "a single Tensor"),
        ({"target_loader": []}, "yielded none"),
        ({"target_loader": [TARGET[0][:0]]}, "yielded none"),
        (
            {"target_loader": [TARGET[0] * float("nan")]},
            "finite logits, but the model gives NaN or Inf in row 0 of `target_loader`",
        ),
        ({"val_loader": [(REFERENCE[0] * float("nan"), REFERENCE[1])]}, "in row 0 of `val_loader`"),
        ({"val_loader": [(REFERENCE[0], torch.eye(3)[REFERENCE[1]])]}, r"argmax\(1\)$"),
        ({"device": "meta"}, "its parameters are on cpu"),
        ({"device": "gpu"}, "`device` to be a torch device, but got 'gpu'"),
        ({"target_loader": [TARGET[0], torch.zeros(2, 1, 9, 9)]}, "inputs of one shape"),
        ({"target_loader": [{"x": TARGET[0]}, {"z": TARGET[0]}]}, "every batch to have 'x'"),
        ({"init": nn.Linear(1, 1)}, "`init` to be a function"),
        ({"init": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 5))}, "a network of 3 classes, but it has 5"),
        ({"start": "model"}, "reads no reference"),
        ({"lr": 1e30, "momentum": 0.0}, "diverged"),
    ],
)
def test_bad_input_is_told(net, change, words):
    arguments = {"target_loader": [TARGET[0]], "val_loader": [REFERENCE], **OPTIONS, **change}
    with pytest.raises(GdscoreError, match=words):
        projnorm(net, **arguments)


def test_models_that_cannot_be_used():
    with pytest.raises(GdscoreError, match="has none"):
        projnorm(nn.Flatten(), [TARGET[0]], [REFERENCE])
    with pytest.raises(GdscoreError, match="load_state_dict"):
        projnorm(Net().state_dict(), [TARGET[0]], [REFERENCE])
    net = Net()
    net.kept = net(REFERENCE[0][:2])
    with pytest.raises(GdscoreError, match="deepcopy"):
        projnorm(net, [TARGET[0]], [REFERENCE])


@pytest.mark.parametrize("size", [1, 7, 45, 100])
@pytest.mark.parametrize("form", ["tensor", "dict", "tuple"])
def test_rows_are_collected_in_order(size, form):
    x, y = TARGET
    wrap = {"tensor": lambda x: x, "dict": lambda x: {"x": x, "scale": 2.0}, "tuple": lambda x: (x, x[:, 0])}[form]
    rows = collected(
        [(wrap(a), b) for a, b in zip(x.split(size), y.split(size), strict=True)],
        0,
        x.device,
        labelled=True,
        name="val_loader",
    )
    assert len(rows) == len(x)
    torch.testing.assert_close(rows.inputs, wrap(x), rtol=0, atol=0)
    assert torch.equal(rows.labels, y)
    picked = rows[torch.tensor([3, 1])]
    torch.testing.assert_close(picked.inputs, wrap(x[[3, 1]]), rtol=0, atol=0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu(net):
    net.drop.p = 0.0
    before, state = torch.cuda.get_rng_state(), frozen_state(net)
    value = projnorm(net, [TARGET[0]], [REFERENCE], device="cuda", **OPTIONS)
    assert value == pytest.approx(projnorm(net, [TARGET[0]], [REFERENCE], **OPTIONS), rel=0.02)
    assert_same_state(state, frozen_state(net))
    assert torch.equal(torch.cuda.get_rng_state(), before)
