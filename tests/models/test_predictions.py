"""What loaders yield and what models return, in all the forms people use."""

from __future__ import annotations

from collections import namedtuple
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import gdscore
from gdscore import GdscoreError, models
from gdscore.models.predictions import call, count_rows, describe, integer_labels, logits_of, split_batch, to_device

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
    assert logits_of((torch.tensor(0.1), X[:3, 0], X)) is X


@pytest.mark.parametrize(
    "output",
    [
        (X, torch.randn(20, 7)),
        (torch.randn(20, 7), X),
        [torch.tensor(0.1), X, None, X],
        (torch.randn(20, 7), X[:, 0]),  # the features of a binary model and its logit
        (X[:, 0], X[:, 0]),
        (X[:, :, None, None], X),
    ],
)
def test_entries_that_can_be_the_logits_as_well(output):
    """The first matrix was taken: of a model that returns (embedding, logits) the embedding."""
    with pytest.raises(GdscoreError, match=r"one entry that can be the logits, but .* pass logits= .* \d or \d"):
        logits_of(output)
    with pytest.raises(GdscoreError, match="pass logits="):
        models.from_batches([tuple(output)])
    assert logits_of(output, 1).ndim == 2


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


INPUT, CLASS, OTHER = torch.zeros(4, 3), torch.arange(4), torch.randn(4, 2)


@pytest.mark.parametrize(
    ("batch", "labelled"),
    [
        (INPUT, False),
        ((INPUT,), False),
        ([INPUT], False),
        ((INPUT, CLASS), True),
        ([INPUT, CLASS], True),
        ((INPUT, CLASS, ["a"] * 4), True),
        ((INPUT, None), False),
    ],
)
def test_tensor_batches(batch, labelled):
    inputs, labels = split_batch(batch)
    assert inputs is INPUT
    assert labels is (CLASS if labelled else None)


@pytest.mark.parametrize("name", ["labels", "label", "targets", "target", "y"])
def test_dict_batches(name):
    inputs, labels = split_batch({"input_ids": INPUT, name: CLASS})
    assert list(inputs) == ["input_ids"]
    assert labels is CLASS
    assert split_batch({"input_ids": INPUT})[1] is None
    inputs, labels = split_batch(({"input_ids": INPUT}, CLASS))
    assert list(inputs) == ["input_ids"]
    assert labels is CLASS


def test_dicts_with_several_names_of_labels():
    inputs, labels = split_batch({"x": INPUT, "y": OTHER, "labels": CLASS})
    assert list(inputs) == ["x", "y"]
    assert labels is CLASS
    inputs, labels = split_batch(({"x": INPUT, "y": OTHER, "label": CLASS}, CLASS + 1))
    assert list(inputs) == ["x", "y"]
    assert labels.tolist() == [1, 2, 3, 4]


def test_hugging_face_encoding_is_a_dict():
    transformers = pytest.importorskip("transformers")
    inputs, labels = split_batch(transformers.BatchEncoding({"input_ids": INPUT, "labels": CLASS}))
    assert type(inputs) is dict
    assert labels is CLASS


@pytest.mark.parametrize("batch", [(), "text", 3, None, {"labels": CLASS}, {}, (np.zeros(3), CLASS), ["a", "b"]])
def test_other_batches_are_refused(batch):
    with pytest.raises(GdscoreError, match="Expected .* tensor"):
        split_batch(batch)


def test_moving_casts_floating_point_only():
    moved = to_device({"x": INPUT, "ids": CLASS, "name": "a"}, "cpu", dtype=torch.float64)
    assert moved["x"].dtype == torch.float64
    assert moved["ids"].dtype == torch.int64
    assert moved["name"] == "a"
    assert to_device(INPUT, "cpu") is INPUT


class Takes(nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.forward = forward


def test_calling():
    assert call(Takes(lambda x: x + 1), INPUT, 0).sum() == 12
    assert call(Takes(lambda a, b: a + b), (INPUT, 2), 0).sum() == 24
    assert count_rows({"name": "a", "x": INPUT}) == 4
    assert count_rows((INPUT, CLASS)) == 4
    with pytest.raises(GdscoreError, match="first dimension of rows"):
        count_rows(torch.tensor(1.0))


@pytest.mark.parametrize(
    "forward",
    [
        lambda a, b: a + b,
        lambda a, *, b: a + b,
        lambda **given: given["a"] + given["b"],
        lambda given: given["a"] + given["b"],
        lambda *given: given[0]["a"] + given[0]["b"],
    ],
    ids=["names", "keyword only", "any keywords", "the dict", "any arguments"],
)
def test_dicts_are_keywords_where_the_model_has_their_names(forward):
    assert call(Takes(forward), {"a": INPUT, "b": 2}, 0).sum() == 24


@pytest.mark.parametrize(
    ("forward", "words"),
    [(lambda a: a, "'b'.* as keyword arguments"), (lambda x: x + 1, "TypeError: .* as one argument, as forward takes")],
)
def test_dicts_that_do_not_fit(forward, words):
    with pytest.raises(GdscoreError, match=rf"batch 3, a dict of .*{words}"):
        call(Takes(forward), {"a": INPUT, "b": 2}, 3)


@pytest.mark.parametrize(
    "batch", [((INPUT, OTHER), CLASS), ([INPUT, OTHER], CLASS), ((INPUT, OTHER),), [(INPUT, OTHER), None]]
)
def test_several_inputs(batch):
    inputs, labels = split_batch(batch)
    assert isinstance(inputs, tuple)
    assert inputs[0] is INPUT
    assert inputs[1] is OTHER
    assert labels is (CLASS if batch[1:] and batch[1] is not None else None)


Named = namedtuple("Named", "logits aux_logits")


@pytest.mark.parametrize(
    "output",
    [
        OTHER,
        (OTHER,),
        [OTHER, CLASS],
        (torch.tensor(0.3), OTHER, (INPUT, INPUT)),
        (torch.zeros(4, 7, 3), OTHER),
        (torch.zeros(2), OTHER),
        (CLASS, OTHER),
        {"logits": OTHER, "loss": torch.tensor(1.0)},
        SimpleNamespace(logits=OTHER, hidden_states=None),
        Named(OTHER, None),
    ],
)
def test_logits_are_found(output):
    assert logits_of(output) is OTHER


def test_logits_of_maps_of_one_pixel():
    assert logits_of(OTHER[:, :, None, None]).shape == OTHER.shape


def test_logits_where_the_caller_says():
    assert logits_of((INPUT, OTHER), where=1) is OTHER
    assert logits_of({"scores": OTHER}, where="scores") is OTHER
    assert logits_of(SimpleNamespace(inner=OTHER), where=lambda out: out.inner) is OTHER


@pytest.mark.parametrize(
    ("output", "where", "word"),
    [
        ({"scores": OTHER}, None, "'scores': float32 of shape \\(4, 2\\)"),
        (torch.tensor(0.5), None, r"\(rows, classes\).* but got float32 of shape \(\)"),
        (CLASS, None, "look like predicted classes"),
        (torch.zeros(4, 2, 8, 8), None, r"\(4, 2, 8, 8\)"),
        (torch.zeros(4, 2, dtype=torch.int64), None, "floating-point"),
        ((), None, "pass logits="),
        (None, None, "NoneType"),
        ((INPUT, OTHER), 2, "to have 2"),
        (OTHER, "scores", "to have 'scores'"),
        ((INPUT, "a"), 1, "picks str"),
    ],
)
def test_logits_that_are_none(output, where, word):
    with pytest.raises(GdscoreError, match=word):
        logits_of(output, where)


@pytest.mark.parametrize(
    "labels",
    [
        CLASS,
        CLASS.to(torch.uint8),
        CLASS.to(torch.uint16),
        CLASS.tolist(),
        CLASS.numpy(),
        CLASS.float(),
        CLASS.half(),
        CLASS[:, None],
    ],
)
def test_integer_labels(labels):
    y = integer_labels(labels, 4, "cpu")
    assert y.dtype == torch.int64
    assert y.tolist() == [0, 1, 2, 3]


def test_label_of_one_row_that_was_squeezed():
    assert integer_labels(torch.tensor(2), 1, "cpu").tolist() == [2]


def test_binary_labels():
    for labels in (torch.tensor([True, False]), torch.tensor([1.0, 0.0]), torch.tensor([[1.0], [0.0]])):
        assert integer_labels(labels, 2, "cpu").tolist() == [1, 0]


@pytest.mark.parametrize(
    ("labels", "word"),
    [
        (CLASS + 0.5, "classes 0, 1, …, but row 0 of a batch has 0.5"),
        (torch.tensor([0.0, 1.0, float("nan"), 1.0]), "row 2 of a batch has nan"),
        (CLASS + 1j, "complex"),
        (torch.eye(4), "argmax"),
        (torch.eye(4, dtype=torch.int64), "one-hot"),
        (["a", "b", "c", "d"], "a list of \\(str"),
        (CLASS[:3], "each of 4 rows"),
        (INPUT, r"\(4, 3\): .*second input is yielded as \(\(x1, x2\), y\)"),
        (3, r"\(\)"),
    ],
)
def test_other_labels_are_refused(labels, word):
    with pytest.raises(GdscoreError, match=word):
        integer_labels(labels, 4, "cpu")


def test_shapes_are_worded():
    assert describe([INPUT] * 6).endswith(", …)")
    assert describe({"x": 1}) == "a dict of {'x': int}"


def test_batches_of_logits_that_look_like_probabilities():
    shares = torch.softmax(torch.randn(20, 3, generator=torch.Generator().manual_seed(0)), 1)
    with pytest.raises(GdscoreError, match="look like probabilities"):
        models.from_batches([shares])
    assert torch.equal(models.from_batches([shares], outputs="logits").logits, shares)


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([numbers(6, 3), numbers(6, 3)[0]], r"batch 0 has 3 and batch 1 has 1: a model that ends in squeeze"),
        ([numbers(6, 2), numbers(2)], r"batch 0 has 2 and batch 1 has 1"),  # were two rows more of a binary model
        ([numbers(6, 3), numbers(6, 2)], r"batch 0 has 3 and batch 1 has 2"),
        (
            [{"logits": numbers(6, 3), "features": numbers(6, k)} for k in (4, 5)],
            r"`features` of each .* batch 1 it is",
        ),
        ([{"probabilities": [[0.5, 0.5]]}], r"`probabilities` of each batch to be a tensor or array .* a tuple"),
    ],
)
def test_batches_that_do_not_fit_together(batches, message):
    """Errors of torch came through."""
    with pytest.raises(GdscoreError, match=message):
        models.from_batches(batches)


def test_ids_that_are_texts_and_numbers_of_other_machines():
    names = [list("ab"), np.array(["c"])]
    out = models.from_batches([{"logits": numbers(len(ids), 3), "ids": ids} for ids in names])
    assert out.ids.tolist() == ["a", "b", "c"]
    assert models.from_batches(numbers(4, 3).numpy().astype(">f4")).logits.tolist() == numbers(4, 3).tolist()
