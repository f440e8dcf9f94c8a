"""The paper's ablations of layers and epochs, its released protocol and joint training, against plain autograd."""

from __future__ import annotations

import copy
import math

import pytest

torch = pytest.importorskip("torch")
from sklearn.datasets import load_digits  # noqa: E402
from torch import nn  # noqa: E402

import gdscore  # noqa: E402
from benchmarks.paper.network_scores import adapted_copy, finetuned_scores, gradient_scores, joint_rotation_loss  # noqa: E402
from gdscore import Outputs, models  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")

GROUPS = {"stem": "stem", "stem10": "stem10", "head": "head", "last": "head.weight", "all": ""}


class Net(nn.Module):
    """Small CNN with BatchNorm, dropout, a frozen block and an auxiliary head that takes no part in the logits."""

    def __init__(self, dropout=0.4):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8))
        self.stem10 = nn.Conv2d(8, 12, 3, stride=2)
        self.drop = nn.Dropout(dropout)
        self.aux = nn.Linear(12, 10)
        self.head = nn.Linear(12, 10)
        self.stem.requires_grad_(False)

    def features(self, x):
        return self.drop(torch.relu(self.stem10(torch.relu(self.stem(x)))).amax((2, 3)))

    def forward(self, x):
        return self.head(self.features(x))


@pytest.fixture(scope="module")
def digits():
    data = load_digits()
    return torch.tensor(data.images[:300, None] / 16, dtype=torch.float32), torch.tensor(data.target[:300])


@pytest.fixture(scope="module")
def trained(digits):
    """A model that is right on about half of the digits, and sure of some of them."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = Net()
        optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.02)
        for _ in range(40):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(digits[0]), digits[1]).backward()
            optimizer.step()
    model.zero_grad()
    return model


@pytest.fixture
def net(trained):
    model = copy.deepcopy(trained).train()
    model.head.eval()
    model.head.weight.grad = torch.ones_like(model.head.weight)
    return model


def batches(digits, size=64):
    return list(zip(*(part.split(size) for part in digits), strict=True))


def extracted(model, loader):
    return Outputs.concatenate(list(models.extract(model, loader)))


def norms_by_hand(model, x, labels, groups, p, batch_size):
    """Row-weighted mean norm by plain autograd in float64."""
    model = copy.deepcopy(model).double().eval().requires_grad_(True)
    sums = dict.fromkeys(groups, 0.0)
    for start in range(0, len(x), batch_size):
        rows = slice(start, start + batch_size)
        model.zero_grad()
        nn.functional.cross_entropy(model(x[rows].double()), labels[rows]).backward()
        for name, prefix in groups.items():
            names = [n for n, q in model.named_parameters() if q.grad is not None]
            chosen = [n for n in names if not prefix or n == prefix or n.startswith(prefix + ".")]
            g = torch.cat([model.get_parameter(n).grad.flatten() for n in chosen])
            sums[name] += len(x[rows]) * float(torch.linalg.vector_norm(g, p))
    return {name: value / len(x) for name, value in sums.items()}


def mixed_labels(out, tau=0.5, seed=0):
    return torch.where(out.confidence > tau, out.predictions, out.random_labels(seed)).long()


@pytest.mark.parametrize(("p", "batch_size"), [(0.3, 128), (1, 50), (2, 300), (math.inf, 7)])
def test_groups_equal_plain_autograd(net, digits, p, batch_size):
    loader = batches(digits)
    expected = norms_by_hand(net, digits[0], mixed_labels(extracted(net, loader)), GROUPS, p, batch_size)
    found = gradient_scores(net, loader, {**GROUPS, "aux": "aux"}, p=p, batch_size=batch_size)
    assert found.pop("aux") == 0.0
    assert found == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("loader_batch", [37, 128])
@pytest.mark.parametrize("scale", [1, 40])
def test_last_layer_equals_the_score_from_outputs(net, digits, loader_batch, scale):
    """Also where the model is so sure that one minus the confidence has no digits in float32."""
    with torch.no_grad():
        net.head.weight *= scale
    loader = batches(digits, loader_batch)
    found = gradient_scores(net, loader, {"last": "head.weight"}, seed=5)
    expected = gdscore.score("gdscore", extracted(net, loader), seed=5)
    assert found["last"] == pytest.approx(expected, rel=1e-4)


def test_groups_of_several_parts(net, digits):
    loader = batches(digits)
    found = gradient_scores(net, loader, {"early": "stem", "both": ["stem", "stem10"], "one": "stem10.bias"})
    assert found["early"] == gradient_scores(net, loader, GROUPS)["stem"] < found["both"]
    with pytest.raises(ValueError, match="No parameters under"):
        gradient_scores(net, loader, {"early": "stem1"})


def state_of(model):
    return (
        {k: v.clone() for k, v in model.state_dict().items()},
        [m.training for m in model.modules()],
        [q.requires_grad for q in model.parameters()],
        [None if q.grad is None else q.grad.clone() for q in model.parameters()],
        torch.get_rng_state(),
    )


@pytest.mark.parametrize(
    "work",
    [
        lambda net, loader: gradient_scores(net, loader, GROUPS),
        lambda net, loader: finetuned_scores(net, loader, epochs=(0, 1), lr=0.1),
        lambda net, loader: adapted_copy(net, loader).state_dict()["stem.1.running_mean"].tolist(),
    ],
)
def test_the_model_and_the_random_state_stay(net, digits, work):
    before = state_of(net)
    assert work(net, batches(digits)) == work(net, batches(digits))
    for a, b in zip(before, state_of(net), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_no_epoch_is_gdscore(net, digits):
    loader = batches(digits, 37)
    found = finetuned_scores(net, loader, epochs=[0], seed=2)
    assert found == {0: pytest.approx(gdscore.score("gdscore", extracted(net, loader), seed=2), rel=1e-5)}


def test_epochs_equal_training_written_out(net, digits):
    x, _ = digits
    labels = mixed_labels(extracted(net, [x]))
    found = finetuned_scores(net, [(x,)], epochs=(2, 0, 1), lr=0.02, batch_size=100, p=1)
    assert list(found) == [0, 1, 2]

    model = copy.deepcopy(net).requires_grad_(True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for epoch in range(3):
            expected = norms_by_hand(model, x, labels, {"last": "head.weight"}, 1, 100)["last"]
            assert found[epoch] == pytest.approx(expected, rel=1e-4)
            model.train()
            for rows in torch.randperm(300, generator=generator).split(100):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x[rows]), labels[rows]).backward()
                optimizer.step()
    assert found[2] < found[0]
    assert finetuned_scores(net, [(x,)], epochs=[2], lr=0.02, batch_size=100, p=1) == {2: found[2]}


def released(model, loader, *, p=0.3, tau=0.5, seed=3):
    """The released algorithm: training mode, backward through the whole network, norm of the last layer's gradient."""
    model.train()
    norms = []
    for x, _ in loader:
        logits = model(x)
        labels = mixed_labels(Outputs(logits=logits.detach()), tau, seed)
        model.zero_grad()
        nn.functional.cross_entropy(logits, labels).backward()
        norms.append(model.head.weight.grad.abs().double().pow(p).sum().pow(1 / p).item())
    return sum(norms) / len(norms)


def test_batch_statistics_give_the_released_score_and_adapted_copy_its_model(trained, digits):
    model = copy.deepcopy(trained).requires_grad_(True)
    model.drop.p = 0.0
    loader = batches((2 * digits[0][:256] + 0.3, digits[1][:256]), 128)
    outputs = list(models.extract(model, loader, batchnorm="batch"))
    assert 0.1 < (Outputs.concatenate(outputs).confidence > 0.5).double().mean() < 0.9
    twin = copy.deepcopy(model)
    assert gdscore.score("gdscore", outputs, seed=3) == pytest.approx(released(twin, loader), rel=1e-4)
    adapted = adapted_copy(model, loader).state_dict()
    for name, value in twin.state_dict().items():
        assert torch.equal(adapted[name], value), name
    assert not torch.equal(adapted["stem.1.running_mean"], model.stem[1].running_mean)


@pytest.mark.parametrize("train", [True, False])
def test_adapted_copies_keep_the_modes_and_dropout_off(net, digits, train):
    net.train(train)
    first, second = (adapted_copy(net, batches(digits)) for _ in range(2))
    assert {m.training for m in first.modules()} == {train}
    assert torch.equal(first.stem[1].running_var, second.stem[1].running_var)
    with pytest.raises(ValueError, match="BatchNorm statistics"):
        adapted_copy(nn.Linear(2, 2), [(torch.zeros(1, 2),)])


def test_joint_loss_is_the_cross_entropy_of_turned_images(net, digits):
    x, head = digits[0][:50], models.RotationHead(12)
    net.eval()
    loss = joint_rotation_loss(net.features, head, x, torch.Generator().manual_seed(4))
    shown = torch.randint(4, (50,), generator=torch.Generator().manual_seed(4))
    turned = torch.stack([torch.rot90(image, int(r), (1, 2)) for image, r in zip(x, shown, strict=True)])
    torch.testing.assert_close(loss, nn.functional.cross_entropy(head(net.features(turned)), shown))


def test_joint_training_learns(digits):
    x = digits[0]

    def error():
        return gdscore.score("rotation", extract_rotations(model, head, x))

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model, head = Net(dropout=0.0), models.RotationHead(12)
        before = error()
        optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=0.02)
        generator = torch.Generator().manual_seed(0)
        for _ in range(80):
            optimizer.zero_grad()
            joint_rotation_loss(model.features, head, x, generator).backward()
            optimizer.step()
    assert error() < 0.45 < 0.6 < before


def extract_rotations(model, head, x):
    return next(models.extract(model, [x], rotation_head=head))
