"""What models return: one column, probabilities in the place of logits, and predictions that a trainer made."""

from __future__ import annotations

from collections import namedtuple
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import gdscore
from gdscore import GdscoreError, models
from gdscore.models.predictions import logits_of

PredictionOutput = namedtuple("PredictionOutput", "predictions label_ids metrics")
ROWS, CLASSES = 20, 3


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Net(nn.Module):
    """A linear head on two layers; `after` is what becomes of the logits."""

    def __init__(self, classes=CLASSES, after=None):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.body, self.fc = nn.Linear(6, 4), nn.Linear(4, classes)
        self.after = after

    def forward(self, x):
        z = self.fc(self.body(x).relu())
        return z if self.after is None else self.after(z)


def binary(after=None):
    return Net(1, after)


X = numbers(ROWS, 6)
Y = (numbers(ROWS, seed=1) > 0).long()


@pytest.mark.parametrize(
    "after", [None, lambda z: z[:, 0], lambda z: (z.sum(), z[:, 0]), lambda z: {"logits": z.squeeze()}]
)
@pytest.mark.parametrize("labels", [Y, Y.float(), Y.float()[:, None], Y.bool()])
def test_binary_models_with_one_logit(after, labels):
    expected = binary()(X).detach()[:, 0]
    (out,) = models.extract(binary(after), [(X, labels)])
    assert torch.equal(out.logits, torch.stack([torch.zeros(ROWS), expected], 1))
    assert torch.equal(out.labels, Y)
    assert out.accuracy == pytest.approx(float(((expected > 0) == Y.bool()).double().mean()))
    W, b = models.head_of(binary(after), X)
    torch.testing.assert_close(out.features @ W + b, out.logits)


@pytest.mark.parametrize("classes", [1, CLASSES])
def test_squeezed_logits_of_a_batch_of_one_row(classes):
    net = Net(classes, lambda z: z.squeeze())
    outputs = list(models.extract(net, [X[:5], X[5:6]]))
    plain = list(models.extract(Net(classes), [X[:5], X[5:6]]))
    for a, b in zip(outputs, plain, strict=True):
        assert torch.equal(a.logits, b.logits)


def test_vectors_of_other_lengths_are_no_logits():
    with pytest.raises(GdscoreError, match="logits of 20 rows"):
        next(models.extract(Net(after=lambda z: z.flatten()), [X]))
    assert logits_of((torch.tensor(0.1), X[:, 0], X)) is X


def softmax(z):
    return z.softmax(1)


def one_column(z):
    return z.sigmoid()


PROBABILITIES = {
    "softmax": (Net, softmax),
    "softmax in a dict": (Net, lambda z: {"logits": softmax(z)}),
    "sigmoid": (binary, one_column),
    "sigmoid, one dimension": (binary, lambda z: one_column(z)[:, 0]),
}


@pytest.mark.parametrize("head", [None, False, "fc"])
@pytest.mark.parametrize(("make", "after"), PROBABILITIES.values(), ids=PROBABILITIES)
def test_probabilities_are_noticed_and_taken_as_such(make, after, head):
    net = make(after=after)
    with pytest.raises(GdscoreError, match='look like probabilities.*outputs="probabilities"'):
        next(models.extract(net, [X], head=head))
    (plain,) = models.extract(make(), [X])
    (out,) = models.extract(net, [X], head=head, outputs="probabilities")
    torch.testing.assert_close(out.probabilities, plain.probabilities)
    torch.testing.assert_close(out.logits.softmax(1), plain.logits.softmax(1))
    if head is not False:
        assert torch.equal(out.features, plain.features)
    assert gdscore.score("confscore", out) == pytest.approx(gdscore.score("confscore", plain))


def test_features_of_probabilities_in_later_batches():
    net = Net(after=softmax)
    outputs = list(models.extract(net, X.split(7), outputs="probabilities"))
    assert torch.equal(
        torch.cat([o.features for o in outputs]), torch.cat([o.features for o in models.extract(Net(), X.split(7))])
    )
    mixed = Net(after=lambda z: (z.softmax(1) + z.flip(1).softmax(1)) / 2)
    with pytest.raises(GdscoreError, match="head=False"):
        next(models.extract(mixed, [X], outputs="probabilities"))
    assert next(models.extract(mixed, [X], outputs="probabilities", head=False)).has == {"logits", "probabilities"}


def test_probabilities_of_a_second_model():
    net, peer = Net(after=softmax), Net(after=lambda z: softmax(-z))
    (out,) = models.extract(net, [X], peer=peer, outputs="probabilities")
    (plain,) = models.extract(Net(), [X])
    torch.testing.assert_close(out.peer_logits.softmax(1), (-plain.logits).softmax(1))
    with pytest.raises(GdscoreError, match="look like probabilities"):
        next(models.extract(Net(), [X], peer=peer))


@pytest.mark.parametrize("make", [lambda: Net(after=softmax), lambda: binary(one_column)])
def test_the_check_can_be_left_out(make):
    (out,) = models.extract(make(), [X], head=False, outputs="logits")
    assert "probabilities" not in out.has
    with pytest.raises(GdscoreError, match="Unknown `outputs` 'logit': did you mean 'logits'"):
        models.extract(make(), [X], outputs="logit")


def test_few_rows_of_one_column_are_no_proof():
    net = binary(one_column)
    stream = models.extract(net, X[:18].split(6), head=False)
    assert len([next(stream), next(stream)]) == 2
    with pytest.raises(GdscoreError, match="sigmoid"):
        next(stream)
    late = binary(lambda z: z.sigmoid() * torch.where(torch.arange(len(z)) == len(z) - 1, 1.5, 1.0)[:, None] + 0.6)
    assert len(list(models.extract(late, X.split(6), head=False))) == 4


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_probabilities_in_other_precisions(dtype):
    net = Net(after=softmax).to(dtype)
    with pytest.raises(GdscoreError, match="look like probabilities"):
        next(models.extract(net, [X], head=False))


@pytest.mark.parametrize("call", [models.head_of, lambda net, x: models.projnorm(net, [x], start="model", steps=1)])
def test_wherever_logits_are_needed(call):
    with pytest.raises(GdscoreError, match="look like probabilities"):
        call(Net(after=softmax), X)


def test_score_all_of_probabilities():
    table = models.score_all(Net(after=softmax), [X], outputs="probabilities", scores=["confscore"])
    plain = models.score_all(Net(), [X], scores=["confscore"])
    assert table["confscore"] == pytest.approx(plain["confscore"], rel=1e-5)


# -- predictions that a trainer made ------------------------------------------------------------------------------

Z, F = numbers(ROWS, CLASSES), numbers(ROWS, 4, seed=2)
LABELS = torch.randint(CLASSES, (ROWS,), generator=torch.Generator().manual_seed(3))
EXPECTED = gdscore.Outputs(logits=Z, labels=LABELS)


def same(out, **arrays):
    assert {name: np.asarray(a).tolist() for name, a in out.arrays.items()} == {
        n: a.tolist() for n, a in arrays.items()
    }


@pytest.mark.parametrize("predictions", [Z.numpy(), (Z.numpy(), F.numpy()[:, None])])
def test_hugging_face_predictions(predictions):
    out = models.from_batches(PredictionOutput(predictions, LABELS.numpy(), {"test_loss": 1.0}))
    assert isinstance(out.logits, np.ndarray)
    same(out, logits=Z, labels=LABELS)
    same(models.from_batches(PredictionOutput(predictions, None, None)), logits=Z)
    other = (LABELS + 1) % CLASSES
    same(
        models.from_batches(PredictionOutput(predictions, LABELS.numpy(), None), labels=other.numpy()),
        logits=Z,
        labels=other,
    )


def test_a_real_trainer(tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from tests.models.networks import distilbert

    rows = [{"input_ids": torch.randint(50, (7,)), "labels": int(y)} for y in LABELS]
    args = transformers.TrainingArguments(output_dir=tmp_path, report_to=[], use_cpu=True, disable_tqdm=True)
    predicted = transformers.Trainer(distilbert(), args).predict(rows)
    out = models.from_batches(predicted)
    assert np.array_equal(out.logits, predicted.predictions)
    assert out.labels.tolist() == LABELS.tolist()


@pytest.mark.parametrize(
    "batch_of",
    [
        lambda z, f, y: z,
        lambda z, f, y: (z, y),
        lambda z, f, y: (z.argmax(1), z),
        lambda z, f, y: (z, f[:, :, None, None].expand(-1, -1, 2, 2)),
        lambda z, f, y: SimpleNamespace(logits=z),
        lambda z, f, y: {"logits": z, "loss": torch.tensor(1.0)},
        lambda z, f, y: z.numpy(),
    ],
)
def test_lightning_predictions(batch_of):
    made = [batch_of(*part) for part in zip(Z.split(8), F.split(8), LABELS.split(8), strict=True)]
    same(models.from_batches(made), logits=Z)
    same(models.from_batches(made, LABELS), logits=Z, labels=LABELS)
    same(models.from_batches(made, list(LABELS.split(8))), logits=Z, labels=LABELS)
    same(models.from_batches(made, LABELS.float().numpy()), logits=Z, labels=LABELS)


def test_dicts_give_every_array_that_outputs_have():
    made = [
        {"logits": z, "features": f, "labels": y, "ids": i, "path": ["a"] * len(z)}
        for z, f, y, i in zip(Z.split(8), F.split(8), LABELS.split(8), torch.arange(ROWS).split(8), strict=True)
    ]
    same(models.from_batches(made), logits=Z, features=F, labels=LABELS, ids=torch.arange(ROWS))
    chosen = models.from_batches(
        [{"score": z, "label": y} for z, y in zip(Z.split(8), LABELS.split(8), strict=True)], logits="score"
    )
    same(chosen, logits=Z, labels=LABELS)
    named = models.from_batches({"probabilities": Z.softmax(1), "labels": LABELS})
    assert named.accuracy == EXPECTED.accuracy


def test_probabilities_among_predictions():
    with pytest.raises(GdscoreError, match="look like probabilities"):
        models.from_batches(Z.softmax(1))
    assert models.from_batches(Z.softmax(1), LABELS, outputs="probabilities").accuracy == EXPECTED.accuracy
    assert models.from_batches(Z[:, 0].sigmoid(), outputs="probabilities").n_classes == 2


@pytest.mark.parametrize(
    ("predictions", "labels", "words"),
    [
        ([], None, "the list is empty"),
        ([[Z], [Z]], None, "for each of them"),
        ([Z.argmax(1)], None, "look like predicted classes"),
        ({"score": Z}, None, "pass logits="),
        (Z, LABELS[:3], "each of 20 rows"),
        (Z, ["cat"] * ROWS, "number the classes"),
        ([{"logits": Z, "labels": LABELS}, {"logits": Z}], None, "every batch to hold"),
        ("predictions.npz", None, "to return its logits"),
        (gdscore.Outputs(logits=Z), None, "are `gdscore.Outputs` already.*Outputs.concatenate"),
        ([gdscore.Outputs(logits=Z)], None, "are `gdscore.Outputs` already"),
        ((z for z in [Z]), None, "list of batches, but got generator"),
        (Z, torch.eye(3)[LABELS], r"argmax\(1\)$"),
        (None, None, "NoneType"),
        (np.array(["a", "b"]), None, "ndarray"),
    ],
)
def test_predictions_that_cannot_be_used(predictions, labels, words):
    with pytest.raises(GdscoreError, match=words):
        models.from_batches(predictions, labels)
