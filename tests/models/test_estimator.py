from __future__ import annotations

import contextlib
import copy
import sys

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import gdscore
from gdscore import models, shifts
from gdscore.models._inputs import ImageForm, LabelledInputs
from gdscore.shifts.tables import Period

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


def same(first, second):
    for name in ("families", "accuracy", "predicted", "rows"):
        np.testing.assert_array_equal(getattr(first.shifted_sets_, name), getattr(second.shifted_sets_, name))


def test_near_the_truth_and_the_model_is_as_before(model):
    model.train()
    before = copy.deepcopy(model.state_dict())
    est = models.estimator(model, loader(800, 1300), shifts=SHIFTS, level=0.8)
    assert model.training
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    model.eval()
    x, y = digits()
    shifted = shifts.Corruption("shot_noise", 3)(x[1300:])
    target = gdscore.Outputs.concatenate(list(models.extract(model, [(shifted, y[1300:])])))
    e = est.estimate(target)
    assert e.low <= target.accuracy <= e.high
    assert e.accuracy == pytest.approx(target.accuracy, abs=0.1)


def test_normalised_images(model):
    class Normalised(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x * 0.25 + 0.5)

    plain = models.estimator(model, loader(800, 1100), shifts=SHIFTS, level=0.8)
    moved = models.estimator(
        Normalised(model), loader(800, 1100, 0.5, 0.25), normalize=([0.5], [0.25]), shifts=SHIFTS, level=0.8
    )
    np.testing.assert_allclose(plain.shifted_sets_.accuracy, moved.shifted_sets_.accuracy, atol=0.01)
    np.testing.assert_allclose(plain.shifted_sets_.predicted, moved.shifted_sets_.predicted, atol=0.02)


def test_equals_fit_predictor(model):
    x, y = digits()

    def predict(batch):
        return next(iter(models.extract(model, [batch])))

    by_hand = gdscore.AccuracyEstimator(level=0.8).fit_predictor(
        predict, x[800:1100], y[800:1100], shifts=SHIFTS, batch_size=70
    )
    same(models.estimator(model, loader(800, 1100), shifts=SHIFTS, batch_size=70, level=0.8), by_hand)


def test_several_batches_corrupted_at_once(model, monkeypatch):
    expected = models.estimator(model, loader(800, 1100), shifts=SHIFTS, batch_size=70)
    monkeypatch.setattr("gdscore.models._inputs.LabelledInputs.batches_at_once", lambda self, size: 3)
    same(models.estimator(model, loader(800, 1100), shifts=SHIFTS, batch_size=70), expected)


@pytest.mark.parametrize("as_iterator", [False, True])
def test_the_loaders_batch_size_means_nothing(model, as_iterator):
    x, y = digits()
    few = SHIFTS[:4]
    expected = models.estimator(model, [(x[:300], y[:300])], shifts=few, batch_size=80)
    sizes = [90, 10, 200]
    batches = list(zip(x[:300].split(sizes), y[:300].split(sizes), strict=True))
    same(models.estimator(model, iter(batches) if as_iterator else batches, shifts=few, batch_size=80), expected)


def test_a_reference_that_does_not_fit_into_memory(model, monkeypatch):
    monkeypatch.setattr("gdscore.models._inputs._host_memory", lambda: 200 * 256 / 0.4)
    with pytest.raises(gdscore.GdscoreError, match=r"fits into memory, but the inputs of its first 256 rows.*Subset"):
        models.estimator(model, loader(800, 1200), shifts=SHIFTS[:4])


def test_few_images_that_are_not_of_8_bits(model):
    """They were kept in another form than batches without them, and so gave other bits with another batch size."""
    normalize = ([0.3], [0.4])
    x, y = digits()
    x, y = (x[:300] * 255).round() / 255, y[:300]
    given = (x - 0.3) / 0.4
    given[5] = (x[5] * 0.999 - 0.3) / 0.4
    few = [lambda x: x.flip(3), *SHIFTS[:4]]
    options = {"shifts": few, "normalize": normalize, "batch_size": 80}
    expected = models.estimator(model, [(given, y)], **options)
    same(models.estimator(model, list(zip(given.split(60), y.split(60), strict=True)), **options), expected)
    form = ImageForm(normalize, torch.device("cpu"))
    kept = LabelledInputs(list(zip(given.split(60), y.split(60), strict=True)), form)
    assert torch.equal(next(kept.batches(300))[1], form.decode(given))


def test_a_loader_that_shuffles_leaves_torchs_generator(model):
    x, y = digits()
    torch.manual_seed(5)
    state = torch.get_rng_state()
    data = DataLoader(TensorDataset(x[:300], y[:300]), batch_size=50, shuffle=True)
    same(models.estimator(model, data, shifts=SHIFTS[:4]), models.estimator(model, data, shifts=SHIFTS[:4]))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("normalize", [None, ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])])
def test_images_of_8_bits_are_kept_as_such(normalize):
    levels = torch.arange(256, dtype=torch.uint8).repeat(3).reshape(1, 3, 16, 16)
    images = levels / 255
    given = images
    if normalize is not None:
        mean, std = (torch.tensor(part).reshape(3, 1, 1) for part in normalize)
        given = (images - mean) / std
    form = ImageForm(normalize, torch.device("cpu"))
    kept = form.encode(given, 0)
    assert torch.equal(kept, levels)
    assert torch.equal(form.decode(kept), images)
    assert torch.equal(form.for_model(form.decode(kept)), given)
    other = given.clone()
    other[0, 1, 3, 3] = torch.nextafter(other[0, 1, 3, 3], torch.tensor(0.5))
    kept = form.encode(other, 0)
    assert kept.dtype == torch.float32
    torch.testing.assert_close(form.decode(kept), images)


def test_half_precision_is_kept(model):
    x, y = digits()
    half = (x[:300] * 0.9).half()
    expected = models.estimator(model, [(half.float(), y[:300])], shifts=SHIFTS[:4])
    assert ImageForm(None, torch.device("cpu")).encode(half, 0).dtype == torch.float16
    same(models.estimator(model, [(half, y[:300])], shifts=SHIFTS[:4]), expected)


def test_other_inputs_with_shifts_of_ones_own():
    rng = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 20, (400, 6), generator=rng)
    net = nn.Sequential(nn.EmbeddingBag(20, 8), nn.Linear(8, 3)).requires_grad_(False)
    y = net(tokens).argmax(1)
    y[:60] = torch.randint(0, 3, (60,), generator=rng)

    def masked(share):
        def shift(batch, *, start=0):
            hit = torch.rand(400, 6, generator=torch.Generator().manual_seed(1))[start : start + len(batch)] < share
            return torch.where(hit, 0, batch)

        shift.family = f"masked {share > 0.4}"
        return shift

    mine = [masked(share) for share in (0.1, 0.3, 0.5, 0.7)]
    est = models.estimator(net, DataLoader(TensorDataset(tokens, y), batch_size=64), shifts=mine, batch_size=100)
    with torch.no_grad():
        right = [float((net(shift(tokens)).argmax(1) == y).double().mean()) for shift in mine]
    np.testing.assert_allclose(est.shifted_sets_.accuracy, right)
    assert est.shifted_sets_.families == ["masked False", "masked False", "masked True", "masked True"]


def test_shifts_of_ones_own_take_images_of_any_shape():
    x = torch.rand(40, 5, 4, 2, generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(nn.Flatten(), nn.Linear(40, 3))
    chosen = [lambda x: x / 2, lambda x: x.flip(3)]
    est = models.estimator(model, [((x - 0.5) / 0.5, torch.arange(40) % 3)], normalize=([0.5], [0.5]), shifts=chosen)
    assert len(est.shifted_sets_.families) == 2


def test_progress_counts_rows_of_all_sets(model, monkeypatch):
    done = []

    @contextlib.contextmanager
    def bar(total, show):
        assert total == 4 * 300
        yield done.append

    monkeypatch.setattr(sys.modules["gdscore.models.estimator"], "progress_bar", bar)
    models.estimator(model, loader(800, 1100), shifts=SHIFTS[:4], batch_size=128)
    assert sum(done) == 4 * 300


def test_class_names(model):
    names = [f"digit {k}" for k in range(10)]
    est = models.estimator(model, loader(800, 1100), shifts=SHIFTS[:4], class_names=names)
    same(est, models.estimator(model, loader(800, 1100), shifts=SHIFTS[:4]))
    assert est.class_names_ == tuple(names)
    assert [c.name for c in est.estimate(models.extract(model, loader(1300, 1600))).per_class] == names
    with pytest.raises(gdscore.GdscoreError, match="the same order"):
        est.estimate(models.extract(model, loader(1300, 1600), class_names=names[::-1]))


def test_batches_without_rows_are_passed_over(model):
    (x, y), (none, nothing) = next(iter(loader(800, 900))), (torch.rand(0, 1, 8, 8), torch.zeros(0).long())
    plain = models.estimator(model, [(x, y)], shifts=SHIFTS[:4])
    same(plain, models.estimator(model, [(none, nothing), (x, y), (none, nothing)], shifts=SHIFTS[:4]))


def test_dict_batches_give_the_same(model):
    class ByName(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, pixel_values):
            return {"logits": self.inner(pixel_values)}

    named = [{"pixel_values": x, "labels": y} for x, y in loader(800, 1000)]
    same(
        models.estimator(ByName(), named, shifts=SHIFTS[:4]),
        models.estimator(model, loader(800, 1000), shifts=SHIFTS[:4]),
    )


def test_batches_of_token_ids():
    """Dicts of several tensors: shifts get and return the dict."""

    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.fc = nn.EmbeddingBag(30, 6), nn.Linear(6, 3)

        def forward(self, input_ids, attention_mask):
            assert input_ids.dtype == torch.int64
            return {"logits": self.fc(self.words(input_ids * attention_mask))}

    rng = torch.Generator().manual_seed(0)
    net = Words()
    ids, y = torch.randint(1, 30, (120, 7), generator=rng), torch.randint(3, (120,), generator=rng)
    parts = [slice(0, 50), slice(50, 120)]
    batches = [{"input_ids": ids[p], "attention_mask": torch.ones_like(ids[p]), "target": y[p]} for p in parts]

    def dropped(batch, start):
        mask = torch.arange(start, start + len(batch["input_ids"]))[:, None] % 7 != torch.arange(7)
        return {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"] * mask}

    def in_place(batch):
        batch["input_ids"].fill_(1)
        return batch

    shifted = [dropped, in_place, dropped]
    est = models.estimator(net, batches, shifts=shifted, batch_size=32)
    same(est, models.estimator(net, iter(batches), shifts=shifted, batch_size=120))
    outputs = [
        o.logits
        for o in models.extract(
            net, [dropped({k: b[k] for k in b if k != "target"}, s) for b, s in zip(batches, (0, 50), strict=True)]
        )
    ]
    accuracy = (torch.cat(outputs).argmax(1) == y).double().mean()
    assert est.shifted_sets_.accuracy[0] == pytest.approx(float(accuracy))


class Reusing:
    """A loader that yields one pair of tensors, which it fills anew for each batch."""

    def __init__(self, x, y, size, named=False):
        self.x, self.y, self.size, self.named = x, y, size, named

    def __iter__(self):
        x, y = torch.empty_like(self.x[: self.size]), torch.empty_like(self.y[: self.size])
        for start in range(0, len(self.x), self.size):
            x.copy_(self.x[start : start + self.size])
            y.copy_(self.y[start : start + self.size])
            yield {"pixel_values": x, "labels": y} if self.named else (x, y)


@pytest.mark.parametrize("label_type", [torch.int64, torch.int32, torch.float32], ids=str)
def test_a_loader_that_reuses_its_memory(model, label_type):
    """Labels were those of the next batch, and the inputs of the last batch were kept for all."""
    x, y = digits()
    x, y = x[:200] + 0.001, y[:200].to(label_type)  # not kept as 8-bit images
    for shifted in (SHIFTS[:3], [lambda x: 1 - x, lambda x: x**2]):
        plain = [(x[i : i + 40], y[i : i + 40]) for i in range(0, 200, 40)]
        first = models.estimator(model, plain, shifts=shifted, batch_size=64)
        second = models.estimator(model, Reusing(x, y, 40), shifts=shifted, batch_size=64)
        same(first, second)
        assert first.reference_accuracy_ == second.reference_accuracy_
    truth = [out.labels for out in models.extract(model, Reusing(x, y, 40))]
    assert torch.equal(torch.cat(truth), y.long())
    inputs = list(models.extract(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), Reusing(x, y, 40)))
    assert torch.equal(torch.cat([out.features for out in inputs]), x.flatten(1))


def test_logits_that_look_like_probabilities():
    """`outputs="logits"` was not passed on to the shifted sets; a constant one could be refused without it too."""
    x, y = digits()
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.Softmax(1))
    with pytest.raises(gdscore.GdscoreError, match="look like probabilities"):
        models.estimator(net, [(x[:200], y[:200])], shifts=SHIFTS[:2], head=False)
    est = models.estimator(net, [(x[:200], y[:200])], shifts=SHIFTS[:2], head=False, outputs="logits")
    with torch.no_grad():
        assert est.reference_accuracy_ == (net(x[:200]).argmax(1) == y[:200]).double().mean()
    last = nn.Linear(64, 2)
    last.bias.data = torch.tensor([0.25, 0.75])
    black = models.estimator(nn.Sequential(nn.Flatten(), last), [(x[:200], y[:200] % 2)], shifts=[torch.zeros_like])
    assert black.shifted_sets_.accuracy == pytest.approx([float((y[:200] % 2).double().mean())])


@pytest.mark.parametrize("given", [lambda: loader(0, 100), lambda: list(loader(0, 100))], ids=["loader", "batches"])
def test_estimate_of_a_loader_names_extract(given):
    est = gdscore.AccuracyEstimator().fit(gdscore.Outputs(logits=5 * np.eye(10), labels=np.arange(10)))
    with pytest.raises(gdscore.GdscoreError, match=r"models.extract\(model, loader\)"):
        est.estimate(given())


@pytest.mark.parametrize(
    ("batches", "options", "message"),
    [
        ([torch.rand(8, 1, 8, 8)], {}, "batch 0 has no labels: it is float32 of shape"),
        (
            [{"image": torch.rand(8, 1, 8, 8), "category": torch.zeros(8)}],
            {},
            "batch 0 has no labels: its keys are 'image', 'category', and labels are named 'labels', .* or 'y'",
        ),
        ([(torch.rand(8, 64), torch.zeros(8))], {}, r"shape \(m, C, H, W\)"),
        (
            [(torch.zeros(8, 1, 8, 8, dtype=torch.uint8), torch.zeros(8).long())],
            {},
            "float images.*x.float\\(\\) / 255",
        ),
        (
            [{"x": torch.rand(8, 1, 8, 8), "mask": torch.rand(8), "label": torch.zeros(8)}],
            {},
            r"as pairs \(x, y\).*fit_predictor",
        ),
        ([(torch.full((8, 1, 8, 8), float("nan")), torch.zeros(8))], {}, "finite images, but batch 0 holds NaN"),
        ([(torch.rand(8, 1, 8, 8) * 255, torch.zeros(8))], {}, "divide them by 255"),
        (
            [(torch.rand(8, 1, 8, 8) * 16, torch.zeros(8))],
            {},
            "go from 0\\.\\d+ to 1\\d.*: divide them by the largest value that a pixel can have, as in training",
        ),
        ([(torch.rand(8, 1, 8, 8) * 65535, torch.zeros(8))], {}, "divide them by the largest value"),
        ([(torch.rand(8, 1, 8, 8), torch.eye(10)[:8])], {}, r"each of 8 rows.*argmax\(1\)$"),
        ([(torch.rand(0, 1, 8, 8), torch.zeros(0))], {}, "yield rows"),
        ([(torch.rand(8, 4, 8, 8), torch.zeros(8))], {}, "1 or 3 channels.*give `shifts`"),
        ([(torch.rand(8, 4, 8, 8), torch.zeros(8))], {"shifts": SHIFTS}, "1 or 3 channels"),
        ([(torch.rand(8, 8, 8, 3), torch.zeros(8))], {}, "channels last"),
        ([(torch.rand(8, 1, 0, 8), torch.zeros(8))], {}, "at least 8×8 pixels"),
        ([(torch.rand(8), torch.zeros(8)), (torch.rand(8, 2), torch.zeros(8))], {"shifts": [abs]}, "one shape"),
        ([(torch.rand(8, 1, 16, 4), torch.zeros(8))], {}, "at least 8×8 pixels, but got 16×4"),
        (
            [(torch.ones(8, 1, 8, 8), torch.zeros(8)), (torch.ones(8, 1, 9, 9), torch.zeros(8))],
            {},
            r"of one shape .* got uint8 of shape \(8, 1, 8, 8\) and uint8 of shape \(8, 1, 9, 9\): pad, crop or resize",
        ),
        ([(torch.rand(8, 1, 8, 8) * 9, torch.zeros(8).long())], {}, "normalize=\\(mean, std\\)"),
        ([(torch.rand(8, 1, 8, 8), torch.zeros(8).long())], {"normalize": 3}, "pair \\(mean, std\\)"),
        ([(torch.rand(8, 1, 8, 8), torch.zeros(8).long())], {"normalize": ([0, 0], [1, 1])}, "1 number in the mean"),
        ([(torch.rand(8, 1, 8, 8), torch.zeros(8).long())], {"normalize": ([0], [0])}, "positive std"),
        ([], {}, "yielded none"),
        ([(["a", "b"], torch.zeros(2))], {"shifts": [lambda x: x]}, "yield a tensor"),
        (
            [({"ids": torch.zeros(2, 3), "mask": torch.zeros(3, 3)}, torch.zeros(2))],
            {"shifts": [lambda x: x]},
            "dict of tensors of as many rows.*fit_predictor",
        ),
        (
            [({"ids": torch.zeros(2, 3), "name": ["a", "b"]}, torch.zeros(2))],
            {"shifts": [lambda x: x]},
            "'name': a list of .*fit_predictor",
        ),
        (
            [(torch.rand(8, 1, 8, 8), torch.zeros(8).long())],
            {"normalize": ([0.5], [2.0])},
            "`normalize` given is not the loader's; leave it out",
        ),
        (
            [(torch.randn(8, 1, 8, 8), torch.zeros(8).long())],
            {"normalize": ([120.0], [60.0])},
            "`normalize` given is not the loader's; divide its mean and std by 255",
        ),
        (
            [(3 * torch.randn(8, 1, 8, 8), torch.zeros(8).long())],
            {"normalize": ([0.5], [0.25])},
            "`normalize` given is not the loader's; give the mean and std of the loader's own Normalize",
        ),
        (
            [(torch.rand(8, 1, 8, 8), torch.zeros(8).long())],
            {"shifts": [lambda x: x[1:]]},
            "with tensors of 8 rows, but got float32 of shape .7, 1",
        ),
        ([(torch.rand(8, 1, 8, 8), torch.zeros(8).long())], {"shifts": [Period(1, 0)]}, "selects rows"),
        (torch.rand(8, 1, 8, 8), {}, "list of one batch"),
    ],
)
def test_bad_input(model, batches, options, message):
    with pytest.raises(gdscore.GdscoreError, match=message):
        models.estimator(model, batches, **options)


class Layouts(nn.Module):
    """A convolution that notes the layouts that it is given."""

    def __init__(self, flat=False):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.conv, self.fc = nn.Conv2d(3, 4, 3), nn.Linear(4 * 36, 10)
        self.flat = flat
        # Beyond the reach of what puts the model's state back.
        self.note = (seen := []).append
        self.seen = lambda: seen

    def forward(self, x):
        self.note(x.stride(1) == 1)
        z = torch.relu(self.conv(x))
        return self.fc(z.view(len(z), -1) if self.flat else z.flatten(1))


@pytest.mark.parametrize(
    ("net", "last"),
    [
        (Layouts(), True),
        (Layouts(flat=True), False),  # `Tensor.view` needs the usual layout
        (Layouts().to(memory_format=torch.channels_last), True),  # as the model's own weights
    ],
    ids=["convolution", "view", "own"],
)
def test_channels_last_where_the_network_takes_it(net, last):
    rng = torch.Generator().manual_seed(0)
    x, y = torch.rand(40, 3, 8, 8, generator=rng), torch.randint(10, (40,), generator=rng)
    state = {name: (id(t), t.clone()) for name, t in net.state_dict(keep_vars=True).items()}
    options = {"shifts": [lambda x: x.flip(2)], "normalize": (0.0, 1.0), "progress": False}
    first = models.estimator(net, [(x, y)], **options)
    assert net.seen()[-2:] == [last, last]
    for name, t in net.state_dict(keep_vars=True).items():
        assert id(t) == state[name][0]
        assert torch.equal(t, state[name][1])
        assert t.stride() == state[name][1].stride()
    assert first.reference_accuracy_ == models.estimator(Layouts(), [(x, y)], **options).reference_accuracy_


def test_a_quick_fit_and_its_expected_time(model, capsys, monkeypatch):
    quick = models.estimator(model, loader(800, 1000), shifts="quick", progress=True)
    assert len(quick.shifted_sets_.families) == 24
    assert quick.n_families_ == 8
    assert "models.estimator: 24 shifted sets of 200 rows: about " in capsys.readouterr().err
    same(quick, models.estimator(model, loader(800, 1000), shifts=shifts.quick_shifts(), progress=False))
    assert "about" not in capsys.readouterr().err
    monkeypatch.setattr("gdscore._stream.LONG", -1.0)
    with pytest.warns(gdscore.GdscoreWarning, match="38 shifted sets of 100 rows: about"):
        models.estimator(model, loader(900, 1000), shifts=shifts.corruptions((2, 5)), progress=False)
    with pytest.raises(gdscore.GdscoreError, match="callables or \"quick\", but got 'fast'"):
        models.estimator(model, loader(800, 900), shifts="fast")
