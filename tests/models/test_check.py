"""`models.check`: agreement with a check network adapted to the target, on small networks and digits."""

from __future__ import annotations

import copy
import math
import random
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

import gdscore
from gdscore import AccuracyEstimator, GdscoreError, GdscoreWarning, Outputs, models
from gdscore.models import Agreement
from gdscore.models._adaptation import ADAPTATION, Adaptation, Images, strong_augmentation, weak_augmentation
from gdscore.models._agreement import combine
from gdscore.models._inputs import ImageForm

pytestmark = pytest.mark.usefixtures("one_thread")
CPU = torch.device("cpu")


class Net(nn.Module):
    """Two convolutions; a BatchNorm, LayerNorm or GroupNorm after each."""

    def __init__(self, norm=nn.BatchNorm2d, classes=10, width=16):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            norm(width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            norm(2 * width),
            nn.ReLU(),
            nn.Dropout(0.1),
        )
        self.head = nn.Linear(2 * width * 16, classes)

    def forward(self, x):
        return self.head(self.body(x).flatten(1))


def fresh(*args, **options):
    """A network with the same weights each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Net(*args, **options)


def layer_norm(channels):
    return nn.GroupNorm(1, channels)


def group_norm(channels):
    return nn.GroupNorm(4, channels)


def trained(x, y, norm=nn.BatchNorm2d, steps=150):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Net(norm)
        optimiser = torch.optim.Adam(model.parameters(), 3e-3)
        for _ in range(steps):
            rows = torch.randint(len(y), (64,))
            loss = functional.cross_entropy(model(x[rows]), y[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return model.eval()


def turned(x, degrees):
    angle = torch.full((len(x),), math.radians(degrees))
    zero = torch.zeros_like(angle)
    first = torch.stack([angle.cos(), -angle.sin(), zero], 1)
    theta = torch.stack([first, torch.stack([angle.sin(), angle.cos(), zero], 1)], 1)
    grid = functional.affine_grid(theta, list(x.shape), align_corners=False)
    return functional.grid_sample(x, grid, align_corners=False).clamp(0, 1)


@pytest.fixture(scope="module")
def digits():
    """Digits as images: rows to train on, reference, and target rows turned by 25°."""
    found = load_digits()
    order = np.random.default_rng(0).permutation(len(found.target))
    x = torch.from_numpy(found.images[order] / 16).float()[:, None]
    y = torch.from_numpy(found.target[order]).long()
    return (x[:800], y[:800]), (x[800:1200], y[800:1200]), (turned(x[1200:], 25), y[1200:])


@pytest.fixture(scope="module")
def model(digits):
    return trained(*digits[0])


@pytest.fixture(scope="module")
def est(model, digits):
    reference = gdscore.Outputs.concatenate([p.to_numpy() for p in models.extract(model, [digits[1]])])
    return AccuracyEstimator().fit(reference)


@pytest.fixture(scope="module")
def checked(model, digits, est):
    train, reference, target = digits
    return models.check(
        model, [train], [target[0]], est=est, val_loader=[reference], calibration=(), steps=200, progress=False
    )


QUICK = {"steps": 4, "batch_size": 16, "progress": False, "calibration": ()}


def test_agreement_beats_confidence_on_turned_digits(model, digits, checked):
    x, y = digits[2]
    outputs = Outputs.concatenate([p.to_numpy() for p in models.extract(model, [x])])
    truth = float((outputs.predictions == y.numpy()).mean())
    assert truth < 0.75
    confidence = float(outputs.confidence.mean())
    assert abs(checked.agreement.agreement - truth) < 0.5 * abs(confidence - truth)
    after = float((checked.probabilities.argmax(1) == y.numpy()).mean())
    assert after > truth + 0.08


def test_rows_have_the_mean_of_the_estimate(digits, checked):
    e = checked.estimate
    assert checked.right.shape == (len(digits[2][1]),)
    assert ((checked.right >= 0) & (checked.right <= 1)).all()
    assert checked.right.mean() == pytest.approx(e.accuracy, abs=1e-9)
    assert e.method == "check"
    assert e.low <= e.accuracy <= e.high
    assert sum(c.predicted for c in e.per_class) == pytest.approx(1)
    assert sum(c.share for c in e.per_class) == pytest.approx(1, abs=1e-6)
    assert sum(c.predicted * c.precision.value for c in e.per_class) == pytest.approx(e.accuracy, abs=1e-6)
    assert gdscore.Estimate(**vars(e)).to_dict()["method"] == "check"


def test_same_seed_same_answer_whatever_the_batch_size_of_the_loader(model, digits, est):
    train, _, (x, _) = digits
    options = {"est": est, "val_loader": [digits[1]], **QUICK}
    first = models.check(model, [train], [x[:90]], **options)
    second = models.check(
        model, zip(train[0].split(100), train[1].split(100), strict=True), x[:90].split(17), **options
    )
    assert np.array_equal(first.right, second.right)
    other = models.check(model, [train], [x[:90]], seed=1, **options)
    assert not np.array_equal(first.probabilities, other.probabilities)


@pytest.mark.parametrize("norm", [layer_norm, group_norm])
def test_networks_without_batchnorm(digits, norm):
    train, reference, (x, _) = digits
    model = trained(*train, norm=norm, steps=20)
    c = models.check(model, [train], [x[:80]], val_loader=[reference], est=None, **QUICK)
    assert np.isfinite(c.right).all()
    assert c.est.reference_rows_ == len(reference[1])


class Viewed(Net):
    """Behind a convolution, `view` fails where channels are last in memory."""

    def forward(self, x):
        return self.head(self.body(x).view(len(x), -1))


def test_networks_that_need_the_usual_layout(model, digits, est):
    train, reference, (x, _) = digits
    viewed = Viewed().eval()
    viewed.load_state_dict(model.state_dict())
    with pytest.raises(RuntimeError, match="view size"):
        copy.deepcopy(viewed).to(memory_format=torch.channels_last)(x[:2])
    found = [models.check(m, [train], [x], est=est, val_loader=[reference], **QUICK) for m in (viewed, model)]
    # Dropout draws in the order of the memory.
    assert found[0].agreement.agreement == pytest.approx(found[1].agreement.agreement, abs=0.01)
    assert found[0].network(x[:2]).shape == (2, 10)


def everything_of(model):
    state = {key: value.clone() for key, value in model.state_dict().items()}
    return state, [m.training for m in model.modules()], [p.requires_grad for p in model.parameters()]


def random_states():
    return torch.get_rng_state().numpy().tobytes(), repr(np.random.get_state()), repr(random.getstate())  # noqa: NPY002


class Broken:
    """Batches, and then an exception."""

    def __init__(self, batch, error):
        self.batch, self.error = batch, error

    def __iter__(self):
        yield self.batch
        torch.rand(3)
        np.random.rand(3)  # noqa: NPY002
        raise self.error


@pytest.mark.parametrize("where", ["loader", "interrupt", "memory", "nothing"])
def test_nothing_is_changed_whatever_happens(model, digits, est, where, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    train, reference, (x, _) = digits
    model.head.weight.grad = torch.ones_like(model.head.weight)
    model.train()
    model.body[1].eval()
    before, states = copy.deepcopy(everything_of(model)), random_states()
    target = [x[:40]]
    raised: type[BaseException] | None = None
    if where == "loader":
        target, raised = Broken(x[:40], OSError("disk")), OSError
    elif where == "interrupt":
        steps = iter(range(3))
        work = Adaptation._work

        def interrupted(self):
            if next(steps, None) is None:
                raise KeyboardInterrupt
            work(self)

        monkeypatch.setattr(Adaptation, "_work", interrupted)
        raised = KeyboardInterrupt
    elif where == "memory":

        def full(self):
            raise torch.OutOfMemoryError("CUDA out of memory")

        monkeypatch.setattr(Adaptation, "_work", full)
        raised = GdscoreError
    options = {"est": est, "val_loader": [reference], **QUICK}
    if raised is None:
        models.check(model, [train], target, **options)
    else:
        with pytest.raises(raised) as caught:
            models.check(model, [train], target, **options)
        if where == "memory":
            assert "batch_size=8" in str(caught.value)
    after = everything_of(model)
    assert all(torch.equal(before[0][key], after[0][key]) for key in before[0])
    assert before[1:] == after[1:]
    assert torch.equal(model.head.weight.grad, torch.ones_like(model.head.weight))
    assert random_states() == states
    assert not list(tmp_path.iterdir())
    model.eval()
    model.zero_grad()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_on_cuda_nothing_is_changed_and_agreement_beats_confidence(digits, est, monkeypatch, recorded, autocast):
    train, reference, (x, y) = digits
    model = trained(*train).cuda()
    replayed = []
    if recorded:
        replay = torch.cuda.CUDAGraph.replay
        monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", lambda g: replayed.append(1) or replay(g))
    else:
        monkeypatch.setattr(Adaptation, "_record", lambda self: None)
    before, states = copy.deepcopy(everything_of(model)), (*random_states(), torch.cuda.get_rng_state().tolist())
    options = {"est": est, "val_loader": [reference], "calibration": (), "progress": False, "autocast": autocast}
    c = models.check(model, [train], [x], steps=200, **options)
    truth = float((model(x.cuda()).argmax(1).cpu() == y).double().mean())
    assert bool(replayed) == recorded
    assert c.network is not None
    assert next(c.network.parameters()).is_cuda
    assert abs(c.agreement.agreement - truth) < 0.12
    assert float((c.probabilities.argmax(1) == y.numpy()).mean()) > truth + 0.05
    after = everything_of(model)
    assert all(torch.equal(before[0][key], after[0][key]) for key in before[0])
    assert before[1:] == after[1:]
    assert (*random_states(), torch.cuda.get_rng_state().tolist()) == states


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_out_of_memory_on_cuda_names_a_batch_size(digits, est, monkeypatch):
    train, reference, (x, _) = digits
    model = trained(*train, steps=5).cuda()

    def greedy(self):
        torch.empty(2**60, dtype=torch.uint8, device="cuda")

    monkeypatch.setattr(Adaptation, "_work", greedy)
    with pytest.raises(GdscoreError, match="batch_size=8"):
        models.check(model, [train], [x[:40]], est=est, val_loader=[reference], **QUICK)


def test_calibration_and_network_are_used_again(model, digits, est):
    train, reference, (x, _) = digits
    options = {"est": est, "val_loader": [reference], **QUICK}
    first = models.check(model, [train], [x[:60]], **options | {"calibration": None})
    families = [a.family for a in first.calibration]
    assert families == ["snow", "elastic_transform", "glass_blur", "frost"]
    assert all(a.accuracy is not None and 0 <= a.agreement <= 1 for a in first.calibration)
    before = copy.deepcopy(first.network.state_dict())
    second = models.check(
        model, [train], [x[60:120]], **options | {"calibration": first.calibration, "network": first.network}
    )
    assert second.calibration == first.calibration
    assert all(torch.equal(before[key], value) for key, value in first.network.state_dict().items())
    assert not second.network.training
    assert all(p.grad is None for p in second.network.parameters())


def test_labelled_rows_are_split_where_there_is_no_reference(model, digits):
    train, _, (x, _) = digits
    c = models.check(model, [train], [x[:60]], **QUICK)
    assert c.est.reference_rows_ == 240


def test_expected_time_is_told(model, digits, est, capsys, monkeypatch):
    train, reference, (x, _) = digits
    options = {"est": est, "val_loader": [reference], **QUICK}
    models.check(model, [train], [x[:40]], **options | {"progress": True})
    assert "4 training steps on cpu: about" in capsys.readouterr().err
    monkeypatch.setattr("gdscore._stream.LONG", 0.0)
    with pytest.warns(GdscoreWarning, match="training steps on cpu"):
        models.check(model, [train], [x[:40]], **options)


def test_mistakes_are_explained(model, digits, est):
    train, reference, (x, _) = digits
    options = {"est": est, "val_loader": [reference], **QUICK}
    with pytest.raises(GdscoreError, match=r"float images of shape \(m, C, H, W\) from `target_loader`"):
        models.check(model, [train], [x[:40].flatten(1)], **options)
    with pytest.raises(GdscoreError, match="between 0 and 1"):
        models.check(model, [train], [3 * x[:40] - 1], **options)
    with pytest.raises(GdscoreError, match="labels"):
        models.check(model, [train[0]], [x[:40]], **options)
    with pytest.raises(GdscoreError, match=r"Expected labels 0 … 9, but row 0 has label 77 of `labelled_loader`"):
        models.check(model, [(train[0], train[1] * 0 + 77)], [x[:40]], **options)
    with pytest.raises(GdscoreError, match="10 classes of the model, but it has 3"):
        models.check(model, [train], [x[:40]], network=fresh(classes=3), **options)
    with pytest.raises(GdscoreError, match="`augment` to return images of the same shape"):
        models.check(model, [train], [x[:40]], augment=lambda images: images[:, :, :4], **options)
    with pytest.raises(GdscoreError, match="AccuracyEstimator"):
        models.check(model, [train], [x[:40]], **options | {"est": 3})
    with pytest.raises(GdscoreError, match=r"`calibration` to be `Check.calibration`"):
        models.check(model, [train], [x[:40]], **options | {"calibration": [1]})
    with pytest.raises(GdscoreError, match=r"`network` to be a torch.nn.Module or None, but got str"):
        models.check(model, [train], [x[:40]], network="resnet18", **options)
    with pytest.raises(GdscoreError, match="`autocast` to be a floating-point torch.dtype"):
        models.check(model, [train], [x[:40]], autocast="bfloat16", **options)


def test_a_network_that_casts_to_half_precision_is_trained_in_it(digits):
    class Cast(Net):
        def forward(self, x):
            return super().forward(x.to(torch.bfloat16)).float()

    train, reference, (x, _) = digits
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Cast(nn.Identity).to(torch.bfloat16).eval()
    c = models.check(model, [train], [x], val_loader=[reference], **QUICK | {"steps": 1})
    assert {p.dtype for p in c.network.parameters()} == {torch.bfloat16}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_model_in_half_precision_is_trained_in_full(model, digits, est, dtype):
    train, reference, (x, _) = digits
    half, full = copy.deepcopy(model).to(dtype), copy.deepcopy(model).to(dtype).float()
    found = [models.check(m, [train], [x], est=est, val_loader=[reference], **QUICK) for m in (half, full)]
    assert {p.dtype for p in half.parameters()} == {dtype}
    assert {p.dtype for p in found[0].network.parameters()} == {torch.float32}
    assert found[0].agreement.agreement == pytest.approx(found[1].agreement.agreement, abs=0.02)


def test_normalised_images_are_augmented_as_images(model, digits, est):
    train, reference, (x, _) = digits
    seen = []

    def augment(images):
        seen.append((float(images.min()), float(images.max())))
        return images

    scaled = nn.Sequential(Scaled(), model)
    options = {"est": est, "augment": augment, **QUICK}
    moved = [((part[0] - 0.5) / 0.25, part[1]) for part in (train, reference)]
    models.check(scaled, [moved[0]], [(x[:40] - 0.5) / 0.25], val_loader=[moved[1]], normalize=(0.5, 0.25), **options)
    assert seen
    assert min(low for low, _ in seen) >= 0
    assert max(high for _, high in seen) <= 1


class Scaled(nn.Module):
    def forward(self, x):
        return x * 0.25 + 0.5


# -- the adaptation -------------------------------------------------------------------------------------------


def adaptation(network, labels, target, known=None):
    form = ImageForm(None, CPU)
    x = torch.rand(len(labels), 1, 8, 8, generator=torch.Generator().manual_seed(0))
    mix = torch.bincount(labels, minlength=10).float() / len(labels)
    return Adaptation(
        network,
        Images(x, form),
        labels,
        Images(target, form),
        mix=mix,
        known_mix=known,
        augment=strong_augmentation,
        steps=10,
        batch_size=8,
        seed=0,
    )


def test_rows_are_drawn_by_the_classes_predicted_for_them():
    """Draws against numbers: class 0 is predicted for 80 % of the target and has half of the labelled rows."""
    made = adaptation(fresh(), torch.arange(2).repeat(20), torch.rand(100, 1, 8, 8))
    p = torch.zeros(100, 10)
    p[:80, 0], p[80:, 1] = 1, 1
    made.probabilities = p
    weights = made.weights()
    assert weights[0] == pytest.approx(0.5 / 0.8)
    assert weights[99] == pytest.approx(0.5 / 0.2)
    drawn = made.draw(20000)
    assert float((drawn >= 80).float().mean()) == pytest.approx(0.5, abs=0.02)
    assert int(drawn.min()) == 0
    assert int(drawn.max()) == 99
    # A class that is nearly absent is drawn at most 20 times as often.
    made.probabilities = torch.cat([p[:1] * 0, p[1:]])
    made.probabilities[0, 1], made.probabilities[80:, 1], made.probabilities[80:, 0] = 1, 0, 1
    assert made.weights()[0] == pytest.approx(ADAPTATION.most)
    known = adaptation(fresh(), torch.arange(2).repeat(20), torch.rand(100, 1, 8, 8), known=torch.full((10,), 0.5))
    known.probabilities = p
    assert known.weights()[[0, 99]].tolist() == pytest.approx([1, 1])


def test_final_statistics_are_those_of_the_target():
    target = torch.rand(64, 1, 8, 8, generator=torch.Generator().manual_seed(1)) * 0.2 + 0.7
    made = adaptation(fresh(), torch.arange(10).repeat(4), target)
    made.probabilities = torch.full((64, 10), 0.1)
    made.set_statistics()
    with torch.no_grad():
        through = made.network.body[0](target)
    layer = made.network.body[1]
    assert torch.allclose(layer.running_mean, through.mean((0, 2, 3)), atol=1e-3)
    assert torch.allclose(layer.running_var, through.var((0, 2, 3)), rtol=0.05)
    assert layer.momentum == 0.1


def test_loss_is_that_of_fixmatch():
    """Against the loss written out: cross-entropy, and that of certain pseudo-labels on strongly augmented images."""
    made = adaptation(fresh(layer_norm), torch.arange(10).repeat(4), torch.rand(30, 1, 8, 8))
    for part in made.network.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    with torch.no_grad():
        made.network.head.weight.mul_(30)
    labelled, weak, strong = torch.rand(3, 8, 1, 8, 8, generator=torch.Generator().manual_seed(2))
    labels, rows = torch.arange(8), torch.arange(8)
    found = made.loss(labelled, labels, weak, strong, rows)
    with torch.no_grad():
        p = made.network(weak).softmax(1)
        certain = p.max(1).values >= 0.9
        each = -made.network(strong).log_softmax(1)[torch.arange(8), p.argmax(1)]
        own = -made.network(labelled).log_softmax(1)[torch.arange(8), labels].mean()
    assert 0 < int(certain.sum()) < 8
    assert float(found.detach()) == pytest.approx(float(own + each[certain].sum() / 8), rel=1e-5)
    assert torch.allclose(made.probabilities[:8], p, atol=1e-6)


def test_rate_goes_up_and_down():
    made = adaptation(fresh(), torch.arange(10).repeat(4), torch.rand(30, 1, 8, 8))
    rates = [made.rate(k / 100) for k in range(101)]
    assert max(rates) == pytest.approx(ADAPTATION.rate)
    assert rates.index(max(rates)) == 30
    assert rates[0] == pytest.approx(ADAPTATION.rate / 25)
    assert rates[-1] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [8, 33])
def test_augmentations_keep_shape_and_range(channels, size):
    x = torch.rand(5, channels, size, size, generator=torch.Generator().manual_seed(0))
    for function in (strong_augmentation, weak_augmentation):
        y = function(x, torch.Generator().manual_seed(1))
        assert y.shape == x.shape
        assert float(y.min()) >= 0
        assert float(y.max()) <= 1
        assert torch.equal(y, function(x, torch.Generator().manual_seed(1)))


def test_weak_augmentation_moves_by_whole_pixels():
    x = torch.rand(20, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    y = weak_augmentation(x, torch.Generator().manual_seed(3))
    inner = x[:, :, 4:-4, 4:-4]
    moves = [
        [
            torch.allclose(y[i, :, 4 + a : 28 + a, 4 + b : 28 + b], inner[i], atol=1e-4)
            for a in range(-2, 3)
            for b in range(-2, 3)
        ]
        for i in range(20)
    ]
    assert all(sum(found) == 1 for found in moves)


# -- one estimate of both -------------------------------------------------------------------------------------


def agreement(**changes):
    return replace(Agreement("", 400, 0.6, 0.9, 0.8, 0.3, 0.05, 0.95, 0.95, 0.95), **changes)


@pytest.fixture(scope="module")
def shifted():
    """An estimator, outputs of a target, and probabilities of a check network that is right more often."""
    rng = np.random.default_rng(0)

    def outputs(rows, noise):
        y = rng.integers(0, 5, rows)
        x = np.eye(5)[y] * 3 + noise * rng.normal(size=(rows, 5))
        return Outputs(logits=2 * x, labels=y)

    sets = [gdscore.ShiftedSet(outputs(400, noise), name) for name in "abc" for noise in (1.2, 1.6, 2.2)]
    found = AccuracyEstimator().fit(outputs(1000, 1.0), shifted_sets=sets)
    target = outputs(400, 1.4)
    p = np.full((400, 5), 0.02)
    p[np.arange(400), target.labels] = 0.92
    return found, target, p


def own_agreement(target, p, **changes):
    return agreement(agreement=float(p[np.arange(len(p)), target.predictions].mean()), **changes)


def test_weights_follow_the_half_widths(shifted):
    """The weight against the formula, and a width that no part of the evidence exceeds."""
    est, target, p = shifted
    a = own_agreement(target, p)
    e, right = combine(est, target, p, a, ())
    free = est.estimate(target)
    half = 1.6448536 * math.hypot(0.012, 0.10 * (1 - a.agreement) * math.sqrt(1 + (0.05 / 0.2) ** 2))
    own = (free.high - free.low) / 2
    weight = 1 / (1 + (half / own) ** 4)
    assert e.scores["weight"] == pytest.approx(weight)
    assert e.accuracy == pytest.approx(weight * a.agreement + (1 - weight) * free.accuracy, abs=1e-6)
    assert right.mean() == pytest.approx(e.accuracy)
    assert not {w.code for w in e.warnings} & {"check_unused", "class_mix"}


def test_nothing_of_outputs_alone_stays_beside_a_check(shifted):
    """What an estimate tells of the class mix, of other families and of the Brier score is of both, or of none."""
    est, target, p = shifted
    sets = [
        agreement(family=name, accuracy=accuracy, check_accuracy=0.99) for name, accuracy in (("a", 0.58), ("b", 0.66))
    ]
    e, _ = combine(est, target, p, own_agreement(target, p), sets)
    free = est.estimate(target)
    assert free.assumptions
    assert free.brier is not None
    assert (e.assumptions, e.fits, e.brier) == ({}, {}, None)
    assert e.left_out_error == pytest.approx((0.02 + 0.06) / 2)
    assert e.class_mix_estimate == pytest.approx([c.share for c in e.per_class])
    damaged = own_agreement(target, p, reference_accuracy=0.1)
    unused, _ = combine(est, target, p, damaged, sets)
    assert (unused.assumptions, unused.brier, unused.left_out_error) == (
        free.assumptions,
        free.brier,
        free.left_out_error,
    )


@pytest.mark.parametrize(("known", "accuracy"), [(0.5, 0.8), (0.8, 0.85), (0.95, 0.95), (0.97, 0.9)])
def test_agreement_is_corrected_by_what_it_is_off_on_labelled_rows(shifted, known, accuracy):
    """A target like the labelled rows is given their accuracy; where agreement is half of theirs, a fourth is left."""
    est, target, _ = shifted
    for share in (1.0, 0.5):
        agreed = share * known + np.linspace(-0.02, 0.02, 400)
        q = np.where(np.eye(5)[target.predictions] > 0, agreed[:, None], (1 - agreed)[:, None] / 4)
        a = own_agreement(target, q, reference_agreement=known, model_accuracy=accuracy)
        e, right = combine(est, target, q, a, ())
        weight, free = e.scores["weight"], est.estimate(target)
        corrected = share * known + share**2 * (accuracy - known)
        assert e.accuracy == pytest.approx(weight * corrected + (1 - weight) * free.accuracy, abs=1e-6)
        assert right.mean() == pytest.approx(e.accuracy)


@pytest.mark.parametrize(("known", "accuracy"), [(0.93, 0.985), (0.9, 0.98), (0.99, 0.93)])
def test_the_correction_keeps_rows_apart(known, accuracy, shifted):
    """Rows that a sure check network gives another class stay the least likely to be right, whatever the correction."""
    est, target, _ = shifted
    p = np.full((400, 5), 1e-9)
    p[np.arange(400), target.predictions] = 1.0
    p[:10] = np.roll(p[:10], 1, axis=1)
    a = own_agreement(target, p, reference_agreement=known, model_accuracy=accuracy)
    e, right = combine(replaced_estimate(est, 0.87, 0.97, 1.0), target, p, a, ())
    assert e.scores["weight"] > 0.5
    assert right[:10].max() < 0.6 < 0.9 < right[10:].min()
    assert e.accuracy <= max(a.agreement, accuracy) + 1e-3
    assert sum(e.class_mix_estimate) == pytest.approx(1)


def replaced_estimate(est, low, accuracy, high):
    """The estimator, with another estimate."""
    found = copy.copy(est)
    found.estimate = lambda outputs: replace(est.estimate(outputs), accuracy=accuracy, low=low, high=high)
    return found


def test_a_check_that_is_not_sure_widens_the_interval(shifted):
    """The same mean probability of the model's classes, from a network that is sure of its own and one that is not."""
    est, target, _ = shifted
    rows, predicted = np.arange(400), np.asarray(target.predictions)
    sure, unsure = np.zeros((400, 5)), np.full((400, 5), 0.05)
    sure[rows, np.where(rows < 320, predicted, (predicted + 1) % 5)] = 1
    unsure[rows, predicted] = 0.8
    found = [combine(est, target, p, own_agreement(target, p), ())[0] for p in (sure, unsure)]
    assert found[0].accuracy == pytest.approx(found[1].accuracy)
    assert found[1].high - found[1].low > 1.5 * (found[0].high - found[0].low)


def test_errors_on_shifted_sets_of_the_model_widen_the_interval(shifted):
    est, target, p = shifted
    a = own_agreement(target, p)
    good = [agreement(family=name, agreement=0.5, accuracy=0.5, check_accuracy=0.8) for name in "abcd"]
    bad = [replace(s, accuracy=0.25) for s in good]
    widths = [combine(est, target, p, a, c)[0] for c in ((), good, bad)]
    assert widths[1].high - widths[1].low == pytest.approx(widths[0].high - widths[0].low)
    assert widths[2].high - widths[2].low > widths[1].high - widths[1].low
    assert widths[2].scores["weight"] < widths[1].scores["weight"]


@pytest.mark.parametrize("why", ["damaged", "no better", "far below"])
def test_a_check_that_is_no_better_is_not_used(shifted, why):
    est, target, p = shifted
    sets = []
    if why == "damaged":
        a, text = own_agreement(target, p, reference_accuracy=0.4), "fell to 40%"
    elif why == "no better":
        a, text = own_agreement(target, p), "no more accurate than the model"
        sets = [agreement(family="fog", accuracy=0.6, check_accuracy=0.5)]
    else:
        p = np.full((400, 5), 0.25)
        p[np.arange(400), target.predictions] = 0.0
        a, text = own_agreement(target, p), "far below"
    e, right = combine(est, target, p, a, sets)
    free = est.estimate(target)
    assert (e.low, e.high) == (free.low, free.high)
    assert e.accuracy == pytest.approx(free.accuracy, abs=1e-6)
    assert right.mean() == pytest.approx(e.accuracy, abs=1e-9)
    warning = next(w for w in e.warnings if w.code == "check_unused")
    assert warning.severity == "warning"
    assert text in warning.message


@pytest.mark.parametrize(("distance", "known"), [(0.1, False), (0.7, False), (0.7, True)])
def test_another_class_mix_or_a_failure_of_the_check_is_a_warning(shifted, distance, known):
    """Warnings of the class mix stay where the check network does not find the labelled rows' mix either."""
    est, target, p = shifted
    found = replaced_estimate(est, 0.4, 0.6, 0.8)
    free, own = (
        found.estimate(target),
        [gdscore.EstimateWarning(code, "critical", "") for code in ("collapse", "beyond")],
    )
    found.estimate = lambda outputs: replace(free, warnings=own, class_mix="given" if known else "unknown")
    e, _ = combine(found, target, p, own_agreement(target, p, mix_distance=distance), ())
    codes = [w.code for w in e.warnings]
    assert codes == (["collapse", "check_mix"] if distance > 0.2 and not known else [])


def test_a_check_that_agrees_more_than_outputs_alone_expect_is_used(shifted):
    """Far above the interval too; that interval then widens the one of both."""
    est, target, p = shifted
    a = own_agreement(target, p)
    apart, beside = (combine(replaced_estimate(est, x - 0.15, x, x + 0.15), target, p, a, ())[0] for x in (0.2, 0.8))
    for e in (apart, beside):
        assert e.scores["weight"] > 0.9
        assert e.low < a.agreement < e.high
    assert apart.high - apart.low > 1.5 * (beside.high - beside.low)


def test_relabelling_classes_changes_nothing(shifted):
    est, target, p = shifted
    order = np.array([3, 1, 4, 0, 2])
    first, _ = combine(est, target, p, own_agreement(target, p), ())
    reference = Outputs(logits=np.asarray(target.logits)[:, order])
    assert (np.asarray(reference.predictions) == np.argsort(order)[target.predictions]).all()
    counts = {c.label: c.recall.value for c in first.per_class}
    assert len(counts) == 5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again, _ = combine(est, target, p, own_agreement(target, p), ())
    assert again == first


def test_a_mix_of_one_call_is_not_that_of_the_next(model, digits, est):
    train, reference, (x, _) = digits
    c = models.check(model, [train], [x], est=est, val_loader=[reference], class_mix="stable", **QUICK)
    assert (c.estimate.class_mix, c.est.class_mix) == ("stable", "unknown")


def test_a_calibration_of_another_model_is_a_warning(shifted):
    est, target, p = shifted
    for accuracy, codes in ((0.95, set()), (0.7, {"other_calibration"})):
        sets = [agreement(family="fog", accuracy=0.6, check_accuracy=0.9, model_accuracy=accuracy)]
        e, _ = combine(est, target, p, own_agreement(target, p), sets)
        assert {w.code for w in e.warnings} & {"other_calibration"} == codes


def test_an_estimator_of_other_decisions_is_refused_before_any_training(model, digits):
    train, reference, (x, _) = digits
    known = Outputs.concatenate([part.to_numpy() for part in models.extract(model, [reference])])
    est = AccuracyEstimator().fit(known.with_arrays(predictions=known.predictions))
    with pytest.raises(GdscoreError, match=r"decided otherwise \(given\)"):
        models.check(model, [train], [x[:40]], est=est, **QUICK)


def test_dict_batches_as_the_estimator_takes_them():
    class ByName(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, pixel_values):
            return {"logits": self.inner(pixel_values)}

    x, y = digit_rows()
    model = fresh().eval()
    options = {"steps": 2, "batch_size": 8, "progress": False}
    plain = models.check(model, [(x[:80], y[:80])], [x[80:120]], **options)
    named = models.check(ByName(model), [{"pixel_values": x[:80], "labels": y[:80]}], [x[80:120]], **options)
    np.testing.assert_allclose(named.right, plain.right, atol=1e-6)
    options |= {"est": plain.est, "calibration": plain.calibration}
    for labels in ("labels", "target"):
        labelled = [{"pixel_values": x[:80], labels: y[:80]}]
        for target in ([{"pixel_values": x[80:120]}], [{"pixel_values": x[80:120], labels: y[80:120]}]):
            named = models.check(ByName(model), labelled, target, **options)
            np.testing.assert_allclose(named.right, plain.right, atol=1e-6)
    with pytest.raises(GdscoreError, match="only tensor of a dict, but it yields a dict of .*'mask'"):
        models.check(ByName(model), [{"pixel_values": x, "mask": x, "labels": y}], [x], **options)


def digit_rows():
    data = load_digits()
    return torch.from_numpy(data.images[:, None] / 16).float(), torch.from_numpy(data.target)


def test_a_model_whose_logits_no_layer_makes():
    """Its error named `head=False`, which only `extract` and `estimator` took."""

    class Scaled(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return 2 * self.inner(x)

    x, y = digit_rows()
    given = Scaled(fresh().eval()), [(x[:80], y[:80])], [x[80:120]]
    options = {"steps": 2, "batch_size": 8, "progress": False, "calibration": ()}
    with pytest.raises(GdscoreError, match="head=False"):
        models.check(*given, **options)
    c = models.check(*given, **options, head=False)
    assert c.right.mean() == pytest.approx(c.estimate.accuracy, abs=1e-9)
    network = fresh().half()  # tried in full precision, where it needs no head either
    scaled = models.check(*given, **options, head=False, est=c.est, network=Scaled(network))
    assert scaled.right.shape == (40,)
