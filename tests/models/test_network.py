"""The head is found by what it does, verified, and refused in words where it is not one."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from gdscore import GdscoreError
from gdscore.models import extract, head_of
from tests.models.networks import (
    CLASSES,
    CNN,
    ROWS,
    Backbone,
    ConvHead,
    CosineHead,
    Twice,
    TwoHeads,
    decoder,
    distilbert,
    images,
    loader,
    resnet,
    seeded,
    texts,
    vit,
)


def sequential() -> nn.Module:
    return nn.Sequential(Backbone(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, CLASSES))


def tied_to_embedding() -> nn.Module:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.out = nn.Embedding(CLASSES, 16), nn.Linear(16, CLASSES, bias=False)
            self.backbone, self.out.weight = Backbone(), self.embedding.weight

        def forward(self, x):
            return self.out(self.backbone(x))

    return Tied()


class Parametrized(CNN):
    def __init__(self) -> None:
        super().__init__()
        nn.utils.parametrizations.weight_norm(self.fc)


class ConvReturned(ConvHead):
    def forward(self, x):
        return self.conv(self.backbone(x).mean((2, 3), keepdim=True))


NETWORKS = {
    "plain": (lambda: CNN(), "fc"),
    "dropout": (lambda: CNN(dropout=0.5), "fc"),
    "no bias": (lambda: CNN(bias=False), "fc"),
    "tuple": (lambda: CNN(after=lambda z: (z, z.sum())), "fc"),
    "loss first": (lambda: CNN(after=lambda z: (z.sum(), z)), "fc"),
    "dict": (lambda: CNN(after=lambda z: {"logits": z, "aux": z + 1}), "fc"),
    "float": (lambda: CNN(after=lambda z: z.double()), "fc"),
    "sequential": (sequential, "3"),
    "two heads": (TwoHeads, "main"),
    "two heads, copied": (lambda: TwoHeads(copied=True), "main"),
    "tied heads": (lambda: TwoHeads(tied=True), "main"),
    "tied heads, copied": (lambda: TwoHeads(tied=True, copied=True), "main"),
    "tied to an embedding": (tied_to_embedding, "out"),
    "called three times": (Twice, "fc"),
    "weight norm": (Parametrized, "fc"),
    "1×1 convolution": (ConvHead, "conv"),
    "1×1 convolution, maps returned": (ConvReturned, "conv"),
    "hf vit": (vit, "classifier"),
    "hf resnet": (resnet, "classifier.1"),
}


@pytest.mark.parametrize("mode", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize(("make", "name"), NETWORKS.values(), ids=NETWORKS)
def test_extraction_is_exact(make, name, mode):
    model = seeded(make).train(mode)
    layer = model.get_submodule(name)
    weight = layer.weight.flatten(1).detach()
    bias = torch.zeros(()) if layer.bias is None else layer.bias.detach()
    reference = copy.deepcopy(model).eval()
    outputs = list(extract(model, loader()))
    assert len(outputs) == 3
    for out, (x, y) in zip(outputs, loader(), strict=True):
        with torch.no_grad():
            expected = reference(x)
        expected = expected.logits if hasattr(expected, "logits") else expected
        if isinstance(expected, tuple):
            expected = next(part for part in expected if part.ndim == 2)
        expected = expected["logits"] if isinstance(expected, dict) else expected
        assert torch.allclose(out.logits, expected.reshape(ROWS, CLASSES).to(out.logits.dtype), atol=1e-6)
        assert torch.allclose(out.features @ weight.T + bias, out.logits.float(), atol=1e-5)
        assert torch.equal(out.labels, y)


def test_text_classifier_from_dicts():
    model = distilbert().train()
    for out, batch in zip(extract(model, texts()), texts(), strict=True):
        assert torch.allclose(out.features @ model.classifier.weight.T + model.classifier.bias, out.logits, atol=1e-5)
        assert torch.equal(out.labels, batch["labels"])


def test_decoder_whose_head_runs_on_every_token():
    model = decoder().train()
    outputs = list(extract(model, texts(3)))
    reference = copy.deepcopy(model).eval()
    for out, batch in zip(outputs, texts(3), strict=True):
        with torch.no_grad():
            assert torch.allclose(out.logits, reference(**batch).logits, atol=1e-6)
        assert torch.allclose(out.features @ model.score.weight.T, out.logits, atol=1e-5)
    with pytest.raises(GdscoreError, match="a linear layer to make"):
        next(extract(model, texts(), logits=lambda out: out.logits / 2))


def test_decoder_whose_logits_are_no_step_of_a_later_batch():
    class Mixer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.score = nn.Linear(4, 3)

        def forward(self, x):
            z = self.score(x)
            return z[:, -1].clone() if x[0, 0, 0] > 0 else z.mean(1)

    stream = extract(Mixer(), [torch.rand(6, 5, 4), -torch.rand(6, 5, 4)])
    assert next(stream).n_features == 4
    with pytest.raises(GdscoreError, match="`features` to be finite"):
        next(stream)


def test_features_keep_no_larger_tensor_alive():
    for model, data in ((vit(), loader(1)), (distilbert(), texts(1))):
        (out,) = extract(model, data)
        assert out.arrays["features"].untyped_storage().nbytes() == ROWS * 16 * 4


def masked(z):
    return z.masked_fill(torch.arange(CLASSES) == 2, -1e4)


REFUSED = {
    "scaled": (lambda z: z / 2, ""),
    "scaled in place": (lambda z: z.div_(2), ", changed in place afterwards"),
    "masked": (masked, ""),
    "masked in place": (lambda z: z.masked_fill_(torch.arange(CLASSES) == 2, -1e4), ", changed in place afterwards"),
    "log-probabilities": (lambda z: z.log_softmax(1), ""),
    "other shape": (lambda z: z[:, :3].contiguous(), ""),
}


@pytest.mark.parametrize("head", [None, "fc"])
@pytest.mark.parametrize(("after", "changed"), REFUSED.values(), ids=REFUSED)
def test_logits_that_no_layer_made(after, changed, head):
    model = seeded(CNN, after=after)
    with pytest.raises(GdscoreError, match=rf"`fc` \(Linear 16→5{changed}\), none does.*head=False"):
        next(extract(model, loader(), head=head))


def test_going_without_features():
    model = seeded(CNN, after=lambda z: z.log_softmax(1))
    (out,) = extract(model, loader(1), head=False)
    assert out.has == {"logits", "labels"}


def test_pooling_after_the_convolution_is_refused():
    with pytest.raises(GdscoreError, match="none that gives one output a row"):
        next(extract(seeded(ConvHead, pool_last=True), loader()))


def test_a_layer_that_is_not_linear_is_refused():
    model = nn.Sequential(Backbone(), CosineHead(16, CLASSES))
    with pytest.raises(GdscoreError, match="features × weights .*CosineHead.*none does"):
        next(extract(model, loader()))


def test_two_layers_that_cannot_be_told_apart():
    model = seeded(TwoHeads, copied=True)
    for layer in (model.main, model.aux):
        nn.init.zeros_(layer.weight)
        nn.init.ones_(layer.bias)
    with pytest.raises(GdscoreError, match=r"`main`.* and `aux`.* the same numbers: pass head="):
        next(extract(model, loader()))
    assert next(extract(model, loader(), head="main")).n_features == 16


@pytest.mark.parametrize("by", ["name", "module"])
def test_head_by_hand(by):
    model = seeded(CNN)
    out = next(extract(model, loader(), head="fc" if by == "name" else model.fc))
    assert torch.allclose(out.features @ model.fc.weight.T + model.fc.bias, out.logits, atol=1e-5)


def test_a_head_that_is_no_layer():
    class Functional(CNN):
        def forward(self, x):
            return nn.functional.linear(self.backbone(x), self.fc.weight, self.fc.bias)

    with pytest.raises(GdscoreError, match=r"none that gives .*the output of an nn.Linear"):
        next(extract(seeded(Functional), loader()))


def test_features_that_come_first_in_a_tuple():
    class Pair(CNN):
        def forward(self, x):
            features = self.backbone(x)
            return features, self.fc(features)

    model = seeded(Pair)
    for options in ({}, {"head": False}, {"head": "fc"}):
        with pytest.raises(
            GdscoreError, match=r"returned a tuple of \(.*\(12, 16\), .*\(12, 5\)\): .*logits= .*position.*0 or 1"
        ):
            next(extract(model, loader(), **options))
    assert next(extract(model, loader(), logits=1)).n_features == 16


def test_logits_of_every_token():
    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(8, CLASSES)

        def forward(self, x):
            return self.fc(x)

    model, data = seeded(Tokens), [torch.randn(4, 6, 8)]
    with pytest.raises(GdscoreError, match=r"float32 of shape \(4, 6, 5\): .*logits=lambda output: output\[:, 0\]"):
        next(extract(model, data))
    assert next(extract(model, data, logits=lambda output: output[:, 0])).n_features == 8


def test_the_wrong_head_by_hand():
    model = seeded(TwoHeads)
    with pytest.raises(GdscoreError, match="`aux`.*none does"):
        next(extract(model, loader(), head="aux"))
    with pytest.raises(GdscoreError, match="none that gives one output a row"):
        next(extract(seeded(CNN), loader(), head="unused"))
    with pytest.raises(GdscoreError, match="Unknown layer head='fd': did you mean 'fc'"):
        extract(seeded(CNN), loader(), head="fd")
    with pytest.raises(GdscoreError, match="not in it"):
        extract(model, loader(), head=nn.Linear(16, CLASSES))
    with pytest.raises(GdscoreError, match="'backbone' is Backbone"):
        extract(model, loader(), head="backbone")
    with pytest.raises(GdscoreError, match="a layer, its name or False, but got int"):
        extract(model, loader(), head=3)


def test_a_model_without_linear_layers():
    with pytest.raises(GdscoreError, match="none that gives one output a row"):
        next(extract(nn.Flatten(), [torch.zeros(4, 3)]))


def test_a_model_that_decides_by_its_data():
    class EarlyExit(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, x):
            return self.first(x) if x[0, 0] > 0 else self.second(x)

    stream = extract(EarlyExit(), [torch.ones(4, 4), -torch.ones(4, 4)])
    next(stream)
    with pytest.raises(GdscoreError, match="`first` to be the logits in every batch"):
        next(stream)


def test_user_hooks_that_change_the_logits_are_noticed():
    model = seeded(CNN)
    model.fc.register_forward_hook(lambda module, args, output: output * 2)
    with pytest.raises(GdscoreError, match="features × weights"):
        next(extract(model, loader()))


def test_head_of():
    model = seeded(CNN)
    W, b = head_of(model, loader()[0])
    (out,) = extract(model, loader(1))
    assert torch.allclose(out.features @ W + b, out.logits, atol=1e-5)
    W.zero_()
    assert model.fc.weight.abs().sum() > 0
    assert head_of(seeded(CNN, bias=False), images())[1] is None
    W, b = head_of(seeded(ConvHead), images())
    assert (W.shape, b.shape) == ((16, CLASSES), (CLASSES,))


@pytest.mark.parametrize(
    ("batch", "options", "words"),
    [
        (images(), {"head": False}, "`head` to be a layer or its name, but got False"),
        (images()[:0], {}, "a batch with rows, but got float32 of shape \\(0, 3, 16, 16\\)"),
        (iter(loader()), {}, "`batch` to be one batch, but got list_iterator: next\\(iter\\(loader\\)\\) gives one"),
    ],
)
def test_head_of_what_is_no_batch(batch, options, words):
    with pytest.raises(GdscoreError, match=words):
        head_of(seeded(CNN), batch, **options)


def test_binary_model_with_one_logit():
    model = nn.Sequential(Backbone(), nn.Linear(16, 1))
    W, b = head_of(model, images())
    (out,) = extract(model, [images()])
    assert out.logits.shape == (ROWS, 2)
    assert torch.equal(out.logits[:, 0], torch.zeros(ROWS))
    assert torch.allclose(out.features @ W + b, out.logits, atol=1e-5)


def test_compiled_model_runs_eagerly():
    model = seeded(CNN).eval()
    expected = next(extract(model, loader()))
    for compiled in (torch.compile(model, backend="eager"), nn.Sequential(torch.compile(model, backend="eager"))):
        with torch.no_grad():
            compiled(images())
        out = next(extract(compiled, loader()))
        assert torch.equal(out.logits, expected.logits)
        assert torch.equal(out.features, expected.features)
    model.compile(backend="eager")
    assert torch.equal(next(extract(model, loader())).features, expected.features)


def test_data_parallel_is_unwrapped():
    model = seeded(CNN)
    out = next(extract(nn.DataParallel(model), loader(), head="fc"))
    assert torch.equal(out.features, next(extract(model, loader())).features)
