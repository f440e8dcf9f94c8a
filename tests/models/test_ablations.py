from __future__ import annotations

import copy
import math

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import gdscore
from gdscore import GdscoreError
from gdscore.models import finetuned_scores, gradient_scores
from gdscore.models.extract import extract
from gdscore.outputs import Outputs


class Net(nn.Module):
    """Small CNN with BatchNorm, dropout, a frozen block and an auxiliary head that takes no part in the logits."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8))
        self.stem10 = nn.Conv2d(8, 12, 3, stride=2)
        self.drop = nn.Dropout(0.4)
        self.aux = nn.Linear(12, 10)
        self.last = nn.Linear(12, 10)
        self.stem.requires_grad_(False)

    def forward(self, x):
        x = torch.relu(self.stem10(torch.relu(self.stem(x)))).amax((2, 3))
        return self.last(self.drop(x))


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
        optimiser = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.02)
        for _ in range(40):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(digits[0]), digits[1]).backward()
            optimiser.step()
    model.zero_grad()
    return model


@pytest.fixture
def net(trained):
    model = copy.deepcopy(trained).train()
    model.last.eval()
    model.last.weight.grad = torch.ones_like(model.last.weight)
    return model


def extracted(model, x, y=None, batch=64):
    return Outputs.concatenate(list(extract(model, DataLoader(TensorDataset(*([x] if y is None else [x, y])), batch))))


def norms_by_hand(model, x, labels, groups, p, batch_size):
    """Row-weighted mean norm by plain autograd in float64."""
    model = copy.deepcopy(model).double().eval().requires_grad_(True)
    sums = dict.fromkeys(groups, 0.0)
    for start in range(0, len(x), batch_size):
        rows = slice(start, start + batch_size)
        model.zero_grad()
        nn.functional.cross_entropy(model(x[rows].double()), labels[rows]).backward()
        for name, parameters in groups.items():
            g = torch.cat(
                [q.grad.flatten() for n, q in model.named_parameters() if parameters(n) and q.grad is not None]
            )
            sums[name] += len(x[rows]) * float(torch.linalg.vector_norm(g, p))
    return {name: value / len(x) for name, value in sums.items()}


def mixed_labels(out, tau=0.5, seed=0):
    return torch.where(out.confidence > tau, out.predictions, out.random_labels(seed))


@pytest.mark.parametrize(("p", "batch_size"), [(0.3, 128), (1, 50), (2, 300), (math.inf, 7)])
def test_groups_equal_plain_autograd(net, digits, p, batch_size):
    x, _ = digits
    labels = mixed_labels(extracted(net, x))
    groups = {
        "stem": lambda n: n.startswith("stem."),
        "stem10": lambda n: n.startswith("stem10."),
        "last.": lambda n: n.startswith("last."),
        "last": lambda n: n == "last.weight",
        "all": lambda n: True,
    }
    expected = norms_by_hand(net, x, labels, groups, p, batch_size)
    found = gradient_scores(net, DataLoader(TensorDataset(x), 64), p=p, batch_size=batch_size)
    assert list(found) == ["stem", "stem10", "aux", "last.", "last", "all"]
    assert found.pop("aux") == 0.0
    assert found == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("label_rule", ["mixed", "pseudo", "random", "uniform", "true", "expected"])
@pytest.mark.parametrize("loader_batch", [37, 128])
def test_last_layer_equals_the_score_from_arrays(net, digits, label_rule, loader_batch):
    x, y = digits
    options = {"label_rule": label_rule, "seed": 5, "tau": 0.6}
    out = extracted(net, x, y, loader_batch)
    found = gradient_scores(net, DataLoader(TensorDataset(x, y), loader_batch), head=net.last, **options)
    assert found["last"] == pytest.approx(gdscore.score("gdscore", out, **options), rel=1e-4)


def test_last_layer_keeps_its_digits_on_a_sure_model(net, digits):
    with torch.no_grad():
        net.last.weight *= 40
    x, _ = digits
    found = gradient_scores(net, [x], label_rule="pseudo")
    assert found["last"] == pytest.approx(gdscore.score("gdscore", extracted(net, x), label_rule="pseudo"), rel=1e-4)


def test_chosen_groups(net, digits):
    x, _ = digits
    default = gradient_scores(net, [x])
    groups = {"early": "stem", "both": ["stem", "stem10."], "one": "stem10.bias", "net": ""}
    found = gradient_scores(net, [x], groups=groups)
    assert list(found) == list(groups)
    assert found["early"] == pytest.approx(default["stem"])
    assert found["net"] == pytest.approx(default["all"])
    assert found["early"] < found["both"] < found["net"]
    assert "last" not in gradient_scores(net, [x], head=False)


def test_shared_parameters_count_once(digits):
    x = digits[0].flatten(1)[:, :10]
    first = nn.Linear(10, 10, bias=False)
    model = nn.Sequential(first, nn.ReLU(), first)
    found = gradient_scores(model, [x], groups={"a": "0", "b": "2", "all": ""})
    assert found["a"] == found["b"] == found["all"]


def test_single_logit_and_half_precision(digits):
    x = digits[0].flatten(1)
    model = nn.Sequential(nn.Linear(64, 5), nn.Tanh(), nn.Linear(5, 1))
    assert gradient_scores(model, [x])["all"] > 0
    exact = nn.Sequential(nn.Linear(64, 5), nn.Tanh(), nn.Linear(5, 3))
    half = copy.deepcopy(exact).bfloat16()
    wanted = gradient_scores(exact, [x], label_rule="uniform", p=2)
    assert gradient_scores(half, [x], label_rule="uniform", p=2) == pytest.approx(wanted, rel=0.05)


def state_of(model):
    return (
        {k: v.clone() for k, v in model.state_dict().items()},
        [m.training for m in model.modules()],
        [q.requires_grad for q in model.parameters()],
        [None if q.grad is None else q.grad.clone() for q in model.parameters()],
        torch.get_rng_state(),
    )


@pytest.mark.parametrize("function", [gradient_scores, finetuned_scores])
def test_the_model_and_the_random_state_stay(net, digits, function):
    options = {"epochs": (0, 1), "lr": 0.1} if function is finetuned_scores else {}
    before = state_of(net)
    loader = DataLoader(TensorDataset(*digits), 64, shuffle=True)
    first = function(net, loader, **options)
    with torch.inference_mode():
        assert function(net, loader, **options) == first

    def breaks():
        yield digits
        raise OSError("disk gone")

    with pytest.raises(OSError, match="disk gone"):
        function(net, breaks(), **options)
    for a, b in zip(before, state_of(net), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_no_epoch_is_gdscore_itself(net, digits):
    x, y = digits
    for label_rule in ("mixed", "true"):
        found = finetuned_scores(net, DataLoader(TensorDataset(x, y), 37), epochs=[0], label_rule=label_rule, seed=2)
        out = extracted(net, x, y, 37)
        assert found == {0: pytest.approx(gdscore.score("gdscore", out, label_rule=label_rule, seed=2), rel=1e-5)}


def test_epochs_equal_training_written_out(net, digits):
    x, _ = digits
    labels = mixed_labels(extracted(net, x))
    found = finetuned_scores(net, [x], epochs=(2, 0, 1), lr=0.02, batch_size=100, p=1)
    assert list(found) == [0, 1, 2]

    model = copy.deepcopy(net).requires_grad_(True)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    generator = torch.Generator().manual_seed(0)
    last = {"last": lambda n: n == "last.weight"}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for epoch in range(3):
            assert found[epoch] == pytest.approx(norms_by_hand(model, x, labels, last, 1, 100)["last"], rel=1e-4)
            model.train()
            for rows in torch.randperm(300, generator=generator).split(100):
                optimiser.zero_grad()
                nn.functional.cross_entropy(model(x[rows]), labels[rows]).backward()
                optimiser.step()
    assert found[2] < found[0]


def test_epochs_do_not_depend_on_what_else_is_asked(net, digits):
    options = {"lr": 0.02, "head": "last", "seed": 1}
    assert finetuned_scores(net, [digits[0]], epochs=[2], **options) == {
        2: finetuned_scores(net, [digits[0]], epochs=range(4), **options)[2]
    }


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"groups": {"early": "stm10"}}, "under 'stm10' for the group 'early': did you mean 'stem10'"),
        ({"groups": {"early": ["stem", "stem1"]}}, "under 'stem1'"),
        ({"groups": {"early": []}}, "'early' to name parameters"),
        ({"groups": {}}, "`groups` to map names"),
        ({"groups": ["stem"]}, "`groups` to map names"),
        ({"head": "lst"}, "did you mean 'last'"),
        ({"label_rule": "pseud"}, "did you mean 'pseudo'"),
        ({"batch_size": None}, "`batch_size` to be an integer"),
        ({"loader": []}, "yielded none"),
        ({"loader": 3}, "to be an iterable of batches"),
        ({"label_rule": "true"}, "to yield labels"),
        ({"label_rule": "true", "loader": [(torch.zeros(2, 1, 8, 8), torch.tensor([0, 10]))]}, "row 1 has label 10"),
        ({"p": 0.004}, "overflows"),
    ],
)
def test_bad_input_is_told(net, digits, change, words):
    with pytest.raises(GdscoreError, match=words):
        gradient_scores(net, **{"loader": [digits[0]], **change})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epochs": []}, "it is empty"),
        ({"epochs": [-1]}, "at least 0"),
        ({"label_rule": "uniform"}, "Unknown `label_rule`"),
        ({"loader": []}, "yielded none"),
        ({"label_rule": "true"}, "to yield labels"),
        ({"lr": 0}, "`lr`"),
    ],
)
def test_bad_input_of_finetuning_is_told(net, digits, change, words):
    with pytest.raises(GdscoreError, match=words):
        finetuned_scores(net, **{"loader": [digits[0]], **change})


def test_few_rows_are_warned_of(net, digits):
    with pytest.warns(gdscore.GdscoreWarning, match="50 rows do not fill one mini-batch of 128"):
        gradient_scores(net, [digits[0][:50]])


def test_logits_without_a_graph_are_told(digits):
    class Detached(nn.Linear):
        def forward(self, x):
            return super().forward(x).detach()

    with pytest.raises(GdscoreError, match="can be differentiated"):
        gradient_scores(Detached(64, 3), [digits[0].flatten(1)])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu(net, digits):
    loader = DataLoader(TensorDataset(digits[0]), 64)
    options = {"label_rule": "pseudo", "p": 1}
    here, there = (gradient_scores(net, loader, device=device, **options) for device in ("cpu", "cuda"))
    assert there == pytest.approx(here, rel=0.02)
    tuned = finetuned_scores(net, loader, epochs=(0, 1), device="cuda", **options)
    assert tuned[0] == pytest.approx(here["last"], rel=0.02)
